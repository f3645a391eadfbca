"""Laying text out: a group stands on one line if it fits there, and is broken at every one of its breaks if not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, final

INDENT = 2


@final
class Break:
    """A place where the line may end; reads as `flat` where it does not."""

    __slots__ = ("flat", "width")

    def __init__(self, flat: str = " ") -> None:
        self.flat = flat
        self.width: int = len(flat)


@final
class Cat:
    """One after the other."""

    __slots__ = ("docs", "width")

    def __init__(self, *docs: Doc) -> None:
        self.docs = docs
        self.width: int = sum([len(d) if isinstance(d, str) else d.width for d in docs])


@final
class Nest:
    """Lines that begin inside `doc` are indented by one step more."""

    __slots__ = ("doc", "width")

    def __init__(self, doc: Doc) -> None:
        self.doc = doc
        self.width: int = len(doc) if isinstance(doc, str) else doc.width


@final
class Group:
    """The breaks directly inside are either all taken or none."""

    __slots__ = ("doc", "width")

    def __init__(self, doc: Doc) -> None:
        self.doc = doc
        self.width: int = len(doc) if isinstance(doc, str) else doc.width


Doc: TypeAlias = str | Break | Cat | Nest | Group
"""A text and the places where it may be broken; its `width` is that of the text on one line."""


def join(separator: Doc, docs: Iterable[Doc]) -> Doc:
    parts: list[Doc] = []
    for doc in docs:
        if parts:
            parts.append(separator)
        parts.append(doc)
    return Cat(*parts)


def fill(separator: str, docs: Sequence[Doc]) -> Doc:
    """Words in running text: each stands on the next line if the line is full where it would begin."""
    return Nest(Group(join(Cat(separator, Group(Break())), docs)))


def render(doc: Doc, width: int) -> str:
    """The text, in lines of at most `width` characters where the breaks allow it. Linear in the text's length.

    >>> print(render(Group(Cat("[", Nest(Cat(Break(""), "one", Break(), "two")), Break(""), "]")), 8))
    [
      one
      two
    ]
    """
    out: list[str] = []
    column = 0
    todo: list[tuple[int, bool, Doc]] = [(0, False, doc)]
    while todo:
        indent, flat, doc = todo.pop()
        if isinstance(doc, str):
            out.append(doc)
            column += len(doc)
        elif isinstance(doc, Cat):
            todo += [(indent, flat, part) for part in reversed(doc.docs)]
        elif isinstance(doc, Nest):
            todo.append((indent + INDENT, flat, doc.doc))
        elif isinstance(doc, Group):
            todo.append((indent, flat or doc.width <= width - column, doc.doc))
        elif flat:
            out.append(doc.flat)
            column += doc.width
        else:
            out.append("\n" + " " * indent)
            column = indent
    return "".join(out)
