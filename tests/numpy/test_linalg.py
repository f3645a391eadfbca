"""`tracefx.numpy.linalg` compared with NumPy where JAX differs, and derivatives at singular matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx.core import NDArray
from tracefx.numpy import linalg
from tracefx.numpy.linalg.decompositions import EigResult
from tracefx.testing.tolerances import DERIVATIVE, FINITE_DIFFERENCES


def random_matrix(*shape: int) -> NDArray:
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


def cofactors(x: NDArray) -> NDArray:
    """Returns the derivative of the determinant, computed from minors."""
    n = len(x)
    out = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            out[i, j] = (-1) ** (i + j) * np.linalg.det(np.delete(np.delete(x, i, 0), j, 1))
    return out


@pytest.mark.usefixtures("default_repeats")  # products cancel, to the last digit or not
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("deficiency", [0, 1, 2])
def test_gradient_of_det_at_rank_deficient_matrices(n: int, deficiency: int) -> None:
    """The rank of the matrix is too low by `deficiency`."""
    if deficiency > n:
        return
    x = random_matrix(n, n)
    x[n - deficiency :] = 0 if deficiency == n else x[:1]
    gradient = np.asarray(fx.grad(linalg.det)(x))
    assert_near(gradient, cofactors(x.astype(np.float64)), DERIVATIVE)
    stacked = np.stack([x, random_matrix(n, n)])
    both = np.asarray(fx.grad(lambda x: fnp.sum(linalg.det(x)))(stacked))
    assert_near(both[0], gradient)


def test_gradient_of_det_of_a_matrix_with_a_zero_column() -> None:
    """The first pivot is zero."""
    x = random_matrix(4, 4)
    x[:, 0] = 0
    assert_near(np.asarray(fx.grad(linalg.det)(x)), cofactors(x.astype(np.float64)))


def test_lstsq_with_numpy_resid_matches_numpy() -> None:
    for a, b in (
        (random_matrix(4, 2), random_matrix(4)),
        (random_matrix(4, 2), random_matrix(4, 3)),
        (random_matrix(2, 4), random_matrix(2)),
        (random_matrix(4, 1) @ random_matrix(1, 2), random_matrix(4)),
    ):
        want: Any = np.linalg.lstsq(a, b, 1e-5)
        for x, y in zip(linalg.lstsq(a, b, 1e-5, numpy_resid=True), want, strict=True):
            assert x.shape == np.shape(y)
            assert_near(np.asarray(x), y)


def test_matrix_rank_with_absolute_and_relative_tolerance() -> None:
    x = np.stack([np.diag([8.0, 1.0, 0.1]), np.diag([0.5, 0.4, 0.3])]).astype(np.float32)
    assert linalg.matrix_rank(x, rtol=0.1).tolist() == np.linalg.matrix_rank(x, rtol=0.1).tolist() == [2, 3]
    assert linalg.matrix_rank(x, tol=0.35).tolist() == np.linalg.matrix_rank(x, tol=0.35).tolist() == [2, 2]
    assert linalg.matrix_rank(x, rtol=np.array([0.2, 0.7], np.float32)).tolist() == [1, 2]


def test_results_are_named_tuples() -> None:
    x = random_matrix(3, 3)
    assert linalg.qr(x)._fields == ("Q", "R")
    assert linalg.svd(x)._fields == ("U", "S", "Vh")
    assert linalg.eigh(x)._fields == linalg.eig(x)._fields == ("eigenvalues", "eigenvectors")
    assert linalg.slogdet(x)._fields == ("sign", "logabsdet")
    assert isinstance(fx.jit(linalg.eig)(x), EigResult)


def test_stacked_matrices_broadcast() -> None:
    a, b = random_matrix(2, 1, 3, 3), random_matrix(4, 3, 2)
    x = np.asarray(linalg.solve(a, b))
    assert x.shape == (2, 4, 3, 2)
    assert_near(np.matmul(a, x), np.broadcast_to(b, x.shape))
    assert linalg.solve(a, random_matrix(3)).shape == (2, 1, 3)
    limits = np.array([0.0, 10.0], np.float32)
    both = np.asarray(linalg.pinv(np.stack([random_matrix(3, 2)] * 2), limits))
    assert_near(both[0], np.linalg.pinv(random_matrix(3, 2)))
    assert not both[1].any()


@pytest.mark.parametrize(
    "f",
    [
        lambda x: linalg.solve(x, x[0]),
        linalg.inv,
        lambda x: linalg.pinv(x[:, :2]),
        lambda x: linalg.lstsq(x[:, :2], x[2])[0],
        linalg.det,
        lambda x: linalg.slogdet(x).logabsdet,
        lambda x: linalg.norm(x, "nuc"),
        lambda x: linalg.cond(x),
        lambda x: linalg.matrix_power(x, -2),
        lambda x: abs(linalg.eigvals(x @ x.T)),
        lambda x: linalg.svdvals(x),
        lambda x: linalg.cholesky(x @ x.T),
        lambda x: linalg.qr(x).R,
        lambda x: linalg.eigvalsh(x + x.T),
    ],
)
def test_second_derivatives_match_finite_differences_of_gradients(f: Callable[[Any], Any]) -> None:
    """Forward-over-reverse and reverse-over-forward agree with finite differences."""
    with fx.enable_x64(True):
        x = random_matrix(3, 3).astype(np.float64) + 3 * np.eye(3)
        t = random_matrix(3, 3)[::-1].astype(np.float64)

        def total(x: Any) -> Any:
            return fnp.sum(fnp.sin(f(x)))

        slope = fx.grad(total)
        h = 1e-5
        want = (np.asarray(slope(x + h * t)) - np.asarray(slope(x - h * t))) / (2 * h)
        forward = np.asarray(fx.jvp(slope, (x,), (t,))[1])
        backward = np.asarray(fx.grad(lambda x: fx.jvp(total, (x,), (t,))[1])(x))
        assert_near(forward, want, FINITE_DIFFERENCES)
        assert_near(backward, forward, DERIVATIVE)
