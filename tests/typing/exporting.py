"""Static types of exported functions. Checked by mypy and pyright; the functions are never called."""

from __future__ import annotations

from typing import Any, assert_type

import tracefx as fx
from tracefx import Array, programs


@fx.jit
def predict(params: dict[str, Array], x: Array, scale: float = 1.0) -> tuple[Array, str]:
    return params["w"] * x * scale, ""


def export_keeps_the_signature(params: dict[str, Array], x: Array) -> None:
    exported = fx.export(predict, platforms=["cpu"])(params, fx.ShapeDtypeStruct((3,), "float32"))
    assert_type(exported.call(params, x), tuple[Array, str])
    assert_type(exported.call(params, x, scale=2.0), tuple[Array, str])
    exported.call(params)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(exported.serialize(), bytes)
    assert_type(exported.to_jax(), bytes)
    assert_type(exported.jaxpr, fx.ClosedJaxpr)


def plain(x: Array) -> Array:
    return x


def export_requires_jitted_functions(x: Array) -> None:
    fx.export(plain)(x)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def loaded_functions_have_no_signature(data: bytes, x: Array) -> None:
    loaded = fx.load(data)
    assert_type(loaded, fx.Exported[..., Any])
    loaded.call(x, anything=x)


def serialized_programs(closed: fx.ClosedJaxpr) -> None:
    data = programs.serialize(closed, provenance=True)
    assert_type(data, bytes)
    assert_type(programs.deserialize(data), fx.ClosedJaxpr)
    programs.serialize(closed.jaxpr)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
