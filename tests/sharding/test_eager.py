"""Eager operations on sharded arrays: the values are those of one device."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.cases import parametrize_functions
from tests.comparison import assert_near
from tests.sharding.both import JAX, TRACEFX, Library
from tests.sharding.test_arrays import put
from tests.sharding.test_jit import assert_agrees_with_jax
from tests.sharding.test_meshes import on
from tests.subprocesses import output_of
from tracefx import lax
from tracefx.sharding import SingleDeviceSharding
from tracefx.xla.runtime import executables, multi_device

X: Final = (np.arange(64, dtype=np.float32).reshape(8, 8) - 30) / 16

FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "elementwise": lambda x: fnp.where(x > 0, fnp.sin(x) * 2, -x),
    "with numbers": lambda x: (x + 1, 2.0 * x, x**2, x > 0, -x),
    "sums": lambda x: (x.sum(), x.sum(0), x.mean(1), fnp.max(x), fnp.std(x, 0)),
    "products": lambda x: (x @ x.T, x @ np.ones((8, 3), np.float32), fnp.einsum("ij,kj->ik", x, x)),
    "shapes": lambda x: (x.T, x.reshape(4, 16), x[:, None], fnp.concatenate([x, x]), fnp.stack([x, x], 1)),
    "indices": lambda x: (x[0], x[2:4], x[:, ::2], x[x[:, 0].argsort()], x[np.array([1, 5])], x[..., -1]),
    "updates": lambda x: (x.at[0].set(3.0), x.at[:, 2].add(1.0), lax.dynamic_update_slice(x, x[:2, :2], (3, 3))),
    "sorted": lambda x: (fnp.sort(x, 0), fnp.argsort(-x, 1), fnp.cumsum(x, 0), lax.top_k(x, 2)),
    "decomposed": lambda x: (fnp.linalg.qr(x)[1], fnp.linalg.solve(x @ x.T + 9 * fnp.eye(8), x), fnp.linalg.norm(x)),
    "transformed by Fourier": lambda x: (fnp.fft.fft(x, axis=0).real, fnp.fft.rfft(x, axis=1).imag),
    "converted": lambda x: (x.astype(fnp.bfloat16).astype("float32"), x.astype(int), fnp.isnan(x)),
    "convolved": lambda x: lax.conv(x[None, None], fnp.ones((1, 1, 3, 3)), (1, 1), "SAME"),
    "derivatives": lambda x: fx.grad(lambda x: fnp.sum(fnp.tanh(x @ x)))(x),
    "derivatives forwards": lambda x: fx.jvp(lambda x: fnp.sin(x) @ x, (x,), (x,)),
    "a batch": lambda x: fx.vmap(lambda r: fnp.sum(r) * r)(x),
    "a loop": lambda x: lax.scan(lambda c, r: (c + r, c @ r), fnp.zeros(8), x),
    "a branch": lambda x: lax.cond(x[0, 0] < 0, fnp.sin, fnp.cos, x),
    "a linear solve": lambda x: lax.custom_linear_solve(lambda v: 3 * v, x, lambda _, b: b / 3, lambda _, b: b / 3),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_match_one_device(name: str) -> None:
    f = FUNCTIONS[name]
    got, want = fx.tree.leaves(f(put(TRACEFX, "x", "y", x=X))), fx.tree.leaves(f(fnp.asarray(X)))
    assert len(got) == len(want) > 0
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        assert_near(g, w)


@pytest.mark.parametrize("name", ["elementwise", "sums", "products", "updates", "derivatives"])
def test_results_stay_on_the_device_of_the_operands(name: str) -> None:
    sharding = SingleDeviceSharding(fx.devices()[5])
    got = fx.tree.leaves(FUNCTIONS[name](fx.device_put(X, fx.devices()[5])))
    for g, w in zip(got, fx.tree.leaves(FUNCTIONS[name](fnp.asarray(X))), strict=True):
        assert g.sharding == sharding
        assert_near(g, w)


def elementwise(lib: Library) -> Any:
    x, y = put(lib, "x", x=X), put(lib, "y", x=X)
    return x + 1, x * x, x + y, lib.np.sin(y), x + X


def reductions(lib: Library) -> Any:
    x = put(lib, "x", x=X)
    return lib.np.sum(x), lib.np.sum(x, 0), lib.np.sum(x, 1)


def products(lib: Library) -> Any:
    return lib.np.matmul(put(lib, "x", x=X), X), lib.np.matmul(put(lib, "x", x=X), put(lib, None, "y", x=X))


def shapes(lib: Library) -> Any:
    x = put(lib, "x", x=X)
    return x.T, x.reshape(4, 16), x[:, None]


@parametrize_functions(globals(), "lib")
def test_result_shardings_match_jax(program: Any) -> None:
    assert_agrees_with_jax(program)


def test_keys_and_small_dtypes() -> None:
    keys = fx.random.split(fx.random.key(0), 8)
    want = fx.vmap(lambda k: fx.random.normal(k, (3,)))(keys)
    np.testing.assert_array_equal(fx.vmap(lambda k: fx.random.normal(k, (3,)))(put(TRACEFX, "x", x=keys)), want)
    small = put(TRACEFX, "x", x=fnp.arange(8, dtype=fnp.int4) % 4)
    assert (small + small).tolist() == [0, 2, 4, 6] * 2
    half = put(TRACEFX, "x", x=fnp.asarray(X, fnp.bfloat16))
    np.testing.assert_array_equal((half * 2).astype("float32"), (fnp.asarray(X, fnp.bfloat16) * 2).astype("float32"))


def test_operations_are_compiled_once_per_sharding(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_spmd = multi_device.compile_spmd

    def counting(*args: Any, **kwargs: Any) -> Any:
        compiled.append(kwargs["name"])
        return compile_spmd(*args, **kwargs)

    monkeypatch.setattr(multi_device, "compile_spmd", counting)
    x, y = put(TRACEFX, "x", x=X), put(TRACEFX, "y", x=X)
    for _ in range(3):
        for z in (x, y, put(TRACEFX, "x", x=X)):
            fnp.arctan2(z, z)
    assert compiled == ["atan2"] * 2


def test_sharded_with_uncommitted_operands() -> None:
    for library in (TRACEFX, JAX):
        x = put(library, "x", x=X)
        for other in (X, library.np.asarray(X), library.np.asarray(X) * 1):
            assert (x + other).sharding == (other + x).sharding == on(library, "x")


def committed_to_first(x: np.ndarray) -> fx.Array:
    out: fx.Array = fx.device_put(x, fx.devices()[0])
    return out


COMMITTED: Final[dict[str, Callable[[Any], Any]]] = {
    **FUNCTIONS,
    "plans": lambda x: (fnp.mean(x, axis=1), fnp.divmod(x, 2.0), fnp.linalg.eigh(x @ x.T), fnp.histogram(x)),
    "chains": lambda x: ((x + x) + x, (x + 1.0)[0].sum(), fx.jit(lambda y: y * 2)(x + x) + x),
}


@pytest.mark.parametrize("name", COMMITTED)
def test_results_of_committed_arrays_are_committed(name: str) -> None:
    """The fast path of uncommitted arrays keeps the commitment to the first device."""
    f, first = COMMITTED[name], fx.devices()[0]
    for _ in range(3):  # plans are made at the second call
        got = fx.tree.leaves(f(committed_to_first(X)))
        want = fx.tree.leaves(f(fnp.asarray(X)))
        for x, expected in zip(got, want, strict=True):
            assert (x.committed, x.device, x.aval) == (True, first, expected.aval)
            assert_near(x, expected)


def test_committed_results_can_be_donated_while_numpy_views_them() -> None:
    x = committed_to_first(np.ones((64, 64), np.float32))
    total = x + x
    view = np.asarray(total)
    doubled = fx.jit(lambda y: y * 2, donate_argnums=0)(total)
    assert total.is_deleted()
    assert (float(view.sum()), float(doubled.sum())) == (2.0 * 64 * 64, 4.0 * 64 * 64)
    with pytest.raises(fx.errors.DeletedArrayError):
        _ = total + 1


def test_committed_results_can_be_deleted_copied_and_moved() -> None:
    x = committed_to_first(np.arange(4.0, dtype=np.float32))
    moved = fx.device_put(x + x, fx.devices()[1])
    assert (moved.device, moved.tolist()) == (fx.devices()[1], [0.0, 2.0, 4.0, 6.0])
    total = x + x
    copy = total.copy()
    total.delete()
    assert (total.is_deleted(), copy.committed, copy.tolist()) == (True, True, [0.0, 2.0, 4.0, 6.0])


def test_uncommitted_and_committed_arguments_share_an_executable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A jitted function of arrays that are committed to the first device runs the host's program."""
    jitted = fx.jit(lambda x: x * 3 + 1)
    x = np.arange(3.0, dtype=np.float32)
    assert not jitted(fnp.asarray(x)).committed
    monkeypatch.setattr(multi_device, "compile_spmd", None)
    monkeypatch.setattr(executables, "compile_module", None)
    assert jitted(committed_to_first(x)).committed


def test_error_of_mixed_devices_names_the_arguments() -> None:
    first, second = [fx.device_put(X, device) for device in fx.devices()[:2]]

    def loss(params: dict[str, fx.Array], batch: fx.Array) -> fx.Array:
        return (params["w"] * batch).sum()

    message = r"the argument `params\['w'\]` of loss is on device 0, but the argument `batch` of loss is on device 1"
    with pytest.raises(fx.errors.DeviceMismatchError, match=message) as raised:
        fx.jit(loss)({"w": first}, second)
    assert str(pickle.loads(pickle.dumps(raised.value))).startswith("loss can't run: input 0 is on device 0")
    with pytest.raises(ValueError, match=r"an array of type .*, which <lambda> closes over, is on device 0"):
        fx.jit(lambda x: x + first)(second)


def test_reading_a_committed_array_does_not_import_jax() -> None:
    output = output_of(
        """
        import sys
        import tracefx as fx
        x = fx.device_put(fx.numpy.arange(3.0), fx.devices()[0])
        print((x + x).tolist(), "jax" in sys.modules)
        """
    )
    assert output.split() == ["[0.0,", "2.0,", "4.0]", "False"]
