"""`custom_jvp` as a primitive: functions with a user-defined JVP rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.callables import (
    EMPTY_CLOSURE,
    JVPRule,
    OutDims,
    batch_function,
    batch_jvp_rule,
    derive,
    match_weak_types,
    rebind_jvp_rule,
    trace_function,
    wrap_in_handler,
)
from tracefx.control.control_flow import drop_zeros, insert_zeros, nonzero_mask, select_masked
from tracefx.control.custom_rules import CustomRuleCall, CustomRuleProgram, ExtraOutputs
from tracefx.core.callables import BatchRunner
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import ROOT, Handler, bind
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import MappedAxis, Tangent
from tracefx.core.values import Value
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.jaxpr_transforms import batch_jaxpr, jvp_jaxpr
from tracefx.passes.dce import Prunable, dce
from tracefx.text.printer import HasJaxParams


@final
@frozen(eq=False)
class CustomJVPCall(CustomRuleCall):
    """A call of `fun`, which `rule` differentiates."""

    name = "custom_jvp_call"
    rule: JVPRule
    symbolic_zeros: bool = False

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return self.rule(primals, tangents)

    @override
    def wrap_callables(self, enter: Callable[[Handler], Handler]) -> CustomJVPCall:
        return evolve(self, fun=wrap_in_handler(enter, self.fun), rule=wrap_in_handler(enter, self.rule))

    @override
    def batch_callables(
        self, mapper: BatchRunner, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        out = OutDims(self.label, mapper.axis, any(d is not None for d in dims))
        fun, rule = batch_function(mapper, self.fun, dims, out), batch_jvp_rule(mapper, self.rule, dims, out)
        outs = bind(evolve(self, fun=fun, rule=rule), *args)
        return outs, out.of(outs)

    @override
    def stage_callables(self, recording: Handler, args: Sequence[Value]) -> tuple[CustomJVP, Sequence[Value]]:
        traced = trace_function(self.fun, recording, args)
        n = len(traced.consts)
        rule = rebind_jvp_rule(self.label, self.rule, traced.scope, n)
        return CustomJVP(self.label, traced.jaxpr, rule, n, self.symbolic_zeros), [*traced.consts, *args]


@final
@frozen(eq=False)
class CustomJVP(CustomRuleProgram, Prunable, HasJaxParams):
    """A call of `jaxpr`, which `rule` differentiates.

    The first `num_consts` operands are closed-over values, which are not differentiable.
    """

    name = "custom_jvp_call"
    rule: JVPRule = field(metadata={"print": "jvp", "erased": True})
    num_consts: int = field(default=0, metadata={"hide_default": True, "erased": True})
    symbolic_zeros: bool = field(default=False, metadata={"hide_default": True, "erased": True})

    @override
    def jax_params(self) -> Mapping[str, object]:
        params = {"name": self.label, "call_jaxpr": self.jaxpr, "jvp": self.rule}
        return params | {"symbolic_zeros": self.symbolic_zeros} | num_consts_param(self.num_consts)

    @override
    def prune(self, used_outs: tuple[bool, ...]) -> tuple[CustomJVP, tuple[bool, ...], tuple[bool, ...]]:
        """Removes unused outputs. All operands remain, since the rule may use operands that the function does not."""
        jaxpr = dce(self.jaxpr, used_outs)
        if jaxpr is self.jaxpr:
            return self, (True,) * len(jaxpr.invars), used_outs
        rule = self.rule if all(used_outs) else _select_outputs(self.rule, used_outs)
        return evolve(self, jaxpr=jaxpr, rule=rule), (True,) * len(jaxpr.invars), used_outs

    @override
    def with_program(self, jaxpr: Jaxpr, consts: int, enter: Callable[[Handler], Handler]) -> CustomJVP:
        rule = rebind_jvp_rule(self.label, wrap_in_handler(enter, self.rule), EMPTY_CLOSURE, consts)
        return evolve(self, jaxpr=jaxpr, rule=rule, num_consts=consts + self.num_consts)

    @override
    def with_extra_outputs(self, extra: ExtraOutputs) -> CustomJVP:
        return evolve(self, jaxpr=extra.jaxpr, rule=_with_extra_outputs(self.rule, extra))

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        outs, out_tangents = self.rule(primals, tangents)
        return match_weak_types(outs, self.jaxpr.out_avals), out_tangents

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        forced = (any(d is not None for d in dims),) * len(self.jaxpr.outs)
        derived = batch_jaxpr(self.jaxpr, axis, tuple(dims), forced)
        rule = batch_jvp_rule(Batch(ROOT, axis), self.rule, dims, OutDims(self.label, axis, derived.out_dims))
        n = len(derived.consts)
        prim = evolve(
            self,
            jaxpr=derived.jaxpr,
            rule=rebind_jvp_rule(self.label, rule, EMPTY_CLOSURE, n),
            num_consts=n + self.num_consts,
        )
        return bind(prim, *derived.consts, *args), derived.out_dims


def _select_outputs(rule: JVPRule, used: tuple[bool, ...]) -> JVPRule:
    """Returns the rule restricted to the outputs in the mask `used`."""

    @derive(rule, "selected", used)
    def selected(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        outs, out_tangents = rule(primals, tangents)
        return select_masked(outs, used), select_masked(out_tangents, used)

    return selected


def _with_extra_outputs(rule: JVPRule, extra: ExtraOutputs) -> JVPRule:
    """Extends the rule to additional outputs by the JVP of the jaxpr."""

    @derive(rule, extra)
    def extended(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[list[Value], list[Tangent]]:
        jaxpr, n = extra.jaxpr, extra.operands
        derived = jvp_jaxpr(jaxpr, nonzero_mask(tangents))
        results = eval_jaxpr(derived.jaxpr, (), [*derived.consts, *primals, *drop_zeros(tangents)])
        outs = results[: len(jaxpr.outs)]
        jaxpr_tangents = insert_zeros(results[len(jaxpr.outs) :], derived.out_nonzero, jaxpr.out_avals)
        _, rule_tangents = (
            rule(primals[n:], tangents[n:])
            if any(nonzero_mask(tangents[n:]))
            else ((), extra.rule_outputs(jaxpr_tangents))
        )
        return outs, extra.merge(jaxpr_tangents, rule_tangents)

    return extended


def num_consts_param(num_consts: int) -> dict[str, object]:
    """Returns the parameter `num_consts`, which JAX prints only if it is not zero."""
    return {"num_consts": num_consts} if num_consts else {}
