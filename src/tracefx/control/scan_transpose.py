"""Transposition of scans: the step that maps cotangents of results to cotangents of operands.

The cotangent of a constant is a sum over all steps. Where each term is a contraction (for a weight: of a layer's input
and the cotangent of its output), the sum is one larger contraction that contracts the steps too. It is computed after
the loop, from the stacked operands of the steps, which avoids reading and writing the whole sum in every step. The same
holds for sums that contain such contractions, where steps use slices of a weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

from attrs import evolve, frozen

from tracefx.core import Literal, ShapedArray, Value, dtypes
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind1
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.interpreters.jaxpr_transforms import Consts, transpose_jaxpr
from tracefx.interpreters.masks import Mask, select_masked, select_unmasked
from tracefx.interpreters.stage import stage
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.elementwise.elementwise import Add, add_tangents
from tracefx.ops.shape.shape import Concatenate
from tracefx.ops.shape.slicing import Pad
from tracefx.ops.structural import ConvertElementType, ReduceSum, Reshape, Transpose, match_aval, reduce_sum, reshape
from tracefx.passes.dce import dce


@final
@frozen(eq=False)
class ScanTranspose:
    """The plan of a transposed scan, some of whose constants and slices are linear, and all of whose carries.

    `step` takes as constants `consts` and the known constants; as carries the sums, of shapes and dtypes `sums`, and
    the cotangents of the carries at `carry_nonzero`; as slices the known slices and the nonzero cotangents of the
    results. It returns the carries, then the cotangents of the linear slices at `slices_nonzero`, then slices to be
    stacked.

    `consts_nonzero` tells which linear constants have a nonzero cotangent. Of these, `summed` tells which are
    accumulated in the loop; the others are the results of `tail`, which takes the sliced arrays at `stacked_inputs` and
    the stacks.
    """

    step: Jaxpr
    consts: Consts
    sums: tuple[ShapedArray, ...]
    consts_nonzero: Mask
    carry_nonzero: Mask
    slices_nonzero: Mask
    summed: Mask
    tail: Jaxpr
    stacked_inputs: tuple[int, ...]


def plan_scan_transpose(
    body: Jaxpr, num_consts: int, num_carry: int, linear: Mask, out_nonzero: Mask, length: int
) -> ScanTranspose:
    """Plans the transpose of a scan.

    The scan must be linear in all of its carries, and in the constants and slices that `linear` marks.
    """
    n_consts = sum(linear[:num_consts])
    n_slices = sum(linear[num_consts + num_carry :])
    carry, results = out_nonzero[:num_carry], out_nonzero[num_carry:]
    while True:  # fixed point: a carry has a nonzero cotangent before the last step if it has one before any step
        forced = (False,) * n_consts + carry + (False,) * n_slices
        derived = transpose_jaxpr(body, linear, carry + results, forced)
        more = derived.in_nonzero[n_consts : n_consts + num_carry]
        if more == carry:
            break
        carry = more
    consts_nonzero, slices_nonzero = derived.in_nonzero[:n_consts], derived.in_nonzero[n_consts + num_carry :]
    n_fixed = len(derived.consts) + linear[:num_consts].count(False)
    n_known = linear[num_consts + num_carry :].count(False)
    program, k = derived.jaxpr, sum(consts_nonzero)

    tails = _DeferredSums(
        program, n_fixed, range(n_fixed, n_fixed + n_known), range(n_fixed + n_known + sum(carry), len(program.invars))
    )
    # Two rounds, since an operand that is stacked for one sum can serve another.
    deferred = {atom for _ in range(2) for atom in program.outs[:k] if tails.defer(atom)}
    summed = tuple([atom not in deferred for atom in program.outs[:k]])
    avals = list(select_masked(select_masked(body.in_avals[:num_consts], linear[:num_consts]), consts_nonzero))
    carried = list(select_masked(body.in_avals[num_consts : num_consts + num_carry], carry))
    sums = select_masked(avals, summed)
    tail = tails.program(select_unmasked(program.outs[:k], summed), select_unmasked(avals, summed), length)

    step_jaxpr = evolve(program, outs=(*select_masked(program.outs[:k], summed), *program.outs[k:], *tails.stacks))

    def step(*args: Value) -> list[Value]:
        fixed, carries_and_slices = args[:n_fixed], args[n_fixed:]
        totals, carry_cts, slices = (
            carries_and_slices[: len(sums)],
            carries_and_slices[len(sums) : len(sums) + sum(carry)],
            carries_and_slices[len(sums) + sum(carry) :],
        )
        outs = eval_jaxpr(step_jaxpr, (), [*fixed, *slices[:n_known], *carry_cts, *slices[n_known:]])
        m = len(sums)
        new_totals = [
            match_aval(add_tangents(t, match_aval(ct, a)), a) for t, ct, a in zip(totals, outs[:m], sums, strict=True)
        ]
        new_carry_cts = [match_aval(ct, a) for ct, a in zip(outs[m:], carried, strict=False)]
        return [*new_totals, *new_carry_cts, *outs[m + len(new_carry_cts) :]]

    in_avals = [*program.in_avals[:n_fixed], *sums, *carried]
    in_avals += [*program.in_avals[n_fixed : n_fixed + n_known], *program.in_avals[n_fixed + n_known + sum(carry) :]]
    staged, closed_over = stage(step, in_avals)
    assert not closed_over
    return ScanTranspose(
        dce(staged),
        derived.consts,
        tuple(sums),
        consts_nonzero,
        carry,
        slices_nonzero,
        summed,
        tail,
        tuple(tails.arrays),
    )


@final
class _DeferredSums:
    """Sums over the steps that are computed after the loop, by contractions of stacks."""

    def __init__(self, step: Jaxpr, n_fixed: int, known: range, cotangents: range) -> None:
        self.makers: dict[Atom, Eqn] = {v: eqn for eqn in step.eqns for v in eqn.outs}
        slices = [step.invars[i] for i in [*known, *cotangents]]
        self.array_of: dict[Atom, int] = {v: i for i, v in enumerate(slices)}
        self.varying: set[Atom] = set(step.invars[n_fixed:])
        for eqn in step.eqns:
            if not self.varying.isdisjoint(eqn.inputs):
                self.varying.update(eqn.outs)
        self.arrays: list[int] = []
        """Indices of the sliced arrays that are operands of contractions."""
        self.stacks: list[Atom] = []
        """Other operands of contractions, which each step must return to be stacked."""
        self.contractions = 0
        """The number of contractions in the term under consideration."""

    def defer(self, atom: Atom) -> bool:
        """Returns whether the sum of `atom` over the steps is computed after the loop; if so, records its operands."""
        found: list[Atom] = []
        self.contractions = 0
        if not self._find_operands(atom, found):
            return False
        new = {a for a in found if a not in self.array_of and a not in self.stacks}
        stacked_size = sum(a.aval.size for a in new)
        if stacked_size > (2 * atom.aval.size if self.contractions else atom.aval.size // 4):
            return False  # stacking moves more memory than summing, or too little less to be worth additional kernels
        for a in dict.fromkeys(found):
            if a in self.array_of:
                if self.array_of[a] not in self.arrays:
                    self.arrays.append(self.array_of[a])
            elif a not in self.stacks:
                self.stacks.append(a)
        return True

    def _find_operands(self, atom: Atom, found: list[Atom], whole: int = 0) -> bool:
        """Returns whether the sum of `atom` can be computed from stacks, and appends the operands to stack to `found`.

        `whole` is the number of elements of a larger array that `atom` is part of.
        """
        if atom in self.stacks or atom in self.array_of:
            found.append(atom)  # available anyway
            return True
        eqn = self.makers.get(atom) if isinstance(atom, Var) else None
        if eqn is None:
            return False
        prim = eqn.prim
        if isinstance(prim, DotGeneral):
            self.contractions += 1
            found += eqn.inputs
            return self.varying.issuperset(eqn.inputs)
        if isinstance(prim, Transpose | Reshape) or (
            isinstance(prim, ConvertElementType) and dtypes.is_inexact(eqn.inputs[0].aval.dtype)
        ):
            return self._find_operands(eqn.inputs[0], found, whole)
        if isinstance(prim, Pad) and _is_zero(eqn.inputs[1]):
            return self._find_operands(eqn.inputs[0], found, max(whole, atom.aval.size))
        if isinstance(prim, Concatenate):
            return all(self._find_operands(x, found, max(whole, atom.aval.size)) for x in eqn.inputs)
        if isinstance(prim, Add):
            return all(self._find_operands(x, found, whole) for x in eqn.inputs)
        if isinstance(prim, ReduceSum) and (eqn.inputs[0] in self.stacks or eqn.inputs[0] in self.array_of):
            found.append(eqn.inputs[0])
            return True
        if 2 * atom.aval.size <= whole and atom in self.varying:
            found.append(atom)
            return True
        return False

    def program(self, atoms: Sequence[Atom], avals: Sequence[ShapedArray], length: int) -> Jaxpr:
        """Returns the jaxpr that computes the sums of `atoms` over the steps from the arrays and the stacks."""
        sources = [a for i in self.arrays for a, k in self.array_of.items() if k == i] + self.stacks

        def run(*stacks: Value) -> list[Value]:
            env = dict(zip(sources, stacks, strict=True))
            return [match_aval(self._total(a, env), aval) for a, aval in zip(atoms, avals, strict=True)]

        jaxpr, consts = stage(run, [a.aval.with_axis(length, 0) for a in sources])
        assert not consts
        return jaxpr

    def _total(self, atom: Atom, env: dict[Atom, Value]) -> Value:
        if atom in env:
            return reduce_sum(env[atom], (0,))
        eqn = self.makers[atom]
        prim = eqn.prim
        if isinstance(prim, DotGeneral):
            return _contract_over_steps(prim, *[env[x] for x in eqn.inputs])
        if isinstance(prim, ReduceSum):
            return reduce_sum(env[eqn.inputs[0]], (0, *[axis + 1 for axis in prim.axes]))
        if isinstance(prim, Pad) and isinstance(padding := eqn.inputs[1], Literal):  # the zero, as found above
            return bind1(prim, self._total(eqn.inputs[0], env), padding)
        return bind1(prim, *[self._total(x, env) for x in eqn.inputs])


def _is_zero(x: Atom) -> bool:
    return isinstance(x, Literal) and not x.val


def _contract_over_steps(dot: DotGeneral, lhs: Value, rhs: Value) -> Value:
    """Contracts stacks of operands, over the steps too."""
    (lc, rc), (lb, rb) = dot.dimension_numbers
    if not lb and lc == rc == tuple(range(len(lc))):  # contracted axes lead in memory, so no transpose is needed
        lhs, rhs = [_merge_leading_axes(x, len(lc) + 1) for x in (lhs, rhs)]
        return bind1(evolve(dot, dimension_numbers=(((0,), (0,)), ((), ()))), lhs, rhs)

    def shift_axes(axes: Sequence[int]) -> tuple[int, ...]:
        return tuple([axis + 1 for axis in axes])

    contracting = (0, *shift_axes(lc)), (0, *shift_axes(rc))
    return bind1(evolve(dot, dimension_numbers=(contracting, (shift_axes(lb), shift_axes(rb)))), lhs, rhs)


def _merge_leading_axes(x: Value, count: int) -> Value:
    """Merges the first `count` axes of an array into one."""
    shape = x.aval.shape
    return reshape(x, (math.prod(shape[:count]), *shape[count:]))
