"""Which platforms there are: the host's own devices, and those that plug-ins of XLA bring.

The host's client is jaxlib's own. The others come from where JAX has them (`core.backend.PLUGINS`), which finds
plug-ins, brings their kernels, and has the one client that a process may have of a GPU: a second would find its memory
taken. jax is imported for that, in this case only.

**The default.** What nobody puts anywhere runs on the first device of the platform that `TRACEFX_PLATFORM` names, or
the first of those that `JAX_PLATFORMS` does. Without either it is what JAX prefers of the plug-ins installed (a GPU, if
there is one), and the host if there are none: who installs a plug-in wants it used, and programs behave as under JAX.
Where no plug-in is installed, jax isn't imported to learn so.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, cast

from tracefx.core.backend import PLUGINS
from tracefx.xla.runtime.bindings import CLIENT_STATE, Client, Device, client_lock, start_cpu_client

HOST: Final = "cpu"
_VARIABLES: Final = ("TRACEFX_PLATFORM", "JAX_PLATFORMS")
_PLUGIN_PATHS_VARIABLE: Final = "PJRT_NAMES_AND_LIBRARY_PATHS"
"""The environment variable in which jax is told of plug-ins that no package brings."""


def client(platform: str = HOST) -> Client:
    """The PJRT client of a platform, started at the first call.

    A platform is `"cpu"`, `"gpu"`, `"cuda"`, `"rocm"`, `"tpu"`, or the name of any other plug-in.
    A process that joined others by then (`distributing.join`) knows their devices too.

    Raises:
        PlatformError: for a platform that isn't there; it says what is, and what to do.
    """
    with client_lock:
        return _start_host_client() if platform == HOST else _start_plugin_client(platform)


@functools.cache
def _start_host_client() -> Client:
    CLIENT_STATE.started = True
    # Processes tell each other of the host's devices under one name, and JAX would, too: then there is one client of
    # them, which is JAX's.
    if CLIENT_STATE.process_group is not None and requested_platform(os.environ) != HOST and has_plugins():
        return _start_plugin_client(HOST)
    return start_cpu_client(CLIENT_STATE.process_group)


@functools.cache
def _start_plugin_client(platform: str) -> Client:
    CLIENT_STATE.started = True
    return cast(Client, PLUGINS.value.client(platform, CLIENT_STATE.process_group))


@functools.cache
def devices(platform: str = HOST) -> tuple[Device, ...]:
    """The devices of a platform that this process can use, by their position.

    >>> devices()[0].platform
    'cpu'
    """
    return tuple(client(platform).local_devices())


@functools.cache
def all_devices(platform: str = HOST) -> tuple[Device, ...]:
    """`devices`, and those of the processes that this one works with: in every process the same, in the same order."""
    return tuple(sorted(client(platform).devices(), key=lambda device: (device.process_index, device.id)))


def default_platform() -> str:
    """The platform whose first device runs what nobody put anywhere.

    Raises:
        PlatformError: if one is asked for that isn't there, or a plug-in fails.
    """
    with client_lock:
        return _choose_platform()


@functools.cache
def _choose_platform() -> str:
    found = requested_platform(os.environ)
    if found is None:
        found = PLUGINS.value.preferred_platform(CLIENT_STATE.process_group) if has_plugins() else HOST
    devices(found)
    return found


def requested_platform(environment: Mapping[str, str]) -> str | None:
    """The platform that the environment names, if it does.

    >>> jax_platforms = {"JAX_PLATFORMS": "cuda,cpu"}
    >>> requested_platform({"TRACEFX_PLATFORM": "cpu", **jax_platforms}), requested_platform(jax_platforms)
    ('cpu', 'cuda')
    """
    for name in _VARIABLES:
        said = environment.get(name, "").partition(",")[0].strip().lower()
        if said:
            return said
    return None


def has_plugins() -> bool:
    """Whether anything is installed that may be a plug-in, told without jax."""
    if (
        os.environ.get(_PLUGIN_PATHS_VARIABLE)
        or find_spec("jax_plugins") is not None
        or find_spec("libtpu") is not None
    ):
        return True
    return any(map(_brings_plugin, map(Path, sys.path)))


def _brings_plugin(folder: Path) -> bool:
    """Whether a package in a folder says that it has a plug-in.

    `importlib.metadata` would know, but takes as long to load and to look as the host's client takes to start.
    """
    try:
        said = [*folder.glob("*.dist-info/entry_points.txt"), *folder.glob("*.egg-info/entry_points.txt")]
        return any(b"[jax_plugins]" in path.read_bytes() for path in said)
    except OSError:  # no folder, or none that may be read
        return False


@functools.cache
def default_device() -> Device:
    """The device that runs what nobody put anywhere, unless `core.backend.DEFAULT_DEVICE` says another."""
    return devices(default_platform())[0]


def lowering_platform(device: Device) -> str:
    """The platform that programs for a device are lowered for: "cuda" or "rocm" of what calls itself a "gpu".

    >>> lowering_platform(devices()[0])
    'cpu'
    """
    return device.client._raw_platform


def process_index() -> int:
    """Which of the processes that work together this one is; 0 if it is alone."""
    return 0 if CLIENT_STATE.process_group is None else CLIENT_STATE.process_group.index
