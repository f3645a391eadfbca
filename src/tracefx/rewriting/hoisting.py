"""Loop-invariant code motion: moves equations that are the same in every iteration out of loops."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, final

from attrs import evolve, frozen

from tracefx import ops
from tracefx.bounded_cache import memoize_on_object
from tracefx.control.callback import CallbackPrimitive
from tracefx.control.checkpoint import CheckpointName
from tracefx.control.scan import Scan
from tracefx.control.sow import Plantable
from tracefx.control.while_loop import While
from tracefx.core import Literal
from tracefx.core.jaxpr import Atom, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.interpreters.callables import HasCallables
from tracefx.passes.dce import dce
from tracefx.passes.rebuilding import map_subjaxprs, renumber
from tracefx.rewriting.closed_jaxprs import J, map_jaxpr

_NEVER_HOISTED: Final = (CallbackPrimitive, HasCallables, CheckpointName, ops.OptimizationBarrier, Plantable, While)
"""Primitives that stay in the loop: calls of user code, `while` (which may not terminate), and markers."""
_CHEAP: Final = (ops.BroadcastInDim, ops.Iota, ops.Reshape, ops.Squeeze)
"""Primitives that are cheaper to recompute in each step than to keep in memory; only copied, for hoisted dependents."""


def hoist_loop_invariants(jaxpr: J) -> J:
    """Moves loop-invariant equations out of `scan` and `while` loops, in sub-jaxprs too.

    An equation moves out of all loops that it is invariant in, and out of the condition of a `while` too. Operations
    are pure, so evaluating them before a loop of zero iterations only costs time. These stay: equations with effects,
    host callbacks (which may fail), loops that may not terminate, and cheap equations such as broadcasts and reshapes
    unless an equation that moves needs them. Equations do not move out of branches of a `cond`, since only one branch
    runs; a `cond` that is invariant moves as a whole.

    Args:
        jaxpr: a `Jaxpr` or `ClosedJaxpr`.

    Returns:
        The program with invariant equations before the loops, of the same type as `jaxpr`; the same object if nothing
        moves.

    >>> import tracefx as fx
    >>> def f(x, k):
    ...     return fx.lax.fori_loop(0, 3, lambda i, c: c * fx.lax.sin(k), x)
    >>> print(hoist_loop_invariants(fx.make_jaxpr(f)(1.0, 2.0)).eqns[0].prim.name)
    sin
    """
    return map_jaxpr(jaxpr, _hoist_to_fixed_point)


@memoize_on_object
def _hoist_to_fixed_point(jaxpr: Jaxpr) -> Jaxpr:
    """Repeats hoisting: dropping unused operands may make further equations invariant."""
    while True:
        new = _hoist(jaxpr)
        if new is jaxpr:
            return jaxpr
        jaxpr = new


def _hoist(jaxpr: Jaxpr) -> Jaxpr:
    fresh = itertools.count(jaxpr.var_count)
    eqns: list[Eqn] = []
    changed = False
    for eqn in jaxpr.eqns:
        prim = map_subjaxprs(eqn.prim, _hoist_to_fixed_point)
        inputs = eqn.inputs
        moved: list[Eqn] = []
        if isinstance(prim, Scan):
            prim, inputs, moved = _out_of_scan(prim, inputs, fresh)
        elif isinstance(prim, While):
            prim, inputs, moved = _out_of_while(prim, inputs, fresh)
        changed |= prim is not eqn.prim
        eqns += moved
        eqns.append(eqn if prim is eqn.prim else Eqn(prim, inputs, eqn.outs, eqn.source))
    if not changed:
        return jaxpr
    return dce(renumber(Jaxpr(jaxpr.constvars, jaxpr.invars, tuple(eqns), jaxpr.outs)))


def _out_of_scan(op: Scan, inputs: tuple[Atom, ...], fresh: Iterator[int]) -> tuple[Scan, tuple[Atom, ...], list[Eqn]]:
    n, m = op.num_consts, op.num_consts + op.num_carry
    lifted = _split_invariants(op.jaxpr, _invariant_inputs(op.jaxpr, inputs[:m], n), fresh)
    if lifted is None:
        return op, inputs, []
    op = evolve(op, jaxpr=lifted.body, num_consts=n + len(lifted.inputs))
    return op, (*lifted.inputs, *inputs), lifted.moved


def _out_of_while(
    op: While, inputs: tuple[Atom, ...], fresh: Iterator[int]
) -> tuple[While, tuple[Atom, ...], list[Eqn]]:
    cond_consts, body_consts, carry = op.split_operands(inputs)
    n, m = op.cond_nconsts, op.body_nconsts
    unchanged = [out == v for out, v in zip(op.body_jaxpr.outs, op.body_jaxpr.invars[m:], strict=True)]
    cond_invariants = {v.index: x for v, x in zip(op.cond_jaxpr.invars, cond_consts, strict=False)}
    for v, x, same in zip(op.cond_jaxpr.invars[n:], carry, unchanged, strict=True):
        if same:
            cond_invariants[v.index] = x
    cond = _split_invariants(op.cond_jaxpr, cond_invariants, fresh)
    body = _split_invariants(op.body_jaxpr, _invariant_inputs(op.body_jaxpr, (*body_consts, *carry), m), fresh)
    moved: list[Eqn] = []
    if cond is not None:
        op = evolve(op, cond_jaxpr=cond.body, cond_nconsts=n + len(cond.inputs))
        cond_consts, moved = (*cond.inputs, *cond_consts), moved + cond.moved
    if body is not None:
        op = evolve(op, body_jaxpr=body.body, body_nconsts=m + len(body.inputs))
        body_consts, moved = (*body.inputs, *body_consts), moved + body.moved
    return op, (*cond_consts, *body_consts, *carry), moved


def _invariant_inputs(body: Jaxpr, inputs: Sequence[Atom], consts: int) -> dict[int, Atom]:
    """Maps invariant inputs of a loop body (constants, unchanged carries) to their values outside of the loop."""
    invariants = dict(zip([v.index for v in body.invars[:consts]], inputs[:consts], strict=True))
    for v, x, out in zip(body.invars[consts:], inputs[consts:], body.outs, strict=False):
        if out == v:
            invariants[v.index] = x
    return invariants


@final
@frozen(eq=False)
class _HoistedBody:
    """A loop body without invariant equations, whose results are its new leading inputs, and these equations."""

    body: Jaxpr
    inputs: tuple[Atom, ...]
    moved: list[Eqn]


def _split_invariants(body: Jaxpr, invariant_inputs: Mapping[int, Atom], fresh: Iterator[int]) -> _HoistedBody | None:
    outside: dict[int, Atom] = dict(invariant_inputs)
    """The values outside of the loop of invariant variables, by index."""
    moved: list[Eqn] = []
    kept: list[Eqn] = []
    hoisted: dict[int, Var] = {}
    for eqn in body.eqns:
        if not all(isinstance(x, Literal) or x.index in outside for x in eqn.inputs) or not _may_move(eqn.prim):
            kept.append(eqn)
            continue
        inputs = tuple([x if isinstance(x, Literal) else outside[x.index] for x in eqn.inputs])
        outs = tuple([Var(next(fresh), v.aval) for v in eqn.outs])
        moved.append(Eqn(eqn.prim, inputs, outs, eqn.source))
        outside.update(zip([v.index for v in eqn.outs], outs, strict=True))
        if isinstance(eqn.prim, _CHEAP):
            kept.append(eqn)  # the copy outside of the loop serves hoisted equations that need it
        else:
            hoisted.update({v.index: v for v in eqn.outs})
    if not hoisted:
        return None
    used = {x.index: x for eqn in kept for x in eqn.inputs if isinstance(x, Var)}
    used.update({x.index: x for x in body.outs if isinstance(x, Var)})
    needed = [v for i, v in hoisted.items() if i in used]
    new = renumber(Jaxpr((), (*needed, *body.invars), tuple(kept), body.outs))
    return _HoistedBody(dce(new), tuple([outside[v.index] for v in needed]), moved)


def _may_move(prim: Primitive) -> bool:
    if prim.effects or isinstance(prim, _NEVER_HOISTED):
        return False
    return not isinstance(prim, HasSubjaxprs) or all(map(_terminates, prim.jaxprs()))


@memoize_on_object
def _terminates(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr surely terminates and calls neither the host nor user code."""
    return all(_may_move(eqn.prim) for eqn in jaxpr.eqns)
