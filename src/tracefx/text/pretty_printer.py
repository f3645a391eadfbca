"""A pretty printer for documents with groups: a group that does not fit on a line is broken at all its breaks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, final

INDENT = 2


@final
class Break:
    """A possible line break, printed as `flat` where the line is not broken."""

    __slots__ = ("flat", "width")

    def __init__(self, flat: str = " ") -> None:
        self.flat = flat
        self.width: int = len(flat)


@final
class Concat:
    """A concatenation of documents."""

    __slots__ = ("docs", "width")

    def __init__(self, *docs: Doc) -> None:
        self.docs = docs
        self.width: float = sum([len(d) if isinstance(d, str) else d.width for d in docs])


@final
class Nest:
    """A document whose lines are indented by one more step."""

    __slots__ = ("doc", "width")

    def __init__(self, doc: Doc) -> None:
        self.doc = doc
        self.width: float = len(doc) if isinstance(doc, str) else doc.width


@final
class Group:
    """A document whose direct breaks are either all line breaks or all flat."""

    __slots__ = ("doc", "width")

    def __init__(self, doc: Doc) -> None:
        self.doc = doc
        self.width: float = len(doc) if isinstance(doc, str) else doc.width


@final
class LazyDocs:
    """Very many documents, each made when it is printed and released afterwards, to save memory.

    They count as infinitely wide, so the groups around them are broken.
    """

    __slots__ = ("make", "width")

    def __init__(self, make: Callable[[], Iterator[Doc]]) -> None:
        self.make = make
        self.width: float = math.inf


Doc: TypeAlias = str | Break | Concat | Nest | Group | LazyDocs
"""A document: text with possible line breaks. `width` is its width on one line."""


def join(separator: Doc, docs: Iterable[Doc]) -> Doc:
    """Concatenates documents with a separator between them."""
    parts: list[Doc] = []
    for doc in docs:
        if parts:
            parts.append(separator)
        parts.append(doc)
    return Concat(*parts)


def fill(separator: str, docs: Sequence[Doc]) -> Doc:
    """Lays words out like running text: a word that does not fit begins a new line."""
    return Nest(Group(join(Concat(separator, Group(Break())), docs)))


def render(doc: Doc, width: int) -> str:
    """Returns a document as text, in lines of at most `width` characters if possible. Takes linear time.

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
