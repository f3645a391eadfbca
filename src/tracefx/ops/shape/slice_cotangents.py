"""The cotangent of an array that was cut into windows: what came of each window, put together again."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Final, NamedTuple, final

from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.handler import bind1
from tracefx.core.source_location import Provenance
from tracefx.core.values import Value
from tracefx.ops import structural
from tracefx.ops.elementwise.elementwise import ADD
from tracefx.ops.shape.array_creation import zero
from tracefx.ops.shape.shape import concatenate
from tracefx.ops.shape.slicing import Slice, pad

_MIN_CONTIGUOUS: Final = 16
"""The fewest elements side by side that are worth a copy of their own."""

_MAX_JOINED: Final = 8
"""Each piece that is joined is a kernel of its own, which takes XLA long to compile. Pieces that are padded and added
up are one kernel together, which asks at each element which piece it is of."""


class _Piece(NamedTuple):
    """The cotangent of what lies from `start` to before `stop` along one axis."""

    start: int
    stop: int
    ct: Value


@final
class SliceCotangents:
    """A sum that isn't carried out yet: of a cotangent of the whole array, if there is one, and those of windows.

    Windows that lie beside each other are joined. The transposes of their slices alone would fill each with zeros to
    the size of the array, to add these up.
    """

    __slots__ = ("aval", "source", "whole", "windows")

    def __init__(self, aval: ShapedArray, whole: Value | None, source: Provenance | None) -> None:
        self.aval = aval
        self.whole = whole
        self.source = source
        self.windows: dict[tuple[Shape, Shape], Value] = {}

    def add(self, ct: Value) -> None:
        self.whole = ct if self.whole is None else bind1(ADD, self.whole, ct)

    def add_window(self, window: Slice, ct: Value) -> None:
        """Take up the cotangent of what a slice without strides took."""
        place = window.start_indices, window.limit_indices
        before = self.windows.get(place)
        self.windows[place] = ct if before is None else bind1(ADD, before, ct)

    def total(self) -> Value:
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
        """Fewer and longer pieces, where there are many or short ones."""
        count, inner = len(pieces), math.prod(self.aval.shape[axis + 1 :])
        run = inner * sum([p.stop - p.start for p in pieces]) // count
        size = max(1 if count <= _MAX_JOINED else _MAX_JOINED, math.ceil(_MIN_CONTIGUOUS / max(1, run)))
        if 1 < count <= size:
            return [_block(axis, pieces, 0, self.aval.shape[axis])]
        blocks = [pieces[i : i + size] for i in range(0, count, size)]
        return [_block(axis, block, block[0].start, block[-1].stop) for block in blocks]

    def _joined(self, axis: int, pieces: Sequence[_Piece]) -> Value:
        """Pieces in order, with zeros before, between and after them."""
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
    """Pieces as one, which reaches from `low` to before `high`."""
    parts = [_padded(axis, p.ct, p.start - low, high - p.stop) for p in pieces]
    return _Piece(low, high, functools.reduce(_add, parts))


def _padded(axis: int, ct: Value, low: int, high: int) -> Value:
    config = [(0, 0, 0)] * ct.aval.ndim
    config[axis] = low, high, 0
    return pad(ct, zero(ct.aval), config)


_add: Final = functools.partial(bind1, ADD)


def _disjoint(pieces: Sequence[_Piece]) -> Sequence[Sequence[_Piece]]:
    """Pieces in as few rows as it takes for those of a row not to overlap."""
    rows: list[list[_Piece]] = []
    for piece in sorted(pieces, key=lambda p: (p.start, p.stop)):
        row = next((r for r in rows if r[-1].stop <= piece.start), None)
        if row is None:
            rows.append([piece])
        else:
            row.append(piece)
    return rows
