"""Callbacks in multi-device programs: ordered callbacks, and callbacks on whole arrays or on shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from jax.experimental import io_callback as jax_io_callback

import tracefx as fx
from tests.sharding.both import JAX, TRACEFX, Library
from tests.sharding.test_arrays import put
from tests.sharding.test_meshes import on
from tracefx import P

X: Final = np.arange(32, dtype=np.float32).reshape(8, 4)
Log = list[Any]


def io_callback(library: Library, *args: Any, **options: Any) -> Any:
    return fx.io_callback(*args, **options) if library is TRACEFX else jax_io_callback(*args, **options)


def run_logged(library: Library, f: Callable[[Library, Log, Any], Any], *parts: Any) -> tuple[Log, Any]:
    """Runs a program on an array sharded by `P(*parts)`. Returns what its callbacks logged, and its result."""
    log: Log = []
    out = library.m.jit(lambda x: f(library, log, x))(put(library, *parts, x=X))
    library.m.block_until_ready(out)
    library.m.effects_barrier()
    return log, out


# ------------------------------------------------------------------ ordered callbacks


def sequence(library: Library, log: Log, x: Any) -> Any:
    for k in range(4):
        io_callback(library, lambda a, k=k: log.append((k, a.shape)), None, x[: k + 1], ordered=True)
    return x + 1


def uneven_slices(library: Library, log: Log, x: Any) -> Any:
    """Not all of these slices can be divided into as many equal shards as the array."""
    for n in (6, 8, 3):
        io_callback(library, lambda a: log.append(np.asarray(a).tolist()), None, x[:n], ordered=True)
    return x


def in_a_loop(library: Library, log: Log, x: Any) -> Any:
    def body(i: Any, c: Any) -> Any:
        io_callback(library, lambda i, a: log.append((int(i), a.shape, float(a[1, 1]))), None, i, c, ordered=True)
        return c * 2

    return library.lax.fori_loop(0, 3, body, x)


def in_a_branch(library: Library, log: Log, x: Any) -> Any:
    def logged(x: Any) -> Any:
        io_callback(library, lambda a: log.append(float(a)), None, x.sum(), ordered=True)
        return x + 1

    y = library.lax.cond(x.sum() > 3, logged, lambda x: x, x)
    return library.lax.cond(y.sum() < 3, logged, lambda x: x, y)


def in_a_call(library: Library, log: Log, x: Any) -> Any:
    inner = library.m.jit(lambda x: in_a_loop(library, log, x))
    return inner(inner(x))


def with_results(library: Library, log: Log, x: Any) -> Any:
    def f(a: Any) -> Any:
        log.append(a.shape)
        return np.asarray(a) * 2, np.asarray(a).sum(dtype=np.float32)

    whole = library.m.ShapeDtypeStruct(X.shape, np.float32)
    total = library.m.ShapeDtypeStruct((), np.float32)
    y, s = io_callback(library, f, (whole, total), x, ordered=True)
    z, t = io_callback(library, f, (whole, total), y, ordered=True)
    return z + s + t


ORDERED_PROGRAMS: Final = (sequence, uneven_slices, in_a_loop, in_a_branch, in_a_call, with_results)


@pytest.mark.parametrize("f", ORDERED_PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("parts", [("x",), ("x", "y"), ()], ids=str)
def test_ordered_callbacks_match_jax(f: Any, parts: Any) -> None:
    (actual, y), (expected, z) = run_logged(TRACEFX, f, *parts), run_logged(JAX, f, *parts)
    assert actual == expected != []
    np.testing.assert_array_equal(y, z)


def test_ordered_debug_callbacks(capfd: pytest.CaptureFixture[str]) -> None:
    """JAX raises an error for ordered debug effects on several devices."""

    def f(library: Library, log: Log, x: Any) -> Any:
        library.m.debug.callback(lambda a: log.append(a.shape), x, ordered=True)
        for k in range(5):
            library.m.debug.print("{}: {}", k, x[k, 0], ordered=True)
        return x

    log, _ = run_logged(TRACEFX, f, "x")
    assert log == [X.shape]
    assert capfd.readouterr().out.split("\n") == ["0: 0.0", "1: 4.0", "2: 8.0", "3: 12.0", "4: 16.0", ""]
    with pytest.raises(ValueError, match="not supported for more than 1 device"):
        run_logged(JAX, f, "x")


def test_error_in_an_ordered_callback() -> None:
    error = KeyError("no such thing")

    def fail(a: Any) -> None:
        raise error

    def f(x: Any) -> Any:
        fx.io_callback(lambda a: None, None, x, ordered=True)
        fx.io_callback(fail, None, x, ordered=True)
        return x @ x.T

    for _ in range(2):
        with pytest.raises(KeyError) as caught:
            fx.jit(f)(put(TRACEFX, "x", x=X))
        assert caught.value is error


def test_ordered_callbacks_in_shard_map_are_ordered_per_device() -> None:
    def f(library: Library, log: Log, x: Any) -> Any:
        def each(x: Any) -> Any:
            device_index = library.lax.axis_index("x") * 2 + library.lax.axis_index("y")
            for k in range(3):
                io_callback(
                    library, lambda d, a, k=k: log.append((int(d), k, a.shape)), None, device_index, x, ordered=True
                )
            return x + 1

        return library.shard_map(each, library.P("x"), library.P("x"))(x)

    for library in (TRACEFX, JAX):
        log, y = run_logged(library, f, "x")
        for device in range(8):
            assert [entry[1:] for entry in log if entry[0] == device] == [(k, (2, 4)) for k in range(3)]
        np.testing.assert_array_equal(y, X + 1)


def test_ordered_callbacks_around_shard_map() -> None:
    """The callbacks of the first device are ordered with those before and after the `shard_map`."""

    def f(library: Library, log: Log, x: Any) -> Any:
        def each(x: Any) -> Any:
            device_index = library.lax.axis_index("x") * 2 + library.lax.axis_index("y")
            io_callback(library, lambda d: log.append(f"device {d}"), None, device_index, ordered=True)
            return x + 1

        io_callback(library, lambda a: log.append("before"), None, x, ordered=True)
        y = library.shard_map(each, library.P("x"), library.P("x"))(x)
        io_callback(library, lambda a: log.append("after"), None, y, ordered=True)
        return y

    log, _ = run_logged(TRACEFX, f, "x")
    first = [entry for entry in log if entry in ("before", "device 0", "after")]
    assert first == ["before", "device 0", "after"]
    assert Counter(log) == Counter(["before", "after", *[f"device {k}" for k in range(8)]])


# ------------------------------------------------------------------ callbacks on shards


@pytest.mark.parametrize("parts", [("x",), ("y",), ("x", "y"), (None, ("x", "y"))], ids=str)
def test_partitioned_callbacks_get_shards(parts: Any) -> None:
    if parts == (None, ("x", "y")):
        wide = np.arange(64, dtype=np.float32).reshape(8, 8)
    else:
        wide = X

    def logged(library: Library) -> Any:
        log: Log = []

        def f(x: Any) -> Any:
            library.m.debug.callback(lambda a: log.append(np.asarray(a).tolist()), x, partitioned=True)
            return x + 1

        library.m.block_until_ready(library.m.jit(f)(put(library, *parts, x=wide)))
        library.m.effects_barrier()
        return sorted(log)

    shards = sorted([np.asarray(s.data).tolist() for s in put(TRACEFX, *parts, x=wide).addressable_shards])
    assert logged(TRACEFX) == logged(JAX) == shards


def test_partitioned_callbacks_with_several_arrays_and_keys(capfd: pytest.CaptureFixture[str]) -> None:
    log: Log = []

    @fx.jit
    def f(x: Any, k: Any) -> Any:
        fx.debug.callback(lambda *xs: log.append([a.shape for a in xs]), x, x[0], k, 2.0, partitioned=True)
        fx.debug.print("{}", x.shape, partitioned=True)
        fx.debug.print("{}", x[:, 0] * 0, partitioned=True)
        return x * 2

    keys = put(TRACEFX, "x", x=fx.random.split(fx.random.key(0), 8))
    np.testing.assert_array_equal(f(put(TRACEFX, "x", "y", x=X), keys), X * 2)
    assert len(log) == 8
    assert all(shapes[2:] == [(2,), ()] and shapes[0] == (2, 2) for shapes in log)
    assert capfd.readouterr().out.count("[0. 0.]\n") == 8


def test_partitioned_callbacks_on_whole_arrays() -> None:
    """On one device, if ordered, and under `vmap`, a partitioned callback gets the whole array."""
    log: Log = []

    def f(x: Any) -> Any:
        fx.debug.callback(lambda a: log.append(a.shape), x, partitioned=True)
        return x

    fx.jit(f)(X)
    f(X)
    fx.jit(fx.vmap(f))(put(TRACEFX, "x", x=X))
    assert log == [(8, 4)] * 2 + [(4,)] * 8
    log.clear()

    @fx.jit
    def ordered(x: Any) -> Any:
        fx.debug.callback(lambda a: log.append(a.shape), x, partitioned=True, ordered=True)
        return x

    ordered(put(TRACEFX, "x", x=X))
    assert log == [(8, 4)]


def test_error_in_a_partitioned_callback() -> None:
    def fail(a: Any) -> None:
        if a[0, 0] == 16:
            raise KeyError("sixteen")

    @fx.jit
    def f(x: Any) -> Any:
        fx.debug.callback(fail, x, partitioned=True)
        return x @ x.T

    with pytest.raises(KeyError, match="sixteen"):
        f(put(TRACEFX, "x", x=X))


def test_effects_with_automatic_axes_are_rejected() -> None:
    def logged(x: Any) -> Any:
        fx.debug.callback(lambda a: None, x)
        return x

    f = fx.shard_map(logged, mesh=TRACEFX.mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    with pytest.raises(NotImplementedError, match=r"that leaves the axes \['y'\] of the mesh to the compiler"):
        fx.jit(f)(X)

    def pure(x: Any) -> Any:
        return fx.pure_callback(lambda a: np.asarray(a) * 2, fx.ShapeDtypeStruct(x.shape, x.dtype), x)

    g = fx.shard_map(pure, mesh=TRACEFX.mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    np.testing.assert_array_equal(fx.jit(g)(X), X * 2)


def test_programs_with_callbacks_use_out_shardings() -> None:
    def f(x: Any) -> Any:
        fx.io_callback(lambda a: None, None, x, ordered=True)
        return x * 2

    assert fx.jit(f, out_shardings=on(TRACEFX, "y"))(put(TRACEFX, "x", x=X)).sharding == on(TRACEFX, "y")
