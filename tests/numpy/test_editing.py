"""`insert`, `delete`, `trim_zeros`, `einsum_path` and polynomials with leading zeros, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near


@st.composite
def insertions(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], Any, int | None]:
    """Draws an array, the indices at which to insert, and the axis."""
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    x = np.arange(np.prod(shape)).reshape(shape)
    axis = draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    n = x.size if axis is None else x.shape[axis]
    where = draw(st.integers(-n, n) | st.lists(st.integers(-n, n), min_size=1, max_size=4))
    return x, where, axis


@settings(max_examples=40, deadline=None)
@given(insertions())
def test_insert_matches_numpy(case: Any) -> None:
    x, where, axis = case
    got = fnp.insert(x, where if isinstance(where, int) else np.array(where), -1, axis)
    assert got.tolist() == np.insert(x, where, -1, axis).tolist()


@settings(max_examples=40, deadline=None)
@given(insertions(), st.booleans())
def test_delete_matches_numpy(case: Any, unique: bool) -> None:
    x, where, axis = case
    n = x.size if axis is None else x.shape[axis]
    indices = np.unique(np.array(where) % n if unique else np.clip(where, -n, n - 1))
    want = np.delete(x, indices, axis)
    assert fnp.delete(x, indices, axis).tolist() == want.tolist()
    if unique:
        traced = fx.jit(lambda p: fnp.delete(x, p, axis, assume_unique_indices=True))
        assert traced(indices[::-1].copy()).tolist() == want.tolist()


def test_delete_at_a_traced_index_raises() -> None:
    with pytest.raises(TypeError, match="assume_unique_indices=True if its indices differ"):
        fx.jit(lambda i: fnp.delete(np.arange(3), i))(1)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.0, 1.0]), min_size=0, max_size=6), st.sampled_from(["fb", "f", "b", "FB"]))
def test_trim_zeros_matches_numpy(numbers: list[float], trim: Any) -> None:
    assert fnp.trim_zeros(np.array(numbers), trim).tolist() == np.trim_zeros(np.array(numbers), trim).tolist()


def test_trim_zeros_of_a_matrix() -> None:
    x = np.zeros((4, 5))
    x[1, 2] = x[2, 2] = 1.0
    assert fnp.trim_zeros(x).tolist() == [[1.0], [1.0]]
    assert fnp.trim_zeros(x, axis=0).shape == (2, 5)
    assert fnp.trim_zeros(x, "f").shape == (3, 3)
    assert fnp.trim_zeros(np.zeros((2, 2))).shape == (0, 0)


def test_einsum_path() -> None:
    x, y, z = fnp.ones((9, 1)), fnp.ones((1, 9)), fnp.ones((9, 1))
    path, text = fnp.einsum_path("ij,jk,kl->il", x, y, z)
    assert path == [(1, 2), (0, 1)]
    assert "Complete contraction:  ij,jk,kl->il" in text
    assert fnp.einsum_path("ij,jk,kl->il", x, y, z, optimize=[(0, 1), (0, 1)])[0] == [(0, 1), (0, 1)]
    assert fnp.einsum_path(x, [0, 1], y, [1, 2])[0] == [(0, 1)]
    with pytest.raises(ValueError, match="einsum_path: optimize must be 'auto', .*, got 'fast'"):
        fnp.einsum_path("ij,jk,kl->il", x, y, z, optimize="fast")


def test_trim_leading_zeros_needs_concrete_coefficients() -> None:
    product = fnp.polymul(np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.0, 1.0]), trim_leading_zeros=True)
    assert product.tolist() == [1.0, 2.0]
    quotient, remainder = fnp.polydiv(np.array([1.0, 3.0, 2.5]), np.array([1.0, 1.0]), trim_leading_zeros=True)
    assert (quotient.tolist(), remainder.tolist()) == ([1.0, 2.0], [0.5])
    with pytest.raises(TypeError, match="trim_leading_zeros needs concrete coefficients"):
        fx.jit(lambda p: fnp.polymul(p, p, trim_leading_zeros=True))(np.ones(2))


def test_roots_strips_leading_zeros() -> None:
    roots = np.sort(np.asarray(fnp.roots(np.array([0.0, 1.0, -3.0, 2.0]))).real)
    assert_near(roots, [1.0, 2.0])
    assert fnp.roots(np.array([0.0, 0.0])).shape == (0,)
    with pytest.raises(TypeError, match="pass strip_zeros=False"):
        fx.jit(fnp.roots)(np.ones(3))
