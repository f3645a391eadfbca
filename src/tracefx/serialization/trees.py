"""Serialization of pytree structures. Classes are identified by name and must already be loaded when they are read."""

from __future__ import annotations

import itertools
import sys
from types import ModuleType
from typing import Final, cast

from tracefx.errors import SerializationError
from tracefx.pytrees.registry import NODE_REGISTRY, TreeDef, namedtuple_fields, type_name
from tracefx.pytrees.structures import NodeKind, TreeDescription, describe
from tracefx.serialization.byte_format import ByteReader, put_string, put_uint
from tracefx.serialization.program_format import MAX_VALUE_DEPTH, Tag, put_scalar, read_scalar

_NODE_KINDS: Final[tuple[NodeKind, ...]] = ("leaf", "none", "tuple", "list", "dict", "namedtuple", "custom")
"""The node kinds by their number in the format."""
_CONTAINERS: Final[dict[NodeKind, type]] = {"none": type(None), "tuple": tuple, "list": list, "dict": dict}


def put_tree(out: bytearray, tree: TreeDef, what: str) -> None:
    """Writes a pytree structure.

    Args:
        out: The bytes to append to.
        tree: The structure.
        what: A description for errors.

    Raises:
        SerializationError: If the metadata of a node is not a plain value or a tuple of plain values, or a named tuple
            class cannot be found by its name.
    """
    _put(out, describe(tree), what, 0)


def _put(out: bytearray, tree: TreeDescription, what: str, depth: int) -> None:
    if depth > MAX_VALUE_DEPTH:
        raise SerializationError(f"{what}: containers are nested more than {MAX_VALUE_DEPTH} deep")
    out.append(_NODE_KINDS.index(tree.kind))
    if tree.kind == "leaf" or tree.kind == "none":
        return
    put_uint(out, len(tree.children))
    if tree.kind == "dict":
        for key in cast(tuple[object, ...], tree.metadata):
            _put_value(out, key, f"{what}: the key {key!r} of a dict", 0)
    elif tree.type is not None and tree.kind in ("namedtuple", "custom"):
        name = type_name(tree.type)
        if tree.kind == "namedtuple" and _find_loaded_class(name) is None:
            raise SerializationError(
                f"{what} can't be serialized: a named tuple is found by its name when it is read, and no module has "
                f"{name}; define it at the top level of a module, under this name"
            )
        put_string(out, name)
        if tree.kind == "custom":
            _put_value(out, tree.metadata, f"{what}: the metadata {tree.metadata!r} of a {name}", 0)
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
            f"{what} can't be serialized: a {type_name(type(value))} is neither None nor a number, a string, "
            "bytes or a tuple of such"
        )


def read_tree(reader: ByteReader) -> TreeDef:
    """Reads a structure that `put_tree` wrote. No module is imported to find a class."""
    tree = _read(reader, 0)
    try:
        return tree.build()
    except Exception as error:  # jaxlib may raise any exception
        reader.fail(f"this is not a pytree structure: {error}", error)


def _read(reader: ByteReader, depth: int) -> TreeDescription:
    if depth > MAX_VALUE_DEPTH:
        reader.fail(f"containers are nested more than {MAX_VALUE_DEPTH} deep")
    number = reader.byte()
    if number >= len(_NODE_KINDS):
        reader.fail(f"there is no container kind with the number {number}")
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
    """Reads the keys of a dict and checks that they are sorted, as in every structure."""
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
        reader.fail(f"values are nested more than {MAX_VALUE_DEPTH} deep")
    return tuple([_value(reader, depth + 1) for _ in range(reader.count("values"))])


def _find_loaded_class(name: str) -> type | None:
    """Returns the class with this name in loaded modules, or `None`, without running any code of theirs."""
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        obj: object = sys.modules.get(".".join(parts[:split]))
        for part in parts[split:]:
            obj = vars(obj).get(part) if isinstance(obj, (type, ModuleType)) else None
        if isinstance(obj, type) and type_name(obj) == name:
            return obj
    return None


def _advice_for_main(name: str) -> str:
    """Returns what to do about a missing class of a script that was run; the empty string for one of a module."""
    if not name.startswith("__main__."):
        return ""
    return "the script that wrote this defines it: move it to a module, import that in both programs, write it again"


def _named_tuple_type(reader: ByteReader, name: str, count: int) -> type:
    """Returns the named tuple class with this name; fails if it is not loaded or has another number of fields."""
    cls = _find_loaded_class(name)
    fields = None if cls is None else namedtuple_fields(cls)
    if cls is None or fields is None:
        advice = _advice_for_main(name) or "import the module that defines it before this is read"
        reader.fail(f"there is no named tuple {name} here: {advice}")
    if len(fields) != count:
        reader.fail(f"the named tuple {name} has {len(fields)} fields here, but {count} in the serialized structure")
    return cls


def _registered_type(reader: ByteReader, name: str) -> type:
    """Returns the registered node type with this name; fails if there is not exactly one."""
    candidates = NODE_REGISTRY.types_named(name)
    if not candidates:
        loaded = _find_loaded_class(name)
        if loaded is not None:
            NODE_REGISTRY.adopt([loaded])
            candidates = NODE_REGISTRY.types_named(name)
    if len(candidates) != 1:
        advice = _advice_for_main(name) or "register it before this is read, as in the process that wrote it"
        reader.fail(
            f"{name} is not registered as a pytree node here: {advice}"
            if not candidates
            else f"{len(candidates)} classes called {name} are registered as pytree nodes, so the name is ambiguous"
        )
    return candidates[0]
