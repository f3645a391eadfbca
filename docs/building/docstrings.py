"""Docstrings as Markdown: sessions become blocks of code."""

from __future__ import annotations

import re
from typing import Final

_SESSION: Final = re.compile(r"^(?P<indent>[ ]*)>>> .*?(?=^[ ]*$|\Z)", re.MULTILINE | re.DOTALL)
_FOR_DOCTEST: Final = re.compile(r"[ ]*#[ ]*doctest:[ ]*[+-].*$|<BLANKLINE>", re.MULTILINE)
_FENCE: Final = re.compile(r"^[ ]*```", re.MULTILINE)


def fenced(text: str) -> str:
    """The text with each session, which ends at an empty line, as a block of code."""
    if _FENCE.search(text):
        return text
    return _SESSION.sub(_block, text)


def shown(session: str) -> str:
    """A session without the words that are for doctest."""
    return _FOR_DOCTEST.sub("", session)


def _block(match: re.Match[str]) -> str:
    indent = match["indent"]
    body = shown(match[0].rstrip("\n"))
    return f"{indent}```pycon\n{body}\n{indent}```\n"


def first_sentence(text: str) -> str:
    """What a docstring begins with, on one line."""
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    sentence, dot, _ = paragraph.partition(". ")
    return sentence + dot.rstrip()
