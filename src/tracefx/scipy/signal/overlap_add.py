"""`istft`: the inverse short-time Fourier transform, by overlap-add."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, dtypes
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
    """Computes the inverse short-time Fourier transform.

    `fs`, `window`, `nperseg`, `noverlap` and `nfft` must be those that `stft` was called with.

    Args:
        Zxx: the transform, `c64[..., frequencies, times]`.
        fs: the sampling frequency.
        window: the name of a window, a tuple of a name and parameters, or an array of `nperseg` numbers.
        nperseg: the length of segments; by default it follows from the number of frequencies.
        noverlap: the number of samples that consecutive segments share; `nperseg // 2` by default.
        nfft: the length of the FFTs; by default it follows from the number of frequencies.
        input_onesided: whether `Zxx` has nonnegative frequencies only.
        boundary: whether the signal was extended by half a segment at both ends, which is removed.
        time_axis: the axis of times.
        freq_axis: the axis of frequencies.

    Returns:
        The times, `f32[n]`, and the signal, `f32[..., n]`.

    Raises:
        ValueError: if arguments contradict each other.

    >>> from tracefx.scipy.signal.spectra import stft
    >>> times, signal = istft(stft(fnp.arange(8.0), nperseg=4)[2])
    >>> fnp.round(signal, 3).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    """
    value = as_operand(Zxx, "istft: Zxx")
    ndim = value.aval.ndim
    if ndim < 2:
        raise ValueError(f"istft: Zxx must have axes of frequencies and times, got {value.aval}")
    freq_axis_index, time_axis_index = (
        canonicalize_axis("istft", freq_axis, ndim, "freq_axis"),
        canonicalize_axis("istft", time_axis, ndim, "time_axis"),
    )
    if freq_axis_index == time_axis_index:
        raise ValueError(f"istft: freq_axis and time_axis must be different axes, got {freq_axis} and {time_axis}")
    z = as_array(convert_dtype(value, complex_dtype(inexact_dtype(value.aval.dtype))))
    z = fnp.moveaxis(z, (time_axis_index, freq_axis_index), (-2, -1))
    default_length = 2 * (z.shape[-1] - 1) if input_onesided else z.shape[-1]
    size = default_length if nperseg is None else static_int("istft", nperseg, "nperseg")
    if size < 1:
        raise ValueError(f"istft: nperseg must be positive, got {size}")
    if nfft is None:
        length = default_length + 1 if input_onesided and size == default_length + 1 else default_length
    else:
        length = static_int("istft", nfft, "nfft")
    if length < size:
        raise ValueError(f"istft: nfft {length} must be no less than nperseg {size}")
    overlap = size // 2 if noverlap is None else static_int("istft", noverlap, "noverlap")
    if overlap >= size:
        raise ValueError(f"istft: noverlap {overlap} must be less than nperseg {size}")
    segments = (fnp.fft.irfft if input_onesided else fnp.fft.ifft)(z, length)[..., :size]
    window_array = _window_array(window, size)
    window_array = fnp.asarray(
        window_array, dtypes.real_dtype(segments.dtype) if not dtypes.is_complex(window_array.dtype) else None
    )
    hop = size - overlap
    out = _overlap_add(segments * (window_array * fnp.sum(window_array)), hop)
    weight = _overlap_add(fnp.broadcast_to(window_array * window_array, segments.shape[-2:]), hop)
    if boundary and size > 1:
        out, weight = out[..., size // 2 : -(size // 2)], weight[..., size // 2 : -(size // 2)]
    out = out / fnp.where(fnp.abs(weight) > 1e-10, weight, 1)
    indices = fnp.arange(out.shape[-1], dtype=dtypes.real_dtype(out.dtype))
    if ndim > 2:
        out = fnp.moveaxis(out, -1, time_axis_index - (freq_axis_index < time_axis_index))
    return fnp.divide(indices, fs), out


def _window_array(window: WindowLike, size: int) -> Array:
    """Returns the window as an array of `size` numbers."""
    if isinstance(window, str | tuple):
        return fnp.asarray(get_window(window, size))
    out = fnp.asarray(window)
    if out.shape != (size,):
        raise ValueError(f"istft: window must have {size} numbers, the length of segments, got {out.aval}")
    return out


def _overlap_add(segments: Array, step: int) -> Array:
    """Sums segments, `f32[..., segments, size]`, each starting `step` after the one before."""
    count, size = segments.shape[-2:]
    blocks_per_segment = -(-size // step)
    batch = segments.shape[:-2]
    zero = fnp.zeros((), segments.dtype)
    config = [(0, 0, 0)] * (len(batch) + 1)
    blocks = pad(segments, zero, [*config, (0, blocks_per_segment * step - size, 0)]).reshape(
        *batch, count, blocks_per_segment, step
    )
    shifted = [
        pad(blocks[..., i, :], zero, [*config[:-1], (i, blocks_per_segment - 1 - i, 0), (0, 0, 0)])
        for i in range(blocks_per_segment)
    ]
    total = shifted[0]
    for each in shifted[1:]:
        total = total + each
    return total.reshape(*batch, -1)[..., : step * (count - 1) + size]
