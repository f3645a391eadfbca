"""Structures of trees as bytes. Classes go by their names, and are looked for among those that are there already."""

from __future__ import annotations

import itertools
import sys
from types import ModuleType
from typing import Final, cast

from tracefx.errors import SerializationError
from tracefx.pytrees.registry import NODE_REGISTRY, TreeDef, namedtuple_fields, type_name
from tracefx.pytrees.structures import NodeKind, TreeDescription, describe
from tracefx.serialization.byte_format import ByteReader, put_string, put_uint
from tracefx.serialization.program_format import MAX_VALUE_DEPTH, Tag
from tracefx.serialization.scalars import put_scalar, read_scalar

_NODE_KINDS: Final[tuple[NodeKind, ...]] = ("leaf", "none", "tuple", "list", "dict", "namedtuple", "custom")
"""By their numbers."""
_CONTAINERS: Final[dict[NodeKind, type]] = {"none": type(None), "tuple": tuple, "list": list, "dict": dict}


def put_tree(out: bytearray, tree: TreeDef, what: str) -> None:
    """Write a structure; `what` it is the structure of, for errors to tell.

    Raises SerializationError if a node has metadata that are no plain values or tuples of such.
    """
    _put(out, describe(tree), what, 0)


def _put(out: bytearray, tree: TreeDescription, what: str, depth: int) -> None:
    if depth > MAX_VALUE_DEPTH:
        raise SerializationError(f"{what}: containers stand more than {MAX_VALUE_DEPTH} deep in each other")
    out.append(_NODE_KINDS.index(tree.kind))
    if tree.kind == "leaf" or tree.kind == "none":
        return
    put_uint(out, len(tree.children))
    if tree.kind == "dict":
        for key in cast(tuple[object, ...], tree.metadata):
            _put_value(out, key, f"{what}: the key {key!r} of a dict", 0)
    elif tree.type is not None and tree.kind in ("namedtuple", "custom"):
        put_string(out, type_name(tree.type))
        if tree.kind == "custom":
            _put_value(out, tree.metadata, f"{what}: the metadata {tree.metadata!r} of a {type_name(tree.type)}", 0)
    for child in tree.children:
        _put(out, child, what, depth + 1)


def _put_value(out: bytearray, value: object, what: str, depth: int) -> None:
    if type(value) is tuple and depth < MAX_VALUE_DEPTH:
        out.append(Tag.TUPLE)
        put_uint(out, len(value))
        for v in value:
            _put_value(out, v, what, depth + 1)
    elif not put_scalar(out, value):
        raise SerializationError(
            f"{what} can't be written as bytes: a {type_name(type(value))} is neither None nor a number, a string, "
            "bytes or a tuple of such"
        )


def read_tree(reader: ByteReader) -> TreeDef:
    """The structure that `put_tree` wrote. No module is imported for the sake of a class in it."""
    tree = _read(reader, 0)
    try:
        return tree.build()
    except Exception as error:  # whatever jaxlib has against it
        reader.fail(f"this is no structure of a tree: {error}", error)


def _read(reader: ByteReader, depth: int) -> TreeDescription:
    if depth > MAX_VALUE_DEPTH:
        reader.fail(f"containers stand more than {MAX_VALUE_DEPTH} deep in each other")
    number = reader.byte()
    if number >= len(_NODE_KINDS):
        reader.fail(f"no kind of container has the number {number}")
    kind = _NODE_KINDS[number]
    if kind == "leaf":
        return TreeDescription(kind)
    if kind == "none":
        return TreeDescription(kind, type(None))
    count = reader.count("children")
    nodetype = _CONTAINERS.get(kind)
    metadata: object = None
    if kind == "dict":
        metadata = _keys(reader, count)
    elif nodetype is None:
        name = reader.string("a class's name")
        nodetype = _named_tuple_type(reader, name, count) if kind == "namedtuple" else _registered_type(reader, name)
        metadata = _value(reader, 0) if kind == "custom" else None
    return TreeDescription(kind, nodetype, metadata, tuple([_read(reader, depth + 1) for _ in range(count)]))


def _keys(reader: ByteReader, count: int) -> tuple[object, ...]:
    """The keys of a dict, which a structure has in their order."""
    keys = [_value(reader, 0) for _ in range(count)]
    try:
        ordered = all(a < b for a, b in itertools.pairwise(keys))  # type: ignore[operator]  # caught below
    except TypeError as error:
        reader.fail(f"the keys {keys!r} of a dict have no order", error)
    if not ordered:
        reader.fail(f"the keys {keys!r} of a dict are not in their order")
    return tuple(keys)


def _value(reader: ByteReader, depth: int) -> object:
    tag = reader.byte()
    if tag != Tag.TUPLE:
        return read_scalar(reader, tag)
    if depth == MAX_VALUE_DEPTH:
        reader.fail(f"values stand more than {MAX_VALUE_DEPTH} deep in each other")
    return tuple([_value(reader, depth + 1) for _ in range(reader.count("values"))])


def _find_loaded_class(name: str) -> type | None:
    """The class of this name in the modules that are loaded, found without running anything of theirs."""
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        found: object = sys.modules.get(".".join(parts[:split]))
        for part in parts[split:]:
            found = vars(found).get(part) if isinstance(found, (type, ModuleType)) else None
        if isinstance(found, type) and type_name(found) == name:
            return found
    return None


def _named_tuple_type(reader: ByteReader, name: str, count: int) -> type:
    found = _find_loaded_class(name)
    fields = None if found is None else namedtuple_fields(found)
    if found is None or fields is None:
        reader.fail(f"there is no named tuple {name} here: import the module that defines it before this is loaded")
    if len(fields) != count:
        reader.fail(f"the named tuple {name} has {len(fields)} fields here, but {count} where this was written")
    return found


def _registered_type(reader: ByteReader, name: str) -> type:
    found = NODE_REGISTRY.types_named(name)
    if not found:
        loaded = _find_loaded_class(name)
        if loaded is not None:
            NODE_REGISTRY.adopt([loaded])
            found = NODE_REGISTRY.types_named(name)
    if len(found) != 1:
        reader.fail(
            f"{name} is not registered as a pytree node here: register it before this is loaded, as where it was "
            "written"
            if not found
            else f"{len(found)} classes called {name} are registered as pytree nodes, so it is not known which is meant"
        )
    return found[0]
