"""`RegularGridInterpolator`: NaN inputs, where SciPy and JAX differ, and interpolators as pytrees."""

from __future__ import annotations

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tracefx.scipy.interpolate import RegularGridInterpolator

AXIS = np.array([0.0, 1.0, 3.0], np.float32)
VALUES = np.array([0.0, 10.0, 50.0], np.float32)


@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_interpolation_at_nan_is_nan(method: str) -> None:
    for fill in (np.nan, 0.0, None):
        got = RegularGridInterpolator([AXIS], VALUES, method, fill_value=fill)(np.array([[np.nan], [1.0]]))
        np.testing.assert_array_equal(got, [np.nan, 10.0])


def test_interpolators_are_pytrees() -> None:
    f = RegularGridInterpolator([AXIS], VALUES)
    points = np.array([[0.5], [2.0]], np.float32)
    np.testing.assert_array_equal(fx.jit(lambda f, x: f(x))(f, points), [5.0, 30.0])
    slopes = fx.grad(lambda f: fnp.sum(f(points)))(f)
    np.testing.assert_array_equal(slopes.values, [0.5, 1.0, 0.5])
    stacked = fx.tree.map(lambda x: fnp.stack([x, x + 1]), f)
    np.testing.assert_array_equal(fx.vmap(lambda f: f(points + 0.5))(stacked)[0], f(points + 0.5))
