"""Converts docstrings to Markdown: doctest examples become code blocks."""

from __future__ import annotations

import re
from typing import Final

_SESSION: Final = re.compile(r"^(?P<indent>[ ]*)>>> .*?(?=^[ ]*$|\Z)", re.MULTILINE | re.DOTALL)
_FOR_DOCTEST: Final = re.compile(r"[ ]*#[ ]*doctest:[ ]*[+-].*$|<BLANKLINE>", re.MULTILINE)
_FENCE: Final = re.compile(r"^[ ]*```", re.MULTILINE)


def fenced(text: str) -> str:
    """Returns the text with each doctest example, which ends at an empty line, as a fenced code block."""
    if _FENCE.search(text):
        return text
    return _SESSION.sub(_block, text)


def shown(session: str) -> str:
    """Removes doctest directives from an example."""
    return _FOR_DOCTEST.sub("", session)


def _block(match: re.Match[str]) -> str:
    indent = match["indent"]
    body = shown(match[0].rstrip("\n"))
    return f"{indent}```pycon\n{body}\n{indent}```\n"


def first_sentence(text: str) -> str:
    """Returns the first sentence of a docstring, on one line."""
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    sentence, dot, _ = paragraph.partition(". ")
    return sentence + dot.rstrip()
