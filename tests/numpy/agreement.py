"""Helpers of the tests of `tracefx.numpy`: compare a call with the same call of `jax.numpy`, the oracle."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import numpy.typing as npt

import tracefx.numpy as fnp
from tests.comparison import JAX_TOLERANCE, assert_same
from tracefx.core import Array

jax.config.update("jax_explicit_x64_dtypes", "allow")

DTYPES: Final = (
    *("bool", "int8", "uint8", "int32", "uint32", "int64"),
    *("bfloat16", "float16", "float32", "float64", "complex64"),
)


def numbers(dtype: str, shape: Sequence[int], seed: int = 0) -> npt.NDArray[Any]:
    """Returns an array of few distinct values, so that some are equal, zero, negative or fractional."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) > 0.5
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    if kind.kind in "iu":
        return rng.integers(-5 if kind.kind == "i" else 0, 6, shape).astype(kind)
    out = rng.choice([-2.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 3.0], shape)
    if kind.kind == "c":
        return (out + 1j * rng.choice([0.0, 1.0, -0.5], shape)).astype(kind)
    return np.asarray(out.astype(kind))


def f32(x: object) -> npt.NDArray[Any]:
    return np.asarray(x, np.float32)


def i32(x: object) -> npt.NDArray[Any]:
    return np.asarray(x, np.int32)


def both(x: npt.NDArray[Any]) -> tuple[Array, jax.Array]:
    """Returns `x` as a tracefx array and as a JAX array, with an explicit dtype so that 64-bit values stay 64-bit."""
    return fnp.array(x, dtype=x.dtype), jnp.array(x, dtype=x.dtype)


def check(got: object, expected: object) -> None:
    """Asserts that two results agree in structure, types and values."""
    assert_same(got, expected, JAX_TOLERANCE)
