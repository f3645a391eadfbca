"""Public functions of tracefx, exported: programs have the same types in JAX, come back, and compute the same."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np
import pytest

import tracefx as fx
from tests.differential.records import OURS, Call, Record, is_inexact, to_library_array
from tests.differential.table import RECORDS
from tracefx.core import dtypes
from tracefx.interop.jax import as_jax, as_tracefx, from_jax, to_jax
from tracefx.interop.jax.values import type_from_jax
from tracefx.testing.tolerances import DERIVATIVE, Ulps, ulp_distance

_RECORDS: Final = [record for record in RECORDS if not record.is_plain and record.calls]
_TRACED: Final = _RECORDS[::3]
_COMPUTED: Final = _RECORDS[2::24]

_BACK: Final = [
    record for record in _TRACED if record.name.startswith(("nn.", "numpy.")) and "linalg" not in record.name
]
"""Those that come back as the same programs; JAX's Cholesky and solvers are others, and keys have conversions."""


def function(record: Record, call: Call) -> Callable[..., Any]:
    """A call of a function of ours, as a function of its operands."""
    return lambda *xs: call.of(record.via(OURS), xs)


def operands(call: Call) -> tuple[list[Any], list[Any]]:
    """What it is called with, here and in JAX."""
    ours = [to_library_array(OURS, x) for x in call.operands]
    return ours, [as_jax(x) if isinstance(x, fx.Array) else x for x in ours]


def agree(got: Any, want: Any, ulps: Ulps) -> None:
    leaves, wanted = jax.tree.leaves(got), fx.tree.leaves(want)
    for theirs, ours in zip(leaves, wanted, strict=True):
        g, w = np.asarray(as_tracefx(theirs)), np.asarray(ours)
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        allowed = ulps.for_array(w)
        assert np.max(ulp_distance(g, w, allowed.least), initial=0) <= (allowed.of(g.dtype) if is_inexact(g) else 0)


@pytest.mark.parametrize("record", _TRACED, ids=lambda record: record.name)
def test_programs_have_the_same_types(record: Record) -> None:
    call = record.calls[0]
    f, (ours, theirs) = function(record, call), operands(call)
    program = fx.make_jaxpr(f)(*ours)
    assert tuple(map(type_from_jax, jax.make_jaxpr(to_jax(f))(*theirs).out_avals)) == program.out_avals


@pytest.mark.parametrize("record", _BACK, ids=lambda record: record.name)
def test_programs_come_back(record: Record) -> None:
    call = record.calls[0]
    f, (ours, _) = function(record, call), operands(call)
    assert fx.make_jaxpr(from_jax(to_jax(f)))(*ours) == fx.make_jaxpr(f)(*ours)


@pytest.mark.parametrize("record", _COMPUTED, ids=lambda record: record.name)
def test_values_and_derivatives_are_the_same(record: Record) -> None:
    call = record.calls[0]
    f, (ours, theirs) = function(record, call), operands(call)
    agree(to_jax(f)(*theirs), f(*ours), record.ulps)
    places = [i for i in call.differentiable_operands if dtypes.is_float(ours[i].dtype)] if record.derivatives else []
    if not places:
        return

    def moved(*xs: Any) -> Any:
        given = dict(zip(places, xs, strict=True))
        outs = f(*[given.get(i, x) for i, x in enumerate(ours)])
        return [x for x in fx.tree.leaves(outs) if dtypes.is_inexact(x.dtype)]

    def slopes(library: Any, g: Callable[..., Any], given: list[Any]) -> Any:
        xs = tuple([given[i] for i in places])
        return library.jit(lambda *xs: library.jvp(g, xs, tuple([library.numpy.cos(x) for x in xs]))[1])(*xs)

    agree(slopes(jax, to_jax(moved), theirs), slopes(fx, moved, ours), DERIVATIVE)
