"""Cumulative reductions."""

from __future__ import annotations

import functools
from typing import Final

import jax
import numpy as np
import pytest
from jax import lax as jax_lax

import tracefx as fx
from tests.comparison import assert_near
from tests.errors import untyped
from tests.ops.harness import (
    applied,
    error_tests,
    printing_tests,
)
from tracefx import lax
from tracefx.core import dtypes, to_numpy
from tracefx.testing import check_grads
from tracefx.testing.tolerances import ELEMENTARY, Ulps


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cumlogsumexp"])
def test_narrow_floats_are_rounded_once(name: str) -> None:
    f = getattr(lax, name)
    x = (1 + np.linspace(-0.01, 0.01, 1000)).astype(dtypes.bfloat16)
    want = to_numpy(f(x.astype(np.float32)))
    for got in (f(x), fx.jit(f)(x)):
        assert_near(to_numpy(got), want, Ulps(narrow=1))  # one rounding at the end


def test_gradient_of_cumprod_with_zeros() -> None:
    x = np.array([2.0, 0.0, 3.0, 0.0, 5.0], np.float32)
    jax_grad = jax.jit(jax.grad(lambda x, w: (jax_lax.cumprod(x) * w).sum()))
    for weights in np.eye(5, dtype=np.float32):
        got = fx.grad(lambda x, w: lax.reduce_sum(lax.mul(lax.cumprod(x), w), (0,)))(x, weights)
        np.testing.assert_array_equal(to_numpy(got), jax_grad(x, weights))


def test_second_derivative_of_cumlogsumexp_of_equal_elements() -> None:
    """The softmax weights of equal elements must be differentiated too."""
    got = fx.hessian(lambda x: lax.cumlogsumexp(x)[2])(np.zeros(3, np.float32))
    assert_near(np.asarray(got), np.eye(3) / 3 - 1 / 9, ELEMENTARY)


def test_derivative_of_cumlogsumexp_after_infinities() -> None:
    x = np.array([-np.inf, -np.inf, 0.0, 0.0], np.float32)
    got = fx.grad(lambda x: lax.cumlogsumexp(x)[3])(x)
    assert got.tolist() == [0.0, 0.0, 0.5, 0.5]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_complex_cumlogsumexp(axis: int, reverse: bool) -> None:
    """Against NumPy in 64 bits, since JAX adds the identity to each element with a rounding error."""
    x = np.array([[1 + 2j, -3 + 1j, 4j, 2 - 3j], [0.5, 1 + 1j, 2j, -1 - 2j]], np.complex64)
    f = functools.partial(lax.cumlogsumexp, axis=axis, reverse=reverse)
    flipped = np.flip(x.astype(np.complex128), axis) if reverse else x.astype(np.complex128)
    sums = np.log(np.cumsum(np.exp(flipped), axis))
    want = np.flip(sums, axis) if reverse else sums
    for function in (f, fx.jit(f)):
        got = np.asarray(function(x))
        assert got.dtype == np.complex64
        assert_near(got, want)
    check_grads(f, x, order=2)
    assert_near(fx.vmap(functools.partial(f, axis=0), in_axes=1 - axis, out_axes=1 - axis)(x), want)


def test_complex_cumlogsumexp_after_infinities_and_of_large_angles() -> None:
    x = np.array([complex(-np.inf, 1), complex(-np.inf, 2), 100 + 3j, 100 + 4j, complex(np.inf, 0)], np.complex64)
    want = np.log(1 + np.exp(1j)) + 3j - 2j * np.pi
    assert_near(
        np.asarray(fx.grad(lambda x: lax.cumlogsumexp(x)[3].real)(x)),
        [0, 0, 1 / (1 + np.exp(1j)), 1 / (1 + np.exp(-1j)), 0],
    )
    for f in (lax.cumlogsumexp, fx.jit(lax.cumlogsumexp)):
        got = np.asarray(f(x))
        assert_near(got[2:4], np.array([100 + 3j, 100 + want]))
        np.testing.assert_array_equal(got.real[[0, 1, 4]], [-np.inf, -np.inf, np.inf])


X: Final = np.ones((2, 3), np.float32)
test_programs_print_as_in_jax = printing_tests(
    cumsum=(applied("cumsum", 1, True), [X]), cumlogsumexp=(applied("cumlogsumexp", 1, False), [X])
)
test_invalid_arguments_raise = error_tests(
    (ValueError, "cumsum axis f32[2,3] 2", lambda: lax.cumsum(X, 2)),
    (ValueError, "cummax axis -1", lambda: lax.cummax(X, -1)),
    (TypeError, "cumprod axis 1.5", lambda: untyped(lax.cumprod)(X, 1.5)),
    (TypeError, "cumsum numbers bool", lambda: lax.cumsum(X > 0)),
    (TypeError, "cumlogsumexp floats i32", lambda: lax.cumlogsumexp(np.arange(3))),
)
