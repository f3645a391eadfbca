"""What a checkpoint keeps of a program for its backward pass: what its policy allows, in bodies too."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from attrs import evolve, frozen

from tracefx.control.control_flow import select_masked
from tracefx.core.avals import ShapedArray
from tracefx.core.jaxpr import Atom, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.interpreters.jaxpr_transforms import Mask
from tracefx.passes.dce import renumber

CheckpointPolicy: TypeAlias = Callable[..., bool]
"""Says of an operation, and the types of its operands, whether its results are kept: `policy(prim, *avals)`."""


@final
@frozen(eq=False)
class RematSplit:
    """An operation with a body, done twice: what is kept of the inside is computed once.

    `first` has `saved` as further outputs, and `again` takes them as further operands; it gives the outputs at `gives`.
    """

    forward: Primitive
    recompute: Primitive
    saved: tuple[ShapedArray, ...]
    out_mask: Mask


class Rematerializable:
    """A capability: of what the operation computes inside, a part can be kept and the rest done again."""

    __slots__ = ()

    @abstractmethod
    def split_for_remat(self, needed: Mask, policy: CheckpointPolicy) -> RematSplit | None:
        """The operation for the outputs that are needed; `None` if nothing inside may be kept."""
        raise NotImplementedError


@final
@frozen(eq=False)
class RematPlan:
    """A program with more outputs, and how to get what is needed from these.

    `eqns` are the program's, some of them with more outputs; `saved` is what is kept, `again` computes the rest, and
    `read` is all that either of them takes.
    """

    eqns: tuple[Eqn, ...]
    saved: tuple[Var, ...]
    recompute: tuple[Eqn, ...]
    read: frozenset[Atom]


def plan_remat(program: Jaxpr, needed: Sequence[Atom], policy: CheckpointPolicy | None) -> RematPlan:
    """Go back from what is needed, and stop where the policy lets a value be kept."""
    read: set[Atom] = set(needed)
    saved: list[Var] = []
    again: list[Eqn] = []
    eqns: list[Eqn] = []
    indices = itertools.count(program.var_count)

    def fresh(aval: ShapedArray) -> Var:
        return Var(next(indices), aval)

    for eqn in reversed(program.eqns):
        asked = [v in read for v in eqn.outs]
        eqns.append(eqn)
        if not any(asked):
            continue
        # What an operation with effects gave is saved, whatever the policy: it must not happen twice.
        once = any(effect.observable for effect in eqn.prim.effects)
        kept = [use and (once or is_saveable(policy, eqn, i)) for i, use in enumerate(asked)]
        saved += select_masked(eqn.outs, kept)
        left = tuple([use and not keep for use, keep in zip(asked, kept, strict=True)])
        if not any(left):
            continue
        inside = _split_for_remat(eqn.prim, left, policy)
        if inside is None:
            outs = tuple([v if use else fresh(v.aval) for v, use in zip(eqn.outs, left, strict=True)])
            again.append(Eqn(eqn.prim, eqn.inputs, outs, eqn.source))
        else:
            more = tuple(map(fresh, inside.saved))
            eqns[-1] = Eqn(inside.forward, eqn.inputs, (*eqn.outs, *more), eqn.source)
            given = select_masked(zip(eqn.outs, left, strict=True), inside.out_mask)
            outs = tuple([v if use else fresh(v.aval) for v, use in given])
            again.append(Eqn(inside.recompute, (*eqn.inputs, *more), outs, eqn.source))
            saved += more
        read.update(eqn.inputs)
    return RematPlan(tuple(reversed(eqns)), tuple(saved), tuple(reversed(again)), frozenset(read))


def _split_for_remat(prim: Primitive, needed: Mask, policy: CheckpointPolicy | None) -> RematSplit | None:
    return prim.split_for_remat(needed, policy) if policy is not None and isinstance(prim, Rematerializable) else None


def split_body_for_remat(
    body: Jaxpr, needed: Mask, policy: CheckpointPolicy
) -> tuple[Jaxpr, Jaxpr, tuple[ShapedArray, ...]] | None:
    """The body with what is kept as further outputs, and the one that takes this and gives the outputs needed."""
    outs = select_masked(body.outs, needed)
    choice = plan_remat(body, outs, policy)
    if not choice.saved:
        return None
    first = evolve(body, eqns=choice.eqns, outs=(*body.outs, *choice.saved))
    again = Jaxpr((), (*body.invars, *choice.saved), choice.recompute, tuple(outs))
    return renumber(first), renumber(again), tuple([v.aval for v in choice.saved])


def is_saveable(policy: CheckpointPolicy | None, eqn: Eqn, place: int) -> bool:
    """Whether the policy lets an output of an equation be kept; what comes out of a body is judged in there."""
    if policy is None:
        return False
    prim = eqn.prim
    if policy(prim, *[x.aval for x in eqn.inputs]):
        return True
    if not isinstance(prim, HasSubjaxprs):
        return False
    makers = []
    for body in prim.jaxprs():
        if len(body.outs) != len(eqn.outs):
            return False
        out = body.outs[place]
        found = [(e, i) for e in body.eqns for i, v in enumerate(e.outs) if v is out]
        makers += found
        if not found:
            return False
    return all(is_saveable(policy, e, i) for e, i in makers)
