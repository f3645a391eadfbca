"""Executables on disk: a later process takes them from there in place of lowering and compiling.

**What is kept under which name.** A program's executable key, its donated inputs, whether unused ones are kept, and
all that compiling depends on beside it: jaxlib, the compiler's options, the device, the instructions of its
processor, and the text of tracefx itself, whose rules say what a program lowers to. The digest of these is the file's
name. What the program needs beside the executable (which inputs it takes, where its outputs come from) follows from
the program, so it isn't kept. Nothing is kept of programs without a key (they hold callables), with operations or
parameters of others' classes (whose rules may change), with effects, or with calls of the host's own code.

**A file** is, one after the other:

    magic      28 bytes   b"tracefx executable on disk 1"
    name       20 bytes   the digest that the file is called by
    length      8 bytes   of the content, little-endian
    content               what `Executable.serialize` wrote
    checksum   32 bytes   BLAKE2b of everything before

Any other file is as good as none, and is replaced. Nothing in it is parsed before the checksum was found right. It is
written under another name and renamed, so readers and other writers see all of it or nothing; it is not forced to the
disk, because what a power failure leaves of it fails the checksum.
"""

from __future__ import annotations

import functools
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final, final

from tracefx.core.digest import executable_key, is_own
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.settings import CompilationCache
from tracefx.xla import runtime

_MAGIC: Final = b"tracefx executable on disk 1"
_NAME: Final = 20  # bytes
_CHECKSUM: Final = 32  # bytes
_BEFORE: Final = len(_MAGIC) + _NAME + 8
_ENTRY: Final = ".executable"
_PARTIAL: Final = ".partial"
_ABANDONED: Final = 3600  # seconds, after which a partial file's writer must have died


def entry_name(
    jaxpr: Jaxpr,
    donated: frozenset[int],
    keep_unused: bool,
    device: runtime.Device,
    options: Mapping[str, runtime.CompilerOption],
) -> bytes | None:
    """The name of a program's executable, or `None` if the program must be compiled in every process."""
    key = executable_key(jaxpr)
    if key is None or not is_own(jaxpr) or any(effect.observable for effect in jaxpr.effects):
        return None
    parts = (key, sorted(donated), keep_unused, own_text(), runtime.compilation_identity(device, options))
    return blake2b(repr(parts).encode(), digest_size=_NAME).digest()


@functools.cache
def own_text() -> bytes:
    """A digest of tracefx's source, in place of a version that stays the same while a rule is edited."""
    package = Path(__file__).parent.parent
    text = blake2b(digest_size=_NAME)
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        text.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode() + content)
    return text.digest()


@final
class Disk:
    """Reads and writes the folders of caches. A folder that can't be written to costs one warning, and no more."""

    __slots__ = ("_failed", "_lock")

    def __init__(self) -> None:
        self._failed: set[Path] = set()
        self._lock = threading.Lock()

    def load(self, cache: CompilationCache, name: bytes) -> bytes | None:
        """The content kept under a name, which counts as used now; `None` if there is none, or no whole one."""
        path = _path(cache, name)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(cache, "read", error)
            return None
        content = _content(data, name)
        if content is not None:
            with suppress(OSError):  # others may have dropped it meanwhile, or the folder is read-only
                os.utime(path)
        return content

    def store(self, cache: CompilationCache, name: bytes, content: bytes) -> None:
        """Keep content under a name, and drop what was used least recently if there is too much now."""
        head = _MAGIC + name + len(content).to_bytes(8, "little")
        if len(head) + len(content) + _CHECKSUM > cache.max_bytes:
            return
        checksum = blake2b(head, digest_size=_CHECKSUM)
        checksum.update(content)
        try:
            cache.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(_path(cache, name), head, content, checksum.digest())
            _shrink(cache)
        except OSError as error:
            self._warn(cache, "written", error)

    def _warn(self, cache: CompilationCache, done: str, error: OSError) -> None:
        with self._lock:
            if cache.path in self._failed:
                return
            self._failed.add(cache.path)
        warnings.warn(
            f"the compilation cache {cache.path} cannot be {done}: {error}. Programs are compiled as if it weren't "
            "there; make room or set its permissions, or turn the cache off",
            RuntimeWarning,
            stacklevel=2,
        )


def _path(cache: CompilationCache, name: bytes) -> Path:
    return cache.path / (name.hex() + _ENTRY)


def _content(data: bytes, name: bytes) -> bytes | None:
    """The content of a whole file that was written under this name."""
    head = data[:_BEFORE]
    length = len(data) - _BEFORE - _CHECKSUM
    if length < 0 or head != _MAGIC + name + length.to_bytes(8, "little"):
        return None
    rest = memoryview(data)[:-_CHECKSUM]
    return data[_BEFORE:-_CHECKSUM] if blake2b(rest, digest_size=_CHECKSUM).digest() == data[-_CHECKSUM:] else None


def _replace(path: Path, *parts: bytes) -> None:
    """Write a file as a whole, in place of any other of that name."""
    handle, partial = tempfile.mkstemp(suffix=_PARTIAL, dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.writelines(parts)
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise


def _shrink(cache: CompilationCache) -> None:
    """Drop what was used least recently, and what writers that died left behind. Other processes may do so too."""
    entries: list[tuple[int, str, int]] = []
    with os.scandir(cache.path) as listing:
        for each in listing:
            with suppress(FileNotFoundError):
                if each.name.endswith(_ENTRY):
                    status = each.stat()
                    entries.append((status.st_mtime_ns, each.path, status.st_size))
                elif each.name.endswith(_PARTIAL) and each.stat().st_mtime < time.time() - _ABANDONED:
                    os.unlink(each.path)
    total = sum(size for _, _, size in entries)
    for _, path, size in sorted(entries):
        if total <= cache.max_bytes:
            break
        with suppress(FileNotFoundError):
            os.unlink(path)
        total -= size
