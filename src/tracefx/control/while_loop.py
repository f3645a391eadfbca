"""`while` as a primitive: applies a jaxpr as long as a condition holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize_on_object
from tracefx.control.call import Call
from tracefx.control.checkpointed_loops import checkpoint_scan, sqrt_chunk_length
from tracefx.control.cond import INDEX_AVAL, Cond
from tracefx.control.control_flow import ControlFlowPrimitive, rearrange_jaxpr, used_inputs
from tracefx.control.drop_debug_effects import drop_debug_effects
from tracefx.control.scan import Scan
from tracefx.control.sow import IN_BATCHED_WHILE, mark_uncollectable
from tracefx.core import ShapedArray, Value, accepts, show_avals
from tracefx.core.avals import join_vma, without_vma
from tracefx.core.effects import non_debug_effects
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import BatchDims, MappedAxis, Recorder, Tangent, UndefinedPrimal
from tracefx.interpreters.body_transform import (
    BodyInterpreter,
    BodyKind,
    BodyName,
    TransformedBody,
    ValueSpec,
    flatten_to_arrays,
    unpack_results,
)
from tracefx.interpreters.jaxpr_transforms import Consts, batch_jaxpr, jvp_jaxpr, unzip_jaxpr
from tracefx.interpreters.masks import (
    Mask,
    drop_zeros,
    insert_zeros,
    merge_masked,
    nonzero_mask,
    select_masked,
    select_unmasked,
)
from tracefx.interpreters.stage import stage
from tracefx.lowering import Builder, IrValue
from tracefx.ops.elementwise.selection import select_n
from tracefx.ops.reductions.reduction import reduce_or
from tracefx.ops.structural import batch_first, broadcast_in_dim, convert_element_type, instantiate
from tracefx.passes.dce import dce
from tracefx.passes.rebuilding import renumber
from tracefx.passes.varying import Retype
from tracefx.source_location import at_location, current_provenance

X = TypeVar("X")
BOOL_AVAL: Final = ShapedArray((), np.dtype(np.bool_))


@final
@frozen(eq=False)
class While(ControlFlowPrimitive):
    """The primitive of `while_loop` and `fori_loop`.

    While `cond_jaxpr(cond_consts, carry)` is true, the next carry is `body_jaxpr(body_consts, carry)`. The operands are
    the constants of the condition, the constants of the body, and the initial carry.

    Args:
        body_jaxpr: Maps the constants of the body and the carry to the next carry.
        body_nconsts: The number of constants of the body.
        cond_jaxpr: Maps the constants of the condition and the carry to a boolean scalar.
        cond_nconsts: The number of constants of the condition.
        max_steps: An upper bound of the number of steps, which makes the loop differentiable in reverse mode; `None`,
            the default, for no bound.
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
        """Splits a list into the entries of the condition's constants, of the body's constants, and of the carry."""
        n, m = self.cond_nconsts, self.cond_nconsts + self.body_nconsts
        return xs[:n], xs[n:m], xs[m:]

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        cond_consts, body_consts, carry = map(tuple, self.split_operands(avals))
        for what, body, avals_of_operands in (
            ("condition", self.cond_jaxpr, cond_consts + carry),
            ("body", self.body_jaxpr, body_consts + carry),
        ):
            if not accepts(body.in_avals, avals_of_operands):
                raise TypeError(
                    f"the {what} of while takes ({show_avals(body.in_avals)}), got ({show_avals(avals_of_operands)})"
                )
        if without_vma(self.cond_jaxpr.out_avals) != (BOOL_AVAL,):
            raise TypeError(
                f"the condition of while must return {BOOL_AVAL}, not ({show_avals(self.cond_jaxpr.out_avals)})"
            )
        carry = self.body_jaxpr.in_avals[self.body_nconsts :]
        if not accepts(carry, self.body_jaxpr.out_avals):
            raise TypeError(
                f"the body of while takes the carry ({show_avals(carry)}) and returns "
                f"({show_avals(self.body_jaxpr.out_avals)})"
            )
        return carry

    @override
    def with_operand_types(self, avals: Sequence[ShapedArray], retype: Retype) -> While:
        cond_consts, body_consts, carry = self.split_operands(avals)
        # Fixed point: a carry varies from the first step on if it varies after any step, or if the step count varies.
        while True:
            cond, body = (
                retype(self.cond_jaxpr, [*cond_consts, *carry]),
                retype(self.body_jaxpr, [*body_consts, *carry]),
            )
            goes_on = cond.out_avals[0]
            wider = [a.with_vma(join_vma((a, out, goes_on))) for a, out in zip(carry, body.out_avals, strict=True)]
            if wider == list(carry):
                same = cond is self.cond_jaxpr and body is self.body_jaxpr
                return self if same else self.with_jaxprs(cond, body)
            carry = wider

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        cond_consts, body_consts, carry = self.split_operands(operands)
        return builder.loop(
            carry,
            lambda b, state: b.inline(self.cond_jaxpr, [*cond_consts, *state]),
            lambda b, state: b.inline(self.body_jaxpr, [*body_consts, *state]),
        )

    # -------------------------------------------------------------- dead code

    @override
    @memoize_on_object
    def prune(self, used_outs: Mask) -> tuple[While, Mask, Mask]:
        cond, n, m = dce(self.cond_jaxpr), self.cond_nconsts, self.body_nconsts
        used_by_cond = used_inputs(cond)
        carry = tuple([a or b for a, b in zip(used_outs, used_by_cond[n:], strict=True)])
        while True:  # fixed point: a carry is used if an output of the next step that depends on it is used
            body = dce(self.body_jaxpr, carry)
            used_by_body = used_inputs(body)
            more = tuple([a or b for a, b in zip(carry, used_by_body[m:], strict=True)])
            if more == carry:
                break
            carry = more
        if all(carry) and all(used_by_cond[:n]) and all(used_by_body[:m]):
            same = cond is self.cond_jaxpr and body is self.body_jaxpr
            return (self if same else self.with_jaxprs(cond, body)), (True,) * (n + m + len(carry)), carry
        op = evolve(
            self,
            cond_jaxpr=rearrange_jaxpr(cond, _mask_indices(used_by_cond[:n] + carry)),
            cond_nconsts=sum(used_by_cond[:n]),
            body_jaxpr=rearrange_jaxpr(body, _mask_indices(used_by_body[:m] + carry)),
            body_nconsts=sum(used_by_body[:m]),
        )
        return op, used_by_cond[:n] + used_by_body[:m] + carry, carry

    # -------------------------------------------------------------- interpreting condition and body

    @override
    def transform_bodies(self, interpreter: BodyInterpreter, args: Sequence[Value]) -> Sequence[Value]:
        cond_args, body_args, carry_args = self.split_operands(args)
        cond_consts, body_consts = [interpreter.spec(x) for x in cond_args], [interpreter.spec(x) for x in body_args]
        carry = [interpreter.spec(x) for x in carry_args]
        state: ValueSpec | None = None
        step, condition = [BodyName("while_loop", kind) for kind in (BodyKind.STEP, BodyKind.CONDITION)]
        while True:  # fixed point: a carry has the same spec before and after each step
            cond = interpreter.transform_body(
                self.cond_jaxpr, [*cond_consts, *carry], condition, state=state, plain=True
            )
            body = interpreter.transform_body(
                self.body_jaxpr, [*body_consts, *carry], step, outs=carry, state=cond.state or state
            )
            after = body.state or cond.state
            if list(body.outs) == carry and after == state:
                break
            carry, state = list(body.outs), after
        cond_operands = [*cond.consts, *flatten_to_arrays(interpreter, cond_args, cond_consts)]
        body_operands = [*body.consts, *flatten_to_arrays(interpreter, body_args, body_consts)]
        first = [*interpreter.state(state), *flatten_to_arrays(interpreter, carry_args, carry)]
        collected = [a for each in body.collected for a in interpreter.collected_of_empty_loop(each)]
        inside = evolve(body, collected=(*cond.collected, *body.collected))
        run_cond, run_body = (
            _TransformedPart.of(cond, len(cond_operands)),
            _TransformedPart.of(body, len(body_operands)),
        )
        n = len(first)
        if run_cond.keeps_state and not cond.collected:
            op = evolve(
                self,
                cond_jaxpr=_stage_like(lambda *xs: run_cond(xs, n)[-1:], [*cond_operands, *first, *collected]),
                cond_nconsts=len(cond_operands),
                body_jaxpr=_stage_like(lambda *xs: run_body(xs, n), [*body_operands, *first, *collected]),
                body_nconsts=len(body_operands),
            )
            return unpack_results(interpreter, inside, bind(op, *cond_operands, *body_operands, *first, *collected))
        # The condition updates the state or collects values, which must be outputs of the loop. So the condition is
        # evaluated before the loop and at the end of each step, and its result is a carry.
        k, m = len(cond_operands), len(cond_operands) + len(body_operands)

        def eval_cond(xs: Sequence[Value]) -> list[Value]:
            """Returns the condition, the state, the carry, and the values that the condition collects."""
            results = run_cond(xs, n)
            s = run_cond.states
            return [results[s], *results[:s], *xs[k + s : k + n], *results[s + 1 :]]

        def both(*xs: Value) -> list[Value]:
            stepped = run_body([*xs[k:m], *xs[m + 1 : m + 1 + n]], n)
            return [*eval_cond([*xs[:k], *stepped[:n]]), *stepped[n:]]

        goes_on, *carried = bind(
            Call("condition", _stage_like(lambda *xs: eval_cond(xs), [*cond_operands, *first])), *cond_operands, *first
        )
        op = While(
            _stage_like(both, [*cond_operands, *body_operands, goes_on, *carried, *collected]),
            m,
            _stage_like(lambda goes_on, *_: [goes_on], [goes_on, *carried, *collected]),
            0,
            self.max_steps,
        )
        _, *results = bind(op, *cond_operands, *body_operands, goes_on, *carried, *collected)
        return unpack_results(interpreter, inside, results)

    # -------------------------------------------------------------- forward mode

    @property
    def _invariant(self) -> Mask:
        """Which carries the body returns unchanged."""
        carry = self.body_jaxpr.invars[self.body_nconsts :]
        return tuple([out is v for out, v in zip(self.body_jaxpr.outs, carry, strict=True)])

    @memoize_on_object
    def _hoist(self, invariant: Mask) -> While:
        """Returns the loop with the invariant carries as constants, the last ones of the condition and of the body."""
        n, m, indices = self.cond_nconsts, self.body_nconsts, range(len(invariant))
        order = [*select_masked(indices, invariant), *select_unmasked(indices, invariant)]
        return evolve(
            self,
            cond_jaxpr=rearrange_jaxpr(self.cond_jaxpr, [*range(n), *[n + i for i in order]]),
            cond_nconsts=n + sum(invariant),
            body_jaxpr=rearrange_jaxpr(
                self.body_jaxpr, [*range(m), *[m + i for i in order]], select_unmasked(indices, invariant)
            ),
            body_nconsts=m + sum(invariant),
        )

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        d_cond_consts, d_consts, d_carry = self.split_operands(tangents)
        invariant = self._invariant
        if any(nonzero_mask(select_masked(d_carry, invariant))) and not all(invariant):
            cond_consts, body_consts, carry = self.split_operands(primals)
            invariant_carry, invariant_tangents = select_masked(carry, invariant), select_masked(d_carry, invariant)
            outs, d_outs = self._hoist(invariant).jvp(
                [*cond_consts, *invariant_carry, *body_consts, *invariant_carry, *select_unmasked(carry, invariant)],
                [
                    *d_cond_consts,
                    *invariant_tangents,
                    *d_consts,
                    *invariant_tangents,
                    *select_unmasked(d_carry, invariant),
                ],
            )
            return merge_masked(invariant, invariant_carry, outs), merge_masked(invariant, invariant_tangents, d_outs)
        const_nonzero, start = nonzero_mask(d_consts), nonzero_mask(d_carry)
        prim, extra, carry_nonzero = self._jvp(const_nonzero, start)
        cond_consts, body_consts, carry = self.split_operands(primals)
        carry_tangents = [instantiate(t) for t in select_masked(d_carry, carry_nonzero)]
        outs = bind(prim, *cond_consts, *extra, *body_consts, *drop_zeros(d_consts), *carry, *carry_tangents)
        n = len(carry)
        return outs[:n], insert_zeros(outs[n:], carry_nonzero, [c.aval for c in carry])

    @memoize_on_object
    def _jvp(self, consts: Mask, start: Mask) -> tuple[While, Consts, Mask]:
        carry = start
        while True:  # fixed point: a carry has a tangent from the first step on if it has one after any step
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
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        plan = self._batch(axis, tuple(dims))
        (cond_consts, body_consts, carry), (_, _, carry_dims) = self.split_operands(args), self.split_operands(dims)
        carry = [batch_first(x, d, axis) if b else x for x, d, b in zip(carry, carry_dims, plan.carry, strict=True)]
        out_dims = [0 if b else None for b in plan.carry]
        cond_operands = [*plan.cond_consts, *cond_consts]
        body_operands = [*plan.body_consts, *body_consts]
        if plan.first is None:
            return bind(plan.op, *cond_operands, *body_operands, *carry), out_dims
        goes_on = bind(Call("condition", plan.first), *cond_operands, *carry)
        return bind(plan.op, *cond_operands, *body_operands, *goes_on, *carry)[1:], out_dims

    @memoize_on_object
    def _batch(self, axis: MappedAxis, dims: tuple[int | None, ...]) -> _BatchedWhile:
        cond_dims, body_dims, start = map(tuple, self.split_operands(dims))
        carry = tuple([d is not None for d in start])
        carry_vars = self.body_jaxpr.invars[self.body_nconsts :]
        while True:  # fixed point: a carry is batched from the first step on if it is batched after any step
            dims_of_carry = tuple([0 if b else None for b in carry])
            body = batch_jaxpr(self.body_jaxpr, axis, body_dims + dims_of_carry, carry)
            cond = batch_jaxpr(self.cond_jaxpr, axis, cond_dims + dims_of_carry)
            same_steps = cond.out_dims == (None,)
            more = tuple([d is not None for d in body.out_dims])
            if not same_steps:  # the number of steps is batched, so every carry that a step changes is
                more = tuple([b or x is not v for b, x, v in zip(more, self.body_jaxpr.outs, carry_vars, strict=True)])
            if more == carry:
                break
            carry = more
        cond_nconsts, body_nconsts = len(cond.consts) + self.cond_nconsts, len(body.consts) + self.body_nconsts
        if same_steps:
            op = While(body.jaxpr, body_nconsts, cond.jaxpr, cond_nconsts, self.max_steps)
            return _BatchedWhile(op, cond.consts, body.consts, carry, None)
        self._require_no_effects()
        body = evolve(body, jaxpr=mark_uncollectable(body.jaxpr, IN_BATCHED_WHILE))
        first = batch_jaxpr(self.cond_jaxpr, axis, cond_dims + dims_of_carry, (True,))
        first = evolve(first, jaxpr=mark_uncollectable(first.jaxpr, IN_BATCHED_WHILE))
        assert len(first.consts) == len(cond.consts)
        n, m = cond_nconsts, cond_nconsts + body_nconsts

        def step(*args: Value) -> list[Value]:
            cond_operands, body_operands, (goes_on, *old) = args[:n], args[n:m], args[m:]
            new = eval_jaxpr(body.jaxpr, (), [*body_operands, *old])
            selected = [
                _where(goes_on, x, y) if b and x is not y else x for x, y, b in zip(new, old, carry, strict=True)
            ]
            return [*eval_jaxpr(first.jaxpr, (), [*cond_operands, *selected]), *selected]

        goes_on_aval = axis.add_to(BOOL_AVAL, 0)
        carried = body.jaxpr.in_avals[body_nconsts:]
        fixed = (*first.jaxpr.in_avals[:n], *body.jaxpr.in_avals[:body_nconsts])
        step_jaxpr, _ = stage(step, [*fixed, goes_on_aval, *carried])
        any_goes, _ = stage(lambda goes_on, *_: [reduce_or(goes_on, (0,))], [goes_on_aval, *carried])
        op = While(step_jaxpr, m, any_goes, 0, self.max_steps)
        return _BatchedWhile(op, first.consts, body.consts, carry, first.jaxpr)

    def _require_no_effects(self) -> None:
        effects = ", ".join(sorted(map(str, non_debug_effects(self.effects))))
        if effects:
            raise ValueError(
                "vmap of while_loop: its condition is batched, so that all batch elements run until the last is done, "
                f"but it has effects ({effects}); move them out of the loop, or loop over the batch with lax.map"
            )

    # -------------------------------------------------------------- partial evaluation

    @override
    def partial_eval(self, recorder: Recorder, unknown: Sequence[bool], args: Sequence[Value]) -> Sequence[Value]:
        """Evaluates the known carries now, and records the whole loop, which runs again for the unknown carries."""
        if self.max_steps is not None:
            return Call(self.name, self.checkpointed_jaxpr()).partial_eval(recorder, unknown, args)
        mask = tuple(unknown)
        plan = self._unzip(mask)
        if plan is None:
            return recorder.record(self, args)
        effects = ", ".join(sorted(map(str, non_debug_effects(self.effects))))
        if effects:
            raise ValueError(
                "linearize and jacfwd of while_loop run the loop again for the tangents, but it has effects "
                f"({effects}), which must not run twice: move them out of the loop, or differentiate with jvp"
            )
        known_loop, consts, unknown_loop, out_unknown = plan
        cond_consts, body_consts, carry = self.split_operands(args)
        _, late_consts, _ = self.split_operands(unknown)
        operands = [
            *cond_consts,
            *consts,
            *select_unmasked(body_consts, late_consts),
            *select_unmasked(carry, out_unknown),
        ]
        outs = recorder.evaluate(known_loop, operands) if operands or known_loop.effects else []
        unknown_outs = recorder.record(unknown_loop, args)
        return merge_masked(out_unknown, select_masked(unknown_outs, out_unknown), outs)

    @memoize_on_object
    def _unzip(self, unknown: Mask) -> tuple[While, Consts, While, Mask] | None:
        """Splits the loop by which operands are unknown.

        Returns:
            The loop of the known carries alone, the constants that its rules introduced, the whole loop as it runs
            again for the unknown carries, and which carries are unknown; `None` if no carry is known or the condition
            depends on an unknown operand.
        """
        cond_consts, consts, carry = map(tuple, self.split_operands(unknown))
        while True:
            split = unzip_jaxpr(self.body_jaxpr, consts + carry, carry)
            if split.out_unknown == carry:
                break
            carry = split.out_unknown
        used_by_cond = used_inputs(self.cond_jaxpr)[self.cond_nconsts :]
        if any(cond_consts) or any(a and u for a, u in zip(used_by_cond, carry, strict=True)):
            return None
        n = carry.count(False)
        if not n:
            return None
        extra_consts: Consts = ()
        if self.body_jaxpr.effects:  # some of which may depend on unknown carries
            extra_consts = split.consts
            body = dce(split.known, (True,) * n + (False,) * (len(split.known.outs) - n))
        else:  # without residuals, the known half is the part of the body that computes the known carries
            known_inputs = [i for i, u in enumerate(consts + carry) if not u]
            body = rearrange_jaxpr(dce(self.body_jaxpr, tuple([not u for u in carry])), known_inputs)
        cond_inputs = [*range(self.cond_nconsts), *[self.cond_nconsts + i for i, u in enumerate(carry) if not u]]
        cond = rearrange_jaxpr(self.cond_jaxpr, cond_inputs)
        known_loop = While(body, len(extra_consts) + consts.count(False), cond, self.cond_nconsts)
        unknown_loop = self.with_jaxprs(
            drop_debug_effects(self.cond_jaxpr, (False,) * len(self.cond_jaxpr.invars)),
            drop_debug_effects(self.body_jaxpr, consts + carry),
        )
        return known_loop, extra_consts, unknown_loop, carry

    # -------------------------------------------------------------- transposition

    @memoize_on_object
    def checkpointed_jaxpr(self) -> Jaxpr:
        """Returns the loop as a jaxpr of checkpointed chunks, which reverse mode differentiates.

        It is a scan of `max_steps` steps; those after the last step of the loop are no-ops.
        """
        assert self.max_steps is not None
        n, m = self.cond_nconsts, self.cond_nconsts + self.body_nconsts
        steps = self.max_steps

        def step(*args: Value) -> list[Value]:
            new = eval_jaxpr(self.body_jaxpr, (), [*args[n:m], *args[m + 1 :]])
            return [*eval_jaxpr(self.cond_jaxpr, (), [*args[:n], *new]), *new]

        avals = [*self.cond_jaxpr.in_avals[:n], *self.body_jaxpr.in_avals[: self.body_nconsts], BOOL_AVAL]
        avals += self.body_jaxpr.out_avals
        step_jaxpr, _ = stage(step, avals)
        num_carried = len(avals) - m

        def skip_if_done(chunk: Jaxpr) -> Jaxpr:
            """Returns the chunk, which returns the carry unchanged if the loop is done."""
            done = Jaxpr((), chunk.invars, (), chunk.invars[m:])
            op = Cond((renumber(done), chunk))

            def run_or_skip(*args: Value) -> Sequence[Value]:
                return bind(op, convert_element_type(args[m], INDEX_AVAL.dtype), *args)

            return stage(run_or_skip, chunk.in_avals)[0]

        def loop(body: Jaxpr, length: int) -> Scan:
            return Scan(body, length, num_carried, m, reverse=False, unroll=1)

        chunks = checkpoint_scan(
            skip_if_done(step_jaxpr), loop, m, num_carried, steps, False, (sqrt_chunk_length(steps),), skip_if_done
        )

        def run(*args: Value) -> list[Value]:
            goes_on = eval_jaxpr(self.cond_jaxpr, (), [*args[:n], *args[m:]])
            return eval_jaxpr(chunks, (), [*args[:m], *goes_on, *args[m:]])[1:]

        return stage(run, [*avals[:m], *avals[m + 1 :]])[0]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        if self.max_steps is not None:
            return Call(self.name, self.checkpointed_jaxpr()).transpose(cts, *args)
        cond_args, body_args, carry_args = self.split_operands(args)
        carries = zip(self._invariant, carry_args, cts, strict=True)
        if not any(isinstance(x, UndefinedPrimal) for x in (*cond_args, *body_args)) and all(
            unchanged or not (isinstance(x, UndefinedPrimal) or nonzero_mask([ct])[0]) for unchanged, x, ct in carries
        ):
            carry_cts = [ct if isinstance(x, UndefinedPrimal) else None for x, ct in zip(carry_args, cts, strict=True)]
            return [None] * (len(args) - len(carry_cts)) + carry_cts
        raise ValueError(
            f"reverse-mode differentiation doesn't work through the loop{at_location(current_provenance())}: the "
            "number of steps of lax.while_loop, and of lax.fori_loop with traced bounds, is known only when the "
            "program runs. Give while_loop a bound, max_steps=n, use fori_loop with Python integers or scan, or "
            "differentiate forward with jvp or jacfwd"
        )


@final
@frozen(eq=False)
class _BatchedWhile:
    """A loop for a whole batch: the primitive, the constants that the rules introduced, and which carries are batched.

    If the condition is batched, the loop has an additional first carry: for each batch element, whether it continues.
    `first` computes it before the first step.
    """

    op: While
    cond_consts: Consts
    body_consts: Consts
    carry: Mask
    first: Jaxpr | None


@final
@frozen(eq=False)
class _TransformedPart:
    """The interpreted condition or body of a loop, applied to constants and carries."""

    jaxpr: Jaxpr
    consts: int
    """The number of arrays before the state: constants that the interpretation introduced."""
    fixed: int
    """The number of arrays that are constants of the loop."""
    states: int
    """The number of arrays of the state."""

    @classmethod
    def of(cls, entered: TransformedBody, fixed: int) -> _TransformedPart:
        states = 0 if entered.state is None else len(entered.state.avals)
        return cls(entered.jaxpr, len(entered.consts), fixed, states)

    @property
    def keeps_state(self) -> bool:
        return self.jaxpr.outs[: self.states] == self.jaxpr.invars[self.consts : self.consts + self.states]

    def __call__(self, xs: Sequence[Value], carried: int) -> list[Value]:
        """Applies the part to `xs`: constants, state, carry, other carried arrays. `carried` counts state and carry."""
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
    """Returns the jaxpr with additional inputs, which it doesn't use."""
    return rearrange_jaxpr(jaxpr, [*range(len(jaxpr.invars)), *avals])


def _where(goes_on: Value, new: Value, old: Value) -> Value:
    shape = new.aval.shape
    return select_n(broadcast_in_dim(goes_on, shape, (0,)) if len(shape) > 1 else goes_on, old, new)
