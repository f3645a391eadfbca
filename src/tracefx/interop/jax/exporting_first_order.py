"""Export rules for primitives without sub-jaxprs that have no JAX primitive of the same name and parameters.

Most call a public function of JAX whose primitive is private.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature
from types import MappingProxyType
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax

from tracefx import ops
from tracefx.control.dce_sink import DceSink
from tracefx.control.platform import PlatformIndex
from tracefx.control.sow import Plantable, Sow
from tracefx.control.special.bessel import BesselI1e
from tracefx.control.special.incomplete_gamma import RandomGammaGrad
from tracefx.core import dtypes
from tracefx.core.primitive import Primitive
from tracefx.interop.jax.exporting_programs import (
    JAX_PRIMITIVES,
    Exporter,
    ExportRule,
    bind_by_name,
    default_matmul_precision,
)
from tracefx.interop.jax.parameters import parameters_to_jax
from tracefx.interop.jax.values import key_implementation

_Arrays = Sequence[jax.Array]


def _single_result_rule(f: Callable[..., Any], *fields: str) -> ExportRule:
    """Returns the rule that calls `f(*operands, *fields)`, which returns one array."""

    def rule(exporter: Exporter, prim: Primitive, args: _Arrays) -> _Arrays:
        return [f(*args, *[getattr(prim, name) for name in fields])]

    return rule


def _multi_result_rule(f: Callable[..., Any], *fields: str) -> ExportRule:
    """Returns the rule that calls `f(*operands, *fields)`, which returns several arrays."""

    def rule(exporter: Exporter, prim: Primitive, args: _Arrays) -> _Arrays:
        return list(f(*args, *[getattr(prim, name) for name in fields]))

    return rule


def _keyword_rule(f: Callable[..., Any], *left_out: str) -> ExportRule:
    """Returns the rule that calls `f(*operands, **params)`, without parameters that only the primitive has."""

    def rule(exporter: Exporter, prim: Primitive, args: _Arrays) -> _Arrays:
        params = {name: x for name, x in parameters_to_jax(prim).items() if name not in left_out}
        return [f(*args, **params)]

    return rule


def _without_accuracy(exporter: Exporter, prim: Primitive, args: _Arrays) -> _Arrays:
    params = parameters_to_jax(prim)
    accuracy = params.pop("accuracy")
    if accuracy is not None:
        raise NotImplementedError(
            f"to_jax: {prim.name} takes no accuracy in JAX, but accuracy={accuracy!r} was requested: leave it out"
        )
    return [JAX_PRIMITIVES[prim.name].bind(*args, **params)]


def _contraction_rule(f: Callable[..., Any]) -> ExportRule:
    """Calls JAX's function if JAX has a default precision: only the function, not the primitive, reads that setting."""
    by_function = _keyword_rule(f, "out_sharding", "group_offset")

    def rule(exporter: Exporter, prim: Any, args: _Arrays) -> _Arrays:
        if prim.precision is None and default_matmul_precision() is not None:
            return by_function(exporter, prim, args)
        return bind_by_name(prim, args)

    return rule


def _scatter_rule(f: Callable[..., Any]) -> ExportRule:
    """Calls JAX's function, which makes the `update_jaxpr` that the primitive needs."""
    return _keyword_rule(f, "update_jaxpr", "update_consts")


def _scaled_dot(exporter: Exporter, prim: ops.ScaledDot, args: _Arrays) -> _Arrays:
    lhs, rhs, lhs_scale, rhs_scale = args
    return [
        lax.scaled_dot(
            lhs,
            rhs,
            lhs_scale=lhs_scale,
            rhs_scale=rhs_scale,
            dimension_numbers=prim.dimension_numbers,
            preferred_element_type=prim.preferred_element_type,
        )
    ]


def _dimension_value(exporter: Exporter, prim: ops.DimensionValue, args: _Arrays) -> _Arrays:
    value = jnp.asarray(prim.size.__index__())  # weakly typed
    return [value if value.dtype == prim.dtype else lax.convert_element_type(value, prim.dtype)]


def _random_wrap(exporter: Exporter, prim: ops.RandomWrap, args: _Arrays) -> _Arrays:
    (words,) = args
    return [jax.random.wrap_key_data(words, impl=key_implementation(prim.dtype))]


def _platform_index(exporter: Exporter, prim: PlatformIndex, args: _Arrays) -> _Arrays:
    def index_branch(i: int) -> Callable[[], Any]:
        return lambda: lax.full((), i, dtypes.int32)

    default = index_branch(len(prim.platforms)) if prim.has_default else None
    return [lax.platform_dependent(default=default, **{name: index_branch(i) for i, name in enumerate(prim.platforms)})]


def _identity(exporter: Exporter, prim: Primitive, args: _Arrays) -> _Arrays:
    """Returns the operands: the primitive matters only to handlers of tracefx."""
    return args


def _drop(exporter: Exporter, prim: Primitive, args: _Arrays) -> _Arrays:
    return ()


def _dce_sink(exporter: Exporter, prim: DceSink, args: _Arrays) -> _Arrays:
    for x in args:
        lax.dce_sink(x)
    return ()


_WITHOUT_ACCURACY: Final = (
    *(ops.Acos, ops.Acosh, ops.Asin, ops.Asinh, ops.Atan, ops.Atanh, ops.Cosh, ops.Sinh),
    *(BesselI1e, ops.Digamma, ops.Erf, ops.ErfInv, ops.Lgamma),
    *(() if "accuracy" in signature(lax.erfc).parameters else (ops.Erfc,)),
)

RULES: Final[Mapping[type[Primitive], ExportRule]] = MappingProxyType(
    {
        **dict.fromkeys(_WITHOUT_ACCURACY, _without_accuracy),
        ops.Cholesky: _keyword_rule(
            partial(lax.linalg.cholesky, symmetrize_input=False)
        ),  # the primitive leaves the upper triangle undefined
        ops.ConvGeneralDilated: _contraction_rule(lax.conv_general_dilated),
        DceSink: _dce_sink,
        ops.DimensionValue: _dimension_value,
        ops.DotGeneral: _contraction_rule(lax.dot_general),
        ops.MulHi: _single_result_rule(lax.mulhi),
        ops.OptimizationBarrier: lambda exporter, prim, args: list(lax.optimization_barrier(tuple(args))),
        Plantable: _identity,
        PlatformIndex: _platform_index,
        ops.RaggedDotGeneral: _keyword_rule(lax.ragged_dot_general, "out_sharding"),
        ops.RandomClone: _single_result_rule(jax.random.clone),
        RandomGammaGrad: _single_result_rule(lax.random_gamma_grad),
        ops.RandomUnwrap: _single_result_rule(jax.random.key_data),
        ops.RandomWrap: _random_wrap,
        ops.ReduceScatter: lambda exporter, prim, args: [
            lax.psum_scatter(x, prim.axis_name, scatter_dimension=prim.scatter_dimension, tiled=prim.tiled)
            for x in args
        ],
        ops.ScaledDot: _scaled_dot,
        ops.Scatter: _scatter_rule(lax.scatter),
        ops.ScatterAdd: _scatter_rule(lax.scatter_add),
        ops.ScatterMax: _scatter_rule(lax.scatter_max),
        ops.ScatterMin: _scatter_rule(lax.scatter_min),
        ops.ScatterMul: _scatter_rule(lax.scatter_mul),
        ops.ScatterSub: _scatter_rule(lax.scatter_sub),
        Sow: _drop,
        ops.Split: _multi_result_rule(lax.split, "sizes", "axis"),
        ops.Stack: lambda exporter, prim, args: [lax.stack(args, prim.axis)],
        ops.Tile: _single_result_rule(lax.tile, "reps"),
        ops.Unstack: _multi_result_rule(lax.unstack, "axis"),
    }
)
"""Export rules by class of primitive."""
