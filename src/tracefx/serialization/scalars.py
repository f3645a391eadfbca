"""Encoding of plain values: None, bools, numbers, strings and bytes, each after its tag."""

from __future__ import annotations

import struct

from tracefx.serialization.byte_format import ByteReader, put_bytes, put_string, put_uint
from tracefx.serialization.program_format import SIZE_LIMIT, Tag


def put_scalar(out: bytearray, value: object) -> bool:
    """Writes a plain value. Returns whether the value is plain; writes nothing otherwise."""
    kind = type(value)
    if value is None:
        out.append(Tag.NONE)
    elif kind is bool:
        out.append(Tag.TRUE if value else Tag.FALSE)
    elif isinstance(value, int) and kind is int:
        _put_integer(out, value)
    elif isinstance(value, float) and kind is float:
        out += struct.pack("<Bd", Tag.FLOAT, value)
    elif isinstance(value, complex) and kind is complex:
        out += struct.pack("<Bdd", Tag.COMPLEX, value.real, value.imag)
    elif isinstance(value, str) and kind is str:
        out.append(Tag.STRING)
        put_string(out, value)
    elif isinstance(value, bytes) and kind is bytes:
        out.append(Tag.BYTES)
        put_bytes(out, value)
    else:
        return False
    return True


def _put_integer(out: bytearray, n: int) -> None:
    if -SIZE_LIMIT <= n < SIZE_LIMIT:
        out.append(Tag.INT)
        put_uint(out, 2 * n if n >= 0 else -2 * n - 1)
    else:
        out.append(Tag.LONG)
        put_bytes(out, n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True))


def read_scalar(reader: ByteReader, tag: int) -> bool | int | float | complex | str | bytes | None:
    """Reads the plain value after a tag."""
    match tag:
        case Tag.NONE:
            return None
        case Tag.FALSE | Tag.TRUE:
            return tag == Tag.TRUE
        case Tag.INT:
            n = reader.uint()
            return -(n + 1 >> 1) if n & 1 else n >> 1
        case Tag.LONG:
            return int.from_bytes(reader.length_prefixed("an integer"), "little", signed=True)
        case Tag.FLOAT:
            number: float = struct.unpack("<d", reader.take(8, "a number"))[0]
            return number
        case Tag.COMPLEX:
            return complex(*struct.unpack("<dd", reader.take(16, "a number")))
        case Tag.STRING:
            return reader.string("a string")
        case Tag.BYTES:
            return bytes(reader.length_prefixed("bytes"))
        case _:
            reader.fail(f"there is no plain value tag with the number {tag}")
