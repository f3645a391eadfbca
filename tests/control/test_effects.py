"""Effects happen exactly once where programs are split: in loops, their derivatives and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np
import pytest
from attrs import field, frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.primitives import SameTypes
from tracefx import extend
from tracefx.core.effects import DebugEffect, IOEffect
from tracefx.testing.tolerances import ELEMENTARY
from tracefx.transforms.checkpointing import checkpoint
from tracefx.transforms.conditionals import cond
from tracefx.transforms.loops import while_loop
from tracefx.transforms.scans import scan

SCALAR: Final = fx.ShapeDtypeStruct((), "float32")
STEPS: Final = 6


class Log:
    """Records the values passed to callbacks, in order."""

    def __init__(self) -> None:
        self.entries: list[float] = []

    def show(self, x: Any) -> Any:
        fx.debug.callback(lambda x: self.entries.append(float(x)), x, ordered=True)
        return x

    def count(self, x: Any) -> Any:
        """Returns `x` times the number of calls so far."""

        def times(x: Any) -> Any:
            self.entries.append(float(x))
            return x * len(self.entries)

        return fx.io_callback(times, SCALAR, x, ordered=True)


def run_logged(f: Callable[[Log], Callable[[Any], Any]], x: Any, compiled: bool) -> tuple[Any, list[float]]:
    log = Log()
    g = f(log)
    out = (fx.jit(g) if compiled else g)(x)
    return out, log.entries


def product(
    step: Callable[[Log, Any, Any], Any], **options: Any
) -> tuple[Callable[[Log], Callable[[Any], Any]], Callable[[Log], Callable[[Any], Any]]]:
    """Returns a scan that multiplies its carry by a factor in each step, and its derivative."""

    def f(log: Log) -> Callable[[Any], Any]:
        def one(c: Any, x: Any) -> tuple[Any, None]:
            return step(log, c, x), None

        return lambda a: scan(lambda c, x: one(c, (a, x)), a, fnp.arange(1.0, STEPS + 1), **options)[0]

    return f, lambda log: fx.grad(f(log))


OPTIONS: Final[list[dict[str, Any]]] = [{}, {"checkpoint": 2}, {"checkpoint": "binomial"}, {"unroll": 2}]
BODIES: Final[dict[str, Callable[[Log, Any, Any], Any]]] = {
    "shows the carry": lambda log, c, ax: log.show(c) * fnp.sin(ax[1]),
    "shows the slice": lambda log, c, ax: c * fnp.sin(log.show(ax[1])),
    "shows what all steps share": lambda log, c, ax: c * fnp.sin(log.show(ax[0])),
    "shows what all steps compute alike": lambda log, c, ax: c * log.show(fnp.sin(ax[0])),
    "shows a constant": lambda log, c, ax: c * (log.show(1.0) + fnp.sin(ax[0])),
    "shows in a branch": lambda log, c, ax: cond(ax[1] % 2 == 0, lambda: c * log.show(ax[1]), lambda: c * ax[0]),
    "counts of the slice": lambda log, c, ax: c * fnp.sin(log.count(ax[1])),
    "counts of a constant": lambda log, c, ax: c * fnp.sin(log.count(1.0)),
    "counts in a branch": lambda log, c, ax: c * cond(ax[1] > 2, lambda: log.count(2.0), lambda: fnp.float32(0.5)),
}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_differentiated_scan_has_the_effects_of_the_scan(name: str, options: dict[str, Any]) -> None:
    f, derivative = product(BODIES[name], **options)
    plain, _ = product(BODIES[name])
    x = fnp.float32(1.25)
    want, entries = run_logged(plain, x, compiled=False)
    slope, _ = run_logged(lambda log: lambda x: fx.jvp(plain(log), (x,), (1.0,))[1], x, compiled=False)
    assert entries
    for compiled in (True,) if options else (False, True):
        out, seen = run_logged(f, x, compiled)
        assert seen == entries
        assert_near(out, want, ELEMENTARY)
        got, seen = run_logged(derivative, x, compiled)
        assert seen == entries
        assert_near(got, slope, ELEMENTARY)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_effects_of_a_checkpointed_function_happen_once(compiled: bool) -> None:
    def shows(log: Log) -> Callable[[Any], Any]:
        return fx.grad(checkpoint(lambda x: fnp.sin(fnp.sin(log.show(x)))))

    def counts(log: Log) -> Callable[[Any], Any]:
        return fx.grad(checkpoint(lambda x: fnp.sin(fnp.sin(x)) * log.count(3.0)))

    slope = np.cos(np.sin(2.0)) * np.cos(2.0)
    for f, factor, entry in ((shows, 1, 2.0), (counts, 3, 3.0)):
        out, entries = run_logged(f, fnp.float32(2), compiled)
        assert entries == [entry]
        assert_near(out, factor * slope, ELEMENTARY)


def powers(log: Log, **options: Any) -> Callable[[Any], Any]:
    """x to the power 8 by a loop."""
    return lambda x: while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, log.show(c[1]) ** 2), (0, x), **options)[1]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_debug_effects_of_a_recomputed_while_loop_happen_once(compiled: bool) -> None:
    def linearized(log: Log) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            out, linear = fx.linearize(powers(log), x)
            return out, linear(fnp.float32(1)), linear(fnp.float32(2))

        return f

    out, entries = run_logged(linearized, fnp.float32(2), compiled)
    assert entries == [2, 4, 16]
    assert [float(x) for x in out] == [256, 1024, 2048]
    out, entries = run_logged(lambda log: fx.jacfwd(powers(log)), fnp.float32(2), compiled)
    assert (float(out), entries) == (1024, [2, 4, 16])
    out, entries = run_logged(lambda log: fx.grad(powers(log, max_steps=8)), fnp.float32(2), compiled)
    assert (float(out), entries) == (1024, [2, 4, 16])


def test_recomputing_a_while_loop_with_io_effects_is_an_error() -> None:
    log = Log()

    def f(x: Any) -> Any:
        return while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * c[1] + 0 * log.count(1.0)), (0, x))[1]

    assert float(fx.jvp(f, (2.0,), (1.0,))[1]) == 1024
    assert log.entries == [1, 1, 1]
    with pytest.raises(ValueError, match=r"effects \(OrderedIO\), which must not run twice"):
        fx.linearize(f, 2.0)
    assert log.entries == [1, 1, 1]


def test_debug_effects_on_tangents_happen_in_the_linear_part() -> None:
    log = Log()

    @fx.custom_jvp
    def double(x: Any) -> Any:
        return 2 * x

    @double.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return double(*primals), 2 * log.show(tangents[0])

    def f(x: Any) -> Any:
        return while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, double(c[1])), (0, x))[1]

    out, linear = fx.linearize(f, 1.0)
    assert (float(out), log.entries) == (4, [])
    assert float(linear(3.0)) == 12
    assert log.entries == [3, 6]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_batched_predicates_run_debug_effects_for_all_elements_and_reject_io_effects(compiled: bool) -> None:
    x = fnp.arange(3.0)
    out, entries = run_logged(
        lambda log: fx.vmap(lambda x: cond(x > 1, lambda x: log.show(10 * x), lambda x: x, x)), x, compiled
    )
    assert np.array_equal(out, [0, 1, 20])
    assert entries == [0, 10, 20]
    out, entries = run_logged(
        lambda log: fx.vmap(lambda x: while_loop(lambda x: x < 2, lambda x: log.show(x) + 1, x)), x, compiled
    )
    assert np.array_equal(out, [2, 2, 2])
    assert entries == [0, 1, 2, 1, 2, 2]

    def sine(x: Any) -> Any:
        return fx.io_callback(np.sin, SCALAR, x)

    def chosen(x: Any) -> Any:
        return cond(x > 1, lambda: sine(x), lambda: x)

    for f in (chosen, lambda x: while_loop(lambda x: x < 2, sine, x)):
        g = fx.vmap(f)
        with pytest.raises(ValueError, match=r"effects \(IO\)"):
            (fx.jit(g) if compiled else g)(x)


@final
@frozen
class Ticking(extend.Effect):
    ordered: bool = True


@final
@frozen(eq=False)
class Tick(SameTypes, extend.Lowerable):
    """A user-defined primitive that calls the host."""

    name = "tick"
    log: list[float] = field(eq=False)

    @property
    @override
    def effects(self) -> extend.Effects:
        return frozenset({Ticking()})

    @override
    def impl(self, *args: extend.NDArray) -> Sequence[extend.NDArray]:
        self.log.append(float(args[0]))
        return args

    @override
    def lower(self, builder: extend.Builder, *operands: extend.IrValue) -> Sequence[extend.IrValue]:
        return builder.host_call(self.impl, operands, [x.aval for x in operands], has_side_effect=True)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_effects_of_user_defined_primitives_keep_their_order(compiled: bool) -> None:
    def f(log: Log) -> Callable[[Any], Any]:
        def step(c: Any, x: Any) -> tuple[Any, None]:
            log.show(10 * x)
            return c + extend.bind1(Tick(log.entries), x), None

        return lambda x: scan(step, extend.bind1(Tick(log.entries), x), fnp.arange(3.0))[0] + 0 * log.show(x)

    out, entries = run_logged(f, fnp.float32(7), compiled)
    assert float(out) == 10
    assert entries == [7, 0, 0, 10, 1, 20, 2, 7]


def test_jaxpr_effects_are_the_union_of_its_equations_effects() -> None:
    log = Log()

    def f(x: Any) -> Any:
        x, _ = scan(lambda c, _: (cond(c > 0, lambda: log.show(c), lambda: c), None), x, None, length=2)
        return fx.jit(lambda x: while_loop(lambda x: log.count(x) < 0, lambda x: x, x))(x)

    closed = fx.make_jaxpr(f)(1.0)
    fx.check_jaxpr(closed)
    assert closed.effects == {DebugEffect(ordered=True), IOEffect(ordered=True)}
    assert sorted(map(str, closed.effects)) == ["OrderedDebug", "OrderedIO"]
    fx.check_jaxpr(
        fx.make_jaxpr(fx.grad(lambda x: scan(lambda c, _: (log.show(c) * x, None), x, None, length=2)[0]))(1.0)
    )
