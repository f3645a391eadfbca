"""Layouts of arrays in device memory, and formats: a layout with a sharding."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import ClassVar, Final, Literal, final

from attrs import field, frozen

from tracefx.core.sharding import Sharding


class AutoLayout(Enum):
    """The type of `Layout.AUTO`."""

    AUTO = "AUTO"


def _axes(given: Sequence[int]) -> tuple[int, ...]:
    return tuple(given)


def _tiles(given: Sequence[Sequence[int]] | None) -> tuple[tuple[int, ...], ...] | None:
    return None if given is None else tuple(map(tuple, given))


@final
@frozen
class Layout:
    """The order of the elements of an array in memory. The arrays of tracefx are row-major.

    Args:
        major_to_minor: The axes of the array, from the one with the largest stride to the one with the smallest.
        tiling: The tiles of elements that are adjacent in memory. None, the default, means that it is not specified.
        sub_byte_element_size_in_bits: The size of an element of less than 8 bits in packed memory. 0 by default.

    >>> Layout((0, 1)).is_row_major, Layout((1, 0)).is_row_major
    (True, False)
    """

    AUTO: ClassVar[Literal[AutoLayout.AUTO]] = AutoLayout.AUTO
    """Leaves the choice to the compiler, which chooses the row-major layout."""
    major_to_minor: tuple[int, ...] = field(converter=_axes)
    tiling: tuple[tuple[int, ...], ...] | None = field(default=None, converter=_tiles)
    sub_byte_element_size_in_bits: int = 0

    @property
    def is_row_major(self) -> bool:
        """Whether it is the row-major layout, without tiles."""
        return self.major_to_minor == tuple(range(len(self.major_to_minor))) and not self.tiling


@final
@frozen
class Format:
    """A layout with a sharding, accepted wherever a sharding is. Only row-major layouts are supported there.

    Args:
        layout: A `Layout`, or `Layout.AUTO`. None, the default, means that it is not specified.
        sharding: The sharding. None, the default, means that it is not specified.

    Raises:
        TypeError: If an argument has another type.
        ValueError: If there is a `Layout` but no sharding.

    >>> import tracefx.numpy as fnp
    >>> fnp.ones((2, 3)).format.layout
    Layout(major_to_minor=(0, 1), tiling=(), sub_byte_element_size_in_bits=0)
    """

    layout: Layout | AutoLayout | None = None
    sharding: Sharding | None = None

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.layout, Layout | AutoLayout | None):
            raise TypeError(f"Format: layout must be a Layout, Layout.AUTO or None, got {self.layout!r}")
        if not isinstance(self.sharding, Sharding | None):
            raise TypeError(f"Format: sharding must be a sharding or None, got {self.sharding!r}")
        if isinstance(self.layout, Layout) and self.sharding is None:
            raise ValueError("Format: a layout needs a sharding, which says where the array is: pass sharding=...")


_ROW_MAJOR_PLATFORMS: Final = frozenset({"cpu", "gpu", "cuda", "rocm"})


def format_of(sharding: Sharding, ndim: int) -> Format:
    """Returns the format of arrays with a sharding. On platforms that tile arrays (TPUs), the layout is None."""
    is_row_major = sharding.devices[0].platform in _ROW_MAJOR_PLATFORMS
    return Format(Layout(range(ndim), ()) if is_row_major else None, sharding)


def without_layout(given: object, what: str, ndim: int | None = None) -> object:
    """Returns the sharding of a `Format`, and anything else unchanged.

    Args:
        given: The format.
        what: The argument, for messages.
        ndim: The number of axes of the array, which has been or is placed now. None, the default, means that the
            compiler will place it.

    Raises:
        ValueError: For a layout that is not row-major; with `ndim`, also for one that the compiler should choose, or of
            another number of axes.
    """
    if not isinstance(given, Format):
        return given
    if ndim is not None and isinstance(given.layout, AutoLayout):
        raise ValueError(f"{what}: Layout.AUTO leaves the choice to the compiler, so only jit takes it, got {given}")
    if ndim is not None and isinstance(given.layout, Layout) and len(given.layout.major_to_minor) != ndim:
        raise ValueError(f"{what}: {given.layout} does not fit an array with {ndim} axes")
    if isinstance(given.layout, Layout) and not given.layout.is_row_major:
        raise ValueError(
            f"{what}: arrays are row-major, so {given.layout} is not supported: transpose the array instead, or pass "
            "the sharding alone"
        )
    return given.sharding
