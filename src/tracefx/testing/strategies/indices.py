"""A strategy for the index in `x[index]`: basic, advanced, mixed and boolean."""

from __future__ import annotations

from types import EllipsisType
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tracefx.core import Shape

IndexEntry: TypeAlias = slice | int | EllipsisType | list[int] | npt.NDArray[Any] | None
"""An entry of an index."""
BASIC_INDEXING: Final = ("slice", "integer", "newaxis", "ellipsis")
ADVANCED_INDEXING: Final = ("array", "list", "mask")


def index_expressions(
    shape: Shape, kinds: tuple[str, ...] = (*BASIC_INDEXING, *ADVANCED_INDEXING), max_new: int = 2
) -> SearchStrategy[IndexEntry | tuple[IndexEntry, ...]]:
    """Returns a strategy for in-bounds indices of an array, as NumPy accepts them.

    An index of one entry is drawn with and without the tuple around it.

    Args:
        shape: the shape of the array.
        kinds: the kinds of entries: `"slice"` (with steps of either sign, and bounds beyond the ends), `"integer"`
            (from either end), `"newaxis"`, `"ellipsis"`, `"array"` and `"list"` of integers, which broadcast together,
            and `"mask"`, of booleans for one axis or several. `BASIC_INDEXING` are the first four, `ADVANCED_INDEXING`
            the others.
        max_new: the maximum number of new axes.

    Returns:
        A strategy for indices.

    Raises:
        ValueError: if a kind is unknown.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=5, deadline=None)
    ... @given(index_expressions((3, 2)))
    ... def test(index):
    ...     part = np.zeros((3, 2))[index]  # raises no IndexError
    >>> test()
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
    broadcast_shape: Shape = draw(st.lists(st.integers(1, 2), max_size=2).map(tuple)) if "array" in kinds else ()
    axis, new, is_masked, has_arrays, has_ellipsis = 0, 0, False, False, False
    while axis < len(shape) or new < max_new:
        n = shape[axis] if axis < len(shape) else None
        remaining_sizes = shape[axis:]
        possible = [
            kind
            for kind, is_possible in (
                ("slice", n is not None),
                ("integer", bool(n)),
                ("newaxis", new < max_new),
                ("ellipsis", not has_ellipsis),
                ("array", bool(n) and not is_masked),
                ("list", bool(n) and not is_masked),
                ("mask", bool(n) if has_arrays else bool(remaining_sizes) and not is_masked),
            )
            if is_possible and kind in kinds
        ]
        if not possible or not draw(st.booleans()):
            break
        kind = draw(st.sampled_from(possible))
        in_bounds = st.integers(0, (n or 1) - 1) | st.integers(-(n or 1), -1)
        match kind:
            case "slice":
                entries.append(draw(_slices(n or 0)))
            case "integer":
                entries.append(draw(in_bounds))
            case "newaxis":
                entries.append(None)
                new += 1
                continue
            case "ellipsis":
                entries.append(...)
                has_ellipsis = True
                axis += draw(st.integers(0, len(remaining_sizes)))
                continue  # entries after it index the last axes; the axes skipped here are those it stands for
            case "mask":
                if has_arrays:  # with one true element, so that it broadcasts with the arrays
                    position = draw(st.integers(0, (n or 1) - 1))
                    entries.append(np.arange(n or 0) == position)
                    axis += 1
                    continue
                mask_rank = draw(st.integers(1, len(remaining_sizes)))
                count = int(np.prod(remaining_sizes[:mask_rank]))
                truths = draw(st.lists(st.booleans(), min_size=count, max_size=count))
                entries.append(np.array(truths, bool).reshape(remaining_sizes[:mask_rank]))
                is_masked = True
                axis += mask_rank
                continue
            case _:
                has_arrays = True
                sizes = broadcast_shape[draw(st.integers(0, len(broadcast_shape))) :]
                size = int(np.prod(sizes))
                index_array = np.array(draw(st.lists(in_bounds, min_size=size, max_size=size)), np.int32).reshape(sizes)
                entries.append(index_array if kind == "array" or index_array.ndim != 1 else index_array.tolist())
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
