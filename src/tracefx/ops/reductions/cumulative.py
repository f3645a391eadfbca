"""Cumulative reductions (scans) along an axis: sums, products, extrema, `cumlogsumexp`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import ClassVar, SupportsIndex, TypeAlias, final

import numpy as np
from attrs import evolve, frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, NDArray, Scalar, ShapedArray, Value, dtypes
from tracefx.core.handler import bind1
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import MappedAxis, Tangent, UndefinedPrimal, Zero
from tracefx.dimensions.bounds import symbolic_dim_bounds
from tracefx.dimensions.symbolic_dimensions import is_symbolic_dim, min_dim
from tracefx.lowering import Attr, Builder, DenseI64Array, IrValue, WindowPadding
from tracefx.ops import stablehlo
from tracefx.ops.casting import NUMPY_NATIVE_DTYPES, cast
from tracefx.ops.elementwise.abs_sign import abs
from tracefx.ops.elementwise.arithmetic import MAX, MIN, MUL, div, mul, neg, sub
from tracefx.ops.elementwise.bitwise import bitwise_and
from tracefx.ops.elementwise.comparison import eq, ge, gt, ne
from tracefx.ops.elementwise.complex import complex, imag, real
from tracefx.ops.elementwise.elementwise import INEXACT, NUMBERS, Smooth, add
from tracefx.ops.elementwise.rounding import RoundingMethod, round
from tracefx.ops.elementwise.selection import select, select_with_aval
from tracefx.ops.elementwise.transcendental import EXP, LOG1P, exp, log1p, logistic
from tracefx.ops.monoids import ADD, MAXIMUM, MINIMUM, MULTIPLY, Monoid
from tracefx.ops.operation import Domain, HasPushforward, LinearOperation, UnaryOperation
from tracefx.ops.shape.shape import concatenate, rev, slice, slice_axis, stack
from tracefx.ops.sharding_rules import require_unsharded
from tracefx.ops.static_integers import static_int
from tracefx.ops.structural import match_aval, reshape


@frozen(eq=False)
class Cumulative(UnaryOperation):
    """A cumulative reduction along one axis with an associative operation.

    Args:
        axis: The axis.
        reverse: Whether to start from the end of the axis.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.CumSum(0, False), numpy.array([1, 2, 3]))
    [Array([1, 3, 6], dtype=int32)]
    """

    axis: int
    reverse: bool
    domain: ClassVar[Domain] = NUMBERS
    monoid: ClassVar[Monoid]
    exact: ClassVar[bool] = False
    """Whether each result is one of the elements, so that no rounding occurs."""

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        require_unsharded(self, avals[0], [self.axis])
        return [avals[0].spec]

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        if not 0 <= self.axis < x.ndim:
            raise ValueError(f"{self.name}: axis must be a non-negative axis of {x}, got {self.axis}")
        self.domain.require(self.name, x)
        return x

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray]:
        native = not self.reverse and avals[0].dtype in NUMPY_NATIVE_DTYPES
        return functools.partial(self.monoid.accumulate, self.axis) if native else self.kernel

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        (x,) = args
        bits = dtypes.itemsize_bits(x.dtype)
        if dtypes.is_float(x.dtype) and bits < 32:
            wide = cast(x, dtypes.float32)
        else:
            wide = cast(x, dtypes.int8) if bits < 8 else x
        if not self.reverse:
            return cast(self.monoid.accumulate(self.axis, wide), x.dtype)
        return np.flip(cast(self.monoid.accumulate(self.axis, np.flip(wide, self.axis)), x.dtype), self.axis)

    @override
    def batch_operand(self, axis: MappedAxis, x: Value, dim: int) -> tuple[Value, int | None]:
        return bind1(evolve(self, axis=self.axis + (dim <= self.axis)), x), dim

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        (x,) = operands
        if not out.size:
            return x
        if not self.exact and dtypes.is_float(out.dtype) and out.dtype.itemsize < 4:  # XLA would round after every step
            wide = out.update(dtype=dtypes.float32)
            (x,) = builder.emit("stablehlo.convert", [x], [wide])
            return builder.emit("stablehlo.convert", [self.emit_window(builder, wide, x)], [out])[0]
        return self.emit_window(builder, out, x)

    def emit_window(self, builder: Builder, out: ShapedArray, x: IrValue) -> IrValue:
        """Emits a reduction over windows as long as the axis, padded so that each ends at its element.

        XLA turns such windows into a tree of reductions.
        """
        n = out.shape[self.axis]
        window = [1] * out.ndim
        window[self.axis] = n
        padding = [(0, 0)] * out.ndim
        padding[self.axis] = (0, n - 1) if self.reverse else (n - 1, 0)
        attrs: dict[str, Attr] = {
            "window_dimensions": DenseI64Array(tuple(window)),
            "padding": WindowPadding(tuple(padding)),
        }
        start = stablehlo.emit_scalar(builder, self.monoid.identity(out.dtype), out.dtype)
        return builder.emit("stablehlo.reduce_window", [x, start], [out], attrs, [self.monoid.region(out.dtype)])[0]


# ------------------------------------------------------------------ cumsum


@final
class CumSum(Cumulative, LinearOperation):
    """The cumulative sum: `out[i] = sum(x[:i + 1])`. Its transpose is the cumulative sum in the other direction.

    `x: f32[...] -> f32[...]`, numbers. Bound by `lax.cumsum`.
    """

    name = "cumsum"
    monoid: ClassVar[Monoid] = ADD

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [bind1(evolve(self, reverse=not self.reverse), ct)]


# ------------------------------------------------------------------ derivatives, by a scan of dual numbers

DualNumber: TypeAlias = tuple[Value, Value]
"""Primal and tangent values."""
DualCombine: TypeAlias = Callable[[DualNumber, DualNumber], DualNumber]


class CumulativeByScan(Cumulative, HasPushforward):
    """A cumulative reduction whose JVP is an associative scan of dual numbers, which needs no division."""

    __slots__ = ()

    binary: ClassVar[Smooth]
    """The primitive that combines two elements. Its JVP rule combines their tangents."""

    def combine(self, x: DualNumber, y: DualNumber) -> DualNumber:
        """Returns the combination of two elements and its tangent."""
        (out,), (t,) = self.binary.jvp([x[0], y[0]], [x[1], y[1]])
        assert not isinstance(t, Zero)
        return out, t

    @override
    def pushforward(self, x: Value, t: Value) -> tuple[Sequence[Value], Sequence[Tangent]]:
        flipped = self.axis if self.reverse else None
        out, out_t = _associative_scan(self.combine, (_flip_along(x, flipped), _flip_along(t, flipped)), self.axis)
        return [_flip_along(out, flipped)], [match_aval(_flip_along(out_t, flipped), x.aval)]


def _flip_along(x: Value, axis: int | None) -> Value:
    """Returns `x` reversed along `axis`, or `x` if it is None."""
    return x if axis is None else rev(x, (axis,))


def _associative_scan(step: DualCombine, xs: DualNumber, axis: int) -> DualNumber:
    """Returns the combinations of all prefixes of `xs`.

    The scan of combined pairs gives every second prefix, and one more step the others.
    """
    n = xs[0].aval.shape[axis]
    if is_symbolic_dim(n):
        return _scan_by_doubling(step, xs, axis)
    if n < 2:
        return xs
    half = n // 2
    odd = _associative_scan(step, step(_every_other(xs, 0, 2 * half, axis), _every_other(xs, 1, 2 * half, axis)), axis)
    even = _slice_pair(xs, 0, 1, axis)
    if n > 2:
        later = step(_slice_pair(odd, 0, (n - 1) // 2, axis), _every_other(xs, 2, n, axis))
        even = concatenate([even[0], later[0]], axis), concatenate([even[1], later[1]], axis)
    return _interleave(even[0], odd[0], axis), _interleave(even[1], odd[1], axis)


def _scan_by_doubling(step: DualCombine, xs: DualNumber, axis: int) -> DualNumber:
    """Returns the combinations of all prefixes of `xs`, for an axis of symbolic size.

    Each step doubles the number of elements that are combined, until it is the largest possible size. Those beyond the
    actual size combine no elements, so they cost nothing once the size is known.
    """
    n = xs[0].aval.shape[axis]
    largest, distance = min(symbolic_dim_bounds(n)[1], np.iinfo(np.int32).max), 1
    while distance < largest:
        d = min_dim(distance, n)
        first, later = _slice_pair(xs, 0, d, axis), _slice_pair(xs, d, n, axis)
        combined = step(_slice_pair(xs, 0, n - d, axis), later)
        xs = concatenate([first[0], combined[0]], axis), concatenate([first[1], combined[1]], axis)
        distance *= 2
    return xs


def _slice_pair(xs: DualNumber, start: int, stop: int, axis: int) -> DualNumber:
    return slice_axis(xs[0], start, stop, axis), slice_axis(xs[1], start, stop, axis)


def _every_other(xs: DualNumber, start: int, stop: int, axis: int) -> DualNumber:
    """Returns every second element from `start` to `stop` along `axis`."""
    low, high, steps = [0] * xs[0].aval.ndim, list(xs[0].aval.shape), [1] * xs[0].aval.ndim
    low[axis], high[axis], steps[axis] = start, stop, 2
    return slice(xs[0], low, high, steps), slice(xs[1], low, high, steps)


def _interleave(even: Value, odd: Value, axis: int) -> Array:
    """Returns the elements of `even` and `odd` alternately; `even` may have one more."""
    half = odd.aval.shape[axis]
    shape = list(odd.aval.shape)
    shape[axis] = 2 * half
    pairs = reshape(stack([slice_axis(even, 0, half, axis), odd], axis + 1), shape)
    n = even.aval.shape[axis]
    return pairs if n == half else concatenate([pairs, slice_axis(even, half, n, axis)], axis)


# ------------------------------------------------------------------ cumprod, cummax, cummin


@final
class CumProd(CumulativeByScan):
    """The cumulative product along an axis: `out[i] = prod(x[:i + 1])`.

    `x: f32[...] -> f32[...]`, numbers. Bound by `lax.cumprod`.
    """

    name = "cumprod"
    monoid: ClassVar[Monoid] = MULTIPLY
    binary: ClassVar[Smooth] = MUL


class CumulativeExtremum(CumulativeByScan):
    """The cumulative maximum or minimum along an axis."""

    __slots__ = ()
    exact = True


@final
class CumMax(CumulativeExtremum):
    """The cumulative maximum along an axis: `out[i] = max(x[:i + 1])`.

    `x: f32[...] -> f32[...]`, numbers. Bound by `lax.cummax`.
    """

    name = "cummax"
    monoid: ClassVar[Monoid] = MAXIMUM
    binary: ClassVar[Smooth] = MAX


@final
class CumMin(CumulativeExtremum):
    """The cumulative minimum along an axis: `out[i] = min(x[:i + 1])`.

    `x: f32[...] -> f32[...]`, numbers. Bound by `lax.cummin`.
    """

    name = "cummin"
    monoid: ClassVar[Monoid] = MINIMUM
    binary: ClassVar[Smooth] = MIN


# ------------------------------------------------------------------ cumlogsumexp


def logaddexp_with_weights(x: Value, y: Value) -> tuple[Value, Value, Value]:
    """Returns `logaddexp(x, y)` and the weights of both exponentials in the sum; equal infinities have equal weights.

    The imaginary part of a complex result is in [-pi, pi].
    """
    # `select`, because `max` and `abs` have no derivative where the operands tie.
    if dtypes.is_complex(x.aval.dtype):
        above, same_real = ge(real(x), real(y)), eq(real(x), real(y))
        larger, smaller = select(above, x, y), select(above, y, x)
        infinite = bitwise_and(same_real, ne(sub(real(x), real(y)), 0.0))  # equal infinities differ by NaN
        ratio = exp(select_with_aval(infinite, 0, sub(smaller, larger), x.aval))
        sum_of_ratios = add(ratio, 1.0)
        of_larger, of_smaller = div(1.0, sum_of_ratios), div(ratio, sum_of_ratios)
        total = _wrap_imaginary(add(larger, log1p(ratio)))
        return total, select(above, of_larger, of_smaller), select(above, of_smaller, of_larger)
    difference, is_first = sub(x, y), ge(x, y)
    total = add(select(is_first, x, y), log1p(exp(select(is_first, neg(difference), difference))))
    total = select(eq(difference, difference), total, add(x, y))
    infinite = bitwise_and(eq(x, y), ne(difference, difference))
    difference = select_with_aval(infinite, 0, difference, difference.aval)
    return total, logistic(difference), logistic(neg(difference))


def _wrap_imaginary(x: Value) -> Array:
    """Moves the imaginary part to [-pi, pi] by multiples of `2 * pi`."""
    angle = imag(x)
    turns = round(div(angle, 2 * math.pi), RoundingMethod.TO_NEAREST_EVEN)
    turned = sub(angle, mul(turns, 2 * math.pi))
    return complex(real(x), select(gt(abs(angle), math.pi), turned, angle))


def _complex_logaddexp(x: NDArray, y: NDArray) -> NDArray:
    """Computes the first result of `logaddexp_with_weights` of complex numbers with NumPy."""
    above = x.real >= y.real
    larger, smaller = np.where(above, x, y), np.where(above, y, x)
    infinite = (x.real == y.real) & np.isinf(x.real)
    difference = np.where(infinite, 0, smaller - np.where(infinite, 0, larger)).astype(x.dtype)
    return _wrap_imaginary_of_numpy(larger + LOG1P.kernel(EXP.kernel(difference)))


def _wrap_imaginary_of_numpy(x: NDArray) -> NDArray:
    """Does the work of `_wrap_imaginary` with NumPy."""
    out = np.array(x)
    turned = x.imag - 2 * math.pi * np.rint(x.imag / (2 * math.pi))
    out.imag = np.where(np.abs(x.imag) > math.pi, turned, x.imag)
    return out


@final
@frozen(eq=False)
class LogAddExp(Monoid):
    """The logarithm of the sum of two exponentials: `log(exp(x) + exp(y))`."""

    @override
    def identity(self, dtype: DType) -> Scalar:
        return -math.inf if dtypes.is_complex(dtype) else MAXIMUM.identity(dtype)

    @override
    def combine(self, x: NDArray, y: NDArray) -> NDArray:
        return _complex_logaddexp(x, y) if dtypes.is_complex(x.dtype) else super().combine(x, y)

    @override
    def accumulate(self, axis: int, x: NDArray) -> NDArray:
        if dtypes.is_complex(x.dtype):
            return self.accumulate_in_loop(axis, _wrap_imaginary_of_numpy(x))
        return super().accumulate(axis, x)

    @override
    def emit(self, builder: Builder, out: ShapedArray, x: IrValue, y: IrValue) -> IrValue:
        if dtypes.is_complex(out.dtype):
            return builder.lower_fun(lambda x, y: logaddexp_with_weights(x, y)[:1], [x, y])[0]
        (larger,) = builder.emit("stablehlo.maximum", [x, y], [out])
        (difference,) = builder.emit("stablehlo.subtract", [x, y], [out])
        (distance,) = builder.emit("stablehlo.abs", [difference], [out])
        (minus,) = builder.emit("stablehlo.negate", [distance], [out])
        (ratio,) = builder.emit("stablehlo.exponential", [minus], [out])
        (correction,) = builder.emit("stablehlo.log_plus_one", [ratio], [out])
        (total,) = builder.emit("stablehlo.add", [larger, correction], [out])
        (plain,) = builder.emit("stablehlo.add", [x, y], [out])  # right for equal infinities and for NaN
        is_nan = stablehlo.emit_compare(builder, "NE", difference, difference)
        return builder.emit("stablehlo.select", [is_nan, plain, total], [out])[0]


@final
class CumLogSumExp(CumulativeByScan):
    """The cumulative `logsumexp` along an axis: `out[i] = log(sum(exp(x[:i + 1])))`, without overflow.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.cumlogsumexp`.
    """

    name = "cumlogsumexp"
    domain = INEXACT
    monoid: ClassVar[Monoid] = LogAddExp(np.logaddexp)

    @override
    def pushforward(self, x: Value, t: Value) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return super().pushforward(_wrap_imaginary(x) if dtypes.is_complex(x.aval.dtype) else x, t)

    @override
    def combine(self, x: DualNumber, y: DualNumber) -> DualNumber:
        total, share, rest = logaddexp_with_weights(x[0], y[0])
        return total, add(mul(x[1], share), mul(y[1], rest))


# ------------------------------------------------------------------ functions


def _parameters(name: str, axis: SupportsIndex, reverse: bool) -> tuple[int, bool]:
    """Returns the validated `axis` and `reverse` arguments."""
    return static_int(name, axis, "axis"), bool(reverse)


def cumsum(operand: ArrayLike, axis: SupportsIndex = 0, reverse: bool = False) -> Array:
    """Returns the cumulative sum along `axis`.

    Args:
        operand: Array of numbers (not booleans).
        axis: The axis to sum along, non-negative. 0 by default.
        reverse: Whether to sum from the end of the axis. False by default.

    Returns:
        An array of the same shape and dtype. Element `i` is the sum up to and including `i`.

    Raises:
        TypeError: `operand` is boolean.
        ValueError: There is no such axis.

    >>> cumsum(np.arange(4)).tolist(), cumsum(np.arange(4), reverse=True).tolist()
    ([0, 1, 3, 6], [6, 6, 5, 3])
    """
    return bind1(CumSum(*_parameters("cumsum", axis, reverse)), operand)


def cumprod(operand: ArrayLike, axis: SupportsIndex = 0, reverse: bool = False) -> Array:
    """Returns the cumulative product along `axis`.

    Args:
        operand: Array of numbers (not booleans).
        axis: The axis to multiply along, non-negative. 0 by default.
        reverse: Whether to multiply from the end of the axis. False by default.

    Returns:
        An array of the same shape and dtype. Element `i` is the product up to and including `i`.

    Raises:
        TypeError: `operand` is boolean.
        ValueError: There is no such axis.

    >>> cumprod(np.arange(1, 5)).tolist()
    [1, 2, 6, 24]
    """
    return bind1(CumProd(*_parameters("cumprod", axis, reverse)), operand)


def cummax(operand: ArrayLike, axis: SupportsIndex = 0, reverse: bool = False) -> Array:
    """Returns the cumulative maximum along `axis`.

    Args:
        operand: Array of numbers (not booleans).
        axis: The axis to accumulate along, non-negative. 0 by default.
        reverse: Whether to accumulate from the end of the axis. False by default.

    Returns:
        An array of the same shape and dtype. A NaN propagates to all later elements.

    Raises:
        TypeError: `operand` is boolean.
        ValueError: There is no such axis.

    >>> cummax(np.array([1, 3, 2])).tolist()
    [1, 3, 3]
    """
    return bind1(CumMax(*_parameters("cummax", axis, reverse)), operand)


def cummin(operand: ArrayLike, axis: SupportsIndex = 0, reverse: bool = False) -> Array:
    """Returns the cumulative minimum along `axis`.

    Args:
        operand: Array of numbers (not booleans).
        axis: The axis to accumulate along, non-negative. 0 by default.
        reverse: Whether to accumulate from the end of the axis. False by default.

    Returns:
        An array of the same shape and dtype. A NaN propagates to all later elements.

    Raises:
        TypeError: `operand` is boolean.
        ValueError: There is no such axis.

    >>> cummin(np.array([2, 3, 1])).tolist()
    [2, 2, 1]
    """
    return bind1(CumMin(*_parameters("cummin", axis, reverse)), operand)


def cumlogsumexp(operand: ArrayLike, axis: SupportsIndex = 0, reverse: bool = False) -> Array:
    """Returns `log(cumsum(exp(operand)))` along `axis`, without overflow.

    Args:
        operand: Array of floats or complex numbers.
        axis: The axis to accumulate along, non-negative. 0 by default.
        reverse: Whether to accumulate from the end of the axis. False by default.

    Returns:
        An array of the same shape and dtype. The imaginary parts of complex results are in [-pi, pi].

    Raises:
        TypeError: `operand` is of an integer dtype or boolean.
        ValueError: There is no such axis.

    >>> cumlogsumexp(np.array([1000.0, -1000.0])).tolist()
    [1000.0, 1000.0]
    """
    return bind1(CumLogSumExp(*_parameters("cumlogsumexp", axis, reverse)), operand)
