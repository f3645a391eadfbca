"""`scan` as an operation: a program applied step by step, with a carry and slices of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.bodies import (
    Structured,
    alone,
    chosen,
    known,
    linear,
    merged,
    nonzero,
    present,
    reads,
    rearranged,
    spread,
)
from tracefx.control.call import Call
from tracefx.control.chunks import in_pieces, sizes
from tracefx.control.saving import Policy, Reopenable, Reopened, reopened_body
from tracefx.control.scan_backward import backward
from tracefx.control.scan_halves import Halves, halves
from tracefx.core.avals import Axes, ShapedArray, show_avals
from tracefx.core.backend import BACKEND
from tracefx.core.builder import Builder, Ir, Text
from tracefx.core.entering import Collected, Entry, Form, called, count, flat
from tracefx.core.handler import bind
from tracefx.core.jaxpr import Jaxpr, eval_jaxpr
from tracefx.core.literal import Literal
from tracefx.core.passes import dce
from tracefx.core.primitive import Linear, MappedAxis, Primitive, Recorder, Tangent
from tracefx.core.values import Value
from tracefx.core.varying import Flow
from tracefx.interpreters.derived import Consts, Mask, batch_jaxpr, jvp_jaxpr
from tracefx.ops.basis import BroadcastInDim, Reshape, batch_first, filled, instantiate, move_axis
from tracefx.ops.dynamic import DynamicSlice, DynamicUpdateSlice

X = TypeVar("X")
COUNTER: Final = ShapedArray((), np.dtype(np.int32))


@final
@frozen(eq=False)
class Scan(Structured, Reopenable):
    """`length` steps of `jaxpr`: `(constants, carry, slices) -> (carry, slices of the results)`.

    The operands are the constants, the first carry, and arrays whose slices along the first axis the steps take, last
    to first if `reverse`. `unroll` steps stand in one round of the compiled loop.
    """

    name = "scan"
    jaxpr: Jaxpr
    length: int
    num_carry: int
    num_consts: int
    reverse: bool
    unroll: int
    checkpoint: int | str | None = field(default=None, metadata={"hide_default": True, "jax": False})
    """The length of pieces whose steps the backward pass repeats, or `"binomial"` for pieces in a tree."""

    @override
    def jaxprs(self) -> tuple[Jaxpr, ...]:
        return (self.jaxpr,)

    @override
    def with_jaxprs(self, *jaxprs: Jaxpr) -> Scan:
        return evolve(self, jaxpr=jaxprs[0])

    def parts(self, xs: Sequence[X]) -> tuple[Sequence[X], Sequence[X], Sequence[X]]:
        """What belongs to the constants, the carry, and the arrays that are sliced."""
        n, m = self.num_consts, self.num_consts + self.num_carry
        return xs[:n], xs[n:m], xs[m:]

    def stacked(self, avals: Sequence[ShapedArray]) -> list[ShapedArray]:
        return [a.with_axis(self.length, 0) for a in avals]

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        consts, carry, slices = self.parts(self.jaxpr.in_avals)
        expected = (*consts, *carry, *self.stacked(slices))
        if avals != expected:
            raise TypeError(f"scan takes ({show_avals(expected)}), got ({show_avals(avals)})")
        outs = self.jaxpr.out_avals
        if outs[: self.num_carry] != tuple(carry):
            raise TypeError(
                f"the body of scan takes the carry ({show_avals(carry)}) and gives "
                f"({show_avals(outs[: self.num_carry])})"
            )
        return [*carry, *self.stacked(outs[self.num_carry :])]

    @override
    def varies(self, operands: Sequence[Axes], count: int, flow: Flow) -> Sequence[Axes]:
        consts, carry, slices = self.parts(operands)
        while True:  # a carry varies from the first step on if it does after any
            outs = flow.through(self.jaxpr, [*consts, *carry, *slices])
            wider = [a | b for a, b in zip(carry, outs, strict=False)]
            if wider == list(carry):
                return [*carry, *outs[len(carry) :]]
            carry = wider

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        program = self.memo.get("alone", lambda: alone(self, [a.aval for a in args]))
        return BACKEND.value.run(program, args, self.name)

    # -------------------------------------------------------------- what nobody uses

    @override
    def prune(self, used_outs: tuple[bool, ...]) -> tuple[Scan, tuple[bool, ...], tuple[bool, ...]]:
        return self.memo.get(("prune", used_outs), lambda: self._pruned(used_outs))

    def _pruned(self, used_outs: Mask) -> tuple[Scan, Mask, Mask]:
        n = self.num_carry
        carry, results = used_outs[:n], used_outs[n:]
        while True:  # a carry is used if the next step's use of it is
            body = dce(self.jaxpr, carry + results)
            used = reads(body)
            _, used_carry, _ = self.parts(used)
            more = tuple([a or b for a, b in zip(carry, used_carry, strict=True)])
            if more == carry:
                break
            carry = more
        consts, _, slices = self.parts(used)
        left = (*consts, *carry, *slices)
        if all(left) and all(carry + results):
            return (self if body is self.jaxpr else evolve(self, jaxpr=body)), left, carry + results
        places = [i for i, use in enumerate(left) if use]
        pruned = evolve(self, jaxpr=rearranged(body, places), num_carry=sum(carry), num_consts=sum(consts))
        return pruned, left, carry + results

    # -------------------------------------------------------------- under other interpretations

    @override
    def entered(self, entry: Entry, args: Sequence[Value]) -> Sequence[Value]:
        n = self.num_carry
        (const_args, carry_args, array_args), what = self.parts(args), "a step of scan"
        consts, carry = [entry.form(x) for x in const_args], [entry.form(x) for x in carry_args]
        arrays = [entry.form(x) for x in array_args]
        slices, free = [form.step() for form in arrays], [None] * (len(self.jaxpr.outs) - n)
        state: Form | None = None
        while True:  # what a carry is after any step it is from the first on
            inside = entry.enter(self.jaxpr, [*consts, *carry, *slices], what, outs=[*carry, *free], state=state)
            if list(inside.outs[:n]) == carry and inside.state == state:
                break
            carry, state = list(inside.outs[:n]), inside.state
        first, last = len(inside.consts), len(inside.jaxpr.invars)
        kept = 0 if state is None else len(state.avals)
        fixed = first + kept + count(consts)
        places = [*range(first), *range(first + kept, fixed), *range(first, first + kept), *range(fixed, last)]
        op = evolve(
            self,
            jaxpr=rearranged(inside.jaxpr, places) if kept else inside.jaxpr,
            num_consts=fixed - kept,
            num_carry=kept + count(carry),
        )
        initial = entry.state(state)
        operands = [*flat(entry, const_args, consts), *initial, *flat(entry, carry_args, carry)]
        outs = bind(op, *inside.consts, *operands, *flat(entry, array_args, arrays))
        results = [*carry, *[form.stacked(self.length) for form in inside.outs[n:]]]
        gathered = [Collected(each.name, each.form.stacked(self.length)) for each in inside.collected]
        return called(entry, evolve(inside, outs=tuple(results), collected=tuple(gathered)), outs)

    # -------------------------------------------------------------- forward mode

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        given = nonzero(tangents)
        op, extra, out_nonzero = self.memo.get(("jvp", given), lambda: self._jvp(given))
        n, moving = self.num_carry, out_nonzero[: self.num_carry]
        consts, carry, arrays = self.parts(primals)
        d_consts, d_carry, d_arrays = self.parts(tangents)
        d_moving = [instantiate(t) for t in chosen(d_carry, moving)]
        outs = bind(op, *extra, *consts, *present(d_consts), *carry, *d_moving, *arrays, *present(d_arrays))
        first, last = n + sum(moving), n + sum(moving) + len(self.jaxpr.outs) - n
        results = [*outs[:n], *outs[first:last]]
        return results, spread([*outs[n:first], *outs[last:]], out_nonzero, [r.aval for r in results])

    def _jvp(self, given: Mask) -> tuple[Scan, Consts, Mask]:
        n = self.num_carry
        consts, carry, slices = map(tuple, self.parts(given))
        results = (False,) * (len(self.jaxpr.outs) - n)
        while True:  # a carry has a tangent from the first step on if it has one after any
            derived = jvp_jaxpr(self.jaxpr, consts + carry + slices, carry + results)
            if derived.out_nonzero[:n] == carry:
                break
            carry = derived.out_nonzero[:n]
        places = iter(range(len(derived.jaxpr.invars)))

        def take(count: int) -> list[int]:
            return [next(places) for _ in range(count)]

        extra, primals = take(len(derived.consts)), [take(len(p)) for p in (consts, carry, slices)]
        tangents = [take(sum(p)) for p in (consts, carry, slices)]
        inputs = extra + primals[0] + tangents[0] + primals[1] + tangents[1] + primals[2] + tangents[2]
        total, moving = len(self.jaxpr.outs), sum(carry)
        outs = [
            *range(n),
            *range(total, total + moving),
            *range(n, total),
            *range(total + moving, len(derived.jaxpr.outs)),
        ]
        op = evolve(
            self,
            jaxpr=rearranged(derived.jaxpr, inputs, outs),
            num_carry=n + moving,
            num_consts=len(extra) + len(primals[0]) + len(tangents[0]),
        )
        return op, derived.consts, derived.out_nonzero

    # -------------------------------------------------------------- batching

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        consts, carry, arrays = self.parts(args)
        const_dims, carry_dims, array_dims = self.parts(dims)
        # The first axis of an array is the loop's; a batch axis there moves behind it.
        arrays = [move_axis(x, 0, 1) if d == 0 else x for x, d in zip(arrays, array_dims, strict=True)]
        inner = (*const_dims, *carry_dims, *[None if d is None else max(d - 1, 0) for d in array_dims])
        op, extra, out_dims = self.memo.get(("batch", axis, inner), lambda: self._batch(axis, inner))
        n = self.num_carry
        carry = [
            x if out is None else batch_first(x, d, axis)
            for x, d, out in zip(carry, carry_dims, out_dims[:n], strict=True)
        ]
        outs = bind(op, *extra, *consts, *carry, *arrays)
        return outs, [*out_dims[:n], *[None if d is None else d + 1 for d in out_dims[n:]]]

    def _batch(self, axis: MappedAxis, dims: tuple[int | None, ...]) -> tuple[Scan, Consts, tuple[int | None, ...]]:
        n = self.num_carry
        consts, given, slices = map(tuple, self.parts(dims))
        carry = tuple([d is not None for d in given])
        results = (False,) * (len(self.jaxpr.outs) - n)
        while True:  # a carry differs along the batch from the first step on if it does after any
            places = tuple([0 if b else None for b in carry])
            derived = batch_jaxpr(self.jaxpr, axis, consts + places + slices, carry + results)
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
            return Call(self.name, self.in_checkpointed_pieces()).partial_eval(recorder, unknown, args)
        split = self._halves(tuple(unknown))
        outs, late, operands = self._first_half(split, tuple(unknown), args, recorder.evaluate)
        return merged(split.out_unknown, recorder.record(late, known(operands)), outs)

    def in_checkpointed_pieces(self) -> Jaxpr:
        """The loop as a program of checkpointed pieces, as reverse mode runs it."""
        return self.memo.get("pieces", self._in_pieces)

    def _in_pieces(self) -> Jaxpr:
        def loop(body: Jaxpr, length: int) -> Scan:
            return evolve(self, jaxpr=body, length=length, checkpoint=None)

        assert self.checkpoint is not None
        pieces = sizes(self.checkpoint, self.length)
        return in_pieces(self.jaxpr, loop, self.num_consts, self.num_carry, self.length, self.reverse, pieces)

    def _halves(self, unknown: Mask) -> Halves:
        key = ("unzip", unknown)
        return self.memo.get(key, lambda: halves(self.jaxpr, self.num_consts, self.num_carry, unknown))

    def _first_half(
        self,
        split: Halves,
        unknown: Mask,
        args: Sequence[Value | Linear],
        evaluate: Callable[[Primitive, Sequence[Value]], Sequence[Value]],
    ) -> tuple[Sequence[Value], Scan, Sequence[Value | Linear]]:
        """Run the known half: its outputs, and what is left to do with which operands."""
        (consts, carry, arrays), (late_consts, _, late_arrays) = self.parts(args), self.parts(unknown)
        known_consts = [*split.consts, *known(consts, late_consts)]
        known_carry, known_arrays = known(carry, split.carry_unknown), known(arrays, late_arrays)
        first = evolve(self, jaxpr=split.known, num_consts=len(known_consts), num_carry=len(known_carry))
        idle = not split.known.outs and not first.effects
        outs = [] if idle else evaluate(first, [*known_consts, *known_carry, *known_arrays])
        shared: Sequence[Value] = []
        if split.invariant.outs:
            shared = evaluate(Call("invariant", split.invariant), [known_consts[i] for i in split.invariant_inputs])
        n = split.out_unknown.count(False)
        results, kept = outs[len(known_carry) : n], outs[n:]
        known_consts = known_consts[len(split.consts) :]
        given = [*[known_consts[i] for i in split.late_consts], *shared, *chosen(consts, late_consts)]
        moving = chosen(carry, split.carry_unknown)
        sliced = [known_arrays[i] for i in split.late_slices] + [results[i] for i in split.late_results]
        late = evolve(self, jaxpr=split.late, num_consts=len(given), num_carry=len(moving))
        return outs[:n], late, [*given, *moving, *sliced, *kept, *chosen(arrays, late_arrays)]

    @override
    def reopened(self, needed: Mask, policy: Policy) -> Reopened | None:
        wanted = (*(True,) * self.num_carry, *needed[self.num_carry :])  # all that a step may need of the one before
        inside = reopened_body(self.jaxpr, wanted, policy)
        if inside is None:
            return None
        first, again, saved = inside
        return Reopened(evolve(self, jaxpr=first), evolve(self, jaxpr=again), tuple(self.stacked(saved)), wanted)

    # -------------------------------------------------------------- transposition

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | Linear) -> Sequence[Tangent | None]:
        lin = linear(args)
        split = self._halves(lin)
        if all(split.carry_unknown):
            return self._transposed(cts, args, lin)
        # What the carry does beside the linear map is done first, forwards.
        _, late, operands = self._first_half(split, lin, args, lambda op, xs: bind(op, *xs))
        pulled = late.transpose(chosen(cts, split.out_unknown), *operands)
        results = iter([ct for ct, x in zip(pulled, operands, strict=True) if isinstance(x, Linear)])
        return [next(results) if isinstance(a, Linear) else None for a in args]

    def _transposed(
        self, cts: Sequence[Tangent], args: Sequence[Value | Linear], lin: Mask
    ) -> Sequence[Tangent | None]:
        n, given = self.num_carry, nonzero(cts)
        lin_consts, lin_carry, lin_arrays = self.parts(lin)
        mask = (*lin_consts, *(True,) * n, *lin_arrays)
        key = ("transpose", mask, given)
        plan = self.memo.get(key, lambda: backward(self.jaxpr, self.num_consts, n, mask, given, self.length))
        consts, _, arrays = self.parts(args)
        known_consts = [x for x in consts if not isinstance(x, Linear)]
        known_arrays = [x for x in arrays if not isinstance(x, Linear)]
        sums = [filled(a, 0) for a in plan.sums]
        moving = [instantiate(ct) for ct in chosen(cts[:n], plan.carry_nonzero)]
        sliced = [*known_arrays, *present(cts[n:])]
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
        at_consts = merged(plan.summed, outs[:k], contracted)
        avals = self.jaxpr.in_avals
        const_avals, carry_avals, slice_avals = self.parts(avals)
        ct_consts = iter(spread(at_consts, plan.consts_nonzero, chosen(const_avals, lin_consts)))
        ct_carry = spread(outs[k:m], plan.carry_nonzero, carry_avals)
        ct_arrays = iter(spread(outs[m:last], plan.slices_nonzero, self.stacked(chosen(slice_avals, lin_arrays))))
        return [
            *[next(ct_consts) if is_linear else None for is_linear in lin_consts],
            *[ct if is_linear else None for ct, is_linear in zip(ct_carry, lin_carry, strict=True)],
            *[next(ct_arrays) if is_linear else None for is_linear in lin_arrays],
        ]

    # -------------------------------------------------------------- lowering

    @override
    def lower(self, builder: Builder, *operands: Ir) -> Sequence[Ir]:
        consts, carry, arrays = self.parts(operands)
        buffers = [_zeros(builder, a) for a in self.stacked(self.jaxpr.out_avals[self.num_carry :])]
        n, unroll = self.num_carry, max(1, min(self.unroll, self.length))

        def step(b: Builder, i: Ir, state: Sequence[Ir]) -> Sequence[Ir]:
            if self.reverse:
                (i,) = b.emit("stablehlo.subtract", [_number(b, self.length - 1), i], [COUNTER])
            outs = b.inline(self.jaxpr, [*consts, *state[:n], *[_taken(b, x, i) for x in arrays]])
            return [*outs[:n], *[_put(b, x, y, i) for x, y in zip(state[n:], outs[n:], strict=True)]]

        def steps(b: Builder, first: Ir, count: int, state: Sequence[Ir]) -> Sequence[Ir]:
            for k in range(count):
                (i,) = b.emit("stablehlo.add", [first, _number(b, k)], [COUNTER]) if k else (first,)
                state = step(b, i, state)
            return state

        state: Sequence[Ir] = [*carry, *buffers]
        rounds = self.length // unroll
        if rounds > 1:

            def condition(b: Builder, xs: Sequence[Ir]) -> Sequence[Ir]:
                return b.emit(
                    "stablehlo.compare", [xs[0], _number(b, rounds * unroll)], [_TRUTH], {"comparison_direction": _LESS}
                )

            def body(b: Builder, xs: Sequence[Ir]) -> Sequence[Ir]:
                (following,) = b.emit("stablehlo.add", [xs[0], _number(b, unroll)], [COUNTER])
                return [following, *steps(b, xs[0], unroll, xs[1:])]

            _, *state = builder.loop([_number(builder, 0), *state], condition, body)
            done = rounds * unroll
        else:
            done = 0
        return steps(builder, _number(builder, done), self.length - done, state) if done < self.length else state


_TRUTH: Final = ShapedArray((), np.dtype(np.bool_))
_LESS: Final = Text("#stablehlo<comparison_direction LT>")


def _number(builder: Builder, n: int) -> Ir:
    return builder.constant(Literal(n, COUNTER))


def _zeros(builder: Builder, aval: ShapedArray) -> Ir:
    zero = builder.constant(Literal(0, ShapedArray((), aval.dtype)))
    return BroadcastInDim(aval.shape, ()).lower(builder, zero)[0] if aval.shape else zero


def _starts(builder: Builder, x: Ir, i: Ir) -> list[Ir]:
    return [i] + [_number(builder, 0)] * (x.aval.ndim - 1)


def _taken(builder: Builder, x: Ir, i: Ir) -> Ir:
    """The slice at `i` of an array."""
    shape = x.aval.shape
    (row,) = DynamicSlice((1, *shape[1:])).lower(builder, x, *_starts(builder, x, i))
    return Reshape(shape[1:]).lower(builder, row)[0]


def _put(builder: Builder, x: Ir, y: Ir, i: Ir) -> Ir:
    """The array with a slice written at `i`."""
    (row,) = Reshape((1, *y.aval.shape)).lower(builder, y)
    return DynamicUpdateSlice().lower(builder, x, row, *_starts(builder, x, i))[0]
