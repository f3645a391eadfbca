"""Placement of arrays and computations on a device that is not the first CPU device."""

from __future__ import annotations

import pickle
from typing import Any, Final, cast

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.errors import untyped
from tracefx import NamedSharding, P
from tracefx.core import ConcreteArray
from tracefx.core.device import Device
from tracefx.errors import DeletedArrayError
from tracefx.xla.runtime import bindings, buffers
from tracefx.xla.runtime.bindings import MLIR_NAME

X: Final = np.arange(16, dtype=np.float32).reshape(4, 4)


def peer_devices(target: Device) -> list[Device]:
    """Returns all devices of the same platform and process."""
    return [d for d in fx.devices() if d.process_index == target.process_index and d.platform == target.platform]


def test_programs_run_on_the_default_device(target: Device) -> None:
    f = fx.jit(lambda x: fnp.sin(x) @ x.T)
    for given in (X, fnp.asarray(X)):
        out = f(given)
        assert (out.device, out.devices(), out.committed) == (target, {target}, False)
        np.testing.assert_allclose(out, np.sin(X) @ X.T, rtol=1e-2)
    assert f(f(X)).device is target


def test_results_are_on_the_device_of_their_operands(target: Device) -> None:
    x = fx.jit(lambda x: x + 1)(X)
    assert (x * 2).device is target
    assert fnp.sum(x, axis=0).device is target
    assert x[1].device is target
    assert fx.vmap(fnp.sum)(x).device is target
    assert fx.grad(lambda x: fnp.sum(x**2))(x).device is target
    assert fnp.linalg.inv(fnp.eye(3) + fnp.zeros((3, 3))).device is target


def test_committed_arrays_stay_on_their_device(target: Device, host: Device) -> None:
    x = fx.device_put(X, target)
    assert x.committed
    assert (x + 1).committed
    assert fx.jit(lambda x: x * 2)(x).committed
    second = next((d for d in peer_devices(target) if d not in (target, host)), None)
    if second is not None:
        uncommitted = fx.jit(lambda x: x + 1)(X)
        out = fx.device_put(X, second) + uncommitted  # the uncommitted operand follows the committed one
        assert (out.device, out.committed) == (second, True)
        with pytest.raises(ValueError, match="A program runs on one set of devices: move arrays with device_put"):
            fx.device_put(X, second) + x


def test_device_put_without_a_device(target: Device) -> None:
    x = fx.device_put(X)
    assert (x.device, x.committed) == (target, False)
    copied = fx.device_put(x, target)
    assert copied.committed
    assert not x.committed


def test_device_put_round_trip(target: Device, host: Device) -> None:
    x = fx.device_put(X, target)
    back = fx.device_put(x, host)
    assert back.device is host
    assert np.array_equal(back, X)
    assert np.array_equal(fx.device_put(back, target), X)
    assert isinstance(fx.device_get(x), np.ndarray)


def test_default_device_can_be_the_host(target: Device, host: Device) -> None:
    f = fx.jit(lambda x: x + 1)
    on_target = f(X)
    for default in (host, "cpu"):
        with fx.default_device(default):
            out = f(X)
            assert type(out) is ConcreteArray
            assert out.device is host
            assert f(on_target).device is host
            assert f(fx.device_put(X, target)).device is target
            assert fnp.zeros(3).device is host
            assert f(f(f(out))).tolist() == (X + 4).tolist()
    assert f(X).device is target


def test_default_device_contexts_nest(target: Device, host: Device) -> None:
    f = fx.jit(lambda: fnp.ones(3))
    with fx.default_device(host):
        assert f().device is host
        with fx.default_device(target):
            assert f().device is target
            g = fx.jit(lambda x: x * 2)
            ones = f()
            assert g(g(ones)).device is target
        assert f().device is host
        assert g(ones).device is host
        with fx.default_device(None):
            assert f().device is fx.devices()[0]


def test_eager_functions(target: Device, host: Device) -> None:
    x = fnp.asarray(np.linspace(0.1, 1, 7, dtype=np.float32))
    with fx.default_device(host):
        want = fx.scipy.special.digamma(x)
    got = fx.scipy.special.digamma(fx.device_put(np.asarray(x)))
    assert (want.device, got.device) == (host, target)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_default_device_refuses_other_types() -> None:
    with pytest.raises(TypeError, match="takes a device of tracefx.devices\\(\\) or the name of a platform, got 3"):
        untyped(fx.default_device)(3).__enter__()
    with pytest.raises(fx.errors.PlatformError, match="no devices of platform 'nowhere'"):
        fx.default_device("nowhere").__enter__()


def test_host_arrays_are_transferred_once(target: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    captured = fnp.asarray(X)
    f = fx.jit(lambda x: x @ captured)
    want = f(captured).tolist()
    monkeypatch.setattr(buffers, "buffer_from_numpy", lambda *_args, **_: pytest.fail("it was sent again"))
    assert f(captured).tolist() == want
    assert f(f(captured)).device is target
    captured.delete()
    assert captured.is_deleted()


def test_repeated_calls_take_the_fast_path(target: Device, host: Device) -> None:
    """Arrays of the same types on another device, or committed ones, take the slow path."""
    f = fx.jit(lambda x, y: {"sum": x + y})
    x = fx.device_put(X)
    for _ in range(3):
        assert np.array_equal(f(x, x)["sum"], X + X)
    assert (f(x, x)["sum"].device, f(x, x)["sum"].committed) == (target, False)
    put = fx.device_put(X, target)
    assert f(x, put)["sum"].committed
    assert np.array_equal(f(x, X)["sum"], X + X)
    assert np.array_equal(f(x, fnp.asarray(X))["sum"], X + X)
    with fx.default_device(host):
        assert [f(x, x)["sum"].device for _ in range(3)] == [host] * 3
    assert f(x, x)["sum"].device is target
    assert f(x[:2], x[:2])["sum"].shape == (2, 4)
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        f(x, x)


def test_donation(target: Device) -> None:
    f = fx.jit(lambda x: x + 1, donate_argnums=0)
    x = fx.device_put(X + 0, target)
    out = f(x)
    assert x.is_deleted()
    assert out.device is target
    assert np.array_equal(out, X + 1)


def test_reading_printing_pickling(target: Device) -> None:
    x = fx.jit(lambda x: x * 2)(np.arange(3, dtype=np.float32))
    assert repr(x) == "Array([0., 2., 4.], dtype=float32)"
    assert x.tolist() == [0.0, 2.0, 4.0]
    assert float(x[1]) == 2.0
    assert np.array_equal(pickle.loads(pickle.dumps(x)), x)
    assert x.is_ready() or x.block_until_ready() is x
    assert [shard.device for shard in x.addressable_shards] == [target]


def test_arrays_of_other_devices_read_the_same(target: Device) -> None:
    for dtype in ("bool", "int8", "uint32", "bfloat16", "float16", "float8_e4m3fn", "complex64", "int4"):
        want = fnp.asarray(np.array([0, 1, 1, 0]), dtype)
        got = fx.device_put(want, target)
        assert got.dtype == want.dtype
        assert np.array_equal(np.asarray(got), np.asarray(want))
        assert np.array_equal(np.asarray(fx.jit(lambda x: x)(got)), np.asarray(want))


def test_keys(target: Device, host: Device) -> None:
    with fx.default_device(host):
        want = fx.random.normal(fx.random.split(fx.random.key(7))[0], (5,))
    got = fx.jit(lambda key: fx.random.normal(fx.random.split(key)[0], (5,)))(fx.random.key(7))
    assert got.device is target
    np.testing.assert_allclose(got, want, rtol=1e-5)
    copied = fx.device_put(fx.random.key(7), target)
    assert np.array_equal(fx.random.key_data(copied), fx.random.key_data(fx.random.key(7)))


def test_dlpack(target: Device) -> None:
    x = fx.device_put(X, target)
    if target.platform == "cpu":
        assert x.__dlpack_device__() == (1, 0)
        assert np.array_equal(np.from_dlpack(x), X)
    else:
        assert x.__dlpack_device__()[0] in (2, 10)
        imported = fnp.from_dlpack(_Exported(x))
        assert imported.device is target
        assert np.array_equal(imported, X)


class _Exported:
    """An array of another library: it supports only the DLPack protocol."""

    def __init__(self, x: fx.Array) -> None:
        self.x = x

    def __dlpack__(self, *, stream: int | None = None) -> object:
        return self.x.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()


def test_meshes(target: Device) -> None:
    devices = peer_devices(target)
    mesh = fx.make_mesh((len(devices),), ("i",), devices=devices)
    x = fx.device_put(np.arange(4 * len(devices), dtype=np.float32), NamedSharding(mesh, P("i")))
    assert np.array_equal(x * 2, np.arange(4 * len(devices)) * 2)
    total = fx.shard_map(lambda x: fx.lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P())(x)
    assert np.array_equal(total, np.asarray(x).reshape(len(devices), 4).sum(0))
    uncommitted = fx.jit(lambda: fnp.float32(3.0) * fnp.ones(()))()
    assert (x * uncommitted).sharding.device_set == set(devices)


def test_ahead_of_time_compilation(target: Device) -> None:
    compiled = fx.jit(lambda x: x @ x).lower(X).compile()
    out = compiled(X)
    assert out.device is target
    np.testing.assert_allclose(out, X @ X, rtol=1e-2)


def test_callbacks(target: Device) -> None:
    seen: list[float] = []

    @fx.jit
    def f(x: Any) -> fx.Array:
        fx.debug.callback(lambda y: seen.append(float(y)), fnp.sum(x))
        return fx.pure_callback(lambda y: np.asarray(y) * 2, fx.ShapeDtypeStruct((4, 4), np.float32), x)

    assert np.array_equal(f(X), X * 2)
    fx.effects_barrier()
    assert seen == [float(X.sum())]


def test_loops(target: Device) -> None:
    out = fx.jit(lambda x: fx.lax.fori_loop(0, 10, lambda i, x: x + i, x))(X)
    assert np.array_equal(out, X + 45)
    carry, ys = fx.lax.scan(lambda c, x: (c + x, c), fnp.zeros(4), fx.device_put(X))
    assert carry.device is target
    assert np.array_equal(ys, np.cumsum(np.vstack([np.zeros(4), X]), 0)[:-1])


@pytest.mark.parametrize("dtype", list(MLIR_NAME), ids=str)
def test_device_memory_is_copied_to_the_host(dtype: np.dtype[np.generic], host: Device) -> None:
    """Buffers of CPU devices are read in place; those of other devices are copied like this."""
    want = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    buffer = buffers.buffer_from_numpy(want, cast(bindings.Device, host))
    got = buffers.copy_to_host(buffer)
    assert (got.dtype, got.shape, got.flags.writeable) == (dtype, (2, 3), False)
    assert got.tobytes() == want.tobytes()
    buffers.delete_buffer(buffer)
    with pytest.raises(DeletedArrayError):
        buffers.copy_to_host(buffer)
