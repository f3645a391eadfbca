"""Registration of classes as pytree nodes."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import attrs

from tracefx.pytrees.registry import NODE_REGISTRY, type_name

T = TypeVar("T")
A = TypeVar("A")


class PytreeNode(Protocol):
    """A class that says how to rebuild its instances."""

    @classmethod
    def tree_unflatten(cls, metadata: Any, children: Any, /) -> Any: ...


C = TypeVar("C", bound=type)
N = TypeVar("N", bound=type[PytreeNode])


def register_pytree_node(
    nodetype: type[T],
    flatten_func: Callable[[T], tuple[Iterable[object], A]],
    unflatten_func: Callable[[A, tuple[Any, ...]], T],
    flatten_with_keys_func: Callable[[T], tuple[Iterable[tuple[object, object]], A]] | None = None,
) -> None:
    """Registers a class as a pytree node. Types that are registered through `jax.tree_util` need no registration here.

    Args:
        nodetype: The class.
        flatten_func: Returns the children of an instance and its metadata, which must be hashable and comparable by
            `==`.
        unflatten_func: Builds an instance from metadata and children. It must accept children of any type.
        flatten_with_keys_func: Like `flatten_func`, but returns `(key, child)` pairs. `None` for positions as keys.

    Raises:
        TypeError: If `nodetype` is not a class.
        ValueError: If it is already a node type.

    >>> from tracefx import tree
    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> register_pytree_node(Pair, lambda p: ((p.a, p.b), None), lambda _, ab: Pair(*ab))
    >>> tree.leaves([Pair(1, 2), 3])
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
    """Registers a class as a pytree node whose children have their own keys in key paths.

    Args:
        nodetype: The class.
        flatten_with_keys: Returns the `(key, child)` pairs of an instance and its metadata.
        unflatten_func: Builds an instance from metadata and children.
        flatten_func: Returns the same children without keys, and the metadata: a faster variant for flattening without
            paths. By default `flatten_with_keys` is used.

    Raises:
        TypeError: If `nodetype` is not a class.
        ValueError: If it is already a node type.

    >>> from tracefx import tree
    >>> class Box:
    ...     def __init__(self, inside):
    ...         self.inside = inside
    >>> flatten = lambda b: ([(tree.GetAttrKey("inside"), b.inside)], None)
    >>> register_pytree_with_keys(Box, flatten, lambda _, children: Box(*children))
    >>> [tree.keystr(path) for path, _ in tree.flatten_with_path(Box((1, 2)))[0]]
    ['.inside[0]', '.inside[1]']
    """

    def without_keys(value: T) -> tuple[Iterable[object], A]:
        pairs, metadata = flatten_with_keys(value)
        return [child for _, child in pairs], metadata

    register_pytree_node(nodetype, flatten_func or without_keys, unflatten_func, flatten_with_keys)


def register_pytree_node_class(cls: N) -> N:
    """Class decorator that registers a node type by its `tree_flatten` and class method `tree_unflatten`.

    Args:
        cls: The class.

    Returns:
        The class itself.

    >>> from tracefx import tree
    >>> @register_pytree_node_class
    ... class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    ...     def tree_flatten(self):
    ...         return (self.a, self.b), None
    ...     @classmethod
    ...     def tree_unflatten(cls, metadata, children):
    ...         return cls(*children)
    >>> tree.map(lambda x: x + 1, Pair(1, 2)).b
    3
    """
    register_pytree_node(cls, operator.methodcaller("tree_flatten"), cls.tree_unflatten)
    return cls


def register_pytree_with_keys_class(cls: N) -> N:
    """Class decorator that registers a node type by its `tree_flatten_with_keys` and class method `tree_unflatten`.

    A method `tree_flatten`, if there is one, is used for flattening without paths.

    Args:
        cls: The class. `tree_flatten_with_keys()` returns the `(key, child)` pairs of an instance and its metadata;
            `tree_unflatten(metadata, children)` builds an instance.

    Returns:
        The class itself.

    Raises:
        AttributeError: If the class has no `tree_unflatten`.

    >>> from tracefx import tree
    >>> @register_pytree_with_keys_class
    ... class Box:
    ...     def __init__(self, inside):
    ...         self.inside = inside
    ...     def tree_flatten_with_keys(self):
    ...         return [(tree.GetAttrKey("inside"), self.inside)], None
    ...     @classmethod
    ...     def tree_unflatten(cls, metadata, children):
    ...         return cls(*children)
    >>> [tree.keystr(path) for path, _ in tree.leaves_with_path(Box({"w": 1}))]
    [".inside['w']"]
    """
    register_pytree_with_keys(
        cls,
        operator.methodcaller("tree_flatten_with_keys"),
        cls.tree_unflatten,
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
    """Registers a dataclass, of the standard library or attrs, as a pytree node. Usable as a decorator.

    Other classes can be registered too if both lists are given and the class can be called with these fields as
    keywords.

    Args:
        nodetype: The class; `None` when called with only keywords as a decorator.
        data_fields: The fields that are children. By default all fields that are not marked as `static=True` in their
            metadata (`tracefx.tree.static`).
        meta_fields: The fields that are metadata. By default those that are marked as static.
        drop_fields: Fields with defaults that are neither; they are lost in flattening.

    Returns:
        The class, or a decorator.

    Raises:
        TypeError: If only one of the lists is given, or none for a class that is not a dataclass.
        ValueError: If a field is in both lists, unknown, or in no list.

    >>> from tracefx import tree
    >>> @register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     w: object
    ...     name: str = dataclasses.field(metadata={"static": True})
    >>> tree.map(lambda x: 2 * x, Layer(3, "first"))
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
    """Returns the fields that `__init__` accepts, and whether each is static; `None` for non-dataclasses."""
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
    """Class decorator: hashable instances become nodes without leaves, which are part of the structure.

    Args:
        cls: The class. Its instances are compared by `==` and hashed, like other parts of a structure.

    Returns:
        The class itself.

    Raises:
        ValueError: If it is already a node type.

    >>> from tracefx import tree
    >>> @register_static
    ... class Mode(str): pass
    >>> tree.leaves([Mode("train"), 1.0])
    [1.0]
    """
    register_pytree_node(cls, _no_children, _static_itself)
    return cls


def _no_children(value: T) -> tuple[tuple[()], T]:
    return (), value


def _static_itself(value: T, children: tuple[Any, ...]) -> T:
    return value


if TYPE_CHECKING:
    # Type checkers recognize `dataclasses.field` only by its name.
    static = dataclasses.field
else:

    def static(**kwargs):
        """Declares a dataclass field as static: `register_dataclass` treats it as metadata, not as a child.

        Args:
            **kwargs: The arguments of `dataclasses.field`, such as `default`. Entries of `metadata` are kept.

        Returns:
            A dataclass field.

        >>> from tracefx import tree
        >>> @register_dataclass
        ... @dataclasses.dataclass
        ... class Layer:
        ...     w: object
        ...     name: str = static(default="dense")
        >>> tree.leaves(Layer(1.0))
        [1.0]
        """
        metadata = {**(kwargs.pop("metadata", None) or {}), "static": True}
        return dataclasses.field(metadata=metadata, **kwargs)
