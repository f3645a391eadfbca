"""`tracefx.nn` at edge cases: infinite and NaN inputs, empty masks, error messages."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_agree, assert_near
from tests.errors import assert_errors
from tests.numpy.agreement import both, check, f32, i32
from tracefx import nn


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # JAX warns
def test_integers_promote_to_floats_as_in_jax() -> None:
    x, y = both(i32([-1, 0, 2]))
    for function, jax_function in (
        (nn.relu, jax.nn.relu),
        (nn.softplus, jax.nn.softplus),
        (nn.gelu, jax.nn.gelu),
        (nn.softmax, jax.nn.softmax),
        (nn.log_softmax, jax.nn.log_softmax),
        (nn.logsumexp, jax.nn.logsumexp),
    ):
        check(function(x), jax_function(y))
    with pytest.raises(TypeError, match="logistic"):
        nn.sigmoid(x)


@pytest.mark.parametrize("name", ["softplus", "log_sigmoid", "mish"])
def test_complex_activations(name: str) -> None:
    x = np.array([[1 + 2j, -3 - 0.5j], [0.5j, 40 + 1j]], np.complex64)

    def case(F: Any, N: Any) -> Any:
        f, z = getattr(F.nn, name), N.asarray(x)
        return f(z), F.jit(f)(z), F.grad(lambda z: f(z).real.sum())(z)

    assert_agree(case)


def test_derivatives_at_infinity_and_nan() -> None:
    def slope(f: Callable[[Any], Any], x: float) -> float:
        return float(fx.grad(f)(x))

    assert slope(nn.relu, 0.0) == slope(nn.relu, math.nan) == slope(nn.relu, -math.inf) == 0.0
    assert slope(nn.relu, math.inf) == slope(nn.softplus, math.inf) == 1.0
    assert slope(nn.softplus, -math.inf) == 0.0
    assert math.isnan(slope(nn.softplus, math.nan))


@pytest.mark.parametrize(("function", "value"), [(nn.softmax, 0.0), (nn.log_softmax, -math.inf)])
def test_mask_that_excludes_all_elements(function: Any, value: float) -> None:
    x = fnp.array(f32(np.arange(4)))
    mask = np.zeros(4, bool)
    assert function(x, where=mask).tolist() == [value] * 4
    assert fx.grad(lambda x: fnp.sum(fnp.where(mask, function(x, where=mask), x)))(x).tolist() == [1.0] * 4
    assert fx.jvp(lambda x: function(x, where=mask), (x,), (x,))[1].tolist() == [0.0] * 4
    assert nn.logsumexp(x, where=mask).item() == -math.inf


def test_masked_out_elements_do_not_matter() -> None:
    x, y = both(f32([1, math.nan, 2, math.inf]))
    mask = np.array([True, False, True, False])
    check(nn.softmax(x, where=mask), jax.nn.softmax(y, where=mask))
    check(nn.logsumexp(x, where=mask), jax.nn.logsumexp(y, where=mask))
    gradient = fx.grad(lambda x: nn.logsumexp(x, where=mask))(x)
    check(gradient, jax.grad(lambda y: jax.nn.logsumexp(y, where=mask))(y))
    assert fx.grad(lambda x: nn.softmax(x, where=mask)[0])(x)[1::2].tolist() == [0.0, 0.0]


def test_infinite_exponents() -> None:
    low, high = [both(f32(v)) for v in ([-math.inf, -math.inf], [math.inf, 1.0])]
    for x, y in (low, high, both(f32([-math.inf, 0.0]))):
        for function, jax_function in (
            (nn.logsumexp, jax.nn.logsumexp),
            (nn.softmax, jax.nn.softmax),
            (nn.log_softmax, jax.nn.log_softmax),
        ):
            check(function(x), jax_function(y))
    x, y = both(f32([-math.inf, 0.0]))
    check(fx.grad(nn.logsumexp)(x), jax.grad(jax.nn.logsumexp)(y))
    check(nn.logsumexp(fnp.zeros((2, 0)), axis=1), jax.nn.logsumexp(jnp.zeros((2, 0)), axis=1))


def test_one_hot_along_a_mapped_axis() -> None:
    spread = fx.vmap(lambda x: nn.one_hot(x, 3, axis="i"), axis_name="i", in_axes=None, axis_size=3)(1)
    assert spread.tolist() == [0.0, 1.0, 0.0]


def test_bad_arguments() -> None:
    untyped_nn: Any = nn
    assert_errors(
        (lambda: untyped_nn.one_hot("a", 3), TypeError, "one_hot: x"),
        (lambda: untyped_nn.one_hot(1.5j, 3), TypeError, "integer"),
        (lambda: fx.jit(lambda n: nn.one_hot(1, n))(3), TypeError, "num_classes"),
        (lambda: untyped_nn.one_hot(1, 3, axis=2), ValueError, "axis 2"),
        (lambda: untyped_nn.relu("a"), TypeError, "relu: x"),
        (lambda: untyped_nn.softmax(fnp.ones(3), 1), ValueError, "axis 1"),
        (lambda: untyped_nn.logsumexp(None), TypeError, "logsumexp: a"),
    )


def test_squareplus_does_not_overflow() -> None:
    x = np.array([3e38, -3e38, 1e19, -1e19, -np.inf, np.inf, 2.0, -2.0], np.float32)
    want = [3e38, 0.0, 1e19, 1e-19, 0.0, np.inf, 1 + math.sqrt(2), math.sqrt(2) - 1]
    for wrap in (lambda f: f, fx.jit):
        got = np.asarray(wrap(nn.squareplus)(x))
        assert_near(got[np.isfinite(want)], np.asarray(want, np.float32)[np.isfinite(want)])
        assert got[5] == np.inf
    slopes = np.asarray(fx.vmap(fx.grad(nn.squareplus))(x[:4]))
    np.testing.assert_array_equal(slopes[:3], [1.0, 0.0, 1.0])
    near = np.linspace(-5, 5, 11, dtype=np.float32)
    assert_near(nn.squareplus(near), jax.nn.squareplus(near))
    assert nn.squareplus(3).weak_type == jax.nn.squareplus(3).weak_type


@pytest.mark.parametrize("name", ["relu", "relu6"])
def test_programs_show_the_names_of_public_functions(name: str) -> None:
    program = str(fx.make_jaxpr(getattr(nn, name))(np.ones(2, np.float32)))
    assert f"custom_jvp_call[\n      name='{name}'\n" in program


def test_errors_name_the_function_that_was_called() -> None:
    x = fnp.ones((4, 10))
    for f in (nn.softmax, nn.log_softmax, nn.standardize):
        with pytest.raises(ValueError, match=f"^{f.__name__}: axis 2 is out of bounds"):
            f(x, axis=2)
