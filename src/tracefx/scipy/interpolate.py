"""Interpolation, with the names of `jax.scipy.interpolate`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np
from attrs import field, frozen

from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import to_inexact
from tracefx.pytrees.trees import register_pytree_node

__all__ = ["RegularGridInterpolator"]

_METHODS: Final = ("linear", "nearest")


@final
@frozen(eq=False, init=False)
class RegularGridInterpolator:
    """An interpolator of a function that is known on a regular grid. It is a pytree.

    Call it with points to interpolate at.

    Args:
        points: the increasing coordinates of the grid along each of its `n` axes.
        values: the function at the grid points, `f32[...]`; axes after the first `n` are axes of the function's
            results.
        method: `"linear"` or `"nearest"`.
        bounds_error: must be False: whether a point is out of bounds is unknown while tracing.
        fill_value: the result outside the grid; None extrapolates from the cells at the edge.

    Raises:
        NotImplementedError: if `bounds_error` is True.
        ValueError: if `method` is unknown, `points` has more axes than `values`, or `fill_value` is complex but
            `values` are real.

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
        grid_values = as_array(to_inexact(values, "RegularGridInterpolator: values"))
        if len(points) > grid_values.ndim:
            raise ValueError(
                f"RegularGridInterpolator: there are {len(points)} axes of points, but values {grid_values.aval}"
            )
        fill = None if fill_value is None else fnp.asarray(fill_value)
        if fill is not None and dtypes.is_complex(fill.dtype) and not dtypes.is_complex(grid_values.dtype):
            raise ValueError(
                f"RegularGridInterpolator: fill_value {fill.aval} must be real, as values {grid_values.aval} are"
            )
        grid = tuple([fnp.asarray(p) for p in points])
        self.__attrs_init__(grid, grid_values, fill, method, bounds_error)

    def __call__(self, xi: ArrayLike | tuple[ArrayLike, ...], method: str | None = None) -> Array:
        """Interpolates at points.

        Args:
            xi: points, `f32[..., n]`, or a tuple of their coordinates.
            method: overrides the method of the interpolator.

        Returns:
            The results, `f32[..., *rest]`; NaN where a coordinate is NaN.

        Raises:
            ValueError: if points don't have `n` coordinates, or `method` is unknown.
        """
        chosen_method = self.method if method is None else _require_method(method)
        n = len(self.grid)
        points = _stack_points(xi, n)
        if points.shape[-1] != n:
            raise ValueError(f"RegularGridInterpolator: points {points.aval} must have {n} coordinates each")
        shape, flat = points.shape[:-1], points.reshape(-1, n)
        cells, fractions = [], []
        outside = fnp.zeros(flat.shape[:1], bool)
        for i, axis in enumerate(self.grid):
            x = flat[:, i]
            cell = fnp.clip(fnp.searchsorted(axis, x) - 1, 0, axis.size - 2)
            low, high = axis[cell], axis[cell + 1]
            cells.append(cell)
            fractions.append((x - low) / (high - low))
            outside = outside | (x < axis[0]) | (x > axis[-1])
        out = self._nearest(cells, fractions) if chosen_method == "nearest" else self._linear(cells, fractions)
        column_shape = (-1, *[1] * (out.ndim - 1))
        if self.fill_value is not None:
            out = fnp.where(outside.reshape(column_shape), self.fill_value, out)
        out = fnp.where(fnp.any(fnp.isnan(flat), 1).reshape(column_shape), fnp.nan, out)
        return out.reshape(*shape, *self.values.shape[n:])

    def _nearest(self, cells: Sequence[Array], parts: Sequence[Array]) -> Array:
        """Returns the values at the nearest grid points."""
        return self.values[tuple([cell + (part > 0.5) for cell, part in zip(cells, parts, strict=True)])]

    def _linear(self, cells: Sequence[Array], parts: Sequence[Array]) -> Array:
        """Returns the weighted sums of the values at the corners of each cell."""
        trailing_ones = [1] * (self.values.ndim - len(cells))
        out: Array | None = None
        for corner in itertools.product((0, 1), repeat=len(cells)):
            weight = fnp.ones(())
            for upper, fraction in zip(corner, parts, strict=True):
                weight = weight * (fraction if upper else 1 - fraction)
            index = tuple([cell + upper for cell, upper in zip(cells, corner, strict=True)])
            term = self.values[index] * weight.reshape(*weight.shape, *trailing_ones)
            out = term if out is None else out + term
        assert out is not None  # there is at least one corner
        return out


def _require_method(method: str) -> str:
    if method not in _METHODS:
        raise ValueError(f"RegularGridInterpolator: method must be 'linear' or 'nearest', got {method!r}")
    return method


def _stack_points(xi: ArrayLike | tuple[ArrayLike, ...], n: int) -> Array:
    """Returns points as one array, with coordinates along the last axis."""
    if isinstance(xi, tuple) and len(xi) > 1:
        return fnp.stack(fnp.broadcast_arrays(*[fnp.asarray(x) for x in xi]), -1)
    points = fnp.asarray(xi[0] if isinstance(xi, tuple) else xi)
    return points.reshape(-1, n) if points.ndim == 1 else points


def _unflatten(metadata: tuple[str, bool], children: tuple[Any, ...]) -> RegularGridInterpolator:
    """Rebuilds an interpolator from leaves of any type, without checks."""
    out = object.__new__(RegularGridInterpolator)
    grid, values, fill_value = children
    out.__attrs_init__(grid, values, fill_value, *metadata)
    return out


register_pytree_node(
    RegularGridInterpolator,
    lambda f: ((f.grid, f.values, f.fill_value), (f.method, f.bounds_error)),
    _unflatten,
)
