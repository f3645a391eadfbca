"""Functions between the points where they are known, with the names of `jax.scipy.interpolate`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np
from attrs import field, frozen

from tracefx import numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import to_inexact
from tracefx.pytrees.trees import register_pytree_node

__all__ = ["RegularGridInterpolator"]

_METHODS: Final = ("linear", "nearest")


@final
@frozen(eq=False, init=False)
class RegularGridInterpolator:
    """A function known at the points of a grid, to be called with points between them, `f32[..., n]`.

    `points` are the grid's increasing coordinates along each of its `n` axes, `values` (`f32[...]`) the function there;
    axes of `values` beyond these are those of the function's results. Between points it is linear, or that at the
    nearest point. Outside the grid it is `fill_value`, or if that is None goes on as in the cells at the edge.

    Raises ValueError for an unknown `method`, for more axes than `values` has and for a `fill_value` that it can't
    hold, NotImplementedError for `bounds_error=True`: whether a point is outside isn't known when a program is traced.

    >>> f = RegularGridInterpolator((fnp.array([0.0, 1.0, 3.0]),), fnp.array([0.0, 10.0, 50.0]))
    >>> f(fnp.array([[0.5], [2.0], [4.0]])).tolist()
    [5.0, 30.0, nan]
    """

    grid: tuple[Array, ...]
    values: Array
    fill_value: Array | None
    method: str
    bounds_error: bool = field(repr=False)

    def __init__(
        self,
        points: Sequence[ArrayLike],
        values: ArrayLike,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: ArrayLike | None = np.nan,
    ) -> None:
        _require_method(method)
        if bounds_error:
            raise NotImplementedError("RegularGridInterpolator: bounds_error must be False; use fill_value")
        known = as_array(to_inexact(values, "RegularGridInterpolator: values"))
        if len(points) > known.ndim:
            raise ValueError(
                f"RegularGridInterpolator: there are {len(points)} axes of points, but values {known.aval}"
            )
        fill = None if fill_value is None else fnp.asarray(fill_value)
        if fill is not None and dtypes.is_complex(fill.dtype) and not dtypes.is_complex(known.dtype):
            raise ValueError(
                f"RegularGridInterpolator: fill_value {fill.aval} must be real, as values {known.aval} are"
            )
        grid = tuple([fnp.asarray(p) for p in points])
        self.__attrs_init__(grid, known, fill, method, bounds_error)

    def __call__(self, xi: ArrayLike | tuple[ArrayLike, ...], method: str | None = None) -> Array:
        """The function at points: at one array of them, or a tuple of their coordinates."""
        how = self.method if method is None else _require_method(method)
        n = len(self.grid)
        points = _stack_points(xi, n)
        if points.shape[-1] != n:
            raise ValueError(f"RegularGridInterpolator: points {points.aval} must have {n} coordinates each")
        shape, flat = points.shape[:-1], points.reshape(-1, n)
        cells, parts = [], []
        outside = fnp.zeros(flat.shape[:1], bool)
        for i, axis in enumerate(self.grid):
            x = flat[:, i]
            cell = fnp.clip(fnp.searchsorted(axis, x) - 1, 0, axis.size - 2)
            low, high = axis[cell], axis[cell + 1]
            cells.append(cell)
            parts.append((x - low) / (high - low))
            outside = outside | (x < axis[0]) | (x > axis[-1])
        out = self._nearest(cells, parts) if how == "nearest" else self._linear(cells, parts)
        wide = (-1, *[1] * (out.ndim - 1))
        if self.fill_value is not None:
            out = fnp.where(outside.reshape(wide), self.fill_value, out)
        out = fnp.where(fnp.any(fnp.isnan(flat), 1).reshape(wide), fnp.nan, out)
        return out.reshape(*shape, *self.values.shape[n:])

    def _nearest(self, cells: Sequence[Array], parts: Sequence[Array]) -> Array:
        return self.values[tuple([cell + (part > 0.5) for cell, part in zip(cells, parts, strict=True)])]

    def _linear(self, cells: Sequence[Array], parts: Sequence[Array]) -> Array:
        """The corners of each cell, those across from the point counting more the nearer it is to them."""
        wide = [1] * (self.values.ndim - len(cells))
        out: Array | None = None
        for corner in itertools.product((0, 1), repeat=len(cells)):
            weight = fnp.ones(())
            for which, part in zip(corner, parts, strict=True):
                weight = weight * (part if which else 1 - part)
            at = tuple([cell + which for cell, which in zip(cells, corner, strict=True)])
            term = self.values[at] * weight.reshape(*weight.shape, *wide)
            out = term if out is None else out + term
        assert out is not None  # there is a corner
        return out


def _require_method(method: str) -> str:
    if method not in _METHODS:
        raise ValueError(f"RegularGridInterpolator: method must be 'linear' or 'nearest', got {method!r}")
    return method


def _stack_points(xi: ArrayLike | tuple[ArrayLike, ...], n: int) -> Array:
    """As one array, coordinates last."""
    if isinstance(xi, tuple) and len(xi) > 1:
        return fnp.stack(fnp.broadcast_arrays(*[fnp.asarray(x) for x in xi]), -1)
    points = fnp.asarray(xi[0] if isinstance(xi, tuple) else xi)
    return points.reshape(-1, n) if points.ndim == 1 else points


def _unflatten(metadata: tuple[str, bool], children: tuple[Any, ...]) -> RegularGridInterpolator:
    """With children of any kind, so without looking at them."""
    out = object.__new__(RegularGridInterpolator)
    grid, values, fill_value = children
    out.__attrs_init__(grid, values, fill_value, *metadata)
    return out


register_pytree_node(
    RegularGridInterpolator,
    lambda f: ((f.grid, f.values, f.fill_value), (f.method, f.bounds_error)),
    _unflatten,
)
