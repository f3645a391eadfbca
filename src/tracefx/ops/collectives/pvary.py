"""`pvary`, which marks a value as varying over mesh axes, and queries of whether values vary.

A `shard_map` program is differentiated as the joint program of all devices. There, the cotangent of a replicated value
is unreduced: each device holds a summand, and the cotangent is the sum. So cotangents are summed only where a reduced
one is needed: at the inputs and outputs of the user's function, and in user-defined rules.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import final

from attrs import frozen
from typing_extensions import override

from tracefx.core import ShapedArray, Value
from tracefx.core.avals import MeshAxes
from tracefx.core.handler import Tracer, bind, bind1, current
from tracefx.core.primitive import Batchable, BatchDims, Expandable, MappedAxis, Tangent, Transposable, UndefinedPrimal
from tracefx.ops.annotations.identity import Identity
from tracefx.ops.operation import UnaryLinear
from tracefx.passes.varying import HasVmaRule


@final
@frozen(eq=False)
class PVary(Identity, UnaryLinear, Expandable, Transposable, Batchable, HasVmaRule):
    """The identity; its output is marked as varying over mesh axes.

    Args:
        axes: The names of the mesh axes.
    """

    name = "pvary"
    is_vma_cast = True
    axes: tuple[str, ...]

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return [aval.with_vma(self.vma(aval.vma)) for aval in avals]

    @override
    def vma(self, operands: MeshAxes) -> MeshAxes:
        return operands.union(self.axes)

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return args  # for handlers that don't track varying axes

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return cts  # unreduced on both sides

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        return bind(self, *args), dims


def varying(x: Value, names: Iterable[Hashable]) -> Value:
    """Returns `x`, marked as varying over those of the named axes that are checked."""
    axes = current().axes
    if not axes:
        return x
    known = x.aval.vma
    new = tuple([str(name) for name in names if name not in known and name in axes and axes[name].check_vma])
    return bind1(PVary(new), x) if new else x


def replicated_axes(x: Value, names: Iterable[Hashable]) -> list[Hashable]:
    """Returns the named axes over which `x`, its tangents included, is known to be replicated."""
    axes = current().axes
    checked = [name for name in names if name in axes and axes[name].check_vma]
    return [name for name in checked if name not in _vma_of_parts(x)]


def _vma_of_parts(x: Value) -> MeshAxes:
    return x.aval.vma.union(*map(_vma_of_parts, x.parts)) if isinstance(x, Tracer) else x.aval.vma
