"""Sums of products: `dot_general`, which matrix products and all contractions of two arrays are made of."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, unique
from typing import Final, TypeAlias, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.dtypes import DType, DTypeLike, NDArray
from tracefx.core.handler import bind1
from tracefx.core.primitive import MappedAxis, Tangent
from tracefx.core.values import Value, as_value
from tracefx.lowering import Attr, Builder, IrValue, MlirText
from tracefx.ops import stablehlo
from tracefx.ops.casting import cast
from tracefx.ops.contractions.bilinear import Bilinear
from tracefx.ops.contractions.dot_algorithms import (
    AnyDotAlgorithm,
    DotAlgorithm,
    DotAlgorithmPreset,
    algorithm_attr,
    algorithm_dtypes,
    gpu_dot_dtypes,
    require_algorithm,
)
from tracefx.ops.operation import Operation, memoize_aval
from tracefx.ops.static_integers import static_ints
from tracefx.ops.structural import NUMPY_NATIVE_DTYPES, match_aval, transpose
from tracefx.text.printer import HasJaxParams


@unique
class Precision(Enum):
    """How exactly an accelerator multiplies floats; the CPU is always exact."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @override
    def __repr__(self) -> str:
        return str(self)


_NAMES: Final[Mapping[str, Precision]] = {
    "default": Precision.DEFAULT,
    "fastest": Precision.DEFAULT,
    "bfloat16": Precision.DEFAULT,
    "high": Precision.HIGH,
    "bfloat16_3x": Precision.HIGH,
    "tensorfloat32": Precision.HIGH,
    "highest": Precision.HIGHEST,
    "float32": Precision.HIGHEST,
}

PrecisionLike: TypeAlias = Precision | str | tuple[Precision | str, Precision | str] | AnyDotAlgorithm | None
OperandPrecisions: TypeAlias = tuple[Precision, Precision] | None
DotPrecision: TypeAlias = tuple[Precision, Precision] | DotAlgorithm | DotAlgorithmPreset | None
DotDimensionNumbers: TypeAlias = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]
Dimensions: TypeAlias = tuple[int, ...]


@final
@frozen(eq=False)
class DotGeneral(Operation, Bilinear, HasJaxParams):
    name = "dot_general"
    arity = 2
    dimension_numbers: tuple[tuple[Dimensions, Dimensions], tuple[Dimensions, Dimensions]]
    precision: DotPrecision = field(default=None, metadata={"hide_default": True})
    preferred_element_type: DType | None = field(default=None, metadata={"hide_default": True})

    def swapped(self) -> DotGeneral:
        """The product of the operands in the other order; of its axes those of the second come first."""
        (lc, rc), (lb, rb) = self.dimension_numbers
        precision = self.precision
        if isinstance(precision, tuple):
            precision = precision[1], precision[0]
        elif isinstance(precision, DotAlgorithm):
            precision = precision.swapped()
        return DotGeneral(((rc, lc), (rb, lb)), precision, self.preferred_element_type)

    @override
    def jax_params(self) -> Mapping[str, object]:
        (lc, rc), (lb, rb) = self.dimension_numbers
        params: dict[str, object] = {"dimension_numbers": ((list(lc), list(rc)), (list(lb), list(rb)))}
        if self.precision is not None:
            params["precision"] = self.precision
        if self.preferred_element_type is not None:
            params["preferred_element_type"] = self.preferred_element_type
        return params

    # ------------------------------------------------------------------ types

    @override
    @memoize_aval("dimension_numbers", "preferred_element_type")
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        lhs, rhs = avals
        (lc, rc), (lb, rb) = self.dimension_numbers
        for side, x, contracting, batch in (("lhs", lhs, lc, lb), ("rhs", rhs, rc, rb)):
            named = (*contracting, *batch)
            if any(not 0 <= d < x.ndim for d in named) or len(set(named)) != len(named):
                raise TypeError(
                    f"dot_general: dimension_numbers must name different axes of {side}, counted from 0, but {side} is "
                    f"{x} and its axes to contract are {contracting}, those to map over {batch}"
                )
        for what, left, right in (("contract", lc, rc), ("map over", lb, rb)):
            sizes = [lhs.shape[d] for d in left], [rhs.shape[d] for d in right]
            if sizes[0] != sizes[1]:
                raise TypeError(
                    f"dot_general: axes to {what} must have equal sizes, got axes {left} of {lhs} with {sizes[0]} and "
                    f"axes {right} of {rhs} with {sizes[1]}"
                )
        shape = [lhs.shape[d] for d in lb]
        shape += [n for d, n in enumerate(lhs.shape) if d not in lc and d not in lb]
        shape += [n for d, n in enumerate(rhs.shape) if d not in rc and d not in rb]
        dtype = _out_dtype(lhs.dtype, rhs.dtype, self.preferred_element_type)
        return ShapedArray(tuple(shape), dtype, lhs.weak_type and rhs.weak_type)

    # ------------------------------------------------------------------ evaluation

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray]:
        lhs, rhs = avals
        one = lhs.dtype is rhs.dtype is self.out_aval(lhs, rhs).dtype
        if not one or lhs.dtype not in NUMPY_NATIVE_DTYPES or isinstance(self.precision, AnyDotAlgorithm):
            return self.kernel
        return np.dot if self._is_matmul(lhs, rhs) else self._product

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        lhs, rhs = args
        out = _out_dtype(lhs.dtype, rhs.dtype, self.preferred_element_type)
        if isinstance(self.precision, AnyDotAlgorithm):
            return self._kernel_by_algorithm(self.precision, lhs, rhs, out)
        left, right, inner = _cpu_product_dtypes(lhs.dtype, rhs.dtype, out)
        total = accumulation_dtype(inner, inner)
        product = self._product(_cast_through(lhs, left, inner, total), _cast_through(rhs, right, inner, total))
        return _cast_through(product, inner, out)

    def _kernel_by_algorithm(self, algorithm: AnyDotAlgorithm, lhs: NDArray, rhs: NDArray, out: DType) -> NDArray:
        require_algorithm(algorithm, "cpu")
        left, right, total = algorithm_dtypes(algorithm, lhs.dtype, rhs.dtype, out)
        inner = accumulation_dtype(left, total)
        product = self._product(cast(cast(lhs, left), inner), cast(cast(rhs, right), inner))
        return cast(cast(product, total), out)

    def _is_matmul(self, lhs: ShapedArray | NDArray, rhs: ShapedArray | NDArray) -> bool:
        """Whether the product is that of NumPy's operator, of vectors and matrices."""
        (lc, rc), (lb, _) = self.dimension_numbers
        return not lb and rc == (0,) and rhs.ndim <= 2 >= lhs.ndim and lc == (lhs.ndim - 1,)

    def _product(self, lhs: NDArray, rhs: NDArray) -> NDArray:
        (lc, rc), (lb, rb) = self.dimension_numbers
        if self._is_matmul(lhs, rhs):
            return np.asarray(np.dot(lhs, rhs))  # which gets under way in half of the time of `matmul`
        left = [d for d in range(lhs.ndim) if d not in lc and d not in lb]
        right = [d for d in range(rhs.ndim) if d not in rc and d not in rb]
        batch, contracted = _sizes(lhs, lb), _size(_sizes(lhs, lc))
        m, n = _sizes(lhs, left), _sizes(rhs, right)
        front = (_size(batch),) if batch else ()
        x = lhs.transpose((*lb, *left, *lc)).reshape((*front, _size(m), contracted))
        y = rhs.transpose((*rb, *rc, *right)).reshape((*front, contracted, _size(n)))
        return np.asarray(np.matmul(x, y)).reshape((*batch, *m, *n))

    # ------------------------------------------------------------------ derivatives

    @override
    def transpose_lhs(self, ct: Value, x: ShapedArray, y: Value, *others: Value) -> Tangent:
        (xc, yc), (xb, yb) = self.dimension_numbers
        return self._transpose_operand(ct, x, xc, xb, y, yc, yb, y_first=False)

    @override
    def transpose_rhs(self, ct: Value, x: Value, y: ShapedArray, *others: Value) -> Tangent:
        (xc, yc), (xb, yb) = self.dimension_numbers
        return self._transpose_operand(ct, y, yc, yb, x, xc, xb, y_first=True)

    def _transpose_operand(
        self,
        ct: Value,
        x: ShapedArray,
        xc: Dimensions,
        xb: Dimensions,
        y: Value,
        yc: Dimensions,
        yb: Dimensions,
        *,
        y_first: bool,
    ) -> Tangent:
        """The cotangent of the operand of type `x`: that of the output contracted with `y` over `y`'s free axes."""
        x_free = [d for d in range(x.ndim) if d not in xc and d not in xb]
        y_free = tuple([d for d in range(y.aval.ndim) if d not in yc and d not in yb])
        batch = tuple(range(len(xb)))
        start = len(xb) if y_first else len(xb) + len(x_free)
        ct_contracted = tuple(range(start, start + len(y_free)))
        prim = DotGeneral(((ct_contracted, y_free), (batch, yb)), self.precision, self.preferred_element_type)
        product = bind1(prim, ct, y)
        # Its axes: the mapped ones, x's free ones, then those contracted, in the order they have in y.
        order = [*xb, *x_free, *[xc[i] for i in sorted(range(len(yc)), key=yc.__getitem__)]]
        return match_aval(transpose(product, sorted(range(len(order)), key=order.__getitem__)), x)

    # ------------------------------------------------------------------ batching

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        (x, y), (x_dim, y_dim) = args, dims
        (xc, yc), (xb, yb) = self.dimension_numbers
        # A batched operand's axes have moved; where only one is batched, its batch axis is one more free axis.
        new_xc, new_xb = _shift_axes(xc, x_dim), _shift_axes(xb, x_dim)
        new_yc, new_yb = _shift_axes(yc, y_dim), _shift_axes(yb, y_dim)
        if x_dim is not None and y_dim is not None:
            new_xb, new_yb, place = (x_dim, *new_xb), (y_dim, *new_yb), 0
        elif x_dim is not None:
            free = [d for d in range(x.aval.ndim) if d not in new_xc and d not in new_xb]
            place = len(xb) + free.index(x_dim)
        else:
            assert y_dim is not None
            free = [d for d in range(y.aval.ndim) if d not in new_yc and d not in new_yb]
            place = x.aval.ndim - len(xc) + free.index(y_dim)
        numbers = ((new_xc, new_yc), (new_xb, new_yb))
        return bind1(DotGeneral(numbers, self.precision, self.preferred_element_type), x, y), place

    # ------------------------------------------------------------------ compilation

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        if isinstance(self.precision, AnyDotAlgorithm):
            return self._emit_algorithm(self.precision, builder, out, *operands)
        given = _operand_dtypes(operands[0].aval.dtype, operands[1].aval.dtype, out.dtype)
        operands = tuple([stablehlo.emit_convert(builder, x, dtype) for x, dtype in zip(operands, given, strict=True)])
        added = out.dtype
        if builder.platform in stablehlo.GPUS:
            pairs = [gpu_dot_dtypes(x.aval.dtype, out.dtype) for x in operands]
            operands = tuple([stablehlo.emit_convert(builder, x, d) for x, (d, _) in zip(operands, pairs, strict=True)])
            added = pairs[0][1]
        else:
            operands, added = stablehlo.emit_product_operands(builder, operands, added)
        attrs = {"precision_config": precision_config(self.precision)}
        return stablehlo.emit_convert(
            builder, self._emit_product(builder, out.update(dtype=added), operands, attrs), out.dtype
        )

    def _emit_algorithm(
        self, algorithm: AnyDotAlgorithm, builder: Builder, out: ShapedArray, *operands: IrValue
    ) -> IrValue:
        require_algorithm(algorithm, builder.platform)
        left, right, total = algorithm_dtypes(algorithm, operands[0].aval.dtype, operands[1].aval.dtype, out.dtype)
        converted = [stablehlo.emit_convert(builder, x, d) for x, d in zip(operands, (left, right), strict=True)]
        attrs: dict[str, Attr] = {"precision_config": precision_config(None)}
        text = algorithm_attr(algorithm, left, right)
        if text is not None:
            attrs["algorithm"] = text
        product = self._emit_product(builder, out.update(dtype=total), converted, attrs)
        return stablehlo.emit_convert(builder, product, out.dtype)

    def _emit_product(
        self, builder: Builder, out: ShapedArray, operands: Sequence[IrValue], attrs: Mapping[str, Attr]
    ) -> IrValue:
        (lc, rc), (lb, rb) = self.dimension_numbers
        lists = {
            "lhs_batching_dimensions": lb,
            "rhs_batching_dimensions": rb,
            "lhs_contracting_dimensions": lc,
            "rhs_contracting_dimensions": rc,
        }
        numbers = ", ".join([f"{name} = {list(axes)}" for name, axes in lists.items() if axes])
        dimensions = {"dot_dimension_numbers": MlirText(f"#stablehlo.dot<{numbers}>")}
        return builder.emit("stablehlo.dot_general", operands, [out], {**dimensions, **attrs})[0]


def precision_config(precision: OperandPrecisions) -> MlirText:
    """The precision as an attribute of StableHLO's operations that multiply."""
    both = precision or (Precision.DEFAULT, Precision.DEFAULT)
    return MlirText(f"[{', '.join([f'#stablehlo<precision {p.name}>' for p in both])}]")


def _is_narrow_float(dtype: DType) -> bool:
    return dtypes.is_float(dtype) and dtypes.itemsize_bits(dtype) <= 8


def _cast_through(x: NDArray, *steps: DType) -> NDArray:
    """`x` in one dtype after the other."""
    for dtype in steps:
        if x.dtype != dtype:
            x = cast(x, dtype)
    return x


def _sizes(x: NDArray, axes: Sequence[int]) -> Shape:
    return tuple([x.shape[d] for d in axes])


def _size(shape: Shape) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def _shift_axes(axes: Dimensions, dim: int | None) -> Dimensions:
    return axes if dim is None else tuple([d + (d >= dim) for d in axes])


def _component_bits(dtype: DType) -> int:
    return 1 if dtypes.is_bool(dtype) else dtypes.itemsize_bits(dtypes.real_dtype(dtype))


@functools.lru_cache(maxsize=4096)
def _out_dtype(lhs: DType, rhs: DType, preferred: DType | None) -> DType:
    for side, dtype in (("lhs", lhs), ("rhs", rhs)):
        if dtype == dtypes.float0 or dtypes.is_key(dtype):
            raise TypeError(f"dot_general: {side} is of dtype {dtypes.name(dtype)}, which has no numbers to multiply")
    left, right = _dtype_rank(lhs), _dtype_rank(rhs)
    if left == right and lhs != rhs:
        raise TypeError(f"dot_general: lhs, {lhs}, and rhs, {rhs}, have no dtype in common; convert one with astype")
    dtype = lhs if left >= right else rhs
    if preferred is None or preferred == dtype:
        return dtype
    if not dtypes.is_float(dtype) and _component_bits(preferred) < _component_bits(dtype):
        raise TypeError(
            f"dot_general: preferred_element_type {dtypes.name(preferred)} is narrower than {dtypes.name(dtype)}, that "
            "of the operands"
        )
    return preferred


def _dtype_rank(dtype: DType) -> tuple[bool, int, int, int, bool]:
    """XLA's order of the dtypes that may meet in a dot: the greater one is the product's."""
    part = dtypes.real_dtype(dtype)
    info = dtypes.finfo(part) if dtypes.is_float(part) else None
    range_, digits = (-1, -1) if info is None else (int(info.maxexp), int(info.nmant))
    unsigned = dtypes.kind(part) is dtypes.DTypeKind.UNSIGNED
    return dtypes.is_complex(dtype), range_, digits, _component_bits(dtype), not unsigned


def _operand_dtypes(lhs: DType, rhs: DType, out: DType) -> tuple[DType, DType]:
    """What the operands are multiplied as: the floats of 8 bits alone may be of two kinds."""
    return (lhs, rhs) if lhs == rhs or (_is_narrow_float(lhs) and _is_narrow_float(rhs)) else (out, out)


@functools.lru_cache(maxsize=4096)
def _cpu_product_dtypes(lhs: DType, rhs: DType, out: DType) -> tuple[DType, DType, DType]:
    """What the compiled product converts the operands to, and the dtype that XLA then multiplies in on the CPU and
    rounds the sum to: the greatest of theirs and of the sum's. Fractions are so multiplied before they are cut off.
    """
    left, right = _operand_dtypes(lhs, rhs, out)
    return left, right, max(stablehlo.product_dtypes((left, right), out), key=_dtype_rank)


@functools.lru_cache(maxsize=4096)
def accumulation_dtype(operand: DType, out: DType) -> DType:
    """The dtype NumPy multiplies and adds in: that of operands or result that holds more, and at least 32 bits."""
    if dtypes.is_bool(out):
        return out
    richer = dtypes.is_inexact(operand) and dtypes.itemsize_bits(operand) > dtypes.itemsize_bits(out)
    dtype = operand if richer else out
    if dtypes.itemsize_bits(dtype) >= 32:
        return dtype
    return dtypes.float32 if dtypes.is_float(dtype) else dtypes.int32


# ------------------------------------------------------------------ functions


def canonicalize_precision(name: str, precision: PrecisionLike) -> OperandPrecisions:
    """The precision for both operands of the operation `name`; ValueError for a name that stands for none."""
    if precision is None:
        return None
    if isinstance(precision, AnyDotAlgorithm):
        raise ValueError(f"{name}: precision must be a Precision or the name of one, got the algorithm {precision}")
    left, right = precision if isinstance(precision, tuple) else (precision, precision)
    return _precision(name, left), _precision(name, right)


def canonicalize_dot_precision(name: str, precision: PrecisionLike) -> DotPrecision:
    """`precisions` for a product of two arrays, for which there are algorithms, too."""
    if isinstance(precision, AnyDotAlgorithm):
        return precision
    if isinstance(precision, str) and precision in DotAlgorithmPreset.__members__:
        return DotAlgorithmPreset[precision]
    return canonicalize_precision(name, precision)


def _precision(name: str, p: Precision | str) -> Precision:
    if isinstance(p, Precision):
        return p
    found = _NAMES.get(p)
    if found is None:
        raise ValueError(f"{name}: precision must be a Precision or one of {', '.join(_NAMES)}, got {p!r}")
    return found


def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: DotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """The sum over some axes of the product of two arrays, mapped over others.

    `dimension_numbers` is `((lhs axes, rhs axes) to contract, (lhs axes, rhs axes) to map over)`. The result has the
    axes mapped over, then the other axes of `lhs`, then those of `rhs`. Its dtype is that of the operands, or
    `preferred_element_type`, in which the sum is computed too. `precision` is a `Precision` or its name, for both
    operands or for each of them, or an algorithm: a `DotAlgorithm`, a `DotAlgorithmPreset` or its name.

    Raises TypeError if axes don't exist, sizes don't agree or the dtypes have none in common.

    >>> dot_general(np.ones((2, 3)), np.ones((3, 4)), (((1,), (0,)), ((), ()))).shape
    (2, 4)
    """
    try:
        (lc, rc), (lb, rb) = dimension_numbers
    except (TypeError, ValueError) as error:
        raise TypeError(
            "dot_general: dimension_numbers must be ((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch)), "
            f"got {dimension_numbers!r}"
        ) from error
    what = "dimension_numbers"
    contracting = static_ints("dot_general", lc, what), static_ints("dot_general", rc, what)
    batch = static_ints("dot_general", lb, what), static_ints("dot_general", rb, what)
    new = None if preferred_element_type is None else dtypes.as_dtype(preferred_element_type, "preferred_element_type")
    return bind1(DotGeneral((contracting, batch), canonicalize_dot_precision("dot_general", precision), new), lhs, rhs)


def dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    dimension_numbers: DotDimensionNumbers | None = None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """The product of two vectors or matrices; with `dimension_numbers`, `dot_general`.

    >>> dot(np.arange(3.0), np.arange(3.0))
    Array(5., dtype=float32)
    """
    x, y = as_value(lhs, "lhs"), as_value(rhs, "rhs")
    if dimension_numbers is None:
        if not (1 <= x.aval.ndim <= 2 >= y.aval.ndim >= 1 and x.aval.shape[-1] == y.aval.shape[0]):
            raise ValueError(
                f"dot: lhs and rhs must be vectors or matrices, the last axis of lhs as long as the first of rhs, got "
                f"{x.aval} and {y.aval}; say with dimension_numbers what to contract otherwise"
            )
        dimension_numbers = (((x.aval.ndim - 1,), (0,)), ((), ()))
    return dot_general(x, y, dimension_numbers, precision, preferred_element_type)


def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike = None) -> Array:
    """The matrix products of two arrays of matrices, mapped over all axes but the last two: `f32[..., n, k]` and
    `f32[..., k, m]` give `f32[..., n, m]`.

    Raises ValueError unless both have the same number of axes, at least two.

    >>> batch_matmul(np.ones((5, 2, 3)), np.ones((5, 3, 4))).shape
    (5, 2, 4)
    """
    x, y = as_value(lhs, "lhs"), as_value(rhs, "rhs")
    ndim = x.aval.ndim
    if ndim != y.aval.ndim or ndim < 2:
        raise ValueError(
            f"batch_matmul: lhs and rhs must have the same number of axes, at least two, got {x.aval} and {y.aval}"
        )
    batch = tuple(range(ndim - 2))
    return dot_general(x, y, (((ndim - 1,), (ndim - 2,)), (batch, batch)), precision)
