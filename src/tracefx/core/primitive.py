"""Operations as values: an instance is one application's parameters, its class holds all of its rules.

A subclass declares parameters as attrs fields (`@frozen(eq=False)`) and names in its bases what it can do:

    @frozen(eq=False)
    class Scale(Primitive, Differentiable, Batchable, Lowerable):
        name = "scale"
        factor: float
        ...

A rule that isn't there is reported by `MissingRuleError` when it is needed, not before.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import ClassVar, Protocol, TypeAlias, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.effects import NO_EFFECTS, Effects
from tracefx.core.equality import strict_key
from tracefx.core.fast_init import slot_setter
from tracefx.core.values import ConcreteArray, Value, to_numpy
from tracefx.errors import MissingRuleError

# ------------------------------------------------------------------ what rules speak of


@final
@frozen(init=False)
class Zero:
    """A tangent or cotangent known to be zero: no array of zeros is made for it."""

    aval: ShapedArray

    def __init__(self, aval: ShapedArray) -> None:
        _set_zero(self, aval)


@final
@frozen(init=False)
class UndefinedPrimal:
    """Stands, in a transpose rule, for an operand the operation is linear in: its type is known, its value isn't."""

    aval: ShapedArray

    def __init__(self, aval: ShapedArray) -> None:
        _set_linear(self, aval)


_set_zero, _set_linear = slot_setter(Zero, "aval"), slot_setter(UndefinedPrimal, "aval")

Tangent: TypeAlias = Value | Zero


@final
@frozen
class MappedAxis:
    """The axis that batching adds: its size, the name that collectives call it by, and along what it is to lie."""

    size: int
    name: Hashable = None
    spmd_name: str | tuple[str, ...] | None = None
    """The axes of a mesh that it is to lie along, wherever it is said how arrays lie."""


class Recorder(Protocol):
    """What partial evaluation offers to an operation's `partial_eval` rule."""

    def record(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        """Put the operation off: it becomes an equation of the unknown half."""
        ...

    def evaluate(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        """Bind the operation, whose operands are all known, at once."""
        ...


# ------------------------------------------------------------------ operations


@frozen(eq=False)
class Primitive:
    """One operation. Compared by class and parameters, `1`, `1.0` and `True` being three different parameters."""

    name: ClassVar[str]

    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        """Compute now, with NumPy."""
        raise missing_rule_error(self, "impl", "define impl(self, *args: numpy arrays)")

    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        """The types of the outputs; raises `TypeError` or `ValueError` where the operands don't fit."""
        raise missing_rule_error(self, "abstract_eval", "define abstract_eval(self, *avals)")

    def partial_eval(self, recorder: Recorder, unknown: Sequence[bool], args: Sequence[Value]) -> Sequence[Value]:
        """Split the operation where only some operands are known. Most are simply put off."""
        return recorder.record(self, args)

    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        """`impl` on values. Families override this where they know the output's type without asking."""
        arrays = [to_numpy(a) for a in args]
        if type(self).abstract_eval is Primitive.abstract_eval:
            return [ConcreteArray(ShapedArray(o.shape, o.dtype), o) for o in map(np.asarray, self.impl(*arrays))]
        avals = self.abstract_eval(*[a.aval for a in args])
        return [
            ConcreteArray(aval, _check_output(self, aval, np.asarray(out)))
            for aval, out in zip(avals, self.impl(*arrays), strict=True)
        ]

    @property
    def effects(self) -> Effects:
        return NO_EFFECTS

    @property
    def profile_name(self) -> str:
        """What profilers call the equation: operations that call a program say which."""
        return self.name

    @override
    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and strict_key(self) == strict_key(other))

    @override
    def __hash__(self) -> int:
        return hash(strict_key(self))


def _check_output(prim: Primitive, aval: ShapedArray, out: NDArray) -> NDArray:
    if out.shape != aval.shape or out.dtype != aval.dtype:
        raise TypeError(
            f"{type(prim).__name__}.impl gave {ShapedArray(out.shape, out.dtype)} where abstract_eval says {aval}"
        )
    return out


def missing_rule_error(prim: object, rule: str, remedy: str) -> MissingRuleError:
    """The error for a rule that a primitive lacks, or that it promises by a capability and does not define."""
    name = prim.name if isinstance(prim, Primitive) else "?"
    return MissingRuleError(f"primitive {name!r} has no {rule} rule: in class {type(prim).__name__}, {remedy}")


def not_linear_error(prim: Primitive) -> TypeError:
    """The error of a transpose rule for operands that the operation is not linear in together."""
    return TypeError(
        f"the function that is transposed is not linear in its inputs: {prim.name} is not linear in all of the "
        "operands that depend on them here"
    )


# ------------------------------------------------------------------ capabilities


class Differentiable:
    """Has a forward-mode derivative."""

    __slots__ = ()

    @abstractmethod
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        """Outputs and their tangents. At least one tangent is no `Zero`."""
        raise missing_rule_error(self, "jvp", "define jvp(self, primals, tangents)")


class Transposable:
    """Is linear in some operands, and knows the transpose of that linear map."""

    __slots__ = ()

    @abstractmethod
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        """Cotangents of the `UndefinedPrimal` operands from those of the outputs; `None` for the other operands."""
        raise missing_rule_error(self, "transpose", "define transpose(self, cts, *args)")


class Batchable:
    """Can be applied along one more axis at once."""

    __slots__ = ()

    @abstractmethod
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        """Outputs for a whole batch, and where in each the batch axis is. `dims` says where the operands have it."""
        raise missing_rule_error(self, "batch", "define batch(self, axis, args, dims)")


class Expandable:
    """Is defined by smaller operations; every handler without a rule of its own falls back to them."""

    __slots__ = ()

    @abstractmethod
    def expand(self, *args: Value) -> Sequence[Value]:
        """The same computation in other operations."""
        raise missing_rule_error(self, "expand", "define expand(self, *args)")
