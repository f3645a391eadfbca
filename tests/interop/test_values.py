"""Arrays, random keys and types go from JAX to tracefx and back, and share their memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.host_memory import aligned_empty
from tracefx.core.key_data import to_key_data
from tracefx.core.values import ConcreteArray, to_numpy
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

NUMBERS = tuple([d for d in dtypes.ALL_DTYPES if d != dtypes.float0])
WHOLE_BYTES = tuple([d for d in NUMBERS if dtypes.itemsize_bits(d) >= 8])
IMPLEMENTATIONS = ("threefry2x32", "rbg", "unsafe_rbg")


def ones(dtype: Any, *shape: int) -> fx.Array:
    """An array in memory that XLA can use as it lies."""
    host = aligned_empty(shape, dtype)
    host[...] = np.ones(shape, dtype)
    host.flags.writeable = False
    return ConcreteArray(ShapedArray(shape, dtype), host)


def where(x: Any) -> int:
    """The address of an array's numbers in host memory."""
    if isinstance(x, jax.Array):
        return int(x.unsafe_buffer_pointer())
    address: int = np.asarray(x).__array_interface__["data"][0]
    return address


def same_bytes(ours: fx.Array, theirs: jax.Array) -> None:
    assert (ours.shape, ours.dtype, ours.weak_type) == (theirs.shape, theirs.dtype, theirs.aval.weak_type)
    assert ours.tobytes() == np.asarray(theirs).tobytes()


@pytest.mark.parametrize("dtype", NUMBERS, ids=dtypes.name)
def test_every_dtype_goes_both_ways(dtype: Any) -> None:
    ours = ones(dtype, 2, 3)
    theirs = as_jax(ours)
    same_bytes(ours, theirs)
    back = as_tracefx(theirs)
    same_bytes(back, theirs)
    if dtype in WHOLE_BYTES:
        assert where(theirs) == where(ours) == where(back)
    assert as_jax(ones(dtype, 0, 2)).shape == as_tracefx(as_jax(ones(dtype, 0, 2))).shape == (0, 2)


def test_results_of_programs_are_shared() -> None:
    ours = fx.jit(lambda x: x + 1)(fnp.arange(1000.0))
    assert where(as_jax(ours)) == where(ours)
    theirs = jnp.arange(1000.0) + 1
    assert where(as_tracefx(theirs)) == where(theirs)


def test_shared_memory_outlives_the_array_it_comes_from() -> None:
    ours = as_tracefx(jnp.arange(1000.0) + 1)
    theirs = as_jax(fx.jit(lambda x: x + 2)(fnp.arange(1000.0)))
    [jnp.full(1000, 7.0) for _ in range(8)]  # memory that is free is used again
    assert ours[-1] == 1000
    assert theirs[-1] == 1001


def test_jax_does_not_write_to_what_it_was_given() -> None:
    ours = ones(dtypes.float32, 1000)
    theirs = as_jax(ours)
    out = jax.jit(lambda x: x * 3, donate_argnums=0)(theirs)
    assert out[0] == 3
    assert fnp.all(ours == 1)


@pytest.mark.parametrize("x", [1.5, 2, fnp.float32(3), np.ones((2, 2), np.float32)])
def test_numbers_become_arrays_of_jax(x: Any) -> None:
    same_bytes(fnp.asarray(x), as_jax(x))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "complex64", "float64"])
def test_weak_types_stay_weak(dtype: str) -> None:
    weak = ConcreteArray(ShapedArray((2,), np.dtype(dtype), weak_type=True), np.ones(2, dtype))
    theirs = as_jax(weak)
    same_bytes(weak, theirs)
    same_bytes(as_tracefx(theirs), theirs)
    assert type_from_jax(jax.typeof(theirs)) == weak.aval


def test_scalars_of_jax_are_weak_here() -> None:
    assert as_tracefx(jnp.asarray(2.0)).weak_type
    assert not as_tracefx(jnp.asarray(True)).weak_type


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_keys_go_both_ways(impl: str) -> None:
    theirs = jax.random.split(jax.random.key(7, impl=impl), 3)
    ours = as_tracefx(theirs)
    assert ours.shape == (3,)
    assert key_implementation(ours.dtype) == impl
    np.testing.assert_array_equal(fx.random.key_data(ours), jax.random.key_data(theirs))
    back = as_jax(ours)
    assert back.dtype == theirs.dtype
    np.testing.assert_array_equal(jax.random.key_data(back), jax.random.key_data(theirs))
    np.testing.assert_array_equal(fx.random.bits(ours[1], (3,)), jax.random.bits(back[1], (3,)))


def test_words_of_keys_are_shared() -> None:
    theirs = jax.random.split(jax.random.key(0), 64)
    words = where(jax.random.key_data(theirs))
    ours = as_tracefx(theirs)
    assert where(to_key_data(to_numpy(ours))) == words
    assert where(jax.random.key_data(as_jax(ours))) == words


def test_trees_go_by_the_map_of_the_side_they_come_from() -> None:
    theirs = {"w": jnp.ones((2, 2)), "k": [jax.random.key(1)]}
    ours = jax.tree.map(as_tracefx, theirs)
    assert fx.tree.map(lambda x: x.shape, ours) == {"w": (2, 2), "k": [()]}
    back = fx.tree.map(as_jax, ours)
    assert sorted(back) == sorted(theirs)
    np.testing.assert_array_equal(back["w"], theirs["w"])


def test_tangents_of_integers_are_numpys_there() -> None:
    theirs: Any = jax.grad(lambda n: 2.0, allow_int=True)(3)
    ours = as_tracefx(theirs)
    assert ours.dtype == dtypes.float0
    back: Any = as_jax(ours)
    assert type(back) is np.ndarray
    assert back.dtype == theirs.dtype


@pytest.mark.parametrize("dtype", [*NUMBERS, *dtypes.KEY_DTYPES], ids=dtypes.name)
def test_types_go_both_ways(dtype: Any) -> None:
    assert dtype_from_jax(dtype_to_jax(dtype)) == dtype
    for weak in (False, True) if dtypes.is_inexact(dtype) else (False,):
        aval = ShapedArray((2, 0), dtype, weak)
        assert type_from_jax(type_to_jax(aval)) == aval


def test_what_is_traced_or_no_array_is_refused() -> None:
    with pytest.raises(TracerArrayConversionError, match="traced by tracefx.*from_jax"):
        fx.make_jaxpr(as_jax)(1.0)
    with pytest.raises(TypeError, match="traced by JAX.*to_jax"):
        jax.make_jaxpr(as_tracefx)(1.0)
    with pytest.raises(TypeError, match="as_tracefx takes an array of JAX, got 2.0 of type float"):
        as_tracefx(2.0)  # type: ignore[arg-type]  # the error is tested
    with pytest.raises(TypeError, match="as_jax: x must be an array or a number, got 'two'"):
        as_jax("two")  # type: ignore[arg-type]  # the error is tested
    with pytest.raises(ValueError, match="float32 is no dtype of random keys"):
        key_implementation(dtypes.float32)
    with pytest.raises(TypeError, match="no array has JAX's type"):
        type_from_jax(jax.core.AbstractValue())


def test_types_of_the_functions() -> None:
    assert_type(as_jax(1.0), jax.Array)
    assert_type(as_tracefx(jnp.ones(2)), fx.Array)


# ------------------------------------------------------------------ arrays of JAX as arguments

# Type checkers take arrays of JAX through `as_tracefx` alone.
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
        lambda x: fx.lax.cond(jnp.array(True), fnp.sin, fnp.cos, x),
        lambda x: fnp.arange(6.0)[PLACES] * x[:2],
        lambda x: fnp.zeros(6).at[PLACES].add(x[:2]),
        lambda x: fnp.concatenate([fnp.ones(1), x]),
        lambda x: fnp.ones(6) * x,
        lambda x: x * fnp.ones(6),
    ],
)
def test_functions_take_arrays_of_jax(f: Callable[..., Any]) -> None:
    out = f(X)
    assert isinstance(out, fx.Array)
    np.testing.assert_array_equal(out, f(as_tracefx(X)))


def test_an_argument_is_not_copied() -> None:
    x: Any = jnp.arange(1000.0)
    for f in (fnp.asarray, fx.jit(lambda x: x), lambda x: fnp.asarray(x, copy=False)):
        assert where(f(x)) == where(x)
    seen: list[fx.Array] = []

    def kept(x: fx.Array) -> fx.Array:
        seen.append(fx.lax.stop_gradient(x))
        return fnp.sum(x * x)

    assert isinstance(fx.grad(kept)(x), fx.Array)
    assert where(seen[0]) == where(x)


@pytest.mark.parametrize("dtype", ["float64", "int64", "bfloat16", "int4", "bool"])
def test_an_argument_keeps_its_dtype(dtype: str) -> None:
    with jax.enable_x64(True):
        x: Any = jnp.ones(3, dtype)
    for f in (fnp.asarray, fnp.array, fx.jit(lambda x: x), lambda x: fnp.concatenate([x, x])):
        assert f(x).dtype == dtype


def test_an_argument_keeps_its_weak_type() -> None:
    assert fx.make_jaxpr(lambda x: x)(jnp.asarray(2.0)).in_avals == (ShapedArray((), dtypes.float32, True),)


@pytest.mark.parametrize("f", [fnp.sin, fx.jit(fnp.sin), fx.grad(fnp.sin)])
def test_a_tracer_of_jax_is_refused_with_a_remedy(f: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"tracefx\.interop\.jax\.to_jax"):
        jax.jit(f)(1.0)
    with pytest.raises(TypeError, match=r"JAX random keys with tracefx\.interop\.jax\.as_tracefx"):
        f(jax.random.key(0))
