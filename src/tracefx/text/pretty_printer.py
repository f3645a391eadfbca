"""A pretty printer for documents with groups: a group that does not fit on a line is broken at all its breaks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias, final

from tracefx.bounded_cache import memoize

INDENT = 2
_MAX_FLAT: Final = 256
"""The width up to which a document stores its text on one line, from which it is printed at once where it fits."""


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

    __slots__ = ("docs", "flat", "width")

    def __init__(self, *docs: Doc) -> None:
        self.docs = docs
        self.flat, self.width = _flat_and_width(docs)


@final
class Nest:
    """A document whose lines are indented by one more step."""

    __slots__ = ("doc", "flat", "width")

    def __init__(self, doc: Doc) -> None:
        self.doc = doc
        self.flat, self.width = _flat_and_width((doc,))


@final
class Group:
    """A document whose direct breaks are either all line breaks or all flat."""

    __slots__ = ("doc", "flat", "width")

    def __init__(self, doc: Doc) -> None:
        self.doc = doc
        self.flat, self.width = _flat_and_width((doc,))


@final
class LazyDocs:
    """Very many documents, each made when it is printed and released afterwards, to save memory.

    They count as infinitely wide, so the groups around them are broken.
    """

    __slots__ = ("make", "width")
    flat: Final = None

    def __init__(self, make: Callable[[], Iterator[Doc]]) -> None:
        self.make = make
        self.width: float = math.inf


Doc: TypeAlias = str | Break | Concat | Nest | Group | LazyDocs
"""A document: text with possible line breaks. `width` is that of its text on one line, `flat`, if that is short."""


def _flat_and_width(docs: Sequence[Doc]) -> tuple[str | None, float]:
    texts: list[str] = []
    for doc in docs:
        text = doc if isinstance(doc, str) else doc.flat
        if text is None:
            return None, sum([len(d) if isinstance(d, str) else d.width for d in docs])
        texts.append(text)
    flat = "".join(texts)
    return flat if len(flat) <= _MAX_FLAT else None, len(flat)


def concat(*docs: Doc) -> Doc:
    """Concatenates documents: to text, if there is no break in them."""
    texts = [doc for doc in docs if isinstance(doc, str)]
    return "".join(texts) if len(texts) == len(docs) else Concat(*docs)


def join(separator: Doc, docs: Iterable[Doc]) -> Doc:
    """Concatenates documents with a separator between them."""
    parts: list[Doc] = []
    for doc in docs:
        if parts:
            parts.append(separator)
        parts.append(doc)
    return concat(*parts)


def fill(separator: str, docs: Sequence[Doc]) -> Doc:
    """Lays words out like running text: a word that does not fit begins a new line."""
    if len(docs) == 1 and isinstance(docs[0], str):
        return docs[0]
    return Nest(Group(join(_word_break(separator), docs)))


@memoize(16)
def _word_break(separator: str) -> Doc:
    return Concat(separator, Group(Break()))


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
        elif isinstance(part, (Concat, Nest, Group)):
            if isinstance(part, Group):
                flat = flat or part.width <= width - column
            if flat and part.flat is not None:
                out.append(part.flat)
                column += len(part.flat)
            elif isinstance(part, Concat):
                todo += [(indent, flat, each) for each in reversed(part.docs)]
            else:
                todo.append((indent + INDENT if isinstance(part, Nest) else indent, flat, part.doc))
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
