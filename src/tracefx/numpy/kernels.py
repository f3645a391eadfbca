"""Handwritten NumPy kernels: for functions whose primitives' own kernels take more than three times as long.

That is measured for arrays of 16 elements of float32. `tests/numpy/test_kernels.py` compares every kernel with the
compiled function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final
from typing import Literal as Exactly

import numpy as np

from tracefx.core import AxisLike, DType, NDArray, ShapedArray, dtypes
from tracefx.numpy.operand_promotion import inexact_dtype
from tracefx.numpy.shapes import axes
from tracefx.ops.operation import specialize_reduce
from tracefx.ops.promotion import promote
from tracefx.ops.reductions.reduction import ReduceExtremum, ReduceMax, ReduceMin
from tracefx.transforms.eager_calls import NumpyKernel
from tracefx.transforms.kernel_replay import Kernel

_FLOATS: Final = frozenset({dtypes.float32, dtypes.float64})
_INTEGERS: Final = frozenset(
    {
        *(dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
        *(dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
    }
)
_NUMBERS: Final = _FLOATS | _INTEGERS
_ALL: Final = _NUMBERS | {dtypes.bool_}


# ------------------------------------------------------------------ arithmetic


def _constant(kernel: Kernel, kernel_dtypes: frozenset[DType]) -> NumpyKernel:
    """Returns the kernel of a function that has the same one for all arguments."""
    return NumpyKernel(lambda *_, **__: kernel, kernel_dtypes)


def _nan_extremum(prim: Callable[[tuple[int, ...]], ReduceExtremum], fold: Callable[..., NDArray]) -> NumpyKernel:
    """Returns the kernel of `nanmax` or `nanmin`."""

    def build(
        a: ShapedArray, axis: AxisLike, out: object, keepdims: bool, initial: object, where: object
    ) -> Kernel | None:
        over = axes("nanmax", axis, a.ndim)
        if keepdims or initial is not None or where is not None or not over or not a.size:
            return None
        checked, folded = prim(over).checked, specialize_reduce(fold, over, a.ndim)
        return lambda x: checked(x, folded(x))

    return NumpyKernel(build, _FLOATS)


def _sinc(x: ShapedArray) -> Kernel:
    pi, one = np.asarray(math.pi, x.dtype), np.asarray(1, x.dtype)

    def kernel(v: NDArray) -> NDArray:
        scaled = v * pi
        quotient = np.sin(scaled) / scaled
        return quotient if np.count_nonzero(v) == v.size else np.where(v == 0, one, quotient)

    return kernel


def _cross(a: ShapedArray, b: ShapedArray, *axes: int | None) -> Kernel | None:
    """Returns the kernel of `cross` of vectors with three components along the last axis."""
    if axes != (-1, -1, -1, None) or a.shape != b.shape or a.shape[-1] != 3:
        return None
    left, right = np.array([1, 2, 0, 2, 0, 1]), np.array([2, 0, 1, 1, 2, 0])

    def kernel(x: NDArray, y: NDArray) -> NDArray:
        products = x.take(left, -1) * y.take(right, -1)
        crossed: NDArray = products[..., :3] - products[..., 3:]
        return crossed

    return kernel


def _convolution(function: Callable[..., NDArray]) -> Callable[..., Kernel | None]:
    """Returns the `build` of `convolve` or `correlate`."""

    def build(
        a: ShapedArray, v: ShapedArray, mode: str, *, precision: object, preferred_element_type: object
    ) -> Kernel | None:
        if precision is not None or preferred_element_type is not None:
            return None
        return lambda x, y: function(x, y, mode)

    return build


# ------------------------------------------------------------------ indexing


def _take(
    a: ShapedArray, indices: object, axis: int | None, out: object, mode: object, *promises_and_fill: object
) -> Kernel | None:
    """Returns the kernel of `take`, which raises for indices out of bounds."""
    if mode is not None or promises_and_fill[-1] is not None or not isinstance(indices, ShapedArray) or not a.size:
        return None
    return lambda v, i: v.take(i, axis)


def _take_along_axis(
    arr: ShapedArray, indices: ShapedArray, axis: int | None, mode: object, fill_value: object, **options: object
) -> Kernel | None:
    """Returns the kernel of `take_along_axis`, which raises for indices out of bounds."""
    if mode is not None or fill_value is not None or options != {"wrap_negative_indices": True} or axis is None:
        return None
    if not arr.size or arr.without_axis(axis % arr.ndim).shape != indices.without_axis(axis % arr.ndim).shape:
        return None
    return lambda x, i: np.take_along_axis(x, i, axis)


def _diag(v: ShapedArray, k: int) -> Kernel | None:
    return (lambda x: x.diagonal(k)) if v.ndim == 2 else None


def _trace(a: ShapedArray, offset: int, axis1: int, axis2: int, dtype: object, out: object) -> Kernel | None:
    add: Callable[..., NDArray] = np.add.reduce
    return None if dtype is not None else lambda x: add(x.diagonal(offset, axis1, axis2), -1)


def _nonzero(a: ShapedArray, *, size: object, fill_value: object) -> Kernel | None:
    if type(size) is not int or fill_value is not None:
        return None
    dtype, is_vector = dtypes.default_int(), a.ndim == 1

    def kernel(x: NDArray) -> NDArray | tuple[NDArray, ...]:
        outs = []
        for indices in x.nonzero():
            out = np.zeros(size, dtype)
            n = min(size, indices.size)
            out[:n] = indices[:n]
            outs.append(out)
        return outs[0] if is_vector else tuple(outs)

    return kernel


# ------------------------------------------------------------------ order


def _argsort(
    a: ShapedArray, axis: int | None, *, kind: None, order: None, stable: bool, descending: bool, dtype: object
) -> Kernel | None:
    if descending or dtype is not None:
        return None
    result_dtype = dtypes.index_dtype(a.size if axis is None else a.shape[axis])
    return lambda x: x.argsort(axis, "stable").astype(result_dtype)


def _median(a: ShapedArray, axis: object, out: None, overwrite_input: bool, keepdims: bool) -> Kernel | None:
    if keepdims or a.ndim != 1 or not a.size:
        return None
    low, high, half = (a.size - 1) // 2, a.size // 2, a.dtype.type(0.5)

    def kernel(x: NDArray) -> NDArray | np.generic:
        line = x.copy()
        line.sort()
        last: np.generic = line[-1]
        middle: np.generic = line[low] if low == high else (line[low] + line[high]) * half
        return last if last != last else middle

    return kernel


def _searchsorted(
    a: ShapedArray, v: ShapedArray, side: Exactly["left", "right"], sorter: object, *, method: object
) -> Kernel | None:
    if sorter is not None:
        return None
    dtype = dtypes.index_dtype(a.size)
    common, _ = promote([(x.dtype, x.weak_type) for x in (a, v)])
    if a.dtype == v.dtype == common:
        return lambda x, y: x.searchsorted(y, side).astype(dtype)
    return lambda x, y: x.astype(common).searchsorted(y.astype(common), side).astype(dtype)


def _digitize(x: ShapedArray, bins: ShapedArray, right: bool, *, method: object) -> Kernel | None:
    side: Exactly["left", "right"] = "left" if right else "right"
    n, dtype = bins.size, dtypes.index_dtype(bins.size)
    if not n:
        return None

    def kernel(values: NDArray, edges: NDArray) -> NDArray:
        first, last = edges[0], edges[-1]
        if first <= last or last != last:
            return edges.searchsorted(values, side).astype(dtype)
        return (n - edges[::-1].searchsorted(values, side)).astype(dtype)

    return kernel


def _quantile(whole: int) -> Callable[..., Kernel | None]:
    """Returns the `build` of the quantiles of a vector, with `q` as a fraction of `whole`."""

    def build(
        a: ShapedArray,
        q: ShapedArray,
        axis: object,
        out: object,
        overwrite_input: bool,
        method: str,
        keepdims: bool,
        *,
        weights: object,
    ) -> Kernel | None:
        if method != "linear" or keepdims or weights is not None or overwrite_input or out is not None:
            return None
        if a.ndim != 1 or not a.size or q.shape or axis is not None or inexact_dtype(q.dtype) != a.dtype:
            return None
        element, last = a.dtype.type, a.size - 1
        steps, one = element(last), element(1)

        def kernel(v: NDArray, q: NDArray) -> NDArray | np.generic:
            line = v.copy()
            line.sort()
            end: np.generic = line[-1]
            fraction = element(q) if whole == 1 else element(q) / element(whole)
            position = fraction * steps
            if end != end or not math.isfinite(position):
                return end if end != end else element(math.nan)
            low = math.floor(position) if -1 < position < last + 1 else -1 if position < 0 else last + 1
            weight = position - element(math.floor(position)) if np.isfinite(position) else position - position
            below = line[min(max(low, 0), last)]
            above = line[min(max(low + (weight != 0), 0), last)]
            mixed: np.generic = below * (one - weight) + above * weight
            return below if below == above and mixed != mixed else mixed

        return kernel

    return build


# ------------------------------------------------------------------ bits and parts of floats


def _ldexp(x1: ShapedArray, x2: ShapedArray) -> Kernel | None:
    if x1.dtype not in _FLOATS or not dtypes.is_integer(x2.dtype):
        return None
    return lambda x, n: np.ldexp(x, n.astype(np.int32))


def _packbits(a: ShapedArray, axis: int | None, bitorder: Exactly["big", "little"]) -> Kernel:
    return lambda x: np.packbits(x != 0, axis, bitorder)


def _unpackbits(a: ShapedArray, axis: int | None, count: int | None, bitorder: Exactly["big", "little"]) -> Kernel:
    return lambda x: np.unpackbits(x, axis, count, bitorder)


KERNELS: Final[Mapping[str, NumpyKernel]] = MappingProxyType(
    {
        "argsort": NumpyKernel(_argsort, _NUMBERS),
        "convolve": NumpyKernel(_convolution(np.convolve), _FLOATS),
        "copysign": _constant(np.copysign, _FLOATS),
        "correlate": NumpyKernel(_convolution(np.correlate), _FLOATS),
        "cross": NumpyKernel(_cross, _NUMBERS),
        "diag": NumpyKernel(_diag, _NUMBERS),
        "diagonal": NumpyKernel(lambda a, *places: lambda x: x.diagonal(*places), _NUMBERS),
        "digitize": NumpyKernel(_digitize, _NUMBERS),
        "divmod": _constant(lambda x, y: (np.floor_divide(x, y), np.remainder(x, y)), _FLOATS),
        "floor_divide": _constant(np.floor_divide, _FLOATS),
        "frexp": _constant(np.frexp, _FLOATS),
        "gcd": _constant(np.gcd, _INTEGERS),
        "heaviside": _constant(np.heaviside, _FLOATS),
        "lcm": _constant(np.lcm, _INTEGERS),
        "ldexp": NumpyKernel(_ldexp, _NUMBERS, mixed=True),
        "logaddexp": _constant(np.logaddexp, _FLOATS),
        "logaddexp2": _constant(np.logaddexp2, _FLOATS),
        "median": NumpyKernel(_median, _FLOATS),
        "modf": _constant(np.modf, _FLOATS),
        "nanmax": _nan_extremum(ReduceMax, np.fmax.reduce),
        "nanmin": _nan_extremum(ReduceMin, np.fmin.reduce),
        "nonzero": NumpyKernel(_nonzero, _ALL),
        "packbits": NumpyKernel(_packbits, _INTEGERS | {dtypes.bool_}),
        "percentile": NumpyKernel(_quantile(100), _FLOATS),
        "quantile": NumpyKernel(_quantile(1), _FLOATS),
        "remainder": _constant(np.remainder, _NUMBERS),
        "searchsorted": NumpyKernel(_searchsorted, _NUMBERS | {dtypes.float16}, mixed=True),
        "sign": _constant(np.sign, _NUMBERS),
        "sinc": NumpyKernel(_sinc, _FLOATS),
        "take": NumpyKernel(_take, _ALL, mixed=True),
        "take_along_axis": NumpyKernel(_take_along_axis, _ALL, mixed=True),
        "trace": NumpyKernel(_trace, _FLOATS),
        "unpackbits": NumpyKernel(_unpackbits, frozenset({dtypes.uint8})),
    }
)
"""The kernels by the names of their functions."""
