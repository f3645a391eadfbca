"""Programs of libraries for JAX compute the same numbers on tracefx, by `python -m tracefx.as_jax`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.comparison import assert_near
from tests.laws.examples import is_long_profile
from tests.subprocesses import run_python
from tracefx.testing.tolerances import PROGRAM

SAMPLES = Path(__file__).parents[2] / "benchmarks" / "ecosystem" / "samples"
PROGRAM_OF_OPTIMIZERS = "tests.interop.optimizers"
pytestmark = pytest.mark.skipif(not is_long_profile(), reason="`make slow` starts two processes for each")


def _run_and_parse(*command: str | Path, **environment: str) -> Any:
    process = run_python("-W", "ignore", *command, **environment)
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout.splitlines()[-1])


EXAMPLES = """
import sys
from pathlib import Path
from tracefx.interop.as_jax import install
install()
from tests.test_docs import failures
page = Path(sys.argv[1])
sys.exit("".join(failures(page.read_text(encoding="utf-8").replace("```pycon", "```python"), page.name)) or None)
"""
PAGE = Path(__file__).parents[2] / "docs" / "as_jax_models.md"


def test_examples_of_the_page() -> None:
    process = run_python("-W", "ignore", "-c", EXAMPLES, PAGE)
    assert process.returncode == 0, process.stderr[-3000:]


def test_optimizers_of_optax() -> None:
    jax_output = _run_and_parse("-m", PROGRAM_OF_OPTIMIZERS)
    fx_output = _run_and_parse("-m", "tracefx.as_jax", "-m", PROGRAM_OF_OPTIMIZERS)
    assert (jax_output["array"], fx_output["array"]) == ("jax", "tracefx.core.array")
    assert fx_output["results"].keys() == jax_output["results"].keys()
    for optimizer, leaves in jax_output["results"].items():
        for name, want in leaves.items():
            got = np.asarray(fx_output["results"][optimizer][name], np.float32)
            assert_near(got, np.asarray(want, np.float32), PROGRAM, f"{optimizer}, {name}")


@pytest.mark.parametrize("name", ["optax_training", "equinox_training", "flax_linen_training", "orbax_checkpoints"])
def test_training(name: str) -> None:
    """In 64 bits, so that training does not amplify rounding to more than single precision."""
    program, environment = SAMPLES / f"{name}.py", {"JAX_ENABLE_X64": "1", "TRACEFX_ENABLE_X64": "1"}
    ours = _run_and_parse("-m", "tracefx.as_jax", program, **environment)
    assert_near(np.float32(ours), np.float32(_run_and_parse(program, **environment)))
