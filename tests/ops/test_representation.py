"""`bitcast_convert_type`, `reduce_precision`, `tile` and `optimization_barrier`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np
from jax import lax as jax_lax

import tracefx as fx
from tests.ops.harness import (
    FLOATS,
    Args,
    Record,
    Weak,
    applied,
    cases,
    edges,
    error_tests,
    normal,
    property_tests,
    small_integers,
)
from tracefx import lax
from tracefx.core import dtypes
from tracefx.core.dtypes import DType

FEW: Final = (dtypes.bool_, dtypes.int4, dtypes.float32, dtypes.float64)


def casting(new: DType) -> Record:
    def samples(dtype: DType, gen: np.random.Generator) -> list[Args]:
        ratio = max(dtypes.itemsize_bits(new) // dtypes.itemsize_bits(dtype), 1)
        shape = (2, 3, ratio) if ratio > 1 else (2, 3)
        x = normal(shape, dtype, gen)
        return [(x,), (x[:0],), (np.asarray(x[0, 0]),)]

    return Record(
        f"bitcast_convert_type {new}",
        applied("bitcast_convert_type", new),
        (dtypes.int8, dtypes.uint32, dtypes.float64),
        samples,
    )


def rounding(exponent: int, mantissa: int) -> Record:
    def samples(dtype: DType, gen: np.random.Generator) -> list[Args]:
        return [(edges(dtype),), (normal((2, 3), dtype, gen, 100),), (Weak(normal((3,), dtype, gen)),)]

    return Record(
        f"reduce_precision {exponent} {mantissa}",
        applied("reduce_precision", exponent, mantissa),
        FLOATS,
        samples,
        (lambda d, g: samples(d, g)[1:]) if (exponent, mantissa) == (11, 52) else None,  # otherwise it is not linear
    )


def tiling(*reps: int) -> Record:
    def samples(dtype: DType, gen: np.random.Generator) -> list[Args]:
        x = small_integers(tuple(range(1, len(reps) + 1)), dtype, gen)
        return [(x,)] if dtypes.is_bool(dtype) else [(x,), (Weak(x),)]

    return Record(f"tile {reps}", applied("tile", reps), FEW, samples, samples)


def draw_two(dtype: DType, gen: np.random.Generator) -> list[Args]:
    return [(small_integers((2, 3), dtype, gen), small_integers((), dtype, gen))]


def barrier(name: str, call: Callable[..., Any]) -> Record:
    return Record(f"optimization_barrier {name}", call, FEW, draw_two, draw_two)


RECORDS: Final = (
    *[casting(d) for d in (dtypes.int8, dtypes.float32, dtypes.float64, dtypes.int4)],
    *[rounding(*bits) for bits in ((5, 10), (8, 7), (4, 0), (11, 52))],
    *[tiling(*reps) for reps in ((), (3,), (2, 1), (1, 0, 2))],
    barrier("first", lambda lax, x, y: lax.optimization_barrier((x, {"y": y}))[0]),
    barrier("second", lambda lax, x, y: lax.optimization_barrier((x, y))[1]),
)


test_values, test_vmap, test_derivatives = property_tests(
    cases(RECORDS),
    cases(RECORDS, lambda dtype: dtype in (dtypes.int8, dtypes.float32)),
    cases(RECORDS, lambda dtype: dtype == dtypes.float64),
)


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
