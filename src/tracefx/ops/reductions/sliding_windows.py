"""`SlidingWindows`: the geometry of strided, dilated, padded windows, in NumPy and StableHLO."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import SupportsIndex, final

import numpy as np
from attrs import frozen

from tracefx.core import NDArray, Scalar, Shape, ShapedArray
from tracefx.errors import ShapeError
from tracefx.lowering import Attr, Builder, DenseI64Array, IrValue, Region, WindowPadding
from tracefx.ops.padding_types import Pads, padtype_to_pads
from tracefx.ops.shape.slicing import Pad
from tracefx.ops.static_integers import static_ints

Ints = tuple[int, ...]


@final
@frozen
class SlidingWindows:
    """Windows of shape `dimensions` that move over an array with `strides`.

    First `base_dilation` spaces out the elements of the array, then `padding` is added. `window_dilation` spaces out
    the elements of a window. All have one entry per axis of the array.
    """

    dimensions: Shape
    strides: Ints
    padding: Pads
    base_dilation: Ints
    window_dilation: Ints

    def check(self, name: str, x: ShapedArray) -> None:
        """Raises TypeError unless the windows fit arrays of this rank and are positive."""
        for what, values in (
            ("window_dimensions", self.dimensions),
            ("window_strides", self.strides),
            ("padding", self.padding),
            ("base_dilation", self.base_dilation),
            ("window_dilation", self.window_dilation),
        ):
            if len(values) != x.ndim:
                raise TypeError(f"{name}: {what} {values} must have one entry for each axis of {x}")
            if what != "padding" and any(n < 1 for n in values if isinstance(n, int)):
                raise TypeError(f"{name}: {what} must be positive, got {values}")

    def padded_shape(self, shape: Shape) -> Ints:
        """Returns the shape of the array after base dilation and padding; negative if the padding removes too much."""
        return tuple(
            [
                max((n - 1) * step + 1, 0) + low + high
                for n, step, (low, high) in zip(shape, self.base_dilation, self.padding, strict=True)
            ]
        )

    @property
    def dilated_dimensions(self) -> Ints:
        """The extent of a window along each axis, window dilation included."""
        return tuple([(n - 1) * step + 1 for n, step in zip(self.dimensions, self.window_dilation, strict=True)])

    def count(self, shape: Shape) -> Shape:
        """Returns the number of windows along each axis of an array of this shape."""
        sizes = zip(self.padded_shape(shape), self.dilated_dimensions, self.strides, strict=True)
        return tuple([max((n - reach) // step + 1, 0) for n, reach, step in sizes])

    def with_axis(self, position: int) -> SlidingWindows:
        """Returns the windows for arrays with one more axis at `position`, along which their size is 1."""

        def inserted(xs: Ints) -> Ints:
            return (*xs[:position], 1, *xs[position:])

        return SlidingWindows(
            inserted(self.dimensions),
            inserted(self.strides),
            (*self.padding[:position], (0, 0), *self.padding[position:]),
            inserted(self.base_dilation),
            inserted(self.window_dilation),
        )

    @property
    def padding_config(self) -> tuple[tuple[int, int, int], ...]:
        """The `padding_config` of the `pad` that dilates and pads the array."""
        return tuple(
            [(low, high, step - 1) for (low, high), step in zip(self.padding, self.base_dilation, strict=True)]
        )

    def strided_slices(self, count: Shape, offset: Ints) -> Iterator[tuple[int, int, int]]:
        """Yields, for each axis, the start, stop and step of the elements that all windows have at `offset`."""
        for o, n, step, dilation in zip(offset, count, self.strides, self.window_dilation, strict=True):
            start = o * dilation
            yield start, start + (n - 1) * step + 1, step

    def offsets(self) -> Iterator[Ints]:
        """Yields the positions within a window, in row-major order."""
        return itertools.product(*map(range, self.dimensions))

    # ------------------------------------------------------------------ in NumPy

    def padded(self, x: NDArray, fill: Scalar) -> NDArray:
        """Returns the dilated and padded array."""
        if any(low or high or inner for low, high, inner in self.padding_config):
            return Pad(self.padding_config).kernel(x, np.asarray(fill, x.dtype))
        return x

    def views(self, padded: NDArray, count: Shape) -> Iterator[NDArray]:
        """Yields, for each position within a window, a view of the elements that all windows have there."""
        if 0 in count:
            return
        for offset in self.offsets():
            yield padded[tuple([slice(*span) for span in self.strided_slices(count, offset)])]

    # ------------------------------------------------------------------ in StableHLO

    def emit(
        self, builder: Builder, operands: Sequence[IrValue], starts: Sequence[IrValue], count: Shape, body: Region
    ) -> list[IrValue]:
        """Emits the reduction of every window. `body` takes the accumulators and the next elements of all operands."""
        outs = [ShapedArray(count, x.aval.dtype) for x in operands]
        attrs: Mapping[str, Attr] = {
            "window_dimensions": DenseI64Array(self.dimensions),
            "window_strides": DenseI64Array(self.strides),
            "base_dilations": DenseI64Array(self.base_dilation),
            "window_dilations": DenseI64Array(self.window_dilation),
            "padding": WindowPadding(self.padding),
        }
        return builder.emit("stablehlo.reduce_window", [*operands, *starts], outs, attrs, [body])

    @property
    def size(self) -> int:
        """The number of elements of a window."""
        return math.prod(self.dimensions)


# ------------------------------------------------------------------ arguments


def sliding_windows(
    name: str,
    shape: Shape,
    window_dimensions: Sequence[SupportsIndex],
    window_strides: Sequence[SupportsIndex] | None,
    padding: str | Sequence[tuple[int, int]],
    base_dilation: Sequence[SupportsIndex] | None,
    window_dilation: Sequence[SupportsIndex] | None,
) -> SlidingWindows:
    """Returns the windows that a function's arguments describe; None means ones. The primitive checks the rank."""
    sizes = static_ints(name, window_dimensions, "window_dimensions")
    ones = (1,) * len(sizes)

    def ints(xs: Sequence[SupportsIndex] | None, what: str) -> Ints:
        return ones if xs is None else static_ints(name, xs, what)

    steps, dilation = ints(window_strides, "window_strides"), ints(window_dilation, "window_dilation")
    if isinstance(padding, str):
        if not len(sizes) == len(dilation) == len(steps) == len(shape) or any(n < 1 for n in (*dilation, *steps)):
            raise ShapeError(
                f"{name}: window_dimensions {sizes}, window_strides {steps} and window_dilation {dilation} must have "
                f"one positive entry for each axis of an array of shape {shape}"
            )
        reach = [(n - 1) * step + 1 for n, step in zip(sizes, dilation, strict=True)]
        pads: Pads = tuple(padtype_to_pads(shape, reach, steps, padding))
    else:
        pads = canonicalize_window_padding(name, padding)
    return SlidingWindows(sizes, steps, pads, ints(base_dilation, "base_dilation"), dilation)


def canonicalize_window_padding(name: str, padding: Sequence[tuple[int, int]]) -> Pads:
    """Returns `padding` as a tuple of pairs of Python integers."""
    pads = []
    for pair in padding:
        bounds = static_ints(name, pair, "padding")
        if len(bounds) != 2:
            raise ShapeError(f"{name}: padding must be a string, or have a pair of integers for each axis, got {pair}")
        pads.append((bounds[0], bounds[1]))
    return tuple(pads)


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Shape:
    """Returns the number of windows along each axis of an array, which is the shape of the result of `reduce_window`.

    Args:
        operand_shape: The shape of the array.
        window_dimensions: The shape of the window.
        window_strides: The step of the windows along each axis.
        padding: A pair (before, after) for each axis, or a padding type such as "SAME".
        base_dilation: The factors by which elements of the array are spaced out. None, the default, means 1.
        window_dilation: The factors by which elements of a window are spaced out. None, the default, means 1.

    Returns:
        A tuple of integers.

    Raises:
        TypeError: Arguments don't have one entry per axis, or are not positive.

    >>> reduce_window_shape_tuple((10, 5), (3, 2), (2, 1), ((1, 1), (0, 0)))
    (5, 4)
    """
    name = "reduce_window_shape_tuple"
    shape = static_ints(name, operand_shape, "operand_shape")
    windows = sliding_windows(name, shape, window_dimensions, window_strides, padding, base_dilation, window_dilation)
    windows.check(name, ShapedArray(shape, np.dtype(np.float32)))
    return windows.count(shape)
