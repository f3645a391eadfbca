"""Compatibility of files between versions of jaxlib: cache entries, exported programs and pickles.

`make test-latest` sets `TRACEFX_OTHER_PYTHON` to an interpreter with another jaxlib.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from tests.comparison import assert_near
from tracefx.testing.tolerances import PROGRAM
from tracefx.xla.runtime import bindings, executables, platforms

ROOT: Final = Path(__file__).parents[2]
OTHER: Final = os.environ.get("TRACEFX_OTHER_PYTHON", "")

pytestmark = pytest.mark.skipif(
    not OTHER, reason="needs a second jaxlib: make test-latest names an interpreter with one"
)

SETUP: Final = """
import pickle, sys
from pathlib import Path
import numpy as np
import tracefx as fx, tracefx.numpy as fnp

folder = Path(sys.argv[1])
x = np.array([[4.0, 1.0], [1.0, 3.0]], np.float32)

def f(x):
    return fnp.sin(fnp.linalg.inv(x)) @ x

def linear(x):
    return fx.vjp(f, x)[1]
"""
COMPILE: Final = """
with fx.compilation_cache(folder / "cache"):
    np.save(folder / "out.npy", np.asarray(fx.jit(f)(x)))
"""
WRITE: Final = """
(folder / "exported").write_bytes(fx.export(fx.jit(f))(x).serialize())
values = {"program": fx.make_jaxpr(f)(x), "array": fnp.asarray(x), "tree": fx.tree.structure({"a": (1, None)})}
values["pullback"] = fx.jit(linear)(x)
(folder / "pickled").write_bytes(pickle.dumps(values))
"""
READ: Final = """
values = pickle.loads((folder / "pickled").read_bytes())
assert values["tree"] == fx.tree.structure({"a": (1, None)})
np.savez(
    folder / "out.npz",
    exported=fx.load((folder / "exported").read_bytes()).call(x),
    program=fx.jit(fx.jaxpr_as_fun(values["program"]))(values["array"])[0],
    pullback=values["pullback"](np.ones_like(x))[0],
    vjp=fx.vjp(f, x)[1](np.ones_like(x))[0],
)
"""


def run(python: str, code: str, folder: Path) -> None:
    """Runs `SETUP` followed by `code` in an interpreter that imports tracefx, but not its tests, from this checkout."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XLA_FLAGS": ""}
    command = [python, "-c", SETUP + code, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def entries(folder: Path) -> set[Path]:
    return set((folder / "cache").rglob("*.executable"))


def test_the_interpreters_have_different_versions_of_jaxlib() -> None:
    code = "from importlib.metadata import version; print(version('jaxlib'))"
    other_version = subprocess.run([OTHER, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert other_version != version("jaxlib")


@pytest.mark.parametrize("first", ["other", "own"])
def test_cache_entries_of_versions_coexist(first: str, tmp_path: Path) -> None:
    pythons = [OTHER, sys.executable] if first == "other" else [sys.executable, OTHER]
    cache_files, outs = [], []
    for python in [*pythons, *pythons]:
        run(python, COMPILE, tmp_path)
        cache_files.append(entries(tmp_path))
        outs.append(np.load(tmp_path / "out.npy"))
    assert cache_files[0] < cache_files[1]
    assert cache_files[1] == cache_files[2] == cache_files[3]  # each version reads its own entry
    for out in outs[1:]:
        assert_near(out, outs[0])


def test_executable_of_another_version_raises(tmp_path: Path) -> None:
    run(OTHER, COMPILE, tmp_path)
    for entry in entries(tmp_path):
        content = entry.read_bytes()[28 + 20 + 8 : -32]  # the format is described in tracefx/xla/disk_cache.py
        with pytest.raises(
            bindings.LoadError, match=rf"was written by jaxlib \S+, this is {version('jaxlib')}: compile"
        ):
            executables.load_executable(content, platforms.devices()[0])


@pytest.mark.parametrize("writer", ["other", "own"])
def test_exported_programs_and_pickles_load_in_another_version(writer: str, tmp_path: Path) -> None:
    writes, reads = (OTHER, sys.executable) if writer == "other" else (sys.executable, OTHER)
    run(writes, WRITE, tmp_path)
    run(reads, READ, tmp_path)
    x = np.array([[4.0, 1.0], [1.0, 3.0]], np.float32)
    with np.load(tmp_path / "out.npz") as out:
        assert_near(out["exported"], np.sin(np.linalg.inv(x)) @ x, PROGRAM)
        assert_near(out["program"], out["exported"], PROGRAM)
        assert_near(out["pullback"], out["vjp"], PROGRAM)
