"""Interpretation of a jaxpr under the current handler."""

from __future__ import annotations

from collections.abc import Sequence

from tracefx.core.avals import show_avals
from tracefx.core.handler import CURRENT, ROOT
from tracefx.core.jaxpr import Atom, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.source_location import EQN_LOCATION
from tracefx.core.values import Value


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Value], args: Sequence[Value]) -> list[Value]:
    """Run a program under the current handler: evaluating, differentiating and staging it are all this call.

    Evaluated, a value is held no longer than something reads it: a long program needs no memory for all of them.
    """
    if len(args) != len(jaxpr.invars) or len(consts) != len(jaxpr.constvars):
        raise TypeError(
            f"a jaxpr of inputs ({show_avals(jaxpr.in_avals)}) and {len(jaxpr.constvars)} constants was given "
            f"{len(args)} arguments and {len(consts)} constants"
        )
    handler = CURRENT.get()
    env: list[Value | None] = [None] * jaxpr.var_count
    for v, x in zip(jaxpr.constvars, consts, strict=True):
        env[v.index] = x
    for v, x in zip(jaxpr.invars, args, strict=True):
        env[v.index] = x

    def read(atom: Atom) -> Value:
        if type(atom) is Literal:
            return atom
        assert type(atom) is Var
        value = env[atom.index]
        assert value is not None, atom
        return value

    if handler is ROOT:  # which asks nobody where an operation comes from
        for eqn, unused in zip(jaxpr.eqns, jaxpr.last_uses, strict=True):
            outs = handler.bind(eqn.prim, [read(a) for a in eqn.inputs])
            for v, x in zip(eqn.outs, outs, strict=True):
                env[v.index] = x
            for i in unused:
                env[i] = None
        return [read(a) for a in jaxpr.outs]
    token = EQN_LOCATION.set(EQN_LOCATION.get())
    try:
        for eqn in jaxpr.eqns:
            EQN_LOCATION.set(eqn.source)
            outs = handler.bind(eqn.prim, [read(a) for a in eqn.inputs])
            for v, x in zip(eqn.outs, outs, strict=True):
                env[v.index] = x
    finally:
        EQN_LOCATION.reset(token)
    return [read(a) for a in jaxpr.outs]
