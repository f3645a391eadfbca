"""`tracefx.profiler`: profiles of time and memory, annotations, the server; and the log of compilations."""

from __future__ import annotations

import gzip
import inspect
import json
import logging
import textwrap
from pathlib import Path
from types import ModuleType

import jax
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.errors import untyped
from tests.subprocesses import run_python
from tracefx import profiler
from tracefx.errors import PlatformError


def events(folder: Path, file: str) -> list[dict[str, object]]:
    """Returns the events of the profile in a folder."""
    (path,) = folder.glob(f"plugins/profile/*/{file}")
    found: list[dict[str, object]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return found


def test_a_profile_has_annotations_and_programs(tmp_path: Path) -> None:
    annotated = profiler.annotate_function(lambda x: x, "reading", rows=4)

    def profiled_function(x: fx.Array) -> fx.Array:
        return fnp.sin(x) @ x

    with profiler.trace(tmp_path, create_perfetto_trace=True):
        with profiler.TraceAnnotation("loading", size=32), profiler.StepTraceAnnotation("training", step_num=7):
            fx.jit(profiled_function)(fnp.ones((8, 8))).block_until_ready()
        assert annotated(5) == 5
    found = events(tmp_path, "*.trace.json.gz")
    by_name = {str(event.get("name")): event for event in found}
    assert by_name["loading"]["args"] == {"size": "32"}
    assert by_name["training"]["args"] == {"step_num": "7"}
    assert by_name["reading"]["args"] == {"rows": "4"}
    assert any("profiled_function" in json.dumps(event) for event in found)
    assert events(tmp_path, "perfetto_trace.json.gz") == found
    (data,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    assert data.stat().st_size > 0


def test_one_profile_at_a_time(tmp_path: Path) -> None:
    with (
        profiler.trace(tmp_path),
        pytest.raises(RuntimeError, match=rf"recorded for {tmp_path}.*call stop_trace first"),
    ):
        profiler.start_trace(tmp_path)
    with pytest.raises(RuntimeError, match="no profile is being recorded; call start_trace first"):
        profiler.stop_trace()
    with pytest.raises(ZeroDivisionError), profiler.trace(tmp_path):
        _ = 1 // 0
    with profiler.trace(tmp_path):  # the error has ended the profile before
        pass


def test_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="profiler_options must be ProfileOptions, got 3 of type int"):
        profiler.start_trace(tmp_path, profiler_options=3)
    with pytest.raises(NotImplementedError, match="create_perfetto_link is not supported"):
        profiler.start_trace(tmp_path, create_perfetto_link=True)
    with pytest.raises(TypeError, match="NoneType"):
        untyped(profiler.start_trace)(None)
    with profiler.trace(tmp_path, profiler_options=profiler.ProfileOptions()):
        pass


def test_annotations_outside_of_profiles_do_nothing() -> None:
    class Loader:
        @profiler.annotate_function
        def batch(self, size: int) -> list[int]:
            """Returns a batch."""
            return list(range(size))

    assert Loader().batch(2) == [0, 1]
    assert Loader.batch.__doc__ == "Returns a batch."
    with pytest.raises(ZeroDivisionError), profiler.TraceAnnotation("failing"):
        _ = 1 // 0


def test_the_server_starts_once() -> None:
    profiler.start_server(0)
    try:
        with pytest.raises(ValueError, match="call stop_server first"):
            profiler.start_server(0)
    finally:
        profiler.stop_server()
    with pytest.raises(ValueError, match="no server runs"):
        profiler.stop_server()


def test_the_memory_profile_contains_buffers(tmp_path: Path) -> None:
    x = fx.jit(lambda x: x + 1)(fnp.ones((123, 4))).block_until_ready()
    profiler.save_device_memory_profile(tmp_path / "memory.prof")
    profile = gzip.decompress((tmp_path / "memory.prof").read_bytes())
    assert b"buffer" in profile
    assert b"cpu" in profile.lower()
    assert x.shape == (123, 4)
    assert b"buffer" in gzip.decompress(profiler.device_memory_profile("cpu"))
    with pytest.raises(PlatformError, match="there are no devices of platform 'abacus'"):
        profiler.device_memory_profile("abacus")


@pytest.mark.parametrize(
    "name", ["annotate_function", "start_trace", "stop_trace", "trace", "start_server", "stop_server"]
)
def test_parameters_have_the_names_of_jax(name: str) -> None:
    def parameters(module: ModuleType) -> list[str]:
        return list(inspect.signature(getattr(module, name)).parameters)

    assert parameters(profiler) == parameters(jax.profiler)


# ------------------------------------------------------------------------------------------------ log_compiles


def test_compilations_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    @fx.jit
    def logged(x: fx.Array) -> fx.Array:
        return 3.25 * x

    with caplog.at_level(logging.WARNING, "tracefx"):
        logged(fnp.ones(2))
        with fx.log_compiles():
            for n in (2, 5, 5, 6):
                logged(fnp.ones(n))
    messages = [record.getMessage() for record in caplog.records]
    assert [message.partition(": compiled in")[0] for message in messages] == ["logged(f32[5])", "logged(f32[6])"]


def test_loading_from_the_cache_is_logged(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import tracefx as fx
        def scaled(x):
            return 3.75 * x
        fx.jit(scaled)(2.0)
    """)
    environment = {"TRACEFX_LOG_COMPILES": "1", "TRACEFX_COMPILATION_CACHE_DIR": str(tmp_path)}
    first, second = [run_python("-c", program, **environment).stderr for _ in range(2)]
    assert first.startswith("scaled(f32[]): compiled in ")
    assert second.startswith("scaled(f32[]): loaded from the compilation cache in ")
