"""Common-subexpression elimination (CSE)."""

from __future__ import annotations

from collections.abc import Sequence

from tracefx.bounded_cache import memoize_on_object
from tracefx.core.jaxpr import Atom, Jaxpr
from tracefx.core.primitive import Primitive
from tracefx.passes.rebuilding import JaxprRebuilder, is_observable, map_subjaxprs


@memoize_on_object
def cse(jaxpr: Jaxpr) -> Jaxpr:
    """Merges equations with equal primitives and operands (common-subexpression elimination).

    Parameters are compared strictly, by type and bits. Equations with observable effects are kept. Each sub-jaxpr is
    processed on its own.

    Args:
        jaxpr: The program.

    Returns:
        An equivalent program, in which no two pure equations are equal.

    >>> import tracefx as fx
    >>> closed = fx.make_jaxpr(lambda x: fx.numpy.sin(x) * fx.numpy.sin(x))(1.0)
    >>> cse(closed.jaxpr)
    { lambda ; a:f32[]*. let b:f32[]* = sin a; c:f32[]* = mul b b in (c,) }
    """
    new = JaxprRebuilder(jaxpr)
    constvars, invars = new.binders(jaxpr.constvars), new.binders(jaxpr.invars)
    known: dict[tuple[Primitive, tuple[Atom, ...]], Sequence[Atom]] = {}
    for eqn in jaxpr.eqns:
        prim, inputs = map_subjaxprs(eqn.prim, cse), new.reads(eqn.inputs)
        if is_observable(prim):
            new.add(eqn, prim, inputs, eqn.outs)
            continue
        outs = known.get((prim, inputs))
        if outs is None:
            new.add(eqn, prim, inputs, eqn.outs)
            known[prim, inputs] = new.reads(eqn.outs)
        else:
            new.replace(eqn.outs, outs)
    return new.finish(constvars, invars, jaxpr.outs)
