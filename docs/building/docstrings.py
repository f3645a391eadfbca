"""Docstrings as Markdown: sessions become blocks of code. mkdocstrings calls `Sessions` for each object it reads."""

from __future__ import annotations

import ast
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
    """Rewrites docstrings as they are read, and leaves out members of which nothing is said and nothing need be."""

    @override
    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
        elif isinstance(obj.parent, griffe.Class) and _is_known(obj, obj.parent):
            obj.public = False

    @override
    def on_function_instance(self, *, node: object, func: griffe.Function, **kwargs: object) -> None:
        """Methods of arrays that are functions of the namespace say so: `return METHODS.value.sum(self, axis)`."""
        match node:
            case ast.FunctionDef(body=[ast.Return(ast.Call(ast.Attribute(ast.Attribute(ast.Name("METHODS")), name)))]):
                if func.docstring is None and not func.name.startswith("_"):
                    func.docstring = griffe.Docstring(f"As [`numpy.{name}`][tracefx.numpy.{name}].", parent=func)
            case _:
                pass


def _is_known(member: griffe.Object, of: griffe.Class) -> bool:
    """Whether a member without words is known from elsewhere: from a base, Python, or the arguments of the class."""
    if isinstance(member, griffe.Function):
        return member.name.startswith("__") or any(str(each.value) == "override" for each in member.decorators)
    return any(str(each.value) in ("frozen", "frozen(eq=False)") for each in of.decorators)
