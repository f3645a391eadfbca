"""Decoder of exported functions in the FlatBuffers format of `jax.export`."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Mapping
from typing import Final, Literal, NoReturn, TypeAlias, TypeVar, final

from tracefx.core import DType, ShapedArray
from tracefx.dimensions.bounds import SymbolicScope
from tracefx.dimensions.parser import parse_dimensions
from tracefx.dimensions.symbolic_dimensions import is_symbolic_dim
from tracefx.errors import ParseError
from tracefx.pytrees.structures import NodeKind, TreeDescription
from tracefx.serialization.byte_format import BytesLike
from tracefx.transforms.jax_export_format import DTYPE_CODES, NODE_KIND_CODES, JaxExport

T = TypeVar("T")

CALLING_CONVENTIONS: Final = (9, 10)
"""The versions of JAX's calling convention that are supported. The second adds annotations of Shardy."""
_NODE_KINDS: Final[Mapping[int, NodeKind]] = {code: kind for kind, code in NODE_KIND_CODES.items()}
_NODE_TYPES: Final[Mapping[NodeKind, type]] = {"none": type(None), "tuple": tuple, "list": list, "dict": dict}
_CUSTOM_NODE: Final = 5
_DTYPES: Final[Mapping[int, DType]] = {code: dtype for dtype, code in DTYPE_CODES.items()}
_HOST_MEMORY_SPACE: Final = 2
_PLATFORM_CHECK: Final = 0
_MAX_DEPTH: Final = 100
_WHAT: Final = "a function that JAX exported"

_Scalar: TypeAlias = Literal["<b", "<H", "<h", "<i", "<I"]


def is_jax_export(data: object) -> bool:
    """Whether a value is bytes that begin as an exported function in JAX's format does, which has no magic bytes."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        return False
    try:
        return _root(data).number(0, "<H") > 0
    except ParseError:
        return False


def decode_jax_export(data: BytesLike) -> JaxExport:
    """Returns the contents of bytes that `jax.export.Exported.serialize` returned.

    Raises:
        ParseError: If the bytes are malformed.
        NotImplementedError: If the function has contents that tracefx does not support.
    """
    return _export(_root(data), SymbolicScope(()), 0)


def fail_parsing(problem: str) -> NoReturn:
    """Raises ParseError for malformed bytes."""
    raise ParseError(f"{_WHAT}: {problem}")


def _root(data: BytesLike) -> _Table:
    file = _File(memoryview(data).cast("B"))
    return _Table(file, file.follow(0))


def _export(table: _Table, scope: SymbolicScope, depth: int) -> JaxExport:
    name = table.string(1)
    _require_supported(table, name)

    def avals(slot: int, numbers_slot: int) -> list[ShapedArray]:
        unique = [_aval(each, scope, name) for each in table.tables(19)]
        if not unique:  # JAX before 0.10 wrote the types of all arguments and results
            return [_aval(each, scope, name) for each in table.tables(slot)]
        numbers = table.numbers(numbers_slot, "<I")
        if any(n >= len(unique) for n in numbers):
            fail_parsing(f"there are {len(unique)} types, but one has a number in {numbers}")
        return [unique[n] for n in numbers]

    vjp = table.table(17)
    in_avals = avals(3, 22)
    kept = table.numbers(15, "<H")
    if any(a >= b for a, b in itertools.pairwise([*kept, len(in_avals)])):
        fail_parsing(f"the inputs that the module takes, {kept}, are not some of {len(in_avals)} in their order")
    if depth > _MAX_DEPTH:
        fail_parsing(f"backward passes are nested more than {_MAX_DEPTH} deep")
    return JaxExport(
        name,
        table.required(2, "structure of arguments", _tree).build(),
        table.required(4, "structure of results", _tree).build(),
        in_avals,
        avals(5, 23),
        table.strings(9),
        table.data(13),
        kept,
        vjp=None if vjp is None else _export(vjp, scope, depth + 1),
    )


def _require_supported(table: _Table, name: str) -> None:
    """Raises NotImplementedError unless the function has supported contents only."""
    convention = table.number(14, "<H")
    if convention not in CALLING_CONVENTIONS:
        raise NotImplementedError(
            f"load of {name}: it has version {convention} of JAX's calling convention; the versions "
            f"{CALLING_CONVENTIONS[0]} to {CALLING_CONVENTIONS[-1]} are supported"
        )
    devices = table.number(18, "<I") or table.number(6, "<h")
    if devices != 1:
        raise NotImplementedError(
            f"load of {name}: JAX exported it for {devices} devices, and only functions of one device are supported"
        )
    effects = [each.string(0) for each in (*table.tables(10), *table.tables(11))]
    if effects:
        raise NotImplementedError(f"load of {name}: it has effects of JAX, which are not supported: {effects}")
    if any(each.number(0, "<b") == _PLATFORM_CHECK for each in table.tables(12)):
        raise NotImplementedError(
            f"load of {name}: it was exported without the check of platforms, which is not supported: export it for "
            "all platforms on which it is called"
        )


def _aval(table: _Table, scope: SymbolicScope, name: str) -> ShapedArray:
    code = table.number(2, "<b")
    dtype = _DTYPES.get(code)
    if dtype is None:
        fail_parsing(f"there is no dtype with the number {code}")
    if table.number(3, "<b") == _HOST_MEMORY_SPACE:
        raise NotImplementedError(f"load of {name}: it has arrays in the memory of the host, which is not supported")
    text = ", ".join(table.strings(1))
    try:
        shape = parse_dimensions(text, scope)
    except ValueError as error:
        raise ParseError(f"{_WHAT}: {error}") from error
    if any(not is_symbolic_dim(n) and n < 0 for n in shape):
        fail_parsing(f"a shape has a negative size: {text}")
    return ShapedArray(shape, dtype)


def _tree(table: _Table, depth: int = 0) -> TreeDescription:
    if depth > _MAX_DEPTH:
        fail_parsing(f"containers are nested more than {_MAX_DEPTH} deep")
    code = table.number(0, "<b")
    if code == _CUSTOM_NODE:
        raise NotImplementedError(
            f"load: the arguments or results have nodes of type {table.string(3)}, which JAX's format gives by a name "
            "that is registered with jax.export; only tuples, lists, dicts and None are supported"
        )
    kind = _NODE_KINDS.get(code)
    if kind is None:
        fail_parsing(f"there is no container kind with the number {code}")
    children = tuple([_tree(child, depth + 1) for child in table.tables(1)])
    if kind in ("leaf", "none") and children:
        fail_parsing(f"a {kind} has children")
    metadata: object = None
    if kind == "dict":
        keys = table.strings(2)
        if len(keys) != len(children) or any(a >= b for a, b in itertools.pairwise(keys)):
            fail_parsing(f"the keys {keys!r} of a dict with {len(children)} values are not in their order")
        metadata = tuple(keys)
    return TreeDescription(kind, _NODE_TYPES.get(kind), metadata, children)


@final
class _File:
    """Reads a FlatBuffers file, whose tables refer to others by offsets that point forwards.

    Parts of a file can be shared, so the number of tables, strings and numbers that are read is bounded by its size.
    """

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self._left = len(data)

    def unpack(self, kind: _Scalar, at: int) -> int:
        """Returns the number at a position."""
        if not 0 <= at <= len(self.data) - struct.calcsize(kind):
            fail_parsing(f"the position {at} is outside of the {len(self.data)} bytes")
        number: int = struct.unpack_from(kind, self.data, at)[0]
        return number

    def follow(self, at: int) -> int:
        """Returns the position to which the offset at a position points."""
        offset = self.unpack("<I", at)
        if offset == 0:
            fail_parsing(f"the offset at position {at} is 0")
        return at + offset

    def count(self, at: int, size: int) -> int:
        """Returns the number of elements of the vector at a position, of `size` bytes each."""
        n = self.unpack("<I", at)
        if n * size > len(self.data) - at - 4:
            fail_parsing(f"a vector of {n} elements of {size} bytes can't fit at position {at}")
        self._left -= n
        if self._left < 0:
            fail_parsing("parts are repeated too often")
        return n

    def take(self, at: int) -> bytes:
        """Returns the contents of the vector of bytes at a position."""
        n = self.unpack("<I", at)
        if n > len(self.data) - at - 4:
            fail_parsing(f"{n} bytes can't fit at position {at}")
        self._left -= 4
        return bytes(self.data[at + 4 : at + 4 + n])


@final
class _Table:
    """A table of a FlatBuffers file. Fields that it lacks are empty or 0."""

    def __init__(self, file: _File, at: int) -> None:
        self._file = file
        self._at = at
        self._slots = at - file.unpack("<i", at)
        self._size = file.unpack("<H", self._slots)

    def _field(self, slot: int) -> int:
        """Returns the position of a field, or 0."""
        entry = 4 + 2 * slot
        offset = self._file.unpack("<H", self._slots + entry) if entry < self._size else 0
        return self._at + offset if offset else 0

    def _vector(self, slot: int) -> int:
        at = self._field(slot)
        return self._file.follow(at) if at else 0

    def number(self, slot: int, kind: _Scalar) -> int:
        at = self._field(slot)
        return self._file.unpack(kind, at) if at else 0

    def numbers(self, slot: int, kind: _Scalar) -> list[int]:
        at, size = self._vector(slot), struct.calcsize(kind)
        return [self._file.unpack(kind, at + 4 + size * i) for i in range(self._file.count(at, size))] if at else []

    def data(self, slot: int) -> bytes:
        at = self._vector(slot)
        return self._file.take(at) if at else b""

    def string(self, slot: int) -> str:
        return self._text(self._vector(slot)) if self._field(slot) else ""

    def _text(self, at: int) -> str:
        try:
            return self._file.take(at).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise ParseError(f"{_WHAT}: the string at position {at} is not UTF-8: {error}") from error

    def _positions(self, slot: int) -> list[int]:
        at = self._vector(slot)
        return [self._file.follow(at + 4 + 4 * i) for i in range(self._file.count(at, 4))] if at else []

    def strings(self, slot: int) -> list[str]:
        return list(map(self._text, self._positions(slot)))

    def tables(self, slot: int) -> list[_Table]:
        return [_Table(self._file, at) for at in self._positions(slot)]

    def table(self, slot: int) -> _Table | None:
        at = self._vector(slot)
        return _Table(self._file, at) if at else None

    def required(self, slot: int, what: str, read: Callable[[_Table], T]) -> T:
        table = self.table(slot)
        if table is None:
            fail_parsing(f"it has no {what}")
        return read(table)
