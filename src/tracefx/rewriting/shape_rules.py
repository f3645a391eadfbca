"""Rules for reshapes, transposes, broadcasts, slices and conversions. All hold bit for bit."""

from __future__ import annotations

from typing import Final

from tracefx import ops
from tracefx.core import DType, Literal, dtypes
from tracefx.core.handler import bind1
from tracefx.ops.reductions.reduction import Reduction
from tracefx.ops.shape.slicing import rev, slice
from tracefx.ops.structural import broadcast_in_dim, convert, convert_value, reshape, transpose
from tracefx.rewriting.algebraic_rules import first_of_type
from tracefx.rewriting.rules import Replacement, RewriteRule, rule
from tracefx.rewriting.terms import Apply, Term

# ------------------------------------------------------------------ shapes


def _reshape_operand(term: Term) -> Term | None:
    """Returns the operand if the operation only changes the shape and keeps all elements in order."""
    match term:
        case Apply(ops.Reshape() | ops.Squeeze(), (x,)):
            return x
        case Apply(ops.BroadcastInDim(), (x,)) if x.aval.size == term.aval.size and x.aval.shape:
            return x
        case _:
            return None


@rule(ops.Reshape, ops.Squeeze, ops.BroadcastInDim)
def merge_reshapes(term: Apply) -> Replacement:
    """Merges nested reshapes into one, and drops a reshape to the operand's own shape."""
    x = _reshape_operand(term)
    if x is None:
        return None
    if x.aval == term.aval:
        return x
    inner = _reshape_operand(x)
    return None if inner is None else first_of_type(term, reshape(inner, term.aval.shape))


def _broadcast_scalar(term: Term) -> Term | None:
    """Returns the scalar that a term broadcasts, or None."""
    match term:
        case Apply(ops.BroadcastInDim() | ops.Reshape(), (x,)) if not x.aval.shape:
            return x
        case _:
            return None


@rule(ops.Reshape, ops.Squeeze, ops.Transpose, ops.BroadcastInDim, ops.Slice, ops.Rev)
def broadcast_of_scalar(term: Apply) -> Replacement:
    """Replaces reshapes, slices and the like of a broadcast scalar by a broadcast to the result's shape."""
    x = _broadcast_scalar(term.operands[0])
    return None if x is None else first_of_type(term, broadcast_in_dim(x, term.aval.shape, ()))


@rule(ops.Transpose)
def merge_transposes(term: Apply) -> Replacement:
    match term:
        case Apply(ops.Transpose(order), (x,)) if order == tuple(range(len(order))):
            return x
        case Apply(ops.Transpose(outer), (Apply(ops.Transpose(inner), (x,)),)):
            return transpose(x, [inner[i] for i in outer])
        case _:
            return None


@rule(ops.BroadcastInDim)
def merge_broadcasts(term: Apply) -> Replacement:
    match term:
        case Apply(ops.BroadcastInDim(shape, outer), (Apply(ops.BroadcastInDim(_, inner), (x,)),)):
            return broadcast_in_dim(x, shape, [outer[d] for d in inner])
        case _:
            return None


# ------------------------------------------------------------------ slices and concatenation


@rule(ops.Slice)
def merge_slices(term: Apply) -> Replacement:
    match term:
        case Apply(ops.Slice() as outer, (x,)):
            if x.aval == term.aval:
                return x
            if isinstance(x, Apply) and isinstance(x.prim, ops.Slice):
                return _compose_slices(outer, x.prim, x.operands[0])
        case _:
            pass
    return None


def _compose_slices(outer: ops.Slice, inner: ops.Slice, x: Term) -> Replacement:
    starts, limits, strides = [], [], []
    window = zip(inner.start_indices, inner.limit_indices, inner.steps, strict=True)
    for (low, high, k), start, stop, step in zip(
        window, outer.start_indices, outer.limit_indices, outer.steps, strict=True
    ):
        first = low + start * k if stop > start else min(low + start * k, high)
        starts.append(first)
        limits.append(low + (stop - 1) * k + 1 if stop > start else first)
        strides.append(k * step)
    return slice(x, starts, limits, strides if any(s != 1 for s in strides) else None)


@rule(ops.Slice)
def slice_of_concatenation(term: Apply) -> Replacement:
    """Slices the one operand of the concatenation that contains the whole window."""
    match term:
        case Apply(ops.Slice() as window, (Apply(ops.Concatenate(axis), parts),)):
            start, stop, offset = window.start_indices[axis], window.limit_indices[axis], 0
            for x in parts:
                n = x.aval.shape[axis]
                if offset <= start < stop <= offset + n:
                    starts, limits = list(window.start_indices), list(window.limit_indices)
                    starts[axis], limits[axis] = start - offset, stop - offset
                    return first_of_type(term, slice(x, starts, limits, window.strides))
                offset += n
        case _:
            pass
    return None


@rule(ops.Concatenate)
def concatenate_empty(term: Apply) -> Replacement:
    match term:
        case Apply(ops.Concatenate(axis) as concatenate, parts):
            nonempty = [x for x in parts if x.aval.shape[axis]] or list(parts[:1])
            if len(nonempty) == 1:
                return first_of_type(term, *nonempty)
            if len(nonempty) < len(parts):
                return first_of_type(term, bind1(concatenate, *nonempty))
        case _:
            pass
    return None


@rule(ops.Pad)
def pad_by_zero(term: Apply) -> Replacement:
    match term:
        case Apply(ops.Pad(config), (x, _)) if not any(low or high for low, high, _ in config):
            return first_of_type(term, x)
        case _:
            return None


@rule(ops.Rev)
def merge_reversals(term: Apply) -> Replacement:
    match term:
        case Apply(ops.Rev(axes), (x,)):
            long_axes = [d for d in axes if x.aval.shape[d] > 1]
            if len(long_axes) < len(axes):
                return rev(x, long_axes)
            match x:
                case Apply(ops.Rev(inner), (y,)):
                    return rev(y, sorted(set(axes) ^ set(inner)))
                case _:
                    pass
        case _:
            pass
    return None


@rule(ops.DynamicSlice)
def dynamic_slice_at_literal(term: Apply) -> Replacement:
    """Makes a static slice of a `dynamic_slice` with literal indices, which are clamped as `dynamic_slice` does."""
    match term:
        case Apply(ops.DynamicSlice(sizes), (x, *starts)):
            clamped = []
            for i, n, size in zip(starts, x.aval.shape, sizes, strict=True):
                if not isinstance(i, Literal):
                    return None
                clamped.append(min(max(int(i.numpy()), 0), n - size))
            return slice(x, clamped, [i + size for i, size in zip(clamped, sizes, strict=True)])
        case _:
            return None


@rule(Reduction, ops.ReduceSum)
def reduce_over_no_axes(term: Apply) -> Replacement:
    match term.prim:
        case Reduction(()) | ops.ReduceSum(()):
            return first_of_type(term, *term.operands)
        case _:
            return None


# ------------------------------------------------------------------ dtypes


def is_lossless_conversion(source: DType, target: DType) -> bool:
    """Whether every value of `source` is a value of `target`, so that the conversion loses nothing.

    False for floats of less than 16 bits and integers of less than 8 bits.
    """
    if source == target:
        return True
    bits = dtypes.itemsize_bits(source)
    if dtypes.is_bool(source):
        return dtypes.is_integer(target) or dtypes.is_float(target)
    if dtypes.is_integer(source):
        signed = dtypes.is_signed(source)
        if bits < 8:
            return False
        if dtypes.is_integer(target):
            width = dtypes.itemsize_bits(target)
            return width > bits and (dtypes.is_signed(target) or not signed)
        return dtypes.is_float(target) and _is_wide(target) and bits - signed <= dtypes.finfo(target).nmant + 1
    if dtypes.is_float(source) and dtypes.is_float(target) and _is_wide(source) and _is_wide(target):
        old, new = dtypes.finfo(source), dtypes.finfo(target)
        return bool(
            old.nmant <= new.nmant
            and old.maxexp <= new.maxexp
            and float(old.smallest_subnormal) >= float(new.smallest_subnormal)
        )
    return False


def _is_wide(dtype: DType) -> bool:
    return dtypes.itemsize_bits(dtype) >= 16


@rule(ops.ConvertElementType)
def merge_conversions(term: Apply) -> Replacement:
    match term:
        case Apply(ops.ConvertElementType(), (x,)) if x.aval == term.aval:
            return x
        case Apply(ops.ConvertElementType(dtype, weak), (Apply(ops.ConvertElementType(between), (x,)),)) if (
            is_lossless_conversion(x.aval.dtype, between)
        ):
            return convert(x, dtype, weak)
        case _:
            return None


@rule(ops.ConvertElementType)
def convert_literal(term: Apply) -> Replacement:
    match term:
        case Apply(ops.ConvertElementType(dtype, weak), (Literal() as number,)):
            return convert_value(number, dtype, weak)
        case _:
            return None


SHAPE_RULES: Final[tuple[RewriteRule, ...]] = (
    merge_reshapes,
    broadcast_of_scalar,
    merge_transposes,
    merge_broadcasts,
    merge_slices,
    slice_of_concatenation,
    concatenate_empty,
    pad_by_zero,
    merge_reversals,
    dynamic_slice_at_literal,
    reduce_over_no_axes,
    merge_conversions,
    convert_literal,
)
"""Rules for data movement and conversions that are exact bit for bit."""
