"""Trees of containers with arrays at the leaves, flattened and rebuilt by the C++ module that jaxlib ships.

tracefx has a registry of its own. jaxlib's default registry belongs to jax, which registers types there when it is
imported and fails if they are there already: it is read here, never written. A type that some library registered
there (through `jax.tree_util`) is adopted the first time one of its instances turns up as a leaf: it gets an entry
here that asks jaxlib's default registry for its children.

Which types are nodes is, by its nature, known to the whole process. `_NODES` holds it; nothing else here is mutable.
"""

from __future__ import annotations

import builtins
import collections
import dataclasses
import functools
import importlib
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, cast, final, overload

import attrs
import numpy as np
from attrs import field, frozen
from typing_extensions import Self, override

PyTree: TypeAlias = object
"""Any value: a container that is a node with trees inside, or else a leaf."""

IsLeaf: TypeAlias = Callable[[Any], bool]
"""Says of a subtree that it is a leaf, whatever its type. (Its argument is `Any`, so that `def f(x: Array)` fits.)"""

T = TypeVar("T")
A = TypeVar("A")
C = TypeVar("C", bound=type)


# --- paths ------------------------------------------------------------------------------------------------------------


@frozen
class SequenceKey:
    """Where a child stands in a list or tuple."""

    idx: int

    @override
    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@frozen
class DictKey:
    """The key of a child of a dict."""

    key: object

    @override
    def __str__(self) -> str:
        return f"[{self.key!r}]"


@frozen
class GetAttrKey:
    """The attribute, or named tuple field, that holds a child."""

    name: str

    @override
    def __str__(self) -> str:
        return f".{self.name}"


@frozen
class FlattenedIndexKey:
    """The position of a child of a node whose type was registered without keys."""

    key: int

    @override
    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


KeyPath: TypeAlias = tuple[object, ...]
"""The way from the root of a tree to one of its subtrees; its members are the four classes above, or a user's own."""


def keystr(path: Iterable[object], *, simple: bool = False, separator: str = "") -> str:
    """The text of a path.

    With `simple`, only the indices, keys and names themselves, which then want a `separator`.

    >>> path = (DictKey("w"), SequenceKey(0), GetAttrKey("x"))
    >>> keystr(path), keystr(path, simple=True, separator="/")
    ("['w'][0].x", 'w/0/x')
    """
    return separator.join(builtins.map(_simple_text if simple else str, path))


def _simple_text(key: object) -> str:
    match key:
        case SequenceKey(inner) | DictKey(inner) | GetAttrKey(inner) | FlattenedIndexKey(inner):
            return str(inner)
        case _:
            return str(key)


# --- what is used of jaxlib -------------------------------------------------------------------------------------------


class TreeDef(Protocol):
    """The structure of a tree without its leaves: hashable, compared by value, printed like the tree with `*` leaves.

    The objects are jaxlib's own, because every call of a jitted function flattens and compares. They don't pickle;
    `describe` gives a value that does.
    """

    @property
    def num_leaves(self) -> int: ...
    @property
    def num_nodes(self) -> int: ...
    # A rebuilt tree has the type its structure says when it runs; no annotation can.
    def unflatten(self, leaves: Iterable[object], /) -> Any: ...
    def flatten_up_to(self, tree: PyTree, /) -> list[object]: ...
    def children(self) -> list[Self]: ...
    def compose(self, inner: Self, /) -> Self: ...
    def node_data(self) -> tuple[type, object] | None: ...


class _Registry(Protocol):
    def flatten(self, tree: PyTree, is_leaf: IsLeaf | None, /) -> tuple[list[object], TreeDef]: ...
    def flatten_with_path(
        self, tree: PyTree, is_leaf: Callable[[KeyPath, Any], bool] | None, /
    ) -> tuple[list[tuple[KeyPath, object]], TreeDef]: ...
    def flatten_one_level(self, tree: PyTree, /) -> tuple[Iterable[object], object] | None: ...
    def flatten_one_level_with_keys(self, tree: PyTree, /) -> tuple[Iterable[tuple[object, object]], object] | None: ...
    def is_node(self, type: type, /) -> bool: ...
    def register_node(
        self,
        type: type,
        flatten: Callable[[Any], tuple[Iterable[object], object]],
        unflatten: Callable[[Any, tuple[Any, ...]], object],
        flatten_with_keys: Callable[[Any], tuple[Iterable[tuple[object, object]], object]] | None,
        /,
    ) -> object: ...
    def register_dataclass_node(self, type: type, data: Sequence[str], meta: Sequence[str], /) -> object: ...


class _TreeDefType(Protocol):
    def from_node_data_and_children(
        self, registry: _Registry, node_data: tuple[type, object] | None, children: Iterable[TreeDef], /
    ) -> TreeDef: ...


class _RegistryType(Protocol):
    def __call__(self, *, enable_none: bool = True) -> _Registry: ...


class _PytreeModule(Protocol):
    @property
    def PyTreeRegistry(self) -> _RegistryType: ...
    @property
    def PyTreeDef(self) -> _TreeDefType: ...
    @property
    def SequenceKey(self) -> type: ...
    @property
    def DictKey(self) -> type: ...
    @property
    def GetAttrKey(self) -> type: ...
    @property
    def FlattenedIndexKey(self) -> type: ...
    def default_registry(self) -> _Registry: ...


@final
@frozen(eq=False)
class _Native:
    """jaxlib's pytree module with the registries used here."""

    registry: _Registry
    none_is_leaf: _Registry
    default: _Registry  # jax's: read only
    treedef_type: _TreeDefType
    own_key: Mapping[type, Callable[[Any], object]]

    def node(self, data: tuple[type, object] | None, children: Iterable[TreeDef]) -> TreeDef:
        return self.treedef_type.from_node_data_and_children(self.registry, data, children)

    def own_path(self, path: Iterable[object]) -> KeyPath:
        """The path with jaxlib's keys, whose classes exist only once jaxlib is loaded, replaced by the ones above."""
        return tuple([self.own_key.get(type(key), _same)(key) for key in path])


def _same(key: object) -> object:
    return key


def _load() -> _Native:
    # Not imported at the top: loading jaxlib takes longer than the whole of `import tracefx`, and programs that only
    # compute eagerly never need it.
    module = cast(_PytreeModule, importlib.import_module("jaxlib._jax.pytree"))
    return _Native(
        registry=module.PyTreeRegistry(),
        none_is_leaf=module.PyTreeRegistry(enable_none=False),
        default=module.default_registry(),
        treedef_type=module.PyTreeDef,
        own_key={
            module.SequenceKey: lambda key: SequenceKey(key.idx),
            module.DictKey: lambda key: DictKey(key.key),
            module.GetAttrKey: lambda key: GetAttrKey(key.name),
            module.FlattenedIndexKey: lambda key: FlattenedIndexKey(key.key),
        },
    )


@final
class _Nodes:
    """The types that are nodes besides the built-in containers, and jaxlib once it is loaded."""

    __slots__ = ("_adopted", "_installers", "_lock", "native")

    def __init__(self) -> None:
        self.native: _Native | None = None
        self._lock = threading.RLock()
        self._installers: dict[type, Callable[[_Registry], object]] = {}
        self._adopted: set[type] = set()

    def load(self) -> _Native:
        with self._lock:
            native = self.native
            if native is None:
                native = _load()
                for install in self._installers.values():
                    install(native.none_is_leaf)
                    install(native.registry)
                self.native = native
            return native

    def add(self, nodetype: type, install: Callable[[_Registry], object]) -> None:
        """Makes a type a node, now or when jaxlib is loaded."""
        if not isinstance(nodetype, type):
            raise TypeError(f"only a class can be registered as a pytree node, not {nodetype!r}")
        with self._lock:
            if nodetype in _BUILT_IN or nodetype in self._installers:
                raise ValueError(f"{_name(nodetype)} is a pytree node already; a type can be registered once")
            if self.native is not None:
                # In this order, because whoever finds a type in `registry` relies on it being in both.
                install(self.native.none_is_leaf)
                install(self.native.registry)
            self._installers[nodetype] = install

    def knows(self, nodetype: type) -> bool:
        return nodetype in self._installers

    def adopt(self, types: Iterable[type]) -> set[type]:
        """Those of the types, all met as leaves, that jaxlib's default registry calls nodes; from now on they are."""
        native = self.native or self.load()
        found = set()
        for leaf_type in types:
            if native.default.is_node(leaf_type):
                if not native.registry.is_node(leaf_type):
                    with self._lock:
                        if leaf_type not in self._installers:
                            self.add(leaf_type, _adoption(native, leaf_type))
                            self._adopted.add(leaf_type)
                if leaf_type in self._adopted:
                    found.add(leaf_type)
        return found


def _adoption(native: _Native, nodetype: type) -> Callable[[_Registry], object]:
    default = native.default
    (_, leaf) = default.flatten(0, None)

    def unflatten(metadata: object, children: tuple[object, ...]) -> object:
        one_level = native.treedef_type.from_node_data_and_children(
            default, (nodetype, metadata), [leaf] * len(children)
        )
        return one_level.unflatten(children)

    return lambda registry: registry.register_node(
        nodetype,
        cast(Callable[[object], tuple[Iterable[object], object]], default.flatten_one_level),
        unflatten,
        cast(Callable[[object], tuple[Iterable[tuple[object, object]], object]], default.flatten_one_level_with_keys),
    )


_BUILT_IN: Final = frozenset({type(None), tuple, list, dict})
_NODES: Final = _Nodes()


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
    _NODES.add(
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
                f"register_dataclass of {_name(nodetype)}: give both data_fields and meta_fields, or neither"
            )
        if fields is None:
            raise TypeError(
                f"{_name(nodetype)} is no dataclass, so register_dataclass must be told its data_fields and meta_fields"
            )
        data_fields = [name for name, static in fields.items() if not static and name not in drop_fields]
        meta_fields = [name for name, static in fields.items() if static and name not in drop_fields]
    data, meta = tuple(data_fields), tuple(meta_fields)
    if both := sorted({*data} & {*meta}):
        raise ValueError(f"register_dataclass of {_name(nodetype)}: {both} are in both data_fields and meta_fields")
    if fields is not None:
        wanted = fields.keys() - {*drop_fields}
        if missing := sorted(wanted - {*data, *meta}):
            raise ValueError(
                f"register_dataclass of {_name(nodetype)}: the fields {missing} are in neither data_fields nor"
                " meta_fields; if they have defaults and may be lost, put them into drop_fields"
            )
        if unknown := sorted({*data, *meta} - wanted):
            raise ValueError(
                f"register_dataclass of {_name(nodetype)}: {unknown} are no arguments of its __init__,"
                f" which takes {list(fields)}"
            )
    cls: type = nodetype
    _NODES.add(cls, lambda registry: registry.register_dataclass_node(cls, list(data), list(meta)))
    return nodetype


def _init_fields(cls: type) -> dict[str, bool] | None:
    """The fields that `__init__` takes, and whether each is static; None for what is no dataclass."""
    if dataclasses.is_dataclass(cls):
        return {f.name: bool(f.metadata.get("static", False)) for f in dataclasses.fields(cls) if f.init}
    if attrs.has(cls):
        # By alias, which is what __init__ calls a private field; such a field is then found missing as an attribute.
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
class _Whole:
    """Keeps `functools.partial` from merging a partial function with the arguments it already holds."""

    call: functools.partial[Any]

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.call(*args, **kwargs)


class Partial(functools.partial[T]):
    """A `functools.partial` that is a tree: its arguments are children, its function is metadata.

    >>> leaves(Partial(max, 1, default=2))
    [1, 2]
    """

    __slots__ = ()

    def __new__(cls, func: Callable[..., T], /, *args: object, **kwargs: object) -> Self:
        whole = _Whole(func) if isinstance(func, functools.partial) else func
        return super().__new__(cls, whole, *args, **kwargs)


register_pytree_node(
    Partial,
    lambda partial: ((partial.args, partial.keywords), partial.func),
    lambda func, children: Partial(func, *children[0], **children[1]),
)


# --- flattening -------------------------------------------------------------------------------------------------------

# Types that are certainly leaves, so that finding them costs one look into a set.
_PLAIN: Final = frozenset({bool, int, float, complex, str, bytes, object, np.ndarray, np.float32, np.int32, np.float64})


def flatten_leaves(
    tree: PyTree, known: frozenset[type], is_leaf: IsLeaf | None = None, *, none_is_leaf: bool = False
) -> tuple[list[object], TreeDef]:
    """`flatten` for callers who know the types of nearly all their leaves: those cost one look into `known` each.

    `known` must not contain a type that anybody registers as a node. With `none_is_leaf`, None is a leaf.
    """
    native = _NODES.native or _NODES.load()
    registry = native.none_is_leaf if none_is_leaf else native.registry
    try:
        flat, treedef = registry.flatten(tree, is_leaf)
        if known.issuperset(builtins.map(type, flat)):
            return flat, treedef
        # What has been adopted may have more to adopt inside; what `is_leaf` keeps whole stays among the leaves.
        seen: set[type] = set()
        while (found := _NODES.adopt({*builtins.map(type, flat)} - known)) - seen:
            seen |= found
            flat, treedef = registry.flatten(tree, is_leaf)
    except ValueError as error:
        raise _explained(error, tree, is_leaf) from error.__cause__
    return flat, treedef


def _explained(error: ValueError, tree: PyTree, is_leaf: IsLeaf | None) -> ValueError:
    """The error, or a better one if it is that the keys of a dict cannot be sorted."""
    if isinstance(error, UnsortableKeysError) or "sorting pytree dictionary keys" in str(error):
        for path, subtree in _dicts(tree, is_leaf, ()):
            try:
                sorted(subtree)
            except TypeError:
                return UnsortableKeysError.at(subtree, path)
    return error


def _dicts(tree: PyTree, is_leaf: IsLeaf | None, path: KeyPath) -> Iterator[tuple[KeyPath, dict[Any, object]]]:
    if is_leaf is not None and is_leaf(tree):
        return
    if type(tree) in (dict, collections.defaultdict):
        yield path, cast(dict[Any, object], tree)
    try:
        children = _one_level(tree)
    except ValueError:  # a dict that has been yielded
        return
    for key, child in children:
        yield from _dicts(child, is_leaf, (*path, key))


def _one_level(tree: PyTree) -> list[tuple[object, object]]:
    """The children of a value with their keys; none for a leaf."""
    if isinstance(tree, tuple) and (names := _tuple_fields(type(tree))) is not None:
        # jaxlib 0.10.2 gives every field of a named tuple the first one's name.
        return list(zip(builtins.map(GetAttrKey, names), tree, strict=True))
    native = _NODES.native or _NODES.load()
    level = native.registry.flatten_one_level_with_keys(tree)
    return [] if level is None else list(zip(native.own_path(key for key, _ in level[0]), (c for _, c in level[0])))


def _tuple_fields(cls: type) -> tuple[str, ...] | None:
    """The fields of a named tuple that is a node as such, not because someone registered it."""
    if cls is not tuple and issubclass(cls, tuple) and not _NODES.knows(cls):
        return getattr(cls, "_fields", None)
    return None


def flatten(tree: PyTree, is_leaf: IsLeaf | None = None) -> tuple[list[object], TreeDef]:
    """The leaves of a tree, from left to right, and its structure.

    Tuples, lists, dicts (in the order of their sorted keys), OrderedDicts, defaultdicts, named tuples and registered
    types are nodes; None is a node without leaves; all else is a leaf. `is_leaf(subtree)` may make leaves of nodes.

    Raises UnsortableKeysError (a ValueError) for a dict whose keys cannot be sorted.

    >>> flatten({"b": [1, None], "a": (2, 3)})
    ([2, 3, 1], PyTreeDef({'a': (*, *), 'b': [*, None]}))
    """
    return flatten_leaves(tree, _PLAIN, is_leaf)


def leaves(tree: PyTree, is_leaf: IsLeaf | None = None) -> list[object]:
    """The leaves of a tree.

    >>> leaves([1, {"x": (2, None)}])
    [1, 2]
    """
    return flatten_leaves(tree, _PLAIN, is_leaf)[0]


def structure(tree: PyTree, is_leaf: IsLeaf | None = None) -> TreeDef:
    """The structure of a tree.

    >>> structure([1, {"x": (2, None)}])
    PyTreeDef([*, {'x': (*, None)}])
    """
    return flatten_leaves(tree, _PLAIN, is_leaf)[1]


def unflatten(treedef: TreeDef, leaves: Iterable[object]) -> Any:
    """The tree of a structure with these leaves. Raises ValueError if they are too many or too few.

    >>> unflatten(structure({"a": 0, "b": [0, 0]}), "xyz")
    {'a': 'x', 'b': ['y', 'z']}
    """
    return treedef.unflatten(leaves)


def flatten_with_path(
    tree: PyTree, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, object]], TreeDef]:
    """As `flatten`, with each leaf's path before it. With `is_leaf_takes_path`, `is_leaf(path, subtree)` is asked.

    >>> [(keystr(path), leaf) for path, leaf in flatten_with_path({"a": [1, 2]})[0]]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    native = _NODES.native or _NODES.load()
    predicate: Callable[[KeyPath, Any], bool] | None = None
    if is_leaf is not None:
        asked = is_leaf
        if is_leaf_takes_path:
            predicate = lambda path, x: asked(native.own_path(path), x)  # noqa: E731  # one of two short forms
        else:
            predicate = lambda _, x: asked(x)  # noqa: E731
    try:
        flat, treedef = native.registry.flatten_with_path(tree, predicate)
        seen: set[type] = set()
        while (found := _NODES.adopt({type(leaf) for _, leaf in flat} - _PLAIN)) - seen:
            seen |= found
            flat, treedef = native.registry.flatten_with_path(tree, predicate)
    except ValueError as error:
        raise _explained(error, tree, None if is_leaf_takes_path else is_leaf) from error.__cause__
    return [(native.own_path(path), leaf) for path, leaf in flat], treedef


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
    return treedef.unflatten(builtins.map(f, *columns))


def flatten_up_to(treedef: TreeDef, tree: PyTree, what: str = "the tree") -> list[object]:
    """The subtrees of `tree` that stand where `treedef` has leaves. Raises ValueError if it has no such structure."""
    try:
        return treedef.flatten_up_to(tree)
    except ValueError:
        raise _prefix_error("the first tree", treedef, what, structure(tree)) from None


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


# --- descriptions -----------------------------------------------------------------------------------------------------

NodeKind: TypeAlias = Literal["leaf", "none", "tuple", "list", "dict", "namedtuple", "custom"]
_KINDS: Final[Mapping[type, NodeKind]] = {type(None): "none", tuple: "tuple", list: "list", dict: "dict"}


@frozen
class TreeDescription:
    """A structure as a value of plain Python: it pickles, and needs no jaxlib to be compared or read.

    `metadata` is a dict's keys, or what a registered type's flattening gave beside the children.
    """

    kind: NodeKind
    type: type | None = None
    metadata: object = None
    children: tuple[TreeDescription, ...] = field(default=(), repr=lambda c: f"<{len(c)}>" if len(c) > 8 else repr(c))

    def build(self) -> TreeDef:
        """The structure described. Raises TypeError if a type in it is not registered in this process.

        >>> describe(structure((1, [2]))).build()
        PyTreeDef((*, [*]))
        """
        native = _NODES.native or _NODES.load()
        if self.type is None:
            return native.node(None, ())
        if self.kind == "custom" and not _NODES.knows(self.type):
            _NODES.adopt([self.type])
            if not _NODES.knows(self.type):
                raise TypeError(
                    f"{_name(self.type)} is not registered as a pytree node here; register it before building this"
                    " structure, as the process that described it did"
                )
        metadata = list(cast(tuple[object, ...], self.metadata)) if self.kind == "dict" else self.metadata
        return native.node((self.type, metadata), [child.build() for child in self.children])


_LEAF: Final = TreeDescription("leaf")


def describe(treedef: TreeDef) -> TreeDescription:
    """The structure as a value that pickles.

    >>> describe(structure({"x": None}))
    TreeDescription(kind='dict', type=<class 'dict'>, metadata=('x',),
        children=(TreeDescription(kind='none', type=<class 'NoneType'>, metadata=None, children=()),))
    """
    data = treedef.node_data()
    if data is None:
        return _LEAF
    nodetype, metadata = data
    kind = _KINDS.get(nodetype, "custom" if _tuple_fields(nodetype) is None else "namedtuple")
    if kind == "dict":
        metadata = tuple(cast(list[object], metadata))
    return TreeDescription(kind, nodetype, metadata, tuple([describe(child) for child in treedef.children()]))


# --- comparing structures ---------------------------------------------------------------------------------------------


@frozen(eq=False)
class Difference:
    """The first place where two structures differ, and the two substructures there."""

    path: KeyPath
    expected: TreeDef
    got: TreeDef

    def show(self, expected: str, got: str) -> str:
        return (
            f"  there {expected} has {_show_node(self.expected)}\n"
            f"  and   {got} has {_show_node(self.got)}{_key_difference(self.expected, self.got)}"
        )


def first_difference(expected: TreeDef, got: TreeDef, *, prefix: bool = False) -> Difference | None:
    """Where two structures first differ; with `prefix`, where `expected` first fails to be a prefix of `got`."""
    return _first_difference(expected, got, prefix, ())


def _first_difference(expected: TreeDef, got: TreeDef, prefix: bool, path: KeyPath) -> Difference | None:
    data = expected.node_data()
    if prefix and data is None:
        return None
    children, others = expected.children(), got.children()
    if data != got.node_data() or len(children) != len(others):
        return Difference(path, expected, got)
    pairs = [(i, a, b) for i, (a, b) in enumerate(zip(children, others, strict=True)) if a != b]
    for i, a, b in pairs:
        if _first_difference(a, b, prefix, ()) is not None:
            return _first_difference(a, b, prefix, (*path, _child_keys(expected)[i]))
    return None


def _child_keys(treedef: TreeDef) -> KeyPath:
    """The keys of a node's children, as far as a structure tells."""
    data, n = treedef.node_data(), len(treedef.children())
    if data is None or n == 0:
        return ()
    nodetype, metadata = data
    if nodetype in (tuple, list):
        return tuple(builtins.map(SequenceKey, range(n)))
    if nodetype is dict:
        return tuple(builtins.map(DictKey, cast(list[object], metadata)))
    if (names := _tuple_fields(nodetype)) is not None:
        return tuple(builtins.map(GetAttrKey, names))
    native = _NODES.native or _NODES.load()
    try:
        # Only a value can be asked for its keys. Its class may refuse placeholders, in whatever way.
        value = native.node(data, [native.node(None, ())] * n).unflatten([object()] * n)
        keys = [key for key, _ in _one_level(value)]
    except Exception:
        keys = []
    return tuple(keys) if len(keys) == n else tuple(builtins.map(FlattenedIndexKey, range(n)))


def _show_node(treedef: TreeDef) -> str:
    data, n = treedef.node_data(), len(treedef.children())
    if data is None:
        return "a leaf"
    nodetype, metadata = data
    match _KINDS.get(nodetype):
        case "none":
            return "None, a node without leaves"
        case "dict":
            return f"a dict with the keys {metadata}"
        case "tuple" | "list" as kind:
            return f"a {kind} of length {n}"
        case _ if _tuple_fields(nodetype) is not None:
            return f"a named tuple {_name(nodetype)}"
        case _:
            return f"a {_name(nodetype)} with {n} child{'' if n == 1 else 'ren'} and the metadata {metadata!r}"


def _key_difference(expected: TreeDef, got: TreeDef) -> str:
    mine, other = expected.node_data(), got.node_data()
    if mine is None or other is None or mine[0] is not dict or other[0] is not dict:
        return ""
    these, those = cast(list[object], mine[1]), cast(list[object], other[1])
    return f"\n  (only in the first: {[k for k in these if k not in those]}; only in the second: {[k for k in those if k not in these]})"


def _name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def require_same_structure(
    what: str, expected: TreeDef, got: TreeDef, expected_name: str = "the expected structure", got_name: str = "it"
) -> None:
    """Raises TypeError, with both structures and the first place where they differ, unless they are equal.

    `what` says in whose name the complaint is, as in "the carry of scan".

    >>> require_same_structure("the carry", structure((1, [2])), structure((1, [2, 3])))
    Traceback (most recent call last):
    TypeError: the carry does not have the right structure. The first difference is at [1]:
      there the expected structure has a list of length 1
      and   it has a list of length 2
    the expected structure: PyTreeDef((*, [*]))
    it: PyTreeDef((*, [*, *]))
    """
    if expected == got or (difference := first_difference(expected, got)) is None:
        return
    raise TypeError(
        f"{what} does not have the right structure. The first difference is at {_place(difference.path)}:\n"
        f"{difference.show(expected_name, got_name)}\n{expected_name}: {expected}\n{got_name}: {got}"
    )


def _place(path: KeyPath) -> str:
    return keystr(path) or "the root"


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
      and   the arguments has a list of length 1
    in_axes: PyTreeDef((*, (*,)))
    the arguments: PyTreeDef((*, [*]))
    """
    entries, treedef = flatten_leaves(prefix, _PLAIN, is_leaf, none_is_leaf=none_is_leaf)
    native = _NODES.native or _NODES.load()
    is_treedef = type(tree_or_treedef) is native.treedef_type
    full = cast(TreeDef, tree_or_treedef) if is_treedef else structure(tree_or_treedef)
    if treedef == full:
        return entries
    spread: list[object] = []
    if not _spread(iter(entries), treedef, full, spread):
        raise _prefix_error(what, treedef, of, full)
    return spread


def _spread(entries: Iterator[object], prefix: TreeDef, full: TreeDef, out: list[object]) -> bool:
    data = prefix.node_data()
    if data is None:
        out.extend([next(entries)] * full.num_leaves)
        return True
    if data != full.node_data():
        return False
    children, others = prefix.children(), full.children()
    return len(children) == len(others) and all(
        _spread(entries, child, other, out) for child, other in zip(children, others, strict=True)
    )


def _prefix_error(what: str, prefix: TreeDef, of: str, full: TreeDef) -> ValueError:
    difference = first_difference(prefix, full, prefix=True)
    where = (
        ""
        if difference is None
        else f"They disagree at {what}{keystr(difference.path)}:\n{difference.show(what, of)}\n"
    )
    return ValueError(
        f"{what} must have the structure of {of}, or a leaf in the place of a subtree.\n"
        f"{where}{what}: {prefix}\n{of}: {full}"
    )
