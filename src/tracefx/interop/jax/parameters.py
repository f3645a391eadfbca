"""Operations from JAX's primitives and their parameters, and back: the names are the same, and most values.

What differs stands here as pairs, read in both directions. Programs inside of operations are not dealt with here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

import attrs
import numpy as np
from jax import lax
from jax.extend import random as jax_random
from jax.extend.core import Primitive as JaxPrimitive
from jax.extend.core import primitives

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
from tracefx.text.printer import field_text_name, text_fields

# ------------------------------------------------------------------ the pairs, ours first

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
"""Choices: their members have the same names."""

RECORDS: Final[tuple[tuple[type, type], ...]] = (
    (ConvDimensionNumbers, lax.ConvDimensionNumbers),
    (DotAlgorithm, lax.DotAlgorithm),
    (GatherDimensionNumbers, lax.GatherDimensionNumbers),
    (RaggedDotDimensionNumbers, lax.RaggedDotDimensionNumbers),
    (ScatterDimensionNumbers, lax.ScatterDimensionNumbers),
    (Tolerance, lax.Tolerance),
)
"""Records: their fields have the same names."""

OBJECTS: Final[tuple[tuple[Hashable, Hashable], ...]] = (
    (SelectComparator.GE, primitives.ge_p),
    (SelectComparator.LE, primitives.le_p),
)
"""Single values."""

PRNG_IMPLS: Final = (
    (dtypes.key_fry, jax_random.threefry_prng_impl),
    (dtypes.key_rbg, jax_random.rbg_prng_impl),
    (dtypes.key_urbg, jax_random.unsafe_rbg_prng_impl),
)
"""Generators of random numbers, which JAX's operations on keys have in the place of a dtype."""

FIELD_NAMES: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {("random_seed", "dtype"): "impl", ("random_wrap", "dtype"): "impl"}
)
"""JAX's names of fields, by operation and field, where the field itself doesn't say."""

_SCATTERS: Final = ("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
_COLLECTIVES: Final = ("psum", "pmax", "pmin", "all_gather", "reduce_scatter", "all_to_all")


def _has_parameter(function: Callable[..., Any], parameter: str) -> bool:
    """Whether a function of JAX has the parameter in the installed version; its primitive has it if so."""
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
"""Parameters that JAX has and we haven't, by operation and name, with the value that leaves things as they are."""

_IGNORED: Final = frozenset({"is_stable", "out_sharding", "sharding", "update_consts", "update_jaxpr"})
"""The parameters whose values change no result here: shardings on one device, the function of a scatter, which its name
says, and whether equal elements keep their order, which they do here in any case."""

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
    """A parameter's value, from JAX's; TypeError for values that no parameter here has.

    >>> value_from_jax((lax.FftType.RFFT, (3, None), np.dtype("int8")))
    (<FftType.RFFT: 2>, (3, None), dtype('int8'))
    """
    kind = type(x)
    if kind in _UNCHANGED_TYPES:
        return x
    if kind in (tuple, list, range):
        return tuple([value_from_jax(y) for y in cast("tuple[object, ...]", x)])
    if (enum := _ENUM_FROM.get(kind)) is not None:
        return _member(enum, cast("Enum", x).name)
    if (record := _RECORD_FROM.get(kind)) is not None:
        return _record(record, x, value_from_jax)
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, np.dtype) or str(x) in _KEY_DTYPE_NAMES:
        return dtype_from_jax(x)
    if isinstance(x, type) and issubclass(x, np.generic):
        return dtypes.as_dtype(x)
    if isinstance(x, JaxPrimitive) and x in _OBJECT_FROM:
        return _OBJECT_FROM[x]
    for dtype, generator in PRNG_IMPLS:
        if x is generator:
            return dtype
    raise TypeError(f"{x!r} of type {kind.__module__}.{kind.__qualname__} is no parameter of an operation of tracefx")


def value_to_jax(x: object) -> object:
    """A parameter's value, as JAX has it; TypeError for values that no parameter there has.

    >>> value_to_jax((FftType.RFFT, (3, None), np.dtype("int8")))
    (<FftType.RFFT: 2>, (3, None), dtype('int8'))
    """
    kind = type(x)
    if kind in _UNCHANGED_TYPES:
        return x
    if kind is tuple:
        return tuple([value_to_jax(y) for y in cast("tuple[object, ...]", x)])
    if kind is SelectComparator:
        return _OBJECT_TO[x]
    if (enum := _ENUM_TO.get(kind)) is not None:
        return _member(enum, cast("Enum", x).name)
    if (record := _RECORD_TO.get(kind)) is not None:
        return _record(record, x, value_to_jax)
    if isinstance(x, np.dtype):
        return dtype_to_jax(x)
    raise TypeError(f"{x!r} of type {kind.__module__}.{kind.__qualname__} is no parameter of a primitive of JAX")


def _member(enum: type[Enum], name: str) -> Enum:
    try:
        return enum[name]
    except KeyError:
        raise NotImplementedError(
            f"{enum.__module__}.{enum.__qualname__} has no {name}, only {', '.join(enum.__members__)}"
        ) from None


@functools.cache
def _record_fields(record: type) -> tuple[str, ...]:
    """The names of our record's fields, which are those of JAX's."""
    ours = record if record in _RECORD_TO else _RECORD_FROM[record]
    names: tuple[str, ...] = ours._fields if hasattr(ours, "_fields") else tuple(f.name for f in attrs.fields(ours))
    return names


def _record(record: type, x: object, convert: Any) -> object:
    return record(*[convert(getattr(x, name)) for name in _record_fields(record)])


# ------------------------------------------------------------------ operations


class Parameter(NamedTuple):
    """A field of an operation that is a parameter of JAX's primitive."""

    field: str
    argument: str
    """What the constructor calls it."""
    jax_name: str


@functools.cache
def parameters_of(name: str) -> tuple[Parameter, ...]:
    """The parameters that an operation shares with JAX's primitive.

    The fields that JAX hasn't are not among them: what they hold is said by the program around it.

    >>> parameters_of("tridiagonal")
    (Parameter(field='is_lower', argument='lower', jax_name='lower'),)
    """
    kind: type = VOCABULARY[name]
    found = []
    for f in text_fields(kind) if attrs.has(kind) else ():
        theirs = f.metadata.get("jax", field_text_name(f))
        if theirs is not False:
            found.append(Parameter(f.name, f.alias or f.name, FIELD_NAMES.get((name, f.name), theirs)))
    return tuple(found)


@functools.cache
def _extras(name: str) -> Mapping[str, object]:
    """The parameters of `NEUTRAL_PARAMETERS` that a primitive has."""
    return {parameter: value for (primitive, parameter), value in NEUTRAL_PARAMETERS.items() if primitive == name}


@functools.cache
def _without_parameters(name: str) -> Primitive:
    return VOCABULARY[name]()


def operation_from_jax(name: str, params: Mapping[str, object], **more: object) -> Primitive:
    """The operation that JAX's primitive of this name, with these parameters, is.

    `more` are the fields that JAX's primitive lacks, such as the sizes of named axes.

    Raises NotImplementedError for parameters with values that no operation here has, KeyError for names that there
    aren't.

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
        return _without_parameters(name)
    fields = {p.argument: value_from_jax(params[p.jax_name]) for p in shared if p.jax_name in params}
    return VOCABULARY[name](**fields, **more)


def parameters_to_jax(prim: Primitive) -> dict[str, Any]:
    """The parameters of JAX's primitive that an operation without programs inside is.

    >>> parameters_to_jax(VOCABULARY["squeeze"](dimensions=(0,)))
    {'dimensions': (0,)}
    """
    params: dict[str, Any] = dict(_extras(prim.name))
    for field, _, theirs in parameters_of(prim.name):
        value = getattr(prim, field)
        params[theirs] = _GENERATOR_TO[value] if theirs == "impl" else value_to_jax(value)
    return params
