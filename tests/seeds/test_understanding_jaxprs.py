"""Printed jaxprs: tracefx prints the same text as JAX for the same function."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attrs import frozen

import tracefx as fx
import tracefx.numpy as fnp
from tests.versions import PRINTS_TREES_OF_SCANS
from tracefx.extend import ClosedJaxpr, HasSubjaxprs, Jaxpr, check_jaxpr

# ------------------------------------------------------------------ accepted differences


@final
@frozen
class Difference:
    """A pattern that only one of the two libraries prints."""

    side: str
    pattern: str
    text_name: str
    reason: str


ACCEPTED = (
    Difference("jax", r" out_sharding=None", "", "in JAX an array's type may hold its sharding"),
    *(
        [
            Difference("jax", r"ft_in=.*?\s+ft_out=.*?\s+(?=jaxpr=)", "", "JAX's scan has the trees of its operands"),
            Difference("tracefx", r"num_carry=\d+\s+num_consts=\d+\s+", "", "which say these numbers, too"),
        ]
        if PRINTS_TREES_OF_SCANS
        else []
    ),
)


RETYPED = frozenset({"func8", "func11"})
"""Programs in which values only lose their weak type. JAX prints that conversion before arithmetic and omits it
where branches join; tracefx, whose types are exact everywhere, does the opposite."""


def normalized(text: str, side: str) -> str:
    for difference in ACCEPTED:
        if difference.side == side:
            text = re.sub(difference.pattern, difference.text_name, text)
    return text


def without_retyping(text: str) -> str:
    """Removes conversions that change only the weak type, renames the variables, and joins the lines."""
    text = " ".join(text.split())
    types = dict(re.findall(r"\b([a-z]+):(\w+)\[", text))
    conversion = r"\b([a-z]+):(\w+)\[[\d,]*\] = convert_element_type\[new_dtype=\w+ weak_type=\w+\] ([a-z]+) "
    for match in re.finditer(conversion, text):
        new, dtype, old = match.groups()
        if types[old] == dtype:
            text = re.sub(rf"\b{new}\b(?!:)", old, text.replace(match.group(), ""))
    names = list(dict.fromkeys(re.findall(r"\b([a-z]+):\w+\[", text)))
    numbers = {name: f"v{i}" for i, name in enumerate(names)}
    return re.sub(rf"\b({'|'.join(names)})\b", lambda match: numbers[match.group()], text)


# ------------------------------------------------------------------ the functions, for either library


@final
@frozen
class Library:
    """tracefx or JAX: the transformations and the NumPy namespace."""

    fx: Any
    np: Any

    def func1(self, first: Any, second: Any) -> Any:
        temp = first + self.np.sin(second) * 3.0
        return self.np.sum(temp)

    def func2(self, inner: Callable[[Any], Any], first: Any, second: Any) -> Any:
        temp = first + inner(second) * 3.0
        return self.np.sum(temp)

    def inner(self, second: Any) -> Any:
        if second.shape[0] > 4:
            return self.np.sin(second)
        raise AssertionError

    def func3(self, first: Any, second: Any) -> Any:
        return self.func2(self.inner, first, second)

    def func4(self, arg: Any) -> Any:
        temp = arg[0] + self.np.sin(arg[1]) * 3.0
        return self.np.sum(temp)

    def one_of_three(self, index: Any, arg: Any) -> Any:
        return self.fx.lax.switch(index, [lambda x: x + 1.0, lambda x: x - 2.0, lambda x: x + 3.0], arg)

    def func7(self, arg: Any) -> Any:
        return self.fx.lax.cond(arg >= 0.0, lambda taken: taken + 3.0, lambda other: other - 3.0, arg)

    def func8(self, arg1: Any, arg2: Any) -> Any:
        return self.fx.lax.cond(arg1 >= 0.0, lambda pair: pair[0], lambda pair: self.np.array([1]) + pair[1], arg2)

    def func10(self, arg: Any, n: Any) -> Any:
        ones = self.np.ones(arg.shape)
        return self.fx.lax.fori_loop(0, n, lambda i, carry: carry + ones * 3.0 + arg, arg + ones)

    def func11(self, arr: Any, extra: Any) -> Any:
        ones = self.np.ones(arr.shape)

        def body(carry: Any, slices: Any) -> Any:
            ae1, ae2 = slices
            return carry + ae1 * ae2 + extra, carry

        return self.fx.lax.scan(body, 0.0, (arr, ones))

    def func12(self, arg: Any) -> Any:
        def inner(x: Any) -> Any:
            return x + arg * self.np.ones(1)

        return arg + self.fx.jit(inner)(arg - 2.0)

    def func12_shared(self, arg: Any) -> Any:
        """A jitted function called twice: its jaxpr is printed once, before the calling one."""

        def inner(x: Any) -> Any:
            return self.np.sin(x) * self.np.ones(2)

        jitted = self.fx.jit(inner)
        return jitted(arg) + jitted(2.0 * arg)

    def func12_nested(self, arg: Any) -> Any:
        """A jitted function inside another."""

        def outer(x: Any) -> Any:
            def inner(y: Any) -> Any:
                return self.np.sin(y) * x

            return self.fx.jit(inner)(self.np.cos(x)) - arg

        return self.fx.jit(outer)(arg)


TRACEFX = Library(fx, fnp)
JAX = Library(jax, jnp)

EIGHT = np.zeros(8, np.float32), np.ones(8, np.float32)
PROGRAMS: dict[str, tuple[Callable[[Library], Callable[..., Any]], tuple[Any, ...]]] = {
    "func1": (lambda m: m.func1, EIGHT),
    "func2": (lambda m: lambda x, y: m.func2(m.np.sin, x, y), EIGHT),
    "func3": (lambda m: m.func3, EIGHT),
    "func4": (lambda m: m.func4, (EIGHT,)),
    "one_of_three": (lambda m: m.one_of_three, (1, 5.0)),
    "func7": (lambda m: m.func7, (5.0,)),
    "func8": (lambda m: m.func8, (5.0, (np.zeros(1, np.float32), 2.0))),
    "func10": (lambda m: m.func10, (np.ones(16, np.float32), 5)),
    "func11": (lambda m: m.func11, (np.ones(16, np.float32), 5.0)),
    "func12": (lambda m: m.func12, (1.0,)),
    "func12_shared": (lambda m: m.func12_shared, (1.0,)),
    "func12_nested": (lambda m: m.func12_nested, (1.0,)),
}


def both_texts(function: Callable[[Library], Callable[..., Any]], args: tuple[Any, ...]) -> tuple[str, str]:
    jaxpr = fx.make_jaxpr(function(TRACEFX))(*args)
    check_jaxpr(jaxpr)
    return jaxpr.text(style="jax"), str(jax.make_jaxpr(function(JAX))(*args))


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_agrees_with_jax(name: str) -> None:
    text, jax_text = both_texts(*PROGRAMS[name])
    text, jax_text = normalized(text, "tracefx"), normalized(jax_text, "jax")
    if name in RETYPED:
        assert text != jax_text
        text, jax_text = without_retyping(text), without_retyping(jax_text)
    assert text == jax_text


@pytest.mark.parametrize("difference", ACCEPTED, ids=lambda d: d.pattern)
def test_every_accepted_difference_occurs(difference: Difference) -> None:
    texts = [both_texts(*program)[difference.side == "jax"] for program in PROGRAMS.values()]
    assert any(re.search(difference.pattern, text) for text in texts)


# ------------------------------------------------------------------ structure of jaxprs


def traced(function: Callable[..., Any], *args: Any) -> ClosedJaxpr:
    closed: ClosedJaxpr = fx.make_jaxpr(function)(*args)
    return closed


def test_python_calls_and_conditions_do_not_appear() -> None:
    assert traced(TRACEFX.func1, *EIGHT) == traced(TRACEFX.func3, *EIGHT)
    with pytest.raises(AssertionError):
        traced(TRACEFX.func3, np.zeros(3), np.zeros(3))


def test_pytrees_are_flattened_to_variables() -> None:
    closed = traced(TRACEFX.func4, EIGHT)
    assert closed == traced(TRACEFX.func1, *EIGHT)
    assert [str(v.aval) for v in closed.jaxpr.invars] == ["f32[8]", "f32[8]"]
    both = traced(lambda tree: {"a": [tree["x"], 2.0], "b": tree["y"]}, {"x": EIGHT[0], "y": 1})
    assert [str(v.aval) for v in both.jaxpr.invars] == ["f32[8]", "i32[]"]
    assert [str(v.aval) for v in both.jaxpr.outs] == ["f32[8]", "f32[]", "i32[]"]


def test_closed_jaxpr_has_a_jaxpr_and_consts() -> None:
    constant = np.arange(3.0, dtype=np.float32)
    closed = traced(lambda x: x * constant, 2.0)
    assert isinstance(closed.jaxpr, Jaxpr)
    (const,) = closed.consts
    np.testing.assert_array_equal(np.asarray(const), constant)
    np.testing.assert_array_equal(fx.jaxpr_as_fun(closed)(2.0)[0], [0.0, 2.0, 4.0])


def test_closed_over_values_are_operands_of_a_jitted_call() -> None:
    closed = traced(TRACEFX.func12, 1.0)
    call = next(eqn for eqn in closed.eqns if isinstance(eqn.prim, HasSubjaxprs))
    assert isinstance(call.prim, HasSubjaxprs)
    (body,) = call.prim.jaxprs()
    assert len(call.inputs) == len(body.invars) == 2
    assert body.constvars == ()


# ------------------------------------------------------------------ literals and hoisted constants

VECTOR = np.arange(3.0, dtype=np.float32)

CONSTANTS: dict[str, Callable[[Library], Callable[[Any], Any]]] = {
    "a Python number": lambda m: lambda x: x * 3.0,
    "a Python integer beside a float": lambda m: lambda x: x * 3,
    "a NumPy number": lambda m: lambda x: x * np.float32(3.0),
    "a NumPy array without axes": lambda m: lambda x: x * np.array(3.0, np.float32),
    "a NumPy array": lambda m: lambda x: x * VECTOR,
    "a number that is an output": lambda m: lambda x: (2.0, x),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_scalars_are_literals_and_arrays_are_hoisted(name: str) -> None:
    text, jax_text = both_texts(CONSTANTS[name], (np.float32(1.0),))
    assert text == jax_text


def closing_over_arrays(m: Library) -> Callable[[Any], Any]:
    scalar, vector, matrix = m.np.asarray(3.0), m.np.asarray(VECTOR), m.np.ones((3, 3))
    return lambda x: (matrix @ (vector * x)) * scalar + vector


def test_arrays_are_hoisted_in_the_order_of_their_use() -> None:
    text, jax_text = both_texts(closing_over_arrays, (np.float32(1.0),))
    assert text == jax_text
    closed = traced(closing_over_arrays(TRACEFX), np.float32(1.0))
    assert [c.aval.shape for c in closed.consts] == [(3,), (3, 3), ()]


def test_array_used_twice_is_one_constant() -> None:
    def twice(m: Library) -> Callable[[Any], Any]:
        vector = m.np.asarray(VECTOR)
        return lambda x: x * vector + vector

    text, jax_text = both_texts(twice, (np.float32(1.0),))
    assert text == jax_text


def test_numpy_array_mutated_during_tracing_is_a_new_constant() -> None:
    def changing(x: Any) -> Any:
        weights = np.ones(2, np.float32)
        y = x * weights
        weights[0] = 10.0
        return y + weights

    np.testing.assert_array_equal(fx.jit(changing)(2.0), changing(fnp.asarray(2.0)))
    np.testing.assert_array_equal(fx.jit(changing)(2.0), [12.0, 3.0])


def test_constants_are_hoisted_out_of_jitted_functions() -> None:
    closed = traced(fx.jit(lambda x: fx.jit(lambda y: y * VECTOR)(x) + VECTOR[:1]), 1.0)
    assert [c.aval.shape for c in closed.consts] == [(3,), (1,)]
    (call,) = closed.eqns
    assert call.inputs[: len(closed.consts)] == closed.jaxpr.constvars
    check_jaxpr(closed)
