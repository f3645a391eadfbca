"""Static types of functions with custom rules. Checked by mypy and pyright; the functions are never called."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_type

import tracefx as fx
import tracefx.numpy as fnp
from tracefx import Array
from tracefx.custom_batching import custom_vmap, sequential_vmap


@fx.custom_jvp
def log1pexp(x: Array, scale: float = 1.0) -> Array:
    return fnp.log(1.0 + fnp.exp(x)) * scale


@log1pexp.defjvp
def log1pexp_jvp(primals: tuple[Array, float], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    return log1pexp(*primals), tangents[0]


@fx.custom_vjp
def pair(x: Array, y: Array) -> tuple[Array, Array]:
    return x, y


@custom_vmap
def batched(x: Array) -> Array:
    return x


@batched.def_vmap
def batched_rule(axis_size: int, in_batched: list[bool], x: Array) -> tuple[Array, bool]:
    return x, in_batched[0]


def custom_rules_keep_the_signature(x: Array) -> None:
    assert_type(log1pexp(x), Array)
    assert_type(log1pexp(x, scale=2.0), Array)
    log1pexp()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    log1pexp("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(pair(x, x), tuple[Array, Array])
    pair(x)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(batched(x), Array)
    assert_type(log1pexp_jvp((x, 1.0), (x, x)), tuple[Array, Array])
    assert_type(batched_rule(2, [True], x), tuple[Array, bool])


def transforms_of_custom_rule_functions(x: Array) -> None:
    assert_type(fx.jit(log1pexp)(x, scale=2.0), Array)
    assert_type(fx.grad(log1pexp)(x), Array)
    assert_type(fx.vmap(pair)(x, x), tuple[Array, Array])


def forward(x: Array, y: Array) -> tuple[tuple[Array, Array], None]:
    return (x, y), None


def backward(residuals: None, ct: tuple[Array, Array]) -> tuple[Array, Array]:
    return ct


def partial_tangent(tangent: Array, out: Array, x: Array, scale: float) -> Array:
    return tangent


def rules_stay_callable() -> None:
    pair.defvjp(forward, backward)
    pair.defvjp(3, backward)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    log1pexp.defjvps(partial_tangent, None)
    log1pexp.defjvp("rule")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]


def decorators_with_options(x: Array) -> None:
    power = fx.custom_jvp(raised_to_power, nondiff_argnums=(0,))
    assert_type(power(3, x), Array)
    fx.custom_jvp(raised_to_power, nondiff_argnames=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def raised_to_power(n: int, x: Array) -> Array:
    return x**n


class Model:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    @fx.custom_vjp
    def apply(self, x: Array) -> Array:
        return self.scale * x


def custom_rules_on_methods(x: Array) -> None:
    assert_type(Model(2.0).apply(x), Array)
    assert_type(Model.apply(Model(2.0), x), Array)
    Model(2.0).apply("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def cotangent(ct: Array) -> Array:
    return ct


def custom_gradient_functions(x: Array) -> None:
    @fx.custom_gradient
    def square(x: Array) -> tuple[Array, Callable[[Array], Array]]:
        return x * x, cotangent

    assert_type(square(x), Array)
    square(x, x)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(sequential_vmap(batched)(x), Array)
    converted, held = fx.closure_convert(batched, x)
    assert_type(converted(x, *held), Array)
