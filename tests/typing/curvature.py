"""Static types of Laplacians and sparse derivatives."""

from __future__ import annotations

from typing import assert_type

from tracefx import Array
from tracefx.handlers import (
    Derivatives,
    SparseMatrix,
    SparsityPattern,
    forward_laplacian,
    hessian_sparsity,
    jacobian_sparsity,
    laplacian,
    sparse_hessian,
    sparse_jacobian,
    value_and_laplacian,
)


def energy(x: Array, scale: float = 1.0) -> Array:
    return (x * x).sum() * scale


def split(x: Array) -> dict[str, Array]:
    return {"x": x}


def laplacians(x: Array) -> None:
    assert_type(laplacian(energy)(x), Array)
    assert_type(laplacian(energy)(x, scale=2.0), Array)
    assert_type(laplacian(split)(x), dict[str, Array])
    assert_type(value_and_laplacian(energy)(x), tuple[Array, Array])
    assert_type(forward_laplacian(energy)(x), Derivatives[Array])
    assert_type(forward_laplacian(energy)(x).laplacian, Array)
    laplacian(energy)(x, scales=2.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    laplacian(energy, "x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def sparse(x: Array) -> None:
    assert_type(jacobian_sparsity(split)(x), SparsityPattern)
    assert_type(hessian_sparsity(energy)(x, 2.0), SparsityPattern)
    matrix = sparse_jacobian(split)(x)
    assert_type(matrix, SparseMatrix)
    assert_type(matrix @ x, Array)
    assert_type(matrix.T.todense(), Array)
    assert_type(sparse_hessian(energy, matrix.pattern)(x), SparseMatrix)
    sparse_jacobian(split)()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
