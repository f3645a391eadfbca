"""Signals: their convolutions and correlations."""

from __future__ import annotations

from tracefx.scipy.signal.convolutions import convolve, convolve2d, correlate, correlate2d, fftconvolve

__all__ = ["convolve", "convolve2d", "correlate", "correlate2d", "fftconvolve"]
