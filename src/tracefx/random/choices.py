"""Random permutations, random choices, and the categorical distribution."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, Shape, dtypes, get_aval
from tracefx.core.handler import as_array
from tracefx.core.named_sharding import OutSharding
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.ops.static_integers import canonicalize_axis, static_int
from tracefx.random.continuous import gumbel
from tracefx.random.keys import bits, check_key, split
from tracefx.random.samplers import check_parameter_shapes, jit_sampler
from tracefx.random.uniforms import randint, uniform


def permutation(
    key: ArrayLike, x: int | ArrayLike, axis: int = 0, independent: bool = False, *, out_sharding: OutSharding = None
) -> Array:
    """Permutes the elements of an array randomly along an axis.

    Args:
        key: a random key, `key<...>[]`.
        x: an array; or a concrete integer `n`, which stands for `arange(n)`.
        axis: the axis to permute.
        independent: whether each vector along the axis is permuted independently. By default slices move as a whole.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array of the shape and dtype of `x`.

    Raises:
        TypeError: if `x` has no axes and is not an integer.
        ValueError: if `axis` is out of range.

    >>> from tracefx import random
    >>> sorted(random.permutation(random.key(0), 4).tolist())
    [0, 1, 2, 3]
    """
    checked_key, _ = check_key("permutation", key)
    array = as_array(x) if get_aval(x).shape else fnp.arange(_element_count("permutation", x, "x"))
    canonical_axis = canonicalize_axis("permutation", axis, array.ndim)
    if independent or array.ndim == 1:
        return _shuffled(checked_key, array, canonical_axis)
    order = _shuffled(checked_key, fnp.arange(array.shape[canonical_axis]), 0)
    return fnp.take(array, order, axis=canonical_axis, unique_indices=True)


def _element_count(name: str, x: int | ArrayLike, what: str) -> int:
    """Returns the concrete integer `x`."""
    if not dtypes.is_integer(get_aval(x).dtype):
        raise TypeError(f"{name}: {what} must be an integer or an array with axes, got {get_aval(x)}")
    return static_int(name, x if isinstance(x, int) else as_array(x), what)


_EXPONENT: Final = 3
"""Sort key ties favor permutations of less than `n**-_EXPONENT` of the total probability, for n elements."""


@jit_sampler("axis")
def _shuffled(key: Array, x: Array, axis: int) -> Array:
    """Sorts by random words, in as many rounds as make ties sufficiently improbable."""
    if dtypes.is_key(x.dtype):  # keys can't be sorted
        indices = lax.broadcasted_iota(np.int32, x.shape, axis)
        return fnp.take_along_axis(x, _shuffled(key, indices, axis), axis)
    rounds = math.ceil(_EXPONENT * math.log(max(1, x.size)) / math.log(np.iinfo(np.uint32).max))
    for _ in range(rounds):
        key, round_key = split(key)
        _, x = lax.sort_key_val(bits(round_key, x.shape, np.uint32), x, axis)
    return x


def choice(
    key: ArrayLike,
    a: int | ArrayLike,
    shape: ShapeLike = (),
    replace: bool = True,
    p: ArrayLike | None = None,
    axis: int = 0,
    mode: str | None = None,
) -> Array:
    """Draws random elements of an array along an axis.

    Args:
        key: a random key, `key<...>[]`.
        a: an array; or a concrete integer `n`, which stands for `arange(n)`.
        shape: the shape that replaces the axis in the result; by default one element is drawn.
        replace: whether to draw with replacement.
        p: `f32[n]`, the probability of each element; uniform by default.
        axis: the axis of the elements.
        mode: the mode of `gumbel`, which is used without replacement if `p` is given.

    Returns:
        An array of the dtype of `a`.

    Raises:
        TypeError: if `a` has no axes and is not an integer.
        ValueError: if there are no elements, fewer than to be drawn without replacement, or `p` has another shape.

    >>> from tracefx import random
    >>> random.choice(random.key(0), 10, (3,)).shape
    (3,)
    """
    checked_key, _ = check_key("choice", key)
    sizes = sizes_of("choice", shape)
    array = None if not get_aval(a).shape else as_array(a)
    canonical_axis = 0 if array is None else canonicalize_axis("choice", axis, array.ndim)
    count = _element_count("choice", a, "a") if array is None else array.shape[canonical_axis]
    draw_count = math.prod(sizes)
    if not draw_count:
        if array is None:
            return fnp.zeros(sizes, fnp.asarray(a).dtype)
        empty = lax.slice_in_dim(array, 0, 0, axis=canonical_axis)
        return empty.reshape(*array.shape[:canonical_axis], *sizes, *array.shape[canonical_axis + 1 :])
    if count <= 0:
        raise ValueError(f"choice: a must have elements to draw from, got {count}")
    if not replace and draw_count > count:
        raise ValueError(f"choice: {draw_count} elements can't be drawn from {count} with replace=False")
    if p is None and not replace:
        permuted = permutation(checked_key, count if array is None else array, canonical_axis)
        drawn = lax.slice_in_dim(permuted, 0, draw_count, axis=canonical_axis)
    else:
        indices = _choice_indices(checked_key, sizes, count, replace, p, mode)
        drawn = indices if array is None else fnp.take(array, indices, axis=canonical_axis)
    return drawn.reshape(
        sizes if array is None else (*array.shape[:canonical_axis], *sizes, *array.shape[canonical_axis + 1 :])
    )


def _choice_indices(
    key: Array, shape: Shape, count: int, replace: bool, p: ArrayLike | None, mode: str | None
) -> Array:
    """Returns the indices of the elements that `choice` draws."""
    if p is None:
        return randint(key, shape, 0, count)
    weights = fnp.asarray(p)
    if not dtypes.is_float(weights.dtype):
        weights = weights.astype(float)
    if weights.shape != (count,):
        raise ValueError(f"choice: p must have a weight for each of the {count} elements, got {weights.aval}")
    if replace:
        sums = fnp.cumsum(weights)
        return fnp.searchsorted(sums, sums[-1] * (1 - uniform(key, shape, sums.dtype))).astype(int)
    scores = gumbel(key, (count,), weights.dtype, mode) + lax.log(weights)
    return lax.top_k(scores, math.prod(shape))[1].astype(int)


def categorical(
    key: ArrayLike,
    logits: ArrayLike,
    axis: int = -1,
    shape: ShapeLike | None = None,
    replace: bool = True,
    mode: str | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws class indices from categorical distributions given by unnormalized log probabilities.

    Args:
        key: a random key, `key<...>[]`.
        logits: `f32[...]`, with the classes along `axis`.
        axis: the axis of the classes.
        shape: the shape of the result, which must end in the shape of `logits` without `axis`; that shape by default.
        replace: whether to draw with replacement. Draws along the leading axes of `shape` are from one distribution.
        mode: the mode of `gumbel`.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        Indices, `i32[*shape]`.

    Raises:
        ValueError: if `shape` does not match, or there are fewer classes than draws without replacement.

    >>> from tracefx import random
    >>> random.categorical(random.key(0), [[0.0, 9.0], [9.0, 0.0]]).tolist()
    [1, 0]
    """
    checked_key, _ = check_key("categorical", key)
    scores = fnp.asarray(logits)
    canonical_axis = canonicalize_axis("categorical", axis, scores.ndim)
    batch = (*scores.shape[:canonical_axis], *scores.shape[canonical_axis + 1 :])
    sizes = batch if shape is None else sizes_of("categorical", shape)
    check_parameter_shapes("categorical", sizes, batch)
    lead = sizes[: len(sizes) - len(batch)]
    if replace:
        inner = list(sizes[len(lead) :])
        inner.insert(canonical_axis, scores.shape[canonical_axis])
        noise = gumbel(checked_key, (*lead, *inner), scores.dtype, mode)
        return fnp.argmax(noise + fnp.expand_dims(scores, tuple(range(len(lead)))), axis=canonical_axis - scores.ndim)
    count = math.prod(lead)
    if count > scores.shape[canonical_axis]:
        raise ValueError(
            f"categorical: {count} classes can't be drawn from {scores.shape[canonical_axis]} with replace=False"
        )
    noisy = scores + gumbel(checked_key, scores.shape, scores.dtype, mode)
    _, drawn = lax.top_k(fnp.moveaxis(noisy, canonical_axis, -1), count)
    return fnp.moveaxis(drawn, -1, 0).reshape(sizes)
