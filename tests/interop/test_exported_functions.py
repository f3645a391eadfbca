"""Public tracefx functions through `to_jax`: output types, round trips with `from_jax`, values and derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import pytest

import tracefx as fx
from tests.comparison import assert_same
from tests.differential.records import TRACEFX, Call, Record, to_library_array
from tests.differential.table import RECORDS
from tracefx.core import dtypes
from tracefx.interop.jax import as_jax, from_jax, to_jax
from tracefx.interop.jax.values import type_from_jax
from tracefx.testing.tolerances import DERIVATIVE

_RECORDS: Final = [record for record in RECORDS if not record.is_plain and record.calls]
_TYPE_RECORDS: Final = _RECORDS[::3]
_VALUE_RECORDS: Final = _RECORDS[2::24]

_ROUNDTRIP_RECORDS: Final = [
    record for record in _TYPE_RECORDS if record.name.startswith(("nn.", "numpy.")) and "linalg" not in record.name
]
"""Records whose programs are equal after a round trip: not JAX's Cholesky and solvers, nor functions of keys."""


def function_of(record: Record, call: Call) -> Callable[..., Any]:
    """A call of a tracefx function, as a function of its operands."""
    return lambda *xs: call.of(record.via(TRACEFX), xs)


def operands_of(call: Call) -> tuple[list[Any], list[Any]]:
    """The operands of a call, as tracefx arrays and as JAX arrays."""
    fx_operands = [to_library_array(TRACEFX, x) for x in call.operands]
    return fx_operands, [as_jax(x) if isinstance(x, fx.Array) else x for x in fx_operands]


@pytest.mark.parametrize("record", _TYPE_RECORDS, ids=lambda record: record.name)
def test_output_types_match(record: Record) -> None:
    call = record.calls[0]
    f, (fx_operands, jax_operands) = function_of(record, call), operands_of(call)
    program = fx.make_jaxpr(f)(*fx_operands)
    assert tuple(map(type_from_jax, jax.make_jaxpr(to_jax(f))(*jax_operands).out_avals)) == program.out_avals


@pytest.mark.parametrize("record", _ROUNDTRIP_RECORDS, ids=lambda record: record.name)
def test_programs_roundtrip_through_jax(record: Record) -> None:
    call = record.calls[0]
    f, (fx_operands, _) = function_of(record, call), operands_of(call)
    assert fx.make_jaxpr(from_jax(to_jax(f)))(*fx_operands) == fx.make_jaxpr(f)(*fx_operands)


@pytest.mark.parametrize("record", _VALUE_RECORDS, ids=lambda record: record.name)
def test_values_and_derivatives_match(record: Record) -> None:
    call = record.calls[0]
    f, (fx_operands, jax_operands) = function_of(record, call), operands_of(call)
    assert_same(to_jax(f)(*jax_operands), f(*fx_operands), record.ulps)
    argnums = (
        [i for i in call.differentiable_operands if dtypes.is_float(fx_operands[i].dtype)] if record.derivatives else []
    )
    if not argnums:
        return

    def inexact_outputs(*xs: Any) -> Any:
        operands = dict(zip(argnums, xs, strict=True))
        outs = f(*[operands.get(i, x) for i, x in enumerate(fx_operands)])
        return [x for x in fx.tree.leaves(outs) if dtypes.is_inexact(x.dtype)]

    def tangents_of(library: Any, g: Callable[..., Any], operands: list[Any]) -> Any:
        xs = tuple([operands[i] for i in argnums])
        return library.jit(lambda *xs: library.jvp(g, xs, tuple([library.numpy.cos(x) for x in xs]))[1])(*xs)

    assert_same(
        tangents_of(jax, to_jax(inexact_outputs), jax_operands),
        tangents_of(fx, inexact_outputs, fx_operands),
        DERIVATIVE,
    )
