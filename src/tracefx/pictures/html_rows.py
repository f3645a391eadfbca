"""Programs, compiler texts and source files as HTML rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final, final

from tracefx.handlers.cost_analysis.cost import format_si
from tracefx.pictures.compiler_text import TextLine
from tracefx.pictures.descriptions import (
    BodyDescription,
    ConstantDescription,
    EquationDescription,
    ProgramDescription,
    VariableDescription,
)
from tracefx.pictures.source_excerpts import SourceFile, SourceFiles
from tracefx.pictures.syntax_highlighting import CompilerTextHighlighter, highlight_python

_MAX_OPEN_INPUTS: Final = 12
"""More inputs than this are folded."""
_MAX_RESULTS: Final = 4
_MAX_OPERANDS: Final = 8
"""How many results and operands of an equation are shown until it is selected."""


def text(s: str) -> str:
    """Escapes text for use between tags."""
    return escape(s, quote=False)


def _abbreviated(words: Sequence[str], count: int) -> str:
    """Joins words, hiding all but the first few if there are many."""
    if len(words) <= count + 1:
        return " ".join(words)
    visible, hidden = " ".join(words[:count]), " ".join(words[count:])
    return f'{visible} <span class="dots">… {len(words) - count} more</span><span class="xs">{hidden}</span>'


def percent(part: float, whole: float) -> str:
    """Returns the relative width of a bar, or "0".

    >>> percent(1, 3), percent(0, 3), percent(0, 0)
    ('33.3%', '0', '0')
    """
    return f"{100 * part / whole:.3g}%" if part and whole else "0"


@final
class ProgramRows:
    """The rows of one program. `prefix` makes the ids of its variables and equations unique in the page."""

    def __init__(self, prefix: str, program: ProgramDescription, sources: SourceFiles) -> None:
        self._prefix = prefix
        self._program = program
        self._sources = sources
        lines = list(program.lines())
        self._bytes = program.total.bytes_accessed
        self._peak = max([program.peak, *[line.during for line in lines]])
        self._highest = next((line.number for line in lines if line.during == self._peak and not line.bodies), None)

    def html(self) -> str:
        """Returns all rows, with bodies folded into their equations."""
        return "".join(self._whole())

    def _whole(self) -> Iterator[str]:
        body = self._program.body
        groups: list[tuple[str, Sequence[VariableDescription]]] = [("constant", body.constants), ("input", body.inputs)]
        for name, variables in groups:
            if variables:
                size = format_si(sum([v.aval.nbytes for v in variables]), "B")
                count = f"{len(variables)} {name}{'s' if len(variables) > 1 else ''}"
                opened = " open" if len(variables) <= _MAX_OPEN_INPUTS else ""
                yield f'<details class="ins"{opened}><summary><span>{count}</span><small>{size}</small></summary>'
                for v in variables:
                    note = f" <em>{text(v.note)}</em>" if v.note else ""
                    yield (
                        f'<div class="r"><span class="n"></span><code>{self._binder(v)}{note}</code>'
                        f'<span class="l">{format_si(v.aval.nbytes, "B")}</span></div>'
                    )
                yield "</details>"
        yield from self._lines(body)
        yield self._outs(body, "out")

    def _lines(self, body: BodyDescription) -> Iterator[str]:
        for line in body.lines:
            if not line.bodies:
                yield self._row(line, "div")
                continue
            yield f'<details class="f" open>{self._row(line, "summary")}<div class="in">'
            for inner in line.bodies:
                yield from self._body(inner)
            yield "</div></details>"

    def _body(self, body: BodyDescription) -> Iterator[str]:
        times = "" if body.runs in (1, None) else f" <small>×{body.runs}</small>"
        if body.runs is None:
            times = " <small>any number of times, counted once</small>"
        not_counted = "" if body.counted else ' <small class="un">not counted: another branch costs more</small>'
        head = f'<span class="n"></span><code><span class="lb">{text(body.label)}</span>{times}{not_counted}'
        if body.same_as is not None:
            link = f'<a href="#e{self._prefix}-{body.same_as}">as in line {body.same_as + 1}</a>'
            yield f'<div class="r h">{head} {link}</code></div>'
            return
        outer = (*body.given, *[None] * len(body.inputs))
        inputs = " ".join([self._binder(v, x) for v, x in zip(body.inputs, outer, strict=False)])
        yield f'<div class="r h">{head} {inputs}</code></div>'
        yield from self._lines(body)
        yield self._outs(body, "")

    def _row(self, line: EquationDescription, tag: str) -> str:
        source = self._sources.index_of(line.location)
        at = "" if source is None else f' data-s="{source}"'
        peak = " peak" if line.number == self._highest else ""
        fold = '<a class="t" role="button" tabindex="-1" aria-label="fold or unfold"></a>' if line.bodies else ""
        dead, note = "", ""
        if line.is_dead:
            dead, note = " dead", ' <small class="un">dropped by the compiler: no output depends on it</small>'
        params = f"<q>{text(line.params)}</q>" if line.params else ""
        outs = _abbreviated([self._binder(v) for v in line.results], _MAX_RESULTS) or "()"
        operands = _abbreviated([self._operand(x) for x in line.operands], _MAX_OPERANDS)
        work, moved = line.work.operations, line.work.bytes_accessed
        live_bytes = line.during if peak else line.after
        cells = [
            ("c", percent(work, self._program.total.operations), format_si(work) if work else ""),
            ("m", percent(moved, self._bytes), format_si(moved, "B") if moved else ""),
            ("l", percent(live_bytes, self._peak), format_si(live_bytes, "B")),
        ]
        bars = "".join([f'<span class="{kind}" style="--w:{width}">{amount}</span>' for kind, width, amount in cells])
        return (
            f'<{tag} class="r k-{line.category}{peak}{dead}" id="e{self._prefix}-{line.number}"{at} tabindex="-1">'
            f'<span class="n">{line.number + 1}</span>'
            f"<code>{fold}{outs} = <u>{text(line.op)}</u>{params} {operands}{note}</code>"
            f"{bars}</{tag}>"
        )

    def _binder(self, v: VariableDescription, outer: VariableDescription | ConstantDescription | None = None) -> str:
        attribute = f' data-o="{self._prefix}.{outer.key}"' if isinstance(outer, VariableDescription) else ""
        return f"{self._name(v, attribute)}<i>:{text(repr(v.aval))}</i>"

    def _name(self, v: VariableDescription, attribute: str = "") -> str:
        return f'<b data-v="{self._prefix}.{v.key}"{attribute}>{text(v.name)}</b>'

    def _operand(self, x: VariableDescription | ConstantDescription) -> str:
        return (
            self._name(x)
            if isinstance(x, VariableDescription)
            else f'<s title="{text(repr(x.aval))}">{text(x.text)}</s>'
        )

    def _outs(self, body: BodyDescription, label: str) -> str:
        outs = " ".join([self._operand(x) for x in body.outs])
        word = f'<span class="lb">{label}</span> ' if label else '<span class="lb">→</span> '
        return f'<div class="r o"><span class="n"></span><code>{word}{outs or "nothing"}</code></div>'


def text_rows(prefix: str, lines: Sequence[TextLine], sources: SourceFiles) -> str:
    """Returns the rows of a StableHLO or HLO module."""
    highlighter = CompilerTextHighlighter(prefix)
    rows = []
    for n, line in enumerate(lines):
        source = sources.index_of(line.location)
        at = "" if source is None else f' data-s="{source}"'
        rows.append(
            f'<div class="r x" id="e{prefix}-{n}"{at} tabindex="-1"><span class="n">{n + 1}</span>'
            f"<code>{highlighter.line(line.text)}</code></div>"
        )
    return "".join(rows)


def source_rows(files: Sequence[SourceFile]) -> str:
    """Returns the rows of the excerpts of the user's source files."""
    parts = []
    for file in files:
        parts.append(f'<h3 title="{escape(file.title)}">{text(file.title)}</h3>')
        if not file.excerpts:
            parts.append("<p>The text of this file was not found.</p>")
        for i, excerpt in enumerate(file.excerpts):
            if i:
                parts.append('<div class="gap"></div>')
            highlighted = highlight_python([line.text for line in excerpt.lines])
            for line, html in zip(excerpt.lines, highlighted, strict=True):
                attributes = "" if line.index is None else f' data-s="{line.index}" tabindex="-1"'
                parts.append(
                    f'<div class="r p"{attributes}><span class="n">{line.number}</span><code>{html}</code>'
                    f'<span class="c"></span></div>'
                )
    return "".join(parts)


def work_by_source(program: ProgramDescription, sources: SourceFiles) -> Mapping[int, tuple[int, int]]:
    """Maps source line indices to the operation count and the number of the equations that come from the line."""
    work_by_line: dict[int, tuple[int, int]] = {}

    def visit(body: BodyDescription) -> None:
        for line in body.lines:
            source = sources.index_of(line.location)
            if source is not None:
                work, count = work_by_line.get(source, (0, 0))
                work_by_line[source] = work + (line.self_work.operations if body.counted else 0), count + 1
            for inner in line.bodies:
                visit(inner)

    visit(program.body)
    return work_by_line
