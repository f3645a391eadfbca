"""Divides a program into pieces that are compiled on their own: its shared blocks, and the equations between them."""

from __future__ import annotations

from collections.abc import Sequence

from tracefx.control.call import Call
from tracefx.core.jaxpr import Eqn, Jaxpr, Var
from tracefx.passes.rebuilding import renumber
from tracefx.repeated_blocks.blocks import Uses
from tracefx.repeated_blocks.sharing import SharedBlock


def divide_into_pieces(jaxpr: Jaxpr, name: str) -> Jaxpr:
    """Returns an equal program of calls: those of shared blocks, and those of the equations between them.

    Calls of equal blocks have the same jaxpr. Jaxprs of equal programs are numbered alike, so they have equal keys in
    the caches of executables.

    Args:
        jaxpr: A program with calls of shared blocks.
        name: The name of the calls, in profiles and messages.
    """
    uses = Uses.of(jaxpr)
    calls: list[Eqn] = []
    start = 0
    for i, e in enumerate(jaxpr.eqns):
        if isinstance(e.prim, SharedBlock):
            calls += _piece(uses, start, i, name)
            calls.append(Eqn(Call(name, renumber(e.prim.jaxpr)), e.inputs, e.outs, e.source))
            start = i + 1
    calls += _piece(uses, start, len(jaxpr.eqns), name)
    return Jaxpr(jaxpr.constvars, jaxpr.invars, tuple(calls), jaxpr.outs)


def _piece(uses: Uses, start: int, stop: int, name: str) -> Sequence[Eqn]:
    """Returns the call of the equations from `start` to `stop`; nothing if there are none."""
    eqns = uses.eqns[start:stop]
    if not eqns:
        return ()
    bound = {v.index for e in eqns for v in e.outs}
    taken = {x.index: x for e in eqns for x in e.inputs if type(x) is Var and x.index not in bound}
    inputs = tuple(taken.values())
    outs = tuple([v for e in eqns for v in e.outs if uses.read_from(v, stop)])
    body = renumber(Jaxpr((), inputs, tuple(eqns), outs))
    return [Eqn(Call(name, body), inputs, outs, eqns[0].source)]
