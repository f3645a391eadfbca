"""The two halves of a scan: what its known operands say, and what is left for the rest.

A scan that differentiation split would keep, step by step, all that its second half asks for. Here nothing is kept
that need not be: what is the same in every step is computed once, before the loop; what a step hands over of its
slices is taken from the arrays they are slices of; and a result of the first half serves the second as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from attrs import evolve, frozen

from tracefx.control.control_flow import InputSource, rearrange_jaxpr
from tracefx.control.drop_debug_effects import drop_debug_effects
from tracefx.control.loop_residuals import drop_cheap_residuals
from tracefx.core.effects import non_debug_effects
from tracefx.core.jaxpr import Jaxpr, Var
from tracefx.interpreters.jaxpr_transforms import Consts, Mask, UnzippedJaxpr, unzip_jaxpr
from tracefx.passes.dce import dce, prune


@final
@frozen(eq=False)
class UnzippedScan:
    """How a scan is split, its operands being constants, carries and slices, some known.

    The body `known` takes `consts`, the known constants, carries and slices, and gives the known carries, the known
    slices' results, then what is kept of each step. The program `invariant` computes from `consts` and the known
    constants, those at `invariant_inputs`, what all steps share. The body `late` takes

    - as constants: the known constants at `late_consts`, the outputs of `invariant`, the unknown constants;
    - as slices: the known slices at `late_slices`, the known slices' results at `late_results`, what was kept, the
      unknown slices;

    and the unknown carries between the two.
    """

    known: Jaxpr
    invariant: Jaxpr
    invariant_inputs: tuple[int, ...]
    late: Jaxpr
    consts: Consts
    carry_unknown: Mask
    out_unknown: Mask
    late_consts: tuple[int, ...]
    late_slices: tuple[int, ...]
    late_results: tuple[int, ...]
    kept: int


def unzip_scan(body: Jaxpr, num_consts: int, num_carry: int, unknown: Mask) -> UnzippedScan:
    """Split a scan's body, `unknown` saying which of its operands are."""
    consts, carry, slices = (
        unknown[:num_consts],
        unknown[num_consts : num_consts + num_carry],
        unknown[num_consts + num_carry :],
    )
    free_outs = (False,) * (len(body.outs) - num_carry)
    while True:  # a carry is unknown from the first step on if it is after any
        split = unzip_jaxpr(body, consts + carry + slices, carry + free_outs)
        if split.out_unknown[:num_carry] == carry:
            break
        carry = split.out_unknown[:num_carry]
    # Constants and slices are there in the second half as they are, and so are the results.
    n_consts, n_carry = consts.count(False), carry.count(False)
    free = {*range(n_consts), *range(n_consts + n_carry, n_consts + n_carry + slices.count(False))}
    results = split.known.outs[n_carry : split.out_unknown.count(False)]
    return _plan_residuals(drop_cheap_residuals(split, free, set(results)), consts, carry, slices)


def _plan_residuals(split: UnzippedJaxpr, consts: Mask, carry: Mask, slices: Mask) -> UnzippedScan:
    """Where the second half finds each of the residuals: in arrays that are there, in what is shared, or kept."""
    n_extra, n_consts, n_carry = len(split.consts), consts.count(False), carry.count(False)
    n_known = split.out_unknown.count(False)  # outputs of the known half that are not kept for the other
    shared = _loop_invariant_outputs(split.known, n_extra + n_consts, n_known)
    results = {atom: i for i, atom in enumerate(split.known.outs[n_carry:n_known])}

    late_consts: list[tuple[int, int]] = []  # (where from, which residual)
    late_slices: list[tuple[int, int]] = []
    late_results: list[tuple[int, int]] = []
    invariants: list[tuple[int, int]] = []
    carries_kept: list[tuple[int, int]] = []
    outs_kept: list[tuple[int, int]] = []
    fresh = iter(range(n_known, len(split.known.outs)))
    for residual, place in enumerate(split.forwarded):
        if place is None:
            out = next(fresh)
            same = results.get(split.known.outs[out])
            if shared[out]:
                invariants.append((out, residual))
            elif same is not None:
                late_results.append((same, residual))
            else:
                outs_kept.append((out, residual))
        elif place < n_consts:
            late_consts.append((place, residual))
        elif place < n_consts + n_carry:
            carries_kept.append((place, residual))
        else:
            late_slices.append((place - n_consts - n_carry, residual))

    known = split.known
    kept = carries_kept + outs_kept
    given = [known.invars[n_extra + place] for place, _ in carries_kept] + [known.outs[out] for out, _ in outs_kept]
    first = Jaxpr((), known.invars, known.eqns, (*known.outs[:n_known], *given))
    mask = tuple([any(out == i for out, _ in invariants) for i in range(len(known.outs))])
    invariant, used = prune(_without_effects(known), mask)

    n_residuals, n_late_consts, n_late_carry = len(split.forwarded), sum(consts), sum(carry)
    carries = range(n_residuals + n_late_consts, n_residuals + n_late_consts + n_late_carry)
    inputs: list[InputSource] = [r for _, r in late_consts + invariants]
    inputs += range(n_residuals, n_residuals + n_late_consts)
    inputs += carries
    inputs += [r for _, r in late_slices + late_results + kept]
    inputs += range(carries.stop, len(split.unknown.invars))
    return UnzippedScan(
        dce(first),
        invariant,
        tuple([i for i, use in enumerate(used) if use]),
        rearrange_jaxpr(split.unknown, inputs),
        split.consts,
        carry,
        split.out_unknown,
        tuple([place for place, _ in late_consts]),
        tuple([place for place, _ in late_slices]),
        tuple([place for place, _ in late_results]),
        len(kept),
    )


def _loop_invariant_outputs(known: Jaxpr, n_consts: int, n_known: int) -> Sequence[bool]:
    """Which outputs for the other half are the same in every step."""
    steps = (False,) * n_consts + (True,) * (len(known.invars) - n_consts)
    out_unknown = unzip_jaxpr(known, steps).out_unknown
    done = _effectful_outputs(known)
    return [i >= n_known and not varies and known.outs[i] not in done for i, varies in enumerate(out_unknown)]


def _effectful_outputs(known: Jaxpr) -> set[Var]:
    """What comes of effects, which may give something else in every step."""
    done: set[Var] = set()
    if non_debug_effects(known.effects):
        for eqn in known.eqns:
            if non_debug_effects(eqn.prim.effects) or not done.isdisjoint(eqn.inputs):
                done.update(eqn.outs)
    return done


def _without_effects(known: Jaxpr) -> Jaxpr:
    """The program without its effects, which happen in every step; without what comes of them, therefore."""
    quiet = drop_debug_effects(known, (False,) * len(known.invars))
    if not non_debug_effects(quiet.effects):
        return quiet
    return evolve(quiet, eqns=tuple([eqn for eqn in quiet.eqns if not non_debug_effects(eqn.prim.effects)]))
