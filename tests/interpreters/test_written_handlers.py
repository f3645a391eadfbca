"""Handlers as their authors write them at first: rules for everything, closures over their values, and slips."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Never, final

import numpy as np
import pytest
from attrs import frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tracefx import lax
from tracefx.extend import (
    Array,
    Handler,
    Interpreter,
    Primitive,
    Rules,
    ShapedArray,
    Value,
    as_array,
    bind,
    current,
    handling,
)
from tracefx.ops.elementwise.transcendental import Sin
from tracefx.testing.tolerances import ELEMENTARY

# ------------------------------------------------------------------ one rule for all operations


class Marked(NamedTuple):
    x: Array
    marks: Array


@final
@frozen(eq=False)
class Marking(Interpreter[Marked]):
    """Counts the operations between the input and each number."""

    cache_key: ClassVar[Hashable] = ()

    @property
    @override
    def rules(self) -> Rules[Marking, Marked | Value]:
        return MARKS

    @override
    def aval_of(self, value: Marked) -> ShapedArray:
        return value.x.aval

    @override
    def lift(self, x: Value) -> Marked:
        return Marked(as_array(x), fnp.zeros(x.aval.shape, np.int32))

    @override
    def strip(self, value: Marked) -> Value:
        return value.x

    def mark(self, op: Primitive, *xs: Marked | Value) -> list[Marked | Value]:
        most = fnp.stack([x.marks.max() for x in xs if isinstance(x, Marked)]).max()
        outs = bind(op, *[x.x if isinstance(x, Marked) else x for x in xs])
        return [Marked(as_array(out), fnp.full(out.aval.shape, most + 1)) for out in outs]


MARKS = Rules[Marking, Marked | Value]().family(Primitive, Marking.mark)


def marks(f: Callable[[Any], Any], x: float) -> tuple[float, int]:
    with handling(Marking(current())) as h:
        out = h.unwrap(f(h.wrap(h.lift(fnp.asarray(x)))))
    assert isinstance(out, Marked)
    return float(out.x), int(out.marks)


@fx.custom_jvp
def bent(x: Any) -> Any:
    return fnp.sin(x) * 2.0


bent.defjvps(lambda t, ans, x: 7.0 * t)


@fx.custom_vjp
def pulled(x: Any) -> Any:
    return fnp.sin(x) * 3.0


pulled.defvjp(lambda x: (pulled(x), x), lambda r, ct: (5.0 * ct * r,))


@pytest.mark.parametrize("f", [bent, pulled])
def test_a_rule_for_everything_is_not_one_for_functions_that_operations_hold(f: Any) -> None:
    assert marks(f, 0.5)[1] == 2
    assert marks(fx.jit(f), 0.5)[1] == 2


def closing_jvp(x: Any) -> Any:
    @fx.custom_jvp
    def g(y: Any) -> Any:
        return y * x

    g.defjvps(lambda t, ans, y: t * 3.0)
    return g(2.0)


def closing_vjp(x: Any) -> Any:
    @fx.custom_vjp
    def g(y: Any) -> Any:
        return y * x

    g.defvjp(lambda y: (g(y), y), lambda r, ct: (ct * 3.0,))
    return g(2.0)


def closing_vmap(x: Any) -> Any:
    @fx.custom_batching.custom_vmap
    def g(y: Any) -> Any:
        return y * x

    g.def_vmap(lambda size, batched, y: (y * x, True))
    return g(2.0)


@pytest.mark.parametrize("f", [closing_jvp, closing_vjp, closing_vmap])
@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit])
def test_functions_with_rules_may_close_over_values_of_ones_own(f: Any, wrap: Callable[..., Any]) -> None:
    assert marks(wrap(f), 0.5) == (1.0, 1)


def test_a_function_that_closes_over_nothing_of_the_handlers_keeps_its_rule() -> None:
    def f(x: Any) -> Any:
        with handling(Marking(current())):
            return bent(x)

    assert fx.grad(f)(0.5) == 7.0
    assert fx.grad(fx.jit(f))(0.5) == 7.0


def test_a_function_that_depends_on_numbers_is_left_alone() -> None:
    @fx.custom_jvp
    def kinked(x: Any) -> Any:
        return 2.0 * x if x > 0.0 else x

    kinked.defjvps(lambda t, ans, x: 7.0 * t)

    def f(x: Any) -> Any:
        with handling(Marking(current())):
            return kinked(x)

    assert fx.grad(f)(0.5) == 7.0


# ------------------------------------------------------------------ a state of several parts


@final
@frozen(eq=False)
class Tally(Interpreter[Never, Mapping[str, Array]]):
    """How many operations there are, by name."""

    handles_all: ClassVar[bool] = True
    has_state: ClassVar[bool] = True

    @property
    @override
    def rules(self) -> Rules[Tally, Value]:
        return TALLY

    def see(self, op: Primitive, *xs: Value) -> Sequence[Value]:
        counts = self.current_state
        self.set_state({**counts, op.name: counts.get(op.name, fnp.int32(0)) + 1})
        return bind(op, *xs)


TALLY = Rules[Tally, Value]().on(Sin, Tally.see)


def tally(f: Callable[[Any], Any], **start: Any) -> Callable[[Any], tuple[Any, Mapping[str, Array]]]:
    def g(x: Any) -> tuple[Any, Mapping[str, Array]]:
        with handling(Tally(current())) as h:
            h.set_state(start)
            out = f(x)
        return out, h.current_state

    return g


def repeated(x: Any) -> Any:
    return lax.scan(lambda c, _: (bent(c) * pulled(x), None), x, None, length=2)[0]


def test_a_state_in_the_linear_part_of_a_function_with_a_backward_pass() -> None:
    def moved(x: Any) -> Any:
        return fx.jvp(repeated, (x,), (1.0,))[1]

    out, counts = tally(moved, sin=0)(0.7)
    assert_near(out, moved(0.7))
    assert counts["sin"] == 4


def test_parts_of_a_state_are_arrays() -> None:
    @fx.custom_batching.custom_vmap
    def g(x: Any) -> Any:
        return fnp.sin(x)

    g.def_vmap(lambda size, batched, x: (fnp.sin(x), True))

    def f(x: Any) -> Any:
        return tally(lambda x: fnp.sin(g(x)), sin=0)(x)[0]

    assert_near(fx.vmap(f)(fnp.array([0.5, 1.0])), np.sin(np.sin([0.5, 1.0])), ELEMENTARY)
    assert_near(fx.jvp(f, (0.5,), (1.0,))[1], np.cos(np.sin(0.5)) * np.cos(0.5), ELEMENTARY)


def test_a_state_keeps_its_structure() -> None:
    assert tally(fnp.sin)(0.5)[1] == {"sin": 1}
    with pytest.raises(TypeError, match=r"takes the state .* initialize all its parts before"):
        tally(repeated)(0.5)


# ------------------------------------------------------------------ slips


@final
@frozen(eq=False)
class Giving(Interpreter):
    """`sin` gives what it is told."""

    out: object
    handles_all: ClassVar[bool] = True

    @property
    @override
    def rules(self) -> Rules[Giving, Value]:
        return Rules[Giving, Value]().on(Sin, Giving.told)

    def told(self, op: Sin, x: Value) -> Any:
        return self.out


def given(out: object) -> Any:
    def make(inner: Handler) -> Giving:
        return Giving(inner, out)

    return fx.handle(fnp.sin, make)(0.5)


@pytest.mark.parametrize("out", [None, 2.0, fnp.ones(1), fnp.ones(()), Marked(fnp.ones(()), fnp.ones(()))])
def test_a_rule_gives_a_list(out: object) -> None:
    with pytest.raises(TypeError, match=r"the rule of giving for sin returned .* return \[out\]"):
        given(out)


@pytest.mark.parametrize("out", [2.0, np.float32(2.0), np.asarray(2.0, np.float32), fnp.asarray(2.0)])
def test_numbers_are_outputs(out: object) -> None:
    assert given([out]) == 2.0
    assert given((out,)) == 2.0


def test_a_class_is_no_handler() -> None:
    before = current()
    with pytest.raises(TypeError, match=r"got <class .*Tally.*handling\(MyHandler\(current\(\)\)\)"):
        handling(Tally)  # type: ignore[type-var]
    assert current() is before


# ------------------------------------------------------------------ solutions of equations

UNSOLVED: Final = 1e-5
"""By how much an equation may miss when the loop ends; rounding of what is near 1 is a hundredth of it."""


@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit])
def test_how_a_solution_is_found_is_not_differentiated_where_a_state_is_kept(wrap: Callable[..., Any]) -> None:
    def solve(matvec: Callable[[Any], Any], b: Any) -> Any:
        def better(y: Any) -> Any:
            return y + fnp.sin(b - matvec(y)) * 0.5

        return lax.while_loop(lambda y: abs(matvec(y) - b) > UNSOLVED, better, b)

    def f(x: Any) -> Any:
        return lax.custom_linear_solve(lambda v: v * x, fnp.sin(x), solve, symmetric=True)

    counted = tally(wrap(f), sin=0)
    out, counts = counted(0.7)
    assert abs(0.7 * float(out) - np.sin(0.7)) <= 1.1 * UNSOLVED
    assert counts["sin"] > 3
    slope, counts = fx.grad(counted, has_aux=True)(0.7)
    assert abs(0.7 * float(slope) - (np.cos(0.7) - float(out))) <= 1.1 * UNSOLVED
    assert counts["sin"] > 3
