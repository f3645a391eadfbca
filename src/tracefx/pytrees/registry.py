"""The registry of pytree node types, and jaxlib's C++ pytree module that flattens and unflattens.

tracefx has its own registry. jaxlib's default registry belongs to jax, which registers types there at import and fails
if they are registered already; so tracefx only reads it. A type that another library registered there (through
`jax.tree_util`) is adopted the first time that an instance is found as a leaf: it is registered here with functions
that call jaxlib's default registry.

The node types are inherently process-wide state. `NODE_REGISTRY` holds them; nothing else is mutable.
"""

from __future__ import annotations

import copyreg
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, Self, TypeAlias, cast, final

from attrs import frozen
from typing_extensions import TypeIs, override

from tracefx.jaxlib_support import import_jaxlib
from tracefx.pytrees.paths import DictKey, FlattenedIndexKey, GetAttrKey, KeyPath, SequenceKey

TreeDefReducer: TypeAlias = Callable[["TreeDef"], "str | tuple[Any, ...]"]
PyTree: TypeAlias = object
"""Any value: a node (a container whose children are pytrees) or a leaf."""

IsLeaf: TypeAlias = Callable[[Any], bool]
"""A predicate that makes a subtree a leaf. (The argument is `Any`, so that `def f(x: Array)` type-checks.)"""


class TreeDef(Protocol):
    """The structure of a pytree without its leaves: hashable, compared by value, printed with `*` for leaves.

    Instances are jaxlib's own, since every call of a jitted function flattens its arguments and compares structures.
    They are pickled as their `TreeDescription`.

    >>> from tracefx import tree
    >>> treedef = tree.structure({"w": 1, "b": (2, 3)})
    >>> treedef.num_leaves, treedef
    (3, PyTreeDef({'b': (*, *), 'w': *}))
    """

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""

    @property
    def num_nodes(self) -> int:
        """The number of nodes, leaves included."""

    # The type of a rebuilt tree is known only at run time.
    def unflatten(self, leaves: Iterable[object], /) -> Any:
        """Returns the pytree with this structure and given leaves.

        Args:
            leaves: The leaves in order, any objects.

        Returns:
            The pytree.

        Raises:
            ValueError: The number of leaves is not that of the structure.
        """

    def flatten_up_to(self, tree: PyTree, /) -> list[object]:
        """Returns the subtrees of a pytree at the leaves of this structure, which is a prefix of it.

        Args:
            tree: A pytree that has this structure down to its leaves.

        Returns:
            One subtree for each leaf of the structure.

        Raises:
            ValueError: The structure is not a prefix of the pytree.
        """

    def children(self) -> list[Self]:
        """Returns the structures of the children of the root."""

    def compose(self, inner: Self, /) -> Self:
        """Returns this structure with another one in place of each leaf.

        Args:
            inner: The structure that replaces each leaf.

        Returns:
            The composed structure.
        """

    def node_data(self) -> tuple[type, object] | None:
        """Returns the type of the root and its metadata; None for a leaf."""


class Registry(Protocol):
    """The methods of jaxlib's `PyTreeRegistry` that are used here."""

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


class _HasState(Protocol):
    @override
    def __getstate__(self) -> tuple[Registry, object]: ...


class _TreeDefType(Protocol):
    def from_node_data_and_children(
        self, registry: Registry, node_data: tuple[type, object] | None, children: Iterable[TreeDef], /
    ) -> TreeDef: ...


class _RegistryType(Protocol):
    def __call__(self, *, enable_none: bool = True) -> Registry: ...


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
    def default_registry(self) -> Registry: ...


@final
@frozen(eq=False)
class JaxlibPytree:
    """jaxlib's pytree module, with the registries that tracefx uses."""

    registry: Registry
    none_is_leaf: Registry
    default: Registry  # jax's, which is only read
    treedefs: _TreeDefType
    treedef_class: type
    key_converters: Mapping[type, Callable[[Any], object]]

    def make_treedef(self, data: tuple[type, object] | None, children: Iterable[TreeDef]) -> TreeDef:
        """Returns the structure with this node data and these children; a leaf if `data` is `None`."""
        return self.treedefs.from_node_data_and_children(self.registry, data, children)

    def flattened_here(self, treedef: TreeDef) -> bool:
        """Whether the structure belongs to a registry of tracefx, rather than to jax's."""
        return cast(_HasState, treedef).__getstate__()[0] in (self.registry, self.none_is_leaf)

    def is_treedef(self, value: object) -> TypeIs[TreeDef]:
        """Whether a value is a structure of jaxlib's class."""
        return isinstance(value, self.treedef_class)

    def convert_path(self, path: Iterable[object]) -> KeyPath:
        """Converts a path of jaxlib's keys to tracefx's key classes."""
        return tuple([self.key_converters.get(type(key), _identity)(key) for key in path])


def _identity(key: object) -> object:
    return key


def _load() -> JaxlibPytree:
    """Loads jaxlib's pytree module and makes the registries."""
    # A lazy import: loading jaxlib takes longer than all of `import tracefx`, and purely eager programs do not need it.
    module = cast(_PytreeModule, import_jaxlib("jaxlib._jax.pytree"))
    return JaxlibPytree(
        registry=module.PyTreeRegistry(),
        none_is_leaf=module.PyTreeRegistry(enable_none=False),
        default=module.default_registry(),
        treedefs=module.PyTreeDef,
        treedef_class=cast(type, module.PyTreeDef),
        key_converters={
            module.SequenceKey: lambda key: SequenceKey(key.idx),
            module.DictKey: lambda key: DictKey(key.key),
            module.GetAttrKey: lambda key: GetAttrKey(key.name),
            module.FlattenedIndexKey: lambda key: FlattenedIndexKey(key.key),
        },
    )


@final
class NodeRegistry:
    """The registered node types besides the built-in containers, and jaxlib's module once it is loaded."""

    __slots__ = ("_adopted", "_installers", "_lock", "_reduce", "native")

    def __init__(self) -> None:
        self.native: JaxlibPytree | None = None
        self._reduce: TreeDefReducer | None = None
        self._lock = threading.RLock()
        self._installers: dict[type, Callable[[Registry], object]] = {}
        self._adopted: set[type] = set()

    def load(self) -> JaxlibPytree:
        """Returns jaxlib's module with all node types registered. (Hot paths read `native` first.)"""
        if self.native is not None:
            return self.native
        with self._lock:
            native = self.native
            if native is None:
                native = _load()
                for install in self._installers.values():
                    install(native.none_is_leaf)
                    install(native.registry)
                if self._reduce is not None:
                    copyreg.pickle(cast("type[TreeDef]", native.treedef_class), self._reduce)
                self.native = native
            return native

    def set_reducer(self, reduce: TreeDefReducer) -> None:
        """Sets the pickle reducer of structures. Called once, before jaxlib is loaded, which has none."""
        self._reduce = reduce

    def add(self, nodetype: type, install: Callable[[Registry], object]) -> None:
        """Registers a node type, now or when jaxlib is loaded.

        Raises TypeError if it is not a class, ValueError if it is already registered.
        """
        if not isinstance(nodetype, type):
            raise TypeError(f"only a class can be registered as a pytree node, not {nodetype!r}")
        with self._lock:
            if nodetype in _BUILT_IN or nodetype in self._installers:
                raise ValueError(f"{type_name(nodetype)} is a pytree node already; a type can be registered once")
            if self.native is not None:
                # In this order: a thread that finds a type in `registry` relies on it being in both.
                install(self.native.none_is_leaf)
                install(self.native.registry)
            self._installers[nodetype] = install

    def is_registered(self, nodetype: type) -> bool:
        """Whether a type is registered or adopted."""
        return nodetype in self._installers

    def types_named(self, name: str) -> list[type]:
        """Returns the registered types with this `type_name`."""
        return [nodetype for nodetype in list(self._installers) if type_name(nodetype) == name]

    def adopt(self, types: Iterable[type]) -> set[type]:
        """Registers those of the types that are nodes in jaxlib's default registry.

        Args:
            types: The types of leaves.

        Returns:
            The adopted ones among them, also those that were adopted before.
        """
        native = self.load()
        adopted = set()
        for leaf_type in types:
            if native.default.is_node(leaf_type):
                if not native.registry.is_node(leaf_type):
                    with self._lock:
                        if leaf_type not in self._installers:
                            # Before `add`: a thread that finds the type registered reads `_adopted` without the lock.
                            self._adopted.add(leaf_type)
                            self.add(leaf_type, _adoption(native, leaf_type))
                if leaf_type in self._adopted:
                    adopted.add(leaf_type)
        return adopted


def _adoption(native: JaxlibPytree, nodetype: type) -> Callable[[Registry], object]:
    """Returns a function that registers a type of jaxlib's default registry in another registry."""
    default = native.default
    (_, leaf) = default.flatten(0, None)

    def unflatten(metadata: object, children: tuple[object, ...]) -> object:
        one_level = native.treedefs.from_node_data_and_children(default, (nodetype, metadata), [leaf] * len(children))
        return one_level.unflatten(children)

    return lambda registry: registry.register_node(
        nodetype,
        cast(Callable[[object], tuple[Iterable[object], object]], default.flatten_one_level),
        unflatten,
        cast(Callable[[object], tuple[Iterable[tuple[object, object]], object]], default.flatten_one_level_with_keys),
    )


_BUILT_IN: Final = frozenset({type(None), tuple, list, dict})
NODE_REGISTRY: Final = NodeRegistry()


def children_with_keys(tree: PyTree) -> list[tuple[object, object]]:
    """Returns the children of a node with their keys; the empty list for a leaf."""
    if isinstance(tree, tuple) and (names := namedtuple_fields(type(tree))) is not None:
        # A bug of jaxlib 0.10.2: all fields of a named tuple get the name of the first.
        return list(zip(map(GetAttrKey, names), tree, strict=True))
    native = NODE_REGISTRY.load()
    level = native.registry.flatten_one_level_with_keys(tree)
    if level is None:
        return []
    pairs = list(level[0])
    return list(zip(native.convert_path(key for key, _ in pairs), (child for _, child in pairs), strict=True))


def namedtuple_fields(cls: type) -> tuple[str, ...] | None:
    """Returns the fields of a named tuple type, unless the type is registered explicitly; `None` for other types."""
    if cls is not tuple and issubclass(cls, tuple) and not NODE_REGISTRY.is_registered(cls):
        return getattr(cls, "_fields", None)
    return None


def type_name(cls: type) -> str:
    """Returns the qualified name of a class, without the module for built-in ones."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
