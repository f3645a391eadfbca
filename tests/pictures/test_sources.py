"""Source excerpts: short functions are shown whole, otherwise the lines around each location."""

from __future__ import annotations

import linecache
import os
import sys
from pathlib import Path

import pytest

from tracefx.pictures.source_excerpts import MAX_FUNCTION_LINES, SourceFiles, collect_sources, display_path
from tracefx.pictures.syntax_highlighting import CompilerTextHighlighter, highlight_python
from tracefx.source_location import SourceLocation

TEXT = """\
import math

TOP = math.pi


class Model:
    scale = 2.0

    @property
    def double(self):
        return self.scale * 2

    def call(self, x):
        def inner(y):
            return y + 1
        return inner(x)


def other(x):
    return x
"""


def collect_from(path: Path, text: str, *lines: int) -> SourceFiles:
    path.write_text(text, encoding="utf-8")
    linecache.checkcache(str(path))
    return collect_sources([SourceLocation(str(path), line, "f") for line in lines])


def excerpt_ranges(source_files: SourceFiles) -> list[tuple[str, int, int]]:
    (file,) = source_files.files
    return [(part.title, part.lines[0].number, part.lines[-1].number) for part in file.excerpts]


def test_short_functions_are_shown_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    assert excerpt_ranges(collect_from(path, TEXT, 11)) == [("Model.double", 9, 11)]
    assert excerpt_ranges(collect_from(path, TEXT, 14, 20)) == [("Model.call", 13, 16), ("other", 19, 20)]
    assert excerpt_ranges(collect_from(path, TEXT, 3)) == [("", 3, 3)]


def test_source_lines_have_indices(tmp_path: Path) -> None:
    source_files = collect_from(tmp_path / "model.py", TEXT, 20, 15, 20)
    (file,) = source_files.files
    assert {line.number: line.index for part in file.excerpts for line in part.lines if line.index is not None} == {
        20: 0,
        15: 1,
    }
    assert source_files.index_of(SourceLocation(str(tmp_path / "model.py"), 15, "another", ("scope",))) == 1
    assert source_files.index_of(SourceLocation("elsewhere.py", 15, "f")) is None


def test_long_functions_are_shown_around_their_lines(tmp_path: Path) -> None:
    text = "def f(x):\n" + "    x = x + 1\n" * (2 * MAX_FUNCTION_LINES) + "    return x\n"
    assert excerpt_ranges(collect_from(tmp_path / "long.py", text, 100, 102, 200)) == [("f", 98, 104), ("f", 198, 202)]


def test_files_with_invalid_python_are_shown(tmp_path: Path) -> None:
    source_files = collect_from(tmp_path / "cell.py", "%matplotlib inline\nx = f(\n1)\n!ls\n", 2)
    assert excerpt_ranges(source_files) == [("", 1, 4)]
    assert "".join(highlight_python(["x = '''", "%", "(("])) == "x = '''%(("


def test_missing_files_have_a_title_and_no_excerpts() -> None:
    source_files = collect_sources([SourceLocation("<stdin>", 4, "<module>")])
    assert [(file.title, file.excerpts) for file in source_files.files] == [("<stdin>", ())]


def test_display_paths_are_relative_or_shortened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert display_path(os.path.join(str(tmp_path), "a", "b.py")) == os.path.join("a", "b.py")
    assert display_path(os.path.join(os.sep, "home", "someone", "project", "c.py")) == os.path.join("project", "c.py")


def test_python_syntax_highlighting() -> None:
    text = '<q>f"&lt;</q>{y}<q>&gt;"</q>' if sys.version_info >= (3, 12) else '<q>f"&lt;{y}&gt;"</q>'
    assert highlight_python(['x = f"<{y}>" if z else 1  # &']) == [
        f"x = {text} <b>if</b> z <b>else</b> <i>1</i>  <em># &amp;</em>"
    ]
    assert highlight_python(['"""one', 'two"""']) == ['<q>"""one</q>', '<q>two"""</q>']


def test_variables_in_compiler_text_are_scoped_by_function() -> None:
    highlighter = CompilerTextHighlighter("1")
    rows = [
        highlighter.line(line)
        for line in [
            "func.func @main(%arg0: tensor<f32>) {",
            "%0:2 = call @f(%arg0)",
            "func.func @f() {",
            "%0 = x %1#0",
        ]
    ]
    assert 'data-v="1.1.arg0"' in rows[0]
    assert 'data-v="1.1.0"' in rows[1]
    assert 'data-v="1.2.0"' in rows[3]
    assert 'data-v="1.2.1"' in rows[3]
