"""Spectra of parts of signals: of each for itself, and averaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsIndex, TypeAlias

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.dtypes import DType
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import broadcast_operand_shapes, convert_dtype, inexact_dtype, promote_dtypes
from tracefx.ops.elementwise.complex import complex_dtype
from tracefx.ops.static_integers import canonicalize_axis, static_int
from tracefx.scipy.signal.trends import detrend
from tracefx.scipy.signal.window_functions import get_window

WindowLike: TypeAlias = "str | tuple[Any, ...] | ArrayLike"
Detrend: TypeAlias = "bool | str | Callable[[Array], Array]"


def stft(
    x: ArrayLike,
    fs: ArrayLike = 1.0,
    window: WindowLike = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Detrend = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
) -> tuple[Array, Array, Array]:
    """The transforms of overlapping segments of `x` along an axis: frequencies, times, and the transforms.

    The axis becomes that of frequencies, and one of times comes last. Segments have `nperseg` numbers, no more than
    there are, `noverlap` of which the next one has too, by default half of them; each is multiplied by a `window`,
    and filled up with zeros to `nfft`. The window is an array, or a name as "hann" or ("kaiser", 8.0). `detrend` is
    what is done to segments first: nothing, what the function of this name does with this `type`, or a function of
    segments. The signal goes on at both ends by half a segment: with "zeros", with the number at the end if `boundary`
    is "constant", mirrored if it is "even", and also negated if it is "odd"; if `padded`, by zeros to whole segments.
    Of real signals there are the frequencies from 0 on; of complex ones, or unless `return_onesided`, all.

    Raises ValueError for numbers and names that fit neither each other nor the signal.

    >>> frequencies, times, spectra = stft(fnp.ones(8), nperseg=4)
    >>> spectra.shape, times.tolist()
    ((3, 5), [0.0, 2.0, 4.0, 6.0, 8.0])
    """
    parts = _SegmentedSignals("stft", [x], fs, window, nperseg, noverlap, nfft, detrend, return_onesided, axis)
    return parts.spectra("spectrum", "stft", boundary, padded)


def csd(
    x: ArrayLike,
    y: ArrayLike | None,
    fs: ArrayLike = 1.0,
    window: WindowLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Detrend = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """The power that two signals have in common, by frequency: frequencies, and the density, complex numbers.

    It is the average of those of segments, their "mean" or "median". Arguments are as of `stft`, but that segments are
    by default as long as the signal. With the `scaling` "spectrum" it is the power itself and no density. Without `y`
    it is the power of `x`, as of `welch`. The shorter signal is filled up with zeros.

    >>> frequencies, density = csd(fnp.arange(8.0), fnp.arange(8.0), nperseg=4)
    >>> density.shape
    (3,)
    """
    signals = [x] if y is None else [x, y]
    parts = _SegmentedSignals("csd", signals, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, axis)
    frequencies, _, density = parts.spectra(scaling, "psd", None, False)
    if y is not None:
        density = density + 0j
    if average not in ("mean", "median"):
        raise ValueError(f"csd: average must be 'mean' or 'median', got {average!r}")
    if density.ndim < 2 or not density.size:
        return frequencies, density
    count = density.shape[-1]
    if count == 1:
        return frequencies, density[..., 0]
    if average == "mean":
        return frequencies, fnp.mean(density, -1)
    # Powers are distributed exponentially, so their median is less than their mean.
    bias = 1 + sum(1 / (i + 1) - 1 / i for i in range(2, count, 2))
    if dtypes.is_complex(density.dtype):
        return frequencies, lax.complex(fnp.median(density.real, -1), fnp.median(density.imag, -1)) / bias
    return frequencies, fnp.median(density, -1) / bias


def welch(
    x: ArrayLike,
    fs: ArrayLike = 1.0,
    window: WindowLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Detrend = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """The power of a signal by frequency, averaged over segments: frequencies, and the density; arguments as of `csd`.

    >>> frequencies, density = welch(fnp.arange(8.0), nperseg=4)
    >>> frequencies.tolist(), density.shape
    ([0.0, 0.25, 0.5], (3,))
    """
    options = (fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average)
    frequencies, density = csd(x, None, *options)
    return frequencies, density.real


class _SegmentedSignals:
    """One signal or two, and what their segments are."""

    def __init__(
        self,
        name: str,
        signals: list[ArrayLike],
        fs: ArrayLike,
        window: WindowLike,
        nperseg: SupportsIndex | None,
        noverlap: SupportsIndex | None,
        nfft: SupportsIndex | None,
        trend: Detrend,
        one_sided: bool,
        axis: SupportsIndex,
    ) -> None:
        self.name = name
        self.fs: Array | float = fs if isinstance(fs, int | float) else fnp.asarray(fs)
        given = promote_dtypes(name, *signals)
        dtype = inexact_dtype(given[0].aval.dtype)
        arrays = [as_array(convert_dtype(value, dtype, value.aval.weak_type)) for value in given]
        self.axis = canonicalize_axis(name, axis, arrays[0].ndim)
        if any(a.ndim != arrays[0].ndim for a in arrays):
            raise ValueError(
                f"{name}: x and y must have equally many axes, got {' and '.join(str(a.aval) for a in arrays)}"
            )
        self.signals = [fnp.moveaxis(a, self.axis, -1) for a in arrays]
        self.batch = broadcast_operand_shapes(name, *[a.shape[:-1] for a in self.signals])
        self.dtype = dtype
        length = self.signals[0].shape[-1]
        size = None if nperseg is None else static_int(name, nperseg, "nperseg")
        if size is not None and size < 1:
            raise ValueError(f"{name}: nperseg must be positive, got {size}")
        self.window, self.size = _window_and_size(name, window, size, length, dtype)
        self.overlap = self.size // 2 if noverlap is None else static_int(name, noverlap, "noverlap")
        self.nfft = self.size if nfft is None else static_int(name, nfft, "nfft")
        self.one_sided = one_sided and not dtypes.is_complex(dtype)
        self.trend = self._detrend_function(trend)

    def _detrend_function(self, trend: Detrend) -> Callable[[Array], Array]:
        if isinstance(trend, str):
            return lambda parts: detrend(parts, -1, trend)
        if callable(trend):
            if self.axis == self.signals[0].ndim - 1:
                return trend
            return lambda parts: fnp.moveaxis(trend(fnp.moveaxis(parts, -1, self.axis)), self.axis, -1)
        if trend:
            raise ValueError(f"{self.name}: detrend must be False, 'constant', 'linear' or a function, got {trend!r}")
        return lambda parts: parts

    def spectra(self, scaling: str, mode: str, boundary: str | None, padded: bool) -> tuple[Array, Array, Array]:
        """Frequencies, times, and the transforms of segments, or their products."""
        if boundary not in (None, "zeros", "constant", "even", "odd"):
            raise ValueError(
                f"{self.name}: boundary must be None, 'zeros', 'constant', 'even' or 'odd', got {boundary!r}"
            )
        if scaling not in ("density", "spectrum"):
            raise ValueError(f"{self.name}: scaling must be 'density' or 'spectrum', got {scaling!r}")
        numbers, part = complex_dtype(self.dtype), dtypes.real_dtype(self.dtype)
        if any(not s.size for s in self.signals):
            shape = fnp.moveaxis(fnp.zeros((*self.batch, min(s.shape[-1] for s in self.signals))), -1, self.axis).shape
            return fnp.zeros(shape, part), fnp.zeros(shape, part), fnp.zeros(shape, numbers)
        if self.nfft < self.size:
            raise ValueError(f"{self.name}: nfft {self.nfft} must be no less than nperseg {self.size}")
        if self.overlap >= self.size:
            raise ValueError(f"{self.name}: noverlap {self.overlap} must be less than nperseg {self.size}")
        longest = max(s.shape[-1] for s in self.signals)
        signals = [_zero_pad(s, longest - s.shape[-1]) for s in self.signals]
        if boundary is not None:
            signals = [_extend_boundary(self.name, s, self.size // 2, boundary) for s in signals]
        step = self.size - self.overlap
        if padded:
            more = -(signals[0].shape[-1] - self.size) % step % self.size
            signals = [_zero_pad(s, more) for s in signals]
        transforms = [self._segment_transforms(s, step) for s in signals]
        out = transforms[0]
        if mode == "psd":
            out = fnp.conj(out) * transforms[-1]
        total = fnp.sum(self.window * self.window) * self.fs if scaling == "density" else fnp.sum(self.window) ** 2
        out = out * (1 / (fnp.sqrt(total) if mode == "stft" else total))
        if self.one_sided and mode == "psd":  # frequencies that are there twice, but for the first and the middle
            n = out.shape[-1]
            twice = (fnp.arange(n) > 0) & (fnp.arange(n) < (n if self.nfft % 2 else n - 1))
            out = fnp.where(twice, 2 * out, out)
        frequencies = (fnp.fft.rfftfreq if self.one_sided else fnp.fft.fftfreq)(self.nfft, 1 / self.fs, dtype=part)
        start = self.size / 2
        times = fnp.arange(start, signals[0].shape[-1] - start + 1, step, dtype=part) / self.fs
        if boundary is not None:
            times = times - start / self.fs
        out = fnp.asarray(out, numbers)
        if len(self.signals) == 1 and mode == "psd":
            out = out.real
        return frequencies, fnp.asarray(times, part), fnp.moveaxis(out, -1, self.axis)

    def _segment_transforms(self, x: Array, step: int) -> Array:
        """Of each segment, `c64[..., segments, frequencies]`."""
        count = (x.shape[-1] - self.size) // step + 1
        places = step * fnp.arange(count)[:, None] + fnp.arange(self.size)
        parts = self.trend(x[..., places]) * self.window
        if self.one_sided:
            return fnp.fft.rfft(parts, self.nfft)
        return fnp.fft.fft(parts, self.nfft)


def _window_and_size(name: str, window: WindowLike, size: int | None, length: int, dtype: DType) -> tuple[Array, int]:
    """The window, and how long segments are."""
    if isinstance(window, str | tuple):
        size = length if size is None else min(size, length)
        return fnp.asarray(get_window(window, size), dtype), size
    out = fnp.asarray(window, dtype)
    if out.ndim != 1:
        raise ValueError(f"{name}: window must have one axis, got {out.aval}")
    if length < out.size:
        raise ValueError(f"{name}: window has {out.size} numbers, and the signal only {length}")
    if size is not None and size != out.size:
        raise ValueError(f"{name}: window has {out.size} numbers, and nperseg is {size}")
    return out, out.size


def _zero_pad(x: Array, count: int) -> Array:
    """With so many zeros behind."""
    return fnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, count)]) if count else x


def _extend_boundary(name: str, x: Array, count: int, boundary: str) -> Array:
    """With so many numbers at both ends."""
    if not count:
        return x
    if boundary == "odd":
        if count >= x.shape[-1]:
            raise ValueError(f"{name}: of {x.shape[-1]} numbers {count} can't be mirrored at the end")
        before, after = x[..., count:0:-1], x[..., -2 : -count - 2 : -1]
        return fnp.concatenate([2 * x[..., :1] - before, x, 2 * x[..., -1:] - after], -1)
    mode = {"zeros": "constant", "constant": "edge", "even": "reflect"}[boundary]
    return fnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(count, count)], mode)
