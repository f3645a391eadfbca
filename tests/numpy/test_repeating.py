"""`tile`, `repeat` and `roll`: recorded programs and invalid arguments."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_same
from tests.errors import assert_errors
from tests.numpy.agreement import check, f32


@pytest.mark.parametrize("reps", [2, (2, 1), (1, 3), (2, 1, 1), (2, 2, 1, 1), (), (1,), (0, 2)])
def test_tile_records_the_primitives_of_jax(reps: Any) -> None:
    x = f32(np.ones((2, 3)))
    program = fx.make_jaxpr(lambda x: fnp.tile(x, reps))(x)
    jax_program = jax.make_jaxpr(lambda x: jnp.tile(x, reps))(x)
    assert [e.prim.name for e in program.eqns] == [e.primitive.name for e in jax_program.eqns]
    check(fnp.tile(x, reps), jnp.tile(x, reps))


def test_invalid_traced_counts_and_shifts_raise() -> None:
    x = f32(np.ones((2, 3)))
    repeat = fx.jit(lambda x, n: fnp.repeat(x, n, axis=1, total_repeat_length=5))
    assert_errors(
        (lambda: fx.jit(fnp.roll)(x, 1.5), TypeError, "shift must be integers"),
        (lambda: fx.jit(fnp.repeat)(x, 2), TypeError, "repeats determines the shape of the result"),
        (lambda: fnp.repeat(3, 2, axis=1), ValueError, "out of bounds"),
        (lambda: repeat(x, np.array([1, 2], np.int32)), TypeError, "repeats must be an integer or 3 of them"),
    )


def test_repeat_by_many_counts_is_one_gather() -> None:
    times = np.arange(100) % 3
    (eqn,) = [
        e for e in fx.make_jaxpr(lambda x: fnp.repeat(x, times))(np.ones(100)).eqns if e.prim.name != "broadcast_in_dim"
    ]
    assert eqn.prim.name == "gather"


@pytest.mark.parametrize("dtype", ["bool", "int4", "uint4", "int8"])
def test_repeats_of_all_integer_dtypes(dtype: str) -> None:
    def by_length(counts: fx.Array) -> fx.Array:
        return fnp.repeat(np.arange(3), counts, total_repeat_length=5)

    counts = fnp.asarray([1, 0, 1]).astype(dtype)
    expected = jnp.repeat(np.arange(3), np.array([1, 0, 1]), total_repeat_length=5)
    assert_same(fnp.repeat(np.arange(3), counts), jnp.repeat(np.arange(3), np.array([1, 0, 1])))
    assert_same(by_length(counts), expected)
    assert_same(fx.jit(by_length)(counts), expected)
    matrix = np.array([[1, 0, 1]])
    assert_same(fnp.repeat(np.arange(3), fnp.asarray(matrix).astype(dtype)), jnp.repeat(np.arange(3), matrix))
