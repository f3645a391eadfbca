"""The byte format: varints, strings and file envelopes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import assert_errors
from tracefx.errors import ParseError
from tracefx.serialization import byte_format
from tracefx.serialization.byte_format import (
    decode_envelope,
)

MAGIC = b"0123456789abcdef"


def reader(data: bytes) -> byte_format.ByteReader:
    return byte_format.ByteReader(memoryview(data), "it")


@given(st.lists(st.integers(0, 2**64 - 1)), st.lists(st.text(st.characters())), st.lists(st.binary()))
def test_round_trip(numbers: list[int], strings: list[str], parts: list[bytes]) -> None:
    out = bytearray()
    for n in numbers:
        byte_format.put_uint(out, n)
    for text in strings:
        byte_format.put_string(out, text)
    for part in parts:
        byte_format.put_bytes(out, part)
    back = byte_format.decode_envelope(byte_format.encode_envelope(MAGIC, 7, out), MAGIC, 7, "it")
    assert [back.uint() for _ in numbers] == numbers
    assert [back.string("a string") for _ in strings] == strings
    assert [bytes(back.length_prefixed("bytes")) for _ in parts] == parts
    back.done()


@pytest.mark.parametrize("n", [0, 1, 127, 128, 2**32, 2**63, 2**64 - 1])
def test_varint_size(n: int) -> None:
    out = bytearray()
    byte_format.put_uint(out, n)
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
    assert_errors(
        (lambda: reader(b"\x02").index(2, "thing"), ParseError, "there is no thing 2: there are 2"),
        (lambda: reader(b"").byte(), ParseError, "it, byte 26: the content ends too early"),
        (lambda: reader(b"\x03").flag("it"), ParseError, "it must be 0 or 1, not 3"),
        (lambda: reader(b"\x01\xff").string("a string"), ParseError, "not UTF-8"),
    )


def test_messages_are_truncated() -> None:
    with pytest.raises(ParseError) as caught:
        reader(b"").fail("x" * 10**6)
    assert len(str(caught.value)) < 3000


def test_envelopes() -> None:
    data = byte_format.encode_envelope(MAGIC, 7, b"content")
    assert data[:26] == MAGIC + struct.pack("<HQ", 7, 7)
    for changed, message in (
        (b"x" + data[1:], "begins with b'0123456789abcdef'"),
        (data[:20], "is truncated: 20 bytes"),
        (data[:-1], "its header gives 7 bytes of content, but there are 6"),
        (data[:-1] + b"\0", "its checksum does not match"),
        (byte_format.encode_envelope(MAGIC, 8, b""), "of version 8 of the format, but this tracefx reads version 7"),
    ):
        with pytest.raises(ParseError, match=message):
            byte_format.decode_envelope(changed, MAGIC, 7, "it")
    wide = memoryview(data + bytes(-len(data) % 4)).cast("I")
    with pytest.raises(ParseError, match="it is truncated, or has extra bytes at the end"):
        decode_envelope(wide, MAGIC, 7, "it")  # compared by bytes, for any item size of the view
