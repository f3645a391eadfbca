"""Writes the Python blocks of the pages as modules, for a type checker: `python -m tests.page_modules <folder>`.

A module has the blocks of one page at their line numbers in the page, so that the checker's messages point there.
Examples that show an error are omitted: most of them are type errors too.
"""

from __future__ import annotations

import doctest
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.test_docs import PAGES, PROJECT, blocks

FUTURE = "from __future__ import annotations"


def _numbered_lines(page: str) -> Iterator[tuple[int, str]]:
    """Yields the lines of code with their line numbers in the page, from 0."""
    for block in blocks(page):
        if block.is_session:
            for example in doctest.DocTestParser().get_examples(block.text):
                if example.exc_msg is None:
                    yield from enumerate(example.source.splitlines(), block.line + example.lineno)
        else:
            yield from enumerate(block.text.splitlines(), block.line)


def module(page: str) -> str:
    """Returns the module of a page. The import from `__future__` replaces the page's first line, its title."""
    lines = [""] * (page.count("\n") + 1)
    for place, line in _numbered_lines(page):
        lines[place] = "" if line == FUTURE else line
    return "\n".join([FUTURE, *lines[1:], ""])


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.py"):
        old.unlink()
    for page in PAGES:
        name = page.relative_to(PROJECT).with_suffix("").as_posix().replace("/", "_").replace("-", "_")
        (folder / f"{name}.py").write_text(module(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
