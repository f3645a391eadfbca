"""Docstrings as Markdown: sessions become blocks of code. mkdocstrings calls `Sessions` for each object it reads."""

from __future__ import annotations

import re
from typing import Final, final

import griffe
from typing_extensions import override

_SESSION: Final = re.compile(r"^(?P<indent>[ ]*)>>> .*?(?=^[ ]*$|\Z)", re.MULTILINE | re.DOTALL)
_FENCE: Final = re.compile(r"^[ ]*```", re.MULTILINE)


def fenced(text: str) -> str:
    """The text with each session, which ends at an empty line, as a block of code."""
    if _FENCE.search(text):
        return text
    return _SESSION.sub(_block, text)


def _block(match: re.Match[str]) -> str:
    indent = match["indent"]
    body = match[0].rstrip("\n").replace("<BLANKLINE>", "")
    return f"{indent}```pycon\n{body}\n{indent}```\n"


def first_sentence(text: str) -> str:
    """What a docstring begins with, on one line."""
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    sentence, dot, _ = paragraph.partition(". ")
    return sentence + dot.rstrip()


@final
class Sessions(griffe.Extension):
    """Rewrites docstrings as they are read; methods that say nothing, such as overriding ones, are left out."""

    @override
    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
        elif isinstance(obj, griffe.Function) and isinstance(obj.parent, griffe.Class):
            obj.public = False
