"""`BCOO` and the functions that convert and move its elements, compared with JAX and with dense arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near, assert_same
from tests.sparse.layouts import LAYOUTS, Layout, jax_sparse, random_layouts
from tracefx import sparse
from tracefx.core import NDArray
from tracefx.errors import ConcretizationError, SparseEfficiencyError
from tracefx.sparse import BCOO

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=str)


def dense(layout: Layout, seed: int = 0) -> NDArray:
    """Returns the dense array, computed by a loop over the elements."""
    data, indices = layout.arrays(seed)
    n, m = layout.n_batch, layout.n_batch + layout.n_sparse
    out = np.zeros(layout.shape, data.dtype)
    for batch in np.ndindex(layout.shape[:n]):
        own_data = data[tuple([0 if data.shape[i] == 1 else k for i, k in enumerate(batch)])]
        own_indices = indices[tuple([0 if indices.shape[i] == 1 else k for i, k in enumerate(batch)])]
        for element, vector in zip(own_data, own_indices, strict=True):
            if all(0 <= i < size for i, size in zip(vector, layout.shape[n:m], strict=True)):
                out[(*batch, *vector)] += element
    return out


def assert_same_layout(got: BCOO, want: Any) -> None:
    """Compares the layouts and the flags with those of JAX, and the dense arrays."""
    for name in ("shape", "n_batch", "n_sparse", "n_dense", "nse", "dtype", "indices_sorted", "unique_indices"):
        assert getattr(got, name) == getattr(want, name), name
    assert got.indices.dtype == want.indices.dtype
    assert_near(got.todense(), np.asarray(want.todense()))


@each_layout
def test_todense(layout: Layout) -> None:
    assert_same(layout.make().todense(), fnp.asarray(dense(layout)))
    assert_same(np.asarray(layout.make().todense()), np.asarray(layout.make_jax().todense()))


def test_todense_of_random_layouts() -> None:
    for seed, layout in random_layouts(60):
        assert_same(layout.make(seed).todense(), fnp.asarray(dense(layout, seed)))


@each_layout
def test_properties_match_jax(layout: Layout) -> None:
    got, want = layout.make(), layout.make_jax()
    assert repr(got) == repr(want)
    assert (got.ndim, got.size, got.dtype) == (want.ndim, want.size, want.dtype)
    if layout.shape:
        assert len(got) == len(want)


@pytest.mark.parametrize(
    ("shape", "n_batch", "n_dense"),
    [
        ((5,), 0, 0),
        ((3, 4), 0, 0),
        ((2, 3, 4), 1, 0),
        ((2, 3, 4), 1, 1),
        ((3, 4), 0, 2),
        ((2, 3), 2, 0),
    ],
)
@pytest.mark.parametrize("nse", [None, 0, 2, 30])
def test_fromdense_matches_jax(shape: tuple[int, ...], n_batch: int, n_dense: int, nse: int | None) -> None:
    rng = np.random.default_rng(0)
    x = np.where(rng.random(shape) < 0.5, rng.standard_normal(shape), 0).astype(np.float32)
    got = BCOO.fromdense(x, nse=nse, n_batch=n_batch, n_dense=n_dense)
    want = jax_sparse.BCOO.fromdense(x, nse=nse, n_batch=n_batch, n_dense=n_dense)
    assert_same_layout(got, want)
    assert_same(np.asarray(got.data), np.asarray(want.data))
    assert_same(np.asarray(got.indices), np.asarray(want.indices))
    if nse is None:
        assert_same(got.todense(), fnp.asarray(x))


def test_fromdense_of_traced_arrays_needs_nse() -> None:
    with pytest.raises(ConcretizationError, match="pass nse=, an integer"):
        fx.jit(lambda x: BCOO.fromdense(x).data)(np.ones(3))
    assert fx.jit(lambda x: BCOO.fromdense(x, nse=3))(np.ones(3)).nse == 3


def test_arrays_without_entries() -> None:
    for nse in (0, 2):
        mat = BCOO.fromdense(np.ones((0, 3)), nse=nse)
        assert (mat.nse, mat.todense().shape, (mat @ np.ones(3)).shape) == (nse, (0, 3), (0,))
        assert (np.ones(0) @ mat).tolist() == [0.0, 0.0, 0.0]
        assert sparse.bcoo_extract(mat, np.ones((0, 3))).data.tolist() == [0.0] * nse


def test_scipy_matrices() -> None:
    x = np.array([[0, 2.0], [3, 0]], np.float32)
    for mat in (scipy.sparse.coo_matrix(x), scipy.sparse.csr_array(x)):
        assert_same_layout(BCOO.from_scipy_sparse(mat), jax_sparse.BCOO.from_scipy_sparse(mat))
    with pytest.raises(NotImplementedError, match="update_layout"):
        BCOO.from_scipy_sparse(scipy.sparse.coo_matrix(x), n_batch=1)


@each_layout
def test_sort_indices(layout: Layout) -> None:
    got = layout.make().sort_indices()
    assert got.indices_sorted
    assert_near(got.todense(), dense(layout))
    if layout.n_sparse:
        vectors = np.asarray(got.indices)
        for each in vectors.reshape(math.prod(vectors.shape[:-2]), *vectors.shape[-2:]):
            assert each.tolist() == sorted(each.tolist())


@each_layout
def test_sum_duplicates(layout: Layout) -> None:
    for remove_zeros in (True, False):
        got = layout.make().sum_duplicates(remove_zeros=remove_zeros)
        assert got.indices_sorted
        assert got.unique_indices
        assert_near(got.todense(), dense(layout))
        assert_same_layout(got, layout.make_jax().sum_duplicates(remove_zeros=remove_zeros))
    padded = layout.make().sum_duplicates(nse=layout.nse + 2, remove_zeros=False)
    assert padded.nse == layout.nse + 2
    assert_near(padded.todense(), dense(layout))


def test_sum_duplicates_drops_surplus_elements() -> None:
    mat = BCOO((np.array([1.0, 2.0, 3.0]), np.array([[2], [0], [2]])), shape=(3,))
    assert mat.sum_duplicates(nse=1).todense().tolist() == [2.0, 0.0, 0.0]
    with pytest.raises(ConcretizationError, match="pass nse="):
        fx.jit(lambda m: m.sum_duplicates().data)(mat)
    assert fx.jit(lambda m: m.sum_duplicates(nse=2))(mat).data.tolist() == [2.0, 4.0]


def test_update_layout_of_random_layouts() -> None:
    rng = np.random.default_rng(3)
    for seed, layout in random_layouts(60):
        mat, rank = layout.make(seed), len(layout.shape)
        n_batch = int(rng.integers(0, rank + 1))
        n_dense = int(rng.integers(0, rank - n_batch + 1))
        got = mat.update_layout(n_batch=n_batch, n_dense=n_dense, on_inefficient=None)
        assert (got.n_batch, got.n_dense, got.shape) == (n_batch, n_dense, layout.shape)
        assert_near(got.todense(), dense(layout, seed))


def test_update_layout_reports_inefficient_layouts() -> None:
    mat = BCOO.fromdense(np.eye(3))
    for change in ({"n_batch": 1}, {"n_dense": 1}):
        with pytest.raises(SparseEfficiencyError, match=r"stores all zeros along axes of the sizes \(3,\)"):
            mat.update_layout(**change)  # type: ignore[arg-type]  # the keywords are integers
        with pytest.warns(sparse.SparseEfficiencyWarning):
            mat.update_layout(**change, on_inefficient="warn")
    for wrong in ({"n_batch": -1}, {"n_dense": 3}, {"on_inefficient": "never"}):
        with pytest.raises(ValueError, match="update_layout"):
            sparse.bcoo_update_layout(mat, **{"n_batch": 1, **wrong})  # type: ignore[arg-type]  # wrong arguments


@each_layout
def test_extract(layout: Layout) -> None:
    x = np.arange(1, math.prod(layout.shape) + 1, dtype=np.float32).reshape(layout.shape)
    mat = layout.make()
    pattern = BCOO((np.ones_like(mat.data), mat.indices), shape=mat.shape)
    present = np.asarray(pattern.todense()) != 0
    got = sparse.bcoo_extract(mat, x)
    assert_near(got.todense(), np.where(present, x, 0))
    assert_same(got.indices, mat.indices)
    if layout.n_sparse and present.size:  # JAX fails for arrays without entries
        want = jax_sparse.bcoo_extract(layout.make_jax(), x, assume_unique=True)
        assert_same(np.asarray(sparse.bcoo_extract(mat, x, assume_unique=True).data), np.asarray(want.data))


def test_extract_rejects_other_arguments() -> None:
    with pytest.raises(TypeError, match="sparr must be a BCOO"):
        sparse.bcoo_extract(np.ones(2), np.ones(2))  # type: ignore[arg-type]  # a dense array
    with pytest.raises(ValueError, match="must have the shape"):
        sparse.bcoo_extract(BCOO.fromdense(np.ones(2)), np.ones(3))


# ------------------------------------------------------------------ movement


def check_random(
    apply: Callable[[BCOO, Any], BCOO], expect: Callable[[NDArray, Any], Any], draw: Callable[..., Any]
) -> None:
    """Compares a function with the one of dense arrays, for random layouts and parameters."""
    rng = np.random.default_rng(5)
    for seed, layout in random_layouts(50):
        parameters = draw(rng, layout)
        got = apply(layout.make(seed), parameters)
        want = expect(dense(layout, seed), parameters)
        assert got.shape == want.shape
        assert_near(got.todense(), want, what=f"{layout} {parameters}")


def within_kinds(rng: np.random.Generator, layout: Layout) -> list[int]:
    n, m = layout.n_batch, layout.n_batch + layout.n_sparse
    return [*rng.permutation(n), *(n + rng.permutation(m - n)), *(m + rng.permutation(layout.n_dense))]


def test_transpose() -> None:
    check_random(lambda m, order: m.transpose(order), np.transpose, within_kinds)
    mat = BCOO.fromdense(np.ones((2, 3, 4)), n_batch=1)
    with pytest.raises(NotImplementedError, match="mixes"):
        mat.transpose((1, 0, 2))
    with pytest.raises(TypeError, match="not a permutation"):
        sparse.bcoo_transpose(mat, permutation=(0, 0, 1))


def some_axes(rng: np.random.Generator, layout: Layout) -> tuple[int, ...]:
    return tuple([i for i in range(len(layout.shape)) if rng.random() < 0.5])


def test_reduce_sum() -> None:
    check_random(lambda m, axes: sparse.bcoo_reduce_sum(m, axes=axes), lambda x, axes: x.sum(axes), some_axes)


def test_rev() -> None:
    check_random(sparse.bcoo_rev, np.flip, some_axes)


def test_squeeze() -> None:
    ones = lambda rng, layout: tuple([i for i, n in enumerate(layout.shape) if n == 1])  # noqa: E731
    check_random(lambda m, axes: sparse.bcoo_squeeze(m, dimensions=axes), lambda x, axes: x.squeeze(axes), ones)
    with pytest.raises(ValueError, match="must have size 1"):
        sparse.bcoo_squeeze(BCOO.fromdense(np.ones(2)), dimensions=(0,))


def test_squeeze_keeps_padding() -> None:
    mat = BCOO((np.ones(2, np.float32), np.array([[0, 1], [1, 2]])), shape=(1, 3))
    assert sparse.bcoo_squeeze(mat, dimensions=(0,)).todense().tolist() == [0.0, 1.0, 0.0]


def bounds(rng: np.random.Generator, layout: Layout) -> list[slice]:
    starts = [int(rng.integers(0, n + 1)) for n in layout.shape]
    stops = [int(rng.integers(start, n + 1)) for start, n in zip(starts, layout.shape, strict=True)]
    return [slice(a, b, int(rng.integers(1, 3))) for a, b in zip(starts, stops, strict=True)]


def test_slice() -> None:
    check_random(
        lambda m, s: sparse.bcoo_slice(
            m,
            start_indices=[each.start for each in s],
            limit_indices=[each.stop for each in s],
            strides=[each.step for each in s],
        ),
        lambda x, s: x[tuple(s)],
        bounds,
    )
    with pytest.raises(TypeError, match="start_indices"):
        sparse.bcoo_slice(BCOO.fromdense(np.ones(2)), start_indices=(0,), limit_indices=(3,))


def test_slices_have_no_more_elements_than_entries() -> None:
    mat = BCOO.fromdense(np.ones((4, 4)))
    assert sparse.bcoo_slice(mat, start_indices=(0, 0), limit_indices=(1, 2)).nse == 2
    assert sparse.bcoo_dynamic_slice(mat, (0, 0), (1, 2)).nse == 2


def window(rng: np.random.Generator, layout: Layout) -> list[tuple[int, int]]:
    return [(int(rng.integers(-n, n + 2)), int(rng.integers(0, n + 1))) for n in layout.shape]


def test_dynamic_slice() -> None:
    def expect(x: NDArray, windows: Any) -> Any:
        return fx.lax.dynamic_slice(x, [a for a, _ in windows], [n for _, n in windows]) if windows else x

    check_random(
        lambda m, w: sparse.bcoo_dynamic_slice(m, [a for a, _ in w], [n for _, n in w]),
        lambda x, w: np.asarray(expect(x, w)),
        window,
    )
    with pytest.raises(TypeError, match="at most its size"):
        sparse.bcoo_dynamic_slice(BCOO.fromdense(np.ones(2)), (0,), (3,))


def test_reshape() -> None:
    def draw(rng: np.random.Generator, layout: Layout) -> tuple[int, ...]:
        n, m = layout.n_batch, layout.n_batch + layout.n_sparse
        new: list[int] = []
        for part in (layout.shape[:n], layout.shape[n:m], layout.shape[m:]):
            options = [[math.prod(part)], list(part), list(reversed(part))]
            new += options[int(rng.integers(3))]
        return tuple(new)

    check_random(lambda m, sizes: m.reshape(sizes), np.reshape, draw)
    mat = BCOO.fromdense(np.ones((2, 3, 4)), n_batch=1)
    with pytest.raises(ValueError, match="mixes"):
        mat.reshape(3, 2, 4)
    moved = sparse.bcoo_reshape(mat, new_sizes=(2, 12), dimensions=(0, 2, 1))
    assert_same(moved.todense(), fnp.ones((2, 12)))


def test_broadcast_in_dim() -> None:
    def draw(rng: np.random.Generator, layout: Layout) -> tuple[list[int], list[int]]:
        n = len(layout.shape)
        dims = sorted([int(i) for i in rng.choice(n + 2, n, replace=False)])
        shape = [int(k) for k in rng.integers(1, 3, n + 2)]
        for size, i in zip(layout.shape, dims, strict=True):
            shape[i] = size
        first, last = layout.n_batch, layout.n_batch + layout.n_sparse
        sparse_axes = dims[first:last]
        for i in range(min(sparse_axes, default=0), max([*sparse_axes, *dims[last:]], default=-1)):
            shape[i] = shape[i] if i in dims else 1
        if layout.n_sparse and not layout.n_dense:
            shape[max(sparse_axes) + 1 :] = [1] * (len(shape) - 1 - max(sparse_axes))
        return shape, dims

    check_random(
        lambda m, p: sparse.bcoo_broadcast_in_dim(m, shape=p[0], broadcast_dimensions=p[1]),
        lambda x, p: np.asarray(fx.lax.broadcast_in_dim(x, *p)),
        draw,
    )
    with pytest.raises(NotImplementedError, match="repeated along sparse axes"):
        sparse.bcoo_broadcast_in_dim(BCOO.fromdense(np.ones(1)), shape=(3,), broadcast_dimensions=(0,))


@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_concatenate(dimension: int) -> None:
    layouts = [Layout((2, 3, 4), 1, nse=k) for k in (0, 3, 5)]
    mats = [layout.make(seed) for seed, layout in enumerate(layouts)]
    got = sparse.bcoo_concatenate(mats, dimension=dimension)
    assert_near(got.todense(), np.concatenate([dense(a, i) for i, a in enumerate(layouts)], dimension))
    want = jax_sparse.bcoo_concatenate([a.make_jax(i) for i, a in enumerate(layouts)], dimension=dimension)
    assert (got.nse, got.n_batch) == (want.nse, want.n_batch)


def test_concatenate_aligns_a_batch_axis_of_size_1() -> None:
    one, more = BCOO.fromdense(np.ones((1, 3)), n_batch=1), BCOO.fromdense(np.ones((2, 3)))
    assert sparse.bcoo_concatenate([one, more], dimension=0).n_batch == 0
    with pytest.raises(ValueError, match="numbers of batch and dense axes differ"):
        sparse.bcoo_concatenate([BCOO.fromdense(np.ones((2, 3)), n_batch=1), more], dimension=0)
    with pytest.raises(NotImplementedError, match="dense axis"):
        sparse.bcoo_concatenate([BCOO.fromdense(np.ones((2, 3)), n_dense=1)] * 2, dimension=1)
    with pytest.raises(ValueError, match="must be BCOO"):
        sparse.bcoo_concatenate([more, np.ones((2, 3))], dimension=0)  # type: ignore[list-item]  # a dense array


INDICES: list[Any] = [
    1,
    -1,
    (1, 2),
    slice(1, None),
    (slice(None), slice(None, None, 2)),
    (slice(None), 1),
    None,
    (..., None),
    np.array([2, 0]),
    (np.array([2, 0]), np.array([1, 1])),
    (slice(None), np.array([0, 3, 3])),
    slice(2, 2),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing(index: Any) -> None:
    layout = Layout((3, 4), nse=8)
    got, want = layout.make()[index], dense(layout)[index]
    assert got.shape == want.shape
    assert_near(got.todense(), want)
    traced = fx.jit(lambda m, i: m[i].todense())
    assert_near(traced(layout.make(), 2), dense(layout)[2])
    assert [each.shape for each in layout.make()] == [(4,)] * 3


# ------------------------------------------------------------------ construction


def test_invalid_arrays() -> None:
    data, indices = np.ones(2), np.zeros((2, 1), np.int32)
    with pytest.raises(TypeError, match="indices must be integers"):
        BCOO((data, indices.astype(np.float32)), shape=(3,))
    for arrays, shape in [
        ((data, indices), ()),
        ((np.ones(3), indices), (3,)),
        ((data, indices[0]), (3,)),
        ((np.ones((2, 2)), np.zeros((3, 2, 1), np.int32)), (3, 3)),
        ((np.ones((2, 2)), np.zeros((2, 2, 1), np.int32)), (3, 3)),
        ((data, indices), (3, 4)),
    ]:
        with pytest.raises(ValueError, match="BCOO"):
            BCOO(arrays, shape=shape)


def test_empty_and_eye_match_jax() -> None:
    for shape, options in [((3, 4), {}), ((2, 3, 4), {"n_batch": 1, "nse": 2}), ((3, 4), {"n_dense": 1})]:
        got = sparse.empty(shape, **options)  # type: ignore[call-overload]  # keywords in a dict
        assert_same_layout(got, jax_sparse.empty(shape, **options))
    for N, M, k in [(3, None, 0), (3, 4, 1), (4, 3, -2), (3, 3, 5), (2, 5, -1)]:
        for options in ({}, {"n_batch": 1}, {"n_dense": 1}, {"n_batch": 1, "n_dense": 1}, {"n_batch": 2}):
            got = sparse.eye(N, M, k, **options)  # type: ignore[call-overload]  # as above
            assert (got.n_batch, got.n_dense) == (options.get("n_batch", 0), options.get("n_dense", 0))
            assert_same(got.todense(), fnp.eye(N, M, k))
    assert_same_layout(sparse.eye(3, 4, 1), jax_sparse.eye(3, 4, 1))
    with pytest.raises(ValueError, match="sparse_format"):
        sparse.empty((3,), sparse_format="coo")  # type: ignore[call-overload]  # an unknown format
    with pytest.raises(ValueError, match="do not fit"):
        sparse.empty((3,), n_batch=2)


def test_random_bcoo() -> None:
    key = fx.random.key(0)
    for options in ({}, {"n_batch": 1}, {"n_dense": 1}, {"nse": 3, "sorted_indices": True}, {"nse": 0.9}):
        got = sparse.random_bcoo(key, (4, 5, 6), **options)
        sizes = got.sparse_shape
        wanted = options.get("nse", 0.2)
        assert got.nse == (math.ceil(wanted * math.prod(sizes)) if wanted < 1 else wanted)
        again = got.sum_duplicates(nse=got.nse)
        assert int(fnp.count_nonzero(again.todense())) == got.data.size
    with pytest.raises(ValueError, match="nse must be below 4"):
        sparse.random_bcoo(key, (4,), nse=4)


def test_todense_function() -> None:
    mat = BCOO.fromdense(np.eye(2))
    assert_same(sparse.todense(mat), mat.todense())
    assert_same(sparse.todense(np.eye(2)), fnp.eye(2))
    assert_same(sparse.bcoo_todense(sparse.bcoo_fromdense(np.eye(2))), fnp.eye(2))
