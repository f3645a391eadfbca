"""Graphs of bodies with layout: a node for each equation, input and output, an edge for each variable.

Equations with bodies are closed in this layout. Where one is opened, the page's script makes room: it enlarges the
layer, and moves neighbours in the layer aside and everything below down, so that nothing overlaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Literal, TypeAlias, final

from attrs import frozen

from tracefx.pictures.descriptions import BodyDescription, ConstantDescription, VariableDescription
from tracefx.pictures.layered_layout import assign_coordinates, assign_layers, order_layers

NodeRole: TypeAlias = Literal["equation", "input", "output", "reference", "bend"]

CHARACTER_WIDTH: Final = 7.3
"""The width of a label's character in pixels; the font size in the style sheet matches it."""
SMALL_CHARACTER_WIDTH: Final = 6.1
NODE_HEIGHTS: Final[dict[NodeRole, int]] = {"equation": 26, "input": 22, "output": 22, "reference": 18, "bend": 18}
NODE_GAP: Final = 22.0
_MAX_LABEL_LENGTH: Final = 26
"""The maximal number of characters of a label."""
_MAX_TYPED_RESULTS: Final = 6
"""Nodes with more results have no types below them."""
_MAX_EDGE_SPANS: Final[tuple[int, ...]] = (30, 20, 12, 8, 5, 3, 2, 1)
"""The maximal number of layers that an edge spans: the first of these with few enough bends."""


@final
@frozen
class GraphNode:
    """A node. `x` is its center, `results` are the variables it defines, `line` is the number of its equation."""

    role: NodeRole
    layer: int
    x: float
    width: float
    label: str
    line: int | None
    results: tuple[VariableDescription, ...]

    @property
    def height(self) -> int:
        return NODE_HEIGHTS[self.role]

    def port(self, index: int) -> float:
        """Returns the x coordinate where the edge of a result starts."""
        return self.x + self.width * ((index + 0.5) / len(self.results) - 0.5)


@final
@frozen
class EdgeTarget:
    """The end of an edge: a node, the index of the operand, and the number of operands."""

    node: int
    operand: int
    operands: int


@final
@frozen
class GraphEdge:
    """A variable: an edge from a result of a node to all its readers, with one bend in each layer between.

    It branches to a reader from the last bend above it, or from the node itself.
    """

    variable: VariableDescription
    source: int
    port: int
    bends: tuple[int, ...]
    targets: tuple[EdgeTarget, ...]


@final
@frozen(eq=False)
class ProgramGraph:
    """Nodes (bends included) and edges."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]

    @property
    def layer_count(self) -> int:
        return 1 + max([node.layer for node in self.nodes], default=-1)


@final
class _GraphBuilder:
    """A graph without layout: nodes with their operands and results."""

    def __init__(self) -> None:
        self.roles: list[NodeRole] = []
        self.labels: list[str] = []
        self.lines: list[int | None] = []
        self.results: list[tuple[VariableDescription, ...]] = []
        self.operands: list[list[VariableDescription]] = []
        self.counts: list[int] = []
        self.producers: dict[str, tuple[int, int]] = {}
        """Maps a variable's key to the node that defines it and the index of the result."""

    def add(
        self,
        role: NodeRole,
        label: str,
        line: int | None,
        operands: Sequence[VariableDescription],
        results: tuple[VariableDescription, ...],
    ) -> int:
        node = len(self.roles)
        self.roles.append(role)
        self.labels.append(label if len(label) <= _MAX_LABEL_LENGTH else label[: _MAX_LABEL_LENGTH - 1] + "…")
        self.lines.append(line)
        self.operands.append(list(operands))
        self.results.append(results)
        if role != "reference":
            self.producers |= {v.key: (node, i) for i, v in enumerate(results)}
        return node

    def width(self, node: int) -> float:
        role = self.roles[node]
        if role == "bend":
            return 6.0
        if role == "reference":
            return round(len(self.labels[node]) * SMALL_CHARACTER_WIDTH + 12, 1)
        label_width = len(self.labels[node]) * CHARACTER_WIDTH + 22
        results = self.results[node]
        if len(results) > _MAX_TYPED_RESULTS:
            return round(max(label_width, 10.0 * len(results)), 1)
        return round(max([label_width, *[len(results) * (port_width(v) + 6) for v in results]]), 1)


def port_width(v: VariableDescription) -> float:
    """Returns the width of a type's text below a node."""
    return len(str(v.aval)) * SMALL_CHARACTER_WIDTH


def layout_graph(body: BodyDescription) -> ProgramGraph:
    """Builds the graph of a body and lays it out.

    Edges that would be too long end in a reference instead: a small node with the variable's name, above its reader.

    >>> import tracefx as fx
    >>> from tracefx.pictures.descriptions import describe_program
    >>> program = fx.make_jaxpr(lambda x, y: fx.numpy.sin(x) * y)(1.0, 2.0)
    >>> [(node.role, node.label, node.layer) for node in layout_graph(describe_program(program).body).nodes]
    [('input', 'a', 0), ('input', 'b', 1), ('equation', 'sin', 1), ('equation', 'mul', 2), ('output', 'out', 3)]
    """
    draft = _GraphBuilder()
    for v in body.constants + body.inputs:
        draft.add("input", v.note or v.name, None, (), (v,))
    for line in body.lines:
        operands = [x for x in line.operands if isinstance(x, VariableDescription)]
        draft.add("equation", _label(line.op, line.operands), line.number, operands, line.results)
    for i, x in enumerate(body.outs):
        if isinstance(x, VariableDescription):
            draft.add("output", "out" if len(body.outs) == 1 else f"out {i}", None, (x,), ())
    reads = _reads(draft)
    layers = assign_layers(
        len(draft.roles), [(a, b) for a, b, _, _ in reads], [role == "input" for role in draft.roles]
    )
    reads = _insert_references(draft, layers, reads)
    return _assemble_graph(draft, layers, reads)


_Read: TypeAlias = tuple[int, int, int, int]
"""An edge to a reader: the defining node, the reader, the index of the operand, and the index of the result."""


def _label(op: str, operands: Sequence[VariableDescription | ConstantDescription]) -> str:
    """Returns the operation's name, with its literal operand if it has exactly one short one."""
    numbers = [x.text for x in operands if isinstance(x, ConstantDescription)]
    return f"{op} {numbers[0]}" if len(numbers) == 1 and len(numbers[0]) <= 8 else op


def _reads(draft: _GraphBuilder) -> list[_Read]:
    reads = []
    for reader, operands in enumerate(draft.operands):
        for i, v in enumerate(operands):
            node, port = draft.producers[v.key]
            reads.append((node, reader, i, port))
    return reads


def _insert_references(draft: _GraphBuilder, layers: list[int], reads: Sequence[_Read]) -> list[_Read]:
    """Replaces long edges by references, so that the number of bends stays bounded."""
    spans: dict[tuple[int, int], list[int]] = {}
    for node, reader, _, port in reads:
        spans.setdefault((node, port), []).append(layers[reader] - layers[node])

    def bends(max_span: int) -> int:
        return sum([max([s for s in each if s <= max_span], default=1) - 1 for each in spans.values()])

    max_bends = 200 + 3 * len(draft.roles)
    max_span = next((span for span in _MAX_EDGE_SPANS if bends(span) <= max_bends), 1)
    edges = []
    references: dict[tuple[str, int], int] = {}
    for node, reader, i, port in reads:
        if layers[reader] - layers[node] <= max_span:
            edges.append((node, reader, i, port))
            continue
        v = draft.results[node][port]
        reference = references.get((v.key, reader))
        if reference is None:
            reference = references[v.key, reader] = draft.add("reference", v.note or v.name, None, (), (v,))
            layers.append(layers[reader] - 1)
        edges.append((reference, reader, i, 0))
    return edges


def _assemble_graph(draft: _GraphBuilder, layers: list[int], reads: Sequence[_Read]) -> ProgramGraph:
    by_source: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for node, reader, i, port in reads:
        by_source.setdefault((node, port), []).append((reader, i))
    steps: list[tuple[int, int]] = []
    ends: list[tuple[float, float]] = []
    chains: dict[tuple[int, int], tuple[int, ...]] = {}
    for (node, port), readers in by_source.items():
        chain = [node]
        for layer in range(layers[node] + 1, max([layers[r] for r, _ in readers])):
            chain.append(draft.add("bend", "", None, (), ()))
            layers.append(layer)
        start = (port + 0.5) / len(draft.results[node]) - 0.5
        for above, below in pairwise(chain):
            steps.append((above, below))
            ends.append((start if above == node else 0.0, 0.0))
        for reader, i in readers:
            above = chain[layers[reader] - 1 - layers[node]]
            steps.append((above, reader))
            ends.append((start if above == node else 0.0, (i + 1) / (len(draft.operands[reader]) + 1) - 0.5))
        chains[node, port] = tuple(chain[1:])
    widths = [draft.width(n) for n in range(len(draft.roles))]
    rows = order_layers(layers, steps, ends)
    xs = assign_coordinates(rows, widths, NODE_GAP, steps, [role == "bend" for role in draft.roles])
    nodes = tuple(
        [
            GraphNode(draft.roles[n], layers[n], xs[n], widths[n], draft.labels[n], draft.lines[n], draft.results[n])
            for n in range(len(draft.roles))
        ]
    )
    edges = tuple(
        [
            GraphEdge(
                draft.results[node][port],
                node,
                port,
                chains[node, port],
                tuple([EdgeTarget(reader, i, len(draft.operands[reader])) for reader, i in readers]),
            )
            for (node, port), readers in by_source.items()
        ]
    )
    return ProgramGraph(nodes, edges)
