"""Windows that move over an array in steps: how many fit, what each sees, and how StableHLO spells it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import SupportsIndex, final

import numpy as np
from attrs import frozen

from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.literal import Scalar
from tracefx.lowering import Attr, Builder, DenseI64Array, IrValue, MlirText, Region
from tracefx.ops.padding_types import Pads, padtype_to_pads
from tracefx.ops.shape.slicing import Pad
from tracefx.ops.static_integers import ShapeError, static_ints

Ints = tuple[int, ...]


@final
@frozen
class SlidingWindows:
    """Windows of the shape `dimensions` that move over an array by `strides`.

    Before they do, its elements are moved apart by `base_dilation`, then it is padded; the elements that a window sees
    are `window_dilation` apart. All have one entry for each axis of the array.
    """

    dimensions: Shape
    strides: Ints
    padding: Pads
    base_dilation: Ints
    window_dilation: Ints

    def check(self, name: str, x: ShapedArray) -> None:
        """`TypeError` unless the windows are for arrays of this type."""
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
        """The sizes of the array once its elements are moved apart and it is padded; negative if too much is cut."""
        return tuple(
            [
                max((n - 1) * step + 1, 0) + low + high
                for n, step, (low, high) in zip(shape, self.base_dilation, self.padding, strict=True)
            ]
        )

    @property
    def dilated_dimensions(self) -> Ints:
        """How many elements there are from the first that a window sees to the last."""
        return tuple([(n - 1) * step + 1 for n, step in zip(self.dimensions, self.window_dilation, strict=True)])

    def count(self, shape: Shape) -> Shape:
        """How many windows fit along each axis of an array of this shape."""
        sizes = zip(self.padded_shape(shape), self.dilated_dimensions, self.strides, strict=True)
        return tuple([max((n - reach) // step + 1, 0) for n, reach, step in sizes])

    def with_axis(self, place: int) -> SlidingWindows:
        """For arrays with one more axis, along which each window sees one element."""

        def inserted(xs: Ints) -> Ints:
            return (*xs[:place], 1, *xs[place:])

        return SlidingWindows(
            inserted(self.dimensions),
            inserted(self.strides),
            (*self.padding[:place], (0, 0), *self.padding[place:]),
            inserted(self.base_dilation),
            inserted(self.window_dilation),
        )

    @property
    def padding_config(self) -> tuple[tuple[int, int, int], ...]:
        """What `pad` does to an array before windows move over it."""
        return tuple(
            [(low, high, step - 1) for (low, high), step in zip(self.padding, self.base_dilation, strict=True)]
        )

    def strided_slices(self, count: Shape, offset: Ints) -> Iterator[tuple[int, int, int]]:
        """For each axis start, stop and step of what all windows see at a place within them."""
        for o, n, step, apart in zip(offset, count, self.strides, self.window_dilation, strict=True):
            start = o * apart
            yield start, start + (n - 1) * step + 1, step

    def offsets(self) -> Iterator[Ints]:
        """The places within a window, in order."""
        return itertools.product(*map(range, self.dimensions))

    # ------------------------------------------------------------------ in NumPy

    def padded(self, x: NDArray, fill: Scalar) -> NDArray:
        if any(low or high or inner for low, high, inner in self.padding_config):
            return Pad(self.padding_config).kernel(x, np.asarray(fill, x.dtype))
        return x

    def views(self, padded: NDArray, count: Shape) -> Iterator[NDArray]:
        """For each place within a window what all windows see there."""
        if 0 in count:
            return
        for offset in self.offsets():
            yield padded[tuple([slice(*span) for span in self.strided_slices(count, offset)])]

    # ------------------------------------------------------------------ in StableHLO

    def emit(
        self, builder: Builder, operands: Sequence[IrValue], starts: Sequence[IrValue], count: Shape, body: Region
    ) -> list[IrValue]:
        """Every window folded, by a body that takes the folded and the next elements of all operands."""
        outs = [ShapedArray(count, x.aval.dtype) for x in operands]
        attrs: Mapping[str, Attr] = {
            "window_dimensions": DenseI64Array(self.dimensions),
            "window_strides": DenseI64Array(self.strides),
            "base_dilations": DenseI64Array(self.base_dilation),
            "window_dilations": DenseI64Array(self.window_dilation),
            "padding": padding_attr(self.padding),
        }
        return builder.emit("stablehlo.reduce_window", [*operands, *starts], outs, attrs, [body])

    @property
    def size(self) -> int:
        """How many elements a window sees."""
        return math.prod(self.dimensions)


def padding_attr(padding: Pads) -> MlirText:
    rows = ", ".join(f"[{low}, {high}]" for low, high in padding)
    return MlirText(f"dense<[{rows}]> : tensor<{len(padding)}x2xi64>" if padding else "dense<> : tensor<0x2xi64>")


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
    """The windows that arguments of a function mean; its operations check that they fit an array."""
    sizes = static_ints(name, window_dimensions, "window_dimensions")
    ones = (1,) * len(sizes)

    def ints(xs: Sequence[SupportsIndex] | None, what: str) -> Ints:
        return ones if xs is None else static_ints(name, xs, what)

    steps, apart = ints(window_strides, "window_strides"), ints(window_dilation, "window_dilation")
    if isinstance(padding, str):
        if not len(sizes) == len(apart) == len(steps) == len(shape) or any(n < 1 for n in (*apart, *steps)):
            raise ShapeError(
                f"{name}: window_dimensions {sizes}, window_strides {steps} and window_dilation {apart} must have one "
                f"positive entry for each axis of an array of shape {shape}"
            )
        reach = [(n - 1) * step + 1 for n, step in zip(sizes, apart, strict=True)]
        pads: Pads = tuple(padtype_to_pads(shape, reach, steps, padding))
    else:
        pads = canonicalize_window_padding(name, padding)
    return SlidingWindows(sizes, steps, pads, ints(base_dilation, "base_dilation"), apart)


def canonicalize_window_padding(name: str, padding: Sequence[tuple[int, int]]) -> Pads:
    pads = []
    for pair in padding:
        found = static_ints(name, pair, "padding")
        if len(found) != 2:
            raise ShapeError(f"{name}: padding must be a string, or have a pair of integers for each axis, got {pair}")
        pads.append((found[0], found[1]))
    return tuple(pads)


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Shape:
    """How many windows fit along each axis of an array: the shape of the result of `reduce_window`.

    >>> reduce_window_shape_tuple((10, 5), (3, 2), (2, 1), ((1, 1), (0, 0)))
    (5, 4)
    """
    name = "reduce_window_shape_tuple"
    shape = static_ints(name, operand_shape, "operand_shape")
    windows = sliding_windows(name, shape, window_dimensions, window_strides, padding, base_dilation, window_dilation)
    windows.check(name, ShapedArray(shape, np.dtype(np.float32)))
    return windows.count(shape)
