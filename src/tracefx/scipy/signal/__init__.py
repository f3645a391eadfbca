"""Signal processing, with the names of `jax.scipy.signal`: convolutions, correlations, spectra and detrending."""

from __future__ import annotations

from tracefx.scipy.signal.convolutions import convolve, convolve2d, correlate, correlate2d, fftconvolve
from tracefx.scipy.signal.overlap_add import istft
from tracefx.scipy.signal.spectra import csd, stft, welch
from tracefx.scipy.signal.trends import detrend

__all__ = [
    "convolve",
    "convolve2d",
    "correlate",
    "correlate2d",
    "csd",
    "detrend",
    "fftconvolve",
    "istft",
    "stft",
    "welch",
]
