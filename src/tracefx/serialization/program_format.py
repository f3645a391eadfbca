"""Definitions shared by encoder and decoder: limits, value tags, and packing of 2-bit and 4-bit elements."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

import numpy as np

from tracefx.core import DType, NDArray, dtypes
from tracefx.serialization.byte_format import ByteReader, put_bytes, put_string, put_uint

PROGRAM_MAGIC: Final = b"tracefx program\n"
PROGRAM_VERSION: Final = 1
PROGRAM_DESCRIPTION: Final = "a serialized program"

MAX_VALUE_DEPTH: Final = 100
"""The maximal nesting of parameter values."""
MAX_NESTING: Final = 200
"""The maximal nesting of sub-jaxprs."""
MAX_AXES: Final = 64
"""The maximal number of axes; NumPy's limit."""
MAX_SET_SIZE: Final = 1024
"""The maximal size of a set: elements of hostile input may all have the same hash."""
MAX_BIG_INTS: Final = 64
"""The maximal number of integers beyond 64 bits: hostile ones may have colliding hashes."""
MAX_EFFECTS: Final = 64
"""The maximal number of effects of a jaxpr: callers iterate over all of them."""
MAX_SHARED_BYTES: Final = 256
"""The maximal encoded size of a primitive that several equations share: each use validates it again."""
MAX_CONSTRAINTS: Final = 64
"""The maximal number of constraints on dimension variables."""
MAX_DIMENSION_BYTES: Final = 1024
"""The maximal length of the text of a symbolic dimension or a constraint."""
SIZE_LIMIT: Final = 1 << 63
"""An exclusive bound of axis sizes."""


class Tag(IntEnum):
    """The tags of encoded values."""

    NONE = 0
    FALSE = 1
    TRUE = 2
    INT = 3
    LONG = 4
    FLOAT = 5
    COMPLEX = 6
    STRING = 7
    BYTES = 8
    DTYPE = 9
    TUPLE = 10
    SET = 11
    TYPE = 12
    LITERAL = 13
    PROGRAM = 14
    OPERATION = 15
    RECORD = 16
    MEMBER = 17
    TREE = 18
    SHOWN = 19
    DIMENSION = 20


def packed_bits(dtype: DType) -> int:
    """Returns the bits of an element if several elements share a byte; else 0."""
    bits = dtypes.itemsize_bits(dtype)
    return bits if bits in (2, 4) else 0


def pack(host: NDArray, bits: int) -> NDArray:
    """Packs elements of 2 or 4 bits into bytes, the first element in the lowest bits."""
    per_byte = 8 // bits
    low = np.zeros(-(-host.size // per_byte) * per_byte, np.uint8)
    low[: host.size] = host.reshape(-1).view(np.uint8) & ((1 << bits) - 1)
    shifts = np.arange(per_byte, dtype=np.uint8) * bits
    packed: NDArray = np.bitwise_or.reduce(low.reshape(-1, per_byte) << shifts, axis=1).astype(np.uint8)
    return packed


def unpack(packed: NDArray, bits: int) -> NDArray:
    """Unpacks bytes to elements of 2 or 4 bits."""
    shifts = np.arange(8 // bits, dtype=np.uint8) * bits
    low: NDArray = ((packed[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)
    return low


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
