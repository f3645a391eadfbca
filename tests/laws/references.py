"""For every operation, the function of JAX that it is: an oracle for values, for types, and for what is refused."""

# jax leaves some functions that are called here unannotated.
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
    def made(p: Any) -> Function:
        return partial(
            function,
            dimension_numbers=_indexing(lax.ScatterDimensionNumbers, p.dimension_numbers),
            indices_are_sorted=p.indices_are_sorted,
            unique_indices=p.unique_indices,
            mode=lax.GatherScatterMode[p.mode.name],
        )

    return made


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


def _along(function: Function) -> Callable[[Any], Function]:
    """A collective, inside a `vmap` over the first axis of its operands."""

    def made(p: Any) -> Function:
        return lambda *xs: jax.vmap(lambda *each: function(p, *each), axis_name="i", axis_size=2)(*xs)

    return made


def _named(function: Function, *fields: str) -> Callable[[Any], Function]:
    """A function whose parameters are fields of ours."""
    return lambda p: lambda *xs: function(*xs, *[getattr(p, name) for name in fields])


def _reduced(function: Function) -> Callable[[Any], Function]:
    return lambda p: lambda x: function(x, axes=p.axes)


def _argument(function: Function) -> Callable[[Any], Function]:
    return lambda p: lambda x: function(x, p.axes[0], p.index_dtype)


def _cumulative(function: Function) -> Callable[[Any], Function]:
    return lambda p: lambda x: function(x, axis=p.axis, reverse=p.reverse)


_FUNCTIONS: Final[Mapping[str, Callable[[Any], Function]]] = MappingProxyType(
    {
        "convert_element_type": lambda p: lambda x: jax_lax._convert_element_type(x, p.new_dtype, p.weak_type),
        "reshape": _named(lax.reshape, "new_sizes"),
        "transpose": _named(lax.transpose, "permutation"),
        "broadcast_in_dim": _named(lax.broadcast_in_dim, "shape", "broadcast_dimensions"),
        "reduce_sum": _reduced(lax.reduce_sum),
        "iota": lambda p: lambda: lax.broadcasted_iota(p.dtype, p.shape, p.dimension),
        "and": lambda p: lax.bitwise_and,
        "or": lambda p: lax.bitwise_or,
        "xor": lambda p: lax.bitwise_xor,
        "not": lambda p: lax.bitwise_not,
        "integer_pow": _named(lax.integer_pow, "y"),
        "round": lambda p: lambda x: lax.round(x, lax.RoundingMethod[p.rounding_method.name]),
        "bitcast_convert_type": _named(lax.bitcast_convert_type, "new_dtype"),
        "reduce_precision": _named(lax.reduce_precision, "exponent_bits", "mantissa_bits"),
        "squeeze": _named(lax.squeeze, "dimensions"),
        "concatenate": lambda p: lambda *xs: lax.concatenate(xs, p.dimension),
        "stack": lambda p: lambda *xs: lax.stack(xs, p.axis),
        "split": _named(lax.split, "sizes", "axis"),
        "tile": _named(lax.tile, "reps"),
        "slice": _named(lax.slice, "start_indices", "limit_indices", "strides"),
        "pad": _named(lax.pad, "padding_config"),
        "rev": _named(lax.rev, "dimensions"),
        "dot_general": _named(lax.dot_general, "dimension_numbers", "precision", "preferred_element_type"),
        "reduce_max": _reduced(lax.reduce_max),
        "reduce_min": _reduced(lax.reduce_min),
        "reduce_prod": _reduced(lax.reduce_prod),
        "reduce_and": _reduced(lax.reduce_and),
        "reduce_or": _reduced(lax.reduce_or),
        "reduce_xor": _reduced(lax.reduce_xor),
        "argmax": _argument(lax.argmax),
        "argmin": _argument(lax.argmin),
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
        "psum": _along(lambda p, x: lax.psum(x, "i")),
        "pmax": _along(lambda p, x: lax.pmax(x, "i")),
        "pmin": _along(lambda p, x: lax.pmin(x, "i")),
        "axis_index": _along(lambda p: lax.axis_index("i")),
        "all_gather": _along(lambda p, x: lax.all_gather(x, "i", axis=p.all_gather_dimension, tiled=p.tiled)),
        "reduce_scatter": _along(
            lambda p, x: lax.psum_scatter(x, "i", scatter_dimension=p.scatter_dimension, tiled=p.tiled)
        ),
        "sharding_constraint": lambda p: (
            lambda x: lax.with_sharding_constraint(
                x, NamedSharding(mesh_to_jax(p.sharding.mesh), spec_to_jax(p.sharding.spec))
            )
        ),
        "ppermute": _along(lambda p, x: lax.ppermute(x, "i", p.perm)),
        "all_to_all": _along(lambda p, x: lax.all_to_all(x, "i", p.split_axis, p.concat_axis, tiled=p.tiled)),
    }
)


def jax_function(prim: Primitive) -> Function:
    """The function of `jax.lax` that is this operation, its parameters those that it has here."""
    made = {**_FUNCTIONS, **REFERENCES}.get(prim.name)
    found: Function = getattr(lax, prim.name) if made is None else made(prim)
    return found
