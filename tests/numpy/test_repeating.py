"""`tile`, `repeat` and `roll`, also with traced counts and shifts, against `jax.numpy`."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import JAX_TOLERANCE, assert_agree, assert_calls_agree, assert_same
from tests.numpy.agreement import check, f32, i32, numbers

SHIFTS: Final = (0, 1, -1, 5, -7)


@pytest.mark.parametrize("reps", [2, (2, 1), (1, 3), (2, 1, 1), (2, 2, 1, 1), (), (1,), (0, 2)])
def test_tile_records_the_primitives_of_jax(reps: Any) -> None:
    x = f32(np.ones((2, 3)))
    program = fx.make_jaxpr(lambda x: fnp.tile(x, reps))(x)
    jax_program = jax.make_jaxpr(lambda x: jnp.tile(x, reps))(x)
    assert [e.prim.name for e in program.eqns] == [e.primitive.name for e in jax_program.eqns]
    check(fnp.tile(x, reps), jnp.tile(x, reps))


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_roll_by_a_traced_shift(axis: int | None) -> None:
    x = numbers("float32", (2, 3))
    calls = [(x, np.asarray(n, np.int32), axis) for n in SHIFTS]
    assert_calls_agree(fnp.roll, jnp.roll, calls, compiled=True)
    roll = fx.jit(lambda x, n: fnp.roll(x, n, axis))
    for n in SHIFTS:  # weakly typed
        assert_same(roll(x, n), fnp.roll(fnp.array(x), fnp.asarray(n), axis))
    assert_agree(lambda m, np: m.vmap(lambda n: np.roll(x, n, axis))(i32(SHIFTS)), JAX_TOLERANCE)
    weights = numbers("float32", (2, 3), 5)
    assert_agree(lambda m, np: m.grad(lambda x, n: np.sum(np.roll(x, n, axis) * weights))(x, 1), JAX_TOLERANCE)


def test_roll_by_an_array() -> None:
    x = fnp.array(numbers("float32", (2, 3)))
    pairs = (((0, 1), i32([1, -2])), ((1,), i32([4])), (1, i32([4])), ((0, 1), i32([1])))
    calls = [(numbers("float32", (2, 3)), shift, axis) for axis, shift in pairs]
    assert_calls_agree(fnp.roll, jnp.roll, calls, compiled=True)
    check(fx.jit(fnp.roll, static_argnums=2)(fnp.zeros((2, 0)), 3, 1), jnp.zeros((2, 0)))
    with pytest.raises(TypeError, match="shift must be integers"):
        fx.jit(fnp.roll)(x, 1.5)


def test_repeat_with_total_repeat_length() -> None:
    x, repeats = numbers("float32", (2, 3)), [(1, 0, 2), (0, 0, 0), (3, 3, 3), (0, 2, 0)]
    options = [{"axis": 1, "total_repeat_length": total} for total in (0, 1, 4, 12)]
    calls: list[tuple[Any, ...]] = [(x, i32(times), each) for times in repeats for each in options]
    calls += [(x, 2, {"total_repeat_length": 15}), (f32([]), 3)]
    assert_calls_agree(fnp.repeat, jnp.repeat, calls, compiled=True)


def test_repeat_by_a_traced_scalar() -> None:
    x = fnp.array(numbers("float32", (2, 3)))
    keywords: Any = {"axis": 1, "total_repeat_length": 5}
    calls = [(np.asarray(x), np.asarray(n, np.int32), keywords) for n in (0, 1, 2)]
    assert_calls_agree(fnp.repeat, jnp.repeat, calls, compiled=True)
    repeat = fx.jit(lambda x, n: fnp.repeat(x, n, **keywords))
    for n in (0, 1, 2):  # weakly typed
        assert_same(repeat(x, n), fnp.repeat(x, n, **keywords))
    with pytest.raises(TypeError, match="repeats determines the shape of the result"):
        fx.jit(fnp.repeat)(x, 2)
    with pytest.raises(TypeError, match="repeats must be an integer or 3 of them"):
        fx.jit(lambda x, n: fnp.repeat(x, n, **keywords))(x, i32([1, 2]))


def test_repeat_by_many_counts_is_one_gather() -> None:
    times = np.arange(100) % 3
    (eqn,) = [
        e for e in fx.make_jaxpr(lambda x: fnp.repeat(x, times))(np.ones(100)).eqns if e.prim.name != "broadcast_in_dim"
    ]
    assert eqn.prim.name == "gather"
