"""Fourier transforms on other platforms, of large arrays, and as they are shown."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

import tracefx as fx
from tests.closeness import assert_near
from tracefx import lax
from tracefx.core.dtypes import NDArray
from tracefx.ops.fourier import Fft, FftType
from tracefx.testing.tolerances import ulps_of


def normal(*shape: int) -> NDArray:
    rng = np.random.default_rng(0)
    return np.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


@pytest.mark.parametrize("lengths", [(6,), (4, 6), (3, 4, 5)])
def test_what_is_for_a_gpu_does_the_same(lengths: tuple[int, ...]) -> None:
    """There inverse transforms of real numbers over several axes are made of others; here that runs, too."""
    x = normal(2, 3, 4, lengths[-1] // 2 + 1)
    f = fx.jit(lambda x: lax.fft(x, "IRFFT", lengths))
    there = jax.export.deserialize(bytearray(fx.export(f, platforms=["cuda"])(x).to_jax()))
    # Numbers that have no conjugate beside them, as those of no real signal, tell the two ways apart.
    assert_near(dataclasses.replace(there, platforms=("cpu",)).call(x), f(x))
    assert there.mlir_module().count("stablehlo.fft") == min(len(lengths), 2)


@pytest.mark.parametrize("kind", FftType)
def test_large_arrays_are_compiled(kind: FftType) -> None:
    x = normal(3, 2501) if kind is not FftType.RFFT else normal(3, 2501).real
    length = 5000 if kind is FftType.IRFFT else 2501
    got = lax.fft(x, kind, (length,))
    want = getattr(np.fft, kind.name.lower())(x, length)
    assert_near(got, want, ulps_of("fft"))


def test_programs_are_read_back_and_shown_as_in_jax() -> None:
    closed = fx.make_jaxpr(lambda x: lax.fft(x, "IFFT", (4,)))(normal(4))
    (eqn,) = closed.jaxpr.eqns
    assert eqn.prim == Fft(FftType.IFFT, (4,))
    assert fx.parse_jaxpr(str(closed.jaxpr)) == closed.jaxpr
    for shown in (closed.text("jax"), str(jax.make_jaxpr(lambda x: jax.lax.fft(x, "IFFT", (4,)))(normal(4)))):
        assert "b:c64[4] = fft[fft_lengths=(4,) fft_type=1] a" in shown
