"""Laying text out: a group stands on one line if it fits there, and is broken at every one of its breaks if not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
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
class Concat:
    """One after the other."""

    __slots__ = ("docs", "width")

    def __init__(self, *docs: Doc) -> None:
        self.docs = docs
        self.width: float = sum([len(d) if isinstance(d, str) else d.width for d in docs])


@final
class Nest:
    """Lines that begin inside `doc` are indented by one step more."""

    __slots__ = ("doc", "width")

    def __init__(self, doc: Doc) -> None:
        self.doc = doc
        self.width: float = len(doc) if isinstance(doc, str) else doc.width


@final
class Group:
    """The breaks directly inside are either all taken or none."""

    __slots__ = ("doc", "width")

    def __init__(self, doc: Doc) -> None:
        self.doc = doc
        self.width: float = len(doc) if isinstance(doc, str) else doc.width


@final
class LazyDocs:
    """Documents made one by one when their turn comes, each forgotten once it is written: for very many of them.

    Together they are too long for any line, so the groups around them are broken.
    """

    __slots__ = ("make", "width")

    def __init__(self, make: Callable[[], Iterator[Doc]]) -> None:
        self.make = make
        self.width: float = math.inf


Doc: TypeAlias = str | Break | Concat | Nest | Group | LazyDocs
"""A text and the places where it may be broken; its `width` is that of the text on one line."""


def join(separator: Doc, docs: Iterable[Doc]) -> Doc:
    parts: list[Doc] = []
    for doc in docs:
        if parts:
            parts.append(separator)
        parts.append(doc)
    return Concat(*parts)


def fill(separator: str, docs: Sequence[Doc]) -> Doc:
    """Words in running text: each stands on the next line if the line is full where it would begin."""
    return Nest(Group(join(Concat(separator, Group(Break())), docs)))


def render(doc: Doc, width: int) -> str:
    """The text, in lines of at most `width` characters where the breaks allow it. Linear in the text's length.

    >>> print(render(Group(Concat("[", Nest(Concat(Break(""), "one", Break(), "two")), Break(""), "]")), 8))
    [
      one
      two
    ]
    """
    out: list[str] = []
    column = 0
    todo: list[tuple[int, bool, Doc | Iterator[Doc]]] = [(0, False, doc)]
    while todo:
        indent, flat, part = todo.pop()
        if isinstance(part, str):
            out.append(part)
            column += len(part)
        elif isinstance(part, Concat):
            todo += [(indent, flat, each) for each in reversed(part.docs)]
        elif isinstance(part, Nest):
            todo.append((indent + INDENT, flat, part.doc))
        elif isinstance(part, Group):
            todo.append((indent, flat or part.width <= width - column, part.doc))
        elif isinstance(part, LazyDocs):
            todo.append((indent, flat, part.make()))
        elif not isinstance(part, Break):
            for each in part:
                todo += [(indent, flat, part), (indent, flat, each)]
                break
        elif flat:
            out.append(part.flat)
            column += part.width
        else:
            out.append("\n" + " " * indent)
            column = indent
    return "".join(out)
