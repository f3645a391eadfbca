"""The arguments of rules of primitives that are not values: symbolic zeros, undefined primals, the batch axis."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias, final

from attrs import field, frozen

from tracefx.core.array import ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.fast_init import slot_setter
from tracefx.core.named_sharding import NamedSharding
from tracefx.core.values import Value, get_aval


@final
@frozen(init=False)
class Zero:
    """A symbolic zero: a tangent or cotangent known to be zero, for which no array is allocated.

    Args:
        aval: The aval of the tangent or cotangent.

    >>> from tracefx.core.values import as_value
    >>> Zero(as_value(2.0).aval)
    Zero(aval=f32[]*)
    """

    aval: ShapedArray

    def __init__(self, aval: ShapedArray) -> None:
        _set_zero(self, aval)

    @staticmethod
    def from_primal_value(x: ArrayLike) -> Zero:
        """Returns the symbolic zero that is the tangent of a value.

        Args:
            x: The value.

        >>> Zero.from_primal_value(2.0), Zero.from_primal_value(2)
        (Zero(aval=f32[]*), Zero(aval=float0[]))
        """
        return Zero(get_aval(x).tangent())


@final
@frozen(init=False)
class UndefinedPrimal:
    """The operand of a transpose rule in which the primitive is linear: its aval is known, its value is not.

    Args:
        aval: The aval of the operand.

    >>> from tracefx.core.values import as_value
    >>> UndefinedPrimal(as_value(2.0).aval)
    UndefinedPrimal(aval=f32[]*)
    """

    aval: ShapedArray

    def __init__(self, aval: ShapedArray) -> None:
        _set_linear(self, aval)


_set_zero, _set_linear = slot_setter(Zero, "aval"), slot_setter(UndefinedPrimal, "aval")

Tangent: TypeAlias = Value | Zero


@final
@frozen
class MappedAxis:
    """The axis that batching adds.

    Args:
        size: The axis size.
        name: The axis name that collectives refer to; `None` for an unnamed axis.
        spmd_name: The mesh axis or axes over which the batch is sharded; `None` for no sharding.

    >>> MappedAxis(8, "batch")
    MappedAxis(size=8, name='batch', spmd_name=None)
    """

    size: int
    name: Hashable = None
    spmd_name: str | tuple[str, ...] | None = None
    """The mesh axes that sharding annotations inside the batched function get for this axis."""
    explicit: NamedSharding | None = field(default=None, repr=False)
    """The sharding of the axis that is part of the types of batched values; None if it is not sharded."""

    def add_to(self, aval: ShapedArray, dim: int) -> ShapedArray:
        """Returns the aval of a whole batch, given that of an element.

        Args:
            aval: The aval of an element.
            dim: The position of the axis.
        """
        return aval.with_axis(self.size, dim, self.explicit)
