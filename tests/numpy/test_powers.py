"""`power` of concrete scalar arrays and infinities, and derivatives of powers and roots at edge values."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import (
    JAX_TOLERANCE,
    assert_near,
    assert_same,
    attempt,
)
from tests.numpy.agreement import DTYPES

EXPONENTS: Final = (2, 3, 1, 0, -1, 0.5, -0.5, 2.0, True, 1j)


@pytest.fixture(autouse=True)
def _ignore_warnings() -> Iterator[None]:
    """Silences JAX's warning that a Python number is narrowed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_power_with_a_concrete_scalar_array(dtype: str) -> None:
    def case(m: Any, np_: Any) -> list[object]:
        x, exponents = np_.array([1, 0, 2, 3], dtype), [np_.array([2], other)[0] for other in DTYPES]
        return [attempt(np_.power, x, n) for n in exponents]

    assert_same(case(fx, fnp), case(jax, jnp), JAX_TOLERANCE)  # both eagerly: the exponents are concrete


@pytest.mark.parametrize("name", ["sqrt", "rsqrt", "cbrt", "exp2", "log1p", "expm1", "log"])
def test_derivatives_at_edge_values_match_jax(name: str) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, 1.0], np.float32)
    f, g = getattr(fx.lax, name), getattr(jax.lax, name)
    for _ in range(2):
        f, g = fx.grad(f), jax.grad(g)
        want = np.asarray(jax.vmap(g)(x))
        assert_near(fx.vmap(f)(x), want)
        assert_near(fx.jit(fx.vmap(f))(x), want)


def test_second_derivative_of_cbrt() -> None:
    x = fnp.array([0.0, -0.0, fnp.inf, -fnp.inf])
    got = np.asarray(fx.vmap(fx.grad(fx.grad(fnp.cbrt)))(x))
    np.testing.assert_array_equal(got, [-np.inf, np.inf, -0.0, 0.0])
    assert np.signbit(got).tolist() == [True, False, True, False]


def test_power_0_5_is_a_power_not_a_square_root() -> None:
    """NumPy computes the exponent 0.5 as a square root, which is NaN at -inf."""
    for x in (np.array([-np.inf, -0.0, 4.0, -1.0], np.float32), np.float32(-np.inf)):
        for got in (fnp.power(x, 0.5), fx.lax.pow(x, np.float32(0.5)), fx.jit(fnp.power)(x, 0.5)):
            want = np.asarray(jnp.power(x, 0.5))
            np.testing.assert_array_equal(np.asarray(got), want)
            assert (np.signbit(np.asarray(got)) == np.signbit(want)).all()
