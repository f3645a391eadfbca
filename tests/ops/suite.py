"""Runs all properties of `harness` for one primitive and dtype, and checks that compiled and eager results match."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pytest

import tracefx as fx
from tests.compiling import default_compile_options
from tests.ops.harness import (
    Args,
    Record,
    Weak,
    agree_with_jax,
    assert_close,
    evaluated,
    jvp_matches_finite_differences,
    jvp_matches_jax,
    numpy_values,
    rng,
    second_derivatives_match_jax,
    staged_matches_eager,
    to_tracefx,
    transpose_matches_jvp,
    ulps_of,
    vmap_matches_loop,
)
from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.dtypes import DType
from tracefx.core.handler import as_array
from tracefx.core.values import to_numpy

ALL: Final = (
    dtypes.bool_,
    dtypes.int32,
    dtypes.int4,
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.float64,
    dtypes.complex64,
)
NUMBERS: Final = ALL[1:]
PRECISE: Final = (dtypes.float64, dtypes.complex128)


def small_integers(
    shape: tuple[int, ...], dtype: DType, gen: np.random.Generator
) -> np.ndarray[tuple[int, ...], DType]:
    """Draws small integers of any dtype, whose sums and products are exact in any order."""
    if dtypes.is_bool(dtype):
        return np.asarray(gen.integers(0, 2, shape)).astype(np.bool_)
    low = -3 if dtypes.is_signed(dtype) or dtypes.is_inexact(dtype) else 0
    integers = np.asarray(gen.integers(low, 4, shape))
    if dtypes.is_complex(dtype):
        return np.asarray(integers + 1j * gen.integers(low, 4, shape)).astype(dtype)
    return integers.astype(dtype)


def one_compiled_matches_eager(record: Record, args: Args) -> None:
    values = [to_tracefx(a) if isinstance(a, np.ndarray | Weak) else None for a in args]
    arrays = [as_array(v) for v in values if v is not None]

    def program(*tracers: Array) -> Array:
        rest = iter(tracers)
        return record.function(*[a if v is None else next(rest) for a, v in zip(args, values, strict=True)])

    out, want = fx.jit(program)(*arrays), evaluated(record, args)
    assert out.aval == want.aval
    assert_close(to_numpy(out), to_numpy(want), ulps_of(record.name), f"{record.name}{args}, compiled")


def check_values(record: Record, dtype: DType) -> None:
    """Checks values and types of eager, traced and compiled calls."""
    samples = record.samples(dtype, rng(record.name, dtype))
    agree_with_jax(record, samples)
    for args in samples:
        staged_matches_eager(record, args)
    with default_compile_options():
        one_compiled_matches_eager(record, samples[0])


def check_batching(record: Record, dtype: DType) -> None:
    batch = [record.samples(dtype, rng(record.name, dtype, i)) for i in range(3)]
    for samples in zip(*batch, strict=True):
        vmap_matches_loop(record, samples)


def check_derivatives(record: Record, dtype: DType) -> None:
    if record.points is None or not dtypes.is_inexact(dtype):
        return
    points = record.points(dtype, rng(record.name, dtype, "points"))
    jvp_matches_jax(record, points)
    if dtype in PRECISE:
        second_derivatives_match_jax(record, points)
    for args in points:
        transpose_matches_jvp(record, args)
        if dtype in PRECISE and all(numpy_values(a).size for a in args):
            jvp_matches_finite_differences(record, args)


def check_raises(error: type[Exception], words: str, call: Callable[[], object]) -> None:
    """Asserts that the call raises exactly this error class with a message containing these words in order."""
    with pytest.raises(error) as error_info:
        call()
    rest = str(error_info.value)
    for word in words.split():
        assert word in rest, f"{word!r} should be in {rest!r}"
        rest = rest.partition(word)[2]
