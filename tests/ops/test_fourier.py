"""Fourier transforms: lowering for GPUs, large arrays, and text form."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

import tracefx as fx
from tests.comparison import assert_near
from tracefx import lax
from tracefx.core import NDArray
from tracefx.ops.fourier import Fft, FftType
from tracefx.testing.tolerances import ulps_of


def normal(*shape: int) -> NDArray:
    rng = np.random.default_rng(0)
    return np.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


@pytest.mark.parametrize("lengths", [(6,), (4, 6), (3, 4, 5)])
def test_gpu_lowering_gives_the_same_result(lengths: tuple[int, ...]) -> None:
    """The GPU lowering composes inverse real transforms over several axes from other transforms; here it runs on the
    CPU.
    """
    x = normal(2, 3, 4, lengths[-1] // 2 + 1)
    f = fx.jit(lambda x: lax.fft(x, "IRFFT", lengths))
    exported = jax.export.deserialize(bytearray(fx.export(f, platforms=["cuda"])(x).to_jax()))
    # The input is not Hermitian, as the two algorithms differ only there.
    assert_near(dataclasses.replace(exported, platforms=("cpu",)).call(x), f(x))
    assert exported.mlir_module().count("stablehlo.fft") == min(len(lengths), 2)


@pytest.mark.parametrize("kind", FftType)
def test_large_arrays_are_compiled(kind: FftType) -> None:
    x = normal(3, 2501) if kind is not FftType.RFFT else normal(3, 2501).real
    length = 5000 if kind is FftType.IRFFT else 2501
    got = lax.fft(x, kind, (length,))
    want = getattr(np.fft, kind.name.lower())(x, length)
    assert_near(got, want, ulps_of("fft"))


def test_programs_are_parsed_and_print_as_in_jax() -> None:
    closed = fx.make_jaxpr(lambda x: lax.fft(x, "IFFT", (4,)))(normal(4))
    (eqn,) = closed.jaxpr.eqns
    assert eqn.prim == Fft(FftType.IFFT, (4,))
    assert fx.parse_jaxpr(str(closed.jaxpr)) == closed.jaxpr
    for text in (closed.text("jax"), str(jax.make_jaxpr(lambda x: jax.lax.fft(x, "IFFT", (4,)))(normal(4)))):
        assert "b:c64[4] = fft[fft_lengths=(4,) fft_type=1] a" in text
