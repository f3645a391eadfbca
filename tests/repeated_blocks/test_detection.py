"""Where a program repeats, and how it is divided into equal blocks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.repeated_blocks.programs import deep_network, trace
from tracefx.core.jaxpr import Jaxpr
from tracefx.repeated_blocks.blocks import Repeat, Uses, find_repeats, join_small_blocks
from tracefx.repeated_blocks.runs import MAX_PERIODS, candidate_periods, codes_of, stretches

lax: Final = fx.lax
X: Final = np.linspace(-1.0, 1.0, 6, dtype=np.float32)


def found(f: Callable[..., Any], *args: Any, least_saved: int = 4) -> list[tuple[int, int]]:
    """Returns the period and count of each run of equal blocks in a function's program."""
    return [(r.period, r.count) for r in find_repeats(trace(f, *args), 3, least_saved)[0]]


def test_alike_equations_have_equal_codes() -> None:
    jaxpr = trace(lambda x: fnp.sin(x[:2]) + fnp.sin(x[2:4]) + fnp.sum(fnp.sin(x)), X)
    codes: dict[str, list[int]] = {}
    for e, code in zip(jaxpr.eqns, codes_of(jaxpr.eqns).tolist(), strict=True):
        codes.setdefault(e.prim.name, []).append(code)
    assert codes["slice"][0] == codes["slice"][1]
    assert codes["sin"][0] == codes["sin"][1] != codes["sin"][2]


@pytest.mark.parametrize("period", [1, 2, 5, 17])
@pytest.mark.parametrize("count", [3, 10])
def test_candidate_periods_include_the_period_of_a_run(period: int, count: int) -> None:
    block = np.arange(period)
    codes = np.concatenate([[100, 101], np.tile(block, count), [102]])
    assert period in candidate_periods(codes, np.ones(len(codes), np.int64), period * (count - 1))


def test_candidate_periods_are_bounded() -> None:
    codes = np.random.default_rng(0).integers(0, 3, 2000)
    assert len(candidate_periods(codes, np.ones(len(codes), np.int64), 1)) == MAX_PERIODS


def test_periods_of_blocks_that_repeat_within_themselves() -> None:
    inner = np.tile([1, 2, 3], 4)
    codes = np.tile(np.concatenate([inner, [9]]), 5)
    assert {3, 13} <= set(candidate_periods(codes, np.ones(len(codes), np.int64), 9))


def test_no_stretches_in_few_equations() -> None:
    jaxpr = trace(lambda x: x + 1.0, X)
    assert stretches(jaxpr.eqns, codes_of(jaxpr.eqns), 3, 1) == []
    assert stretches((), codes_of(()), 3, 1) == []


@pytest.mark.parametrize("layers", [3, 4, 7])
def test_layers_of_a_network(layers: int) -> None:
    loss, args = deep_network(layers)
    ((period, count),) = found(loss, *args, least_saved=10)
    assert count == layers
    assert period > 5


@pytest.mark.parametrize("layers", [4, 7])
def test_layers_of_a_gradient(layers: int) -> None:
    loss, args = deep_network(layers)
    runs = found(fx.grad(loss), *args, least_saved=10)
    assert [count for _, count in runs] == [layers - 1, layers - 1]  # the first layer needs no gradient of its input


def test_blocks_with_other_parameters_are_not_equal() -> None:
    def f(x: Any) -> Any:
        for i in range(6):
            y = fnp.sin(x)
            x = fnp.cos(y) + (lax.cumsum(y) if i < 3 else lax.cumsum(y, reverse=True))
        return x

    assert found(f, X) == [(4, 3)]


def test_blocks_that_read_other_blocks_than_the_last_are_equal() -> None:
    def f(x: Any) -> Any:
        first = second = x
        for _ in range(5):
            first, second = fnp.sin(second) + fnp.cos(first), first
        return first

    ((period, count),) = found(f, X)
    assert period * count == 15


def test_borders_are_where_blocks_are_equal() -> None:
    """Whether `a - b` or `b - a` follows does not matter if `a` and `b` are operands of the block."""

    def f(x: Any) -> Any:
        for i in range(6):
            a, b = fnp.sin(x), fnp.cos(x)
            x = a - b if i % 2 else b - a
        return x

    ((period, count),) = found(f, X)
    assert (period, count) == (3, 5)


def test_slices_of_stacked_parameters_are_evaluated_before_the_block() -> None:
    def f(x: Any, ws: Any) -> Any:
        for i in range(4):
            x = fnp.tanh(x @ ws[i])
        return x

    jaxpr = trace(f, X, np.zeros((4, 6, 6), np.float32))
    (repeat,), _ = find_repeats(jaxpr, 3, 4)
    block = jaxpr.eqns[repeat.start : repeat.start + repeat.period]
    assert repeat.count >= 3
    assert {block[q].prim.name for q in repeat.separate} == {"slice"}


def test_effects_are_declined_with_the_reason() -> None:
    def f(x: Any) -> Any:
        for _ in range(4):
            x = fnp.sin(x)
            fx.debug.print("{}", x)
            x = fnp.cos(x)
        return x

    repeats, declined = find_repeats(trace(f, X), 3, 4)
    assert repeats == []
    assert declined[0].reason == "they have effects (debug_print)"


def reason(f: Callable[..., Any], *args: Any, least_saved: int = 4) -> str:
    """Returns why a part of a function's program is declined, with lines of the function."""
    repeats, (declined,) = find_repeats(trace(f, *args), 3, least_saved)
    assert repeats == []
    code = f.__code__
    location = re.compile(rf"{re.escape(code.co_filename)}:(\d+) \(\S+\)")
    return location.sub(lambda m: f"line {int(m[1]) - code.co_firstlineno}", declined.reason)


def test_other_parameters_are_named_with_their_line() -> None:
    def f(x: Any) -> Any:
        for i in range(6):
            y = lax.cumsum(fnp.cos(x), reverse=i % 2 == 1)
            y = fnp.sin(lax.cumsum(y, reverse=i // 2 % 2 == 1))
            x = lax.cumsum(y * x, reverse=i % 3 > 0)
        return x

    assert reason(f, X) == "`cumsum` at line 2 has other parameters in block 2 than in the one before"


def test_other_operands_are_named_with_their_line() -> None:
    def f(x: Any) -> Any:
        for i in range(6):
            y = fnp.sin(x)
            z = fnp.cos(y)
            t = z * y
            x = fnp.tanh(t) * (y if i % 2 else z) + fnp.sin(t if i % 3 else y)
        return x

    assert reason(f, X) == (
        "operand 0 of `sin` at line 5 is the result of `mul` at line 4 in block 2, "
        "and a value from outside of the block in the one before"
    )


def test_too_few_equal_blocks_are_declined_with_the_difference() -> None:
    def f(x: Any) -> Any:
        for i in range(8):
            y = lax.cumsum(fnp.cos(x), reverse=i > 3)
            x = x * lax.cumsum(fnp.sin(y), reverse=i > 3)
        return x

    assert reason(f, X, least_saved=20) == (
        "sharing the 4 equal ones saves 15 equations, fewer than 20; "
        "`cumsum` at line 2 has other parameters in block 5 than in the one before"
    )


def test_runs_do_not_overlap() -> None:
    def f(x: Any) -> Any:
        for _ in range(3):
            for _ in range(3):
                x = fnp.sin(fnp.cos(x))
            x = fnp.tanh(x)
        return x

    repeats, _ = find_repeats(trace(f, X), 3, 2)
    ends = 0
    for r in repeats:
        assert r.start >= ends
        ends = r.stop


def test_small_blocks_are_joined() -> None:
    def f(x: Any) -> Any:
        for i in range(20):
            x = fnp.sin(x) * (i + 1.0) + x
        return x

    jaxpr = trace(f, X)
    (run,), uses = find_repeats(jaxpr, 3, 4)[0], Uses.of(jaxpr)
    assert (run.period, run.count) == (3, 20)
    joined = join_small_blocks(uses, run, 3, 9)
    assert joined == Repeat(run.start, period=9, count=6, separate=frozenset(), saved=45)
    assert join_small_blocks(uses, run, 3, 3) is run
    assert join_small_blocks(uses, run, 3, 1000).count == 3


def test_blocks_are_not_joined_if_they_refer_to_other_blocks_than_the_last() -> None:
    def f(x: Any) -> Any:
        values = [x, x]
        for i in range(8):
            values.append(fnp.sin(values[-1 - i // 5]) * 2.0)
        return values[-1]

    jaxpr = trace(f, X)
    (run,), uses = find_repeats(jaxpr, 3, 4)[0], Uses.of(jaxpr)
    assert (run.period, run.count) == (2, 8)
    assert join_small_blocks(uses, run, 3, 4) is run


def test_a_stretch_between_two_runs_is_found_too() -> None:
    def f(x: Any) -> Any:
        for _ in range(5):
            x = fnp.sin(x) + 1.0
        x = fnp.tanh(x)
        for _ in range(5):
            x = fnp.cos(x) * 2.0
        return x

    assert found(f, X) == [(2, 5), (2, 5)]


def test_calls_are_compared_with_their_bodies() -> None:
    block = fx.jit(lambda x: fnp.sin(fnp.cos(x)))

    def f(x: Any) -> Any:
        for _ in range(4):
            x = block(x)
        return x

    jaxpr: Jaxpr = trace(f, X)
    assert [(r.period, r.count, r.saved) for r in find_repeats(jaxpr, 3, 4)[0]] == [(1, 4, 9)]
