"""Fourier transforms compared with NumPy: large, 64-bit and empty arrays, and features that JAX lacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx.core import NDArray
from tracefx.testing.tolerances import ELEMENTARY, ulps_of


def normal(*shape: int) -> NDArray:
    return np.random.default_rng(len(shape)).standard_normal(shape)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft", "rfft", "hfft", "ihfft"])
def test_large_transforms_match_numpy(name: str) -> None:
    """Large transforms are compiled; small ones are not."""
    x: Any = normal(3, 40, 50)
    if name not in ("rfftn", "rfft", "ihfft"):
        x = x + 1j * x[::-1]
    got, want = getattr(fnp.fft, name)(fnp.asarray(x, dtype=x.dtype)), getattr(np.fft, name)(x)
    assert got.dtype == want.dtype
    assert_near(got, want, ulps_of("fft"))


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_frequencies_match_numpy(name: str, n: int) -> None:
    want = getattr(np.fft, name)(n, 0.3)
    assert_near(getattr(fnp.fft, name)(n, 0.3, dtype="float64"), want, ELEMENTARY)
    on_device = getattr(fnp.fft, name)(n, 0.3, device=fx.devices()[0])
    np.testing.assert_array_equal(on_device, getattr(fnp.fft, name)(n, 0.3))


def test_more_lengths_than_axes_raises() -> None:
    with pytest.raises(ValueError, match="4 lengths"):
        fnp.fft.fftn(normal(2, 2, 2), (2, 2, 2, 2))


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
def test_negative_count_raises(name: str) -> None:
    with pytest.raises(ValueError, match="n must not be negative, got -2"):
        getattr(fnp.fft, name)(-2)


def test_transforms_of_empty_arrays_have_derivatives() -> None:
    none = np.zeros((3, 0), np.complex64)
    assert fx.grad(lambda x: fnp.sum(fnp.fft.irfft(fnp.pad(x, ((0, 0), (0, 1))), axis=1)))(none).shape == (3, 0)
    (ct,) = fx.vjp(fnp.fft.irfft, np.ones((2, 1), np.complex64))[1](np.zeros((2, 0), np.float32))
    np.testing.assert_array_equal(ct, np.zeros((2, 1)))


def test_transforms_of_many_axes_invert_each_other() -> None:
    x = normal(2, 3, 2, 3, 4).astype(np.float32)
    assert_near(fnp.fft.irfftn(fnp.fft.rfftn(x)), x, ulps_of("fft"))
    assert_near(fnp.fft.fftn(fnp.asarray(x), axes=(0, 1, 2, 4)), np.fft.fftn(x, axes=(0, 1, 2, 4)))
