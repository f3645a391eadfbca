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
    FLOATS,
    INTS,
    NARROW_INTS,
    UINTS,
    Args,
    Record,
    Samples,
    Weak,
    applied,
    cases,
    edges,
    error_tests,
    normal,
    pairs,
    property_tests,
)
from tracefx import lax
from tracefx.core import dtypes
from tracefx.core.backend import BACKEND
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.values import to_numpy
from tracefx.xla.backend import XlaBackend


def within(low: float, high: float, operands: int = 1) -> Samples:
    def make(dtype: DType, gen: np.random.Generator) -> list[Args]:
        def draw(*shape: int) -> NDArray:
            re = gen.uniform(low, high, shape)
            return np.asarray(re + 1j * gen.uniform(low, high, shape) if dtypes.is_complex(dtype) else re).astype(dtype)

        args: list[Args] = [tuple([draw(2, 3) for _ in range(operands)]), tuple([draw() for _ in range(operands)])]
        return args if operands == 1 else [*args, (draw(), draw(3))]

    return make


def unary_samples(low: float, high: float) -> Samples:
    """Draws numbers in the domain, edge values and weakly typed numbers."""

    def samples(dtype: DType, gen: np.random.Generator) -> list[Args]:
        args = [*within(low, high)(dtype, gen), (edges(dtype),), (np.zeros((0, 2), dtype),), (Weak(edges(dtype)[:3]),)]
        return [*args, (0.5,)] if dtype == dtypes.float32 else args

    return samples


def binary_samples(dtype: DType, gen: np.random.Generator) -> list[Args]:
    finite = edges(dtype)
    args: list[Args] = [pairs(finite, finite), (normal((2, 3), dtype, gen), normal((), dtype, gen))]
    return [*args, (Weak(finite), Weak(finite)), (np.zeros((0,), dtype), np.asarray(finite[0]))]


def orders_and_arguments(dtype: DType, gen: np.random.Generator) -> list[Args]:
    orders = np.array([0, 1, 2, 3], dtype)
    return [pairs(orders, edges(dtype)), (np.asarray(orders[2]), gen.uniform(0.3, 4, (2, 3)).astype(dtype))]


def integers(dtype: DType, gen: np.random.Generator) -> list[Args]:
    return [(edges(dtype),), (normal((2, 3), dtype, gen),), (normal((), dtype, gen),), (Weak(edges(dtype)),)]


ALL_INTS: Final = (*INTS, *UINTS, *NARROW_INTS)
COMPLEXES: Final = (dtypes.complex64, dtypes.complex128)
RECORDS: Final = (
    Record("erf", applied("erf"), FLOATS, unary_samples(-2, 2), within(-2, 2)),
    Record("erfc", applied("erfc"), FLOATS, unary_samples(-2, 2), within(-2, 2)),
    Record("erf_inv", applied("erf_inv"), FLOATS, unary_samples(-0.9, 0.9), within(-0.9, 0.9)),
    Record("lgamma", applied("lgamma"), FLOATS, unary_samples(-4, 4), within(0.5, 4)),
    Record("digamma", applied("digamma"), FLOATS, unary_samples(-4, 4), within(0.5, 4)),
    Record("polygamma", applied("polygamma"), FLOATS, orders_and_arguments),
    Record("atan2", applied("atan2"), FLOATS, binary_samples, within(0.3, 2, 2)),
    Record("atan2 complex", applied("atan2"), COMPLEXES, within(0.3, 2, 2), within(0.3, 2, 2)),
    Record("nextafter", applied("nextafter"), FLOATS, binary_samples),
    Record("population_count", applied("population_count"), (*INTS, *UINTS, dtypes.uint4), integers),
    Record("clz", applied("clz"), ALL_INTS, integers),
)
test_values, test_vmap, test_derivatives = property_tests(
    [(r, d) for r, d in cases(RECORDS) if d not in (dtypes.float16, dtypes.float64) or r.name == "nextafter"],
    cases(RECORDS, lambda dtype: dtype in (dtypes.float32, dtypes.int4)),
    cases(RECORDS, lambda dtype: dtype in (dtypes.float64, dtypes.complex128)),
    compiled=lambda dtype, samples: samples,
)


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
