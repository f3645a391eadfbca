"""Monoids, the operations of reductions: sums, products, logical operations, XLA's maximum and minimum."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import DType, NDArray, Scalar, ShapedArray, dtypes
from tracefx.lowering import Builder, DenseI64Array, IrValue, Region
from tracefx.ops import stablehlo


class Combiner:
    """An operation on two elements, in NumPy and in StableHLO."""

    __slots__ = ()

    @abstractmethod
    def combine(self, x: NDArray, y: NDArray) -> NDArray:
        """Returns the combination of two arrays, elementwise."""
        raise NotImplementedError

    @abstractmethod
    def combine_at(self, out: NDArray, positions: NDArray, new: NDArray) -> None:
        """Combines `new` into the flat array `out`, in place, at indices that may repeat."""
        raise NotImplementedError

    @abstractmethod
    def emit(self, builder: Builder, out: ShapedArray, x: IrValue, y: IrValue) -> IrValue:
        """Emits the combination of two operands, elementwise."""
        raise NotImplementedError

    def region(self, dtype: DType) -> Region:
        """Returns the region of a StableHLO operation that combines two scalars of a dtype."""
        element = ShapedArray((), dtype)
        return Region((element, element), lambda builder, args: [self.emit(builder, element, *args)])


@frozen(eq=False)
class UfuncCombiner(Combiner):
    """An operation that NumPy has.

    Args:
        ufunc: NumPy's function. For dtypes that NumPy lacks, kernels pass it operands of a wider dtype.
    """

    ufunc: np.ufunc

    @override
    def combine(self, x: NDArray, y: NDArray) -> NDArray:
        out: NDArray = self.ufunc(x, y)
        return out

    @override
    def combine_at(self, out: NDArray, positions: NDArray, new: NDArray) -> None:
        self.ufunc.at(out, positions, new)


class Monoid(UfuncCombiner):
    """An associative operation with an identity element."""

    __slots__ = ()

    @abstractmethod
    def identity(self, dtype: DType) -> Scalar:
        """Returns the identity element of a dtype."""
        raise NotImplementedError

    def accumulate(self, axis: int, x: NDArray) -> NDArray:
        """Returns the combinations of all prefixes along an axis."""
        return np.asarray(self.ufunc.accumulate(x, axis, x.dtype))

    def accumulate_in_loop(self, axis: int, x: NDArray) -> NDArray:
        """Does the work of `accumulate` by calls of `combine`, for dtypes for which NumPy has another operation."""
        out = np.array(np.moveaxis(x, axis, 0))
        for i in range(1, len(out)):
            out[i] = self.combine(out[i - 1], out[i])
        return np.moveaxis(out, 0, axis)

    def emit_reduce(self, builder: Builder, x: IrValue, axes: Sequence[int]) -> IrValue:
        """Emits the reduction of `x` over axes."""
        dtype = x.aval.dtype
        out = ShapedArray(tuple([n for i, n in enumerate(x.aval.shape) if i not in axes]), dtype)
        start = stablehlo.emit_scalar(builder, self.identity(dtype), dtype)
        attrs = {"dimensions": DenseI64Array(tuple(axes))}
        return builder.emit("stablehlo.reduce", [x, start], [out], attrs, [self.region(dtype)])[0]


@final
@frozen(eq=False)
class Arithmetic(Monoid):
    """An operation of StableHLO whose identity element is a constant.

    Args:
        ufunc: NumPy's function.
        hlo: The StableHLO operation.
        unit: The identity element; -1 is also the unsigned integer whose bits are all ones.
    """

    hlo: str
    unit: int

    @override
    def identity(self, dtype: DType) -> Scalar:
        if dtypes.is_bool(dtype):
            return bool(self.unit)
        return int(dtypes.iinfo(dtype).max) if self.unit < 0 and not dtypes.is_signed(dtype) else self.unit

    @override
    def emit(self, builder: Builder, out: ShapedArray, x: IrValue, y: IrValue) -> IrValue:
        return builder.emit(self.hlo, [x, y], [out])[0]


ADD: Final = Arithmetic(np.add, "stablehlo.add", 0)
MULTIPLY: Final = Arithmetic(np.multiply, "stablehlo.multiply", 1)
AND: Final = Arithmetic(np.bitwise_and, "stablehlo.and", -1)
OR: Final = Arithmetic(np.bitwise_or, "stablehlo.or", 0)
XOR: Final = Arithmetic(np.bitwise_xor, "stablehlo.xor", 0)

# ------------------------------------------------------------------ maximum and minimum


@final
@frozen(eq=False)
class Extremum(Monoid):
    """The maximum or the minimum, with XLA's results.

    NaN propagates, and 0.0 is larger than -0.0. Complex numbers are ordered by their real parts, then by their
    imaginary parts; a NaN among them compares as neither larger nor smaller, and then the second operand is returned.
    """

    direction: str
    """The comparison that holds if its first operand is the result: `"GT"` or `"LT"`."""
    find: Callable[[NDArray, int], object]
    """NumPy's function that returns indices along an axis."""

    @override
    def identity(self, dtype: DType) -> Scalar:
        """Returns the least or the greatest value of a dtype, infinities included."""
        is_max = self.direction == "GT"
        if dtypes.is_bool(dtype):
            return not is_max
        if dtypes.is_integer(dtype):
            info = dtypes.iinfo(dtype)
            return int(info.min if is_max else info.max)
        bound = -math.inf if is_max else math.inf
        part = dtypes.real_dtype(dtype)
        if not np.isinf(np.asarray(bound, part)):  # the dtype has no infinities
            limits = dtypes.finfo(part)
            bound = float(limits.min if is_max else limits.max)
        return complex(bound, 0.0) if dtypes.is_complex(dtype) else bound

    @override
    def combine(self, x: NDArray, y: NDArray) -> NDArray:
        if dtypes.is_complex(x.dtype):
            return np.where(_larger(x, y) if self.direction == "GT" else _larger(y, x), x, y)
        out: NDArray = self.ufunc(x, y)
        if dtypes.is_float(out.dtype) and np.count_nonzero(out) != out.size:  # of two zeros, NumPy may return either
            return np.where((x == 0) & (y == 0), x + y if self.direction == "GT" else -(-x + -y), out)
        return out

    @override
    def combine_at(self, out: NDArray, positions: NDArray, new: NDArray) -> None:
        if dtypes.is_complex(out.dtype):  # NumPy orders complex numbers differently
            for position, element in zip(positions.tolist(), new, strict=True):
                out[position] = self.combine(out[position], element)
            return
        has_preferred = self.preferred_zeros(out) if dtypes.is_float(out.dtype) else None
        self.ufunc.at(out, positions, new)
        if has_preferred is not None and not out.all():
            np.logical_or.at(has_preferred, positions, self.preferred_zeros(new))
            out[:] = self.with_zero_signs(out, has_preferred)

    @override
    def accumulate(self, axis: int, x: NDArray) -> NDArray:
        if dtypes.is_complex(x.dtype):
            return self.accumulate_in_loop(axis, x)
        out = np.asarray(self.ufunc.accumulate(x, axis))
        if not dtypes.is_float(x.dtype) or out.all():
            return out
        return self.with_zero_signs(out, np.maximum.accumulate(self.preferred_zeros(x), axis))

    def preferred_zeros(self, x: NDArray) -> NDArray:
        """Returns where `x` is the zero that wins against the other one: 0.0 is greater than -0.0."""
        mask: NDArray = (x == 0) & (np.signbit(x) != (self.direction == "GT"))
        return mask

    def with_zero_signs(self, out: NDArray, has_preferred: NDArray) -> NDArray:
        """Corrects the signs of zeros, of which NumPy may return either: the preferred one where one was reduced."""
        return np.where(out == 0, np.where(has_preferred == (self.direction == "GT"), 0.0, -0.0), out)

    @override
    def emit(self, builder: Builder, out: ShapedArray, x: IrValue, y: IrValue) -> IrValue:
        if not dtypes.is_complex(out.dtype):
            name = "stablehlo.maximum" if self.direction == "GT" else "stablehlo.minimum"
            return builder.emit(name, [x, y], [out])[0]
        part = ShapedArray(out.shape, dtypes.real_dtype(out.dtype))
        (x_re,), (y_re,) = [builder.emit("stablehlo.real", [z], [part]) for z in (x, y)]
        (x_im,), (y_im,) = [builder.emit("stablehlo.imag", [z], [part]) for z in (x, y)]
        mask = ShapedArray(out.shape, dtypes.bool_)
        same = stablehlo.emit_compare(builder, "EQ", x_re, y_re)
        by_real = stablehlo.emit_compare(builder, self.direction, x_re, y_re)
        by_imag = stablehlo.emit_compare(builder, self.direction, x_im, y_im)
        (first,) = builder.emit("stablehlo.select", [same, by_imag, by_real], [mask])
        return builder.emit("stablehlo.select", [first, x, y], [out])[0]


def _larger(x: NDArray, y: NDArray) -> NDArray:
    """Returns where `x > y` in the lexicographic order of complex numbers."""
    return np.where(x.real == y.real, x.imag > y.imag, x.real > y.real)


MAXIMUM: Final = Extremum(np.maximum, "GT", np.argmax)
MINIMUM: Final = Extremum(np.minimum, "LT", np.argmin)
