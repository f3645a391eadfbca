"""The available platforms: the host, and those of PJRT plug-ins.

The host's client is jaxlib's own. Other clients come from JAX (`core.backend.PLUGINS`), which finds plug-ins and
registers their kernels: a process can have only one client of a GPU, since a second one would find its memory taken.
jax is imported only for this.

**The default platform.** Arrays without an explicit device are on the first device of the platform that
`TRACEFX_PLATFORM` names, or else the first platform in `JAX_PLATFORMS`. Without these variables it is the platform that
JAX prefers among installed plug-ins (a GPU, if there is one), and the host if no plug-in is installed; in this case jax
is not imported. So an installed plug-in is used, and programs run where they do under JAX.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, cast

from tracefx.bounded_cache import memoize
from tracefx.core.backend import PLUGINS
from tracefx.xla.runtime.bindings import CLIENT_STATE, Client, Device, client_lock, start_cpu_client

HOST: Final = "cpu"
_VARIABLES: Final = ("TRACEFX_PLATFORM", "JAX_PLATFORMS")
_PLUGIN_PATHS_VARIABLE: Final = "PJRT_NAMES_AND_LIBRARY_PATHS"
"""The environment variable that tells jax of plug-ins outside of packages."""


def client(platform: str = HOST) -> Client:
    """Returns the PJRT client of a platform, which the first call starts.

    A platform is `"cpu"`, `"gpu"`, `"cuda"`, `"rocm"`, `"tpu"`, or the name of any other plug-in. If the process has
    joined a process group before (`process_group.join_process_group`), the client knows the devices of all processes.

    Raises:
        PlatformError: if the platform is not available; the message says which ones are, and what to do.
        TypeError: if `platform` is not a string.
    """
    if not isinstance(cast(object, platform), str):
        raise TypeError(f"a platform must be a string such as 'cpu', got {platform!r}")
    with client_lock:
        return _start_host_client() if platform == HOST else _start_plugin_client(platform)


@functools.cache
def _start_host_client() -> Client:
    CLIENT_STATE.started = True
    # The processes share one namespace for host devices, which JAX would use as well: then there must be one client for
    # them, and it is JAX's.
    if CLIENT_STATE.process_group is not None and requested_platform(os.environ) != HOST and has_plugins():
        return _start_plugin_client(HOST)
    return start_cpu_client(CLIENT_STATE.process_group)


@memoize(256)
def _start_plugin_client(platform: str) -> Client:
    CLIENT_STATE.started = True
    return cast(Client, PLUGINS.value.client(platform, CLIENT_STATE.process_group))


@memoize(256)
def devices(platform: str = HOST) -> tuple[Device, ...]:
    """Returns the devices of a platform that belong to this process, by index.

    >>> devices()[0].platform
    'cpu'
    """
    return tuple(client(platform).local_devices())


@memoize(256)
def all_devices(platform: str = HOST) -> tuple[Device, ...]:
    """Returns the devices of all processes of the group, in the same order in every process."""
    return tuple(sorted(client(platform).devices(), key=lambda device: (device.process_index, device.id)))


def default_platform() -> str:
    """Returns the platform of arrays and programs without an explicit device.

    Raises:
        PlatformError: if the requested platform is not available, or a plug-in fails.
    """
    with client_lock:
        return _choose_platform()


@functools.cache
def _choose_platform() -> str:
    platform = requested_platform(os.environ)
    if platform is None:
        platform = PLUGINS.value.preferred_platform(CLIENT_STATE.process_group) if has_plugins() else HOST
    devices(platform)
    return platform


def requested_platform(environment: Mapping[str, str]) -> str | None:
    """Returns the platform that the environment variables request, or None.

    >>> jax_platforms = {"JAX_PLATFORMS": "cuda,cpu"}
    >>> requested_platform({"TRACEFX_PLATFORM": "cpu", **jax_platforms}), requested_platform(jax_platforms)
    ('cpu', 'cuda')
    """
    for name in _VARIABLES:
        platform = environment.get(name, "").partition(",")[0].strip().lower()
        if platform:
            return platform
    return None


def has_plugins() -> bool:
    """Whether a plug-in may be installed; does not import jax."""
    if (
        os.environ.get(_PLUGIN_PATHS_VARIABLE)
        or find_spec("jax_plugins") is not None
        or find_spec("libtpu") is not None
    ):
        return True
    return any(map(_brings_plugin, map(Path, sys.path)))


def _brings_plugin(folder: Path) -> bool:
    """Whether a package in a folder declares a plug-in.

    `importlib.metadata` could tell, but takes as long as starting the host's client.
    """
    try:
        entry_points = [*folder.glob("*.dist-info/entry_points.txt"), *folder.glob("*.egg-info/entry_points.txt")]
        return any(b"[jax_plugins]" in path.read_bytes() for path in entry_points)
    except OSError:  # no folder, or not readable
        return False


@functools.cache
def default_device() -> Device:
    """Returns the device of arrays and programs without an explicit one, if `core.backend.DEFAULT_DEVICE` is unset."""
    return devices(default_platform())[0]


def lowering_platform(device: Device) -> str:
    """Returns the platform that programs for a device are lowered for: "cuda" or "rocm" if the device's is "gpu".

    >>> lowering_platform(devices()[0])
    'cpu'
    """
    return device.client._raw_platform


def process_index() -> int:
    """Returns the index of this process in its process group; 0 without one."""
    return 0 if CLIENT_STATE.process_group is None else CLIENT_STATE.process_group.index
