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
from tracefx.core.array import ARRAY_METHODS, Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.handler import as_array, bind1, evaluating
from tracefx.core.literal import Literal
from tracefx.core.values import ConcreteArray, Value
from tracefx.numpy.evaluated import NUMBERS, always, by_numpy
from tracefx.numpy.kernels import clipping, extreme_by, raising
from tracefx.numpy.operand_promotion import (
    as_operand,
    broadcast_operand_shapes,
    convert_dtype,
    promote_args_inexact,
    promote_args_numeric,
    promote_pair,
    reject_out,
    rounded_literal,
    to_inexact,
    to_numeric,
)
from tracefx.numpy.ufunc_methods import (
    binary_ufunc,
    least,
    max_reduction,
    product_accumulation,
    product_reduction,
    sum_accumulation,
    sum_reduction,
    unary_ufunc,
)
from tracefx.ops.elementwise import (
    abs_sign,
    arithmetic,
    bitwise,
    comparison,
    elementwise,
    min_max,
    powers,
    rounding,
    selection,
)
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.ops.structural import broadcast_to, convert, full_like_aval

_BOOL: Final = dtypes.bool_


def literal_like(x: Value, fill: bool | int | float) -> Literal:
    """A scalar literal of the dtype of `x`."""
    return rounded_literal(fill, ShapedArray((), x.aval.dtype, x.aval.weak_type))


def broadcast_select(condition: Value, x: ArrayLike, y: ArrayLike) -> Array:
    """`x` where the condition holds and `y` elsewhere; scalars stand for arrays."""
    x, y = promote_pair("where", x, y)
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
        return ARRAY_METHODS.value.nonzero(as_operand(condition, "where: condition"), size=size, fill_value=fill_value)
    if size is not None or fill_value is not None:
        raise ValueError("where: size and fill_value are for the places of a condition; leave them or x and y out")
    if x is None or y is None:
        raise TypeError(f"where: x and y are given together or not at all, got {x!r} and {y!r}")
    test = as_operand(condition, "where: condition")
    if test.aval.dtype is not _BOOL:
        test = comparison.ne(test, literal_like(test, python_zero(test)))
    a, b = promote_pair("where", x, y)
    if evaluating() and (found := selection.select_eagerly(test, a, b)) is not None:
        return found
    if test.aval.shape == a.aval.shape == b.aval.shape:
        return selection.select_n(test, b, a)
    shape = broadcast_operand_shapes("where", test.aval.shape, a.aval.shape, b.aval.shape)
    if test.aval.shape:
        test = broadcast_to(test, shape)
    return selection.select_n(test, broadcast_to(b, shape), broadcast_to(a, shape))


# ------------------------------------------------------------------ sums and products


@binary_ufunc(0, sum_reduction, sum_accumulation, "add")
def add(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1 + x2`. Bools are combined with `or`.

    >>> add(np.arange(3), 1)
    Array([1, 2, 3], dtype=int32)
    """
    x, y = promote_pair("add", x1, x2)
    return bitwise.bitwise_or(x, y) if x.aval.dtype.kind == "b" else bind1(elementwise.ADD, x, y)


@binary_ufunc(update="subtract")
def subtract(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1 - x2`. TypeError for bools.

    >>> subtract(np.arange(3), 1)
    Array([-1,  0,  1], dtype=int32)
    """
    x, y = promote_pair("subtract", x1, x2)
    return bind1(arithmetic.SUB, x, y)


@binary_ufunc(1, product_reduction, product_accumulation, "multiply")
def multiply(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1 * x2`. Bools are combined with `and`.

    >>> multiply(np.arange(3), 2)
    Array([0, 2, 4], dtype=int32)
    """
    x, y = promote_pair("multiply", x1, x2)
    return bitwise.bitwise_and(x, y) if x.aval.dtype.kind == "b" else bind1(arithmetic.MUL, x, y)


@unary_ufunc
def negative(x: ArrayLike, /) -> Array:
    """`-x`. TypeError for bools.

    >>> negative(2.0)
    Array(-2., dtype=float32, weak_type=True)
    """
    return arithmetic.neg(as_operand(x, "negative: x"))


def positive(x: ArrayLike, /) -> Array:
    """`+x`, which is `x`.

    >>> positive(2)
    Array(2, dtype=int32, weak_type=True)
    """
    return as_array(as_operand(x, "positive: x"))


def absolute(x: ArrayLike, /) -> Array:
    """The absolute value; of complex numbers a float.

    >>> absolute(-2)
    Array(2, dtype=int32, weak_type=True)
    """
    value = as_operand(x, "absolute: x")
    return as_array(value) if value.aval.dtype.kind in "bu" else abs_sign.abs(value)


def fabs(x: ArrayLike, /) -> Array:
    """The absolute value as a float.

    >>> fabs(-2)
    Array(2., dtype=float32, weak_type=True)
    """
    return abs_sign.abs(_require_real("fabs", to_inexact(x, "fabs: x")))


@by_numpy(always(np.sign), among=NUMBERS)
def sign(x: ArrayLike, /) -> Array:
    """-1, 0 or 1 as `x` is negative, zero or positive; `x / abs(x)` for complex numbers. 0 is positive, of -0.0 too.

    >>> sign(np.float32([-3, 0, 2])).tolist()
    [-1.0, 0.0, 1.0]
    """
    value = as_operand(x, "sign: x")
    out = abs_sign.sign(value)
    if not dtypes.is_float(value.aval.dtype):
        return out
    return broadcast_select(comparison.eq(value, literal_like(value, 0.0)), literal_like(value, 0.0), out)


def square(x: ArrayLike, /) -> Array:
    """`x * x`.

    >>> square(3)
    Array(9, dtype=int32, weak_type=True)
    """
    return powers.square(to_numeric(x, "square: x"))


# ------------------------------------------------------------------ quotients


def true_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1 / x2`, always a float or complex number.

    >>> true_divide(1, 2)
    Array(0.5, dtype=float32, weak_type=True)
    """
    x, y = promote_args_inexact("true_divide", x1, x2)
    return arithmetic.div(x, y)


@by_numpy(always(np.floor_divide), arrays=2, numbers=True, replays=False, patient=False)
def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1 // x2`: the quotient rounded down. TypeError for complex numbers.

    Infinities are divided as in NumPy and Python: `inf // y` is NaN unless `y` is 0, and a finite number divided by an
    infinity is -1 if the signs differ, otherwise 0.

    >>> floor_divide(-7, 2)
    Array(-4, dtype=int32, weak_type=True)
    """
    x, y = _require_real_pair("floor_divide", *promote_args_numeric("floor_divide", x1, x2))
    dtype = x.aval.dtype
    if dtype.kind == "u":
        return arithmetic.div(x, y)
    if dtypes.is_integer(dtype):
        quotient = arithmetic.div(x, y)
        opposite = comparison.ne(abs_sign.sign(x), abs_sign.sign(y))
        inexact_ = comparison.ne(arithmetic.rem(x, y), literal_like(x, 0))
        return broadcast_select(
            bitwise.bitwise_and(opposite, inexact_), arithmetic.sub(quotient, literal_like(x, 1)), quotient
        )
    return _float_divmod(x, y)


def _float_divmod(x: Value, y: Value) -> Array:
    """The quotient from a dividend that divides without rest, so that rounding can't push it over an integer."""
    rest = arithmetic.rem(x, y)
    by_zero = comparison.eq(y, literal_like(y, 0.0))
    quotient = arithmetic.div(broadcast_select(by_zero, x, arithmetic.sub(x, rest)), y)
    has_rest = comparison.ne(rest, literal_like(x, 0.0))
    opposite = comparison.ne(abs_sign.sign(y), abs_sign.sign(rest))
    lowered = arithmetic.sub(quotient, literal_like(x, 1.0))
    quotient = rounding.round(broadcast_select(bitwise.bitwise_and(has_rest, opposite), lowered, quotient))
    # A zero has the sign of the quotient before it was rounded.
    exact = selection.stop_gradient(arithmetic.div(x, y))
    zero = arithmetic.mul(literal_like(x, 0.0), exact)
    return broadcast_select(comparison.eq(quotient, literal_like(x, 0.0)), zero, quotient)


@by_numpy(always(np.remainder), arrays=2, numbers=True, among=NUMBERS, replays=False, patient=False)
def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1 % x2`, which has the sign of `x2`. TypeError for complex numbers.

    >>> remainder(-7, 2)
    Array(1, dtype=int32, weak_type=True)
    """
    x, y = _require_real_pair("remainder", *promote_args_numeric("remainder", x1, x2))
    y = _replace_integer_zeros(y)
    rest = arithmetic.rem(x, y)
    zero = literal_like(rest, python_zero(rest))
    below, some = comparison.lt(y, zero), comparison.ne(rest, zero)
    off = bitwise.bitwise_and(comparison.ne(comparison.lt(rest, zero), below), some)
    out = broadcast_select(off, elementwise.add(rest, y), rest)
    if not dtypes.is_float(rest.aval.dtype):
        return out
    # A zero has the sign of the divisor, and the derivatives of the rest.
    nothing = arithmetic.sub(selection.stop_gradient(rest), rest)
    return broadcast_select(some, out, arithmetic.sub(broadcast_select(below, literal_like(rest, -0.0), zero), nothing))


def fmod(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The rest of the division rounded towards zero, which has the sign of `x1`.

    >>> fmod(-7, 2)
    Array(-1, dtype=int32, weak_type=True)
    """
    x, y = _require_real_pair("fmod", *promote_args_numeric("fmod", x1, x2))
    return arithmetic.rem(x, _replace_integer_zeros(y))


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
    return powers.integer_pow(to_inexact(x, "reciprocal: x"), -1)


def python_zero(x: Value) -> int | float:
    return 0 if dtypes.is_integer(x.aval.dtype) else 0.0


def _replace_integer_zeros(y: Value) -> Value:
    """Integer divisors with 1 in place of 0, so that the rest is 0 there."""
    if not dtypes.is_integer(y.aval.dtype):
        return y
    return broadcast_select(comparison.eq(y, literal_like(y, 0)), literal_like(y, 1), y)


def _require_real_pair(name: str, x: Value, y: Value) -> tuple[Value, Value]:
    return _require_real(name, x), _require_real(name, y)


def _require_real(name: str, x: Value) -> Value:
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
        base = to_numeric(x1, "power: x1")
        if exponent < 0 and dtypes.is_integer(base.aval.dtype):
            raise TypeError(
                f"power: integers have no negative powers, got {base.aval} to the power {exponent}; "
                "convert the base to a float first"
            )
        return powers.integer_pow(base, exponent)
    x, y = promote_args_numeric("power", x1, x2)
    base, to = as_operand(x1, "power: x1"), as_operand(x2, "power: x2")
    if dtypes.is_integer(x.aval.dtype):
        if x.aval.weak_type and _BOOL in (base.aval.dtype, to.aval.dtype):  # bools are taken for integers first
            x, y = convert_dtype(x, x.aval.dtype), convert_dtype(y, y.aval.dtype)
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
    one, zero = literal_like(x, 1), literal_like(x, 0)
    bits = dtypes.itemsize_bits(y.aval.dtype)
    undefined = bitwise.bitwise_and(comparison.eq(x, zero), comparison.ne(y, zero))
    shape = x.aval.shape or y.aval.shape
    result: Array = broadcast_select(
        undefined, full_like_aval(ShapedArray(shape, x.aval.dtype, x.aval.weak_type), 0), literal_like(x, 1)
    )
    for bit in range(builtins.min(bits, 6)):
        odd = comparison.ne(bitwise.bitwise_and(y, one), zero)
        result = broadcast_select(odd, arithmetic.mul(result, x), result)
        if bit < 5:
            x, y = arithmetic.mul(x, x), bitwise.shift_right_logical(y, one)
    return result


# ------------------------------------------------------------------ extremes


@binary_ufunc(None, max_reduction, update="max")
@by_numpy(extreme_by(np.maximum, min_max.maximum), arrays=2, numbers=True, among=NUMBERS)
def maximum(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The greater of the two; NaN where either is.

    >>> maximum(np.arange(3), 1)
    Array([1, 1, 2], dtype=int32)
    """
    x, y = promote_pair("maximum", x1, x2)
    return arithmetic.max(x, y)


@binary_ufunc(None, least, update="min")
@by_numpy(extreme_by(np.minimum, min_max.minimum), arrays=2, numbers=True, among=NUMBERS)
def minimum(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The lesser of the two; NaN where either is.

    >>> minimum(np.arange(3), 1)
    Array([0, 1, 1], dtype=int32)
    """
    x, y = promote_pair("minimum", x1, x2)
    return arithmetic.min(x, y)


@by_numpy(clipping, arrays=3, numbers=True, among=NUMBERS)
def clip(arr: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    """`arr` with what lies below `min` or above `max` moved to it. ValueError for complex numbers.

    >>> clip(np.arange(5), 1, 3)
    Array([1, 1, 2, 3, 3], dtype=int32)
    """
    out = as_array(as_operand(arr, "clip: arr"))
    for bound, what in ((min, "min"), (max, "max")):
        if bound is not None and dtypes.is_complex(as_operand(bound, f"clip: {what}").aval.dtype):
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
    value = _require_real("floor", as_operand(x, "floor: x"))
    return rounding.floor(value) if dtypes.is_float(value.aval.dtype) else as_array(value)


def ceil(x: ArrayLike, /) -> Array:
    """The least integer that is not below `x`; integers stay as they are.

    >>> ceil(-1.5)
    Array(-1., dtype=float32, weak_type=True)
    """
    value = _require_real("ceil", as_operand(x, "ceil: x"))
    return rounding.ceil(value) if dtypes.is_float(value.aval.dtype) else as_array(value)


def trunc(x: ArrayLike) -> Array:
    """`x` without its fraction; integers stay as they are.

    >>> trunc(-1.5)
    Array(-1., dtype=float32, weak_type=True)
    """
    value = _require_real("trunc", as_operand(x, "trunc: x"))
    if not dtypes.is_float(value.aval.dtype):
        return as_array(value)
    below = comparison.lt(value, literal_like(value, 0.0))
    return broadcast_select(below, rounding.ceil(value), rounding.floor(value))


def rint(x: ArrayLike, /) -> Array:
    """The nearest integer, of two the even one, always as a float.

    >>> rint(2.5)
    Array(2., dtype=float32, weak_type=True)
    """
    value = as_operand(x, "rint: x")
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
    reject_out("round", out)
    value = as_operand(a, "round: a")
    dtype = value.aval.dtype
    decimals = operator.index(decimals)
    if not dtypes.is_inexact(dtype):
        return _round_integers(value, 10**-decimals) if decimals < 0 else as_array(value)
    if dtypes.is_complex(dtype):
        parts = [
            _round_decimals(complex_numbers.real(value), decimals),
            _round_decimals(complex_numbers.imag(value), decimals),
        ]
        return complex_numbers.complex(*parts)
    return _round_decimals(value, decimals)


around = round


def _round_decimals(x: Value, decimals: int) -> Array:
    if decimals == 0:
        return rounding.round(x, rounding.RoundingMethod.TO_NEAREST_EVEN)
    dtype, weak = x.aval.dtype, x.aval.weak_type
    if decimals > math.log10(float(dtypes.finfo(dtype).max)):
        return as_array(x)  # no number has so many
    if dtype == dtypes.float16:  # in which products soon are infinite
        x = convert_dtype(x, dtypes.float32)
    factor = literal_like(x, 10.0**decimals)
    scaled = rounding.round(arithmetic.mul(x, factor), rounding.RoundingMethod.TO_NEAREST_EVEN)
    return as_array(convert_dtype(arithmetic.div(scaled, factor), dtype, weak))


def _round_integers(x: Value, unit: int) -> Array:
    """The nearest multiple of `unit`, of two the even one."""
    if dtypes.is_bool(x.aval.dtype):
        return full_like_aval(x.aval, False)
    info = dtypes.iinfo(x.aval.dtype)
    low, high = int(info.min), int(info.max)
    if unit > high:  # the dtype doesn't hold it, but may hold more than half of it
        wrapped = [(n - low) % (high - low + 1) + low for n in (unit, -unit)]
        out = full_like_aval(x.aval, 0)
        if unit // 2 < high:
            out = broadcast_select(comparison.gt(x, literal_like(x, unit // 2)), literal_like(x, wrapped[0]), out)
        if unit // 2 < -low:
            out = broadcast_select(comparison.lt(x, literal_like(x, -(unit // 2))), literal_like(x, wrapped[1]), out)
        return out
    step, zero = literal_like(x, unit), literal_like(x, 0)
    rest = remainder(x, step)  # from 0 to before `unit`
    below = arithmetic.sub(x, rest)
    other = arithmetic.sub(step, rest)
    odd = comparison.ne(remainder(floor_divide(x, step), literal_like(x, 2)), zero)
    up = bitwise.bitwise_or(comparison.gt(rest, other), bitwise.bitwise_and(comparison.eq(rest, other), odd))
    return broadcast_select(up, elementwise.add(below, step), below)


# ------------------------------------------------------------------ complex numbers


def conjugate(x: ArrayLike, /) -> Array:
    """The complex conjugate; real numbers stay as they are.

    >>> conjugate(1 + 2j).item()
    (1-2j)
    """
    value = as_operand(x, "conjugate: x")
    return complex_numbers.conj(value) if dtypes.is_complex(value.aval.dtype) else as_array(value)


conj = conjugate


def real(val: ArrayLike, /) -> Array:
    """The real part; real numbers stay as they are.

    >>> real(1 + 2j).item()
    1.0
    """
    value = as_operand(val, "real: val")
    return complex_numbers.real(value) if dtypes.is_complex(value.aval.dtype) else as_array(value)


def imag(val: ArrayLike, /) -> Array:
    """The imaginary part; 0 for real numbers.

    >>> imag(1 + 2j).item()
    2.0
    """
    value = as_operand(val, "imag: val")
    return complex_numbers.imag(value) if dtypes.is_complex(value.aval.dtype) else full_like_aval(value.aval, False)


abs = absolute
divide = true_divide
mod = remainder
