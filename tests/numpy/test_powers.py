"""`power` against `jax.numpy`: result dtype and weak type for all pairs of dtypes and Python
numbers, values for some.
"""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

import operator
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
    assert_calls_agree,
    assert_near,
    assert_programs_agree,
    assert_same,
    attempt,
)
from tests.numpy.agreement import DTYPES
from tests.versions import HYPOT_PROMOTES_WEAKLY

EXPONENTS: Final = (2, 3, 1, 0, -1, 0.5, -0.5, 2.0, True, 1j)


@pytest.fixture(autouse=True)
def _ignore_warnings() -> Iterator[None]:
    """Silences JAX's warning that a Python number is narrowed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_power_of_python_numbers() -> None:
    assert_calls_agree(fnp.power, jnp.power, [(x, to) for x in (2, -3, 2.5, True, 1 + 2j) for to in EXPONENTS])


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_of_power_of_arrays_and_numbers(dtype: str) -> None:
    x = np.asarray(fnp.array([0, 1, 2, 3], dtype=dtype))
    calls = [(x, n) for n in EXPONENTS]
    assert_calls_agree(operator.pow, operator.pow, [*calls, *[(n, x) for n in EXPONENTS]], types_only=True)
    assert_calls_agree(fnp.power, jnp.power, calls, types_only=True)
    power: Any = operator.pow
    for n in (2, 2.0, 1j):  # weakly typed arrays, concrete and traced
        assert_programs_agree(
            [
                lambda np, x, n=n: power(x, np.asarray(n)),
                lambda np, x, n=n: power(np.asarray(n), x),
                lambda np, x, n=n: fx.jit(power)(x, np.asarray(n)) if np is fnp else power(x, np.asarray(n) * 1),
            ],
            x,
            types_only=True,
            compiled=False,
        )


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "bfloat16", "complex64"])
def test_power_of_arrays_and_numbers(dtype: str) -> None:
    x = np.asarray(fnp.array([0, 1, 2, 3], dtype=dtype))
    assert_calls_agree(operator.pow, operator.pow, [call for n in EXPONENTS for call in ((x, n), (n, x))])


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_of_power_of_arrays(dtype: str) -> None:
    x = np.asarray(fnp.array([1, 0, 2, 3], dtype=dtype))
    calls = [(x, np.asarray(fnp.array([2, 3, 0, 1], dtype=other))) for other in DTYPES]
    assert_calls_agree(fnp.power, jnp.power, calls, types_only=True)


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_power_with_a_concrete_scalar_array(dtype: str) -> None:
    def case(m: Any, np_: Any) -> list[object]:
        x, exponents = np_.array([1, 0, 2, 3], dtype), [np_.array([2], other)[0] for other in DTYPES]
        return [attempt(np_.power, x, n) for n in exponents]

    assert_same(case(fx, fnp), case(jax, jnp), JAX_TOLERANCE)  # both eagerly: the exponents are concrete


def test_weak_types_of_hypot() -> None:
    x, b = np.array([3, 4], np.int8), np.array([False, True])
    calls = [call for n in (2, 2.5) for call in ((x, n), (n, b))]
    assert_calls_agree(fnp.hypot, jnp.hypot, calls, weak=not HYPOT_PROMOTES_WEAKLY)
    assert_calls_agree(fnp.hypot, jnp.hypot, [(2, 3), (2.5, 3)])


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
