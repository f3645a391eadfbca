"""Rebuilding a jaxpr: what passes share, the renumbering of variables, and types without varying mesh axes.

The variables of a result are numbered in the order of their binding: constants, inputs, outputs of equations. A pass
that changes nothing returns the same object, together with its cache of derived results.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from tracefx.bounded_cache import memoize_on_object
from tracefx.core import Literal
from tracefx.core.avals import NOT_VARYING
from tracefx.core.jaxpr import Atom, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.passes.varying import HasVmaRule


class JaxprRebuilder:
    """Builds a transformed copy of a jaxpr, with variables numbered in the order of their binding."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.old = jaxpr
        self.count = 0
        self.atoms: dict[int, Atom] = {}
        """For variables of the old jaxpr, by index, the atom of the new jaxpr."""
        self.eqns: list[Eqn] = []
        self.changed = False

    def bind(self, v: Var) -> Var:
        """Returns the new variable for a variable of the old jaxpr that is bound next."""
        same = v.index == self.count
        new = v if same else Var(self.count, v.aval)
        self.changed |= not same
        self.count += 1
        self.atoms[v.index] = new
        return new

    def binders(self, vs: Sequence[Var]) -> tuple[Var, ...]:
        """Binds several variables."""
        return tuple([self.bind(v) for v in vs])

    def read(self, x: Atom) -> Atom:
        """Returns the atom of the new jaxpr for one of the old jaxpr."""
        return x if isinstance(x, Literal) else self.atoms[x.index]

    def reads(self, xs: Sequence[Atom]) -> tuple[Atom, ...]:
        """Reads several atoms."""
        return tuple([self.read(x) for x in xs])

    def replace(self, vs: Sequence[Var], atoms: Sequence[Atom]) -> None:
        """Replaces variables of the old jaxpr by atoms of the new one."""
        self.changed = True
        self.atoms.update(zip([v.index for v in vs], atoms, strict=True))

    def add(self, eqn: Eqn, prim: Primitive, inputs: tuple[Atom, ...], outs: Sequence[Var]) -> None:
        """Adds an equation in place of `eqn`. `inputs` are atoms of the new jaxpr, `outs` variables of the old one."""
        new = Eqn(prim, inputs, self.binders(outs), eqn.source)
        same = prim is eqn.prim and same_objects(new.inputs, eqn.inputs) and same_objects(new.outs, eqn.outs)
        self.changed |= not same
        self.eqns.append(eqn if same else new)

    def finish(self, constvars: Sequence[Var], invars: Sequence[Var], outs: Sequence[Atom]) -> Jaxpr:
        """Returns the new jaxpr; the old object if nothing changed.

        Args:
            constvars: The constants, in the new jaxpr.
            invars: The inputs, in the new jaxpr.
            outs: The outputs, as atoms of the old jaxpr.
        """
        new = Jaxpr(tuple(constvars), tuple(invars), tuple(self.eqns), self.reads(outs))
        old = self.old
        same = not self.changed and len(new.eqns) == len(old.eqns) and len(new.invars) == len(old.invars)
        return old if same and same_objects(new.outs, old.outs) else new


def same_objects(xs: Sequence[object], ys: Sequence[object]) -> bool:
    """Whether two sequences have identical elements (by `is`)."""
    return len(xs) == len(ys) and all(map(operator.is_, xs, ys))


def map_subjaxprs(prim: Primitive, transform: Callable[[Jaxpr], Jaxpr]) -> Primitive:
    """Applies a function to the sub-jaxprs of a primitive. Returns the same object if none changes."""
    if not isinstance(prim, HasSubjaxprs):
        return prim
    bodies = prim.jaxprs()
    new = tuple(map(transform, bodies))
    return prim if same_objects(new, bodies) else prim.with_jaxprs(*new)


@memoize_on_object
def renumber(jaxpr: Jaxpr) -> Jaxpr:
    """Renumbers the variables of a jaxpr and its sub-jaxprs in the order of their binding.

    Args:
        jaxpr: The program.

    Returns:
        An equal program whose variables have the indices 0, 1, 2, ...; `==` of two such programs ignores how they were
        numbered before.

    >>> import numpy as np
    >>> from tracefx.core.avals import ShapedArray
    >>> x = Var(7, ShapedArray((), np.dtype("float32")))
    >>> renumber(Jaxpr((), (x,), (), (x,)))
    { lambda ; a:f32[]. let in (a,) }
    """
    new = JaxprRebuilder(jaxpr)
    constvars, invars = new.binders(jaxpr.constvars), new.binders(jaxpr.invars)
    for eqn in jaxpr.eqns:
        prim = map_subjaxprs(eqn.prim, renumber)
        new.add(eqn, prim, new.reads(eqn.inputs), eqn.outs)
    return new.finish(constvars, invars, jaxpr.outs)


def is_observable(prim: Primitive) -> bool:
    """Whether the primitive has an effect that must be neither dropped nor duplicated."""
    return any(e.observable for e in prim.effects)


@memoize_on_object
def drop_outputs(jaxpr: Jaxpr, count: int) -> Jaxpr:
    """Returns the jaxpr without its first `count` outputs."""
    return Jaxpr(jaxpr.constvars, jaxpr.invars, jaxpr.eqns, jaxpr.outs[count:])


@memoize_on_object
def erase_vma(jaxpr: Jaxpr) -> Jaxpr:
    """Returns the same program without varying mesh axes in its types, and without casts between them."""

    def plain(v: Var) -> Var:
        new.changed |= bool(v.aval.vma)
        return Var(v.index, v.aval.with_vma(NOT_VARYING)) if v.aval.vma else v

    new = JaxprRebuilder(jaxpr)
    constvars, invars = new.binders(list(map(plain, jaxpr.constvars))), new.binders(list(map(plain, jaxpr.invars)))
    for eqn in jaxpr.eqns:
        if isinstance(eqn.prim, HasVmaRule) and eqn.prim.is_vma_cast:
            new.replace(eqn.outs, new.reads(eqn.inputs))
        else:
            new.add(eqn, map_subjaxprs(eqn.prim, erase_vma), new.reads(eqn.inputs), list(map(plain, eqn.outs)))
    return new.finish(constvars, invars, jaxpr.outs)
