"""Passes: pure functions from programs to programs that compute the same.

The result of every pass has its variables numbered in the order of their binding: constants, inputs, then the outputs
of the equations. A pass that finds nothing to do gives back the very same object, with what is remembered of it.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from tracefx.core.jaxpr import Atom, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive

X = TypeVar("X")


class Prunable:
    """A capability: the operation can do without outputs that nobody uses."""

    __slots__ = ()

    @abstractmethod
    def prune(self, used_outs: tuple[bool, ...]) -> tuple[Primitive, tuple[bool, ...], tuple[bool, ...]]:
        """The operation that is left, which operands it still takes, and which outputs it still gives.

        It gives all outputs that are used, and may go on giving others. What it gives for its own result with every
        output used is that result itself.
        """
        raise NotImplementedError


# ------------------------------------------------------------------ making a new program


class JaxprRebuilder:
    """A copy of a program in the making, its variables numbered as they come."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.old = jaxpr
        self.count = 0
        self.atoms: dict[int, Atom] = {}
        """What stands for a variable of the old program in the new one."""
        self.eqns: list[Eqn] = []
        self.changed = False

    def bind(self, v: Var) -> Var:
        same = v.index == self.count
        new = v if same else Var(self.count, v.aval)
        self.changed |= not same
        self.count += 1
        self.atoms[v.index] = new
        return new

    def binders(self, vs: Sequence[Var]) -> tuple[Var, ...]:
        return tuple([self.bind(v) for v in vs])

    def read(self, x: Atom) -> Atom:
        return x if isinstance(x, Literal) else self.atoms[x.index]

    def reads(self, xs: Sequence[Atom]) -> tuple[Atom, ...]:
        return tuple([self.read(x) for x in xs])

    def replace(self, vs: Sequence[Var], atoms: Sequence[Atom]) -> None:
        """Let other atoms of the new program stand for variables of the old one."""
        self.changed = True
        self.atoms.update(zip([v.index for v in vs], atoms, strict=True))

    def add(self, eqn: Eqn, prim: Primitive, inputs: tuple[Atom, ...], outs: Sequence[Var]) -> None:
        """An equation that takes the place of `eqn`; its inputs are of the new program, its outputs of the old one."""
        new = Eqn(prim, inputs, self.binders(outs), eqn.source)
        same = prim is eqn.prim and same_objects(new.inputs, eqn.inputs) and same_objects(new.outs, eqn.outs)
        self.changed |= not same
        self.eqns.append(eqn if same else new)

    def finish(self, constvars: Sequence[Var], invars: Sequence[Var], outs: Sequence[Atom]) -> Jaxpr:
        new = Jaxpr(tuple(constvars), tuple(invars), tuple(self.eqns), self.reads(outs))
        old = self.old
        same = not self.changed and len(new.eqns) == len(old.eqns) and len(new.invars) == len(old.invars)
        return old if same and same_objects(new.outs, old.outs) else new


def same_objects(xs: Sequence[object], ys: Sequence[object]) -> bool:
    """Whether two sequences hold the very same objects."""
    return len(xs) == len(ys) and all(map(operator.is_, xs, ys))


def map_subjaxprs(prim: Primitive, transform: Callable[[Jaxpr], Jaxpr]) -> Primitive:
    """The operation with its bodies transformed; the very same one if none changes."""
    if not isinstance(prim, HasSubjaxprs):
        return prim
    bodies = prim.jaxprs()
    new = tuple(map(transform, bodies))
    return prim if same_objects(new, bodies) else prim.with_jaxprs(*new)


# ------------------------------------------------------------------ renumbering


def renumber(jaxpr: Jaxpr) -> Jaxpr:
    """The same program, in its bodies too, with variables numbered in the order of their binding.

    >>> import numpy as np
    >>> from tracefx.core.avals import ShapedArray
    >>> x = Var(7, ShapedArray((), np.dtype("float32")))
    >>> renumber(Jaxpr((), (x,), (), (x,)))
    { lambda ; a:f32[]. let in (a,) }
    """
    return jaxpr.memo.get("renumber", lambda: _renumber(jaxpr))


def _renumber(jaxpr: Jaxpr) -> Jaxpr:
    new = JaxprRebuilder(jaxpr)
    constvars, invars = new.binders(jaxpr.constvars), new.binders(jaxpr.invars)
    for eqn in jaxpr.eqns:
        prim = map_subjaxprs(eqn.prim, renumber)
        new.add(eqn, prim, new.reads(eqn.inputs), eqn.outs)
    return new.finish(constvars, invars, jaxpr.outs)


# ------------------------------------------------------------------ what nobody uses


def dce(jaxpr: Jaxpr, used_outs: Sequence[bool] | None = None) -> Jaxpr:
    """The program without the equations that its outputs don't need, in its bodies too.

    Equations with observable effects stay; inputs and constants stay, used or not. Given `used_outs`, the outputs
    that it calls unused are dropped first. Operations that are `Prunable` lose their unused outputs and operands.

    Raises `ValueError` if `used_outs` has another length than the outputs.
    """
    used = _mask(jaxpr, used_outs)
    return jaxpr.memo.get(("dce", used), lambda: _eliminate(jaxpr, used, 0)[0])


def prune(
    jaxpr: Jaxpr, used_outs: Sequence[bool] | None = None, keep: int | None = None
) -> tuple[Jaxpr, tuple[bool, ...]]:
    """`dce`, and without the inputs that nothing uses then; which inputs are left comes second.

    With `keep`, the inputs from that place on are left, used or not. Constants always are.
    """
    used, droppable = _mask(jaxpr, used_outs), len(jaxpr.invars) if keep is None else keep
    return jaxpr.memo.get(("prune", used, droppable), lambda: _eliminate(jaxpr, used, droppable))


def _mask(jaxpr: Jaxpr, used_outs: Sequence[bool] | None) -> tuple[bool, ...]:
    used = (True,) * len(jaxpr.outs) if used_outs is None else tuple(map(bool, used_outs))
    if len(used) != len(jaxpr.outs):
        raise ValueError(f"used_outs has {len(used)} entries for a program of {len(jaxpr.outs)} outputs")
    return used


def _eliminate(jaxpr: Jaxpr, used_outs: tuple[bool, ...], droppable: int) -> tuple[Jaxpr, tuple[bool, ...]]:
    outs = _select(jaxpr.outs, used_outs)
    live = {x.index for x in outs if isinstance(x, Var)}
    kept: list[Eqn] = []
    smaller: dict[int, tuple[Primitive, tuple[Atom, ...], tuple[Var, ...]]] = {}
    """What is left of an equation, by its place in `kept`."""
    for eqn in reversed(jaxpr.eqns):
        prim, inputs = eqn.prim, eqn.inputs
        for v in eqn.outs:
            if v.index in live:
                break
        else:
            if not is_observable(prim):
                continue
        if isinstance(prim, (Prunable, HasSubjaxprs)):
            left, inputs, binders = _without_unused(eqn, tuple([v.index in live for v in eqn.outs]))
            if left is not prim or not same_objects(inputs, eqn.inputs) or not same_objects(binders, eqn.outs):
                smaller[len(kept)] = left, inputs, binders
        for x in inputs:
            if isinstance(x, Var):
                live.add(x.index)
        kept.append(eqn)
    left_ins = tuple([i >= droppable or v.index in live for i, v in enumerate(jaxpr.invars)])
    whole = len(outs) == len(jaxpr.outs) and len(kept) == len(jaxpr.eqns) and not smaller
    if whole and all(left_ins) and _is_numbered(jaxpr):
        return jaxpr, left_ins
    new = JaxprRebuilder(jaxpr)
    constvars = new.binders(jaxpr.constvars)
    invars = new.binders(_select(jaxpr.invars, left_ins))
    for i in reversed(range(len(kept))):
        eqn = kept[i]
        prim, inputs, binders = smaller.get(i) or (eqn.prim, eqn.inputs, eqn.outs)
        new.add(eqn, prim, new.reads(inputs), binders)
    return new.finish(constvars, invars, outs), left_ins


def _without_unused(eqn: Eqn, used: tuple[bool, ...]) -> tuple[Primitive, tuple[Atom, ...], tuple[Var, ...]]:
    if isinstance(eqn.prim, Prunable):
        prim, used_ins, kept_outs = eqn.prim.prune(used)
        return prim, tuple(_select(eqn.inputs, used_ins)), tuple(_select(eqn.outs, kept_outs))
    return map_subjaxprs(eqn.prim, dce), eqn.inputs, eqn.outs


def _is_numbered(jaxpr: Jaxpr) -> bool:
    """Whether variables are numbered in the order of their binding."""
    indices = [v.index for v in jaxpr.constvars + jaxpr.invars]
    for eqn in jaxpr.eqns:
        for v in eqn.outs:
            indices.append(v.index)
    return indices == list(range(len(indices)))


def is_observable(prim: Primitive) -> bool:
    """Whether the operation does something that a program must neither drop nor repeat."""
    return any(e.observable for e in prim.effects)


def _select(xs: Sequence[X], mask: Sequence[bool]) -> list[X]:
    return [x for x, use in zip(xs, mask, strict=True) if use]


# ------------------------------------------------------------------ what is computed twice


def cse(jaxpr: Jaxpr) -> Jaxpr:
    """The program with every operation on the same operands done once, in its bodies too (each for itself).

    Operations are the same if their parameters are, by type and bits. Those with observable effects are left alone.
    """
    return jaxpr.memo.get("cse", lambda: _merge_common(jaxpr))


def _merge_common(jaxpr: Jaxpr) -> Jaxpr:
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
