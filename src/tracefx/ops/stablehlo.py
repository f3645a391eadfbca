"""StableHLO as `lower` rules spell it: the few shapes of operation that several families share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracefx.core import dtypes
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.key_data import key_data_aval
from tracefx.core.literal import Literal, Scalar
from tracefx.lowering import Builder, DenseI64Array, IrValue, MlirText, Region

GPUS: Final = frozenset({"cuda", "rocm"})
_CPU_PRODUCT_DTYPES: Final = frozenset({dtypes.int4, dtypes.uint4, dtypes.float4_e2m1fn})


def emit_scalar(builder: Builder, value: Scalar, dtype: dtypes.DType) -> IrValue:
    return builder.constant(Literal(value, ShapedArray((), dtype)))


def emit_broadcast(builder: Builder, x: IrValue, shape: Shape, dims: Sequence[int] = ()) -> IrValue:
    """`x` with its axes placed at `dims` of `shape`; nothing where it has that shape already."""
    if x.aval.shape == shape:
        return x
    out = ShapedArray(shape, x.aval.dtype)
    if dtypes.is_key(out.dtype):
        words = builder.retype_keys(x, key_data_aval(x.aval))
        return builder.retype_keys(emit_broadcast(builder, words, key_data_aval(out).shape, (*dims, len(shape))), out)
    return builder.emit("stablehlo.broadcast_in_dim", [x], [out], {"broadcast_dimensions": DenseI64Array(tuple(dims))})[
        0
    ]


def emit_full(builder: Builder, value: Scalar, aval: ShapedArray) -> IrValue:
    return emit_broadcast(builder, emit_scalar(builder, value, aval.dtype), aval.shape)


def emit_convert(builder: Builder, x: IrValue, dtype: dtypes.DType) -> IrValue:
    """`x` in another dtype; nothing where it has that one already."""
    if x.aval.dtype == dtype:
        return x
    return builder.emit("stablehlo.convert", [x], [ShapedArray(x.aval.shape, dtype)])[0]


def is_narrow(dtype: dtypes.DType) -> bool:
    """Whether numbers have less than 8 bits."""
    return not dtypes.is_bool(dtype) and not dtypes.is_key(dtype) and dtypes.itemsize_bits(dtype) < 8


def widened_dtype(dtype: dtypes.DType) -> dtypes.DType:
    """The dtype of 8 bits or 16 that narrow numbers are computed with in; others in their own."""
    if not is_narrow(dtype):
        return dtype
    if dtypes.is_float(dtype):
        return dtypes.bfloat16
    return dtypes.int8 if dtypes.is_signed(dtype) else dtypes.uint8


def emit_widened(builder: Builder, x: IrValue) -> IrValue:
    """`x`, of narrow numbers as numbers of 8 bits or 16."""
    return emit_convert(builder, x, widened_dtype(x.aval.dtype))


def emit_widened_unless_cpu(builder: Builder, x: IrValue) -> IrValue:
    """`x`; of narrow numbers, whose order is the same, in a dtype that XLA sorts on every platform."""
    return x if builder.platform == "cpu" else emit_widened(builder, x)


def emit_product_operands(
    builder: Builder, operands: Sequence[IrValue], out: dtypes.DType
) -> tuple[tuple[IrValue, ...], dtypes.DType]:
    """Operands of a sum of products on the CPU, and what it is added in.

    Of narrow numbers, XLA there adds products of 4 bits alone, and in these.
    """
    *multiplied, added = product_dtypes([x.aval.dtype for x in operands], out)
    return tuple([emit_convert(builder, x, dtype) for x, dtype in zip(operands, multiplied, strict=True)]), added


def product_dtypes(operands: Sequence[dtypes.DType], out: dtypes.DType) -> tuple[dtypes.DType, ...]:
    """The dtypes of `emit_product_operands`: those of the operands, then that of the sum."""
    if all(not is_narrow(x) or (x == out and out in _CPU_PRODUCT_DTYPES) for x in operands):
        return *operands, out
    wider = [widened_dtype(x) for x in operands]
    return *wider, wider[0] if is_narrow(out) else out


def emit_compare(builder: Builder, direction: str, x: IrValue, y: IrValue) -> IrValue:
    """An elementwise comparison, `direction` being one of EQ, NE, GE, GT, LE, LT. NaNs are unordered."""
    dtype = x.aval.dtype
    if dtypes.is_inexact(dtype):
        kind = "FLOAT"
    else:
        kind = "SIGNED" if dtypes.is_signed(dtype) else "UNSIGNED"
    attrs = {
        "comparison_direction": MlirText(f"#stablehlo<comparison_direction {direction}>"),
        "compare_type": MlirText(f"#stablehlo<comparison_type {kind}>"),
    }
    out = ShapedArray(x.aval.shape, dtypes.bool_)
    return builder.emit("stablehlo.compare", [x, y], [out], attrs)[0]


def emit_reduce(builder: Builder, combine: str, x: IrValue, initial: Scalar, axes: Sequence[int]) -> IrValue:
    """Fold `axes` of `x` with the operation `combine`, from `initial`."""
    element = ShapedArray((), x.aval.dtype)
    out = ShapedArray(tuple([n for i, n in enumerate(x.aval.shape) if i not in axes]), x.aval.dtype)
    body = Region((element, element), lambda b, args: b.emit(combine, args, [element]))
    start = emit_scalar(builder, initial, x.aval.dtype)
    return builder.emit("stablehlo.reduce", [x, start], [out], {"dimensions": DenseI64Array(tuple(axes))}, [body])[0]
