"""Matrix functions and solvers of `scipy.linalg`, compared with SciPy or by their defining equations."""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg as reference

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx.core import NDArray
from tracefx.scipy import linalg
from tracefx.testing.tolerances import Ulps


def random_matrix(n: int, seed: int = 0) -> NDArray:
    x = np.random.default_rng([n, seed]).normal(size=(n, n))
    return np.asarray(x + n * np.eye(n))


@pytest.fixture(autouse=True)
def _enable_x64() -> Any:
    with fx.enable_x64(True):
        yield


@pytest.mark.parametrize(
    ("name", "function"),
    [("cos", fnp.cos), ("exp", fnp.exp), ("square", fnp.square)],
)
def test_funm(name: str, function: Callable[[Any], Any]) -> None:
    x = random_matrix(4) / 4
    out, error = linalg.funm(x, function, disp=False)
    want, _ = reference.funm(x, getattr(np, name), disp=False)
    assert_near(np.asarray(out), want)
    assert 0 < float(error) < 1e-12
    assert np.array_equal(linalg.funm(x, function), out)


def test_funm_of_a_1x1_matrix() -> None:
    assert np.asarray(linalg.funm(np.array([[4.0]]), fnp.sqrt)).tolist() == [[2.0]]
    with pytest.raises(ValueError, match="funm takes one matrix"):
        linalg.funm(np.ones((2, 1, 1)), fnp.sqrt)


def exponential(x: NDArray) -> NDArray:
    """Computes the matrix exponential by scaling, a Taylor series with 60 digits, and squaring."""
    with decimal.localcontext(prec=60):
        halvings = 10
        y = np.vectorize(decimal.Decimal, otypes=[object])(x) / 2**halvings
        term = out = np.vectorize(decimal.Decimal, otypes=[object])(np.eye(len(x)))
        for n in range(1, 30):
            term = term @ y / n
            out = out + term
        for _ in range(halvings):
            out = out @ out
        return np.asarray(out, np.float64)


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 20.0])
def test_expm(scale: float) -> None:
    """All degrees of the approximation, compared with exact values; SciPy is a thousand ulps away at a norm of 5."""
    xs = np.stack([random_matrix(3) * scale / 3, 2 * random_matrix(3) * scale / 3])
    for got, x in zip(np.asarray(linalg.expm(xs)), xs, strict=True):
        # Rounding the matrix alone changes its exponential by as many ulps as its norm.
        tolerance = Ulps(8 * (1 + float(np.linalg.norm(x, 1))), relative_to_max=True)
        assert_near(got, exponential(x), tolerance)
        assert_near(linalg.expm(x), got, tolerance)


def test_expm_frechet_and_jacobian_of_expm() -> None:
    x, t = random_matrix(3) / 3, random_matrix(3, 1)
    out, rate = linalg.expm_frechet(x, t)
    want = reference.expm_frechet(x, t)
    assert_near(np.asarray(out), want[0])
    assert_near(np.asarray(rate), want[1])
    zero = np.zeros((2, 2))
    assert np.array_equal(fx.jacfwd(linalg.expm)(zero).reshape(4, 4), np.eye(4))


def test_sqrtm() -> None:
    x = random_matrix(4)
    root = np.asarray(linalg.sqrtm(x))
    assert_near(root @ root, x)
    assert_near(np.asarray(linalg.sqrtm(np.zeros((2, 2)))), np.zeros((2, 2)))
    assert linalg.sqrtm(np.zeros((0, 0))).shape == (0, 0)  # as in SciPy


def test_qdwh_with_dynamic_shape() -> None:
    """The actual size may be known only at run time."""
    x = np.zeros((5, 4))
    x[:4, :3] = random_matrix(4)[:, :3]
    padded = fx.jit(lambda x, m, n: fx.lax.linalg.qdwh(x, dynamic_shape=(m, n)))(x, 4, 3)
    u, h, _, converged = fx.lax.linalg.qdwh(x[:4, :3])
    assert converged
    assert_near(np.asarray(padded[0])[:4, :3], np.asarray(u))
    assert_near(np.asarray(padded[1])[:3, :3], np.asarray(h))


def test_eigh_tridiagonal() -> None:
    d, e = np.array([1.0, 2.0, 2.0, -1.0]), np.array([0.5, 0.0, 1.0])
    matrix = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
    values, vectors = [np.asarray(v) for v in linalg.eigh_tridiagonal(d, e)]
    assert_near(matrix @ vectors, vectors * values)
    subset = linalg.eigh_tridiagonal(d, e, select="i", select_range=(1, 2))
    assert np.array_equal(subset[0], values[1:3])
    imaginary = np.asarray(linalg.eigh_tridiagonal(d + 0j, 1j * e, eigvals_only=True))
    assert_near(imaginary, values)


def test_gradient_of_solve_with_hermitian_matrix() -> None:
    """The transpose of a Hermitian matrix is its conjugate."""
    a, b = random_matrix(3) + 1j * random_matrix(3, 1), random_matrix(3)[0] + 0j
    a = a @ a.conj().T

    def total(b: Any, structure: str) -> Any:
        return fnp.sum(linalg.solve(a, b, assume_a=structure) ** 2).real

    assert_near(np.asarray(fx.grad(total)(b, "pos")), np.asarray(fx.grad(total)(b, "gen")))


def test_solvers_take_the_pair_of_the_factorization() -> None:
    for solve, expected in (
        (linalg.cho_solve, r"\(c, lower\) that"),
        (linalg.lu_solve, r"\(lu, piv\) that"),
    ):
        untyped: Any = solve
        with pytest.raises(TypeError, match=rf"^{solve.__name__} takes the pair {expected}.*, got an object of type "):
            untyped(fnp.eye(3), fnp.ones(3))
