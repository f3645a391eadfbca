"""Reductions against `jax.numpy`: all dtypes and axes, `keepdims`, `where`, `initial`, `dtype`."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.numpy.agreement import DTYPES, agree, agree_in_type, both, check, numbers

REDUCTIONS: Final = ("sum", "prod", "max", "min", "mean", "var", "std", "all", "any", "count_nonzero", "ptp")
AXES: Final = (None, 0, -1, (0, 1), (), (2, 0))


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_axis(name: str, dtype: str) -> None:
    f, g = getattr(fnp, name), getattr(jnp, name)
    x, y = both(numbers(dtype, (2, 3, 4)))
    if dtype == "int64" and name in ("max", "min", "ptp"):  # JAX's initial value overflows unless x64 is enabled
        for axis in AXES:
            assert f(x, axis=axis).tolist() == np.asarray(getattr(np, name)(np.asarray(x), axis)).tolist()
        return
    for axis in AXES:
        agree_in_type(lambda x: f(x, axis=axis), lambda y: g(y, axis=axis), np.asarray(x))  # noqa: B023
        if dtype == "float32":
            agree(lambda: f(x, axis=axis), lambda: g(y, axis=axis))  # noqa: B023  # called at once
    agree_in_type(lambda x: f(x, keepdims=True), lambda y: g(y, keepdims=True), np.asarray(x))
    agree(lambda: f(x, axis=1, keepdims=True), lambda: g(y, axis=1, keepdims=True))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_argmax_and_argmin(name: str, dtype: str) -> None:
    f, g = getattr(fnp, name), getattr(jnp, name)
    x, y = both(numbers(dtype, (3, 4)))
    if dtype in ("int64", "float64"):  # JAX raises here unless x64 is enabled
        for axis in (None, 0, -1):
            assert f(x, axis).tolist() == getattr(np, name)(np.asarray(x), axis).tolist()
        return
    for axis in (None, 0, -1) if dtype == "float32" else (1,):
        agree(lambda: f(x, axis), lambda: g(y, axis))  # noqa: B023
        agree(lambda: f(x, axis, keepdims=True), lambda: g(y, axis, keepdims=True))  # noqa: B023


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "bfloat16", "float32", "complex64"])
def test_where_and_initial(dtype: str) -> None:
    x, y = both(numbers(dtype, (2, 3)))
    mask, jax_mask = both(np.array([True, False, True]))
    for name in ("sum", "prod"):
        f, g = getattr(fnp, name), getattr(jnp, name)
        agree(lambda: f(x, where=mask), lambda: g(y, where=jax_mask))  # noqa: B023
        agree(lambda: f(x, axis=1, initial=2), lambda: g(y, axis=1, initial=2))  # noqa: B023
        agree(lambda: f(x, 0, initial=2, where=mask), lambda: g(y, 0, initial=2, where=jax_mask))  # noqa: B023
    for name in ("max", "min"):
        f, g = getattr(fnp, name), getattr(jnp, name)
        agree(lambda: f(x, where=mask), lambda: g(y, where=jax_mask))  # noqa: B023
        agree(lambda: f(x, axis=1, initial=1), lambda: g(y, axis=1, initial=1))  # noqa: B023
        agree(lambda: f(x, initial=1, where=mask), lambda: g(y, initial=1, where=jax_mask))  # noqa: B023
    for name in ("mean", "var", "std", "all", "any"):
        f, g = getattr(fnp, name), getattr(jnp, name)
        agree(lambda: f(x, axis=1, where=mask), lambda: g(y, axis=1, where=jax_mask))  # noqa: B023
        agree(lambda: f(x, where=mask, keepdims=True), lambda: g(y, where=jax_mask, keepdims=True))  # noqa: B023


@pytest.mark.parametrize("dtype", ["int32", "float16", "float32", "float64", "complex64"])
def test_dtype_argument(dtype: str) -> None:
    for input_dtype in ("bool", "int8", "float32"):
        x, y = both(numbers(input_dtype, (2, 3)))
        for name in ("sum", "prod", "mean", "var"):
            if (name, dtype) != ("var", "int32"):  # JAX computes in integers, which loses the fraction of the mean
                f, g = getattr(fnp, name), getattr(jnp, name)
                agree(lambda: f(x, axis=0, dtype=dtype), lambda: g(y, axis=0, dtype=dtype))  # noqa: B023


@pytest.mark.parametrize("ddof", [0, 1, 3, 4])
def test_degrees_of_freedom(ddof: int) -> None:
    x, y = both(numbers("float32", (3, 4)))
    agree(lambda: fnp.var(x, 0, ddof=ddof), lambda: jnp.var(y, 0, ddof=ddof))
    agree(lambda: fnp.std(x, ddof=ddof), lambda: jnp.std(y, ddof=ddof))


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize("name", [*REDUCTIONS, "argmax", "argmin"])
def test_invalid_arguments_raise_with_the_parameter_name(name: str) -> None:
    f = getattr(fnp, name)
    x = fnp.ones((2, 3))
    with pytest.raises(ValueError, match="axis 2 is out of bounds for an array with 2 axes"):
        f(x, axis=2)
    with pytest.raises(TypeError, match="axis"):
        f(x, axis=1.5)
    for bad in ([1, 2], "a", None):
        with pytest.raises(TypeError, match=": a must be an array"):
            f(bad)
    if not name.startswith("arg"):
        with pytest.raises(ValueError, match="twice"):
            f(x, axis=(0, -2))


def test_invalid_where_and_initial_raise() -> None:
    x = fnp.ones((2, 3))
    untyped: Any = fnp
    with pytest.raises(ValueError, match="where needs initial"):
        fnp.max(x, where=x > 0)
    with pytest.raises(TypeError, match="sum: where must be an array of bools"):
        fnp.sum(x, where=x)
    with pytest.raises(TypeError, match="sum: where must be an array"):
        untyped.sum(x, where=[True, False, True])
    with pytest.raises(ValueError, match="sum: initial must have no axes"):
        fnp.sum(x, initial=fnp.ones(3))
    with pytest.raises(TypeError, match="dtype"):
        fnp.sum(x, dtype="nonsense")
    with pytest.raises(ValueError, match="no elements"):
        fnp.max(fnp.ones((0, 3)))


# ------------------------------------------------------------------ cumulative sums, weighted means


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_cumsum_and_cumprod(name: str) -> None:
    f, g = getattr(fnp, name), getattr(jnp, name)
    for dtype in DTYPES:
        if dtype not in ("int64", "float64"):
            x, y = both(numbers(dtype, (2, 3)))
            agree(lambda: f(x, 1), lambda: g(y, 1))  # noqa: B023
    x, y = both(numbers("float32", (2, 3, 4)))
    for axis in (None, 0, -1, 3):
        agree(lambda: f(x, axis), lambda: g(y, axis))  # noqa: B023
    agree(lambda: f(x, 0, "int8"), lambda: g(y, 0, "int8"))
    agree(lambda: f(2.0), lambda: g(2.0))
    agree(lambda: f([1]), lambda: g([1]))
    agree(lambda: f(fnp.full(3, 2)), lambda: g(jnp.full(3, 2)))
    weights = numbers("float32", (2, 3, 4), 1)
    gradient: Any = jax.grad(lambda y: jnp.sum(g(y + 4, 1) * weights))
    check(fx.grad(lambda x: fnp.sum(f(x + 4, 1) * weights))(x), gradient(y))


def test_average() -> None:
    for dtype in ("int32", "float32", "complex64"):
        (x, a), (w, b), (v, c) = [both(np.abs(numbers(dtype, shape)) + 1) for shape in ((2, 3), (2, 3), (3,))]
        for options in (
            {},
            {"axis": 1},
            {"axis": (0, 1)},
            {"axis": 0, "keepdims": True},
            {"returned": True, "axis": 1},
        ):
            kw: Any = options
            agree(lambda: fnp.average(x, **kw), lambda: jnp.average(a, **kw))  # noqa: B023
            agree(lambda: fnp.average(x, weights=w, **kw), lambda: jnp.average(a, weights=b, **kw))  # noqa: B023
            agree(lambda: fnp.average(x, weights=v, **kw), lambda: jnp.average(a, weights=c, **kw))  # noqa: B023
        agree(lambda: fnp.average(x, (1, 0), w.T), lambda: jnp.average(a, (1, 0), b.T))  # noqa: B023


def test_cumulative_reductions_and_means_in_narrow_dtypes() -> None:
    for values in ([1.5, 0.0, 2.0], [3, 0, 2], [True, False, True], [0, 0, 1]):
        for name in ("cumsum", "cumprod", "nancumsum", "nancumprod", "cumulative_sum", "cumulative_prod"):
            got, want = (getattr(m, name)(m.array(values), dtype=bool) for m in (fnp, jnp))
            assert (got.dtype, got.tolist()) == (want.dtype, want.tolist()), (name, values)
        for name in ("mean", "nanmean"):
            for dtype in ("int8", "uint8", "int32"):
                got, want = (getattr(m, name)(m.array(values), dtype=dtype) for m in (fnp, jnp))
                assert (got.dtype, got.tolist()) == (want.dtype, want.tolist()), (name, values, dtype)
    assert fx.jit(lambda x: fnp.cumsum(x, dtype=bool))(fnp.array([0, 2, 0])).tolist() == [False, True, True]
    hundreds = np.array([100, 100, 100])
    assert int(fnp.mean(hundreds, dtype="int8")) == int(jnp.mean(hundreds, dtype="int8")) == 14
    assert fnp.mean(np.ones(300), dtype="int8").tolist() == jnp.mean(np.ones(300), dtype="int8").tolist()
