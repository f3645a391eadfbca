"""What becomes of another library's function when it is given arrays of ours, differentiated and batched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tracefx.testing.tolerances import FINITE_DIFFERENCES, SUMMED, Ulps

Call: TypeAlias = Callable[[Any], Any]
Outcome: TypeAlias = tuple[str, str, str]
"""Of the call, its derivative and its batching: "right", or the name of the error."""

PURE: Final[Outcome] = ("right", "right", "right")
"""Array code throughout."""
BRANCHES: Final[Outcome] = ("right", "right", "TracerBoolConversionError")
"""Decides by numbers how to go on, as checks that they are finite do: not of a whole batch at once."""
SELECTS: Final[Outcome] = ("right", "right", "MaskIndexError")
"""The shape of a result depends on numbers: not of a whole batch at once."""
COMPILED: Final[Outcome] = ("right", "TracerArrayConversionError", "TracerArrayConversionError")
"""Goes on in C with NumPy's arrays, which have no derivative."""
FLOATS: Final[Outcome] = ("right", "ConcretizationError", "TracerBoolConversionError")
"""Ends in a Python number, which has no derivative."""
ASSIGNS: Final[Outcome] = ("TypeError", "TypeError", "TypeError")
"""Assigns to elements of an array."""
BRANCHES_AND_ASSIGNS: Final[Outcome] = ("TypeError", "TypeError", "TracerBoolConversionError")


def _leaves(found: Any) -> Iterator[Any]:
    if isinstance(found, tuple | list):
        for part in found:
            yield from _leaves(part)
    else:
        yield found


def _total(call: Call) -> Callable[[Any], Any]:
    """A number that depends on all results of a call."""

    def total(x: Any) -> Any:
        return sum([(leaf * fnp.cos(fnp.arange(float(leaf.size))).reshape(leaf.shape)).sum() for leaf in floats(x)])

    def floats(x: Any) -> list[Any]:
        leaves = [fnp.asarray(leaf) for leaf in _leaves(call(x))]
        return [abs(leaf) if leaf.dtype.kind == "c" else leaf for leaf in leaves if leaf.dtype.kind in "fc"]

    return total


def _judged(check: Callable[[], None]) -> str:
    try:
        check()
    except AssertionError as error:
        return f"wrong: {error}"
    except Exception as error:
        if type(error) is TypeError and "arrays are immutable" not in str(error):
            return f"TypeError: {error}"
        return type(error).__name__
    return "right"


def _near(found: Any, wanted: Any, tolerance: Ulps = SUMMED) -> None:
    for a, b in zip(_leaves(found), _leaves(wanted), strict=True):
        assert_near(a, b, tolerance)


def outcome(call: Call, x: Any) -> Outcome:
    """Compared with NumPy's arrays, with differences in one direction, and with one call for each."""
    ours, total = fnp.asarray(x, dtype=np.float64), _total(call)
    way = np.cos(np.arange(float(x.size))).reshape(x.shape)

    def derivative() -> None:
        there, back = [float(total(fnp.asarray(x + step * way, dtype=np.float64))) for step in (1e-6, -1e-6)]
        _near((np.asarray(fx.grad(total)(ours)) * way).sum(), (there - back) / 2e-6, FINITE_DIFFERENCES)

    def batched() -> None:
        batch = fnp.stack([ours, ours * 0.75])
        _near(fx.vmap(total)(batch), fnp.stack([total(batch[0]), total(batch[1])]))

    return _judged(lambda: _near(call(ours), call(x))), _judged(derivative), _judged(batched)


def outcomes_elsewhere(module: str) -> dict[str, Outcome]:
    """What the `CALLS` of a module become in a process in which SciPy is imported with SCIPY_ARRAY_API."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module],
        env={**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return {name: tuple(found) for name, found in json.loads(ran.stdout).items()}


def report(calls: Mapping[str, tuple[Call, Outcome]], x: Any) -> str:
    return json.dumps({name: outcome(call, x) for name, (call, _) in calls.items()})
