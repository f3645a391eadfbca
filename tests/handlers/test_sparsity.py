"""Sparsity patterns compared with known ones, and sparse derivative matrices compared with dense ones."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import assert_errors, untyped
from tracefx import handlers, lax
from tracefx.testing.tolerances import DERIVATIVE, ELEMENTARY

Function = Callable[..., Any]
X = np.array([0.3, -0.8, 1.2, 0.55, -0.1, 0.9], np.float32)
BAND = np.diag(np.ones(6), 0) + np.diag(np.ones(5), 1)
PAIR = np.stack([np.eye(3), BAND[:3, :3]]).astype(np.float32)
PLACES = np.array([[0, 2], [5, 2], [1, 1]])


def true_pattern(f: Function, x: Any) -> Any:
    """The nonzero pattern of the dense Jacobian at a generic point."""
    jacobian = np.asarray(fx.jacfwd(lambda x: fnp.ravel(f(x)))(x))
    return (jacobian != 0).reshape(jacobian.shape[0], -1)


def summed_steps(x: Any) -> Any:
    """A recurrence: state `t` depends on the inputs up to `t`."""
    return lax.scan(lambda c, y: (c * 0.5 + fnp.sin(y), c * y), fnp.float32(1.0), x)[1]


def by_index(x: Any) -> Any:
    """A loop that writes element `i` to index `n - 1 - i`."""
    return lax.fori_loop(0, 6, lambda i, c: c.at[5 - i].set(x[i] ** 2), fnp.zeros(6, fnp.float32))


@fx.custom_jvp
def with_custom_jvp(x: Any) -> Any:
    """A custom rule that depends on the neighbouring element."""
    return fnp.sin(x)


with_custom_jvp.defjvps(lambda t, ans, x: fnp.roll(t, 1) * 2.0)


@fx.custom_vjp
def with_custom_vjp(x: Any) -> Any:
    return fnp.sin(x)


with_custom_vjp.defvjp(lambda x: (fnp.sin(x), x), lambda x, ct: (ct * 2.0,))

IMAGES: Any = np.arange(8, dtype=np.float32).reshape(2, 1, 4)
EXACT: dict[str, Any] = {
    "element by element": lambda x: fnp.sin(x) * x + fnp.exp(-x) / (2 + x),
    "differences": lambda x: x[1:] - x[:-1],
    "strides": lambda x: fnp.concatenate([x[::2], x[::-1]]),
    "padding": lambda x: fnp.pad(x, (2, 1))[1:-1] * 2,
    "shapes": lambda x: fnp.tile(x.reshape(2, 3).T, (2, 1)) * fnp.ones(3, np.float32)[:2],
    "joining": lambda x: fnp.stack([x[:3], x[3:] * x[:3], fnp.ones(3, np.float32)]),
    "splitting": lambda x: fnp.split(x, 3)[1] * fnp.split(x, 3)[0],
    "sums": lambda x: (x.reshape(2, 3) ** 2).sum(1),
    "cumulative sums": lambda x: fnp.cumsum(x[:4]),
    "cumulative sums backwards": lambda x: fnp.flip(fnp.cumsum(fnp.flip(x))),
    "Fourier transforms": lambda x: fnp.real(lax.fft(x.reshape(2, 3), "FFT", (3,))),
    "constant matrices": lambda x: (BAND.astype(np.float32) @ fnp.sin(x)) * 2,
    "constant matrices behind": lambda x: (x.reshape(2, 3) @ np.eye(3, dtype=np.float32)).reshape(3, 2),
    "batches of products": lambda x: fnp.einsum("bi,bij->bj", x.reshape(2, 3), PAIR),
    "products": lambda x: x.reshape(2, 3) @ x.reshape(3, 2),
    "stencils": lambda x: fnp.convolve(x, fnp.array([1.0, 0.0, -2.0, 1.0]), "same"),
    "stencils of what varies": lambda x: fnp.convolve(x[:4], x[3:], "valid"),
    "convolutions in groups": lambda x: lax.conv_general_dilated(
        x.reshape(1, 2, 3), np.ones((4, 1, 2), np.float32), (1,), [(1, 0)], feature_group_count=2
    ),
    "dilated kernels that vary": lambda x: lax.conv_general_dilated(
        IMAGES, x[:4].reshape(2, 1, 2), (2,), [(0, 1)], (2,), batch_group_count=2
    ),
    "masks": lambda x: fnp.where(np.arange(6) < 2, x, x[::-1]) + x * np.array([0, 1, 0, 0, 0, 0], np.float32),
    "constant indices": lambda x: x[PLACES] ** 2,
    "places computed": lambda x: x[(fnp.arange(6) * 5) % 6] * x,
    "updates": lambda x: fnp.zeros(6, np.float32).at[PLACES[:, 0]].set(x[:3]).at[1].add(x[5]),
    "sums at places": lambda x: fnp.zeros((3, 2), np.float32).at[PLACES % 3, 0].add(x[:2]),
    "subtractions at places": lambda x: x[:3].at[PLACES[:2, 1] % 3].subtract(x[4:]),
    "sums of windows": lambda x: lax.reduce_window(x.reshape(2, 3), 0.0, lax.add, (2, 2), (1, 1), "SAME"),
    "elements apart": lambda x: lax.unstack(x.reshape(2, 3), 1)[1] ** 2,
    "places outside": lambda x: fnp.ones(3, np.float32).at[fnp.array([0, 7])].add(x[:2], mode="drop"),
    "dynamic slices": lambda x: lax.dynamic_slice(x, (2,), (3,)) * lax.dynamic_update_slice(x, x[:1], (4,))[2:5],
    "still": lambda x: (fnp.floor(x) + 9) * x[::-1] + fnp.sign(x) + lax.stop_gradient(x),
    "scan": summed_steps,
    "scan of rows": lambda x: lax.scan(lambda c, y: (c, y * y[::-1]), 0.0, x.reshape(2, 3))[1],
    "scan backwards": lambda x: lax.scan(lambda c, y: (c + y, c * 1.0), fnp.float32(0), x, reverse=True)[1],
    "loops by index": by_index,
    "while loops": lambda x: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, fnp.roll(c[1], 1)), (0, x))[1],
    "a branch that is known": lambda x: lax.cond(True, lambda x: x * x, lambda x: x[::-1], x),
    "calls": fx.jit(lambda x: fx.checkpoint(fnp.sin)(x) * fx.jit(lambda x: x[::-1])(x)),
    "rules of the user's own": with_custom_jvp,
    "rules backwards": with_custom_vjp,
    "vmap": lambda x: fx.vmap(fnp.square)(x),
    "gradients": fx.grad(lambda x: (x[1:] * x[:-1] ** 2).sum()),
}


@pytest.mark.parametrize("name", EXACT)
def test_pattern_is_exact(name: str) -> None:
    f = EXACT[name]
    pattern = handlers.jacobian_sparsity(f)(X)
    np.testing.assert_array_equal(pattern.todense().astype(int), true_pattern(f, X).astype(int))
    matrix = handlers.sparse_jacobian(f)(X)
    assert matrix.pattern == pattern
    dense = fx.jacfwd(lambda x: fnp.ravel(f(x)))(X)
    assert_near(matrix.todense(), dense, ELEMENTARY)
    assert_near(fx.jit(handlers.sparse_jacobian(f))(X).todense(), dense, ELEMENTARY)


CONSERVATIVE: dict[str, tuple[Function, Any]] = {
    # A data-dependent index may select any candidate.
    "indices that depend": (lambda x: x[fnp.argmax(x)] * x[:2], np.ones((2, 6))),
    "greatest of windows": (lambda x: lax.reduce_window(x, -np.inf, lax.max, (2,)), BAND[:5]),
    "extremes": (lambda x: x.reshape(2, 3).max(1), np.kron(np.eye(2), np.ones((1, 3)))),
    "selection": (lambda x: fnp.where(x > 0, x, x[::-1]), np.eye(6) + np.eye(6)[::-1]),
    "branches": (lambda x: lax.cond(x[0] > 0, lambda x: x, lambda x: x[::-1], x), np.eye(6) + np.eye(6)[::-1]),
    "unknown loops": (
        lambda x: lax.while_loop(lambda c: c[0] > 0.1, lambda c: fnp.roll(c, 2) * 0.5, x),
        sum(np.roll(np.eye(6), 2 * k, 0) for k in range(3)),
    ),
    "places that depend": (
        lambda x: fnp.zeros(3, np.float32).at[fnp.argmax(x)].add(x[0]) + x[:3],
        np.eye(3, 6) + np.eye(6)[0],
    ),
    "slices that depend": (
        lambda x: lax.dynamic_slice(x.reshape(2, 3), (0, fnp.argmax(x)), (2, 1))[:, 0],
        np.kron(np.eye(2), np.ones((1, 3))),
    ),
}


@pytest.mark.parametrize("name", CONSERVATIVE)
def test_pattern_is_conservative_for_data_dependent_programs(name: str) -> None:
    f, expected = CONSERVATIVE[name]
    pattern = handlers.jacobian_sparsity(f)(X)
    np.testing.assert_array_equal(pattern.todense(), np.asarray(expected) > 0)
    assert not (true_pattern(f, X) & ~pattern.todense()).any()
    assert_near(handlers.sparse_jacobian(f)(X).todense(), fx.jacfwd(f)(X), ELEMENTARY)


def test_long_loops_are_iterated_to_a_fixed_point() -> None:
    def f(x: Any) -> Any:
        left, _ = lax.scan(lambda c, _: (c * 0.9 + fnp.roll(c, 3) * 0.1, None), x, None, length=100_000)
        return left

    pattern = handlers.jacobian_sparsity(f)(X)
    np.testing.assert_array_equal(pattern.todense(), np.eye(6) + np.roll(np.eye(6), 3, 0) > 0)


def test_slow_fixed_points_are_overapproximated() -> None:
    """After some iterations a loop is assumed to depend on all its possible inputs."""
    n = 50
    f = lambda x: lax.while_loop(lambda c: c[0] < 3.0, lambda c: c + 0.1 * fnp.roll(c, 1), x)  # noqa: E731
    assert handlers.jacobian_sparsity(f)(fx.ShapeDtypeStruct((n,), np.float32)).nnz == n * n


def test_arguments_and_outputs_may_be_pytrees() -> None:
    def f(p: Any, scale: Any, *, shift: Any) -> Any:
        return {"a": p["x"] * scale, "b": p["y"].sum() + p["x"][0] + shift}

    p = {"x": np.ones(2, np.float32), "y": np.ones((1, 2), np.float32)}
    matrix = handlers.sparse_jacobian(f)(p, np.array([2.0, 3.0], np.float32), shift=1.0)
    expected = [[2.0, 0, 0, 0], [0, 3.0, 0, 0], [1, 0, 1, 1]]
    np.testing.assert_array_equal(matrix.todense(), expected)
    # A zero in another argument does not remove entries.
    matrix = handlers.sparse_jacobian(f)(p, np.array([0.0, 3.0], np.float32), shift=1.0)
    assert matrix.nnz == 5


def test_pattern_is_cached_by_argument_types() -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append(x.shape)
        return x * x

    jacobian = handlers.sparse_jacobian(f)
    for _ in range(3):
        jacobian(np.ones(4, np.float32))
    assert calls == [(4,)] * 4  # once for the pattern, three times for the values
    jacobian(np.ones(5, np.float32))
    assert calls[4:] == [(5,)] * 2
    known_pattern = handlers.SparsityPattern([0, 1], [0, 1], (2, 2))
    assert handlers.sparse_jacobian(f, known_pattern)(np.ones(2, np.float32)).pattern is known_pattern
    assert len(calls) == 7


# ------------------------------------------------------------------ colouring


def colours(matrix: Any, x: Any) -> int:
    """The number of directional derivatives or backward passes that one matrix needs."""
    eqns = fx.make_jaxpr(lambda x: matrix(x).data)(x).jaxpr.eqns
    (seeds,) = [eqn.outs[0].aval.shape for eqn in eqns if eqn.prim.name == "eq"]
    return int(seeds[0])


def test_number_of_colours_is_small() -> None:
    x = np.linspace(0, 1, 40, dtype=np.float32)
    padded: Function = lambda x: fnp.pad(fnp.sin(x), (2, 2))  # noqa: E731
    assert colours(handlers.sparse_jacobian(lambda x: fnp.sin(x) * x), x) == 1
    assert colours(handlers.sparse_jacobian(lambda x: padded(x)[1:-3] + padded(x)[3:-1] * x), x) == 3
    assert (
        colours(
            handlers.sparse_jacobian(
                lambda x: padded(x)[0:-4] + padded(x)[1:-3] + padded(x)[2:-2] + padded(x)[3:-1] + padded(x)[4:] * x
            ),
            x,
        )
        == 5
    )
    # Dense rows are computed backward, dense columns forward.
    assert colours(handlers.sparse_jacobian(lambda x: fnp.append(fnp.sin(x), x.sum())), x) == 2
    assert colours(handlers.sparse_jacobian(lambda x: fnp.sin(x) * x[0]), x) == 2


def test_hessian_symmetry_reduces_colours() -> None:
    """The columns of an arrow matrix need as many colours as columns; by symmetry all but two are redundant."""
    n = 30
    arrow = lambda x: (x[0] * fnp.sin(x[1:])).sum() + (x**3).sum()  # noqa: E731
    x = np.linspace(0.1, 1, n, dtype=np.float32)
    matrix = handlers.sparse_hessian(arrow)
    assert matrix(x).nnz == n + 2 * (n - 1)
    assert_near(matrix(x).todense(), fx.hessian(arrow)(x), ELEMENTARY)
    assert colours(matrix, x) == 2


def test_colours_of_a_hessian_with_dense_rows_and_a_chain() -> None:
    """Two inputs interact with all of 5,000 in a chain: three colours for the chain and one for each of the two."""
    n = 5_000

    def energy(x: Any) -> Any:
        return (x[3] * fnp.sin(x)).sum() + (x[7] * x * x).sum() + (x[1:] * x[:-1] ** 2).sum()

    x = np.linspace(0.1, 1, n, dtype=np.float32)
    matrix = handlers.sparse_hessian(energy)
    assert colours(matrix, x) == 5
    v = np.cos(x)
    want = fx.jvp(fx.grad(energy), (x,), (v,))[1]
    assert_near(matrix(x) @ v, want, DERIVATIVE)


def test_sparse_hessian_of_a_graph_energy() -> None:
    rng = np.random.default_rng(3)
    edges = rng.integers(0, 60, (90, 2))
    edges = edges[edges[:, 0] != edges[:, 1]]
    energy = lambda x: (fnp.sin(x[edges[:, 0]] - x[edges[:, 1]]) ** 2).sum()  # noqa: E731
    x = rng.normal(size=60).astype(np.float32)
    assert_near(handlers.sparse_hessian(energy)(x).todense(), fx.hessian(energy)(x), ELEMENTARY)
    expected = np.zeros((60, 60), bool)
    for i, j in edges:
        expected[[i, i, j, j], [i, j, i, j]] = True
    np.testing.assert_array_equal(handlers.hessian_sparsity(energy)(x).todense(), expected)


def test_hessian_of_a_linear_function_is_empty() -> None:
    assert handlers.hessian_sparsity(lambda x: x.sum() * 3)(X).nnz == 0
    assert handlers.sparse_hessian(lambda x: x.sum() * 3)(X).todense().tolist() == [[0.0] * 6] * 6


# ------------------------------------------------------------------ composition


def test_sparse_jacobian_composes_with_transformations() -> None:
    f = lambda x: fnp.pad(fnp.sin(x), (1, 1), constant_values=0.5)[:-2] * x  # noqa: E731
    jacobian = handlers.sparse_jacobian(f)
    total = lambda x: (jacobian(x).data ** 2).sum()  # noqa: E731
    dense = lambda x: (fx.jacfwd(f)(x) ** 2).sum()  # noqa: E731
    assert_near(fx.grad(total)(X), fx.grad(dense)(X), ELEMENTARY)
    rows = np.stack([X, X * 2])
    batch = fx.vmap(jacobian)(rows)
    assert isinstance(batch, handlers.SparseMatrix)
    assert batch.data.shape == (2, batch.pattern.nnz)
    assert_near(fx.vmap(handlers.SparseMatrix.todense)(batch), fx.vmap(fx.jacfwd(f))(rows), ELEMENTARY)
    _, stacked = lax.scan(lambda c, x: (c, jacobian(x)), 0.0, rows)
    assert_near(stacked.data, batch.data, ELEMENTARY)
    np.testing.assert_array_equal(
        handlers.jacobian_sparsity(fx.vmap(f))(rows).todense(), np.kron(np.eye(2), true_pattern(f, X))
    )
    inner = handlers.sparse_jacobian(lambda x: jacobian(x).data)(X)
    assert inner.shape == (jacobian(X).nnz, 6)
    assert_near(inner.todense(), fx.jacfwd(lambda x: jacobian(x).data)(X), ELEMENTARY)


def test_sparse_jacobian_of_a_closure_over_tracers() -> None:
    def row(scale: Any) -> Any:
        return handlers.sparse_jacobian(lambda x: x * scale)(X).data

    np.testing.assert_array_equal(fx.jit(row)(2.0), np.full(6, 2.0))
    np.testing.assert_array_equal(fx.grad(lambda s: row(s).sum())(2.0), 6.0)


# ------------------------------------------------------------------ matrices


def test_sparse_matrix_products_and_attributes() -> None:
    matrix = handlers.sparse_jacobian(lambda x: x[1:] * x[:-1])(X)
    dense = np.asarray(matrix.todense())
    v, columns = np.arange(6, dtype=np.float32), np.ones((6, 2), np.float32)
    assert_near(matrix @ v, dense @ v, ELEMENTARY)
    assert_near(matrix @ columns, dense @ columns, ELEMENTARY)
    assert_near(fx.jit(lambda m, v: m @ v)(matrix, v), dense @ v, ELEMENTARY)
    assert_near(matrix.T.todense(), dense.T, ELEMENTARY)
    assert_near(fx.jit(lambda m: m.T @ np.ones(5, np.float32))(matrix), dense.T.sum(1), ELEMENTARY)
    assert matrix.indptr.tolist() == [0, 2, 4, 6, 8, 10]
    assert (matrix.shape, matrix.nnz, matrix.dtype) == ((5, 6), 10, np.dtype(np.float32))
    assert matrix.pattern.density == 10 / 30
    assert repr(matrix).startswith("SparseMatrix(5 x 6, nnz=10, data=Array(")
    with pytest.raises(
        ValueError, match=r"shape \(5, 6\) is multiplied by arrays of shape \(6,\) or \(6, k\), not \(5,\)"
    ):
        matrix @ np.ones(5)


def test_patterns_compare_and_hash_by_value() -> None:
    a, b = (
        handlers.SparsityPattern([0, 1], [1, 0], (2, 2)),
        handlers.SparsityPattern(np.array([0, 1]), np.array([1, 0]), (2, 2)),
    )
    assert a == b
    assert hash(a) == hash(b)
    assert a != handlers.SparsityPattern([0, 1], [1, 1], (2, 2))
    assert a != handlers.SparsityPattern([0, 1], [1, 0], (3, 2))
    assert pickle.loads(pickle.dumps(a)) == a
    assert a == a.T
    with pytest.raises(ValueError, match="read-only"):
        a.rows[0] = 1
    assert_errors(
        (lambda: handlers.SparsityPattern([2], [0], (2, 2)), ValueError, r"entry \(2, 0\) is outside of 2 x 2"),
        (lambda: handlers.SparsityPattern([1, 0], [0, 0], (2, 2)), ValueError, "ordered by row, then column"),
        (lambda: handlers.SparsityPattern([1, 0], [0], (2, 2)), ValueError, "two lists of one length"),
    )


def test_empty_matrices() -> None:
    assert handlers.jacobian_sparsity(fnp.sin)(np.zeros((0,), np.float32)) == handlers.SparsityPattern([], [], (0, 0))
    assert handlers.sparse_jacobian(lambda x: x.sum())(np.zeros((0,), np.float32)).todense().shape == (1, 0)
    assert handlers.sparse_jacobian(lambda x: fnp.ones(3, np.float32))(X).todense().tolist() == [[0.0] * 6] * 3
    assert float(handlers.sparse_jacobian(fnp.square)(np.float32(3.0)).todense()[0, 0]) == 6.0


# ------------------------------------------------------------------ errors


def test_error_messages() -> None:
    with pytest.raises(TypeError, match=r"jacobian_sparsity of .*: the first argument must consist of floats, got i32"):
        handlers.jacobian_sparsity(lambda x: x)(np.arange(3))
    with pytest.raises(TypeError, match=r"sparse_jacobian of .*: outputs must be floats, got i32"):
        handlers.sparse_jacobian(lambda x: fnp.argmax(x))(X)
    with pytest.raises(TypeError, match="derivatives are by the first argument, but there is none"):
        handlers.jacobian_sparsity(lambda: 1.0)()
    assert_errors(
        (lambda: handlers.hessian_sparsity(lambda x: x)(X), TypeError, "grad of .* must return a scalar"),
        (lambda: untyped(handlers.sparse_jacobian)(3), TypeError, "sparse_jacobian takes a function, got 3"),
        (lambda: untyped(handlers.sparse_jacobian)(fnp.sin, 3), TypeError, "pattern must be a SparsityPattern, got 3"),
    )
    with pytest.raises(ValueError, match=r"the matrix is 6 x 6, the pattern SparsityPattern\(2 x 2, nnz=1\)"):
        handlers.sparse_jacobian(fnp.sin, handlers.SparsityPattern([0], [0], (2, 2)))(X)
    with pytest.raises(ValueError, match=r"6000 x 6000 matrix has more than 30,000,000 entries: it is not sparse"):
        handlers.jacobian_sparsity(lambda x: x * x.sum())(fx.ShapeDtypeStruct((6000,), np.float32))
    with pytest.raises(ValueError, match="is not symmetric"):
        handlers.sparse_hessian(fnp.sum, handlers.SparsityPattern([0], [1], (6, 6)))(X)
