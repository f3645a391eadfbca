"""Parameters of operations from JAX and back: every choice and record has its pair."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

import inspect
from enum import Enum
from typing import Any

import attrs
import jax
import numpy as np
import pytest
from jax import lax
from jax.extend import random as jax_random

from tests.laws.samples import SAMPLES, Sample
from tracefx.control.vocabulary import VOCABULARY
from tracefx.core import dtypes
from tracefx.core.jaxpr import HasSubjaxprs
from tracefx.interop.jax.parameters import (
    ENUMS,
    FIELD_NAMES,
    NEUTRAL_PARAMETERS,
    PRNG_IMPLS,
    RECORDS,
    operation_from_jax,
    parameters_of,
    parameters_to_jax,
    value_from_jax,
    value_to_jax,
)
from tracefx.ops.annotations.sharding_constraint import ShardingConstraint
from tracefx.ops.contractions.contraction import Precision
from tracefx.ops.contractions.conv_dimension_numbers import ConvDimensionNumbers
from tracefx.ops.indexing.gather_scatter_add import GatherDimensionNumbers


@pytest.mark.parametrize(("ours", "theirs"), ENUMS, ids=lambda kind: kind.__module__)
def test_choices_go_both_ways(ours: type[Enum], theirs: type[Enum]) -> None:
    for member in ours:
        there = value_to_jax(member)
        assert isinstance(there, theirs)
        assert value_from_jax(there) is member
    for other in theirs:
        if other.name not in ours.__members__:
            with pytest.raises(NotImplementedError, match=f"has no {other.name}, only"):
                value_from_jax(other)


def test_records_go_both_ways() -> None:
    numbers = GatherDimensionNumbers((1,), (0,), (0,), (), ())
    there = value_to_jax(numbers)
    assert there == lax.GatherDimensionNumbers((1,), (0,), (0,), (), ())
    assert value_from_jax(there) == numbers
    specs = ConvDimensionNumbers((0, 1), (1, 0), (0, 1))
    assert value_to_jax(specs) == lax.ConvDimensionNumbers((0, 1), (1, 0), (0, 1))
    assert type(value_from_jax(value_to_jax(specs))) is ConvDimensionNumbers
    for ours, theirs in RECORDS:
        fields = ours._fields if hasattr(ours, "_fields") else [f.name for f in attrs.fields(ours)]
        assert {*fields} <= {*inspect.signature(theirs).parameters}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ([(1, 2), None], ((1, 2), None)),
        (range(2), (0, 1)),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.dtype("float16"), dtypes.float16),
        (np.float32, dtypes.float32),
        (jax.random.key(0).dtype, dtypes.key_fry),
        (jax_random.rbg_prng_impl, dtypes.key_rbg),
        ((lax.Precision.HIGH, lax.Precision.DEFAULT), (Precision.HIGH, Precision.DEFAULT)),
    ],
)
def test_values_from_jax(theirs: object, ours: object) -> None:
    assert value_from_jax(theirs) == ours


def test_values_that_are_no_parameters_are_refused() -> None:
    with pytest.raises(TypeError, match="object.* is no parameter of an operation of tracefx"):
        value_from_jax(object())
    with pytest.raises(TypeError, match="object.* is no parameter of a primitive of JAX"):
        value_to_jax(object())


def test_tables_name_what_there_is() -> None:
    for name, field in FIELD_NAMES:
        assert field in {p.field for p in parameters_of(name)}
    assert {name for name, _ in NEUTRAL_PARAMETERS} <= VOCABULARY.keys()
    assert [dtype for dtype, _ in PRNG_IMPLS] == list(dtypes.KEY_DTYPES)


def _plain(sample: Sample) -> bool:
    """Those whose parameters JAX has as they are: neither programs nor devices, which it is told in other ways."""
    return not isinstance(sample.prim, HasSubjaxprs | ShardingConstraint)


@pytest.mark.parametrize("name", sorted(name for name, samples in SAMPLES.items() if any(map(_plain, samples))))
def test_operations_go_both_ways(name: str) -> None:
    for sample in filter(_plain, SAMPLES[name]):
        params = parameters_to_jax(sample.prim)
        kept = {"axis_size", "axis_sizes"} & {f.name for f in attrs.fields(type(sample.prim))} if params else set()
        more: dict[str, Any] = {name: getattr(sample.prim, name) for name in kept if name not in params}
        assert operation_from_jax(name, params, **more) == sample.prim
