"""Clients of GPUs, TPUs and other devices, from the PJRT plug-ins that JAX finds.

JAX has one client per platform in a process. tracefx uses the same one, because two could not share a GPU's memory.
"""

from __future__ import annotations

import atexit
import importlib
import pkgutil
from collections.abc import Iterator
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Final, final

import jax
from attrs import frozen
from jax._src import config, distributed, xla_bridge
from typing_extensions import override

from tracefx.core.backend import Plugins, ProcessMembership
from tracefx.errors import PlatformError

_GPUS: Final = ("gpu", "cuda", "rocm", "oneapi")
_INSTALL: Final = "pip install '.[gpu]' in a checkout of tracefx"
_SWITCH: Final = "or set TRACEFX_PLATFORM=cpu to run on the host"


@final
@frozen(eq=False)
class JaxPlugins(Plugins):
    """The plug-ins that JAX finds."""

    @override
    def client(self, platform: str, joined: ProcessMembership | None) -> object:
        backends = _start_backends(joined)
        names = xla_bridge.expand_platform_alias(platform)
        for name in names:
            if name in backends:
                return backends[name]
        raise PlatformError(_missing_platform_message(platform, names, list(backends)))

    @override
    def preferred_platform(self, joined: ProcessMembership | None) -> str:
        backends = _start_backends(joined)
        best = xla_bridge.get_backend()
        return next(name for name, client in backends.items() if client is best)


def _start_backends(joined: ProcessMembership | None) -> dict[str, object]:
    """Starts and returns JAX's clients by name of platform."""
    if joined is not None:
        _join_processes(joined)
    try:
        return dict(xla_bridge.backends())
    except RuntimeError as error:
        raise PlatformError(
            f"an XLA plug-in can't be used: {error}{_plugin_failures()}. Repair or remove it, {_SWITCH}"
        ) from error
    except AssertionError as error:  # raised by JAX if it finds no platform at all
        setting = f"JAX_PLATFORMS={config.jax_platforms.value}"
        raise PlatformError(
            f"there are no devices of the platforms in {setting}{_plugin_failures()}. Change it, {_SWITCH}"
        ) from error


def _join_processes(joined: ProcessMembership) -> None:
    """Connects JAX's clients to the other processes, as `jax.distributed.initialize` would."""
    state = distributed.global_state
    if state.client is joined.distributed_client:
        return
    if state.client is not None or xla_bridge.backends_are_initialized():
        raise PlatformError(
            "jax has started its devices already, without connecting them to the other processes: "
            "call tracefx.distributed.initialize, then tracefx.devices, before jax runs anything"
        )
    state.client, state.process_id, state.num_processes = joined.distributed_client, joined.index, joined.count
    # Otherwise JAX would disconnect this client when the process ends, before tracefx does.
    atexit.register(setattr, state, "client", None)
    if joined.local_ids is not None:
        jax.config.update("jax_num_cpu_devices", len(joined.local_ids))
        ids = ",".join(map(str, joined.local_ids))
        for option in ("jax_cuda_visible_devices", "jax_rocm_visible_devices"):
            jax.config.update(option, ids)


def _missing_platform_message(platform: str, names: list[str], available: list[str]) -> str:
    plugins_found = sorted({module.partition(":")[0] for module in _plugin_modules()})
    missing = f"there are no devices of platform {platform!r}, only of {', '.join(available)}"
    if config.jax_platforms.value:
        return f"{missing}, as JAX_PLATFORMS={config.jax_platforms.value} allows no others: change it, or unset it"
    registered = [name for name in names if name in xla_bridge._backend_factories]
    if registered:
        failed = [xla_bridge._backend_errors[name] for name in registered if name in xla_bridge._backend_errors]
        reason = f": {failed[0]}" if failed else ", but finds no device for it on this machine"
        hint = "; check that `nvidia-smi` lists one and CUDA_VISIBLE_DEVICES hides none" if platform in _GPUS else ""
        return f"{missing}. jax has the plug-in for {registered[0]}{reason}{hint}"
    why = _plugin_failures()
    if why:
        cuda = f". {_INSTALL} installs CUDA's libraries; the driver is installed separately"
        return f"{missing}{why}{cuda if platform in _GPUS else ''}"
    plugins = f"the plug-ins installed are {', '.join(plugins_found)}" if plugins_found else "no plug-in is installed"
    install = f"{_INSTALL} installs NVIDIA's" if platform in _GPUS else f"install one for {platform}"
    return f"{missing}, and {plugins}: {install}"


def _plugin_failures() -> str:
    """Returns why installed plug-ins registered nothing with JAX, which logs such errors and goes on."""
    reasons = []
    for name in _plugin_modules():
        before = set(xla_bridge._backend_factories)
        short = name.rpartition(".")[2]
        if any(known in short for known in before - {"cpu", "tpu"}):
            continue  # this plug-in did register
        try:
            importlib.import_module(name).initialize()
        except Exception as error:  # a plug-in may raise anything
            reasons.append(f". The plug-in {name} fails: {type(error).__name__}: {error}")
    return "".join(reasons)


def _plugin_modules() -> Iterator[str]:
    """Yields the names of plug-in modules, found as JAX finds them."""
    seen = set()
    packages = find_spec("jax_plugins")
    where = [] if packages is None else packages.submodule_search_locations
    here = [name for _, name, _ in pkgutil.iter_modules(where, "jax_plugins.")]
    for name in (*here, *[point.value for point in entry_points(group="jax_plugins")]):
        if name not in seen:
            seen.add(name)
            yield name
