"""Docstrings of primitive classes are complete: a summary, parameters, types, the functions that bind it, an example.

Parameters and the example may be in the docstring of a base class. Pytest runs the examples.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import attrs
import pytest
from typing_extensions import TypeIs

import tracefx as fx
from tests.laws.samples import SAMPLES
from tracefx.core import ShapedArray, as_value
from tracefx.core.primitive import Primitive
from tracefx.ops.elementwise.elementwise import Elementwise
from tracefx.ops.vocabulary import OPERATIONS

Env: TypeAlias = dict[str, Any]
"""The sizes and parameters that names in a documented type stand for. `...` stands for a tuple of sizes."""

_ARGS: Final = re.compile(r"^Args:\n((?:(?: .*)?\n)*)", re.MULTILINE)
_ENTRY: Final = re.compile(r"^    (\w+): [A-Z`]", re.MULTILINE)
_BOUND: Final = re.compile(r"Bound by (.*?)\.(?: |$)")


def documented_bases(cls: type) -> list[str]:
    """Returns the docstrings of a class and of its base classes."""
    return [inspect.cleandoc(doc) for base in cls.__mro__ if (doc := vars(base).get("__doc__")) and base is not object]


def items(text: str) -> list[str]:
    """Splits a list at the commas outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[(") - (character in "])")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def documented_type(doc: str) -> tuple[list[str], list[str]] | None:
    """Returns the operands and results of the type in a docstring, each with its dtype and shape: the first ` -> `."""
    found = re.search(r"(?:^|\n\n)`([^`]*-> [^`]*)`", doc)
    if found is None:
        return None
    operands, _, results = " ".join(found[1].split()).rpartition("-> ")
    return items(operands), items(results)


def match_shape(pattern: Sequence[str], shape: tuple[int, ...], env: Env) -> Iterator[Env]:
    """Yields the assignments of sizes to names for which a documented shape is `shape`."""
    if not pattern:
        if not shape:
            yield env
        return
    first, *rest = pattern
    if first == "..." or first.startswith("*"):
        name = first.removeprefix("*")
        known = env.get(name)
        for n in range(len(shape) + 1) if known is None else [len(known)]:
            if known is None or tuple(known) == shape[:n]:
                yield from match_shape(rest, shape[n:], {**env, name: shape[:n]})
    elif shape:
        try:
            size = eval(first, {"min": min}, env)  # an expression of a docstring
        except NameError:
            assert first.isidentifier()
            size, env = shape[0], {**env, first: shape[0]}
        if size == shape[0]:
            yield from match_shape(rest, shape[1:], env)


def match_types(patterns: Sequence[str], avals: Sequence[ShapedArray], env: Env) -> Iterator[Env]:
    """Yields the assignments for which documented types are `avals`. `*x: f32[]` and a final `...` repeat."""
    if not patterns:
        if not avals:
            yield env
        return
    first, *rest = patterns
    if first == "...":
        assert not rest
        yield env
        return
    if first.startswith("*"):
        yield from match_types(rest, avals, env)
        if avals:
            for found in match_types([first.removeprefix("*")], avals[:1], env):
                yield from match_types(patterns, avals[1:], found)
        return
    if not avals:
        return
    shown = re.fullmatch(r"(?:\w+: )?([\w<>]+)\[(.*)\]", first)
    assert shown is not None, first
    if str(avals[0].strong()).partition("[")[0] == shown[1]:
        for found in match_shape(items(shown[2]), avals[0].shape, env):
            yield from match_types(rest, avals[1:], found)


def is_type_of(documented: tuple[list[str], list[str]], prim: Primitive, avals: Sequence[ShapedArray]) -> bool:
    """Returns whether a documented type is that of a primitive for operands of these types."""
    fields = {each.name: getattr(prim, each.name) for each in attrs.fields(type(prim))} if has_fields(prim) else {}
    operands, results = documented
    outs = prim.abstract_eval(*avals)
    return any(True for env in match_types(operands, avals, fields) for _ in match_types(results, outs, env))


def has_fields(prim: object) -> TypeIs[attrs.AttrsInstance]:
    return attrs.has(type(prim))


def samples(cls: type[Primitive]) -> Iterator[tuple[Primitive, list[ShapedArray]]]:
    """Yields primitives of a class with types of operands."""
    for sample in SAMPLES[cls.name]:
        for operands in sample.operands:
            avals = [as_value(x).aval for x in operands]
            if isinstance(sample.prim, Elementwise):
                avals = (avals * 3)[: sample.prim.arity]  # some samples apply a function of fewer operands
            yield sample.prim, avals


def unresolved(text: str) -> list[str]:
    """Returns the quoted names, of functions and primitives, that do not exist."""
    lacking = []
    for name in re.findall(r"`([^`]+)`", text):
        value: object = fx
        path = f"ops.{name}" if hasattr(fx.ops, name) else name
        if name.startswith("x."):
            path = f"numpy.ndarray.{name.removeprefix('x.').partition('[')[0]}"
        for part in path.split(".") if not re.fullmatch(r"x\[i\]", name) else []:
            value = getattr(value, part, None)
        if value is None:
            lacking.append(name)
    return lacking


@pytest.mark.parametrize("cls", OPERATIONS, ids=lambda cls: cls.__name__)
def test_docstring_is_complete(cls: type[Primitive]) -> None:
    own, *inherited = documented_bases(cls)
    assert re.match(r"[A-Z`].*\.$", own.partition("\n")[0]), "the summary is not a sentence on one line"
    args = [section for doc in (own, *inherited) for section in _ARGS.findall(doc + "\n")]
    described = [name for section in args for name in _ENTRY.findall(section)]
    fields = [each.alias for each in attrs.fields(cls) if each.init] if attrs.has(cls) else []
    assert sorted(described) == sorted(str(name) for name in fields)
    assert any(">>> " in doc for doc in (own, *inherited)), "no example"
    bound = _BOUND.search(" ".join(own.split()))
    assert bound is not None
    assert "`" in bound[1]
    assert unresolved(bound[1]) == []


@pytest.mark.parametrize("cls", OPERATIONS, ids=lambda cls: cls.__name__)
def test_documented_type_is_right(cls: type[Primitive]) -> None:
    documented = documented_type(documented_bases(cls)[0])
    assert documented is not None
    tried = list(samples(cls))
    assert any(is_type_of(documented, prim, avals) for prim, avals in tried), tried
