"""Type annotations of the fields of primitives and of their parameter values, used to validate parsed programs.

A program in text or serialized form refers to classes by name. Only classes that the annotations of the primitive's
fields name are accepted; no other class is ever instantiated.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NoReturn, TypeVar, final

import attrs

from tracefx.core.custom_text import CustomText, class_text_name
from tracefx.dimensions.symbolic_dimensions import is_symbolic_dim
from tracefx.pytrees.registry import NODE_REGISTRY, TreeDef
from tracefx.text.fields import FieldInfo, constructor_fields, is_named_tuple

T = TypeVar("T")


@final
class AnnotationResolver:
    """Resolves class names by annotations, and caches the fields and type hints of classes."""

    __slots__ = ("_fields", "_hints")

    def __init__(self) -> None:
        self._hints: dict[type, Mapping[str, object]] = {}
        self._fields: dict[type, Mapping[str, FieldInfo]] = {}

    def hint(self, kind: type, attribute: str) -> object:
        """Returns the annotation of a field; `object` if it refers to names that exist only inside a function."""
        if kind not in self._hints:
            try:
                self._hints[kind] = typing.get_type_hints(kind)
            except (NameError, TypeError):
                self._hints[kind] = {}
        return self._hints[kind].get(attribute, object)

    def fields(self, kind: type) -> Mapping[str, FieldInfo]:
        """Returns the fields of an attrs class or named tuple by their names in the text."""
        if kind not in self._fields:
            self._fields[kind] = constructor_fields(kind)
        return self._fields[kind]

    def construct(
        self, kind: type[T], values: Mapping[str, object], fail: Callable[[str, Exception | None], NoReturn]
    ) -> T:
        """Constructs an attrs class or named tuple from `values` by argument; `fail(problem, cause)` raises."""
        missing = [name for name, field in self.fields(kind).items() if field.required and field.argument not in values]
        if missing:
            fail(f"{kind.__name__} needs {', '.join(missing)}", None)
        try:
            return kind(**values)
        except Exception as error:  # validators may raise any exception
            fail(f"{kind.__name__} rejects its fields: {type(error).__name__}: {error}", error)

    def named(self, name: str, annotation: object) -> type | None:
        """Returns the class with this name that an annotation mentions, if its values can be written; else `None`."""
        todo, seen = [annotation], set[int]()
        while todo:
            hint = todo.pop()
            if id(hint) in seen:
                continue
            seen.add(id(hint))
            if type(hint) is not types.GenericAlias and isinstance(hint, type) and class_text_name(hint) == name:
                written = attrs.has(hint) or issubclass(hint, Enum | CustomText) or is_named_tuple(hint)
                return hint if written else None
            todo += typing.get_args(hint)
            if isinstance(hint, TypeVar):
                todo += [hint.__bound__, *hint.__constraints__]
        return None


# ------------------------------------------------------------------ values


_EXACT = (bool, int, str, bytes)
_WIDENED = {float: (float, int), complex: (complex, float, int)}


def matches_annotation(value: object, hint: object) -> bool:
    """Whether a value matches an annotation, recursively. Values match unspecified parts of an annotation.

    A bool is not an int here. An int is a float, as in type checkers.

    >>> ints = tuple[int, ...]
    >>> matches_annotation((1, 2), ints), matches_annotation((1, True), ints), matches_annotation(None, int | None)
    (True, False, True)
    """
    if hint is None or hint is types.NoneType:
        return value is None
    if hint is Any or hint is object:
        return True
    if hint is TreeDef:  # a protocol that only jaxlib's class implements
        return NODE_REGISTRY.native is not None and NODE_REGISTRY.native.is_treedef(value)
    if type(hint) is not types.GenericAlias and isinstance(hint, type):
        if hint in _EXACT:
            return type(value) is hint or (hint is int and is_symbolic_dim(value))
        if hint in _WIDENED:
            return type(value) in _WIDENED[hint]
        return _is_instance(value, hint)
    if isinstance(hint, TypeVar):
        allowed = hint.__constraints__ or ((object,) if hint.__bound__ is None else (hint.__bound__,))
        return any(matches_annotation(value, each) for each in allowed)
    return _fits_generic(value, typing.get_origin(hint), typing.get_args(hint))


def _fits_generic(value: object, origin: object, args: tuple[Any, ...]) -> bool:
    if origin is typing.Union or origin is types.UnionType:
        return any(matches_annotation(value, each) for each in args)
    if origin is typing.Literal:
        return any(type(value) is type(each) and value == each for each in args)
    if origin in (typing.Annotated, typing.Final, typing.ClassVar):
        return matches_annotation(value, args[0])
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if len(args) == 2 and args[1] is Ellipsis:
            return all(matches_annotation(v, args[0]) for v in value)
        return len(value) == len(args) and all(map(matches_annotation, value, args))
    if origin is frozenset:
        return isinstance(value, frozenset) and all(matches_annotation(v, args[0]) for v in value)
    return _is_instance(value, origin) if isinstance(origin, type) else True


def _is_instance(value: object, kind: type) -> bool:
    try:
        return isinstance(value, kind)
    except TypeError:  # a protocol that does not support isinstance
        return True
