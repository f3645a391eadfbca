"""Excerpts of the user's source files that a program comes from."""

from __future__ import annotations

import ast
import linecache
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias, final

from attrs import frozen

from tracefx.source_location import SourceLocation

CONTEXT_LINES: Final = 2
"""How many lines to show around a line outside of any function."""
MAX_FUNCTION_LINES: Final = 150
"""Longer functions are shown only around the lines that the program comes from."""

LineSpan: TypeAlias = tuple[int, int]
"""The first and the last line, inclusive."""


@final
@frozen
class SourceLine:
    """A line of a file; `index` is its index among the lines that the program comes from, or None."""

    number: int
    text: str
    index: int | None


@final
@frozen
class Excerpt:
    """Consecutive lines of a file."""

    title: str
    lines: tuple[SourceLine, ...]


@final
@frozen
class SourceFile:
    """A source file: its display name and its excerpts, which are empty if its text is not found."""

    title: str
    excerpts: tuple[Excerpt, ...]


@final
@frozen
class SourceFiles:
    """The files that a program comes from; `index` numbers the lines by file and line number."""

    files: tuple[SourceFile, ...]
    index: Mapping[tuple[str, int], int]

    def index_of(self, location: SourceLocation | None) -> int | None:
        """Returns the index of a location's line, or None."""
        return None if location is None else self.index.get((location.file, location.line))


def collect_sources(locations: Iterable[SourceLocation | None]) -> SourceFiles:
    """Collects excerpts of files around source locations: whole functions if they are short.

    >>> from tracefx.source_location import SourceLocation
    >>> sources = collect_sources([SourceLocation("<nowhere>", 3, "f"), None])
    >>> sources.files[0].title, sources.files[0].excerpts, sources.index_of(SourceLocation("<nowhere>", 3, "g"))
    ('<nowhere>', (), 0)
    """
    index: dict[tuple[str, int], int] = {}
    by_file: dict[str, set[int]] = {}
    for location in locations:
        if location is not None:
            index.setdefault((location.file, location.line), len(index))
            by_file.setdefault(location.file, set()).add(location.line)
    return SourceFiles(tuple([_source(file, lines, index) for file, lines in by_file.items()]), index)


def _source(file: str, lines: set[int], index: Mapping[tuple[str, int], int]) -> SourceFile:
    text = linecache.getlines(file)
    line_numbers = sorted(n for n in lines if 0 < n <= len(text))
    excerpts = []
    for title, (first, last) in _spans("".join(text), line_numbers, len(text)):
        source_lines = [SourceLine(n, text[n - 1].rstrip("\n"), index.get((file, n))) for n in range(first, last + 1)]
        excerpts.append(Excerpt(title, tuple(source_lines)))
    return SourceFile(display_path(file), tuple(excerpts))


def display_path(file: str) -> str:
    """Returns a path relative to the current directory, or its last two components: pages may be published."""
    if file.startswith("<"):
        return file
    directory = os.path.join(os.getcwd(), "")
    if file.startswith(directory):
        return file.removeprefix(directory)
    return os.path.join(*file.split(os.sep)[-2:])


def _spans(text: str, line_numbers: Sequence[int], count: int) -> list[tuple[str, LineSpan]]:
    """Returns the spans of a file to show, with names of functions, without overlaps."""
    try:
        functions = _functions(ast.parse(text))
    except (SyntaxError, ValueError):  # notebook cells may contain other than Python
        functions = []
    spans: dict[LineSpan, str] = {}
    for n in line_numbers:
        enclosing = [(name, span) for name, span in functions if span[0] <= n <= span[1]]
        short_function = next(
            ((name, span) for name, span in enclosing if span[1] - span[0] < MAX_FUNCTION_LINES), None
        )
        if short_function is not None:
            spans[short_function[1]] = short_function[0]
        else:
            name = enclosing[-1][0] if enclosing else ""
            spans[max(n - CONTEXT_LINES, 1), min(n + CONTEXT_LINES, count)] = name
    joined: list[tuple[str, LineSpan]] = []
    for (first, last), name in sorted((span, name) for span, name in spans.items()):
        if joined and first <= joined[-1][1][1] + 1:
            previous_name, (start, end) = joined[-1]
            joined[-1] = previous_name or name, (start, max(end, last))
        else:
            joined.append((name, (first, last)))
    return joined


def _functions(module: ast.Module) -> list[tuple[str, LineSpan]]:
    """Returns the functions of a module, outermost first, and module-level statements."""
    spans: list[tuple[str, LineSpan]] = []

    def visit(node: ast.AST, path: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = path
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{path}.{child.name}" if path else child.name
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([child.lineno, *[d.lineno for d in child.decorator_list]])
                spans.append((name, (first, child.end_lineno or first)))
            elif isinstance(child, ast.stmt) and not isinstance(child, ast.ClassDef) and not path:
                spans.append(("", (child.lineno, child.end_lineno or child.lineno)))
            visit(child, name)

    visit(module, "")
    return spans
