"""What the sources say of a name: which modules give it, which one defines it, and by what statement."""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias, final

from attrs import frozen

SOURCE: Final = Path(__file__).parent.parent.parent / "src"

Defining: TypeAlias = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


@final
@frozen
class Import:
    """`from module import name`, and whether the statement says `as name`, by which a module gives it to others."""

    module: str
    name: str
    given_on: bool


@final
@frozen
class Module:
    """A module's statements about names of its own."""

    name: str
    docstring: str
    bound: Mapping[str, Defining | Import]
    described: Mapping[str, str]
    """The text that stands below an assignment."""


@final
@frozen
class Found:
    """Where a name is defined. Without a statement it is a module, or is not of tracefx."""

    module: str
    name: str
    statement: Defining | None = None
    docstring: str = ""

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def is_module(self) -> bool:
        return self.statement is None and _file(self.path) is not None

    @property
    def is_callable(self) -> bool:
        return isinstance(self.statement, ast.FunctionDef | ast.ClassDef)

    @property
    def is_type_alias(self) -> bool:
        match self.statement:
            case ast.AnnAssign(annotation=ast.Name("TypeAlias")):
                return True
            case _:
                return False

    @property
    def same_as(self) -> str | None:
        """The name that this one is another one of, as `acos = arccos` says."""
        match self.statement:
            case ast.Assign(value=ast.Name(name)) | ast.AnnAssign(value=ast.Name(name)):
                return name
            case _:
                return None


def _file(module: str) -> Path | None:
    place = SOURCE.joinpath(*module.split("."))
    return next((file for file in (place / "__init__.py", place.with_suffix(".py")) if file.exists()), None)


def _statements(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """The statements of a module, those under an `if` too, each with the text that stands below it."""
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.If):
            yield from _statements([*statement.body, *statement.orelse])
        match after:
            case ast.Expr(ast.Constant(str(text))):
                yield statement, text
            case _:
                yield statement, ""


@functools.cache
def read(module: str) -> Module:
    """The module of this name. Raises ImportError if there is none."""
    file = _file(module)
    if file is None:
        raise ImportError(f"there is no module {module} in {SOURCE.name}")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    bound: dict[str, Defining | Import] = {}
    described: dict[str, str] = {}
    for statement, below in _statements(tree.body):
        match statement:
            case ast.FunctionDef(name) | ast.ClassDef(name):
                bound[name] = statement
            case ast.Assign(targets):
                names = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
                bound |= dict.fromkeys(names, statement)
                described |= dict.fromkeys(names, below)
            case ast.AnnAssign(target=ast.Name(name)):
                bound[name] = statement
                described[name] = below
            case ast.ImportFrom(str(source), aliases, 0) if source.partition(".")[0] != "__future__":
                for alias in aliases:
                    bound[alias.asname or alias.name] = Import(source, alias.name, alias.asname == alias.name)
            case _:
                pass
    return Module(module, ast.get_docstring(tree) or "", bound, described)


def find(module: str, name: str) -> Found:
    """The definition of a name that a module has, whichever modules it comes through."""
    if _file(module) is None:
        return Found(module, name)
    here = read(module)
    statement = here.bound.get(name)
    if isinstance(statement, Import):
        if (statement.module, statement.name) == (module, name):  # a package that imports a module of its own
            return Found(module, name)
        return find(statement.module, statement.name)
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return Found(module, name, statement, ast.get_docstring(statement) or "")
    return Found(module, name, statement, here.described.get(name, ""))


def home(module: str) -> str:
    """The module that is meant by its public name: `tracefx.errors` is `tracefx.errors`."""
    if _file(module) is not None or "." not in module:
        return module
    parent, _, name = module.rpartition(".")
    return find(home(parent), name).path


def is_there(module: str) -> bool:
    return _file(home(module)) is not None


def public(module: str) -> list[str]:
    """The names that a module gives to others, in its order: what `__all__` says; without it, what is imported under
    its own name by `as`, and what is defined there and has no underscore.
    """
    said = getattr(importlib.import_module(module), "__all__", None)
    if said is not None:
        return list(said)
    return [
        name
        for name, statement in read(module).bound.items()
        if not name.startswith("_") and (statement.given_on if isinstance(statement, Import) else _counts(statement))
    ]


def _counts(statement: Defining) -> bool:
    """Not what only the annotations of the module itself need."""
    match statement:
        case ast.Assign(value=ast.Call(func=ast.Name("TypeVar" | "ParamSpec"))):
            return False
        case _:
            return True
