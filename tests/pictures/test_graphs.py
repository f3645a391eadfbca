"""Graphs are laid out in bands: edges go downwards, nothing overlaps, and few edges cross."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.control.models import MODELS
from tests.pictures.examples import PROGRAMS, array, long_chain, program
from tracefx import Array
from tracefx.handlers import count_jaxpr
from tracefx.pictures.descriptions import BodyDescription, VariableDescription, describe_program
from tracefx.pictures.layered_layout import assign_coordinates, assign_layers, count_crossings, order_layers
from tracefx.pictures.program_graph import NODE_GAP, ProgramGraph, layout_graph


def bodies(body: BodyDescription) -> list[BodyDescription]:
    return [body, *[each for line in body.lines for inner in line.bodies for each in bodies(inner)]]


def require_laid_out(graph: ProgramGraph, body: BodyDescription) -> None:
    """Every edge goes down by one band at a time, and nodes of a band stand apart."""
    for band in range(graph.layer_count):
        row = sorted([node for node in graph.nodes if node.layer == band], key=lambda node: node.x)
        for left, right in pairwise(row):
            assert left.x + left.width / 2 < right.x - right.width / 2
    reached: set[tuple[int, int]] = set()
    for edge in graph.edges:
        source = graph.nodes[edge.source]
        assert source.results[edge.port] == edge.variable
        assert [graph.nodes[bend].layer for bend in edge.bends] == [
            *range(source.layer + 1, source.layer + 1 + len(edge.bends))
        ]
        for target in edge.targets:
            reader = graph.nodes[target.node]
            assert source.layer < reader.layer <= source.layer + len(edge.bends) + 1
            reached.add((target.node, target.operand))
    operands = [sum(isinstance(x, VariableDescription) for x in line.operands) for line in body.lines]
    outs = sum(isinstance(x, VariableDescription) for x in body.outs)
    assert len(reached) == sum(operands) + outs
    assert sorted(node.line for node in graph.nodes if node.line is not None) == [line.number for line in body.lines]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_laid_out(name: str) -> None:
    for body in bodies(describe_program(program(name)).body):
        require_laid_out(layout_graph(body), body)


@pytest.mark.parametrize("name", ["transformer", "adaptive", "equilibrium", "conjugate_gradients", "beam"])
def test_gradients_of_models_are_described_and_laid_out(name: str) -> None:
    model, params, example = MODELS[name](fx, fnp)
    closed = fx.make_jaxpr(fx.grad(model, allow_int=True))(params, example)
    found, cost = describe_program(closed), count_jaxpr(closed)
    assert (found.total, found.peak) == (cost.total, cost.peak_bytes)
    assert max(line.during for line in found.lines()) == found.peak
    assert all(line.after <= line.during for line in found.lines())
    for body in bodies(found.body):
        if body.same_as is None:
            require_laid_out(layout_graph(body), body)


def test_a_diamond_is_even() -> None:
    def f(x: Array) -> Array:
        return fnp.sin(x) * fnp.cos(x)

    graph = layout_graph(describe_program(fx.make_jaxpr(f)(array(3))).body)
    where = {node.label: (node.layer, node.x) for node in graph.nodes}
    assert {label: band for label, (band, _) in where.items()} == {"a": 0, "sin": 1, "cos": 1, "mul": 2, "out": 3}
    assert where["sin"][1] < where["a"][1] < where["cos"][1]
    assert where["a"][1] == pytest.approx(where["mul"][1], abs=1.0)


def test_inputs_stand_above_what_reads_them() -> None:
    def f(x: Array, w: Array) -> Array:
        return fnp.sin(fnp.sin(fnp.sin(x))) + fnp.exp(w)

    graph = layout_graph(describe_program(fx.make_jaxpr(f)(array(3), array(3)), ["x", "w"]).body)
    bands = {node.label: node.layer for node in graph.nodes}
    assert (bands["x"], bands["w"], bands["exp"], bands["add"]) == (0, 2, 3, 4)


def test_long_edges_end_in_references() -> None:
    body = describe_program(fx.make_jaxpr(fx.grad(long_chain))(array(8))).body
    graph = layout_graph(body)
    require_laid_out(graph, body)
    references = [node for node in graph.nodes if node.role == "reference"]
    assert len(references) > 50
    bends = sum(node.role == "bend" for node in graph.nodes)
    assert bends <= 200 + 3 * len(graph.nodes)
    made = {v.key for line in body.lines for v in line.results} | {v.key for v in body.inputs}
    assert {node.results[0].key for node in references} <= made


dags = st.integers(1, 14).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] < e[1]), max_size=25),
        st.lists(st.booleans(), min_size=n, max_size=n),
    )
)


@given(dags)
def test_edges_go_to_later_bands(dag: tuple[int, list[tuple[int, int]], list[bool]]) -> None:
    count, edges, marked = dag
    read = {b for _, b in edges}
    bands = assign_layers(count, edges, [mark and n not in read for n, mark in enumerate(marked)])
    assert all(bands[a] < bands[b] for a, b in edges)
    assert sorted(set(bands)) == list(range(max(bands) + 1))


@given(dags, st.lists(st.integers(1, 80), min_size=14, max_size=14))
def test_rows_are_in_order_and_apart(dag: tuple[int, list[tuple[int, int]], list[bool]], widths: list[int]) -> None:
    count, edges, _ = dag
    bands = assign_layers(count, edges, [False] * count)
    near = [(a, b) for a, b in edges if bands[a] + 1 == bands[b]]
    ends = [(0.0, 0.0)] * len(near)
    rows = order_layers(bands, near, ends)
    assert [sorted(row) for row in rows] == [[n for n in range(count) if bands[n] == b] for b in range(len(rows))]
    assert count_crossings(rows, near, ends) <= count_crossings([sorted(row) for row in rows], near, ends)
    xs = assign_coordinates(rows, widths[:count], NODE_GAP, near, [False] * count)
    for row in rows:
        for left, right in pairwise(row):
            assert xs[right] - xs[left] >= (widths[left] + widths[right]) / 2 + NODE_GAP - 0.2


def test_a_crossing_that_can_go_goes() -> None:
    edges = [(0, 3), (1, 2), (2, 5), (3, 4)]
    rows = order_layers([0, 0, 1, 1, 2, 2], edges, [(0.0, 0.0)] * 4)
    assert count_crossings(rows, edges, [(0.0, 0.0)] * 4) == 0
