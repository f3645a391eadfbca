"""`convert_element_type` between all dtypes, compared with JAX also for values that do not fit."""

from __future__ import annotations

from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax as jax_lax

import tracefx as fx
from tests.comparison import assert_same
from tests.compiling import with_either_compile_options
from tests.ops.harness import (
    edges,
)
from tracefx import lax
from tracefx.core import DType, NDArray, dtypes, from_numpy
from tracefx.testing.tolerances import EXACT

NUMBERS: Final = tuple(d for d in dtypes.ALL_DTYPES if d != dtypes.float0)
AT_LEAST_16_BITS: Final = tuple(d for d in NUMBERS if not dtypes.is_float(d) or dtypes.itemsize_bits(d) > 8)

# JAX warns that converting complex numbers to real ones drops the imaginary parts, which is intended here.
ignore_complex_warning = pytest.mark.filterwarnings(
    "ignore:Casting complex values to real:numpy.exceptions.ComplexWarning"
)


def values(dtype: DType) -> NDArray:
    """Returns all values of a narrow dtype; of other dtypes, a sample with values that other dtypes
    cannot represent.
    """
    if not dtypes.is_inexact(dtype):
        return edges(dtype)
    bits = dtypes.itemsize_bits(dtype)
    if bits <= 8:
        return np.arange(2**bits).astype(np.uint8).view(dtype)
    small = [0.0, -0.0, 0.5, 1.5, 2.5, 100, 127.5, 128, 255.5, 256, 300]
    positive = [*small, 3e4, 4e4, 1e5, 2.0**31, 3e9, 5e9, 2.0**63, 1e19, 2e19]
    real = np.array([*positive, *[-x for x in positive], np.inf, -np.inf, np.nan])
    with np.errstate(all="ignore"):
        return (real * (1 + 0.5j) if dtypes.is_complex(dtype) else real).astype(dtype)


def comparable(x: NDArray, target: DType) -> NDArray:
    """Returns the values that XLA's CPU compiler converts correctly.

    It takes the largest float4 value for infinity when converting to integers, and converts NaN to one of float4's
    zeros.
    """
    if target == dtypes.float4_e2m1fn:
        return np.asarray(x[x == x])
    if x.dtype == dtypes.float4_e2m1fn and dtypes.is_integer(target):
        return x[np.abs(x.astype(np.float32)) < 6]
    return x


@ignore_complex_warning
@pytest.mark.parametrize("source", NUMBERS, ids=dtypes.short_name)
def test_values_match_jax(source: DType) -> None:
    with_either_compile_options(lambda: check_conversions_from(source))


def check_conversions_from(source: DType) -> None:
    inputs = {target: comparable(values(source), target) for target in NUMBERS}
    with np.errstate(all="ignore"):
        converted = jax.jit(lambda xs: [jax_lax.convert_element_type(x, t) for t, x in zip(NUMBERS, xs, strict=True)])
        wanted = converted([jnp.asarray(x, x.dtype) for x in inputs.values()])
        for (target, x), want in zip(inputs.items(), wanted, strict=True):
            got = lax.convert_element_type(from_numpy(x, source), target)
            assert_same(got, want, EXACT, f"{source} to {target}")


@pytest.mark.parametrize("source", AT_LEAST_16_BITS, ids=dtypes.short_name)
def test_compiled_matches_eager(source: DType) -> None:
    x = from_numpy(values(source), source)

    def check() -> None:
        compiled = fx.jit(lambda x: [lax.convert_element_type(x, target) for target in AT_LEAST_16_BITS])(x)
        for target, got in zip(AT_LEAST_16_BITS, compiled, strict=True):
            assert_same(got, lax.convert_element_type(x, target), what=f"{source} to {target}")

    with_either_compile_options(check)


def test_float0_converts_to_zeros() -> None:
    float0_zeros = from_numpy(np.zeros(3, dtypes.float0), dtypes.float0)
    for dtype in (dtypes.float32, dtypes.int4, dtypes.bool_):
        assert_same(lax.convert_element_type(float0_zeros, dtype), np.zeros(3, dtype), what=str(dtype))


@pytest.mark.parametrize("dtype", ["f32", "O", None, "datetime64[s]"])
def test_invalid_dtype_raises(dtype: str) -> None:
    with pytest.raises(TypeError, match="new_dtype="):
        lax.convert_element_type(1.0, dtype)
