"""Contractions and elementwise arithmetic of sparse arrays, compared with dense arrays and with JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near, assert_same
from tests.sparse.layouts import LAYOUTS, Layout, jax_sparse, random_layouts
from tracefx import lax, sparse
from tracefx.core import NDArray
from tracefx.sparse import BCOO

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=str)


def dense(mat: BCOO) -> NDArray:
    return np.asarray(mat.todense())


def integers(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray:
    return rng.integers(-3, 4, shape).astype(np.float32)


def draw_contraction(rng: np.random.Generator, layout: Layout) -> tuple[Any, NDArray]:
    """Returns dimension numbers that a sparse array with this layout supports, and the dense operand."""
    n, m = layout.n_batch, layout.n_batch + layout.n_sparse
    batch = [int(i) for i in rng.permutation(n)[: rng.integers(0, n + 1)]]
    rest = [i for i in range(m) if i not in batch]
    contracted = [int(i) for i in rng.permutation(rest)[: rng.integers(0, len(rest) + 1)]]
    sizes = [layout.shape[i] for i in (*batch, *contracted)] + [int(k) for k in rng.integers(1, 4, rng.integers(0, 3))]
    order = [int(i) for i in rng.permutation(len(sizes))]
    at = [order.index(i) for i in range(len(batch) + len(contracted))]
    numbers = ((contracted, at[len(batch) :]), (batch, at[: len(batch)]))
    return numbers, integers(rng, tuple([sizes[i] for i in order]))


def test_dot_general_of_random_layouts() -> None:
    rng = np.random.default_rng(1)
    for seed, layout in random_layouts(80):
        mat = layout.make(seed)
        numbers, other = draw_contraction(rng, layout)
        got = sparse.bcoo_dot_general(mat, other, dimension_numbers=numbers)
        assert_near(got, lax.dot_general(dense(mat), other, numbers), what=f"{layout} {numbers}")
        (lc, rc), (lb, rb) = numbers
        flipped = ((rc, lc), (rb, lb))
        got = sparse.bcoo_dot_general(other, mat, dimension_numbers=flipped)
        assert_near(got, lax.dot_general(other, dense(mat), flipped), what=f"{layout} {flipped}")


@pytest.mark.parametrize("layout", [LAYOUTS[i] for i in (1, 4, 7)], ids=str)
def test_dot_general_matches_jax(layout: Layout) -> None:
    rng = np.random.default_rng(2)
    for _ in range(2):
        numbers, other = draw_contraction(rng, layout)
        got = sparse.bcoo_dot_general(layout.make(), other, dimension_numbers=numbers)
        want = jax_sparse.bcoo_dot_general(layout.make_jax(), other, dimension_numbers=numbers)
        assert_near(got, np.asarray(want))


def test_dot_general_of_two_sparse_arrays() -> None:
    rng = np.random.default_rng(4)
    for seed, layout in random_layouts(60):
        if layout.n_dense:
            continue
        mat, n = layout.make(seed), layout.n_batch
        batch = [int(i) for i in rng.permutation(n)[: rng.integers(0, n + 1)]]
        contracted = [n + int(i) for i in range(layout.n_sparse) if rng.random() < 0.6]
        own = [2] if len(contracted) == layout.n_sparse and rng.random() < 0.5 else []
        sizes = [layout.shape[i] for i in contracted] + [3] * int(rng.integers(0, 2))
        order = [int(i) for i in rng.permutation(len(sizes))]
        other_layout = Layout(
            (*[layout.shape[i] for i in batch], *own, *[sizes[i] for i in order]), len(batch) + len(own), nse=3
        )
        other = other_layout.make(seed)
        first = len(batch) + len(own)
        numbers = (
            (contracted, [first + order.index(i) for i in range(len(contracted))]),
            (batch, list(range(len(batch)))),
        )
        got = sparse.bcoo_dot_general(mat, other, dimension_numbers=numbers)
        assert isinstance(got, BCOO)
        assert got.unique_indices
        assert_near(got.todense(), lax.dot_general(dense(mat), dense(other), numbers), what=f"{layout} {numbers}")


def test_product_of_sparse_matrices_matches_jax() -> None:
    x, y = Layout((3, 4)), Layout((4, 5), nse=3)
    got, want = x.make() @ y.make(1), x.make_jax() @ y.make_jax(1)
    assert got.nse == want.nse
    assert_same(np.asarray(got.todense()), np.asarray(want.todense()))


def test_unsupported_contractions() -> None:
    mat = Layout((3, 4, 2), n_dense=1).make()
    batched = Layout((2, 3, 4), n_batch=1).make()
    cases: list[tuple[Any, Any, Any, type[Exception], str]] = [
        (mat, np.ones(2), (((2,), (0,)), ((), ())), NotImplementedError, "dense axes"),
        (mat, np.ones(3), (((), ()), ((0,), (0,))), NotImplementedError, "must be batch axes"),
        (mat, mat, (((0,), (0,)), ((), ())), NotImplementedError, "dense axes"),
        (batched, batched, (((0,), (0,)), ((), ())), NotImplementedError, "must be sparse axes"),
        (batched, batched, (((1,), (1,)), ((), ())), ValueError, "come after sparse axes"),
        (batched, np.ones(5), (((2,), (0,)), ((), ())), TypeError, "dot_general"),
    ]
    for x, y, numbers, error, message in cases:
        with pytest.raises(error, match=message):
            sparse.bcoo_dot_general(x, y, dimension_numbers=numbers)


def test_dot_general_sampled_of_random_axes() -> None:
    rng = np.random.default_rng(6)
    checked = 0
    while checked < 40:
        x = integers(rng, tuple([int(n) for n in rng.integers(1, 4, rng.integers(1, 4))]))
        used = [int(i) for i in rng.permutation(x.ndim)[: rng.integers(0, x.ndim + 1)]]
        batch, contracted = used[: len(used) // 2], used[len(used) // 2 :]
        sizes = [x.shape[i] for i in used] + [int(k) for k in rng.integers(1, 4, rng.integers(0, 3))]
        order = [int(i) for i in rng.permutation(len(sizes))]
        y = integers(rng, tuple([sizes[i] for i in order]))
        at = [order.index(i) for i in range(len(used))]
        numbers = ((contracted, at[len(batch) :]), (batch, at[: len(batch)]))
        product = np.asarray(lax.dot_general(x, y, numbers))
        if not product.ndim:
            continue
        n_batch = int(rng.integers(0, product.ndim))
        n_dense = int(rng.integers(0, product.ndim - n_batch))
        pattern = Layout(product.shape, n_batch, n_dense).make(checked)
        got = sparse.bcoo_dot_general_sampled(x, y, pattern.indices, dimension_numbers=numbers)
        want = sparse.bcoo_extract(pattern, product, assume_unique=True).data
        assert_near(got, want, what=f"{x.shape} {y.shape} {numbers} {pattern}")
        checked += 1


# ------------------------------------------------------------------ elementwise


def factors(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray:
    """Returns a dense array that broadcasts to a shape, without zeros."""
    sizes = tuple([n if rng.random() < 0.6 else 1 for n in shape])
    return (integers(rng, sizes[int(rng.integers(0, len(sizes) + 1)) :]) + 10).astype(np.float32)


def test_products_and_quotients_with_dense_arrays() -> None:
    rng = np.random.default_rng(8)
    for seed, layout in random_layouts(60):
        mat = layout.make(seed)
        factor = factors(rng, layout.shape)
        for got in (mat * factor, factor * mat, fnp.asarray(factor) * mat):
            assert_near(got.todense(), dense(mat) * factor, what=f"{layout} {factor.shape}")
        # Exact: each element is divided by its divisor.
        unique = mat.sum_duplicates(nse=mat.nse, remove_zeros=False)
        assert_same(np.asarray((unique / factor).todense()), (dense(unique) / factor).astype(np.float32))


def test_factors_are_not_stored_in_full() -> None:
    mat = BCOO.fromdense(np.eye(30, 40))
    program = fx.make_jaxpr(lambda m, v: (m * v).data)(mat, np.ones(40, np.float32))
    assert all(out.aval.size < 30 * 40 for eqn in program.eqns for out in eqn.outs)


def test_arithmetic_with_numbers_keeps_dtypes() -> None:
    for layout in (Layout((3, 4)), Layout((3, 4), dtype="int32"), Layout((3, 4), dtype="complex64")):
        mat, want = layout.make(), layout.make_jax()
        for apply in (lambda m: m * 2, lambda m: 2 * m, lambda m: m / 2, lambda m: m * 2.5, lambda m: -m, abs):
            got = apply(mat)
            assert got.dtype == apply(want).dtype
            assert_near(got.todense(), np.asarray(apply(want).todense()))
        assert mat.astype("float32").dtype == np.float32


@each_layout
def test_sums_and_differences(layout: Layout) -> None:
    x, y = layout.make(), layout.make(1)
    assert_near((x + y).todense(), dense(x) + dense(y))
    assert_near((x - y).todense(), dense(x) - dense(y))
    full = np.ones(layout.shape, layout.dtype)
    assert_near(x + full, dense(x) + full)
    assert_near(full + x, dense(x) + full)
    assert (x + x).nse == x.nse
    assert_near((x + x).todense(), 2 * dense(x))


def test_products_of_sparse_arrays() -> None:
    rng = np.random.default_rng(9)
    for seed, layout in random_layouts(40):
        x = layout.make(seed)
        shape = tuple([n if rng.random() < 0.6 else 1 for n in layout.shape])
        y = Layout(shape, int(rng.integers(0, layout.n_batch + layout.n_sparse + 1)), layout.n_dense, 3).make(seed)
        for a, b in ((x, y), (y, x)):
            got = a * b
            assert_near(got.todense(), dense(a) * dense(b), what=f"{a!r} {b!r}")
    unique = BCOO.fromdense(np.eye(3))
    assert (unique * unique).nse == 3
    with pytest.raises(TypeError, match="different numbers of axes"):
        sparse.bcoo_multiply_sparse(unique, unique[0])
    with pytest.raises(NotImplementedError, match="different numbers of dense axes"):
        sparse.bcoo_multiply_sparse(unique, BCOO.fromdense(np.eye(3), n_dense=1))


def test_powers_and_functions_sum_duplicates_first() -> None:
    mat = BCOO((np.array([1.0, 2.0], np.float32), np.array([[1], [1]])), shape=(3,))
    assert (mat**2).todense().tolist() == [0.0, 9.0, 0.0]
    assert_near(sparse.sparsify(fnp.sin)(mat).todense(), np.sin(dense(mat)))
    assert abs(BCOO((np.array([-1.0, 2.0]), np.array([[1], [1]])), shape=(3,))).todense().tolist() == [0.0, 1.0, 0.0]


OPERATIONS: dict[str, Callable[[BCOO], object]] = {
    "equal": lambda m: m == m,
    "less": lambda m: m < 1,
    "add a number": lambda m: m + 1,
    "subtract a dense array": lambda m: m - np.ones((3, 3)),
    "subtract from a dense array": lambda m: np.ones((3, 3)) - m,
    "divide by": lambda m: 1 / m,
    "zero power": lambda m: m**0,
    "negative power": lambda m: m**-1,
    "power of a number": lambda m: 2**m,
    "different layouts": lambda m: m + m.update_layout(n_batch=1, on_inefficient=None),
    "different shapes": lambda m: m + m[:1],
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_results_that_would_be_dense_are_refused(name: str) -> None:
    x = np.eye(3, dtype=np.float32)
    for mat in (BCOO.fromdense(x), jax_sparse.BCOO.fromdense(x)):
        with pytest.raises(NotImplementedError):
            OPERATIONS[name](mat)
    with pytest.raises(NotImplementedError, match=r"test_products\.py"):
        OPERATIONS[name](BCOO.fromdense(x))


@pytest.mark.parametrize("k", [None, 0, 2])
def test_matmul(k: int | None) -> None:
    rng = np.random.default_rng(3)
    mat = Layout((3, 4), nse=6).make()
    other = integers(rng, (4,) if k is None else (4, k))
    assert_near(mat @ other, dense(mat) @ other)
    assert_near(other.T @ mat.T, other.T @ dense(mat).T)
    assert_near(fnp.asarray(other.T) @ mat.T, other.T @ dense(mat).T)
    batched = Layout((2, 3, 4), n_batch=1).make()
    assert_near(batched @ other, dense(batched) @ other)


def test_large_eager_products_are_compiled() -> None:
    rng = np.random.default_rng(0)
    indices = rng.integers(0, 100, (70_000, 2))
    data = integers(rng, (70_000,))
    mat, vector = BCOO((data, indices), shape=(100, 100)), integers(rng, (100,))
    want = np.zeros((100, 100))
    np.add.at(want, tuple(indices.T), data)
    for _ in range(2):
        assert_near(mat @ vector, (want @ vector).astype(np.float32))
