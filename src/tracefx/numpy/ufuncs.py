"""Arithmetic element by element: sums, products, quotients, powers, extremes, rounding, parts of complex numbers.

Every function takes arrays, NumPy arrays and numbers whose shapes broadcast, and gives one array in the dtype in which
they meet. Argument errors are TypeErrors that name the argument; shapes that don't broadcast are a BroadcastError, a
TypeError and a ValueError.
"""

from __future__ import annotations

import builtins
import math
import operator
from typing import Final, overload

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import METHODS, Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.handler import as_array, bind1, evaluating
from tracefx.core.literal import Literal
from tracefx.core.values import ConcreteArray, Value
from tracefx.numpy.evaluated import NUMBERS, always, by_numpy
from tracefx.numpy.kernels import clipping, extreme_by, raising
from tracefx.numpy.promoting import (
    all_inexact,
    all_numeric,
    broadcast_shapes,
    inexact,
    literal,
    no_out,
    numeric,
    operand,
    pair,
    retyped,
)
from tracefx.numpy.universal import binary, greatest, least, products, products_so_far, sums, sums_so_far, unary
from tracefx.ops import arithmetic, bitwise, comparison, elementwise, magnitude, ordering, powers, rounding, selection
from tracefx.ops import complex as complex_numbers
from tracefx.ops.basis import broadcast_to, convert, full

_BOOL: Final = dtypes.bool_


def like(x: Value, fill: bool | int | float) -> Literal:
    """A scalar literal of the dtype of `x`."""
    return literal(fill, ShapedArray((), x.aval.dtype, x.aval.weak_type))


def choose(condition: Value, x: ArrayLike, y: ArrayLike) -> Array:
    """`x` where the condition holds and `y` elsewhere; scalars stand for arrays."""
    x, y = pair("where", x, y)
    shape = x.aval.shape or y.aval.shape or condition.aval.shape
    if not shape:  # literals stay literals
        return selection.select_n(condition, y, x)
    return selection.select_n(condition, broadcast_to(y, shape), broadcast_to(x, shape))


@overload
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike, /) -> Array: ...
@overload
def where(
    condition: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None
) -> tuple[Array, ...]: ...
def where(
    condition: ArrayLike,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    /,
    *,
    size: int | None = None,
    fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None,
) -> Array | tuple[Array, ...]:
    """`x` where the condition is true (differs from 0) and `y` elsewhere; without these `nonzero` of the condition.

    >>> where(np.arange(4) > 1, 1.0, 0).tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    if x is None and y is None:
        return METHODS.value.nonzero(operand(condition, "where: condition"), size=size, fill_value=fill_value)
    if size is not None or fill_value is not None:
        raise ValueError("where: size and fill_value are for the places of a condition; leave them or x and y out")
    if x is None or y is None:
        raise TypeError(f"where: x and y are given together or not at all, got {x!r} and {y!r}")
    test = operand(condition, "where: condition")
    if test.aval.dtype is not _BOOL:
        test = comparison.ne(test, like(test, python_zero(test)))
    a, b = pair("where", x, y)
    if evaluating() and (found := selection.evaluated(test, a, b)) is not None:
        return found
    if test.aval.shape == a.aval.shape == b.aval.shape:
        return selection.select_n(test, b, a)
    shape = broadcast_shapes("where", test.aval.shape, a.aval.shape, b.aval.shape)
    if test.aval.shape:
        test = broadcast_to(test, shape)
    return selection.select_n(test, broadcast_to(b, shape), broadcast_to(a, shape))


# ------------------------------------------------------------------ sums and products


@binary(0, sums, sums_so_far, "add")
def add(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1 + x2`. Bools are combined with `or`.

    >>> add(np.arange(3), 1)
    Array([1, 2, 3], dtype=int32)
    """
    x, y = pair("add", x1, x2)
    return bitwise.bitwise_or(x, y) if x.aval.dtype.kind == "b" else bind1(elementwise.ADD, x, y)


@binary(update="subtract")
def subtract(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1 - x2`. TypeError for bools.

    >>> subtract(np.arange(3), 1)
    Array([-1,  0,  1], dtype=int32)
    """
    x, y = pair("subtract", x1, x2)
    return bind1(arithmetic.SUB, x, y)


@binary(1, products, products_so_far, "multiply")
def multiply(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1 * x2`. Bools are combined with `and`.

    >>> multiply(np.arange(3), 2)
    Array([0, 2, 4], dtype=int32)
    """
    x, y = pair("multiply", x1, x2)
    return bitwise.bitwise_and(x, y) if x.aval.dtype.kind == "b" else bind1(arithmetic.MUL, x, y)


@unary
def negative(x: ArrayLike, /) -> Array:
    """`-x`. TypeError for bools.

    >>> negative(2.0)
    Array(-2., dtype=float32, weak_type=True)
    """
    return arithmetic.neg(operand(x, "negative: x"))


def positive(x: ArrayLike, /) -> Array:
    """`+x`, which is `x`.

    >>> positive(2)
    Array(2, dtype=int32, weak_type=True)
    """
    return as_array(operand(x, "positive: x"))


def absolute(x: ArrayLike, /) -> Array:
    """The absolute value; of complex numbers a float.

    >>> absolute(-2)
    Array(2, dtype=int32, weak_type=True)
    """
    value = operand(x, "absolute: x")
    return as_array(value) if value.aval.dtype.kind in "bu" else magnitude.abs(value)


def fabs(x: ArrayLike, /) -> Array:
    """The absolute value as a float.

    >>> fabs(-2)
    Array(2., dtype=float32, weak_type=True)
    """
    return magnitude.abs(_real("fabs", inexact(x, "fabs: x")))


@by_numpy(always(np.sign), among=NUMBERS)
def sign(x: ArrayLike, /) -> Array:
    """-1, 0 or 1 as `x` is negative, zero or positive; `x / abs(x)` for complex numbers. 0 is positive, of -0.0 too.

    >>> sign(np.float32([-3, 0, 2])).tolist()
    [-1.0, 0.0, 1.0]
    """
    value = operand(x, "sign: x")
    out = magnitude.sign(value)
    if not dtypes.is_float(value.aval.dtype):
        return out
    return choose(comparison.eq(value, like(value, 0.0)), like(value, 0.0), out)


def square(x: ArrayLike, /) -> Array:
    """`x * x`.

    >>> square(3)
    Array(9, dtype=int32, weak_type=True)
    """
    return powers.square(numeric(x, "square: x"))


# ------------------------------------------------------------------ quotients


def true_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1 / x2`, always a float or complex number.

    >>> true_divide(1, 2)
    Array(0.5, dtype=float32, weak_type=True)
    """
    x, y = all_inexact("true_divide", x1, x2)
    return arithmetic.div(x, y)


@by_numpy(always(np.floor_divide), arrays=2, numbers=True, replays=False, patient=False)
def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1 // x2`: the quotient rounded down. TypeError for complex numbers.

    Infinities are divided as in NumPy and Python: `inf // y` is NaN unless `y` is 0, and a finite number divided by an
    infinity is -1 if the signs differ, otherwise 0.

    >>> floor_divide(-7, 2)
    Array(-4, dtype=int32, weak_type=True)
    """
    x, y = _real_pair("floor_divide", *all_numeric("floor_divide", x1, x2))
    dtype = x.aval.dtype
    if dtype.kind == "u":
        return arithmetic.div(x, y)
    if dtypes.is_integer(dtype):
        quotient = arithmetic.div(x, y)
        opposite = comparison.ne(magnitude.sign(x), magnitude.sign(y))
        inexact_ = comparison.ne(arithmetic.rem(x, y), like(x, 0))
        return choose(bitwise.bitwise_and(opposite, inexact_), arithmetic.sub(quotient, like(x, 1)), quotient)
    return _float_divmod(x, y)


def _float_divmod(x: Value, y: Value) -> Array:
    """The quotient from a dividend that divides without rest, so that rounding can't push it over an integer."""
    rest = arithmetic.rem(x, y)
    by_zero = comparison.eq(y, like(y, 0.0))
    quotient = arithmetic.div(choose(by_zero, x, arithmetic.sub(x, rest)), y)
    has_rest = comparison.ne(rest, like(x, 0.0))
    opposite = comparison.ne(magnitude.sign(y), magnitude.sign(rest))
    lowered = arithmetic.sub(quotient, like(x, 1.0))
    quotient = rounding.round(choose(bitwise.bitwise_and(has_rest, opposite), lowered, quotient))
    # A zero has the sign of the quotient before it was rounded.
    exact = selection.stop_gradient(arithmetic.div(x, y))
    zero = arithmetic.mul(like(x, 0.0), exact)
    return choose(comparison.eq(quotient, like(x, 0.0)), zero, quotient)


@by_numpy(always(np.remainder), arrays=2, numbers=True, among=NUMBERS, replays=False, patient=False)
def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1 % x2`, which has the sign of `x2`. TypeError for complex numbers.

    >>> remainder(-7, 2)
    Array(1, dtype=int32, weak_type=True)
    """
    x, y = _real_pair("remainder", *all_numeric("remainder", x1, x2))
    y = _no_integer_zero(y)
    rest = arithmetic.rem(x, y)
    zero = like(rest, python_zero(rest))
    below, some = comparison.lt(y, zero), comparison.ne(rest, zero)
    off = bitwise.bitwise_and(comparison.ne(comparison.lt(rest, zero), below), some)
    out = choose(off, elementwise.add(rest, y), rest)
    if not dtypes.is_float(rest.aval.dtype):
        return out
    # A zero has the sign of the divisor, and the derivatives of the rest.
    nothing = arithmetic.sub(selection.stop_gradient(rest), rest)
    return choose(some, out, arithmetic.sub(choose(below, like(rest, -0.0), zero), nothing))


def fmod(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The rest of the division rounded towards zero, which has the sign of `x1`.

    >>> fmod(-7, 2)
    Array(-1, dtype=int32, weak_type=True)
    """
    x, y = _real_pair("fmod", *all_numeric("fmod", x1, x2))
    return arithmetic.rem(x, _no_integer_zero(y))


@by_numpy(
    always(lambda x, y: (np.floor_divide(x, y), np.remainder(x, y))),
    arrays=2,
    numbers=True,
    replays=False,
    patient=False,
)
def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Array, Array]:
    """`(x1 // x2, x1 % x2)`.

    >>> [int(part) for part in divmod(7, 2)]
    [3, 1]
    """
    return floor_divide(x1, x2), remainder(x1, x2)


def reciprocal(x: ArrayLike, /) -> Array:
    """`1 / x`.

    >>> reciprocal(4)
    Array(0.25, dtype=float32, weak_type=True)
    """
    return powers.integer_pow(inexact(x, "reciprocal: x"), -1)


def python_zero(x: Value) -> int | float:
    return 0 if dtypes.is_integer(x.aval.dtype) else 0.0


def _no_integer_zero(y: Value) -> Value:
    """Integer divisors with 1 in place of 0, so that the rest is 0 there."""
    if not dtypes.is_integer(y.aval.dtype):
        return y
    return choose(comparison.eq(y, like(y, 0)), like(y, 1), y)


def _real_pair(name: str, x: Value, y: Value) -> tuple[Value, Value]:
    return _real(name, x), _real(name, y)


def _real(name: str, x: Value) -> Value:
    if dtypes.is_complex(x.aval.dtype):
        raise TypeError(f"{name} is not defined for complex numbers, got {x.aval}; take their real or absolute part")
    return x


# ------------------------------------------------------------------ powers


@by_numpy(raising, arrays=2, numbers=True, replays=False)
def power(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1 ** x2`. An integer power known when the program is traced becomes multiplications.

    TypeError where an integer is raised to a negative power known to be one.

    >>> power(np.arange(4), 2)
    Array([0, 1, 4, 9], dtype=int32)
    """
    exponent = _static_exponent(x2)
    if exponent is not None:
        base = numeric(x1, "power: x1")
        if exponent < 0 and dtypes.is_integer(base.aval.dtype):
            raise TypeError(
                f"power: integers have no negative powers, got {base.aval} to the power {exponent}; "
                "convert the base to a float first"
            )
        return powers.integer_pow(base, exponent)
    x, y = all_numeric("power", x1, x2)
    base, to = operand(x1, "power: x1"), operand(x2, "power: x2")
    if dtypes.is_integer(x.aval.dtype):
        if x.aval.weak_type and _BOOL in (base.aval.dtype, to.aval.dtype):  # bools are taken for integers first
            x, y = retyped(x, x.aval.dtype), retyped(y, y.aval.dtype)
        return _integer_power(x, y)
    if dtypes.is_inexact(base.aval.dtype) and dtypes.is_integer(to.aval.dtype):
        # Integer powers are not differentiated, so the derivative by the base is right at 0 too.
        shape = x.aval.shape or y.aval.shape
        x, y = [v if not v.aval.shape else broadcast_to(v, shape) for v in (base, to)]
    return powers.pow(x, y)


pow = power


def _static_exponent(x: ArrayLike) -> int | None:
    if type(x) is int or isinstance(x, bool | np.integer):
        return operator.index(x)
    if type(x) is ConcreteArray and not x.aval.shape and dtypes.is_integer(x.aval.dtype):
        return operator.index(x)
    return None


def _integer_power(x: Value, y: Value) -> Array:
    """By repeated squaring, one bit of the exponent at a time; 0 for negative powers of 0."""
    one, zero = like(x, 1), like(x, 0)
    bits = dtypes.itemsize_bits(y.aval.dtype)
    undefined = bitwise.bitwise_and(comparison.eq(x, zero), comparison.ne(y, zero))
    shape = x.aval.shape or y.aval.shape
    result: Array = choose(undefined, full(ShapedArray(shape, x.aval.dtype, x.aval.weak_type), 0), like(x, 1))
    for bit in range(builtins.min(bits, 6)):
        odd = comparison.ne(bitwise.bitwise_and(y, one), zero)
        result = choose(odd, arithmetic.mul(result, x), result)
        if bit < 5:
            x, y = arithmetic.mul(x, x), bitwise.shift_right_logical(y, one)
    return result


# ------------------------------------------------------------------ extremes


@binary(None, greatest, update="max")
@by_numpy(extreme_by(np.maximum, ordering.maximum), arrays=2, numbers=True, among=NUMBERS)
def maximum(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The greater of the two; NaN where either is.

    >>> maximum(np.arange(3), 1)
    Array([1, 1, 2], dtype=int32)
    """
    x, y = pair("maximum", x1, x2)
    return arithmetic.max(x, y)


@binary(None, least, update="min")
@by_numpy(extreme_by(np.minimum, ordering.minimum), arrays=2, numbers=True, among=NUMBERS)
def minimum(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The lesser of the two; NaN where either is.

    >>> minimum(np.arange(3), 1)
    Array([0, 1, 1], dtype=int32)
    """
    x, y = pair("minimum", x1, x2)
    return arithmetic.min(x, y)


@by_numpy(clipping, arrays=3, numbers=True, among=NUMBERS)
def clip(arr: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    """`arr` with what lies below `min` or above `max` moved to it. ValueError for complex numbers.

    >>> clip(np.arange(5), 1, 3)
    Array([1, 1, 2, 3, 3], dtype=int32)
    """
    out = as_array(operand(arr, "clip: arr"))
    for bound, what in ((min, "min"), (max, "max")):
        if bound is not None and dtypes.is_complex(operand(bound, f"clip: {what}").aval.dtype):
            raise ValueError(f"clip: {what} is complex, and complex numbers have no order; clip real parts")
    if dtypes.is_complex(out.aval.dtype):
        raise ValueError(f"clip: arr is {out.aval}, and complex numbers have no order; clip its real or absolute part")
    if min is not None:
        out = maximum(min, out)
    if max is not None:
        out = minimum(max, out)
    return out


# ------------------------------------------------------------------ rounding


def floor(x: ArrayLike, /) -> Array:
    """The greatest integer that is not above `x`; integers stay as they are.

    >>> floor(-1.5)
    Array(-2., dtype=float32, weak_type=True)
    """
    value = _real("floor", operand(x, "floor: x"))
    return rounding.floor(value) if dtypes.is_float(value.aval.dtype) else as_array(value)


def ceil(x: ArrayLike, /) -> Array:
    """The least integer that is not below `x`; integers stay as they are.

    >>> ceil(-1.5)
    Array(-1., dtype=float32, weak_type=True)
    """
    value = _real("ceil", operand(x, "ceil: x"))
    return rounding.ceil(value) if dtypes.is_float(value.aval.dtype) else as_array(value)


def trunc(x: ArrayLike) -> Array:
    """`x` without its fraction; integers stay as they are.

    >>> trunc(-1.5)
    Array(-1., dtype=float32, weak_type=True)
    """
    value = _real("trunc", operand(x, "trunc: x"))
    if not dtypes.is_float(value.aval.dtype):
        return as_array(value)
    below = comparison.lt(value, like(value, 0.0))
    return choose(below, rounding.ceil(value), rounding.floor(value))


def rint(x: ArrayLike, /) -> Array:
    """The nearest integer, of two the even one, always as a float.

    >>> rint(2.5)
    Array(2., dtype=float32, weak_type=True)
    """
    value = operand(x, "rint: x")
    return round(value) if dtypes.is_inexact(value.aval.dtype) else convert(value, dtypes.default_float())


@by_numpy()
def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """`a` rounded to a number of decimals, of two nearest the even one.

    Negative `decimals` round to tens, hundreds and so on; an integer that is rounded beyond its dtype wraps around.

    >>> round(2.567, 2)
    Array(2.57, dtype=float32, weak_type=True)
    >>> round(np.array([1250, 1350, -49]), -2).tolist()
    [1200, 1400, 0]
    """
    no_out("round", out)
    value = operand(a, "round: a")
    dtype = value.aval.dtype
    decimals = operator.index(decimals)
    if not dtypes.is_inexact(dtype):
        return _rounded_integers(value, 10**-decimals) if decimals < 0 else as_array(value)
    if dtypes.is_complex(dtype):
        parts = [_rounded(complex_numbers.real(value), decimals), _rounded(complex_numbers.imag(value), decimals)]
        return complex_numbers.complex(*parts)
    return _rounded(value, decimals)


around = round


def _rounded(x: Value, decimals: int) -> Array:
    if decimals == 0:
        return rounding.round(x, rounding.RoundingMethod.TO_NEAREST_EVEN)
    dtype, weak = x.aval.dtype, x.aval.weak_type
    if decimals > math.log10(float(dtypes.finfo(dtype).max)):
        return as_array(x)  # no number has so many
    if dtype == dtypes.float16:  # in which products soon are infinite
        x = retyped(x, dtypes.float32)
    factor = like(x, 10.0**decimals)
    scaled = rounding.round(arithmetic.mul(x, factor), rounding.RoundingMethod.TO_NEAREST_EVEN)
    return as_array(retyped(arithmetic.div(scaled, factor), dtype, weak))


def _rounded_integers(x: Value, unit: int) -> Array:
    """The nearest multiple of `unit`, of two the even one."""
    if dtypes.is_bool(x.aval.dtype):
        return full(x.aval, False)
    info = dtypes.iinfo(x.aval.dtype)
    low, high = int(info.min), int(info.max)
    if unit > high:  # the dtype doesn't hold it, but may hold more than half of it
        wrapped = [(n - low) % (high - low + 1) + low for n in (unit, -unit)]
        out = full(x.aval, 0)
        if unit // 2 < high:
            out = choose(comparison.gt(x, like(x, unit // 2)), like(x, wrapped[0]), out)
        if unit // 2 < -low:
            out = choose(comparison.lt(x, like(x, -(unit // 2))), like(x, wrapped[1]), out)
        return out
    step, zero = like(x, unit), like(x, 0)
    rest = remainder(x, step)  # from 0 to before `unit`
    below = arithmetic.sub(x, rest)
    other = arithmetic.sub(step, rest)
    odd = comparison.ne(remainder(floor_divide(x, step), like(x, 2)), zero)
    up = bitwise.bitwise_or(comparison.gt(rest, other), bitwise.bitwise_and(comparison.eq(rest, other), odd))
    return choose(up, elementwise.add(below, step), below)


# ------------------------------------------------------------------ complex numbers


def conjugate(x: ArrayLike, /) -> Array:
    """The complex conjugate; real numbers stay as they are.

    >>> conjugate(1 + 2j).item()
    (1-2j)
    """
    value = operand(x, "conjugate: x")
    return complex_numbers.conj(value) if dtypes.is_complex(value.aval.dtype) else as_array(value)


conj = conjugate


def real(val: ArrayLike, /) -> Array:
    """The real part; real numbers stay as they are.

    >>> real(1 + 2j).item()
    1.0
    """
    value = operand(val, "real: val")
    return complex_numbers.real(value) if dtypes.is_complex(value.aval.dtype) else as_array(value)


def imag(val: ArrayLike, /) -> Array:
    """The imaginary part; 0 for real numbers.

    >>> imag(1 + 2j).item()
    2.0
    """
    value = operand(val, "imag: val")
    return complex_numbers.imag(value) if dtypes.is_complex(value.aval.dtype) else full(value.aval, False)


abs = absolute
divide = true_divide
mod = remainder
