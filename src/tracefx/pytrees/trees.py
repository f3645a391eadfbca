"""Trees of containers with arrays at the leaves: flattened, rebuilt, mapped over, and registered types of nodes.

`tree_nodes` says how this stands to jaxlib, whose C++ does the work, and to the types that jax knows.
"""

from __future__ import annotations

import builtins
import collections
import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Self, TypeVar, cast, final, overload

import attrs
import numpy as np
from attrs import frozen

from tracefx.pytrees.paths import DictKey as DictKey
from tracefx.pytrees.paths import FlattenedIndexKey as FlattenedIndexKey
from tracefx.pytrees.paths import GetAttrKey as GetAttrKey
from tracefx.pytrees.paths import KeyPath as KeyPath
from tracefx.pytrees.paths import SequenceKey as SequenceKey
from tracefx.pytrees.paths import keystr as keystr
from tracefx.pytrees.registry import NODE_REGISTRY, children_with_keys, type_name
from tracefx.pytrees.registry import IsLeaf as IsLeaf
from tracefx.pytrees.registry import PyTree as PyTree
from tracefx.pytrees.registry import TreeDef as TreeDef
from tracefx.pytrees.structures import Difference as Difference
from tracefx.pytrees.structures import TreeDescription as TreeDescription
from tracefx.pytrees.structures import describe as describe
from tracefx.pytrees.structures import first_difference as first_difference
from tracefx.pytrees.structures import prefix_error
from tracefx.pytrees.structures import require_same_structure as require_same_structure

T = TypeVar("T")
A = TypeVar("A")
C = TypeVar("C", bound=type)

# --- registering ------------------------------------------------------------------------------------------------------


def register_pytree_node(
    nodetype: type[T],
    flatten_func: Callable[[T], tuple[Iterable[object], A]],
    unflatten_func: Callable[[A, tuple[Any, ...]], T],
    flatten_with_keys_func: Callable[[T], tuple[Iterable[tuple[object, object]], A]] | None = None,
) -> None:
    """Makes instances of a type nodes of trees.

    `flatten_func(value)` gives the children and the rest (metadata: hashable, compared with `==`);
    `unflatten_func(metadata, children)` puts a value together again, and must bear children of any kind.
    `flatten_with_keys_func` gives `(key, child)` pairs instead of children. Types registered through `jax.tree_util`
    need none of this.

    Raises ValueError if the type is a node already.

    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> register_pytree_node(Pair, lambda p: ((p.a, p.b), None), lambda _, ab: Pair(*ab))
    >>> leaves([Pair(1, 2), 3])
    [1, 2, 3]
    """
    NODE_REGISTRY.add(
        nodetype,
        lambda registry: registry.register_node(nodetype, flatten_func, unflatten_func, flatten_with_keys_func),
    )


def register_pytree_with_keys(
    nodetype: type[T],
    flatten_with_keys: Callable[[T], tuple[Iterable[tuple[object, object]], A]],
    unflatten_func: Callable[[A, tuple[Any, ...]], T],
    flatten_func: Callable[[T], tuple[Iterable[object], A]] | None = None,
) -> None:
    """Makes instances of a type nodes whose children have keys of their own in paths.

    `flatten_func`, if given, must give the same children without the keys, and is what flattening without paths uses.

    >>> class Box:
    ...     def __init__(self, inside):
    ...         self.inside = inside
    >>> register_pytree_with_keys(Box, lambda b: ([(GetAttrKey("inside"), b.inside)], None), lambda _, c: Box(*c))
    >>> [keystr(path) for path, _ in flatten_with_path(Box((1, 2)))[0]]
    ['.inside[0]', '.inside[1]']
    """

    def without_keys(value: T) -> tuple[Iterable[object], A]:
        pairs, metadata = flatten_with_keys(value)
        return [child for _, child in pairs], metadata

    register_pytree_node(nodetype, flatten_func or without_keys, unflatten_func, flatten_with_keys)


def register_pytree_node_class(cls: C) -> C:
    """Class decorator: the class says itself how it flattens, by `tree_flatten` and the class method `tree_unflatten`.

    >>> @register_pytree_node_class
    ... class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    ...     def tree_flatten(self):
    ...         return (self.a, self.b), None
    ...     @classmethod
    ...     def tree_unflatten(cls, metadata, children):
    ...         return cls(*children)
    >>> map(lambda x: x + 1, Pair(1, 2)).b
    3
    """
    register_pytree_node(cls, operator.methodcaller("tree_flatten"), cls.tree_unflatten)  # type: ignore[attr-defined]  # asked for above
    return cls


def register_pytree_with_keys_class(cls: C) -> C:
    """Class decorator as `register_pytree_node_class`, for classes with `tree_flatten_with_keys`."""
    register_pytree_with_keys(
        cls,
        operator.methodcaller("tree_flatten_with_keys"),
        cls.tree_unflatten,  # type: ignore[attr-defined]  # asked for above
        operator.methodcaller("tree_flatten") if hasattr(cls, "tree_flatten") else None,
    )
    return cls


@overload
def register_dataclass(
    nodetype: C,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> C: ...
@overload
def register_dataclass(
    nodetype: None = None,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Callable[[C], C]: ...
def register_dataclass(
    nodetype: C | None = None,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> C | Callable[[C], C]:
    """Makes a dataclass (of the standard library or attrs) a node: `data_fields` are children, `meta_fields` metadata.

    Without the two, a field is a child unless its metadata says `static=True` (`tracefx.tree.static`). Fields that
    `__init__` fills and neither list names must stand in `drop_fields`. Also for other classes, if both lists are
    given and the class can be called with those fields as keywords. Usable as a decorator, with or without arguments.

    >>> @register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     w: object
    ...     name: str = dataclasses.field(metadata={"static": True})
    >>> map(lambda x: 2 * x, Layer(3, "first"))
    Layer(w=6, name='first')
    """
    if nodetype is None:
        return lambda cls: register_dataclass(cls, data_fields, meta_fields, drop_fields)
    fields = _init_fields(nodetype)
    if data_fields is None or meta_fields is None:
        if data_fields is not None or meta_fields is not None:
            raise TypeError(
                f"register_dataclass of {type_name(nodetype)}: give both data_fields and meta_fields, or neither"
            )
        if fields is None:
            raise TypeError(
                f"{type_name(nodetype)} is no dataclass: tell register_dataclass its data_fields and meta_fields"
            )
        data_fields = [name for name, static in fields.items() if not static and name not in drop_fields]
        meta_fields = [name for name, static in fields.items() if static and name not in drop_fields]
    data, meta = tuple(data_fields), tuple(meta_fields)
    if both := sorted({*data} & {*meta}):
        raise ValueError(f"register_dataclass of {type_name(nodetype)}: {both} are in both data_fields and meta_fields")
    if fields is not None:
        wanted = fields.keys() - {*drop_fields}
        if missing := sorted(wanted - {*data, *meta}):
            raise ValueError(
                f"register_dataclass of {type_name(nodetype)}: the fields {missing} are in neither data_fields nor"
                " meta_fields; if they have defaults and may be lost, put them into drop_fields"
            )
        if unknown := sorted({*data, *meta} - wanted):
            raise ValueError(
                f"register_dataclass of {type_name(nodetype)}: {unknown} are no arguments of its __init__,"
                f" which takes {list(fields)}"
            )
    cls: type = nodetype
    NODE_REGISTRY.add(cls, lambda registry: registry.register_dataclass_node(cls, list(data), list(meta)))
    return nodetype


def _init_fields(cls: type) -> dict[str, bool] | None:
    """The fields that `__init__` takes, and whether each is static; None for what is no dataclass."""
    if dataclasses.is_dataclass(cls):
        return {f.name: bool(f.metadata.get("static", False)) for f in dataclasses.fields(cls) if f.init}
    if attrs.has(cls):
        if private := [f.name for f in attrs.fields(cls) if f.init and f.alias != f.name]:
            raise TypeError(
                f"register_dataclass of {type_name(cls)}: __init__ has other names for {private} than the attributes;"
                " give these fields an alias, or use register_pytree_with_keys"
            )
        return {f.name: bool(f.metadata.get("static", False)) for f in attrs.fields(cls) if f.init}
    return None


def register_static(cls: type[T]) -> type[T]:
    """Class decorator: instances, which must be hashable, are nodes without leaves, and part of the structure.

    >>> @register_static
    ... class Mode(str): pass
    >>> leaves([Mode("train"), 1.0])
    [1.0]
    """
    register_pytree_node(cls, _no_children, _static_itself)
    return cls


def _no_children(value: T) -> tuple[tuple[()], T]:
    return (), value


def _static_itself(value: T, children: tuple[Any, ...]) -> T:
    return value


class UnsortableKeysError(ValueError, TypeError):
    """A dict has keys that cannot be compared with each other, so its leaves have no order."""

    @classmethod
    def at(cls, tree: Mapping[Any, object], path: KeyPath = ()) -> Self:
        place = f" at {keystr(path)}" if path else ""
        return cls(
            f"the keys of the {type(tree).__name__}{place} cannot be sorted: {list(tree)}. Leaves come in the order of"
            " the sorted keys; use keys of one kind, or an OrderedDict, which keeps its own order"
        )


def _flatten_default_dict(
    tree: collections.defaultdict[Any, object],
) -> tuple[list[tuple[DictKey, object]], tuple[Callable[[], object] | None, tuple[object, ...]]]:
    try:
        keys = tuple(sorted(tree))
    except TypeError:
        raise UnsortableKeysError.at(tree) from None
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
    """Keeps `functools.partial` from merging a partial function with the arguments it already holds."""

    call: functools.partial[T]

    def __call__(self, *args: object, **kwargs: object) -> T:
        return self.call(*args, **kwargs)


class Partial(functools.partial[T]):
    """A `functools.partial` that is a tree: its arguments are children, its function is metadata.

    >>> leaves(Partial(max, 1, default=2))
    [1, 2]
    """

    __slots__ = ()

    def __new__(cls, func: Callable[..., T], /, *args: object, **kwargs: object) -> Self:
        whole: Callable[..., T] = _OpaquePartial(func) if isinstance(func, functools.partial) else func
        return super().__new__(cls, whole, *args, **kwargs)


register_pytree_node(
    Partial,
    lambda partial: ((partial.args, partial.keywords), partial.func),
    lambda func, children: Partial(func, *children[0], **children[1]),
)


# --- flattening -------------------------------------------------------------------------------------------------------

# Types that are certainly leaves, so that finding them costs one look into a set.
_LEAF_TYPES: Final = frozenset(
    {bool, int, float, complex, str, bytes, object, np.ndarray, np.float32, np.int32, np.float64, type(None)}
)


def flatten_with_known_types(
    tree: PyTree, known: frozenset[type], is_leaf: IsLeaf | None = None, *, none_is_leaf: bool = False
) -> tuple[list[object], TreeDef]:
    """`flatten` for callers who know the types of nearly all their leaves: those cost one look into `known` each.

    `known` must not contain a type that anybody registers as a node. With `none_is_leaf`, None is a leaf.
    """
    native = NODE_REGISTRY.native or NODE_REGISTRY.load()
    registry = native.none_is_leaf if none_is_leaf else native.registry
    try:
        flat, treedef = registry.flatten(tree, is_leaf)
        if known.issuperset(builtins.map(type, flat)):
            return flat, treedef
        # What has been adopted may have more to adopt inside; what `is_leaf` keeps whole stays among the leaves.
        seen: set[type] = set()
        while (found := NODE_REGISTRY.adopt({*builtins.map(type, flat)} - known)) - seen:
            seen |= found
            flat, treedef = registry.flatten(tree, is_leaf)
    except ValueError as error:
        raise _explain_flatten_error(error, tree, is_leaf) from error.__cause__
    return flat, treedef


def _explain_flatten_error(error: ValueError, tree: PyTree, is_leaf: IsLeaf | None) -> ValueError:
    """The error, or a better one if it is that the keys of a dict cannot be sorted."""
    if isinstance(error, UnsortableKeysError) or "sorting pytree dictionary keys" in str(error):
        for path, subtree in _iter_dicts(tree, is_leaf, ()):
            try:
                sorted(subtree)
            except TypeError:
                return UnsortableKeysError.at(subtree, path)
    return error


def _iter_dicts(tree: PyTree, is_leaf: IsLeaf | None, path: KeyPath) -> Iterator[tuple[KeyPath, dict[Any, object]]]:
    if is_leaf is not None and is_leaf(tree):
        return
    if type(tree) in (dict, collections.defaultdict):
        yield path, cast(dict[Any, object], tree)
    try:
        children = children_with_keys(tree)
    except ValueError:  # a dict that has been yielded
        return
    for key, child in children:
        yield from _iter_dicts(child, is_leaf, (*path, key))


def flatten(tree: PyTree, is_leaf: IsLeaf | None = None) -> tuple[list[Any], TreeDef]:
    """The leaves of a tree, from left to right, and its structure.

    Tuples, lists, dicts (in the order of their sorted keys), OrderedDicts, defaultdicts, named tuples and registered
    types are nodes; None is a node without leaves; all else is a leaf. `is_leaf(subtree)` may make leaves of nodes.

    Raises UnsortableKeysError (a ValueError) for a dict whose keys cannot be sorted.

    >>> flatten({"b": [1, None], "a": (2, 3)})
    ([2, 3, 1], PyTreeDef({'a': (*, *), 'b': [*, None]}))
    """
    return flatten_with_known_types(tree, _LEAF_TYPES, is_leaf)


def leaves(tree: PyTree, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves of a tree.

    >>> leaves([1, {"x": (2, None)}])
    [1, 2]
    """
    return flatten_with_known_types(tree, _LEAF_TYPES, is_leaf)[0]


def structure(tree: PyTree, is_leaf: IsLeaf | None = None) -> TreeDef:
    """The structure of a tree.

    >>> structure([1, {"x": (2, None)}])
    PyTreeDef([*, {'x': (*, None)}])
    """
    return flatten_with_known_types(tree, _LEAF_TYPES, is_leaf)[1]


@functools.cache
def leaf() -> TreeDef:
    """The structure of a leaf alone.

    >>> leaf() == structure(0)
    True
    """
    return structure(0)


def unflatten(treedef: TreeDef, leaves: Iterable[object]) -> Any:
    """The tree of a structure with these leaves. Raises ValueError if they are too many or too few.

    >>> unflatten(structure({"a": 0, "b": [0, 0]}), "xyz")
    {'a': 'x', 'b': ['y', 'z']}
    """
    return treedef.unflatten(leaves)


def flatten_with_path(
    tree: PyTree, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], TreeDef]:
    """As `flatten`, with each leaf's path before it. With `is_leaf_takes_path`, `is_leaf(path, subtree)` is asked.

    >>> [(keystr(path), leaf) for path, leaf in flatten_with_path({"a": [1, 2]})[0]]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    native = NODE_REGISTRY.native or NODE_REGISTRY.load()
    predicate: Callable[[KeyPath, Any], bool] | None = None
    if is_leaf is not None:
        asked = is_leaf
        if is_leaf_takes_path:
            predicate = lambda path, x: asked(native.convert_path(path), x)  # noqa: E731  # one of two short forms
        else:
            predicate = lambda _, x: asked(x)  # noqa: E731
    try:
        flat, treedef = native.registry.flatten_with_path(tree, predicate)
        seen: set[type] = set()
        while (found := NODE_REGISTRY.adopt({type(leaf) for _, leaf in flat} - _LEAF_TYPES)) - seen:
            seen |= found
            flat, treedef = native.registry.flatten_with_path(tree, predicate)
    except ValueError as error:
        raise _explain_flatten_error(error, tree, None if is_leaf_takes_path else is_leaf) from error.__cause__
    return [(native.convert_path(path), leaf) for path, leaf in flat], treedef


def all_leaves(iterable: Iterable[object], is_leaf: IsLeaf | None = None) -> bool:
    """Whether all the items are leaves.

    >>> all_leaves([1, 2.0]), all_leaves([1, (2,)]), all_leaves([None])
    (True, False, False)
    """
    items = list(iterable)
    flat = leaves(items, is_leaf)
    return len(flat) == len(items) and all(item is leaf for item, leaf in zip(items, flat, strict=True))


def map(f: Callable[..., object], tree: PyTree, *rest: PyTree, is_leaf: IsLeaf | None = None) -> Any:
    """The tree with `f(leaf, *of_the_rest)` in the place of every leaf.

    Each of `rest` must have the structure of `tree`, or whole subtrees where `tree` has leaves; else ValueError.

    >>> map(lambda x, y: x * y, {"a": 2, "b": (3, None)}, {"a": 10, "b": (100, None)})
    {'a': 20, 'b': (300, None)}
    """
    flat, treedef = flatten(tree, is_leaf)
    columns = [flat, *(flatten_up_to(treedef, other, f"argument {i}") for i, other in enumerate(rest, 2))]
    return treedef.unflatten([f(*xs) for xs in zip(*columns, strict=True)])


def flatten_up_to(treedef: TreeDef, tree: PyTree, what: str = "the tree") -> list[object]:
    """The subtrees of `tree` that stand where `treedef` has leaves. Raises ValueError if it has no such structure."""
    try:
        return treedef.flatten_up_to(tree)
    except ValueError as error:
        full = structure(tree)
        if first_difference(treedef, full, prefix=True) is None:
            raise _explain_flatten_error(error, tree, None) from error.__cause__
        raise prefix_error("the first tree", treedef, what, full) from None


@final
class _Missing:
    pass


_MISSING: Final = _Missing()


def reduce(
    function: Callable[[T, Any], T],
    tree: PyTree,
    initializer: T | _Missing = _MISSING,
    is_leaf: IsLeaf | None = None,
) -> T:
    """`functools.reduce` over the leaves of a tree.

    >>> reduce(lambda x, y: x + y, {"a": 1, "b": [2, 3]})
    6
    """
    flat = cast(list[T], leaves(tree, is_leaf))
    if isinstance(initializer, _Missing):
        return functools.reduce(function, flat)
    return functools.reduce(function, flat, initializer)


def transpose(outer_treedef: TreeDef, inner_treedef: TreeDef | None, pytree_to_transpose: PyTree) -> Any:
    """Turns a tree of structure outer over inner into one of inner over outer.

    Without `inner_treedef`, the first subtree's structure is taken. Raises TypeError if the leaves are too many or
    too few for that.

    >>> transpose(structure([0, 0]), structure({"a": 0, "b": 0}), [{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    {'a': [1, 3], 'b': [2, 4]}
    """
    flat, treedef = flatten(pytree_to_transpose)
    if inner_treedef is None:
        inner_treedef = structure(flatten_up_to(outer_treedef, pytree_to_transpose)[0])
    outer, inner = outer_treedef.num_leaves, inner_treedef.num_leaves
    if len(flat) != outer * inner:
        raise TypeError(
            f"transpose wants a tree of the structure\n  {outer_treedef.compose(inner_treedef)}\nbut got\n  {treedef}"
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
    """One entry for every leaf of a tree, from a tree that may have a leaf where the full one has a subtree.

    With `none_is_leaf`, None in `prefix` is an entry as any other, as for `in_axes`; else it stands for a subtree
    without leaves. Raises ValueError, in the name of `what`, if the structures don't fit.

    >>> broadcast_prefix((0, None), (1, {"a": 2, "b": 3}), none_is_leaf=True)
    [0, None, None]
    >>> broadcast_prefix((0, (1,)), (1, [2]), what="in_axes", of="the arguments")
    Traceback (most recent call last):
    ValueError: in_axes must have the structure of the arguments, or a leaf in the place of a subtree.
    They disagree at in_axes[1]:
      there in_axes has a tuple of length 1
      and the arguments has a list of length 1
    in_axes: PyTreeDef((*, (*,)))
    the arguments: PyTreeDef((*, [*]))
    """
    entries, treedef = flatten_with_known_types(prefix, _LEAF_TYPES, is_leaf, none_is_leaf=none_is_leaf)
    full = tree_or_treedef if NODE_REGISTRY.load().is_treedef(tree_or_treedef) else structure(tree_or_treedef)
    if treedef == full:
        return entries
    spread: list[object] = []
    if not _broadcast(iter(entries), treedef, full, spread):
        raise prefix_error(what, treedef, of, full)
    return spread


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
