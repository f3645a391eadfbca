"""`dynamic_slice` and `dynamic_update_slice`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from jax import lax as jax_lax

import tracefx as fx
import tracefx.numpy as fnp
from tests.ops.harness import (
    error_tests,
    printing_tests,
)
from tracefx import lax, nn
from tracefx.core import to_numpy

X: Final = np.arange(12, dtype=np.float32).reshape(3, 4)
ALONG_ONE_AXIS: Final[tuple[Callable[[Any, Any], Any], ...]] = (
    lambda lax, i: lax.dynamic_slice_in_dim(X, i, 2, 1),
    lambda lax, i: lax.dynamic_slice_in_dim(X, abs(i), 2, -2, allow_negative_indices=False),
    lambda lax, i: lax.dynamic_index_in_dim(X, i),
    lambda lax, i: lax.dynamic_index_in_dim(X, i, -1, keepdims=False),
    lambda lax, i: lax.dynamic_update_slice_in_dim(X, X[:2] + 100, i, 0),
    lambda lax, i: lax.dynamic_update_index_in_dim(X, X[0] + 100, i, 0),
    lambda lax, i: lax.dynamic_update_index_in_dim(X, X[:, :1] + 100, i, 1),
    lambda lax, i: lax.dynamic_slice(X, [i, 1], (1, 2)),
)


@pytest.mark.parametrize("i", [2, np.int32(7), np.array(-1, np.int32)])
@pytest.mark.parametrize("call", ALONG_ONE_AXIS)
def test_functions_along_one_axis_match_jax(call: Callable[[Any, Any], Any], i: Any) -> None:
    want = np.asarray(call(jax_lax, i))
    np.testing.assert_array_equal(to_numpy(call(lax, i)), want)
    np.testing.assert_array_equal(to_numpy(fx.jit(lambda i: call(lax, i))(i)), want)


def test_start_indices_may_be_an_array() -> None:
    i = np.array([1, -2], np.int32)
    want = np.asarray(jax_lax.dynamic_slice(X, i, (2, 2)))
    np.testing.assert_array_equal(to_numpy(lax.dynamic_slice(X, i, (2, 2))), want)
    np.testing.assert_array_equal(to_numpy(fx.jit(lambda i: lax.dynamic_slice(X, i, (2, 2)))(i)), want)


def test_constant_unsigned_start_indices() -> None:
    for start in (np.uint8(250), np.uint32(2**32 - 1)):
        assert fx.jit(lambda x, i=start: lax.dynamic_slice(x, (0, i), (1, 2)))(X).tolist() == [[2.0, 3.0]]
        new = fx.jit(lambda x, i=start: lax.dynamic_update_slice(x, X[:1, :1], (i, 0)))(X)
        assert new.tolist() == to_numpy(lax.dynamic_update_slice(X, X[:1, :1], (2, 0))).tolist()


def slice_and_update(lax: Any, x: Any, i: Any) -> Any:
    window = lax.dynamic_slice(x, (i, i), (2, 2), allow_negative_indices=False)
    return lax.dynamic_update_slice(x, window, (i, i), allow_negative_indices=False)


test_programs_print_as_in_jax = printing_tests(slice_and_update=(slice_and_update, [X, np.int32(1)]))
test_invalid_arguments_raise = error_tests(
        (ValueError, "dynamic_slice one entry f32[3,4] 1", lambda: lax.dynamic_slice(X, (1,), (1, 1))),
        (ValueError, "dynamic_slice one axis", lambda: lax.dynamic_slice(X, np.zeros((2, 1), int), (1, 1))),
        (TypeError, "dynamic_slice slice_sizes (4, 1)", lambda: lax.dynamic_slice(X, (0, 0), (4, 1))),
        (TypeError, "dynamic_slice slice_sizes (1,)", lambda: lax.dynamic_slice(X, (0, 0), (1,))),
        (TypeError, "dynamic_slice integer scalars", lambda: lax.dynamic_slice(X, (0.5, 1), (1, 1))),
        (TypeError, "one dtype i32[], i8[]", lambda: lax.dynamic_slice(X, (np.array(0), np.array(0, np.int8)), (1, 1))),
        (ValueError, "index -1 negative", lambda: lax.dynamic_slice(X, (-1, 0), (1, 1), allow_negative_indices=False)),
        (TypeError, "dynamic_update_slice one dtype", lambda: lax.dynamic_update_slice(X, X.astype(np.int32), (0, 0))),
        (TypeError, "dynamic_update_slice rank f32[4]", lambda: lax.dynamic_update_slice(X, X[0], (0, 0))),
        (TypeError, "dynamic_update_slice larger f32[4,3]", lambda: lax.dynamic_update_slice(X, X.T, (0, 0))),
        (ValueError, "dynamic_index_in_dim axis 2", lambda: lax.dynamic_index_in_dim(X, 0, 2)),
)  # fmt: skip


def test_narrow_indices_of_long_axes() -> None:
    x = fnp.arange(300)
    for start in (np.int8(-3), fnp.int8(-3), fnp.int32(-3)):
        assert lax.dynamic_slice(x, (start,), (2,)).tolist() == [297, 298]
        assert fx.jit(lambda i: lax.dynamic_index_in_dim(x, i))(start).tolist() == [297]
        assert int(lax.dynamic_update_index_in_dim(x, -1, start, 0)[297]) == -1
    indices = fnp.array([7, -3], "int8")
    assert fnp.flatnonzero(fnp.put(x, indices, -1, inplace=False) < 0).tolist() == [7, 297]
    assert fnp.flatnonzero(fnp.put(x, indices, -1, "wrap", inplace=False) < 0).tolist() == [7, 297]
    assert fnp.choose(indices, list(x), mode="wrap").tolist() == [7, 297]
    assert fnp.flatnonzero(nn.one_hot(fnp.uint8(7), 300)).tolist() == [7]
