"""`describe_program`: costs, memory, source locations, variables and bodies of a program."""

from __future__ import annotations

import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.pictures.examples import LOSS_ARGS, PROGRAMS, array, clipped, loss, normalise, program, settling
from tracefx import Array, lax
from tracefx.handlers import count_jaxpr
from tracefx.handlers.cost_analysis.equation_costs import ZERO_WORK, add_work
from tracefx.pictures.descriptions import (
    BodyDescription,
    EquationDescription,
    ProgramDescription,
    VariableDescription,
    describe_program,
)


def lines_named(description: ProgramDescription, op: str) -> list[EquationDescription]:
    return [line for line in description.lines() if line.op == op]


def counted_lines(body: BodyDescription) -> list[EquationDescription]:
    """All lines whose costs are part of the total, each once."""
    lines = []
    for line in body.lines if body.counted else ():
        lines += [line, *[inner for each in line.bodies for inner in counted_lines(each)]]
    return lines


@pytest.mark.parametrize("name", PROGRAMS)
def test_totals_match_count(name: str) -> None:
    closed = program(name)
    description, cost = describe_program(closed), count_jaxpr(closed)
    assert description.total == cost.total
    assert description.peak == cost.peak_bytes
    assert description.argument_bytes == cost.argument_bytes
    assert description.constant_bytes == cost.constant_bytes
    assert description.output_bytes == cost.output_bytes


@pytest.mark.parametrize("name", ["grad", "settling", "checkpoint"])
def test_costs_of_lines_add_up_to_the_total(name: str) -> None:
    description = describe_program(program(name))
    total = ZERO_WORK
    for line in description.body.lines:
        total = add_work(total, line.work)
    assert total == description.total
    for line in description.lines():
        if [body.same_as for body in line.bodies] == [None] and line.bodies[0].counted and line.op != "while":
            inside = line.self_work
            for inner in line.bodies[0].lines:
                inside = add_work(inside, inner.work)
            assert inside == line.work, line.op


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "identity"])
def test_memory_of_the_peak_line_is_the_peak(name: str) -> None:
    description = describe_program(program(name))
    most = max(description.lines(), key=lambda line: (line.during, line.number))
    assert most.during == description.peak
    assert all(inner.during < most.during for body in most.bodies for inner in body.all_lines())
    assert all(line.after <= line.during for line in description.lines())


def test_memory_is_freed_after_the_last_use() -> None:
    def f(x: Array) -> Array:
        y = fnp.sin(x)
        z = fnp.cos(y)
        return z + z

    description = describe_program(fx.make_jaxpr(f)(array(8)))
    assert [(line.op, line.during, line.after) for line in description.lines()] == [
        ("sin", 64, 64),
        ("cos", 96, 64),
        ("add", 96, 64),
    ]


def test_lines_have_source_locations_and_scopes() -> None:
    def f(x: Array) -> Array:
        with fx.named_scope("outer"):
            return fnp.sin(x)

    (line,) = describe_program(fx.make_jaxpr(f)(array(3))).lines()
    assert line.location is not None
    assert (line.location.file, line.location.line) == (__file__, f.__code__.co_firstlineno + 2)
    assert line.scope == ("outer",)


def test_bodies_have_labels_and_execution_counts() -> None:
    description = describe_program(program("loss"))
    (scan,), (branch,) = lines_named(description, "scan"), lines_named(description, "cond")
    assert [(body.label, body.runs) for body in scan.bodies] == [("step", 5)]
    assert [(body.label, body.counted) for body in branch.bodies] == [("if false", False), ("if true", True)] or [
        body.counted for body in branch.bodies
    ] == [True, False]
    assert {line.runs for line in scan.bodies[0].lines} == {5}
    (loop,) = describe_program(fx.make_jaxpr(settling)(array(4))).body.lines
    assert [(body.label, body.runs) for body in loop.bodies] == [("condition", None), ("step", None)]


def test_inputs_of_bodies_refer_to_outer_variables() -> None:
    def f(x: Array, n: Array, w: Array) -> tuple[Array, Array]:
        y, _ = lax.scan(lambda y, u: (y * w + u, None), x, fnp.stack([x, x]))
        return lax.while_loop(lambda s: fnp.sum(s[1]) < n, lambda s: (s[0] + w, s[1] * 2.0), (y, w))

    description = describe_program(fx.make_jaxpr(f)(array(4), array(), array(4)), ["x", "n", "w"])
    (scan,), (loop,) = lines_named(description, "scan"), lines_named(description, "while")
    inner = scan.bodies[0]
    assert inner.given == scan.operands
    assert [x.note for x in inner.given[:2] if isinstance(x, VariableDescription)] == ["w", "x"]
    condition, step = loop.bodies
    assert [x.note for x in (condition.given[0], step.given[0]) if isinstance(x, VariableDescription)] == ["n", "w"]
    for body in loop.bodies:
        assert [x.aval for x in body.given] == [v.aval for v in body.inputs]


def test_only_the_counted_branch_adds_to_the_total() -> None:
    def f(x: Array) -> Array:
        return lax.cond(x[0] > 0, lambda x: fnp.sin(fnp.sin(x)), lambda x: x * 2.0, x)

    description = describe_program(fx.make_jaxpr(f)(array(8)))
    (branch,) = lines_named(description, "cond")
    assert [body.counted for body in branch.bodies] == [False, True] or branch.bodies[0].label != "if false"
    leaves = [line for line in counted_lines(description.body) if not line.bodies]
    assert sum(line.work.operations for line in leaves) == description.total.operations


def test_shared_bodies_are_described_once() -> None:
    def f(x: Array) -> Array:
        return normalise(normalise(x))

    first, second = describe_program(fx.make_jaxpr(f)(array(4, 4))).body.lines
    assert first.op == second.op == "jit(normalise)"
    assert first.bodies[0].same_as is None
    assert second.bodies[0].same_as == first.number
    assert second.bodies[0].lines == ()
    assert first.work == second.work


def test_variable_names_match_the_printed_program() -> None:
    def f(x: Array, y: Array) -> Array:
        fnp.cos(x)
        return fnp.sin(x) + y

    closed = fx.make_jaxpr(f)(array(3), array(3))
    description = describe_program(closed, ["x", "y"])
    assert [(v.name, v.note) for v in description.body.inputs] == [("a", "x"), ("b", "y")]
    texts = [f"{line.results[0].name}:{line.results[0].aval!r} = {line.op}" for line in description.lines()]
    assert all(line in str(closed) for line in texts)
    assert texts[0].startswith("_:")
    keys = [v.key for v in [*description.body.inputs, *[v for line in description.lines() for v in line.results]]]
    assert len(set(keys)) == len(keys)


def test_literals_are_printed_with_shortest_digits() -> None:
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


def test_categories_of_primitives() -> None:
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


def test_constants_are_separate_from_inputs() -> None:
    table = fnp.arange(5.0) + 1.0
    description = describe_program(fx.make_jaxpr(lambda x: x * table)(array(5)))
    assert [v.aval.shape for v in description.body.constants] == [(5,)]
    assert (description.constant_bytes, description.argument_bytes) == (20, 20)
