"""A minimal FlatBuffers writer: tables, vectors, strings and small unsigned numbers.

A table is given by its fields, by slot. Offsets point forward, to data after the table; the vtable precedes the table.
Everything is little-endian and aligned to at least four bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, final

from attrs import field, frozen

_FORMATS: Final[Mapping[int, str]] = {1: "<B", 2: "<H", 4: "<I"}


@final
@frozen
class UInt:
    """An unsigned number of `size` bytes."""

    value: int
    size: int


@final
@frozen
class UIntVector:
    """A vector of unsigned numbers of `size` bytes each."""

    values: Sequence[int]
    size: int


@final
@frozen
class Table:
    """A table: its fields by slot. `None` omits a field."""

    fields: Mapping[int, FieldValue | None] = field(repr=False)


Reference: TypeAlias = "str | bytes | UIntVector | Table | Sequence[Table] | Sequence[str]"
"""The target of an offset: a string, a vector of bytes, and so on."""
FieldValue: TypeAlias = "UInt | Reference"


def encode_flatbuffer(root: Table) -> bytes:
    """Returns the bytes of a FlatBuffers file with this root table.

    >>> encode_flatbuffer(Table({0: UInt(7, 1)})).hex(" ", -4)
    '0c000000 06000500 04000000 08000000 07'
    """
    out = bytearray(4)
    todo: list[tuple[int, Reference]] = [(0, root)]
    for offset_position, value in todo:  # appended to while iterated over
        start = _write(out, value, todo)
        struct.pack_into("<I", out, offset_position, start - offset_position)
    return bytes(out)


def _write(out: bytearray, value: Reference, todo: list[tuple[int, Reference]]) -> int:
    """Appends a value, adds its unresolved references to `todo`, and returns its position."""
    _align(out)
    if isinstance(value, Table):
        return _write_table(out, value, todo)
    start = len(out)
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        out += struct.pack("<I", len(text)) + text + b"\0"
    elif isinstance(value, bytes):
        out += struct.pack("<I", len(value)) + value
    elif isinstance(value, UIntVector):
        out += struct.pack("<I", len(value.values))
        for n in value.values:
            out += struct.pack(_FORMATS[value.size], n)
    else:
        out += struct.pack("<I", len(value))
        for element in value:
            todo.append((len(out), element))
            out += bytes(4)
    return start


def _write_table(out: bytearray, table: Table, todo: list[tuple[int, Reference]]) -> int:
    """Appends a vtable and a table, adds unresolved references to `todo`, and returns the table's position."""
    present = {slot: value for slot, value in table.fields.items() if value is not None}
    offsets = [0] * (1 + max(present, default=-1))
    size = 4
    for slot, value in sorted(
        present.items(), key=lambda item: -_size(item[1])
    ):  # largest first, so that each is aligned
        offsets[slot] = size
        size += _size(value)
    vtable = len(out)
    out += struct.pack(f"<{2 + len(offsets)}H", 4 + 2 * len(offsets), size, *offsets)
    _align(out)
    start = len(out)
    out += struct.pack("<i", start - vtable) + bytes(size - 4)
    for slot, value in present.items():
        position = start + offsets[slot]
        if isinstance(value, UInt):
            struct.pack_into(_FORMATS[value.size], out, position, value.value)
        else:
            todo.append((position, value))
    return start


def _size(value: FieldValue) -> int:
    """Returns the size of a field in its table."""
    return value.size if isinstance(value, UInt) else 4


def _align(out: bytearray) -> None:
    """Pads to a multiple of four bytes."""
    out += bytes(-len(out) % 4)
