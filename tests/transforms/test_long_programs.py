"""Scalability in program length: no pass over a program is recursive in its length or slower than linear."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest
from attrs import field, frozen
from typing_extensions import override

import tracefx as fx
from benchmarks.length import STAGES
from tests.primitives import SameTypes
from tracefx import lax
from tracefx.core import NDArray, as_value, to_numpy
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind1
from tracefx.core.primitive import Primitive
from tracefx.passes.check import check_jaxpr
from tracefx.passes.cse import cse
from tracefx.passes.dce import dce
from tracefx.programs import parse_jaxpr
from tracefx.repeated_blocks.residuals import minimum_cut

LENGTH: Final = 20_000
VERY_LONG: Final = 40_000
X = np.float32(0.5)
WRITTEN_IN_C: Final = {"hash", "compare", "dce, nothing to do"}
"""Passes whose total number of Python calls is checked to be linear in the program's length."""


def orbit(length: int) -> Callable[[Any], Any]:
    """A function with `length` equations, alternating multiplication and addition."""

    def f(x: Any) -> Any:
        for _ in range(length // 2):
            x = lax.add(lax.mul(x, 0.5), 0.25)
        return x

    return f


def test_very_long_program_through_trace_check_print_parse_dce_eval() -> None:
    closed = fx.make_jaxpr(orbit(VERY_LONG))(X)
    assert len(closed.eqns) == VERY_LONG
    check_jaxpr(closed.jaxpr)
    assert dce(closed.jaxpr) is closed.jaxpr
    assert not dce(closed.jaxpr, [False]).eqns
    assert len(cse(closed.jaxpr).eqns) == VERY_LONG
    text = str(closed)
    assert text.count(" = mul ") == VERY_LONG // 2
    again = parse_jaxpr(text)
    assert hash(again) == hash(closed.jaxpr)
    assert again == closed.jaxpr
    (out,) = eval_jaxpr(closed.jaxpr, closed.consts, [as_value(X)])
    np.testing.assert_array_equal(to_numpy(out), np.float32(0.5))  # the fixed point of the iteration


def test_long_function_through_grad_vmap_and_lowering() -> None:
    f = orbit(LENGTH)
    traced = fx.jit(f, repeats="inline").trace(X)
    np.testing.assert_array_equal(np.asarray(fx.vmap(f)(np.full(3, X))), np.full(3, X))
    _, tangent = fx.jvp(f, (X,), (X,))
    assert float(tangent) == 0.0  # halved ten thousand times: underflows to zero
    gradient = fx.make_jaxpr(fx.grad(f))(X)
    check_jaxpr(gradient.jaxpr)
    assert traced.lower().as_text().count("stablehlo.multiply") == LENGTH // 2


# ------------------------------------------------------------------ time per equation


def calls(f: Callable[[], object]) -> int:
    """Returns the number of function calls, including C functions."""
    count = 0

    def note(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event.endswith("call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        f()
    finally:
        sys.setprofile(before)
    return count


def is_linear(make: Callable[[int], Any], run: Callable[[Any], object]) -> bool:
    """Returns whether four times as many equations take at most 4.4 times as many calls.

    The first run is not counted, since it includes work done once per process.
    """
    given = [make(n) for n in (100, 200, 400, 800)]
    run(given[0])
    once, twice, four_times = [calls(lambda x=x: run(x)) for x in given[1:]]  # type: ignore[misc]  # bound in the loop
    return 100 < four_times - twice <= 2.2 * (twice - once)


@pytest.mark.parametrize("name", [name for name in STAGES if name not in WRITTEN_IN_C])
def test_pass_is_linear_in_program_length(name: str) -> None:
    assert is_linear(*STAGES[name])


def test_choice_of_residuals_is_linear_in_the_length_of_a_block() -> None:
    def ladder(n: int) -> tuple[dict[int, int], dict[int, list[int]], list[int]]:
        """Values `n`, `n + 1`, ... that are each computed from two others and needed."""
        return dict.fromkeys(range(2 * n), 4), {n + v: [v, max(v - 1, 0)] for v in range(n)}, list(range(n, 2 * n))

    assert is_linear(ladder, lambda arguments: minimum_cut(*arguments))


def test_linearity_check_detects_quadratic_pass() -> None:
    assert is_linear(range, lambda xs: [abs(x) for x in xs])
    assert not is_linear(range, lambda xs: [abs(y) for x in xs for y in xs[:x]])


# ------------------------------------------------------------------ memory per equation


@frozen(eq=False)
class Doubled(SameTypes):
    """A primitive that records how many of its results are alive."""

    name = "doubled"
    made: list[weakref.ref[NDArray]] = field(factory=list, eq=False)
    alive: list[int] = field(factory=list, eq=False)

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        out = np.array(args[0] + args[0])
        self.made.append(weakref.ref(out))
        self.alive.append(sum(ref() is not None for ref in self.made))
        return [out]


def test_evaluation_frees_values_after_last_use() -> None:
    def f(x: Any, y: Any) -> Any:
        first = bind1(prim, x)
        z = first
        for _ in range(20):
            z = bind1(prim, z)
        bind1(prim, y)  # unused
        return bind1(prim, z), first

    prim = Doubled()
    closed = fx.make_jaxpr(f)(np.ones(2, np.float32), np.ones(2, np.float32))
    last, first = eval_jaxpr(closed.jaxpr, closed.consts, [as_value(np.ones(2, np.float32))] * 2)
    assert len(prim.alive) == 23
    assert max(prim.alive) <= 4  # the output, the operand, the result, and one reference of the evaluation loop
    assert (to_numpy(last)[0], to_numpy(first)[0]) == (2.0**22, 2.0)


class LiveObjectCounter:
    """A parameter whose `repr` counts the live objects of a class."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.counts: list[int] = []

    @override
    def __repr__(self) -> str:
        self.counts.append(sum(type(o).__name__ == self.kind for o in gc.get_objects()))
        return "witness"


@frozen(eq=False)
class Watched(Doubled):
    name = "watched"
    witness: object = None


def test_printing_streams_equations() -> None:
    witness = LiveObjectCounter("Cat")
    prim = Watched(witness=witness)

    def f(x: Any) -> Any:
        return bind1(prim, orbit(1000)(bind1(prim, x)))

    assert str(fx.make_jaxpr(f)(X)).count(" = mul ") == 500
    assert max(witness.counts[-2:]) - min(witness.counts[-2:]) <= 2


def test_parsing_streams_tokens() -> None:
    counts: list[int] = []

    class Counts(Primitive):
        name = "counts"

        def __init__(self) -> None:
            counts.append(sum(type(o).__name__ == "_Token" for o in gc.get_objects()))

    text = str(fx.make_jaxpr(orbit(1000))(X)).replace("let", "let counted:f32[] = counts a;")
    parse_jaxpr(text, Counts)
    (count,) = counts
    assert 0 < count < 10
