"""Where arrays lie and programs run, if that is not the host's first device."""

from __future__ import annotations

import pickle
from typing import Any, Final, cast

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tracefx import NamedSharding, P
from tracefx.core.device import Device
from tracefx.core.values import ConcreteArray
from tracefx.xla import runtime
from tracefx.xla.runtime.bindings import MLIR_NAME

X: Final = np.arange(16, dtype=np.float32).reshape(4, 4)


def near(there: Device) -> list[Device]:
    """All devices that go together with one."""
    return [d for d in fx.devices() if d.process_index == there.process_index and d.platform == there.platform]


def test_programs_run_there(there: Device) -> None:
    f = fx.jit(lambda x: fnp.sin(x) @ x.T)
    for given in (X, fnp.asarray(X)):
        out = f(given)
        assert (out.device, out.devices(), out.committed) == (there, {there}, False)
        np.testing.assert_allclose(out, np.sin(X) @ X.T, rtol=1e-2)
    assert f(f(X)).device is there


def test_what_is_computed_of_it_is_computed_there(there: Device) -> None:
    x = fx.jit(lambda x: x + 1)(X)
    assert (x * 2).device is there
    assert fnp.sum(x, axis=0).device is there
    assert x[1].device is there
    assert fx.vmap(fnp.sum)(x).device is there
    assert fx.grad(lambda x: fnp.sum(x**2))(x).device is there
    assert fnp.linalg.inv(fnp.eye(3) + fnp.zeros((3, 3))).device is there


def test_arrays_that_were_put_somewhere_stay(there: Device, host: Device) -> None:
    x = fx.device_put(X, there)
    assert x.committed
    assert (x + 1).committed
    assert fx.jit(lambda x: x * 2)(x).committed
    second = next((d for d in near(there) if d not in (there, host)), None)
    if second is not None:
        loose = fx.jit(lambda x: x + 1)(X)
        out = fx.device_put(X, second) + loose  # which comes along
        assert (out.device, out.committed) == (second, True)
        with pytest.raises(ValueError, match="A program runs on one set of devices: move arrays with device_put"):
            fx.device_put(X, second) + x


def test_without_a_device_they_come_here(there: Device) -> None:
    x = fx.device_put(X)
    assert (x.device, x.committed) == (there, False)
    moved = fx.device_put(x, there)
    assert moved.committed
    assert not x.committed


def test_there_and_back(there: Device, host: Device) -> None:
    x = fx.device_put(X, there)
    back = fx.device_put(x, host)
    assert back.device is host
    assert np.array_equal(back, X)
    assert np.array_equal(fx.device_put(back, there), X)
    assert isinstance(fx.device_get(x), np.ndarray)


def test_the_default_may_be_the_host(there: Device, host: Device) -> None:
    f = fx.jit(lambda x: x + 1)
    elsewhere = f(X)
    for default in (host, "cpu"):
        with fx.default_device(default):
            out = f(X)
            assert type(out) is ConcreteArray
            assert out.device is host
            assert f(elsewhere).device is host
            assert f(fx.device_put(X, there)).device is there
            assert fnp.zeros(3).device is host
    assert f(X).device is there


def test_defaults_nest(there: Device, host: Device) -> None:
    f = fx.jit(lambda: fnp.ones(3))
    with fx.default_device(host):
        assert f().device is host
        with fx.default_device(there):
            assert f().device is there
            g = fx.jit(lambda x: x * 2)
            ones = f()
            assert g(g(ones)).device is there
        assert f().device is host
        assert g(ones).device is host
        with fx.default_device(None):
            assert f().device is fx.devices()[0]


def test_functions_that_are_evaluated_at_once(there: Device, host: Device) -> None:
    x = fnp.asarray(np.linspace(0.1, 1, 7, dtype=np.float32))
    with fx.default_device(host):
        want = fx.scipy.special.digamma(x)
    got = fx.scipy.special.digamma(fx.device_put(np.asarray(x)))
    assert (want.device, got.device) == (host, there)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_what_is_no_device_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a device of tracefx.devices\\(\\) or the name of a platform, got 3"):
        fx.default_device(3).__enter__()  # type: ignore[arg-type]  # which is the test
    with pytest.raises(fx.errors.PlatformError, match="no devices of platform 'nowhere'"):
        fx.default_device("nowhere").__enter__()


def test_what_is_on_the_host_is_sent_there_once(there: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    held = fnp.asarray(X)
    f = fx.jit(lambda x: x @ held)
    want = f(held).tolist()
    monkeypatch.setattr(runtime, "buffer_from_numpy", lambda *_args, **_: pytest.fail("it was sent again"))
    assert f(held).tolist() == want
    assert f(f(held)).device is there
    held.delete()
    assert held.is_deleted()


def test_calls_again_take_the_short_way(there: Device, host: Device) -> None:
    """Of arrays of the same types that lie elsewhere, or are committed, it is not taken."""
    f = fx.jit(lambda x, y: {"sum": x + y})
    x = fx.device_put(X)
    for _ in range(3):
        assert np.array_equal(f(x, x)["sum"], X + X)
    assert (f(x, x)["sum"].device, f(x, x)["sum"].committed) == (there, False)
    put = fx.device_put(X, there)
    assert f(x, put)["sum"].committed
    assert np.array_equal(f(x, X)["sum"], X + X)
    assert np.array_equal(f(x, fnp.asarray(X))["sum"], X + X)
    with fx.default_device(host):
        assert f(x, x)["sum"].device is host
    assert f(x, x)["sum"].device is there
    assert f(x[:2], x[:2])["sum"].shape == (2, 4)
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        f(x, x)


def test_donation(there: Device) -> None:
    f = fx.jit(lambda x: x + 1, donate_argnums=0)
    x = fx.device_put(X + 0, there)
    out = f(x)
    assert x.is_deleted()
    assert out.device is there
    assert np.array_equal(out, X + 1)


def test_reading_printing_pickling(there: Device) -> None:
    x = fx.jit(lambda x: x * 2)(np.arange(3, dtype=np.float32))
    assert repr(x) == "Array([0., 2., 4.], dtype=float32)"
    assert x.tolist() == [0.0, 2.0, 4.0]
    assert float(x[1]) == 2.0
    assert np.array_equal(pickle.loads(pickle.dumps(x)), x)
    assert x.is_ready() or x.block_until_ready() is x
    assert [shard.device for shard in x.addressable_shards] == [there]


def test_arrays_made_elsewhere_read_the_same(there: Device) -> None:
    for dtype in ("bool", "int8", "uint32", "bfloat16", "float16", "float8_e4m3fn", "complex64", "int4"):
        want = fnp.asarray(np.array([0, 1, 1, 0]), dtype)
        got = fx.device_put(want, there)
        assert got.dtype == want.dtype
        assert np.array_equal(np.asarray(got), np.asarray(want))
        assert np.array_equal(np.asarray(fx.jit(lambda x: x)(got)), np.asarray(want))


def test_keys(there: Device, host: Device) -> None:
    with fx.default_device(host):
        want = fx.random.normal(fx.random.split(fx.random.key(7))[0], (5,))
    got = fx.jit(lambda key: fx.random.normal(fx.random.split(key)[0], (5,)))(fx.random.key(7))
    assert got.device is there
    np.testing.assert_allclose(got, want, rtol=1e-5)
    moved = fx.device_put(fx.random.key(7), there)
    assert np.array_equal(fx.random.key_data(moved), fx.random.key_data(fx.random.key(7)))


def test_dlpack(there: Device) -> None:
    x = fx.device_put(X, there)
    if there.platform == "cpu":
        assert x.__dlpack_device__() == (1, 0)
        assert np.array_equal(np.from_dlpack(x), X)
    else:
        assert x.__dlpack_device__()[0] in (2, 10)
        taken = fnp.from_dlpack(_Exported(x))
        assert taken.device is there
        assert np.array_equal(taken, X)


class _Exported:
    """An array of another library, as far as it can be told."""

    def __init__(self, x: fx.Array) -> None:
        self.x = x

    def __dlpack__(self, *, stream: int | None = None) -> object:
        return self.x.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()


def test_meshes_of_them(there: Device) -> None:
    devices = near(there)
    mesh = fx.make_mesh((len(devices),), ("i",), devices=devices)
    x = fx.device_put(np.arange(4 * len(devices), dtype=np.float32), NamedSharding(mesh, P("i")))
    assert np.array_equal(x * 2, np.arange(4 * len(devices)) * 2)
    total = fx.shard_map(lambda x: fx.lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P())(x)
    assert np.array_equal(total, np.asarray(x).reshape(len(devices), 4).sum(0))
    loose = fx.jit(lambda: fnp.float32(3.0) * fnp.ones(()))()
    assert (x * loose).sharding.device_set == set(devices)


def test_lowered_and_compiled_ahead(there: Device) -> None:
    compiled = fx.jit(lambda x: x @ x).lower(X).compile()
    out = compiled(X)
    assert out.device is there
    np.testing.assert_allclose(out, X @ X, rtol=1e-2)


def test_python_is_called_back(there: Device) -> None:
    seen: list[float] = []

    @fx.jit
    def f(x: Any) -> fx.Array:
        fx.debug.callback(lambda y: seen.append(float(y)), fnp.sum(x))
        return fx.pure_callback(lambda y: np.asarray(y) * 2, fx.ShapeDtypeStruct((4, 4), np.float32), x)

    assert np.array_equal(f(X), X * 2)
    fx.effects_barrier()
    assert seen == [float(X.sum())]


def test_loops(there: Device) -> None:
    out = fx.jit(lambda x: fx.lax.fori_loop(0, 10, lambda i, x: x + i, x))(X)
    assert np.array_equal(out, X + 45)
    carry, ys = fx.lax.scan(lambda c, x: (c + x, c), fnp.zeros(4), fx.device_put(X))
    assert carry.device is there
    assert np.array_equal(ys, np.cumsum(np.vstack([np.zeros(4), X]), 0)[:-1])


@pytest.mark.parametrize("dtype", list(MLIR_NAME), ids=str)
def test_memory_that_has_to_be_copied_to_the_host(dtype: np.dtype[np.generic], host: Device) -> None:
    """Of the host's own devices it is read where it lies; that of others, in this way."""
    want = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    buffer = runtime.buffer_from_numpy(want, cast(runtime.Device, host))
    got = runtime.copy_to_host(buffer)
    assert (got.dtype, got.shape, got.flags.writeable) == (dtype, (2, 3), False)
    assert got.tobytes() == want.tobytes()
    runtime.delete_buffer(buffer)
    with pytest.raises(runtime.DeletedBufferError):
        runtime.copy_to_host(buffer)
