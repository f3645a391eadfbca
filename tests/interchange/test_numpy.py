"""Arrays where NumPy arrays are expected, and beside them: conversion, operators, the buffer protocol, pickling."""

from __future__ import annotations

import copy
import operator
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tracefx.errors import ConcretizationError, TracerArrayConversionError
from tracefx.testing.tolerances import ELEMENTARY

X: Any = fnp.arange(6.0).reshape(2, 3)  # Any, since type checkers know buffers of classes from Python 3.12 on


# ------------------------------------------------------------------ numpy.asarray


def test_numpy_sees_the_numbers_where_they_lie() -> None:
    for x in (X, fx.jit(lambda x: x + 1)(X), fnp.ones(40_000)):
        first, second = np.asarray(x), np.asarray(x, copy=False)
        assert np.shares_memory(first, second)
        assert not first.flags.writeable
        assert not second.flags.writeable


def test_nobody_makes_the_numbers_writable() -> None:
    y = X + 1
    arrays: list[Any] = [y, y.T, y.reshape(3, 2), y[0], fnp.asarray(np.arange(3.0)), fnp.zeros((2, 3)), fnp.float32(2)]
    arrays += [fx.jit(lambda x: x + 1)(X), y.astype("bfloat16"), fnp.sort(y), fnp.ones(40_000) * 2]
    for x in arrays:
        for seen in (np.asarray(x), x.__array__(), np.from_dlpack(x) if x.dtype != "bfloat16" else np.asarray(x)):
            with pytest.raises(ValueError, match=r"WRITEABLE|writeable"):
                seen.setflags(write=True)


def test_a_copy_is_ones_own() -> None:
    mine = np.array(X)
    mine[0, 0] = 9.0
    assert X[0].tolist() == [0.0, 1.0, 2.0]
    assert np.asarray(X, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        np.asarray(X, np.float64, copy=False)


def test_numpys_functions_take_arrays() -> None:
    assert isinstance(np.sin(X), np.ndarray)
    assert np.stack([X, X]).shape == (2, 2, 3)
    assert isinstance(np.sum(X), fx.Array)  # NumPy asks for the method of that name
    out = np.zeros((2, 3))
    out[:] = X
    out += X
    assert out.tolist() == (2 * X).tolist()


# ------------------------------------------------------------------ operators

OPERATORS = (
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow),
    *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, operator.matmul),
)


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
def test_numpy_on_the_left_of_an_array(op: Callable[[Any, Any], Any]) -> None:
    left, right = np.array([1.0, 2.0, 3.0], np.float32), fnp.array([2.0, 2.0, 0.5])
    found = op(left, right)
    assert isinstance(found, fx.Array)
    assert_near(found, op(left, np.asarray(right)), ELEMENTARY)
    assert_near(fx.jit(lambda x: op(left, x))(right), found, ELEMENTARY)
    if op is not operator.matmul:
        assert isinstance(op(left[0], right), fx.Array)
        assert isinstance(op(np.float64(1.5), right), fx.Array)


def test_divmod_and_bits() -> None:
    sevens: Any = np.array([7, 8])
    quotient, rest = divmod(sevens, fnp.array([2, 3]))
    assert isinstance(quotient, fx.Array)
    assert [quotient.tolist(), rest.tolist()] == [[3, 2], [1, 2]]
    for op in (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift):
        assert isinstance(op(sevens, fnp.array([2, 3])), fx.Array)


def test_numpy_on_the_left_of_a_tracer_is_differentiated_and_batched() -> None:
    factors = np.array([1.0, 2.0, 3.0])
    assert fx.grad(lambda x: (factors * x).sum())(fnp.ones(3)).tolist() == [1.0, 2.0, 3.0]
    assert fx.grad(lambda x: factors @ x)(fnp.ones(3)).tolist() == [1.0, 2.0, 3.0]
    assert_near(fx.grad(lambda x: (np.float32(3) ** x).sum())(fnp.zeros(1)), [np.log(3)], ELEMENTARY)
    assert fx.vmap(lambda x: factors - x)(fnp.ones((2, 1))).tolist() == [[0.0, 1.0, 2.0]] * 2


NUMPYS = (
    *(np.sin, np.asarray, np.add.reduce, np.linalg.norm, np.zeros_like),
    *(lambda x: np.add(x, 1), lambda x: np.add(np.ones(3), x), lambda x: np.stack([x, x]), lambda x: np.dot(x, x)),
    *(lambda x: np.where(x > 0, x, 0), lambda x: np.from_dlpack(x), lambda x: np.array([x[0], x[1]])),
)


@pytest.mark.parametrize("function", NUMPYS, ids=range(len(NUMPYS)))
def test_numpys_functions_of_a_tracer_say_what_to_use(function: Callable[[Any], Any]) -> None:
    for transform in (fx.grad, fx.jit, fx.vmap):
        with pytest.raises((TracerArrayConversionError, ConcretizationError), match=r"tracefx\.numpy|traces|is traced"):
            transform(lambda x: function(x).sum())(fnp.ones((3, 3)))


def test_numpys_functions_that_ask_for_a_method_go_on() -> None:
    assert fx.grad(lambda x: np.sum(np.reshape(x, (3, 1)) ** 2))(fnp.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert fx.jit(lambda x: x * (np.ndim(x) + np.shape(x)[0]))(fnp.ones(3)).tolist() == [4.0, 4.0, 4.0]


# ------------------------------------------------------------------ the buffer protocol


def test_a_buffer_shares_the_numbers() -> None:
    view = X.__buffer__(0)
    assert (view.shape, view.format, view.readonly) == ((2, 3), "f", True)
    assert np.shares_memory(np.asarray(view), np.asarray(X))
    assert view.tobytes() == X.tobytes()
    assert np.asarray(X).data == view
    assert np.frombuffer(np.asarray(X), np.float32).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes of Python have buffers from Python 3.12 on (PEP 688)")
def test_memoryview() -> None:
    assert memoryview(X) == np.asarray(X).data
    assert np.asarray(X.astype("bfloat16")).dtype == X.astype("bfloat16").dtype  # which has no buffer


def test_keys_have_no_buffer() -> None:
    key: Any = fx.random.key(0)
    with pytest.raises(TypeError, match="are not numbers"):
        key.__buffer__(0)


def test_buffers_become_arrays() -> None:
    assert fnp.asarray(np.arange(3, dtype=np.int16).data).tolist() == [0, 1, 2]
    assert fnp.asarray(bytearray(b"abc")).tolist() == [97, 98, 99]
    assert fnp.frombuffer(np.asarray(X), "float32").tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


# ------------------------------------------------------------------ pickle and copy


@pytest.mark.parametrize(
    "dtype", ["bool", "int4", "uint8", "int64", "float16", "bfloat16", "float8_e5m2", "complex128"]
)
def test_pickling(dtype: str) -> None:
    x = X.astype(dtype)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(x, protocol))
        assert (type(again), again.aval) == (type(x), x.aval)
        np.testing.assert_array_equal(np.asarray(again), np.asarray(x))


def test_pickling_keeps_what_is_weakly_typed_and_keys() -> None:
    weak = fnp.asarray(2.0)
    assert pickle.loads(pickle.dumps(weak)).aval == weak.aval
    key = fx.random.key(7)
    again = pickle.loads(pickle.dumps(key))
    assert again.dtype == key.dtype
    assert fx.random.key_data(again).tolist() == fx.random.key_data(key).tolist()


def test_pickling_out_of_band_shares_memory() -> None:
    buffers: list[pickle.PickleBuffer] = []
    x = fnp.arange(1000.0)
    data = pickle.dumps(x, 5, buffer_callback=buffers.append)
    assert len(data) < 1000
    (buffer,) = buffers
    assert np.shares_memory(np.frombuffer(buffer.raw(), np.float32), np.asarray(x))
    assert (pickle.loads(data, buffers=buffers) == x).all()


def test_copies_are_arrays_of_their_own_in_the_same_memory() -> None:
    """A copy outlives the donation of its original, and nobody writes to either."""
    for again in (copy.copy(X), copy.deepcopy({"a": X})["a"]):
        assert again is not X
        assert np.shares_memory(np.asarray(again), np.asarray(X))


def test_tracers_are_copied_and_not_pickled() -> None:
    def f(x: Any) -> Any:
        assert copy.copy(x) is x
        assert copy.deepcopy([x])[0] is x
        with pytest.raises(TypeError, match="can't be pickled: it is valid only during the traced call"):
            pickle.dumps(x)
        return x.sum()

    for transform in (fx.grad, fx.jit, fx.vmap):
        transform(f)(X)


# ------------------------------------------------------------------ what array libraries ask


def test_what_array_libraries_ask_of_arrays_and_tracers() -> None:
    def asked(x: Any) -> Any:
        assert x.__array_namespace__() is fnp
        assert (x.itemsize, x.nbytes, x.size, x.ndim) == (4, 24, 6, 2)
        assert x.mT.shape == (3, 2)
        assert x.astype(np.float32, copy=False).dtype == np.float32
        assert fnp.asarray(x, copy=True, device=x.device).shape == x.shape
        return x.to_device(fx.devices()[0]).sum()

    asked(X)
    fx.grad(asked)(X)
    fx.jit(asked)(X)
    fx.vmap(asked)(fnp.stack([X, X]))


def test_a_tracer_with_numbers_behind_it_is_where_they_are() -> None:
    found: list[object] = []

    def f(x: Any) -> Any:
        found.append(x.device)
        return x.sum()

    fx.grad(f)(X)
    fx.vmap(f)(X)
    fx.grad(lambda x: fx.vmap(f)(x).sum())(X)
    fx.jit(f)(X)
    device, *_ = fx.devices()
    assert found == [device, device, device, None]
