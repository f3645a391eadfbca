"""tracefx arrays in NumPy code: conversion, operators, the buffer protocol, pickling."""

from __future__ import annotations

import copy
import operator
import pickle
import sys
import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx.errors import ConcretizationError, TracerArrayConversionError
from tracefx.testing.tolerances import ELEMENTARY

X: Any = fnp.arange(6.0).reshape(2, 3)  # Any, because type checkers know `__buffer__` from Python 3.12 on


# ------------------------------------------------------------------ numpy.asarray


def test_asarray_shares_memory_read_only() -> None:
    for x in (X, fx.jit(lambda x: x + 1)(X), fnp.ones(40_000)):
        first, second = np.asarray(x), np.asarray(x, copy=False)
        assert np.shares_memory(first, second)
        assert not first.flags.writeable
        assert not second.flags.writeable


def test_views_cannot_be_made_writable() -> None:
    y = X + 1
    arrays: list[Any] = [y, y.T, y.reshape(3, 2), y[0], fnp.asarray(np.arange(3.0)), fnp.zeros((2, 3)), fnp.float32(2)]
    arrays += [fx.jit(lambda x: x + 1)(X), y.astype("bfloat16"), fnp.sort(y), fnp.ones(40_000) * 2]
    for x in arrays:
        for view in (np.asarray(x), x.__array__(), np.from_dlpack(x) if x.dtype != "bfloat16" else np.asarray(x)):
            with pytest.raises(ValueError, match=r"WRITEABLE|writeable"):
                view.setflags(write=True)


def test_numpy_copy_is_independent() -> None:
    copied = np.array(X)
    copied[0, 0] = 9.0
    assert X[0].tolist() == [0.0, 1.0, 2.0]
    assert np.asarray(X, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        np.asarray(X, np.float64, copy=False)


def test_numpy_functions_accept_arrays() -> None:
    assert isinstance(np.sin(X), np.ndarray)
    assert np.stack([X, X]).shape == (2, 2, 3)
    assert isinstance(np.sum(X), fx.Array)  # NumPy calls the method of that name
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
def test_operators_with_numpy_as_left_operand(op: Callable[[Any, Any], Any]) -> None:
    left, right = np.array([1.0, 2.0, 3.0], np.float32), fnp.array([2.0, 2.0, 0.5])
    got = op(left, right)
    assert isinstance(got, fx.Array)
    assert_near(got, op(left, np.asarray(right)), ELEMENTARY)
    assert_near(fx.jit(lambda x: op(left, x))(right), got, ELEMENTARY)
    if op is not operator.matmul:
        assert isinstance(op(left[0], right), fx.Array)
        assert isinstance(op(np.float64(1.5), right), fx.Array)


def test_divmod_and_bitwise_operators_with_numpy_as_left_operand() -> None:
    sevens: Any = np.array([7, 8])
    quotient, remainder = divmod(sevens, fnp.array([2, 3]))
    assert isinstance(quotient, fx.Array)
    assert [quotient.tolist(), remainder.tolist()] == [[3, 2], [1, 2]]
    for op in (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift):
        assert isinstance(op(sevens, fnp.array([2, 3])), fx.Array)


def test_transformations_with_numpy_as_left_operand() -> None:
    factors = np.array([1.0, 2.0, 3.0])
    assert fx.grad(lambda x: (factors * x).sum())(fnp.ones(3)).tolist() == [1.0, 2.0, 3.0]
    assert fx.grad(lambda x: factors @ x)(fnp.ones(3)).tolist() == [1.0, 2.0, 3.0]
    assert_near(fx.grad(lambda x: (np.float32(3) ** x).sum())(fnp.zeros(1)), [np.log(3)], ELEMENTARY)
    assert fx.vmap(lambda x: factors - x)(fnp.ones((2, 1))).tolist() == [[0.0, 1.0, 2.0]] * 2


NUMPY_FUNCTIONS = (
    *(np.sin, np.asarray, np.add.reduce, np.linalg.norm, np.zeros_like),
    *(lambda x: np.add(x, 1), lambda x: np.add(np.ones(3), x), lambda x: np.stack([x, x]), lambda x: np.dot(x, x)),
    *(lambda x: np.where(x > 0, x, 0), lambda x: np.from_dlpack(x), lambda x: np.array([x[0], x[1]])),
)


@pytest.mark.parametrize("function", NUMPY_FUNCTIONS, ids=range(len(NUMPY_FUNCTIONS)))
def test_numpy_functions_of_tracers_raise_with_a_hint(function: Callable[[Any], Any]) -> None:
    for transform in (fx.grad, fx.jit, fx.vmap):
        with pytest.raises((TracerArrayConversionError, ConcretizationError), match=r"tracefx\.numpy|traces|is traced"):
            transform(lambda x: function(x).sum())(fnp.ones((3, 3)))


def test_numpy_functions_that_call_methods_work_on_tracers() -> None:
    assert fx.grad(lambda x: np.sum(np.reshape(x, (3, 1)) ** 2))(fnp.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert fx.jit(lambda x: x * (np.ndim(x) + np.shape(x)[0]))(fnp.ones(3)).tolist() == [4.0, 4.0, 4.0]


# ------------------------------------------------------------------ the buffer protocol


def test_buffer_shares_memory() -> None:
    view = X.__buffer__(0)
    assert (view.shape, view.format, view.readonly) == ((2, 3), "f", True)
    assert np.shares_memory(np.asarray(view), np.asarray(X))
    assert view.tobytes() == X.tobytes()
    assert np.asarray(X).data == view
    assert np.frombuffer(np.asarray(X), np.float32).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes of Python have buffers from Python 3.12 on (PEP 688)")
def test_memoryview() -> None:
    assert memoryview(X) == np.asarray(X).data
    assert np.asarray(X.astype("bfloat16")).dtype == X.astype("bfloat16").dtype  # bfloat16 has no buffer format


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
def test_pickle_round_trip(dtype: str) -> None:
    x = X.astype(dtype)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        restored = pickle.loads(pickle.dumps(x, protocol))
        assert (type(restored), restored.aval) == (type(x), x.aval)
        np.testing.assert_array_equal(np.asarray(restored), np.asarray(x))


def test_pickle_preserves_weak_types_and_keys() -> None:
    weak = fnp.asarray(2.0)
    assert pickle.loads(pickle.dumps(weak)).aval == weak.aval
    key = fx.random.key(7)
    restored = pickle.loads(pickle.dumps(key))
    assert restored.dtype == key.dtype
    assert fx.random.key_data(restored).tolist() == fx.random.key_data(key).tolist()


def test_out_of_band_pickling_shares_memory() -> None:
    buffers: list[pickle.PickleBuffer] = []
    x = fnp.arange(1000.0)
    data = pickle.dumps(x, 5, buffer_callback=buffers.append)
    assert len(data) < 1000
    (buffer,) = buffers
    assert np.shares_memory(np.frombuffer(buffer.raw(), np.float32), np.asarray(x))
    assert (pickle.loads(data, buffers=buffers) == x).all()


def test_copies_are_new_arrays_with_shared_memory() -> None:
    """A copy stays valid when its original is donated, and neither can be written to."""
    for restored in (copy.copy(X), copy.deepcopy({"a": X})["a"]):
        assert restored is not X
        assert np.shares_memory(np.asarray(restored), np.asarray(X))


def test_tracers_can_be_copied_but_not_pickled() -> None:
    def f(x: Any) -> Any:
        assert copy.copy(x) is x
        assert copy.deepcopy([x])[0] is x
        with pytest.raises(TypeError, match="can't be pickled: it is valid only during the traced call"):
            pickle.dumps(x)
        return x.sum()

    for transform in (fx.grad, fx.jit, fx.vmap):
        transform(f)(X)


# ------------------------------------------------------------------ attributes that array libraries read


def test_array_api_attributes_of_arrays_and_tracers() -> None:
    def check_attributes(x: Any) -> Any:
        assert x.__array_namespace__() is fnp
        assert (x.itemsize, x.nbytes, x.size, x.ndim) == (4, 24, 6, 2)
        assert x.mT.shape == (3, 2)
        assert x.astype(np.float32, copy=False).dtype == np.float32
        assert fnp.asarray(x, copy=True, device=x.device).shape == x.shape
        return x.to_device(fx.devices()[0]).sum()

    check_attributes(X)
    fx.grad(check_attributes)(X)
    fx.jit(check_attributes)(X)
    fx.vmap(check_attributes)(fnp.stack([X, X]))


def test_device_of_tracers() -> None:
    devices_seen: list[object] = []

    def f(x: Any) -> Any:
        devices_seen.append(x.device)
        return x.sum()

    fx.grad(f)(X)
    fx.vmap(f)(X)
    fx.grad(lambda x: fx.vmap(f)(x).sum())(X)
    fx.jit(f)(X)
    device, *_ = fx.devices()
    assert devices_seen == [device, device, device, None]


def views_of_arrays() -> dict[str, np.ndarray]:
    computed = fx.jit(lambda x: x + 1)(fnp.ones(1 << 14))
    view = np.asarray(computed)
    return {"tracefx": view, "JAX": np.asarray(jnp.ones(1 << 14) + 1), "slice": view[8:]}


def mutable_arrays() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Arrays of ones that are read-only, each with another one through which the memory can be written."""
    owner = np.ones(1 << 14, np.float32)
    view = owner.view()
    view.flags.writeable = False
    data = bytearray(owner.tobytes())
    read_only = np.frombuffer(memoryview(data).toreadonly(), np.float32)
    return {"view": (view, owner), "memoryview": (read_only, np.frombuffer(data, np.float32))}


@pytest.mark.parametrize("name", ["tracefx", "JAX", "slice"])
def test_views_of_arrays_are_shared(name: str) -> None:
    """Nobody can write to NumPy's views of arrays, so they need no copy, unless they are donated."""
    view = views_of_arrays()[name]
    assert np.shares_memory(np.asarray(fnp.asarray(view)), view)
    f = fx.jit(lambda x: x * 2, donate_argnums=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            assert (float(f(view).sum()), float(view.sum())) == (4.0 * view.size, 2.0 * view.size)


@pytest.mark.parametrize("name", ["view", "memoryview"])
def test_results_do_not_change_with_numpy_arrays(name: str) -> None:
    array, writable = mutable_arrays()[name]
    f = fx.jit(lambda x: (x * 2, x))
    results = [f(array), f(array), fnp.asarray(array), fx.device_put(array)]
    writable[:] = 7
    assert [float(x[0]) for x in fx.tree.leaves(results)] == [2.0, 1.0, 2.0, 1.0, 1.0, 1.0]
