"""`while` as an operation: a program applied as long as another says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.call import Call
from tracefx.control.checkpointed_loops import checkpoint_scan, sqrt_chunk_length
from tracefx.control.cond import INDEX_AVAL, Cond
from tracefx.control.control_flow import (
    ControlFlowPrimitive,
    drop_zeros,
    insert_zeros,
    merge_masked,
    nonzero_mask,
    rearrange_jaxpr,
    select_masked,
    select_unmasked,
    single_eqn_jaxpr,
    used_inputs,
)
from tracefx.control.drop_debug_effects import drop_debug_effects
from tracefx.control.scan import Scan
from tracefx.control.sow import IN_BATCHED_WHILE, mark_uncollectable
from tracefx.core.avals import Axes, ShapedArray, show_avals
from tracefx.core.backend import BACKEND
from tracefx.core.body_transform import BodyInterpreter, TransformedBody, ValueSpec, flatten_to_arrays, unpack_results
from tracefx.core.effects import non_debug_effects
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import MappedAxis, Recorder, Tangent, UndefinedPrimal
from tracefx.core.values import Value
from tracefx.core.varying import Flow, HasVaryingRule
from tracefx.interpreters.jaxpr_transforms import Consts, Mask, batch_jaxpr, jvp_jaxpr, unzip_jaxpr
from tracefx.interpreters.stage import stage
from tracefx.lowering import Builder, IrValue
from tracefx.ops.elementwise.selection import select_n
from tracefx.ops.reductions.reduction import reduce_or
from tracefx.ops.structural import batch_first, broadcast_in_dim, convert_element_type, instantiate
from tracefx.passes.dce import dce, renumber

X = TypeVar("X")
BOOL_AVAL: Final = ShapedArray((), np.dtype(np.bool_))


@final
@frozen(eq=False)
class While(ControlFlowPrimitive, HasVaryingRule):
    """While `cond_jaxpr(constants, carry)` holds, the next carry is `body_jaxpr(constants, carry)`.

    The operands are the constants of the condition, those of the body, and the first carry. `max_steps` says that
    there are never more steps than that, which makes the loop differentiable in reverse.
    """

    name = "while"
    body_jaxpr: Jaxpr
    body_nconsts: int
    cond_jaxpr: Jaxpr
    cond_nconsts: int
    max_steps: int | None = field(default=None, metadata={"hide_default": True, "jax": False})

    @override
    def jaxprs(self) -> tuple[Jaxpr, ...]:
        return self.cond_jaxpr, self.body_jaxpr

    @override
    def with_jaxprs(self, *jaxprs: Jaxpr) -> While:
        return evolve(self, cond_jaxpr=jaxprs[0], body_jaxpr=jaxprs[1])

    def split_operands(self, xs: Sequence[X]) -> tuple[Sequence[X], Sequence[X], Sequence[X]]:
        """What belongs to the condition's constants, the body's, and the carry."""
        n, m = self.cond_nconsts, self.cond_nconsts + self.body_nconsts
        return xs[:n], xs[n:m], xs[m:]

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        cond_consts, body_consts, carry = map(tuple, self.split_operands(avals))
        for what, body, given in (
            ("condition", self.cond_jaxpr, cond_consts + carry),
            ("body", self.body_jaxpr, body_consts + carry),
        ):
            if body.in_avals != given:
                raise TypeError(f"the {what} of while takes ({show_avals(body.in_avals)}), got ({show_avals(given)})")
        if self.cond_jaxpr.out_avals != (BOOL_AVAL,):
            raise TypeError(
                f"the condition of while must give {BOOL_AVAL}, not ({show_avals(self.cond_jaxpr.out_avals)})"
            )
        if self.body_jaxpr.out_avals != carry:
            raise TypeError(
                f"the body of while takes the carry ({show_avals(carry)}) and gives "
                f"({show_avals(self.body_jaxpr.out_avals)})"
            )
        return carry

    @override
    def varies(self, operands: Sequence[Axes], count: int, flow: Flow) -> Sequence[Axes]:
        cond_consts, body_consts, carry = self.split_operands(operands)
        while True:  # a carry varies from the first step on if it does after any, or if the number of steps does
            (goes_on,) = flow.through(self.cond_jaxpr, [*cond_consts, *carry])
            outs = flow.through(self.body_jaxpr, [*body_consts, *carry])
            wider = [a | b | goes_on for a, b in zip(carry, outs, strict=True)]
            if wider == list(carry):
                return list(carry)
            carry = wider

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        program = self.memo.get("alone", lambda: single_eqn_jaxpr(self, [a.aval for a in args]))
        return BACKEND.value.run(program, args, self.name)

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        cond_consts, body_consts, carry = self.split_operands(operands)
        return builder.loop(
            carry,
            lambda b, state: b.inline(self.cond_jaxpr, [*cond_consts, *state]),
            lambda b, state: b.inline(self.body_jaxpr, [*body_consts, *state]),
        )

    # -------------------------------------------------------------- what nobody uses

    @override
    def prune(self, used_outs: tuple[bool, ...]) -> tuple[While, tuple[bool, ...], tuple[bool, ...]]:
        return self.memo.get(("prune", used_outs), lambda: self._pruned(used_outs))

    def _pruned(self, used_outs: Mask) -> tuple[While, Mask, Mask]:
        cond, n, m = dce(self.cond_jaxpr), self.cond_nconsts, self.body_nconsts
        asked = used_inputs(cond)
        carry = tuple([a or b for a, b in zip(used_outs, asked[n:], strict=True)])
        while True:  # a carry is used if the next step's use of it is
            body = dce(self.body_jaxpr, carry)
            used = used_inputs(body)
            more = tuple([a or b for a, b in zip(carry, used[m:], strict=True)])
            if more == carry:
                break
            carry = more
        if all(carry) and all(asked[:n]) and all(used[:m]):
            same = cond is self.cond_jaxpr and body is self.body_jaxpr
            return (self if same else self.with_jaxprs(cond, body)), (True,) * (n + m + len(carry)), carry
        op = evolve(
            self,
            cond_jaxpr=rearrange_jaxpr(cond, _mask_indices(asked[:n] + carry)),
            cond_nconsts=sum(asked[:n]),
            body_jaxpr=rearrange_jaxpr(body, _mask_indices(used[:m] + carry)),
            body_nconsts=sum(used[:m]),
        )
        return op, asked[:n] + used[:m] + carry, carry

    # -------------------------------------------------------------- under other interpretations

    @override
    def transform_bodies(self, entry: BodyInterpreter, args: Sequence[Value]) -> Sequence[Value]:
        cond_args, body_args, carry_args = self.split_operands(args)
        cond_consts, body_consts = [entry.spec(x) for x in cond_args], [entry.spec(x) for x in body_args]
        carry = [entry.spec(x) for x in carry_args]
        state: ValueSpec | None = None
        what = "a step of while_loop"
        while True:  # what a carry is after any step it is from the first on
            cond = entry.transform_body(
                self.cond_jaxpr, [*cond_consts, *carry], "the condition of while_loop", state=state, bare=True
            )
            body = entry.transform_body(
                self.body_jaxpr, [*body_consts, *carry], what, outs=carry, state=cond.state or state
            )
            after = body.state or cond.state
            if list(body.outs) == carry and after == state:
                break
            carry, state = list(body.outs), after
        asked = [*cond.consts, *flatten_to_arrays(entry, cond_args, cond_consts)]
        done = [*body.consts, *flatten_to_arrays(entry, body_args, body_consts)]
        first = [*entry.state(state), *flatten_to_arrays(entry, carry_args, carry)]
        last = [a for each in body.collected for a in entry.collected_of_empty_loop(each)]
        inside = evolve(body, collected=(*cond.collected, *body.collected))
        ask, step = _TransformedPart.of(cond, len(asked)), _TransformedPart.of(body, len(done))
        n = len(first)
        if ask.keeps_state and not cond.collected:
            op = evolve(
                self,
                cond_jaxpr=_stage_like(lambda *xs: ask(xs, n)[-1:], [*asked, *first, *last]),
                cond_nconsts=len(asked),
                body_jaxpr=_stage_like(lambda *xs: step(xs, n), [*done, *first, *last]),
                body_nconsts=len(done),
            )
            return unpack_results(entry, inside, bind(op, *asked, *done, *first, *last))
        # What the condition does besides must come out of the loop, so a step asks at its end if there is another.
        k, m = len(asked), len(asked) + len(done)

        def answer(xs: Sequence[Value]) -> list[Value]:
            """Whether to go on, the state, the carry, and what the condition collects."""
            found = ask(xs, n)
            s = ask.states
            return [found[s], *found[:s], *xs[k + s : k + n], *found[s + 1 :]]

        def both(*xs: Value) -> list[Value]:
            made = step([*xs[k:m], *xs[m + 1 : m + 1 + n]], n)
            return [*answer([*xs[:k], *made[:n]]), *made[n:]]

        going, *rest = bind(Call("condition", _stage_like(lambda *xs: answer(xs), [*asked, *first])), *asked, *first)
        op = While(
            _stage_like(both, [*asked, *done, going, *rest, *last]),
            m,
            _stage_like(lambda going, *_: [going], [going, *rest, *last]),
            0,
            self.max_steps,
        )
        return unpack_results(entry, inside, bind(op, *asked, *done, going, *rest, *last)[1:])

    # -------------------------------------------------------------- forward mode

    @property
    def _invariant(self) -> Mask:
        """The carries that a step returns unchanged."""
        given = self.body_jaxpr.invars[self.body_nconsts :]
        return tuple([out is v for out, v in zip(self.body_jaxpr.outs, given, strict=True)])

    def _hoist(self, invariant: Mask) -> While:
        """The loop with the invariant carries as constants, the last ones of the condition and of the body."""
        n, m, places = self.cond_nconsts, self.body_nconsts, range(len(invariant))
        order = [*select_masked(places, invariant), *select_unmasked(places, invariant)]
        return evolve(
            self,
            cond_jaxpr=rearrange_jaxpr(self.cond_jaxpr, [*range(n), *[n + i for i in order]]),
            cond_nconsts=n + sum(invariant),
            body_jaxpr=rearrange_jaxpr(
                self.body_jaxpr, [*range(m), *[m + i for i in order]], select_unmasked(places, invariant)
            ),
            body_nconsts=m + sum(invariant),
        )

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        d_cond_consts, d_consts, d_carry = self.split_operands(tangents)
        invariant = self._invariant
        if any(nonzero_mask(select_masked(d_carry, invariant))) and not all(invariant):
            cond_consts, body_consts, carry = self.split_operands(primals)
            still, d_still = select_masked(carry, invariant), select_masked(d_carry, invariant)
            outs, d_outs = self.memo.get("hoisted", lambda: self._hoist(invariant)).jvp(
                [*cond_consts, *still, *body_consts, *still, *select_unmasked(carry, invariant)],
                [*d_cond_consts, *d_still, *d_consts, *d_still, *select_unmasked(d_carry, invariant)],
            )
            return merge_masked(invariant, still, outs), merge_masked(invariant, d_still, d_outs)
        given, start = nonzero_mask(d_consts), nonzero_mask(d_carry)
        op, extra, moving = self.memo.get(("jvp", given, start), lambda: self._jvp(given, start))
        cond_consts, body_consts, carry = self.split_operands(primals)
        d_moving = [instantiate(t) for t in select_masked(d_carry, moving)]
        outs = bind(op, *cond_consts, *extra, *body_consts, *drop_zeros(d_consts), *carry, *d_moving)
        n = len(carry)
        return outs[:n], insert_zeros(outs[n:], moving, [c.aval for c in carry])

    def _jvp(self, consts: Mask, start: Mask) -> tuple[While, Consts, Mask]:
        carry = start
        while True:  # a carry has a tangent from the first step on if it has one after any
            derived = jvp_jaxpr(self.body_jaxpr, consts + carry, carry)
            if derived.out_nonzero == carry:
                break
            carry = derived.out_nonzero
        n_extra, n_consts, n_carry = len(derived.consts), len(consts), len(carry)
        fixed, first = n_extra + n_consts, n_extra + n_consts + n_carry
        inputs = [*range(fixed), *range(first, first + sum(consts)), *range(fixed, first)]
        inputs += range(first + sum(consts), len(derived.jaxpr.invars))
        op = evolve(
            self,
            cond_jaxpr=_with_unused_inputs(
                self.cond_jaxpr, [a.tangent() for a in select_masked(self.body_jaxpr.out_avals, carry)]
            ),
            body_jaxpr=rearrange_jaxpr(derived.jaxpr, inputs),
            body_nconsts=fixed + sum(consts),
        )
        return op, derived.consts, carry

    # -------------------------------------------------------------- batching

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        plan = self.memo.get(("batch", axis, tuple(dims)), lambda: self._batch(axis, tuple(dims)))
        (cond_consts, body_consts, carry), (_, _, carry_dims) = self.split_operands(args), self.split_operands(dims)
        carry = [batch_first(x, d, axis) if b else x for x, d, b in zip(carry, carry_dims, plan.carry, strict=True)]
        out_dims = [0 if b else None for b in plan.carry]
        asked = [*plan.cond_consts, *cond_consts]
        done = [*plan.body_consts, *body_consts]
        if plan.first is None:
            return bind(plan.op, *asked, *done, *carry), out_dims
        going = bind(Call("condition", plan.first), *asked, *carry)
        return bind(plan.op, *asked, *done, *going, *carry)[1:], out_dims

    def _batch(self, axis: MappedAxis, dims: tuple[int | None, ...]) -> _BatchedWhile:
        cond_dims, body_dims, start = map(tuple, self.split_operands(dims))
        carry = tuple([d is not None for d in start])
        given = self.body_jaxpr.invars[self.body_nconsts :]
        while True:  # a carry differs along the batch from the first step on if it does after any
            places = tuple([0 if b else None for b in carry])
            body = batch_jaxpr(self.body_jaxpr, axis, body_dims + places, carry)
            cond = batch_jaxpr(self.cond_jaxpr, axis, cond_dims + places)
            alike = cond.out_dims == (None,)
            more = tuple([d is not None for d in body.out_dims])
            if not alike:  # what steps change differs with their number
                more = tuple([b or x is not v for b, x, v in zip(more, self.body_jaxpr.outs, given, strict=True)])
            if more == carry:
                break
            carry = more
        cond_nconsts, body_nconsts = len(cond.consts) + self.cond_nconsts, len(body.consts) + self.body_nconsts
        if alike:
            op = While(body.jaxpr, body_nconsts, cond.jaxpr, cond_nconsts, self.max_steps)
            return _BatchedWhile(op, cond.consts, body.consts, carry, None)
        self._require_no_effects()
        body = evolve(body, jaxpr=mark_uncollectable(body.jaxpr, IN_BATCHED_WHILE))
        going = batch_jaxpr(self.cond_jaxpr, axis, cond_dims + places, (True,))
        going = evolve(going, jaxpr=mark_uncollectable(going.jaxpr, IN_BATCHED_WHILE))
        assert len(going.consts) == len(cond.consts)
        n, m = cond_nconsts, cond_nconsts + body_nconsts

        def step(*args: Value) -> list[Value]:
            asked, done, (goes, *old) = args[:n], args[n:m], args[m:]
            new = eval_jaxpr(body.jaxpr, (), [*done, *old])
            kept = [_where(goes, x, y) if b and x is not y else x for x, y, b in zip(new, old, carry, strict=True)]
            return [*eval_jaxpr(going.jaxpr, (), [*asked, *kept]), *kept]

        each = ShapedArray((axis.size,), BOOL_AVAL.dtype)
        carried = body.jaxpr.in_avals[body_nconsts:]
        fixed = (*going.jaxpr.in_avals[:n], *body.jaxpr.in_avals[:body_nconsts])
        stepping, _ = stage(step, [*fixed, each, *carried])
        any_goes, _ = stage(lambda goes, *_: [reduce_or(goes, (0,))], [each, *carried])
        op = While(stepping, m, any_goes, 0, self.max_steps)
        return _BatchedWhile(op, going.consts, body.consts, carry, going.jaxpr)

    def _require_no_effects(self) -> None:
        shown = ", ".join(sorted(map(str, non_debug_effects(self.effects))))
        if shown:
            raise ValueError(
                "vmap of while_loop: its condition differs along the batch, so that all go on until the last is done, "
                f"but it has effects ({shown}); take them out of the loop, or loop over the batch with lax.map"
            )

    # -------------------------------------------------------------- partial evaluation

    @override
    def partial_eval(self, recorder: Recorder, unknown: Sequence[bool], args: Sequence[Value]) -> Sequence[Value]:
        """What is known of the carry is computed now; the rest is put off with the whole loop, which runs again."""
        if self.max_steps is not None:
            return Call(self.name, self.memo.get("pieces", self._checkpointed_jaxpr)).partial_eval(
                recorder, unknown, args
            )
        mask = tuple(unknown)
        plan = self.memo.get(("unzip", mask), lambda: self._unzip(mask))
        if plan is None:
            return recorder.record(self, args)
        shown = ", ".join(sorted(map(str, non_debug_effects(self.effects))))
        if shown:
            raise ValueError(
                "linearize and jacfwd of while_loop run the loop again for the tangents, but it has effects "
                f"({shown}), which must not happen twice: take them out of the loop, or differentiate with jvp"
            )
        now, consts, late, out_unknown = plan
        cond_consts, body_consts, carry = self.split_operands(args)
        _, late_consts, _ = self.split_operands(unknown)
        operands = [
            *cond_consts,
            *consts,
            *select_unmasked(body_consts, late_consts),
            *select_unmasked(carry, out_unknown),
        ]
        outs = recorder.evaluate(now, operands) if operands or now.effects else []
        later = recorder.record(late, args)
        return merge_masked(out_unknown, select_masked(later, out_unknown), outs)

    def _unzip(self, unknown: Mask) -> tuple[While, Consts, While, Mask] | None:
        """The loop of the known carries alone, and which carries are unknown; `None` if all depends on them.

        Beside the first what its rules brought along, beside the second the whole loop as it runs again.
        """
        cond_consts, consts, carry = map(tuple, self.split_operands(unknown))
        while True:
            split = unzip_jaxpr(self.body_jaxpr, consts + carry, carry)
            if split.out_unknown == carry:
                break
            carry = split.out_unknown
        asked = used_inputs(self.cond_jaxpr)[self.cond_nconsts :]
        if any(cond_consts) or any(a and u for a, u in zip(asked, carry, strict=True)):
            return None
        n = carry.count(False)
        if not n:
            return None
        brought: Consts = ()
        if self.body_jaxpr.effects:  # of which some may depend on what is unknown
            brought = split.consts
            body = dce(split.known, (True,) * n + (False,) * (len(split.known.outs) - n))
        else:  # without residuals the known half is the body's own computation of these carries
            left = [i for i, u in enumerate(consts + carry) if not u]
            body = rearrange_jaxpr(dce(self.body_jaxpr, tuple([not u for u in carry])), left)
        places = [*range(self.cond_nconsts), *[self.cond_nconsts + i for i, u in enumerate(carry) if not u]]
        cond = rearrange_jaxpr(self.cond_jaxpr, places)
        now = While(body, len(brought) + consts.count(False), cond, self.cond_nconsts)
        late = self.with_jaxprs(
            drop_debug_effects(self.cond_jaxpr, (False,) * len(self.cond_jaxpr.invars)),
            drop_debug_effects(self.body_jaxpr, consts + carry),
        )
        return now, brought, late, carry

    # -------------------------------------------------------------- transposition

    def checkpointed_jaxpr(self) -> Jaxpr:
        """The loop as a program of checkpointed pieces, as reverse mode runs it."""
        return self.memo.get("pieces", self._checkpointed_jaxpr)

    def _checkpointed_jaxpr(self) -> Jaxpr:
        """The loop as a scan of `max_steps` steps in checkpointed pieces, which does nothing once it is done."""
        assert self.max_steps is not None
        n, m = self.cond_nconsts, self.cond_nconsts + self.body_nconsts
        steps = self.max_steps

        def step(*args: Value) -> list[Value]:
            new = eval_jaxpr(self.body_jaxpr, (), [*args[n:m], *args[m + 1 :]])
            return [*eval_jaxpr(self.cond_jaxpr, (), [*args[:n], *new]), *new]

        avals = [*self.cond_jaxpr.in_avals[:n], *self.body_jaxpr.in_avals[: self.body_nconsts], BOOL_AVAL]
        avals += self.body_jaxpr.out_avals
        stepping, _ = stage(step, avals)
        rest = len(avals) - m

        def guarded(piece: Jaxpr) -> Jaxpr:
            """The piece, which hands on the carry as it is if the loop is done."""
            done = Jaxpr((), piece.invars, (), piece.invars[m:])
            op = Cond((renumber(done), piece))

            def chosen_piece(*args: Value) -> Sequence[Value]:
                return bind(op, convert_element_type(args[m], INDEX_AVAL.dtype), *args)

            return stage(chosen_piece, piece.in_avals)[0]

        def loop(body: Jaxpr, length: int) -> Scan:
            return Scan(body, length, rest, m, reverse=False, unroll=1)

        pieces = checkpoint_scan(guarded(stepping), loop, m, rest, steps, False, (sqrt_chunk_length(steps),), guarded)

        def run(*args: Value) -> list[Value]:
            goes = eval_jaxpr(self.cond_jaxpr, (), [*args[:n], *args[m:]])
            return eval_jaxpr(pieces, (), [*args[:m], *goes, *args[m:]])[1:]

        return stage(run, [*avals[:m], *avals[m + 1 :]])[0]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        if self.max_steps is not None:
            return Call(self.name, self.checkpointed_jaxpr()).transpose(cts, *args)
        cond_args, body_args, carry_args = self.split_operands(args)
        reached = zip(self._invariant, carry_args, cts, strict=True)
        if not any(isinstance(x, UndefinedPrimal) for x in (*cond_args, *body_args)) and all(
            still or not (isinstance(x, UndefinedPrimal) or nonzero_mask([ct])[0]) for still, x, ct in reached
        ):
            passed = [ct if isinstance(x, UndefinedPrimal) else None for x, ct in zip(carry_args, cts, strict=True)]
            return [None] * (len(args) - len(passed)) + passed
        raise ValueError(
            "reverse-mode differentiation doesn't work through what steps of lax.while_loop change, nor through "
            "lax.fori_loop with bounds that are traced: how many steps there are to go back through is known only when "
            "the program runs. Give while_loop a bound, max_steps=n, use fori_loop with Python integers or scan, or "
            "differentiate forward with jvp or jacfwd"
        )


@final
@frozen(eq=False)
class _BatchedWhile:
    """A loop for a whole batch: its operation, what the rules brought along, which carries differ along the batch.

    Where the condition does, the loop has one more carry, which goes in front and says who goes on; `first` computes
    it before the first step.
    """

    op: While
    cond_consts: Consts
    body_consts: Consts
    carry: Mask
    first: Jaxpr | None


@final
@frozen(eq=False)
class _TransformedPart:
    """The condition or the body of a loop that was entered, on constants and what the loop carries."""

    jaxpr: Jaxpr
    consts: int
    """How many arrays come before the state: what the handler closes over."""
    fixed: int
    """How many are constants of the loop."""
    states: int

    @classmethod
    def of(cls, entered: TransformedBody, fixed: int) -> _TransformedPart:
        states = 0 if entered.state is None else len(entered.state.avals)
        return cls(entered.jaxpr, len(entered.consts), fixed, states)

    @property
    def keeps_state(self) -> bool:
        return self.jaxpr.outs[: self.states] == self.jaxpr.invars[self.consts : self.consts + self.states]

    def __call__(self, xs: Sequence[Value], carried: int) -> list[Value]:
        """`xs` are the constants, the state, the carry, and what is carried behind them."""
        own, operands = xs[: self.consts], xs[self.consts : self.fixed]
        state, carry = xs[self.fixed : self.fixed + self.states], xs[self.fixed + self.states : self.fixed + carried]
        return eval_jaxpr(self.jaxpr, (), [*own, *state, *operands, *carry])


def _stage_like(f: Callable[..., Sequence[Value]], like: Sequence[Value]) -> Jaxpr:
    jaxpr, consts = stage(f, [x.aval for x in like])
    assert not consts
    return jaxpr


def _mask_indices(mask: Mask) -> list[int]:
    return [i for i, use in enumerate(mask) if use]


def _with_unused_inputs(jaxpr: Jaxpr, avals: Sequence[ShapedArray]) -> Jaxpr:
    """The program with more inputs, which it doesn't read."""
    return rearrange_jaxpr(jaxpr, [*range(len(jaxpr.invars)), *avals])


def _where(goes: Value, new: Value, old: Value) -> Value:
    shape = new.aval.shape
    return select_n(broadcast_in_dim(goes, shape, (0,)) if len(shape) > 1 else goes, old, new)
