"""The recipe for adding a primitive in CONTRIBUTING.md, followed in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
RECIPE: Final = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PROGRAM: Final = """
import numpy as np
import tracefx as fx
from tests.comparison import assert_near
from tracefx.extend import bind1

def f(x):
    return bind1(fx.ops.SixthRoot(), x)

x = np.array([0.1, 1.0, 100.0], np.float32)
for values in (f(x), fx.jit(f)(x), fx.vmap(f)(x), fx.jit(fx.vmap(f))(x)):
    assert_near(values, np.cbrt(np.sqrt(x)))
assert_near(fx.vmap(fx.jit(fx.grad(f)))(x), np.cbrt(np.sqrt(x)) / (6 * x))
program = fx.make_jaxpr(f)(x)
assert fx.parse_jaxpr(str(program)) == program.jaxpr
assert fx.programs.deserialize(fx.programs.serialize(program)) == program
print(program)
"""
TESTS: Final = (
    *("laws/test_operations.py", "laws/test_types.py", "laws/test_edges.py", "ops/test_vocabulary.py"),
    *("core/test_serialization_own.py", "interop/test_to_jax_operations.py"),
    "handlers/test_taylor_operations.py",
)

SELECTED: Final = "sixth_root or vocabulary_is_complete or every_operation_has_samples or every_primitive_is_tested"


def code_after(words: str) -> str:
    """Returns the code block after the given words."""
    return RECIPE.split(words, 1)[1].split("\n```", 2)[1].partition("\n")[2] + "\n"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the repository with the primitive of the recipe."""
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("seeds", "typing"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (path,) = re.findall(r"a file of its own,\s+`(\S+)`", RECIPE)
    (tmp_path / path).write_text(code_after(f"`{path}`"), encoding="utf-8")
    (path,) = re.findall(r"The export is a line of `(\S+)`", RECIPE)
    with (tmp_path / path).open("a", encoding="utf-8") as stub:
        stub.write(code_after(f"`{path}`"))
    (path,) = re.findall(r"The test record is a line of `SAMPLES` in `(\S+)`", RECIPE)
    samples = (tmp_path / path).read_text(encoding="utf-8")
    head = "SAMPLES: Final[tuple[Sample, ...]] = (\n"
    assert head in samples
    (tmp_path / path).write_text(samples.replace(head, head + code_after(f"`{path}`")), encoding="utf-8")
    return tmp_path


def run(copy: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=copy, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_recipe_for_a_primitive_is_complete(copy: Path) -> None:
    assert run(copy, "-c", PROGRAM) == "{ lambda ; a:f32[3]. let b:f32[3] = sixth_root a in (b,) }\n"
    tests = [f"tests/{name}" for name in TESTS]
    summary = run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", SELECTED, *tests)
    (passed,) = re.findall(r"(\d+) passed", summary)
    assert int(passed) > 15
