"""Pictures of shardings for the terminal: an array as a box, cut as it is, with the devices in each part."""

from __future__ import annotations

import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Final, TypeAlias, TypedDict, Unpack, final

from attrs import frozen

from tracefx.core.array import Array
from tracefx.core.avals import Shape
from tracefx.core.device import Device
from tracefx.core.sharding import ShardIndex, Sharding
from tracefx.core.values import ConcreteArray

ColorMap: TypeAlias = Callable[[float], Sequence[float]]
"""Red, green and blue, from 0 to 1, for the parts from 0 to 1, as the colour maps of Matplotlib give them."""


class PictureOptions(TypedDict, total=False):
    """What `visualize_sharding` can be told of the picture."""

    use_color: bool
    scale: float
    min_width: int
    max_width: int
    color_map: ColorMap | None


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
    """Print how an array of a shape is cut, and on which devices its parts lie.

    The picture has the array's rows from top to bottom and its columns from left to right; an array with more axes is
    shown as several pictures. Terminals show parts in colours, those of `color_map` if it is given, unless `use_color`
    is False. Parts are at least `min_width` characters wide, `scale` times that and as many lines high; pictures are,
    if that can be, at most `max_width` wide.

    Raises ValueError if the array can't be cut so.

    >>> from tracefx import NamedSharding, P, make_mesh
    >>> visualize_sharding((4, 2), NamedSharding(make_mesh((1, 1), ("x", "y")), P("x", "y")))
    +---------+
    |  CPU 0  |
    +---------+
    """
    look = PictureStyle(use_color and sys.stdout.isatty(), scale, min_width, max_width, color_map)
    sys.stdout.write(picture(tuple(shape), sharding, look) + "\n")


def visualize_array_sharding(arr: Array, **kwargs: Unpack[PictureOptions]) -> None:
    """Print on which devices the parts of an array lie, as `visualize_sharding` does, with its options.

    Raises TypeError for an array that is traced, which lies nowhere yet.

    >>> import tracefx.numpy as fnp
    >>> visualize_array_sharding(fnp.ones(4))
    +---------+
    |  CPU 0  |
    +---------+
    """
    if not isinstance(arr, ConcreteArray):
        raise TypeError(
            f"visualize_array_sharding takes an array with numbers, got {arr}: where a traced array lies is decided by "
            "the compiler; call it on the results, or look at jit(f).lower(...).compile().output_shardings"
        )
    visualize_sharding(arr.shape, arr.sharding, **kwargs)


@final
@frozen
class PictureStyle:
    """What a picture looks like."""

    coloured: bool
    scale: float
    min_width: int
    max_width: int
    color_map: ColorMap | None

    def colorize(self, text: str, part: float, number: int) -> str:
        """Text in the colours of a part, by its place between 0 and 1 and its number."""
        if not self.coloured:
            return text
        if self.color_map is None:
            return f"\x1b[48;5;{_PALETTE[number % len(_PALETTE)]}m\x1b[30m{text}\x1b[0m"
        red, green, blue = [round(255 * c) for c in self.color_map(part)[:3]]
        ink = 30 if 3 * red + 6 * green + blue > 1275 else 97  # black on what is light
        return f"\x1b[48;2;{red};{green};{blue}m\x1b[{ink}m{text}\x1b[0m"


def picture(shape: Shape, sharding: Sharding, look: PictureStyle) -> str:
    """The picture as text."""
    tiling = sharding.tiling(len(shape))
    indices = tiling.indices(shape)
    on: dict[int, list[Device]] = {}
    part: dict[int, ShardIndex] = {}
    for device, place, index in zip(tiling.devices, tiling.tile_indices, indices, strict=True):
        on.setdefault(place, []).append(device)
        part[place] = index
    rows, columns = (1, 1, *tiling.counts)[-2:]
    lines: list[str] = []
    for first in range(0, prod(tiling.counts), rows * columns):
        if len(shape) > 2:
            lines.append(f"[{', '.join([_format_slice(s) for s in part[first][:-2]])}]")
        labels = [[_label(on[first + r * columns + c]) for c in range(columns)] for r in range(rows)]
        lines += _box(labels, look)
    return "\n".join(lines)


def _format_slice(part: slice) -> str:
    return ":" if part.start is None else f"{part.start}:{part.stop}"


def _label(devices: Sequence[Device]) -> str:
    """The devices by their numbers, of which three and more in a row are said as `0-7`."""
    spans: list[list[int]] = []
    for n in sorted([d.id for d in devices]):
        if spans and n == spans[-1][-1] + 1:
            spans[-1].append(n)
        else:
            spans.append([n])
    said = [f"{s[0]}-{s[-1]}" if len(s) > 2 else ",".join(map(str, s)) for s in spans]
    return f"{devices[0].platform.upper()} {','.join(said)}"


def _box(labels: Sequence[Sequence[str]], look: PictureStyle) -> Iterator[str]:
    columns, parts = len(labels[0]), len(labels) * len(labels[0])
    fits = max(4, (look.max_width - 1) // columns - 1)
    wide = max(round(look.scale * look.min_width), *[len(label) + 2 for row in labels for label in row])
    width = min(wide, fits)
    rule = "+" + "+".join(["-" * width] * columns) + "+"
    number = 0
    yield rule
    for row in labels:
        cells = [_wrap_label(label, width) for label in row]
        height = max(round(look.scale), *map(len, cells))
        for k in range(height):
            at = [k - (height - len(cell)) // 2 for cell in cells]
            line = [(cell[i] if 0 <= i < len(cell) else "").center(width) for cell, i in zip(cells, at, strict=True)]
            painted = [look.colorize(text, n / max(parts - 1, 1), n) for n, text in zip(itertools.count(number), line)]
            yield f"|{'|'.join(painted)}|"
        number += columns
        yield rule


def _wrap_label(label: str, width: int) -> list[str]:
    if len(label) <= width:
        return [label]
    return [line.replace(", ", ",") for line in textwrap.wrap(label.replace(",", ", "), width)]


_PALETTE: Final = (153, 223, 151, 217, 189, 230, 158, 225, 187, 195, 222, 182)
"""Light colours of terminals with 256 of them, on which black can be read."""
