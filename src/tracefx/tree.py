"""Trees: nested tuples, lists, dicts and registered classes with arrays at the leaves, under the names of `jax.tree`.

Types registered through `jax.tree_util`, as those of Equinox, Flax and Optax, are nodes here too.

>>> from tracefx import tree
>>> tree.map(lambda x, y: x + y, {"w": 1, "b": (2, None)}, {"w": 10, "b": (20, None)})
{'b': (22, None), 'w': 11}
"""

from __future__ import annotations

import builtins
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, final

from tracefx.pytrees.trees import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    IsLeaf,
    KeyPath,
    Partial,
    PyTree,
    SequenceKey,
    TreeDef,
    TreeDescription,
    UnsortableKeysError,
    all_leaves,
    broadcast_prefix,
    describe,
    flatten,
    flatten_up_to,
    flatten_with_path,
    keystr,
    leaves,
    map,
    reduce,
    register_dataclass,
    register_pytree_node,
    register_pytree_node_class,
    register_pytree_with_keys,
    register_pytree_with_keys_class,
    register_static,
    structure,
    transpose,
    unflatten,
)

__all__ = [
    # flatten and rebuild
    "flatten",
    "leaves",
    "structure",
    "unflatten",
    "all_leaves",
    # compute
    "map",
    "reduce",
    "reduce_associative",
    "all",
    "transpose",
    "broadcast",
    # paths
    "flatten_with_path",
    "leaves_with_path",
    "map_with_path",
    "keystr",
    "KeyPath",
    "SequenceKey",
    "DictKey",
    "GetAttrKey",
    "FlattenedIndexKey",
    # nodes
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "register_static",
    "static",
    "Partial",
    # structures
    "TreeDef",
    "TreeDescription",
    "describe",
    # types and errors
    "PyTree",
    "IsLeaf",
    "UnsortableKeysError",
]

T = TypeVar("T")


def all(tree: PyTree, *, is_leaf: IsLeaf | None = None) -> bool:
    """Whether all leaves of a tree are true.

    >>> all({"a": True, "b": (1, None)}), all([True, 0])
    (True, False)
    """
    return builtins.all(leaves(tree, is_leaf))


@final
class _Missing:
    pass


_MISSING: Final = _Missing()


def reduce_associative(
    operation: Callable[[T, T], T], tree: PyTree, *, identity: T | _Missing = _MISSING, is_leaf: IsLeaf | None = None
) -> T:
    """As `reduce` for an associative operation, halving the leaves again and again, so no chain is long.

    Raises TypeError for a tree without leaves, unless there is an `identity`.

    >>> reduce_associative(lambda x, y: f"({x}{y})", ["a", "b", "c", "d"])
    '((ab)(cd))'
    """

    def halves(items: list[T]) -> T:
        if len(items) == 1:
            return items[0]
        middle = len(items) // 2
        return operation(halves(items[:middle]), halves(items[middle:]))

    flat = cast(list[T], leaves(tree, is_leaf))
    if flat:
        return halves(flat)
    if isinstance(identity, _Missing):
        raise TypeError("reduce_associative of a tree without leaves needs an identity")
    return identity


def leaves_with_path(
    tree: PyTree, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """The leaves of a tree, each with its path before it.

    >>> [(keystr(path), leaf) for path, leaf in leaves_with_path({"a": [1, 2]})]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    return flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def map_with_path(
    f: Callable[..., object],
    tree: PyTree,
    *rest: PyTree,
    is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """As `map`, with `f(path, leaf, *of_the_rest)`.

    >>> map_with_path(lambda path, x: f"{keystr(path)} = {x}", {"a": [1, 2]})
    {'a': ["['a'][0] = 1", "['a'][1] = 2"]}
    """
    flat, treedef = flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    columns = [flatten_up_to(treedef, other, f"argument {i}") for i, other in enumerate(rest, 2)]
    return treedef.unflatten([f(path, leaf, *others) for (path, leaf), *others in zip(flat, *columns, strict=True)])


def broadcast(prefix_tree: PyTree, full_tree: PyTree, is_leaf: IsLeaf | None = None) -> Any:
    """The full tree with the leaves of a prefix of it: one that may have a leaf where the full tree has a subtree.

    Raises ValueError if the first is no prefix of the second.

    >>> broadcast((0, 1), ("x", {"a": "y", "b": "z"}))
    (0, {'a': 1, 'b': 1})
    """
    entries = broadcast_prefix(prefix_tree, full_tree, is_leaf, what="prefix_tree", of="full_tree")
    return structure(full_tree).unflatten(entries)


if TYPE_CHECKING:
    # Type checkers know `dataclasses.field`, by its name alone, to declare a field.
    static = dataclasses.field
else:

    def static(**kwargs):
        """A dataclass field that `register_dataclass` takes as metadata; arguments as of `dataclasses.field`.

        >>> @register_dataclass
        ... @dataclasses.dataclass
        ... class Layer:
        ...     w: object
        ...     name: str = static(default="dense")
        >>> leaves(Layer(1.0))
        [1.0]
        """
        metadata = {**(kwargs.pop("metadata", None) or {}), "static": True}
        return dataclasses.field(metadata=metadata, **kwargs)
