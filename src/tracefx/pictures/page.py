"""The page: a self-contained HTML document about a program."""

from __future__ import annotations

import json
import re
import tempfile
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Final, TypeAlias, final

from attrs import field, frozen
from typing_extensions import override

from tracefx.handlers.cost_analysis.cost import format_si
from tracefx.pictures.compiler_text import operations
from tracefx.pictures.descriptions import BodyDescription, ProgramDescription
from tracefx.pictures.html_rows import ProgramRows, percent, source_rows, text, text_rows, work_by_source
from tracefx.pictures.operation_categories import CATEGORY_DESCRIPTIONS
from tracefx.pictures.program_graph import ProgramGraph, layout_graph
from tracefx.pictures.source_excerpts import SourceFiles, collect_sources, display_path
from tracefx.pictures.stages import ProgramStage
from tracefx.source_location import SourceLocation

Json: TypeAlias = "str | int | float | Sequence[Json] | Mapping[str, Json]"

_ASSETS: Final = resources.files("tracefx.pictures") / "assets"
_PLACEHOLDER: Final = re.compile(r"\{\{(\w+)\}\}")
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""The content security policy: the page may load nothing."""


@final
@frozen(repr=False)
class Page:
    """A page about a program: HTML that needs no other file and no network.

    A notebook displays it in an iframe, so that its styles and scripts do not affect the notebook.

    Attributes:
        title: the title of the page.
        html: the HTML document.

    >>> import tracefx as fx
    >>> page = fx.show(lambda x: 2.0 * x, 1.0)
    >>> page.title, page.html.startswith("<!doctype html>")
    ('<lambda>', True)
    """

    title: str
    html: str = field(repr=False)

    def save(self, path: str | PathLike[str]) -> Path:
        """Writes the page to a file.

        Args:
            path: The path of the file.

        Returns:
            The path.
        """
        file = Path(path)
        file.write_text(self.html, encoding="utf-8")
        return file

    def open(self) -> Path:
        """Shows the page in a browser, from a temporary file.

        Returns:
            The path of the file.
        """
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", prefix="tracefx-", suffix=".html", delete=False
        ) as file:
            file.write(self.html)
        path = Path(file.name)
        webbrowser.open(path.as_uri())
        return path

    def _repr_html_(self) -> str:
        style = "width:100%;height:36em;border:1px solid #8884;border-radius:6px;resize:vertical;overflow:auto"
        frame = f'<iframe title="{escape(self.title)}" sandbox="allow-scripts" style="{style}"'
        return f'{frame} srcdoc="{escape(self.html)}"></iframe>'

    @override
    def __repr__(self) -> str:
        size = format_si(len(self.html.encode()), "B")
        return f"Page({self.title!r}, {size}): .save(path) writes it, .open() shows it in a browser"


def render_page(title: str, stages: Sequence[ProgramStage]) -> Page:
    """Renders the stages of a program as a page."""
    sources = collect_sources(_source_locations(stages))
    panes = [_pane(i, stage, sources) for i, stage in enumerate(stages)]
    data = {
        "steps": [_script_data(i, stage, sources) for i, stage in enumerate(stages)],
        "places": [f"{display_path(file)}:{line}" for file, line in sources.index],
    }
    tabs = [_tab(str(i), text(stage.title), f"<small>{_count(stage)}</small>") for i, stage in enumerate(stages)]
    source = ""
    if any(file.excerpts for file in sources.files):
        tabs.insert(0, _tab("s", "source", ""))
        source = (
            '<section class="pane source" data-pane="s" aria-label="source"><div class="rows">'
            f"{source_rows(sources.files)}</div></section>"
        )
    legend = "".join(
        [f'<li class="k-{kind}"><u>■</u> {text(words)}</li>' for kind, words in CATEGORY_DESCRIPTIONS.items()]
    )
    # "<" is escaped, because "</script>" would end the script even inside a JSON string.
    json_data = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "title": text(title),
        "policy": _POLICY,
        "style": _asset("page.css"),
        "script": _asset("page.js"),
        "legend": legend,
        "tabs": "".join(tabs),
        "panes": source + "".join(panes),
        "data": json_data,
    }
    # Substituted in one pass, because inserted text may look like a placeholder.
    return Page(title, _PLACEHOLDER.sub(lambda slot: parts[slot[1]], _asset("page.html")))


def _tab(pane: str, title: str, count: str) -> str:
    return f'<button class="tab" data-pane="{pane}" aria-pressed="true" title="show or hide">{title}{count}</button>'


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _source_locations(stages: Sequence[ProgramStage]) -> Iterator[SourceLocation | None]:
    for stage in stages:
        if stage.program is not None:
            for line in stage.program.lines():
                yield line.location
        for each in stage.text:
            yield each.location


def _count(stage: ProgramStage) -> int:
    return operations(stage.text) if stage.program is None else stage.program.count


# ------------------------------------------------------------------ one stage


def _pane(i: int, stage: ProgramStage, sources: SourceFiles) -> str:
    heading = f"<h2>{text(stage.title)}</h2><p>{text(stage.about)}</p>"
    if stage.program is None:
        columns = ""
        body = f'<div class="rows code">{text_rows(str(i), stage.text, sources)}</div>'
        heading += _metrics_html([("operations", str(_count(stage)), "")])
    else:
        program = stage.program
        views = (
            '<span class="views"><button data-view="code" aria-pressed="true">code</button>'
            '<button data-view="graph" aria-pressed="false">graph</button></span>'
        )
        heading = f"{views}{heading}{_metrics_html(_metrics(program))}{_timeline(program)}"
        columns = (
            '<div class="r cols" aria-hidden="true"><span class="n"></span><span>equation</span><span class="c">work'
            '</span><span class="m">bytes</span><span class="l">memory</span></div>'
        )
        rows = ProgramRows(str(i), program, sources).html()
        body = (
            f'<div class="rows code">{columns}{rows}</div>'
            '<div class="graph" hidden><svg role="img" aria-label="the program as a graph"></svg><div class="zoom">'
            '<button data-zoom="in" aria-label="zoom in">+</button>'
            '<button data-zoom="out" aria-label="zoom out">−</button>'
            '<button data-zoom="fit" aria-label="fit to window">fit</button>'
            '<button data-zoom="open" aria-label="open all bodies">open all</button>'
            '<button data-zoom="close" aria-label="close all bodies">close all</button></div></div>'
        )
    return (
        f'<section class="pane step" data-pane="{i}" aria-label="{escape(stage.title)}"><header>{heading}</header>'
        f"{body}</section>"
    )


_Metric: TypeAlias = tuple[str, str, str]
"""A figure: its name, its value, and its tooltip."""


def _metrics(program: ProgramDescription) -> list[_Metric]:
    total = program.total
    memory_parts = (
        f"inputs {format_si(program.argument_bytes, 'B')}, constants {format_si(program.constant_bytes, 'B')}, "
    )
    intensity = f"{total.flops / total.bytes_accessed:.3g} flop per byte" if total.bytes_accessed else ""
    figures = [
        ("equations", str(program.count), "including those in bodies"),
        ("flop", format_si(total.flops), f"{total.flops:,}"),
        ("transcendental", format_si(total.transcendentals), f"{total.transcendentals:,} exponentials, roots, sines"),
        ("integer", format_si(total.integer_ops), f"{total.integer_ops:,} operations on integers and booleans"),
        ("read", format_si(total.bytes_read, "B"), f"{total.bytes_read:,} bytes; {intensity}"),
        ("written", format_si(total.bytes_written, "B"), f"{total.bytes_written:,} bytes"),
        (
            "peak memory",
            format_si(program.peak, "B"),
            f"{program.peak:,} bytes; {memory_parts}results {format_si(program.output_bytes, 'B')}",
        ),
    ]
    return [figure for figure in figures if figure[1] != "0" or figure[0] in ("equations", "flop")]


def _metrics_html(figures: Sequence[_Metric]) -> str:
    parts = [
        f'<div title="{escape(tooltip)}"><dt>{text(name)}</dt><dd>{text(value)}</dd></div>'
        for name, value, tooltip in figures
    ]
    return f'<dl class="totals">{"".join(parts)}</dl>'


_MAX_TIMELINE_POINTS: Final = 300


def _timeline(program: ProgramDescription) -> str:
    """Draws live memory by equation as a curve; for many equations, the maximum over groups of adjacent ones."""
    sizes = [(line.number, line.during) for line in program.lines() if not line.bodies]
    if len(sizes) < 2:
        return ""
    group_size = -(-len(sizes) // _MAX_TIMELINE_POINTS)
    columns = [max(sizes[k : k + group_size], key=lambda at: at[1]) for k in range(0, len(sizes), group_size)]
    peak = max([size for _, size in sizes])
    lowest = min([program.argument_bytes + program.constant_bytes, *[size for _, size in sizes]])
    points = "".join([f"V{40 - 38 * size / (peak or 1):.1f}h1" for _, size in columns])
    level = f"{40 - 38 * lowest / (peak or 1):.1f}"
    top = next(i for i, (_, size) in enumerate(columns) if size == peak)
    lines = ",".join([str(number) for number, _ in columns])
    return (
        f'<svg class="time" viewBox="0 0 {len(columns)} 40" preserveAspectRatio="none" data-lines="{lines}" role="img" '
        f'aria-label="live memory by equation, peak {format_si(peak, "B")}">'
        f"<title>live memory by equation, peak {format_si(peak, 'B')}; click to go there</title>"
        f'<path d="M0,40{points}V40z"/><path class="base" d="M0,{level}H{len(columns)}"/>'
        f'<path class="top" d="M{top + 0.5},0V40"/></svg>'
    )


# ------------------------------------------------------------------ data for the script


def _script_data(i: int, stage: ProgramStage, sources: SourceFiles) -> dict[str, Json]:
    program = stage.program
    if program is None:
        return {"text": 1}
    scopes: dict[str, int] = {"": 0}
    lines: list[Json] = []
    for line in program.lines():
        work = line.work
        scope = scopes.setdefault("/".join(line.scope), len(scopes))
        amounts = [work.flops, work.transcendentals, work.integer_ops, work.bytes_read, work.bytes_written]
        lines.append([*amounts, line.runs, line.during, line.after, scope])
    work_of = work_by_source(program, sources)
    total = max([work for work, _ in work_of.values()], default=0)
    types: dict[str, int] = {}
    graphs: dict[str, Json] = {}
    bodies: dict[str, Json] = {}
    _graphs(program.body, "", graphs, bodies, types)
    return {
        "lines": lines,
        "scopes": list(scopes),
        "work": {str(s): [percent(work, total), format_si(work), count] for s, (work, count) in work_of.items()},
        "graphs": graphs,
        "bodies": bodies,
        "types": list(types),
        "kinds": [f"{line.category} dead" if line.is_dead else line.category for line in program.lines()],
    }


def _graphs(
    body: BodyDescription, key: str, graphs: dict[str, Json], bodies: dict[str, Json], types: dict[str, int]
) -> None:
    graphs[key] = _graph(layout_graph(body), types)
    for line in body.lines:
        body_keys = []
        for i, inner in enumerate(line.bodies):
            if inner.same_as is None:
                key_of_body = f"{line.number}.{i}"
                times = "" if inner.runs in (1, None) else f" ×{inner.runs}"
                body_keys.append([key_of_body, inner.label + times])
                _graphs(inner, key_of_body, graphs, bodies, types)
        if body_keys:
            bodies[str(line.number)] = body_keys


def _graph(graph: ProgramGraph, types: dict[str, int]) -> Json:
    nodes: list[Json] = [
        [
            node.role[0],
            node.layer,
            node.x,
            node.width,
            node.label,
            -1 if node.line is None else node.line,
            [[v.key, types.setdefault(repr(v.aval), len(types))] for v in node.results],
        ]
        for node in graph.nodes
    ]
    edges: list[Json] = [
        [e.variable.key, e.source, e.port, e.bends, [[t.node, t.operand, t.operands] for t in e.targets]]
        for e in graph.edges
    ]
    return {"nodes": nodes, "edges": edges}
