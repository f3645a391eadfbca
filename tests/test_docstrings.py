"""Docstrings of public functions are complete: a summary, every parameter, the result, the errors, and an example.

Those of classes and their methods are complete, too, apart from examples.

They are read from the sources, as editors read them for their tooltips. Pytest runs the examples.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
import pytest

from docs.building.sources import SOURCE, find, public
from tracefx.core.primitive import Primitive

COMPLETE: Final = (
    "tracefx",
    "tracefx.ad_checkpoint",
    "tracefx.custom_batching",
    "tracefx.custom_derivatives",
    "tracefx.debug",
    "tracefx.distributed",
    "tracefx.dtypes",
    "tracefx.errors",
    "tracefx.extend",
    "tracefx.ffi",
    "tracefx.flatten_util",
    "tracefx.handlers",
    "tracefx.handlers.units",
    "tracefx.image",
    "tracefx.interop.jax",
    "tracefx.lax",
    "tracefx.lax.linalg",
    "tracefx.nn",
    "tracefx.nn.initializers",
    "tracefx.numpy",
    "tracefx.numpy.fft",
    "tracefx.numpy.linalg",
    "tracefx.ops",
    "tracefx.pictures",
    "tracefx.programs",
    "tracefx.random",
    "tracefx.ref",
    "tracefx.rewriting",
    "tracefx.scipy.cluster.vq",
    "tracefx.scipy.fft",
    "tracefx.scipy.integrate",
    "tracefx.scipy.interpolate",
    "tracefx.scipy.linalg",
    "tracefx.scipy.ndimage",
    "tracefx.scipy.optimize",
    "tracefx.scipy.signal",
    "tracefx.scipy.sparse.linalg",
    "tracefx.scipy.spatial.transform",
    "tracefx.scipy.special",
    "tracefx.scipy.stats",
    "tracefx.sharding",
    "tracefx.testing",
    "tracefx.transforms.checkpoint_policies",
    "tracefx.tree",
    "tracefx.tree_util",
)
"""The modules whose public functions and classes all have complete docstrings."""

_SUMMARY: Final = re.compile(r"[A-Z`](?:.|\n(?!\n))*?\.(?:\s|$)")
_SECTION: Final = re.compile(r"^(Args|Returns|Yields|Raises):\n((?:(?: .*)?\n)*)", re.MULTILINE)
_ENTRY: Final = re.compile(r"^    \*{0,2}(\w+): \S", re.MULTILINE)


def functions(module: ast.Module, name: str) -> list[ast.FunctionDef]:
    """Returns the definitions of a function in a module: its overloads, and then its implementation."""
    branches = [each.orelse for each in module.body if isinstance(each, ast.If)]  # of `if TYPE_CHECKING`
    statements = itertools.chain(module.body, *branches)
    return [each for each in statements if isinstance(each, ast.FunctionDef) and each.name == name]


@functools.cache
def parsed(module: str) -> ast.Module:
    """Returns the syntax tree of the module of this name."""
    place = SOURCE.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def parameters(function: ast.FunctionDef, *, positional_only: bool = True) -> list[str]:
    """Returns the names of the public parameters of a function, in order, with or without its positional-only ones.

    `**none: P.kwargs` completes the type of `*operands: P.args` and takes no arguments.
    """
    given = function.args
    variadic = [given.vararg] if given.vararg else []
    keywords = [given.kwarg] if given.kwarg and given.kwarg.arg != "none" else []
    listed = (*(given.posonlyargs if positional_only else ()), *given.args, *variadic, *given.kwonlyargs, *keywords)
    of_class = any(ast.unparse(each) == "classmethod" for each in function.decorator_list)
    receiver = "cls" if of_class else "self"
    return [each.arg for each in listed if not each.arg.startswith("_") and each.arg != receiver]


def problems(definitions: Sequence[ast.FunctionDef], *, is_method: bool = False) -> Iterator[str]:
    """Yields what the docstring of a function lacks.

    That of a method needs no example, and no section on the result if its summary says what it returns.
    """
    function = definitions[-1]
    docstring = ast.get_docstring(function) or ""
    sections = {match[1]: match[2] for match in _SECTION.finditer(docstring + "\n")}
    if not _SUMMARY.match(docstring):
        yield "no summary that ends with a full stop"
    described = _ENTRY.findall(sections.get("Args", ""))
    of_overloads = [parameters(each, positional_only=False) for each in definitions[:-1]] or [parameters(function)]
    expected = list(dict.fromkeys(itertools.chain(*of_overloads)))
    if described not in (parameters(function), expected):
        yield f"Args describes {described}, the parameters are {expected}"
    returns = ast.unparse(function.returns) if function.returns else ""
    is_described = bool(sections.keys() & {"Returns", "Yields"}) or (is_method and docstring.startswith("Returns "))
    if returns not in ("None", "NoReturn") and not is_described:
        yield "no Returns"
    is_abstract = any(ast.unparse(each) == "abstractmethod" for each in function.decorator_list)
    raises = any(isinstance(node, ast.Raise) and node.exc is not None for node in ast.walk(function))
    if "Raises" not in sections and raises and not is_abstract:
        yield "no Raises"
    if not is_method and not re.search(rf"^ *(>>>|\.\.\.) .*\b{function.name}\b", docstring, re.MULTILINE):
        yield "no example that calls it"


def class_problems(statement: ast.ClassDef) -> Iterator[str]:
    """Yields what the docstrings of a class and its public methods lack. Overrides inherit theirs."""
    if not _SUMMARY.match(ast.get_docstring(statement) or ""):
        yield "no summary that ends with a full stop"
    methods = [each for each in statement.body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]
    for method in methods:
        decorators = {ast.unparse(each) for each in method.decorator_list}
        if not decorators & {"override", "property", "overload"}:
            yield from [f"{method.name}: {each}" for each in problems([method], is_method=True)]


def public_classes(module: str) -> dict[str, ast.ClassDef]:
    """Returns the definitions of the public classes of a module, by name."""
    found = {name: find(module, name).statement for name in public(module)}
    return {name: statement for name, statement in found.items() if isinstance(statement, ast.ClassDef)}


def is_law(statement: ast.FunctionDef) -> bool:
    """Returns whether a function is decorated by `law`."""
    return any(ast.unparse(decorator).startswith("law(") for decorator in statement.decorator_list)


def public_functions(module: str) -> dict[str, list[ast.FunctionDef]]:
    """Returns the definitions of the public functions of a module, by name; an alias stands for its function.

    Laws are left out: the decorator `law` makes them values, which are called as the method `Law.__call__` describes.
    """
    found: dict[str, list[ast.FunctionDef]] = {}
    for name in public(module):
        definition = find(module, name)
        while definition.same_as is not None and definition.same_as != definition.name:
            definition = find(definition.module, definition.same_as)
        statement = definition.statement
        if isinstance(statement, ast.FunctionDef) and not any(
            "law(" in ast.unparse(d) for d in statement.decorator_list
        ):
            found[name] = functions(parsed(definition.module), definition.name)
    return found


@pytest.mark.parametrize("module", COMPLETE)
def test_docstrings_are_complete(module: str) -> None:
    found = {name: list(problems(definitions)) for name, definitions in public_functions(module).items()}
    found |= {name: list(class_problems(statement)) for name, statement in public_classes(module).items()}
    assert found
    assert {name: lacking for name, lacking in found.items() if lacking} == {}


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("tracefx.core.array", "Array"),
        ("tracefx.core.array_reductions", "ArrayReductions"),
        ("tracefx.core.abstract_array", "AbstractArray"),
        ("tracefx.core.abstract_array", "ArrayPlacement"),
        ("tracefx.interpreters.interpreter_hooks", "InterpreterHooks"),
    ],
)
def test_docstrings_of_base_classes_are_complete(module: str, name: str) -> None:
    statement = find(module, name).statement
    assert isinstance(statement, ast.ClassDef)
    assert list(class_problems(statement)) == []


def described_fields(cls: type) -> set[str]:
    """Returns the names that the docstrings of a class and its base classes describe as arguments."""
    docstrings = [inspect.cleandoc(vars(base).get("__doc__") or "") + "\n" for base in cls.__mro__]
    sections = [match for text in docstrings for match in _SECTION.finditer(text)]
    return {name for match in sections if match[1] == "Args" for name in _ENTRY.findall(match[2])}


@pytest.mark.parametrize(
    "module",
    [
        "tracefx.control",
        "tracefx.control.callback",
        "tracefx.control.custom_batching",
        "tracefx.control.custom_jvp",
        "tracefx.control.custom_vjp",
        "tracefx.ops",
    ],
)
def test_docstrings_of_primitives_describe_their_fields(module: str) -> None:
    here = importlib.import_module(module)
    exported = [getattr(here, name) for name in sorted(dir(here))]
    classes = [each for each in exported if isinstance(each, type) and issubclass(each, Primitive)]
    fields = {each: {field.alias for field in attrs.fields(each) if field.init} for each in classes}
    assert any(fields.values())
    assert {each.__name__ for each in classes if described_fields(each) != fields[each]} == set()


def test_modules_are_sorted() -> None:
    assert list(COMPLETE) == sorted(COMPLETE)


# ------------------------------------------------------------------ tests of the checker

GOOD: Final = '''
def scale(x: float, *more: float, by: float = 2.0, _cache: None = None) -> float:
    """Multiplies a number.

    Args:
        x: The number.
        *more: More numbers,
            which have no effect.
        by: The factor; 2 by default.

    Returns:
        The product.

    Raises:
        ValueError: If the factor is 0.

    >>> scale(3.0)
    6.0
    """
    if by == 0:
        raise ValueError
    return x * by
'''


def lacks(text: str) -> list[str]:
    return list(problems(functions(ast.parse(text), "scale")))


def test_complete_docstring_passes() -> None:
    assert lacks(GOOD) == []


@pytest.mark.parametrize(
    ("part", "replacement", "message"),
    [
        ("Multiplies a number.", "multiplies", "no summary"),
        (GOOD[GOOD.index("    Args:") : GOOD.index("    Returns:")], "", "Args describes []"),
        ("        x: The number.\n", "", "Args describes ['more', 'by'], the parameters are ['x', 'more', 'by']"),
        ("        x: The number.", "        x:", "Args describes ['more', 'by']"),
        ("x: The number.", "y: The number.", "Args describes ['y', 'more', 'by']"),
        ("Returns:\n        The product.", "It returns a number.", "no Returns"),
        ("Raises:\n        ValueError: If", "It raises an error if", "no Raises"),
        (">>> scale(3.0)\n    6.0", ">>> 6.0\n    6.0", "no example"),
        (">>> scale(3.0)\n    6.0", "", "no example"),
    ],
)
def test_incomplete_docstring_is_detected(part: str, replacement: str, message: str) -> None:
    assert part in GOOD
    (found,) = lacks(GOOD.replace(part, replacement))
    assert found.startswith(message)


def test_parameters_of_overloads() -> None:
    """The docstring describes the parameters of the implementation, or the named ones of all overloads."""
    assert lacks("def scale(x: float, /) -> float: ...\n" + GOOD) == []
    overloads = (
        "def scale(x: float, *more: P.args, **none: P.kwargs) -> float: ...\n"
        "def scale(x: float, *, by: float) -> float: ...\n"
        "def scale(y: float, z: float, /) -> float: ...\n"
    )
    assert lacks(overloads + GOOD.replace("(x: float, *more: float,", "(*given: float,")) == []
    (found,) = lacks("def scale(x: float, *, by: float) -> float: ...\n" + GOOD.replace("x: float", "y: float"))
    assert found == "Args describes ['x', 'more', 'by'], the parameters are ['x', 'by']"


def test_aliases_are_found() -> None:
    found = public_functions("tracefx.numpy")
    assert found["asin"][-1].name == "arcsin"
    assert set(found) >= {"sum", "where", "conj", "linspace"}


def test_incomplete_class_is_detected() -> None:
    method = GOOD.replace("def scale(", "def scale(self, ").replace("\n", "\n    ")
    parts = ("class Scaling:", '    """Scales numbers."""', method, "    @property\n    def by(self) -> float: ...")
    text = "\n".join(parts)
    (good,) = ast.parse(text).body
    (bad,) = ast.parse(text.replace("Returns:", "Results:").replace("numbers.", "numbers")).body
    assert isinstance(good, ast.ClassDef)
    assert isinstance(bad, ast.ClassDef)
    assert list(class_problems(good)) == []
    assert list(class_problems(bad)) == ["no summary that ends with a full stop", "scale: no Returns"]
