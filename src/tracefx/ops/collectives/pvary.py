"""Values declared to be each device's own, and cotangents whole and in shares.

A program between devices is differentiated as all of them compute it together. There the cotangent of a value that is
the same everywhere is in shares: each device has one, and the true one is their sum. So nothing has to be summed on the
way but where a true cotangent is asked for: by the user, whose function begins and ends there, or by a rule of theirs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import final

from attrs import frozen
from typing_extensions import override

from tracefx.core.avals import Axes
from tracefx.core.handler import bind, bind1, current, may_vary, varies
from tracefx.core.primitive import (
    Batchable,
    Differentiable,
    Expandable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
    Zero,
)
from tracefx.core.values import Value
from tracefx.core.varying import Flow, HasVaryingRule
from tracefx.ops.annotations.identity import Identity


@final
@frozen(eq=False)
class PVary(Identity, Primitive, Expandable, Differentiable, Transposable, Batchable, HasVaryingRule):
    """The operand itself, from here on one that may differ along these axes of a mesh."""

    name = "pvary"
    axes: tuple[str, ...]

    @override
    def varies(self, operands: Sequence[Axes], count: int, flow: Flow) -> Sequence[Axes]:
        return operands if flow.of_values else [operand.union(self.axes) for operand in operands]

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return args  # for handlers whose values know nothing of a mesh

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        (t,) = tangents
        assert not isinstance(t, Zero)
        return bind(self, *primals), bind(self, t)

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return cts  # which is a share before, and one behind

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        return bind(self, *args), dims


def varying(x: Value, names: Iterable[Hashable]) -> Value:
    """A value that varies along those of the named axes that are checked."""
    checked = current().checked
    if not checked:
        return x
    known = varies(x)
    new = tuple([str(name) for name in names if name in checked and name not in known])
    return bind1(PVary(new), x) if new else x


def replicated_axes(x: Value, names: Iterable[Hashable]) -> list[Hashable]:
    """Those of the named axes along which a value is known to be the same everywhere, with all that is beside it."""
    checked = current().checked
    if not checked:
        return []
    known = may_vary(x)
    return [name for name in names if name in checked and name not in known]
