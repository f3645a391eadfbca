"""Discrete Fourier transforms along the last axes of arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, NDArray, Shape, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import as_array, bind1
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import MappedAxis, Tangent, UndefinedPrimal
from tracefx.lowering import Attr, Builder, DenseI64Array, IrValue, MlirText
from tracefx.ops.elementwise.arithmetic import mul
from tracefx.ops.elementwise.complex import complex_dtype, conj
from tracefx.ops.operation import LinearOperation, memoize_aval, run_compiled, static_shape
from tracefx.ops.shape.array_creation import full
from tracefx.ops.shape.shape import concatenate
from tracefx.ops.sharding_rules import resized_spec
from tracefx.ops.structural import batch_first, broadcast_in_dim, convert


@final
class FftType(IntEnum):
    """The kind of transform: forward or inverse, of complex or of real numbers."""

    FFT = 0
    """The forward transform, from complex to complex numbers."""
    IFFT = 1
    """The inverse of `FFT`."""
    RFFT = 2
    """The forward transform of `n` real numbers: its first `n // 2 + 1` results. The others are their conjugates."""
    IRFFT = 3
    """The inverse of `RFFT`."""


_NUMPY_NAMES: Final[Mapping[FftType, tuple[str, str]]] = MappingProxyType(
    {kind: (kind.name.lower(), f"{kind.name.lower()}n") for kind in FftType}
)
"""The names of NumPy's functions for one axis and for several. NumPy imports them on first use."""
_SMALL: Final = 4096
"""The largest number of elements for which NumPy is used. Beyond it, compiled code with threads and SIMD is faster."""


@final
@frozen(eq=False)
class Fft(LinearOperation):
    """The discrete Fourier transform along the last one to three axes.

    For `FFT`, `out[k] = sum(x[j] * exp(-2j * pi * j * k / n) for j in range(n))` along each of these axes. `IFFT` has
    the opposite sign and is divided by `n`. `RFFT` takes real numbers and returns the first `n // 2 + 1` elements along
    the last axis, and `IRFFT` is its inverse.

    Args:
        fft_type: The kind of transform.
        fft_lengths: The size of each transformed axis; the last one is the number of real elements.

    `x: c64[..., n] -> c64[..., n]`, for `RFFT` `f32[..., n] -> c64[..., n // 2 + 1]`, for `IRFFT` `c64[..., n // 2 + 1]
    -> f32[..., n]`; 32-bit or 64-bit components. Bound by `lax.fft`.

    >>> from tracefx import bind, lax, numpy, ops
    >>> bind(ops.Fft(lax.FftType.RFFT, (2,)), numpy.array([1.0, 2.0]))
    [Array([ 3.+0.j, -1.+0.j], dtype=complex64)]
    """

    name = "fft"
    fft_type: FftType
    fft_lengths: Shape

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [resized_spec(self, avals[0], outs[0].shape)]

    @override
    @memoize_aval("fft_type", "fft_lengths")
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,), kind, lengths = avals, self.fft_type, self.fft_lengths
        is_real = kind is FftType.RFFT
        if x.dtype not in ((dtypes.float32, dtypes.float64) if is_real else (dtypes.complex64, dtypes.complex128)):
            takes = "float32 or float64" if is_real else "complex64 or complex128"
            raise FftTypeError(f"fft: the operand of {kind.name} must be {takes}, got {x}; convert it first")
        if not 1 <= len(lengths) <= min(3, x.ndim):
            raise ValueError(
                f"fft: fft_lengths {lengths} must have one to three entries, and at most one for each axis of {x}"
            )
        if is_real and lengths[-1] == 0:
            raise ValueError(f"fft: RFFT needs at least one element, got fft_lengths {lengths}")
        expected = (*lengths[:-1], lengths[-1] // 2 + 1) if kind is FftType.IRFFT and lengths[-1] else lengths
        axes = x.shape[-len(lengths) :]
        if axes != expected and not (kind is FftType.IRFFT and lengths[-1] == 0 and axes[-1] <= 1):
            raise ValueError(
                f"fft: {kind.name} with fft_lengths {lengths} takes arrays whose last axes have the sizes {expected}, "
                f"got {x}"
            )
        last = lengths[-1] // 2 + 1 if is_real else lengths[-1]
        shape = (*x.shape[: x.ndim - len(lengths)], *lengths[:-1], last)
        if kind is FftType.IRFFT:
            return x.update(shape=shape, dtype=dtypes.real_dtype(x.dtype))
        return x.update(shape=shape, dtype=complex_dtype(x.dtype))

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        (x,), lengths = args, self.fft_lengths
        if not x.size or not lengths[-1]:
            aval = self.out_aval(ShapedArray(x.shape, x.dtype))
            return np.zeros(aval.shape, aval.dtype)
        one, several = _NUMPY_NAMES[self.fft_type]
        if len(lengths) == 1:
            out = getattr(np.fft, one)(x, lengths[0])
        else:
            out = getattr(np.fft, several)(x, lengths, tuple(range(-len(lengths), 0)))
        return np.asarray(out)

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return run_compiled(self, args) if len(args) == 1 and args[0].aval.size > _SMALL else super().evaluate(args)

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray] | None:
        return self.kernel if avals[0].size <= _SMALL else None

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        lengths = self.fft_lengths
        count = math.prod(lengths)
        if self.fft_type is FftType.RFFT:
            halved = mul(conj(ct), _weights(ct.aval.dtype, ct.aval.shape, lengths[-1], 0.5))
            return [mul(fft(halved, FftType.IRFFT, lengths), float(count))]
        if self.fft_type is FftType.IRFFT:
            if not count:
                return [full(args[0].aval.shape, 0.0, args[0].aval.dtype)]
            whole = fft(ct, FftType.RFFT, lengths)
            doubled = mul(whole, _weights(whole.aval.dtype, whole.aval.shape, lengths[-1], 2.0))
            return [conj(mul(doubled, 1 / count))]
        return [bind1(self, ct)]

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        return bind1(self, batch_first(args[0], dims[0], axis)), 0

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        (x,), lengths = operands, self.fft_lengths
        if not x.aval.size or not out.size:
            return builder.constant(np.zeros(out.shape, out.dtype))
        if self.fft_type is FftType.IRFFT and len(lengths) > 1 and builder.platform != "cpu":
            # GPU libraries assume conjugate symmetry along all axes, NumPy and the CPU only along the last one.
            before = out.ndim - len(lengths)
            front = (*range(before), out.ndim - 1, *range(before, out.ndim - 1))
            back = (*range(before), *range(before + 1, out.ndim), before)
            x = _transposed(builder, x, front)
            x = _emit(builder, x, FftType.IFFT, lengths[:-1], x.aval)
            return _emit(builder, _transposed(builder, x, back), FftType.IRFFT, lengths[-1:], out)
        return _emit(builder, x, self.fft_type, lengths, out)


class FftTypeError(ValueError, TypeError):
    """An operand has a dtype that the transform does not accept. JAX raises ValueError here."""


def _emit(builder: Builder, x: IrValue, kind: FftType, lengths: Shape, out: ShapedArray) -> IrValue:
    attrs: dict[str, Attr] = {
        "fft_type": MlirText(f"#stablehlo<fft_type {kind.name}>"),
        "fft_length": DenseI64Array(lengths),
    }
    return builder.emit("stablehlo.fft", [x], [out], attrs)[0]


def _transposed(builder: Builder, x: IrValue, order: tuple[int, ...]) -> IrValue:
    out = x.aval.update(shape=tuple([x.aval.shape[i] for i in order]))
    return builder.emit("stablehlo.transpose", [x], [out], {"permutation": DenseI64Array(order)})[0]


def _weights(dtype: DType, shape: Shape, length: int, weight: float) -> Array:
    """Returns factors for the results of an RFFT: `weight` where the full transform has a conjugate twin, else 1."""
    parts = [full((1,), 1.0, dtype), full(((length - 1) // 2,), weight, dtype)]
    if length % 2 == 0:
        parts.append(full((1,), 1.0, dtype))
    return broadcast_in_dim(concatenate([p for p in parts if p.size], 0), shape, (len(shape) - 1,))


def fft(x: ArrayLike, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Array:
    """Returns the discrete Fourier transform of `x` along its last axes.

    Inverse transforms are divided by the number of elements.

    Args:
        x: Array of at least `len(fft_lengths)` axes. Integers are converted to floats, and real numbers to complex ones
            except for RFFT.
        fft_type: An `FftType`, or its name.
        fft_lengths: The sizes of the transformed axes, one to three static integers; the last is the number of real
            elements: of the operand for RFFT, of the result for IRFFT. With none, `x` is returned.

    Returns:
        An array of complex numbers, or of real ones for IRFFT. For RFFT, the last axis has size `n // 2 + 1`.

    Raises:
        TypeError: `fft_type` is neither an `FftType` nor a string.
        ValueError: The sizes don't fit `fft_lengths`, `x` is complex for RFFT, or the name is unknown.

    >>> fft(np.ones(4, np.float32), "RFFT", (4,))
    Array([4.+0.j, 0.+0.j, 0.+0.j], dtype=complex64)
    """
    kind, value = _fft_type(fft_type), as_value(x, "fft: x")
    dtype = value.aval.dtype
    if not dtypes.is_inexact(dtype):
        dtype = dtypes.float64 if dtypes.itemsize_bits(dtype) == 64 else dtypes.default_float()
    if kind is not FftType.RFFT:
        dtype = complex_dtype(dtype)
    elif dtypes.is_complex(dtype):
        raise FftTypeError(f"fft: RFFT takes real numbers, got {value.aval}; take its real part, or FFT")
    lengths = static_shape("fft", fft_lengths, "fft_lengths")
    converted = convert(value, dtype)
    return bind1(Fft(kind, lengths), converted) if lengths else as_array(converted)


def _fft_type(x: FftType | str) -> FftType:
    """Returns the `FftType` that the argument `fft_type` names."""
    if isinstance(x, FftType):
        return x
    if not isinstance(x, str):
        raise TypeError(f"fft: fft_type must be an FftType or its name, got {x!r}")
    kind = FftType.__members__.get(x.upper() if x.islower() else x)
    if kind is None:
        raise ValueError(f"fft: fft_type must be one of {', '.join(FftType.__members__)}, got {x!r}")
    return kind
