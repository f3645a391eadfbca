"""Static types of loops, branches and checkpoints: the types of users' functions are kept. Checked by mypy and pyright.

The functions are never called.
"""

from __future__ import annotations

from typing import Any, NamedTuple, assert_type

import tracefx as fx
from tracefx import Array, lax


class State(NamedTuple):
    position: Array
    steps: Array


def step(state: State, x: Array) -> tuple[State, dict[str, Array]]:
    return State(state.position + x, state.steps + 1), {"x": x}


def advance(state: State) -> State:
    return state


def continues(state: State) -> Array:
    return state.steps < 3


def counted(i: Any, state: State) -> State:
    return state


def layer(weights: dict[str, Array], x: Array, *, scale: float = 1.0) -> Array:
    return x


def double(x: Array) -> Array:
    return x + x


def both(x: Array, y: Array) -> State:
    return State(x, y)


def scans(state: State, xs: Array) -> None:
    assert_type(lax.scan(step, state, xs), tuple[State, dict[str, Array]])
    assert_type(lax.scan(step, state, xs, reverse=True, unroll=True), tuple[State, dict[str, Array]])
    assert_type(lax.scan(step, state, xs, checkpoint="binomial"), tuple[State, dict[str, Array]])
    lax.scan(step, state, xs, checkpoint="linear")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    lax.scan(step, xs, xs)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    lax.scan(advance, state, xs)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert_type(lax.map(double, xs), Array)
    assert_type(lax.map(double, xs, batch_size=4), Array)
    assert_type(lax.associative_scan(lambda a, b: a, state), State)


def loops(state: State, x: Array) -> None:
    assert_type(lax.while_loop(continues, advance, state), State)
    assert_type(lax.while_loop(continues, advance, state, max_steps=3), State)
    lax.while_loop(continues, advance, x)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert_type(lax.fori_loop(0, 3, counted, state), State)
    assert_type(lax.fori_loop(0, x, counted, state, unroll=2), State)
    lax.fori_loop(0, "3", counted, state)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def branches(x: Array) -> None:
    assert_type(lax.cond(True, double, double, x), Array)
    assert_type(lax.cond(x.sum() > 0, both, both, x, x), State)
    assert_type(lax.cond(True, double, double, operand=x), Array)
    assert_type(lax.cond(True, x, double, x, double), Array)
    lax.cond(True, double, double)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportArgumentType]
    lax.cond(True, double, both, x)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert_type(lax.switch(x, [double, double], x), Array)
    assert_type(lax.switch(0, [double], operand=x), Array)
    lax.switch(0, double, x)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def checkpoints(weights: dict[str, Array], x: Array) -> None:
    assert_type(fx.checkpoint(layer)(weights, x, scale=2.0), Array)
    assert_type(fx.remat(layer, policy=fx.checkpoint_policies.dots_saveable)(weights, x), Array)
    assert_type(fx.checkpoint(prevent_cse=False)(layer)(weights, x), Array)
    assert_type(fx.grad(fx.checkpoint(layer))(weights, x), dict[str, Array])
    fx.checkpoint(layer)(x, weights)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(fx.checkpoint_name(weights, "weights"), dict[str, Array])

    @fx.checkpoint
    def block(x: Array, size: int) -> Array:
        return x

    assert_type(block(x, 3), Array)
    block(x)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def solvers(x: Array, state: State) -> None:
    def newton(f: Any, x: Array) -> Array:
        return x

    root: Array = lax.custom_root(double, x, newton, newton)
    solution: Array = lax.custom_linear_solve(double, x, newton, symmetric=True)
    assert_type((root, solution), tuple[Array, Array])
    find = lax.custom_root
    find(double, state, newton, newton)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
