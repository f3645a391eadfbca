"""Pytrees: flattening, unflattening, mapping and prefixes.

The work is done by jaxlib's C++ pytree module; `registry` describes how it and jax's node types are used.
"""

from __future__ import annotations

import builtins
import collections
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, Self, TypeVar, cast, final

import numpy as np
from attrs import frozen

from tracefx.errors import UnsortableKeysError
from tracefx.pytrees.paths import DictKey as DictKey
from tracefx.pytrees.paths import FlattenedIndexKey as FlattenedIndexKey
from tracefx.pytrees.paths import GetAttrKey as GetAttrKey
from tracefx.pytrees.paths import KeyPath as KeyPath
from tracefx.pytrees.paths import SequenceKey as SequenceKey
from tracefx.pytrees.paths import keystr as keystr
from tracefx.pytrees.registration import register_dataclass as register_dataclass
from tracefx.pytrees.registration import register_pytree_node as register_pytree_node
from tracefx.pytrees.registration import register_pytree_node_class as register_pytree_node_class
from tracefx.pytrees.registration import register_pytree_with_keys as register_pytree_with_keys
from tracefx.pytrees.registration import register_pytree_with_keys_class as register_pytree_with_keys_class
from tracefx.pytrees.registration import register_static as register_static
from tracefx.pytrees.registry import NODE_REGISTRY, children_with_keys
from tracefx.pytrees.registry import IsLeaf as IsLeaf
from tracefx.pytrees.registry import PyTree as PyTree
from tracefx.pytrees.registry import TreeDef as TreeDef
from tracefx.pytrees.structures import Difference as Difference
from tracefx.pytrees.structures import TreeDescription as TreeDescription
from tracefx.pytrees.structures import describe as describe
from tracefx.pytrees.structures import first_difference as first_difference
from tracefx.pytrees.structures import prefix_error
from tracefx.pytrees.structures import require_same_structure as require_same_structure
from tracefx.pytrees.structures import show_structure as show_structure

T = TypeVar("T")
A = TypeVar("A")
C = TypeVar("C", bound=type)

# --- node types -------------------------------------------------------------------------------------------------------


def _unsortable_keys_error(tree: Mapping[Any, object], path: KeyPath = ()) -> UnsortableKeysError:
    """Returns the error for a dict, given its path in the pytree."""
    place = f" at {keystr(path)}" if path else ""
    return UnsortableKeysError(
        f"the keys of the {type(tree).__name__}{place} cannot be sorted: {list(tree)}. Leaves come in the order of"
        " the sorted keys; use keys of one kind, or an OrderedDict, which keeps its own order"
    )


def _flatten_default_dict(
    tree: collections.defaultdict[Any, object],
) -> tuple[list[tuple[DictKey, object]], tuple[Callable[[], object] | None, tuple[object, ...]]]:
    try:
        keys = tuple(sorted(tree))
    except TypeError:
        raise _unsortable_keys_error(tree) from None
    return [(DictKey(key), tree[key]) for key in keys], (tree.default_factory, keys)


register_pytree_with_keys(
    collections.OrderedDict,
    lambda tree: ([(DictKey(key), child) for key, child in tree.items()], tuple(tree)),
    lambda keys, children: collections.OrderedDict(zip(keys, children, strict=True)),
)
register_pytree_with_keys(
    collections.defaultdict,
    _flatten_default_dict,
    lambda meta, children: collections.defaultdict(meta[0], zip(meta[1], children, strict=True)),
)


@frozen
class _OpaquePartial(Generic[T]):
    """Wraps a partial function, so that `functools.partial` does not merge its arguments into an outer one."""

    call: functools.partial[T]

    def __call__(self, *args: object, **kwargs: object) -> T:
        return self.call(*args, **kwargs)


class Partial(functools.partial[T]):
    """A `functools.partial` that is a pytree node: its arguments are children, its function is metadata.

    >>> leaves(Partial(max, 1, default=2))
    [1, 2]
    """

    __slots__ = ()

    def __new__(cls, func: Callable[..., T], /, *args: object, **kwargs: object) -> Self:
        wrapped: Callable[..., T] = _OpaquePartial(func) if isinstance(func, functools.partial) else func
        return super().__new__(cls, wrapped, *args, **kwargs)


register_pytree_node(
    Partial,
    lambda partial: ((partial.args, partial.keywords), partial.func),
    lambda func, children: Partial(func, *children[0], **children[1]),
)


# --- flattening -------------------------------------------------------------------------------------------------------

# Types that are always leaves: recognizing them costs one set lookup.
_LEAF_TYPES: Final = frozenset(
    {bool, int, float, complex, str, bytes, object, np.ndarray, np.float32, np.int32, np.float64, type(None)}
)


def flatten_with_known_types(
    tree: PyTree, known: frozenset[type], is_leaf: IsLeaf | None = None, *, none_is_leaf: bool = False
) -> tuple[list[object], TreeDef]:
    """Flattens a tree; a fast path for callers that know the types of almost all their leaves.

    Args:
        tree: The tree.
        known: Types that are never registered as nodes. Leaves of other types are checked for adoption.
        is_leaf: A predicate that makes subtrees leaves.
        none_is_leaf: Whether None is a leaf rather than a node without leaves.
    """
    native = NODE_REGISTRY.native or NODE_REGISTRY.load()
    registry = native.none_is_leaf if none_is_leaf else native.registry
    try:
        flat, treedef = registry.flatten(tree, is_leaf)
        if known.issuperset(builtins.map(type, flat)):
            return flat, treedef
        # Adopted nodes may contain more types to adopt; nodes that `is_leaf` makes leaves are found again each time.
        seen: set[type] = set()
        while (adopted := NODE_REGISTRY.adopt({*builtins.map(type, flat)} - known)) - seen:
            seen |= adopted
            flat, treedef = registry.flatten(tree, is_leaf)
    except ValueError as error:
        raise _explain_flatten_error(error, tree, is_leaf) from error.__cause__
    return flat, treedef


def flatten_registered(tree: PyTree) -> tuple[list[object], TreeDef]:
    """Flattens a tree without adopting types: instances of types that another library registered are leaves."""
    native = NODE_REGISTRY.native or NODE_REGISTRY.load()
    try:
        return native.registry.flatten(tree, None)
    except ValueError as error:
        raise _explain_flatten_error(error, tree, None) from error.__cause__


def _explain_flatten_error(error: ValueError, tree: PyTree, is_leaf: IsLeaf | None) -> ValueError:
    """Returns a better error if the keys of a dict cannot be sorted; else `error`."""
    if isinstance(error, UnsortableKeysError) or "sorting pytree dictionary keys" in str(error):
        for path, subtree in _iter_dicts(tree, is_leaf, ()):
            try:
                sorted(subtree)
            except TypeError:
                return _unsortable_keys_error(subtree, path)
    return error


def _iter_dicts(tree: PyTree, is_leaf: IsLeaf | None, path: KeyPath) -> Iterator[tuple[KeyPath, dict[Any, object]]]:
    if is_leaf is not None and is_leaf(tree):
        return
    if type(tree) in (dict, collections.defaultdict):
        yield path, cast(dict[Any, object], tree)
    try:
        children = children_with_keys(tree)
    except ValueError:  # the dict that was just yielded
        return
    for key, child in children:
        yield from _iter_dicts(child, is_leaf, (*path, key))


def flatten(tree: PyTree, is_leaf: IsLeaf | None = None) -> tuple[list[Any], TreeDef]:
    """Flattens a pytree to its leaves and its structure.

    Args:
        tree: The tree.
        is_leaf: A predicate that makes a subtree a leaf. None by default.

    Returns:
        The leaves from left to right, and the structure.

    Raises:
        UnsortableKeysError: If the keys of a dict cannot be sorted. It is a ValueError and a TypeError.

    >>> flatten({"b": [1, None], "a": (2, 3)})
    ([2, 3, 1], PyTreeDef({'a': (*, *), 'b': [*, None]}))
    >>> numbers, treedef = flatten({"w": 1, "b": (2, 3)})
    >>> unflatten(treedef, [10 * x for x in numbers])
    {'b': (20, 30), 'w': 10}
    """
    return flatten_with_known_types(tree, _LEAF_TYPES, is_leaf)


def leaves(tree: PyTree, is_leaf: IsLeaf | None = None) -> list[Any]:
    """Returns the leaves of a pytree from left to right.

    Args:
        tree: The tree.
        is_leaf: A predicate that makes a subtree a leaf. None by default. None in a tree is a node without leaves.

    Returns:
        The list of leaves. Those of a dict come in the order of its sorted keys.

    Raises:
        UnsortableKeysError: If the keys of a dict cannot be sorted. It is a ValueError and a TypeError.

    >>> leaves([1, {"x": (2, None)}])
    [1, 2]
    >>> leaves([1, {"x": (2, None)}], is_leaf=lambda node: isinstance(node, tuple))
    [1, (2, None)]
    """
    return flatten_with_known_types(tree, _LEAF_TYPES, is_leaf)[0]


def structure(tree: PyTree, is_leaf: IsLeaf | None = None) -> TreeDef:
    """Returns the structure of a pytree.

    Args:
        tree: The tree.
        is_leaf: A predicate that makes a subtree a leaf. None by default.

    Returns:
        The structure: hashable, compared by value, printed with `*` for leaves.

    Raises:
        UnsortableKeysError: If the keys of a dict cannot be sorted. It is a ValueError and a TypeError.

    >>> structure([1, {"x": (2, None)}])
    PyTreeDef([*, {'x': (*, None)}])
    """
    return flatten_with_known_types(tree, _LEAF_TYPES, is_leaf)[1]


@functools.cache
def leaf() -> TreeDef:
    """Returns the structure of a single leaf.

    >>> leaf() == structure(0)
    True
    """
    return structure(0)


def unflatten(treedef: TreeDef, leaves: Iterable[object]) -> Any:
    """Builds the pytree with this structure and these leaves.

    Args:
        treedef: The structure.
        leaves: The leaves, from left to right. They may be any objects.

    Returns:
        The pytree.

    Raises:
        ValueError: If there are too few or too many leaves.

    >>> unflatten(structure({"a": 0, "b": [0, 0]}), "xyz")
    {'a': 'x', 'b': ['y', 'z']}
    """
    return treedef.unflatten(leaves)


def flatten_with_path(
    tree: PyTree, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], TreeDef]:
    """Flattens a pytree to pairs of key paths and leaves, and its structure.

    Args:
        tree: The tree.
        is_leaf: A predicate that makes a subtree a leaf. None by default.
        is_leaf_takes_path: Whether it is called as `is_leaf(path, subtree)`. False by default.

    Returns:
        The list of pairs `(path, leaf)`, and the structure. A path is a tuple of keys; `keystr` converts it to text.

    Raises:
        UnsortableKeysError: If the keys of a dict cannot be sorted. It is a ValueError and a TypeError.

    >>> [(keystr(path), leaf) for path, leaf in flatten_with_path({"a": [1, 2]})[0]]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    native = NODE_REGISTRY.native or NODE_REGISTRY.load()
    predicate: Callable[[KeyPath, Any], bool] | None = None
    if is_leaf is not None:
        user_is_leaf = is_leaf
        if is_leaf_takes_path:
            predicate = lambda path, x: user_is_leaf(native.convert_path(path), x)  # noqa: E731
        else:
            predicate = lambda _, x: user_is_leaf(x)  # noqa: E731
    try:
        flat, treedef = native.registry.flatten_with_path(tree, predicate)
        seen: set[type] = set()
        while (adopted := NODE_REGISTRY.adopt({type(leaf) for _, leaf in flat} - _LEAF_TYPES)) - seen:
            seen |= adopted
            flat, treedef = native.registry.flatten_with_path(tree, predicate)
    except ValueError as error:
        raise _explain_flatten_error(error, tree, None if is_leaf_takes_path else is_leaf) from error.__cause__
    return [(native.convert_path(path), leaf) for path, leaf in flat], treedef


def all_leaves(iterable: Iterable[object], is_leaf: IsLeaf | None = None) -> bool:
    """Returns whether all items are leaves.

    Args:
        iterable: The items.
        is_leaf: A predicate that makes a subtree a leaf. None by default.

    Returns:
        False if an item is a node, such as a tuple or None.

    >>> all_leaves([1, 2.0]), all_leaves([1, (2,)]), all_leaves([None])
    (True, False, False)
    """
    items = list(iterable)
    flat = leaves(items, is_leaf)
    return len(flat) == len(items) and all(item is leaf for item, leaf in zip(items, flat, strict=True))


def map(f: Callable[..., object], tree: PyTree, *rest: PyTree, is_leaf: IsLeaf | None = None) -> Any:
    """Applies a function to corresponding leaves, as `tracefx.tree.map`, whose errors have filtered tracebacks."""
    flat, treedef = flatten(tree, is_leaf)
    columns = [flat, *(flatten_up_to(treedef, other, f"tree {i}") for i, other in enumerate(rest, 2))]
    return treedef.unflatten([f(*xs) for xs in zip(*columns, strict=True)])


def flatten_up_to(treedef: TreeDef, tree: PyTree, what: str = "the tree") -> list[object]:
    """Returns the subtrees of `tree` at the leaves of `treedef`. Raises ValueError unless `treedef` is a prefix."""
    try:
        return treedef.flatten_up_to(tree)
    except ValueError as error:
        full = structure(tree)
        if first_difference(treedef, full, prefix=True) is None:
            raise _explain_flatten_error(error, tree, None) from error.__cause__
        raise prefix_error("the first tree", treedef, what, full) from None


@final
class Missing:
    """The type of a default value that differs from None."""


MISSING: Final = Missing()


def reduce(
    function: Callable[[T, Any], T],
    tree: PyTree,
    initializer: T | Missing = MISSING,
    is_leaf: IsLeaf | None = None,
) -> T:
    """Combines the leaves of a pytree from left to right, like `functools.reduce`.

    Args:
        function: Combines the accumulated value with a leaf.
        tree: The tree.
        initializer: The initial value; by default the first leaf.
        is_leaf: A predicate that makes a subtree a leaf. None by default.

    Returns:
        The accumulated value; `initializer` if there are no leaves.

    Raises:
        TypeError: If there are neither leaves nor an `initializer`.

    >>> reduce(lambda x, y: x + y, {"a": 1, "b": [2, 3]})
    6
    """
    flat: list[T] = leaves(tree, is_leaf)
    if isinstance(initializer, Missing):
        return functools.reduce(function, flat)
    return functools.reduce(function, flat, initializer)


def transpose(outer_treedef: TreeDef, inner_treedef: TreeDef | None, pytree_to_transpose: PyTree) -> Any:
    """Turns a tree of trees inside out: from structure outer-of-inner to inner-of-outer.

    Args:
        outer_treedef: The outer structure of the argument.
        inner_treedef: The inner one; by default that of the first subtree.
        pytree_to_transpose: The tree.

    Returns:
        A tree of the inner structure, with trees of the outer structure as leaves.

    Raises:
        TypeError: If the number of leaves does not match.

    >>> transpose(structure([0, 0]), structure({"a": 0, "b": 0}), [{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    {'a': [1, 3], 'b': [2, 4]}
    """
    flat, treedef = flatten(pytree_to_transpose)
    if inner_treedef is None:
        inner_treedef = structure(flatten_up_to(outer_treedef, pytree_to_transpose)[0])
    outer, inner = outer_treedef.num_leaves, inner_treedef.num_leaves
    if len(flat) != outer * inner:
        raise TypeError(
            f"transpose: the tree must be {show_structure(outer_treedef.compose(inner_treedef))}, "
            f"but it is {show_structure(treedef)}"
        )
    columns = [flat[i::inner] for i in range(inner)]
    return inner_treedef.unflatten([outer_treedef.unflatten(column) for column in columns])


# --- prefixes ---------------------------------------------------------------------------------------------------------


def broadcast_prefix(
    prefix: PyTree,
    tree_or_treedef: PyTree | TreeDef,
    is_leaf: IsLeaf | None = None,
    *,
    none_is_leaf: bool = False,
    what: str = "the prefix",
    of: str = "the full tree",
) -> list[object]:
    """Returns one entry per leaf of a full tree, from a prefix: a tree that may have leaves in place of subtrees.

    Args:
        prefix: The prefix, e.g. `in_axes`.
        tree_or_treedef: The full tree, or its structure.
        is_leaf: A predicate that makes subtrees of `prefix` leaves.
        none_is_leaf: Whether None in `prefix` is an entry, rather than a node without leaves.
        what: The name of the prefix in errors.
        of: The name of the full tree in errors.

    Raises:
        ValueError: If `prefix` is not a prefix of the full tree.

    >>> broadcast_prefix((0, None), (1, {"a": 2, "b": 3}), none_is_leaf=True)
    [0, None, None]
    >>> broadcast_prefix((0, (1,)), (1, [2]), what="in_axes", of="the arguments")
    Traceback (most recent call last):
    ValueError: in_axes must have the structure of the arguments, or leaves for subtrees. They differ at [1]:
      in_axes: a tuple of length 1
      the arguments: a list of length 1
    as a whole:
      in_axes: a tuple of length 2, (*, (*,))
      the arguments: a tuple of length 2, (*, [*])
    """
    entries, treedef = flatten_with_known_types(prefix, _LEAF_TYPES, is_leaf, none_is_leaf=none_is_leaf)
    full = tree_or_treedef if NODE_REGISTRY.load().is_treedef(tree_or_treedef) else structure(tree_or_treedef)
    if treedef == full:
        return entries
    broadcast: list[object] = []
    if not _broadcast(iter(entries), treedef, full, broadcast):
        raise prefix_error(what, treedef, of, full)
    return broadcast


def _broadcast(entries: Iterator[object], prefix: TreeDef, full: TreeDef, out: list[object]) -> bool:
    data = prefix.node_data()
    if data is None:
        out.extend([next(entries)] * full.num_leaves)
        return True
    if data != full.node_data():
        return False
    children, others = prefix.children(), full.children()
    return len(children) == len(others) and all(
        _broadcast(entries, child, other, out) for child, other in zip(children, others, strict=True)
    )
