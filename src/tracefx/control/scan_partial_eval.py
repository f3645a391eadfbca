"""Partial evaluation of scans: splits a scan into a known and an unknown half.

Plain partial evaluation of the body would store every residual for every step. This module avoids storage where it can:
loop-invariant residuals are computed once, before the loop; residuals that are slices of operands are passed as the
whole arrays; and residuals that are results of the known half are used as they are.
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
from tracefx.interpreters.jaxpr_transforms import Consts, UnzippedJaxpr, unzip_jaxpr
from tracefx.interpreters.masks import Mask
from tracefx.passes.dce import dce, prune


@final
@frozen(eq=False)
class UnzippedScan:
    """A plan for splitting a scan, some of whose constants, carries and slices are known.

    The body `known` maps `(consts, known constants, known carries, known slices)` to `(known carries, known result
    slices, stored residuals)`. The jaxpr `invariant` computes the loop-invariant residuals from those of `(consts,
    known constants)` that are at `invariant_inputs`. The body `late` takes

    - as constants: the known constants at `late_consts`, the outputs of `invariant`, the unknown constants;
    - the unknown carries;
    - as slices: the known slices at `late_slices`, the known result slices at `late_results`, the stored residuals, the
      unknown slices.
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


def unzip_scan(body: Jaxpr, num_consts: int, num_carry: int, unknown: Mask) -> UnzippedScan:
    """Splits the body of a scan, where `unknown` tells which of its inputs are unknown."""
    consts, carry, slices = (
        unknown[:num_consts],
        unknown[num_consts : num_consts + num_carry],
        unknown[num_consts + num_carry :],
    )
    free_outs = (False,) * (len(body.outs) - num_carry)
    while True:  # fixed point: a carry is unknown from the first step on if it is unknown after any step
        split = unzip_jaxpr(body, consts + carry + slices, carry + free_outs)
        if split.out_unknown[:num_carry] == carry:
            break
        carry = split.out_unknown[:num_carry]
    # The unknown half can use the known constants, slices and results without storing them.
    n_consts, n_carry = consts.count(False), carry.count(False)
    free = {*range(n_consts), *range(n_consts + n_carry, n_consts + n_carry + slices.count(False))}
    results = split.known.outs[n_carry : split.out_unknown.count(False)]
    return _plan_residuals(drop_cheap_residuals(split, free, set(results)), consts, carry, slices)


def _plan_residuals(split: UnzippedJaxpr, consts: Mask, carry: Mask, slices: Mask) -> UnzippedScan:
    """Plans where the unknown half gets each residual from: an operand or result array, `invariant`, or storage."""
    n_extra, n_consts, n_carry = len(split.consts), consts.count(False), carry.count(False)
    n_known = split.out_unknown.count(False)  # outputs of the known half that are not residuals
    shared = _loop_invariant_outputs(split.known, n_extra + n_consts, n_known)
    results = {atom: i for i, atom in enumerate(split.known.outs[n_carry:n_known])}

    late_consts: list[tuple[int, int]] = []  # (index of the source, index of the residual)
    late_slices: list[tuple[int, int]] = []
    late_results: list[tuple[int, int]] = []
    invariants: list[tuple[int, int]] = []
    carries_kept: list[tuple[int, int]] = []
    outs_kept: list[tuple[int, int]] = []
    new_outs = iter(range(n_known, len(split.known.outs)))
    for residual, source in enumerate(split.forwarded):
        if source is None:
            out = next(new_outs)
            same = results.get(split.known.outs[out])
            if shared[out]:
                invariants.append((out, residual))
            elif same is not None:
                late_results.append((same, residual))
            else:
                outs_kept.append((out, residual))
        elif source < n_consts:
            late_consts.append((source, residual))
        elif source < n_consts + n_carry:
            carries_kept.append((source, residual))
        else:
            late_slices.append((source - n_consts - n_carry, residual))

    known = split.known
    stored = carries_kept + outs_kept
    stored_residuals = [known.invars[n_extra + source] for source, _ in carries_kept] + [
        known.outs[out] for out, _ in outs_kept
    ]
    first = Jaxpr((), known.invars, known.eqns, (*known.outs[:n_known], *stored_residuals))
    mask = tuple([any(out == i for out, _ in invariants) for i in range(len(known.outs))])
    invariant, used = prune(_without_effects(known), mask)

    n_residuals, n_late_consts, n_late_carry = len(split.forwarded), sum(consts), sum(carry)
    carries = range(n_residuals + n_late_consts, n_residuals + n_late_consts + n_late_carry)
    inputs: list[InputSource] = [r for _, r in late_consts + invariants]
    inputs += range(n_residuals, n_residuals + n_late_consts)
    inputs += carries
    inputs += [r for _, r in late_slices + late_results + stored]
    inputs += range(carries.stop, len(split.unknown.invars))
    return UnzippedScan(
        dce(first),
        invariant,
        tuple([i for i, use in enumerate(used) if use]),
        rearrange_jaxpr(split.unknown, inputs),
        split.consts,
        carry,
        split.out_unknown,
        tuple([source for source, _ in late_consts]),
        tuple([source for source, _ in late_slices]),
        tuple([source for source, _ in late_results]),
    )


def _loop_invariant_outputs(known: Jaxpr, n_consts: int, n_known: int) -> Sequence[bool]:
    """Tells which outputs are residuals that are the same in every step."""
    changing = (False,) * n_consts + (True,) * (len(known.invars) - n_consts)
    out_unknown = unzip_jaxpr(known, changing).out_unknown
    effectful = _effectful_outputs(known)
    return [i >= n_known and not varies and known.outs[i] not in effectful for i, varies in enumerate(out_unknown)]


def _effectful_outputs(known: Jaxpr) -> set[Var]:
    """Returns the variables that depend on effects, which may differ in every step."""
    effectful: set[Var] = set()
    if non_debug_effects(known.effects):
        for eqn in known.eqns:
            if non_debug_effects(eqn.prim.effects) or not effectful.isdisjoint(eqn.inputs):
                effectful.update(eqn.outs)
    return effectful


def _without_effects(known: Jaxpr) -> Jaxpr:
    """Returns the jaxpr without effects, which run in every step, and without the equations that have them."""
    silent = drop_debug_effects(known, (False,) * len(known.invars))
    if not non_debug_effects(silent.effects):
        return silent
    return evolve(silent, eqns=tuple([eqn for eqn in silent.eqns if not non_debug_effects(eqn.prim.effects)]))
