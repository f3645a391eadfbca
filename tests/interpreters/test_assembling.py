"""Cotangents of windows of one array, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tracefx.ops.shape.shape import Concatenate
from tracefx.ops.shape.slicing import Pad

TABLE = np.random.default_rng(0).normal(size=(6, 64)).astype(np.float32)


WINDOWS: dict[str, Callable[[Any], list[Any]]] = {
    "side by side": lambda x: [x[:2], x[2:3], x[3:]],
    "in any order": lambda x: [x[4:], x[:1], x[1:4]],
    "with gaps": lambda x: [x[1:2], x[4:5]],
    "that overlap": lambda x: [x[1:], x[:-1], x[2:4]],
    "twice the same": lambda x: [x[0], x[0], x[5]],
    "along the last axis": lambda x: [x[:, :16], x[:, 32:], x[:, 16:32]],
    "narrow": lambda x: [x[:, 0], x[:, 1], x[:, 63]],
    "along both axes": lambda x: [x[:3, :32], x[3:, 32:], x[:, 2:40], x[1:2]],
    "without elements": lambda x: [x[2:2], x[:, 3:3], x[4:]],
    "beside the whole": lambda x: [x, x[:2], x[2:], x.T],
    "all rows": lambda x: [x[i] for i in range(6)],
    "each a few": lambda x: [x.reshape(-1)[i : i + 20] for i in range(0, 380, 30)],
    "with strides": lambda x: [x[::2], x[1::2], x[:3]],
    "many narrow": lambda x: [x[:, i] for i in range(0, 64, 2)],
    "of a vector": lambda x: [x[0][:32], x[0][32:]],
}


def energy(numpy: Any, windows: Callable[[Any], list[Any]]) -> Callable[[Any], Any]:
    """The first derivative of each window's part is its own, and that of a pair is the other's."""

    def function(x: Any) -> Any:
        found = windows(x)
        first = sum((k * numpy.sum(numpy.sin(w)) for k, w in enumerate(found, 1)), 0.0)
        return first + numpy.sum(found[0] ** 2) * numpy.sum(found[-1] ** 3)

    return function


@pytest.mark.parametrize("name", WINDOWS)
def test_gradients_are_jaxs(name: str) -> None:
    ours, theirs = [energy(numpy, WINDOWS[name]) for numpy in (fnp, jnp)]
    wanted = jax.jit(jax.grad(theirs))(TABLE)
    assert_near(fx.grad(ours)(TABLE), wanted)
    assert_near(fx.jit(fx.grad(ours))(TABLE), wanted)
    several = np.stack([TABLE, -TABLE[::-1]])
    assert_near(fx.jit(fx.vmap(fx.grad(ours)))(several), [fx.grad(ours)(x) for x in several])


@pytest.mark.parametrize("name", ["that overlap", "beside the whole", "along both axes"])
def test_hessians_are_jaxs(name: str) -> None:
    def along(core: Any, numpy: Any) -> Any:
        gradient = core.grad(energy(numpy, WINDOWS[name]))
        return core.jit(lambda x: core.jvp(gradient, (x,), (x,))[1])(TABLE)

    assert_near(along(fx, fnp), along(jax, jnp))


def kinds(windows: Callable[[Any], list[Any]], x: Any) -> list[type]:
    program = fx.make_jaxpr(fx.grad(lambda x: sum((fnp.sum(w) for w in windows(x)), 0.0)))(x)
    return [type(eqn.prim) for eqn in program.jaxpr.eqns if type(eqn.prim) in (Pad, Concatenate)]


def test_pieces_of_a_whole_are_joined() -> None:
    assert kinds(WINDOWS["side by side"], TABLE) == [Concatenate]
    assert kinds(WINDOWS["in any order"], TABLE) == [Concatenate]
    assert kinds(WINDOWS["all rows"], TABLE) == [Concatenate]
    assert kinds(WINDOWS["with gaps"], TABLE) == [Concatenate, Pad]
    assert kinds(lambda x: [x[1:], x[:-1]], TABLE) == [Pad, Pad]


def test_short_pieces_and_many_are_added_up_in_blocks() -> None:
    assert kinds(WINDOWS["narrow"], TABLE) == [Pad] * 3
    assert kinds(lambda x: [x[:, 1], x[:, 3]], TABLE) == [Pad] * 2
    assert kinds(lambda x: list(x), np.ones((8, 16), np.float32)) == [Concatenate]
    assert kinds(lambda x: list(x), np.ones((20, 16), np.float32)) == [Pad] * 20 + [Concatenate]
    narrow = kinds(lambda x: [x[:, i] for i in range(40)], TABLE[:, :40])
    assert narrow == [Pad] * 40 + [Concatenate]


def test_what_joins_has_the_line_of_a_slice() -> None:
    def f(x: Any) -> Any:
        y = fnp.sin(x)
        low, high = y[:3], y[3:]
        return fnp.sum(low) * fnp.sum(high)

    program = fx.make_jaxpr(fx.grad(f))(TABLE)
    (joining,) = [eqn for eqn in program.jaxpr.eqns if type(eqn.prim) is Concatenate]
    (cut, _) = [eqn for eqn in program.jaxpr.eqns if eqn.prim.name == "slice"]
    assert str(joining.source) == str(cut.source) != str(program.jaxpr.eqns[0].source)
