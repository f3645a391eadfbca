"""`tracefx.nn` against `jax.nn`: values, types, first and second derivatives, edge values, masks."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.compiling import as_for_users
from tests.numpy.agreement import both, check, f32, i32, numbers
from tracefx import nn

EDGES: Final = f32([0.0, -0.0, 1e-30, -1e-30, 0.5, -3.0, 20.0, -20.0, 90.0, -90.0, 1e5, -1e5])
BEYOND: Final = f32([math.inf, -math.inf, math.nan])

# Each is called with the namespace and an array.
ELEMENTWISE: Final[tuple[Callable[[Any, Any], Any], ...]] = (
    lambda m, x: m.relu(x),
    lambda m, x: m.sigmoid(x),
    lambda m, x: m.silu(x),
    lambda m, x: m.softplus(x),
    lambda m, x: m.gelu(x),
    lambda m, x: m.gelu(x, approximate=False),
)
NAMES: Final = ("relu", "sigmoid", "silu", "softplus", "gelu", "exact gelu")


@pytest.mark.parametrize("function", ELEMENTWISE, ids=NAMES)
@as_for_users()
def test_an_elementwise_function(function: Callable[[Any, Any], Any]) -> None:
    x, y = both(EDGES)

    def ours(x: Any) -> Any:
        return function(nn, x)

    def theirs(y: Any) -> Any:
        return function(jax.nn, y)

    check(ours(x), theirs(y))
    check(fx.jit(ours)(x), theirs(y))
    check(fx.vmap(fx.grad(ours))(x), jax.vmap(jax.grad(theirs))(y))
    check(fx.vmap(fx.grad(fx.grad(ours)))(x), jax.vmap(jax.grad(jax.grad(theirs)))(y))
    x, y = both(BEYOND)
    check(ours(x), theirs(y))
    for dtype in ("bfloat16", "float64", "float16"):
        x, y = both(numbers(dtype, (8,)))
        check(ours(x), theirs(y))
    check(ours(fnp.full(3, 1.0)), theirs(jnp.full(3, 1.0)))
    check(ours(0.5), theirs(0.5))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # JAX's own
def test_integers_become_floats_where_jaxs_do() -> None:
    x, y = both(i32([-1, 0, 2]))
    for ours, theirs in (
        (nn.relu, jax.nn.relu),
        (nn.softplus, jax.nn.softplus),
        (nn.gelu, jax.nn.gelu),
        (nn.softmax, jax.nn.softmax),
        (nn.log_softmax, jax.nn.log_softmax),
        (nn.logsumexp, jax.nn.logsumexp),
    ):
        check(ours(x), theirs(y))
    with pytest.raises(TypeError, match="logistic"):
        nn.sigmoid(x)


def test_derivatives_beyond_the_finite() -> None:
    def slope(f: Callable[[Any], Any], x: float) -> float:
        return float(fx.grad(f)(x))

    assert slope(nn.relu, 0.0) == slope(nn.relu, math.nan) == slope(nn.relu, -math.inf) == 0.0
    assert slope(nn.relu, math.inf) == slope(nn.softplus, math.inf) == 1.0
    assert slope(nn.softplus, -math.inf) == 0.0
    assert math.isnan(slope(nn.softplus, math.nan))


MASK: Final = np.array([[True, False, True, True], [False, False, False, False], [True, True, True, True]])
REDUCING: Final[tuple[Callable[[Any, Any], Any], ...]] = (
    lambda m, x: m.softmax(x),
    lambda m, x: m.softmax(x, axis=0),
    lambda m, x: m.softmax(x, axis=(0, 1)),
    lambda m, x: m.softmax(x, axis=None),
    lambda m, x: m.log_softmax(x),
    lambda m, x: m.log_softmax(x, axis=(-1, 0)),
    lambda m, x: m.logsumexp(x),
    lambda m, x: m.logsumexp(x, axis=1),
    lambda m, x: m.logsumexp(x, axis=(0,), keepdims=True),
    lambda m, x: m.logsumexp(x, axis=-1, b=f32([1, 2, 0, 1])),
    lambda m, x: m.logsumexp(x, axis=-1, b=2),
    lambda m, x: m.logsumexp(x, -1, f32([1, -20, 1, 1]), return_sign=True)[0],
    lambda m, x: m.logsumexp(x[::2], axis=-1, where=MASK[::2]),
    lambda m, x: m.softmax(x, where=MASK),
    lambda m, x: m.log_softmax(x[::2], where=MASK[::2]),
    lambda m, x: m.softmax(x, axis=0, where=MASK[:, :1]),
)


@pytest.mark.parametrize("function", REDUCING, ids=range(len(REDUCING)))
def test_a_function_over_axes(function: Callable[[Any, Any], Any]) -> None:
    x, y = both(f32(np.arange(12).reshape(3, 4) % 7 - 3))
    expected = function(jax.nn, y)
    check(function(nn, x), expected)
    check(fx.jit(lambda x: function(nn, x))(x), expected)
    check(function(nn, x + 1000), function(jax.nn, y + 1000))
    weights = np.resize(f32([1, -2, 0.5]), expected.shape)
    finite = np.isfinite(np.asarray(expected))

    def ours(x: Any) -> Any:
        return fnp.sum(fnp.where(finite, function(nn, x), 0) * weights)

    def theirs(y: Any) -> Any:
        return jnp.sum(jnp.where(finite, function(jax.nn, y), 0) * weights)

    check(fx.grad(ours)(x), jax.grad(theirs)(y))
    twice, jax_twice = (
        fx.grad(lambda x: fnp.sum(fx.grad(ours)(x) ** 2)),
        jax.grad(lambda y: jnp.sum(jax.grad(theirs)(y) ** 2)),
    )
    np.testing.assert_allclose(np.asarray(twice(x)), np.asarray(jax_twice(y)), 1e-5, 2e-6)


@pytest.mark.parametrize(("function", "value"), [(nn.softmax, 0.0), (nn.log_softmax, -math.inf)])
def test_a_mask_that_leaves_nothing(function: Any, value: float) -> None:
    x = fnp.array(f32(np.arange(4)))
    mask = np.zeros(4, bool)
    assert function(x, where=mask).tolist() == [value] * 4
    assert fx.grad(lambda x: fnp.sum(fnp.where(mask, function(x, where=mask), x)))(x).tolist() == [1.0] * 4
    assert fx.jvp(lambda x: function(x, where=mask), (x,), (x,))[1].tolist() == [0.0] * 4
    assert nn.logsumexp(x, where=mask).item() == -math.inf


def test_what_a_mask_leaves_out_may_be_anything() -> None:
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
        for ours, theirs in (
            (nn.logsumexp, jax.nn.logsumexp),
            (nn.softmax, jax.nn.softmax),
            (nn.log_softmax, jax.nn.log_softmax),
        ):
            check(ours(x), theirs(y))
    x, y = both(f32([-math.inf, 0.0]))
    check(fx.grad(nn.logsumexp)(x), jax.grad(jax.nn.logsumexp)(y))
    check(nn.logsumexp(fnp.zeros((2, 0)), axis=1), jax.nn.logsumexp(jnp.zeros((2, 0)), axis=1))


def test_signs_of_sums() -> None:
    (x, y), b = both(f32([0, 1, 2])), f32([1, -2, 0])
    check(nn.logsumexp(x, b=b, return_sign=True), jax.nn.logsumexp(y, b=b, return_sign=True))
    check(nn.logsumexp(x, b=b), jax.nn.logsumexp(y, b=b))


def test_one_hot() -> None:
    (x, y) = both(i32([[0, 2, -1], [3, 1, 5]]))
    for options in ({}, {"axis": 0}, {"axis": 1, "dtype": "int8"}, {"dtype": bool}):
        kw: Any = options
        check(nn.one_hot(x, 4, **kw), jax.nn.one_hot(y, 4, **kw))
    check(nn.one_hot(1, 3), jax.nn.one_hot(1, 3))
    check(fx.jit(lambda x: nn.one_hot(x, 4))(x), jax.nn.one_hot(y, 4))
    spread = fx.vmap(lambda x: nn.one_hot(x, 3, axis="i"), axis_name="i", in_axes=None, axis_size=3)(1)
    assert spread.tolist() == [0.0, 1.0, 0.0]


def test_bad_arguments() -> None:
    wrong: Any = nn
    cases: Any = (
        (lambda: wrong.one_hot([1], 3), TypeError, "one_hot: x"),
        (lambda: wrong.one_hot(1.5, 3), TypeError, "integers"),
        (lambda: fx.jit(lambda n: nn.one_hot(1, n))(3), TypeError, "num_classes"),
        (lambda: wrong.one_hot(1, 3, axis=2), ValueError, "axis 2"),
        (lambda: wrong.relu("a"), TypeError, "maximum: x1"),
        (lambda: wrong.softplus(1j), TypeError, "complex"),
        (lambda: wrong.softmax(fnp.ones(3), 1), ValueError, "axis 1"),
        (lambda: wrong.logsumexp(None), TypeError, "logsumexp: a"),
    )
    for call, error, says in cases:
        with pytest.raises(error, match=says):
            call()
