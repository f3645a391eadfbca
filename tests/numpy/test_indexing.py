"""Indexing against NumPy (in bounds) and JAX (out of bounds), eager and traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.errors import assert_errors
from tests.numpy.agreement import both, check, i32, numbers
from tracefx.core import Array
from tracefx.testing.strategies import index_expressions, shapes


@settings(max_examples=300)
@given(st.data())
def test_indexing_matches_numpy(data: st.DataObject) -> None:
    shape = data.draw(shapes(max_dims=4, max_side=4))
    index = data.draw(index_expressions(shape))
    host = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    np.testing.assert_array_equal(np.asarray(fnp.array(host)[index]), host[index])


X: Final = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
INDICES: Final[tuple[Any, ...]] = (
    *(0, -1, (0, 1, 2), (), ..., None, (..., 0), (0, ...), (None, 0, None), slice(1, None), slice(None, None, -1)),
    *((slice(None), slice(2, 0, -1)), (slice(None), slice(None), slice(None, None, 3)), slice(5, 9), slice(1, 1)),
    *([1, 0], np.array([[0, 1], [1, 0]]), (slice(None), [2, 0]), ([0, 1], [2, 1]), ([0, 1], slice(None), [3, 0])),
    *((0, slice(None), [1, 2]), ([1], None, 0), (np.array([True, False]),), X > 5, (0, X[0] > 5), [], True, False),
    *((np.int64(1), np.uint8(2)), np.zeros((2, 0), np.int32), (..., [0, 1]), ([[0], [1]], [0, 1], [3])),
)


@pytest.mark.parametrize("index", INDICES, ids=range(len(INDICES)))
def test_indexing_under_jit_and_grad(index: Any) -> None:
    x = fnp.array(X)
    expected = X[index]
    assert np.asarray(x[index]).tolist() == expected.tolist()
    assert np.asarray(fx.jit(lambda x: x[index])(x)).tolist() == expected.tolist()
    # The gradient of a weighted sum is the weights, added up at the indices that were read.
    weights = numbers("float32", expected.shape)
    gradient = np.zeros_like(X)
    np.add.at(gradient, index, weights)
    assert np.asarray(fx.grad(lambda x: fnp.sum(x[index] * weights))(x)).tolist() == gradient.tolist()


TRACED: Final[tuple[Callable[[Any, Any], Any], ...]] = (
    lambda x, i: x[i],
    lambda x, i: x[i, i],
    lambda x, i: x[:, i],
    lambda x, i: x[0, :, i],
    lambda x, i: x[..., i, None],
    lambda x, i: x[i[0]],
    lambda x, i: x[i[0], i],
    lambda x, i: x[i.astype("uint8")],
    lambda x, i: x[[i[0], 1]],
)


@pytest.mark.parametrize("function", TRACED, ids=range(len(TRACED)))
@pytest.mark.parametrize("indices", [[0, 1, -1], [-9, 9, 1]], ids=["within", "beyond"])
def test_traced_indices_out_of_bounds_are_clamped(function: Callable[[Any, Any], Any], indices: list[int]) -> None:
    (x, y), (i, j) = both(X), both(i32(indices))
    if function is TRACED[-2] and min(indices) < -4:
        return  # as uint8, a negative index is another number
    # JAX accepts no lists.
    expected = y[jnp.array([j[0], 1])] if function is TRACED[-1] else function(y, j)
    over_x, over_i = fx.vmap(function, in_axes=(0, None)), fx.vmap(function, in_axes=(None, 0))
    batches = over_x(fnp.stack([x, x]), i)[1], over_i(x, fnp.stack([i + 1, i]))[1]
    for got in (function(x, i), fx.jit(function)(x, i), *batches):
        check(got, expected)


WIDE: Final[tuple[tuple[Callable[[Any, Any], Any], list[float]], ...]] = (
    (lambda x, i: x[i], [4.0, 4.0, 0.0]),
    (lambda x, i: fnp.stack([x[i[0]], x[i[1]], x[i[2]]]), [4.0, 4.0, 0.0]),
    (lambda x, i: x.at[i].get(mode="fill", fill_value=-1), [-1.0, -1.0, -1.0]),
    (lambda x, i: x.at[i].set(9.0), [0.0, 1.0, 2.0, 3.0, 4.0]),
    (lambda x, i: fnp.take(x, i, fill_value=-1.0), [-1.0, -1.0, -1.0]),
    (lambda x, i: fnp.take(x, i, mode="clip"), [4.0, 4.0, 0.0]),
    (lambda x, i: fnp.take(x, i, mode="wrap"), [2.0, 1.0, 4.0]),
    (lambda x, i: fnp.take_along_axis(x, i, mode="clip"), [4.0, 4.0, 0.0]),
    (lambda x, i: fnp.take_along_axis(x, i, fill_value=-1.0), [-1.0, -1.0, -1.0]),
    (lambda x, i: fnp.roll(x, i[0]), [3.0, 4.0, 0.0, 1.0, 2.0]),
    (lambda x, i: fnp.roll(x, i[2]), [1.0, 2.0, 3.0, 4.0, 0.0]),
)


@pytest.mark.parametrize(("function", "expected"), WIDE, ids=range(len(WIDE)))
def test_indices_beyond_32_bits_are_out_of_bounds(function: Callable[[Any, Any], Any], expected: list[float]) -> None:
    x = fnp.arange(5.0, dtype="float32")
    with fx.enable_x64():
        i = fnp.array([2**32 + 1, 2**31 + 3, -(2**33) + 1], "int64")
        assert function(x, i).tolist() == expected
        assert fx.jit(function)(x, i).tolist() == expected


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_unsigned_indices_beyond_int32_are_after_the_end(dtype: str) -> None:
    def last(x: fx.Array, i: fx.Array) -> list[fx.Array]:
        return [x[i], x[i[0]], fnp.take(x, i, mode="clip"), x.at[i].get(mode="clip")]

    x = fnp.arange(5.0)
    with fx.enable_x64():
        for extreme in (2**31, np.iinfo(dtype).max):
            i = fnp.array([extreme], dtype)
            for out in (*last(x, i), *fx.jit(last)(x, i)):
                assert out.reshape(-1).tolist() == [4.0]


def test_iteration_and_unpacking() -> None:
    a, b = fnp.array([[1, 2], [3, 4]])
    assert (a.tolist(), b.tolist()) == ([1, 2], [3, 4])
    assert fx.jit(lambda x: sum(row[0] for row in x))(fnp.array([[1, 2], [3, 4]])).tolist() == 4


# ------------------------------------------------------------------ updates


@pytest.mark.parametrize("index", INDICES, ids=range(len(INDICES)))
def test_add_at_an_index(index: Any) -> None:
    x, values = fnp.array(X), numbers("float32", X[index].shape)
    expected = X.copy()
    np.add.at(expected, index, values)
    assert x.at[index].add(values).tolist() == expected.tolist()
    assert fx.jit(lambda x, y: x.at[index].add(y))(x, values).tolist() == expected.tolist()
    assert x.at[index].get().tolist() == X[index].tolist()
    expected = X.copy()
    np.add.at(expected, index, 2.0)
    assert x.at[index].add(2).tolist() == expected.tolist()


def test_updates_of_wrong_shape_or_type_raise() -> None:
    with pytest.raises(ValueError, match="add"):
        fnp.array(X).at[0].add(fnp.ones(3))
    with pytest.raises(ValueError, match="cannot be broadcast to the indexed part"):
        fnp.array(X).at[0].add(fnp.ones((2, 3, 4)))
    with pytest.raises(IndexError, match="too many"):
        fnp.array(X).at[0, 0, 0, 0].add(1)
    untyped: Any = fnp.array(X)
    with pytest.raises(TypeError, match="add: values"):
        untyped.at[0].add("a")


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("index", "error", "says"),
    [
        ((0, 0, 0, 0), IndexError, "too many indices: f32.2,3,4. has 3 axes, but 4"),
        ((..., ...), IndexError, "one ellipsis"),
        (1.0, TypeError, "1.0 of type float"),
        ("a", TypeError, "'a' of type str"),
        ({}, TypeError, "of type dict"),
        (slice(None, None, 0), ValueError, "zero"),
        (slice(0, 1.5), TypeError, "bounds of slice"),
        (np.array([0.5]), TypeError, "integers or bools"),
        ([1.5], TypeError, "integers or bools"),
        (np.array([True, False, True]), IndexError, r"mask of shape \(3,\)"),
        (np.array(["a"]), TypeError, "dtype of an index"),
        (np.zeros((2, 3, 4, 1), bool), IndexError, "too many"),
        ((np.array([0, 1]), np.array([0, 1, 2])), ValueError, "do not broadcast"),
    ],
    ids=repr,
)
def test_invalid_indices_raise(index: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        fnp.array(X)[index]


def test_traced_masks_and_slice_bounds_raise() -> None:
    x = fnp.array(X)
    with pytest.raises(IndexError, match="the result of gt"):
        fx.jit(lambda x: x[x > 5])(x)
    with pytest.raises(TypeError, match="bounds of slice"):
        fx.jit(lambda x, n: x[:n])(x, 1)
    with pytest.raises(TypeError, match=r"x\.at\[i\]\.set"):
        x[0] = 1.0


def test_invalid_arguments_of_take_raise() -> None:
    x = fnp.array(X)
    untyped: Any = fnp
    assert_errors(
        (lambda: fnp.take(x, 1.5), TypeError, "take: indices must be integers"),
        (lambda: fnp.take(x, 0, 3), ValueError, "take: axis 3"),
        (lambda: fnp.take(x, 0, mode="raise"), ValueError, "mode"),
        (lambda: untyped.take([1, 2], 0), TypeError, "take: a must be an array"),
        (lambda: fnp.take_along_axis(x, fnp.array([0]), 1), ValueError, "equally many axes"),
        (lambda: fnp.take(fnp.zeros((0,)), 0), IndexError, "no elements"),
    )


def test_index_may_contain_tracefx_arrays() -> None:
    x = fnp.array(X)
    assert isinstance(x[fnp.array(1)], Array)
    assert x[fnp.array(1), fnp.array([0])].shape == (1, 4)


def test_ix_converts_masks_to_indices() -> None:
    rows, columns = fnp.ix_(fnp.array([True, False, True]), fnp.array([1]))
    assert (rows.tolist(), columns.tolist()) == ([[0], [2]], [[1]])


def test_ravel_multi_index_of_traced_indices_needs_a_mode() -> None:
    with pytest.raises(TypeError, match="use mode 'wrap' or 'clip'"):
        fx.jit(lambda i: fnp.ravel_multi_index((i,), (3,)))(1)


@pytest.mark.parametrize("order", ["C", "F"])
def test_ravel_multi_index_matches_numpy(order: Any) -> None:
    rows, columns = np.array([1, 0, 1]), np.array([2, 1, 0])
    flat = fnp.ravel_multi_index((rows, columns), (2, 3), order=order)
    assert flat.tolist() == np.ravel_multi_index((rows, columns), (2, 3), order=order).tolist()
