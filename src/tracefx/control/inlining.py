"""Inlining: replaces calls by the equations of the called jaxpr."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import final

from attrs import frozen

from tracefx.bounded_cache import memoize_on_object
from tracefx.control.call import Call, CallPrimitive
from tracefx.control.checkpoint import CheckpointPrimitive
from tracefx.control.custom_rules import CustomRuleProgram
from tracefx.core import Literal
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.passes.rebuilding import map_subjaxprs, renumber
from tracefx.source_location import Provenance, with_scope


@final
@frozen
class InlineOptions:
    """The options of `rewriting.inline`: which calls are inlined."""

    max_eqns: int | None = None
    checkpoints: bool = False
    custom_rules: bool = False

    def body(self, prim: Primitive) -> Jaxpr | None:
        """Returns the body to inline in place of the primitive, or None if it stays."""
        is_call = isinstance(prim, Call) or (self.checkpoints and isinstance(prim, CheckpointPrimitive))
        if (isinstance(prim, CallPrimitive) and is_call) or (self.custom_rules and isinstance(prim, CustomRuleProgram)):
            body = prim.jaxpr
        else:
            return None
        return body if self.max_eqns is None or len(body.eqns) <= self.max_eqns else None


@memoize_on_object
def inline_calls(jaxpr: Jaxpr, options: InlineOptions) -> Jaxpr:
    """Replaces calls by the equations of the jaxprs that they call, in sub-jaxprs too."""
    fresh = itertools.count(jaxpr.var_count)
    atoms: dict[int, Atom] = {}
    eqns: list[Eqn] = []
    changed = False
    for eqn in jaxpr.eqns:
        prim = map_subjaxprs(eqn.prim, lambda body: inline_calls(body, options))
        inputs = tuple([_read(x, atoms) for x in eqn.inputs])
        body = options.body(prim)
        if body is None:
            same = prim is eqn.prim and inputs == eqn.inputs
            changed |= not same
            eqns.append(eqn if same else Eqn(prim, inputs, eqn.outs, eqn.source))
            continue
        changed = True
        inner: dict[int, Atom] = dict(zip([v.index for v in body.invars], inputs, strict=True))
        eqns += _copy_equations(body, inner, fresh, prim, eqn.source)
        atoms.update(zip([v.index for v in eqn.outs], [_read(x, inner) for x in body.outs], strict=True))
    if not changed:
        return jaxpr
    outs = tuple([_read(x, atoms) for x in jaxpr.outs])
    return renumber(Jaxpr(jaxpr.constvars, jaxpr.invars, tuple(eqns), outs))


def _read(x: Atom, atoms: dict[int, Atom]) -> Atom:
    return x if isinstance(x, Literal) else atoms.get(x.index, x)


def _copy_equations(
    body: Jaxpr, atoms: dict[int, Atom], fresh: Iterator[int], prim: Primitive, call: Provenance | None
) -> list[Eqn]:
    """Returns the equations of a body with its variables replaced by variables of the caller."""
    copied = []
    for eqn in body.eqns:
        inputs = tuple([_read(x, atoms) for x in eqn.inputs])
        outs = tuple([Var(next(fresh), v.aval) for v in eqn.outs])
        atoms.update(zip([v.index for v in eqn.outs], outs, strict=True))
        copied.append(Eqn(eqn.prim, inputs, outs, _nested_provenance(eqn.source, prim, call)))
    return copied


def _nested_provenance(source: Provenance | None, prim: Primitive, call: Provenance | None) -> Provenance | None:
    """Prefixes the name scopes of an inlined equation with those of its call, so that profiles still separate calls."""
    if source is None:
        return call
    return with_scope(source, (*(() if call is None else call.scope), prim.profile_name, *source.scope))
