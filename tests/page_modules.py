"""The Python blocks of the pages as modules, for a type checker: `python -m tests.page_modules <folder>`.

A module has the blocks of one page at the lines that they have in the page, so that what the checker says leads there.
Examples that show an error are left out: most show what the types refuse, too.
"""

from __future__ import annotations

import doctest
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.test_docs import PAGES, PROJECT, blocks

FUTURE = "from __future__ import annotations"


def _placed(page: str) -> Iterator[tuple[int, str]]:
    """Lines of code with their places in the page, counted from 0."""
    for block in blocks(page):
        if block.is_session:
            for example in doctest.DocTestParser().get_examples(block.text):
                if example.exc_msg is None:
                    yield from enumerate(example.source.splitlines(), block.line + example.lineno)
        else:
            yield from enumerate(block.text.splitlines(), block.line)


def module(page: str) -> str:
    """The module that a page is. Its first line, which in a page is a title, is the import that others need first."""
    lines = [""] * (page.count("\n") + 1)
    for place, line in _placed(page):
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
