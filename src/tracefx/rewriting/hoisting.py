"""Loop-invariant code motion: what is the same in every step of a loop is computed once, before it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, final

from attrs import evolve, frozen

from tracefx.control.callback import CallbackPrimitive
from tracefx.control.checkpoint import CheckpointName
from tracefx.control.scan import Scan
from tracefx.control.sow import Plantable
from tracefx.control.while_loop import While
from tracefx.core.callables import HasCallables
from tracefx.core.jaxpr import Atom, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive
from tracefx.ops.annotations.optimization_barrier import OptimizationBarrier
from tracefx.ops.shape.array_creation import Iota
from tracefx.ops.shape.shape import Squeeze
from tracefx.ops.structural import BroadcastInDim, Reshape
from tracefx.passes.dce import dce, map_subjaxprs, renumber
from tracefx.rewriting.closed_jaxprs import J, map_jaxpr

_NEVER_HOISTED: Final = (CallbackPrimitive, HasCallables, CheckpointName, OptimizationBarrier, Plantable, While)
"""Calls of others' code, what may run forever, and what is there for its own sake: each step has its own."""
_CHEAP: Final = (BroadcastInDim, Iota, Reshape, Squeeze)
"""What costs less in each step than the memory it would be kept in. It goes along where something else needs it."""


def hoist_loop_invariants(jaxpr: J) -> J:
    """The program with what is the same in every step of a `scan` or `while` computed before the loop, in bodies too.

    It moves out of as many loops as it is invariant of; out of the condition of a `while` too. Operations are pure, so
    computing them where the loop takes no step is no more than lost time. What stays: what has effects, calls the host
    (which may fail), or may run forever; and broadcasts, reshapes and the like, unless something else needs them.
    Branches of a `cond` keep what is theirs, since only one of them runs; a `cond` that is invariant as a whole moves.

    >>> import tracefx as fx
    >>> def f(x, k):
    ...     return fx.lax.fori_loop(0, 3, lambda i, c: c * fx.lax.sin(k), x)
    >>> print(hoist_loop_invariants(fx.make_jaxpr(f)(1.0, 2.0)).eqns[0].prim.name)
    sin
    """
    return map_jaxpr(jaxpr, _hoist_memoized)


def _hoist_memoized(jaxpr: Jaxpr) -> Jaxpr:
    return jaxpr.memo.get("hoist_loop_invariants", lambda: _hoist_to_fixed_point(jaxpr))


def _hoist_to_fixed_point(jaxpr: Jaxpr) -> Jaxpr:
    """Where operands have gone that nobody used, more may be invariant than before."""
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
        prim = map_subjaxprs(eqn.prim, _hoist_memoized)
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
    steady = [out == v for out, v in zip(op.body_jaxpr.outs, op.body_jaxpr.invars[m:], strict=True)]
    asked = {v.index: x for v, x in zip(op.cond_jaxpr.invars, cond_consts, strict=False)}
    for v, x, same in zip(op.cond_jaxpr.invars[n:], carry, steady, strict=True):
        if same:
            asked[v.index] = x
    cond = _split_invariants(op.cond_jaxpr, asked, fresh)
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
    """The inputs that are the same in every step, with what they are: constants, and carries handed on as they are."""
    given = dict(zip([v.index for v in body.invars[:consts]], inputs[:consts], strict=True))
    for v, x, out in zip(body.invars[consts:], inputs[consts:], body.outs, strict=False):
        if out == v:
            given[v.index] = x
    return given


@final
@frozen(eq=False)
class _HoistedBody:
    """A body without what is invariant, which it takes as leading inputs; and the equations that moved out."""

    body: Jaxpr
    inputs: tuple[Atom, ...]
    moved: list[Eqn]


def _split_invariants(body: Jaxpr, given: Mapping[int, Atom], fresh: Iterator[int]) -> _HoistedBody | None:
    outside: dict[int, Atom] = dict(given)
    """What stands, outside of the loop, for a variable that is invariant."""
    moved: list[Eqn] = []
    stays: list[Eqn] = []
    gone: dict[int, Var] = {}
    for eqn in body.eqns:
        if not all(isinstance(x, Literal) or x.index in outside for x in eqn.inputs) or not _may_move(eqn.prim):
            stays.append(eqn)
            continue
        inputs = tuple([x if isinstance(x, Literal) else outside[x.index] for x in eqn.inputs])
        outs = tuple([Var(next(fresh), v.aval) for v in eqn.outs])
        moved.append(Eqn(eqn.prim, inputs, outs, eqn.source))
        outside.update(zip([v.index for v in eqn.outs], outs, strict=True))
        if isinstance(eqn.prim, _CHEAP):
            stays.append(eqn)  # a copy of it has moved, for those that need it there
        else:
            gone.update({v.index: v for v in eqn.outs})
    if not gone:
        return None
    used = {x.index: x for eqn in stays for x in eqn.inputs if isinstance(x, Var)}
    used.update({x.index: x for x in body.outs if isinstance(x, Var)})
    needed = [v for i, v in gone.items() if i in used]
    new = renumber(Jaxpr((), (*needed, *body.invars), tuple(stays), body.outs))
    return _HoistedBody(dce(new), tuple([outside[v.index] for v in needed]), moved)


def _may_move(prim: Primitive) -> bool:
    if prim.effects or isinstance(prim, _NEVER_HOISTED):
        return False
    return not isinstance(prim, HasSubjaxprs) or all(map(_terminates, prim.jaxprs()))


def _terminates(jaxpr: Jaxpr) -> bool:
    """Whether nothing in a program calls the host, and nothing may run forever."""
    return jaxpr.memo.get("hoist_ends", lambda: all(_may_move(eqn.prim) for eqn in jaxpr.eqns))
