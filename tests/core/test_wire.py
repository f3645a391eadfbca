"""The byte format: varints, strings, file envelopes and flatbuffers."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracefx.errors import ParseError
from tracefx.serialization.byte_format import (
    ByteReader,
    decode_envelope,
    encode_envelope,
    put_bytes,
    put_string,
    put_uint,
)
from tracefx.serialization.flatbuffers import Table, UInt, UIntVector, encode_flatbuffer

MAGIC = b"0123456789abcdef"


def reader(data: bytes) -> ByteReader:
    return ByteReader(memoryview(data), "it")


@given(st.lists(st.integers(0, 2**64 - 1)), st.lists(st.text(st.characters())), st.lists(st.binary()))
def test_round_trip(numbers: list[int], strings: list[str], parts: list[bytes]) -> None:
    out = bytearray()
    for n in numbers:
        put_uint(out, n)
    for text in strings:
        put_string(out, text)
    for part in parts:
        put_bytes(out, part)
    back = decode_envelope(encode_envelope(MAGIC, 7, out), MAGIC, 7, "it")
    assert [back.uint() for _ in numbers] == numbers
    assert [back.string("a string") for _ in strings] == strings
    assert [bytes(back.length_prefixed("bytes")) for _ in parts] == parts
    back.done()


@pytest.mark.parametrize("n", [0, 1, 127, 128, 2**32, 2**63, 2**64 - 1])
def test_varint_size(n: int) -> None:
    out = bytearray()
    put_uint(out, n)
    assert len(out) == max(1, -(-n.bit_length() // 7))
    assert reader(bytes(out)).uint() == n


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "ends within a number"),
        (b"\x80", "ends within a number"),
        (b"\x80" * 9, "ends within a number"),
        (b"\x80" * 9 + b"\x02", "more than 64 bits"),
        (b"\x80" * 10, "more than 64 bits"),
        (b"\xff" * 20, "more than 64 bits"),
    ],
)
def test_invalid_varints(data: bytes, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        reader(data).uint()


def test_invalid_content_raises() -> None:
    with pytest.raises(ParseError, match="5 things can't fit in the 2 bytes that are left"):
        reader(b"\x05ab").count("things")
    with pytest.raises(ParseError, match="a string of 5 bytes can't fit in the 2 bytes that are left"):
        reader(b"\x05ab").string("a string")
    with pytest.raises(ParseError, match="there is no thing 2: there are 2"):
        reader(b"\x02").index(2, "thing")
    with pytest.raises(ParseError, match="it, byte 26: the content ends too early"):
        reader(b"").byte()
    with pytest.raises(ParseError, match="it must be 0 or 1, not 3"):
        reader(b"\x03").flag("it")
    with pytest.raises(ParseError, match="not UTF-8"):
        reader(b"\x01\xff").string("a string")


def test_messages_are_truncated() -> None:
    with pytest.raises(ParseError) as caught:
        reader(b"").fail("x" * 10**6)
    assert len(str(caught.value)) < 3000


def test_envelopes() -> None:
    data = encode_envelope(MAGIC, 7, b"content")
    assert data[:26] == MAGIC + struct.pack("<HQ", 7, 7)
    for changed, message in (
        (b"x" + data[1:], "begins with b'0123456789abcdef'"),
        (data[:20], "is cut off: 20 bytes"),
        (data[:-1], "says that its content has 7 bytes, but there are 6"),
        (data[:-1] + b"\0", "its checksum is another one"),
        (encode_envelope(MAGIC, 8, b""), "of version 8 of the format, but this tracefx reads version 7"),
    ):
        with pytest.raises(ParseError, match=message):
            decode_envelope(changed, MAGIC, 7, "it")
    wide = memoryview(data + bytes(-len(data) % 4)).cast("I")
    with pytest.raises(ParseError, match="it is cut off, or has something after it"):
        decode_envelope(wide, MAGIC, 7, "it")  # compared by bytes, for any item size of the view


# ------------------------------------------------------------------ flatbuffers


class ParsedTable:
    """A flatbuffer table, read by an independent implementation of the format."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self.places = at - struct.unpack_from("<i", data, at)[0]
        assert at % 4 == 0

    @classmethod
    def root(cls, data: bytes) -> ParsedTable:
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def place(self, slot: int) -> int:
        size = struct.unpack_from("<H", self.data, self.places)[0]
        offset = struct.unpack_from("<H", self.data, self.places + 4 + 2 * slot)[0] if 4 + 2 * slot < size else 0
        return self.at + offset if offset else 0

    def number(self, slot: int, form: str) -> int:
        place = self.place(slot)
        assert place % struct.calcsize(form) == 0
        found: int = struct.unpack_from(form, self.data, place)[0]
        return found

    def target(self, slot: int) -> int:
        place = self.place(slot)
        return place + self.number(slot, "<I")

    def text(self, slot: int) -> str:
        at = self.target(slot)
        (size,) = struct.unpack_from("<I", self.data, at)
        assert self.data[at + 4 + size] == 0
        return self.data[at + 4 : at + 4 + size].decode()

    def numbers(self, slot: int, form: str) -> list[int]:
        at = self.target(slot)
        (count,) = struct.unpack_from("<I", self.data, at)
        return [struct.unpack_from(form, self.data, at + 4 + i * struct.calcsize(form))[0] for i in range(count)]

    def tables(self, slot: int) -> list[ParsedTable]:
        at = self.target(slot)
        places = [at + 4 + 4 * i for i in range(struct.unpack_from("<I", self.data, at)[0])]
        return [ParsedTable(self.data, place + struct.unpack_from("<I", self.data, place)[0]) for place in places]


def test_flatbuffer() -> None:
    inner = Table({1: UInt(9, 1)})
    table = Table(
        {
            0: UInt(300, 2),
            1: "name é",
            2: None,
            3: UIntVector((1, 2, 70000), 4),
            4: [inner, Table({}), inner],
            5: UInt(7, 1),
            6: b"bytes",
            9: UIntVector((5,), 2),
            10: ["a", "bc"],
        }
    )
    found = ParsedTable.root(encode_flatbuffer(table))
    assert (found.number(0, "<H"), found.text(1), found.place(2), found.place(7)) == (300, "name é", 0, 0)
    assert (found.numbers(3, "<I"), found.number(5, "<B")) == ([1, 2, 70000], 7)
    assert bytes(found.numbers(6, "<B")) == b"bytes"
    assert found.numbers(9, "<H") == [5]
    assert [t.place(1) and t.number(1, "<B") for t in found.tables(4)] == [9, 0, 9]
    assert len(found.tables(10)) == 2
    assert found.place(11) == 0
