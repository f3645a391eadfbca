"""A griffe extension that prepares docstrings and annotations for mkdocstrings."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Set
from types import FunctionType
from typing import Final, final

import griffe
from typing_extensions import override

from docs.building.docstrings import fenced
from docs.building.reference import reference

_CODE: Final = re.compile(
    r"^[ ]*```.*?^[ ]*```[ ]*$|(?<![\[`])`(?P<name>[A-Za-z_][\w.]*)`(?!`)", re.MULTILINE | re.DOTALL
)
_ATTRIBUTES: Final = frozenset({"shape", "size", "ndim", "dtype", "real", "imag", "at", "view"})
"""Functions with the name of an array attribute, which is usually meant in docstrings; they are not linked."""


def linked(text: str, names: Mapping[str, str], own: Set[str]) -> str:
    """Links the names in backquotes to their reference entries.

    Args:
        text: Markdown.
        names: The identifiers of the entries, by name.
        own: Names that are not linked, such as those of parameters.
    """

    def link(match: re.Match[str]) -> str:
        name = match["name"]
        target = None if name is None or name in own else names.get(name)
        return match[0] if target is None else f"[`{name}`][{target}]"

    return _CODE.sub(link, text)


def _names_around(obj: griffe.Object) -> Mapping[str, str]:
    """Returns the names that can be linked in the docstring of a public object, or of a member of a public class."""
    generated = reference()
    names = generated.links.canonical_names
    public_name = names.get(obj.path) or (names.get(obj.parent.path) if obj.parent else None)
    if public_name is None:
        return {}
    return _names_in(public_name.rpartition(".")[0])


@functools.cache
def _names_in(module: str) -> Mapping[str, str]:
    return reference().names_of("tracefx") | reference().names_of(module)


def _own_names(obj: griffe.Object) -> frozenset[str]:
    return frozenset({*_ATTRIBUTES, *_arguments(obj)})


def _arguments(obj: griffe.Object) -> Iterator[str]:
    """Yields the names that a docstring uses for the object itself, its parameters and its attributes."""
    yield obj.name
    if isinstance(obj, griffe.Function):
        yield from [parameter.name for parameter in obj.parameters]
    if isinstance(obj, griffe.Class):
        yield from obj.members
        if "__init__" in obj.members and isinstance(constructor := obj.members["__init__"], griffe.Function):
            yield from [parameter.name for parameter in constructor.parameters]
    if isinstance(obj.parent, griffe.Class):
        yield from _arguments(obj.parent)


@final
class DocstringExtension(griffe.Extension):
    """Changes docstrings while griffe loads them: adds code blocks, links, and texts for undocumented members."""

    @override
    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = linked(fenced(obj.docstring.value), _names_around(obj), _own_names(obj))
        elif isinstance(obj.parent, griffe.Class) and _is_shown_without_docstring(obj, obj.parent):
            obj.docstring = griffe.Docstring(" ", parent=obj)  # mkdocstrings omits members without a docstring

    @override
    def on_class_members(self, *, cls: griffe.Class, **kwargs: object) -> None:
        if not any(str(base) == "DistributionFunctions" for base in cls.bases):
            return
        loaded = getattr(importlib.import_module(cls.module.path), cls.name)
        for name in [name for name, member in cls.members.items() if isinstance(member, griffe.Attribute)]:
            function = _loaded_function(getattr(loaded, name))
            cls.set_member(name, function)
            self.on_object(obj=function)

    @override
    def on_function_instance(self, *, node: object, func: griffe.Function, **kwargs: object) -> None:
        if func.docstring is None and isinstance(node, ast.FunctionDef) and (statement := _law_statement(node)):
            func.docstring = griffe.Docstring(statement, parent=func)
        for annotation in [func.returns, *[parameter.annotation for parameter in func.parameters]]:
            if isinstance(annotation, griffe.Expr):
                _keep_builtins(annotation, func.module)


def _loaded_function(function: FunctionType) -> griffe.Function:
    """Describes a function that exists only at run time: one of a distribution, which is made from a formula."""
    parameters = [
        griffe.Parameter(
            parameter.name,
            annotation=parameter.annotation,
            kind=griffe.ParameterKind.positional_or_keyword,
            default=None if parameter.default is inspect.Parameter.empty else repr(parameter.default),
        )
        for parameter in inspect.signature(function).parameters.values()
    ]
    described = griffe.Function(function.__name__, parameters=griffe.Parameters(*parameters), returns="Array")
    described.docstring = griffe.Docstring(inspect.getdoc(function) or "", parent=described)
    return described


def _is_shown_without_docstring(member: griffe.Object, of: griffe.Class) -> bool:
    """Whether a member without a docstring is shown: a method that is no override, a property, an enum member."""
    if member.name.startswith("_"):
        return False
    if isinstance(member, griffe.Function):
        return not any(str(each.value) == "override" for each in member.decorators)
    return "property" in member.labels or any(str(base).endswith(("Enum", "Flag", "NamedTuple")) for base in of.bases)


def _law_statement(node: ast.FunctionDef) -> str:
    """Returns the text of a law, which has no docstring: the statement in its decorator, `@law("...")`."""
    match node.decorator_list:
        case [ast.Call(ast.Name("law"), [ast.Constant(str(statement)), *_])]:
            return f"The law: {statement}."
        case _:
            return ""


def _keep_builtins(annotation: griffe.Expr, module: griffe.Module) -> None:
    """Makes names such as `bool` refer to builtins: griffe would resolve them in the package around the module."""
    for part in annotation.iterate(flat=True):
        if isinstance(part, griffe.ExprName) and hasattr(builtins, part.name) and part.name not in module.members:
            part.parent = None
