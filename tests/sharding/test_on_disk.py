"""Multi-device programs in the compilation cache on disk: later processes with the same devices load them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.lax as fx_lax
import tracefx.numpy as fnp
from tests.sharding.both import TRACEFX
from tests.xla.caching import SPY, files, in_new_process, log_builds
from tracefx import P
from tracefx.core.sharding import ShardingAssignment
from tracefx.serialization.digest import executable_key, value_key
from tracefx.xla import cache_keys
from tracefx.xla import spmd as xla_spread
from tracefx.xla.backend import XlaBackend
from tracefx.xla.cache_keys import spmd_disk_cache_key

X: Final = np.arange(32, dtype=np.float32).reshape(8, 4)


@pytest.fixture(autouse=True)
def _constant_source_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is cached after the source was edited, which may happen while tests run."""
    monkeypatch.setattr(cache_keys, "tracefx_source_digest", lambda: b"rules")


@pytest.fixture
def cache_dir(tmp_path: Path) -> Iterator[Path]:
    """The folder of the compilation cache during the test."""
    with fx.compilation_cache(tmp_path):
        yield tmp_path


@pytest.fixture
def build_log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Logs each lowering and each compilation."""
    return log_builds(monkeypatch, xla_spread, "lower_spmd", "compile_spmd")


def on(*parts: Any) -> Any:
    return fx.NamedSharding(TRACEFX.mesh, P(*parts))


def matmul(x: Any) -> Any:
    return fnp.tanh(x @ x.T) + fnp.linalg.cholesky(fnp.eye(8)), x


def shard_mapped(x: Any) -> Any:
    """A program in `shard_map`."""
    return fx.shard_map(
        lambda x: fx_lax.psum(x, "x") + fx_lax.axis_index("y"), mesh=TRACEFX.mesh, in_specs=P("x"), out_specs=P("y")
    )(x)


def constrained(x: Any) -> Any:
    return fx.lax.with_sharding_constraint(x * 2.0, on("y")) + 1.0


def random(x: Any) -> Any:
    return x + fx.random.normal(fx.random.key(0), x.shape)


PROGRAMS: Final = (matmul, shard_mapped, constrained, random)


def run(f: Any, *parts: Any) -> list[Any]:
    """The outputs of a function, compiled without in-memory caches, as in a new process."""
    jaxpr = fx.make_jaxpr(f)(X).jaxpr
    return list(XlaBackend().compiled(jaxpr, "f", committed=True)([fx.device_put(X, on(*parts))]))


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_compiled_programs_are_loaded(f: Any, cache_dir: Path, build_log: list[str]) -> None:
    first = run(f, "x")
    assert build_log == ["lowered", "compiled"]
    second = run(f, "x")
    assert build_log == ["lowered", "compiled"]
    assert len(files(cache_dir)) == 1
    for a, b in zip(first, second, strict=True):
        assert (a.sharding, a.aval) == (b.sharding, b.aval)
        np.testing.assert_array_equal(a, b)
    run(f, "y")
    assert build_log == ["lowered", "compiled"] * 2


def test_lower_and_compile_use_the_cache(cache_dir: Path, build_log: list[str]) -> None:
    step = fx.jit(matmul, in_shardings=on("x", "y"), out_shardings=(on("y"), None), donate_argnums=0)
    first = step.lower(X).compile()
    second = step.lower(X).compile()
    assert build_log == ["lowered", "compiled", "lowered"]
    assert len(files(cache_dir)) == 1
    assert first.input_shardings == second.input_shardings
    assert first.output_shardings == second.output_shardings
    assert first.collectives() == second.collectives() != ()
    assert first.cost_analysis() == second.cost_analysis()
    assert first.memory_analysis() == second.memory_analysis()
    for a, b in zip(first(X), second(X), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("harm", [b"", b"no executable", None])
def test_damaged_entries_are_recompiled(harm: bytes | None, cache_dir: Path, build_log: list[str]) -> None:
    (want, _) = run(matmul, "x")
    (file,) = files(cache_dir)
    data = file.read_bytes()
    file.write_bytes(data[:-200] + bytes(200) if harm is None else harm)
    (got, _) = run(matmul, "x")
    assert build_log == ["lowered", "compiled"] * 2
    np.testing.assert_array_equal(got, want)
    assert file.read_bytes() != harm


def test_programs_with_callbacks_are_not_cached(cache_dir: Path) -> None:
    def calls(x: Any) -> Any:
        return fx.pure_callback(lambda x: np.asarray(x) + 1, fx.ShapeDtypeStruct(x.shape, x.dtype), x)

    np.testing.assert_array_equal(run(calls, "x")[0], X + 1)
    assert files(cache_dir) == []


def cache_key_of(f: Any, assignment: ShardingAssignment, **options: Any) -> bytes | None:
    return spmd_disk_cache_key(
        fx.make_jaxpr(f)(X).jaxpr, frozenset(), (False, "share"), assignment, ([False], [True]), options
    )


def test_cache_keys_depend_on_program_shardings_and_options() -> None:
    mesh, devices = TRACEFX.mesh, tuple(TRACEFX.mesh.flat)
    other = fx.Mesh(mesh.devices[::-1], mesh.axis_names)
    backwards = fx.NamedSharding(other, P("x"))
    renamed = fx.NamedSharding(fx.Mesh(mesh.devices, ("a", "b")), P("a"))
    names = {
        "plain": cache_key_of(matmul, ShardingAssignment(devices, (on("x"),), (None, None))),
        "program": cache_key_of(constrained, ShardingAssignment(devices, (on("x"),), (None, None))),
        "input": cache_key_of(matmul, ShardingAssignment(devices, (on("y"),), (None, None))),
        "anywhere": cache_key_of(matmul, ShardingAssignment(devices, (None,), (None, None))),
        "output": cache_key_of(matmul, ShardingAssignment(devices, (on("x"),), (on("y"), None))),
        "order": cache_key_of(matmul, ShardingAssignment(other.flat, (backwards,), (None, None))),
        "axes": cache_key_of(matmul, ShardingAssignment(devices, (renamed,), (None, None))),
        "option": cache_key_of(
            matmul, ShardingAssignment(devices, (on("x"),), (None, None)), xla_cpu_enable_fast_math=True
        ),
    }
    assert cache_key_of(matmul, ShardingAssignment(devices, (on("x"),), (None, None))) == names["plain"]
    assert None not in names.values()
    assert len(set(names.values())) == len(names)


class RemoteDevice:
    """A device of another process."""

    id, platform, device_kind, process_index = 1, "cpu", "cpu", 1


def test_programs_without_cache_keys() -> None:
    first = fx.devices()[0]
    assert cache_key_of(matmul, ShardingAssignment((first, RemoteDevice()), (None,), (None, None))) is None
    unconstrained = ShardingAssignment(
        tuple(TRACEFX.mesh.flat), (on("x"),), (fx.NamedSharding(TRACEFX.mesh, P(P.UNCONSTRAINED)), None)
    )
    assert cache_key_of(matmul, unconstrained) is None


def test_meshes_and_devices_have_keys() -> None:
    """Meshes and devices are parameters of programs, so they need cache keys."""
    mesh = TRACEFX.mesh
    keys = [
        value_key(value)
        for value in (mesh, fx.Mesh(mesh.devices, ("y", "x")), fx.Mesh(mesh.devices[::-1], ("x", "y")), mesh.flat[0])
    ]
    assert None not in keys
    assert len(set(keys)) == 4
    assert value_key(TRACEFX.mesh_of((4, 2), ("x", "y"))) == keys[0]
    programs = [fx.make_jaxpr(shard_mapped)(X).jaxpr for _ in "12"]
    assert executable_key(programs[0]) == executable_key(programs[1]) is not None


def test_programs_on_another_single_device_are_cached(cache_dir: Path, build_log: list[str]) -> None:
    for _ in "12":
        jaxpr = fx.make_jaxpr(lambda x: fnp.sin(x) * 2)(X).jaxpr
        (out,) = XlaBackend().compiled(jaxpr, "f", committed=True)([fx.device_put(X, fx.devices()[3])])
        assert out.devices() == {fx.devices()[3]}
    assert build_log == ["lowered", "compiled"]


SECOND_PROCESS: Final = (
    SPY
    + """
    spy(spmd, "lower_spmd")
    spy(multi_device, "compile_spmd")
    mesh = fx.make_mesh((2, 2), ("data", "model"))
    on = lambda *parts: fx.NamedSharding(mesh, fx.P(*parts))

    @fx.jit
    def step(w, x):
        value, g = fx.value_and_grad(lambda w: fnp.sum(fnp.tanh(x @ w) ** 2))(w)
        return value, w - 0.1 * g

    w = fx.device_put(np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4), on(None, "model"))
    x = fx.device_put(np.linspace(0, 1, 32, dtype=np.float32).reshape(4, 8), on("data"))
    value, w = step(w, x)
    print(done, value, w.sharding, np.asarray(w).tobytes().hex())
"""
)


def test_second_process_neither_lowers_nor_compiles(tmp_path: Path) -> None:
    flags = "--xla_force_host_platform_device_count=4"
    environment = {"TRACEFX_COMPILATION_CACHE_DIR": str(tmp_path), "XLA_FLAGS": flags}
    outputs = [in_new_process(SECOND_PROCESS, **environment).communicate()[0] for _ in "12"]
    assert outputs[0].startswith("['lower_spmd', 'compile_spmd'] ")
    assert outputs[1] == "[]" + outputs[0].removeprefix("['lower_spmd', 'compile_spmd']")
    assert len(files(tmp_path)) == 1
