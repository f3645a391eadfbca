"""Signals from the spectra of their parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracefx import numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.handler import as_array
from tracefx.lax import pad
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, inexact_dtype
from tracefx.ops.elementwise.complex import complex_dtype
from tracefx.ops.static_integers import canonicalize_axis, static_int
from tracefx.scipy.signal.window_functions import get_window

if TYPE_CHECKING:
    from tracefx.scipy.signal.spectra import WindowLike


def istft(
    Zxx: ArrayLike,
    fs: ArrayLike = 1.0,
    window: WindowLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[Array, Array]:
    """The signal whose overlapping segments have the transforms `Zxx` (`c64[..., frequencies, times]`), as `stft` gives
    them: times, and the signal.

    Arguments are as of `stft`, which must have had the same. `boundary` says that the signal went on at both ends by
    half a segment, which is cut off. Raises ValueError for numbers that don't fit each other.

    >>> from tracefx.scipy.signal.spectra import stft
    >>> times, signal = istft(stft(fnp.arange(8.0), nperseg=4)[2])
    >>> fnp.round(signal, 3).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    """
    value = as_operand(Zxx, "istft: Zxx")
    ndim = value.aval.ndim
    if ndim < 2:
        raise ValueError(f"istft: Zxx must have axes of frequencies and times, got {value.aval}")
    frequencies, times = (
        canonicalize_axis("istft", freq_axis, ndim, "freq_axis"),
        canonicalize_axis("istft", time_axis, ndim, "time_axis"),
    )
    if frequencies == times:
        raise ValueError(f"istft: freq_axis and time_axis must be different axes, got {freq_axis} and {time_axis}")
    z = as_array(convert_dtype(value, complex_dtype(inexact_dtype(value.aval.dtype))))
    z = fnp.moveaxis(z, (times, frequencies), (-2, -1))
    whole = 2 * (z.shape[-1] - 1) if input_onesided else z.shape[-1]
    size = whole if nperseg is None else static_int("istft", nperseg, "nperseg")
    if size < 1:
        raise ValueError(f"istft: nperseg must be positive, got {size}")
    if nfft is None:
        length = whole + 1 if input_onesided and size == whole + 1 else whole
    else:
        length = static_int("istft", nfft, "nfft")
    if length < size:
        raise ValueError(f"istft: nfft {length} must be no less than nperseg {size}")
    overlap = size // 2 if noverlap is None else static_int("istft", noverlap, "noverlap")
    if overlap >= size:
        raise ValueError(f"istft: noverlap {overlap} must be less than nperseg {size}")
    parts = (fnp.fft.irfft if input_onesided else fnp.fft.ifft)(z, length)[..., :size]
    shape = _window_array(window, size)
    shape = fnp.asarray(shape, dtypes.real_dtype(parts.dtype) if not dtypes.is_complex(shape.dtype) else None)
    step = size - overlap
    out = _overlap_add(parts * (shape * fnp.sum(shape)), step)
    weight = _overlap_add(fnp.broadcast_to(shape * shape, parts.shape[-2:]), step)
    if boundary and size > 1:
        out, weight = out[..., size // 2 : -(size // 2)], weight[..., size // 2 : -(size // 2)]
    out = out / fnp.where(fnp.abs(weight) > 1e-10, weight, 1)
    at = fnp.arange(out.shape[-1], dtype=dtypes.real_dtype(out.dtype))
    if ndim > 2:
        out = fnp.moveaxis(out, -1, times - (frequencies < times))
    return fnp.divide(at, fs), out


def _window_array(window: WindowLike, size: int) -> Array:
    if isinstance(window, str | tuple):
        return fnp.asarray(get_window(window, size))
    out = fnp.asarray(window)
    if out.shape != (size,):
        raise ValueError(f"istft: window must have {size} numbers, as segments have, got {out.aval}")
    return out


def _overlap_add(parts: Array, step: int) -> Array:
    """The sum of segments (`f32[..., segments, size]`), each of which begins `step` after the one before."""
    count, size = parts.shape[-2:]
    pieces = -(-size // step)
    batch = parts.shape[:-2]
    zero = fnp.zeros((), parts.dtype)
    config = [(0, 0, 0)] * (len(batch) + 1)
    cut = pad(parts, zero, [*config, (0, pieces * step - size, 0)]).reshape(*batch, count, pieces, step)
    moved = [pad(cut[..., i, :], zero, [*config[:-1], (i, pieces - 1 - i, 0), (0, 0, 0)]) for i in range(pieces)]
    total = moved[0]
    for each in moved[1:]:
        total = total + each
    return total.reshape(*batch, -1)[..., : step * (count - 1) + size]
