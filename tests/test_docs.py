"""Every Python block of the pages runs, and prints what the page says it prints.

A page's blocks share one namespace and run from top to bottom. A block with `>>>` prompts is a doctest; any other block
is executed as code. Text that is not meant to run is fenced with another language than `python`.
"""

from __future__ import annotations
import __future__

import doctest
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from attrs import frozen

from tests.compiling import with_either_compile_options

PROJECT = Path(__file__).parent.parent
PAGES = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md")])

FENCED = re.compile(r"^(?P<indent>[ ]*)```python[ ]*\n(?P<body>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL)
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@frozen
class Block:
    """A fenced block: its text, and its first line number in the page, from 0."""

    text: str
    line: int

    @property
    def is_session(self) -> bool:
        return self.text.lstrip().startswith(">>>")


def blocks(page: str) -> list[Block]:
    """Returns the Python blocks of a Markdown page, in order."""
    found: list[Block] = []
    for match in FENCED.finditer(page):
        indent = match["indent"]
        text = "".join(line.removeprefix(indent) for line in match["body"].splitlines(keepends=True))
        found.append(Block(text, page.count("\n", 0, match.start("body"))))
    return found


def future_flags(scope: Mapping[str, object]) -> int:
    """Returns the compiler flags of names imported from `__future__` in earlier blocks."""
    features = [getattr(__future__, feature) for feature in __future__.all_feature_names]
    return sum([each.compiler_flag for each in features if any(each is x for x in scope.values())])


def failures(page: str, name: str) -> list[str]:
    """Runs the blocks of a page and returns a report of each example with other output than the page shows."""
    scope: dict[str, object] = {"__name__": "__main__"}
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    reports: list[str] = []
    for block in blocks(page):
        if block.is_session:
            test = doctest.DocTestParser().get_doctest(block.text, scope, name, name, block.line)
            runner.run(test, out=reports.append, clear_globs=False)
            scope.update(test.globs)
        else:
            # The blank lines make the line numbers in tracebacks equal to those in the page.
            text = "\n" * block.line + block.text
            exec(compile(text, name, "exec", flags=future_flags(scope), dont_inherit=True), scope)
    return reports


@pytest.mark.usefixtures("default_repeats")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_examples_of_a_page(page: Path) -> None:
    """`make laws` runs the examples with XLA's default optimizations."""

    def run() -> None:
        assert failures(page.read_text(encoding="utf-8"), page.name) == []

    with_either_compile_options(run)


def test_example_with_wrong_output_is_detected() -> None:
    page = "# Title\n\n```python\n>>> x = 1\n>>> x + 1\n3\n```\n\nText.\n\n```python\nassert x == 1\n```\n"
    (report,) = failures(page, "page.md")
    assert "line 5" in report
    assert failures(page.replace("\n3\n", "\n2\n"), "page.md") == []


def test_example_that_raises_is_detected() -> None:
    with pytest.raises(NameError, match="undefined"):
        failures("```python\nundefined\n```\n", "page.md")


def test_only_python_blocks_run() -> None:
    page = "```console\n$ make test\n```\n\n- item\n\n  ```python\n  >>> 1\n  1\n  ```\n"
    assert blocks(page) == [Block(">>> 1\n1\n", 7)]


LINK = re.compile(r"\]\(\s*<?(?P<target>[^)\s>]+)")
HEADING = re.compile(r"^#+ +(?P<title>.*?) *$", re.MULTILINE)
SHOWN_AS_IT_IS = re.compile(r"^[ ]*```.*?^[ ]*```[ ]*$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def anchors(page: str) -> set[str]:
    """Returns the anchors of a page: its headings in lower case, without punctuation, words joined by hyphens."""
    titles = HEADING.finditer(re.sub(r"^[ ]*```.*?^[ ]*```[ ]*$", "", page, flags=re.MULTILINE | re.DOTALL))
    return {re.sub(r"[^\w\- ]", "", match["title"].lower()).replace(" ", "-") for match in titles}


def broken_links(page: Path) -> list[str]:
    """Returns the links of a page to missing files and headings of the project."""
    found: list[str] = []
    for match in LINK.finditer(SHOWN_AS_IT_IS.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = match["target"].partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        target = page.parent / path if path else page
        there = target.exists() and (not anchor or anchor in anchors(target.read_text(encoding="utf-8")))
        if not there:
            found.append(match["target"])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_links_of_a_page(page: Path) -> None:
    assert broken_links(page) == []


def test_broken_link_is_detected(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A `title`, with signs\n\n```python\n# no title\n```\n", encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](other.md#a-title-with-signs) [c](https://example.org/x) `[d](code.md)` [e](gone.md)\n"
        "[f](other.md#no-title) [g](#nowhere)\n",
        encoding="utf-8",
    )
    assert broken_links(page) == ["gone.md", "other.md#no-title", "#nowhere"]
