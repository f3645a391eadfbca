"""JAX functions through `from_jax` agree with the tracefx functions of the same names."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np
import pytest

import tracefx as fx
from tests.comparison import assert_same
from tests.differential.records import JAX, TRACEFX, Call, Library, Record, operand_values, to_library_array
from tests.differential.table import RECORDS
from tests.versions import ULPS_OF_IMPORTED
from tracefx.interop.jax import from_jax
from tracefx.testing.tolerances import DERIVATIVE

_RECORDS: Final = [record for record in RECORDS if not record.is_plain]
_EAGER_RECORDS: Final = [r for r in _RECORDS if r.name.split(".")[0] in ("numpy", "lax", "nn")]
"""Records that NumPy mostly evaluates: compiled functions take a hundred times as long."""
_VALUE_RECORDS: Final = _EAGER_RECORDS[::4]
"""Records whose values are compared."""
_DERIVATIVE_RECORDS: Final = [
    r for r in _EAGER_RECORDS[1::6] if r.derivatives and r.calls and r.calls[0].differentiable_operands
]
"""Records whose derivatives are compared."""


def imported_call(record: Record, call: Call) -> Callable[..., Any]:
    """A call of an imported JAX function, as a function of its operands."""
    f = record.via(JAX)

    def called(*xs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call.of(f, xs)

    return from_jax(called)


def operands(library: Library, call: Call) -> list[Any]:
    return [to_library_array(library, x) for x in call.operands]


@pytest.mark.parametrize("record", _RECORDS, ids=lambda record: record.name)
def test_output_types_match_jax(record: Record) -> None:
    for call in record.calls[:1]:
        f = imported_call(record, call)
        want = jax.make_jaxpr(getattr(f, "__wrapped__"))(*operands(JAX, call))  # noqa: B009
        got = fx.make_jaxpr(f)(*operands(TRACEFX, call))
        for aval, jax_aval in zip(got.out_avals, want.out_avals, strict=True):
            assert (aval.shape, aval.dtype) == (jax_aval.shape, np.dtype(jax_aval.dtype)), call
            assert aval.weak_type == (jax_aval.weak_type and aval.dtype != np.bool_), (
                call
            )  # booleans are never weak here


@pytest.mark.parametrize("record", _VALUE_RECORDS, ids=lambda record: record.name)
def test_values_match_tracefx(record: Record) -> None:
    ulps = ULPS_OF_IMPORTED.get(record.name, record.ulps)
    for call in record.calls[:1]:
        operand_arrays = operands(TRACEFX, call)
        got, want = imported_call(record, call)(*operand_arrays), call.of(record.via(TRACEFX), operand_arrays)
        # Some functions of JAX return lists where tracefx returns tuples.
        assert_same(fx.tree.leaves(got), fx.tree.leaves(want), ulps, weak=False)


@pytest.mark.parametrize("record", _DERIVATIVE_RECORDS, ids=lambda record: record.name)
def test_derivatives_match_tracefx(record: Record) -> None:
    call = record.calls[0]
    operand_arrays = operands(TRACEFX, call)
    argnums = [i for i in call.differentiable_operands if operand_values(call.operands[i]).dtype.kind == "f"]
    primals = [operand_arrays[i] for i in argnums]

    def jvp_of(f: Callable[..., Any]) -> Any:
        def of_primals(*xs: Any) -> Any:
            operands = list(operand_arrays)
            for i, x in zip(argnums, xs, strict=True):
                operands[i] = x
            return f(*operands)

        return fx.jvp(of_primals, primals, [fx.numpy.cos(x) for x in primals])

    assert_same(jvp_of(imported_call(record, call)), jvp_of(lambda *xs: call.of(record.via(TRACEFX), xs)), DERIVATIVE)
