"""`scan` as a primitive: applies a jaxpr step by step, with a carry and slices of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize_on_object
from tracefx.control.call import Call
from tracefx.control.checkpointed_loops import checkpoint_scan, chunk_lengths
from tracefx.control.control_flow import ControlFlowPrimitive, rearrange_jaxpr, used_inputs
from tracefx.control.remat import CheckpointPolicy, Rematerializable, RematSplit, split_body_for_remat
from tracefx.control.scan_partial_eval import UnzippedScan, unzip_scan
from tracefx.control.scan_transpose import ScanTranspose, plan_scan_transpose
from tracefx.core import Literal, ShapedArray, Value, accepts, show_avals
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind
from tracefx.core.jaxpr import HasBody, Jaxpr
from tracefx.core.primitive import BatchDims, MappedAxis, Primitive, Recorder, Tangent, UndefinedPrimal
from tracefx.dimensions.symbolic_dimensions import is_symbolic_dim
from tracefx.interpreters.body_transform import (
    BodyInterpreter,
    BodyKind,
    BodyName,
    CollectedSpec,
    ValueSpec,
    count,
    flatten_to_arrays,
    unpack_results,
)
from tracefx.interpreters.jaxpr_transforms import Consts, batch_jaxpr, jvp_jaxpr
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
)
from tracefx.lowering import Builder, IrValue, MlirText
from tracefx.ops.indexing.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from tracefx.ops.structural import BroadcastInDim, Reshape, batch_first, constant_like_aval, instantiate, move_axis
from tracefx.passes.dce import dce
from tracefx.passes.varying import Retype

X = TypeVar("X")
COUNTER_AVAL: Final = ShapedArray((), np.dtype(np.int32))


@final
@frozen(eq=False)
class Scan(ControlFlowPrimitive, HasBody, Rematerializable):
    """The primitive of `scan`: applies `jaxpr` in `length` steps.

    `jaxpr` maps `(consts, carry, slices)` to `(carry, result slices)`. The operands are the constants, the initial
    carry, and arrays, of which each step takes one slice along the first axis.

    Args:
        jaxpr: The body.
        length: The number of steps.
        num_carry: The number of arrays in the carry.
        num_consts: The number of constants.
        reverse: Whether the steps take the slices from last to first.
        unroll: The number of steps in each iteration of the compiled loop.
        checkpoint: The number of steps in a checkpointed chunk, or `"binomial"` for a tree of chunks; `None`, the
            default, for no checkpoints.
    """

    name = "scan"
    jaxpr: Jaxpr
    length: int
    num_carry: int
    num_consts: int
    reverse: bool
    unroll: int
    checkpoint: int | str | None = field(default=None, metadata={"hide_default": True, "jax": False})

    def split_operands(self, xs: Sequence[X]) -> tuple[Sequence[X], Sequence[X], Sequence[X]]:
        """Splits a list into the entries of the constants, of the carry, and of the sliced arrays."""
        n, m = self.num_consts, self.num_consts + self.num_carry
        return xs[:n], xs[n:m], xs[m:]

    def stacked(self, avals: Sequence[ShapedArray]) -> list[ShapedArray]:
        """Returns the avals with a leading axis of steps."""
        return [a.with_axis(self.length, 0) for a in avals]

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        consts, carry, slices = self.split_operands(self.jaxpr.in_avals)
        expected = (*consts, *carry, *self.stacked(slices))
        if not accepts(expected, avals):
            raise TypeError(f"scan takes ({show_avals(expected)}), got ({show_avals(avals)})")
        outs = self.jaxpr.out_avals
        if not accepts(tuple(carry), outs[: self.num_carry]):
            raise TypeError(
                f"the body of scan takes the carry ({show_avals(carry)}) and returns "
                f"({show_avals(outs[: self.num_carry])})"
            )
        return [*carry, *self.stacked(outs[self.num_carry :])]

    @override
    def with_operand_types(self, avals: Sequence[ShapedArray], retype: Retype) -> Scan:
        consts, carry, slices = self.split_operands(avals)
        while True:  # fixed point: a carry varies from the first step on if it varies after any step
            body = retype(self.jaxpr, [*consts, *carry, *slices])
            wider = [a.with_vma(a.vma | out.vma) for a, out in zip(carry, body.out_avals, strict=False)]
            if wider == list(carry):
                return self if body is self.jaxpr else evolve(self, jaxpr=body)
            carry = wider

    # -------------------------------------------------------------- dead code

    @override
    @memoize_on_object
    def prune(self, used_outs: Mask) -> tuple[Scan, Mask, Mask]:
        n = self.num_carry
        carry, results = used_outs[:n], used_outs[n:]
        while True:  # fixed point: a carry is used if an output of the next step that depends on it is used
            body = dce(self.jaxpr, carry + results)
            used = used_inputs(body)
            _, used_carry, _ = self.split_operands(used)
            more = tuple([a or b for a, b in zip(carry, used_carry, strict=True)])
            if more == carry:
                break
            carry = more
        consts, _, slices = self.split_operands(used)
        used_operands = (*consts, *carry, *slices)
        if all(used_operands) and all(carry + results):
            return (self if body is self.jaxpr else evolve(self, jaxpr=body)), used_operands, carry + results
        indices = [i for i, use in enumerate(used_operands) if use]
        pruned = evolve(self, jaxpr=rearrange_jaxpr(body, indices), num_carry=sum(carry), num_consts=sum(consts))
        return pruned, used_operands, carry + results

    # -------------------------------------------------------------- interpreting the body

    @override
    def transform_bodies(self, interpreter: BodyInterpreter, args: Sequence[Value]) -> Sequence[Value]:
        n = self.num_carry
        const_args, carry_args, array_args = self.split_operands(args)
        name = BodyName("scan", BodyKind.STEP)
        consts, carry = [interpreter.spec(x) for x in const_args], [interpreter.spec(x) for x in carry_args]
        arrays = [interpreter.spec(x) for x in array_args]
        slices, free = [spec.step() for spec in arrays], [None] * (len(self.jaxpr.outs) - n)
        state: ValueSpec | None = None
        while True:  # fixed point: a carry has the same spec before and after each step
            body = interpreter.transform_body(
                self.jaxpr, [*consts, *carry, *slices], name, outs=[*carry, *free], state=state
            )
            if list(body.outs[:n]) == carry and body.state == state:
                break
            carry, state = list(body.outs[:n]), body.state
        first, last = len(body.consts), len(body.jaxpr.invars)
        num_state = 0 if state is None else len(state.avals)
        fixed = first + num_state + count(consts)
        indices = [
            *range(first),
            *range(first + num_state, fixed),
            *range(first, first + num_state),
            *range(fixed, last),
        ]
        op = evolve(
            self,
            jaxpr=rearrange_jaxpr(body.jaxpr, indices) if num_state else body.jaxpr,
            num_consts=fixed - num_state,
            num_carry=num_state + count(carry),
        )
        initial = interpreter.state(state)
        operands = [
            *flatten_to_arrays(interpreter, const_args, consts),
            *initial,
            *flatten_to_arrays(interpreter, carry_args, carry),
        ]
        outs = bind(op, *body.consts, *operands, *flatten_to_arrays(interpreter, array_args, arrays))
        results = [*carry, *[spec.stacked(self.length) for spec in body.outs[n:]]]
        collected = [CollectedSpec(each.name, each.spec.stacked(self.length)) for each in body.collected]
        return unpack_results(interpreter, evolve(body, outs=tuple(results), collected=tuple(collected)), outs)

    # -------------------------------------------------------------- forward mode

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        nonzero = nonzero_mask(tangents)
        prim, extra, out_nonzero = self._jvp(nonzero)
        n, carry_nonzero = self.num_carry, out_nonzero[: self.num_carry]
        consts, carry, arrays = self.split_operands(primals)
        d_consts, d_carry, d_arrays = self.split_operands(tangents)
        carry_tangents = [instantiate(t) for t in select_masked(d_carry, carry_nonzero)]
        outs = bind(
            prim, *extra, *consts, *drop_zeros(d_consts), *carry, *carry_tangents, *arrays, *drop_zeros(d_arrays)
        )
        first, last = n + sum(carry_nonzero), n + sum(carry_nonzero) + len(self.jaxpr.outs) - n
        results = [*outs[:n], *outs[first:last]]
        return results, insert_zeros([*outs[n:first], *outs[last:]], out_nonzero, [r.aval for r in results])

    @memoize_on_object
    def _jvp(self, nonzero: Mask) -> tuple[Scan, Consts, Mask]:
        n = self.num_carry
        consts, carry, slices = map(tuple, self.split_operands(nonzero))
        results = (False,) * (len(self.jaxpr.outs) - n)
        while True:  # fixed point: a carry has a tangent from the first step on if it has one after any step
            derived = jvp_jaxpr(self.jaxpr, consts + carry + slices, carry + results)
            if derived.out_nonzero[:n] == carry:
                break
            carry = derived.out_nonzero[:n]
        indices = iter(range(len(derived.jaxpr.invars)))

        def take(count: int) -> list[int]:
            return [next(indices) for _ in range(count)]

        extra, primals = take(len(derived.consts)), [take(len(p)) for p in (consts, carry, slices)]
        tangents = [take(sum(p)) for p in (consts, carry, slices)]
        inputs = extra + primals[0] + tangents[0] + primals[1] + tangents[1] + primals[2] + tangents[2]
        total, num_carry_tangents = len(self.jaxpr.outs), sum(carry)
        outs = [
            *range(n),
            *range(total, total + num_carry_tangents),
            *range(n, total),
            *range(total + num_carry_tangents, len(derived.jaxpr.outs)),
        ]
        op = evolve(
            self,
            jaxpr=rearrange_jaxpr(derived.jaxpr, inputs, outs),
            num_carry=n + num_carry_tangents,
            num_consts=len(extra) + len(primals[0]) + len(tangents[0]),
        )
        return op, derived.consts, derived.out_nonzero

    # -------------------------------------------------------------- batching

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        consts, carry, arrays = self.split_operands(args)
        const_dims, carry_dims, array_dims = self.split_operands(dims)
        # The first axis of an array is the axis of steps; a batch axis there moves behind it.
        arrays = [move_axis(x, 0, 1) if d == 0 else x for x, d in zip(arrays, array_dims, strict=True)]
        inner = (*const_dims, *carry_dims, *[None if d is None else max(d - 1, 0) for d in array_dims])
        prim, extra, out_dims = self._batch(axis, inner)
        n = self.num_carry
        carry = [
            x if out is None else batch_first(x, d, axis)
            for x, d, out in zip(carry, carry_dims, out_dims[:n], strict=True)
        ]
        outs = bind(prim, *extra, *consts, *carry, *arrays)
        return outs, [*out_dims[:n], *[None if d is None else d + 1 for d in out_dims[n:]]]

    @memoize_on_object
    def _batch(self, axis: MappedAxis, dims: tuple[int | None, ...]) -> tuple[Scan, Consts, tuple[int | None, ...]]:
        n = self.num_carry
        consts, carry_dims, slices = map(tuple, self.split_operands(dims))
        carry = tuple([d is not None for d in carry_dims])
        results = (False,) * (len(self.jaxpr.outs) - n)
        while True:  # fixed point: a carry is batched from the first step on if it is batched after any step
            dims_of_carry = tuple([0 if b else None for b in carry])
            derived = batch_jaxpr(self.jaxpr, axis, consts + dims_of_carry + slices, carry + results)
            more = tuple([d is not None for d in derived.out_dims[:n]])
            if more == carry:
                break
            carry = more
        op = evolve(self, jaxpr=derived.jaxpr, num_consts=self.num_consts + len(derived.consts))
        return op, derived.consts, derived.out_dims

    # -------------------------------------------------------------- partial evaluation

    @override
    def partial_eval(self, recorder: Recorder, unknown: Sequence[bool], args: Sequence[Value]) -> Sequence[Value]:
        if self.checkpoint is not None:
            return Call(self.name, self.checkpointed_jaxpr()).partial_eval(recorder, unknown, args)
        split = self._unzip(tuple(unknown))
        outs, unknown_scan, operands = self._run_known(split, tuple(unknown), args, recorder.evaluate)
        return merge_masked(split.out_unknown, recorder.record(unknown_scan, known_values(operands)), outs)

    @memoize_on_object
    def checkpointed_jaxpr(self) -> Jaxpr:
        """Returns the loop as a jaxpr of checkpointed chunks, which reverse mode differentiates."""

        def loop(body: Jaxpr, length: int) -> Scan:
            return evolve(self, jaxpr=body, length=length, checkpoint=None)

        assert self.checkpoint is not None
        chunks = chunk_lengths(self.checkpoint, self.length)
        return checkpoint_scan(self.jaxpr, loop, self.num_consts, self.num_carry, self.length, self.reverse, chunks)

    @memoize_on_object
    def _unzip(self, unknown: Mask) -> UnzippedScan:
        return unzip_scan(self.jaxpr, self.num_consts, self.num_carry, unknown)

    def _run_known(
        self,
        split: UnzippedScan,
        unknown: Mask,
        args: Sequence[Value | UndefinedPrimal],
        evaluate: Callable[[Primitive, Sequence[Value]], Sequence[Value]],
    ) -> tuple[Sequence[Value], Scan, Sequence[Value | UndefinedPrimal]]:
        """Runs the known half.

        Returns:
            Its outputs, the scan of the unknown half, and the operands of that scan.
        """
        (consts, carry, arrays), (late_consts, _, late_arrays) = self.split_operands(args), self.split_operands(unknown)
        known_consts = [*split.consts, *known_values(consts, late_consts)]
        known_carry, known_arrays = known_values(carry, split.carry_unknown), known_values(arrays, late_arrays)
        first = evolve(self, jaxpr=split.known, num_consts=len(known_consts), num_carry=len(known_carry))
        idle = not split.known.outs and not first.effects
        outs = [] if idle else evaluate(first, [*known_consts, *known_carry, *known_arrays])
        shared: Sequence[Value] = []
        if split.invariant.outs:
            shared = evaluate(Call("invariant", split.invariant), [known_consts[i] for i in split.invariant_inputs])
        n = split.out_unknown.count(False)
        results, residuals = outs[len(known_carry) : n], outs[n:]
        known_consts = known_consts[len(split.consts) :]
        const_args = [
            *[known_consts[i] for i in split.late_consts],
            *shared,
            *select_masked(consts, late_consts),
        ]
        moving = select_masked(carry, split.carry_unknown)
        sliced = [known_arrays[i] for i in split.late_slices] + [results[i] for i in split.late_results]
        late = evolve(self, jaxpr=split.late, num_consts=len(const_args), num_carry=len(moving))
        return (
            outs[:n],
            late,
            [*const_args, *moving, *sliced, *residuals, *select_masked(arrays, late_arrays)],
        )

    @override
    def split_for_remat(self, needed: Mask, policy: CheckpointPolicy) -> RematSplit | None:
        wanted = (*(True,) * self.num_carry, *needed[self.num_carry :])  # the next step may need the whole carry
        split = split_body_for_remat(self.jaxpr, wanted, policy)
        if split is None:
            return None
        first, recompute, saved = split
        return RematSplit(evolve(self, jaxpr=first), evolve(self, jaxpr=recompute), tuple(self.stacked(saved)), wanted)

    # -------------------------------------------------------------- transposition

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        lin = linear_mask(args)
        split = self._unzip(lin)
        if all(split.carry_unknown):
            return self._transposed(cts, args, lin)
        # The known part of the carry is computed first, forwards.
        _, late, operands = self._run_known(split, lin, args, lambda op, xs: bind(op, *xs))
        in_cts = late.transpose(select_masked(cts, split.out_unknown), *operands)
        results = iter([ct for ct, x in zip(in_cts, operands, strict=True) if isinstance(x, UndefinedPrimal)])
        return [next(results) if isinstance(a, UndefinedPrimal) else None for a in args]

    @memoize_on_object
    def _plan_transpose(self, linear: Mask, ct_nonzero: Mask) -> ScanTranspose:
        return plan_scan_transpose(self.jaxpr, self.num_consts, self.num_carry, linear, ct_nonzero, self.length)

    def _transposed(
        self, cts: Sequence[Tangent], args: Sequence[Value | UndefinedPrimal], lin: Mask
    ) -> Sequence[Tangent | None]:
        n, ct_nonzero = self.num_carry, nonzero_mask(cts)
        lin_consts, _, lin_arrays = self.split_operands(lin)
        mask = (*lin_consts, *(True,) * n, *lin_arrays)
        plan = self._plan_transpose(mask, ct_nonzero)
        consts, carry, arrays = self.split_operands(args)
        known_consts, known_arrays = known_values(consts), known_values(arrays)
        sums = [constant_like_aval(a, 0) for a in plan.sums]
        moving = [instantiate(ct) for ct in select_masked(cts[:n], plan.carry_nonzero)]
        sliced = [*known_arrays, *drop_zeros(cts[n:])]
        op = evolve(
            self,
            jaxpr=plan.step,
            num_consts=len(plan.consts) + len(known_consts),
            num_carry=len(sums) + len(moving),
            reverse=not self.reverse,
        )
        outs = bind(op, *plan.consts, *known_consts, *sums, *moving, *sliced)
        k, m = len(sums), len(sums) + len(moving)
        last = m + sum(plan.slices_nonzero)
        stacks = [sliced[i] for i in plan.stacked_inputs] + [*outs[last:]]
        contracted = eval_jaxpr(plan.tail, (), stacks)
        at_consts = merge_masked(plan.summed, outs[:k], contracted)
        ct_carry = insert_zeros(outs[k:m], plan.carry_nonzero, [x.aval for x in carry])
        return [
            *insert_cotangents(consts, at_consts, plan.consts_nonzero),
            *[ct if isinstance(x, UndefinedPrimal) else None for ct, x in zip(ct_carry, carry, strict=True)],
            *insert_cotangents(arrays, outs[m:last], plan.slices_nonzero),
        ]

    # -------------------------------------------------------------- lowering

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        consts, carry, arrays = self.split_operands(operands)
        buffers = [_zero_buffer(builder, a) for a in self.stacked(self.jaxpr.out_avals[self.num_carry :])]
        n, unroll = self.num_carry, 1 if is_symbolic_dim(self.length) else max(1, min(self.unroll, self.length))

        def step(b: Builder, i: IrValue, state: Sequence[IrValue]) -> Sequence[IrValue]:
            if self.reverse:
                (i,) = b.emit("stablehlo.subtract", [_counter_constant(b, self.length - 1), i], [COUNTER_AVAL])
            outs = b.inline(self.jaxpr, [*consts, *state[:n], *[_read_row(b, x, i) for x in arrays]])
            return [*outs[:n], *[_write_row(b, x, y, i) for x, y in zip(state[n:], outs[n:], strict=True)]]

        def steps(b: Builder, first: IrValue, count: int, state: Sequence[IrValue]) -> Sequence[IrValue]:
            for k in range(count):
                (i,) = b.emit("stablehlo.add", [first, _counter_constant(b, k)], [COUNTER_AVAL]) if k else (first,)
                state = step(b, i, state)
            return state

        state: Sequence[IrValue] = [*carry, *buffers]
        rounds = self.length // unroll
        if is_symbolic_dim(rounds) or rounds > 1:

            def condition(b: Builder, xs: Sequence[IrValue]) -> Sequence[IrValue]:
                return b.emit(
                    "stablehlo.compare",
                    [xs[0], _counter_constant(b, rounds * unroll)],
                    [_BOOL_AVAL],
                    {"comparison_direction": _LESS_THAN},
                )

            def body(b: Builder, xs: Sequence[IrValue]) -> Sequence[IrValue]:
                (following,) = b.emit("stablehlo.add", [xs[0], _counter_constant(b, unroll)], [COUNTER_AVAL])
                return [following, *steps(b, xs[0], unroll, xs[1:])]

            _, *state = builder.loop([_counter_constant(builder, 0), *state], condition, body)
            done = rounds * unroll
        else:
            done = 0
        return (
            steps(builder, _counter_constant(builder, done), self.length - done, state) if done < self.length else state
        )


_BOOL_AVAL: Final = ShapedArray((), np.dtype(np.bool_))
_LESS_THAN: Final = MlirText("#stablehlo<comparison_direction LT>")


def _counter_constant(builder: Builder, n: int) -> IrValue:
    return builder.dimension(n, COUNTER_AVAL)


def _zero_buffer(builder: Builder, aval: ShapedArray) -> IrValue:
    zero = builder.constant(Literal(0, ShapedArray((), aval.dtype)))
    return BroadcastInDim(aval.shape, ()).lower(builder, zero)[0] if aval.shape else zero


def _start_indices(builder: Builder, x: IrValue, i: IrValue) -> list[IrValue]:
    return [i] + [_counter_constant(builder, 0)] * (x.aval.ndim - 1)


def _read_row(builder: Builder, x: IrValue, i: IrValue) -> IrValue:
    """Returns the slice of an array at index `i` of the first axis."""
    shape = x.aval.shape
    (row,) = DynamicSlice((1, *shape[1:])).lower(builder, x, *_start_indices(builder, x, i))
    return Reshape(shape[1:]).lower(builder, row)[0]


def _write_row(builder: Builder, x: IrValue, y: IrValue, i: IrValue) -> IrValue:
    """Returns the array with its slice at index `i` of the first axis replaced by `y`."""
    (row,) = Reshape((1, *y.aval.shape)).lower(builder, y)
    return DynamicUpdateSlice().lower(builder, x, row, *_start_indices(builder, x, i))[0]
