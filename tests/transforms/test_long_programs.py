"""Programs of many equations: no walk over a program is recursive in its length, or more than linear in it."""

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
from tracefx import lax
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind1
from tracefx.core.primitive import Primitive
from tracefx.core.values import as_value, to_numpy
from tracefx.passes.check import check_jaxpr
from tracefx.passes.cse import cse
from tracefx.passes.dce import dce
from tracefx.programs import parse_jaxpr

LENGTH: Final = 20_000
VERY_LONG: Final = 100_000
X = np.float32(0.5)
WRITTEN_IN_C: Final = {"hash", "compare", "dce, nothing to do"}
"""Walks that take a few calls in all."""


def orbit(length: int) -> Callable[[Any], Any]:
    """Half of the equations multiply, half add."""

    def f(x: Any) -> Any:
        for _ in range(length // 2):
            x = lax.add(lax.mul(x, 0.5), 0.25)
        return x

    return f


def test_a_very_long_program_is_traced_checked_printed_read_reduced_and_evaluated() -> None:
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
    np.testing.assert_array_equal(to_numpy(out), np.float32(0.5))  # the fixed point, where it starts


def test_a_long_function_is_differentiated_batched_and_lowered() -> None:
    f = orbit(LENGTH)
    traced = fx.jit(f).trace(X)
    np.testing.assert_array_equal(np.asarray(fx.vmap(f)(np.full(3, X))), np.full(3, X))
    _, tangent = fx.jvp(f, (X,), (X,))
    assert float(tangent) == 0.0  # halved ten thousand times
    gradient = fx.make_jaxpr(fx.grad(f))(X)
    check_jaxpr(gradient.jaxpr)
    assert traced.lower().as_text().count("stablehlo.multiply") == LENGTH // 2


# ------------------------------------------------------------------ how much is done for each equation


def calls(f: Callable[[], object]) -> int:
    """How many functions are called, those written in C among them."""
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
    """Whether four times as many equations take four times as many calls, a tenth more at most.

    What the first run does once in a process is left out.
    """
    given = [make(n) for n in (100, 200, 400, 800)]
    run(given[0])
    once, twice, four_times = [calls(lambda x=x: run(x)) for x in given[1:]]  # type: ignore[misc]  # bound in the loop
    return 100 < four_times - twice <= 2.2 * (twice - once)


@pytest.mark.parametrize("name", [name for name in STAGES if name not in WRITTEN_IN_C])
def test_each_equation_takes_as_many_calls(name: str) -> None:
    assert is_linear(*STAGES[name])


def test_a_walk_that_starts_again_at_each_equation_is_found() -> None:
    assert is_linear(range, lambda xs: [abs(x) for x in xs])
    assert not is_linear(range, lambda xs: [abs(y) for x in xs for y in xs[:x]])


# ------------------------------------------------------------------ how much is held for each equation


@frozen(eq=False)
class Doubled(Primitive):
    """Tells how many of its results are alive."""

    name = "doubled"
    made: list[weakref.ref[NDArray]] = field(factory=list, eq=False)
    alive: list[int] = field(factory=list, eq=False)

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        out = np.array(args[0] + args[0])
        self.made.append(weakref.ref(out))
        self.alive.append(sum(ref() is not None for ref in self.made))
        return [out]

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return avals


def test_evaluation_holds_no_value_longer_than_something_reads_it() -> None:
    def f(x: Any, y: Any) -> Any:
        first = bind1(prim, x)
        z = first
        for _ in range(20):
            z = bind1(prim, z)
        bind1(prim, y)  # read by nothing
        return bind1(prim, z), first

    prim = Doubled()
    closed = fx.make_jaxpr(f)(np.ones(2, np.float32), np.ones(2, np.float32))
    last, first = eval_jaxpr(closed.jaxpr, closed.consts, [as_value(np.ones(2, np.float32))] * 2)
    assert len(prim.alive) == 23
    assert max(prim.alive) <= 4  # the output, the operand, the result, and what the loop over equations still holds
    assert (to_numpy(last)[0], to_numpy(first)[0]) == (2.0**22, 2.0)


class Witness:
    """A parameter that counts the objects of a class when it is printed."""

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


def test_a_program_is_printed_an_equation_at_a_time() -> None:
    witness = Witness("Cat")
    prim = Watched(witness=witness)

    def f(x: Any) -> Any:
        return bind1(prim, orbit(1000)(bind1(prim, x)))

    assert str(fx.make_jaxpr(f)(X)).count(" = mul ") == 500
    assert max(witness.counts[-2:]) - min(witness.counts[-2:]) <= 2


def test_a_program_is_read_a_word_at_a_time() -> None:
    counts: list[int] = []

    class Counts(Primitive):
        name = "counts"

        def __init__(self) -> None:
            counts.append(sum(type(o).__name__ == "_Token" for o in gc.get_objects()))

    text = str(fx.make_jaxpr(orbit(1000))(X)).replace("let", "let counted:f32[] = counts a;")
    parse_jaxpr(text, Counts)
    (count,) = counts
    assert 0 < count < 10
