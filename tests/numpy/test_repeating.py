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
from tests.numpy.agreement import both, check, f32, i32, numbers

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
    x, y = both(numbers("float32", (2, 3)))
    roll, jax_roll = fx.jit(lambda x, n: fnp.roll(x, n, axis)), jax.jit(lambda x, n: jnp.roll(x, n, axis))
    for n in SHIFTS:
        check(roll(x, n), jax_roll(y, n))
        check(fnp.roll(x, fnp.asarray(n), axis), jnp.roll(y, n, axis))
    check(fx.vmap(lambda n: fnp.roll(x, n, axis))(i32(SHIFTS)), jax.vmap(lambda n: jnp.roll(y, n, axis))(i32(SHIFTS)))
    weights = numbers("float32", (2, 3), 5)
    check(
        fx.grad(lambda x, n: fnp.sum(fnp.roll(x, n, axis) * weights))(x, 1),
        jax.grad(lambda x, n: jnp.sum(jnp.roll(x, n, axis) * weights))(y, 1),
    )


def test_roll_by_an_array() -> None:
    x, y = both(numbers("float32", (2, 3)))
    for axis, shift in (((0, 1), i32([1, -2])), ((1,), i32([4])), (1, i32([4])), ((0, 1), i32([1]))):
        check(fnp.roll(x, shift, axis), jnp.roll(y, shift, axis))
        along: Any = axis
        check(
            fx.jit(lambda x, n, along=along: fnp.roll(x, n, along))(x, shift),
            jax.jit(lambda x, n, along=along: jnp.roll(x, n, along))(y, shift),
        )
    check(fx.jit(fnp.roll, static_argnums=2)(fnp.zeros((2, 0)), 3, 1), jnp.zeros((2, 0)))
    with pytest.raises(TypeError, match="shift must be integers"):
        fx.jit(fnp.roll)(x, 1.5)


@pytest.mark.parametrize("repeats", [(1, 0, 2), (0, 0, 0), (3, 3, 3), (0, 2, 0)])
@pytest.mark.parametrize("total", [0, 1, 4, 12])
def test_repeat_with_total_repeat_length(repeats: tuple[int, ...], total: int) -> None:
    x, y = both(numbers("float32", (2, 3)))
    times = i32(repeats)
    keywords: Any = {"axis": 1, "total_repeat_length": total}
    traced = fx.jit(lambda x, n: fnp.repeat(x, n, **keywords))
    check(traced(x, times), jnp.repeat(y, times, **keywords))
    check(fnp.repeat(x, times, **keywords), jnp.repeat(y, times, **keywords))


def test_repeat_by_a_traced_scalar() -> None:
    x, y = both(numbers("float32", (2, 3)))
    keywords: Any = {"axis": 1, "total_repeat_length": 5}
    for n in (0, 1, 2):
        check(
            fx.jit(lambda x, n: fnp.repeat(x, n, **keywords))(x, n),
            jax.jit(lambda y, n: jnp.repeat(y, n, **keywords))(y, n),
        )
    with pytest.raises(TypeError, match="repeats must be made of integers known"):
        fx.jit(fnp.repeat)(x, 2)
    with pytest.raises(TypeError, match="repeats must be an integer or 3 of them"):
        fx.jit(lambda x, n: fnp.repeat(x, n, **keywords))(x, i32([1, 2]))


def test_repeat_by_many_counts_is_one_gather() -> None:
    times = np.arange(100) % 3
    (eqn,) = [
        e for e in fx.make_jaxpr(lambda x: fnp.repeat(x, times))(np.ones(100)).eqns if e.prim.name != "broadcast_in_dim"
    ]
    assert eqn.prim.name == "gather"
