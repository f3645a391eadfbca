"""Keys of the compilation cache on disk.

The key is a digest of the program's executable key, its donated inputs, whether unused inputs are kept, whether
repeated blocks are shared, and all that compilation depends on besides: jaxlib, compiler options, the device and the
instruction set of its processor, and the source code of tracefx, whose rules determine what a program lowers to.
Everything else that a program needs to run (its execution plan) follows from the program, so it is not stored. For
programs on several devices, the devices and the shardings of inputs and outputs are part of the key.

A program has no key if it contains callables, has primitives or parameters of user-defined classes (whose rules may
change), or has effects; no program has one while tracefx's source is being edited. The backend also stores no
programs that call Python code or run in several processes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

from tracefx.core.effects import SowEffect
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.sharding import ShardingAssignment
from tracefx.serialization.digest import IMPORT_TIME, executable_key, is_builtin_only, value_key
from tracefx.settings import RepeatsMode
from tracefx.xla.disk_cache import KEY_BYTES
from tracefx.xla.runtime import bindings, executables, multi_device


def disk_cache_key(
    jaxpr: Jaxpr,
    donated: frozenset[int],
    choices: tuple[bool, RepeatsMode],
    device: bindings.Device,
    options: Mapping[str, bindings.CompilerOption],
) -> bytes | None:
    """Returns the key of a program's executable, or `None` if the program must be compiled in every process.

    `choices` are whether unused inputs are kept, and what happens to repeated blocks.
    """
    return _digest_key(jaxpr, (sorted(donated), *choices), lambda: executables.compilation_identity(device, options))


def spmd_disk_cache_key(
    jaxpr: Jaxpr,
    donated: frozenset[int],
    choices: tuple[bool, RepeatsMode],
    assignment: ShardingAssignment,
    free: tuple[Sequence[bool], Sequence[bool]],
    options: Mapping[str, bindings.CompilerOption],
) -> bytes | None:
    """Like `disk_cache_key`, for a program on several devices or not on the first: the assignment is part of the key.

    `free` says for which parameters and results XLA chooses the sharding. Programs on devices of several processes have
    no key: if one process found the executable and another did not, they would no longer compile together, as XLA may
    require.
    """
    devices = bindings.native_devices(assignment.devices)
    assignment_key = value_key(assignment)
    if assignment_key is None or len({device.process_index for device in devices}) > 1:
        return None
    more_parts = (sorted(donated), *choices, assignment_key)
    return _digest_key(jaxpr, more_parts, lambda: multi_device.SpmdExecutable.identity(devices, free, options))


def _digest_key(jaxpr: Jaxpr, more_parts: tuple[object, ...], identity: Callable[[], bytes]) -> bytes | None:
    key, source_digest = executable_key(jaxpr), tracefx_source_digest()
    has_effects = any(effect.observable and not isinstance(effect, SowEffect) for effect in jaxpr.effects)
    if key is None or source_digest is None or not is_builtin_only(jaxpr) or has_effects:
        return None
    parts = (key, *more_parts, source_digest, identity())
    return blake2b(repr(parts).encode(), digest_size=KEY_BYTES).digest()


@functools.cache
def tracefx_source_digest() -> bytes | None:
    """Returns a digest of tracefx's source, in place of a version, which stays the same while a rule is edited.

    `None` if the source cannot be found, or was edited after it was imported.
    """
    return package_digest(Path(__file__).parent.parent, IMPORT_TIME)


def package_digest(package: Path, loaded: float) -> bytes | None:
    """Returns a digest of the Python files in a folder; `None` if there are none or one changed after `loaded`."""
    digest = blake2b(digest_size=KEY_BYTES)
    paths = sorted(package.rglob("*.py"))
    for path in paths:
        if path.stat().st_mtime > loaded:
            return None
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode() + content)
    return digest.digest() if paths else None
