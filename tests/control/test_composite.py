"""`composite`, which lowers to the same program as in JAX, and `dce_sink`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np
import pytest
from jax import lax as jax_lax

import tracefx as fx
from tracefx import lax
from tracefx.errors import EscapedTracerError
from tracefx.handlers import count
from tracefx.passes.check import check_jaxpr
from tracefx.programs import deserialize, parse_jaxpr, serialize

X: Final = np.array([0.5, 1.0, -2.0], np.float32)
OPTIONS: Final[dict[str, Any]] = {
    "a": 2,
    "b": (1, 's"\n', 2.5),
    "c": np.arange(4, dtype=np.int16).reshape(2, 2),
    "d": True,
    "e": None,
    "f": "text",
}


def scaled(x: Any, y: Any, *, a: int, **others: Any) -> Any:
    return x * a + y, y - 1.0


def scaled_composite(lax: Any) -> Callable[..., Any]:
    return lambda x: lax.composite(scaled, "my.scaled", 3)(x, x, **OPTIONS)


def composite_lines(text: str) -> list[str]:
    """Returns the composite operations in the text of a module, with the names of their decompositions replaced."""
    return [re.sub(r"@[\w.]+", "@f", line.split(" = ", 1)[1]) for line in text.splitlines() if "composite " in line]


def test_composites_lower_as_in_jax() -> None:
    text, jax_text = (
        fx.jit(scaled_composite(lax)).lower(X).as_text(),
        jax.jit(scaled_composite(jax_lax)).lower(X).as_text(),
    )
    assert composite_lines(text) == composite_lines(jax_text)
    assert len(composite_lines(text)) == 1
    for f in (scaled_composite(lax), fx.jit(scaled_composite(lax))):
        assert [x.tolist() for x in f(X)] == [(3 * X).tolist(), (X - 1).tolist()]


def test_composites_are_transformed_through_their_decomposition() -> None:
    """JAX has no derivative or batching rule for composites."""
    double = lax.composite(lambda x: x * x, "my.square")
    assert fx.grad(lambda x: double(x).sum())(X).tolist() == (2 * X).tolist()
    assert fx.jit(fx.vmap(double))(X).tolist() == (X * X).tolist()
    tangents = fx.jvp(double, (X,), (X,))
    assert tangents[1].tolist() == (2 * X * X).tolist()
    assert count(double)(X).flops == 3


def test_composite_closed_over_values_and_invalid_arguments() -> None:
    table = fx.numpy.array([1.0, 2.0, 3.0])
    assert lax.composite(lambda x: x * table, "n")(X).tolist() == [0.5, 2.0, -6.0]
    with pytest.raises(EscapedTracerError, match="composite n of <lambda> at .* closes over"):
        fx.jit(lambda y: lax.composite(lambda x: x * y, "n")(X))(X)
    with pytest.raises(TypeError, match="the attribute a must be .* is traced: make it a positional argument"):
        fx.jit(lambda y: lax.composite(lambda x, *, a: x, "n")(X, a=y))(X)
    with pytest.raises(TypeError, match="the attribute a must be .* it is {}"):
        lax.composite(lambda x, *, a: x, "n")(X, a={})
    wrong: Any = 5
    with pytest.raises(TypeError, match="name must be a string, got 5"):
        lax.composite(scaled, wrong)


def test_programs_with_composites_round_trip_through_text() -> None:
    program = fx.make_jaxpr(scaled_composite(lax))(X)
    check_jaxpr(program.jaxpr)
    assert parse_jaxpr(str(program.jaxpr)) == program.jaxpr
    assert deserialize(serialize(program)) == program
    other = fx.make_jaxpr(lambda x: lax.composite(scaled, "my.scaled", 4)(x, x, **OPTIONS))(X)
    assert other != program


@pytest.mark.parametrize("prevent_mlir_dce", [False, True])
def test_dce_sink_keeps_its_operand_computed(prevent_mlir_dce: bool) -> None:
    def f(x: Any) -> Any:
        lax.dce_sink({"a": lax.sin(x)}, prevent_mlir_dce=prevent_mlir_dce)
        return x + 1.0

    program = fx.make_jaxpr(fx.jit(f))(X)
    assert str(program).count("sin ") == 1
    assert ("sine" in fx.jit(f).lower(X).as_text()) is True
    for g in (f, fx.jit(f), fx.vmap(f)):
        assert g(X).tolist() == (X + 1).tolist()
    assert fx.jit(fx.grad(lambda x: f(x).sum()))(X).tolist() == [1.0] * 3
    again = fx.make_jaxpr(f)(X)
    assert deserialize(serialize(again)) == again
