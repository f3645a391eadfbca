"""Matrix decompositions: partial results, failures, caching and export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.subprocesses import output_of
from tracefx.core import NDArray
from tracefx.lax import linalg
from tracefx.testing.tolerances import FINITE_DIFFERENCES
from tracefx.xla.backend import XlaBackend

STACK: Final = (2, 1)


def random_matrices(dtype: Any, *shape: int) -> NDArray:
    """Draws a stack of matrices."""
    rng = np.random.default_rng(sum(shape))
    x = rng.normal(size=(*STACK, *shape))
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=x.shape)
    return x.astype(dtype)


def adjoint(x: NDArray) -> NDArray:
    return np.swapaxes(x, -1, -2).conj()


def array(x: NDArray) -> Any:
    return fnp.array(x, dtype=x.dtype)


def numbers(*xs: Any) -> list[NDArray]:
    return [np.asarray(x) for x in xs]


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)], ids=str)
def test_svd_by_qr_iterations(dtype: Any, shape: tuple[int, int]) -> None:
    x = array(random_matrices(dtype, *shape))
    for full in (False, True):
        u, s, vh = numbers(*linalg.svd(x, full_matrices=full, algorithm=linalg.SvdAlgorithm.QR))
        assert_near(s, linalg.svd(x, compute_uv=False))
        k = min(shape)
        assert_near((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x)
        assert_near(adjoint(u) @ u, np.broadcast_to(np.eye(u.shape[-1], dtype=dtype), (*STACK, *u.shape[-1:] * 2)))


# ------------------------------------------------------------------ partial results


def test_subset_by_index() -> None:
    x = random_matrices(np.float32, 4, 3)
    u, s, vh = linalg.svd(array(x), full_matrices=False)
    part = linalg.svd(array(x), full_matrices=False, subset_by_index=(1, 3))
    for got, want in zip(part, (u[..., 1:3], s[..., 1:3], vh[..., 1:3, :]), strict=True):
        assert np.array_equal(got, want)
    (first,) = numbers(linalg.svd(array(x), compute_uv=False, subset_by_index=(0, 1)))
    assert_near(first, np.asarray(s)[..., :1])
    square = x[..., :3, :] + adjoint(x[..., :3, :])
    vectors, values = linalg.eigh(array(square))
    some = linalg.eigh(array(square), subset_by_index=(2, 3))
    assert np.array_equal(some[0], vectors[..., 2:])
    assert np.array_equal(some[1], values[..., 2:])
    with pytest.raises(ValueError, match="subset_by_index and full_matrices contradict each other"):
        linalg.svd(array(x), subset_by_index=(0, 1))
    with pytest.raises(ValueError, match=r"a range within the 3 values, got \(1, 4\)"):
        linalg.eigh(array(square), subset_by_index=(1, 4))


def test_only_one_triangle_is_read() -> None:
    """The other triangle is ignored, and its derivative is zero."""
    x, step = np.array([[4.0, 7.0], [2.0, 5.0]]), 1e-6
    functions: list[Callable[[Any], Any]] = [
        lambda x: linalg.cholesky(x, symmetrize_input=False),
        lambda x: linalg.eigh(x, symmetrize_input=False)[1],
    ]
    for f in functions:
        slope = np.asarray(fx.jacrev(f)(array(x)))
        assert not slope[..., 0, 1].any()
        assert slope[..., 1, 0].any()
        steps = step * np.eye(4).reshape(4, 2, 2)
        near = np.stack([np.subtract(*numbers(f(array(x + s)), f(array(x - s)))) for s in steps], -1) / (2 * step)
        assert_near(slope.reshape(near.shape), near, FINITE_DIFFERENCES)


# ------------------------------------------------------------------ failures and invalid input


def test_failed_decompositions_are_nan_per_matrix() -> None:
    x = np.stack([np.eye(2), -np.eye(2), np.full((2, 2), np.nan)]).astype(np.float32)
    factor = np.asarray(linalg.cholesky(array(x)))
    assert np.array_equal(factor[0], np.eye(2))
    assert np.isnan(np.tril(factor[1])[[0, 1, 1], [0, 0, 1]]).all()
    assert np.isnan(np.diag(factor[2])).all()  # some BLAS kernels treat a column divided by NaN as zeros
    assert np.array_equal(np.triu(factor, 1), np.zeros_like(factor))
    bad = np.full((2, 2), np.nan, np.float32)
    for f in (linalg.eigh, linalg.svd):
        assert all(np.isnan(np.asarray(part)).all() for part in f(array(bad)))


def test_unsupported_dtypes_and_algorithms_raise() -> None:
    half = array(np.eye(2, dtype=np.float16))
    with pytest.raises(
        TypeError, match="cholesky takes floats or complex numbers with 32-bit or 64-bit components, but"
    ):
        linalg.cholesky(half)
    assert linalg.triangular_solve(half, half).dtype == np.float16
    x = array(np.eye(2, dtype=np.float32))
    with pytest.raises(NotImplementedError, match=r"svd: SvdAlgorithm.JACOBI is not supported on the CPU"):
        linalg.svd(x, algorithm=linalg.SvdAlgorithm.JACOBI)
    with pytest.raises(NotImplementedError, match=r"eigh: EighImplementation.QDWH is not supported on the CPU"):
        linalg.eigh(x, implementation=linalg.EighImplementation.QDWH)
    with pytest.raises(NotImplementedError, match=r"eig: EigImplementation.MAGMA is not supported on the CPU"):
        linalg.eig(x, implementation=linalg.EigImplementation.MAGMA)
    with pytest.raises(NotImplementedError, match="does not sort eigenvalues"):
        linalg.schur(x, sort_eig_vals=True)


def test_unsupported_derivatives_raise() -> None:
    x = array(random_matrices(np.float32, 3, 2)[0, 0])
    with pytest.raises(NotImplementedError, match="the 1 singular vectors without a singular value"):
        fx.jvp(linalg.svd, (x,), (x,))
    with pytest.raises(NotImplementedError, match="pass enable_eigvec_derivs=True"):
        fx.jvp(linalg.eig, (x[:2],), (x[:2],))
    with pytest.raises(TypeError, match="not linear"):
        fx.linear_transpose(lambda a: linalg.triangular_solve(a, x[:2]), x[:2])(x[:2])


# ------------------------------------------------------------------ LAPACK calls in cached and exported programs


def likelihood(k: Any, y: Any) -> Any:
    factor = linalg.cholesky(k)
    z = linalg.triangular_solve(factor, y, left_side=True, lower=True)
    return fnp.sum(z * z) + fnp.sum(fnp.log(fnp.linalg.diagonal(factor)))


K: Final = np.array([[4.0, 2.0], [2.0, 5.0]], np.float32)
Y: Final = np.array([[1.0], [3.0]], np.float32)


def test_compilation_cache_of_lapack_programs(tmp_path: Path) -> None:
    """One process writes the cache; another one reads it and does not compile."""
    text = f"""
        import sys, numpy as np, tracefx as fx, tracefx.numpy as fnp
        from tracefx.lax import linalg
        from tracefx.xla.runtime import executables
        if sys.argv[1] == "second":
            executables.compile_module = None
        with fx.compilation_cache({str(tmp_path)!r}):
            f = fx.jit(lambda k, y: linalg.triangular_solve(linalg.cholesky(k), y, left_side=True, lower=True))
            print(f(np.array({K.tolist()}, np.float32), np.array({Y.tolist()}, np.float32)).tolist())
    """
    assert output_of(text, "first") == output_of(text, "second") == "[[0.5], [1.25]]\n"
    assert list(tmp_path.rglob("*"))


def test_export_of_lapack_programs() -> None:
    exported = fx.export(fx.jit(fx.value_and_grad(likelihood)))(K, Y)
    want = fx.value_and_grad(likelihood)(K, Y)
    by_tracefx = fx.load(exported.serialize()).call(K, Y)
    by_jax = jax.export.deserialize(bytearray(exported.to_jax())).call(K, Y)
    for result in (by_tracefx, by_jax):
        for got, wanted in zip(fx.tree.leaves(tuple(result)), fx.tree.leaves(want), strict=True):
            assert_near(got, wanted)


def test_cholesky_and_triangular_solve_lower_for_every_platform() -> None:
    text = fx.export(fx.jit(likelihood), platforms=["tpu"])(K, Y).mlir_module()
    assert "stablehlo.cholesky" in text
    assert "stablehlo.triangular_solve" in text


def test_lapack_operand_is_aliased_where_possible() -> None:
    text = XlaBackend().lower(fx.make_jaxpr(linalg.cholesky)(K).jaxpr, "f").text()
    assert "@lapack_spotrf_ffi" in text
    assert "output_operand_alias<output_tuple_indices = [0], operand_index = 0" in text
    x = array(K)
    before = K.copy()
    linalg.cholesky(x, symmetrize_input=False)
    assert np.array_equal(x, before)
