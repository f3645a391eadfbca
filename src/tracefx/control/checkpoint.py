"""`checkpoint` as an operation: a program whose intermediate values are computed again for the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.call import CallPrimitive
from tracefx.control.control_flow import merge_masked, select_masked, select_unmasked
from tracefx.control.remat import CheckpointPolicy, plan_remat
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import Batchable, Differentiable, MappedAxis, Primitive, Recorder, Tangent
from tracefx.core.values import Value
from tracefx.interpreters.jaxpr_transforms import Consts, Mask, unzip_jaxpr
from tracefx.interpreters.stage import stage
from tracefx.lowering import Builder, IrValue
from tracefx.ops.annotations.identity import Identity
from tracefx.ops.annotations.optimization_barrier import OPTIMIZATION_BARRIER
from tracefx.passes.dce import dce, prune


@final
@frozen(eq=False)
class CheckpointPrimitive(CallPrimitive):
    """A call of `jaxpr`. Of what its backward pass needs, only the operands are kept, and what the policy allows.

    `differentiated` marks the second half of one that was split, which computes the rest again. With `prevent_cse`
    the compiler is kept from finding out that it did so before.
    """

    name = "checkpoint"
    jaxpr: Jaxpr
    differentiated: bool = False
    policy: CheckpointPolicy | None = field(default=None, metadata={"erased": True})
    prevent_cse: bool = True

    @override
    def jaxprs(self) -> tuple[Jaxpr, ...]:
        return (self.jaxpr,)

    @override
    def with_jaxprs(self, *jaxprs: Jaxpr) -> CheckpointPrimitive:
        return evolve(self, jaxpr=jaxprs[0])

    @override
    def partial_eval(self, recorder: Recorder, unknown: Sequence[bool], args: Sequence[Value]) -> Sequence[Value]:
        split = rematerialize_jaxpr(self.jaxpr, tuple(unknown), self.policy)
        known = [*split.consts, *select_unmasked(args, unknown)]
        outs = recorder.evaluate(self.with_jaxprs(split.known), known)
        n = split.out_unknown.count(False)
        late = evolve(self, jaxpr=split.late, differentiated=True)
        later = recorder.record(late, [*[known[i] for i in split.needed], *outs[n:], *select_masked(args, unknown)])
        return merge_masked(split.out_unknown, later, outs[:n])

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        if self.differentiated and self.prevent_cse:
            operands = tuple(OPTIMIZATION_BARRIER.lower(builder, *operands))
        return builder.call(self.name, self.jaxpr, operands)


@final
@frozen(eq=False)
class CheckpointName(Identity, Primitive, Differentiable, Batchable):
    """The operand itself, under a name that policies know it by."""

    name = "name"
    label: str = field(metadata={"print": "name"})

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return bind(self, *primals), tangents

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        return bind(self, *args), dims


# ------------------------------------------------------------------ what is kept


@final
@frozen(eq=False)
class RematerializedJaxpr:
    """A program in two halves, the second of which computes again what it needs of the first.

    `known` maps `consts` and the known inputs to the known outputs and to what is saved; `late` maps those of its
    inputs at `needed`, what is saved, and the unknown inputs to the unknown outputs.
    """

    known: Jaxpr
    late: Jaxpr
    consts: Consts
    out_unknown: Mask
    needed: tuple[int, ...]


def rematerialize_jaxpr(jaxpr: Jaxpr, unknown: Mask, policy: CheckpointPolicy | None) -> RematerializedJaxpr:
    """Partial evaluation that keeps only what the policy allows."""
    return jaxpr.memo.get(("rematerialized", unknown, policy), lambda: _rematerialize_jaxpr(jaxpr, unknown, policy))


def _rematerialize_jaxpr(jaxpr: Jaxpr, unknown: Mask, policy: CheckpointPolicy | None) -> RematerializedJaxpr:
    split = unzip_jaxpr(jaxpr, unknown)
    known, n = split.known, split.out_unknown.count(False)
    fresh = iter(known.outs[n:])
    inputs = known.invars[len(split.consts) :]
    residuals = [next(fresh) if place is None else inputs[place] for place in split.forwarded]
    choice = plan_remat(known, residuals, policy)
    needed = [i for i, v in enumerate(known.invars) if v in choice.read]
    again = Jaxpr((), (*[known.invars[i] for i in needed], *choice.saved), choice.recompute, tuple(residuals))
    m = len(again.invars)

    def run(*args: Value) -> list[Value]:
        return eval_jaxpr(split.unknown, (), [*eval_jaxpr(again, (), args[:m]), *args[m:]])

    staged, consts = stage(run, [*again.in_avals, *split.unknown.in_avals[len(residuals) :]])
    assert not consts
    # What was kept for something that a value kept later made needless is let go.
    late, used = prune(staged, keep=m)
    saved = select_masked(choice.saved, used[len(needed) : m])
    first = dce(Jaxpr((), known.invars, choice.eqns, (*known.outs[:n], *saved)))
    return RematerializedJaxpr(
        first, late, split.consts, split.out_unknown, tuple(select_masked(needed, used[: len(needed)]))
    )
