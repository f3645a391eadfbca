"""Functions of pytrees: the fast entry points of `flatten` and `map`, and functions of paths, leaves and prefixes."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias, TypeVar, overload

from tracefx.core import Array
from tracefx.filtered_tracebacks import filter_traceback
from tracefx.pytrees.trees import (
    MISSING,
    IsLeaf,
    KeyPath,
    Missing,
    PyTree,
    broadcast_prefix,
    flatten_up_to,
    flatten_with_path,
)
from tracefx.pytrees.trees import flatten as _flatten
from tracefx.pytrees.trees import leaves as _leaves
from tracefx.pytrees.trees import map as _map
from tracefx.pytrees.trees import structure as _structure

T = TypeVar("T")
R = TypeVar("R", covariant=True)


class _Flattening(Protocol[R]):
    def __call__(self, tree: PyTree, is_leaf: IsLeaf | None = None) -> R: ...


def _entry_point(f: _Flattening[R]) -> _Flattening[R]:
    """Does what `api_boundary` does, in a fifth of its time, since the parameters are known."""

    @functools.wraps(f)
    def call(tree: PyTree, is_leaf: IsLeaf | None = None) -> R:
        try:
            return f(tree, is_leaf)
        except Exception as error:
            filter_traceback(error)
            raise

    call.__module__ = __name__  # pickle looks it up there
    return call


flatten: Final = _entry_point(_flatten)
leaves: Final = _entry_point(_leaves)
structure: Final = _entry_point(_structure)

ArrayTree: TypeAlias = (
    "Array | tuple[ArrayTree, ...] | Mapping[str, ArrayTree] | list[Array] | list[tuple[Array, ...]] | "
    "list[tuple[Array, Array]] | list[dict[str, Array]]"
)
"""Trees of arrays whose structure their type determines."""
Arrays = TypeVar("Arrays", bound=ArrayTree)


@overload
def map(f: Callable[[Array], Array], tree: Arrays, /) -> Arrays: ...
@overload
def map(f: Callable[[Array, Array], Array], tree: Arrays, other: Arrays, /) -> Arrays: ...
@overload
def map(f: Callable[[Array, Array, Array], Array], tree: Arrays, b: Arrays, c: Arrays, /) -> Arrays: ...
@overload
def map(f: Callable[..., object], tree: PyTree, *rest: PyTree, is_leaf: IsLeaf | None = None) -> Any: ...
def map(f: Callable[..., object], tree: PyTree, *rest: PyTree, is_leaf: IsLeaf | None = None) -> Any:
    """Applies a function to corresponding leaves of one or more pytrees.

    None is a node without leaves: `f` is not called for it, and the result has None there. To treat it as a leaf, pass
    `is_leaf=lambda x: x is None`.

    Args:
        f: The function, called with one leaf of each tree.
        tree: The tree that determines the structure of the result.
        *rest: Trees with the same structure, or with subtrees where `tree` has leaves.
        is_leaf: A predicate that makes subtrees of `tree` leaves. None by default.

    Returns:
        A tree with the structure of `tree`.

    Raises:
        ValueError: If the structure of a tree in `rest` does not match.

    >>> map(lambda x, y: x * y, {"a": 2, "b": (3, None)}, {"a": 10, "b": (100, None)})
    {'a': 20, 'b': (300, None)}
    """
    try:
        return _map(f, tree, *rest) if is_leaf is None else _map(f, tree, *rest, is_leaf=is_leaf)
    except Exception as error:
        filter_traceback(error)
        raise


def all(tree: PyTree, *, is_leaf: IsLeaf | None = None) -> bool:
    """Returns whether all leaves of a pytree are true.

    Args:
        tree: The pytree.
        is_leaf: A predicate of nodes that are treated as leaves. None by default.

    Returns:
        A Python bool; True for a pytree without leaves.

    >>> all({"a": True, "b": (1, None)}), all([True, 0])
    (True, False)
    """
    return builtins.all(leaves(tree, is_leaf))


def reduce_associative(
    operation: Callable[[T, T], T], tree: PyTree, *, identity: T | Missing = MISSING, is_leaf: IsLeaf | None = None
) -> T:
    """Combines the leaves of a pytree by an associative operation, in a balanced tree.

    The depth of the computation is logarithmic in the number of leaves, unlike that of `reduce`.

    Args:
        operation: An associative function of two values.
        tree: The pytree.
        identity: The result for a pytree without leaves; by default that is an error.
        is_leaf: A predicate of nodes that are treated as leaves. None by default.

    Returns:
        The combined value.

    Raises:
        TypeError: If there are no leaves and no `identity`.

    >>> reduce_associative(lambda x, y: f"({x}{y})", ["a", "b", "c", "d"])
    '((ab)(cd))'
    """

    def halves(items: list[T]) -> T:
        if len(items) == 1:
            return items[0]
        middle = len(items) // 2
        return operation(halves(items[:middle]), halves(items[middle:]))

    flat: list[T] = leaves(tree, is_leaf)
    if flat:
        return halves(flat)
    if isinstance(identity, Missing):
        raise TypeError("reduce_associative of a tree without leaves needs an identity")
    return identity


def leaves_with_path(
    tree: PyTree, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """Returns the leaves of a pytree, each as a pair of its path and itself.

    Args:
        tree: The pytree.
        is_leaf: A predicate of nodes that are treated as leaves. None by default.
        is_leaf_takes_path: Whether `is_leaf` takes the path as its first argument. False by default.

    Returns:
        A list of pairs `(path, leaf)`.

    >>> from tracefx.tree import keystr
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
    """Applies a function to the paths and leaves of pytrees, and returns a pytree of the results.

    Args:
        f: A function `f(path, leaf, *other_leaves)`.
        tree: The first pytree, which determines the structure.
        *rest: Other pytrees, which have this structure or one with subtrees in place of leaves.
        is_leaf: A predicate of nodes of `tree` that are treated as leaves. None by default.
        is_leaf_takes_path: Whether `is_leaf` takes the path as its first argument. False by default.

    Returns:
        A pytree of the structure of `tree`.

    Raises:
        ValueError: If a pytree has another structure.

    >>> from tracefx.tree import keystr
    >>> map_with_path(lambda path, x: f"{keystr(path)} = {x}", {"a": [1, 2]})
    {'a': ["['a'][0] = 1", "['a'][1] = 2"]}
    """
    flat, treedef = flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    columns = [flatten_up_to(treedef, other, f"argument {i}") for i, other in enumerate(rest, 2)]
    return treedef.unflatten([f(path, leaf, *others) for (path, leaf), *others in zip(flat, *columns, strict=True)])


def broadcast(prefix_tree: PyTree, full_tree: PyTree, is_leaf: IsLeaf | None = None) -> Any:
    """Returns a pytree of the structure of `full_tree`, with each leaf of a prefix repeated in its subtree.

    Args:
        prefix_tree: A prefix of `full_tree`: it may have a leaf where that has a subtree.
        full_tree: The pytree that determines the structure.
        is_leaf: A predicate of nodes of `prefix_tree` that are treated as leaves. None by default.

    Returns:
        A pytree of the structure of `full_tree`, whose leaves are those of `prefix_tree`.

    Raises:
        ValueError: If `prefix_tree` is not a prefix of `full_tree`.

    >>> broadcast((0, 1), ("x", {"a": "y", "b": "z"}))
    (0, {'a': 1, 'b': 1})
    """
    entries = broadcast_prefix(prefix_tree, full_tree, is_leaf, what="prefix_tree", of="full_tree")
    return structure(full_tree).unflatten(entries)
