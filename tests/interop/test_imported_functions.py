"""JAX's functions, imported, give what tracefx's of the same names give, which are compared with JAX's elsewhere."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np
import pytest

import tracefx as fx
from tests.differential.records import OURS, THEIRS, Call, Library, Record, is_inexact, operand_values, to_library_array
from tests.differential.table import RECORDS
from tests.versions import ULPS_OF_IMPORTED
from tracefx.interop.jax import from_jax
from tracefx.testing.tolerances import DERIVATIVE, Ulps, ulp_distance

_RECORDS: Final = [record for record in RECORDS if not record.is_plain]
_EVALUATED: Final = [r for r in _RECORDS if r.name.split(".")[0] in ("numpy", "lax", "nn")]
"""Those that NumPy computes, for the most part: what is compiled takes a hundred times as long."""
_SAMPLED: Final = _EVALUATED[::4]
"""Those whose values are compared."""
_MOVED: Final = [r for r in _EVALUATED[1::6] if r.derivatives and r.calls and r.calls[0].differentiable_operands]
"""Those whose derivatives are compared."""


def imported(record: Record, call: Call) -> Callable[..., Any]:
    """A call of JAX's function, as a function of its operands."""
    f = record.via(THEIRS)

    def called(*xs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call.of(f, xs)

    return from_jax(called)


def operands(library: Library, call: Call) -> list[Any]:
    return [to_library_array(library, x) for x in call.operands]


def agree(got: Any, want: Any, ulps: Ulps) -> None:
    leaves, wanted = fx.tree.leaves(got), fx.tree.leaves(want)
    for ours, theirs in zip(leaves, wanted, strict=True):
        g, w = np.asarray(ours), np.asarray(theirs)
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        allowed = ulps.for_array(w)
        limit = allowed.of(g.dtype) if is_inexact(g) else 0
        assert np.max(ulp_distance(g, w, allowed.least), initial=0) <= limit


@pytest.mark.parametrize("record", _RECORDS, ids=lambda record: record.name)
def test_types_are_those_of_jax(record: Record) -> None:
    for call in record.calls[:1]:
        f = imported(record, call)
        want = jax.make_jaxpr(getattr(f, "__wrapped__"))(*operands(THEIRS, call))  # noqa: B009
        got = fx.make_jaxpr(f)(*operands(OURS, call))
        for aval, theirs in zip(got.out_avals, want.out_avals, strict=True):
            assert (aval.shape, aval.dtype) == (theirs.shape, np.dtype(theirs.dtype)), call
            assert aval.weak_type == (theirs.weak_type and aval.dtype != np.bool_), call  # booleans are never weak here


@pytest.mark.parametrize("record", _SAMPLED, ids=lambda record: record.name)
def test_values_are_those_of_tracefx(record: Record) -> None:
    ulps = ULPS_OF_IMPORTED.get(record.name, record.ulps)
    for call in record.calls[:1]:
        given = operands(OURS, call)
        agree(imported(record, call)(*given), call.of(record.via(OURS), given), ulps)


@pytest.mark.parametrize("record", _MOVED, ids=lambda record: record.name)
def test_derivatives_are_those_of_tracefx(record: Record) -> None:
    call = record.calls[0]
    given = operands(OURS, call)
    places = [i for i in call.differentiable_operands if operand_values(call.operands[i]).dtype.kind == "f"]
    moved = [given[i] for i in places]

    def slopes(f: Callable[..., Any]) -> Any:
        def of_moved(*xs: Any) -> Any:
            operands = list(given)
            for i, x in zip(places, xs, strict=True):
                operands[i] = x
            return f(*operands)

        return fx.jvp(of_moved, moved, [fx.numpy.cos(x) for x in moved])

    agree(slopes(imported(record, call)), slopes(lambda *xs: call.of(record.via(OURS), xs)), DERIVATIVE)
