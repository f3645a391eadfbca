"""Profiles of the time and the memory that programs take, under the names of `jax.profiler`.

XLA records them. TensorBoard, XProf and Perfetto display a profile of time, pprof one of memory. Operations have the
names of the functions and of the `named_scope`s that they come from.

>>> import os, tempfile
>>> import tracefx as fx
>>> with tempfile.TemporaryDirectory() as folder:
...     with fx.profiler.trace(folder):
...         y = fx.jit(lambda x: x + 1)(2.0).block_until_ready()
...     print(os.listdir(os.path.join(folder, "plugins")))
['profile']
"""

from __future__ import annotations

import functools
import gzip
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, ParamSpec, Self, TypeVar, final

from tracefx.transforms.devices import local_devices
from tracefx.xla.runtime import profiling

P = ParamSpec("P")
R = TypeVar("R")

ProfileOptions: Final = profiling.ProfileOptions
"""What a profile records: an object with attributes such as `host_tracer_level` and `python_tracer_level`."""
ProfileData: Final = profiling.ProfileData
"""The contents of a profile: `ProfileData.from_file(path)` reads a file `*.xplane.pb`. Its `planes` have `lines`, and
these have `events`."""


def start_trace(
    log_dir: str | os.PathLike[str],
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: object | None = None,
) -> None:
    """Starts to record a profile of this process, which `stop_trace` writes. `trace` is the two as a context manager.

    Args:
        log_dir: The folder that the profile is written to, in a subfolder of `plugins/profile`.
        create_perfetto_link: Must be False, the default: no server for https://ui.perfetto.dev is started. The file
            `*.trace.json.gz` of the profile can be opened there.
        create_perfetto_trace: Whether the profile also has a file `perfetto_trace.json.gz`. False by default.
        profiler_options: `ProfileOptions`. None, the default, means XLA's defaults.

    Raises:
        RuntimeError: If a profile is being recorded.
        TypeError: If `profiler_options` has another type.
        NotImplementedError: If `create_perfetto_link` is True.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     start_trace(folder)
    ...     stop_trace()
    """
    if create_perfetto_link:
        raise NotImplementedError(
            "start_trace: create_perfetto_link is not supported; open the file *.trace.json.gz of the profile at "
            "https://ui.perfetto.dev"
        )
    options = ProfileOptions() if profiler_options is None else profiler_options
    if not isinstance(options, ProfileOptions):
        raise TypeError(
            f"start_trace: profiler_options must be ProfileOptions, got {options!r} of type {type(options).__name__}"
        )
    folder = os.fspath(log_dir)
    local_devices()  # starts the client, because its plug-in takes part in the profile
    state = profiling.PROFILER_STATE
    with state.lock:
        if state.session is not None:
            raise RuntimeError(
                f"start_trace: a profile is being recorded for {state.log_dir}, and a process records one at a time: "
                "call stop_trace first"
            )
        state.session = profiling.new_session(options)
        state.log_dir, state.writes_perfetto_trace = folder, create_perfetto_trace


def stop_trace() -> None:
    """Ends the profile that `start_trace` has started, and writes it. See `start_trace` for an example.

    Raises:
        RuntimeError: If no profile is being recorded.

    >>> stop_trace()
    Traceback (most recent call last):
        ...
    RuntimeError: stop_trace: no profile is being recorded; call start_trace first
    """
    state = profiling.PROFILER_STATE
    with state.lock:
        session, state.session = state.session, None
        if session is None:
            raise RuntimeError("stop_trace: no profile is being recorded; call start_trace first")
        session.stop_and_export(state.log_dir)
        if state.writes_perfetto_trace:
            written = Path(state.log_dir).glob("plugins/profile/*/*.trace.json.gz")
            newest = max(written, key=lambda path: path.stat().st_mtime)
            shutil.copy(newest, newest.with_name("perfetto_trace.json.gz"))


@contextmanager
def trace(
    log_dir: str | os.PathLike[str],
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: object | None = None,
) -> Iterator[None]:
    """Records a profile of a `with` block.

    Programs run asynchronously: call `block_until_ready` on the results within the block.

    Args:
        log_dir: The folder that the profile is written to, in a subfolder of `plugins/profile`.
        create_perfetto_link: Must be False, the default, as in `start_trace`.
        create_perfetto_trace: Whether the profile also has a file `perfetto_trace.json.gz`. False by default.
        profiler_options: `ProfileOptions`. None, the default, means XLA's defaults.

    Returns:
        A context manager.

    Raises:
        RuntimeError: If a profile is being recorded.
        TypeError: If `profiler_options` has another type.
        NotImplementedError: If `create_perfetto_link` is True.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, trace(folder):
    ...     pass
    """
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


class TraceAnnotation:
    """A named event in profiles, as a context manager: the Python code of a `with` block.

    Names in compiled programs are those of functions and `named_scope`s.

    Args:
        name: The name.
        **metadata: Numbers and strings that the profile shows with the event.

    >>> with TraceAnnotation("load batch", size=32):
    ...     batch = list(range(32))
    """

    def __init__(self, name: str, **metadata: object) -> None:
        self._event = profiling.new_annotation(name, **metadata)

    def __enter__(self) -> Self:
        self._event.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._event.__exit__(kind, error, traceback)


@final
class StepTraceAnnotation(TraceAnnotation):
    """A step of training in profiles, as a context manager. Profiles summarize the steps.

    Args:
        name: The name of all steps.
        **metadata: Numbers and strings that the profile shows with the step; `step_num` is its number.

    >>> for i in range(2):
    ...     with StepTraceAnnotation("train", step_num=i):
    ...         pass
    """

    def __init__(self, name: str, **metadata: object) -> None:
        super().__init__(name, _r=1, **metadata)  # XLA's mark of a root event


def annotate_function(func: Callable[P, R], name: str | None = None, **decorator_kwargs: object) -> Callable[P, R]:
    """Returns a function whose calls are named events in profiles.

    Args:
        func: The function.
        name: The name of the events. None, the default, means the name of the function.
        **decorator_kwargs: The metadata of the events, as for `TraceAnnotation`.

    Returns:
        A function with the signature of `func`.

    >>> annotate_function(abs, "size")(-2)
    2
    """
    label = getattr(func, "__qualname__", type(func).__name__) if name is None else name

    @functools.wraps(func)
    def annotated(*args: P.args, **kwargs: P.kwargs) -> R:
        with TraceAnnotation(label, **decorator_kwargs):
            return func(*args, **kwargs)

    return annotated


def start_server(port: int, requires_backend: bool = True) -> object:
    """Starts a server from which tools such as XProf request profiles of this process.

    Args:
        port: The port that the server listens on.
        requires_backend: Whether devices are initialized first, so that profiles include them. True by default.

    Returns:
        The server, which runs until `stop_server`.

    Raises:
        ValueError: If a server runs.

    >>> server = start_server(0)
    >>> stop_server()
    """
    if requires_backend:
        local_devices()
    state = profiling.PROFILER_STATE
    with state.lock:
        if state.server is not None:
            raise ValueError("start_server: a server runs, and a process has at most one: call stop_server first")
        state.server = profiling.start_server(port)
        return state.server


def stop_server() -> None:
    """Stops the server that `start_server` has started. See `start_server` for an example.

    Raises:
        ValueError: If no server runs.

    >>> stop_server()
    Traceback (most recent call last):
        ...
    ValueError: stop_server: no server runs; call start_server first
    """
    state = profiling.PROFILER_STATE
    with state.lock:
        if state.server is None:
            raise ValueError("stop_server: no server runs; call start_server first")
        state.server = None


def device_memory_profile(backend: str | None = None) -> bytes:
    """Returns a profile of the memory of devices: the buffers and the compiled programs, with the lines that made them.

    Args:
        backend: The platform, e.g. `"cpu"`. None, the default, means the default platform.

    Returns:
        A profile in the format of pprof, compressed by gzip.

    Raises:
        ValueError: If there is no such platform.

    >>> len(device_memory_profile()) > 0
    True
    """
    return gzip.compress(profiling.device_memory_profile(backend))


def save_device_memory_profile(filename: str | os.PathLike[str], backend: str | None = None) -> None:
    """Writes a profile of the memory of devices, which `pprof` displays.

    Args:
        filename: The file.
        backend: The platform, e.g. `"cpu"`. None, the default, means the default platform.

    Raises:
        ValueError: If there is no such platform.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_device_memory_profile(os.path.join(folder, "memory.prof"))
    ...     print(os.listdir(folder))
    ['memory.prof']
    """
    Path(filename).write_bytes(device_memory_profile(backend))
