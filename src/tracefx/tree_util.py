"""Trees under the names of `jax.tree_util`: the functions of `tracefx.tree`, and what looks at one level of a tree.

>>> from tracefx import tree_util
>>> tree_util.tree_map(lambda x, y: x + y, {"w": 1, "b": (2, None)}, {"w": 10, "b": (20, None)})
{'b': (22, None), 'w': 11}
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from tracefx.pytrees.registry import NODE_REGISTRY, Registry, children_with_keys
from tracefx.pytrees.trees import (
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
from tracefx.pytrees.trees import flatten as tree_flatten
from tracefx.pytrees.trees import flatten_with_path as tree_flatten_with_path
from tracefx.pytrees.trees import leaves as tree_leaves
from tracefx.pytrees.trees import map as tree_map
from tracefx.pytrees.trees import reduce as tree_reduce
from tracefx.pytrees.trees import structure as tree_structure
from tracefx.pytrees.trees import transpose as tree_transpose
from tracefx.pytrees.trees import unflatten as tree_unflatten
from tracefx.tree import all as tree_all
from tracefx.tree import broadcast as tree_broadcast
from tracefx.tree import leaves_with_path as tree_leaves_with_path
from tracefx.tree import map_with_path as tree_map_with_path
from tracefx.tree import reduce_associative as tree_reduce_associative

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
"""A member of a path: a key of one of the four classes, or a user's own."""


def flatten_one_level(tree: PyTree) -> tuple[Iterable[object], object]:
    """The children of a node, and its metadata. ValueError for a leaf.

    >>> flatten_one_level({"b": [1, 2], "a": 3})
    ((3, [1, 2]), ('a', 'b'))
    """
    _require_node(tree)
    level = NODE_REGISTRY.load().registry.flatten_one_level(tree)
    assert level is not None  # it is a node
    return level


def flatten_one_level_with_keys(tree: PyTree) -> tuple[Iterable[tuple[object, object]], object]:
    """The children of a node, each with its key before it, and its metadata. ValueError for a leaf.

    >>> flatten_one_level_with_keys([1, (2,)])
    (((SequenceKey(idx=0), 1), (SequenceKey(idx=1), (2,))), None)
    """
    metadata = flatten_one_level(tree)[1]
    return tuple(children_with_keys(tree)), metadata


def _require_node(tree: PyTree) -> None:
    if not is_tree_node(type(tree)):
        raise ValueError(f"a leaf has no children: {tree!r} of type {type(tree).__name__} is no node of trees")


def is_tree_node(typ: object) -> bool:
    """Whether instances of a type are nodes of trees.

    >>> is_tree_node(dict), is_tree_node(int)
    (True, False)
    """
    if not isinstance(typ, type):
        return False
    NODE_REGISTRY.adopt({typ})
    return NODE_REGISTRY.load().registry.is_node(typ)


def treedef_children(treedef: TreeDef) -> list[TreeDef]:
    """The structures of the subtrees of a tree.

    >>> treedef_children(tree_structure((1, [2, 3])))
    [PyTreeDef(*), PyTreeDef([*, *])]
    """
    return list(treedef.children())


def treedef_is_leaf(treedef: TreeDef) -> bool:
    """Whether a structure is that of one leaf, or of a node without subtrees.

    >>> treedef_is_leaf(tree_structure(1)), treedef_is_leaf(tree_structure([1]))
    (True, False)
    """
    return treedef.num_nodes == 1


def treedef_tuple(treedefs: Iterable[TreeDef]) -> TreeDef:
    """The structure of a tuple of trees that have the structures given. TypeError for what is no structure.

    >>> treedef_tuple([tree_structure(1), tree_structure([2, 3])])
    PyTreeDef((*, [*, *]))
    """
    native, children = NODE_REGISTRY.load(), list(treedefs)
    for child in children:
        if not native.is_treedef(child):
            raise TypeError(f"treedef_tuple takes structures of trees, as tree_structure gives them, got {child!r}")
    return native.make_treedef((tuple, None), children)


if TYPE_CHECKING:
    from tracefx.pytrees.trees import TreeDef as PyTreeDef

    default_registry: Registry
else:  # jaxlib's own, which is loaded by the first tree that is flattened

    def __getattr__(name: str) -> object:
        if name == "PyTreeDef":
            return NODE_REGISTRY.load().treedef_class
        if name == "default_registry":
            return NODE_REGISTRY.load().registry
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
