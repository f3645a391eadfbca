"""Image processing for arrays of any rank, with the names of `jax.scipy.ndimage`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, dtypes
from tracefx.ops.elementwise import rounding

__all__ = ["map_coordinates"]


def _mirror_index(index: Array, size: int) -> Array:
    """Maps an index back and forth over the axis without repeating the first and last elements."""
    if size == 1:
        return fnp.zeros_like(index)
    return fnp.abs((index + size - 1) % (2 * size - 2) - (size - 1))


def _reflect_index(index: Array, size: int) -> Array:
    """Maps an index back and forth over the axis, repeating the first and last elements."""
    phase = index % (2 * size)
    return fnp.minimum(phase, 2 * size - 1 - phase)


_MODES: Final[Mapping[str, Callable[[Array, int], Array]]] = MappingProxyType(
    {
        "constant": lambda index, size: index,
        "nearest": lambda index, size: fnp.clip(index, 0, size - 1),
        "wrap": lambda index, size: index % size,
        "mirror": _mirror_index,
        "reflect": _reflect_index,
    }
)
InterpolationNode: TypeAlias = tuple[Array, Array | None]
"""An index along an axis, and its interpolation weight; None stands for 1."""


def map_coordinates(
    input: ArrayLike,
    coordinates: Sequence[ArrayLike] | Array,
    order: int,
    mode: str = "constant",
    cval: ArrayLike = 0.0,
) -> Array:
    """Interpolates an image at given coordinates.

    Args:
        input: the image, an array of any rank.
        coordinates: for each axis of the image an array of coordinates; the arrays broadcast together.
        order: 0 for the nearest element, 1 for linear interpolation.
        mode: the values outside the image: `"constant"` (`cval`), `"nearest"` (the element at the edge), `"wrap"` (the
            image repeated), `"mirror"` or `"reflect"` (the image mirrored, without or with the edge elements repeated).
        cval: the value outside the image if `mode` is `"constant"`.

    Returns:
        An array of the dtype of the image and the shape that the coordinates broadcast to. Integers are rounded.

    Raises:
        NotImplementedError: if `order` or `mode` is not supported.
        ValueError: if there isn't one array of coordinates for each axis.

    >>> map_coordinates(fnp.array([0.0, 10.0, 20.0]), [fnp.array([0.5, 1.75])], order=1).tolist()
    [5.0, 17.5]
    """
    image = fnp.asarray(input)
    positions = [fnp.asarray(c) for c in coordinates]
    if len(positions) != image.ndim:
        raise ValueError(
            f"map_coordinates: need one array of coordinates for each axis of {image.aval}, got {len(positions)}"
        )
    if mode not in _MODES:
        raise NotImplementedError(f"map_coordinates: mode must be one of {', '.join(_MODES)}, got {mode!r}")
    if order not in (0, 1):
        raise NotImplementedError(f"map_coordinates: order must be 0 or 1, got {order!r}")
    outside = fnp.asarray(cval, image.dtype)
    terms = []
    for nodes in itertools.product(*[_linear_nodes(c) if order else _nearest_nodes(c) for c in positions]):
        index = tuple([_MODES[mode](i, n) for (i, _), n in zip(nodes, image.shape, strict=True)])
        term = image[index]
        if mode == "constant":
            inside = [(i >= 0) & (i < n) for (i, _), n in zip(nodes, image.shape, strict=True)]
            term = fnp.where(math.prod(inside[1:], start=inside[0]) if inside else True, term, outside)
        weights = [weight for _, weight in nodes if weight is not None]
        terms.append(math.prod(weights[1:], start=weights[0]) * term if weights else term)
    out = terms[0]
    for term in terms[1:]:
        out = out + term
    if dtypes.is_integer(image.dtype):
        out = _round_floats(out)
    return fnp.asarray(out, image.dtype)


def _round_floats(x: Array) -> Array:
    return rounding.round(x) if dtypes.is_float(x.dtype) else x


def _nearest_nodes(position: Array) -> list[InterpolationNode]:
    return [(_round_floats(position).astype("int32"), None)]


def _linear_nodes(position: Array) -> list[InterpolationNode]:
    below = fnp.floor(position)
    fraction = position - below
    index = below.astype("int32")
    return [(index, 1 - fraction), (index + 1, fraction)]
