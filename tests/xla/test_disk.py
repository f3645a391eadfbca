"""The compilation cache on disk: hits across processes, damaged files, concurrent writers, eviction, I/O errors."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import pytest
from attrs import evolve, frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.core.programs import Printing
from tests.errors import assert_errors, untyped
from tests.primitives import SameTypes
from tests.xla.caching import SPY, files, in_new_process, log_builds
from tracefx.core.jaxpr import Jaxpr
from tracefx.extend import Effects, Lowerable, bind1
from tracefx.lowering import Builder, IrValue
from tracefx.settings import CompilationCache, as_compilation_cache
from tracefx.xla import backend as xla_backend
from tracefx.xla import cache_keys
from tracefx.xla.backend import XlaBackend
from tracefx.xla.cache_keys import disk_cache_key
from tracefx.xla.disk_cache import DiskCache
from tracefx.xla.lower import lower
from tracefx.xla.runtime import bindings, platforms

X: Final = np.array([0.5, -1.5, 2.0], np.float32)
NAME: Final = b"n" * 20
OTHER: Final = b"o" * 20
OVERHEAD: Final = 28 + 20 + 8 + 32  # bytes of header and checksum


def f(x: Any) -> Any:
    return fnp.sum(fnp.sin(x) * 2.0)


def program(of: Callable[..., Any] = f) -> Jaxpr:
    """Returns a new program without cached derived programs, as in a new process."""
    return fx.make_jaxpr(of)(X).jaxpr


def run(of: Callable[..., Any] = f) -> Any:
    """Compiles a function as a new process does, and returns its outputs."""
    return XlaBackend().compiled(program(of), "f")([X])


@pytest.fixture(autouse=True)
def _unedited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is off if the source was edited after it was loaded. Ignores edits made during the test run."""
    monkeypatch.setattr(cache_keys, "tracefx_source_digest", lambda: b"rules")


@pytest.fixture
def compile_log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A log of the calls that lower and compile."""
    return log_builds(monkeypatch, xla_backend, "lower", "compile_module")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The cache folder during the test, not created yet."""
    path = tmp_path / "some" / "programs"
    with fx.compilation_cache(path):
        yield path


# ------------------------------------------------------------------ hits and cache keys

SECOND_PROCESS: Final = (
    SPY
    + """
    spy(backend, "lower")
    spy(executables, "compile_module")

    @fx.jit
    def inner(w, x):
        return fnp.tanh(x @ w)

    def loss(p, x, unused):
        return fnp.sum(inner(p["w"], x) * p["b"] ** 2)

    def step(p, x, unused):
        value, g = fx.value_and_grad(loss)(p, x, unused)
        return {k: p[k] - 0.1 * g[k] for k in p}, value, x, 2.5, fnp.bfloat16(1.25), g["w"] > 0

    p = {"w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), "b": np.ones(4, np.float32)}
    x = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
    outs = fx.tree.leaves(fx.jit(step, donate_argnums=0)(p, x, 3.0))
    outs += fx.tree.leaves(fx.vmap(fx.grad(lambda x: inner(p["w"], x).sum()))(x))
    print(done)
    done.clear()
    compiled = fx.jit(step, keep_unused=True).lower(p, x, 3.0).compile()
    outs += fx.tree.leaves(compiled(p, x, 3.0))
    assert "f32[2,3]" in compiled.as_text() and compiled.cost_analysis()["flops"] > 0
    print(done)
    print([(str(o.aval), o.weak_type, np.asarray(o).tobytes().hex()) for o in outs])
"""
)


def test_second_process_neither_lowers_nor_compiles(tmp_path: Path) -> None:
    outputs = [
        in_new_process(SECOND_PROCESS, TRACEFX_COMPILATION_CACHE_DIR=str(tmp_path)).communicate()[0] for _ in "12"
    ]
    (did, lowered, first), (did_then, lowered_then, second) = [t.splitlines() for t in outputs]
    assert "'lower', 'compile_module'" in did
    assert lowered == "['lower', 'compile_module']"
    assert did_then == "[]"
    assert lowered_then == "['lower']"  # `lower()` always lowers
    assert first == second


def test_off_by_default(compile_log: list[str]) -> None:
    for _ in range(2):
        run()
    assert compile_log == ["lowered", "compiled"] * 2


def test_enabled_by_a_context_manager(folder: Path, compile_log: list[str]) -> None:
    first = run()
    assert compile_log == ["lowered", "compiled"]
    second = run()
    with fx.compilation_cache(None):
        third = run()
    assert compile_log == ["lowered", "compiled"] * 2
    assert float(first[0]) == float(second[0]) == float(third[0])
    assert len(files(folder)) == 1
    assert folder.stat().st_mode & 0o77 == 0


def test_enabled_by_an_argument(tmp_path: Path, compile_log: list[str]) -> None:
    g = fx.jit(lambda x: f(x) * 3)
    lowered = g.lower(X)
    texts = [lowered.compile(cache=folder).as_text() for folder in (tmp_path, str(tmp_path))]
    assert compile_log == ["lowered", "compiled"]
    assert len(files(tmp_path)) == 1
    assert all("sine" in text for text in texts)


def test_invalid_cache_arguments() -> None:
    assert_errors(
        (lambda: untyped(fx.compilation_cache)(3), TypeError, "path of a directory, got 3 of type int"),
        (lambda: fx.compilation_cache("x", max_bytes=-1), ValueError, "number of bytes for max_bytes, got -1"),
        (lambda: fx.compilation_cache("x", max_bytes=True), ValueError, "number of bytes for max_bytes, got True"),
    )


def test_cache_key_components(monkeypatch: pytest.MonkeyPatch) -> None:
    device = platforms.devices()[0]
    jaxpr = program()
    names = {
        "plain": disk_cache_key(jaxpr, frozenset(), (False, "share"), device, {}),
        "program": disk_cache_key(
            program(lambda x: fnp.sum(fnp.cos(x) * 2.0)), frozenset(), (False, "share"), device, {}
        ),
        "donated": disk_cache_key(jaxpr, frozenset({0}), (False, "share"), device, {}),
        "kept": disk_cache_key(jaxpr, frozenset(), (True, "share"), device, {}),
        "option": disk_cache_key(jaxpr, frozenset(), (False, "share"), device, {"xla_cpu_enable_fast_math": True}),
        "repeats": disk_cache_key(jaxpr, frozenset(), (False, "inline"), device, {}),
        "level": disk_cache_key(jaxpr, frozenset(), (False, "share"), device, {"optimization_level": 1}),
    }
    assert disk_cache_key(program(), frozenset(), (False, "share"), device, {}) == names["plain"]
    runtime_version = bindings.JAXLIB_VERSION
    monkeypatch.setattr(bindings, "JAXLIB_VERSION", "0.0.1")
    names["jaxlib"] = disk_cache_key(jaxpr, frozenset(), (False, "share"), device, {})
    monkeypatch.setattr(bindings, "JAXLIB_VERSION", runtime_version)
    monkeypatch.setattr(cache_keys, "tracefx_source_digest", lambda: b"other rules")
    names["rules"] = disk_cache_key(jaxpr, frozenset(), (False, "share"), device, {})
    monkeypatch.setattr(cache_keys, "tracefx_source_digest", lambda: None)
    assert disk_cache_key(jaxpr, frozenset(), (False, "share"), device, {}) is None
    monkeypatch.setattr(cache_keys, "tracefx_source_digest", lambda: b"rules")

    class OtherProcessor:
        def fingerprint(self) -> int:
            return 0

    monkeypatch.setattr(bindings, "topology_for_devices", lambda devices: OtherProcessor())
    names["processor"] = disk_cache_key(jaxpr, frozenset(), (False, "share"), device, {})
    assert None not in names.values()
    assert len(set(names.values())) == len(names)


def test_cache_key_includes_the_source_unless_edited_after_loading(tmp_path: Path) -> None:
    loaded = time.time()
    digests = [cache_keys.package_digest(tmp_path, loaded)]
    for name, text in (("a.py", "x = 1"), ("a.py", "x = 2"), ("b.py", ""), ("note.txt", "no rule")):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (loaded - 10, loaded - 10))
        digests.append(cache_keys.package_digest(tmp_path, loaded))
    assert digests[0] is None
    assert len(set(digests)) == 4
    assert digests[3] == digests[4]
    os.utime(tmp_path / "a.py", (loaded + 1, loaded + 1))
    assert cache_keys.package_digest(tmp_path, loaded) is None


# ------------------------------------------------------------------ programs that are not cached


@final
@frozen(eq=False)
class Twice(SameTypes, Lowerable):
    """A user-defined primitive, whose lowering may change without notice."""

    name = "twice"
    observable: bool = False

    @property
    @override
    def effects(self) -> Effects:
        return frozenset({Printing()}) if self.observable else frozenset()

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> list[IrValue]:
        return builder.emit("stablehlo.add", [operands[0], operands[0]], [operands[0].aval])


def user_defined(x: Any) -> Any:
    return bind1(Twice(), x)


def test_user_defined_primitives_are_not_cached(folder: Path) -> None:
    for of in (user_defined, lambda x: fx.jit(user_defined)(x) + 1):
        jaxpr = program(of)
        np.testing.assert_array_equal(np.asarray(XlaBackend().compiled(jaxpr, "f")([X])[0])[0], run(of)[0][0])
    assert files(folder) == []


def test_effectful_programs_are_not_cached(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_keys, "is_builtin_only", lambda jaxpr: True)  # treats user-defined primitives as built-in
    run(user_defined)
    assert len(files(folder)) == 1
    run(lambda x: bind1(Twice(observable=True), x))
    assert len(files(folder)) == 1


def test_programs_with_callbacks_are_not_cached(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla_backend, "lower", lambda *args: evolve(lower(*args), calls_host=True))
    run()
    assert files(folder) == []


# ------------------------------------------------------------------ damaged files


def damaged(data: bytes, chance: random.Random) -> Iterator[bytes]:
    for _ in range(150):
        position = chance.randrange(len(data))
        yield data[:position] + bytes([data[position] ^ (1 << chance.randrange(8))]) + data[position + 1 :]
        yield data[:position]
        yield data[:position] + data[position + 1 :]
        yield data + chance.randbytes(1 + chance.randrange(100))
        yield data[:position] + chance.randbytes(1) + data[position:]
    yield from (b"", b"\0" * len(data), data * 2, data[1:], data[::-1], b"some other program's file\n")


def test_damaged_file_is_a_miss(tmp_path: Path) -> None:
    cache, chance = as_compilation_cache(tmp_path), random.Random(0)
    DiskCache().store(cache, NAME, chance.randbytes(300))
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    for data in damaged(whole, chance):
        path.write_bytes(data)
        assert DiskCache().load(cache, NAME) is None
    path.write_bytes(whole)
    assert DiskCache().load(cache, NAME) == whole[56:-32]


def test_file_under_the_name_of_another_is_a_miss(tmp_path: Path) -> None:
    cache = as_compilation_cache(tmp_path)
    DiskCache().store(cache, NAME, b"content")
    files(tmp_path)[0].rename(tmp_path / f"{OTHER.hex()}.executable")
    assert DiskCache().load(cache, OTHER) is None


@pytest.mark.parametrize("harm", ["flipped", "cut", "extended", "of another format"])
def test_damaged_entry_is_recompiled_and_replaced(harm: str, folder: Path, compile_log: list[str]) -> None:
    expected = float(run()[0])
    (path,) = files(folder)
    whole = path.read_bytes()
    middle = len(whole) // 2
    if harm == "of another format":  # a valid file whose content is no executable
        DiskCache().store(as_compilation_cache(folder), bytes.fromhex(path.stem), b"no executable")
    else:
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        path.write_bytes({"flipped": flipped, "cut": whole[:middle], "extended": whole + b"\0"}[harm])
    for _ in range(3):
        assert float(run()[0]) == expected
    assert compile_log == ["lowered", "compiled"] * 2


def test_killed_writer_leaves_no_readable_entry(tmp_path: Path) -> None:
    size = 1 << 26
    text = """
        import sys
        from pathlib import Path
        from tracefx.settings import CompilationCache
        from tracefx.xla.disk_cache import DiskCache

        print("ready", flush=True)
        while True:
            DiskCache().store(CompilationCache(Path(sys.argv[1])), b"n" * 20, b"c" * int(sys.argv[2]))
    """
    command = [sys.executable, "-c", textwrap.dedent(text), str(tmp_path), str(size)]
    remaining: list[Path] = []
    for _ in range(20):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            end = time.monotonic() + 60
            while not any(p.stat().st_size for p in tmp_path.glob("*.partial") if p.exists()):
                if time.monotonic() > end:
                    writer.kill()
                    pytest.fail("the writer makes no file of another name")
                time.sleep(0.001)
            writer.send_signal(signal.SIGKILL)
        assert DiskCache().load(as_compilation_cache(tmp_path), NAME) in (None, b"c" * size)
        remaining = list(tmp_path.glob("*.partial"))
        if remaining:
            break
    assert remaining  # one of them was killed in the middle of writing
    DiskCache().store(as_compilation_cache(tmp_path), NAME, b"small")
    assert list(tmp_path.glob("*.partial")) == remaining  # another process might still write to it
    os.utime(remaining[0], (0, 0))
    DiskCache().store(as_compilation_cache(tmp_path), NAME, b"small")
    assert list(tmp_path.glob("*.partial")) == []
    assert DiskCache().load(as_compilation_cache(tmp_path), NAME) == b"small"


def test_eight_concurrent_writers(tmp_path: Path) -> None:
    """The cache holds three of the five files that they write, so they also evict each other's."""
    text = f"""
        from pathlib import Path
        from tracefx.settings import CompilationCache
        from tracefx.xla.disk_cache import DiskCache

        cache, disk, found = CompilationCache(Path({str(tmp_path)!r}), 3 * 20_200), DiskCache(), 0
        for i in range(40):
            name, content = bytes([i % 5]) * 20, bytes([i % 5]) * 20_000
            loaded = disk.load(cache, name)
            assert loaded in (None, content)
            found += loaded is not None
            disk.store(cache, name, content)
        print(found)
    """
    processes = [in_new_process(text, PYTHONWARNINGS="error") for _ in range(8)]
    outputs = [p.communicate()[0] for p in processes]
    assert [p.returncode for p in processes] == [0] * 8
    assert all(t.strip().isdigit() for t in outputs)
    remaining = files(tmp_path)
    assert 1 <= len(remaining) <= 3
    assert list(tmp_path.glob("*.partial")) == []
    for path in remaining:
        name = bytes.fromhex(path.stem)
        assert DiskCache().load(as_compilation_cache(tmp_path), name) == name[:1] * 20_000


# ------------------------------------------------------------------ eviction


def test_eviction_of_least_recently_used_entries(tmp_path: Path) -> None:
    cache, a_disk = CompilationCache(tmp_path, 3 * (1000 + OVERHEAD)), DiskCache()
    names = [bytes([i]) * 20 for i in range(4)]
    for age, name in zip((30, 20, 10), names, strict=False):
        a_disk.store(cache, name, b"c" * 1000)
        os.utime(tmp_path / f"{name.hex()}.executable", (time.time() - age,) * 2)
    assert a_disk.load(cache, names[0]) is not None  # the oldest entry; reading it makes it the most recently used
    a_disk.store(cache, names[3], b"c" * 1000)
    assert [a_disk.load(cache, name) is not None for name in names] == [True, False, True, True]


def test_entry_larger_than_the_cache_is_not_stored(tmp_path: Path) -> None:
    cache = CompilationCache(tmp_path, 1000)
    DiskCache().store(cache, NAME, b"c" * 500)
    DiskCache().store(cache, OTHER, b"c" * 1000)
    assert [DiskCache().load(cache, n) for n in (NAME, OTHER)] == [b"c" * 500, None]


# ------------------------------------------------------------------ I/O errors


def two_results() -> list[float]:
    """Runs two programs, compiled by one backend."""
    backend = XlaBackend()
    return [float(backend.compiled(program(of), "f")([X])[0]) for of in (f, lambda x: f(x) + 1)]


def test_full_disk_warns_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match="cannot be written: .*No space left") as outputs:
        results = two_results()
    assert len(outputs) == 1
    assert results[1] == results[0] + 1
    assert list(folder.iterdir()) == []


def test_path_that_is_no_folder_warns_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("not a folder")
    with fx.compilation_cache(path), pytest.warns(RuntimeWarning, match="cannot be read") as outputs:
        two_results()
    assert len(outputs) == 1


def test_working_cache_emits_no_warning(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run()
        run()
