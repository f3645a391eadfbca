"""`jet` and `derivatives`: arguments, results and errors."""

from __future__ import annotations

import math
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.experimental.jet import jet as jax_jet

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import assert_errors, untyped
from tests.handlers.series_oracle import assert_same_dtype_and_values, directional_derivatives, nested_jvp_series
from tracefx.core import float0
from tracefx.handlers import derivatives, jet
from tracefx.testing.tolerances import DERIVATIVE, ELEMENTARY

jax.config.update("jax_explicit_x64_dtypes", "allow")

X = np.array([0.3, 0.7])
V = np.array([1.0, -0.5])

# ------------------------------------------------------------------ arguments and results


def test_several_arguments_some_without_series() -> None:
    with fx.enable_x64(True):

        def f(p: Any, y: Any, n: Any) -> Any:
            return fnp.sin(p["w"] @ y) * p["b"] ** n

        rng = np.random.default_rng(0)
        w, b, y = rng.normal(size=(2, 3)), np.array([1.5, 0.5]), rng.normal(size=3)
        dw, ddw, dy = rng.normal(size=(2, 3)), rng.normal(size=(2, 3)), rng.normal(size=3)
        p = {"w": w, "b": b}
        out, got = jet(f, (p, y, 2), ({"w": [dw, ddw, None], "b": None}, (dy, None, None), None))
        (want,) = nested_jvp_series(lambda w, y: f({"w": w, "b": b}, y, 2), (w, y), [[dw, ddw, None], [dy, None, None]])
        assert_same_dtype_and_values(out, f(p, y, 2))
        assert_same_dtype_and_values(got, want)


def test_results_can_be_passed_as_arguments() -> None:
    """The series of a pytree have its structure, so that results can be passed on as arguments."""

    def f(x: Any) -> Any:
        return {"s": fnp.sin(x), "c": (fnp.cos(x), 2)}

    out, series = jet(f, (X,), ([V, V, V],))
    assert fx.tree.structure(out) == fx.tree.structure({"s": 0, "c": (0, 0)})
    total, zeros = jet(lambda d: d["s"] ** 2 + d["c"][0] ** 2 + d["c"][1], (out,), (series,))
    assert_near(total, [3.0, 3.0])
    for z in zeros:
        assert_near(z, [0.0, 0.0], DERIVATIVE)


def test_integer_results_have_float0_series() -> None:
    (count_positive, none), (rates, zeros) = jet(lambda x: (fnp.sum(x > 0), fnp.int32(3)), (X,), ([V, None],))
    assert (int(count_positive), int(none)) == (2, 3)
    for terms in (rates, zeros):
        assert [(t.dtype, t.shape) for t in terms] == [(float0, ()), (float0, ())]


def test_constant_results_have_zero_series() -> None:
    out, got = jet(lambda x: fnp.ones((2, 3), "float32"), (X,), ([V, None],))
    assert out.shape == (2, 3)
    for t in got:
        assert t.dtype == np.float32
        assert not np.asarray(t).any()


def test_unscaled_coefficients_match_jax() -> None:
    terms = [np.float32(0.5), np.float32(-2.0), np.float32(3.0)]
    x = np.float32(0.25)
    out, got = jet(fnp.exp, (x,), (terms,), factorial_scaled=False)
    reference: Any = jax_jet
    want_out, want = reference(jax.numpy.exp, (x,), (terms,), factorial_scaled=False)
    assert_near(out, want_out, ELEMENTARY)
    assert_near(fnp.stack(got), np.stack(want))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.complex64])
def test_series_keep_the_dtype(dtype: Any) -> None:
    x = np.array([0.5, 1.0], dtype)
    out, got = jet(lambda x: x * x * x, (x,), ([np.ones(2, dtype), None, None, None],))
    assert out.dtype == dtype
    assert [t.dtype for t in got] == [dtype] * 4
    want = [[0.75, 3.0], [3.0, 6.0], [6.0, 6.0], [0.0, 0.0]]
    assert np.array_equal(np.asarray(fnp.stack(got)).astype(np.complex64), want)


def test_high_orders_do_not_overflow_in_float16() -> None:
    """`9!` overflows float16."""
    _, got = jet(lambda x: x * x, (np.float16(1.0),), ([*[None] * 8, np.float16(3.0)],))
    assert_near(got[8], 6.0)


def test_weak_types_stay_weak() -> None:
    out, (rate,) = jet(lambda x: fnp.square(x), (2.0,), ([1.0],))
    assert out.aval.weak_type
    assert rate.aval.weak_type
    _, (rate, curvature) = jet(lambda x: x * 2 + fnp.float32(1), (np.float32(2.0),), ([1, 1.0],))
    assert not rate.aval.weak_type
    assert not curvature.aval.weak_type


@pytest.mark.parametrize("shape", [(0,), (), (2, 0, 3)])
def test_empty_and_scalar_arrays(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 0.5, np.float32)
    out, got = jet(lambda x: fnp.sin(x).sum() + fnp.exp(x), (x,), ([np.ones(shape, np.float32), None, None],))
    assert out.shape == shape
    assert [t.shape for t in got] == [shape] * 3


def test_python_control_flow_sees_the_value() -> None:
    def f(x: Any) -> Any:
        return x * x if x > 0 else -x

    assert [float(t) for t in jet(f, (3.0,), ([1.0, None],))[1]] == [6.0, 2.0]
    assert [float(t) for t in jet(f, (-3.0,), ([1.0, None],))[1]] == [-1.0, 0.0]


def test_constants_carry_no_series() -> None:
    """Values that do not vary carry no series and cost nothing."""
    jaxpr = fx.make_jaxpr(lambda x: jet(lambda x, y: (x * 2, fnp.sin(y)), (x, x), ([V, None, None], None)))(X)
    assert str(jaxpr).count("sin") == 1
    assert str(jaxpr).count("mul") == 2


# ------------------------------------------------------------------ derivatives


def test_derivatives_of_a_scalar_function() -> None:
    with fx.enable_x64(True):
        got = derivatives(fnp.sin, 9)(0.5)
        want = [math.sin(0.5 + k * math.pi / 2) for k in range(10)]
        assert_near(fnp.stack(got), want)


def test_derivatives_in_a_direction() -> None:
    with fx.enable_x64(True):
        x = {"a": X, "b": np.array(2.0)}
        v = {"a": V, "b": np.array(-1.0)}

        def f(x: Any) -> Any:
            return fnp.sin(x["a"]) * x["b"], x["b"] ** 2

        out, *got = derivatives(f, 3)(x, v)
        assert fx.tree.structure(out) == fx.tree.structure((0, 0))
        assert_same_dtype_and_values(got, directional_derivatives(f, x, v, 3))


@pytest.mark.parametrize("order", [0, -1, 1.5, True])
def test_derivatives_refuses_invalid_orders(order: Any) -> None:
    with pytest.raises(ValueError, match="order must be a positive integer"):
        derivatives(fnp.sin, order)


def test_direction_must_match_the_argument() -> None:
    with pytest.raises(TypeError, match="direction must have the structure of x"):
        derivatives(lambda x: x[0], 1)((1.0, 2.0), 1.0)
    with pytest.raises(TypeError, match=r"direction 0\[0\] is f32\[3\]"):
        derivatives(fnp.sin, 1)(np.ones(2, np.float32), np.ones(3, np.float32))


# ------------------------------------------------------------------ refused arguments


def test_jet_refuses_invalid_arguments() -> None:
    x = np.ones(2, np.float32)
    assert_errors(
        (lambda: untyped(jet)(3, (x,), ([x],)), TypeError, "jet takes a function, got 3"),
        (lambda: untyped(jet)(fnp.sin, x, ([x],)), TypeError, "primals must be a tuple or list"),
        (lambda: untyped(jet)(fnp.sin, (x,), x), TypeError, "series must be a tuple or list"),
        (lambda: jet(fnp.sin, (x,), ([x], [x])), ValueError, "a series for each argument, got 2 for 1"),
    )
    with pytest.raises(TypeError, match=r"series\[0\] must be a list of derivatives, or None, got Array|array"):
        jet(fnp.sin, (x,), (x,))
    with pytest.raises(ValueError, match=r"must have one length, the order, but series\[0\] has 1, series\[1\] has 2"):
        jet(fnp.add, (x, x), ([x], [x, x]))
    with pytest.raises(ValueError, match="at least one argument must have a list"):
        jet(fnp.sin, (x,), (None,))
    with pytest.raises(ValueError, match="at least one entry"):
        jet(fnp.sin, (x,), ([],))
    with pytest.raises(TypeError, match=r"series\[0\]\[1\] is f32\[3\], but the argument it belongs to is f32\[2\]"):
        jet(fnp.sin, (x,), ([x, np.ones(3, np.float32)],))
    with pytest.raises(TypeError, match=r"series\[0\]\['a'\]\[0\] is i32\[2\]"):
        jet(lambda d: d["a"], ({"a": x},), ({"a": [np.ones(2, np.int32)]},))
    with pytest.raises(TypeError, match=r"series\[0\]\[0\] is f32\[2\], but the argument it belongs to is i32\[2\]"):
        jet(lambda x: x, (np.ones(2, np.int32),), ([x],))
    with pytest.raises(TypeError, match=r"series\[0\]\[0\] is c64\[\]"):
        jet(fnp.sin, (1.0,), ([1j],))
    with pytest.raises(TypeError, match=r"series\[0\]\[0\].* must be an array or a number, got 'x'"):
        jet(fnp.sin, (1.0,), (["x"],))
    with pytest.raises(ValueError, match=r"series\[0\]"):
        jet(lambda d: d["a"], ({"a": x},), ({"b": [x]},))


def test_escaped_tracers_are_named() -> None:
    escaped: list[Any] = []

    def f(x: Any) -> Any:
        escaped.append(x * 2)
        return x

    jet(f, (1.0,), ([1.0, None],))
    with pytest.raises(fx.extend.EscapedTracerError, match="made by jet"):
        escaped[0] + 1
