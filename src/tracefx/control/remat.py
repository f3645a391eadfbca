"""Rematerialization: selects the values that `checkpoint` saves, as its policy allows, in sub-jaxprs too."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

from attrs import evolve, frozen

from tracefx.core import ShapedArray
from tracefx.core.jaxpr import Atom, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.late_binding import LateBound
from tracefx.core.primitive import Primitive
from tracefx.interpreters.masks import Mask, select_masked
from tracefx.passes.rebuilding import renumber

CheckpointPolicy: TypeAlias = Callable[..., bool]
"""A function `policy(prim, *avals)` of a primitive and its operand avals: whether its results are saved."""
CALL_WITHIN_BUDGET: Final[LateBound[Callable[[Jaxpr, int, str], tuple[Primitive, int]]]] = LateBound("memory budgets")
"""Returns a named call of a program with checkpoints for a memory budget, and the peak memory of its backward pass."""


@final
@frozen(eq=False)
class RematSplit:
    """A primitive with a body, split into a forward primitive and a recomputation.

    `forward` returns `saved` as additional outputs. `recompute` takes these as additional operands, and returns the
    outputs in `out_mask`.
    """

    forward: Primitive
    recompute: Primitive
    saved: tuple[ShapedArray, ...]
    out_mask: Mask


class Rematerializable:
    """A capability: part of the values computed in the primitive's body can be saved, and the others recomputed."""

    __slots__ = ()

    @abstractmethod
    def split_for_remat(self, needed: Mask, policy: CheckpointPolicy) -> RematSplit | None:
        """Splits the primitive for the outputs in the mask `needed`; `None` if the policy saves nothing inside."""
        raise NotImplementedError


@final
@frozen(eq=False)
class RematPlan:
    """A jaxpr with additional outputs, and how to compute the needed values from these.

    `eqns` are those of the jaxpr, some with additional outputs; `saved` are the saved variables; `recompute` are the
    equations that compute the other needed values; `read` are all atoms that either uses.
    """

    eqns: tuple[Eqn, ...]
    saved: tuple[Var, ...]
    recompute: tuple[Eqn, ...]
    read: frozenset[Atom]


def plan_remat(program: Jaxpr, needed: Sequence[Atom], policy: CheckpointPolicy | None) -> RematPlan:
    """Plans the recomputation of `needed`: walks the equations backwards, and stops at values that the policy saves."""
    read: set[Atom] = set(needed)
    saved: list[Var] = []
    recompute: list[Eqn] = []
    eqns: list[Eqn] = []
    indices = itertools.count(program.var_count)

    def new_var(aval: ShapedArray) -> Var:
        return Var(next(indices), aval)

    for eqn in reversed(program.eqns):
        needed_outs = [v in read for v in eqn.outs]
        eqns.append(eqn)
        if not any(needed_outs):
            continue
        # Results of primitives with observable effects are always saved: the effects must not run twice.
        observable = any(effect.observable for effect in eqn.prim.effects)
        saved_outs = [use and (observable or is_saveable(policy, eqn, i)) for i, use in enumerate(needed_outs)]
        saved += select_masked(eqn.outs, saved_outs)
        recomputed_outs = tuple([use and not keep for use, keep in zip(needed_outs, saved_outs, strict=True)])
        if not any(recomputed_outs):
            continue
        split = _split_for_remat(eqn.prim, recomputed_outs, policy)
        if split is None:
            outs = tuple([v if use else new_var(v.aval) for v, use in zip(eqn.outs, recomputed_outs, strict=True)])
            recompute.append(Eqn(eqn.prim, eqn.inputs, outs, eqn.source))
        else:
            saved_inside = tuple(map(new_var, split.saved))
            eqns[-1] = Eqn(split.forward, eqn.inputs, (*eqn.outs, *saved_inside), eqn.source)
            split_outs = select_masked(zip(eqn.outs, recomputed_outs, strict=True), split.out_mask)
            outs = tuple([v if use else new_var(v.aval) for v, use in split_outs])
            recompute.append(Eqn(split.recompute, (*eqn.inputs, *saved_inside), outs, eqn.source))
            saved += saved_inside
        read.update(eqn.inputs)
    return RematPlan(tuple(reversed(eqns)), tuple(saved), tuple(reversed(recompute)), frozenset(read))


def _split_for_remat(prim: Primitive, needed: Mask, policy: CheckpointPolicy | None) -> RematSplit | None:
    return prim.split_for_remat(needed, policy) if policy is not None and isinstance(prim, Rematerializable) else None


def split_body_for_remat(
    body: Jaxpr, needed: Mask, policy: CheckpointPolicy
) -> tuple[Jaxpr, Jaxpr, tuple[ShapedArray, ...]] | None:
    """Splits the body of a primitive for the outputs in the mask `needed`.

    Returns:
        The body with the saved values as additional outputs; the recomputation, which takes these as additional inputs
        and returns the needed outputs; and the avals of the saved values. `None` if nothing is saved.
    """
    outs = select_masked(body.outs, needed)
    plan = plan_remat(body, outs, policy)
    if not plan.saved:
        return None
    forward = evolve(body, eqns=plan.eqns, outs=(*body.outs, *plan.saved))
    recompute = Jaxpr((), (*body.invars, *plan.saved), plan.recompute, tuple(outs))
    return renumber(forward), renumber(recompute), tuple([v.aval for v in plan.saved])


def is_saveable(policy: CheckpointPolicy | None, eqn: Eqn, position: int) -> bool:
    """Whether the policy saves output number `position` of an equation; bodies are judged by their own equations."""
    if policy is None:
        return False
    prim = eqn.prim
    if policy(prim, *[x.aval for x in eqn.inputs]):
        return True
    if not isinstance(prim, HasSubjaxprs):
        return False
    producers = []
    for body in prim.jaxprs():
        if len(body.outs) != len(eqn.outs):
            return False
        out = body.outs[position]
        matching = [(e, i) for e in body.eqns for i, v in enumerate(e.outs) if v is out]
        producers += matching
        if not matching:
            return False
    return all(is_saveable(policy, e, i) for e, i in producers)
