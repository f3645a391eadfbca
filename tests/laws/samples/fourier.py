"""Samples of Fourier transforms."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
from jax._src.lax.fft import FftType as JaxFftType
from jax._src.lax.fft import fft_p

from tests.laws.samples.making import Function, Sample, grid, make_sample
from tracefx.core import NDArray
from tracefx.ops.fourier import Fft, FftType


def complexes(*shape: int) -> NDArray:
    return np.asarray(grid(*shape) + 1j * grid(*shape)[::-1]).astype(np.complex64)


def _fft(p: Any) -> Function:
    return partial(fft_p.bind, fft_type=JaxFftType[p.fft_type.name], fft_lengths=p.fft_lengths)


SAMPLES: Final[tuple[Sample, ...]] = (
    make_sample(Fft(FftType.FFT, (5,)), (complexes(2, 5),), reference=_fft),
    make_sample(Fft(FftType.IFFT, (2, 3)), (complexes(2, 3),)),
    make_sample(Fft(FftType.RFFT, (3, 4)), (grid(2, 3, 4),)),
    make_sample(Fft(FftType.RFFT, (5,)), (grid(2, 5),)),
    make_sample(Fft(FftType.IRFFT, (3, 4)), (complexes(2, 3, 3),)),
    make_sample(Fft(FftType.IRFFT, (5,)), (complexes(2, 3),)),
)
