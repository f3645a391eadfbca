"""Registration of users' kernels with XLA, for `tracefx.ffi`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final

from tracefx.jaxlib_support import import_jaxlib

_jax: Final[ModuleType] = import_jaxlib("jaxlib._jax")  # untyped, like the next one
_xla_client: Final[ModuleType] = import_jaxlib("jaxlib.xla_client")
register_batch_partitionable_ffi_target: Final[Callable[[str], None]] = _jax.register_custom_call_as_batch_partitionable


def register_ffi_target(name: str, kernel: object, platform: str) -> None:
    """Registers a kernel of XLA's typed interface.

    jaxlib keeps the kernels of a platform whose plug-in is not loaded yet, and registers them when it is.

    Args:
        name: The name.
        kernel: A capsule, or a dictionary of capsules by stage.
        platform: XLA's name of the platform.
    """
    register = _jax if platform == "Host" else _xla_client
    register.register_custom_call_target(name, kernel, platform, 1)


def register_ffi_type(name: str, registration: object, platform: str) -> None:
    """Registers a type of kernels' state; see `register_ffi_target`."""
    if platform == "Host":
        _jax.register_custom_type(name, registration)
    else:
        _xla_client.register_custom_type(name, registration, platform)


def include_dir() -> str:
    """Returns the directory of jaxlib's headers."""
    return str(Path(_xla_client.__file__ or "").parent / "include")
