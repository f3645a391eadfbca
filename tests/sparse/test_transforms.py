"""Derivatives by sparse arrays, batches of them, and compiled functions of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near, assert_same
from tests.sparse.layouts import LAYOUTS, Layout, jax_sparse
from tracefx import sparse
from tracefx.sparse import BCOO, BCSR
from tracefx.testing import check_grads

FLOAT_LAYOUTS = [layout for layout in LAYOUTS if layout.dtype == "float32"]
each_layout = pytest.mark.parametrize("layout", FLOAT_LAYOUTS, ids=str)


def functions(layout: Layout) -> dict[str, Callable[[BCOO], Any]]:
    """Returns differentiable functions of a sparse array with this layout."""
    ones = np.linspace(1, 2, int(np.prod(layout.shape)), dtype=np.float32).reshape(layout.shape)
    found: dict[str, Callable[[BCOO], Any]] = {
        "todense": lambda m: m.todense(),
        "scaled": lambda m: (m * ones).todense(),
        "summed": lambda m: m.sum_duplicates(nse=m.nse, remove_zeros=False).data ** 2,
        "sorted": lambda m: m.sort_indices().data ** 2,
        "total": lambda m: m.sum() ** 2,
        "layout": lambda m: m.update_layout(n_batch=0, n_dense=0).data ** 2,
    }
    if layout.n_sparse:
        v = np.linspace(-1, 1, layout.shape[layout.n_batch], dtype=np.float32)
        numbers = (((layout.n_batch,), (0,)), ((), ()))
        found["product"] = lambda m: sparse.bcoo_dot_general(m, v, dimension_numbers=numbers)
    return found


@each_layout
def test_derivatives_by_the_data(layout: Layout) -> None:
    mat = layout.make()
    for name, f in functions(layout).items():

        def by_data(data: Any, f: Callable[[BCOO], Any] = f) -> Any:
            return f(mat.with_data(data))

        assert_same(fx.jit(by_data)(mat.data).shape, by_data(mat.data).shape)
        assert_near(fx.jit(by_data)(mat.data), by_data(mat.data), what=name)
        if mat.data.size:
            check_grads(by_data, mat.data)


@each_layout
def test_batches_of_sparse_arrays(layout: Layout) -> None:
    mats = [layout.make(seed) for seed in range(3)]
    stacked = fx.tree.map(lambda *xs: fnp.stack(xs), *mats)
    assert (stacked.shape, stacked.n_batch) == ((3, *layout.shape), layout.n_batch + 1)
    for name, f in functions(layout).items():
        want = fnp.stack([f(mat) for mat in mats])
        assert_near(fx.vmap(f)(stacked), want, what=name)
        data = fnp.stack([mat.data for mat in mats])
        only_data = fx.vmap(lambda data, f=f: f(mats[0].with_data(data)))(data)
        assert_near(only_data, fnp.stack([f(mats[0].with_data(each)) for each in data]), what=name)


def test_conversions_under_vmap() -> None:
    x = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    got = fx.vmap(lambda m: BCOO.fromdense(m, nse=12))(x)
    assert (got.n_batch, got.shape) == (1, (2, 3, 4))
    assert_same(got.todense(), fnp.asarray(x))
    assert fx.vmap(lambda m: m.T)(got).shape == (2, 4, 3)
    assert_near(fx.vmap(lambda m, v: m @ v, in_axes=(0, None))(got, np.ones(4)), x.sum(2))
    rows = fx.vmap(lambda m: BCSR.fromdense(m, nse=12))(x)
    assert_near(fx.vmap(lambda m, v: m @ v, in_axes=(0, None))(rows, np.ones(4)), x.sum(2))


def test_only_batch_axes_are_mapped() -> None:
    x = np.ones((2, 3, 4), np.float32)
    for cls in (BCOO, BCSR):
        mat = cls.fromdense(x, n_batch=1)
        for axis in (1, -1):
            with pytest.raises(ValueError, match="only batch axes of sparse arrays can be mapped"):
                fx.vmap(lambda m: m.todense(), in_axes=axis)(mat)
            with pytest.raises(ValueError, match="only batch axes of sparse arrays can be mapped"):
                fx.vmap(lambda m: m, out_axes=axis)(mat)
    with pytest.raises(ValueError, match="a BCOO with 0 batch axes"):
        fx.vmap(lambda m: m.todense())(BCOO.fromdense(x))
    with pytest.raises(ValueError, match="Cannot map"):
        jax.vmap(lambda m: m.todense())(jax_sparse.BCOO.fromdense(x))


def test_scans_over_batch_axes() -> None:
    x = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    mat = BCOO.fromdense(x, n_batch=1)
    total, doubled = fx.lax.scan(lambda c, m: (c + m @ np.ones(4, np.float32), m * 2), fnp.zeros(3), mat)
    assert_near(total, x.sum((0, 2)))
    assert (doubled.n_batch, doubled.shape) == (1, (2, 3, 4))
    assert_same(doubled.todense(), fnp.asarray(2 * x))
    with pytest.raises(ValueError, match="without batch axes has been split"):
        fx.lax.scan(lambda c, m: (c, m.todense()), 0.0, BCOO.fromdense(x))


# ------------------------------------------------------------------ sparse derivatives

X = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]], np.float32)
Y = np.array([1.0, -2.0, 0.5], np.float32)


def test_grad_has_the_same_elements() -> None:
    def loss(m: Any, y: Any) -> Any:
        return ((m @ y) ** 2).sum()

    dense = fx.grad(loss)(X, Y)
    for mat in (BCOO.fromdense(X), BCSR.fromdense(X)):
        got = sparse.grad(loss)(mat, Y)
        assert type(got) is type(mat)
        assert_same(got.indices, mat.indices)
        assert_near(got.todense(), np.where(X != 0, dense, 0))
        value, both = sparse.value_and_grad(loss, argnums=(0, 1))(mat, Y)
        assert_near(value, loss(X, Y))
        assert_near(both[0].todense(), got.todense())
        assert_near(both[1], fx.grad(loss, 1)(X, Y))
        compiled = fx.jit(sparse.grad(loss))(mat, Y)
        assert_near(compiled.todense(), got.todense())
    want = jax_sparse.grad(loss)(jax_sparse.BCOO.fromdense(X), Y)
    assert_near(sparse.grad(loss)(BCOO.fromdense(X), Y).data, np.asarray(want.data))


def test_grad_of_pytrees_and_with_other_results() -> None:
    params = {"w": BCOO.fromdense(X), "b": np.ones(2, np.float32)}

    def loss(params: Any) -> Any:
        out = params["w"] @ Y + params["b"]
        return (out**2).sum(), out

    grads, out = sparse.grad(loss, has_aux=True)(params)
    assert_near(out, X @ Y + 1)
    assert_near(grads["b"], 2 * (X @ Y + 1))
    assert_near(grads["w"].todense(), np.where(X != 0, np.outer(grads["b"], Y), 0))


@pytest.mark.parametrize("name", ["jacfwd", "jacrev", "jacobian"])
def test_jacobians(name: str) -> None:
    def f(m: Any, y: Any) -> Any:
        return fnp.sin(m @ y)

    dense = np.asarray(fx.jacrev(f)(X, Y))
    for mat in (BCOO.fromdense(X), BCSR.fromdense(X)):
        got = getattr(sparse, name)(f)(mat, Y)
        assert got.shape == (2, 2, 3)
        assert_near(got.todense(), np.where(X != 0, dense, 0))
    by_mat, by_y = getattr(sparse, name)(f, argnums=(0, 1))(BCOO.fromdense(X), Y)
    assert_near(by_mat.todense(), np.where(X != 0, dense, 0))
    assert_near(by_y, fx.jacrev(f, 1)(X, Y))
    tree, aux = getattr(sparse, name)(lambda m: ({"a": f(m, Y)}, m.nse), has_aux=True)(BCOO.fromdense(X))
    assert_near(tree["a"].todense(), np.where(X != 0, dense, 0))
    assert aux == 3
    want = getattr(jax_sparse, name)(lambda m: m @ Y)(jax_sparse.BCOO.fromdense(X))
    assert_near(getattr(sparse, name)(lambda m: m @ Y)(BCOO.fromdense(X)).todense(), np.asarray(want.todense()))


def test_derivatives_need_functions() -> None:
    for transform in (sparse.grad, sparse.value_and_grad, sparse.jacfwd, sparse.jacrev):
        with pytest.raises(TypeError, match="sparse"):
            transform(3)  # type: ignore[arg-type]  # not a function


def test_compiled_functions_are_traced_once() -> None:
    traced = []

    @fx.jit
    def f(m: BCOO, v: Any) -> Any:
        traced.append(m)
        return m @ v

    for seed in range(3):
        mat = Layout((3, 4)).make(seed)
        assert_near(f(mat, np.ones(4, np.float32)), mat.todense().sum(1))
    assert len(traced) == 1
    assert BCOO.fromdense(X).block_until_ready().nse == 3
