"""Attention: averages of values, weighted by how well their keys fit queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, overload

import numpy as np

import tracefx.numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.dtypes import DTypeLike
from tracefx.core.handler import as_array
from tracefx.nn.normalization import logsumexp, softmax
from tracefx.ops.contractions.contraction import DotDimensionNumbers, dot_general
from tracefx.ops.elementwise.selection import stop_gradient


@overload
def dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla"] | None = None,
    return_residual: Literal[False] = False,
) -> Array: ...
@overload
def dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla"] | None = None,
    return_residual: Literal[True],
) -> tuple[Array, Array]: ...
def dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla"] | None = None,
    return_residual: bool = False,
) -> Array | tuple[Array, Array]:
    """`softmax(query @ key.T * scale + bias) @ value` for each head, where the masks leave something.

    With fewer heads of keys and values than of queries, each serves a group of these.

    Args:
        query: `f32[batch, queries, heads, size]`; the batch's axis may be missing.
        key: `f32[batch, keys, kv_heads, size]`, where `kv_heads` divides `heads`.
        value: of the type of `key`.
        bias: `f32[batch, heads, queries, keys]`, sizes of which may be 1.
        mask: `bool[batch, heads, queries, keys]`, sizes of which may be 1: which keys a query may look at.
        scale: `1 / sqrt(size)` if it isn't given.
        is_causal: whether queries look at no key behind their own place.
        query_seq_lengths: `i32[batch]`: how many queries count; the results of others are 0.
        key_value_seq_lengths: `i32[batch]`: how many keys count.
        local_window_size: how many keys before and after its own place a query looks at; one number or two.
        implementation: `"xla"`, which is the only one.
        return_residual: whether to give the logarithms of the sums of weights too, `f32[batch, queries, heads]`.

    Raises ValueError for shapes and dtypes that don't fit.

    >>> q = fnp.ones((1, 2, 1, 4))
    >>> v = fnp.array([[[[1.0]], [[3.0]]]]) * fnp.ones(4)
    >>> dot_product_attention(q, q, v, is_causal=True)[0, :, 0, 0].tolist()
    [1.0, 2.0]
    """
    if implementation not in (None, "xla"):
        raise ValueError(f"dot_product_attention: implementation must be 'xla', the only one, got {implementation!r}")
    shape = as_array(query).shape
    q, k, v = [_with_batch(name, x) for name, x in (("query", query), ("key", key), ("value", value))]
    extra = [None if x is None else _with_batch(name, x) for name, x in (("bias", bias), ("mask", mask))]
    lengths = [None if x is None else as_array(x) for x in (query_seq_lengths, key_value_seq_lengths)]
    _check_operands(q, k, v, extra, lengths)
    batch, count, heads, size = q.shape
    kv_heads = k.shape[2]
    groups = heads // kv_heads
    logits = _attention_scores(
        q.reshape(batch, count, kv_heads, groups, size), k
    )  # [batch, kv_heads, groups, queries, keys]
    logits = logits * fnp.asarray(1 / math.sqrt(size) if scale is None else scale, logits.dtype)
    if extra[0] is not None:
        logits = (logits + _group_heads(extra[0], kv_heads, groups)).astype(logits.dtype)
    window = (local_window_size, local_window_size) if isinstance(local_window_size, int) else local_window_size
    masks = _attention_masks(extra[1], kv_heads, groups, count, k.shape[1], is_causal, window, lengths)
    for each in masks:
        logits = fnp.where(each, logits, _masked_score(logits.dtype))
    logits = logits.astype(np.float32)
    weights = softmax(logits, -1).astype(k.dtype)
    out = fnp.einsum("bkgts,bskh->btkgh", weights, v).reshape(batch, count, heads, size)
    if lengths[0] is not None:
        counts = fnp.arange(count)[None, :] < lengths[0][:, None]
        out = out * counts[:, :, None, None].astype(out.dtype)
    if not return_residual:
        return out.reshape(shape)
    sums = logsumexp(logits, -1).astype(k.dtype).reshape(batch, heads, count)
    return out.reshape(shape), stop_gradient(fnp.swapaxes(sums, 1, 2)).reshape(shape[:-1])


def _with_batch(name: str, x: ArrayLike) -> Array:
    array = as_array(x)
    if array.ndim > 4:
        raise ValueError(f"dot_product_attention: {name} must have at most 4 axes, got {array.aval}")
    return fnp.expand_dims(array, tuple(range(4 - array.ndim)))


def _check_operands(
    query: Array, key: Array, value: Array, extra: Sequence[Array | None], lengths: Sequence[Array | None]
) -> None:
    batch, _, kv_heads, size = key.shape
    if value.shape != key.shape or value.dtype != key.dtype:
        raise ValueError(f"dot_product_attention: value must be of the type of key, {key.aval}, got {value.aval}")
    if (query.shape[0], query.shape[3], query.dtype) != (batch, size, key.dtype):
        raise ValueError(
            f"dot_product_attention: query and key must be of one batch, size and dtype, got {query.aval} and "
            f"{key.aval}"
        )
    if not kv_heads or query.shape[2] % kv_heads:
        raise ValueError(
            f"dot_product_attention: the heads of queries must be a multiple of those of keys and values, got "
            f"{query.shape[2]} and {kv_heads}"
        )
    if extra[1] is not None and not dtypes.is_bool(extra[1].dtype):
        raise ValueError(f"dot_product_attention: mask must be of booleans, got {extra[1].aval}; a bias is added")
    for name, x in zip(("query_seq_lengths", "key_value_seq_lengths"), lengths, strict=True):
        if x is not None and (x.shape, x.dtype) != ((batch,), dtypes.int32):
            raise ValueError(f"dot_product_attention: {name} must be i32[{batch}], got {x.aval}")


def _attention_scores(query: Array, key: Array) -> Array:
    """Of each query with each key, in float32 at least."""
    wide = dtypes.float32 if dtypes.itemsize_bits(query.dtype) < 32 else query.dtype
    return fnp.einsum("btkgh,bskh->bkgts", query, key, preferred_element_type=wide)


def _group_heads(x: Array, kv_heads: int, groups: int) -> Array:
    """An array with an axis of heads, which may be 1, with these in groups."""
    batch, heads, *rest = x.shape
    if heads == 1:
        return x[:, :, None]
    if heads != kv_heads * groups:
        raise ValueError(f"dot_product_attention: {x.aval} must have 1 or {kv_heads * groups} heads on axis 1")
    return x.reshape(batch, kv_heads, groups, *rest)


def _attention_masks(
    mask: Array | None,
    kv_heads: int,
    groups: int,
    queries: int,
    keys: int,
    is_causal: bool,
    window: tuple[int, int] | None,
    lengths: Sequence[Array | None],
) -> list[Array]:
    """What each query may look at, for all reasons."""
    rows, columns = fnp.arange(queries)[:, None], fnp.arange(keys)[None, :]
    found = [] if mask is None else [_group_heads(mask, kv_heads, groups)]
    if is_causal:
        found.append(rows >= columns)
    if window is not None:
        before, after = window
        found.append(fnp.logical_and(rows <= columns + before, rows >= columns - after))
    many, most = lengths
    if many is not None:
        found.append(rows < many[:, None, None, None, None])
    if most is not None:
        found.append(columns < most[:, None, None, None, None])
    return found


def _masked_score(dtype: DTypeLike) -> Array:
    """A number whose exponential is 0, and that is no infinity: a query that may look at nothing looks everywhere."""
    kind = dtypes.as_dtype(dtype)
    highest = min(float(dtypes.finfo(kind).max), float(dtypes.finfo(dtypes.float32).max))
    return fnp.asarray(-0.7 * highest, kind)


# ------------------------------------------------------------------ products of scaled numbers


def scaled_dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: DotDimensionNumbers,
    preferred_element_type: DTypeLike = np.float32,
    configs: Sequence[object] | None = None,
    implementation: Literal["cudnn"] | None = None,
) -> Array:
    """`lax.dot_general` with results in float32, of operands that aren't scaled block by block.

    Blocks with scales of their own, which `configs` would describe, exist on GPUs alone.

    >>> scaled_dot_general(fnp.ones(3), fnp.ones(3), (((0,), (0,)), ((), ())))
    Array(3., dtype=float32)
    """
    if configs is not None or implementation is not None:
        raise ValueError("scaled_dot_general: operands scaled block by block (configs) are there on GPUs alone")
    return dot_general(lhs, rhs, dimension_numbers, preferred_element_type=preferred_element_type)


def scaled_matmul(
    lhs: ArrayLike,
    rhs: ArrayLike,
    lhs_scales: ArrayLike,
    rhs_scales: ArrayLike,
    preferred_element_type: DTypeLike = np.float32,
) -> Array:
    """`lhs @ rhs.T` for each matrix of a batch, where blocks along the last axis have a scale each.

    Args:
        lhs: `f8[batch, m, k]`, or any other floats.
        rhs: `f8[batch, n, k]`.
        lhs_scales: `f8[batch, m, k / block]`.
        rhs_scales: `f8[batch, n, k / block]`.

    Raises ValueError for shapes that don't fit.

    >>> scaled_matmul(fnp.ones((1, 1, 4)), fnp.ones((1, 1, 4)), 2 * fnp.ones((1, 1, 2)), fnp.ones((1, 1, 2))).tolist()
    [[[8.0]]]
    """
    left, right, *scales = [as_array(x) for x in (lhs, rhs, lhs_scales, rhs_scales)]
    if any(x.ndim != 3 for x in (left, right, *scales)):
        raise ValueError("scaled_matmul: all operands must have three axes")
    if left.shape[::2] != right.shape[::2] or scales[0].shape[::2] != scales[1].shape[::2]:
        raise ValueError(
            f"scaled_matmul: batch and last axis must be the same, got {left.aval} and {right.aval}, with scales "
            f"{scales[0].aval} and {scales[1].aval}"
        )
    wide = [_apply_block_scales(x, scale) for x, scale in ((left, scales[0]), (right, scales[1]))]
    return fnp.einsum("bmk,bnk->bmn", *wide).astype(preferred_element_type)


def _apply_block_scales(x: Array, scales: Array) -> Array:
    *rows, size = x.shape
    if list(scales.shape[:-1]) != rows or not scales.shape[-1] or size % scales.shape[-1]:
        raise ValueError(f"scaled_matmul: {x.aval} needs a scale for blocks of each row, got {scales.aval}")
    return x.astype(np.float32) * fnp.repeat(scales.astype(np.float32), size // scales.shape[-1], axis=-1)
