"""Loops and branches without `jit`: bodies are traced and compiled once, not at each call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.control.transform_checks import normal
from tracefx import lax
from tracefx.xla import backend
from tracefx.xla.lower import lower

X: Final = normal(3)
COUNTS: Counter[str] = Counter()


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the traces of each function below and the number of lowered programs."""
    COUNTS.clear()

    def counted(*args: Any) -> Any:
        COUNTS["lowered"] += 1
        return lower(*args)

    monkeypatch.setattr(backend, "lower", counted)
    return COUNTS


def grow(c: Any, x: Any) -> Any:
    COUNTS["grow"] += 1
    return fnp.sin(c * x), c * 0.5


def step(c: Any) -> Any:
    COUNTS["step"] += 1
    return c * 1.5 + 1


def goes(c: Any) -> Any:
    COUNTS["goes"] += 1
    return c[0] < 4


def indexed(i: Any, c: Any) -> Any:
    COUNTS["indexed"] += 1
    return fnp.cos(c) + i


def left(x: Any) -> Any:
    COUNTS["left"] += 1
    return fnp.sin(x)


def right(x: Any) -> Any:
    COUNTS["right"] += 1
    return x * x


FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "scan": lambda x: lax.scan(grow, x, X)[1],
    "scan in pieces": lambda x: lax.scan(grow, x, X, checkpoint=2)[0],
    "map": lambda x: lax.map(left, x),
    "map of batches": lambda x: lax.map(left, x, batch_size=2),
    "fori_loop": lambda x: lax.fori_loop(0, 3, indexed, x),
    "while_loop": lambda x: lax.while_loop(goes, step, x, max_steps=5),
    "cond": lambda x: lax.cond(x[0] > 0, left, right, x),
    "switch": lambda x: lax.switch(fnp.floor(4 * x[1]).astype(np.int32), [left, right], x),
    "checkpoint": lambda x: fx.checkpoint(left)(x),
    "nested": lambda x: lax.scan(outer, x, X)[0],
}


def outer(c: Any, x: Any) -> Any:
    COUNTS["outer"] += 1
    return lax.cond(x > 0, left, right, lax.fori_loop(0, 2, indexed, c)), None


def total(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: f(x).sum()


STACKS: Final[dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]]] = {
    "value": lambda f: f,
    "grad": lambda f: fx.grad(total(f)),
    "jvp": lambda f: lambda x: fx.jvp(f, (x,), (x,)),
    "vmap of grad": lambda f: lambda x: fx.vmap(fx.grad(total(f)))(fnp.stack([x, -x])),
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_repeated_calls_neither_trace_nor_compile(name: str, counts: Counter[str]) -> None:
    x = fnp.asarray(X)
    for stack in STACKS.values():
        # A new lambda for each call, as with functions defined inside other functions.
        stack(lambda x: FUNCTIONS[name](x))(x)
    before = dict(counts)
    # Once for each shape: the remainder batch has another one.
    once = 2 if name == "map of batches" else 1
    assert all(count == once for counter, count in before.items() if counter != "lowered")
    for stack in STACKS.values():
        for _ in range(2):
            stack(lambda x: FUNCTIONS[name](x))(x * 0.5)
    assert dict(counts) == before
