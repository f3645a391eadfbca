"""`scatter`, `scatter_mul`, `scatter_min` and `scatter_max`."""

from __future__ import annotations

from typing import Any, Final

import jax
import ml_dtypes
import numpy as np
import pytest
from jax import lax as jax_lax

import tracefx as fx
from tests.comparison import assert_near
from tests.errors import untyped
from tests.ops.harness import error_tests
from tracefx import lax
from tracefx.core import NDArray, to_numpy
from tracefx.ops.indexing.gather_scatter_add import ScatterDimensionNumbers
from tracefx.testing.tolerances import ELEMENTARY

NAMES: Final = ("scatter", "scatter_mul", "scatter_min", "scatter_max")
# ------------------------------------------------------------------ edges

INTO_ROWS: Final = ScatterDimensionNumbers((1,), (0,), (0,))
JAX_INTO_ROWS: Final = jax_lax.ScatterDimensionNumbers((1,), (0,), (0,))
X: Final = np.arange(12, dtype=np.float32).reshape(3, 4)
FAR: Final = np.array([[-(2**31)], [-1], [0], [2], [3], [2**31 - 1]], np.int32)


def f32(x: object) -> NDArray:
    return np.asarray(x, np.float32)


def i32(x: object) -> NDArray:
    return np.asarray(x, np.int32)


def bits(x: object) -> object:
    host = np.asarray(x)
    return np.where(np.isnan(host), np.nan, host), np.signbit(host) & ~np.isnan(host)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_zeros_and_nans_as_compiled(name: str, dtype: type[np.generic]) -> None:
    values = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0])
    x, u = [v.reshape(-1, 1).astype(dtype) for v in (np.repeat(values, 7), np.tile(values, 7))]
    i = np.arange(49, dtype=np.int32).reshape(-1, 1)
    function = getattr(lax, name)
    for update, at in ((u, i), (np.concatenate([u, u[::-1]]), np.concatenate([i, i]))):
        eager = function(x, at, update, INTO_ROWS)
        compiled = fx.jit(lambda x, i, u: function(x, i, u, INTO_ROWS))(x, at, update)
        np.testing.assert_array_equal(bits(eager), bits(compiled))


@pytest.mark.parametrize("mode", ["clip", "drop", None])
@pytest.mark.parametrize("name", NAMES)
def test_out_of_bounds(name: str, mode: str | None) -> None:
    updates = np.arange(24, dtype=np.float32).reshape(6, 4) - 8
    for indices in (FAR, *FAR[:, None]):
        u = updates[: len(indices)]
        out = getattr(lax, name)(X, indices, u, INTO_ROWS, mode=mode)
        want = getattr(jax_lax, name)(X, indices, u, JAX_INTO_ROWS, mode=mode)
        np.testing.assert_array_equal(to_numpy(out), np.asarray(want))


def test_derivative_of_scatter_belongs_to_the_last_update() -> None:
    x, i = f32([[1.0], [-0.0], [3.0]]), i32([[0], [1], [0]])
    u = f32([[5.0], [-0.0], [6.0]])

    def updated(x: Any, u: Any) -> Any:
        return lax.scatter(x, i, u, INTO_ROWS)

    out, t = fx.jvp(updated, (x, u), (f32([[1], [2], [3]]), f32([[10], [20], [30]])))
    np.testing.assert_array_equal(bits(out), bits(f32([[6], [-0.0], [3]])))
    assert t.tolist() == [[30.0], [20.0], [3.0]]
    out, pull = fx.vjp(updated, x, u)
    by_x, by_u = pull(f32([[1], [2], [3]]))
    assert (by_x.tolist(), by_u.tolist()) == ([[0.0], [0.0], [3.0]], [[0.0], [2.0], [1.0]])
    transposed = fx.linear_transpose(updated, x, u)(f32([[1], [2], [3]]))
    assert [t.tolist() for t in transposed] == [by_x.tolist(), by_u.tolist()]


@pytest.mark.parametrize("name", ["scatter_min", "scatter_max"])
def test_ties_share_the_tangent_of_scatter_min_and_max(name: str) -> None:
    x, i = f32([[2.0], [np.nan], [7.0], [1.0]]), i32([[0], [0], [1], [3]])
    u = f32([[2.0], [2.0], [3.0], [np.nan]])
    ones = np.ones_like(x)
    function, jax_function = getattr(lax, name), getattr(jax_lax, name)
    for x_t, u_t in ((ones, 2 * ones), (ones, 0 * ones)):
        _, t = fx.jvp(lambda x, u: function(x, i, u, INTO_ROWS), (x, u), (x_t, u_t))
        _, want = jax.jvp(lambda x, u: jax_function(x, i, u, JAX_INTO_ROWS), (x, u), (x_t, u_t))
        assert_near(t, want, ELEMENTARY)


INDICES: Final = np.array([[0], [1]], np.int32)
U: Final = np.ones((2, 4), np.float32)


def transpose_of_a_product() -> object:
    return fx.linear_transpose(lambda u: lax.scatter_mul(X, INDICES, u, INTO_ROWS), U)(X)


test_invalid_arguments_raise = error_tests(
    (TypeError, "scatter-mul not linear", transpose_of_a_product),
    (TypeError, "scatter: one dtype", lambda: lax.scatter(X, INDICES, U.astype(np.int32), INTO_ROWS)),
    (TypeError, "scatter_mul bool", lambda: lax.scatter_mul(X > 1, INDICES, U > 0, INTO_ROWS)),
    (TypeError, "scatter_min: updates", lambda: lax.scatter_min(X, INDICES, U[:1], INTO_ROWS)),
    (TypeError, "scatter_max dimension_numbers", lambda: untyped(lax.scatter_max)(X, INDICES, U, (0,))),
    (ValueError, "scatter: mode 'wrap'", lambda: lax.scatter(X, INDICES, U, INTO_ROWS, mode="wrap")),
)


@pytest.mark.parametrize("name", ["scatter", "scatter_add", "scatter_mul", "scatter_min", "scatter_max", "scatter_sub"])
def test_invalid_shapes_raise(name: str) -> None:
    numbers = ScatterDimensionNumbers((), (0,), (0,))
    windows = ScatterDimensionNumbers((1,), (0,), (0,))
    outside = ScatterDimensionNumbers((), (5,), (0,))
    v, x, one = np.zeros(4, np.float32), np.zeros((4, 3), np.float32), np.array([[1]])

    def ones(*shape: int) -> NDArray:
        return np.ones(shape, np.float32)

    for operand, indices, updates, dimension_numbers_, says in (
        (v, one, ones(2), numbers, r"updates f32\[2\] must have the shape \(1,\)"),
        (v, np.array([[1], [2]]), ones(3), numbers, r"updates f32\[3\] must have the shape \(2,\).*i32\[2,1\]"),
        (x, one, ones(2, 3), windows, r"updates f32\[2,3\] must have the shape \(1, 3\)"),
        (x, one, ones(1, 4), windows, r"updates f32\[1,4\] do not fit into operand f32\[4,3\]"),
        (v, one, ones(1), outside, r"inserted_window_dims \(5,\).*f32\[4\], from 0 to 0"),
        (x, one, ones(1), numbers, r"must have one entry for each axis of f32\[4,3\]"),
    ):
        with pytest.raises(TypeError, match=rf"{name}: .*{says}"):
            getattr(lax, name)(operand, indices, updates, dimension_numbers_)
        jax_numbers = jax_lax.ScatterDimensionNumbers(
            dimension_numbers_.update_window_dims,
            dimension_numbers_.inserted_window_dims,
            dimension_numbers_.scatter_dims_to_operand_dims,
        )
        with pytest.raises((TypeError, ValueError)):
            getattr(jax_lax, name)(operand, indices, updates, jax_numbers)
