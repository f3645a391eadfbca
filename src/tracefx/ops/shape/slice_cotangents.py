"""`SliceCotangents`: accumulates the cotangents of slices of one array into that of the array."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Final, NamedTuple, final

from tracefx.core import Shape, ShapedArray, Value
from tracefx.core.handler import bind1
from tracefx.dimensions.symbolic_dimensions import is_symbolic_dim
from tracefx.ops import structural
from tracefx.ops.elementwise.elementwise import ADD
from tracefx.ops.shape.array_creation import zero
from tracefx.ops.shape.shape import concatenate
from tracefx.ops.shape.slicing import pad
from tracefx.source_location import Provenance

_MIN_CONTIGUOUS: Final = 16
"""The fewest contiguous elements for which a copy of their own is worth it."""

_MAX_JOINED: Final = 8
"""The most parts that are concatenated. Each becomes a kernel, which XLA compiles slowly; parts that are padded and
added instead become one kernel, which decides for each element what part it belongs to.
"""


class _Piece(NamedTuple):
    """The cotangent of the slice from `start` to `stop` (exclusive) along one axis."""

    start: int
    stop: int
    ct: Value


@final
class SliceCotangents:
    """A lazily evaluated sum of a cotangent of the whole array, if there is one, and cotangents of its slices.

    Adjacent slices are concatenated. Transposing each slice alone would pad each cotangent to the size of the array,
    and add all of these.
    """

    __slots__ = ("aval", "source", "whole", "windows")

    def __init__(self, aval: ShapedArray, whole: Value | None, source: Provenance | None) -> None:
        self.aval = aval
        self.whole = whole
        self.source = source
        self.windows: dict[tuple[Shape, Shape], Value] = {}

    def add(self, ct: Value) -> None:
        """Adds a cotangent of the whole array."""
        self.whole = ct if self.whole is None else bind1(ADD, self.whole, ct)

    def add_window(self, starts: Sequence[int], limits: Sequence[int], ct: Value) -> None:
        """Adds the cotangent of the window from the indices `starts` to `limits` (exclusive)."""
        bounds = tuple(starts), tuple(limits)
        previous = self.windows.get(bounds)
        self.windows[bounds] = ct if previous is None else bind1(ADD, previous, ct)

    def total(self) -> Value:
        """Returns the cotangent of the array."""
        terms: list[Value] = [] if self.whole is None else [self.whole]
        along: dict[int, list[_Piece]] = {}
        for (starts, limits), ct in self.windows.items():
            cut = [d for d, n in enumerate(self.aval.shape) if starts[d] or limits[d] != n]
            if len(cut) == 1:
                (axis,) = cut
                along.setdefault(axis, []).append(_Piece(starts[axis], limits[axis], ct))
            else:
                config = [(low, n - high, 0) for low, high, n in zip(starts, limits, self.aval.shape, strict=True)]
                terms.append(pad(ct, zero(ct.aval), config))
        for axis, pieces in along.items():
            terms += [self._joined(axis, self._blocks(axis, row)) for row in _disjoint(pieces)]
        return functools.reduce(_add, terms)

    def _blocks(self, axis: int, pieces: Sequence[_Piece]) -> Sequence[_Piece]:
        """Returns fewer and longer pieces if there are many or short ones, by padding and adding groups of them."""
        count, inner = len(pieces), math.prod(self.aval.shape[axis + 1 :])
        if count == 1 or is_symbolic_dim(inner):
            return pieces
        run = inner * sum([p.stop - p.start for p in pieces]) // count
        size = max(1 if count <= _MAX_JOINED else _MAX_JOINED, math.ceil(_MIN_CONTIGUOUS / max(1, run)))
        if 1 < count <= size:
            return [_block(axis, pieces, 0, self.aval.shape[axis])]
        blocks = [pieces[i : i + size] for i in range(0, count, size)]
        return [_block(axis, block, block[0].start, block[-1].stop) for block in blocks]

    def _joined(self, axis: int, pieces: Sequence[_Piece]) -> Value:
        """Returns the concatenation of disjoint, sorted pieces, with zeros before, between and after them."""
        end = pieces[0].start
        parts: list[Value] = []
        for start, stop, ct in pieces:
            if start > end:
                shape = ct.aval.shape
                parts.append(
                    structural.full_like_aval(ct.aval.update(shape=(*shape[:axis], start - end, *shape[axis + 1 :])), 0)
                )
            parts.append(ct)
            end = stop
        return _padded(axis, concatenate(parts, axis), pieces[0].start, self.aval.shape[axis] - end)


def _block(axis: int, pieces: Sequence[_Piece], low: int, high: int) -> _Piece:
    """Returns the sum of pieces as one piece from `low` to `high` (exclusive)."""
    parts = [_padded(axis, p.ct, p.start - low, high - p.stop) for p in pieces]
    return _Piece(low, high, functools.reduce(_add, parts))


def _padded(axis: int, ct: Value, low: int, high: int) -> Value:
    """Returns `ct` padded with zeros along `axis`."""
    config = [(0, 0, 0)] * ct.aval.ndim
    config[axis] = low, high, 0
    return pad(ct, zero(ct.aval), config)


_add: Final = functools.partial(bind1, ADD)


def _disjoint(pieces: Sequence[_Piece]) -> Sequence[Sequence[_Piece]]:
    """Partitions pieces into the fewest rows of non-overlapping, sorted pieces; one for each if a bound is symbolic."""
    if any(is_symbolic_dim(bound) for p in pieces for bound in (p.start, p.stop)):
        return [[piece] for piece in pieces]
    rows: list[list[_Piece]] = []
    for piece in sorted(pieces, key=lambda p: (p.start, p.stop)):
        row = next((r for r in rows if r[-1].stop <= piece.start), None)
        if row is None:
            rows.append([piece])
        else:
            row.append(piece)
    return rows
