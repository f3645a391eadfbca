"""Conversion of arrays, random keys and types from JAX to tracefx and back, without copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_same
from tests.errors import untyped
from tracefx.core import ConcreteArray, ShapedArray, dtypes, to_numpy
from tracefx.core.host_memory import aligned_empty
from tracefx.core.key_data import to_key_data
from tracefx.errors import TracerArrayConversionError
from tracefx.interop.jax.values import (
    as_jax,
    as_tracefx,
    dtype_from_jax,
    dtype_to_jax,
    key_implementation,
    type_from_jax,
    type_to_jax,
)

NUMERIC_DTYPES = tuple([d for d in dtypes.ALL_DTYPES if d != dtypes.float0])
BYTE_SIZED_DTYPES = tuple([d for d in NUMERIC_DTYPES if dtypes.itemsize_bits(d) >= 8])
IMPLEMENTATIONS = ("threefry2x32", "rbg", "unsafe_rbg")


def ones(dtype: Any, *shape: int) -> fx.Array:
    """An array in aligned memory, which XLA can use without a copy."""
    host = aligned_empty(shape, dtype)
    host[...] = np.ones(shape, dtype)
    host.flags.writeable = False
    return ConcreteArray(ShapedArray(shape, dtype), host)


def address_of(x: Any) -> int:
    """The address of the host buffer of an array."""
    if isinstance(x, jax.Array):
        return int(x.unsafe_buffer_pointer())
    address: int = np.asarray(x).__array_interface__["data"][0]
    return address


@pytest.mark.parametrize("dtype", NUMERIC_DTYPES, ids=dtypes.name)
def test_all_dtypes_roundtrip(dtype: Any) -> None:
    fx_array = ones(dtype, 2, 3)
    jax_array = as_jax(fx_array)
    assert_same(fx_array, jax_array)
    back = as_tracefx(jax_array)
    assert_same(back, jax_array)
    if dtype in BYTE_SIZED_DTYPES:
        assert address_of(jax_array) == address_of(fx_array) == address_of(back)
    assert as_jax(ones(dtype, 0, 2)).shape == as_tracefx(as_jax(ones(dtype, 0, 2))).shape == (0, 2)


def test_results_share_memory() -> None:
    fx_array = fx.jit(lambda x: x + 1)(fnp.arange(1000.0))
    assert address_of(as_jax(fx_array)) == address_of(fx_array)
    jax_array = jnp.arange(1000.0) + 1
    assert address_of(as_tracefx(jax_array)) == address_of(jax_array)


def test_shared_buffer_outlives_the_original_array() -> None:
    fx_array = as_tracefx(jnp.arange(1000.0) + 1)
    jax_array = as_jax(fx.jit(lambda x: x + 2)(fnp.arange(1000.0)))
    [jnp.full(1000, 7.0) for _ in range(8)]  # would reuse the buffer if it were freed
    assert fx_array[-1] == 1000
    assert jax_array[-1] == 1001


def test_donation_in_jax_does_not_change_the_tracefx_array() -> None:
    fx_array = ones(dtypes.float32, 1000)
    jax_array = as_jax(fx_array)
    out = jax.jit(lambda x: x * 3, donate_argnums=0)(jax_array)
    assert out[0] == 3
    assert fnp.all(fx_array == 1)


@pytest.mark.parametrize("x", [1.5, 2, fnp.float32(3), np.ones((2, 2), np.float32)])
def test_as_jax_of_numbers(x: Any) -> None:
    assert_same(fnp.asarray(x), as_jax(x))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "complex64", "float64"])
def test_weak_types_roundtrip(dtype: str) -> None:
    weak = ConcreteArray(ShapedArray((2,), np.dtype(dtype), weak_type=True), np.ones(2, dtype))
    jax_array = as_jax(weak)
    assert_same(weak, jax_array)
    assert_same(as_tracefx(jax_array), jax_array)
    assert type_from_jax(jax.typeof(jax_array)) == weak.aval


def test_weak_types_of_jax_scalars() -> None:
    assert as_tracefx(jnp.asarray(2.0)).weak_type
    assert not as_tracefx(jnp.asarray(True)).weak_type


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_random_keys_roundtrip(impl: str) -> None:
    jax_array = jax.random.split(jax.random.key(7, impl=impl), 3)
    fx_array = as_tracefx(jax_array)
    assert fx_array.shape == (3,)
    assert key_implementation(fx_array.dtype) == impl
    np.testing.assert_array_equal(fx.random.key_data(fx_array), jax.random.key_data(jax_array))
    back = as_jax(fx_array)
    assert back.dtype == jax_array.dtype
    np.testing.assert_array_equal(jax.random.key_data(back), jax.random.key_data(jax_array))
    np.testing.assert_array_equal(fx.random.bits(fx_array[1], (3,)), jax.random.bits(back[1], (3,)))


def test_key_data_shares_memory() -> None:
    jax_array = jax.random.split(jax.random.key(0), 64)
    words = address_of(jax.random.key_data(jax_array))
    fx_array = as_tracefx(jax_array)
    assert address_of(to_key_data(to_numpy(fx_array))) == words
    assert address_of(jax.random.key_data(as_jax(fx_array))) == words


def test_conversion_of_pytrees() -> None:
    jax_tree = {"w": jnp.ones((2, 2)), "k": [jax.random.key(1)]}
    fx_tree = jax.tree.map(as_tracefx, jax_tree)
    assert fx.tree.map(lambda x: x.shape, fx_tree) == {"w": (2, 2), "k": [()]}
    back = fx.tree.map(as_jax, fx_tree)
    assert sorted(back) == sorted(jax_tree)
    np.testing.assert_array_equal(back["w"], jax_tree["w"])


def test_float0_tangents_are_numpy_arrays_in_jax() -> None:
    jax_array: Any = jax.grad(lambda n: 2.0, allow_int=True)(3)
    fx_array = as_tracefx(jax_array)
    assert fx_array.dtype == dtypes.float0
    back: Any = as_jax(fx_array)
    assert type(back) is np.ndarray
    assert back.dtype == jax_array.dtype


@pytest.mark.parametrize("dtype", [*NUMERIC_DTYPES, *dtypes.KEY_DTYPES], ids=dtypes.name)
def test_types_roundtrip(dtype: Any) -> None:
    assert dtype_from_jax(dtype_to_jax(dtype)) == dtype
    for weak in (False, True) if dtypes.is_inexact(dtype) else (False,):
        aval = ShapedArray((2, 0), dtype, weak)
        assert type_from_jax(type_to_jax(aval)) == aval


def test_tracers_and_non_arrays_are_rejected() -> None:
    with pytest.raises(TracerArrayConversionError, match="traced by tracefx.*from_jax"):
        fx.make_jaxpr(as_jax)(1.0)
    with pytest.raises(TypeError, match="traced by JAX.*to_jax"):
        jax.make_jaxpr(as_tracefx)(1.0)
    with pytest.raises(TypeError, match="as_tracefx takes an array of JAX, got 2.0 of type float"):
        untyped(as_tracefx)(2.0)
    with pytest.raises(TypeError, match="as_jax: x must be an array or a number, got 'two'"):
        untyped(as_jax)("two")
    with pytest.raises(ValueError, match="float32 is no dtype of random keys"):
        key_implementation(dtypes.float32)
    with pytest.raises(TypeError, match="no array has JAX's type"):
        type_from_jax(jax.core.AbstractValue())


def test_static_types() -> None:
    assert_type(as_jax(1.0), jax.Array)
    assert_type(as_tracefx(jnp.ones(2)), fx.Array)


# ------------------------------------------------------------------ arrays of JAX as arguments

# Annotated as Any: static types accept JAX arrays only through `as_tracefx`.
X: Any = jnp.arange(6.0)
PLACES: Any = jnp.array([1, 3])


@pytest.mark.parametrize(
    "f",
    [
        fnp.sin,
        fx.jit(fnp.sin),
        fx.grad(lambda x: fnp.sin(x).sum()),
        fx.vmap(fnp.sin),
        fx.checkpoint(fnp.sin),
        lambda x: fx.jvp(fnp.sin, (x,), (x,))[1],
        lambda x: fx.vjp(fnp.sin, x)[1](x)[0],
        lambda x: fx.lax.scan(lambda c, a: (c + a, c), 0.0, x)[1],
        lambda x: untyped(fx.lax.cond)(jnp.array(True), fnp.sin, fnp.cos, x),
        lambda x: fnp.arange(6.0)[PLACES] * x[:2],
        lambda x: fnp.zeros(6).at[PLACES].add(x[:2]),
        lambda x: fnp.concatenate([fnp.ones(1), x]),
        lambda x: fnp.ones(6) * x,
        lambda x: x * fnp.ones(6),
    ],
)
def test_functions_accept_jax_arrays(f: Callable[..., Any]) -> None:
    out = f(X)
    assert isinstance(out, fx.Array)
    np.testing.assert_array_equal(out, f(as_tracefx(X)))


def test_jax_arguments_are_not_copied() -> None:
    x: Any = jnp.arange(1000.0)
    for f in (fnp.asarray, fx.jit(lambda x: x), lambda x: fnp.asarray(x, copy=False)):
        assert address_of(f(x)) == address_of(x)
    seen: list[fx.Array] = []

    def squares(x: fx.Array) -> fx.Array:
        seen.append(fx.lax.stop_gradient(x))
        return fnp.sum(x * x)

    assert isinstance(fx.grad(squares)(x), fx.Array)
    assert address_of(seen[0]) == address_of(x)


@pytest.mark.parametrize("dtype", ["float64", "int64", "bfloat16", "int4", "bool"])
def test_jax_arguments_keep_their_dtype(dtype: str) -> None:
    with jax.enable_x64(True):
        x: Any = jnp.ones(3, dtype)
    for f in (fnp.asarray, fnp.array, fx.jit(lambda x: x), lambda x: fnp.concatenate([x, x])):
        assert f(x).dtype == dtype


def test_jax_arguments_keep_their_weak_type() -> None:
    assert fx.make_jaxpr(lambda x: x)(jnp.asarray(2.0)).in_avals == (ShapedArray((), dtypes.float32, True),)


@pytest.mark.parametrize("f", [fnp.sin, fx.jit(fnp.sin), fx.grad(fnp.sin)])
def test_jax_tracer_error_names_the_remedy(f: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"tracefx\.interop\.jax\.to_jax"):
        jax.jit(f)(1.0)
    with pytest.raises(TypeError, match=r"JAX random keys with tracefx\.interop\.jax\.as_tracefx"):
        f(jax.random.key(0))
