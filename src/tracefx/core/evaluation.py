"""Evaluation of jaxprs: binds their equations, one after the other, under the current handler."""

from __future__ import annotations

from collections.abc import Sequence

from tracefx.core.avals import show_avals
from tracefx.core.handler import CURRENT, ROOT
from tracefx.core.jaxpr import Atom, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.values import Value
from tracefx.source_location import SOURCE


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Value], args: Sequence[Value]) -> list[Value]:
    """Interprets a jaxpr under the current handler.

    The current handler decides what that means: evaluation, differentiation, batching and staging of a jaxpr are all
    this call. Under the root handler a value is released after its last use, which bounds memory in long programs.

    Args:
        jaxpr: The program.
        consts: One value per `constvars`.
        args: One value per `invars`.

    Returns:
        The values of `jaxpr.outs`.

    Raises:
        TypeError: If the number of constants or arguments is wrong.

    >>> from tracefx import make_jaxpr, numpy as fnp
    >>> x = fnp.array([0.0, 1.0])
    >>> closed = make_jaxpr(lambda x: 2 * x + 1)(x)
    >>> eval_jaxpr(closed.jaxpr, closed.consts, [x])
    [Array([1., 3.], dtype=float32)]
    """
    if len(args) != len(jaxpr.invars) or len(consts) != len(jaxpr.constvars):
        raise TypeError(
            f"a jaxpr with inputs ({show_avals(jaxpr.in_avals)}) and {len(jaxpr.constvars)} constants was given "
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

    if handler is ROOT:  # which does not need source locations
        for eqn, unused in zip(jaxpr.eqns, jaxpr.last_uses, strict=True):
            outs = handler.bind(eqn.prim, [read(a) for a in eqn.inputs])
            for v, x in zip(eqn.outs, outs, strict=True):
                env[v.index] = x
            for i in unused:
                env[i] = None
        return [read(a) for a in jaxpr.outs]
    outer = SOURCE.get()
    token = SOURCE.set(outer)
    try:
        for eqn in jaxpr.eqns:
            SOURCE.set(eqn.source or outer)
            outs = handler.bind(eqn.prim, [read(a) for a in eqn.inputs])
            for v, x in zip(eqn.outs, outs, strict=True):
                env[v.index] = x
    finally:
        SOURCE.reset(token)
    return [read(a) for a in jaxpr.outs]
