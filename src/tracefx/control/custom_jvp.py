"""`custom_jvp` as a primitive: functions with a user-defined JVP rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control import callables
from tracefx.control.custom_rules import CustomDerivativeCall, CustomDerivativeProgram, ExtraOutputs
from tracefx.control.jvp_rules import JVPRule, NamedRule, batch_jvp_rule, rebind_jvp_rule, select_outputs
from tracefx.core import Value
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import Handler
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import BatchDims, Tangent
from tracefx.interpreters.callables import BatchRunner
from tracefx.interpreters.jaxpr_transforms import jvp_jaxpr
from tracefx.interpreters.masks import drop_zeros, insert_zeros, nonzero_mask


@final
@frozen(eq=False)
class CustomJVPCall(CustomDerivativeCall):
    """A call of `fun`, which `rule` differentiates.

    Args:
        rule: Maps the operands and their tangents to the outputs and their tangents.
        symbolic_zeros: The option of `defjvp`, for printing. False by default.
    """

    name = "custom_jvp_call"
    rule: JVPRule
    symbolic_zeros: bool = False

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return self.rule(primals, tangents)

    @override
    def wrap_callables(self, enter: Callable[[Handler], Handler]) -> CustomJVPCall:
        return evolve(
            self, fun=callables.wrap_in_handler(enter, self.fun), rule=callables.wrap_in_handler(enter, self.rule)
        )

    @override
    def batch_rule(self, mapper: BatchRunner, dims: BatchDims, out: callables.OutDims) -> CustomJVPCall:
        return evolve(self, rule=batch_jvp_rule(mapper, self.rule, dims, out))

    @override
    def stage_callables(self, recording: Handler, args: Sequence[Value]) -> tuple[CustomJVP, Sequence[Value]]:
        traced = callables.trace_function(self.fun, recording, args)
        n = len(traced.consts)
        rule = rebind_jvp_rule(self.label, self.rule, traced.scope, n)
        return CustomJVP(self.label, traced.jaxpr, rule, n, self.symbolic_zeros), [*traced.consts, *args]


@final
@frozen(eq=False)
class CustomJVP(CustomDerivativeProgram):
    """A call of `jaxpr`, which `rule` differentiates.

    Args:
        rule: Maps the operands and their tangents to the outputs and their tangents.
        num_consts: The number of leading operands that are closed-over values, which are not differentiable. 0 by
            default.
        symbolic_zeros: The option of `defjvp`, for printing. False by default.
    """

    name = "custom_jvp_call"
    rule: JVPRule | NamedRule = field(metadata={"print": "jvp", "erased": True})
    num_consts: int = field(default=0, metadata={"hide_default": True, "erased": True})
    symbolic_zeros: bool = field(default=False, metadata={"hide_default": True, "erased": True})

    @override
    def jax_params(self) -> Mapping[str, object]:
        params = {"name": self.label, "call_jaxpr": self.jaxpr, "jvp": self.rule}
        return params | {"symbolic_zeros": self.symbolic_zeros} | num_consts_param(self.num_consts)

    @override
    def select_outputs(self, used: tuple[bool, ...]) -> CustomJVP:
        return evolve(self, rule=select_outputs(self.rule, used))

    @override
    def batch_rule(self, mapper: BatchRunner, dims: BatchDims, out: callables.OutDims) -> CustomJVP:
        return evolve(self, rule=batch_jvp_rule(mapper, self.rule, dims, out))

    @override
    def with_program(self, jaxpr: Jaxpr, consts: int, enter: Callable[[Handler], Handler] | None = None) -> CustomJVP:
        rule = self.rule if enter is None else callables.wrap_in_handler(enter, self.rule)
        rebound = rebind_jvp_rule(self.label, rule, callables.EMPTY_CLOSURE, consts)
        return evolve(self, jaxpr=jaxpr, rule=rebound, num_consts=consts + self.num_consts)

    @override
    def with_extra_outputs(self, extra: ExtraOutputs) -> CustomJVP:
        return evolve(self, jaxpr=extra.jaxpr, rule=_with_extra_outputs(self.rule, extra))

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        outs, out_tangents = self.rule(primals, tangents)
        return callables.match_weak_types(outs, self.jaxpr.out_avals), out_tangents


def _with_extra_outputs(rule: JVPRule, extra: ExtraOutputs) -> JVPRule:
    """Extends the rule to additional outputs by the JVP of the jaxpr."""

    @callables.derive(rule, extra)
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
