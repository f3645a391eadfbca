"""Which platforms there are and which one is the default, with plug-ins of our own: in processes of their own.

`plugin` has one that gives a second client of the host as the platform "fake", so that all but the devices themselves
is as it is with a GPU; `advertised` has one that is found by its package's entry point; that in `failing` fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.sharding.processes import DONE
from tests.sharding.test_processes import together, told
from tests.versions import LOG_OF_DEVICE_ORDERS
from tracefx.xla.runtime.platforms import requested_platform

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent
CHOSEN: Final = ("PYTHONPATH", "TRACEFX_PLATFORM", "JAX_PLATFORMS")


def environment(folder: str | None, platform: str) -> dict[str, str]:
    """That of a process that has the plug-in of a folder."""
    path = [str(ROOT / "src"), str(ROOT), *([] if folder is None else [str(HERE / folder)])]
    chosen = dict(zip(CHOSEN, (os.pathsep.join(path), platform, ""), strict=True))
    return dict(os.environ) | chosen


def said(code: str, folder: str | None = None, platform: str = "") -> str:
    """What a process prints."""
    program = [sys.executable, "-c", f"import sys, tracefx as fx, numpy as np\n{code}"]
    done = subprocess.run(program, env=environment(folder, platform), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_suite_on_another_platform() -> None:
    """All that is said of devices that aren't the host's first, by a platform that a plug-in brings."""
    tests = [str(HERE / "test_devices.py"), str(HERE / "test_running.py")]
    arguments = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), *tests]
    done = subprocess.run(
        arguments, env=environment("plugin", ""), capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert done.returncode == 0, done.stdout[-4000:]


REFUSED: Final = """
try:
    fx.devices({!r})
except fx.errors.PlatformError as error:
    print(error)
"""


def test_a_plugin_is_the_default_where_it_is_installed() -> None:
    shown = """
print([d.client is not fx.devices("cpu")[0].client for d in fx.devices()], fx.jit(lambda: np.ones(2))().committed)
print("jax" in sys.modules, fx.devices() == fx.devices("fake"))
"""
    *lines, message = said(shown + REFUSED.format("cuda"), "plugin").splitlines()
    assert lines == ["[True, True] False", "True True"]
    assert "the plug-ins installed are jax_plugins.fake" in message


def test_a_plugin_of_a_package() -> None:
    assert said('print(len(fx.devices()), fx.devices() == fx.devices("advertised"))', "advertised") == "3 True"


def test_the_environment_chooses() -> None:
    shown = 'print(fx.devices() == fx.devices("cpu"), "jax" in sys.modules)'
    assert said(shown, "plugin", platform="cpu") == "True False"


def test_without_a_plugin() -> None:
    shown = 'print(fx.jit(lambda x: x + 1)(np.ones(2)).device, "jax" in sys.modules)'
    line, message = said(shown + REFUSED.format("gpu")).splitlines()
    assert line == "cpu:0 False"  # jax is not imported to learn so
    assert "no devices of platform 'gpu'; there are some of cpu" in message
    assert "no plug-in is installed: pip install '.[gpu]'" in message


def test_a_plugin_that_fails() -> None:
    # It is none to run on, so that the host is the default.
    same, message = said("print(fx.devices() == fx.devices('cpu'))" + REFUSED.format("cuda"), "failing").splitlines()
    assert same == "True"
    assert "The plug-in jax_plugins.broken fails: RuntimeError: Unable to load CUDA. Is it installed?" in message


@pytest.mark.parametrize(
    ("variables", "platform"),
    [
        ({}, None),
        ({"TRACEFX_PLATFORM": "", "JAX_PLATFORMS": ""}, None),
        ({"TRACEFX_PLATFORM": " CUDA "}, "cuda"),
        ({"JAX_PLATFORMS": "tpu,cpu"}, "tpu"),
        ({"JAX_PLATFORMS": "tpu,cpu", "TRACEFX_PLATFORM": "cpu"}, "cpu"),
    ],
)
def test_what_the_environment_wishes(variables: dict[str, str], platform: str | None) -> None:
    assert requested_platform(variables) == platform


def test_several_processes() -> None:
    """The devices of a plug-in are those of all processes: JAX's clients are told of the others, and part from none."""
    chosen = {name: value for name, value in environment("plugin", "").items() if name in CHOSEN}
    ended = together("working_together", 2, 2, **chosen)
    assert [e.code for e in ended] == [0] * 2, told(ended)
    assert all(DONE in e.out and not LOG_OF_DEVICE_ORDERS.sub("", e.err) for e in ended), told(ended)
