"""Libraries that take any arrays work with tracefx as with JAX: array-api-compat, SciPy, opt_einsum, einops etc."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.comparison import assert_near
from tests.laws.examples import is_long_profile
from tests.subprocesses import run_python
from tracefx.testing.tolerances import DERIVATIVE

pytestmark = pytest.mark.skipif(not is_long_profile(), reason="`make slow` starts its two processes of 15 seconds")
TRANSFORMATIONS: Final = ("eager", "jit", "grad", "vmap")
ASSIGNS: Final = (
    "it assigns to elements, except of arrays that array_api_extra knows to be immutable, JAX's for example"
)
COMPILED: Final = "it calls compiled code, except for namespaces that SciPy knows by name, JAX's for example"
LIMITED: Final[Mapping[str, str]] = {
    **{f"array_api_extra: {name}": ASSIGNS for name in ("at.set", "at.add", "create_diagonal", "pad")},
    "scipy.special: logsumexp": ASSIGNS,
    **{f"scipy: {name}": ASSIGNS for name in ("zscore", "pearsonr", "whiten")},
    "scipy: detrend": COMPILED,
}
"""The calls of which fewer transformations work than with JAX, and why an array cannot change that."""


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, dict[str, Any]]]:
    """The outcomes with each library, from processes in which SciPy dispatches on namespaces."""
    for library in ("array_api_compat", "array_api_extra", "einops", "opt_einsum", "scipy"):
        pytest.importorskip(library, reason=f"{library}, of the extra `test`, is not installed")
    found = {}
    for name, command, library in (
        ("tracefx", (), "tracefx"),
        ("jax", (), "jax"),
        ("as_jax", ("-m", "tracefx.as_jax"), "jax"),
    ):
        module = *command, "-m", "tests.interop.array_libraries", library
        done = run_python("-W", "ignore", *module, SCIPY_ARRAY_API="1")
        assert done.returncode == 0, done.stderr
        found[name] = json.loads(done.stdout.splitlines()[-1])
    assert len(found["jax"]) == 72
    return found


@pytest.mark.parametrize(("name", "limited"), [("tracefx", set(LIMITED)), ("as_jax", set())])
def test_transformations_that_work(outcomes: Any, name: str, limited: set[str]) -> None:
    fewer = {
        call
        for call, expected in outcomes["jax"].items()
        if any(outcomes[name][call][each] and not expected[each] for each in TRANSFORMATIONS)
    }
    assert fewer == limited, {call: outcomes[name][call] for call in fewer ^ limited}


def test_numbers_of_calls_that_work(outcomes: Any) -> None:
    """The table in docs/interchange.md."""
    page = (Path(__file__).parents[2] / "docs" / "interchange.md").read_text(encoding="utf-8")
    for title, name in (("JAX", "jax"), ("tracefx", "tracefx"), ("tracefx by `as_jax`", "as_jax")):
        numbers = [sum(not call[each] for call in outcomes[name].values()) for each in TRANSFORMATIONS]
        assert f"| {title} | {' | '.join(map(str, numbers))} |" in page, (title, numbers)


@pytest.mark.parametrize("library", ["tracefx", "as_jax"])
def test_values_and_gradients(outcomes: Any, library: str) -> None:
    for name, expected in outcomes["jax"].items():
        for key in ("value", "gradient"):
            if (name, key) == ("array_api_compat: unique_values", "gradient"):
                continue  # JAX's derivative of `unique` is zero
            actual = outcomes[library][name][key]
            if actual is not None and expected[key] is not None:
                got, want = [np.array(x, np.float32) for x in (actual, expected[key])]
                assert_near(got, want, DERIVATIVE, f"{name}: {key}")
