"""Scaled dot-product attention, and products of block-scaled operands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, overload

import numpy as np

import tracefx.numpy as fnp
from tracefx.core import Array, ArrayLike, DTypeLike, dtypes
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
    """Computes scaled dot-product attention: `softmax(query @ key.T * scale + bias) @ value` for each head.

    If there are fewer key/value heads than query heads (grouped-query attention), each serves a group of query heads.
    All masks given are combined.

    Args:
        query: `f32[batch, queries, heads, size]`; the batch axis may be missing.
        key: `f32[batch, keys, kv_heads, size]`, where `kv_heads` divides `heads`.
        value: an array of the shape and dtype of `key`.
        bias: `f32[batch, heads, queries, keys]`, with sizes that may be 1: added to the scores.
        mask: `bool[batch, heads, queries, keys]`, with sizes that may be 1: true where a query may attend to a key.
        scale: the factor of the scores; `1 / sqrt(size)` by default.
        is_causal: whether queries attend only to keys at their own position and before it.
        query_seq_lengths: `i32[batch]`, the number of valid queries; the results of the others are 0.
        key_value_seq_lengths: `i32[batch]`, the number of valid keys.
        local_window_size: how many keys before and after its own position a query attends to: one number or two. By
            default all.
        implementation: `"xla"` or None, which mean the same.
        return_residual: whether to also return the logarithms of the softmax denominators.

    Returns:
        An array of the shape of `query`; with `return_residual` also `f32[batch, queries, heads]`, without derivatives.

    Raises:
        ValueError: if shapes or dtypes do not match, or `implementation` is unknown.

    >>> q = fnp.ones((1, 2, 1, 4))
    >>> v = fnp.array([[[[1.0]], [[3.0]]]]) * fnp.ones(4)
    >>> dot_product_attention(q, q, v, is_causal=True)[0, :, 0, 0].tolist()
    [1.0, 2.0]
    """
    if implementation not in (None, "xla"):
        raise ValueError(f"dot_product_attention: implementation must be 'xla', the only one, got {implementation!r}")
    shape = as_array(query).shape
    q, k, v = [_with_batch(name, x) for name, x in (("query", query), ("key", key), ("value", value))]
    bias_and_mask = [None if x is None else _with_batch(name, x) for name, x in (("bias", bias), ("mask", mask))]
    lengths = [None if x is None else as_array(x) for x in (query_seq_lengths, key_value_seq_lengths)]
    _check_operands(q, k, v, bias_and_mask, lengths)
    batch, count, heads, size = q.shape
    kv_heads = k.shape[2]
    groups = heads // kv_heads
    grouped = q.reshape(batch, count, kv_heads, groups, size).transpose(0, 2, 3, 1, 4)
    wide = dtypes.float32 if dtypes.itemsize_bits(q.dtype) < 32 else q.dtype
    # [batch, kv_heads, groups, queries, keys], for which the products need no transposition of scores
    logits = dot_general(grouped, k, (((4,), (3,)), ((0, 1), (0, 2))), preferred_element_type=wide)
    logits = logits * (1 / math.sqrt(size) if scale is None else fnp.asarray(scale, logits.dtype))
    if bias_and_mask[0] is not None:
        logits = (logits + _group_heads(bias_and_mask[0], kv_heads, groups)).astype(logits.dtype)
    window = (local_window_size, local_window_size) if isinstance(local_window_size, int) else local_window_size
    masks = _attention_masks(bias_and_mask[1], kv_heads, groups, count, k.shape[1], is_causal, window, lengths)
    for each in masks:
        logits = fnp.where(each, logits, _masked_score(logits.dtype))
    logits = logits.astype(np.float32)
    weights = softmax(logits, -1).astype(k.dtype)
    out = dot_general(weights, v, (((4,), (1,)), ((0, 1), (0, 2)))).transpose(0, 3, 1, 2, 4)
    out = out.reshape(batch, count, heads, size)
    if lengths[0] is not None:
        counts = fnp.arange(count)[None, :] < lengths[0][:, None]
        out = out * counts[:, :, None, None].astype(out.dtype)
    if not return_residual:
        return out.reshape(shape)
    sums = logsumexp(logits, -1).astype(k.dtype).reshape(batch, heads, count)
    return out.reshape(shape), stop_gradient(fnp.swapaxes(sums, 1, 2)).reshape(shape[:-1])


def _with_batch(name: str, x: ArrayLike) -> Array:
    """Adds leading axes of size 1 up to rank 4."""
    array = as_array(x)
    if array.ndim > 4:
        raise ValueError(f"dot_product_attention: {name} must have at most 4 axes, got {array.aval}")
    return fnp.expand_dims(array, tuple(range(4 - array.ndim)))


def _check_operands(
    query: Array, key: Array, value: Array, extra: Sequence[Array | None], lengths: Sequence[Array | None]
) -> None:
    batch, _, kv_heads, size = key.shape
    if value.shape != key.shape or value.dtype != key.dtype:
        raise ValueError(
            f"dot_product_attention: value must have the shape and dtype of key, {key.aval}, got {value.aval}"
        )
    if (query.shape[0], query.shape[3], query.dtype) != (batch, size, key.dtype):
        raise ValueError(
            f"dot_product_attention: query and key must have the same batch, size and dtype, got {query.aval} and "
            f"{key.aval}"
        )
    if not kv_heads or query.shape[2] % kv_heads:
        raise ValueError(
            f"dot_product_attention: the query heads must be a multiple of the key/value heads, got "
            f"{query.shape[2]} and {kv_heads}"
        )
    if extra[1] is not None and not dtypes.is_bool(extra[1].dtype):
        raise ValueError(
            f"dot_product_attention: mask must have dtype bool, got {extra[1].aval}; pass numbers to add as bias"
        )
    for name, x in zip(("query_seq_lengths", "key_value_seq_lengths"), lengths, strict=True):
        if x is not None and (x.shape, x.dtype) != ((batch,), dtypes.int32):
            raise ValueError(f"dot_product_attention: {name} must be i32[{batch}], got {x.aval}")


def _group_heads(x: Array, kv_heads: int, groups: int) -> Array:
    """Splits the axis of heads, whose size may be 1, into `kv_heads` and `groups`."""
    batch, heads, *other_sizes = x.shape
    if heads == 1:
        return x[:, :, None]
    if heads != kv_heads * groups:
        raise ValueError(f"dot_product_attention: {x.aval} must have 1 or {kv_heads * groups} heads on axis 1")
    return x.reshape(batch, kv_heads, groups, *other_sizes)


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
    """Returns the masks of which keys each query attends to, one for each argument that restricts them."""
    rows, columns = fnp.arange(queries)[:, None], fnp.arange(keys)[None, :]
    masks = [] if mask is None else [_group_heads(mask, kv_heads, groups)]
    if is_causal:
        masks.append(rows >= columns)
    if window is not None:
        before, after = window
        masks.append(fnp.logical_and(rows <= columns + before, rows >= columns - after))
    query_lengths, key_lengths = lengths
    if query_lengths is not None:
        masks.append(rows < query_lengths[:, None, None, None, None])
    if key_lengths is not None:
        masks.append(columns < key_lengths[:, None, None, None, None])
    return masks


def _masked_score(dtype: DTypeLike) -> Array:
    """Returns the score of masked keys: finite, so that a query whose keys are all masked attends to all of them."""
    kind = dtypes.as_dtype(dtype)
    highest = min(float(dtypes.finfo(kind).max), float(dtypes.finfo(dtypes.float32).max))
    return fnp.asarray(-0.7 * highest, kind)


# ------------------------------------------------------------------ products of block-scaled operands


def scaled_dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: DotDimensionNumbers,
    preferred_element_type: DTypeLike = np.float32,
    configs: Sequence[object] | None = None,
    implementation: Literal["cudnn"] | None = None,
) -> Array:
    """Computes `lax.dot_general` with float32 results, for operands without block scales.

    Block scaling, which `configs` would describe, is supported on GPUs only.

    Args:
        lhs: the left operand.
        rhs: the right operand.
        dimension_numbers: the contracted and batch axes, as for `lax.dot_general`.
        preferred_element_type: the dtype of the result.
        configs: must be None.
        implementation: must be None.

    Returns:
        The contraction of the operands.

    Raises:
        ValueError: if `configs` or `implementation` is given.

    >>> scaled_dot_general(fnp.ones(3), fnp.ones(3), (((0,), (0,)), ((), ())))
    Array(3., dtype=float32)
    """
    if configs is not None or implementation is not None:
        raise ValueError("scaled_dot_general: block-scaled operands (configs) are supported on GPUs only")
    return dot_general(lhs, rhs, dimension_numbers, preferred_element_type=preferred_element_type)


def scaled_matmul(
    lhs: ArrayLike,
    rhs: ArrayLike,
    lhs_scales: ArrayLike,
    rhs_scales: ArrayLike,
    preferred_element_type: DTypeLike = np.float32,
) -> Array:
    """Multiplies matrices with block scales: `lhs @ rhs.T` for each matrix of a batch.

    Each block along the last axis is multiplied by its own scale.

    Args:
        lhs: `f8[batch, m, k]`, or any other floats.
        rhs: `f8[batch, n, k]`.
        lhs_scales: `f8[batch, m, k / block]`.
        rhs_scales: `f8[batch, n, k / block]`.
        preferred_element_type: the dtype of the result.

    Returns:
        `f32[batch, m, n]`.

    Raises:
        ValueError: if shapes do not match.

    >>> scaled_matmul(fnp.ones((1, 1, 4)), fnp.ones((1, 1, 4)), 2 * fnp.ones((1, 1, 2)), fnp.ones((1, 1, 2))).tolist()
    [[[8.0]]]
    """
    left, right, *scales = [as_array(x) for x in (lhs, rhs, lhs_scales, rhs_scales)]
    if any(x.ndim != 3 for x in (left, right, *scales)):
        raise ValueError("scaled_matmul: all operands must have three axes")
    if left.shape[::2] != right.shape[::2] or scales[0].shape[::2] != scales[1].shape[::2]:
        raise ValueError(
            f"scaled_matmul: batch and last axis must have equal sizes, got {left.aval} and {right.aval}, with scales "
            f"{scales[0].aval} and {scales[1].aval}"
        )
    wide = [_apply_block_scales(x, scale) for x, scale in ((left, scales[0]), (right, scales[1]))]
    return fnp.einsum("bmk,bnk->bmn", *wide).astype(preferred_element_type)


def _apply_block_scales(x: Array, scales: Array) -> Array:
    """Multiplies each block along the last axis by its scale, in float32."""
    *rows, size = x.shape
    if list(scales.shape[:-1]) != rows or not scales.shape[-1] or size % scales.shape[-1]:
        raise ValueError(f"scaled_matmul: {x.aval} needs scales for equal blocks of each row, got {scales.aval}")
    return x.astype(np.float32) * fnp.repeat(scales.astype(np.float32), size // scales.shape[-1], axis=-1)
