"""What the derivatives of the greatest and the least of windows are made of: where in each window it stands.

`select_and_gather_add` takes from every window what stands in another array at the place of its greatest or least
element, `select_and_scatter_add` adds to that place: each is the transpose of the other. Both are linear in the first
operand, and constant in the second wherever they have a derivative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, unique
from typing import Final, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.handler import bind1
from tracefx.core.literal import Literal, Scalar
from tracefx.core.primitive import Differentiable, MappedAxis, Tangent, Transposable, UndefinedPrimal, Zero
from tracefx.core.values import Value
from tracefx.lowering import Attr, Builder, DenseI64Array, IrValue, Region
from tracefx.ops import stablehlo
from tracefx.ops.casting import cast
from tracefx.ops.elementwise.arithmetic import sub
from tracefx.ops.elementwise.elementwise import REALS, add
from tracefx.ops.indexing.gather_scatter_add import ScatterAdd, ScatterDimensionNumbers
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.operation import Operation
from tracefx.ops.padding_types import Pads
from tracefx.ops.reductions.reduction import dtype_extreme
from tracefx.ops.reductions.sliding_windows import Ints, SlidingWindows, padding_attr
from tracefx.ops.shape.array_creation import iota
from tracefx.ops.shape.slicing import Pad, Slice, pad, slice
from tracefx.ops.structural import batch_first, full_like_aval, match_aval, reshape
from tracefx.text.printer import HasJaxParams


@unique
class SelectComparator(Enum):
    """How the element that a window already has compares with the next one if it stays."""

    GE = "ge"
    LE = "le"

    def start(self, dtype: DType) -> Scalar:
        """What every element takes the place of."""
        return dtype_extreme(dtype, -1 if self is SelectComparator.GE else 1)

    def keeps(self, x: NDArray, y: NDArray) -> NDArray:
        return np.asarray(x >= y if self is SelectComparator.GE else x <= y)

    def emit(self, builder: Builder, x: IrValue, y: IrValue) -> IrValue:
        return stablehlo.emit_compare(builder, self.name, x, y)


class _LinearInFirstOperand(Operation, Differentiable, Transposable):
    __slots__ = ()
    arity = 2

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        t = tangents[0]
        aval = out.aval.tangent()
        return [out], [Zero(aval) if isinstance(t, Zero) else match_aval(bind1(self, t, primals[1]), aval)]


def _accumulation_dtype(dtype: DType) -> DType:
    """In which dtype sums are added up: XLA rounds those of narrow floats at every step."""
    return dtypes.float32 if dtypes.is_float(dtype) and dtype.itemsize < 4 else dtype


# ------------------------------------------------------------------ select_and_gather_add


@final
@frozen(eq=False)
class SelectAndGatherAdd(_LinearInFirstOperand, HasJaxParams):
    """Of every window over the second operand, what the first has at the place that is selected."""

    name = "select_and_gather_add"
    select_prim: SelectComparator
    window_dimensions: Shape
    window_strides: Ints
    padding: Pads
    base_dilation: Ints
    window_dilation: Ints

    @property
    def windows(self) -> SlidingWindows:
        return SlidingWindows(
            self.window_dimensions, self.window_strides, self.padding, self.base_dilation, self.window_dilation
        )

    @staticmethod
    def over(windows: SlidingWindows, selecting: SelectComparator) -> SelectAndGatherAdd:
        w = windows
        return SelectAndGatherAdd(selecting, w.dimensions, w.strides, w.padding, w.base_dilation, w.window_dilation)

    @override
    def jax_params(self) -> Mapping[str, object]:
        return {
            "select_prim": self.select_prim.value,
            "window_dimensions": self.window_dimensions,
            "window_strides": self.window_strides,
            "padding": self.padding,
            "base_dilation": self.base_dilation,
            "window_dilation": self.window_dilation,
        }

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        source, x = avals
        if source.shape != x.shape:
            raise TypeError(f"{self.name}: both operands must have one shape, got {source} and {x}")
        REALS.require(self.name, x)
        windows = self.windows
        windows.check(self.name, x)
        return ShapedArray(windows.count(x.shape), source.dtype, source.weak_type and x.weak_type)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        source, x = args
        windows = self.windows
        count = windows.count(x.shape)
        start = self.select_prim.start(x.dtype)
        best = np.full(count, start, x.dtype)
        found: NDArray = np.zeros(count, source.dtype)
        if 0 in count:
            return found
        pairs = zip(
            windows.views(windows.padded(x, start), count), windows.views(windows.padded(source, 0), count), strict=True
        )
        for element, there in pairs:
            stays = self.select_prim.keeps(best, element)
            best, found = np.where(stays, best, element), np.where(stays, found, there)
        return found

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        (ct,), (source, x) = cts, args
        assert not isinstance(ct, Zero)
        assert isinstance(source, UndefinedPrimal)
        assert not isinstance(x, UndefinedPrimal)
        if any(n > 1 for n in self.window_dilation):
            return [match_aval(self._transpose_dilated(ct, x), source.aval), None]
        shape = x.aval.shape
        apart = any(n > 1 for n in self.base_dilation)
        if apart:  # each element followed by what is never selected
            start = Literal(self.select_prim.start(x.aval.dtype), ShapedArray((), x.aval.dtype))
            x = pad(x, start, [(0, 0, n - 1) for n in self.base_dilation])
        prim = SelectAndScatterAdd(self.select_prim, self.window_dimensions, self.window_strides, self.padding)
        out = bind1(prim, ct, x)
        if apart:
            out = slice(out, (0,) * len(shape), out.shape, self.base_dilation)
        return [match_aval(out, source.aval), None]

    def _transpose_dilated(self, ct: Value, x: Value) -> Value:
        """Where the elements of a window are apart: the number of what is selected says where to add."""
        aval, count = x.aval, ct.aval.size
        numbers = reshape(add(iota(dtypes.int32, aval.size), 1), aval.shape)  # 0 where there is only padding
        places = reshape(sub(bind1(self, numbers, x), 1), (count, 1))
        into = ScatterAdd(ScatterDimensionNumbers((), (0,), (0,)), False, False, GatherScatterMode.FILL_OR_DROP)
        zeros = full_like_aval(ShapedArray((aval.size,), ct.aval.dtype, ct.aval.weak_type), 0)
        return reshape(bind1(into, zeros, places, reshape(ct, (count,))), aval.shape)

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        operands = [batch_first(x, dim, axis) for x, dim in zip(args, dims, strict=True)]
        return bind1(self.over(self.windows.with_axis(0), self.select_prim), *operands), 0

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        if builder.platform in _UNROLLED_PLATFORMS and self.windows.size <= _MAX_UNROLLED:
            return self.emit_unrolled(builder, out, *operands)
        source, x = operands
        element, there = ShapedArray((), x.aval.dtype), ShapedArray((), source.aval.dtype)
        starts = [
            stablehlo.emit_scalar(builder, self.select_prim.start(element.dtype), element.dtype),
            stablehlo.emit_scalar(builder, 0, there.dtype),
        ]

        def choose(b: Builder, args: Sequence[IrValue]) -> list[IrValue]:
            best, found, new, new_there = args
            stays = self.select_prim.emit(b, best, new)
            return [
                *b.emit("stablehlo.select", [stays, best, new], [element]),
                *b.emit("stablehlo.select", [stays, found, new_there], [there]),
            ]

        body = Region((element, there, element, there), choose)
        return self.windows.emit(builder, [x, source], starts, out.shape, body)[1]

    def emit_unrolled(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        """Place after place of all windows at once, for where XLA can't fold windows over two arrays together."""
        source, x = operands
        windows = self.windows
        start = self.select_prim.start(x.aval.dtype)
        found, best = [
            stablehlo.emit_full(builder, fill, ShapedArray(out.shape, v.aval.dtype))
            for v, fill in ((source, 0), (x, start))
        ]
        if 0 in out.shape:
            return found
        padded = [_emit_padded(builder, windows, v, fill) for v, fill in ((source, 0), (x, start))]
        for offset in windows.offsets():
            starts, stops, steps = (
                zip(*windows.strided_slices(out.shape, offset), strict=True) if offset else ((), (), ())
            )
            cut = Slice(starts, stops, steps)
            there, element = [cut.emit(builder, ShapedArray(out.shape, v.aval.dtype), v) for v in padded]
            stays = self.select_prim.emit(builder, best, element)
            (found,) = builder.emit("stablehlo.select", [stays, found, there], [found.aval])
            (best,) = builder.emit("stablehlo.select", [stays, best, element], [best.aval])
        return found


_UNROLLED_PLATFORMS: Final = ("cuda", "rocm")
_MAX_UNROLLED: Final = 256  # elements of a window


def _emit_padded(builder: Builder, windows: SlidingWindows, x: IrValue, fill: Scalar) -> IrValue:
    padding = Pad(windows.padding_config)
    value = stablehlo.emit_scalar(builder, fill, x.aval.dtype)
    return padding.emit(builder, padding.out_aval(x.aval, value.aval), x, value)


# ------------------------------------------------------------------ select_and_scatter_add


@final
@frozen(eq=False)
class SelectAndScatterAdd(_LinearInFirstOperand, HasJaxParams):
    """Zeros of the second operand's shape, to which, for every window over it, an element of the first is added at the
    place that is selected."""

    name = "select_and_scatter_add"
    select_prim: SelectComparator
    window_dimensions: Shape
    window_strides: Ints
    padding: Pads

    @property
    def windows(self) -> SlidingWindows:
        ones = (1,) * len(self.window_dimensions)
        return SlidingWindows(self.window_dimensions, self.window_strides, self.padding, ones, ones)

    @override
    def jax_params(self) -> Mapping[str, object]:
        return {
            "select_prim": self.select_prim.value,
            "window_dimensions": self.window_dimensions,
            "window_strides": self.window_strides,
            "padding": self.padding,
        }

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        source, x = avals
        REALS.require(self.name, source, x)
        if source.dtype != x.dtype:
            raise TypeError(f"{self.name}: both operands must have one dtype, got {source} and {x}")
        windows = self.windows
        windows.check(self.name, x)
        if source.shape != windows.count(x.shape):
            raise TypeError(
                f"{self.name}: the first operand must have an element for each window, {windows.count(x.shape)} of "
                f"{x}, got {source}"
            )
        return ShapedArray(x.shape, source.dtype, source.weak_type and x.weak_type)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        source, x = args
        if not source.size:
            return np.zeros(x.shape, source.dtype)
        windows = self.windows
        padded = windows.padded(x, self.select_prim.start(x.dtype))
        views = zip(
            windows.views(padded, source.shape),
            windows.views(np.arange(padded.size).reshape(padded.shape), source.shape),
            strict=True,
        )
        best, place = next(views)
        for element, number in views:
            stays = self.select_prim.keeps(best, element)
            best, place = np.where(stays, best, element), np.where(stays, place, number)
        if dtypes.is_float(source.dtype):  # in a tenth of the time
            total = np.bincount(place.reshape(-1), source.reshape(-1).astype(np.float64), padded.size)
        else:
            total = np.zeros(padded.size, source.dtype)
            np.add.at(total, place.reshape(-1), source.reshape(-1))
        within = [(-low, -high, 0) for low, high in self.padding]
        return cast(Pad(tuple(within)).kernel(total.reshape(padded.shape), np.zeros((), total.dtype)), source.dtype)

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        (ct,), (source, x) = cts, args
        assert not isinstance(ct, Zero)
        assert not isinstance(x, UndefinedPrimal)
        return [match_aval(bind1(SelectAndGatherAdd.over(self.windows, self.select_prim), ct, x), source.aval), None]

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        operands = [batch_first(x, dim, axis) for x, dim in zip(args, dims, strict=True)]
        w = self.windows.with_axis(0)
        return bind1(SelectAndScatterAdd(self.select_prim, w.dimensions, w.strides, w.padding), *operands), 0

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        wide = _accumulation_dtype(out.dtype)
        source, x = [
            v if v.aval.dtype == wide else builder.emit("stablehlo.convert", [v], [v.aval.update(dtype=wide)])[0]
            for v in operands
        ]
        # Padded first: XLA refuses padding here on some platforms, and would not select what is padded.
        start = stablehlo.emit_scalar(builder, self.select_prim.start(wide), wide)
        low, high = [tuple([pair[i] for pair in self.padding]) for i in (0, 1)]
        zeros = (0,) * len(low)
        edges = {
            "edge_padding_low": DenseI64Array(low),
            "edge_padding_high": DenseI64Array(high),
            "interior_padding": DenseI64Array(zeros),
        }
        padded = ShapedArray(self.windows.padded_shape(x.aval.shape), wide)
        if padded.shape != x.aval.shape or any(low):
            (x,) = builder.emit("stablehlo.pad", [x, start], [padded], edges)
        element = ShapedArray((), wide)
        select = Region((element, element), lambda b, args: [self.select_prim.emit(b, *args)])
        scatter = Region((element, element), lambda b, args: b.emit("stablehlo.add", args, [element]))
        attrs: Mapping[str, Attr] = {
            "window_dimensions": DenseI64Array(self.window_dimensions),
            "window_strides": DenseI64Array(self.window_strides),
            "padding": padding_attr(((0, 0),) * len(low)),
        }
        zero = stablehlo.emit_scalar(builder, 0, wide)
        (found,) = builder.emit("stablehlo.select_and_scatter", [x, source, zero], [padded], attrs, [select, scatter])
        if padded.shape != out.shape or any(low):
            back = {
                "edge_padding_low": DenseI64Array(tuple([-n for n in low])),
                "edge_padding_high": DenseI64Array(tuple([-n for n in high])),
                "interior_padding": DenseI64Array(zeros),
            }
            (found,) = builder.emit("stablehlo.pad", [found, zero], [out.update(dtype=wide)], back)
        if wide == out.dtype:
            return found
        return builder.emit("stablehlo.convert", [found], [out])[0]
