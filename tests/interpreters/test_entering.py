"""Generated programs with loops and branches, interpreted by handlers that change no result.

`Boxed` wraps every value in its own type, so that every carry, branch operand and result is unwrapped and wrapped
again. `Passing` handles every operation without a rule. `Counting` has a state that every operation changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, Never, final

import pytest
from attrs import evolve
from hypothesis import given
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_same
from tests.laws.examples import limit_examples
from tracefx.control.while_loop import While
from tracefx.core import ConcreteArray, dtypes, from_numpy
from tracefx.extend import Array, Interpreter, Primitive, ShapedArray, Value, as_array, bind, rule
from tracefx.testing.generated_programs import TransformedProgram
from tracefx.testing.strategies import transformed_control_flow_programs
from tracefx.testing.tolerances import SUMMED


class Box(NamedTuple):
    contents: Array


@final
class Boxed(Interpreter[Box]):
    @override
    def aval_of(self, value: Box) -> ShapedArray:
        return value.contents.aval

    @override
    def lift(self, x: Value) -> Box:
        return Box(as_array(x))

    @override
    def strip(self, value: Box) -> Value:
        return value.contents

    @rule(family=Primitive)
    def box(self, op: Primitive, *xs: Box | Value) -> list[Box]:
        return [Box(as_array(x)) for x in bind(op, *map(_contents, xs))]


def _contents(x: Box | Value) -> Value:
    return x.contents if isinstance(x, Box) else x


@final
class Passing(Interpreter):
    pass


@final
class Counting(Interpreter[Never, Array]):
    has_state: ClassVar[bool] = True

    @rule(family=Primitive)
    def increment(self, op: Primitive, *xs: Value) -> Sequence[Value]:
        self.set_state(self.current_state + 1)
        return bind(op, *xs)


def boxed(f: Callable[..., Any]) -> Callable[..., Any]:
    def g(*args: Any) -> Any:
        with Boxed().running() as h:
            out = f(*[h.wrap(Box(fnp.asarray(x))) for x in args])
        return as_array(_contents(h.unwrap(out)))

    return g


def counted(f: Callable[..., Any]) -> Callable[..., Any]:
    def g(*args: Any) -> Any:
        with Counting().running(fnp.zeros((), "int32")):
            return f(*args)

    return g


def passed_through(f: Callable[..., Any]) -> Callable[..., Any]:
    return fx.handle(f, Passing())


HANDLED: Final = {"boxes": boxed, "a state": counted, "everything": passed_through}


def inputs(case: TransformedProgram) -> list[ConcreteArray]:
    return [from_numpy(x, dtypes.float64) for x in case.inputs()]


close = partial(assert_same, tolerance=SUMMED, weak=False)


@pytest.mark.parametrize("handler", HANDLED)
@limit_examples(3, at_length=120)
@given(transformed_control_flow_programs())
def test_transformed_program_inside_a_handler(handler: str, case: TransformedProgram) -> None:
    """The handler is applied outside the stack of transformations."""
    f = case.function(fx, fnp)
    close(fx.jit(HANDLED[handler](f))(*inputs(case)), fx.jit(f)(*inputs(case)))


@pytest.mark.parametrize("handler", HANDLED)
@limit_examples(3, at_length=120)
@given(transformed_control_flow_programs())
def test_handled_program_inside_transformations(handler: str, case: TransformedProgram) -> None:
    """The handler is applied to the program, inside the stack of transformations."""
    f: Any = HANDLED[handler](evolve(case, layers=()).function(fx, fnp))
    for layer in case.layers:
        f = layer.over(fx, fnp, f)
    close(fx.jit(f)(*inputs(case)), fx.jit(case.function(fx, fnp))(*inputs(case)))


def test_planted_bug_changes_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug in `While.transform_bodies` (it returns the initial carry) changes results."""
    original = While.transform_bodies

    def wrong(self: While, interpreter: Any, args: Sequence[Value]) -> Sequence[Value]:
        original(self, interpreter, args)
        return self.split_operands(args)[2]

    monkeypatch.setattr(While, "transform_bodies", wrong)
    f = fx.jit(lambda x: fx.lax.while_loop(lambda x: x < 8.0, lambda x: 2.0 * x, x))
    for handled in HANDLED.values():
        assert handled(f)(1.0) == 1.0
