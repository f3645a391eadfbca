"""FlatBuffers, as far as one needs them to write a file that others read: tables, vectors, strings, small numbers.

A table is the numbers of its fields, by their slots. An offset leads forward, to what is written after the table; the
positions of a table's fields stand before it. Everything is little-endian, and aligned to four bytes at least.
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
    """An unsigned number of so many bytes."""

    value: int
    size: int


@final
@frozen
class UIntVector:
    """A vector of unsigned numbers of so many bytes each."""

    values: Sequence[int]
    size: int


@final
@frozen
class Table:
    """Fields by their slots. Those that are None are left out."""

    fields: Mapping[int, FieldValue | None] = field(repr=False)


Reference: TypeAlias = "str | bytes | UIntVector | Table | Sequence[Table] | Sequence[str]"
"""What an offset leads to: a string, a vector of bytes, and so on."""
FieldValue: TypeAlias = "UInt | Reference"


def encode_flatbuffer(root: Table) -> bytes:
    """A file whose root is this table.

    >>> encode_flatbuffer(Table({0: UInt(7, 1)})).hex(" ", -4)
    '0c000000 06000500 04000000 08000000 07'
    """
    out = bytearray(4)
    todo: list[tuple[int, Reference]] = [(0, root)]
    for place, value in todo:  # grows as it is read
        at = _write(out, value, todo)
        struct.pack_into("<I", out, place, at - place)
    return bytes(out)


def _write(out: bytearray, value: Reference, todo: list[tuple[int, Reference]]) -> int:
    """Write a value at the end, and note where in it offsets to others are missing; where it begins."""
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
    given = {slot: value for slot, value in table.fields.items() if value is not None}
    places = [0] * (1 + max(given, default=-1))
    size = 4
    for slot, value in sorted(given.items(), key=lambda item: -_size(item[1])):  # so that each is aligned
        places[slot] = size
        size += _size(value)
    positions = len(out)
    out += struct.pack(f"<{2 + len(places)}H", 4 + 2 * len(places), size, *places)
    _align(out)
    start = len(out)
    out += struct.pack("<i", start - positions) + bytes(size - 4)
    for slot, value in given.items():
        at = start + places[slot]
        if isinstance(value, UInt):
            struct.pack_into(_FORMATS[value.size], out, at, value.value)
        else:
            todo.append((at, value))
    return start


def _size(value: FieldValue) -> int:
    return value.size if isinstance(value, UInt) else 4


def _align(out: bytearray) -> None:
    out += bytes(-len(out) % 4)
