"""Reductions over axes: extrema, products, logic, and `argmax`, `argmin`. (`reduce_sum` is in `structural`.)"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, final

import numpy as np
from attrs import evolve, frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, DTypeLike, NDArray, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import as_array, bind1
from tracefx.core.named_sharding import OutSharding, Spec
from tracefx.core.primitive import MappedAxis, Tangent, Zero
from tracefx.dimensions.symbolic_dimensions import is_symbolic_dim
from tracefx.lowering import Attr, Builder, DenseI64Array, IrValue, Region
from tracefx.ops import stablehlo
from tracefx.ops.casting import NUMPY_NATIVE_DTYPES, cast
from tracefx.ops.elementwise.arithmetic import div, mul
from tracefx.ops.elementwise.comparison import eq
from tracefx.ops.elementwise.elementwise import LOGICAL, NUMBERS, add
from tracefx.ops.monoids import AND, MAXIMUM, MINIMUM, MULTIPLY, OR, XOR, Extremum, Monoid
from tracefx.ops.operation import (
    ANY_NUMBERS,
    Domain,
    HasPushforward,
    HasZeroTangent,
    UnaryOperation,
    memoize_aval,
    require_axes,
    specialize_reduce,
)
from tracefx.ops.reductions.cumulative import cumprod
from tracefx.ops.shape.shape import slice_axis
from tracefx.ops.shape.slicing import pad
from tracefx.ops.sharding_rules import without_axes
from tracefx.ops.static_integers import static_int, static_ints
from tracefx.ops.structural import (
    broadcast_in_dim,
    convert,
    match_aval,
    reduce_sum,
    reshape,
    transpose,
)


@frozen(eq=False)
class Reduction(UnaryOperation):
    """A reduction over `axes` with an associative operation that has an identity element.

    Args:
        axes: The axes to reduce over; the result does not have them.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.ReduceMax((1,)), numpy.array([[1, 2], [4, 3]]))
    [Array([2, 4], dtype=int32)]
    """

    axes: tuple[int, ...]
    domain: ClassVar[Domain] = ANY_NUMBERS

    @property
    @abstractmethod
    def monoid(self) -> Monoid:
        """The operation that combines elements. Subclasses set it as a class attribute."""
        raise NotImplementedError

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [without_axes(avals[0].spec, self.axes)]

    @override
    @memoize_aval("axes")
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        require_axes(self.name, self.axes, x.ndim)
        self.domain.require(self.name, x)
        return x.update(shape=tuple([n for i, n in enumerate(x.shape) if i not in self.axes]))

    @override
    def batch_operand(self, axis: MappedAxis, x: Value, dim: int) -> tuple[Value, int | None]:
        out = bind1(evolve(self, axes=tuple([i + (i >= dim) for i in self.axes])), x)
        return out, dim - sum(a < dim for a in self.axes)

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        (x,) = operands
        return self.monoid.emit_reduce(builder, x, self.axes)


def _reduce(prim: Reduction, operand: ArrayLike) -> Array:
    if prim.axes:
        return bind1(prim, operand)
    x = as_value(operand, "operand")
    prim.domain.require(prim.name, x.aval)
    return as_array(x)


def widen_for_numpy(x: NDArray) -> NDArray:
    """Returns `x` in a dtype of at least 8 bits, for NumPy's ufuncs."""
    if dtypes.itemsize_bits(x.dtype) >= 8:
        return x
    return cast(x, dtypes.float32 if dtypes.is_float(x.dtype) else dtypes.int8)


# ------------------------------------------------------------------ reduce_max, reduce_min


class ReduceExtremum(Reduction, HasPushforward):
    """The maximum or minimum over axes. NaN propagates; complex numbers are ordered by real, then imaginary part."""

    __slots__ = ()

    @property
    @abstractmethod
    @override
    def monoid(self) -> Extremum:
        raise NotImplementedError

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray]:
        (x,) = avals
        if x.dtype not in NUMPY_NATIVE_DTYPES or not x.size:
            return self.kernel
        fold = specialize_reduce(self.monoid.ufunc.reduce, self.axes, x.ndim)
        return fold if dtypes.is_integer(x.dtype) else lambda x: self.checked(x, fold(x))

    def checked(self, x: NDArray, out: NDArray) -> NDArray:
        """Returns NumPy's extrema of floats with the signs of zeros corrected."""
        has_zeros = np.count_nonzero(out) != out.size if out.ndim else out == 0
        return self.fix_zero_signs(x, out).astype(x.dtype, copy=False) if has_zeros else out

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        (x,) = args
        start = widen_for_numpy(np.asarray(self.monoid.identity(x.dtype), x.dtype))
        x = widen_for_numpy(x)
        if dtypes.is_complex(x.dtype) and np.isnan(x).any():
            return self.fold_in_order(x, start)
        out = np.asarray(self.monoid.ufunc.reduce(x, axis=self.axes, initial=start[()]))
        if dtypes.is_float(x.dtype) and np.count_nonzero(out) != out.size:
            return self.fix_zero_signs(x, out).astype(args[0].dtype)
        return out.astype(args[0].dtype)

    def fold_in_order(self, x: NDArray, start: NDArray) -> NDArray:
        """Reduces complex numbers with NaNs, one after the other: the result depends on the order."""
        rows = np.moveaxis(x, self.axes, range(len(self.axes)))
        rows = rows.reshape(-1, *rows.shape[len(self.axes) :])
        return functools.reduce(self.monoid.combine, rows, np.broadcast_to(start, rows.shape[1:]))

    def fix_zero_signs(self, x: NDArray, out: NDArray) -> NDArray:
        """Corrects the signs of zeros in `out`."""
        preferred = self.monoid.preferred_zeros(x)
        if not np.count_nonzero(preferred):
            return out
        return self.monoid.with_zero_signs(out, np.asarray(preferred.any(self.axes)))

    @override
    def pushforward(self, x: Value, t: Value) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, x)
        kept = [i for i in range(x.aval.ndim) if i not in self.axes]
        is_extremum = convert(eq(x, broadcast_in_dim(out, x.aval.shape, kept)), t.aval.dtype)
        total = reduce_sum(mul(t, is_extremum), self.axes)  # ties share the tangent evenly
        return [out], [match_aval(div(total, reduce_sum(is_extremum, self.axes)), out.aval)]


@final
class ReduceMax(ReduceExtremum):
    """The maximum over axes: `out[i] = max(x[i, :])`; the least value of the dtype for no elements.

    `x: f32[n, m] -> f32[n]` with `axes=(1,)`; booleans or numbers. Bound by `lax.reduce_max`.
    """

    name = "reduce_max"
    monoid = MAXIMUM


@final
class ReduceMin(ReduceExtremum):
    """The minimum over axes: `min(x[:])` of all elements; the greatest value of the dtype for no elements.

    `x: f32[n, m] -> f32[]` with `axes=(0, 1)`; booleans or numbers. Bound by `lax.reduce_min`.
    """

    name = "reduce_min"
    monoid = MINIMUM


def reduce_max(operand: ArrayLike, axes: Sequence[int], *, out_sharding: OutSharding = None) -> Array:
    """Returns the maximum of `operand` over `axes`.

    In the derivative, elements that tie share the tangent evenly.

    Args:
        operand: Array. Complex numbers are ordered by their real parts, then by their imaginary parts.
        axes: Distinct, non-negative axes. With none, `operand` is returned.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array without these axes, of the same dtype: NaN where an element is NaN, the dtype's least value for no
        elements.

    Raises:
        AxisError: An axis is out of bounds or repeated.

    >>> reduce_max(np.array([[1, 5], [7, 3]]), (1,))
    Array([5, 7], dtype=int32)
    """
    return _reduce(ReduceMax(static_ints("reduce_max", axes, "axes")), operand)


def reduce_min(operand: ArrayLike, axes: Sequence[int], *, out_sharding: OutSharding = None) -> Array:
    """Returns the minimum of `operand` over `axes`.

    In the derivative, elements that tie share the tangent evenly.

    Args:
        operand: Array. Complex numbers are ordered by their real parts, then by their imaginary parts.
        axes: Distinct, non-negative axes. With none, `operand` is returned.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array without these axes, of the same dtype: NaN where an element is NaN, the dtype's greatest value for no
        elements.

    Raises:
        AxisError: An axis is out of bounds or repeated.

    >>> reduce_min(np.array([[1, 5], [7, 3]]), (1,))
    Array([1, 3], dtype=int32)
    """
    return _reduce(ReduceMin(static_ints("reduce_min", axes, "axes")), operand)


# ------------------------------------------------------------------ reduce_prod


@final
class ReduceProd(Reduction, HasPushforward):
    """The product over axes: `out[i] = prod(x[i, :])`.

    `x: f32[n, m] -> f32[n]` with `axes=(1,)`; numbers. Bound by `lax.reduce_prod`.
    """

    name = "reduce_prod"
    domain = NUMBERS
    monoid = MULTIPLY

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray]:
        (x,) = avals
        return (
            specialize_reduce(np.multiply.reduce, self.axes, x.ndim) if x.dtype in NUMPY_NATIVE_DTYPES else self.kernel
        )

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        (x,) = args
        wide = x if dtypes.itemsize_bits(x.dtype) >= 32 or not dtypes.is_float(x.dtype) else cast(x, dtypes.float32)
        if dtypes.itemsize_bits(x.dtype) < 8:
            wide = widen_for_numpy(x)
        product: NDArray = np.multiply.reduce(wide, axis=self.axes, dtype=wide.dtype)
        return cast(np.asarray(product), x.dtype)

    @override
    def pushforward(self, x: Value, t: Value) -> tuple[Sequence[Value], Sequence[Tangent]]:
        factors, factor_ts = self.flatten_axes(x), self.flatten_axes(t)
        if not factors.shape[0]:
            out = bind1(self, x)
            return [out], [Zero(out.aval)]
        if is_symbolic_dim(factors.shape[0]):
            out_t = reduce_sum(mul(_products_of_others(factors), factor_ts), (0,))
            return [bind1(self, x)], [match_aval(out_t, self.out_aval(x.aval))]
        # Multiplies the two halves elementwise, by the product rule. Nothing is divided, so zeros are no problem.
        while (n := factors.shape[0]) > 1:
            half = (n + 1) // 2
            (x0, x1), (t0, t1) = _halves(factors, half, 1), _halves(factor_ts, half, 0)
            factors, factor_ts = mul(x0, x1), add(mul(t0, x1), mul(x0, t1))
        aval = self.out_aval(x.aval)
        out, out_t = [reshape(halved, aval.shape) for halved in (factors, factor_ts)]
        return [out], [match_aval(out_t, aval)]

    def flatten_axes(self, x: Value) -> Array:
        """Returns the operand with the reduced axes merged into one leading axis.

        Args:
            x: The operand.

        Returns:
            An array of rank one more than that of the result.
        """
        kept = [i for i in range(x.aval.ndim) if i not in self.axes]
        moved = transpose(x, [*self.axes, *kept])
        count = 1
        for i in self.axes:
            count *= x.aval.shape[i]
        return reshape(moved, (count, *[x.aval.shape[i] for i in kept]))


def _products_of_others(x: Array) -> Array:
    """Returns, for each row, the product of all other rows."""
    n, config = x.shape[0], [(0, 0, 0)] * (x.ndim - 1)
    before = pad(slice_axis(x, 0, n - 1, 0), 1, [(1, 0, 0), *config])
    behind = pad(slice_axis(x, 1, n, 0), 1, [(0, 1, 0), *config])
    return mul(cumprod(before), cumprod(behind, reverse=True))


def _halves(x: Array, half: int, fill: int) -> tuple[Array, Array]:
    """Returns the first `half` rows and the remaining ones, which are padded with `fill` to as many."""
    upper = slice_axis(x, half, x.shape[0], 0)
    missing = half - upper.shape[0]
    if missing:
        upper = pad(upper, fill, [(0, missing, 0), *[(0, 0, 0)] * (x.ndim - 1)])
    return slice_axis(x, 0, half, 0), upper


def reduce_prod(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Returns the product of `operand` over `axes`.

    Args:
        operand: Array of numbers (not booleans).
        axes: Distinct, non-negative axes. With none, `operand` is returned.

    Returns:
        An array without these axes, of the same dtype; 1 for no elements. Integers wrap around.

    Raises:
        AxisError: An axis is out of bounds or repeated.
        TypeError: `operand` is boolean.

    >>> reduce_prod(np.array([[1, 5], [7, 3]]), (1,))
    Array([ 5, 21], dtype=int32)
    """
    return _reduce(ReduceProd(static_ints("reduce_prod", axes, "axes")), operand)


# ------------------------------------------------------------------ reduce_and, reduce_or, reduce_xor


class LogicalReduction(Reduction):
    """A reduction of booleans, or of the bits of integers."""

    __slots__ = ()
    domain = LOGICAL

    def fold(self, x: NDArray) -> NDArray:
        """Reduces `x` with NumPy."""
        return np.asarray(self.monoid.ufunc.reduce(x, self.axes))

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        return super().out_aval(*avals).strong()

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray]:
        return self.kernel if dtypes.itemsize_bits(avals[0].dtype) < 8 else self.fold

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        (x,) = args
        return cast(self.fold(widen_for_numpy(x)), x.dtype)


@final
class ReduceAnd(LogicalReduction):
    """The logical AND over axes; for integers, the bitwise AND: `out[i] = x[i, 0] & x[i, 1] & ...`.

    `x: bool[n, m] -> bool[n]` with `axes=(1,)`; booleans or integers. Bound by `lax.reduce_and`.
    """

    name = "reduce_and"
    monoid = AND


@final
class ReduceOr(LogicalReduction):
    """The logical OR over axes; for integers, the bitwise OR: `out[i] = x[i, 0] | x[i, 1] | ...`.

    `x: bool[n, m] -> bool[n]` with `axes=(1,)`; booleans or integers. Bound by `lax.reduce_or`.
    """

    name = "reduce_or"
    monoid = OR


@final
class ReduceXor(LogicalReduction):
    """The logical XOR (parity) over axes; for integers, the bitwise XOR: `out[i] = x[i, 0] ^ x[i, 1] ^ ...`.

    `x: bool[n, m] -> bool[n]` with `axes=(1,)`; booleans or integers. Bound by `lax.reduce_xor`.
    """

    name = "reduce_xor"
    monoid = XOR


def _reduce_logical(prim: LogicalReduction, operand: ArrayLike) -> Array:
    x = as_value(operand, "operand")
    return bind1(prim, x) if x.aval.weak_type else _reduce(prim, x)


def reduce_and(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Returns the logical AND of `operand` over `axes`; for integers, the bitwise AND.

    Args:
        operand: Array of booleans or integers.
        axes: Distinct, non-negative axes.

    Returns:
        An array without these axes, of the same dtype; True (all bits set) for no elements.

    Raises:
        AxisError: An axis is out of bounds or repeated.
        TypeError: `operand` has another dtype.

    >>> reduce_and(np.array([[True, True], [True, False]]), (1,))
    Array([ True, False], dtype=bool)
    """
    return _reduce_logical(ReduceAnd(static_ints("reduce_and", axes, "axes")), operand)


def reduce_or(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Returns the logical OR of `operand` over `axes`; for integers, the bitwise OR.

    Args:
        operand: Array of booleans or integers.
        axes: Distinct, non-negative axes.

    Returns:
        An array without these axes, of the same dtype; False (no bits set) for no elements.

    Raises:
        AxisError: An axis is out of bounds or repeated.
        TypeError: `operand` has another dtype.

    >>> reduce_or(np.array([[True, True], [False, False]]), (1,))
    Array([ True, False], dtype=bool)
    """
    return _reduce_logical(ReduceOr(static_ints("reduce_or", axes, "axes")), operand)


def reduce_xor(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Returns the logical XOR (parity) of `operand` over `axes`; for integers, the bitwise XOR.

    Args:
        operand: Array of booleans or integers.
        axes: Distinct, non-negative axes.

    Returns:
        An array without these axes, of the same dtype; False (no bits set) for no elements.

    Raises:
        AxisError: An axis is out of bounds or repeated.
        TypeError: `operand` has another dtype.

    >>> reduce_xor(np.array([[True, True], [True, False]]), (1,))
    Array([False,  True], dtype=bool)
    """
    return _reduce_logical(ReduceXor(static_ints("reduce_xor", axes, "axes")), operand)


# ------------------------------------------------------------------ argmax, argmin

_ORDERED: Final = Domain("booleans, integers or floats", lambda d: not dtypes.is_complex(d) and d != dtypes.float0)


@frozen(eq=False)
class ArgExtremum(UnaryOperation, HasZeroTangent):
    """The index of the maximum or minimum along one axis: the first one if several tie, or the first NaN.

    Args:
        axes: The axis, a tuple with one entry.
        index_dtype: The dtype of the result, an integer dtype.

    >>> from tracefx import bind, dtypes, numpy, ops
    >>> bind(ops.ArgMax((0,), dtypes.result_type("int32")), numpy.array([1, 3, 2]))
    [Array(1, dtype=int32)]
    """

    axes: tuple[int, ...]
    index_dtype: DType
    extremum: ClassVar[Extremum]

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [without_axes(avals[0].spec, self.axes)]

    @override
    @memoize_aval("axes", "index_dtype")
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        if len(self.axes) != 1 or not 0 <= self.axes[0] < x.ndim:
            raise ValueError(f"{self.name}: axis must be one non-negative axis of {x}, got {self.axes}")
        if not dtypes.is_integer(self.index_dtype):
            raise TypeError(f"{self.name}: index_dtype must be an integer dtype, got {dtypes.name(self.index_dtype)}")
        _ORDERED.require(self.name, x)
        if not x.shape[self.axes[0]]:
            raise ValueError(f"{self.name}: axis {self.axes[0]} of {x} has no elements to choose from")
        return ShapedArray(x.without_axis(self.axes[0]).shape, self.index_dtype)

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray]:
        (x,), (axis,) = avals, self.axes
        if x.dtype not in NUMPY_NATIVE_DTYPES or self.index_dtype not in (dtypes.int32, dtypes.int64):
            return self.kernel
        return lambda x: np.asarray(self.extremum.find(x, axis), self.index_dtype)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        (x,) = args
        narrow = dtypes.is_float(x.dtype) and dtypes.itemsize_bits(x.dtype) < 32
        wide = cast(x, dtypes.float32) if narrow else widen_for_numpy(x)
        return cast(np.asarray(self.extremum.find(wide, self.axes[0])), self.index_dtype)

    @override
    def batch_operand(self, axis: MappedAxis, x: Value, dim: int) -> tuple[Value, int | None]:
        (reduced,) = self.axes
        return bind1(type(self)((reduced + (reduced >= dim),), self.index_dtype), x), dim - (reduced < dim)

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        x, (axis,) = stablehlo.emit_widened_unless_cpu(builder, operands[0]), self.axes
        numbers = ShapedArray(x.aval.shape, self.index_dtype)
        (indices,) = builder.emit("stablehlo.iota", [], [numbers], {"iota_dimension": axis})
        start = stablehlo.emit_scalar(builder, self.extremum.identity(x.aval.dtype), x.aval.dtype)
        zero = stablehlo.emit_scalar(builder, 0, self.index_dtype)
        pair = (ShapedArray((), x.aval.dtype), ShapedArray((), self.index_dtype))
        outs = [ShapedArray(out.shape, x.aval.dtype), out]
        attrs: dict[str, Attr] = {"dimensions": DenseI64Array((axis,))}
        body = Region((*pair, *pair), self.emit_body)
        return builder.emit("stablehlo.reduce", [x, indices, start, zero], outs, attrs, [body])[1]

    def emit_body(self, builder: Builder, args: Sequence[IrValue]) -> Sequence[IrValue]:
        """Emits the combination of two pairs of a value and its index."""
        x, i, y, j = args
        truth = ShapedArray((), dtypes.bool_)
        better = stablehlo.emit_compare(builder, self.extremum.direction, x, y)
        if dtypes.is_float(x.aval.dtype):
            (better,) = builder.emit("stablehlo.or", [better, stablehlo.emit_compare(builder, "NE", x, x)], [truth])
        tie, earlier = stablehlo.emit_compare(builder, "EQ", x, y), stablehlo.emit_compare(builder, "LT", i, j)
        (first,) = builder.emit("stablehlo.and", [tie, earlier], [truth])
        (chosen,) = builder.emit("stablehlo.or", [better, first], [truth])
        (value,) = builder.emit("stablehlo.select", [better, x, y], [x.aval])
        (reduced,) = builder.emit("stablehlo.select", [chosen, i, j], [i.aval])
        return [value, reduced]


@final
class ArgMax(ArgExtremum):
    """The index of the maximum along an axis: `out[i] = argmax(x[i, :])`.

    `x: f32[n, m] -> i32[n]` with `axes=(1,)`; booleans, integers or floats. Bound by `lax.argmax`.
    """

    name = "argmax"
    extremum = MAXIMUM


@final
class ArgMin(ArgExtremum):
    """The index of the minimum along an axis: `out[j] = argmin(x[:, j])`.

    `x: f32[n, m] -> i8[m]` with `axes=(0,)`; booleans, integers or floats. Bound by `lax.argmin`.
    """

    name = "argmin"
    extremum = MINIMUM


def argmax(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """Returns the index of the maximum along `axis`: the first one if several tie, the first NaN if there is one.

    Args:
        operand: Array; not complex.
        axis: The axis to search, non-negative.
        index_dtype: The integer dtype of the result.

    Returns:
        An array without this axis.

    Raises:
        TypeError: `operand` is complex, or `index_dtype` is not an integer dtype.
        ValueError: There is no such axis, or it is empty.

    >>> argmax(np.array([1, 7, 7]), 0, "int32")
    Array(1, dtype=int32)
    """
    reduced = static_int("argmax", axis, "axis")
    return bind1(ArgMax((reduced,), dtypes.as_dtype(index_dtype, "index_dtype")), operand)


def argmin(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """Returns the index of the minimum along `axis`: the first one if several tie, the first NaN if there is one.

    Args:
        operand: Array; not complex.
        axis: The axis to search, non-negative.
        index_dtype: The integer dtype of the result.

    Returns:
        An array without this axis.

    Raises:
        TypeError: `operand` is complex, or `index_dtype` is not an integer dtype.
        ValueError: There is no such axis, or it is empty.

    >>> argmin(np.array([7, 1, 1]), 0, "int32")
    Array(1, dtype=int32)
    """
    reduced = static_int("argmin", axis, "axis")
    return bind1(ArgMin((reduced,), dtypes.as_dtype(index_dtype, "index_dtype")), operand)
