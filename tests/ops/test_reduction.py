"""Reductions, `argmax` and `argmin`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import jax
import numpy as np
import pytest
from jax import lax as jax_lax

import tracefx as fx
from tests.comparison import assert_calls_agree, assert_near
from tests.errors import untyped
from tests.ops.harness import (
    check_raises,
    error_tests,
)
from tests.versions import PRINTS_SHARDINGS_OF_REDUCTIONS
from tracefx import lax
from tracefx.core import Array, DType, NDArray, dtypes, to_numpy
from tracefx.testing.tolerances import EXACT

Axes = tuple[int, ...]


# ------------------------------------------------------------------ special values

NAN, INF = np.nan, np.inf
SPECIAL: Final = (
    [1, NAN, 3, NAN],
    [NAN, NAN],
    [-INF, -INF],
    [INF, -INF, 2],
    [-0.0, 0.0, -0.0],
    [-0.0, -0.0],
    [0.0, -1.0],
    [-0.0, 1.0],
)


@pytest.mark.parametrize("name", ["reduce_max", "reduce_min", "argmax", "argmin", "reduce_prod"])
def test_nans_infinities_and_zeros(name: str) -> None:
    rest: tuple[object, ...] = (0, np.int32) if name.startswith("arg") else ((0,),)
    kinds = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
    calls = [(np.array(values).astype(kind), *rest) for kind in kinds for values in SPECIAL]
    assert_calls_agree(getattr(lax, name), getattr(jax_lax, name), calls, EXACT)


def test_complex_extremes_with_nan() -> None:
    x = np.array([1 + 2j, 1 + 3j, complex(NAN, 1), 5, complex(2, NAN)], np.complex64)
    for values in (x, x[::-1].copy(), x[:2]):
        for function, oracle in ((lax.reduce_max, jax_lax.reduce_max), (lax.reduce_min, jax_lax.reduce_min)):
            np.testing.assert_array_equal(to_numpy(function(values, (0,))), np.asarray(oracle(values, (0,))))


@pytest.mark.parametrize(
    "dtype",
    [dtypes.bool_, dtypes.int4, dtypes.uint8, dtypes.int32, dtypes.float32, dtypes.float8_e4m3fn, dtypes.float8_e5m2],
    ids=str,
)
def test_extremes_of_empty_arrays(dtype: DType) -> None:
    empty = np.zeros((0, 2), dtype)
    for name in ("reduce_max", "reduce_min"):
        out, want = getattr(lax, name)(empty, (0,)), getattr(jax_lax, name)(empty, (0,))
        np.testing.assert_array_equal(to_numpy(out).astype(np.float32), np.asarray(want).astype(np.float32))


def test_integers_wrap_around() -> None:
    for x in (np.full(9, 100, np.int8), np.full(40, 3, np.int32), np.full(9, 200, np.uint8)):
        for name in ("reduce_sum", "reduce_prod"):
            out, want = getattr(lax, name)(x, (0,)), getattr(jax_lax, name)(x, (0,))
            assert out.dtype == want.dtype
            assert out.item() == want.item()


def test_narrow_floats_are_accumulated_in_wider_ones() -> None:
    x = np.full(1000, 0.1).astype(dtypes.bfloat16)
    assert_near(lax.reduce_sum(x, (0,)), 1000 * float(x[0]), EXACT)
    # Partial products are representable in bfloat16 only if rounded; the result must not depend on that.
    y = np.full(64, 1.0078125).astype(dtypes.bfloat16)
    assert_near(lax.reduce_prod(y, (0,)), 1.0078125**64, EXACT)


@pytest.mark.parametrize("dtype", [dtypes.float8_e4m3fn, dtypes.float8_e5m2], ids=str)
def test_sums_of_8_bit_floats_round_once(dtype: DType) -> None:
    x = np.full(16, 1.5).astype(dtype)  # JAX rounds at every step and returns 16.0 and 28.0
    assert float(lax.reduce_sum(x, (0,))) == float(fx.jit(lambda x: lax.reduce_sum(x, (0,)))(x)) == 24.0


def test_sum_of_one_negative_zero_is_negative_zero() -> None:
    x = np.array([[-0.0], [1.0]], np.float32)
    for out in (lax.reduce_sum(x, (1,)), fx.jit(lambda x: lax.reduce_sum(x, (1,)))(x), jax_lax.reduce_sum(x, (1,))):
        assert np.signbit(np.asarray(out)).tolist() == [True, False]


def test_sums_of_booleans_raise() -> None:
    for axes in ((), (0,)):
        with pytest.raises(TypeError, match="reduce_sum takes numbers"):
            lax.reduce_sum(np.ones(2, bool), axes)


# ------------------------------------------------------------------ derivatives at special points


def jvps(name: str, x: NDArray, t: NDArray, axes: Axes) -> tuple[NDArray, NDArray]:
    _, got = fx.jvp(lambda x: getattr(lax, name)(x, axes), (x,), (t,))
    _, want = jax.jvp(lambda x: getattr(jax_lax, name)(x, axes), (x,), (t,))
    return to_numpy(got), np.asarray(want)


@pytest.mark.parametrize(
    "x",
    [[1, 2, 2, 0], [3, 3, 3, 3], [NAN, 1, 2, NAN], [INF, INF, 0, 0], [0.0, -0.0, -1, -1]],
    ids=str,
)
@pytest.mark.parametrize("name", ["reduce_max", "reduce_min"])
def test_ties_share_the_tangent_evenly(name: str, x: list[float]) -> None:
    got, want = jvps(name, np.array(x, np.float32), np.array([1, 10, 100, 1000], np.float32), (0,))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("x", [[2, 0, 3], [0, 0, 3], [0, 0, 0], [5, 7, 2], [4]], ids=str)
def test_product_with_zeros(x: list[float]) -> None:
    values = np.array(x, np.float32)
    grad = fx.grad(lambda x: lax.reduce_prod(x, (0,)))
    jax_grad = jax.jit(jax.grad(lambda x: jax_lax.reduce_prod(x, (0,))))
    np.testing.assert_array_equal(to_numpy(grad(values)), np.asarray(jax_grad(values)))
    hessian = fx.hessian(lambda x: lax.reduce_prod(x, (0,)))
    want: Callable[[NDArray], jax.Array] = jax.jit(jax.hessian(lambda x: jax_lax.reduce_prod(x, (0,))))
    np.testing.assert_array_equal(to_numpy(hessian(values)), np.asarray(want(values)))


def test_jvp_of_the_product_of_an_empty_array() -> None:
    got, want = jvps("reduce_prod", np.ones((0, 2), np.float32), np.ones((0, 2), np.float32), (0,))
    np.testing.assert_array_equal(got, want)


def test_tangent_of_argmax_is_float0() -> None:
    _, t = fx.jvp(lambda x: lax.argmax(x, 0, np.int32), (np.ones(3, np.float32),), (np.ones(3, np.float32),))
    assert t.dtype == dtypes.float0


# ------------------------------------------------------------------ printed programs, invalid input


@pytest.mark.parametrize("name", ["reduce_max", "reduce_prod", "argmax", "argmin"])
def test_programs_print_as_in_jax(name: str) -> None:
    rest: tuple[object, ...] = (1, np.int32) if name.startswith("arg") else ((1,),)
    x = np.ones((2, 3), np.float32)
    program = fx.make_jaxpr(lambda x: getattr(lax, name)(x, *rest))(x)
    jax_text = str(jax.make_jaxpr(lambda x: getattr(jax_lax, name)(x, *rest))(x))
    if name == "reduce_max" and PRINTS_SHARDINGS_OF_REDUCTIONS:
        jax_text = re.sub(r"\s+", " ", jax_text.replace(" out_sharding=None", ""))
    assert program.jaxpr.text(style="jax") == jax_text


X: Final = np.ones((2, 3), np.float32)
REDUCTIONS: Final = ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor")


@pytest.mark.parametrize("name", REDUCTIONS)
def test_invalid_axes_raise(name: str) -> None:
    reduce: Callable[..., Array] = getattr(lax, name)
    x = np.ones((2, 3), np.int32)
    for axes in ((2,), (-1,), (0, 0)):
        check_raises(ValueError, f"{name} axes {axes}", lambda axes=axes: reduce(x, axes))  # type: ignore[misc]  # inferred
    check_raises(TypeError, "str", lambda: reduce("a", (0,)))


test_invalid_arguments_raise = error_tests(
    (TypeError, "reduce_sum numbers bool", lambda: lax.reduce_sum(X > 0, (0,))),
    (TypeError, "reduce_prod numbers bool", lambda: lax.reduce_prod(X > 0, (0,))),
    (TypeError, "reduce_prod numbers bool", lambda: lax.reduce_prod(X > 0, ())),
    (TypeError, "reduce_and booleans f32[2,3]", lambda: lax.reduce_and(X, (0,))),
    (TypeError, "reduce_or booleans c64[2]", lambda: lax.reduce_or(np.ones(2, np.complex64), (0,))),
    (TypeError, "reduce_max axes sequence", lambda: untyped(lax.reduce_max)(X, 0)),
    (ValueError, "argmax axis (-1,)", lambda: lax.argmax(X, -1, np.int32)),
    (ValueError, "argmin axis (2,)", lambda: lax.argmin(X, 2, np.int32)),
    (ValueError, "argmax axis", lambda: lax.argmax(1.0, 0, np.int32)),
    (TypeError, "argmax axis (0,)", lambda: untyped(lax.argmax)(X, (0,), np.int32)),
    (TypeError, "argmax index_dtype float32", lambda: lax.argmax(X, 0, np.float32)),
    (ValueError, "argmax axis 0 no elements", lambda: lax.argmax(X[:0], 0, np.int32)),
    (TypeError, "argmin c64[2]", lambda: lax.argmin(np.ones(2, np.complex64), 0, np.int32)),
)
