"""`dot_general`, the contraction of two arrays that all matrix products are built on; `dot` and `batch_matmul`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, unique
from typing import Final, TypeAlias, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.core import (
    Array,
    ArrayLike,
    DType,
    DTypeLike,
    NDArray,
    Shape,
    ShapedArray,
    Value,
    as_value,
    dtypes,
    show_avals,
)
from tracefx.core.avals import Dimensions
from tracefx.core.handler import bind1
from tracefx.core.primitive import MappedAxis, Tangent
from tracefx.core.type_sharding import Spec
from tracefx.errors import ShardingTypeError
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
from tracefx.ops.operation import Operation, memoize_aval, run_compiled
from tracefx.ops.sharding_rules import agreed, without_axes
from tracefx.ops.static_integers import static_ints
from tracefx.ops.structural import NUMPY_NATIVE_DTYPES, match_aval, transpose
from tracefx.text.printer import HasJaxParams

_MAX_NUMPY_PRODUCTS: Final = 2**20
"""The largest number of products that NumPy computes. Its BLAS spreads larger contractions over threads that wait for
each other actively: if other processes use a core, each takes ten to a hundred times as long as the compiled one."""
_MIN_COUNTED_SIZE: Final = 2**13
"""The number of elements of both operands up to which the products are not counted, which takes 1 µs."""


@unique
class Precision(Enum):
    """How accurately accelerators multiply floats. The CPU is always accurate."""

    DEFAULT = 0
    """The fastest way, for example products of bfloat16."""
    HIGH = 1
    """An intermediate way, for example three products of bfloat16, or TensorFloat32."""
    HIGHEST = 2
    """Full float32 accuracy."""

    @override
    def __repr__(self) -> str:
        return f"Precision.{self.name}"

    @override
    def __str__(self) -> str:
        return self.name


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


@final
@frozen(eq=False)
class DotGeneral(Operation, Bilinear, HasJaxParams):
    """The sums of products over contracting axes of two arrays, for each index of their batch axes.

    With one contracting axis and one batch axis, `out[b, i, j] = sum(lhs[b, i, k] * rhs[b, k, j] for k)`. The result
    has the batch axes, then the other axes of `lhs`, then those of `rhs`.

    Args:
        dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`, tuples of axes.
        precision: How accurately accelerators multiply: a pair of `Precision`, an algorithm, or None (default) for the
            platform's default.
        preferred_element_type: The dtype of the result; None, the default, means the common dtype of the operands.

    `lhs: f32[n, k], rhs: f32[k, m] -> f32[n, m]` with `dimension_numbers=(((1,), (0,)), ((), ()))`; any dtype but
    random keys. Bound by `lax.dot_general`, `lax.dot` and `numpy.matmul`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.DotGeneral((((0,), (0,)), ((), ()))), numpy.array([1, 2]), numpy.array([3, 4]))
    [Array(11, dtype=int32)]
    """

    name = "dot_general"
    arity = 2
    dimension_numbers: tuple[tuple[Dimensions, Dimensions], tuple[Dimensions, Dimensions]]
    precision: DotPrecision = field(default=None, metadata={"hide_default": True})
    preferred_element_type: DType | None = field(default=None, metadata={"hide_default": True})

    def swapped(self) -> DotGeneral:
        """Returns the contraction of exchanged operands; its output has the axes of the second operand first."""
        (lc, rc), (lb, rb) = self.dimension_numbers
        precision = self.precision
        if isinstance(precision, tuple):
            precision = precision[1], precision[0]
        elif isinstance(precision, DotAlgorithm):
            precision = precision.swapped()
        return DotGeneral(((rc, lc), (rb, lb)), precision, self.preferred_element_type)

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        (lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch) = self.dimension_numbers
        lhs, rhs = [aval.spec for aval in avals]
        pairs = [(lhs[i], rhs[j]) for i, j in zip(lhs_contracting, rhs_contracting, strict=True)]
        batch = [(lhs[i], rhs[j]) for i, j in zip(lhs_batch, rhs_batch, strict=True)]
        if any(None not in pair for pair in pairs) or any(None not in pair and not agreed(*pair) for pair in batch):
            raise ShardingTypeError(
                f"dot_general of {show_avals(avals)} has no unique sharding: both are sharded along a contracting "
                "axis, or differently along a batch axis. Pass out_sharding=, or reshard an operand with "
                "tracefx.sharding.reshard"
            )
        return [
            (
                *[a or b for a, b in batch],
                *without_axes(lhs, (*lhs_contracting, *lhs_batch)),
                *without_axes(rhs, (*rhs_contracting, *rhs_batch)),
            )
        ]

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
                    f"dot_general: dimension_numbers must name distinct, non-negative axes of {side}, but {side} is "
                    f"{x}, its contracting axes are {contracting}, and its batch axes {batch}"
                )
        for what, left, right in (("contracting", lc, rc), ("batch", lb, rb)):
            sizes = [lhs.shape[d] for d in left], [rhs.shape[d] for d in right]
            if sizes[0] != sizes[1]:
                raise TypeError(
                    f"dot_general: {what} axes must have equal sizes, got axes {left} of {lhs} with {sizes[0]} and "
                    f"axes {right} of {rhs} with {sizes[1]}"
                )
        shape = [lhs.shape[d] for d in lb]
        shape += [n for d, n in enumerate(lhs.shape) if d not in lc and d not in lb]
        shape += [n for d, n in enumerate(rhs.shape) if d not in rc and d not in rb]
        dtype = _out_dtype(lhs.dtype, rhs.dtype, self.preferred_element_type)
        return ShapedArray(tuple(shape), dtype, lhs.weak_type and rhs.weak_type)

    # ------------------------------------------------------------------ evaluation

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        large = len(args) == 2 and self._is_large(args[0].aval, args[1].aval)
        return run_compiled(self, args) if large else super().evaluate(args)

    def _is_large(self, lhs: ShapedArray, rhs: ShapedArray) -> bool:
        """Returns whether eager evaluation compiles the contraction."""
        if lhs.size + rhs.size <= _MIN_COUNTED_SIZE:
            return False
        (_, rc), (_, rb) = self.dimension_numbers
        return lhs.size * rhs.size > _MAX_NUMPY_PRODUCTS * _size(_sizes(rhs, (*rc, *rb)))

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray] | None:
        lhs, rhs = avals
        if self._is_large(lhs, rhs):
            return None
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
        """Returns whether `np.dot` computes the product: vectors or matrices, last axis by first."""
        (lc, rc), (lb, _) = self.dimension_numbers
        return not lb and rc == (0,) and rhs.ndim <= 2 >= lhs.ndim and lc == (lhs.ndim - 1,)

    def _product(self, lhs: NDArray, rhs: NDArray) -> NDArray:
        """Computes the contraction with NumPy, in the dtype of the operands."""
        (lc, rc), (lb, rb) = self.dimension_numbers
        if self._is_matmul(lhs, rhs):
            return np.asarray(np.dot(lhs, rhs))  # has half the overhead of `matmul`
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
        """Returns the cotangent of the operand `x`: `ct` contracted with `y` over the free axes of `y`."""
        x_free = [d for d in range(x.ndim) if d not in xc and d not in xb]
        y_free = tuple([d for d in range(y.aval.ndim) if d not in yc and d not in yb])
        batch = tuple(range(len(xb)))
        start = len(xb) if y_first else len(xb) + len(x_free)
        ct_contracted = tuple(range(start, start + len(y_free)))
        prim = DotGeneral(((ct_contracted, y_free), (batch, yb)), self.precision, self.preferred_element_type)
        product = bind1(prim, ct, y)
        # Its axes: the batch axes, the free axes of x, then the contracting axes in the order of y.
        order = [*xb, *x_free, *[xc[i] for i in sorted(range(len(yc)), key=yc.__getitem__)]]
        return match_aval(transpose(product, sorted(range(len(order)), key=order.__getitem__)), x)

    # ------------------------------------------------------------------ batching

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        (x, y), (x_dim, y_dim) = args, dims
        (xc, yc), (xb, yb) = self.dimension_numbers
        # Shifts the axes of batched operands. If only one operand is batched, its batch axis is one more free axis.
        new_xc, new_xb = _shift_axes(xc, x_dim), _shift_axes(xb, x_dim)
        new_yc, new_yb = _shift_axes(yc, y_dim), _shift_axes(yb, y_dim)
        if x_dim is not None and y_dim is not None:
            new_xb, new_yb, out_dim = (x_dim, *new_xb), (y_dim, *new_yb), 0
        elif x_dim is not None:
            free = [d for d in range(x.aval.ndim) if d not in new_xc and d not in new_xb]
            out_dim = len(xb) + free.index(x_dim)
        else:
            assert y_dim is not None
            free = [d for d in range(y.aval.ndim) if d not in new_yc and d not in new_yb]
            out_dim = x.aval.ndim - len(xc) + free.index(y_dim)
        numbers = ((new_xc, new_yc), (new_xb, new_yb))
        return bind1(DotGeneral(numbers, self.precision, self.preferred_element_type), x, y), out_dim

    # ------------------------------------------------------------------ compilation

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        if isinstance(self.precision, AnyDotAlgorithm):
            return self._emit_algorithm(self.precision, builder, out, *operands)
        operand_types = _operand_dtypes(operands[0].aval.dtype, operands[1].aval.dtype, out.dtype)
        operands = tuple(
            [stablehlo.emit_convert(builder, x, dtype) for x, dtype in zip(operands, operand_types, strict=True)]
        )
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
    """Returns the `precision_config` attribute of StableHLO's contractions and convolutions."""
    both = precision or (Precision.DEFAULT, Precision.DEFAULT)
    return MlirText(f"[{', '.join([f'#stablehlo<precision {p.name}>' for p in both])}]")


def _is_narrow_float(dtype: DType) -> bool:
    return dtypes.is_float(dtype) and dtypes.itemsize_bits(dtype) <= 8


def _cast_through(x: NDArray, *steps: DType) -> NDArray:
    """Returns `x` cast to each dtype in turn."""
    for dtype in steps:
        if x.dtype != dtype:
            x = cast(x, dtype)
    return x


def _sizes(x: NDArray | ShapedArray, axes: Sequence[int]) -> Shape:
    """Returns the sizes of axes of `x`."""
    return tuple([x.shape[d] for d in axes])


def _size(shape: Shape) -> int:
    """Returns the number of elements of a shape."""
    size = 1
    for n in shape:
        size *= n
    return size


def _shift_axes(axes: Dimensions, dim: int | None) -> Dimensions:
    """Returns axes of an operand without its batch axis as axes of the operand with batch axis `dim`."""
    return axes if dim is None else tuple([d + (d >= dim) for d in axes])


def _component_bits(dtype: DType) -> int:
    """Returns the width of a dtype's elements, or of their real part."""
    return 1 if dtypes.is_bool(dtype) else dtypes.itemsize_bits(dtypes.real_dtype(dtype))


@memoize(4096)
def _out_dtype(lhs: DType, rhs: DType, preferred: DType | None) -> DType:
    """Returns the dtype of the product; raises TypeError if there is none."""
    for side, dtype in (("lhs", lhs), ("rhs", rhs)):
        if dtype == dtypes.float0 or dtypes.is_key(dtype):
            raise TypeError(f"dot_general: {side} has dtype {dtypes.name(dtype)}, which is not numeric")
    left, right = _dtype_rank(lhs), _dtype_rank(rhs)
    if left == right and lhs != rhs:
        raise TypeError(f"dot_general: lhs, {lhs}, and rhs, {rhs}, have no common dtype; convert one with astype")
    dtype = lhs if left >= right else rhs
    if preferred is None or preferred == dtype:
        return dtype
    if not dtypes.is_float(dtype) and _component_bits(preferred) < _component_bits(dtype):
        raise TypeError(
            f"dot_general: preferred_element_type {dtypes.name(preferred)} is narrower than {dtypes.name(dtype)}, "
            "the dtype of the operands"
        )
    return preferred


def _dtype_rank(dtype: DType) -> tuple[bool, int, int, int, bool]:
    """Returns the key of XLA's order of dtypes in a contraction: the product has the greater dtype."""
    part = dtypes.real_dtype(dtype)
    info = dtypes.finfo(part) if dtypes.is_float(part) else None
    range_, digits = (-1, -1) if info is None else (int(info.maxexp), int(info.nmant))
    unsigned = dtypes.kind(part) is dtypes.DTypeKind.UNSIGNED
    return dtypes.is_complex(dtype), range_, digits, _component_bits(dtype), not unsigned


def _operand_dtypes(lhs: DType, rhs: DType, out: DType) -> tuple[DType, DType]:
    """Returns the dtypes that operands are multiplied in. Only 8-bit floats may differ."""
    return (lhs, rhs) if lhs == rhs or (_is_narrow_float(lhs) and _is_narrow_float(rhs)) else (out, out)


@memoize(4096)
def _cpu_product_dtypes(lhs: DType, rhs: DType, out: DType) -> tuple[DType, DType, DType]:
    """Returns the dtypes of the converted operands, and the dtype of XLA's products and sums on the CPU.

    The latter is the greatest among operands and result, so that fractions are multiplied before they are truncated.
    """
    left, right = _operand_dtypes(lhs, rhs, out)
    return left, right, max(stablehlo.product_dtypes((left, right), out), key=_dtype_rank)


@memoize(4096)
def accumulation_dtype(operand: DType, out: DType) -> DType:
    """Returns the dtype of NumPy's products and sums: the wider one of operands and result, of at least 32 bits."""
    if dtypes.is_bool(out):
        return out
    richer = dtypes.is_inexact(operand) and dtypes.itemsize_bits(operand) > dtypes.itemsize_bits(out)
    dtype = operand if richer else out
    if dtypes.itemsize_bits(dtype) >= 32:
        return dtype
    return dtypes.float32 if dtypes.is_float(dtype) else dtypes.int32


# ------------------------------------------------------------------ functions


def canonicalize_precision(name: str, precision: PrecisionLike) -> OperandPrecisions:
    """Returns the precision of both operands; raises ValueError for an unknown name. `name` is the function's."""
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
    by_name = _NAMES.get(p)
    if by_name is None:
        raise ValueError(f"{name}: precision must be a Precision or one of {', '.join(_NAMES)}, got {p!r}")
    return by_name


def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: DotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Returns the contraction of two arrays: the sum of products over some axes, mapped over others.

    Args:
        lhs: Array.
        rhs: Array.
        dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`: the axes of each operand to
            sum over, and those to map over, pairwise of equal sizes.
        precision: A `Precision` or its name, for both operands or a pair; or an algorithm: a `DotAlgorithm`, a
            `DotAlgorithmPreset` or its name. None, the default, means `Precision.DEFAULT`.
        preferred_element_type: The dtype of the result and of the accumulation. None, the default, means the operands'.

    Returns:
        An array whose axes are the batch axes, the free axes of `lhs`, then the free axes of `rhs`.

    Raises:
        TypeError: An axis does not exist, sizes differ, or the dtypes have no common one.
        ValueError: `precision` is unknown, or not supported on the platform.

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
    """Returns the product of two vectors or matrices: the sum over the last axis of `lhs` and the first of `rhs`.

    Args:
        lhs: Vector or matrix.
        rhs: Vector or matrix.
        dimension_numbers: Other axes to contract and map over, as in `dot_general`. None by default.
        precision: As in `dot_general`. None by default.
        preferred_element_type: As in `dot_general`. None by default.

    Returns:
        A scalar, vector or matrix.

    Raises:
        TypeError: The dtypes have no common one.
        ValueError: The operands are not vectors or matrices of fitting sizes.

    >>> dot(np.arange(3.0), np.arange(3.0))
    Array(5., dtype=float32)
    """
    x, y = as_value(lhs, "lhs"), as_value(rhs, "rhs")
    if dimension_numbers is None:
        if not (1 <= x.aval.ndim <= 2 >= y.aval.ndim >= 1 and x.aval.shape[-1] == y.aval.shape[0]):
            raise ValueError(
                f"dot: lhs and rhs must be vectors or matrices, the last axis of lhs as long as the first of rhs, got "
                f"{x.aval} and {y.aval}; for other contractions, pass dimension_numbers"
            )
        dimension_numbers = (((x.aval.ndim - 1,), (0,)), ((), ()))
    return dot_general(x, y, dimension_numbers, precision, preferred_element_type)


def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike = None) -> Array:
    """Returns the products of two batches of matrices: `f32[..., n, k]` times `f32[..., k, m]` is `f32[..., n, m]`.

    Args:
        lhs: Array of at least two axes.
        rhs: Array of the same rank. All axes but the last two are batch axes.
        precision: As in `dot_general`. None by default.

    Returns:
        An array of the same rank.

    Raises:
        TypeError: Batch sizes or inner sizes differ, or the dtypes have no common one.
        ValueError: The ranks differ, or are less than two.

    >>> batch_matmul(np.ones((5, 2, 3)), np.ones((5, 3, 4))).shape
    (5, 2, 4)
    """
    x, y = as_value(lhs, "lhs"), as_value(rhs, "rhs")
    ndim = x.aval.ndim
    if ndim != y.aval.ndim or ndim < 2:
        raise ValueError(f"batch_matmul: lhs and rhs must have the same rank, at least two, got {x.aval} and {y.aval}")
    batch = tuple(range(ndim - 2))
    return dot_general(x, y, (((ndim - 1,), (ndim - 2,)), (batch, batch)), precision)
