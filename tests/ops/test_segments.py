"""Segment reductions in cases where JAX's fail or cannot be compiled."""

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
def test_number_of_segments_is_inferred_from_concrete_ids(name: str) -> None:
    np.testing.assert_array_equal(getattr(ops, name)(X, IDS), getattr(jax.ops, name)(X, IDS))
    f: Callable[..., Any] = fx.jit(lambda x: getattr(ops, name)(x, IDS, bucket_size=3))
    np.testing.assert_array_equal(f(X), getattr(jax.ops, name)(X, IDS, bucket_size=3))


def test_traced_ids_without_num_segments_raise() -> None:
    with pytest.raises(fx.errors.TracerArrayConversionError):
        fx.jit(ops.segment_sum)(X, IDS)


@pytest.mark.parametrize("bucket_size", [0, -1])
def test_bucket_size_must_be_positive(bucket_size: int) -> None:
    with pytest.raises(ValueError, match="bucket_size must be positive"):
        ops.segment_sum(X, IDS, 4, bucket_size=bucket_size)


def test_empty_data_with_bucket_size() -> None:
    np.testing.assert_array_equal(ops.segment_max(X[:0], IDS[:0], 2, bucket_size=2), [-np.inf, -np.inf])


def test_bucket_size_makes_sums_more_accurate() -> None:
    x, ids = np.full(4096, 0.1, "bfloat16"), np.zeros(4096, np.int32)
    coarse, fine = [ops.segment_sum(x, ids, 1, bucket_size=size).item() for size in (None, 64)]
    exact = float(x[0]) * 4096
    assert 8 * abs(fine - exact) < abs(coarse - exact)


def test_segment_ids_must_have_one_axis() -> None:
    ids, x = np.array([[0, 1], [1, 1]]), np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    with pytest.raises(ValueError, match="must have one axis"):
        ops.segment_sum(x, ids, 2, bucket_size=2)
