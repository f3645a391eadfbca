"""`checkpoint` as an operation: a program whose intermediate values are computed again for the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.bodies import chosen, merged, others
from tracefx.control.call import Application
from tracefx.core.avals import ShapedArray
from tracefx.core.builder import Builder, Ir
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import bind
from tracefx.core.jaxpr import Atom, CarriesJaxprs, Eqn, Jaxpr, Var, eval_jaxpr
from tracefx.core.passes import dce
from tracefx.core.primitive import Batchable, Differentiable, Lowerable, MappedAxis, Primitive, Recorder, Tangent
from tracefx.core.values import Value
from tracefx.handlers.derived import Consts, Mask, unzip_jaxpr
from tracefx.handlers.stage import stage
from tracefx.ops.barrier import OPTIMIZATION_BARRIER

Policy: TypeAlias = Callable[..., bool]
"""Says of an operation, and the types of its operands, whether its results are kept: `policy(prim, *avals)`."""


@final
@frozen(eq=False)
class Checkpoint(Application):
    """A call of `jaxpr`. Of what its backward pass needs, only the operands are kept, and what the policy allows.

    `differentiated` marks the second half of one that was split, which computes the rest again. With `prevent_cse`
    the compiler is kept from finding out that it did so before.
    """

    name = "checkpoint"
    jaxpr: Jaxpr
    differentiated: bool = False
    policy: Policy | None = field(default=None, metadata={"erased": True})
    prevent_cse: bool = True

    @override
    def jaxprs(self) -> tuple[Jaxpr, ...]:
        return (self.jaxpr,)

    @override
    def with_jaxprs(self, *jaxprs: Jaxpr) -> Checkpoint:
        return evolve(self, jaxpr=jaxprs[0])

    @override
    def partial_eval(self, recorder: Recorder, unknown: Sequence[bool], args: Sequence[Value]) -> Sequence[Value]:
        split = rematerialized(self.jaxpr, tuple(unknown), self.policy)
        known = [*split.consts, *others(args, unknown)]
        outs = recorder.evaluate(self.with_jaxprs(split.known), known)
        n = split.out_unknown.count(False)
        late = evolve(self, jaxpr=split.late, differentiated=True)
        later = recorder.record(late, [*[known[i] for i in split.needed], *outs[n:], *chosen(args, unknown)])
        return merged(split.out_unknown, later, outs[:n])

    @override
    def lower(self, builder: Builder, *operands: Ir) -> Sequence[Ir]:
        if self.differentiated and self.prevent_cse:
            operands = tuple(OPTIMIZATION_BARRIER.lower(builder, *operands))
        return builder.call(self.name, self.jaxpr, operands)


@final
@frozen(eq=False)
class Name(Primitive, Differentiable, Batchable, Lowerable):
    """The operand itself, under a name that policies know it by."""

    name = "name"
    label: str = field(metadata={"print": "name"})

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return avals

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return args

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return args

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return bind(self, *primals), tangents

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        return bind(self, *args), dims

    @override
    def lower(self, builder: Builder, *operands: Ir) -> Sequence[Ir]:
        return operands


# ------------------------------------------------------------------ what is kept


@final
@frozen(eq=False)
class Rematerialized:
    """A program in two halves, the second of which computes again what it needs of the first.

    `known` maps `consts` and the known inputs to the known outputs and to what is saved; `late` maps those of its
    inputs at `needed`, what is saved, and the unknown inputs to the unknown outputs.
    """

    known: Jaxpr
    late: Jaxpr
    consts: Consts
    out_unknown: Mask
    needed: tuple[int, ...]


def rematerialized(jaxpr: Jaxpr, unknown: Mask, policy: Policy | None) -> Rematerialized:
    """Partial evaluation that keeps only what the policy allows."""
    return jaxpr.memo.get(("rematerialized", unknown, policy), lambda: _rematerialized(jaxpr, unknown, policy))


def _rematerialized(jaxpr: Jaxpr, unknown: Mask, policy: Policy | None) -> Rematerialized:
    split = unzip_jaxpr(jaxpr, unknown)
    known, n = split.known, split.out_unknown.count(False)
    fresh = iter(known.outs[n:])
    inputs = known.invars[len(split.consts) :]
    residuals = [next(fresh) if place is None else inputs[place] for place in split.forwarded]
    saved, copied, read = _chosen(known, residuals, policy)
    needed = [i for i, v in enumerate(known.invars) if v in read]
    again = Jaxpr((), (*[known.invars[i] for i in needed], *saved), tuple(copied), tuple(residuals))

    def run(*args: Value) -> list[Value]:
        m = len(again.invars)
        return eval_jaxpr(split.unknown, (), [*eval_jaxpr(again, (), args[:m]), *args[m:]])

    late, consts = stage(run, [*again.in_avals, *split.unknown.in_avals[len(residuals) :]])
    assert not consts
    first = dce(Jaxpr((), known.invars, known.eqns, (*known.outs[:n], *saved)))
    return Rematerialized(first, dce(late), split.consts, split.out_unknown, tuple(needed))


def _chosen(known: Jaxpr, residuals: Sequence[Atom], policy: Policy | None) -> tuple[list[Var], list[Eqn], set[Atom]]:
    """Of the values that the other half needs: those saved, the equations that compute the others, all that is read."""
    read: set[Atom] = set(residuals)
    saved: list[Var] = []
    copied: list[Eqn] = []
    for eqn in reversed(known.eqns):
        needed = [v for v in eqn.outs if v in read]
        if not needed:
            continue
        # What an operation with effects gave is saved, whatever the policy: it must not happen twice.
        once = any(effect.observable for effect in eqn.prim.effects)
        keep = {v for i, v in enumerate(eqn.outs) if v in read and (once or saves(policy, eqn, i))}
        saved += [v for v in needed if v in keep]
        if len(keep) < len(needed):
            outs = tuple([Var(known.var_count + len(copied), v.aval) if v in keep else v for v in eqn.outs])
            copied.append(Eqn(eqn.prim, eqn.inputs, outs, eqn.source))
            read.update(eqn.inputs)
    return saved, copied[::-1], read


def saves(policy: Policy | None, eqn: Eqn, place: int) -> bool:
    """Whether the policy lets an output of an equation be kept; what comes out of a body is judged in there."""
    if policy is None:
        return False
    prim = eqn.prim
    if policy(prim, *[x.aval for x in eqn.inputs]):
        return True
    if not isinstance(prim, CarriesJaxprs):
        return False
    makers = []
    for body in prim.jaxprs():
        if len(body.outs) != len(eqn.outs):
            return False
        out = body.outs[place]
        found = [(e, i) for e in body.eqns for i, v in enumerate(e.outs) if v is out]
        makers += found
        if not found:
            return False
    return all(saves(policy, e, i) for e, i in makers)
