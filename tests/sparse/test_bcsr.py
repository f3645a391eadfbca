"""`BCSR` and its functions, compared with JAX and with dense arrays."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near, assert_same
from tests.sparse.layouts import LAYOUTS, Layout, jax_sparse
from tracefx import sparse
from tracefx.sparse import BCOO, BCSR

MATRICES = [layout for layout in LAYOUTS if layout.n_sparse == 2]
each_layout = pytest.mark.parametrize("layout", MATRICES, ids=str)


@each_layout
def test_conversion_from_and_to_coordinates(layout: Layout) -> None:
    mat = layout.make()
    rows = BCSR.from_bcoo(mat)
    assert (rows.shape, rows.nse, rows.n_batch, rows.n_dense) == (mat.shape, mat.nse, mat.n_batch, mat.n_dense)
    assert_same(rows.todense(), mat.todense())
    assert_same(rows.to_bcoo().todense(), mat.todense())
    assert_same(fx.jit(lambda m: BCSR.from_bcoo(m).todense())(mat), mat.todense())


@each_layout
def test_indptr_matches_jax(layout: Layout) -> None:
    if layout.data_ones or layout.index_ones:
        layout = Layout(layout.shape, layout.n_batch, layout.n_dense)
    got, want = BCSR.from_bcoo(layout.make()), jax_sparse.BCSR.from_bcoo(layout.make_jax())
    assert repr(got) == repr(want)
    assert_same(np.asarray(got.indptr), np.asarray(want.indptr))
    assert_near(got.todense(), np.asarray(layout.make().todense()))


@pytest.mark.parametrize("nse", [None, 2, 20])
def test_fromdense_matches_jax(nse: int | None) -> None:
    x = np.array([[0, 2, 0], [0, 0, 0], [1, 0, 3]], np.float32)
    got, want = BCSR.fromdense(x, nse=nse), jax_sparse.BCSR.fromdense(x, nse=nse)
    for name in ("data", "indices", "indptr"):
        assert_same(np.asarray(getattr(got, name)), np.asarray(getattr(want, name)))
    assert_same(got.todense(), BCOO.fromdense(x, nse=nse).todense())
    assert_same(sparse.bcsr_todense(sparse.bcsr_fromdense(x)), fnp.asarray(x))
    assert_near(sparse.bcsr_extract(got.indices, got.indptr, x), got.data)


def test_scipy_matrices() -> None:
    x = np.array([[0, 2.0], [3, 0]], np.float32)
    assert_same(BCSR.from_scipy_sparse(scipy.sparse.coo_matrix(x)).todense(), fnp.asarray(x))
    with pytest.raises(NotImplementedError, match="must be 0"):
        BCSR.from_scipy_sparse(scipy.sparse.csr_array(x), n_batch=1)
    with pytest.raises(ValueError, match="two axes"):
        BCSR.from_scipy_sparse(scipy.sparse.coo_array(np.ones(3)))


@each_layout
def test_products(layout: Layout) -> None:
    rows = BCSR.from_bcoo(layout.make())
    if layout.n_dense:
        numbers = (((layout.n_batch,), (0,)), ((), ()))
        v = np.arange(layout.shape[layout.n_batch]).astype(layout.dtype)
        want = fx.lax.dot_general(rows.todense(), v, numbers)
        assert_near(sparse.bcsr_dot_general(rows, v, dimension_numbers=numbers), want)
        return
    v = np.arange(layout.shape[-1]).astype(layout.dtype)
    assert_near(rows @ v, np.asarray(rows.todense()) @ v)
    if not layout.n_batch:
        w = np.arange(layout.shape[0]).astype(layout.dtype)
        assert_near(w @ rows, w @ np.asarray(rows.todense()))


def test_other_functions() -> None:
    mat = BCSR.fromdense(np.array([[0, 2.0, 1.0], [3.0, 0, 0]], np.float32))
    dense = np.asarray(mat.todense())
    assert_near(sparse.bcsr_concatenate([mat, mat], dimension=1).todense(), np.concatenate([dense, dense], 1))
    repeated = sparse.bcsr_broadcast_in_dim(mat, shape=(2, 2, 3), broadcast_dimensions=(1, 2))
    assert_near(repeated.todense(), np.stack([dense, dense]))
    twice = BCSR((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 2))
    assert sparse.bcsr_sum_duplicates(twice).data.tolist() == [3.0]
    assert twice.sum_duplicates(nse=2).todense().tolist() == [[0.0, 3.0]]
    assert_same(sparse.empty((2, 3), sparse_format="bcsr").todense(), fnp.zeros((2, 3)))
    assert_same(sparse.eye(3, sparse_format="bcsr").todense(), fnp.eye(3))
    assert_near(mat[1].todense(), dense[1])
    assert mat.block_until_ready() is mat


def test_invalid_arrays() -> None:
    data, columns, indptr = np.ones(2), np.array([0, 1]), np.array([0, 1, 2])
    with pytest.raises(TypeError, match="indptr must be integers"):
        BCSR((data, columns, indptr.astype(np.float32)), shape=(2, 2))
    with pytest.raises(ValueError, match="indptr"):
        BCSR((data, columns, indptr), shape=(3, 2))
    with pytest.raises(ValueError, match="BCSR"):
        BCSR((data, columns, indptr), shape=(2,))
    with pytest.raises(NotImplementedError, match="two sparse axes"):
        BCSR.from_bcoo(BCOO.fromdense(np.ones(2)))
    with pytest.raises(ValueError, match="two sparse axes"):
        BCSR.fromdense(np.ones(2))
    with pytest.raises(ValueError, match="two sparse axes"):
        sparse.empty((3,), sparse_format="bcsr")
    with pytest.raises(NotImplementedError, match="to_bcoo"):
        BCSR.fromdense(np.ones((2, 2))).T  # noqa: B018  # the property raises
