"""Which executables a compilation cache keeps, and under which names a later process finds them.

The name is the digest of the program's executable key, its donated inputs, whether unused ones are kept, and all that
compiling depends on beside it: jaxlib, the compiler's options, the device, the instructions of its processor, and the
text of tracefx itself, whose rules say what a program lowers to. What a program needs beside its executable (which
inputs that takes, where the outputs come from) follows from the program, so nothing of it is kept. Of a program on
several devices it counts which these are, and how its inputs and outputs lie on them.

Programs without a key (they hold callables), with operations or parameters of others' classes (whose rules may
change) and with effects have no name, nor has any while tracefx's source is being edited. The backend keeps none that
call the host's own code either, and none over several processes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import cast

from tracefx.core.effects import SowEffect
from tracefx.core.jaxpr import Jaxpr
from tracefx.serialization.digest import IMPORT_TIME, executable_key, is_builtin_only, value_key
from tracefx.shardings.named_sharding import ShardingAssignment
from tracefx.xla import runtime
from tracefx.xla.disk_cache import KEY_BYTES


def disk_cache_key(
    jaxpr: Jaxpr,
    donated: frozenset[int],
    keep_unused: bool,
    device: runtime.Device,
    options: Mapping[str, runtime.CompilerOption],
) -> bytes | None:
    """The name of a program's executable, or `None` if the program must be compiled in every process."""
    return _digest_key(jaxpr, (sorted(donated), keep_unused), lambda: runtime.compilation_identity(device, options))


def spmd_disk_cache_key(
    jaxpr: Jaxpr,
    donated: frozenset[int],
    keep_unused: bool,
    placing: ShardingAssignment,
    free: tuple[Sequence[bool], Sequence[bool]],
    options: Mapping[str, runtime.CompilerOption],
) -> bytes | None:
    """`disk_cache_key` of a program on several devices, or on one that isn't the first: where all lies counts too.

    Programs on devices of several processes have no name: if one of these found its executable and another did not,
    they would no longer compile together, as XLA may want them to.
    """
    devices = cast("tuple[runtime.Device, ...]", placing.devices)
    lies = value_key(placing)
    if lies is None or len({device.process_index for device in devices}) > 1:
        return None
    beside = (sorted(donated), keep_unused, lies)
    return _digest_key(jaxpr, beside, lambda: runtime.SpmdExecutable.identity(devices, free, options))


def _digest_key(jaxpr: Jaxpr, beside: tuple[object, ...], identity: Callable[[], bytes]) -> bytes | None:
    key, text = executable_key(jaxpr), tracefx_source_digest()
    done = any(effect.observable and not isinstance(effect, SowEffect) for effect in jaxpr.effects)
    if key is None or text is None or not is_builtin_only(jaxpr) or done:
        return None
    parts = (key, *beside, text, identity())
    return blake2b(repr(parts).encode(), digest_size=KEY_BYTES).digest()


@functools.cache
def tracefx_source_digest() -> bytes | None:
    """A digest of tracefx's source, in place of a version that stays the same while a rule is edited.

    `None` if that isn't what runs here, so far as one can tell: there is none, or it was edited since it was loaded.
    """
    return package_digest(Path(__file__).parent.parent, IMPORT_TIME)


def package_digest(package: Path, loaded: float) -> bytes | None:
    """A digest of the Python files in a folder, if there are any and none changed after the time `loaded`."""
    text = blake2b(digest_size=KEY_BYTES)
    paths = sorted(package.rglob("*.py"))
    for path in paths:
        if path.stat().st_mtime > loaded:
            return None
        content = path.read_bytes()
        text.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode() + content)
    return text.digest() if paths else None
