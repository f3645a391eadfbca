"""Signs and neighbours of floats against `jax.numpy`; the elementwise functions of the array API exist."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

from typing import Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp

ARRAY_API: Final = """
    abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift bitwise_or
    bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor floor_divide greater
    greater_equal hypot imag isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not
    logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow real reciprocal remainder
    round sign signbit sin sinh square sqrt subtract tan tanh trunc
"""
EDGES: Final = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -3.4e38)


def test_elementwise_functions_of_the_array_api_exist() -> None:
    assert [name for name in ARRAY_API.split() if not callable(getattr(fnp, name, None))] == []


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_edge_values_match_jax(dtype: str) -> None:
    with np.errstate(all="ignore"):  # the least and the greatest value are out of the range of 16 bits
        column = np.asarray(fnp.array(EDGES, dtype=dtype))
    x, y = np.repeat(column, len(EDGES)), np.tile(column, len(EDGES))
    expected = np.copysign(x.astype(np.float64), y.astype(np.float64))
    for run in (fx.jit(fnp.copysign), fnp.copysign):
        got = run(fnp.array(x, dtype), fnp.array(y, dtype))
        np.testing.assert_array_equal(np.asarray(got, np.float64), expected)
    whole = fnp.array(x, dtype)
    for signs in (fx.jit(fnp.signbit)(whole), fnp.signbit(whole), fnp.signbit(fnp.copysign(y, whole))):
        np.testing.assert_array_equal(np.asarray(signs), np.signbit(x.astype(np.float64)))


def test_signs_of_complex_numbers_raise() -> None:
    with pytest.raises(ValueError, match="signbit takes real numbers"):
        fnp.signbit(1j)
    with pytest.raises(TypeError, match="copysign is not defined for complex"):
        fnp.copysign(1j, 1.0)
