"""The byte-level format: an envelope with a checksum, variable-length numbers, strings, and a defensive reader.

An envelope consists of magic bytes, a version, the length, the content and a checksum. The checksum detects damage
but is no protection, since anyone can compute it, so the reader trusts nothing. Every count is compared with the
number of remaining bytes before memory is allocated, since each counted item takes at least one byte.
"""

from __future__ import annotations

import zlib
from os import PathLike
from typing import Final, NoReturn, TypeAlias, final

from tracefx.errors import ParseError

BytesLike: TypeAlias = bytes | bytearray | memoryview

MAGIC_BYTES: Final = 16
_VERSION_BYTES: Final = 2
_LENGTH_BYTES: Final = 8
_CHECKSUM_BYTES: Final = 4
_HEADER_BYTES: Final = MAGIC_BYTES + _VERSION_BYTES + _LENGTH_BYTES
_UINT_BITS: Final = 64


# ------------------------------------------------------------------ envelopes


def encode_envelope(magic: bytes, version: int, content: BytesLike) -> bytes:
    """Returns a file: magic, version, length of the content, content, and the CRC-32 of all that."""
    assert len(magic) == MAGIC_BYTES
    head = magic + version.to_bytes(_VERSION_BYTES, "little") + len(content).to_bytes(_LENGTH_BYTES, "little")
    checksum = zlib.crc32(content, zlib.crc32(head))
    return b"".join([head, content, checksum.to_bytes(_CHECKSUM_BYTES, "little")])


def decode_envelope(data: BytesLike, magic: bytes, version: int, what: str) -> ByteReader:
    """Validates the envelope of a file and returns a reader of its content.

    Args:
        data: The file.
        magic: The expected magic bytes.
        version: The supported version.
        what: A description of the file for errors.

    Raises:
        ParseError: If the magic bytes, version, length or checksum is wrong.
        TypeError: If `data` is not bytes-like.
    """
    given: object = data
    if not isinstance(given, (bytes, bytearray, memoryview)):
        path = "; read the file first, by pathlib.Path(path).read_bytes()" if isinstance(given, (str, PathLike)) else ""
        raise TypeError(f"{what} is read from bytes, got {type(given).__name__}{path}")
    view = memoryview(data).cast("B") if isinstance(data, memoryview) else memoryview(data)
    if view[:MAGIC_BYTES] != magic:
        raise ParseError(
            f"these {len(view)} bytes are not {what}, which begins with {magic!r}: they begin with "
            f"{bytes(view[:MAGIC_BYTES])!r}"
        )
    if len(view) < _HEADER_BYTES + _CHECKSUM_BYTES:
        raise ParseError(f"{what} is truncated: {len(view)} bytes are fewer than its header and checksum have")
    actual_version = int.from_bytes(view[MAGIC_BYTES : MAGIC_BYTES + _VERSION_BYTES], "little")
    if actual_version != version:
        raise ParseError(
            f"{what} is of version {actual_version} of the format, but this tracefx reads version {version}"
        )
    length = int.from_bytes(view[_HEADER_BYTES - _LENGTH_BYTES : _HEADER_BYTES], "little")
    if length != len(view) - _HEADER_BYTES - _CHECKSUM_BYTES:
        raise ParseError(
            f"{what} is truncated, or has extra bytes at the end: its header gives {length} bytes of content, but "
            f"there are {len(view) - _HEADER_BYTES - _CHECKSUM_BYTES}"
        )
    if zlib.crc32(view[:-_CHECKSUM_BYTES]) != int.from_bytes(view[-_CHECKSUM_BYTES:], "little"):
        raise ParseError(f"{what} is damaged: its checksum does not match its bytes")
    return ByteReader(view[_HEADER_BYTES:-_CHECKSUM_BYTES], what)


# ------------------------------------------------------------------ writing


def put_uint(out: bytearray, n: int) -> None:
    """Writes an unsigned number as a varint (LEB128): seven bits per byte, low bits first.

    All bytes but the last have the high bit set.

        >>> out = bytearray()
        >>> put_uint(out, 300)
        >>> out.hex()
        'ac02'
    """
    assert 0 <= n < 1 << _UINT_BITS
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)


def put_bytes(out: bytearray, content: BytesLike) -> None:
    """Writes a length and the bytes."""
    put_uint(out, len(content))
    out += content


def put_string(out: bytearray, text: str) -> None:
    """Writes a length in bytes and the UTF-8 encoding, in which lone surrogates are allowed."""
    put_bytes(out, text.encode("utf-8", "surrogatepass"))


# ------------------------------------------------------------------ reading


@final
class ByteReader:
    """Reads the byte format. Raises ParseError, with the position in the file, for malformed input."""

    __slots__ = ("_data", "_end", "_what", "at")

    def __init__(self, data: memoryview, what: str) -> None:
        self._data = data
        self._end = len(data)
        self._what = what
        self.at = 0

    def fail(self, problem: str, cause: Exception | None = None) -> NoReturn:
        """Raises ParseError with the current position."""
        if len(problem) > 2000:  # it may quote the input
            problem = problem[:2000] + " ..."
        raise ParseError(f"{self._what}, byte {_HEADER_BYTES + self.at}: {problem}") from cause

    def done(self) -> None:
        """Fails unless all bytes have been read."""
        if self.at != self._end:
            self.fail(f"{self._end - self.at} bytes are left over")

    def byte(self) -> int:
        """Reads a byte."""
        at = self.at
        if at >= self._end:
            self.fail("the content ends too early")
        self.at = at + 1
        return self._data[at]

    def flag(self, what: str) -> bool:
        """Reads a boolean."""
        byte = self.byte()
        if byte > 1:
            self.fail(f"{what} must be 0 or 1, not {byte}")
        return byte == 1

    def uint(self) -> int:
        """Reads a varint of up to 64 bits."""
        data, at, end = self._data, self.at, self._end
        n = shift = 0
        while at < end:
            byte = data[at]
            at += 1
            n |= (byte & 0x7F) << shift
            if byte < 0x80:
                if n >> _UINT_BITS:
                    break
                self.at = at
                return n
            shift += 7
            if shift >= _UINT_BITS + 6:
                break
        else:
            self.fail("the content ends within a number")
        self.fail(f"a number has more than {_UINT_BITS} bits")

    def count(self, what: str) -> int:
        """Reads the number of items that follow."""
        n = self.uint()
        if n > self._end - self.at:
            self.fail(f"{n} {what} can't fit in the {self._end - self.at} bytes that are left")
        return n

    def index(self, below: int, what: str) -> int:
        """Reads a number less than `below`: an index into a table of `what`."""
        n = self.uint()
        if n >= below:
            self.fail(f"there is no {what} {n}: there are {below}")
        return n

    def take(self, size: int, what: str) -> memoryview:
        """Reads `size` bytes."""
        if size > self._end - self.at:
            self.fail(f"{what} of {size} bytes can't fit in the {self._end - self.at} bytes that are left")
        start = self.at
        self.at = start + size
        return self._data[start : self.at]

    def length_prefixed(self, what: str) -> memoryview:
        """Reads a length and as many bytes."""
        return self.take(self.uint(), what)

    def string(self, what: str) -> str:
        """Reads a string."""
        content = self.length_prefixed(what)
        try:
            return str(content, "utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            self.fail(f"{what} is not UTF-8: {error}", error)
