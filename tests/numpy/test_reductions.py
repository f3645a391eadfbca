"""Reductions against `jax.numpy`: all dtypes and axes, `keepdims`, `where`, `initial`, `dtype`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_calls_agree
from tests.errors import assert_errors
from tests.numpy.agreement import DTYPES, numbers

REDUCTIONS: Final = ("sum", "prod", "max", "min", "mean", "var", "std", "all", "any", "count_nonzero", "ptp")
AXES: Final = (None, 0, -1, (0, 1), (), (2, 0))


def agree_calls(name: str, calls: Sequence[Sequence[Any]], **options: Any) -> None:
    assert_calls_agree(getattr(fnp, name), getattr(jnp, name), calls, **options)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_every_dtype_and_axis(name: str) -> None:
    xs = {dtype: numbers(dtype, (2, 3, 4)) for dtype in DTYPES}
    if name in ("max", "min", "ptp"):  # JAX's initial value overflows unless x64 is enabled
        x = xs.pop("int64")
        for axis in AXES:
            assert getattr(fnp, name)(fnp.array(x, "int64"), axis=axis).tolist() == getattr(np, name)(x, axis).tolist()
    every: list[dict[str, Any]] = [*[{"axis": axis} for axis in AXES], {"keepdims": True}]
    agree_calls(name, [(x, options) for x in xs.values() for options in every], types_only=True)
    agree_calls(name, [(x, {"axis": 1, "keepdims": True}) for x in xs.values()])
    agree_calls(name, [(xs["float32"], {"axis": axis}) for axis in AXES])


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_argmax_and_argmin(name: str) -> None:
    calls: list[tuple[Any, ...]] = []
    for dtype in DTYPES:
        x = numbers(dtype, (3, 4))
        if dtype in ("int64", "float64"):  # JAX raises here unless x64 is enabled
            for axis in (None, 0, -1):
                assert getattr(fnp, name)(fnp.array(x, dtype), axis).tolist() == getattr(np, name)(x, axis).tolist()
        elif dtype == "complex64":  # JAX raises when it lowers the program
            for f in (fnp, jnp):
                with pytest.raises(TypeError):
                    getattr(f, name)(x, 1)
        else:
            axes = (None, 0, -1) if dtype == "float32" else (1,)
            calls += [(x, axis, options) for axis in axes for options in ({}, {"keepdims": True})]
    agree_calls(name, calls)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var"])
def test_dtype_argument(name: str) -> None:
    xs = [numbers(dtype, (2, 3)) for dtype in ("bool", "int8", "float32")]
    dtypes = ["float16", "float32", "float64", "complex64"]
    dtypes += [] if name == "var" else ["int32"]  # JAX computes in integers, which loses the fraction of the mean
    agree_calls(name, [(x, {"axis": 0, "dtype": dtype}) for x in xs for dtype in dtypes])


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
    assert_errors(
        (lambda: fnp.max(x, where=x > 0), ValueError, "where needs initial"),
        (lambda: fnp.sum(x, where=x), TypeError, "sum: where must be an array of bools"),
        (lambda: untyped.sum(x, where=[True, False, True]), TypeError, "sum: where must be an array"),
        (lambda: fnp.sum(x, initial=fnp.ones(3)), ValueError, "sum: initial must have no axes"),
        (lambda: fnp.sum(x, dtype="nonsense"), TypeError, "dtype"),
        (lambda: fnp.max(fnp.ones((0, 3))), ValueError, "no elements"),
    )


@pytest.mark.parametrize("name", ["mean", "var", "std", "nanmean", "nanvar", "nanstd"])
def test_errors_of_moments_name_the_function(name: str) -> None:
    f, x = getattr(fnp, name), fnp.ones((2, 3))
    options: list[dict[str, Any]] = [{"axis": 2}, {"dtype": "nonsense"}, {"where": x}]
    options += [{"where": fnp.ones(4, bool)}, {"where": fnp.ones((2, 1, 4), bool)}]
    if not name.endswith("mean"):
        options += [{"dtype": "int32"}, {"mean": "a"}, {"mean": fnp.ones(4)}]
        options += [{"mean": fnp.ones((4, 1, 1)), "where": fnp.ones((5, 2, 1), bool)}]
    if name in ("var", "std"):
        options.append({"ddof": 1, "correction": 2})
    assert_errors(*[(lambda each=each: f(x, **each), (TypeError, ValueError), f"^{name}: ") for each in options])
    assert_errors((lambda: f(x, out=x), NotImplementedError, f"^{name}: out must be None"))
    if not name.endswith("mean"):
        with pytest.raises(ValueError, match=f"^{name}: dtype=.* is real, but a is c64"):
            f(x + 1j, dtype="float32")


# ------------------------------------------------------------------ cumulative sums, weighted means


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
