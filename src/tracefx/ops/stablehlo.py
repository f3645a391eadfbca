"""StableHLO as `lower` rules spell it: the few shapes of operation that several families share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracefx.core import dtypes
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.builder import Builder, Dims, Ir, Region, Text
from tracefx.core.key_words import type_of_words
from tracefx.core.literal import Literal, Scalar

GPUS: Final = frozenset({"cuda", "rocm"})
_MULTIPLIED: Final = frozenset({dtypes.int4, dtypes.uint4, dtypes.float4_e2m1fn})


def scalar(builder: Builder, value: Scalar, dtype: dtypes.DType) -> Ir:
    return builder.constant(Literal(value, ShapedArray((), dtype)))


def broadcast(builder: Builder, x: Ir, shape: Shape, dims: Sequence[int] = ()) -> Ir:
    """`x` with its axes placed at `dims` of `shape`; nothing where it has that shape already."""
    if x.aval.shape == shape:
        return x
    out = ShapedArray(shape, x.aval.dtype)
    if dtypes.is_key(out.dtype):
        words = builder.retyped(x, type_of_words(x.aval))
        return builder.retyped(broadcast(builder, words, type_of_words(out).shape, (*dims, len(shape))), out)
    return builder.emit("stablehlo.broadcast_in_dim", [x], [out], {"broadcast_dimensions": Dims(tuple(dims))})[0]


def full(builder: Builder, value: Scalar, aval: ShapedArray) -> Ir:
    return broadcast(builder, scalar(builder, value, aval.dtype), aval.shape)


def convert(builder: Builder, x: Ir, dtype: dtypes.DType) -> Ir:
    """`x` in another dtype; nothing where it has that one already."""
    if x.aval.dtype == dtype:
        return x
    return builder.emit("stablehlo.convert", [x], [ShapedArray(x.aval.shape, dtype)])[0]


def is_narrow(dtype: dtypes.DType) -> bool:
    """Whether numbers have less than 8 bits."""
    return not dtypes.is_bool(dtype) and not dtypes.is_key(dtype) and dtypes.itemsize_bits(dtype) < 8


def wide(dtype: dtypes.DType) -> dtypes.DType:
    """The dtype of 8 bits or 16 that narrow numbers are computed with in; others in their own."""
    if not is_narrow(dtype):
        return dtype
    if dtypes.is_float(dtype):
        return dtypes.bfloat16
    return dtypes.int8 if dtypes.is_signed(dtype) else dtypes.uint8


def widened(builder: Builder, x: Ir) -> Ir:
    """`x`, of narrow numbers as numbers of 8 bits or 16."""
    return convert(builder, x, wide(x.aval.dtype))


def in_bytes(builder: Builder, x: Ir) -> Ir:
    """`x`; of narrow numbers, whose order is the same, in a dtype that XLA sorts on every platform."""
    return x if builder.platform == "cpu" else widened(builder, x)


def to_multiply(builder: Builder, operands: Sequence[Ir], out: dtypes.DType) -> tuple[tuple[Ir, ...], dtypes.DType]:
    """Operands of a sum of products on the CPU, and what it is added in.

    Of narrow numbers, XLA there adds products of 4 bits alone, and in these.
    """
    *multiplied, added = multiplied_in([x.aval.dtype for x in operands], out)
    return tuple([convert(builder, x, dtype) for x, dtype in zip(operands, multiplied, strict=True)]), added


def multiplied_in(operands: Sequence[dtypes.DType], out: dtypes.DType) -> tuple[dtypes.DType, ...]:
    """The dtypes of `to_multiply`: those of the operands, then that of the sum."""
    if all(not is_narrow(x) or (x == out and out in _MULTIPLIED) for x in operands):
        return *operands, out
    wider = [wide(x) for x in operands]
    return *wider, wider[0] if is_narrow(out) else out


def compare(builder: Builder, direction: str, x: Ir, y: Ir) -> Ir:
    """An elementwise comparison, `direction` being one of EQ, NE, GE, GT, LE, LT. NaNs are unordered."""
    dtype = x.aval.dtype
    if dtypes.is_inexact(dtype):
        kind = "FLOAT"
    else:
        kind = "SIGNED" if dtypes.is_signed(dtype) else "UNSIGNED"
    attrs = {
        "comparison_direction": Text(f"#stablehlo<comparison_direction {direction}>"),
        "compare_type": Text(f"#stablehlo<comparison_type {kind}>"),
    }
    out = ShapedArray(x.aval.shape, dtypes.bool_)
    return builder.emit("stablehlo.compare", [x, y], [out], attrs)[0]


def reduce(builder: Builder, combine: str, x: Ir, initial: Scalar, axes: Sequence[int]) -> Ir:
    """Fold `axes` of `x` with the operation `combine`, from `initial`."""
    element = ShapedArray((), x.aval.dtype)
    out = ShapedArray(tuple([n for i, n in enumerate(x.aval.shape) if i not in axes]), x.aval.dtype)
    body = Region((element, element), lambda b, args: b.emit(combine, args, [element]))
    start = scalar(builder, initial, x.aval.dtype)
    return builder.emit("stablehlo.reduce", [x, start], [out], {"dimensions": Dims(tuple(axes))}, [body])[0]
