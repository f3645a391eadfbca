"""Short-time Fourier transforms, and power spectral densities averaged over segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsIndex, TypeAlias

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, DType, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import broadcast_operand_shapes, convert_dtype, inexact_dtype, promote_dtypes
from tracefx.ops.elementwise.complex import complex_dtype
from tracefx.ops.static_integers import canonicalize_axis, static_int
from tracefx.scipy.signal.trends import detrend
from tracefx.scipy.signal.window_functions import get_window

WindowLike: TypeAlias = "str | tuple[Any, ...] | ArrayLike"
"""A window: its name, a tuple of its name and parameters, or an array."""
Detrend: TypeAlias = "bool | str | Callable[[Array], Array]"
"""How segments are detrended: False, a `type` of `detrend`, or a function of segments."""


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
    """Computes the short-time Fourier transform: the transforms of overlapping, windowed segments of a signal.

    Args:
        x: the signal.
        fs: the sampling frequency.
        window: the name of a window, e.g. `"hann"`, a tuple of a name and parameters, e.g. `("kaiser", 8.0)`, or an
            array.
        nperseg: the length of segments, at most that of the signal.
        noverlap: the number of samples that consecutive segments share; `nperseg // 2` by default.
        nfft: the length of the FFTs, to which segments are padded with zeros; `nperseg` by default.
        detrend: how to detrend segments: False for not at all, a `type` of `detrend`, or a function of segments.
        return_onesided: whether to return nonnegative frequencies only, for real signals. Complex signals have all.
        boundary: how to extend the signal by half a segment at both ends: `"zeros"`, `"constant"` (the number at the
            end), `"even"` (mirrored), `"odd"` (mirrored and negated), or None for not at all.
        padded: whether to pad the signal with zeros to whole segments.
        axis: the axis of the signal.

    Returns:
        The frequencies, the times, and the transforms, in which `axis` is the axis of frequencies and the last axis
        that of times.

    Raises:
        ValueError: if arguments are unknown, or contradict each other or the signal.

    >>> frequencies, times, spectra = stft(fnp.ones(8), nperseg=4)
    >>> spectra.shape, times.tolist()
    ((3, 5), [0.0, 2.0, 4.0, 6.0, 8.0])
    """
    segmented = _SegmentedSignals("stft", [x], fs, window, nperseg, noverlap, nfft, detrend, return_onesided, axis)
    return segmented.spectra("spectrum", "stft", boundary, padded)


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
    """Estimates the cross power spectral density of two signals, by Welch's method.

    Args:
        x: the first signal.
        y: the second signal; None computes the density of `x`, as `welch` does. The shorter signal is padded with
            zeros.
        fs: the sampling frequency.
        window: the name of a window, e.g. `"hann"`, a tuple of a name and parameters, e.g. `("kaiser", 8.0)`, or an
            array.
        nperseg: the length of segments; by default that of the signal.
        noverlap: the number of samples that consecutive segments share; `nperseg // 2` by default.
        nfft: the length of the FFTs, to which segments are padded with zeros; `nperseg` by default.
        detrend: how to detrend segments: False for not at all, a `type` of `detrend`, or a function of segments.
        return_onesided: whether to return nonnegative frequencies only, for real signals. Complex signals have all.
        scaling: `"density"` for the power by frequency, or `"spectrum"` for the power.
        axis: the axis of the signals.
        average: how segments are averaged: `"mean"` or `"median"`.

    Returns:
        The frequencies, and the density as complex numbers.

    Raises:
        ValueError: if arguments are unknown, or contradict each other or the signals.

    >>> frequencies, density = csd(fnp.arange(8.0), fnp.arange(8.0), nperseg=4)
    >>> density.shape
    (3,)
    """
    signals = [x] if y is None else [x, y]
    segmented = _SegmentedSignals("csd", signals, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, axis)
    frequencies, _, density = segmented.spectra(scaling, "psd", None, False)
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
    # The powers are exponentially distributed, so that their median is less than their mean.
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
    """Estimates the power spectral density of a signal, by Welch's method.

    Args:
        x: the signal.
        fs: the sampling frequency.
        window: the name of a window, e.g. `"hann"`, a tuple of a name and parameters, e.g. `("kaiser", 8.0)`, or an
            array.
        nperseg: the length of segments; by default that of the signal.
        noverlap: the number of samples that consecutive segments share; `nperseg // 2` by default.
        nfft: the length of the FFTs, to which segments are padded with zeros; `nperseg` by default.
        detrend: how to detrend segments: False for not at all, a `type` of `detrend`, or a function of segments.
        return_onesided: whether to return nonnegative frequencies only, for real signals. Complex signals have all.
        scaling: `"density"` for the power by frequency, or `"spectrum"` for the power.
        axis: the axis of the signal.
        average: how segments are averaged: `"mean"` or `"median"`.

    Returns:
        The frequencies, and the density.

    Raises:
        ValueError: if arguments are unknown, or contradict each other or the signal.

    >>> frequencies, density = welch(fnp.arange(8.0), nperseg=4)
    >>> frequencies.tolist(), density.shape
    ([0.0, 0.25, 0.5], (3,))
    """
    options = (fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average)
    frequencies, density = csd(x, None, *options)
    return frequencies, density.real


class _SegmentedSignals:
    """One or two signals, and the parameters of their segments."""

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
        promoted = promote_dtypes(name, *signals)
        dtype = inexact_dtype(promoted[0].aval.dtype)
        arrays = [as_array(convert_dtype(value, dtype, value.aval.weak_type)) for value in promoted]
        self.axis = canonicalize_axis(name, axis, arrays[0].ndim)
        if any(a.ndim != arrays[0].ndim for a in arrays):
            raise ValueError(f"{name}: x and y must have equal ranks, got {' and '.join(str(a.aval) for a in arrays)}")
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
        """Returns the function that detrends segments."""
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
        """Returns frequencies, times, and the transforms of segments, or their products if `mode` is `"psd"`."""
        if boundary not in (None, "zeros", "constant", "even", "odd"):
            raise ValueError(
                f"{self.name}: boundary must be None, 'zeros', 'constant', 'even' or 'odd', got {boundary!r}"
            )
        if scaling not in ("density", "spectrum"):
            raise ValueError(f"{self.name}: scaling must be 'density' or 'spectrum', got {scaling!r}")
        complex_type, real_dtype = complex_dtype(self.dtype), dtypes.real_dtype(self.dtype)
        if any(not s.size for s in self.signals):
            shape = fnp.moveaxis(fnp.zeros((*self.batch, min(s.shape[-1] for s in self.signals))), -1, self.axis).shape
            return fnp.zeros(shape, real_dtype), fnp.zeros(shape, real_dtype), fnp.zeros(shape, complex_type)
        if self.nfft < self.size:
            raise ValueError(f"{self.name}: nfft {self.nfft} must be no less than nperseg {self.size}")
        if self.overlap >= self.size:
            raise ValueError(f"{self.name}: noverlap {self.overlap} must be less than nperseg {self.size}")
        longest = max(s.shape[-1] for s in self.signals)
        signals = [_zero_pad(s, longest - s.shape[-1]) for s in self.signals]
        if boundary is not None:
            signals = [_extend_boundary(self.name, s, self.size // 2, boundary) for s in signals]
        hop = self.size - self.overlap
        if padded:
            padding = -(signals[0].shape[-1] - self.size) % hop % self.size
            signals = [_zero_pad(s, padding) for s in signals]
        transforms = [self._segment_transforms(s, hop) for s in signals]
        out = transforms[0]
        if mode == "psd":
            out = fnp.conj(out) * transforms[-1]
        total = fnp.sum(self.window * self.window) * self.fs if scaling == "density" else fnp.sum(self.window) ** 2
        out = out * (1 / (fnp.sqrt(total) if mode == "stft" else total))
        if self.one_sided and mode == "psd":  # all frequencies except the first and the middle one occur twice
            n = out.shape[-1]
            twice = (fnp.arange(n) > 0) & (fnp.arange(n) < (n if self.nfft % 2 else n - 1))
            out = fnp.where(twice, 2 * out, out)
        frequencies = (fnp.fft.rfftfreq if self.one_sided else fnp.fft.fftfreq)(
            self.nfft, 1 / self.fs, dtype=real_dtype
        )
        start = self.size / 2
        times = fnp.arange(start, signals[0].shape[-1] - start + 1, hop, dtype=real_dtype) / self.fs
        if boundary is not None:
            times = times - start / self.fs
        out = fnp.asarray(out, complex_type)
        if len(self.signals) == 1 and mode == "psd":
            out = out.real
        return frequencies, fnp.asarray(times, real_dtype), fnp.moveaxis(out, -1, self.axis)

    def _segment_transforms(self, x: Array, step: int) -> Array:
        """Returns the transform of each segment, `c64[..., segments, frequencies]`."""
        count = (x.shape[-1] - self.size) // step + 1
        indices = step * fnp.arange(count)[:, None] + fnp.arange(self.size)
        segments = self.trend(x[..., indices]) * self.window
        if self.one_sided:
            return fnp.fft.rfft(segments, self.nfft)
        return fnp.fft.fft(segments, self.nfft)


def _window_and_size(name: str, window: WindowLike, size: int | None, length: int, dtype: DType) -> tuple[Array, int]:
    """Returns the window and the length of segments."""
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
    """Pads with zeros at the end."""
    return fnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, count)]) if count else x


def _extend_boundary(name: str, x: Array, count: int, boundary: str) -> Array:
    """Extends the signal by `count` numbers at both ends."""
    if not count:
        return x
    if boundary == "odd":
        if count >= x.shape[-1]:
            raise ValueError(
                f"{name}: a signal of {x.shape[-1]} numbers can't be extended by mirroring {count} at each end"
            )
        before, after = x[..., count:0:-1], x[..., -2 : -count - 2 : -1]
        return fnp.concatenate([2 * x[..., :1] - before, x, 2 * x[..., -1:] - after], -1)
    mode = {"zeros": "constant", "constant": "edge", "even": "reflect"}[boundary]
    return fnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(count, count)], mode)
