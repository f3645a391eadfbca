"""Sorting and top-k: cases that the properties of `harness` and the comparison with JAX leave out."""

# jaxlib's module has no types.
# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import itertools

import numpy as np
import pytest
from jaxlib import _jax

import tracefx as fx
from tracefx import lax
from tracefx.core import DType, NDArray, ShapedArray
from tracefx.ops.indexing.top_k import ApproxTopK, TopK

SIZES = (1, 129, 384, 897, 1025, 5000, 100_000)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("input_size", [-1, 10**6])
def test_approx_top_k_output_size_matches_xla(rank: int, input_size: int) -> None:
    for n, k, recall in itertools.product(SIZES, (1, 2, 50, 1000), (0.5, 0.95, 0.999)):
        if k <= n:
            x = ShapedArray((3,) * (rank - 1) + (n,), np.dtype(np.float32))
            wanted, _ = _jax.approx_top_k_reduction_output_size(n, rank, k, recall, False, input_size)
            assert ApproxTopK(k, -1, recall, True, input_size, False).count(x) == wanted, (n, k, recall)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float8_e4m3fn", "float8_e5m2"])
def test_sort_and_top_k_of_narrow_dtypes(dtype: str) -> None:
    x = np.arange(-8, 8) % 7
    array = fx.numpy.array(x, dtype=dtype)
    for f in (lax.sort, fx.jit(lax.sort)):
        np.testing.assert_array_equal(np.asarray(f(array)).astype(np.float32), np.sort(x).astype(np.float32))
    for g in (lax.top_k, fx.jit(lax.top_k, static_argnums=1)):
        values, indices = g(array, 5)
        np.testing.assert_array_equal(np.asarray(values).astype(np.float32), np.sort(x)[:-6:-1])
        np.testing.assert_array_equal(indices, np.argsort(-x, kind="stable")[:5])


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.int16), np.dtype(np.float16)])
def test_top_k_of_long_arrays_matches_a_stable_sort(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    x: NDArray = rng.integers(-20, 20, (2, 3, 5000)).astype(dtype)
    if dtype.kind == "f":
        x[0, 0, 3:6] = np.nan, -0.0, np.inf
    order = np.argsort(TopK(7, 2).sort_key(x), 2, kind="stable")[..., :7]
    for axis in (0, 2):
        values, indices = TopK(7, axis).impl(np.ascontiguousarray(np.moveaxis(x, 2, axis)))
        np.testing.assert_array_equal(np.moveaxis(indices, axis, 2), order)
        np.testing.assert_array_equal(np.moveaxis(values, axis, 2), np.take_along_axis(x, order, 2))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "int8"])
def test_unstable_sort(dtype: str) -> None:
    x = np.array([[1, np.nan, -np.inf, -2], [np.inf, 3e-5, -3e-5, 0], [0.5, -1, -np.nan, 2]], np.float32)
    x = np.nan_to_num(x, nan=3, posinf=9, neginf=-9) if dtype == "int8" else x
    array = fx.numpy.array(x, dtype=dtype)
    for axis in (0, 1):
        for f in (lax.sort, fx.jit(lax.sort, static_argnums=(1, 2))):
            got, want = [np.asarray(y) for y in (f(array, axis, False), array)]
            wide = np.complex64 if dtype == "complex64" else np.float64
            np.testing.assert_array_equal(got.astype(wide), np.sort(want.astype(wide), axis))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_unstable_sort_of_long_arrays(dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=(1000, 5))
    x[5:12, 2] = 0.0, -0.0, np.nan, -np.nan, 0.0, np.inf, -np.inf
    array = fx.numpy.array(x, dtype=dtype)
    for axis in (0, 1):
        got = np.asarray(fx.jit(lambda x, axis=axis: lax.sort(x, axis, False))(array)).astype(np.float64)
        np.testing.assert_array_equal(got, np.sort(np.asarray(array).astype(np.float64), axis))


def test_sort_of_random_keys_raises() -> None:
    with pytest.raises(TypeError, match="sort takes numbers, but key"):
        lax.sort(fx.random.split(fx.random.key(0)))


def test_stable_sort_preserves_signs_of_zeros_and_nans() -> None:
    x = np.array([0.0, np.nan, -0.0, 1, -np.nan, -0.0, 0.0, -1], np.float32)
    for f in (lax.sort, fx.jit(lax.sort)):
        np.testing.assert_array_equal(np.signbit(np.asarray(f(x))[:5]), [True, False, True, True, False])
