"""Optax, which uses JAX's public API, runs on tracefx when imports of `jax` are redirected."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.comparison import assert_near
from tests.laws.examples import is_long_profile
from tests.subprocesses import run_python
from tracefx.testing.tolerances import PROGRAM

PROGRAM_OF_OPTIMIZERS = "tests.interop.optimizers"


def _run_and_parse(*command: str) -> Any:
    process = run_python("-W", "ignore", "-m", *command)
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout.splitlines()[-1])


@pytest.mark.skipif(not is_long_profile(), reason="`make slow` starts its two processes")
def test_optimizers_of_optax() -> None:
    jax_output = _run_and_parse(PROGRAM_OF_OPTIMIZERS)
    fx_output = _run_and_parse("tests.interop.renamed", PROGRAM_OF_OPTIMIZERS)
    assert (jax_output["array"], fx_output["array"]) == ("jax", "tracefx.core.array")
    assert fx_output["results"].keys() == jax_output["results"].keys()
    for optimizer, leaves in jax_output["results"].items():
        for name, want in leaves.items():
            got = np.asarray(fx_output["results"][optimizer][name], np.float32)
            assert_near(got, np.asarray(want, np.float32), PROGRAM, f"{optimizer}, {name}")
