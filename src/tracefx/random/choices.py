"""Draws from what there is: an order of elements, some of them, one of several classes."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape
from tracefx.core.handler import as_array
from tracefx.core.values import get_aval
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.ops.static_integers import canonicalize_axis, static_int
from tracefx.random.arguments import check_parameter_shapes
from tracefx.random.continuous import gumbel
from tracefx.random.keys import bits, check_key, split
from tracefx.random.samplers import jit_sampler
from tracefx.random.uniforms import randint, uniform


def permutation(key: ArrayLike, x: int | ArrayLike, axis: int = 0, independent: bool = False) -> Array:
    """The elements of `x` along an axis in a random order; of an integer, those of `arange(x)`.

    Args:
        key: `key<...>[]`.
        x: any array, or an integer that is known when the program is traced.
        independent: whether each line along the axis has an order of its own.

    Raises TypeError for an `x` without axes that is no integer.

    >>> from tracefx import random
    >>> sorted(random.permutation(random.key(0), 4).tolist())
    [0, 1, 2, 3]
    """
    one, _ = check_key("permutation", key)
    if not get_aval(x).shape:
        return _shuffled(one, fnp.arange(_element_count("permutation", x, "x")), 0)
    array = as_array(x)
    place = canonicalize_axis("permutation", axis, array.ndim)
    if independent or array.ndim == 1:
        return _shuffled(one, array, place)
    order = _shuffled(one, fnp.arange(array.shape[place]), 0)
    return fnp.take(array, order, axis=place, unique_indices=True)


def _element_count(name: str, x: int | ArrayLike, what: str) -> int:
    if not dtypes.is_integer(get_aval(x).dtype):
        raise TypeError(f"{name}: {what} must be an integer or an array with axes, got {get_aval(x)}")
    return static_int(name, x if isinstance(x, int) else as_array(x), what)


_EXPONENT: Final = 3
"""Of orders of n elements, those that ties of sort keys favour have less than `n**-_EXPONENT` of the probability."""


@jit_sampler("axis")
def _shuffled(key: Array, x: Array, axis: int) -> Array:
    """Sorted by random words, as often as makes ties unlikely enough."""
    if dtypes.is_key(x.dtype):  # which aren't sorted
        places = lax.broadcasted_iota(np.int32, x.shape, axis)
        return fnp.take_along_axis(x, _shuffled(key, places, axis), axis)
    rounds = math.ceil(_EXPONENT * math.log(max(1, x.size)) / math.log(np.iinfo(np.uint32).max))
    for _ in range(rounds):
        key, now = split(key)
        _, x = lax.sort_key_val(bits(now, x.shape, np.uint32), x, axis)
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
    """Elements of `a` along an axis, drawn at random; of an integer, those of `arange(a)`.

    Args:
        key: `key<...>[]`.
        a: any array, or an integer that is known when the program is traced.
        shape: takes the place of the axis in the result.
        replace: whether an element can be drawn again.
        p: `f32[n]`, how likely each element is; all equally, if it isn't given.
        mode: that of `gumbel`, where elements aren't drawn again and `p` is given.

    Raises ValueError where there is nothing to draw from, or not enough without drawing again.

    >>> from tracefx import random
    >>> random.choice(random.key(0), 10, (3,)).shape
    (3,)
    """
    one, _ = check_key("choice", key)
    sizes = sizes_of("choice", shape)
    array = None if not get_aval(a).shape else as_array(a)
    place = 0 if array is None else canonicalize_axis("choice", axis, array.ndim)
    count = _element_count("choice", a, "a") if array is None else array.shape[place]
    drawn = math.prod(sizes)
    if not drawn:
        if array is None:
            return fnp.zeros(sizes, fnp.asarray(a).dtype)
        none = lax.slice_in_dim(array, 0, 0, axis=place)
        return none.reshape(*array.shape[:place], *sizes, *array.shape[place + 1 :])
    if count <= 0:
        raise ValueError(f"choice: a has nothing to draw from: there are {count} elements")
    if not replace and drawn > count:
        raise ValueError(f"choice: {drawn} elements can't be drawn of {count} with replace=False")
    if p is None and not replace:
        kept = permutation(one, count if array is None else array, place)
        found = lax.slice_in_dim(kept, 0, drawn, axis=place)
    else:
        places = _choice_indices(one, sizes, count, replace, p, mode)
        found = places if array is None else fnp.take(array, places, axis=place)
    return found.reshape(sizes if array is None else (*array.shape[:place], *sizes, *array.shape[place + 1 :]))


def _choice_indices(
    key: Array, shape: Shape, count: int, replace: bool, p: ArrayLike | None, mode: str | None
) -> Array:
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
) -> Array:
    """Classes, as integers, drawn by the logarithms of their weights, which need not add up to anything.

    Args:
        key: `key<...>[]`.
        logits: `f32[...]`, with the classes along `axis`.
        shape: ends in the shape of `logits` without the axis, which it is if it isn't given.
        replace: whether draws of one distribution, along the axes in front, can be the same.
        mode: that of `gumbel`.

    Raises ValueError where fewer classes are there than are to be drawn with `replace=False`.

    >>> from tracefx import random
    >>> random.categorical(random.key(0), [[0.0, 9.0], [9.0, 0.0]]).tolist()
    [1, 0]
    """
    one, _ = check_key("categorical", key)
    scores = fnp.asarray(logits)
    place = canonicalize_axis("categorical", axis, scores.ndim)
    batch = (*scores.shape[:place], *scores.shape[place + 1 :])
    sizes = batch if shape is None else sizes_of("categorical", shape)
    check_parameter_shapes("categorical", sizes, batch)
    lead = sizes[: len(sizes) - len(batch)]
    if replace:
        inner = list(sizes[len(lead) :])
        inner.insert(place, scores.shape[place])
        noise = gumbel(one, (*lead, *inner), scores.dtype, mode)
        return fnp.argmax(noise + fnp.expand_dims(scores, tuple(range(len(lead)))), axis=place - scores.ndim)
    count = math.prod(lead)
    if count > scores.shape[place]:
        raise ValueError(f"categorical: {count} classes can't be drawn of {scores.shape[place]} with replace=False")
    noisy = scores + gumbel(one, scores.shape, scores.dtype, mode)
    _, found = lax.top_k(fnp.moveaxis(noisy, place, -1), count)
    return fnp.moveaxis(found, -1, 0).reshape(sizes)
