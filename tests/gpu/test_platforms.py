"""Available platforms and the default platform, tested with small plug-ins in subprocesses.

The plug-in in `plugin` provides a second CPU client as the platform "fake": everything except the hardware is as with
a GPU. The one in `advertised` is found by the entry point of its package. The one in `failing` raises.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.laws.examples import is_long_profile
from tests.sharding.processes import DONE
from tests.sharding.test_processes import format_output, run_processes
from tests.versions import LOG_OF_DEVICE_ORDERS
from tracefx.xla.runtime.platforms import requested_platform

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent
CHOSEN: Final = ("PYTHONPATH", "TRACEFX_PLATFORM", "JAX_PLATFORMS")


def environment(folder: str | None, platform: str) -> dict[str, str]:
    """Returns the environment of a process that can import the plug-in of a folder."""
    path = [str(ROOT / "src"), str(ROOT), *([] if folder is None else [str(HERE / folder)])]
    chosen = dict(zip(CHOSEN, (os.pathsep.join(path), platform, ""), strict=True))
    return dict(os.environ) | chosen


def output_of(code: str, folder: str | None = None, platform: str = "") -> str:
    """Runs code in a new process and returns what it prints."""
    program = [sys.executable, "-c", f"import sys, tracefx as fx, numpy as np\n{code}"]
    done = subprocess.run(program, env=environment(folder, platform), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_device_suite_on_a_plugin_platform() -> None:
    """Runs test_devices.py on the platform of a plug-in."""
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


def test_installed_plugin_is_the_default_platform() -> None:
    script = """
print([d.client is not fx.devices("cpu")[0].client for d in fx.devices()], fx.jit(lambda: np.ones(2))().committed)
print("jax" in sys.modules, fx.devices() == fx.devices("fake"))
"""
    *lines, message = output_of(script + REFUSED.format("cuda"), "plugin").splitlines()
    assert lines == ["[True, True] False", "True True"]
    assert "the plug-ins installed are jax_plugins.fake" in message


def test_plugin_found_by_entry_point() -> None:
    assert output_of('print(len(fx.devices()), fx.devices() == fx.devices("advertised"))', "advertised") == "3 True"


def test_environment_selects_the_platform() -> None:
    script = 'print(fx.devices() == fx.devices("cpu"), "jax" in sys.modules)'
    assert output_of(script, "plugin", platform="cpu") == "True False"


def test_no_plugin() -> None:
    script = 'print(fx.jit(lambda x: x + 1)(np.ones(2)).device, "jax" in sys.modules)'
    line, message = output_of(script + REFUSED.format("gpu")).splitlines()
    assert line == "cpu:0 False"  # without importing jax
    assert "no devices of platform 'gpu', only of cpu" in message
    assert "no plug-in is installed: pip install '.[gpu]'" in message


def test_failing_plugin() -> None:
    # A platform whose plug-in fails is unavailable: the host is the default.
    same, message = output_of(
        "print(fx.devices() == fx.devices('cpu'))" + REFUSED.format("cuda"), "failing"
    ).splitlines()
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
def test_platform_requested_by_the_environment(variables: dict[str, str], platform: str | None) -> None:
    assert requested_platform(variables) == platform


@pytest.mark.skipif(not is_long_profile(), reason="`make slow` starts its two processes")
def test_several_processes() -> None:
    """The plug-in sees the devices of all processes: JAX's clients connect to each other and do not disconnect."""
    chosen = {name: value for name, value in environment("plugin", "").items() if name in CHOSEN}
    ended = run_processes("all_checks", 2, 2, **chosen)
    assert [e.code for e in ended] == [0] * 2, format_output(ended)
    assert all(DONE in e.out and not LOG_OF_DEVICE_ORDERS.sub("", e.err) for e in ended), format_output(ended)
