"""`conv_general_dilated`, the convolution that all variants are built on."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Final, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.core import Array, ArrayLike, DType, DTypeLike, NDArray, Shape, ShapedArray, Value, as_value, dtypes
from tracefx.core.dtypes import DTypeKind
from tracefx.core.handler import bind1
from tracefx.core.named_sharding import OutSharding, Spec
from tracefx.core.primitive import MappedAxis, Tangent, Zero
from tracefx.lowering import Attr, Builder, DenseI64Array, IrValue, MlirText, WindowPadding
from tracefx.ops import stablehlo
from tracefx.ops.casting import cast
from tracefx.ops.contractions.bilinear import Bilinear
from tracefx.ops.contractions.contraction import (
    OperandPrecisions,
    PrecisionLike,
    accumulation_dtype,
    canonicalize_precision,
    dot_general,
    precision_config,
)
from tracefx.ops.contractions.conv_dimension_numbers import (
    ConvDimensionNumbers,
    ConvGeneralDilatedDimensionNumbers,
    channels_last_numbers,
    conv_dimension_numbers,
    conv_shape_tuple,
    dilate_dim,
    dim_labels,
    exchanged_dims,
    put_dims,
    stride_dim,
    take_dims,
)
from tracefx.ops.elementwise.arithmetic import mul
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.indexing.gather_scatter_add import GatherDimensionNumbers, gather
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.operation import Operation, memoize_aval, run_compiled
from tracefx.ops.padding_types import Pads, padtype_to_pads
from tracefx.ops.shape.array_creation import broadcasted_iota, zero
from tracefx.ops.shape.slicing import Pad, pad, rev
from tracefx.ops.sharding_rules import convolution_spec
from tracefx.ops.static_integers import static_int, static_ints
from tracefx.ops.structural import convert, full_like_aval, match_aval, move_axis, reshape, transpose
from tracefx.text.printer import HasJaxParams

_FIELDS: Final = (
    *("window_strides", "padding", "lhs_dilation", "rhs_dilation", "dimension_numbers"),
    *("feature_group_count", "batch_group_count", "preferred_element_type"),
)


_WIDE: Final = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)
_CUDNN_DTYPES: Final = (*_WIDE, dtypes.bfloat16, dtypes.float16, dtypes.float8_e4m3fn, dtypes.float8_e5m2)
"""The dtypes that GPU libraries convolve, complex numbers by their components."""
_MAX_NUMPY_PRODUCTS: Final = 2**20
"""The largest number of products that NumPy computes."""
_MAX_NUMPY_COPIES: Final = 2**15
"""The largest number of elements that NumPy may copy for them."""


@final
@frozen(eq=False)
class ConvGeneralDilated(Operation, Bilinear, HasJaxParams):
    """A convolution (cross-correlation) over any number of spatial axes.

    With one spatial axis, `out[n, o, y] = sum(lhs[n, i, y * stride + k * dilation - low] * rhs[o, i, k] for i, k)`.
    Groups of features, or of the batch, are convolved independently and concatenated.

    Args:
        window_strides: The step of the window along each spatial axis.
        padding: The zeros before and after each spatial axis of `lhs`, `(low, high)`; negative ones remove elements.
        lhs_dilation: The spacing of the elements of `lhs` along each spatial axis, with zeros between them.
        rhs_dilation: The spacing of the elements of the window along each spatial axis.
        dimension_numbers: The batch, feature and spatial axes of `lhs`, `rhs` and the result.
        feature_group_count: The number of groups of input features; 1 by default.
        batch_group_count: The number of groups of the batch; 1 by default.
        precision: How accurately accelerators multiply, a pair of `Precision`; None, the default, means their default.
        preferred_element_type: The dtype of the result; None, the default, means the dtype of the operands.

    `lhs: f32[n, i, x], rhs: f32[o, i // feature_group_count, k] -> f32[n // batch_group_count, o, y]` for axes in this
    order, with `y = (low + high + lhs_dilation * (x - 1) - rhs_dilation * (k - 1)) // stride + 1`; numbers. Bound by
    `lax.conv_general_dilated` and `lax.conv`.

    >>> from tracefx import bind, lax, numpy, ops
    >>> numbers = lax.ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2))
    >>> prim = ops.ConvGeneralDilated((1,), ((0, 0),), (1,), (1,), numbers)
    >>> bind(prim, numpy.array([[[1.0, 2.0, 4.0]]]), numpy.array([[[-1.0, 1.0]]]))
    [Array([[[1., 2.]]], dtype=float32)]
    """

    name = "conv_general_dilated"
    arity = 2
    window_strides: tuple[int, ...]
    padding: Pads
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    dimension_numbers: ConvDimensionNumbers
    feature_group_count: int = field(default=1, metadata={"hide_default": True})
    batch_group_count: int = field(default=1, metadata={"hide_default": True})
    precision: OperandPrecisions = field(default=None, metadata={"hide_default": True})
    preferred_element_type: DType | None = field(default=None, metadata={"hide_default": True})

    @property
    def groups(self) -> int:
        """The number of groups, of features or of the batch."""
        return self.feature_group_count * self.batch_group_count

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        lhs_axes, _, out_axes = self.dimension_numbers
        return [convolution_spec(self, avals, outs[0].shape, lhs_axes, out_axes)]

    @override
    def jax_params(self) -> Mapping[str, object]:
        return {**{name: getattr(self, name) for name in (*_FIELDS, "precision")}, "out_sharding": None}

    # ------------------------------------------------------------------ types

    @override
    @memoize_aval(*_FIELDS)
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        lhs, rhs = avals
        if lhs.ndim != rhs.ndim or lhs.ndim < 2:
            raise ValueError(
                f"conv_general_dilated: lhs and rhs must have the same rank, at least two, got {lhs} and {rhs}"
            )
        for spec in self.dimension_numbers:
            if sorted(spec) != list(range(lhs.ndim)):
                raise ValueError(
                    f"conv_general_dilated: dimension_numbers must name each of {lhs.ndim} axes once, got "
                    f"{self.dimension_numbers}"
                )
        dtype = self._dtype(lhs, rhs)
        self._check_steps(lhs.ndim - 2)
        self._check_groups(lhs, rhs)
        lhs_spec, rhs_spec, out_spec = self.dimension_numbers
        n, o = take_dims(lhs.shape, lhs_spec), take_dims(rhs.shape, rhs_spec)
        shape = conv_shape_tuple(
            (*n[:2], *map(dilate_dim, n[2:], self.lhs_dilation)),
            (*o[:2], *map(dilate_dim, o[2:], self.rhs_dilation)),
            self.window_strides,
            self.padding,
            self.batch_group_count,
        )
        return ShapedArray(put_dims(shape, out_spec), dtype, lhs.weak_type and rhs.weak_type)

    def _dtype(self, lhs: ShapedArray, rhs: ShapedArray) -> DType:
        if lhs.dtype != rhs.dtype:
            raise TypeError(
                f"conv_general_dilated: lhs and rhs must have one dtype, got {lhs} and {rhs}; convert one with astype"
            )
        old, new = lhs.dtype, self.preferred_element_type
        if old == dtypes.float0:
            raise TypeError("conv_general_dilated: operands of dtype float0 are not numeric")
        if new is None:
            return old
        if not _accumulates(old, new):
            raise TypeError(
                f"conv_general_dilated: preferred_element_type must have the kind of {old} (or float for integers) and "
                f"must not be narrower, got {new}"
            )
        return new

    def _check_steps(self, ndim: int) -> None:
        for name in ("window_strides", "lhs_dilation", "rhs_dilation"):
            values: tuple[int, ...] = getattr(self, name)
            if len(values) != ndim or any(s < 1 for s in values):
                raise ValueError(
                    f"conv_general_dilated: {name} must have one positive entry for each of {ndim} spatial axes, got "
                    f"{values}"
                )

    def _check_groups(self, lhs: ShapedArray, rhs: ShapedArray) -> None:
        lhs_spec, rhs_spec, _ = self.dimension_numbers
        (batch, features), (outs, ins) = take_dims(lhs.shape, lhs_spec[:2]), take_dims(rhs.shape, rhs_spec[:2])
        for name, count in (
            ("feature_group_count", self.feature_group_count),
            ("batch_group_count", self.batch_group_count),
        ):
            if count < 1:
                raise ValueError(f"conv_general_dilated: {name} must be positive, got {count}")
            if outs % count:
                raise ValueError(
                    f"conv_general_dilated: {name} {count} must divide {outs}, the number of output features of rhs"
                )
        if self.feature_group_count > 1 < self.batch_group_count:
            raise ValueError(
                "conv_general_dilated: one of feature_group_count and batch_group_count must be 1, got "
                f"{self.feature_group_count} and {self.batch_group_count}"
            )
        if features != ins * self.feature_group_count:
            raise ValueError(
                f"conv_general_dilated: lhs must have as many features as rhs takes in all groups, got {features} of "
                f"{lhs}, and {ins} of {rhs} in {self.feature_group_count} groups"
            )
        if batch % self.batch_group_count:
            raise ValueError(
                f"conv_general_dilated: batch_group_count {self.batch_group_count} must divide lhs's batch size {batch}"
            )

    # ------------------------------------------------------------------ evaluation

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        """Evaluates small convolutions with NumPy, which is faster than dispatch to XLA and needs no compilation.

        A dilated `lhs` is compiled: NumPy would multiply its zeros, while XLA skips them, so that infinities give no
        NaN.
        """
        if len(args) != 2:
            return super().evaluate(args)
        lhs, rhs = [a.aval for a in args]
        out = self.out_aval(lhs, rhs)
        lhs_spec, rhs_spec, out_spec = self.dimension_numbers
        products = out.size * rhs.size // max(rhs.shape[rhs_spec[0]], 1)
        copied = lhs.shape[lhs_spec[0]] * lhs.shape[lhs_spec[1]]
        for d, k in zip(out_spec[2:], rhs_spec[2:], strict=True):
            copied *= out.shape[d] * rhs.shape[k]
        small = (
            products <= _MAX_NUMPY_PRODUCTS
            and copied <= _MAX_NUMPY_COPIES
            and not any(a > 1 for a in self.lhs_dilation)
        )
        return super().evaluate(args) if small else run_compiled(self, args)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        lhs, rhs = args
        out = self.preferred_element_type or lhs.dtype
        shape = self.out_aval(ShapedArray(lhs.shape, lhs.dtype), ShapedArray(rhs.shape, rhs.dtype)).shape
        inner = accumulation_dtype(lhs.dtype, out)
        lhs, rhs = cast(lhs, inner), cast(rhs, inner)
        if not (lhs.size and rhs.size and math.prod(shape)):
            return np.zeros(shape, out)
        if len(shape) == 3 and self._is_of_vectors(lhs.shape, rhs.shape):
            edge = rhs.size - 1
            whole = self.padding == ((edge, edge),) and self.lhs_dilation == (1,) and lhs.size > edge
            x = lhs if whole else self._padded(lhs, 0)
            row = np.correlate(x.ravel(), rhs.ravel().conj(), "full" if whole else "valid")
            return cast(row[:: self.window_strides[0]], out).reshape(shape)
        products = np.matmul(
            self.rows(lhs, take_dims(rhs.shape, self.dimension_numbers.rhs_spec[2:]), 0),
            self.columns(rhs).swapaxes(1, 2),
        )
        return cast(self.arranged(products, shape), out)

    def _is_of_vectors(self, lhs: Shape, rhs: Shape) -> bool:
        """Returns whether there is one batch element and one feature, without kernel dilation."""
        x, y, _ = self.dimension_numbers
        return take_dims(lhs, x[:2]) == take_dims(rhs, y[:2]) == (1, 1) and self.rhs_dilation == (1,)

    def _padded(self, lhs: NDArray, fill: int) -> NDArray:
        """Returns `lhs` with axes in the default order, dilated and padded with `fill`."""
        x = lhs.transpose(self.dimension_numbers.lhs_spec)
        pads = [(low, high, a - 1) for (low, high), a in zip(self.padding, self.lhs_dilation, strict=True)]
        return Pad(((0, 0, 0), (0, 0, 0), *pads)).kernel(x, np.asarray(fill, x.dtype)) if any(map(any, pads)) else x

    def rows(self, lhs: NDArray, window: Shape, fill: int) -> NDArray:
        """Returns the windows of `lhs` as the rows of matrices.

        Args:
            lhs: The input, with the axes of `dimension_numbers`.
            window: The spatial shape of the window.
            fill: The value of the padding.

        Returns:
            An array `[groups, positions, elements]`.
        """
        x = self._padded(lhs, fill)
        wide = [dilate_dim(k, b) for k, b in zip(window, self.rhs_dilation, strict=True)]
        sizes = [stride_dim(m, k, s) for m, k, s in zip(x.shape[2:], wide, self.window_strides, strict=True)]
        n, features = x.shape[0] // self.batch_group_count, x.shape[1] // self.feature_group_count
        # Axes: groups of the batch or of the features, batch, positions, features, window.
        batch, feature, *strides = x.strides
        moves = [step * s for step, s in zip(strides, self.window_strides, strict=True)]
        inside = [step * b for step, b in zip(strides, self.rhs_dilation, strict=True)]
        each = n * batch if self.batch_group_count > 1 else features * feature
        shape = (self.groups, n, *sizes, features, *window)
        view = np.lib.stride_tricks.as_strided(x, shape, (each, batch, *moves, feature, *inside), writeable=False)
        return view.reshape(self.groups, n * math.prod(sizes), -1)

    def columns(self, rhs: NDArray) -> NDArray:
        """Returns the kernels as the rows of matrices.

        Args:
            rhs: The kernels, with the axes of `dimension_numbers`.

        Returns:
            An array `[groups, outputs, elements]`.
        """
        w = rhs.transpose(self.dimension_numbers.rhs_spec)
        return w.reshape(self.groups, w.shape[0] // self.groups, -1)

    def arranged(self, products: NDArray, shape: Shape) -> NDArray:
        """Returns products of windows and kernels as a result of the convolution.

        Args:
            products: An array `[groups, positions, outputs]`.
            shape: The shape of the result.

        Returns:
            The result, with the axes of `dimension_numbers`.
        """
        spec = self.dimension_numbers.out_spec
        n, outs, *sizes = take_dims(shape, spec)
        view = products.reshape(self.groups, n, *sizes, outs // self.groups)
        last = view.ndim - 1
        view = view.transpose(1, 0, last, *range(2, last)).reshape(n, outs, *sizes)
        return view.transpose(sorted(range(len(spec)), key=spec.__getitem__))

    # ------------------------------------------------------------------ derivatives

    @override
    def transpose_lhs(self, ct: Value, x: ShapedArray, y: Value, *others: Value) -> Tangent:
        """Returns the cotangent of `lhs`: `ct`, dilated by the strides, convolved with the reversed kernel."""
        if not ct.aval.size:
            return Zero(x)
        lhs, rhs, out = self.dimension_numbers
        groups = self.groups
        kernel = y
        if groups > 1:  # outputs of a group become its inputs
            kernel = _reshape_axis_into(_split(kernel, rhs[0], groups), rhs[0], rhs[1])
        kernel = rev(kernel, [d for d in rhs[2:] if kernel.aval.shape[d] > 1])
        padding = []
        for n, window, m, (low, _), step, a, b in self._spatial_params(x, y.aval, ct.aval):
            before = dilate_dim(window, b) - low - 1
            padding.append((before, dilate_dim(n, a) + dilate_dim(window, b) - 1 - dilate_dim(m, step) - before))
        prim = evolve(
            self,
            window_strides=self.lhs_dilation,
            lhs_dilation=self.window_strides,
            padding=tuple(padding),
            dimension_numbers=ConvDimensionNumbers(out, exchanged_dims(rhs), lhs),
            feature_group_count=groups,
            batch_group_count=1,
        )
        product = bind1(prim, ct, convert(kernel, ct.aval.dtype))
        if self.batch_group_count > 1:
            product = _reshape_axis_into(_split(product, lhs[1], groups), lhs[1], lhs[0])
        return match_aval(product, x)

    @override
    def transpose_rhs(self, ct: Value, x: Value, y: ShapedArray, *others: Value) -> Tangent:
        """Returns the cotangent of the kernel: a sum over batch and windows, where strides become dilations."""
        if not ct.aval.size:
            return Zero(y)
        lhs, rhs, out = self.dimension_numbers
        padding = []
        for n, window, m, (low, _), step, a, b in self._spatial_params(x.aval, y, ct.aval):
            padding.append((low, dilate_dim(m, step) - dilate_dim(n, a) + dilate_dim(window, b) - low - 1))
        prim = evolve(
            self,
            window_strides=self.rhs_dilation,
            rhs_dilation=self.window_strides,
            padding=tuple(padding),
            dimension_numbers=ConvDimensionNumbers(exchanged_dims(lhs), exchanged_dims(out), exchanged_dims(rhs)),
            feature_group_count=self.batch_group_count,
            batch_group_count=self.feature_group_count,
        )
        return match_aval(bind1(prim, convert(x, ct.aval.dtype), ct), y)

    def _spatial_params(
        self, x: ShapedArray, y: ShapedArray, out: ShapedArray
    ) -> list[tuple[int, int, int, tuple[int, int], int, int, int]]:
        """Returns, for each spatial axis, the sizes of operands and result, padding, stride and both dilations."""
        shapes = zip((x, y, out), self.dimension_numbers, strict=True)
        sizes = [take_dims(aval.shape, spec[2:]) for aval, spec in shapes]
        return list(zip(*sizes, self.padding, self.window_strides, self.lhs_dilation, self.rhs_dilation, strict=True))

    # ------------------------------------------------------------------ batching

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        """Merges a batch of inputs into the batch axis, one of kernels into the features, of both into the groups."""
        (x, y), (x_dim, y_dim) = args, dims
        lhs, rhs, out = self.dimension_numbers
        if not axis.size:
            types = [a.aval if d is None else _without_axis(a.aval, d) for a, d in zip(args, dims, strict=True)]
            aval = self.out_aval(*types)
            return full_like_aval(aval.update(shape=(0, *aval.shape)), 0), 0
        if x_dim is None:
            assert y_dim is not None
            product = bind1(self, x, _reshape_axis_into(y, y_dim, rhs[0], self.groups))
            return _reshape_axis_out_of(product, out[1], axis.size, self.groups)
        if y_dim is None:
            product = bind1(self, _reshape_axis_into(x, x_dim, lhs[0], self.batch_group_count), y)
            return _reshape_axis_out_of(product, out[0], axis.size)
        if self.batch_group_count > 1:
            position, prim = lhs[0], evolve(self, batch_group_count=self.batch_group_count * axis.size)
        else:
            position, prim = lhs[1], evolve(self, feature_group_count=self.feature_group_count * axis.size)
        product = bind1(prim, _reshape_axis_into(x, x_dim, position), _reshape_axis_into(y, y_dim, rhs[0]))
        return _reshape_axis_out_of(product, out[1], axis.size)

    # ------------------------------------------------------------------ compilation

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        if not (out.size and operands[0].aval.size and operands[1].aval.size):
            return stablehlo.emit_full(builder, 0, out)
        if builder.platform in stablehlo.GPUS:
            return self._emit_on_gpu(builder, out, *operands)
        # XLA transposes operands for its fast kernel itself, except in functions and in bodies of loops.
        has_kernel = operands[0].aval.dtype in (dtypes.float16, dtypes.float32) and self.batch_group_count == 1
        if builder.platform == "cpu" and has_kernel and self.dimension_numbers != channels_last_numbers(out.ndim):
            return builder.lower_fun(self._channels_last, operands)[0]
        operands, added = stablehlo.emit_product_operands(builder, operands, out.dtype)
        return stablehlo.emit_convert(
            builder, self._emit_real_or_complex(builder, out.update(dtype=added), *operands), out.dtype
        )

    def _emit_on_gpu(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        """Emits the convolution for cuDNN or MIOpen, which support few float dtypes; integers use a matrix product."""
        dtype = operands[0].aval.dtype
        if not dtypes.is_inexact(dtype) and not dtypes.is_inexact(out.dtype):
            return builder.lower_fun(functools.partial(self._as_matmul, out.dtype), operands)[0]
        if dtype in _CUDNN_DTYPES and dtype == out.dtype:
            return self._emit_real_or_complex(builder, out, *operands)
        wide = out.dtype if out.dtype in _WIDE else dtypes.float32
        values = [stablehlo.emit_convert(builder, x, wide) for x in operands]
        return stablehlo.emit_convert(
            builder, self._emit_real_or_complex(builder, out.update(dtype=wide), *values), out.dtype
        )

    def _channels_last(self, lhs: Value, rhs: Value) -> Sequence[Value]:
        """Returns the convolution with transposed operands, whose channels are the last axes, transposed back."""
        (lb, lf, *ls), (ro, ri, *rs), (ob, of, *os) = self.dimension_numbers
        prim = evolve(self, dimension_numbers=channels_last_numbers(len(ls) + 2))
        product = bind1(prim, transpose(lhs, (lb, *ls, lf)), transpose(rhs, (*rs, ri, ro)))
        return [transpose(product, np.argsort((ob, *os, of)).tolist())]

    def _as_matmul(self, dtype: DType, lhs: Value, rhs: Value) -> Sequence[Value]:
        """Returns the convolution as one matrix product per group, of all windows and all kernels."""
        lhs_spec, rhs_spec, out_spec = self.dimension_numbers
        ndim, groups = len(lhs_spec), self.groups
        x, w = transpose(lhs, lhs_spec), transpose(rhs, rhs_spec)
        pads = [(low, high, a - 1) for (low, high), a in zip(self.padding, self.lhs_dilation, strict=True)]
        x = pad(x, zero(x.aval), [(0, 0, 0), (0, 0, 0), *pads])
        for i, (stride, inside) in enumerate(zip(self.window_strides, self.rhs_dilation, strict=True)):
            axis = 2 + 2 * i  # each earlier axis has become two: positions and window elements
            window = w.aval.shape[2 + i]
            shape = (stride_dim(x.aval.shape[axis], dilate_dim(window, inside), stride), window)
            starts = mul(broadcasted_iota(dtypes.int32, shape, 0), stride)
            x = _gather_axis(x, add(starts, mul(broadcasted_iota(dtypes.int32, shape, 1), inside)), axis)
        across = 0 if self.batch_group_count > 1 else 1
        x, w = _split(x, across, groups), _split(w, 0, groups)
        windows = [4 + 2 * i for i in range(ndim - 2)]
        numbers = (((2, *windows), tuple(range(2, ndim + 1))), ((across,), (0,)))
        products = dot_general(x, w, numbers, None, dtype)  # axes: groups, batch, positions, outputs of a group
        arranged = transpose(products, (1, 0, ndim, *range(2, ndim)))
        n, _, _, *sizes = arranged.aval.shape
        whole = reshape(arranged, (n, w.aval.shape[0] * w.aval.shape[1], *sizes))
        return [transpose(whole, sorted(range(ndim), key=out_spec.__getitem__))]

    def _emit_real_or_complex(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        if dtypes.is_complex(operands[0].aval.dtype):
            return self._emit_complex(builder, out, *operands)
        return self._emit_real(builder, out, *operands)

    def _emit_real(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        lhs, rhs, result = self.dimension_numbers
        letters = f"[{dim_labels(lhs, 'bf')}]x[{dim_labels(rhs, 'oi')}]->[{dim_labels(result, 'bf')}]"
        attrs: dict[str, Attr] = {
            "window_strides": DenseI64Array(self.window_strides),
            "padding": WindowPadding(self.padding),
            "lhs_dilation": DenseI64Array(self.lhs_dilation),
            "rhs_dilation": DenseI64Array(self.rhs_dilation),
            "dimension_numbers": MlirText(f"#stablehlo.conv<{letters}>"),
            "feature_group_count": self.feature_group_count,
            "batch_group_count": self.batch_group_count,
            "precision_config": precision_config(self.precision),
        }
        return builder.emit("stablehlo.convolution", operands, [out], attrs)[0]

    def _emit_complex(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        """Emits a complex convolution as three real ones, since XLA's kernels are real."""

        def emit(name: str, *of: IrValue) -> IrValue:
            return builder.emit(f"stablehlo.{name}", of, [of[0].aval])[0]

        def parts(x: IrValue) -> list[IrValue]:
            aval = ShapedArray(x.aval.shape, dtypes.real_dtype(x.aval.dtype))
            return [builder.emit(f"stablehlo.{part}", [x], [aval])[0] for part in ("real", "imag")]

        def convolved(x: IrValue, y: IrValue) -> IrValue:
            return self._emit_real(builder, ShapedArray(out.shape, dtypes.real_dtype(out.dtype)), x, y)

        (a, b), (c, d) = map(parts, operands)
        first = convolved(emit("add", a, b), c)
        second = convolved(a, emit("subtract", d, c))
        third = convolved(b, emit("add", c, d))
        both = [emit("subtract", first, third), emit("add", first, second)]
        return builder.emit("stablehlo.complex", both, [out])[0]


def _accumulates(old: DType, new: DType) -> bool:
    """Returns whether products of numbers of dtype `old` can be added in dtype `new`."""
    kinds = dtypes.kind(old), dtypes.kind(new)
    if dtypes.itemsize_bits(new) < dtypes.itemsize_bits(old):
        return False
    match kinds:
        case (DTypeKind.SIGNED, DTypeKind.SIGNED | DTypeKind.FLOAT) | (
            DTypeKind.UNSIGNED,
            DTypeKind.SIGNED | DTypeKind.UNSIGNED | DTypeKind.FLOAT,
        ):
            return True
        case _:
            return kinds[0] is DTypeKind.BOOL or kinds[0] is kinds[1]


# ------------------------------------------------------------------ axes


def _without_axis(aval: ShapedArray, dim: int) -> ShapedArray:
    return aval.update(shape=aval.shape[:dim] + aval.shape[dim + 1 :])


def _gather_axis(x: Value, positions: Value, axis: int) -> Array:
    """Returns the elements of `x` along `axis` at the indices `places`, whose axes replace `axis`."""
    rank = x.aval.ndim
    kept = tuple([i if i < axis else i + 1 for i in range(rank) if i != axis])
    numbers = GatherDimensionNumbers(kept, (axis,), (axis,))
    sizes = [1 if i == axis else n for i, n in enumerate(x.aval.shape)]
    starts = reshape(positions, (*positions.aval.shape, 1))
    return gather(x, starts, numbers, sizes, mode=GatherScatterMode.PROMISE_IN_BOUNDS)


def _split(x: Value, axis: int, size: int) -> Array:
    """Returns `x` with an axis split in two, the first of the given size."""
    shape = x.aval.shape
    return reshape(x, (*shape[:axis], size, shape[axis] // size, *shape[axis + 1 :]))


def _reshape_axis_into(x: Value, dim: int, axis: int, groups: int = 1) -> Array:
    """Returns `x` with axis `dim` merged into the remaining axis `axis`, within each of its groups."""
    shape = _without_axis(x.aval, dim).shape
    n = x.aval.shape[dim]
    if groups == 1:
        moved = move_axis(x, dim, axis)
    else:
        moved = move_axis(_split(move_axis(x, dim, 0), axis + 1, groups), 0, axis + 1)
    return reshape(moved, (*shape[:axis], shape[axis] * n, *shape[axis + 1 :]))


def _reshape_axis_out_of(x: Value, axis: int, size: int, groups: int = 1) -> tuple[Array, int]:
    """Undoes `_reshape_axis_into`; returns the array and the position of the axis."""
    if groups == 1:
        return _split(x, axis, size), axis
    shape = x.aval.shape
    apart = move_axis(_split(_split(x, axis, groups), axis + 1, size), axis + 1, 0)
    return reshape(apart, (size, *shape[:axis], shape[axis] // size, *shape[axis + 1 :])), 0


# ------------------------------------------------------------------ functions

_convolution: Final = memoize(1024)(ConvGeneralDilated)


def conv_general_dilated(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Returns the convolution of `lhs` with a kernel `rhs`, over any number of spatial axes. Kernels are not reversed.

    Args:
        lhs: The input: axes for batch, features and `n` spatial ones.
        rhs: The kernel: axes for output features, input features and the window. Its dtype is that of `lhs`.
        window_strides: The step of the windows along each spatial axis, in the order of `rhs`.
        padding: "VALID", "SAME", "SAME_LOWER", or a pair (before, after) for each spatial axis; negative numbers remove
            elements.
        lhs_dilation: The spacing of input elements, with zeros between them. None, the default, means 1.
        rhs_dilation: The spacing of kernel elements. None, the default, means 1.
        dimension_numbers: The order of axes: None, the default, for the one above; three strings for `lhs`, `rhs` and
            the result, such as `("NHWC", "HWIO", "NHWC")`; or `ConvDimensionNumbers`.
        feature_group_count: The number of groups of features, each with its part of the output features. 1 by default.
        batch_group_count: The number of groups of the batch, each with its part of the output features. 1 by default.
        precision: A `Precision` or its name, for both operands or a pair. None, the default, means `Precision.DEFAULT`.
        preferred_element_type: The dtype of the result and of the accumulation. None, the default, means the operands'.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array with axes for batch, output features and the spatial axes, in the order of `dimension_numbers`.

    Raises:
        TypeError: The dtypes differ, or dimension numbers or padding are malformed.
        ValueError: Shapes, strides, dilations and groups don't fit each other.

    >>> import numpy as np
    >>> images, kernel = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 3, 3), np.float32)
    >>> conv_general_dilated(images, kernel, (1, 1), "VALID").tolist()
    [[[[9.0, 9.0], [9.0, 9.0]]]]
    """
    name = "conv_general_dilated"
    x, y = as_value(lhs, "lhs"), as_value(rhs, "rhs")
    numbers = conv_dimension_numbers(x.aval.shape, y.aval.shape, dimension_numbers)
    strides = static_ints(name, window_strides, "window_strides")
    one = (1,) * max(x.aval.ndim - 2, 0)
    left = one if lhs_dilation is None else static_ints(name, lhs_dilation, "lhs_dilation")
    right = one if rhs_dilation is None else static_ints(name, rhs_dilation, "rhs_dilation")
    if not isinstance(padding, str):
        pads = canonicalize_conv_padding(name, padding)
    elif any(d != 1 for d in left):
        raise ValueError(
            f"{name}: padding {padding!r} is not defined for a dilated lhs, here by {left}; give pairs of "
            "integers, or use conv_transpose"
        )
    else:
        windows = map(dilate_dim, take_dims(y.aval.shape, numbers.rhs_spec[2:]), right)
        pads = tuple(padtype_to_pads(take_dims(x.aval.shape, numbers.lhs_spec[2:]), list(windows), strides, padding))
    new = None if preferred_element_type is None else dtypes.as_dtype(preferred_element_type, "preferred_element_type")
    groups = static_int(name, feature_group_count, "feature_group_count")
    batch_groups = static_int(name, batch_group_count, "batch_group_count")
    precisions = canonicalize_precision(name, precision)
    return bind1(_convolution(strides, pads, left, right, numbers, groups, batch_groups, precisions, new), x, y)


def canonicalize_conv_padding(name: str, padding: Sequence[tuple[int, int]]) -> Pads:
    """Returns pairs of Python integers; raises ValueError for anything else."""
    try:
        pairs = [static_ints(name, pair, "padding") for pair in padding]
    except TypeError as error:
        raise ValueError(f"{name}: padding must be a string or pairs of integers, got {padding!r}") from error
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"{name}: padding must be a string or pairs of integers, got {padding!r}")
    return tuple([(pair[0], pair[1]) for pair in pairs])
