"""Functions with a rule of their own for a whole batch, as operations.

A derivative of such a function has a rule derived from the function's: the derivative, or its transpose, of the rule
for the batch. So `vmap` of a gradient is the gradient of what the rule computes, as it is of `vmap`'s result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.bodies import chosen, linear, merged, nonzero, present, spread
from tracefx.control.functions import (
    NOWHERE,
    Flat,
    OutDims,
    Scope,
    body,
    made_from,
    mapped_function,
    pulled_back,
    within,
)
from tracefx.control.ruled import Among, RuledCall, RuledProgram
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import is_inexact
from tracefx.core.errors import ClosedOverTracerError
from tracefx.core.handler import CURRENT, Handler, bind
from tracefx.core.jaxpr import Jaxpr, eval_jaxpr
from tracefx.core.passes import dce
from tracefx.core.primitive import (
    Linear,
    MappedAxis,
    Mapper,
    Tangent,
    Zero,
)
from tracefx.core.values import Value
from tracefx.interpreters.derived import Mask, batch_jaxpr, jvp_jaxpr
from tracefx.interpreters.jvp import JVP
from tracefx.interpreters.stage import stage
from tracefx.ops.basis import batch_first, instantiate, reduce_sum

BatchRule: TypeAlias = Callable[[MappedAxis, Mask, Sequence[Value]], tuple[Sequence[Value], Mask]]
"""The axis, which operands have it, and the operands, having it first: to the outputs, and which of them have it."""


@final
@frozen(eq=False)
class CustomVmapCall(RuledCall):
    """A call of `fun`, which `rule` does for a whole batch."""

    name = "custom_vmap_call"
    rule: BatchRule

    @override
    def within(self, enter: Callable[[Handler], Handler]) -> CustomVmapCall:
        return evolve(self, fun=within(enter, self.fun), rule=within(enter, self.rule))

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        outs = bind(self, *primals)
        moved = _movable(outs)
        if not any(moved):
            return outs, [Zero(o.aval.tangent()) for o in outs]
        mask = nonzero(tangents)
        prim = CustomVmapCall(self.label, _derivative(self.fun, mask), _rule_of_derivative(self.rule, mask))
        return outs, spread(bind(prim, *primals, *present(tangents)), moved, [o.aval for o in outs])

    @override
    def mapped(
        self, mapper: Mapper, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        if any(d is not None for d in dims):
            return _by_rule(self.rule, mapper.axis, args, dims)
        out = OutDims(self.label, mapper.axis, False)
        prim = evolve(
            self,
            fun=mapped_function(mapper, self.fun, dims, out),
            rule=_rule_beside(mapper, self.rule, out),
        )
        outs = bind(prim, *args)
        return outs, out.of(outs)

    @override
    def staged(self, recording: Handler, args: Sequence[Value]) -> tuple[CustomVmap, Sequence[Value]]:
        traced = body(self.fun, recording, args)
        consts = traced.consts
        rule = _hosted(self.label, self.rule, traced.scope, len(consts))
        return CustomVmap(self.label, traced.jaxpr, rule), [*consts, *args]


@final
@frozen(eq=False)
class CustomVmap(RuledProgram):
    """A call of `jaxpr`, which `rule` does for a whole batch."""

    name = "custom_vmap_call"
    label: str = field(metadata={"print": "name", "erased": True, "jax": False})
    jaxpr: Jaxpr = field(metadata={"print": "call"})
    rule: BatchRule = field(metadata={"erased": True})

    @override
    def with_program(self, jaxpr: Jaxpr, consts: int, enter: Callable[[Handler], Handler]) -> CustomVmap:
        return evolve(self, jaxpr=jaxpr, rule=_after(consts, within(enter, self.rule)))

    @override
    def among(self, among: Among) -> CustomVmap:
        return evolve(self, jaxpr=among.jaxpr, rule=_among(self.rule, among))

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        outs = bind(self, *primals)
        moved = _movable(outs)
        if not any(moved):
            return outs, [Zero(o.aval.tangent()) for o in outs]
        mask, n = nonzero(tangents), len(outs)
        derived = jvp_jaxpr(self.jaxpr, mask, moved)
        pushed = dce(derived.jaxpr, (False,) * n + (True,) * sum(derived.out_nonzero))
        rule = _after(len(derived.consts), _rule_of_derivative(self.rule, mask))
        found = bind(CustomVmap(self.label, pushed, rule), *derived.consts, *primals, *present(tangents))
        return outs, spread(found, moved, self.jaxpr.out_avals)

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | Linear) -> Sequence[Tangent | None]:
        mask, given = linear(args), nonzero(cts)
        derived, consts = self.jaxpr.memo.get(
            ("transpose of a batch", mask, given), lambda: _transposed(self.jaxpr, mask, given)
        )
        rule = _after(len(consts), _rule_of_transpose(self.rule, mask, given, self.jaxpr))
        known = [a for a in args if not isinstance(a, Linear)]
        found = bind(CustomVmap(self.label, derived, rule), *consts, *known, *present(cts))
        return merged(mask, found, [None] * len(known))

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        return _by_rule(self.rule, axis, args, dims)


def _movable(outs: Sequence[Value]) -> Mask:
    return tuple([is_inexact(o.aval.dtype) for o in outs])


def _by_rule(
    rule: BatchRule, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
) -> tuple[Sequence[Value], Sequence[int | None]]:
    fronted = [x if d is None else batch_first(x, d, axis) for x, d in zip(args, dims, strict=True)]
    outs, batched = rule(axis, tuple([d is not None for d in dims]), fronted)
    return outs, [0 if b else None for b in batched]


# ------------------------------------------------------------------ rules elsewhere


def _hosted(label: str, rule: BatchRule, scope: Scope, count: int) -> BatchRule:
    """The rule of an operation whose first `count` operands are what its functions closed over."""

    @made_from(rule, scope.key, count)
    def hosted(axis: MappedAxis, batched: Mask, args: Sequence[Value]) -> tuple[Sequence[Value], Mask]:
        if any(batched[:count]):
            raise ClosedOverTracerError(
                f"{label} closes over a value that differs along a mapped axis, but its rule for the batch knows its "
                "arguments alone: make the value an argument"
            )
        return scope.around(rule, args[:count])(axis, batched[count:], args[count:])

    return hosted if count or scope.named else rule


def _after(count: int, rule: BatchRule) -> BatchRule:
    return _hosted("", rule, NOWHERE, count)


def _among(rule: BatchRule, among: Among) -> BatchRule:
    """The rule, and for all else the program for the batch."""

    @made_from(rule, among)
    def all_of_it(axis: MappedAxis, batched: Mask, args: Sequence[Value]) -> tuple[list[Value], Mask]:
        n = among.operands
        derived = batch_jaxpr(among.jaxpr, axis, tuple([0 if b else None for b in batched]))
        found = eval_jaxpr(derived.jaxpr, (), [*derived.consts, *args])
        outs = [x if d is None else batch_first(x, d, axis) for x, d in zip(found, derived.out_dims, strict=True)]
        mask = [d is not None for d in derived.out_dims]
        if not any(batched[n:]):
            return outs, tuple(mask)
        ours, our_mask = rule(axis, batched[n:], args[n:])
        return among.put(outs, ours), tuple(among.put(mask, our_mask))

    return all_of_it


def _rule_beside(mapper: Mapper, rule: BatchRule, out: OutDims) -> BatchRule:
    """The rule for another axis than the mapper's, which no operand has, though the function may close over it."""

    @made_from(rule, "beside", mapper.axis, out.key)
    def beside(axis: MappedAxis, batched: Mask, args: Sequence[Value]) -> tuple[list[Value], Mask]:
        out_batched: Mask = ()

        def run(*values: Value) -> Sequence[Value]:
            nonlocal out_batched
            outs, out_batched = rule(axis, batched, values)
            return outs

        outs, dims = mapper.run(run, args, [None] * len(args))
        placed = list(map(out.place, outs, dims, out.settle(dims)))
        # The mapper's axis stands first in an output that has it, before the one that is mapped now.
        return [
            batch_first(x, 1, axis) if b and d is not None else x
            for x, b, d in zip(placed, out_batched, out.of(outs), strict=True)
        ], out_batched

    return beside


# ------------------------------------------------------------------ rules of derivatives


def _derivative(fun: Flat, mask: Mask) -> Flat:
    """Primals, and tangents of those in the mask, to the tangents of the outputs that can have one."""

    @made_from(fun, "derivative", mask)
    def pushed(*values: Value) -> list[Value]:
        return _push(fun, mask, values)

    return pushed


def _push(fun: Flat, mask: Mask, values: Sequence[Value]) -> list[Value]:
    n = len(mask)
    handler = JVP(CURRENT.get())
    given = iter(values[n:])
    duals = [handler.wrap(x, next(given)) if m else x for x, m in zip(values, mask, strict=False)]
    token = CURRENT.set(handler)
    try:
        outs = fun(*duals)
    finally:
        CURRENT.reset(token)
    pairs = [handler.unwrap(o) for o in outs]
    return [instantiate(t) for p, t in pairs if is_inexact(p.aval.dtype)]


def _rule_of_derivative(rule: BatchRule, mask: Mask) -> BatchRule:
    n = len(mask)

    @made_from(rule, "derivative", mask)
    def pushed(axis: MappedAxis, batched: Mask, args: Sequence[Value]) -> tuple[list[Value], Mask]:
        of_tangents = merged(mask, batched[n:], [False] * mask.count(False))
        joint = tuple([p or t for p, t in zip(batched[:n], of_tangents, strict=True)])
        full = [
            batch_first(x, 0 if has else None, axis) if must else x
            for x, has, must in zip(args, batched, [*joint, *chosen(joint, mask)], strict=True)
        ]
        out_batched: Mask = ()

        def outs(*primals: Value) -> Sequence[Value]:
            nonlocal out_batched
            found, of_outs = rule(axis, joint, primals)
            out_batched = tuple(chosen(of_outs, _movable(found)))
            return found

        return _push(outs, mask, full), out_batched

    return pushed


def _transposed(jaxpr: Jaxpr, mask: Mask, given: Mask) -> tuple[Jaxpr, tuple[Value, ...]]:
    """The program backwards. What is known in it is computed first: it may be a derivative not yet taken apart."""
    avals, n = chosen(jaxpr.in_avals, mask), mask.count(False)

    def back(*values: Value) -> list[Value]:
        def forwards(*linear_args: Value) -> list[Value]:
            return eval_jaxpr(jaxpr, (), merged(mask, linear_args, values[:n]))

        cts = spread(values[n:], given, jaxpr.out_avals)
        return list(map(instantiate, pulled_back(forwards, avals, lambda: cts)))

    known = chosen(jaxpr.in_avals, [not m for m in mask])
    result, consts = stage(back, [*known, *[a.tangent() for a in chosen(jaxpr.out_avals, given)]])
    return result.closed(), tuple(consts)


def _rule_of_transpose(rule: BatchRule, mask: Mask, given: Mask, jaxpr: Jaxpr) -> BatchRule:
    """The rule of a map's transpose: operands outside the mask, and cotangents of outputs that have one."""
    avals, count = jaxpr.in_avals, mask.count(False)

    @made_from(rule, "transpose", mask, given, avals)
    def pulled(axis: MappedAxis, batched: Mask, args: Sequence[Value]) -> tuple[list[Value], Mask]:
        known, cts = args[:count], args[count:]
        joint = merged(mask, [True] * sum(mask), batched[:count])
        out_avals: list[ShapedArray] = []
        out_batched: Mask = ()

        def outs(*linear_args: Value) -> Sequence[Value]:
            nonlocal out_batched
            found, out_batched = rule(axis, tuple(joint), merged(mask, linear_args, known))
            out_avals[:] = [x.aval for x in found]
            return found

        def out_cts() -> list[Tangent]:
            whole = [batch_first(ct, 0 if b else None, axis) for ct, b in zip(cts, batched[count:], strict=True)]
            summed = [
                ct if has else reduce_sum(ct, (0,)) for ct, has in zip(whole, chosen(out_batched, given), strict=True)
            ]
            return spread(summed, given, out_avals)

        found = pulled_back(outs, [a.with_axis(axis.size, 0) for a in chosen(avals, mask)], out_cts)
        return list(map(instantiate, found)), (True,) * len(found)

    return pulled
