"""The parts of the user's files that a program comes from."""

from __future__ import annotations

import ast
import linecache
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias, final

from attrs import frozen

from tracefx.core.source_location import SourceLocation

CONTEXT_LINES: Final = 2
"""Lines shown around a line whose function is not found."""
MAX_FUNCTION_LINES: Final = 150
"""A function of more lines is shown around the lines that the program comes from."""

LineSpan: TypeAlias = tuple[int, int]
"""The first line and the last."""


@final
@frozen
class SourceLine:
    """A line of a file; `index` is its number among those that the program comes from, if it is one of them."""

    number: int
    text: str
    index: int | None


@final
@frozen
class Excerpt:
    """Lines that follow each other in a file."""

    title: str
    lines: tuple[SourceLine, ...]


@final
@frozen
class SourceFile:
    """A file, or what stands for one: what to call it, and its parts. It has none if its text is not to be found."""

    title: str
    excerpts: tuple[Excerpt, ...]


@final
@frozen
class SourceFiles:
    """All files that a program comes from, and the numbers of its lines: by file and line."""

    files: tuple[SourceFile, ...]
    index: Mapping[tuple[str, int], int]

    def index_of(self, place: SourceLocation | None) -> int | None:
        """The number of a place, if it is known."""
        return None if place is None else self.index.get((place.file, place.line))


def collect_sources(places: Iterable[SourceLocation | None]) -> SourceFiles:
    """The parts of files around these places, in their order: whole functions where they are short.

    >>> from tracefx.core.source_location import SourceLocation
    >>> found = collect_sources([SourceLocation("<nowhere>", 3, "f"), None])
    >>> found.files[0].title, found.files[0].excerpts, found.of(SourceLocation("<nowhere>", 3, "g"))
    ('<nowhere>', (), 0)
    """
    index: dict[tuple[str, int], int] = {}
    by_file: dict[str, set[int]] = {}
    for place in places:
        if place is not None:
            index.setdefault((place.file, place.line), len(index))
            by_file.setdefault(place.file, set()).add(place.line)
    return SourceFiles(tuple([_source(file, lines, index) for file, lines in by_file.items()]), index)


def _source(file: str, lines: set[int], index: Mapping[tuple[str, int], int]) -> SourceFile:
    text = linecache.getlines(file)
    wanted = sorted(n for n in lines if 0 < n <= len(text))
    excerpts = []
    for title, (first, last) in _spans("".join(text), wanted, len(text)):
        shown = [SourceLine(n, text[n - 1].rstrip("\n"), index.get((file, n))) for n in range(first, last + 1)]
        excerpts.append(Excerpt(title, tuple(shown)))
    return SourceFile(display_path(file), tuple(excerpts))


def display_path(file: str) -> str:
    """A file as seen from the current directory, or its last two names: a page is for others, too."""
    if file.startswith("<"):
        return file
    below = os.path.join(os.getcwd(), "")
    if file.startswith(below):
        return file.removeprefix(below)
    return os.path.join(*file.split(os.sep)[-2:])


def _spans(text: str, wanted: Sequence[int], count: int) -> list[tuple[str, LineSpan]]:
    """What to show of a file, with the names of functions, without overlaps."""
    try:
        functions = _functions(ast.parse(text))
    except (SyntaxError, ValueError):  # a cell of a notebook may hold what is no Python
        functions = []
    found: dict[LineSpan, str] = {}
    for n in wanted:
        around = [(name, span) for name, span in functions if span[0] <= n <= span[1]]
        whole = next(((name, span) for name, span in around if span[1] - span[0] < MAX_FUNCTION_LINES), None)
        if whole is not None:
            found[whole[1]] = whole[0]
        else:
            name = around[-1][0] if around else ""
            found[max(n - CONTEXT_LINES, 1), min(n + CONTEXT_LINES, count)] = name
    joined: list[tuple[str, LineSpan]] = []
    for (first, last), name in sorted((span, name) for span, name in found.items()):
        if joined and first <= joined[-1][1][1] + 1:
            before, (start, end) = joined[-1]
            joined[-1] = before or name, (start, max(end, last))
        else:
            joined.append((name, (first, last)))
    return joined


def _functions(module: ast.Module) -> list[tuple[str, LineSpan]]:
    """The functions of a module, outermost first, and statements outside of any."""
    found: list[tuple[str, LineSpan]] = []

    def visit(node: ast.AST, path: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = path
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{path}.{child.name}" if path else child.name
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([child.lineno, *[d.lineno for d in child.decorator_list]])
                found.append((name, (first, child.end_lineno or first)))
            elif isinstance(child, ast.stmt) and not isinstance(child, ast.ClassDef) and not path:
                found.append(("", (child.lineno, child.end_lineno or child.lineno)))
            visit(child, name)

    visit(module, "")
    return found
