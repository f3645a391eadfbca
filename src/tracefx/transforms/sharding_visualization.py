"""Pictures of shardings for the terminal: a box divided like the array, with the devices of each shard."""

from __future__ import annotations

import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Final, TypeAlias, TypedDict, Unpack, final

from attrs import frozen

from tracefx.core import Array, ConcreteArray, Shape
from tracefx.core.device import Device
from tracefx.core.sharding import ShardIndex, Sharding
from tracefx.filtered_tracebacks import api_boundary

ColorMap: TypeAlias = Callable[[float], Sequence[float]]
"""A function from a position between 0 and 1 to red, green and blue between 0 and 1."""


class PictureOptions(TypedDict, total=False):
    """The options of `visualize_sharding`."""

    use_color: bool
    scale: float
    min_width: int
    max_width: int
    color_map: ColorMap | None


@api_boundary
def visualize_sharding(
    shape: Sequence[int],
    sharding: Sharding,
    *,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: ColorMap | None = None,
) -> None:
    """Prints how an array of a given shape is divided, and the devices of each shard.

    Rows of the array go from top to bottom, columns from left to right. An array with more than two axes is shown as
    several pictures.

    Args:
        shape: The shape of the array.
        sharding: The sharding.
        use_color: Whether shards are coloured; only on terminals. True by default.
        scale: A factor for the width and height of shards. The default is 1.
        min_width: The minimal width of a shard, in characters. The default is 9.
        max_width: The maximal width of a picture, in characters; it may be exceeded by many columns. The default is 80.
        color_map: A function from the position of a shard, between 0 and 1, to red, green and blue, between 0 and 1,
            like the colour maps of Matplotlib. None, the default, means a palette of light colours.

    Raises:
        ValueError: If the array cannot be divided evenly.

    >>> from tracefx import NamedSharding, P, make_mesh
    >>> visualize_sharding((4, 2), NamedSharding(make_mesh((1, 1), ("x", "y")), P("x", "y")))
    +---------+
    |  CPU 0  |
    +---------+
    """
    style = PictureStyle(use_color and sys.stdout.isatty(), scale, min_width, max_width, color_map)
    sys.stdout.write(draw_sharding(tuple(shape), sharding, style) + "\n")


@api_boundary
def visualize_array_sharding(arr: Array, **kwargs: Unpack[PictureOptions]) -> None:
    """Prints how an array is divided, and the devices of each shard.

    Args:
        arr: A concrete array.
        **kwargs: The options of `visualize_sharding`.

    Raises:
        TypeError: If the array is traced: its sharding is not known.

    >>> import tracefx.numpy as fnp
    >>> visualize_array_sharding(fnp.ones(4))
    +---------+
    |  CPU 0  |
    +---------+
    """
    if not isinstance(arr, ConcreteArray):
        raise TypeError(
            f"visualize_array_sharding takes a concrete array, got {arr}: the compiler chooses the sharding of traced "
            "arrays; call it with a result, or look at jit(f).lower(...).compile().output_shardings"
        )
    visualize_sharding(arr.shape, arr.sharding, **kwargs)


@final
@frozen
class PictureStyle:
    """The style of a picture."""

    coloured: bool
    scale: float
    min_width: int
    max_width: int
    color_map: ColorMap | None

    def colorize(self, text: str, part: float, number: int) -> str:
        """Returns text in the colour of a shard, given its position between 0 and 1 and its number."""
        if not self.coloured:
            return text
        if self.color_map is None:
            return f"\x1b[48;5;{_PALETTE[number % len(_PALETTE)]}m\x1b[30m{text}\x1b[0m"
        red, green, blue = [round(255 * c) for c in self.color_map(part)[:3]]
        ink = 30 if 3 * red + 6 * green + blue > 1275 else 97  # black on light colours
        return f"\x1b[48;2;{red};{green};{blue}m\x1b[{ink}m{text}\x1b[0m"


def draw_sharding(shape: Shape, sharding: Sharding, style: PictureStyle) -> str:
    """Returns the picture as text."""
    tiling = sharding.tiling(len(shape))
    indices = tiling.indices(shape)
    on: dict[int, list[Device]] = {}
    part: dict[int, ShardIndex] = {}
    for device, tile, index in zip(tiling.devices, tiling.tile_indices, indices, strict=True):
        on.setdefault(tile, []).append(device)
        part[tile] = index
    rows, columns = (1, 1, *tiling.counts)[-2:]
    lines: list[str] = []
    for first in range(0, prod(tiling.counts), rows * columns):
        if len(shape) > 2:
            lines.append(f"[{', '.join([_format_slice(s) for s in part[first][:-2]])}]")
        labels = [[_label(on[first + r * columns + c]) for c in range(columns)] for r in range(rows)]
        lines += _box(labels, style)
    return "\n".join(lines)


def _format_slice(part: slice) -> str:
    return ":" if part.start is None else f"{part.start}:{part.stop}"


def _label(devices: Sequence[Device]) -> str:
    """Returns the platform and ids of devices; three and more consecutive ids are written as a range, such as `0-7`."""
    spans: list[list[int]] = []
    for n in sorted([d.id for d in devices]):
        if spans and n == spans[-1][-1] + 1:
            spans[-1].append(n)
        else:
            spans.append([n])
    ranges = [f"{s[0]}-{s[-1]}" if len(s) > 2 else ",".join(map(str, s)) for s in spans]
    return f"{devices[0].platform.upper()} {','.join(ranges)}"


def _box(labels: Sequence[Sequence[str]], style: PictureStyle) -> Iterator[str]:
    """Yields the lines of a box with one cell per label."""
    columns, parts = len(labels[0]), len(labels) * len(labels[0])
    fits = max(4, (style.max_width - 1) // columns - 1)
    wide = max(round(style.scale * style.min_width), *[len(label) + 2 for row in labels for label in row])
    width = min(wide, fits)
    rule = "+" + "+".join(["-" * width] * columns) + "+"
    number = 0
    yield rule
    for row in labels:
        cells = [_wrap_label(label, width) for label in row]
        height = max(round(style.scale), *map(len, cells))
        for k in range(height):
            at = [k - (height - len(cell)) // 2 for cell in cells]
            line = [(cell[i] if 0 <= i < len(cell) else "").center(width) for cell, i in zip(cells, at, strict=True)]
            painted = [style.colorize(text, n / max(parts - 1, 1), n) for n, text in zip(itertools.count(number), line)]
            yield f"|{'|'.join(painted)}|"
        number += columns
        yield rule


def _wrap_label(label: str, width: int) -> list[str]:
    if len(label) <= width:
        return [label]
    return [line.replace(", ", ",") for line in textwrap.wrap(label.replace(",", ", "), width)]


_PALETTE: Final = (153, 223, 151, 217, 189, 230, 158, 225, 187, 195, 222, 182)
"""Light colours of the 256-colour terminal palette, for black text."""
