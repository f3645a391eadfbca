"""Static types of probabilistic programs, units and adapted weights: the types of users' functions are kept."""

from __future__ import annotations

from typing import Any, assert_type

import tracefx as fx
from tracefx import Array
from tracefx.handlers import (
    Distribution,
    LowRank,
    Normal,
    Quantity,
    Site,
    Unit,
    condition,
    log_density,
    lora,
    observe,
    of_unit,
    replay,
    sample,
    seed,
    substitute,
    trace,
)
from tracefx.handlers.units import m, s


def model(x: Array, *, scale: float = 1.0) -> tuple[Array, int]:
    return x, 3


def samples(x: Array, normal: Distribution) -> None:
    assert_type(sample("x", Normal(0.0, x)), Array)
    assert_type(sample("x", normal, obs=x), Array)
    assert_type(observe("x", normal, 1.0), Array)
    sample("x", 3.0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    sample("x", normal, x)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def handlers(x: Array, sites: dict[str, Site]) -> None:
    assert_type(seed(model, 0)(x, scale=2.0), tuple[Array, int])
    assert_type(trace(model)(x), tuple[tuple[Array, int], dict[str, Site]])
    assert_type(condition(model, {"x": 1.0})(x), tuple[Array, int])
    assert_type(substitute(replay(model, sites), {"x": x})(x), tuple[Array, int])
    assert_type(log_density(model)({"x": x}, x, scale=1.0), Array)
    assert_type(sites["x"].distribution, Distribution | None)
    seed(model, 0)(scale=2.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    seed(model, "key")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fx.grad(log_density(model))({"x": x}, x)


def units_and_adapted_weights(x: Array, w: LowRank) -> None:
    assert_type(lora(model)(x), tuple[Array, int])
    assert_type(m / s**2, Unit)
    assert_type(of_unit(x, 1000 * m), Array)
    assert_type(Quantity(x, m).to(m), Quantity)
    value: Any = Quantity(x, m).value
    of_unit(value, 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
