"""Conversion of primitives' parameters between JAX and tracefx: names are the same, and most values too.

The differences are tables of pairs, used in both directions. Sub-jaxprs are converted elsewhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import attrs
import numpy as np
from jax import lax
from jax.extend import random as jax_random
from jax.extend.core import Primitive as JaxPrimitive
from jax.extend.core import primitives

from tracefx.bounded_cache import memoize
from tracefx.control.vocabulary import VOCABULARY
from tracefx.core import dtypes
from tracefx.core.primitive import Primitive
from tracefx.interop.jax.values import dtype_from_jax, dtype_to_jax
from tracefx.ops.contractions.contraction import Precision
from tracefx.ops.contractions.conv_dimension_numbers import ConvDimensionNumbers
from tracefx.ops.contractions.dot_algorithms import DotAlgorithm, DotAlgorithmPreset
from tracefx.ops.contractions.ragged_dot import RaggedDotDimensionNumbers
from tracefx.ops.elementwise.accuracy import AccuracyMode, Tolerance
from tracefx.ops.elementwise.rounding import RoundingMethod
from tracefx.ops.fourier import FftType
from tracefx.ops.indexing.gather_scatter_add import GatherDimensionNumbers, ScatterDimensionNumbers
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.linalg.eigen import EighImplementation, EigImplementation
from tracefx.ops.linalg.svd import SvdAlgorithm
from tracefx.ops.random.rng_bit_generator import RandomAlgorithm
from tracefx.ops.reductions.select_and_scatter import SelectComparator
from tracefx.text.fields import field_text_name, text_fields

# ------------------------------------------------------------------ tables of pairs, tracefx's value first

ENUMS: Final[tuple[tuple[type[Enum], type[Enum]], ...]] = (
    (AccuracyMode, lax.AccuracyMode),
    (DotAlgorithmPreset, lax.DotAlgorithmPreset),
    (EigImplementation, lax.linalg.EigImplementation),
    (EighImplementation, lax.linalg.EighImplementation),
    (FftType, lax.FftType),
    (GatherScatterMode, lax.GatherScatterMode),
    (Precision, lax.Precision),
    (RandomAlgorithm, lax.RandomAlgorithm),
    (RoundingMethod, lax.RoundingMethod),
    (SvdAlgorithm, lax.linalg.SvdAlgorithm),
)
"""Enums whose members have the same names."""

RECORDS: Final[tuple[tuple[type, type], ...]] = (
    (ConvDimensionNumbers, lax.ConvDimensionNumbers),
    (DotAlgorithm, lax.DotAlgorithm),
    (GatherDimensionNumbers, lax.GatherDimensionNumbers),
    (RaggedDotDimensionNumbers, lax.RaggedDotDimensionNumbers),
    (ScatterDimensionNumbers, lax.ScatterDimensionNumbers),
    (Tolerance, lax.Tolerance),
)
"""Record types whose fields have the same names."""

OBJECTS: Final[tuple[tuple[Hashable, Hashable], ...]] = (
    (SelectComparator.GE, primitives.ge_p),
    (SelectComparator.LE, primitives.le_p),
)
"""Pairs of single values."""

PRNG_IMPLS: Final = (
    (dtypes.key_fry, jax_random.threefry_prng_impl),
    (dtypes.key_rbg, jax_random.rbg_prng_impl),
    (dtypes.key_urbg, jax_random.unsafe_rbg_prng_impl),
)
"""Random generators: JAX's key primitives have an implementation object where tracefx's have a dtype."""

FIELD_NAMES: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {("random_seed", "dtype"): "impl", ("random_wrap", "dtype"): "impl"}
)
"""JAX's parameter names by primitive and field, where the field's metadata does not give them."""

_SCATTERS: Final = ("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
_COLLECTIVES: Final = ("psum", "pmax", "pmin", "all_gather", "reduce_scatter", "all_to_all")


def _has_parameter(function: Callable[..., Any], parameter: str) -> bool:
    """Whether a function of JAX, and so its primitive, has the parameter in the installed version."""
    return parameter in inspect.signature(function).parameters


NEUTRAL_PARAMETERS: Final[Mapping[tuple[str, str], object]] = MappingProxyType(
    {
        ("broadcast_in_dim", "sharding"): None,
        ("conv_general_dilated", "out_sharding"): None,
        ("convert_element_type", "sharding"): None,
        ("dot_general", "out_sharding"): None,
        ("iota", "sharding"): None,
        ("mul", "out_dtype"): None,
        ("ragged_dot_general", "group_offset"): None,
        ("ragged_dot_general", "out_sharding"): None,
        ("reduce_sum", "out_sharding"): None,
        ("reshape", "dimensions"): None,
        ("reshape", "sharding"): None,
        ("rng_bit_generator", "out_sharding"): None,
        **({("reduce_max", "out_sharding"): None} if _has_parameter(lax.reduce_max, "out_sharding") else {}),
        **({("reduce_min", "out_sharding"): None} if _has_parameter(lax.reduce_min, "out_sharding") else {}),
        **({("top_k", "is_stable"): True} if _has_parameter(lax.top_k, "is_stable") else {}),
        **{(name, "axis_index_groups"): None for name in _COLLECTIVES},
        **{(name, "update_consts"): () for name in _SCATTERS},
        **{(name, "update_jaxpr"): None for name in _SCATTERS},
    }
)
"""Parameters that only JAX has, by primitive and name, with the value that means no effect."""

_IGNORED: Final = frozenset({"is_stable", "out_sharding", "sharding", "update_consts", "update_jaxpr"})
"""Parameters whose values do not change results here: shardings on one device; the function of a scatter, which follows
from the primitive's name; and whether sorting is stable, which it always is here."""

# ------------------------------------------------------------------ values


def _by_type(pairs: tuple[tuple[type, type], ...], to_jax: bool) -> dict[type, type]:
    return {(ours if to_jax else theirs): (theirs if to_jax else ours) for ours, theirs in pairs}


_ENUM_FROM, _ENUM_TO = _by_type(ENUMS, False), _by_type(ENUMS, True)
_RECORD_FROM, _RECORD_TO = _by_type(RECORDS, False), _by_type(RECORDS, True)
_OBJECT_FROM: Final[dict[object, object]] = {theirs: ours for ours, theirs in OBJECTS}
_OBJECT_TO: Final[dict[object, object]] = dict(OBJECTS)
_GENERATOR_TO: Final = dict(PRNG_IMPLS)
_KEY_DTYPE_NAMES: Final = frozenset(map(dtypes.name, dtypes.KEY_DTYPES))
_UNCHANGED_TYPES: Final = frozenset({type(None), bool, int, float, complex, str})


def value_from_jax(x: object) -> object:
    """Converts a parameter's value from JAX; raises `TypeError` for values of unknown types.

    >>> value_from_jax((lax.FftType.RFFT, (3, None), np.dtype("int8")))
    (<FftType.RFFT: 2>, (3, None), dtype('int8'))
    """
    value_type = type(x)
    if value_type in _UNCHANGED_TYPES:
        return x
    if isinstance(x, tuple | list | range) and value_type in (tuple, list, range):
        return tuple([value_from_jax(y) for y in x])
    if isinstance(x, Enum) and (enum := _ENUM_FROM.get(value_type)) is not None:
        return _member(enum, x.name)
    if (record := _RECORD_FROM.get(value_type)) is not None:
        return _record(record, x, value_from_jax)
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, np.dtype) or str(x) in _KEY_DTYPE_NAMES:
        return dtype_from_jax(x)
    if isinstance(x, type) and issubclass(x, np.generic):
        return dtypes.as_dtype(x, exact=True)
    if isinstance(x, JaxPrimitive) and x in _OBJECT_FROM:
        return _OBJECT_FROM[x]
    for dtype, generator in PRNG_IMPLS:
        if x is generator:
            return dtype
    raise TypeError(
        f"{x!r} of type {value_type.__module__}.{value_type.__qualname__} is no parameter of an operation of tracefx"
    )


def value_to_jax(x: object) -> object:
    """Converts a parameter's value to JAX; raises `TypeError` for values of unknown types.

    >>> value_to_jax((FftType.RFFT, (3, None), np.dtype("int8")))
    (<FftType.RFFT: 2>, (3, None), dtype('int8'))
    """
    value_type = type(x)
    if value_type in _UNCHANGED_TYPES:
        return x
    if type(x) is tuple:
        return tuple([value_to_jax(y) for y in x])
    if value_type is SelectComparator:
        return _OBJECT_TO[x]
    if isinstance(x, Enum) and (enum := _ENUM_TO.get(value_type)) is not None:
        return _member(enum, x.name)
    if (record := _RECORD_TO.get(value_type)) is not None:
        return _record(record, x, value_to_jax)
    if isinstance(x, np.dtype):
        return dtype_to_jax(x)
    raise TypeError(
        f"{x!r} of type {value_type.__module__}.{value_type.__qualname__} is no parameter of a primitive of JAX"
    )


def _member(enum: type[Enum], name: str) -> Enum:
    try:
        return enum[name]
    except KeyError:
        raise NotImplementedError(
            f"{enum.__module__}.{enum.__qualname__} has no {name}, only {', '.join(enum.__members__)}"
        ) from None


@memoize(1024)
def _record_fields(record: type) -> tuple[str, ...]:
    """Returns the names of a record's fields, which are the same in both libraries."""
    tracefx_record = record if record in _RECORD_TO else _RECORD_FROM[record]
    names: tuple[str, ...] = (
        tracefx_record._fields
        if hasattr(tracefx_record, "_fields")
        else tuple(f.name for f in attrs.fields(tracefx_record))
    )
    return names


def _record(record: type, x: object, convert: Any) -> object:
    return record(*[convert(getattr(x, name)) for name in _record_fields(record)])


# ------------------------------------------------------------------ operations


class Parameter(NamedTuple):
    """A field of a tracefx primitive that is a parameter of JAX's primitive."""

    field: str
    argument: str
    """The name of the constructor's argument."""
    jax_name: str


@memoize(1024)
def parameters_of(name: str) -> tuple[Parameter, ...]:
    """Returns the parameters that a primitive shares with JAX's primitive of the same name.

    Fields that JAX's primitive lacks are left out: the context of an equation in JAX determines them.

    >>> parameters_of("tridiagonal")
    (Parameter(field='is_lower', argument='lower', jax_name='lower'),)
    """
    prim_class: type = VOCABULARY[name]
    parameters = []
    for f in text_fields(prim_class) if attrs.has(prim_class) else ():
        jax_name = f.metadata.get("jax", field_text_name(f))
        if jax_name is not False:
            parameters.append(Parameter(f.name, f.alias or f.name, FIELD_NAMES.get((name, f.name), jax_name)))
    return tuple(parameters)


@memoize(1024)
def _extras(name: str) -> Mapping[str, object]:
    """Returns the neutral values of the parameters that only JAX's primitive has."""
    return {parameter: value for (primitive, parameter), value in NEUTRAL_PARAMETERS.items() if primitive == name}


def operation_from_jax(name: str, params: Mapping[str, object], **more: object) -> Primitive:
    """Returns the tracefx primitive for JAX's primitive `name` with parameters `params`.

    `more` are fields that JAX's primitive lacks, such as the sizes of named axes.

    Raises `NotImplementedError` for unsupported values of parameters, `KeyError` for unknown names.

    >>> operation_from_jax("squeeze", {"dimensions": (0,)})
    Squeeze(dimensions=(0,))
    """
    shared = parameters_of(name)
    extras = _extras(name)
    if len(params) > len(shared):
        for parameter, value in params.items():
            if parameter in extras and parameter not in _IGNORED and value != extras[parameter]:
                raise NotImplementedError(
                    f"{name}: the parameter {parameter}={value!r} of JAX's primitive is not supported, only "
                    f"{extras[parameter]!r} is"
                )
    if not shared and not more:
        return VOCABULARY[name]()
    fields = {p.argument: value_from_jax(params[p.jax_name]) for p in shared if p.jax_name in params}
    return VOCABULARY[name](**fields, **more)


def parameters_to_jax(prim: Primitive) -> dict[str, Any]:
    """Returns the parameters of JAX's primitive for a primitive without sub-jaxprs.

    >>> parameters_to_jax(VOCABULARY["squeeze"](dimensions=(0,)))
    {'dimensions': (0,)}
    """
    params: dict[str, Any] = dict(_extras(prim.name))
    for field, _, jax_name in parameters_of(prim.name):
        value = getattr(prim, field)
        params[jax_name] = _GENERATOR_TO[value] if jax_name == "impl" else value_to_jax(value)
    return params
