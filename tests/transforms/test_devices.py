"""`device_put`, `device_get`, `block_until_ready`, `devices`."""

from __future__ import annotations

import gc
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import Case, assert_agree, assert_same
from tracefx.core import ConcreteArray, float0

X: Final = np.array([0.5, -1.5, 2.0], np.float32)

CASES: Final[dict[str, Case]] = {
    "array": lambda F, N: F.device_put(X),
    "number": lambda F, N: F.device_put(2.0),
    "tree": lambda F, N: F.device_put({"a": X, "b": (1, None)}),
    "narrowed": lambda F, N: F.device_put(X.astype(np.float64)),
    "onto a device": lambda F, N: F.device_put([X], F.devices()[0]),
    "inside jit": lambda F, N: F.jit(lambda x: F.device_put(x * 2))(X),
    "inside grad": lambda F, N: F.grad(lambda x: N.sum(F.device_put(x * x)))(X),
    "inside vmap": lambda F, N: F.vmap(lambda x: F.device_put(x * x))(X),
    "got": lambda F, N: F.device_get([N.asarray(X) * 2, X, 3]),
    "waited for": lambda F, N: F.block_until_ready({"a": F.jit(lambda x: x * 2)(X), "b": 3}),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_jax(name: str) -> None:
    assert_same(CASES[name](fx, fnp), CASES[name](jax, jnp))  # both eagerly: some cases place concrete arrays


def test_local_devices_of_a_host() -> None:
    assert fx.local_devices(host_id=0) == fx.local_devices(None, None, 0) == fx.local_devices(0)


def test_device_put_returns_array_with_device_buffer() -> None:
    x = fx.device_put(X)
    assert isinstance(x, ConcreteArray)
    assert x.buffer is not None
    assert fx.device_put(x) is x


def test_device_put_copies_numpy_memory() -> None:
    for size in (3, 1 << 20):
        source = np.ones(size, np.float32)
        array = fx.device_put(source)
        source[:] = 2
        np.testing.assert_array_equal(np.asarray(array), np.ones(size, np.float32))


def test_device_get_returns_read_only_numpy_arrays() -> None:
    got: Any = fx.device_get({"a": fnp.asarray(X) * 2})
    assert type(got["a"]) is np.ndarray
    with pytest.raises(ValueError, match="read-only"):
        got["a"][0] = 1


def test_devices_lists_cpu_and_rejects_unknown_backends() -> None:
    (device, *_) = fx.devices()
    assert (device.platform, device.id) == ("cpu", 0)
    with pytest.raises((ValueError, RuntimeError), match="abacus"):
        fx.devices("abacus")


class _ForeignArray:
    """An array of another library."""

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        return np.ones(2)


@pytest.mark.parametrize(
    "make",
    [
        lambda N: {"a": N.ones(2), "b": [1, 2.0, None, np.ones(1), "s", True, N.asarray(3)]},
        lambda N: [np.float32(1), np.int8(2)],
        lambda N: "text",
        lambda N: _ForeignArray(),
    ],
)
def test_device_get_agrees_with_jax(make: Any) -> None:
    result, expected = fx.device_get(make(fnp)), jax.device_get(make(jnp))
    assert str(jax.tree.structure(result)) == str(jax.tree.structure(expected))
    for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
        assert type(a) is type(b)
        np.testing.assert_array_equal(a, b)


def test_device_get_passes_keys_and_tracers_through() -> None:
    key = fx.random.key(0)
    assert fx.device_get(key) is key
    assert_agree(lambda F, N: F.jit(lambda x: F.device_get({"x": x}))(1.0))


def test_device_put_donates() -> None:
    for x in (
        fnp.arange(4.0),
        fx.jit(lambda x: x * 1)(fnp.arange(4.0)),
        fx.device_put(np.arange(4.0), fx.devices()[0]),
    ):
        kept = fnp.ones(3)
        y, z = fx.device_put((x, kept), fx.devices()[0], donate=(True, False))
        assert (x.is_deleted(), kept.is_deleted(), z.tolist()) == (True, False, [1.0] * 3)
        assert (y + y).tolist() == [0.0, 2.0, 4.0, 6.0]
        with pytest.raises(fx.errors.DeletedArrayError, match="device_put"):
            _ = x + 1


def test_device_put_copies_on_request() -> None:
    x = fx.device_put(np.arange(4.0), fx.devices()[0])
    assert np.shares_memory(np.asarray(fx.device_put(x, fx.devices()[0], src=fx.devices()[0])), np.asarray(x))
    copy = fx.device_put(x, fx.devices()[0], may_alias=False)
    assert not np.shares_memory(np.asarray(copy), np.asarray(x))
    x.delete()
    assert (copy.committed, copy.tolist()) == (True, [0.0, 1.0, 2.0, 3.0])


def test_device_put_cannot_donate_what_it_shares() -> None:
    for library, x in ((fx, fnp.ones(3)), (jax, jnp.ones(3))):
        with pytest.raises(ValueError, match="may_alias"):
            library.device_put(x, donate=True, may_alias=True)


def test_device_put_returns_float0_unchanged() -> None:
    zero = fx.grad(lambda i: i * 2.0, allow_int=True)(fnp.arange(3)[0])
    assert fx.device_put({"a": zero})["a"].dtype == float0


def test_device_is_the_class_of_devices() -> None:
    assert all(isinstance(device, fx.Device) for device in fx.devices())
    assert isinstance(fx.numpy.ones(2).device, fx.Device)
    assert not any(isinstance(x, fx.Device) for x in ("cpu", None, fx.NamedSharding, jax))


# ------------------------------------------------------------------ live arrays


@pytest.mark.parametrize("lib", [fx, jax])
def test_live_arrays_are_those_that_exist(lib: Any) -> None:
    numpy = fnp if lib is fx else jax.numpy
    arrays = [numpy.zeros(3), lib.jit(lambda x: x + 1)(2.0), lib.device_put(np.ones(2), lib.devices()[0])]
    live = lib.live_arrays("cpu")
    assert all(any(x is y for y in live) for x in arrays)
    assert all(isinstance(x, lib.Array) and not x.is_deleted() for x in live)
    arrays[2].delete()
    assert not any(x is arrays[2] for x in lib.live_arrays())


def test_live_arrays_do_not_include_collected_ones_and_tracers() -> None:
    count = len([x for x in fx.live_arrays() if x.shape == (7, 11, 13)])
    x = fnp.zeros((7, 11, 13))
    assert len([x for x in fx.live_arrays() if x.shape == (7, 11, 13)]) == count + 1
    del x
    gc.collect()
    assert len([x for x in fx.live_arrays() if x.shape == (7, 11, 13)]) == count
    found = []
    fx.make_jaxpr(lambda x: found.append(any(y is x for y in fx.live_arrays())))(1.0)
    assert found == [False]


def test_live_arrays_of_an_unknown_platform() -> None:
    for lib in (fx, jax):
        with pytest.raises(RuntimeError):
            lib.live_arrays("unknown")
    with pytest.raises(fx.errors.PlatformError, match="unknown"):
        fx.live_arrays("unknown")
