"""Bytes that leave the process: how numbers and strings are written, and how they are read from whoever wrote them.

A file is sealed: what it is, which version of that, how long, the content, and a checksum, which finds damage. It is no
protection, since anyone can compute it: a reader takes nothing for granted. Every count is compared with the bytes
that are left before anything is made for it, as each thing that is counted takes a byte at least.
"""

from __future__ import annotations

import zlib
from typing import Final, NoReturn, TypeAlias, final

from tracefx.errors import ParseError

BytesLike: TypeAlias = bytes | bytearray | memoryview

MAGIC_BYTES: Final = 16
_VERSION_BYTES: Final = 2
_LENGTH_BYTES: Final = 8
_CHECKSUM_BYTES: Final = 4
_HEADER_BYTES: Final = MAGIC_BYTES + _VERSION_BYTES + _LENGTH_BYTES
_UINT_BITS: Final = 64


# ------------------------------------------------------------------ whole files


def encode_envelope(magic: bytes, version: int, content: BytesLike) -> bytes:
    """A file: magic, version, length of the content, content, CRC-32 of all that."""
    assert len(magic) == MAGIC_BYTES
    head = magic + version.to_bytes(_VERSION_BYTES, "little") + len(content).to_bytes(_LENGTH_BYTES, "little")
    checksum = zlib.crc32(content, zlib.crc32(head))
    return b"".join([head, content, checksum.to_bytes(_CHECKSUM_BYTES, "little")])


def decode_envelope(data: BytesLike, magic: bytes, version: int, what: str) -> ByteReader:
    """A reader of the content of a file of this version; `what` is what the file should be, for errors to tell.

    Raises ParseError if the file is something else, of another version, not whole, or damaged; TypeError if `data` are
    no bytes.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"{what} is read from bytes, got {type(data).__name__}")
    view = memoryview(data).cast("B") if isinstance(data, memoryview) else memoryview(data)
    if view[:MAGIC_BYTES] != magic:
        raise ParseError(
            f"these {len(view)} bytes are not {what}, which begins with {magic!r}: they begin with "
            f"{bytes(view[:MAGIC_BYTES])!r}"
        )
    if len(view) < _HEADER_BYTES + _CHECKSUM_BYTES:
        raise ParseError(f"{what} is cut off: {len(view)} bytes are less than its head and its checksum take")
    found = int.from_bytes(view[MAGIC_BYTES : MAGIC_BYTES + _VERSION_BYTES], "little")
    if found != version:
        raise ParseError(f"{what} is of version {found} of the format, but this tracefx reads version {version}")
    length = int.from_bytes(view[_HEADER_BYTES - _LENGTH_BYTES : _HEADER_BYTES], "little")
    if length != len(view) - _HEADER_BYTES - _CHECKSUM_BYTES:
        raise ParseError(
            f"{what} is cut off, or has something after it: it says that its content has {length} bytes, but there are "
            f"{len(view) - _HEADER_BYTES - _CHECKSUM_BYTES}"
        )
    if zlib.crc32(view[:-_CHECKSUM_BYTES]) != int.from_bytes(view[-_CHECKSUM_BYTES:], "little"):
        raise ParseError(f"{what} is damaged: its checksum is another one")
    return ByteReader(view[_HEADER_BYTES:-_CHECKSUM_BYTES], what)


# ------------------------------------------------------------------ writing


def put_uint(out: bytearray, n: int) -> None:
    """A number in groups of seven bits, the lowest first; all bytes but the last have the highest bit set.

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
    """A length and so many bytes."""
    put_uint(out, len(content))
    out += content


def put_string(out: bytearray, text: str) -> None:
    """A length in bytes, and UTF-8, in which lone surrogates are encoded as other characters are."""
    put_bytes(out, text.encode("utf-8", "surrogatepass"))


# ------------------------------------------------------------------ reading


@final
class ByteReader:
    """Reads what the functions above wrote, or raises ParseError, which tells the byte where it happened."""

    __slots__ = ("_data", "_end", "_what", "at")

    def __init__(self, data: memoryview, what: str) -> None:
        self._data = data
        self._end = len(data)
        self._what = what
        self.at = 0

    def fail(self, problem: str, cause: Exception | None = None) -> NoReturn:
        if len(problem) > 2000:  # of what is quoted
            problem = problem[:2000] + " ..."
        raise ParseError(f"{self._what}, byte {_HEADER_BYTES + self.at}: {problem}") from cause

    def done(self) -> None:
        """Require that nothing is left."""
        if self.at != self._end:
            self.fail(f"{self._end - self.at} bytes are left over")

    def byte(self) -> int:
        at = self.at
        if at >= self._end:
            self.fail("the content ends too early")
        self.at = at + 1
        return self._data[at]

    def flag(self, what: str) -> bool:
        byte = self.byte()
        if byte > 1:
            self.fail(f"{what} must be 0 or 1, not {byte}")
        return byte == 1

    def uint(self) -> int:
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
        """A number of things that follow."""
        n = self.uint()
        if n > self._end - self.at:
            self.fail(f"{n} {what} can't stand in the {self._end - self.at} bytes that are left")
        return n

    def index(self, below: int, what: str) -> int:
        """The number of one of `below` things."""
        n = self.uint()
        if n >= below:
            self.fail(f"there is no {what} {n}: there are {below}")
        return n

    def take(self, size: int, what: str) -> memoryview:
        if size > self._end - self.at:
            self.fail(f"{what} of {size} bytes can't stand in the {self._end - self.at} bytes that are left")
        start = self.at
        self.at = start + size
        return self._data[start : self.at]

    def length_prefixed(self, what: str) -> memoryview:
        return self.take(self.uint(), what)

    def string(self, what: str) -> str:
        content = self.length_prefixed(what)
        try:
            return str(content, "utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            self.fail(f"{what} is no UTF-8: {error}", error)
