"""Literals: scalar constants that are part of a jaxpr."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Final, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray
from tracefx.core.device import Buffer
from tracefx.core.dtypes import NDArray, Scalar
from tracefx.core.equality import StrictlyEqual
from tracefx.core.fast_init import slot_setter
from tracefx.core.kernel_context import call_kernel
from tracefx.errors import ConcretizationError


def out_of_bounds_error(val: int, dtype: dtypes.DType) -> OverflowError:
    """Returns the error for a Python integer that a dtype cannot represent."""
    shown = str(val) if val.bit_length() < 256 else f"of {val.bit_length()} bits"
    if not dtypes.is_integer(dtype):
        return OverflowError(f"Python integer {shown} is too large for {dtypes.name(dtype)}")
    info = dtypes.iinfo(dtype)
    return OverflowError(
        f"Python integer {shown} out of bounds for {dtypes.name(dtype)}, which holds {info.min} to {info.max}: ask for "
        "a wider dtype, such as int64 or float32"
    )


def _as_array(val: Scalar, dtype: dtypes.DType) -> NDArray:
    try:
        array = np.asarray(val, dtype)
    except OverflowError as error:
        if type(val) is not int:
            raise
        raise out_of_bounds_error(val, dtype) from error
    array.flags.writeable = False
    return array


@final
@frozen(init=False, eq=False)
class Literal(Array, StrictlyEqual):
    """A scalar constant with an aval. It is both a value, which handlers interpret, and an atom of a jaxpr.

    Python numbers become weakly typed literals, NumPy scalars literals of their own dtype. Because a literal keeps its
    aval, a jaxpr does not depend on settings such as x64 at the time it is evaluated.

    A literal is an array of shape `()`, with all operators and methods, so rules compute with it as with any operand.
    Only `==` and `!=` of two literals compare them as atoms, and return a Python bool: they are equal if their avals
    and the bytes of their values are, so `-0.0` is not `0.0`, and a NaN equals itself. `tracefx.numpy.equal` compares
    the numbers.

    Args:
        val: The Python number.
        aval: Its aval, of shape `()`.

    Raises:
        OverflowError: If `val` is an integer that the dtype cannot represent.

    >>> from tracefx.core.values import as_value
    >>> two = as_value(2.0)
    >>> two, two == as_value(2)
    (Literal(val=2.0, aval=f32[]*), False)
    >>> two + 1, two > 1
    (Array(3., dtype=float32, weak_type=True), Array(True, dtype=bool))
    """

    val: Scalar
    aval: ShapedArray
    host: NDArray | None = field(default=None, init=False, eq=False, repr=False)
    buffer: Buffer | None = field(default=None, init=False, eq=False, repr=False)
    """The device buffer, if one has been made. It is never donated."""

    def __init__(self, val: Scalar, aval: ShapedArray) -> None:
        _set_val(self, val)
        _set_aval(self, aval)
        _set_host(self, None)
        _set_buffer(self, None)
        if type(val) is int and not 0 <= val <= 1:  # every dtype can represent 0 and 1
            self.numpy()  # raises OverflowError here, where the user's number comes in

    def numpy(self) -> NDArray:
        """Returns the value as a read-only NumPy array of shape `()`. The array is cached."""
        host = self.host
        if host is None:
            host = call_kernel(_as_array, self.val, self.aval.dtype)
            _set_host(self, host)
        return host

    @override
    def concrete_or_error(self, error: type[ConcretizationError], use: str = "") -> NDArray:
        return self.numpy()

    committed = False

    @override
    def _no_placement(self, attribute: str) -> AttributeError:
        return AttributeError(f"{self!r} has no {attribute}: it is a constant of a program, not an array in memory")

    def attach_buffer(self, buffer: Buffer) -> None:
        """Stores the device buffer that the first compiled use made.

        Args:
            buffer: The buffer, on the first host device.
        """
        _set_buffer(self, buffer)

    @override
    def __reduce__(self) -> tuple[type[Literal], tuple[Scalar, ShapedArray]]:
        return Literal, (self.val, self.aval)

    @override
    def __eq__(self, other: object) -> Array:  # type: ignore[override]  # elementwise, as in NumPy
        if type(other) is not Literal:
            return super().__eq__(other)
        equal = self is other or (self.aval == other.aval and self._bits() == other._bits())
        return equal  # type: ignore[return-value]  # atoms: see the docstring of the class

    @override
    def __ne__(self, other: object) -> Array:  # type: ignore[override]  # elementwise, as in NumPy
        if type(other) is not Literal:
            return super().__ne__(other)
        return not self == other  # type: ignore[return-value]  # as in `__eq__`

    @override
    def __hash__(self) -> int:  # type: ignore[override]  # other arrays have none
        return hash((self.aval, self._bits()))

    def _bits(self) -> bytes:
        """Returns the bytes of the value in its dtype."""
        return self.numpy().tobytes()

    @override
    def __str__(self) -> str:
        val = self.val
        if self.aval.dtype.kind == "b":
            val = bool(val)
        return f"{val}:{self.aval}"


_set_val, _set_aval, _set_host, _set_buffer = [slot_setter(Literal, name) for name in ("val", "aval", "host", "buffer")]


def cache_literals(
    make: Callable[[Scalar, ShapedArray], Literal], limit: int = 4096
) -> Callable[[Scalar, ShapedArray], Literal]:
    """Decorates a constructor of literals with a cache, so that equal Python numbers share one literal.

    Programs use few different numbers, each of them often; this constructs each literal and its NumPy array once.

    Args:
        make: The constructor.
        limit: The maximal number of literals in the cache.
    """
    cached = memoize(limit, typed=True)(make)

    @functools.wraps(make)
    def literal(val: Scalar, aval: ShapedArray) -> Literal:
        if isinstance(val, complex) or val != val or (not val and math.copysign(1.0, val) < 0):  # NaN
            return make(val, aval)  # as keys, 0.0 and -0.0 are equal, and a NaN differs from itself
        return cached(val, aval)

    return literal


cached_literal: Final = cache_literals(Literal)
argument_literal: Final = cache_literals(Literal, limit=512)
"""Makes the literals of numbers that are passed to compiled programs: each of these keeps its device buffer."""
