"""Key paths: the keys that lead from the root of a pytree to a subtree.

jaxlib has classes of its own for keys. These exist so that jaxlib need not be loaded; `registry` converts to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from attrs import frozen
from typing_extensions import override


@frozen
class SequenceKey:
    """The index of a child of a list or tuple.

    Args:
        idx: The index.

    >>> str(SequenceKey(2))
    '[2]'
    """

    idx: int

    @override
    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@frozen
class DictKey:
    """The key of a child of a dict.

    Args:
        key: The key.

    >>> str(DictKey("w"))
    "['w']"
    """

    key: object

    @override
    def __str__(self) -> str:
        return f"[{self.key!r}]"


@frozen
class GetAttrKey:
    """The attribute or named tuple field that holds a child.

    Args:
        name: The name of the attribute.

    >>> str(GetAttrKey("w"))
    '.w'
    """

    name: str

    @override
    def __str__(self) -> str:
        return f".{self.name}"


@frozen
class FlattenedIndexKey:
    """The position of a child of a node whose type was registered without keys.

    Args:
        key: The position.

    >>> str(FlattenedIndexKey(0))
    '[<flat index 0>]'
    """

    key: int

    @override
    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


KeyPath: TypeAlias = tuple[object, ...]
"""The keys from the root of a pytree to a subtree: instances of the four classes above, or of a user's own."""


def keystr(keys: Iterable[object], *, simple: bool = False, separator: str = "") -> str:
    """Returns a key path as text.

    Args:
        keys: The keys.
        simple: Whether to use only the bare indices, keys and names. False by default.
        separator: The text between keys. Empty by default.

    Returns:
        The text; empty for the path of the root.

    >>> path = (DictKey("w"), SequenceKey(0), GetAttrKey("x"))
    >>> keystr(path), keystr(path, simple=True, separator="/")
    ("['w'][0].x", 'w/0/x')
    """
    return separator.join(map(_simple_text if simple else str, keys))


def _simple_text(key: object) -> str:
    match key:
        case SequenceKey(inner) | DictKey(inner) | GetAttrKey(inner) | FlattenedIndexKey(inner):
            return str(inner)
        case _:
            return str(key)
