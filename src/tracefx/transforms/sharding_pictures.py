"""Pictures of shardings for the terminal: an array as a box, cut as it is, with the devices in each part."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from math import prod
from typing import Final

from tracefx.core.array import Array
from tracefx.core.avals import Shape
from tracefx.core.backend import Device
from tracefx.core.shardings import Index, Sharding
from tracefx.core.values import ConcreteArray


def visualize_sharding(
    shape: Sequence[int],
    sharding: Sharding,
    *,
    use_color: bool = True,
    min_width: int = 9,
    max_width: int = 80,
) -> None:
    """Print how an array of a shape is cut, and on which devices its parts lie.

    The picture has the array's rows from top to bottom and its columns from left to right; an array with more axes is
    shown as several pictures. Terminals show parts in colours, unless `use_color` is False. Parts are at least
    `min_width` and pictures, if that can be, at most `max_width` characters wide.

    Raises ValueError if the array can't be cut so.

    >>> from tracefx import NamedSharding, P, make_mesh
    >>> visualize_sharding((4, 2), NamedSharding(make_mesh((1, 1), ("x", "y")), P("x", "y")))
    +---------+
    |  CPU 0  |
    +---------+
    """
    coloured = use_color and sys.stdout.isatty()
    sys.stdout.write(picture(tuple(shape), sharding, coloured, min_width, max_width) + "\n")


def visualize_array_sharding(arr: Array, *, use_color: bool = True, min_width: int = 9, max_width: int = 80) -> None:
    """Print on which devices the parts of an array lie, as `visualize_sharding` does.

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
    visualize_sharding(arr.shape, arr.sharding, use_color=use_color, min_width=min_width, max_width=max_width)


def picture(shape: Shape, sharding: Sharding, coloured: bool, min_width: int, max_width: int) -> str:
    """The picture as text."""
    tiling = sharding.tiling(len(shape))
    indices = tiling.indices(shape)
    on: dict[int, list[Device]] = {}
    part: dict[int, Index] = {}
    for device, place, index in zip(tiling.devices, tiling.places, indices, strict=True):
        on.setdefault(place, []).append(device)
        part[place] = index
    rows, columns = (1, 1, *tiling.counts)[-2:]
    lines: list[str] = []
    for first in range(0, prod(tiling.counts), rows * columns):
        if len(shape) > 2:
            lines.append(f"[{', '.join([_shown(s) for s in part[first][:-2]])}]")
        labels = [[_label(on[first + r * columns + c]) for c in range(columns)] for r in range(rows)]
        lines += _box(labels, coloured, min_width, max_width)
    return "\n".join(lines)


def _shown(part: slice) -> str:
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


def _box(labels: Sequence[Sequence[str]], coloured: bool, min_width: int, max_width: int) -> Iterator[str]:
    columns = len(labels[0])
    fits = max(4, (max_width - 1) // columns - 1)
    width = min(max(min_width, *[len(label) + 2 for row in labels for label in row]), fits)
    rule = "+" + "+".join(["-" * width] * columns) + "+"
    number = 0
    yield rule
    for row in labels:
        cells = [_wrapped(label, width) for label in row]
        for k in range(max(map(len, cells))):
            line = [(cell[k] if k < len(cell) else "").center(width) for cell in cells]
            yield "|" + "|".join([_painted(text, number + c, coloured) for c, text in enumerate(line)]) + "|"
        number += columns
        yield rule


def _wrapped(label: str, width: int) -> list[str]:
    if len(label) <= width:
        return [label]
    return [line.replace(", ", ",") for line in textwrap.wrap(label.replace(",", ", "), width)]


_PALETTE: Final = (153, 223, 151, 217, 189, 230, 158, 225, 187, 195, 222, 182)
"""Light colours of terminals with 256 of them, on which black can be read."""


def _painted(text: str, number: int, coloured: bool) -> str:
    return f"\x1b[48;5;{_PALETTE[number % len(_PALETTE)]}m\x1b[30m{text}\x1b[0m" if coloured else text
