"""A body as a graph: a node for each equation, input and output, an edge for each variable, all in their places.

Equations with bodies are closed here. Where one is opened the page makes room: its band grows, what is beside it in
the band moves aside and all below moves down, so that nothing comes to overlap.
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
"""The width of a character of a label, in pixels; the style sheet sets its font's size to fit."""
SMALL_CHARACTER_WIDTH: Final = 6.1
NODE_HEIGHTS: Final[dict[NodeRole, int]] = {"equation": 26, "input": 22, "output": 22, "reference": 18, "bend": 18}
LAYER_GAP: Final = 44
NODE_GAP: Final = 22.0
_MAX_LABEL_LENGTH: Final = 26
"""The most characters of a label."""
_MAX_TYPED_RESULTS: Final = 6
"""A node of more results has no types written below it."""
_MAX_EDGE_SPANS: Final[tuple[int, ...]] = (30, 20, 12, 8, 5, 3, 2, 1)
"""Over how many bands an edge may go, the first that leaves few enough bends."""


@final
@frozen
class GraphNode:
    """`x` is the middle. `results` are the variables that begin here, `line` is the number of an equation."""

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
        """Where the edge of a result begins."""
        return self.x + self.width * ((index + 0.5) / len(self.results) - 0.5)


@final
@frozen
class EdgeTarget:
    """A node that an edge ends at, as which of how many operands."""

    node: int
    operand: int
    operands: int


@final
@frozen
class GraphEdge:
    """A variable: from a node's result through bends, one for each band, to all that read it.

    A reader is reached from the last bend above it, or from the node itself.
    """

    variable: VariableDescription
    source: int
    port: int
    bends: tuple[int, ...]
    targets: tuple[EdgeTarget, ...]


@final
@frozen(eq=False)
class ProgramGraph:
    """Nodes and edges; bends are nodes, too. `tops` are the upper ends of the bands while all nodes are closed."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]

    @property
    def layer_count(self) -> int:
        return 1 + max([node.layer for node in self.nodes], default=-1)

    @property
    def tops(self) -> tuple[float, ...]:
        return tuple([band * (NODE_HEIGHTS["equation"] + LAYER_GAP) for band in range(self.layer_count)])


@final
class _GraphBuilder:
    """Nodes and what they read, before they have places."""

    def __init__(self) -> None:
        self.roles: list[NodeRole] = []
        self.labels: list[str] = []
        self.lines: list[int | None] = []
        self.results: list[tuple[VariableDescription, ...]] = []
        self.operands: list[list[VariableDescription]] = []
        self.counts: list[int] = []
        self.producers: dict[str, tuple[int, int]] = {}
        """By a variable's key: its node, and the which of its results it is."""

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
        own = len(self.labels[node]) * CHARACTER_WIDTH + 22
        results = self.results[node]
        if len(results) > _MAX_TYPED_RESULTS:
            return round(max(own, 10.0 * len(results)), 1)
        return round(max([own, *[len(results) * (port_width(v) + 6) for v in results]]), 1)


def port_width(v: VariableDescription) -> float:
    """The width of a type below a node."""
    return len(str(v.aval)) * SMALL_CHARACTER_WIDTH


def layout_graph(body: BodyDescription) -> ProgramGraph:
    """The graph of a body, laid out.

    An edge that would be long ends in a reference instead: a small node with the variable's name, above its reader.

    >>> import tracefx as fx
    >>> from tracefx.pictures.descriptions import describe
    >>> program = fx.make_jaxpr(lambda x, y: fx.numpy.sin(x) * y)(1.0, 2.0)
    >>> [(node.role, node.label, node.band) for node in layout_graph(describe(program).body).nodes]
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
    bands = assign_layers(len(draft.roles), [(a, b) for a, b, _, _ in reads], [role == "input" for role in draft.roles])
    reads = _insert_references(draft, bands, reads)
    return _assemble_graph(draft, bands, reads)


_Read: TypeAlias = tuple[int, int, int, int]
"""A node, one that reads it, as which of its operands, and which of the results."""


def _label(op: str, operands: Sequence[VariableDescription | ConstantDescription]) -> str:
    """The operation, with the number that it takes, if it takes one."""
    numbers = [x.text for x in operands if isinstance(x, ConstantDescription)]
    return f"{op} {numbers[0]}" if len(numbers) == 1 and len(numbers[0]) <= 8 else op


def _reads(draft: _GraphBuilder) -> list[_Read]:
    found = []
    for reader, operands in enumerate(draft.operands):
        for i, v in enumerate(operands):
            node, port = draft.producers[v.key]
            found.append((node, reader, i, port))
    return found


def _insert_references(draft: _GraphBuilder, bands: list[int], reads: Sequence[_Read]) -> list[_Read]:
    """Put references where edges would be long, so that there are few enough bends."""
    spans: dict[tuple[int, int], list[int]] = {}
    for node, reader, _, port in reads:
        spans.setdefault((node, port), []).append(bands[reader] - bands[node])

    def bends(farthest: int) -> int:
        return sum([max([s for s in each if s <= farthest], default=1) - 1 for each in spans.values()])

    enough = 200 + 3 * len(draft.roles)
    farthest = next((far for far in _MAX_EDGE_SPANS if bends(far) <= enough), 1)
    kept = []
    references: dict[tuple[str, int], int] = {}
    for node, reader, i, port in reads:
        if bands[reader] - bands[node] <= farthest:
            kept.append((node, reader, i, port))
            continue
        v = draft.results[node][port]
        reference = references.get((v.key, reader))
        if reference is None:
            reference = references[v.key, reader] = draft.add("reference", v.note or v.name, None, (), (v,))
            bands.append(bands[reader] - 1)
        kept.append((reference, reader, i, 0))
    return kept


def _assemble_graph(draft: _GraphBuilder, bands: list[int], reads: Sequence[_Read]) -> ProgramGraph:
    by_source: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for node, reader, i, port in reads:
        by_source.setdefault((node, port), []).append((reader, i))
    steps: list[tuple[int, int]] = []
    ends: list[tuple[float, float]] = []
    chains: dict[tuple[int, int], tuple[int, ...]] = {}
    for (node, port), readers in by_source.items():
        chain = [node]
        for band in range(bands[node] + 1, max([bands[r] for r, _ in readers])):
            chain.append(draft.add("bend", "", None, (), ()))
            bands.append(band)
        begins = (port + 0.5) / len(draft.results[node]) - 0.5
        for above, below in pairwise(chain):
            steps.append((above, below))
            ends.append((begins if above == node else 0.0, 0.0))
        for reader, i in readers:
            above = chain[bands[reader] - 1 - bands[node]]
            steps.append((above, reader))
            ends.append((begins if above == node else 0.0, (i + 1) / (len(draft.operands[reader]) + 1) - 0.5))
        chains[node, port] = tuple(chain[1:])
    widths = [draft.width(n) for n in range(len(draft.roles))]
    rows = order_layers(bands, steps, ends)
    xs = assign_coordinates(rows, widths, NODE_GAP, steps, [role == "bend" for role in draft.roles])
    nodes = tuple(
        [
            GraphNode(draft.roles[n], bands[n], xs[n], widths[n], draft.labels[n], draft.lines[n], draft.results[n])
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
