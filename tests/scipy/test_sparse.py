"""`tracefx.scipy.sparse.linalg` compared with `jax.scipy.sparse.linalg` and with exact solutions."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.scipy.sparse.linalg as jax_linalg
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx.core import NDArray
from tracefx.scipy.sparse import linalg
from tracefx.testing.tolerances import DERIVATIVE

N: Final = 6


def matrix(name: str, dtype: str = "float32") -> NDArray:
    """Returns a matrix for which the method converges: Hermitian and positive definite for `cg`."""
    rng = np.random.default_rng(1)
    a = rng.standard_normal((N, N))
    if np.dtype(dtype).kind == "c":
        a = a + 1j * rng.standard_normal((N, N))
    out = a @ a.conj().T + 3 * np.eye(N) if name == "cg" else a + 6 * np.eye(N)
    return np.asarray(out).astype(dtype)


def right_hand_side(dtype: str = "float32") -> NDArray:
    return np.linspace(-1, 2, N).astype(dtype) * (1 + 0.5j if np.dtype(dtype).kind == "c" else 1)


NAMES: Final = ("cg", "bicgstab", "gmres")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_solvers_find_the_solution(name: str, dtype: str) -> None:
    a, b = matrix(name, dtype), right_hand_side(dtype).astype(dtype)
    x, info = getattr(linalg, name)(a, b)
    assert x.dtype == dtype
    assert_near(x, np.linalg.solve(a, b), DERIVATIVE)
    assert info is None if name != "gmres" else info == 0


@pytest.mark.parametrize("name", ["cg", "bicgstab"])
@pytest.mark.parametrize("steps", [1, 3])
def test_iterations_match_jax(name: str, steps: int) -> None:
    a, b = matrix(name), right_hand_side()
    preconditioner = np.diag(1 / np.diag(a))
    for M in (None, preconditioner):
        start = np.ones(N, np.float32)
        got = getattr(linalg, name)(a, b, start, maxiter=steps, M=M)[0]
        want = getattr(jax_linalg, name)(a, b, start, maxiter=steps, M=M)[0]
        assert_near(got, want)


@pytest.mark.parametrize("method", ["batched", "incremental"])
def test_gmres_restarts_and_breakdowns(method: str) -> None:
    a, b = matrix("gmres"), right_hand_side()
    options: Any = {"restart": 3, "maxiter": 2, "solve_method": method}
    got, want = linalg.gmres(a, b, **options)[0], jax_linalg.gmres(a, b, **options)[0]
    assert_near(got, want)
    assert_near(linalg.gmres(a, b, solve_method=method)[0], np.linalg.solve(a, b))
    # A Krylov space that is complete after one step.
    assert_near(linalg.gmres(2 * np.eye(N, dtype=np.float32), b, solve_method=method)[0], b / 2)
    assert linalg.gmres(a, 0 * b, solve_method=method)[0].tolist() == [0.0] * N
    assert linalg.gmres(0 * a, b, solve_method=method)[1] == -1


@pytest.mark.parametrize("name", NAMES)
def test_gradients_match_the_exact_solution(name: str) -> None:
    a, b = matrix(name), right_hand_side()
    options = {"tol": 1e-7}

    def solved(scale: Any, b: Any) -> Any:
        return fnp.sum(fnp.sin(getattr(linalg, name)(lambda x: scale * (a @ x), b, **options)[0]))

    def exact(scale: Any, b: Any) -> Any:
        return jax.numpy.sum(jax.numpy.sin(jax.numpy.linalg.solve(scale * a, b)))

    got = fx.jit(fx.grad(solved, argnums=(0, 1)))(np.float32(1.5), b)
    want = jax.grad(exact, argnums=(0, 1))(np.float32(1.5), b)
    for g, w in zip(got, want, strict=True):
        assert_near(g, w)


@pytest.mark.parametrize("name", NAMES)
def test_solvers_take_pytrees(name: str) -> None:
    b: Any = {"x": np.ones((2, 2), np.float32), "y": (np.float32(2.0),)}

    def product(v: Any) -> Any:
        return {"x": 3 * v["x"] + v["y"][0] / 4, "y": (5 * v["y"][0] + fnp.sum(v["x"]) / 4,)}

    x: Any = getattr(linalg, name)(product, b)[0]
    product_of_x = product(x)
    assert_near(product_of_x["x"], b["x"])
    assert_near(product_of_x["y"][0], b["y"][0])


def test_invalid_arguments_raise() -> None:
    b = right_hand_side()
    for f in (linalg.cg, linalg.bicgstab, linalg.gmres):
        with pytest.raises(ValueError, match="A must be a square matrix or a function"):
            f(np.ones((N, 2)), b)
        with pytest.raises(TypeError, match="A must be a matrix or a function"):
            f("a", b)  # type: ignore[arg-type]  # tested
        with pytest.raises(ValueError, match="x0 and b must have one structure"):
            f(np.eye(N), b, (b,))
        with pytest.raises(ValueError, match="x0 and b must have the same shapes"):
            f(np.eye(N), b, b[:2])
    with pytest.raises(ValueError, match="solve_method must be"):
        linalg.gmres(np.eye(N), b, solve_method="other")
