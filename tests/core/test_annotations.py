"""Checks of values against annotations, and the classes that annotations name."""

from __future__ import annotations

import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import pytest
from attrs import field, frozen

from tracefx.core import DType
from tracefx.text.field_annotations import AnnotationResolver, matches_annotation
from tracefx.text.fields import FieldInfo

N = TypeVar("N", bound=int)
C = TypeVar("C", int, str)
F = TypeVar("F")


class Mode(Enum):
    A = 1


class Round(IntEnum):
    UP = 1


class Pair(NamedTuple):
    left: int
    right: int = 2


class Sized(Protocol):
    size: int


@frozen
class Dims:
    lhs: tuple[int, ...]
    _mode: Mode | None = None
    shown: str = field(default="", metadata={"print": "name"})
    kept: int = field(default=3, init=False)


FITTING: Final[list[tuple[Any, object]]] = [
    *((None, None), (None, type(None)), (1, int), (1.0, float), (1, float), (1, complex), (1.0, complex)),
    *((1j, complex), (True, bool), ("a", str), (b"a", bytes), ("anything", Any), ((), object), (1, int | None)),
    *((None, int | None), (None, N | None), ("a", C | None), ("x", Literal["x", 1]), (1, Literal["x", 1])),
    *(((), tuple[int, ...]), ((1, 2), tuple[int, ...]), ((1, "a"), tuple[int, str]), ((), tuple[()])),
    *((((1, 2), (3, 4)), tuple[tuple[int, int], ...]), (frozenset({"a"}), frozenset[str])),
    *((frozenset(), frozenset[int]), (np.dtype("int8"), DType), (np.dtype("int8"), np.dtype), ((1, "a"), Hashable)),
    *(("i", Hashable), (print, Callable), (print, Callable[..., object]), ((1, 2), Sequence[int]), (Mode.A, Mode)),
    *((Round.UP, Round), (Pair(1), Pair), (Pair(1), tuple), (Dims(()), Dims | Pair), (3, N), (3, C), ("a", C)),
    *(((), F), (1, Final[int]), (1, ClassVar[int]), (1, typing.Annotated[int, "m"]), (Dims(()), Sized)),
    (5, "a string that names nothing"),
]
OTHERS: Final[list[tuple[Any, object]]] = [
    *((0, None), (True, int), (1, bool), (1.0, int), (True, float), (1j, float), ("a", bytes), (Round.UP, int)),
    *(("1", int | None), (True, Literal[1]), ("y", Literal["x", 1]), ((True,), tuple[int, ...])),
    *(([1], tuple[int, ...]), ((1,), tuple[int, str]), ((1, 2), tuple[int, str]), ((1,), tuple[()])),
    *(((1, (2,)), tuple[tuple[int, ...], ...]), (frozenset({1}), frozenset[str]), ({"a"}, frozenset[str])),
    *(("int8", DType), ([], Hashable), (1, Callable), (1, Mode), (1, Round), ((1, 2), Pair), ((1, 2), Dims)),
    *(("a", N), (1.0, C), (1, Sequence[int]), ((), Mapping)),
]


@pytest.mark.parametrize(("value", "hint"), FITTING, ids=str)
def test_values_that_match(value: object, hint: object) -> None:
    assert matches_annotation(value, hint)


@pytest.mark.parametrize(("value", "hint"), OTHERS, ids=str)
def test_values_that_do_not_match(value: object, hint: object) -> None:
    assert not matches_annotation(value, hint)


def test_fields() -> None:
    classes = AnnotationResolver()
    assert classes.fields(Dims) == {
        "lhs": FieldInfo("lhs", "lhs"),
        "mode": FieldInfo("_mode", "mode", None),
        "name": FieldInfo("shown", "shown", ""),
    }
    assert classes.fields(Pair) == {"left": FieldInfo("left", "left"), "right": FieldInfo("right", "right", 2)}
    assert [f.required for f in classes.fields(Dims).values()] == [True, False, False]
    assert classes.hint(Dims, "_mode") == Mode | None
    assert classes.hint(Pair, "right") is int


def test_annotations_with_undefined_names() -> None:
    @frozen
    class Local:
        x: Missing  # type: ignore[name-defined]  # noqa: F821  # on purpose

    assert AnnotationResolver().hint(Local, "x") is object


def test_classes_in_annotations() -> None:
    classes = AnnotationResolver()
    hint = tuple[Dims | Mode, ...] | dict[str, Pair] | None
    for kind in (Dims, Mode, Pair):
        assert classes.named(kind.__name__, hint) is kind
    for name in ("int", "str", "NoneType", "tuple", "Round", "Popen", "FieldInfo"):
        assert classes.named(name, hint) is None
    assert classes.named("Dims", TypeVar("T", bound=Dims)) is Dims
