"""Reductions over sliding windows: `reduce_window_sum`, `reduce_window_max` and `reduce_window_min`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import DType, NDArray, Shape, ShapedArray, Value, dtypes
from tracefx.core.handler import bind1
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import MappedAxis, Tangent, UndefinedPrimal
from tracefx.lowering import Builder, IrValue
from tracefx.ops import stablehlo
from tracefx.ops.casting import cast
from tracefx.ops.elementwise.elementwise import NUMBERS
from tracefx.ops.monoids import ADD, MAXIMUM, MINIMUM, Monoid
from tracefx.ops.operation import ANY, Domain, HasPushforward, LinearOperation, UnaryOperation, memoize_aval
from tracefx.ops.padding_types import Pads
from tracefx.ops.reductions.reduction import widen_for_numpy
from tracefx.ops.reductions.select_and_scatter import SelectAndGatherAdd, SelectComparator
from tracefx.ops.reductions.sliding_windows import Ints, SlidingWindows
from tracefx.ops.shape.array_creation import zero
from tracefx.ops.shape.slicing import pad
from tracefx.ops.sharding_rules import resized_spec
from tracefx.ops.structural import constant_like_aval, match_aval


@frozen(eq=False)
class WindowReduction(UnaryOperation):
    """Reduces every window, starting from the identity element, with which the array is also padded.

    Args:
        window_dimensions: The shape of a window.
        window_strides: The step of the window along each axis.
        padding: The padding before and after each axis, `(low, high)`; negative padding removes elements.
        base_dilation: The spacing of the elements of the operand along each axis; they are spaced out before padding.
        window_dilation: The spacing of the elements of a window along each axis.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.ReduceWindowSum((2,), (1,), ((0, 0),), (1,), (1,)), numpy.array([1, 2, 3]))
    [Array([3, 5], dtype=int32)]
    """

    window_dimensions: Shape
    window_strides: Ints
    padding: Pads
    base_dilation: Ints
    window_dilation: Ints
    domain: ClassVar[Domain] = ANY
    monoid: ClassVar[Monoid]

    @property
    def windows(self) -> SlidingWindows:
        return SlidingWindows(
            self.window_dimensions, self.window_strides, self.padding, self.base_dilation, self.window_dilation
        )

    @classmethod
    def from_windows(cls, windows: SlidingWindows) -> Self:
        """Returns the primitive for these windows."""
        w = windows
        return cls(w.dimensions, w.strides, w.padding, w.base_dilation, w.window_dilation)

    def accumulation_dtype(self, dtype: DType) -> DType:
        """Returns the dtype of the accumulator; a wider one where XLA would otherwise round after every step."""
        return dtype

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [resized_spec(self, avals[0], outs[0].shape)]

    @override
    @memoize_aval("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        self.domain.require(self.name, x)
        windows = self.windows
        windows.check("reduce_window", x)
        return x.update(shape=windows.count(x.shape))

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        (x,) = args
        start = np.asarray(self.monoid.identity(x.dtype), x.dtype)
        wide, first = [cast(widen_for_numpy(v), self.accumulation_dtype(widen_for_numpy(v).dtype)) for v in (x, start)]
        windows = self.windows
        count = windows.count(x.shape)
        out: NDArray = np.full(count, first, wide.dtype)
        if 0 not in count:
            for view in windows.views(windows.padded(wide, first.item()), count):
                out = self.monoid.combine(out, view)
        return cast(np.asarray(out), x.dtype)

    @override
    def batch_operand(self, axis: MappedAxis, x: Value, dim: int) -> tuple[Value, int | None]:
        return bind1(self.from_windows(self.windows.with_axis(dim)), x), dim

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        (x,) = operands
        wide = self.accumulation_dtype(out.dtype)
        if wide != out.dtype:
            (x,) = builder.emit("stablehlo.convert", [x], [x.aval.update(dtype=wide)])
        start = stablehlo.emit_scalar(builder, self.monoid.identity(out.dtype), wide)
        (result,) = self.windows.emit(builder, [x], [start], out.shape, self.monoid.region(wide))
        return result if wide == out.dtype else builder.emit("stablehlo.convert", [result], [out])[0]


# ------------------------------------------------------------------ reduce_window_sum


@final
class ReduceWindowSum(WindowReduction, LinearOperation):
    """The sum of each window of the operand: `out[i] = sum(x[i * stride:i * stride + size])` along each axis.

    `x: f32[n, m] -> f32[k, l]`, numbers; `k` and `l` count the windows along the axes. Bound by `lax.reduce_window`.
    """

    name = "reduce_window_sum"
    domain = NUMBERS
    monoid: ClassVar[Monoid] = ADD

    @override
    def accumulation_dtype(self, dtype: DType) -> DType:
        return dtypes.float32 if dtypes.is_float(dtype) and dtype.itemsize < 4 else dtype

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        (x,) = args
        shape = x.aval.shape
        if 0 in shape or 0 in ct.aval.shape:
            return [constant_like_aval(x.aval, 0)]
        # An element belongs to the windows that start within one window extent before it. So its cotangent is the sum
        # of a window over the cotangents, which are spaced out by the strides.
        windows = self.windows
        config, ones = [], (1,) * len(shape)
        for n, m, reach, step, dilation, (low, _) in zip(
            shape,
            ct.aval.shape,
            windows.dilated_dimensions,
            self.window_strides,
            self.base_dilation,
            self.padding,
            strict=True,
        ):
            before = reach - 1 - low
            config.append((before, (n - 1) * dilation + reach - before - ((m - 1) * step + 1), step - 1))
        padded_ct = pad(ct, zero(ct.aval), config)
        prim = ReduceWindowSum(
            self.window_dimensions, self.base_dilation, ((0, 0),) * len(shape), ones, self.window_dilation
        )
        return [match_aval(bind1(prim, padded_ct), x.aval)]


# ------------------------------------------------------------------ reduce_window_max, reduce_window_min


class WindowExtremum(WindowReduction, HasPushforward):
    """The maximum or minimum of every window. NaN propagates."""

    __slots__ = ()
    select_prim: ClassVar[SelectComparator]

    @override
    def pushforward(self, x: Value, t: Value) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, x)
        return [out], [
            match_aval(bind1(SelectAndGatherAdd.from_windows(self.windows, self.select_prim), t, x), out.aval)
        ]


@final
class ReduceWindowMax(WindowExtremum):
    """The maximum of each window of the operand: `out[i] = max(x[i * stride:i * stride + size])` along each axis.

    `x: f32[n, m] -> f32[k, l]`, numbers; `k` and `l` count the windows along the axes. Bound by `lax.reduce_window`.
    """

    name = "reduce_window_max"
    monoid: ClassVar[Monoid] = MAXIMUM
    select_prim = SelectComparator.GE


@final
class ReduceWindowMin(WindowExtremum):
    """The minimum of each window of the operand: `out[i] = min(x[i * stride:i * stride + size])` along each axis.

    `x: f32[n, m] -> f32[k, l]`, numbers; `k` and `l` count the windows along the axes. Bound by `lax.reduce_window`.
    """

    name = "reduce_window_min"
    monoid: ClassVar[Monoid] = MINIMUM
    select_prim = SelectComparator.LE
