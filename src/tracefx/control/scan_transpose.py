"""A scan backwards: the step that turns cotangents of results into cotangents of operands.

The cotangent of a constant is a sum over all steps. Where each term is a contraction (a weight's is, of what came in
and what came back), the sum is one larger contraction over the steps too: it is taken after the loop, from what the
steps saw, stacked, instead of reading and writing the whole sum in every step. So is the sum that such contractions
are parts of, where steps use slices of a weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

from attrs import evolve, frozen

from tracefx.control.control_flow import select_masked, select_unmasked
from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind1
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.values import Value
from tracefx.interpreters.jaxpr_transforms import Consts, Mask, transpose_jaxpr
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
    """The plan of a transposed scan, whose operands are constants, carries and slices, some of them linear.

    `step` takes as constants `consts` and the constants that are known; as carries the sums, of types `sums`, and the
    cotangents of the carries at `carry_nonzero`; as slices the known slices and the cotangents of the results that
    have one. It gives the carries, then cotangents of the linear slices at `slices_nonzero`, then what is stacked.

    Of the linear constants, those at `consts_nonzero` have a cotangent: among these, `summed` says which are sums of
    the loop; the others are the results of `tail`, which takes the slices' arrays at `stacked_inputs` and the stacks.
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
    """Plan the transpose of a scan that is linear in all of its carry, and in what `linear` says beside it."""
    n_consts = sum(linear[:num_consts])
    n_slices = sum(linear[num_consts + num_carry :])
    carry, results = out_nonzero[:num_carry], out_nonzero[num_carry:]
    while True:  # a carry has a cotangent before the last step if it has one before any
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
    # Twice, since what is stacked for one sum can be there for another.
    found = {atom for _ in range(2) for atom in program.outs[:k] if tails.defer(atom)}
    summed = tuple([atom not in found for atom in program.outs[:k]])
    avals = list(select_masked(select_masked(body.in_avals[:num_consts], linear[:num_consts]), consts_nonzero))
    carried = list(select_masked(body.in_avals[num_consts : num_consts + num_carry], carry))
    sums = select_masked(avals, summed)
    tail = tails.program(select_unmasked(program.outs[:k], summed), select_unmasked(avals, summed), length)

    shown = evolve(program, outs=(*select_masked(program.outs[:k], summed), *program.outs[k:], *tails.stacks))

    def step(*args: Value) -> list[Value]:
        fixed, rest = args[:n_fixed], args[n_fixed:]
        totals, moving, slices = (
            rest[: len(sums)],
            rest[len(sums) : len(sums) + sum(carry)],
            rest[len(sums) + sum(carry) :],
        )
        outs = eval_jaxpr(shown, (), [*fixed, *slices[:n_known], *moving, *slices[n_known:]])
        m = len(sums)
        added = [
            match_aval(add_tangents(t, match_aval(ct, a)), a) for t, ct, a in zip(totals, outs[:m], sums, strict=True)
        ]
        moved = [match_aval(ct, a) for ct, a in zip(outs[m:], carried, strict=False)]
        return [*added, *moved, *outs[m + len(moved) :]]  # type: ignore[list-item]  # no zeros are among them

    in_avals = [*program.in_avals[:n_fixed], *sums, *carried]
    in_avals += [*program.in_avals[n_fixed : n_fixed + n_known], *program.in_avals[n_fixed + n_known + sum(carry) :]]
    staged, held = stage(step, in_avals)
    assert not held
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
    """Sums over the steps that are contractions of stacks: which outputs of a step are, and what they need."""

    def __init__(self, step: Jaxpr, n_fixed: int, known: range, cotangents: range) -> None:
        self.makers: dict[Var, Eqn] = {v: eqn for eqn in step.eqns for v in eqn.outs}
        slices = [step.invars[i] for i in [*known, *cotangents]]
        self.array_of: dict[Atom, int] = {v: i for i, v in enumerate(slices)}
        self.varying: set[Atom] = set(step.invars[n_fixed:])
        for eqn in step.eqns:
            if not self.varying.isdisjoint(eqn.inputs):
                self.varying.update(eqn.outs)
        self.arrays: list[int] = []
        """The slices' arrays that are operands of contractions."""
        self.stacks: list[Atom] = []
        """What each step has to give for them beside."""
        self.contractions = 0
        """How many were found in what is looked at."""

    def defer(self, atom: Atom) -> bool:
        """Whether the sum of these over the steps is taken from stacks, which are noted then."""
        found: list[Atom] = []
        self.contractions = 0
        if not self._find_operands(atom, found):
            return False
        new = {a for a in found if a not in self.array_of and a not in self.stacks}
        moved = sum(a.aval.size for a in new)
        if moved > (2 * atom.aval.size if self.contractions else atom.aval.size // 4):
            return False  # stacking would move more than summing does, or not enough less to be worth its kernels
        for a in dict.fromkeys(found):
            if a in self.array_of:
                if self.array_of[a] not in self.arrays:
                    self.arrays.append(self.array_of[a])
            elif a not in self.stacks:
                self.stacks.append(a)
        return True

    def _find_operands(self, atom: Atom, found: list[Atom], whole: int = 0) -> bool:
        """Whether the sum of an atom, which may be part of `whole` elements, is taken from stacks; note of which."""
        if atom in self.stacks or atom in self.array_of:
            found.append(atom)  # it is there anyway
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
        """The sums of these over the steps, from the arrays and the stacks."""
        sources = [a for i in self.arrays for a, place in self.array_of.items() if place == i] + self.stacks

        def run(*stacks: Value) -> list[Value]:
            env = dict(zip(sources, stacks, strict=True))
            return [match_aval(self._total(a, env), aval) for a, aval in zip(atoms, avals, strict=True)]  # type: ignore[misc]

        jaxpr, consts = stage(run, [a.aval.with_axis(length, 0) for a in sources])
        assert not consts
        return jaxpr

    def _total(self, atom: Atom, env: dict[Atom, Value]) -> Value:
        if atom in env:
            return reduce_sum(env[atom], (0,))
        assert isinstance(atom, Var)
        eqn = self.makers[atom]
        prim = eqn.prim
        if isinstance(prim, DotGeneral):
            return _contract_over_steps(prim, *[env[x] for x in eqn.inputs])
        if isinstance(prim, ReduceSum):
            return reduce_sum(env[eqn.inputs[0]], (0, *[axis + 1 for axis in prim.axes]))
        if isinstance(prim, Pad):
            return bind1(prim, self._total(eqn.inputs[0], env), eqn.inputs[1])  # type: ignore[arg-type]  # a literal
        return bind1(prim, *[self._total(x, env) for x in eqn.inputs])


def _is_zero(x: Atom) -> bool:
    return isinstance(x, Literal) and not x.val


def _contract_over_steps(dot: DotGeneral, lhs: Value, rhs: Value) -> Value:
    """The contraction of stacks that contracts the steps too."""
    (lc, rc), (lb, rb) = dot.dimension_numbers
    if not lb and lc == rc == tuple(range(len(lc))):  # rows as they lie in memory, which need not be moved
        lhs, rhs = [_merge_leading_axes(x, len(lc) + 1) for x in (lhs, rhs)]
        return bind1(evolve(dot, dimension_numbers=(((0,), (0,)), ((), ()))), lhs, rhs)

    def behind(axes: Sequence[int]) -> tuple[int, ...]:
        return tuple([axis + 1 for axis in axes])

    contracting = (0, *behind(lc)), (0, *behind(rc))
    return bind1(evolve(dot, dimension_numbers=(contracting, (behind(lb), behind(rb)))), lhs, rhs)


def _merge_leading_axes(x: Value, count: int) -> Value:
    """The first axes of an array as one."""
    shape = x.aval.shape
    return reshape(x, (math.prod(shape[:count]), *shape[count:]))
