"""Shares the blocks of programs and checks that stepwise evaluation gives the same bits and effects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

import tracefx as fx
from tests.comparison import difference
from tests.rewriting.evaluation import results
from tracefx.control.call import Call
from tracefx.core import from_numpy
from tracefx.core.jaxpr import Eqn, Jaxpr
from tracefx.passes.check import check_jaxpr
from tracefx.passes.rebuilding import map_subjaxprs, renumber
from tracefx.repeated_blocks.sharing import SharedBlock, SharedProgram, share_repeats

share_all: Final = partial(share_repeats, least_count=2, least_saved=1, least_equations=1)


def with_calls(jaxpr: Jaxpr) -> Jaxpr:
    """Returns a program with calls in place of shared blocks."""

    def changed(e: Eqn) -> Eqn:
        prim = map_subjaxprs(e.prim, with_calls)
        if isinstance(prim, SharedBlock):
            prim = Call("block", prim.jaxpr)
        return Eqn(prim, e.inputs, e.outs, e.source)

    return Jaxpr(jaxpr.constvars, jaxpr.invars, tuple(map(changed, jaxpr.eqns)), jaxpr.outs)


def check(jaxpr: Jaxpr, args: Sequence[Any], share: Callable[[Jaxpr], SharedProgram] = share_all) -> SharedProgram:
    """Shares the blocks of a program and checks that stepwise evaluation gives the same bits and effects."""
    program = share(jaxpr)
    check_jaxpr(renumber(program.jaxpr))
    values = [x if isinstance(x, fx.Array) else from_numpy(np.asarray(x)) for x in args]
    (got, log), (want, expected) = results(renumber(with_calls(program.jaxpr)), values), results(jaxpr, values)
    found = difference(got, want)
    assert not found, f"{found}\nbefore: {jaxpr}\nafter: {program.jaxpr}"
    assert log == expected
    return program


def check_function(f: Callable[..., Any], *args: Any) -> SharedProgram:
    closed = fx.make_jaxpr(f)(*args)
    return check(closed.jaxpr.closed(), [*closed.consts, *fx.tree.leaves(args)])
