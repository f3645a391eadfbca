"""Reductions over segments where JAX's can't be asked in a compiled program, or fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tracefx as fx
from tracefx import ops

NAMES = ("segment_sum", "segment_prod", "segment_max", "segment_min")
X = np.array([1.5, -2.0, 3.0, 0.5], np.float32)
IDS = np.array([0, 3, 3, 1], np.int32)


@pytest.mark.parametrize("name", NAMES)
def test_there_are_as_many_segments_as_the_numbers_need(name: str) -> None:
    np.testing.assert_array_equal(getattr(ops, name)(X, IDS), getattr(jax.ops, name)(X, IDS))
    f: Callable[..., Any] = fx.jit(lambda x: getattr(ops, name)(x, IDS, bucket_size=3))
    np.testing.assert_array_equal(f(X), getattr(jax.ops, name)(X, IDS, bucket_size=3))


def test_numbers_that_are_traced_say_what_to_give() -> None:
    with pytest.raises(fx.errors.TracerArrayConversionError):
        fx.jit(ops.segment_sum)(X, IDS)


@pytest.mark.parametrize("bucket_size", [0, -1])
def test_buckets_hold_something(bucket_size: int) -> None:
    with pytest.raises(ValueError, match="bucket_size must be positive"):
        ops.segment_sum(X, IDS, 4, bucket_size=bucket_size)


def test_nothing_in_buckets_is_nothing() -> None:
    np.testing.assert_array_equal(ops.segment_max(X[:0], IDS[:0], 2, bucket_size=2), [-np.inf, -np.inf])


def test_buckets_make_sums_more_precise() -> None:
    x, ids = np.full(4096, 0.1, "bfloat16"), np.zeros(4096, np.int32)
    coarse, fine = [ops.segment_sum(x, ids, 1, bucket_size=size).item() for size in (None, 64)]
    exact = float(x[0]) * 4096
    assert 8 * abs(fine - exact) < abs(coarse - exact)


def test_segments_along_axes_of_numbers() -> None:
    ids, x = np.array([[0, 1], [1, 1]]), np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    with pytest.raises(ValueError, match="must have one axis"):
        ops.segment_sum(x, ids, 2, bucket_size=2)
