"""Symbolic dimensions in serialized programs: as texts, with the constraints on their variables."""

from __future__ import annotations

from typing import cast, final

from tracefx.dimensions.bounds import SymbolicScope
from tracefx.dimensions.parser import parse_dimensions
from tracefx.dimensions.symbolic_dimensions import SymbolicDimension, is_symbolic_dim
from tracefx.errors import SerializationError
from tracefx.serialization.byte_format import ByteReader, put_string, put_uint
from tracefx.serialization.program_format import (
    MAX_CONSTRAINTS,
    MAX_DIMENSION_BYTES,
    SIZE_LIMIT,
    Tag,
    put_scalar,
    read_scalar,
)


def put_constraints(out: bytearray, dimension: SymbolicDimension) -> None:
    """Writes the constraints of the scope of a dimension."""
    scope = dimension.scope
    constraints = scope.constraints if isinstance(scope, SymbolicScope) else ()
    if len(constraints) > MAX_CONSTRAINTS:
        raise SerializationError(
            f"a scope has {len(constraints)} constraints; at most {MAX_CONSTRAINTS} are serialized"
        )
    put_uint(out, len(constraints))
    for text in constraints:
        put_string(out, _short(text))


def put_size(out: bytearray, size: int) -> None:
    """Writes an axis size, which may be symbolic, with a tag."""
    if not is_symbolic_dim(size):
        put_scalar(out, size)
        return
    out.append(Tag.DIMENSION)
    put_string(out, _short(str(size)))


def _short(text: str) -> str:
    if len(text.encode()) > MAX_DIMENSION_BYTES:
        raise SerializationError(f"the symbolic dimension {text} is longer than {MAX_DIMENSION_BYTES} bytes")
    return text


@final
class DimensionReader:
    """Reads the symbolic dimensions of one program. Their scope is read with the first type that has one."""

    def __init__(self, reader: ByteReader) -> None:
        self._reader = reader
        self._scope: SymbolicScope | None = None

    def constraints(self) -> None:
        """Reads the constraints before the first symbolic type."""
        if self._scope is not None:
            return
        reader = self._reader
        count = reader.count("constraints")
        if count > MAX_CONSTRAINTS:
            reader.fail(f"there are {count} constraints; there may be {MAX_CONSTRAINTS}")
        texts = [self._text("a constraint") for _ in range(count)]
        try:
            self._scope = SymbolicScope(texts)
        except (ValueError, TypeError, ZeroDivisionError, NotImplementedError) as error:
            reader.fail(f"the constraints are not valid: {error}", error)

    def size(self) -> int:
        """Reads an axis size of a symbolic type."""
        tag = self._reader.byte()
        if tag == Tag.DIMENSION:
            return self.dimension()
        size = read_scalar(self._reader, tag) if tag == Tag.INT else None
        if type(size) is not int or not 0 <= size < SIZE_LIMIT:
            self._reader.fail("a size is neither a symbolic dimension nor an integer from 0 to 2^63 - 1")
        return size

    def dimension(self) -> int:
        """Reads a symbolic dimension after its tag."""
        text = self._text("a symbolic dimension")
        if self._scope is None:
            self._reader.fail(f"the symbolic dimension {text!r} occurs in a program without symbolic types")
        try:
            (dimension,) = parse_dimensions(text, self._scope, simplified=False)
        except (ValueError, TypeError, ZeroDivisionError) as error:
            self._reader.fail(f"{text!r} is not a symbolic dimension: {error}", error)
        if not is_symbolic_dim(dimension):
            self._reader.fail(f"{text!r} is not symbolic")
        return cast(int, dimension)

    def _text(self, what: str) -> str:
        text = self._reader.string(what)
        if len(text) > MAX_DIMENSION_BYTES:
            self._reader.fail(f"{what} is longer than {MAX_DIMENSION_BYTES} bytes")
        return text
