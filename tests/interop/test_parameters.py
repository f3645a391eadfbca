"""Conversion of primitive parameters from JAX and back: enums, records and other values."""

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
from tracefx.ops.annotations.reshard import Reshard
from tracefx.ops.annotations.sharding_constraint import ShardingConstraint
from tracefx.ops.contractions.contraction import Precision
from tracefx.ops.contractions.conv_dimension_numbers import ConvDimensionNumbers
from tracefx.ops.indexing.gather_scatter_add import GatherDimensionNumbers


@pytest.mark.parametrize(("fx_type", "jax_type"), ENUMS, ids=lambda kind: kind.__module__)
def test_enums_roundtrip(fx_type: type[Enum], jax_type: type[Enum]) -> None:
    for member in fx_type:
        converted = value_to_jax(member)
        assert isinstance(converted, jax_type)
        assert value_from_jax(converted) is member
    for jax_member in jax_type:
        if jax_member.name not in fx_type.__members__:
            with pytest.raises(NotImplementedError, match=f"has no {jax_member.name}, only"):
                value_from_jax(jax_member)


def test_records_roundtrip() -> None:
    numbers = GatherDimensionNumbers((1,), (0,), (0,), (), ())
    converted = value_to_jax(numbers)
    assert converted == lax.GatherDimensionNumbers((1,), (0,), (0,), (), ())
    assert value_from_jax(converted) == numbers
    specs = ConvDimensionNumbers((0, 1), (1, 0), (0, 1))
    assert value_to_jax(specs) == lax.ConvDimensionNumbers((0, 1), (1, 0), (0, 1))
    assert type(value_from_jax(value_to_jax(specs))) is ConvDimensionNumbers
    for fx_type, jax_type in RECORDS:
        fields = fx_type._fields if hasattr(fx_type, "_fields") else [f.name for f in attrs.fields(fx_type)]
        assert {*fields} <= {*inspect.signature(jax_type).parameters}


@pytest.mark.parametrize(
    ("jax_value", "fx_value"),
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
def test_values_from_jax(jax_value: object, fx_value: object) -> None:
    assert value_from_jax(jax_value) == fx_value


def test_unsupported_parameter_values_are_rejected() -> None:
    with pytest.raises(TypeError, match="object.* is no parameter of an operation of tracefx"):
        value_from_jax(object())
    with pytest.raises(TypeError, match="object.* is no parameter of a primitive of JAX"):
        value_to_jax(object())


def test_tables_name_existing_parameters() -> None:
    for name, field in FIELD_NAMES:
        assert field in {p.field for p in parameters_of(name)}
    assert {name for name, _ in NEUTRAL_PARAMETERS} <= VOCABULARY.keys()
    assert [dtype for dtype, _ in PRNG_IMPLS] == list(dtypes.KEY_DTYPES)


def _plain(sample: Sample) -> bool:
    """Whether the parameters convert one to one: no sub-jaxprs and no shardings, which are converted separately.

    The order of Threefry is a setting in JAX.
    """
    return not isinstance(sample.prim, HasSubjaxprs | Reshard | ShardingConstraint) and sample.partitionable


@pytest.mark.parametrize("name", sorted(name for name, samples in SAMPLES.items() if any(map(_plain, samples))))
def test_primitive_parameters_roundtrip(name: str) -> None:
    for sample in filter(_plain, SAMPLES[name]):
        params = parameters_to_jax(sample.prim)
        names = {"axis_size", "axis_sizes"} & {f.name for f in attrs.fields(type(sample.prim))} if params else set()
        extra: dict[str, Any] = {name: getattr(sample.prim, name) for name in names if name not in params}
        assert operation_from_jax(name, params, **extra) == sample.prim
