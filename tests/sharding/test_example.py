"""The worked example: a GPT has the same losses on a mesh, and in several processes, as on one device."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import tracefx as fx
from demo.parallel.__main__ import main
from demo.parallel.model import Sizes, loss
from demo.parallel.training import mapped_loss, new_state, step_of, train
from tests.comparison import assert_near
from tests.laws.examples import is_long_profile
from tests.subprocesses import run_python
from tracefx.sharding import AxisType
from tracefx.testing.tolerances import DERIVATIVE

SMALL = Sizes(blocks=2, heads=2, head=4, hidden=16, context=8)
PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def single_device_losses() -> list[float]:
    losses = train(SMALL, 8, 6, None)
    assert losses[-1] < losses[0]
    return losses


@pytest.mark.parametrize("style", ["jit", "shard_map"])
def test_losses_on_a_mesh_match_one_device(style: str, single_device_losses: list[float]) -> None:
    mesh = fx.make_mesh((4, 2), ("data", "model"), (AxisType.Auto,) * 2)
    mesh_losses = train(SMALL, 8, 6, mesh, loss if style == "jit" else mapped_loss(mesh))
    # The losses are float32, after several gradient steps.
    assert_near(np.asarray(mesh_losses, np.float32), single_device_losses, DERIVATIVE)


def test_training_step_keeps_weights_sharded() -> None:
    mesh = fx.make_mesh((4, 2), ("data", "model"), (AxisType.Auto,) * 2)
    part = fx.NamedSharding(mesh, fx.P(None, None, "model"))
    state = new_state(SMALL, 0)
    up = fx.device_put(state.params.blocks.up, part)
    params = state.params._replace(blocks=state.params.blocks._replace(up=up))
    text = fx.device_put(np.ones((8, SMALL.context + 1), np.int32), fx.NamedSharding(mesh, fx.P("data")))
    updated, _ = fx.jit(step_of(loss))(state._replace(params=params), text)
    assert updated.params.blocks.up.sharding.is_equivalent_to(part, 3)


def losses(output: str) -> list[int]:
    """The losses that the program prints, in units of the last printed digit."""
    lines = [line.split() for line in output.splitlines() if line.startswith("step")]
    return [int(line[3].replace(".", "")) for line in lines]


@pytest.mark.skipif(not is_long_profile(), reason="`make slow` compiles GPTs in two processes")
def test_losses_in_two_processes_match_one_process(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if "device_count" not in flag]
    monkeypatch.setenv("XLA_FLAGS", " ".join(flags))  # the program adds its own flags
    main(["--steps", "2", "--one-device"])
    expected = losses(capsys.readouterr().out)
    run = run_python("-m", "demo.parallel", "--steps", "2", "--processes", "2", "--shard-map", cwd=PROJECT)
    assert run.returncode == 0, run.stderr
    actual = losses(run.stdout)
    assert len(expected) == len(actual) == 3
    assert np.abs(np.subtract(actual, expected)).max() <= 1, (
        actual,
        expected,
    )  # the last digit may be rounded differently
