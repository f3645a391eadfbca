"""What stands between the brackets of `x[...]`: basic, advanced, mixed, boolean."""

from __future__ import annotations

from types import EllipsisType
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tracefx.testing.generated_programs import Shape

IndexEntry: TypeAlias = slice | int | EllipsisType | list[int] | npt.NDArray[Any] | None
BASIC_INDEXING: Final = ("slice", "integer", "newaxis", "ellipsis")
ADVANCED_INDEXING: Final = ("array", "list", "mask")


def index_expressions(
    shape: Shape, kinds: tuple[str, ...] = (*BASIC_INDEXING, *ADVANCED_INDEXING), max_new: int = 2
) -> SearchStrategy[IndexEntry | tuple[IndexEntry, ...]]:
    """Indices of an array of a shape, all within bounds, as NumPy takes them.

    `kinds` are the entries that may occur: `slice` (with steps of either sign, and bounds beyond the ends), `integer`
    (from either end), `newaxis`, `ellipsis`, `array` and `list` of integers, which broadcast together, and `mask`, of
    truth values for one axis or several. `BASIC_INDEXING` are the first four, `ADVANCED_INDEXING` the others. An index
    of one entry is
    drawn with and without the tuple around it.
    """
    unknown = set(kinds) - {*BASIC_INDEXING, *ADVANCED_INDEXING}
    if unknown:
        raise ValueError(
            f"kinds of indices are {', '.join((*BASIC_INDEXING, *ADVANCED_INDEXING))}, got {', '.join(sorted(unknown))}"
        )
    return _indices(shape, kinds, max_new)


@st.composite
def _indices(draw: DrawFn, shape: Shape, kinds: tuple[str, ...], max_new: int) -> IndexEntry | tuple[IndexEntry, ...]:
    entries: list[IndexEntry] = []
    common: Shape = draw(st.lists(st.integers(1, 2), max_size=2).map(tuple)) if "array" in kinds else ()
    axis, new, is_masked, has_arrays, has_ellipsis = 0, 0, False, False, False
    while axis < len(shape) or new < max_new:
        n = shape[axis] if axis < len(shape) else None
        rest = shape[axis:]
        possible = [
            kind
            for kind, fits in (
                ("slice", n is not None),
                ("integer", bool(n)),
                ("newaxis", new < max_new),
                ("ellipsis", not has_ellipsis),
                ("array", bool(n) and not is_masked),
                ("list", bool(n) and not is_masked),
                ("mask", bool(n) if has_arrays else bool(rest) and not is_masked),
            )
            if fits and kind in kinds
        ]
        if not possible or not draw(st.booleans()):
            break
        kind = draw(st.sampled_from(possible))
        within = st.integers(0, (n or 1) - 1) | st.integers(-(n or 1), -1)
        match kind:
            case "slice":
                entries.append(draw(_slices(n or 0)))
            case "integer":
                entries.append(draw(within))
            case "newaxis":
                entries.append(None)
                new += 1
                continue
            case "ellipsis":
                entries.append(...)
                has_ellipsis = True
                axis += draw(st.integers(0, len(rest)))
                continue  # what follows are the last axes, however many there are: those skipped here are its own
            case "mask":
                if has_arrays:  # with one place, so that it broadcasts with them
                    place = draw(st.integers(0, (n or 1) - 1))
                    entries.append(np.arange(n or 0) == place)
                    axis += 1
                    continue
                covered = draw(st.integers(1, len(rest)))
                count = int(np.prod(rest[:covered]))
                truths = draw(st.lists(st.booleans(), min_size=count, max_size=count))
                entries.append(np.array(truths, bool).reshape(rest[:covered]))
                is_masked = True
                axis += covered
                continue
            case _:
                has_arrays = True
                sizes = common[draw(st.integers(0, len(common))) :]
                size = int(np.prod(sizes))
                drawn = np.array(draw(st.lists(within, min_size=size, max_size=size)), np.int32).reshape(sizes)
                entries.append(drawn if kind == "array" or drawn.ndim != 1 else drawn.tolist())
        axis += 1
    if has_ellipsis:
        entries += [slice(None)] * (len(shape) - axis)  # so that the ellipsis stands for the axes it skipped
    if len(entries) == 1 and draw(st.booleans()):
        return entries[0]
    return tuple(entries)


@st.composite
def _slices(draw: DrawFn, n: int) -> slice:
    bounds = st.none() | st.integers(0, n + 1) | st.integers(-n - 1, -1)
    steps = st.sampled_from((None, 1, 2, -1, -2))
    return slice(draw(bounds), draw(bounds), draw(steps))
