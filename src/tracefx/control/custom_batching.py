"""`custom_vmap` as a primitive: functions with a user-defined batching rule.

The derivative of such a function has a batching rule too: the derivative, or the transpose, of the user-defined rule.
So `vmap` of a gradient is the gradient of what the rule computes, like the gradient of `vmap`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize_on_object
from tracefx.control import callables
from tracefx.control.custom_rules import CustomRuleCall, CustomRuleProgram, ExtraOutputs
from tracefx.core import ShapedArray, Value
from tracefx.core.dtypes import is_inexact
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import CURRENT, Handler, bind, call_under
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import BatchDims, MappedAxis, Tangent, UndefinedPrimal, Zero
from tracefx.errors import ClosedOverTracerError
from tracefx.interpreters.callables import BatchRunner
from tracefx.interpreters.jaxpr_transforms import batch_jaxpr, jvp_jaxpr
from tracefx.interpreters.jvp import JVP
from tracefx.interpreters.masks import (
    Mask,
    drop_zeros,
    insert_zeros,
    known_values,
    linear_mask,
    merge_masked,
    nonzero_mask,
    select_masked,
)
from tracefx.interpreters.stage import stage
from tracefx.ops.structural import batch_first, instantiate, reduce_sum
from tracefx.passes.dce import dce

BatchRule: TypeAlias = Callable[[MappedAxis, Mask, Sequence[Value]], tuple[Sequence[Value], Mask]]
"""A function from `(axis, batched, args)` to `(outputs, out_batched)`.

`batched` and `out_batched` tell which operands and outputs are batched; these have the batch axis first.
"""


@final
@frozen(eq=False)
class CustomVmapCall(CustomRuleCall):
    """A call of `fun`, which `rule` batches.

    Args:
        rule: Maps the batch axis, the mask of the batched operands, and the operands to the outputs and the mask of the
            batched ones.
    """

    name = "custom_vmap_call"
    rule: BatchRule

    @override
    def wrap_callables(self, enter: Callable[[Handler], Handler]) -> CustomVmapCall:
        return evolve(
            self, fun=callables.wrap_in_handler(enter, self.fun), rule=callables.wrap_in_handler(enter, self.rule)
        )

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        outs = bind(self, *primals)
        out_nonzero = _inexact_mask(outs)
        if not any(out_nonzero):
            return outs, [Zero(o.aval.tangent()) for o in outs]
        mask = nonzero_mask(tangents)
        prim = CustomVmapCall(self.label, _jvp_function(self.fun, mask), _jvp_batch_rule(self.rule, mask))
        return outs, insert_zeros(bind(prim, *primals, *drop_zeros(tangents)), out_nonzero, [o.aval for o in outs])

    @override
    def batch_callables(
        self, mapper: BatchRunner, args: Sequence[Value], dims: BatchDims
    ) -> tuple[Sequence[Value], BatchDims]:
        if any(d is not None for d in dims):
            return _apply_batch_rule(self.rule, mapper.axis, args, dims)
        out = callables.OutDims(self.label, mapper.axis, False)
        prim = evolve(
            self,
            fun=callables.batch_function(mapper, self.fun, dims, out),
            rule=_batch_batch_rule(mapper, self.rule, out),
        )
        outs = bind(prim, *args)
        return outs, out.of(outs)

    @override
    def stage_callables(self, recording: Handler, args: Sequence[Value]) -> tuple[CustomVmap, Sequence[Value]]:
        traced = callables.trace_function(self.fun, recording, args)
        consts = traced.consts
        rule = _rebind_batch_rule(self.label, self.rule, traced.scope, len(consts))
        return CustomVmap(self.label, traced.jaxpr, rule), [*consts, *args]


@final
@frozen(eq=False)
class CustomVmap(CustomRuleProgram):
    """A call of `jaxpr`, which `rule` batches.

    Args:
        rule: Maps the batch axis, the mask of the batched operands, and the operands to the outputs and the mask of the
            batched ones.
    """

    name = "custom_vmap_call"
    label: str = field(metadata={"print": "name", "erased": True, "jax": False})
    jaxpr: Jaxpr = field(metadata={"print": "call"})
    rule: BatchRule = field(metadata={"erased": True})

    @override
    def with_program(self, jaxpr: Jaxpr, consts: int, enter: Callable[[Handler], Handler] | None = None) -> CustomVmap:
        rule = self.rule if enter is None else callables.wrap_in_handler(enter, self.rule)
        return evolve(self, jaxpr=jaxpr, rule=_skip_operands(consts, rule))

    @override
    def with_extra_outputs(self, extra: ExtraOutputs) -> CustomVmap:
        return evolve(self, jaxpr=extra.jaxpr, rule=_with_extra_outputs(self.rule, extra))

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        outs = bind(self, *primals)
        out_nonzero = _inexact_mask(outs)
        if not any(out_nonzero):
            return outs, [Zero(o.aval.tangent()) for o in outs]
        mask, n = nonzero_mask(tangents), len(outs)
        derived = jvp_jaxpr(self.jaxpr, mask, out_nonzero)
        pushed = dce(derived.jaxpr, (False,) * n + (True,) * sum(derived.out_nonzero))
        rule = _skip_operands(len(derived.consts), _jvp_batch_rule(self.rule, mask))
        out_tangents = bind(CustomVmap(self.label, pushed, rule), *derived.consts, *primals, *drop_zeros(tangents))
        return outs, insert_zeros(out_tangents, out_nonzero, self.jaxpr.out_avals)

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        mask, ct_nonzero = linear_mask(args), nonzero_mask(cts)
        derived, consts = _transpose_jaxpr(self.jaxpr, mask, ct_nonzero)
        rule = _skip_operands(len(consts), _transpose_batch_rule(self.rule, mask, ct_nonzero, self.jaxpr))
        known = known_values(args)
        in_cts = bind(CustomVmap(self.label, derived, rule), *consts, *known, *drop_zeros(cts))
        return merge_masked(mask, in_cts, [None] * len(known))

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        return _apply_batch_rule(self.rule, axis, args, dims)


def _inexact_mask(outs: Sequence[Value]) -> Mask:
    return tuple([is_inexact(o.aval.dtype) for o in outs])


def _apply_batch_rule(
    rule: BatchRule, axis: MappedAxis, args: Sequence[Value], dims: BatchDims
) -> tuple[Sequence[Value], BatchDims]:
    fronted = [x if d is None else batch_first(x, d, axis) for x, d in zip(args, dims, strict=True)]
    outs, batched = rule(axis, tuple([d is not None for d in dims]), fronted)
    return outs, [0 if b else None for b in batched]


# ------------------------------------------------------------------ derived rules


def _rebind_batch_rule(label: str, rule: BatchRule, scope: callables.ClosureScope, count: int) -> BatchRule:
    """Returns the rule of a primitive whose first `count` operands are the values its functions closed over."""

    @callables.derive(rule, scope.cache_key, count)
    def rebound(axis: MappedAxis, batched: Mask, args: Sequence[Value]) -> tuple[Sequence[Value], Mask]:
        if any(batched[:count]):
            raise ClosedOverTracerError(
                f"{label} closes over a batched value, but its batching rule covers only its arguments: make the value "
                "an argument"
            )
        return scope.rebind(rule, args[:count])(axis, batched[count:], args[count:])

    return rebound if count or scope.named_axes else rule


def _skip_operands(count: int, rule: BatchRule) -> BatchRule:
    return _rebind_batch_rule("", rule, callables.EMPTY_CLOSURE, count)


def _with_extra_outputs(rule: BatchRule, extra: ExtraOutputs) -> BatchRule:
    """Extends the rule to additional outputs by batching the jaxpr."""

    @callables.derive(rule, extra)
    def extended(axis: MappedAxis, batched: Mask, args: Sequence[Value]) -> tuple[list[Value], Mask]:
        n = extra.operands
        derived = batch_jaxpr(extra.jaxpr, axis, tuple([0 if b else None for b in batched]))
        results = eval_jaxpr(derived.jaxpr, (), [*derived.consts, *args])
        outs = [x if d is None else batch_first(x, d, axis) for x, d in zip(results, derived.out_dims, strict=True)]
        mask = [d is not None for d in derived.out_dims]
        if not any(batched[n:]):
            return outs, tuple(mask)
        rule_outs, rule_mask = rule(axis, batched[n:], args[n:])
        return extra.merge(outs, rule_outs), tuple(extra.merge(mask, rule_mask))

    return extended


def _batch_batch_rule(mapper: BatchRunner, rule: BatchRule, out: callables.OutDims) -> BatchRule:
    """Batches a rule along another axis, that of `mapper`, which no operand has but the function may close over."""

    @callables.derive(rule, "beside", mapper.axis, out.settled)
    def batched_rule(axis: MappedAxis, batched: Mask, args: Sequence[Value]) -> tuple[list[Value], Mask]:
        out_batched: Mask = ()

        def run(*values: Value) -> Sequence[Value]:
            nonlocal out_batched
            outs, out_batched = rule(axis, batched, values)
            return outs

        outs, dims = mapper.run(run, args, [None] * len(args))
        moved = list(map(out.move_axis_first, outs, dims, out.settle(dims)))
        # An output that has the axis of `mapper` has it first, before the axis that is batched now.
        return [
            batch_first(x, 1, axis) if b and d is not None else x
            for x, b, d in zip(moved, out_batched, out.of(outs), strict=True)
        ], out_batched

    return batched_rule


# ------------------------------------------------------------------ batching rules of derivatives


def _jvp_function(fun: callables.FlatFunction, mask: Mask) -> callables.FlatFunction:
    """Returns a function of primals and of the tangents in the mask that computes the inexact output tangents."""

    @callables.derive(fun, "derivative", mask)
    def pushed(*values: Value) -> list[Value]:
        return _run_jvp(fun, mask, values)

    return pushed


def _run_jvp(fun: callables.FlatFunction, mask: Mask, values: Sequence[Value]) -> list[Value]:
    n = len(mask)
    handler = JVP(CURRENT.get())
    tangents = iter(values[n:])
    duals = [handler.wrap(x, next(tangents)) if m else x for x, m in zip(values, mask, strict=False)]
    outs = call_under(handler, fun, *duals)
    pairs = [handler.unwrap(o) for o in outs]
    return [instantiate(t) for p, t in pairs if is_inexact(p.aval.dtype)]


def _jvp_batch_rule(rule: BatchRule, mask: Mask) -> BatchRule:
    n = len(mask)

    @callables.derive(rule, "derivative", mask)
    def pushed(axis: MappedAxis, batched: Mask, args: Sequence[Value]) -> tuple[list[Value], Mask]:
        tangent_batched = merge_masked(mask, batched[n:], [False] * mask.count(False))
        joint = tuple([p or t for p, t in zip(batched[:n], tangent_batched, strict=True)])
        full = [
            batch_first(x, 0 if is_batched else None, axis) if forced else x
            for x, is_batched, forced in zip(args, batched, [*joint, *select_masked(joint, mask)], strict=True)
        ]
        out_batched: Mask = ()

        def outs(*primals: Value) -> Sequence[Value]:
            nonlocal out_batched
            results, outs_batched = rule(axis, joint, primals)
            out_batched = tuple(select_masked(outs_batched, _inexact_mask(results)))
            return results

        return _run_jvp(outs, mask, full), out_batched

    return pushed


@memoize_on_object
def _transpose_jaxpr(jaxpr: Jaxpr, mask: Mask, ct_nonzero: Mask) -> tuple[Jaxpr, tuple[Value, ...]]:
    """Transposes a jaxpr after evaluating its known part, since it may be a derivative that has not been linearized."""
    avals, n = select_masked(jaxpr.in_avals, mask), mask.count(False)

    def back(*values: Value) -> list[Value]:
        def forwards(*linear_args: Value) -> list[Value]:
            return eval_jaxpr(jaxpr, (), merge_masked(mask, linear_args, values[:n]))

        cts = insert_zeros(values[n:], ct_nonzero, jaxpr.out_avals)
        return list(map(instantiate, callables.transpose_function(forwards, avals, lambda: cts)))

    known = select_masked(jaxpr.in_avals, [not m for m in mask])
    result, consts = stage(back, [*known, *[a.tangent() for a in select_masked(jaxpr.out_avals, ct_nonzero)]])
    return result.closed(), tuple(consts)


def _transpose_batch_rule(rule: BatchRule, mask: Mask, ct_nonzero: Mask, jaxpr: Jaxpr) -> BatchRule:
    """Returns the batching rule of the transpose: of operands outside the mask, and of nonzero output cotangents."""
    avals, count = jaxpr.in_avals, mask.count(False)

    @callables.derive(rule, "transpose", mask, ct_nonzero, avals)
    def pulled(axis: MappedAxis, batched: Mask, args: Sequence[Value]) -> tuple[list[Value], Mask]:
        known, cts = args[:count], args[count:]
        joint = merge_masked(mask, [True] * sum(mask), batched[:count])
        out_avals: list[ShapedArray] = []
        out_batched: Mask = ()

        def outs(*linear_args: Value) -> Sequence[Value]:
            nonlocal out_batched
            found, out_batched = rule(axis, tuple(joint), merge_masked(mask, linear_args, known))
            out_avals[:] = [x.aval for x in found]
            return found

        def out_cts() -> list[Tangent]:
            whole = [batch_first(ct, 0 if b else None, axis) for ct, b in zip(cts, batched[count:], strict=True)]
            summed = [
                ct if has else reduce_sum(ct, (0,))
                for ct, has in zip(whole, select_masked(out_batched, ct_nonzero), strict=True)
            ]
            return insert_zeros(summed, ct_nonzero, out_avals)

        found = callables.transpose_function(outs, [axis.add_to(a, 0) for a in select_masked(avals, mask)], out_cts)
        return list(map(instantiate, found)), (True,) * len(found)

    return pulled
