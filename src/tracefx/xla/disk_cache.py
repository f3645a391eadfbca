"""The files of the compilation cache: written by many processes concurrently, read safely whatever their content.

A file consists of:

    magic      28 bytes   b"tracefx executable on disk 1"
    name       20 bytes   the cache key, which is also the file name
    length      8 bytes   of the content, little-endian
    content               the bytes that `Executable.serialize` returned
    checksum   32 bytes   BLAKE2b of everything before

Other files are ignored and replaced. The content is parsed only after the checksum was verified. A file is written
under a temporary name and renamed, so readers and other writers see all of it or nothing; it is not flushed to disk
with fsync, because a file truncated by a power failure fails the checksum.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final, final

from tracefx.settings import CompilationCache

_MAGIC: Final = b"tracefx executable on disk 1"
KEY_BYTES: Final = 20
_CHECKSUM_BYTES: Final = 32
_HEADER_BYTES: Final = len(_MAGIC) + KEY_BYTES + 8
_SUFFIX: Final = ".executable"
_PARTIAL_SUFFIX: Final = ".partial"
_ABANDONED_SECONDS: Final = 3600  # the age after which a partial file's writer must have died


@final
class DiskCache:
    """Reads and writes cache folders. A folder that cannot be accessed causes one warning, and is then ignored."""

    __slots__ = ("_failed", "_lock")

    def __init__(self) -> None:
        self._failed: set[Path] = set()
        self._lock = threading.Lock()

    def load(self, cache: CompilationCache, name: bytes) -> bytes | None:
        """Returns the content stored under a key and marks it as used; `None` if there is none or it is damaged."""
        path = _path(cache, name)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(cache, "read", error)
            return None
        content = _parse_content(data, name)
        if content is not None:
            with suppress(OSError):  # another process may have deleted it, or the folder is read-only
                os.utime(path)
        return content

    def store(self, cache: CompilationCache, name: bytes, content: bytes) -> None:
        """Stores content under a key, and evicts the least recently used files if the cache exceeds its size."""
        header = _MAGIC + name + len(content).to_bytes(8, "little")
        if len(header) + len(content) + _CHECKSUM_BYTES > cache.max_bytes:
            return
        checksum = blake2b(header, digest_size=_CHECKSUM_BYTES)
        checksum.update(content)
        try:
            cache.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(_path(cache, name), header, content, checksum.digest())
            _evict(cache)
        except OSError as error:
            self._warn(cache, "written", error)

    def _warn(self, cache: CompilationCache, action: str, error: OSError) -> None:
        with self._lock:
            if cache.path in self._failed:
                return
            self._failed.add(cache.path)
        warnings.warn(
            f"the compilation cache {cache.path} cannot be {action}: {error}. Programs are compiled without "
            "it; free some disk space or set its permissions, or turn the cache off",
            RuntimeWarning,
            stacklevel=2,
        )


def _path(cache: CompilationCache, name: bytes) -> Path:
    return cache.path / (name.hex() + _SUFFIX)


def _parse_content(data: bytes, name: bytes) -> bytes | None:
    """Returns the content of a file that was written under this name; `None` if the file is damaged."""
    header = data[:_HEADER_BYTES]
    length = len(data) - _HEADER_BYTES - _CHECKSUM_BYTES
    if length < 0 or header != _MAGIC + name + length.to_bytes(8, "little"):
        return None
    checked = memoryview(data)[:-_CHECKSUM_BYTES]
    return (
        data[_HEADER_BYTES:-_CHECKSUM_BYTES]
        if blake2b(checked, digest_size=_CHECKSUM_BYTES).digest() == data[-_CHECKSUM_BYTES:]
        else None
    )


def _replace(path: Path, *parts: bytes) -> None:
    """Writes a file atomically, replacing any other of that name."""
    partial = path.with_name(os.urandom(16).hex() + _PARTIAL_SUFFIX)
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(handle, "wb") as file:
            file.writelines(parts)
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise


def _evict(cache: CompilationCache) -> None:
    """Deletes the least recently used files, and partial files whose writers died; other processes may do the same."""
    entries: list[tuple[int, str, int]] = []
    with os.scandir(cache.path) as listing:
        for each in listing:
            with suppress(FileNotFoundError):
                if each.name.endswith(_SUFFIX):
                    status = each.stat()
                    entries.append((status.st_mtime_ns, each.path, status.st_size))
                elif each.name.endswith(_PARTIAL_SUFFIX) and each.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
                    os.unlink(each.path)
    total = sum(size for _, _, size in entries)
    for _, path, size in sorted(entries):
        if total <= cache.max_bytes:
            break
        with suppress(FileNotFoundError):
            os.unlink(path)
        total -= size
