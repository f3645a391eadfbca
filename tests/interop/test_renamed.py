"""A library that is written for JAX's public names, Optax, runs on tracefx under JAX's name."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np

from tests.closeness import assert_near
from tracefx.testing.tolerances import PROGRAM

PROGRAM_OF_OPTIMIZERS = "tests.interop.optimizers"


def _printed(*command: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", *command], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_optimizers_of_optax() -> None:
    theirs = _printed(PROGRAM_OF_OPTIMIZERS)
    ours = _printed("tests.interop.renamed", PROGRAM_OF_OPTIMIZERS)
    assert (theirs["array"], ours["array"]) == ("jax", "tracefx.core.array")
    assert ours["results"].keys() == theirs["results"].keys()
    for optimizer, leaves in theirs["results"].items():
        for name, want in leaves.items():
            got = np.asarray(ours["results"][optimizer][name], np.float32)
            assert_near(got, np.asarray(want, np.float32), PROGRAM, f"{optimizer}, {name}")
