"""Integer functions: greatest common divisors, least common multiples, bit counts, packing of bits."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

import numpy as np

from tracefx.core import Array, ArrayLike, Value, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.kernels import KERNELS
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, promote_pair, to_numeric
from tracefx.numpy.reductions import sum
from tracefx.numpy.shapes import moveaxis, ravel
from tracefx.numpy.ufuncs import absolute, broadcast_select, literal_like
from tracefx.ops import structural
from tracefx.ops.elementwise import arithmetic, comparison
from tracefx.ops.elementwise.bit_representation import population_count
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import canonicalize_axis, static_int
from tracefx.transforms.eager_calls import eager_cached
from tracefx.transforms.loops import while_loop

BitOrder: TypeAlias = Literal["big", "little"]


def _integer_operands(name: str, x1: ArrayLike, x2: ArrayLike) -> tuple[Array, Array]:
    """Returns the absolute values of promoted integers; raises ValueError for other dtypes."""
    x, y = promote_pair(name, x1, x2)
    if not dtypes.is_integer(x.aval.dtype):
        raise ValueError(f"{name} takes integers, got {x.aval} and {y.aval}")
    sizes = x.aval.shape or y.aval.shape
    return absolute(structural.broadcast_to(x, sizes)), absolute(structural.broadcast_to(y, sizes))


@eager_cached(numbers=2, kernel=KERNELS["gcd"])
def gcd(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Returns the greatest common divisor; 0 for two zeros.

    Args:
        x1: An array or number, of integers.
        x2: An array or number, of integers; broadcast against `x1`.

    Returns:
        The divisors, nonnegative, in the promoted dtype and the broadcast shape.

    Raises:
        ValueError: If an operand is not of integers.

    >>> gcd(np.array([12, 0]), 18).tolist()
    [6, 18]
    """
    x, y = _integer_operands("gcd", x1, x2)
    return _euclid(x, y)


@eager_cached(numbers=2, kernel=KERNELS["lcm"])
def lcm(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Returns the least common multiple; 0 if either operand is 0.

    Args:
        x1: An array or number, of integers.
        x2: An array or number, of integers; broadcast against `x1`.

    Returns:
        The multiples, nonnegative, in the promoted dtype and the broadcast shape.

    Raises:
        ValueError: If an operand is not of integers.

    >>> lcm(4, 6)
    Array(12, dtype=int32, weak_type=True)
    """
    x, y = _integer_operands("lcm", x1, x2)
    divisor = _euclid(x, y)
    zero = comparison.eq(divisor, literal_like(divisor, 0))
    return broadcast_select(
        zero,
        literal_like(x, 0),
        arithmetic.mul(x, arithmetic.div(y, broadcast_select(zero, literal_like(x, 1), divisor))),
    )


def _euclid(x: Array, y: Array) -> Array:
    """Runs Euclid's algorithm until all pairs are done."""
    return absolute(while_loop(_euclid_continues, _euclid_step, (x, y))[0])  # an operand may be the least integer


def _euclid_continues(xs: tuple[Array, Array]) -> Array:
    return comparison.ne(xs[1], literal_like(xs[1], 0)).any()


def _euclid_step(xs: tuple[Array, Array]) -> tuple[Array, Array]:
    x, y = xs
    done = comparison.eq(y, literal_like(y, 0))
    remainder = arithmetic.rem(x, broadcast_select(done, literal_like(y, 1), y))
    return broadcast_select(done, x, y), broadcast_select(done, y, remainder)


def bitwise_count(x: ArrayLike, /) -> Array:
    """Returns the number of one bits in the absolute value.

    Args:
        x: An array or number, of integers or bools.

    Returns:
        An array of `uint8` of the shape of `x`.

    Raises:
        TypeError: If `x` is of another dtype.

    >>> bitwise_count(np.array([0, 7, -1])).tolist()
    [0, 3, 1]
    """
    return as_array(convert_dtype(population_count(absolute(to_numeric(x, "bitwise_count: x"))), dtypes.uint8))


@eager_cached(kernel=KERNELS["packbits"])
def packbits(a: ArrayLike, axis: int | None = None, bitorder: str = "big") -> Array:
    """Packs each eight elements along an axis into one `uint8`, with a one bit for each nonzero element.

    Args:
        a: An array of integers or bools.
        axis: The axis; None means the flattened array.
        bitorder: `"big"` if the first element is the highest bit, `"little"` if it is the lowest.

    Returns:
        An array of `uint8`, an eighth as long along the axis, rounded up.

    Raises:
        TypeError: If `a` is of another dtype.

    >>> packbits(np.array([1, 0, 1])).tolist()
    [160]
    """
    value = as_operand(a, "packbits: a")
    if dtypes.is_inexact(value.aval.dtype) or dtypes.is_key(value.aval.dtype):
        raise TypeError(f"packbits takes integers and bools, got {value.aval}")
    order = _check_bitorder("packbits", bitorder)
    x, along = _move_axis_to_end("packbits", value, axis)
    zero: bool | int = False if dtypes.is_bool(x.aval.dtype) else 0
    bits = as_array(convert_dtype(comparison.ne(x, literal_like(x, zero)), dtypes.uint8))
    *before, n = bits.shape
    bits = shape.pad(bits, literal_like(bits, 0), [(0, 0, 0)] * len(before) + [(0, -n % 8, 0)])
    octets = structural.reshape(bits, (*before, -(-n // 8), 8))
    return moveaxis(sum(octets << _bit_positions(order), -1, dtypes.uint8), -1, along)


@eager_cached(kernel=KERNELS["unpackbits"])
def unpackbits(a: ArrayLike, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Array:
    """Unpacks the bits of `uint8` elements along an axis: the inverse of `packbits`.

    Args:
        a: An array of `uint8`.
        axis: The axis; None means the flattened array.
        count: How many bits to return, with zeros behind if there are fewer. A negative number leaves out so many bits
            at the end. None means all.
        bitorder: `"big"` if the highest bit comes first, `"little"` if the lowest does.

    Returns:
        An array of `uint8` that are 0 or 1, eight times as long along the axis unless `count` is given.

    Raises:
        TypeError: If `a` is of another dtype.

    >>> unpackbits(np.array([160], np.uint8), count=4).tolist()
    [1, 0, 1, 0]
    """
    value = as_operand(a, "unpackbits: a")
    if value.aval.dtype != dtypes.uint8:
        raise TypeError(f"unpackbits takes uint8, got {value.aval}")
    order = _check_bitorder("unpackbits", bitorder)
    x, along = _move_axis_to_end("unpackbits", value, axis)
    bits = (shape.expand_dims(x, (x.aval.ndim,)) >> _bit_positions(order)) & np.uint8(1)
    *before, n = x.aval.shape
    bits = structural.reshape(bits, (*before, 8 * n))
    if count is not None:
        bit_count = static_int("unpackbits", count, "count")
        bit_count = bit_count if bit_count >= 0 else max(0, 8 * n + bit_count)
        bits = shape.pad(bits, literal_like(bits, 0), [(0, 0, 0)] * len(before) + [(0, bit_count - 8 * n, 0)])
    return moveaxis(bits, -1, along)


def _check_bitorder(name: str, bitorder: str) -> BitOrder:
    if bitorder not in ("little", "big"):
        raise ValueError(f"{name}: bitorder must be 'little' or 'big', got {bitorder!r}")
    return cast("BitOrder", bitorder)


def _bit_positions(order: BitOrder) -> Array:
    positions = shape.iota(dtypes.uint8, 8)
    return positions if order == "little" else shape.rev(positions, (0,))


def _move_axis_to_end(name: str, x: Value, axis: int | None) -> tuple[Value, int]:
    """Returns `x` with an axis moved to the end (flattened if None), and the original position of the axis."""
    if axis is None:
        return ravel(x), 0
    along = canonicalize_axis(name, axis, x.aval.ndim)
    return moveaxis(x, along, -1), along
