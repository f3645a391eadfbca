"""Export rules for primitives with sub-jaxprs: calls, loops, branches, checkpoints, linear solvers, reductions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import jax
from jax import _src, lax
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive as JaxPrimitive
from jax.extend.core import primitives

from tracefx.bounded_cache import memoize_on_object
from tracefx.control.call import Call
from tracefx.control.checkpoint import CheckpointName, CheckpointPrimitive
from tracefx.control.composite import ArrayAttribute, Composite
from tracefx.control.cond import Cond
from tracefx.control.generic_reduction import Reduce, ReduceWindow
from tracefx.control.linear_solve import LinearSolve
from tracefx.control.remat import CheckpointPolicy
from tracefx.control.scan import Scan
from tracefx.control.vocabulary import VOCABULARY
from tracefx.control.while_loop import While
from tracefx.core.jaxpr import HasSubjaxprs, Jaxpr
from tracefx.core.primitive import Primitive
from tracefx.interop.jax.exporting_programs import Exporter, ExportRule
from tracefx.interop.jax.parameters import operation_from_jax
from tracefx.interop.jax.values import type_from_jax
from tracefx.ops.collectives.pvary import PVary

_Arrays = Sequence[jax.Array]
_FLAT_TREES: Final[Any] = getattr(_src, "flattree", None)
"""JAX's module of flat trees, which are parameters of `scan` and imported with it; None in versions without it."""

# ------------------------------------------------------------------ calls


def _call(exporter: Exporter, prim: Call, args: _Arrays) -> _Arrays:
    return _compiled(prim.jaxpr, exporter, prim.label)(*args)


@memoize_on_object
def _compiled(jaxpr: Jaxpr, exporter: Exporter, label: str) -> Callable[..., _Arrays]:
    return jax.jit(exporter.function(jaxpr, label))


def _composite(exporter: Exporter, prim: Composite, args: _Arrays) -> _Arrays:
    def decomposition(*operands: jax.Array, **attributes: object) -> list[jax.Array]:
        return exporter.run(prim.jaxpr, operands)

    attributes = {key: _attribute(value) for key, value in prim.attributes}
    results: _Arrays = lax.composite(decomposition, prim.label, prim.version)(*args, **attributes)
    return results


def _attribute(value: object) -> Any:
    if isinstance(value, tuple):
        return tuple([_attribute(x) for x in value])
    return value.array() if isinstance(value, ArrayAttribute) else value


# ------------------------------------------------------------------ checkpoints


def _checkpoint(exporter: Exporter, prim: CheckpointPrimitive, args: _Arrays) -> _Arrays:
    call = jax.checkpoint(
        exporter.function(prim.jaxpr, prim.callee_name), prevent_cse=prim.prevent_cse, policy=policy_to_jax(prim.policy)
    )
    results: _Arrays = call(*args)
    return results


def policy_to_jax(policy: CheckpointPolicy | None) -> Callable[..., bool] | None:
    """Converts a checkpoint policy to JAX. Primitives that tracefx does not have are recomputed."""
    if policy is None:
        return None

    def adapted(primitive: JaxPrimitive, *avals: Any, **params: Any) -> bool:
        if (prim_class := VOCABULARY.get(primitive.name)) is None or issubclass(prim_class, HasSubjaxprs):
            return False
        try:
            prim = operation_from_jax(primitive.name, params)
        except (TypeError, NotImplementedError):  # parameters that tracefx does not support
            return False
        return policy(prim, *map(type_from_jax, avals))

    return adapted


def _name(exporter: Exporter, prim: CheckpointName, args: _Arrays) -> _Arrays:
    return [checkpoint_name(x, prim.label) for x in args]


def _vary(exporter: Exporter, prim: PVary, args: _Arrays) -> _Arrays:
    return list(args)  # in JAX, `pvary` needs an enclosing mesh, and there is none


# ------------------------------------------------------------------ loops and branches


def _cond(exporter: Exporter, prim: Cond, args: _Arrays) -> _Arrays:
    branches = tuple(map(exporter.closed, prim.branches))
    results: _Arrays = primitives.cond_p.bind(*args, branches=branches)
    return results


def _scan(exporter: Exporter, prim: Scan, args: _Arrays) -> _Arrays:
    if prim.checkpoint is not None:
        return exporter.run(prim.checkpointed_jaxpr(), args)
    results: _Arrays = primitives.scan_p.bind(
        *args,
        jaxpr=exporter.closed(prim.jaxpr),
        length=prim.length,
        reverse=prim.reverse,
        unroll=prim.unroll,
        **_scan_groups(prim, len(args)),
    )
    return results


def _scan_groups(prim: Scan, num_args: int) -> Mapping[str, object]:
    """Returns the parameters of `scan` that classify operands and results as constants, carries and slices.

    Since JAX 0.11 these are flat trees; before, two numbers.
    """
    if _FLAT_TREES is None:
        return {"num_carry": prim.num_carry, "num_consts": prim.num_consts}
    consts, carry = _FLAT_TREES.nones(prim.num_consts), _FLAT_TREES.nones(prim.num_carry)
    slices = _FLAT_TREES.nones(num_args - prim.num_consts - prim.num_carry)
    num_stacked = len(prim.jaxpr.outs) - prim.num_carry
    stacked = _FLAT_TREES.nones(num_stacked).filter_with_mask([True] * num_stacked)  # the type that lax.scan passes
    return {"ft_in": _FLAT_TREES.pack((consts, carry, slices)), "ft_out": _FLAT_TREES.pack((carry, stacked))}


def _while(exporter: Exporter, prim: While, args: _Arrays) -> _Arrays:
    """Exports a loop. A bounded one (`max_steps`) becomes nested scans, which JAX can differentiate in reverse mode."""
    if prim.max_steps is not None:
        return exporter.run(prim.checkpointed_jaxpr(), args)
    results: _Arrays = primitives.while_p.bind(
        *args,
        body_jaxpr=exporter.closed(prim.body_jaxpr),
        body_nconsts=prim.body_nconsts,
        cond_jaxpr=exporter.closed(prim.cond_jaxpr),
        cond_nconsts=prim.cond_nconsts,
    )
    return results


# ------------------------------------------------------------------ solvers and reductions


def _linear_solve(exporter: Exporter, prim: LinearSolve, args: _Arrays) -> _Arrays:
    consts, b = args[: prim.num_consts], list(args[prim.num_consts :])
    n = len(b)
    has_aux = len(prim.solve.outs) > n

    def solve(matvec: Callable[..., Any], rhs: _Arrays) -> Any:
        results = exporter.run(prim.solve, [*consts, *rhs])
        return (results[:n], results[n:]) if has_aux else results

    def matvec(x: _Arrays) -> _Arrays:
        return exporter.run(prim.matvec, [*consts, *x])

    def transpose_solve(vecmat: Callable[..., Any], rhs: _Arrays) -> Any:
        assert prim.transpose_solve is not None
        results = exporter.run(prim.transpose_solve, [*consts, *rhs])
        return (results[:n], results[n:]) if has_aux else results

    results = lax.custom_linear_solve(
        matvec,
        b,
        solve,
        None if prim.transpose_solve is None else transpose_solve,
        symmetric=prim.vecmat is not None and prim.vecmat == prim.matvec,
        has_aux=has_aux,
    )
    return [*results[0], *results[1]] if has_aux else results


def _reducer(exporter: Exporter, jaxpr: Jaxpr) -> Callable[[Any, Any], Any]:
    def computation(a: Any, b: Any) -> Any:
        return tuple(exporter.run(jaxpr, [*a, *b]))

    return computation


def _reduce(exporter: Exporter, prim: Reduce, args: _Arrays) -> _Arrays:
    n = len(args) // 2
    results: _Arrays = lax.reduce(tuple(args[:n]), tuple(args[n:]), _reducer(exporter, prim.jaxpr), prim.dimensions)
    return results


def _reduce_window(exporter: Exporter, prim: ReduceWindow, args: _Arrays) -> _Arrays:
    n = len(args) // 2
    results: _Arrays = lax.reduce_window(
        tuple(args[:n]),
        tuple(args[n:]),
        _reducer(exporter, prim.jaxpr),
        prim.window_dimensions,
        prim.window_strides,
        prim.padding,
        prim.base_dilation,
        prim.window_dilation,
    )
    return results


RULES: Final[Mapping[type[Primitive], ExportRule]] = MappingProxyType(
    {
        Call: _call,
        CheckpointPrimitive: _checkpoint,
        Composite: _composite,
        Cond: _cond,
        LinearSolve: _linear_solve,
        CheckpointName: _name,
        Reduce: _reduce,
        ReduceWindow: _reduce_window,
        Scan: _scan,
        PVary: _vary,
        While: _while,
    }
)
"""Export rules by class of primitive."""
