"""`bitcast_convert_type`, `reduce_precision`, `tile` and `optimization_barrier`."""

from __future__ import annotations

from typing import Any, Final

import jax
import numpy as np
from jax import lax as jax_lax

import tracefx as fx
from tests.ops.harness import (
    error_tests,
)
from tracefx import lax


def test_jvp_of_reduce_precision_is_reduce_precision() -> None:
    x, t = np.float32(1.2345), np.float32(6.789)
    got = fx.jvp(lambda x: lax.reduce_precision(x, 5, 3), (x,), (t,))
    want = jax.jvp(lambda x: jax_lax.reduce_precision(x, 5, 3), (x,), (t,))
    assert [o.item() for o in got] == [w.item() for w in want]
    slope = fx.grad(lambda x: lax.mul(lax.reduce_precision(x, 5, 3), t))(x)
    assert slope.item() == jax.grad(lambda x: jax_lax.reduce_precision(x, 5, 3) * t)(x).item()


def test_optimization_barrier_is_kept_in_the_program() -> None:
    def f(x: Any) -> Any:
        return lax.optimization_barrier([x, lax.add(x, 1.0)])

    assert "optimization_barrier" in fx.jit(f).lower(np.ones(3, np.float32)).as_text()
    assert "optimization_barrier" in str(fx.make_jaxpr(f)(np.ones(3, np.float32)))
    assert lax.optimization_barrier([]) == []


X: Final = np.ones((2, 3), np.float32)


test_invalid_arguments_raise = error_tests(
    (TypeError, "bitcast_convert_type bool", lambda: lax.bitcast_convert_type(X > 0, np.int8)),
    (TypeError, "bitcast_convert_type complex64", lambda: lax.bitcast_convert_type(X, np.complex64)),
    (ValueError, "bitcast_convert_type last axis size 2", lambda: lax.bitcast_convert_type(X, np.float64)),
    (ValueError, "bitcast_convert_type last axis", lambda: lax.bitcast_convert_type(X[0, 0], np.float64)),
    (TypeError, "reduce_precision floats i32", lambda: lax.reduce_precision(np.arange(3), 5, 10)),
    (ValueError, "reduce_precision exponent_bits 0", lambda: lax.reduce_precision(X, 0, 10)),
    (ValueError, "reduce_precision mantissa_bits -1", lambda: lax.reduce_precision(X, 5, -1)),
    (TypeError, "tile reps (2,)", lambda: lax.tile(X, (2,))),
    (TypeError, "tile reps (2, -1)", lambda: lax.tile(X, (2, -1))),
)
