"""Docstrings as Markdown: sessions become blocks of code. mkdocstrings hands what it reads to `Texts`."""

from __future__ import annotations

import ast
import builtins
import re
from typing import Final, final

import griffe
from typing_extensions import override

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


@final
class Texts(griffe.Extension):
    """What is said of the things that mkdocstrings shows, changed as they are read."""

    @override
    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
        elif isinstance(obj.parent, griffe.Class) and _speaks_for_itself(obj, obj.parent):
            obj.docstring = griffe.Docstring(" ", parent=obj)  # what has no text at all is not shown

    @override
    def on_function_instance(self, *, node: object, func: griffe.Function, **kwargs: object) -> None:
        if func.docstring is None and isinstance(node, ast.FunctionDef) and (said := _said(node)):
            func.docstring = griffe.Docstring(said, parent=func)
        for annotation in [func.returns, *[parameter.annotation for parameter in func.parameters]]:
            if isinstance(annotation, griffe.Expr):
                _keep_builtins(annotation, func.module)


def _speaks_for_itself(member: griffe.Object, of: griffe.Class) -> bool:
    """Whether a member without words is shown: methods and properties of its own, and the members of an enumeration."""
    if member.name.startswith("_"):
        return False
    if isinstance(member, griffe.Function):
        return not any(str(each.value) == "override" for each in member.decorators)
    return "property" in member.labels or any(str(base).endswith(("Enum", "Flag", "NamedTuple")) for base in of.bases)


def _said(node: ast.FunctionDef) -> str:
    """What a function without words says of itself by how it is written.

    Methods of arrays are functions of the namespace, `return METHODS.value.sum(self, axis)`; a law has its statement in
    its decorator, `@law("...")`.
    """
    match node:
        case ast.FunctionDef(
            name, body=[ast.Return(ast.Call(ast.Attribute(ast.Attribute(ast.Name("METHODS")), other)))]
        ):
            return "" if name.startswith("_") else f"As [`numpy.{other}`][tracefx.numpy.{other}]."
        case ast.FunctionDef(decorator_list=[ast.Call(ast.Name("law"), [ast.Constant(str(statement)), *_])]):
            return f"The law: {statement}."
        case _:
            return ""


def _keep_builtins(annotation: griffe.Expr, module: griffe.Module) -> None:
    """`bool` in a module of `tracefx.numpy` is Python's. griffe looks names up in the package around a module, too."""
    for part in annotation.iterate(flat=True):
        if isinstance(part, griffe.ExprName) and hasattr(builtins, part.name) and part.name not in module.members:
            part.parent = None
