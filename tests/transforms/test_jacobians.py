"""`jacfwd`, `jacrev`, `hessian`, against JAX."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import Case, assert_agree
from tracefx.core import dtypes

X: Final = np.array([0.5, -1.5, 2.0], np.float32)
M: Final = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)
C: Final = np.array([0.5 + 1j, -1.5 - 0.25j], np.complex64)

BOTH: Final[dict[str, Any]] = {
    "vector to vector": lambda J, F, N: J(lambda x: N.sin(x) * x[::-1])(X),
    "vector to scalar": lambda J, F, N: J(lambda x: N.sum(N.sin(x)))(X),
    "scalar to vector": lambda J, F, N: J(lambda x: N.asarray(X) * x * x)(2.0),
    "scalar to scalar": lambda J, F, N: J(lambda x: x * x)(2.0),
    "matrix to vector": lambda J, F, N: J(lambda m: N.tanh(m @ X))(M),
    "matrix to matrix": lambda J, F, N: J(lambda m: m @ m.T)(M),
    "trees": lambda J, F, N: J(lambda p: {"o": p["a"] * 2, "q": [p["b"] @ p["a"], N.sum(p["a"])]})({"a": X, "b": M}),
    "argnums": lambda J, F, N: J(lambda m, x: m @ N.sin(x), 1)(M, X),
    "argnums tuple": lambda J, F, N: J(lambda m, x: m @ N.sin(x), (0, 1))(M, X),
    "argnums negative": lambda J, F, N: J(lambda m, x: m @ N.sin(x), -1)(M, X),
    "has_aux": lambda J, F, N: J(lambda x: (x * x, {"x": x, "n": 1}), has_aux=True)(X),
    "kwargs": lambda J, F, N: J(lambda x, *, k: k * x * x)(X, k=2.0),
    "holomorphic": lambda J, F, N: J(lambda z: z * z, holomorphic=True)(C),
    "unused tree entry": lambda J, F, N: J(lambda p: p[0] * 2)((X, M)),
    "constant output": lambda J, F, N: J(lambda x: (x, N.asarray(M)))(X),
    "of jit": lambda J, F, N: J(F.jit(lambda x: N.sin(x) * x[0]))(X),
    "jit of": lambda J, F, N: F.jit(J(lambda x: N.sin(x) * x[0]))(X),
    "vmap of": lambda J, F, N: F.vmap(J(lambda x: N.sin(x) * x[0]))(M),
    "grad of": lambda J, F, N: F.grad(lambda x: N.sum(J(lambda y: N.sin(y) * y[0])(x)))(X),
    "of grad": lambda J, F, N: J(F.grad(lambda x: N.sum(N.sin(x) * x[0])))(X),
    "closure over a tracer": lambda J, F, N: F.vmap(lambda x: J(lambda y: x * y * y)(X))(X),
    "empty axis": lambda J, F, N: J(lambda x: x * 2)(np.zeros((0,), np.float32)),
    "half": lambda J, F, N: J(lambda x: x * x)(X.astype(np.float16)),
}


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("jacobian", ["jacfwd", "jacrev"])
def test_jacobians(jacobian: str, name: str) -> None:
    assert_agree(lambda F, N: BOTH[name](getattr(F, jacobian), F, N))


HESSIANS: Final[dict[str, Case]] = {
    "of a scalar function": lambda F, N: F.hessian(lambda x: N.sum(N.sin(x) * x[::-1]))(X),
    "of a vector function": lambda F, N: F.hessian(lambda x: N.sin(x) * x[0])(X),
    "trees": lambda F, N: F.hessian(lambda p: N.sum(p["b"] @ N.sin(p["a"])))({"a": X, "b": M}),
    "argnums": lambda F, N: F.hessian(lambda m, x: N.sum(m @ N.sin(x)), (0, 1))(M, X),
    "has_aux": lambda F, N: F.hessian(lambda x: (N.sum(x * x * x), x), has_aux=True)(X),
    "jit": lambda F, N: F.jit(F.hessian(lambda x: N.sum(x * x * x)))(X),
    "vmap": lambda F, N: F.vmap(F.hessian(lambda x: N.sum(x * x * x)))(M),
    "jacrev of jacfwd": lambda F, N: F.jacrev(F.jacfwd(lambda x: N.sin(x) * x[0]))(X),
    "jacrev of jacrev": lambda F, N: F.jacrev(F.jacrev(lambda x: N.sin(x) * x[0]))(X),
    "jacfwd of jacfwd": lambda F, N: F.jacfwd(F.jacfwd(lambda x: N.sin(x) * x[0]))(X),
}


@pytest.mark.parametrize("name", HESSIANS)
def test_hessians(name: str) -> None:
    assert_agree(HESSIANS[name])


def test_jacfwd_allows_complex_outputs() -> None:
    assert_agree(lambda F, N: F.jacfwd(lambda x: (N.fft.rfft(x), N.sum(x * 1j) * x[0]))(X))


def test_jacrev_refuses_complex_outputs() -> None:
    with pytest.raises(TypeError, match="output must be a float, got c64"):
        fx.jacrev(lambda x: x * 1j)(X)


def test_jacobians_call_the_function_once() -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append(1)
        return fnp.sin(x)

    for jacobian in (fx.jacfwd, fx.jacrev):
        jacobian(f)(X)
    assert len(calls) == 2


def test_jacobian_of_integer_argument_is_float0() -> None:
    """As documented by JAX, whose own jacrev returns integer zeros."""
    rows = fx.jacrev(lambda i: i * X, allow_int=True)(np.array([1, 2, 3], np.int32))
    assert (rows.shape, rows.dtype) == ((3, 3), dtypes.float0)


@pytest.mark.parametrize("jitted", [False, True])
def test_jacobian_of_integer_output_is_zero(jitted: bool) -> None:
    def case(F: Any, N: Any) -> Any:
        jacobian_f = F.jacfwd(lambda x, y: {"a": x * 2, "b": (x * 2).astype("int32")}, (0, 1))
        return (F.jit(jacobian_f) if jitted else jacobian_f)(N.ones(2), N.ones((3, 1)))

    assert_agree(case)
    assert_agree(lambda F, N: F.jacfwd(lambda x: (x * 2).astype("int8"))(N.ones(2)))
    assert fx.jacfwd(lambda x: x > 1)(fnp.ones(2)).dtype == np.bool_
