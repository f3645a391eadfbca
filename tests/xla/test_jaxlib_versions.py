"""The range of supported jaxlib versions, the error for any other, and jax in the same process."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.subprocesses import output_of
from tests.versions import JAXLIB
from tracefx import jaxlib_support

ROOT: Final = Path(__file__).parents[2]


def test_package_metadata_matches_the_accepted_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest, first_unsupported = [
        ".".join(map(str, version)) for version in (jaxlib_support.OLDEST, jaxlib_support.FIRST_UNSUPPORTED)
    ]
    for package in ("jax", "jaxlib"):
        assert f"{package}>={oldest},<{first_unsupported}" in project["dependencies"]
    assert project["optional-dependencies"]["gpu"] == [f"jax[cuda12]>={oldest},<{first_unsupported}"]
    assert jaxlib_support.OLDEST <= JAXLIB < jaxlib_support.FIRST_UNSUPPORTED


# ------------------------------------------------------------------ unsupported versions

TWICE: Final = """
    import os, sys
    import tracefx as fx, tracefx.numpy as fnp

    assert float(fnp.sin(0.5) + 1) > 1  # eager code needs no jaxlib
    messages = set()
    for _ in range(2):
        with fx.compilation_cache(os.environ["CACHE"]):
            try:
                fx.jit(lambda x: fnp.sin(x) * 2)(fnp.ones(3))
            except fx.errors.UnsupportedJaxlibError as error:
                messages.add(str(error))
    (message,) = messages
    print(message)
    assert not os.path.exists(os.environ["CACHE"]) or not os.listdir(os.environ["CACHE"])
"""
NEEDED: Final = r"; install a supported version with: pip install 'jax>=0\.10\.2,<0\.13' 'jaxlib>=0\.10\.2,<0\.13'\n"

REFUSED: Final[Mapping[str, tuple[Mapping[str, str], str]]] = {
    "too old": ({"__init__": "", "version": "__version__ = '0.9.2'"}, r"jaxlib 0\.9\.2 is not supported"),
    "almost": ({"__init__": "", "version": "__version__ = '0.10.1'"}, r"jaxlib 0\.10\.1 is not supported"),
    "too new": ({"__init__": "", "version": "__version__ = '0.13.0.dev2'"}, r"jaxlib 0\.13\.0\.dev2 is not supported"),
    "unversioned": ({"__init__": ""}, r"the installed jaxlib of unknown version is incomplete \(.*jaxlib\.version.*\)"),
    "no version": (
        {"__init__": "", "version": ""},
        r"the installed jaxlib of unknown version is incomplete \(.*__version__.*\)",
    ),
    "odd version": ({"__init__": "", "version": "__version__ = None"}, r"jaxlib None is not supported"),
    "no extension": (
        {"__init__": "", "version": "__version__ = '0.11.2'"},
        r"the installed jaxlib 0\.11\.2 is incomplete \(.*jaxlib\._jax.*\)",
    ),
    "stub": (
        {"__init__": "", "version": "__version__ = '0.11.2'", "_jax": "", "_hlo": ""},
        r"the installed jaxlib 0\.11\.2 is incomplete \(.*jaxlib\._jax.*\)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unsupported_jaxlib_raises_at_first_use(case: str, tmp_path: Path) -> None:
    files, message = REFUSED[case]
    (tmp_path / "jaxlib").mkdir()
    for name, text in files.items():
        (tmp_path / "jaxlib" / f"{name}.py").write_text(text)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    output = output_of(TWICE, CACHE=str(tmp_path / "cache"), PYTHONPATH=path)
    assert re.fullmatch(message + NEEDED, output), output


MISSING: Final = """
import sys
from importlib.machinery import PathFinder

class WithoutJaxlib(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name == "jaxlib" else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutJaxlib
"""


def test_missing_jaxlib_raises(tmp_path: Path) -> None:
    output = output_of(MISSING + textwrap.dedent(TWICE), CACHE=str(tmp_path / "cache"))
    assert re.fullmatch("jaxlib is not installed" + NEEDED, output), output


def test_jaxlib_without_required_names_raises(tmp_path: Path) -> None:
    missing = "import jaxlib._jax; del jaxlib._jax.batched_device_put\n"
    output = output_of(missing + textwrap.dedent(TWICE), CACHE=str(tmp_path / "cache"))
    incomplete = r"the installed jaxlib \S+ is incomplete \(.*no attribute 'batched_device_put'\)"
    assert re.fullmatch(incomplete + NEEDED, output), output


# ------------------------------------------------------------------ jax in the same process

OURS: Final = """
def ours():
    import numpy as np, tracefx as fx, tracefx.numpy as fnp
    x = np.arange(16.0, dtype=np.float32).reshape(8, 2)
    assert np.array_equal(fx.jit(fx.grad(lambda x: fnp.sum(x * x)))(x), 2 * x)
    mesh = fx.make_mesh((8,), ("i",))
    put = fx.device_put(x, fx.NamedSharding(mesh, fx.P("i")))
    double = fx.jit(lambda x: x * 2)
    assert np.array_equal(np.asarray(double(put)), x * 2)
    total = fx.shard_map(lambda x: fx.lax.psum(x, "i"), mesh=mesh, in_specs=fx.P("i"), out_specs=fx.P())
    assert np.array_equal(np.asarray(fx.jit(total)(put))[0], x.sum(0))
"""
THEIRS: Final = """
def theirs():
    import jax, jax.numpy as jnp, numpy as np
    x = np.arange(16.0, dtype=np.float32).reshape(8, 2)
    assert np.array_equal(jax.jit(jax.grad(lambda x: jnp.sum(x * x)))(x), 2 * x)
    mesh = jax.make_mesh((8,), ("i",))
    put = jax.device_put(x, jax.NamedSharding(mesh, jax.P("i")))
    double = jax.jit(lambda x: x * 2, out_shardings=jax.NamedSharding(mesh, jax.P()))
    assert np.array_equal(np.asarray(double(put)), x * 2)
    total = jax.shard_map(lambda x: jax.lax.psum(x, "i"), mesh=mesh, in_specs=jax.P("i"), out_specs=jax.P())
    assert np.array_equal(np.asarray(jax.jit(total)(put))[0], x.sum(0))
"""


@pytest.mark.parametrize("order", ["theirs(); ours()", "ours(); theirs(); ours()"])
def test_sharded_programs_of_tracefx_and_jax_in_one_process(order: str) -> None:
    flags = "--xla_force_host_platform_device_count=8"
    calls = order.replace("; ", "\n")
    assert output_of(f"{OURS}\n{THEIRS}\n{calls}\nprint('done')", XLA_FLAGS=flags) == "done\n"
