"""Emitters of common StableHLO operations, shared by the lowering rules of several families."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracefx.core import Literal, Scalar, Shape, ShapedArray, dtypes
from tracefx.core.key_data import key_data_aval
from tracefx.lowering import Builder, DenseI64Array, IrValue, MlirText

GPUS: Final = frozenset({"cuda", "rocm"})
_CPU_PRODUCT_DTYPES: Final = frozenset({dtypes.int4, dtypes.uint4, dtypes.float4_e2m1fn})


def emit_scalar(builder: Builder, value: Scalar, dtype: dtypes.DType) -> IrValue:
    """Emits a scalar constant."""
    return builder.constant(Literal(value, ShapedArray((), dtype)))


def emit_broadcast(builder: Builder, x: IrValue, shape: Shape, dims: Sequence[int] = ()) -> IrValue:
    """Emits `x` broadcast to `shape`, with its axes at `dims`; returns `x` if it already has that shape."""
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
    """Emits an array of `aval`'s shape and dtype filled with `value`."""
    return emit_broadcast(builder, emit_scalar(builder, value, aval.dtype), aval.shape)


def emit_convert(builder: Builder, x: IrValue, dtype: dtypes.DType) -> IrValue:
    """Emits `x` converted to `dtype`; returns `x` if it already has that dtype."""
    if x.aval.dtype == dtype:
        return x
    return builder.emit("stablehlo.convert", [x], [ShapedArray(x.aval.shape, dtype)])[0]


def is_narrow(dtype: dtypes.DType) -> bool:
    """Returns whether `dtype` is a numeric dtype narrower than 8 bits."""
    return not dtypes.is_bool(dtype) and not dtypes.is_key(dtype) and dtypes.itemsize_bits(dtype) < 8


def widened_dtype(dtype: dtypes.DType) -> dtypes.DType:
    """Returns the 8-bit or 16-bit dtype that computes numbers of a narrow `dtype`; other dtypes unchanged."""
    if not is_narrow(dtype):
        return dtype
    if dtypes.is_float(dtype):
        return dtypes.bfloat16
    return dtypes.int8 if dtypes.is_signed(dtype) else dtypes.uint8


def emit_widened(builder: Builder, x: IrValue) -> IrValue:
    """Emits `x` converted to its `widened_dtype`."""
    return emit_convert(builder, x, widened_dtype(x.aval.dtype))


def emit_widened_unless_cpu(builder: Builder, x: IrValue) -> IrValue:
    """Emits `x`, widened off the CPU, where XLA can't sort narrow dtypes. Widening preserves their order."""
    return x if builder.platform == "cpu" else emit_widened(builder, x)


def emit_product_operands(
    builder: Builder, operands: Sequence[IrValue], out: dtypes.DType
) -> tuple[tuple[IrValue, ...], dtypes.DType]:
    """Emits the operands of a sum of products for the CPU; returns them and the dtype to accumulate in.

    Among narrow dtypes, XLA's CPU backend multiplies only those of 4 bits, and accumulates in the same dtype.
    """
    *multiplied, added = product_dtypes([x.aval.dtype for x in operands], out)
    return tuple([emit_convert(builder, x, dtype) for x, dtype in zip(operands, multiplied, strict=True)]), added


def product_dtypes(operands: Sequence[dtypes.DType], out: dtypes.DType) -> tuple[dtypes.DType, ...]:
    """Returns the dtypes that `emit_product_operands` uses: one for each operand, then the accumulator's."""
    if any(x != out and _have_same_range(x, out) for x in operands):  # XLA aborts if neither is the more precise one
        return *operands, dtypes.float32
    if all(not is_narrow(x) or (x == out and out in _CPU_PRODUCT_DTYPES) for x in operands):
        return *operands, out
    wider = [widened_dtype(x) for x in operands]
    return *wider, wider[0] if is_narrow(out) else out


def _have_same_range(x: dtypes.DType, y: dtypes.DType) -> bool:
    """Returns whether two float dtypes have the same exponents and digits, like the variants of 8 bits."""
    if not dtypes.is_float(x) or not dtypes.is_float(y):
        return False
    first, second = dtypes.finfo(x), dtypes.finfo(y)
    return (first.maxexp, first.nmant) == (second.maxexp, second.nmant)


def emit_compare(builder: Builder, direction: str, x: IrValue, y: IrValue) -> IrValue:
    """Emits an elementwise comparison; `direction` is EQ, NE, GE, GT, LE or LT. NaNs are unordered."""
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
