"""Placement of arrays: devices, readiness, deletion and release of memory."""

from __future__ import annotations

import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tracefx.errors import ConcretizationError, DeletedArrayError


def on_host() -> fx.Array:
    return fnp.asarray(np.ones((2, 3), np.float32))


def computed() -> fx.Array:
    return fx.jit(lambda: fnp.ones((2, 3)))()


MAKERS = [on_host, computed]


@pytest.mark.parametrize("make", MAKERS)
def test_placement_of_live_arrays(make: Callable[[], fx.Array]) -> None:
    x = make().block_until_ready()
    assert x.is_ready()
    assert not x.is_deleted()
    assert x.on_device_size_in_bytes() == jnp.ones((2, 3)).on_device_size_in_bytes() == 24
    x.copy_to_host_async()
    assert {d.platform for d in x.devices()} == {x.platform()} == {"cpu"}


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + 1,
        lambda x: fx.jit(fnp.sin)(x),
        np.asarray,
        lambda x: x[0],
        fx.grad(fnp.sum),
        lambda x: x.is_ready(),
        fx.jit(lambda x: x),
        fx.jit(lambda x: (x, x + 1)),
        lambda x: x.addressable_data(0),
        lambda x: x.addressable_shards,
    ],
)
def test_use_of_deleted_arrays_raises(make: Callable[[], fx.Array], use: Callable[[Any], object]) -> None:
    x = make()
    x.delete()
    assert x.is_deleted()
    with pytest.raises(DeletedArrayError, match=r"deleted"):
        use(x)
    x.delete()
    assert x.aval == computed().aval


def test_views_outlive_deletion() -> None:
    x = computed()
    view = np.asarray(x)
    x.delete()
    assert view.sum() == 6


def test_deletion_releases_memory() -> None:
    host = np.ones(1000, np.float32)
    x, memory = fnp.asarray(host, copy=False), weakref.ref(host)
    del host
    assert memory() is not None
    x.delete()
    assert memory() is None


def test_donated_arrays_are_deleted() -> None:
    x = computed()
    fx.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted()


@pytest.mark.parametrize("ask", ["is_ready", "is_deleted", "on_device_size_in_bytes", "copy_to_host_async", "delete"])
def test_placement_of_tracers_raises(ask: str) -> None:
    def f(x: fx.Array) -> fx.Array:
        getattr(x, ask)()
        return x

    for transformed in (fx.make_jaxpr(f), fx.grad(f), fx.jit(f)):
        with pytest.raises(ConcretizationError):
            transformed(fnp.float32(1))


def test_copies_of_one_numpy_array_share_memory_while_it_is_unchanged() -> None:
    a = np.arange(2.0**17, dtype=np.float32)
    first, second = fnp.asarray(a), fnp.asarray(a)
    assert np.shares_memory(np.asarray(first), np.asarray(second))
    a[-1] = 0
    third = fnp.asarray(a)
    assert float(first[-1]) == 2.0**17 - 1
    assert float(third[-1]) == 0
    second.delete()
    assert float(first[-1]) == 2.0**17 - 1
    fx.jit(lambda x: x + 1, donate_argnums=0)(third)
    assert np.array_equal(fnp.asarray(a), a)


def weights_three_times(weights: np.ndarray[Any, np.dtype[np.float32]]) -> Callable[[fx.Array], fx.Array]:
    return lambda x: fnp.dot(weights, fnp.dot(weights, fnp.dot(weights, x)))


def looped(weights: np.ndarray[Any, np.dtype[np.float32]]) -> Callable[[fx.Array], fx.Array]:
    f = weights_three_times(weights)
    return lambda x: fx.lax.while_loop(lambda x: fnp.sum(weights @ x) < 0, f, x)


def branched(weights: np.ndarray[Any, np.dtype[np.float32]]) -> Callable[[fx.Array], fx.Array]:
    f = weights_three_times(weights)
    return lambda x: fx.lax.cond(x[0] > 0, f, lambda x: f(x) + 1, x)


RUNS: list[Callable[[Callable[[fx.Array], fx.Array], fx.Array], object]] = [
    lambda f, x: fx.jit(f)(x),
    lambda f, x: fx.jvp(f, (x,), (x,)),
    lambda f, x: fx.make_jaxpr(f)(x),
    lambda f, x: fx.vmap(f)(fnp.stack([x, x])),
    lambda f, x: fx.linearize(f, x),
]


@pytest.mark.parametrize("make", [weights_three_times, looped, branched])
@pytest.mark.parametrize("run", RUNS)
def test_numpy_arrays_that_functions_close_over_are_copied_once(
    make: Callable[[Any], Callable[[fx.Array], fx.Array]], run: Callable[..., object]
) -> None:
    n = 512
    f, x = make(np.full((n, n), 1 / n, np.float32)), fnp.ones(n)
    tracemalloc.start()
    try:
        result = run(f, x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result is not None
    assert peak < 1.9 * 4 * n * n
