"""Rules for operations without programs inside that are no primitives of the same name and parameters in JAX.

Most are functions of JAX whose primitive its users can't get at.
"""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import jax
from jax import lax

from tracefx.control.platform import PlatformIndex
from tracefx.control.sinking import DceSink
from tracefx.control.sowing import Plantable, Sow
from tracefx.control.special.bessel import BesselI1e
from tracefx.control.special.incomplete_gamma import RandomGammaGrad
from tracefx.core import dtypes
from tracefx.core.primitive import Primitive
from tracefx.interop.jax.exporting_programs import PRIMITIVES, Export, Rule, by_name, default_precision
from tracefx.interop.jax.parameters import parameters_to_jax
from tracefx.interop.jax.values import key_implementation
from tracefx.ops.along_axis import Unstack
from tracefx.ops.barrier import OptimizationBarrier
from tracefx.ops.contraction import DotGeneral
from tracefx.ops.convolution import ConvGeneralDilated
from tracefx.ops.exchange import ReduceScatter
from tracefx.ops.high_product import MulHi
from tracefx.ops.indexing import ScatterAdd
from tracefx.ops.keys import RandomClone, RandomUnwrap, RandomWrap
from tracefx.ops.linalg.cholesky import Cholesky
from tracefx.ops.ragged import RaggedDotGeneral
from tracefx.ops.scaled import ScaledDot
from tracefx.ops.scattering import Scatter, ScatterMax, ScatterMin, ScatterMul, ScatterSub
from tracefx.ops.shape import Split, Stack, Tile
from tracefx.ops.special import Digamma, Erf, Erfc, ErfInv, Lgamma
from tracefx.ops.transcendental import Acos, Acosh, Asin, Asinh, Atan, Atanh, Cosh, Sinh

_Arrays = Sequence[jax.Array]


def _function(f: Callable[..., Any], *fields: str) -> Rule:
    """A function of the operands and of some fields, to one array."""

    def rule(export: Export, prim: Primitive, args: _Arrays) -> _Arrays:
        return [f(*args, *[getattr(prim, name) for name in fields])]

    return rule


def _several(f: Callable[..., Any], *fields: str) -> Rule:
    """The same to several arrays."""

    def rule(export: Export, prim: Primitive, args: _Arrays) -> _Arrays:
        return list(f(*args, *[getattr(prim, name) for name in fields]))

    return rule


def _by_name(f: Callable[..., Any], *left_out: str) -> Rule:
    """A function that takes the parameters by their names, but for those that its primitive alone has."""

    def rule(export: Export, prim: Primitive, args: _Arrays) -> _Arrays:
        params = {name: x for name, x in parameters_to_jax(prim).items() if name not in left_out}
        return [f(*args, **params)]

    return rule


def _without_accuracy(export: Export, prim: Primitive, args: _Arrays) -> _Arrays:
    params = parameters_to_jax(prim)
    accuracy = params.pop("accuracy")
    if accuracy is not None:
        raise NotImplementedError(
            f"to_jax: {prim.name} takes no accuracy in JAX, but {accuracy!r} is asked for: leave it out"
        )
    return [PRIMITIVES[prim.name].bind(*args, **params)]


def _product(f: Callable[..., Any]) -> Rule:
    """JAX's function, and not its primitive, asks how precise products are by default."""
    by_function = _by_name(f, "out_sharding", "group_offset")

    def rule(export: Export, prim: Any, args: _Arrays) -> _Arrays:
        if prim.precision is None and default_precision() is not None:
            return by_function(export, prim, args)
        return by_name(prim, args)

    return rule


def _scatter(f: Callable[..., Any]) -> Rule:
    """JAX's primitive has a program for how updates are combined, which its function makes."""
    return _by_name(f, "update_jaxpr", "update_consts")


def _scaled_dot(export: Export, prim: ScaledDot, args: _Arrays) -> _Arrays:
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


def _wrapped(export: Export, prim: RandomWrap, args: _Arrays) -> _Arrays:
    (words,) = args
    return [jax.random.wrap_key_data(words, impl=key_implementation(prim.dtype))]


def _platform(export: Export, prim: PlatformIndex, args: _Arrays) -> _Arrays:
    def place(i: int) -> Callable[[], Any]:
        return lambda: lax.full((), i, dtypes.int32)

    default = place(len(prim.platforms)) if prim.has_default else None
    return [lax.platform_dependent(default=default, **{name: place(i) for i, name in enumerate(prim.platforms)})]


def _as_it_is(export: Export, prim: Primitive, args: _Arrays) -> _Arrays:
    """What is there for handlers of tracefx alone."""
    return args


def _nothing(export: Export, prim: Primitive, args: _Arrays) -> _Arrays:
    return ()


def _sunk(export: Export, prim: DceSink, args: _Arrays) -> _Arrays:
    for x in args:
        lax.dce_sink(x)
    return ()


_WITHOUT_ACCURACY: Final = (
    *(Acos, Acosh, Asin, Asinh, Atan, Atanh, Cosh, Sinh),
    *(BesselI1e, Digamma, Erf, Erfc, ErfInv, Lgamma),
)

RULES: Final[Mapping[type[Primitive], Rule]] = MappingProxyType(
    {
        **dict.fromkeys(_WITHOUT_ACCURACY, _without_accuracy),
        Cholesky: _by_name(partial(lax.linalg.cholesky, symmetrize_input=False)),  # the primitive leaves garbage above
        ConvGeneralDilated: _product(lax.conv_general_dilated),
        DceSink: _sunk,
        DotGeneral: _product(lax.dot_general),
        MulHi: _function(lax.mulhi),
        OptimizationBarrier: lambda export, prim, args: list(lax.optimization_barrier(tuple(args))),
        Plantable: _as_it_is,
        PlatformIndex: _platform,
        RaggedDotGeneral: _by_name(lax.ragged_dot_general, "out_sharding"),
        RandomClone: _function(jax.random.clone),
        RandomGammaGrad: _function(lax.random_gamma_grad),
        RandomUnwrap: _function(jax.random.key_data),
        RandomWrap: _wrapped,
        ReduceScatter: lambda export, prim, args: [
            lax.psum_scatter(x, prim.axis_name, scatter_dimension=prim.scatter_dimension, tiled=prim.tiled)
            for x in args
        ],
        ScaledDot: _scaled_dot,
        Scatter: _scatter(lax.scatter),
        ScatterAdd: _scatter(lax.scatter_add),
        ScatterMax: _scatter(lax.scatter_max),
        ScatterMin: _scatter(lax.scatter_min),
        ScatterMul: _scatter(lax.scatter_mul),
        ScatterSub: _scatter(lax.scatter_sub),
        Sow: _nothing,
        Split: _several(lax.split, "sizes", "axis"),
        Stack: lambda export, prim, args: [lax.stack(args, prim.axis)],
        Tile: _function(lax.tile, "reps"),
        Unstack: _several(lax.unstack, "axis"),
    }
)
"""By the classes of operations."""
