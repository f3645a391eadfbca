"""Functions with a derivative of their own, as operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.bodies import chosen, nonzero, present, spread
from tracefx.control.functions import (
    NOWHERE,
    OutDims,
    Rule,
    body,
    hosted_rule,
    made_from,
    mapped_function,
    mapped_rule,
    typed,
    within,
)
from tracefx.control.ruled import Among, RuledCall, RuledProgram
from tracefx.core.handler import ROOT, Handler, bind
from tracefx.core.jaxpr import Jaxpr, eval_jaxpr
from tracefx.core.passes import Prunable, dce
from tracefx.core.primitive import (
    MappedAxis,
    Mapper,
    Tangent,
)
from tracefx.core.printer import ShownAsJax
from tracefx.core.values import Value
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.derived import batch_jaxpr, jvp_jaxpr


@final
@frozen(eq=False)
class CustomJVPCall(RuledCall):
    """A call of `fun`, which `rule` differentiates."""

    name = "custom_jvp_call"
    rule: Rule
    symbolic_zeros: bool = False

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return self.rule(primals, tangents)

    @override
    def within(self, enter: Callable[[Handler], Handler]) -> CustomJVPCall:
        return evolve(self, fun=within(enter, self.fun), rule=within(enter, self.rule))

    @override
    def mapped(
        self, mapper: Mapper, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        out = OutDims(self.label, mapper.axis, any(d is not None for d in dims))
        fun, rule = mapped_function(mapper, self.fun, dims, out), mapped_rule(mapper, self.rule, dims, out)
        outs = bind(evolve(self, fun=fun, rule=rule), *args)
        return outs, out.of(outs)

    @override
    def staged(self, recording: Handler, args: Sequence[Value]) -> tuple[CustomJVP, Sequence[Value]]:
        traced = body(self.fun, recording, args)
        n = len(traced.consts)
        rule = hosted_rule(self.label, self.rule, traced.scope, n)
        return CustomJVP(self.label, traced.jaxpr, rule, n, self.symbolic_zeros), [*traced.consts, *args]


@final
@frozen(eq=False)
class CustomJVP(RuledProgram, Prunable, ShownAsJax):
    """A call of `jaxpr`, which `rule` differentiates. The first `num_consts` operands have no derivative."""

    name = "custom_jvp_call"
    rule: Rule = field(metadata={"print": "jvp", "erased": True})
    num_consts: int = field(default=0, metadata={"hide_default": True, "erased": True})
    symbolic_zeros: bool = field(default=False, metadata={"hide_default": True, "erased": True})

    @override
    def jax_params(self) -> Mapping[str, object]:
        params = {"name": self.label, "call_jaxpr": self.jaxpr, "jvp": self.rule}
        return params | {"symbolic_zeros": self.symbolic_zeros} | shown_count(self.num_consts)

    @override
    def prune(self, used_outs: tuple[bool, ...]) -> tuple[CustomJVP, tuple[bool, ...], tuple[bool, ...]]:
        """The operands stay: the rule may use what the function does not."""
        jaxpr = dce(self.jaxpr, used_outs)
        if jaxpr is self.jaxpr:
            return self, (True,) * len(jaxpr.invars), used_outs
        rule = self.rule if all(used_outs) else _selected(self.rule, used_outs)
        return evolve(self, jaxpr=jaxpr, rule=rule), (True,) * len(jaxpr.invars), used_outs

    @override
    def with_program(self, jaxpr: Jaxpr, consts: int, enter: Callable[[Handler], Handler]) -> CustomJVP:
        rule = hosted_rule(self.label, within(enter, self.rule), NOWHERE, consts)
        return evolve(self, jaxpr=jaxpr, rule=rule, num_consts=consts + self.num_consts)

    @override
    def among(self, among: Among) -> CustomJVP:
        return evolve(self, jaxpr=among.jaxpr, rule=_among(self.rule, among))

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        outs, out_tangents = self.rule(primals, tangents)
        return typed(outs, self.jaxpr.out_avals), out_tangents

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        forced = (any(d is not None for d in dims),) * len(self.jaxpr.outs)
        derived = batch_jaxpr(self.jaxpr, axis, tuple(dims), forced)
        rule = mapped_rule(Batch(ROOT, axis), self.rule, dims, OutDims(self.label, axis, derived.out_dims))
        n = len(derived.consts)
        prim = evolve(
            self,
            jaxpr=derived.jaxpr,
            rule=hosted_rule(self.label, rule, NOWHERE, n),
            num_consts=n + self.num_consts,
        )
        return bind(prim, *derived.consts, *args), derived.out_dims


def _selected(rule: Rule, used: tuple[bool, ...]) -> Rule:
    """The rule for those of the outputs that are used."""

    @made_from(rule, "selected", used)
    def some(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        outs, out_tangents = rule(primals, tangents)
        return chosen(outs, used), chosen(out_tangents, used)

    return some


def _among(rule: Rule, among: Among) -> Rule:
    """The rule, and for all else the derivative of the program."""

    @made_from(rule, among)
    def all_of_it(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[list[Value], list[Tangent]]:
        jaxpr, n = among.jaxpr, among.operands
        derived = jvp_jaxpr(jaxpr, nonzero(tangents))
        found = eval_jaxpr(derived.jaxpr, (), [*derived.consts, *primals, *present(tangents)])
        outs = found[: len(jaxpr.outs)]
        moved = spread(found[len(jaxpr.outs) :], derived.out_nonzero, jaxpr.out_avals)
        _, ours = rule(primals[n:], tangents[n:]) if any(nonzero(tangents[n:])) else ((), among.ours(moved))
        return outs, among.put(moved, ours)

    return all_of_it


def shown_count(num_consts: int) -> dict[str, object]:
    """JAX shows how many values were closed over if there are any."""
    return {"num_consts": num_consts} if num_consts else {}
