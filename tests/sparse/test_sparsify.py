"""`sparsify`: functions of dense arrays applied to sparse ones, eagerly, compiled, and with bodies of control flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near, assert_same
from tests.sparse.layouts import jax_sparse
from tracefx import lax, sparse
from tracefx.sparse import BCOO, BCSR, SparseArray, sparsify

M = np.array([[0.0, 2.0, 0.0, 1.0], [3.0, 0.0, 4.0, 0.0], [0.0, 0.5, 0.0, 0.0]], np.float32)
V = np.arange(4, dtype=np.float32)


def to_dense(tree: Any) -> Any:
    return fx.tree.map(
        lambda x: x.todense() if isinstance(x, SparseArray) else x, tree, is_leaf=lambda x: isinstance(x, SparseArray)
    )


def check(f: Callable[..., Any], *args: Any) -> Any:
    """Compares `f` of sparse arrays with `f` of dense ones, eagerly, compiled, and compiled inside `sparsify`."""
    want = f(*to_dense(args))
    eager = sparsify(f)(*args)
    for got in (eager, fx.jit(sparsify(f))(*args), sparsify(fx.jit(f))(*args)):
        assert fx.tree.structure(got) == fx.tree.structure(eager)
        fx.tree.map(assert_near, to_dense(got), want)
    return eager


_FUNCTIONS = (
    *("abs", "arctan", "arcsinh", "cbrt", "ceil", "conj", "expm1", "floor", "log1p", "negative", "positive", "real"),
    *("round", "sin", "sinh", "sqrt", "square", "tan", "tanh"),
)
ELEMENTWISE: dict[str, Callable[[Any], Any]] = {
    **{name: getattr(fnp, name) for name in _FUNCTIONS},
    "sign": lax.sign,
    "astype": lambda x: x.astype(np.int32),
    "erf": lax.erf,
    "bessel_i1e": lax.bessel_i1e,
    "integer power": lambda x: x**3,
    "stop_gradient": lax.stop_gradient,
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_functions_that_preserve_zeros_are_sparse(name: str) -> None:
    for mat in (BCOO.fromdense(M), BCSR.fromdense(M)):
        out = sparsify(ELEMENTWISE[name])(mat)
        assert type(out) is type(mat)
        assert_near(out.todense(), ELEMENTWISE[name](M))


@pytest.mark.parametrize("name", ["exp", "cos", "log", "greater", "maximum"])
def test_other_functions_are_refused_with_their_line(name: str) -> None:
    def f(np: Any, m: Any) -> Any:
        return getattr(np, name)(m, *[0.0] * (name in ("greater", "maximum")))

    with pytest.raises(NotImplementedError):
        jax_sparse.sparsify(lambda m: f(jnp, m))(jax_sparse.BCOO.fromdense(M))
    with pytest.raises(NotImplementedError, match=r"has no sparse rule: .*todense") as failure:
        sparsify(lambda m: f(fnp, m))(BCOO.fromdense(M))
    assert "test_sparsify.py" in str(failure.value)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "matrix and vector": lambda m, v: 2 * fnp.sin(m) @ v + 1,
    "transposed": lambda m, v: m.T @ (m @ v),
    "scaled columns": lambda m, v: (m * v).sum(0),
    "scaled rows": lambda m, v: m / (1 + m @ v)[:, None],
    "sum of squares": lambda m, v: (m**2).sum() + fnp.linalg.norm(m),
    "mean": lambda m, v: m.mean(0),
    "einsum": lambda m, v: fnp.einsum("ij,j->i", m, v),
    "joined": lambda m, v: fnp.concatenate([m, -m], 1),
    "stacked": lambda m, v: fnp.stack([m, 2 * m]),
    "rows": lambda m, v: (m[1:, ::2], m[fnp.array([2, 0])][:, :2]),
    "element": lambda m, v: m[1, 2] + m[0].sum(),
    "dynamic slice": lambda m, v: lax.dynamic_slice(m, (v[1].astype(int), 0), (2, 3)),
    "dense arrays only": lambda m, v: fnp.exp(v) + fnp.zeros((4,)),
    "outer product": lambda m, v: m[:, :1] * m[:1],
    "sum with constants": lambda m, v: m + fnp.ones((3, 4)),
    "todense": lambda m, v: sparse.todense(m) + 1,
    "fori_loop": lambda m, v: lax.fori_loop(0, 3, lambda i, x: x + m.T @ (m @ x), v),
    "carried": lambda m, v: lax.fori_loop(0, 3, lambda i, x: 2 * x, m),
    "while_loop": lambda m, v: lax.while_loop(lambda x: x.sum() < 100, lambda x: x * 3, m),
    "cond": lambda m, v: lax.cond(v.sum() > 0, lambda m: m * 2, lambda m: -m, m),
    "cond with sparse predicate": lambda m, v: lax.cond(m.sum() > 0, lambda: m @ v, lambda: fnp.zeros(3)),
    "switch": lambda m, v: lax.switch(1, [lambda m: m, lambda m: m * 2], m),
    "scan": lambda m, v: lax.scan(lambda c, x: (c + x * (m @ v), c.sum()), fnp.zeros(3), v),
    "custom rule": lambda m, v: fx.nn.relu(m @ v - 3),
    "checkpoint": lambda m, v: fx.checkpoint(lambda m, v: fnp.sin(m) @ v)(m, v),
    "gradient of dense arguments": lambda m, v: fx.grad(lambda v: ((m @ v) ** 2).sum())(v),
    "pytrees": lambda m, v: {"a": m, "b": (m @ v, v)},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    check(PROGRAMS[name], BCOO.fromdense(M), V)


@pytest.mark.parametrize("name", ["matrix and vector", "joined", "fori_loop", "cond", "carried"])
def test_programs_of_compressed_rows(name: str) -> None:
    check(PROGRAMS[name], BCSR.fromdense(M), V)


def test_scan_over_batch_axes() -> None:
    batched = BCOO.fromdense(M, n_batch=1)
    _, doubled = check(lambda m, v: lax.scan(lambda c, row: (c + row @ v, 2 * row), 0.0, m), batched, V)
    assert isinstance(doubled, BCOO)
    assert doubled.n_batch == 1
    with pytest.raises(NotImplementedError, match=r"give it a batch axis by update_layout"):
        sparsify(lambda m: lax.scan(lambda c, row: (c, row), 0.0, m))(BCOO.fromdense(M))


def test_vmap_inside() -> None:
    check(lambda m, v: fx.vmap(lambda row: row @ v)(m), BCOO.fromdense(M, n_batch=1), V)


def test_custom_rules_of_dense_functions() -> None:
    @fx.custom_jvp
    def scaled(m: Any, v: Any) -> Any:
        return 3 * (m @ v)

    scaled.defjvp(lambda primals, tangents: (scaled(*primals), 5 * (primals[0] @ tangents[1])))
    check(scaled, BCOO.fromdense(M), V)


def test_branches_must_have_one_layout() -> None:
    with pytest.raises(TypeError, match="cond"):
        sparsify(lambda m: lax.cond(m.sum() > 0, lambda m: m, lambda m: m + fnp.ones(m.shape), m))(BCOO.fromdense(M))


def test_layouts_match_jax() -> None:
    got, want = BCOO.fromdense(M), jax_sparse.BCOO.fromdense(M)
    for f, g in [
        (lambda m: m + 2 * m, lambda m: m + 2 * m),
        (lambda m: m * m, lambda m: m * m),
        (lambda m: fnp.sin(m).T, lambda m: jnp.sin(m).T),
        (lambda m: m[None], lambda m: m[None]),
        (lambda m: m.sum(1), lambda m: m.sum(1)),
    ]:
        ours, theirs = sparsify(f)(got), jax_sparse.sparsify(g)(want)
        assert (ours.nse, ours.n_batch, ours.shape) == (theirs.nse, theirs.n_batch, theirs.shape)
        assert_near(ours.todense(), np.asarray(theirs.todense()))


def test_printing_receives_dense_arrays(capsys: pytest.CaptureFixture[str]) -> None:
    def f(m: Any) -> Any:
        fx.debug.print("{}", m)
        return m * 2

    sparsify(f)(BCOO.fromdense(np.eye(2, dtype=np.float32)))
    fx.effects_barrier()
    assert capsys.readouterr().out.split() == ["[[1.", "0.]", "[0.", "1.]]"]


def test_keywords_and_functions_that_are_not() -> None:
    assert_near(sparsify(lambda m, *, v: m @ v)(BCOO.fromdense(M), v=V), M @ V)
    with pytest.raises(TypeError, match="sparsify"):
        sparsify(3)  # type: ignore[arg-type]  # not a function


def test_results_of_the_guide_of_jax() -> None:
    """A logistic regression of sparse features, with the same program in both libraries."""
    rng = np.random.default_rng(0)
    x = np.where(rng.random((30, 6)) < 0.3, rng.standard_normal((30, 6)), 0).astype(np.float32)
    y = rng.integers(0, 2, 30).astype(np.float32)

    def fit(np: Any, library: Any, module: Any) -> Any:
        def loss(params: Any, features: Any) -> Any:
            p = 1 / (1 + np.exp(-(features @ params[1:] + params[0])))
            return -np.mean(np.log(np.where(y == 1, p, 1 - p) + 1e-5))

        features = module.BCOO.fromdense(x)
        params = np.zeros(7, np.float32)
        step = library.jit(library.grad(module.sparsify(loss)))
        for _ in range(5):
            params = params - 0.5 * step(params, features)
        return np.asarray(params)

    assert_near(fit(fnp, fx, sparse), np.asarray(fit(jnp, jax, jax_sparse)))
    dense_params = fit(
        fnp,
        fx,
        type(
            "Dense",
            (),
            {"BCOO": type("X", (), {"fromdense": staticmethod(fnp.asarray)}), "sparsify": staticmethod(lambda f: f)},
        ),
    )
    assert_near(dense_params, fit(fnp, fx, sparse))


def test_operators_compose_with_transformations() -> None:
    mat = BCOO.fromdense(M)
    assert_same(fx.jit(lambda m, v: m @ v)(mat, V), mat @ V)
    assert_near(fx.grad(lambda v: ((mat @ v) ** 2).sum())(V), 2 * M.T @ (M @ V))
