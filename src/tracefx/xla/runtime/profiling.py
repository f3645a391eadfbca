"""XLA's profiler: sessions, annotations, the server, and snapshots of device memory."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Final, Protocol, final

from attrs import define, field

from tracefx.jaxlib_support import import_jaxlib
from tracefx.xla.runtime.platforms import client, default_platform

# These modules have no types.
_profiler: Final[ModuleType] = import_jaxlib("jaxlib._profiler")
_profile_data: Final[ModuleType] = import_jaxlib("jaxlib._profile_data")


class ProfilerSession(Protocol):
    """A running profile."""

    def stop_and_export(self, log_dir: str) -> None: ...


class _NewAnnotation(Protocol):
    def __call__(self, name: str, **metadata: object) -> AbstractContextManager[object]: ...


class _NewSession(Protocol):
    def __call__(self, options: object) -> ProfilerSession: ...


class _StartServer(Protocol):
    def __call__(self, port: int) -> object: ...


new_annotation: Final[_NewAnnotation] = _profiler.TraceMe
new_session: Final[_NewSession] = _profiler.ProfilerSession
start_server: Final[_StartServer] = _profiler.start_server
ProfileOptions: Final[type[object]] = _profiler.ProfileOptions
ProfileData: Final[type[object]] = _profile_data.ProfileData


def device_memory_profile(platform: str | None) -> bytes:
    """Returns the buffers and executables on a platform, by default the default one, in the format of pprof."""
    return client(default_platform() if platform is None else platform).heap_profile()


@final
@define(eq=False)
class ProfilerState:
    """The profile that this process records and the server that it runs, of which XLA allows one each."""

    lock: threading.Lock = field(factory=threading.Lock)
    session: ProfilerSession | None = None
    log_dir: str = ""
    writes_perfetto_trace: bool = False
    server: object | None = None


PROFILER_STATE: Final = ProfilerState()
