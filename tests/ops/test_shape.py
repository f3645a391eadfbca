"""Slicing, joining and rearranging of arrays, and creation of arrays."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax as jax_lax

import tracefx as fx
from tests.comparison import assert_agree, assert_same
from tests.compiling import default_compile_options
from tests.errors import untyped
from tests.laws.examples import limit_examples
from tests.ops.harness import (
    applied,
    check_raises,
    error_tests,
    printing_tests,
)
from tracefx import lax
from tracefx.core import to_numpy


@limit_examples(100)
@given(n=st.integers(0, 5), low=st.integers(-7, 4), high=st.integers(-7, 4), interior=st.integers(0, 4))
def test_pad_with_negative_and_interior_padding(n: int, low: int, high: int, interior: int) -> None:
    size = low + n + max(n - 1, 0) * interior + high
    sources = {low + i * (interior + 1): i for i in range(n)}
    if size < 0:
        check_raises(ValueError, "pad padding_config", lambda: lax.pad(np.arange(n), -1, [(low, high, interior)]))
    else:
        out = lax.pad(np.arange(n), -1, [(low, high, interior)])
        assert out.tolist() == [sources.get(i, -1) for i in range(size)]


def test_vmap_of_pad_over_padding_values() -> None:
    """Elements are selected, not added, so that NaN and infinity are preserved."""
    x = np.array([np.inf, np.nan, 1], np.float32)
    out = fx.vmap(lambda value: lax.pad(x, value, [(1, 0, 0)]))(np.array([np.inf, 2], np.float32))
    np.testing.assert_array_equal(to_numpy(out), [[np.inf, *x], [2, *x]])


# ------------------------------------------------------------------ creation


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (np.int8, 300),
        (np.uint8, 300),
        (np.int32, 5),
        (np.uint64, 3),
        (ml_dtypes.int4, 20),
        (ml_dtypes.bfloat16, 300),
        (np.float16, 70000),
        (ml_dtypes.float8_e4m3fn, 600),
        (np.float64, 4),
        (np.complex64, 3),
        (np.float32, 0),
    ],
)
def test_iota(dtype: type[np.generic], size: int) -> None:
    with default_compile_options():  # without optimisation, XLA emits other 8-bit floats
        out, want = lax.iota(dtype, size), jax_lax.iota(dtype, size)
        compiled = fx.jit(lambda: lax.iota(dtype, size))()
    assert_same([out, compiled], [want, want])


def test_iota_along_an_axis() -> None:
    assert lax.broadcasted_iota(int, (2, 3), 0).tolist() == [[0, 0, 0], [1, 1, 1]]
    assert lax.broadcasted_iota(float, (2, 3), 1).tolist() == [[0, 1, 2], [0, 1, 2]]
    assert fx.vmap(lambda x: x + lax.iota(float, 2))(np.zeros((3, 2), np.float32)).shape == (3, 2)


@pytest.mark.parametrize("dtype", [None, np.float32, np.int8, np.float64, np.bool_, ml_dtypes.bfloat16, np.complex64])
@pytest.mark.parametrize("fill", [1, 2.7, -1.5, True, np.float64(0.5), np.int32(300), np.float32(np.nan)])
def test_full(fill: float, dtype: type[np.generic] | None) -> None:
    assert_agree(lambda m, np: [m.lax.full(shape, fill, dtype) for shape in ((2, 3), (), (0,))], None)


def test_full_with_a_traced_fill_value_and_an_integer_shape() -> None:
    assert fx.jit(lambda x: lax.full(2, x, np.int32))(2.5).tolist() == [2, 2]
    assert fx.grad(lambda x: lax.reduce_sum(lax.full((2, 3), x), (0, 1)))(1.0).item() == 6


def test_full_like() -> None:
    def case(m: Any, np_: Any) -> object:
        full_like, weak = m.lax.full_like, m.lax.full((2,), 1.0)
        return [
            full_like(weak, 3),
            full_like(weak, 3, np.float32),
            full_like(weak, 3, shape=(3,)),
            full_like(np.arange(2), 3.5),
            full_like(2.0, 3),
        ]

    assert_agree(case, None)


# ------------------------------------------------------------------ printed programs


ROW: Final = np.ones((1, 3), np.float32)
test_programs_print_as_in_jax = printing_tests(
    squeeze=(applied("squeeze", (0,)), [ROW]),
    concatenate=(lambda lax, x: lax.concatenate([x, x], 1), [ROW]),
    stack=(lambda lax, x: lax.stack([x, x], 1), [ROW]),
    split=(applied("split", (1, 2), 1), [ROW]),
    slice=(applied("slice", (0, 1), (1, 3)), [ROW]),
    strided_slice=(applied("slice", (0, 0), (1, 3), (1, 2)), [ROW]),
    pad=(applied("pad", 0.0, [(1, -1, 0), (0, 0, 2)]), [ROW]),
    rev=(applied("rev", (1,)), [ROW]),
)

# ------------------------------------------------------------------ invalid input

X: Final = np.ones((2, 3), np.float32)
INTS: Final = np.ones((2, 3), np.int32)


test_invalid_arguments_raise = error_tests(
    (ValueError, "squeeze dimensions size 1", lambda: lax.squeeze(X, (0,))),
    (ValueError, "squeeze dimensions 5", lambda: lax.squeeze(X, (5,))),
    (ValueError, "squeeze dimensions twice", lambda: lax.squeeze(X[None], (0, -3))),
    (TypeError, "squeeze dimensions", lambda: untyped(lax.squeeze)(X[None], 0)),
    (TypeError, "squeeze dimensions 0.5", lambda: untyped(lax.squeeze)(X[None], (0.5,))),
    (TypeError, "array 'a'", lambda: untyped(lax.squeeze)("a", (0,))),
    (ValueError, "expand_dims twice", lambda: lax.expand_dims(X, (0, 0))),
    (ValueError, "expand_dims 4", lambda: lax.expand_dims(X, (4,))),
    (ValueError, "broadcast sizes negative", lambda: lax.broadcast(X, (-1,))),
    (ValueError, "concatenate operands none", lambda: lax.concatenate([], 0)),
    (TypeError, "concatenate one dtype f32[2,3] i32[2,3]", lambda: lax.concatenate([X, INTS], 0)),
    (TypeError, "concatenate sizes axis 1", lambda: lax.concatenate([X, X[:1]], 1)),
    (TypeError, "concatenate number of axes", lambda: lax.concatenate([X, X[0]], 1)),
    (TypeError, "concatenate dimension -1", lambda: lax.concatenate([X, X], -1)),
    (TypeError, "concatenate dimension 2", lambda: lax.concatenate([X, X], 2)),
    (TypeError, "concatenate dimension 0", lambda: lax.concatenate([1.0, 2.0], 0)),
    (ValueError, "stack operands none", lambda: lax.stack([])),
    (ValueError, "stack one shape", lambda: lax.stack([X, X[0]])),
    (TypeError, "stack one dtype", lambda: lax.stack([X, INTS])),
    (ValueError, "stack axis 3", lambda: lax.stack([X, X], 3)),
    (ValueError, "split sizes add up", lambda: lax.split(X, (1, 1), 1)),
    (ValueError, "split sizes negative", lambda: lax.split(X, (-1, 4), 1)),
    (ValueError, "split axis 2", lambda: lax.split(X, (1, 2), 2)),
    (TypeError, "slice limit_indices (2, 4)", lambda: lax.slice(X, (0, 0), (2, 4))),
    (TypeError, "slice start_indices (-1, 0)", lambda: lax.slice(X, (-1, 0), (2, 3))),
    (TypeError, "slice start_indices (1, 0)", lambda: lax.slice(X, (1, 0), (0, 3))),
    (TypeError, "slice start_indices (1,)", lambda: lax.slice(X, (1,), (2,))),
    (TypeError, "slice strides (1, 0)", lambda: lax.slice(X, (0, 0), (2, 3), (1, 0))),
    (TypeError, "slice strides (1,)", lambda: lax.slice(X, (0, 0), (2, 3), (1,))),
    (TypeError, "slice start_indices 0.0", lambda: untyped(lax.slice)(X, (0.0, 0), (2, 3))),
    (TypeError, "pad one dtype", lambda: lax.pad(X, np.int32(0), [(0, 0, 0)] * 2)),
    (ValueError, "pad padding_config", lambda: lax.pad(X, 0.0, [(0, 0, 0)])),
    (ValueError, "pad interior", lambda: lax.pad(X, 0.0, [(0, 0, -1), (0, 0, 0)])),
    (ValueError, "pad padding_value scalar", lambda: lax.pad(X, X, [(0, 0, 0)] * 2)),
    (ValueError, "pad padding_config (low, high, interior)", lambda: lax.pad(X[0], 0.0, [(1, 2)])),  # type: ignore[list-item]  # tested
    (TypeError, "rev dimensions (-1,)", lambda: lax.rev(X, (-1,))),
    (TypeError, "rev dimensions (0, 0)", lambda: lax.rev(X, (0, 0))),
    (TypeError, "rev dimensions (2,)", lambda: lax.rev(X, (2,))),
    (TypeError, "iota bool", lambda: lax.iota(bool, 3)),
    (ValueError, "iota negative", lambda: lax.iota(int, -1)),
    (ValueError, "iota dimension 1", lambda: lax.broadcasted_iota(int, (2,), 1)),
    (ValueError, "iota dimension 0", lambda: lax.broadcasted_iota(int, (), 0)),
    (TypeError, "full fill_value", lambda: lax.full((2,), np.ones(2))),
    (ValueError, "full shape negative", lambda: lax.full((-2,), 1)),
    (TypeError, "full_like fill_value", lambda: lax.full_like(X, np.ones(2))),
)


def test_traced_slice_limits_raise() -> None:
    with pytest.raises(TypeError, match="slice: limit_indices must be a concrete integer"):
        fx.jit(lambda x, n: lax.slice(x, (0,), (n,)))(np.arange(3), 2)


def test_weak_types_of_concatenated_arrays() -> None:
    weak, strong = lax.full((1,), 1.0), np.ones(1, np.float32)
    assert lax.concatenate([weak, weak], 0).weak_type
    assert not lax.concatenate([weak, strong], 0).weak_type
    ct = fx.grad(lambda x: lax.reduce_sum(lax.concatenate([x, strong], 0), (0,)))(weak)
    assert ct.weak_type
