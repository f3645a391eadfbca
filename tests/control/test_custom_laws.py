"""Correct custom rules change no result: generated programs with wrappers anywhere in a stack of transformations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.laws.examples import limit_examples
from tracefx.testing import LAWS, check_function
from tracefx.testing.generated_programs import TransformedProgram
from tracefx.testing.laws import jvp_is_the_derivative, text_round_trips
from tracefx.testing.strategies import transformed_programs
from tracefx.testing.tolerances import PROGRAM

Function: TypeAlias = Callable[..., Any]


def unchanged(f: Function) -> Function:
    return f


def with_jvp(f: Function) -> Function:
    custom: Any = fx.custom_jvp(lambda *xs: f(*xs))
    custom.defjvp(lambda primals, tangents: fx.jvp(f, primals, tangents))
    return custom  # type: ignore[no-any-return]  # a function


def with_vjp(f: Function) -> Function:
    custom: Any = fx.custom_vjp(lambda *xs: f(*xs))
    custom.defvjp(lambda *xs: (custom(*xs), xs), lambda xs, ct: fx.vjp(f, *xs)[1](ct))
    return custom  # type: ignore[no-any-return]  # a function


def with_gradient(f: Function) -> Function:
    return fx.custom_gradient(lambda *xs: fx.vjp(f, *xs))


def with_vmap(f: Function) -> Function:
    custom: Any = fx.custom_batching.custom_vmap(lambda *xs: f(*xs))

    @custom.def_vmap  # type: ignore[untyped-decorator]  # as the function
    def rule(axis_size: int, in_batched: list[bool], *xs: Any) -> Any:
        return fx.vmap(f, in_axes=tuple([0 if b else None for b in in_batched]))(*xs), True

    return custom  # type: ignore[no-any-return]  # a function


def with_sequential_vmap(f: Function) -> Function:
    return fx.custom_batching.sequential_vmap(f)


WRAPPERS: Final = (unchanged, with_jvp, with_vjp, with_gradient, with_vmap, with_sequential_vmap)
Wrappers: TypeAlias = Sequence[Callable[[Function], Function]]


def wrapped(case: TransformedProgram, wrappers: Wrappers) -> Function:
    f: Function = case.program.function(fx, fnp)
    for layer, wrap in zip(case.layers, wrappers, strict=False):
        f = layer.over(fx, fnp, wrap(f))
    return wrappers[-1](f)


@limit_examples(25)
@given(transformed_programs(max_steps=3, max_layers=3), st.lists(st.sampled_from(WRAPPERS), min_size=4, max_size=4))
def test_correct_custom_rules_change_no_result(case: TransformedProgram, wrappers: Wrappers) -> None:
    with fx.enable_x64():
        inputs = [fnp.asarray(x) for x in case.inputs()]
        want = np.asarray(case.function(fx, fnp)(*inputs))
        got = wrapped(case, wrappers)(*inputs)
        assert_near(got, want, PROGRAM)


# Programs that contain Python functions can't be parsed; finite differences are wrong near a kink.
APPLICABLE: Final = tuple([law for law in LAWS if law not in (text_round_trips, jvp_is_the_derivative)])


@limit_examples(10)
@given(transformed_programs(max_steps=3, max_layers=1), st.lists(st.sampled_from(WRAPPERS[1:]), min_size=2, max_size=2))
def test_laws_hold_with_custom_rules(case: TransformedProgram, wrappers: Wrappers) -> None:
    with fx.enable_x64(), fx.disable_jit():
        inputs = [fnp.asarray(x) for x in case.inputs()]
        check_function(wrapped(case, wrappers), *inputs, laws=APPLICABLE)
