"""`power` against `jax.numpy`: result dtype and weak type for all pairs of dtypes and Python
numbers, values for some.
"""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tests.numpy.agreement import DTYPES, agree, agree_in_type, both
from tests.versions import HYPOT_PROMOTES_WEAKLY

EXPONENTS: Final = (2, 3, 1, 0, -1, 0.5, -0.5, 2.0, True, 1j)


@pytest.fixture(autouse=True)
def _ignore_warnings() -> Iterator[None]:
    """Silences JAX's warning that a Python number is narrowed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def array(dtype: str, values: list[int]) -> tuple[Any, Any]:
    return both(np.asarray(fnp.array(values, dtype=dtype)))


def test_power_of_python_numbers() -> None:
    for base in (2, -3, 2.5, True, 1 + 2j):
        for to in EXPONENTS:
            agree(partial(fnp.power, base, to), partial(jnp.power, base, to))


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_of_power_of_arrays_and_numbers(dtype: str) -> None:
    x = np.asarray(fnp.array([0, 1, 2, 3], dtype=dtype))
    power: Any = operator.pow
    for n in EXPONENTS:
        agree_in_type(lambda x, n=n: power(x, n), lambda y, n=n: power(y, n), x)
        agree_in_type(lambda x, n=n: power(n, x), lambda y, n=n: power(n, y), x)
        agree_in_type(lambda x, n=n: fnp.power(x, n), lambda y, n=n: jnp.power(y, n), x)
    for n in (2, 2.0, 1j):  # weakly typed arrays, concrete and traced
        weak, jax_n = fnp.asarray(n), jnp.asarray(n)
        agree_in_type(lambda x, n=weak: power(x, n), lambda y, n=jax_n: power(y, n), x)
        agree_in_type(lambda x, n=weak: power(n, x), lambda y, n=jax_n: power(n, y), x)
        agree_in_type(lambda x, n=weak: fx.jit(power)(x, n), lambda y, n=jax_n: power(y, n * 1), x)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "bfloat16", "complex64"])
def test_power_of_arrays_and_numbers(dtype: str) -> None:
    x, y = array(dtype, [0, 1, 2, 3])
    for n in EXPONENTS:
        agree(partial(operator.pow, x, n), partial(operator.pow, y, n))
        agree(partial(operator.pow, n, x), partial(operator.pow, n, y))


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_of_power_of_arrays(dtype: str) -> None:
    x = np.asarray(fnp.array([1, 0, 2, 3], dtype=dtype))
    for other in DTYPES:
        to = np.asarray(fnp.array([2, 3, 0, 1], dtype=other))
        agree_in_type(fnp.power, jnp.power, x, to)


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_power_with_a_concrete_scalar_array(dtype: str) -> None:
    x, y = array(dtype, [1, 0, 2, 3])
    for other in DTYPES:
        n, jax_n = array(other, [2])
        agree(partial(fnp.power, x, n[0]), partial(jnp.power, y, jax_n[0]))


def test_weak_types_of_hypot() -> None:
    (x, y), (b, c) = array("int8", [3, 4]), array("bool", [0, 1])
    for n in (2, 2.5):
        agree(partial(fnp.hypot, x, n), partial(jnp.hypot, y, n), weak=not HYPOT_PROMOTES_WEAKLY)
        agree(partial(fnp.hypot, n, b), partial(jnp.hypot, n, c), weak=not HYPOT_PROMOTES_WEAKLY)
        agree(partial(fnp.hypot, n, 3), partial(jnp.hypot, n, 3))


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
