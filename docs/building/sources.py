"""Finds the definitions of public names by parsing the sources."""

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
    """`from module import name`. `given_on` tells whether it is a re-export, `import name as name`."""

    module: str
    name: str
    given_on: bool


@final
@frozen
class Module:
    """A parsed module: its docstring, and the statements that define or import its names."""

    name: str
    docstring: str
    bound: Mapping[str, Defining | Import]
    described: Mapping[str, str]
    """The docstrings below assignments, by name."""


@final
@frozen
class Found:
    """The definition of a name. `statement` is None for modules and for names defined outside of tracefx."""

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
    def members(self) -> list[str]:
        """The names that are defined in the body of a class."""
        if not isinstance(self.statement, ast.ClassDef):
            return []
        return list(_bindings(self.statement.body))

    @property
    def is_type_alias(self) -> bool:
        match self.statement:
            case ast.AnnAssign(annotation=ast.Name("TypeAlias")):
                return True
            case _:
                return False

    @property
    def same_as(self) -> str | None:
        """The name that this one is an alias of, as in `acos = arccos`."""
        match self.statement:
            case ast.Assign(value=ast.Name(name)) | ast.AnnAssign(value=ast.Name(name)):
                return name
            case _:
                return None


def _file(module: str) -> Path | None:
    place = SOURCE.joinpath(*module.split("."))
    return next((file for file in (place / "__init__.py", place.with_suffix(".py")) if file.exists()), None)


def _statements(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Yields the statements of a module, including those under an `if`, each with the docstring below it."""
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.If):
            yield from _statements([*statement.body, *statement.orelse])
        match after:
            case ast.Expr(ast.Constant(str(text))):
                yield statement, text
            case _:
                yield statement, ""


def _bindings(body: Sequence[ast.stmt]) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.FunctionDef(name) | ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]):
                yield name
            case _:
                pass


@functools.cache
def read(module: str) -> Module:
    """Parses the module of this name. Raises ImportError if there is none."""
    file = _file(module)
    if file is None:
        raise ImportError(f"there is no module {module} in {SOURCE.name}")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    docstring = ast.get_docstring(tree) or ""
    if (stub := file.with_suffix(".pyi")).exists():
        tree = ast.parse(stub.read_text(encoding="utf-8"))
    bound: dict[str, Defining | Import] = {}
    described: dict[str, str] = {}
    for statement, below in _statements(tree.body):
        match statement:
            case ast.FunctionDef(name) | ast.ClassDef(name):
                bound[name] = statement
            case ast.Assign(targets):
                walked = [each for target in targets for each in ast.walk(target)]
                names = [each.id for each in walked if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
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
    return Module(module, docstring, bound, described)


def find(module: str, name: str) -> Found:
    """Finds the definition of a name of a module, through any number of re-exports."""
    if _file(module) is None:
        return Found(module, name)
    here = read(module)
    statement = here.bound.get(name)
    if isinstance(statement, Import):
        if (statement.module, statement.name) == (module, name):  # a package that imports one of its own modules
            return Found(module, name)
        return find(statement.module, statement.name)
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return Found(module, name, statement, ast.get_docstring(statement) or "")
    return Found(module, name, statement, here.described.get(name, ""))


def home(module: str) -> str:
    """Returns the module behind a public module name."""
    if _file(module) is not None or "." not in module:
        return module
    parent, _, name = module.rpartition(".")
    return find(home(parent), name).path


def is_there(module: str) -> bool:
    return _file(home(module)) is not None


def public(module: str) -> list[str]:
    """Returns the public names of a module, in order of definition.

    These are the names in `__all__`. Without it, they are the re-exports (`import name as name`) and the names that are
    defined in the module and do not begin with an underscore.
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
    """Whether a definition is public; type variables are not."""
    match statement:
        case ast.Assign(value=ast.Call(func=ast.Name("TypeVar" | "ParamSpec"))):
            return False
        case _:
            return True
