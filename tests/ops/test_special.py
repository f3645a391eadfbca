"""Special functions, binary float functions and bit counts."""

from __future__ import annotations

from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax as jax_lax

import tracefx as fx
from tests.comparison import assert_near
from tests.ops.harness import (
    error_tests,
)
from tracefx import lax
from tracefx.core import dtypes, to_numpy
from tracefx.core.backend import BACKEND
from tracefx.xla.backend import XlaBackend


def test_polygamma_with_a_scalar_order() -> None:
    m, x = np.float32(1), np.linspace(0.5, 4, 5, dtype=np.float32)
    out, t = fx.jvp(lambda x: lax.polygamma(m, x), (x,), (np.ones_like(x),))
    want, want_t = jax.jvp(lambda x: jax_lax.polygamma(jnp.full_like(x, m), x), (x,), (np.ones_like(x),))
    assert_near(to_numpy(out), want)
    assert_near(to_numpy(t), want_t)


def test_bits_of_narrow_integers() -> None:
    """JAX counts the copies of the sign bit that fill up the byte."""
    x = np.array([-8, -1, 0, 7], dtypes.int4)
    for count in (lax.population_count, fx.jit(lax.population_count)):
        assert to_numpy(count(x)).astype(int).tolist() == [1, 4, 0, 3]


def test_eager_primitives_are_compiled_once() -> None:
    backend = BACKEND.value
    assert isinstance(backend, XlaBackend)
    lax.erf(np.ones(3, np.float32))
    before = len(backend.executables)
    assert lax.erf(np.zeros(3, np.float32)).tolist() == [0.0] * 3
    assert len(backend.executables) == before


F: Final = np.ones(3, np.float32)


test_invalid_arguments_raise = error_tests(
    (TypeError, "erf floats i32[3]", lambda: lax.erf(np.arange(3))),
    (TypeError, "lgamma floats c64[3]", lambda: lax.lgamma(F.astype(np.complex64))),
    (TypeError, "nextafter floats", lambda: lax.nextafter(np.arange(3), np.arange(3))),
    (TypeError, "atan2 one dtype", lambda: lax.atan2(F, F.astype(np.float16))),
    (TypeError, "atan2 shapes broadcast f32[3] f32[2]", lambda: lax.atan2(F, F[:2])),
    (TypeError, "atan2 floats or complex", lambda: lax.atan2(np.arange(3), np.arange(3))),
    (TypeError, "population_count integers", lambda: lax.population_count(F)),
    (TypeError, "clz integers bool", lambda: lax.clz(F > 0)),
    (ValueError, "polygamma order", lambda: fx.grad(lambda m: lax.polygamma(m, 1.0))(1.0)),
)
