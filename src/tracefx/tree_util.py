"""Pytrees under the names of `jax.tree_util`: the functions of `tracefx.tree`, and functions of one level.

>>> from tracefx import tree_util
>>> tree_util.tree_map(lambda x, y: x + y, {"w": 1, "b": (2, None)}, {"w": 10, "b": (20, None)})
{'b': (22, None), 'w': 11}
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from tracefx.filtered_tracebacks import make_entry_points
from tracefx.pytrees.registry import NODE_REGISTRY, Registry, children_with_keys
from tracefx.tree import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    KeyPath,
    Partial,
    PyTree,
    SequenceKey,
    TreeDef,
    all_leaves,
    keystr,
    register_dataclass,
    register_pytree_node,
    register_pytree_node_class,
    register_pytree_with_keys,
    register_pytree_with_keys_class,
    register_static,
)
from tracefx.tree import all as tree_all
from tracefx.tree import broadcast as tree_broadcast
from tracefx.tree import flatten as tree_flatten
from tracefx.tree import flatten_with_path as tree_flatten_with_path
from tracefx.tree import leaves as tree_leaves
from tracefx.tree import leaves_with_path as tree_leaves_with_path
from tracefx.tree import map as tree_map
from tracefx.tree import map_with_path as tree_map_with_path
from tracefx.tree import reduce as tree_reduce
from tracefx.tree import reduce_associative as tree_reduce_associative
from tracefx.tree import structure as tree_structure
from tracefx.tree import transpose as tree_transpose
from tracefx.tree import unflatten as tree_unflatten

__all__ = [
    # trees
    "tree_all",
    "tree_broadcast",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_with_path",
    "tree_reduce",
    "tree_reduce_associative",
    "tree_structure",
    "tree_transpose",
    "tree_unflatten",
    "all_leaves",
    # one level
    "flatten_one_level",
    "flatten_one_level_with_keys",
    "is_tree_node",
    # structures
    "PyTreeDef",
    "treedef_children",
    "treedef_is_leaf",
    "treedef_tuple",
    # paths
    "keystr",
    "KeyEntry",
    "KeyPath",
    "SequenceKey",
    "DictKey",
    "GetAttrKey",
    "FlattenedIndexKey",
    # nodes
    "default_registry",
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "register_static",
    "Partial",
]

KeyEntry: TypeAlias = object
"""An entry of a path: a key of one of the four classes, or one of a user-defined class."""


def flatten_one_level(tree: PyTree) -> tuple[Iterable[object], object]:
    """Returns the children of a node and its metadata.

    Args:
        tree: A pytree node.

    Returns:
        The children, in order, and the metadata: hashable data that is part of the structure, such as the keys of a
        dict.

    Raises:
        ValueError: If `tree` is a leaf.

    >>> flatten_one_level({"b": [1, 2], "a": 3})
    ((3, [1, 2]), ('a', 'b'))
    """
    _require_node(tree)
    level = NODE_REGISTRY.load().registry.flatten_one_level(tree)
    assert level is not None  # it is a node
    return level


def flatten_one_level_with_keys(tree: PyTree) -> tuple[Iterable[tuple[object, object]], object]:
    """Returns the children of a node, each as a pair of its key and itself, and the metadata of the node.

    Args:
        tree: A pytree node.

    Returns:
        The pairs of keys and children, in order, and the metadata.

    Raises:
        ValueError: If `tree` is a leaf.

    >>> flatten_one_level_with_keys([1, (2,)])
    (((SequenceKey(idx=0), 1), (SequenceKey(idx=1), (2,))), None)
    """
    metadata = flatten_one_level(tree)[1]
    return tuple(children_with_keys(tree)), metadata


def _require_node(tree: PyTree) -> None:
    """Raises ValueError if `tree` is a leaf."""
    if not is_tree_node(type(tree)):
        raise ValueError(f"a leaf has no children: {tree!r} of type {type(tree).__name__} is not a pytree node")


def is_tree_node(typ: object) -> bool:
    """Returns whether instances of a type are pytree nodes.

    Args:
        typ: The type. For any other object the result is False.

    Returns:
        A Python bool. It is True for named tuples and for None's type, too.

    >>> is_tree_node(dict), is_tree_node(int)
    (True, False)
    """
    if not isinstance(typ, type):
        return False
    NODE_REGISTRY.adopt({typ})
    return NODE_REGISTRY.load().registry.is_node(typ)


def treedef_children(treedef: TreeDef) -> list[TreeDef]:
    """Returns the structures of the children of the root of a pytree.

    Args:
        treedef: The structure of the pytree.

    Returns:
        A list of structures; empty for a leaf.

    >>> treedef_children(tree_structure((1, [2, 3])))
    [PyTreeDef(*), PyTreeDef([*, *])]
    """
    return list(treedef.children())


def treedef_is_leaf(treedef: TreeDef) -> bool:
    """Returns whether a structure consists of a single leaf, or of a node without children.

    Args:
        treedef: The structure.

    Returns:
        A Python bool.

    >>> treedef_is_leaf(tree_structure(1)), treedef_is_leaf(tree_structure([1]))
    (True, False)
    """
    return treedef.num_nodes == 1


def treedef_tuple(treedefs: Iterable[TreeDef]) -> TreeDef:
    """Returns the structure of a tuple of pytrees, given their structures.

    Args:
        treedefs: The structures.

    Returns:
        The structure of the tuple.

    Raises:
        TypeError: If one of them is not a structure.

    >>> treedef_tuple([tree_structure(1), tree_structure([2, 3])])
    PyTreeDef((*, [*, *]))
    """
    native, children = NODE_REGISTRY.load(), list(treedefs)
    for child in children:
        if not native.is_treedef(child):
            raise TypeError(f"treedef_tuple takes structures, such as tree_structure returns, got {child!r}")
    return native.make_treedef((tuple, None), children)


make_entry_points(globals())
if TYPE_CHECKING:
    from tracefx.pytrees.trees import TreeDef as PyTreeDef

    default_registry: Registry
else:  # classes of jaxlib, which the first flattening of a pytree loads

    def __getattr__(name: str) -> object:
        if name == "PyTreeDef":
            return NODE_REGISTRY.load().treedef_class
        if name == "default_registry":
            return NODE_REGISTRY.load().registry
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
