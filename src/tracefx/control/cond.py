"""`cond` as a primitive: runs one of several jaxprs, selected by an index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize_on_object
from tracefx.control.call import Call
from tracefx.control.control_flow import ControlFlowPrimitive, InputSource, rearrange_jaxpr, unify_consts, used_inputs
from tracefx.control.remat import CheckpointPolicy, Rematerializable, RematSplit, split_body_for_remat
from tracefx.control.sow import IN_BATCHED_COND, mark_uncollectable
from tracefx.core import ShapedArray, Value, accepts, dtypes, show_avals, to_numpy
from tracefx.core.avals import join_vma, without_vma
from tracefx.core.backend import BACKEND
from tracefx.core.effects import non_debug_effects
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import Tracer, bind
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import BatchDims, MappedAxis, Recorder, Tangent, UndefinedPrimal
from tracefx.interpreters.body_transform import (
    BodyInterpreter,
    BodyKind,
    BodyName,
    CollectedSpec,
    ValueSpec,
    flatten_to_arrays,
    unpack_results,
)
from tracefx.interpreters.jaxpr_transforms import (
    Consts,
    UnzippedJaxpr,
    batch_jaxpr,
    jvp_jaxpr,
    transpose_jaxpr,
    unzip_jaxpr,
)
from tracefx.interpreters.masks import (
    Mask,
    drop_zeros,
    insert_cotangents,
    insert_zeros,
    known_values,
    linear_mask,
    merge_masked,
    nonzero_mask,
    select_masked,
    select_unmasked,
    union_masks,
)
from tracefx.interpreters.stage import stage
from tracefx.lowering import Builder, IrValue
from tracefx.ops.elementwise.comparison import eq
from tracefx.ops.elementwise.selection import select_n, stop_gradient
from tracefx.ops.structural import batch_first, broadcast_in_dim, constant_like_aval
from tracefx.passes.dce import dce
from tracefx.passes.varying import Retype

INDEX_AVAL: Final = ShapedArray((), np.dtype(np.int32))


@final
@frozen(eq=False)
class Cond(ControlFlowPrimitive, Rematerializable):
    """The primitive of `cond` and `switch`: `branches[index](*operands)`.

    The first operand is the index, an `i32[]` that must be in range. All branches have the same input and output shapes
    and dtypes.

    Args:
        branches: The jaxprs of the branches, which take all operands but the index.
    """

    name = "cond"
    branches: tuple[Jaxpr, ...]

    @override
    def jaxprs(self) -> tuple[Jaxpr, ...]:
        return self.branches

    @override
    def with_jaxprs(self, *jaxprs: Jaxpr) -> Cond:
        return Cond(jaxprs)

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        first = self.branches[0]
        index, *operands = avals
        if without_vma([index]) != (INDEX_AVAL,):
            raise TypeError(f"cond takes an index of type {INDEX_AVAL}, got {index}")
        for i, branch in enumerate(self.branches):
            if not accepts(branch.in_avals, tuple(operands)):
                raise TypeError(
                    f"branch {i} of cond takes ({show_avals(branch.in_avals)}), got ({show_avals(operands)})"
                )
            if branch is not first and without_vma(branch.out_avals) != without_vma(first.out_avals):
                raise TypeError(
                    f"branch {i} of cond returns ({show_avals(branch.out_avals)}), branch 0 returns "
                    f"({show_avals(first.out_avals)})"
                )
        outs = zip(*[branch.out_avals for branch in self.branches], strict=True)
        return [each[0].with_vma(join_vma((index, *each))) for each in outs]

    @override
    def with_operand_types(self, avals: Sequence[ShapedArray], retype: Retype) -> Cond:
        return ControlFlowPrimitive.with_operand_types(self, avals[1:], retype)

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        index, *operands = args
        clamped = min(max(int(to_numpy(index)), 0), len(self.branches) - 1)
        return BACKEND.value.run(self.branches[clamped], operands, f"branch_{clamped}")

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        index, *branch_operands = operands
        builds = [lambda b, xs, branch=branch: b.inline(branch, xs) for branch in self.branches]
        return builder.case(index, builds, branch_operands, self.branches[0].out_avals)

    @override
    def prune(self, used_outs: tuple[bool, ...]) -> tuple[Cond, tuple[bool, ...], tuple[bool, ...]]:
        pruned, used_ins = self._pruned(used_outs)
        return pruned, (True, *used_ins), used_outs

    @memoize_on_object
    def _pruned(self, used_outs: Mask) -> tuple[Cond, Mask]:
        bodies = [dce(branch, used_outs) for branch in self.branches]
        used = union_masks(map(used_inputs, bodies))
        if all(used):
            same = all(a is b for a, b in zip(bodies, self.branches, strict=True))
            return (self if same else Cond(tuple(bodies))), used
        indices = [i for i, use in enumerate(used) if use]
        return Cond(tuple([rearrange_jaxpr(body, indices) for body in bodies])), used

    # -------------------------------------------------------------- interpreting the branches

    @override
    def transform_bodies(self, interpreter: BodyInterpreter, args: Sequence[Value]) -> Sequence[Value]:
        index = interpreter.strip_to_plain(args[0], "the predicate of cond")
        specs = [interpreter.spec(x) for x in args[1:]]
        names = [BodyName("cond", BodyKind.BRANCH, i) for i in range(len(self.branches))]
        outs: list[ValueSpec | None] = [None] * len(self.branches[0].outs)
        state: ValueSpec | None = None
        collected: tuple[CollectedSpec, ...] = ()
        while True:  # fixed point: all branches must return values of the same specs
            bodies = []
            for branch, name in zip(self.branches, names, strict=True):
                body = interpreter.transform_body(branch, specs, name, outs=outs, state=state, collected=collected)
                outs, state, collected = list(body.outs), body.state or state, body.collected
                bodies.append(body)
            if all(
                (b.outs, b.input_state, b.state, b.collected) == (tuple(outs), state, state, collected) for b in bodies
            ):
                break
        jaxprs, consts = unify_consts([(body.jaxpr, body.consts) for body in bodies])
        operands = flatten_to_arrays(interpreter, args[1:], specs)
        results = bind(Cond(jaxprs), index, *consts, *interpreter.state(state), *operands)
        return unpack_results(interpreter, bodies[0], results)

    # -------------------------------------------------------------- forward mode

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        index, *operands = primals
        nonzero = nonzero_mask(tangents[1:])
        prim, consts, out_nonzero = self._jvp(nonzero)
        outs = bind(prim, index, *consts, *operands, *drop_zeros(tangents[1:]))
        n = len(out_nonzero)
        return outs[:n], insert_zeros(outs[n:], out_nonzero, self.branches[0].out_avals)

    @memoize_on_object
    def _jvp(self, nonzero: Mask) -> tuple[Cond, Consts, Mask]:
        out_nonzero = union_masks([jvp_jaxpr(branch, nonzero).out_nonzero for branch in self.branches])
        derived = [jvp_jaxpr(branch, nonzero, out_nonzero) for branch in self.branches]
        bodies, consts = unify_consts([(d.jaxpr, d.consts) for d in derived])
        return Cond(bodies), consts, out_nonzero

    # -------------------------------------------------------------- batching

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        (index, *operands), (index_dim, *operand_dims) = args, dims
        if index_dim is not None:
            return self._batch_all(axis, index, index_dim, operands, tuple(operand_dims))
        prim, consts, out_batched = self._batch(axis, tuple(operand_dims))
        return bind(prim, index, *consts, *operands), [0 if b else None for b in out_batched]

    @memoize_on_object
    def _batch(self, axis: MappedAxis, dims: tuple[int | None, ...]) -> tuple[Cond, Consts, Mask]:
        unconstrained = [batch_jaxpr(branch, axis, dims) for branch in self.branches]
        out_batched = union_masks([tuple([d is not None for d in b.out_dims]) for b in unconstrained])
        derived = [batch_jaxpr(branch, axis, dims, out_batched) for branch in self.branches]
        bodies, consts = unify_consts([(d.jaxpr, d.consts) for d in derived])
        return Cond(bodies), consts, out_batched

    def _batch_all(
        self, axis: MappedAxis, index: Value, index_dim: int, operands: Sequence[Value], dims: tuple[int | None, ...]
    ) -> tuple[Sequence[Value], BatchDims]:
        """Batches a `cond` whose index is batched: computes all branches, selects the results per batch element."""
        effects = ", ".join(sorted(map(str, non_debug_effects(self.effects))))
        if effects:
            raise ValueError(
                f"vmap of cond: the index is batched, so that all branches would run, but they have "
                f"effects ({effects}); move the effects out of the branches, or loop over the batch with lax.map"
            )
        all_batched = (True,) * len(self.branches[0].outs)
        batched_index = batch_first(index, index_dim, axis)
        cases = []
        for i, branch in enumerate(self.branches):
            taken = eq(batched_index, i)
            pairs = [
                _stop_untaken_gradients(x, dim, axis, taken) if used else (x, dim)
                for x, dim, used in zip(operands, dims, used_inputs(branch), strict=True)
            ]
            derived = batch_jaxpr(branch, axis, tuple([dim for _, dim in pairs]), all_batched)
            body = mark_uncollectable(derived.jaxpr, IN_BATCHED_COND)
            cases.append(bind(Call(f"branch_{i}", body), *derived.consts, *[x for x, _ in pairs]))
        outs = []
        out_dims: list[int | None] = []
        for i, results in enumerate(zip(*cases, strict=True)):
            operand_index = self._forwarded(i)
            if operand_index is not None:
                outs.append(operands[operand_index])
                out_dims.append(dims[operand_index])
                continue
            out_dims.append(0)
            rank = results[0].aval.ndim
            outs.append(
                select_n(
                    broadcast_in_dim(batched_index, results[0].aval.shape, (0,)) if rank > 1 else batched_index,
                    *results,
                )
            )
        return outs, out_dims

    def _forwarded(self, i: int) -> int | None:
        """Returns the index of the operand that every branch returns as output `i`, or `None`."""
        operand_indices = {
            next((k for k, v in enumerate(branch.invars) if v is branch.outs[i]), None) for branch in self.branches
        }
        return operand_indices.pop() if len(operand_indices) == 1 else None

    # -------------------------------------------------------------- partial evaluation

    @override
    def partial_eval(self, recorder: Recorder, unknown: Sequence[bool], args: Sequence[Value]) -> Sequence[Value]:
        if unknown[0]:  # the branch is unknown, so no part of any branch can be evaluated
            return recorder.record(self, args)
        mask = tuple(unknown[1:])
        halves = _unzip_branches(self, mask)
        index, *operands = args
        known, unknown_operands = select_unmasked(operands, mask), select_masked(operands, mask)
        outs = recorder.evaluate(Cond(halves.known), [index, *halves.consts, *known])
        n = halves.out_unknown.count(False)
        forwarded = [known[i] for i in halves.forwarded]
        unknown_outs = recorder.record(Cond(halves.unknown), [index, *forwarded, *outs[n:], *unknown_operands])
        return merge_masked(halves.out_unknown, unknown_outs, outs[:n])

    @override
    def split_for_remat(self, needed: Mask, policy: CheckpointPolicy) -> RematSplit | None:
        splits = [split_body_for_remat(branch, needed, policy) for branch in self.branches]
        if all(each is None for each in splits):
            return None
        parts = [
            (branch, dce(branch, needed), ()) if each is None else each
            for branch, each in zip(self.branches, splits, strict=True)
        ]
        slots = _residual_slots([saved for _, _, saved in parts])
        n, m = len(needed), len(self.branches[0].invars)
        firsts = [_with_slots(first, n, slots) for first, _, _ in parts]
        recomputes = []
        for _, recompute, saved in parts:
            slot_sources: list[InputSource] = list(slots)
            for i, slot in enumerate(_slot_indices(saved, slots)):
                slot_sources[slot] = m + i
            recomputes.append(rearrange_jaxpr(recompute, [*range(m), *slot_sources]))
        return RematSplit(Cond(tuple(firsts)), Cond(tuple(recomputes)), tuple(slots), needed)

    # -------------------------------------------------------------- transposition

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        index, *operands = args
        assert not isinstance(index, UndefinedPrimal)
        op, consts, in_nonzero = self._transpose(linear_mask(operands), nonzero_mask(cts))
        outs = bind(op, index, *consts, *known_values(operands), *drop_zeros(cts))
        return [None, *insert_cotangents(operands, outs, in_nonzero)]

    @memoize_on_object
    def _transpose(self, lin: Mask, out_nonzero: Mask) -> tuple[Cond, Consts, Mask]:
        in_nonzero = union_masks([transpose_jaxpr(branch, lin, out_nonzero).in_nonzero for branch in self.branches])
        derived = [transpose_jaxpr(branch, lin, out_nonzero, in_nonzero) for branch in self.branches]
        bodies, consts = unify_consts([(d.jaxpr, d.consts) for d in derived])
        return Cond(bodies), consts, in_nonzero


def _stop_untaken_gradients(x: Value, dim: int | None, axis: MappedAxis, taken: Value) -> tuple[Value, int | None]:
    """Stops gradients of an operand of a branch in the batch elements that do not take the branch.

    There the derivative of the branch may be infinite, and its product with the zero cotangent NaN. Only tracers can be
    differentiated. An operand that is not batched is broadcast, since its cotangent is the sum over the batch.
    """
    if not isinstance(x, Tracer) or not dtypes.is_inexact(x.aval.dtype):
        return x, dim
    batched = batch_first(x, dim, axis)
    mask = broadcast_in_dim(taken, batched.aval.shape, (0,)) if batched.aval.ndim > 1 else taken
    return select_n(mask, stop_gradient(batched), batched), 0


# ------------------------------------------------------------------ known and unknown halves


@final
@frozen(eq=False)
class _UnzippedBranches:
    """Branches split into known and unknown halves.

    `known` maps `(consts, known operands)` to `(known outputs, residuals)`; `unknown` maps `(forwarded operands,
    residuals, unknown operands)` to unknown outputs.
    """

    known: tuple[Jaxpr, ...]
    unknown: tuple[Jaxpr, ...]
    consts: Consts
    out_unknown: Mask
    forwarded: tuple[int, ...]
    """The indices of the known operands that are residuals of any branch."""


@memoize_on_object
def _unzip_branches(cond: Cond, unknown: Mask) -> _UnzippedBranches:
    branches = cond.branches
    out_unknown = union_masks([unzip_jaxpr(branch, unknown).out_unknown for branch in branches])
    halves = [unzip_jaxpr(branch, unknown, out_unknown) for branch in branches]
    forwarded = sorted({index for h in halves for index in h.forwarded if index is not None})
    n = out_unknown.count(False)
    slots = _residual_slots([h.known.out_avals[n:] for h in halves])
    known_halves = [(_with_slots(h.known, n, slots), h.consts) for h in halves]
    bodies, consts = unify_consts(known_halves)
    unknown_halves = tuple([_align_unknown_half(h, n, slots, forwarded, branches[0].in_avals, unknown) for h in halves])
    return _UnzippedBranches(bodies, unknown_halves, consts, out_unknown, tuple(forwarded))


def _residual_slots(residuals: Sequence[Sequence[ShapedArray]]) -> list[ShapedArray]:
    """Returns slots for the residuals of all branches.

    Only one branch runs, so residuals of different branches with the same shape and dtype share a slot.
    """
    counts: Counter[ShapedArray] = Counter()
    for avals in residuals:
        counts |= Counter(avals)
    return list(counts.elements())


def _slot_indices(avals: Sequence[ShapedArray], slots: Sequence[ShapedArray]) -> list[int]:
    """Returns the slot of each residual."""
    free = list(range(len(slots)))
    slot_indices = []
    for aval in avals:
        index = next(i for i in free if slots[i] == aval)
        free.remove(index)
        slot_indices.append(index)
    return slot_indices


def _with_slots(jaxpr: Jaxpr, n: int, slots: Sequence[ShapedArray]) -> Jaxpr:
    """Returns the jaxpr with its residuals, the outputs after the first `n`, in slots; unused slots are zeros."""
    slot_indices = _slot_indices(jaxpr.out_avals[n:], slots)
    if slot_indices == list(range(len(slots))):
        return jaxpr

    def run(*args: Value) -> list[Value]:
        outs = eval_jaxpr(jaxpr, (), args)
        residuals: list[Value | None] = [None] * len(slots)
        for slot, x in zip(slot_indices, outs[n:], strict=True):
            residuals[slot] = x
        filler = [constant_like_aval(a, 0) if x is None else x for x, a in zip(residuals, slots, strict=True)]
        return [*outs[:n], *filler]

    with_slots, consts = stage(run, jaxpr.in_avals)
    assert not consts
    return with_slots


def _align_unknown_half(
    halves: UnzippedJaxpr,
    n: int,
    slots: Sequence[ShapedArray],
    forwarded: Sequence[int],
    operands: Sequence[ShapedArray],
    unknown: Mask,
) -> Jaxpr:
    """Returns the unknown half with an input for every forwarded operand and every slot."""
    slot_indices = _slot_indices(halves.known.out_avals[n:], slots)
    known = select_unmasked(operands, unknown)
    input_of_operand: dict[int, int] = {}  # from forwarded operands to inputs of the half
    input_of_slot: dict[int, int] = {}
    remaining = iter(slot_indices)
    for i, operand in enumerate(halves.forwarded):
        if operand is None:
            input_of_slot[next(remaining)] = i
        else:
            input_of_operand[operand] = i
    inputs: list[InputSource] = [input_of_operand.get(operand, known[operand]) for operand in forwarded]
    inputs += [input_of_slot.get(k, aval) for k, aval in enumerate(slots)]
    inputs += range(len(halves.forwarded), len(halves.unknown.invars))
    return rearrange_jaxpr(halves.unknown, inputs)
