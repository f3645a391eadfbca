"""Layered graph layout: edges go down, nodes do not overlap, and few edges cross."""

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


def all_bodies(body: BodyDescription) -> list[BodyDescription]:
    return [body, *[nested for line in body.lines for inner in line.bodies for nested in all_bodies(inner)]]


def check_layout(graph: ProgramGraph, body: BodyDescription) -> None:
    """Checks that edges go down one layer at a time, nodes of a layer do not overlap, and all operands have edges."""
    for layer in range(graph.layer_count):
        row = sorted([node for node in graph.nodes if node.layer == layer], key=lambda node: node.x)
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
def test_layout_of_programs(name: str) -> None:
    for body in all_bodies(describe_program(program(name)).body):
        check_layout(layout_graph(body), body)


@pytest.mark.parametrize("name", ["transformer", "adaptive", "equilibrium", "conjugate_gradients", "beam"])
def test_description_and_layout_of_model_gradients(name: str) -> None:
    model, params, example = MODELS[name](fx, fnp)
    closed = fx.make_jaxpr(fx.grad(model, allow_int=True))(params, example)
    description, cost = describe_program(closed), count_jaxpr(closed)
    assert (description.total, description.peak) == (cost.total, cost.peak_bytes)
    assert max(line.during for line in description.lines()) == description.peak
    assert all(line.after <= line.during for line in description.lines())
    for body in all_bodies(description.body):
        if body.same_as is None:
            check_layout(layout_graph(body), body)


def test_layout_of_a_diamond_is_symmetric() -> None:
    def f(x: Array) -> Array:
        return fnp.sin(x) * fnp.cos(x)

    graph = layout_graph(describe_program(fx.make_jaxpr(f)(array(3))).body)
    positions = {node.label: (node.layer, node.x) for node in graph.nodes}
    assert {label: layer for label, (layer, _) in positions.items()} == {"a": 0, "sin": 1, "cos": 1, "mul": 2, "out": 3}
    assert positions["sin"][1] < positions["a"][1] < positions["cos"][1]
    assert positions["a"][1] == pytest.approx(positions["mul"][1], abs=1.0)


def test_inputs_are_in_the_layer_above_their_first_use() -> None:
    def f(x: Array, w: Array) -> Array:
        return fnp.sin(fnp.sin(fnp.sin(x))) + fnp.exp(w)

    graph = layout_graph(describe_program(fx.make_jaxpr(f)(array(3), array(3)), ["x", "w"]).body)
    layers = {node.label: node.layer for node in graph.nodes}
    assert (layers["x"], layers["w"], layers["exp"], layers["add"]) == (0, 2, 3, 4)


def test_long_edges_end_in_references() -> None:
    body = describe_program(fx.make_jaxpr(fx.grad(long_chain))(array(8))).body
    graph = layout_graph(body)
    check_layout(graph, body)
    references = [node for node in graph.nodes if node.role == "reference"]
    assert len(references) > 50
    bends = sum(node.role == "bend" for node in graph.nodes)
    assert bends <= 200 + 3 * len(graph.nodes)
    defined = {v.key for line in body.lines for v in line.results} | {v.key for v in body.inputs}
    assert {node.results[0].key for node in references} <= defined


dags = st.integers(1, 14).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] < e[1]), max_size=25),
        st.lists(st.booleans(), min_size=n, max_size=n),
    )
)


@given(dags)
def test_edges_go_to_later_layers(dag: tuple[int, list[tuple[int, int]], list[bool]]) -> None:
    count, edges, marked = dag
    targets = {b for _, b in edges}
    layers = assign_layers(count, edges, [mark and n not in targets for n, mark in enumerate(marked)])
    assert all(layers[a] < layers[b] for a, b in edges)
    assert sorted(set(layers)) == list(range(max(layers) + 1))


@given(dags, st.lists(st.integers(1, 80), min_size=14, max_size=14))
def test_rows_are_ordered_without_overlaps(
    dag: tuple[int, list[tuple[int, int]], list[bool]], widths: list[int]
) -> None:
    count, edges, _ = dag
    layers = assign_layers(count, edges, [False] * count)
    near = [(a, b) for a, b in edges if layers[a] + 1 == layers[b]]
    ends = [(0.0, 0.0)] * len(near)
    rows = order_layers(layers, near, ends)
    assert [sorted(row) for row in rows] == [[n for n in range(count) if layers[n] == b] for b in range(len(rows))]
    assert count_crossings(rows, near, ends) <= count_crossings([sorted(row) for row in rows], near, ends)
    xs = assign_coordinates(rows, widths[:count], NODE_GAP, near, [False] * count)
    for row in rows:
        for left, right in pairwise(row):
            assert xs[right] - xs[left] >= (widths[left] + widths[right]) / 2 + NODE_GAP - 0.2


def test_avoidable_crossing_is_removed() -> None:
    edges = [(0, 3), (1, 2), (2, 5), (3, 4)]
    rows = order_layers([0, 0, 1, 1, 2, 2], edges, [(0.0, 0.0)] * 4)
    assert count_crossings(rows, edges, [(0.0, 0.0)] * 4) == 0
