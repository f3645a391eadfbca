"""Runs functions of other libraries on tracefx arrays and reports whether call, gradient and `vmap` work."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.subprocesses import run_python
from tracefx.testing.tolerances import FINITE_DIFFERENCES

Call: TypeAlias = Callable[[Any], Any]
Outcome: TypeAlias = tuple[str, str, str]
"""Results of the call, its gradient and its `vmap`: "right", or the name of the error."""

PURE: Final[Outcome] = ("right", "right", "right")
"""Pure array code."""
BRANCHES: Final[Outcome] = ("right", "right", "TracerBoolConversionError")
"""Branches on values, as checks for finite numbers do, which fails under `vmap`."""
SELECTS: Final[Outcome] = ("right", "right", "MaskIndexError")
"""The shape of a result depends on values, which fails under `vmap`."""
COMPILED: Final[Outcome] = ("right", "TracerArrayConversionError", "TracerArrayConversionError")
"""Converts to NumPy arrays for compiled code, which has no derivative."""
FLOATS: Final[Outcome] = ("right", "ConcretizationError", "TracerBoolConversionError")
"""Converts to a Python number, which has no derivative."""
ASSIGNS: Final[Outcome] = ("TypeError", "TypeError", "TypeError")
"""Assigns to elements of an array."""
BRANCHES_AND_ASSIGNS: Final[Outcome] = ("TypeError", "TypeError", "TracerBoolConversionError")


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, tuple | list):
        for part in tree:
            yield from _leaves(part)
    else:
        yield tree


def _total(call: Call) -> Callable[[Any], Any]:
    """Returns a function that sums all results of a call with distinct weights."""

    def total(x: Any) -> Any:
        return sum([(leaf * fnp.cos(fnp.arange(float(leaf.size))).reshape(leaf.shape)).sum() for leaf in floats(x)])

    def floats(x: Any) -> list[Any]:
        leaves = [fnp.asarray(leaf) for leaf in _leaves(call(x))]
        return [abs(leaf) if leaf.dtype.kind == "c" else leaf for leaf in leaves if leaf.dtype.kind in "fc"]

    return total


def _outcome_of(check: Callable[[], None]) -> str:
    try:
        check()
    except AssertionError as error:
        return f"wrong: {error}"
    except Exception as error:
        if type(error) is TypeError and "arrays are immutable" not in str(error):
            return f"TypeError: {error}"
        return type(error).__name__
    return "right"


def outcome(call: Call, x: Any) -> Outcome:
    """Compares the call with NumPy, the gradient with a finite difference, and `vmap` with a loop."""
    array, total = fnp.asarray(x, dtype=np.float64), _total(call)
    direction = np.cos(np.arange(float(x.size))).reshape(x.shape)

    def derivative() -> None:
        right, left = [float(total(fnp.asarray(x + step * direction, dtype=np.float64))) for step in (1e-6, -1e-6)]
        assert_near((np.asarray(fx.grad(total)(array)) * direction).sum(), (right - left) / 2e-6, FINITE_DIFFERENCES)

    def batched() -> None:
        batch = fnp.stack([array, array * 0.75])
        assert_near(fx.vmap(total)(batch), fnp.stack([total(batch[0]), total(batch[1])]))

    return _outcome_of(lambda: assert_near(call(array), call(x))), _outcome_of(derivative), _outcome_of(batched)


def outcomes_in_subprocess(module: str) -> dict[str, Outcome]:
    """Returns the outcomes of the `CALLS` of a module, run in a process with SCIPY_ARRAY_API=1."""
    process = run_python("-W", "ignore", "-m", module, SCIPY_ARRAY_API="1")
    assert process.returncode == 0, process.stderr
    return {name: tuple(outcome_) for name, outcome_ in json.loads(process.stdout).items()}


def report(calls: Mapping[str, tuple[Call, Outcome]], x: Any) -> str:
    return json.dumps({name: outcome(call, x) for name, (call, _) in calls.items()})
