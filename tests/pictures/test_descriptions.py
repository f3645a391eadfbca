"""The description of a program says what it costs and holds, and where it was written."""

from __future__ import annotations

import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.pictures.examples import LOSS_ARGS, PROGRAMS, array, clipped, loss, normalise, program, settling
from tracefx import Array, lax
from tracefx.handlers import count_jaxpr
from tracefx.pictures.costs import ZERO_WORK, add_work
from tracefx.pictures.descriptions import (
    BodyDescription,
    EquationDescription,
    ProgramDescription,
    VariableDescription,
    describe_program,
)


def lines_named(found: ProgramDescription, op: str) -> list[EquationDescription]:
    return [line for line in found.lines() if line.op == op]


def counted(body: BodyDescription) -> list[EquationDescription]:
    """The lines whose costs count, each once."""
    lines = []
    for line in body.lines if body.counted else ():
        lines += [line, *[inner for each in line.bodies for inner in counted(each)]]
    return lines


@pytest.mark.parametrize("name", PROGRAMS)
def test_totals_are_those_of_count(name: str) -> None:
    closed = program(name)
    found, cost = describe_program(closed), count_jaxpr(closed)
    assert found.total == cost.total
    assert found.peak == cost.peak_bytes
    assert found.argument_bytes == cost.argument_bytes
    assert found.constant_bytes == cost.constant_bytes
    assert found.output_bytes == cost.output_bytes


@pytest.mark.parametrize("name", ["grad", "settling", "checkpoint"])
def test_what_lines_cost_adds_up(name: str) -> None:
    found = describe_program(program(name))
    total = ZERO_WORK
    for line in found.body.lines:
        total = add_work(total, line.work)
    assert total == found.total
    for line in found.lines():
        if [body.same_as for body in line.bodies] == [None] and line.bodies[0].counted and line.op != "while":
            inside = line.self_work
            for inner in line.bodies[0].lines:
                inside = add_work(inside, inner.work)
            assert inside == line.work, line.op


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "identity"])
def test_the_line_that_holds_most_holds_the_peak(name: str) -> None:
    found = describe_program(program(name))
    most = max(found.lines(), key=lambda line: (line.during, line.number))
    assert most.during == found.peak
    assert not most.bodies or max(inner.during for body in most.bodies for inner in body.all_lines()) < most.during
    assert all(line.after <= line.during for line in found.lines())


def test_a_line_is_held_as_long_as_it_is_needed() -> None:
    def f(x: Array) -> Array:
        y = fnp.sin(x)
        z = fnp.cos(y)
        return z + z

    found = describe_program(fx.make_jaxpr(f)(array(8)))
    assert [(line.op, line.during, line.after) for line in found.lines()] == [
        ("sin", 64, 64),
        ("cos", 96, 64),
        ("add", 96, 64),
    ]


def test_lines_know_where_they_were_written() -> None:
    def f(x: Array) -> Array:
        with fx.named_scope("outer"):
            return fnp.sin(x)

    (line,) = describe_program(fx.make_jaxpr(f)(array(3))).lines()
    assert line.location is not None
    assert (line.location.file, line.location.line) == (__file__, f.__code__.co_firstlineno + 2)
    assert line.scope == ("outer",)


def test_bodies_are_labelled_and_counted() -> None:
    found = describe_program(program("loss"))
    (scan,), (branch,) = lines_named(found, "scan"), lines_named(found, "cond")
    assert [(body.label, body.runs) for body in scan.bodies] == [("step", 5)]
    assert [(body.label, body.counted) for body in branch.bodies] == [("if false", False), ("if true", True)] or [
        body.counted for body in branch.bodies
    ] == [True, False]
    assert {line.runs for line in scan.bodies[0].lines} == {5}
    (loop,) = describe_program(fx.make_jaxpr(settling)(array(4))).body.lines
    assert [(body.label, body.runs) for body in loop.bodies] == [("condition", None), ("step", None)]


def test_inputs_of_bodies_are_known_outside() -> None:
    def f(x: Array, n: Array, w: Array) -> tuple[Array, Array]:
        y, _ = lax.scan(lambda y, u: (y * w + u, None), x, fnp.stack([x, x]))
        return lax.while_loop(lambda s: fnp.sum(s[1]) < n, lambda s: (s[0] + w, s[1] * 2.0), (y, w))

    found = describe_program(fx.make_jaxpr(f)(array(4), array(), array(4)), ["x", "n", "w"])
    (scan,), (loop,) = lines_named(found, "scan"), lines_named(found, "while")
    inner = scan.bodies[0]
    assert inner.given == scan.operands
    assert [x.note for x in inner.given[:2] if isinstance(x, VariableDescription)] == ["w", "x"]
    condition, step = loop.bodies
    assert [x.note for x in (condition.given[0], step.given[0]) if isinstance(x, VariableDescription)] == ["n", "w"]
    for body in loop.bodies:
        assert [x.aval for x in body.given] == [v.aval for v in body.inputs]


def test_only_the_branch_that_counts_adds_to_the_whole() -> None:
    def f(x: Array) -> Array:
        return lax.cond(x[0] > 0, lambda x: fnp.sin(fnp.sin(x)), lambda x: x * 2.0, x)

    found = describe_program(fx.make_jaxpr(f)(array(8)))
    (branch,) = lines_named(found, "cond")
    assert [body.counted for body in branch.bodies] == [False, True] or branch.bodies[0].label != "if false"
    leaves = [line for line in counted(found.body) if not line.bodies]
    assert sum(line.work.operations for line in leaves) == found.total.operations


def test_a_body_that_is_shared_is_shown_once() -> None:
    def f(x: Array) -> Array:
        return normalise(normalise(x))

    first, second = describe_program(fx.make_jaxpr(f)(array(4, 4))).body.lines
    assert first.op == second.op == "jit(normalise)"
    assert first.bodies[0].same_as is None
    assert second.bodies[0].same_as == first.number
    assert second.bodies[0].lines == ()
    assert first.work == second.work


def test_variables_are_named_as_they_are_printed() -> None:
    def f(x: Array, y: Array) -> Array:
        fnp.cos(x)
        return fnp.sin(x) + y

    closed = fx.make_jaxpr(f)(array(3), array(3))
    found = describe_program(closed, ["x", "y"])
    assert [(v.name, v.note) for v in found.body.inputs] == [("a", "x"), ("b", "y")]
    shown = [f"{line.results[0].name}:{line.results[0].aval!r} = {line.op}" for line in found.lines()]
    assert all(line in str(closed) for line in shown)
    assert shown[0].startswith("_:")
    keys = [v.key for v in [*found.body.inputs, *[v for line in found.lines() for v in line.results]]]
    assert len(set(keys)) == len(keys)


def test_numbers_are_as_short_as_their_dtype_allows() -> None:
    (line,) = describe_program(fx.make_jaxpr(lambda x: x * 1.1)(array(3))).lines()
    number = line.operands[1]
    assert not isinstance(number, VariableDescription)
    assert number.text == "1.1"


def test_parameters_are_shown_without_bodies() -> None:
    (scan,) = lines_named(describe_program(fx.make_jaxpr(loss)(*LOSS_ARGS)), "scan")
    assert scan.params.startswith("length=5 ")
    assert "..." not in scan.params
    assert "lambda" not in scan.params
    (call,) = describe_program(fx.make_jaxpr(normalise)(array(2, 2))).body.lines
    assert call.params == ""
    (custom,) = describe_program(fx.make_jaxpr(clipped)(array(2))).body.lines
    assert custom.category == "control"
    assert custom.bodies[0].lines[0].op == "min"


def test_kinds_say_what_operations_are_about() -> None:
    def f(x: Array) -> Array:
        fx.debug.print("{}", x[0, 0])
        return fnp.exp(x @ x).sum() + 1.0

    kinds = {line.op: line.category for line in describe_program(fx.make_jaxpr(f)(array(2, 2))).lines()}
    assert kinds["dot_general"] == "matrix"
    assert kinds["exp"] == "function"
    assert kinds["reduce_sum"] == "reduction"
    assert kinds["add"] == "arithmetic"
    assert kinds["squeeze"] == "moving"
    assert "effect" in kinds.values()


def test_constants_are_apart_from_inputs() -> None:
    table = fnp.arange(5.0) + 1.0
    found = describe_program(fx.make_jaxpr(lambda x: x * table)(array(5)))
    assert [v.aval.shape for v in found.body.constants] == [(5,)]
    assert (found.constant_bytes, found.argument_bytes) == (20, 20)
