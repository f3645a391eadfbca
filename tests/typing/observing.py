"""Static types of naming, logging and explaining: the types of users' functions are kept."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple, assert_type

import tracefx as fx
from tracefx import Array
from tracefx.handlers import (
    ExplainedLine,
    ExplainedOperation,
    Explanation,
    Summary,
    explain,
    log,
    perturb,
    plant,
    reap,
    sow,
)


class State(NamedTuple):
    position: Array
    steps: Array


def model(weights: dict[str, Array], x: Array, *, scale: float = 1.0) -> State:
    return State(x, x)


def loss(weights: dict[str, Array], x: Array) -> Array:
    return x


def sows(state: State, x: Array) -> None:
    assert_type(sow(state, name="state"), State)
    assert_type(sow({"x": x}, name="x", tag="metrics", mode="append"), dict[str, Array])
    sow(x, name="x", mode="last")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    sow(x, "x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def reaps(weights: dict[str, Array], x: Array) -> None:
    assert_type(reap(model)(weights, x, scale=2.0), tuple[State, dict[str, Any]])
    assert_type(fx.jit(reap(model, absent=0.0))(weights, x), tuple[State, dict[str, Any]])
    assert_type(fx.grad(reap(loss), has_aux=True)(weights, x), tuple[dict[str, Array], dict[str, Any]])
    assert_type(reap(fx.grad(loss))(weights, x), tuple[dict[str, Array], dict[str, Any]])
    reap(model)(weights)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    reap(model, absent="0")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def plants(weights: dict[str, Array], x: Array) -> None:
    assert_type(plant(model)({"x": x}, weights, x, scale=2.0), State)
    assert_type(perturb(model)({"x": x}, weights, x), State)
    assert_type(reap(plant(model))({"x": x}, weights, x), tuple[State, dict[str, Any]])
    plant(model)(weights, x)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
    perturb(model)([x], weights, x)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def logs(weights: dict[str, Array], x: Array, texts: list[str]) -> None:
    assert_type(log(model)(weights, x, scale=2.0), State)
    assert_type(log(loss, sink=texts.append, where=lambda op: op.name == "sin", values=False)(weights, x), Array)
    assert_type(log(loss, sink=logging.getLogger())(weights, x), Array)
    log(loss, sink=int.__add__)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def explanation_is_covariant(explanation: Explanation[tuple[Array, Array]]) -> Explanation[tuple[Array, Array]]:
    return explanation


def explains(weights: dict[str, Array], x: Array) -> None:
    explanation = explain(model)(weights, x, scale=2.0)
    assert_type(explanation, Explanation[State])
    assert_type(explanation.out, State)
    assert_type(explanation.first(lambda op: op.has_nan), ExplainedOperation | None)
    assert_type(explanation.where(lambda op: "float64" in op.dtypes), tuple[ExplainedOperation, ...])
    assert_type(explanation.lines, tuple[ExplainedLine, ...])
    assert_type(explanation.operations[0].summaries, tuple[Summary, ...])
    assert_type(explanation_is_covariant(explanation), Explanation[tuple[Array, Array]])
    assert_type(explain(loss, keep=3)(weights, x).out, Array)
