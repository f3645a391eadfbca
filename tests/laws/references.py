"""The `jax.lax` function that corresponds to each primitive: the oracle for values, types and errors."""

# Some JAX functions called here are not annotated.
# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import attrs
import jax
from jax import lax
from jax._src.lax import lax as jax_lax
from jax.sharding import NamedSharding

from tests.laws.samples import REFERENCES
from tests.laws.samples.making import Function
from tracefx.core.primitive import Primitive
from tracefx.interop.jax.meshes import mesh_to_jax, spec_to_jax

jax.config.update("jax_explicit_x64_dtypes", "allow")


def _indexing(kind: type, dimension_numbers: Any) -> Any:
    fields: dict[str, Any] = attrs.asdict(dimension_numbers)
    return kind(**fields)


def _scatter(function: Function) -> Callable[[Any], Function]:
    def make(p: Any) -> Function:
        return partial(
            function,
            dimension_numbers=_indexing(lax.ScatterDimensionNumbers, p.dimension_numbers),
            indices_are_sorted=p.indices_are_sorted,
            unique_indices=p.unique_indices,
            mode=lax.GatherScatterMode[p.mode.name],
        )

    return make


def _gather(p: Any) -> Function:
    return partial(
        lax.gather,
        dimension_numbers=_indexing(lax.GatherDimensionNumbers, p.dimension_numbers),
        slice_sizes=p.slice_sizes,
        indices_are_sorted=p.indices_are_sorted,
        unique_indices=p.unique_indices,
        mode=lax.GatherScatterMode[p.mode.name],
        fill_value=p.fill_value,
    )


def _collective(function: Function) -> Callable[[Any], Function]:
    """A collective, called inside a `vmap` over the first axis of its operands."""

    def make(p: Any) -> Function:
        return lambda *xs: jax.vmap(lambda *each: function(p, *each), axis_name="i", axis_size=2)(*xs)

    return make


def _with_fields(function: Function, *fields: str) -> Callable[[Any], Function]:
    """A function whose trailing arguments are the named fields of the primitive."""
    return lambda p: lambda *xs: function(*xs, *[getattr(p, name) for name in fields])


def _reduction(function: Function) -> Callable[[Any], Function]:
    return lambda p: lambda x: function(x, axes=p.axes)


def _argminmax(function: Function) -> Callable[[Any], Function]:
    return lambda p: lambda x: function(x, p.axes[0], p.index_dtype)


def _cumulative(function: Function) -> Callable[[Any], Function]:
    return lambda p: lambda x: function(x, axis=p.axis, reverse=p.reverse)


_FUNCTIONS: Final[Mapping[str, Callable[[Any], Function]]] = MappingProxyType(
    {
        "convert_element_type": lambda p: lambda x: jax_lax._convert_element_type(x, p.new_dtype, p.weak_type),
        "reshape": _with_fields(lax.reshape, "new_sizes"),
        "transpose": _with_fields(lax.transpose, "permutation"),
        "broadcast_in_dim": _with_fields(lax.broadcast_in_dim, "shape", "broadcast_dimensions"),
        "reduce_sum": _reduction(lax.reduce_sum),
        "iota": lambda p: lambda: lax.broadcasted_iota(p.dtype, p.shape, p.dimension),
        "and": lambda p: lax.bitwise_and,
        "or": lambda p: lax.bitwise_or,
        "xor": lambda p: lax.bitwise_xor,
        "not": lambda p: lax.bitwise_not,
        "integer_pow": _with_fields(lax.integer_pow, "y"),
        "round": lambda p: lambda x: lax.round(x, lax.RoundingMethod[p.rounding_method.name]),
        "bitcast_convert_type": _with_fields(lax.bitcast_convert_type, "new_dtype"),
        "reduce_precision": _with_fields(lax.reduce_precision, "exponent_bits", "mantissa_bits"),
        "squeeze": _with_fields(lax.squeeze, "dimensions"),
        "concatenate": lambda p: lambda *xs: lax.concatenate(xs, p.dimension),
        "stack": lambda p: lambda *xs: lax.stack(xs, p.axis),
        "split": _with_fields(lax.split, "sizes", "axis"),
        "tile": _with_fields(lax.tile, "reps"),
        "slice": _with_fields(lax.slice, "start_indices", "limit_indices", "strides"),
        "pad": _with_fields(lax.pad, "padding_config"),
        "rev": _with_fields(lax.rev, "dimensions"),
        "dot_general": _with_fields(lax.dot_general, "dimension_numbers", "precision", "preferred_element_type"),
        "reduce_max": _reduction(lax.reduce_max),
        "reduce_min": _reduction(lax.reduce_min),
        "reduce_prod": _reduction(lax.reduce_prod),
        "reduce_and": _reduction(lax.reduce_and),
        "reduce_or": _reduction(lax.reduce_or),
        "reduce_xor": _reduction(lax.reduce_xor),
        "argmax": _argminmax(lax.argmax),
        "argmin": _argminmax(lax.argmin),
        "cumsum": _cumulative(lax.cumsum),
        "cumprod": _cumulative(lax.cumprod),
        "cummax": _cumulative(lax.cummax),
        "cummin": _cumulative(lax.cummin),
        "cumlogsumexp": _cumulative(lax.cumlogsumexp),
        "gather": _gather,
        "scatter-add": _scatter(lax.scatter_add),
        "scatter": _scatter(lax.scatter),
        "scatter-mul": _scatter(lax.scatter_mul),
        "scatter-min": _scatter(lax.scatter_min),
        "scatter-max": _scatter(lax.scatter_max),
        "dynamic_slice": lambda p: lambda x, *starts: lax.dynamic_slice(x, starts, p.slice_sizes),
        "dynamic_update_slice": lambda p: lambda x, update, *starts: lax.dynamic_update_slice(x, update, starts),
        "optimization_barrier": lambda p: lambda *xs: lax.optimization_barrier(xs),
        "psum": _collective(lambda p, x: lax.psum(x, "i")),
        "pmax": _collective(lambda p, x: lax.pmax(x, "i")),
        "pmin": _collective(lambda p, x: lax.pmin(x, "i")),
        "axis_index": _collective(lambda p: lax.axis_index("i")),
        "all_gather": _collective(lambda p, x: lax.all_gather(x, "i", axis=p.all_gather_dimension, tiled=p.tiled)),
        "reduce_scatter": _collective(
            lambda p, x: lax.psum_scatter(x, "i", scatter_dimension=p.scatter_dimension, tiled=p.tiled)
        ),
        "sharding_constraint": lambda p: (
            lambda x: lax.with_sharding_constraint(
                x, NamedSharding(mesh_to_jax(p.sharding.mesh), spec_to_jax(p.sharding.spec))
            )
        ),
        "ppermute": _collective(lambda p, x: lax.ppermute(x, "i", p.perm)),
        "all_to_all": _collective(lambda p, x: lax.all_to_all(x, "i", p.split_axis, p.concat_axis, tiled=p.tiled)),
    }
)


def jax_function(prim: Primitive) -> Function:
    """Returns the `jax.lax` function that corresponds to `prim`, with the primitive's parameters bound."""
    make = {**_FUNCTIONS, **REFERENCES}.get(prim.name)
    lax_function: Function = getattr(lax, prim.name) if make is None else make(prim)
    return lax_function
