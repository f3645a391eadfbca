"""Spectral functions where JAX is wrong or needs SciPy: windows by name, batches of signals, detrending functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx.scipy.signal import csd, istft, stft, welch
from tracefx.scipy.signal.window_functions import COSINE_WEIGHTS, WINDOW_FUNCTIONS, get_window
from tracefx.testing.tolerances import ELEMENTARY

X = np.random.default_rng(0).standard_normal((2, 3, 40)).astype(np.float32)
SYMMETRIC: dict[str, Any] = {
    "hamming": np.hamming,
    "blackman": np.blackman,
    "bartlett": np.bartlett,
    "hann": np.hanning,
    "boxcar": np.ones,
}


@pytest.mark.parametrize("name", SYMMETRIC)
@pytest.mark.parametrize("n", [2, 7, 8])
def test_periodic_windows_match_symmetric_numpy_windows(name: str, n: int) -> None:
    assert_near(get_window(name, n), SYMMETRIC[name](n + 1)[:-1], ELEMENTARY)


def test_windows_with_parameters() -> None:
    assert_near(get_window(("kaiser", 5.0), 6), np.kaiser(7, 5.0)[:-1], ELEMENTARY)
    assert_near(get_window(("general_hamming", 0.54), 6), get_window("hamming", 6))
    assert_near(get_window(("general_cosine", COSINE_WEIGHTS["hann"]), 6), get_window("hann", 6), ELEMENTARY)
    assert_near(get_window(("general_gaussian", 1.0, 2.0), 6), get_window(("gaussian", 2.0), 6), ELEMENTARY)
    assert_near(get_window(("tukey", 1.0), 6), get_window("hann", 6), ELEMENTARY)
    assert_near(get_window(("tukey", 0.0), 6), np.ones(6), ELEMENTARY)
    assert_near(get_window("exponential", 4), np.exp([-2.0, -1.0, 0.0, -1.0]), ELEMENTARY)


NAMES = [*COSINE_WEIGHTS, *[n for n in WINDOW_FUNCTIONS if n not in ("kaiser", "general_cosine", "general_hamming")]]


@pytest.mark.parametrize("name", [*NAMES, "triang", "parzen", "cosine", "exponential"])
def test_windows_are_symmetric_with_maximum_in_the_middle(name: str) -> None:
    for n in (1, 6, 7):
        window = get_window(name, n)
        assert window.shape == (n,)
        assert_near(window.max(), window[n // 2], ELEMENTARY)
        if n % 2 == 0:
            height = 1.000000003 if name == "flattop" else 1.0  # its coefficients are published with nine digits
            assert_near(window[n // 2], height, ELEMENTARY)
        assert_near(window[1:], window[1:][::-1], ELEMENTARY)


def test_unknown_windows_raise() -> None:
    for wrong in ("other", ("kaiser8", 1.0), ("gaussian",)):
        with pytest.raises(ValueError, match="window must be an array, or one of the names"):
            welch(X, window=wrong)


@pytest.mark.parametrize(
    "options", [{}, {"noverlap": 3}, {"window": "hamming", "noverlap": 0}, {"return_onesided": False}]
)
@pytest.mark.parametrize("nperseg", [7, 8])
def test_istft_inverts_stft(options: dict[str, Any], nperseg: int) -> None:
    spectra = stft(X, 2.0, nperseg=nperseg, **options)[2]
    one_sided = options.pop("return_onesided", True)
    times, signal = istft(spectra, 2.0, nperseg=nperseg, input_onesided=one_sided, **options)
    assert times.shape == signal.shape[-1:]
    assert_near(np.real(signal[..., :40]), X)
    assert_near(times[:3], [0, 0.5, 1], ELEMENTARY)


def test_istft_with_time_and_frequency_axes() -> None:
    spectra = fnp.moveaxis(stft(X, nperseg=8)[2], (-1, -2), (0, 2))
    signal = istft(spectra, time_axis=0, freq_axis=2)[1]
    assert_near(fnp.moveaxis(signal, 0, -1)[..., :40], X)


def test_detrend_function_gets_segments_along_the_axis() -> None:
    def subtract_mean(parts: Any) -> Any:
        return parts - fnp.mean(parts, -1, keepdims=True)

    def subtract_mean_along_axis_1(parts: Any) -> Any:
        return parts - fnp.mean(parts, 1, keepdims=True)

    want = welch(X, nperseg=8, detrend="constant")[1]
    assert_near(welch(X, nperseg=8, detrend=subtract_mean)[1], want)
    transposed = fnp.moveaxis(fnp.asarray(X), -1, 1)
    got = welch(transposed, nperseg=8, axis=1, detrend=subtract_mean_along_axis_1)[1]
    assert_near(fnp.moveaxis(got, 1, -1), want)


def test_csd_of_empty_signals() -> None:
    frequencies, density = csd(X[..., :0], X)
    assert frequencies.shape == density.shape == (2, 3, 0)
    assert density.dtype == np.complex64


def test_median_average_propagates_nan() -> None:
    broken = np.where(np.arange(40) == 9, np.nan, X[0, 0])
    assert np.isnan(welch(broken, nperseg=8, average="median")[1]).all()
