"""`checkpoint` as a primitive: a call whose intermediate values are recomputed in the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize_on_object
from tracefx.control.call import CallPrimitive
from tracefx.control.remat import CheckpointPolicy, plan_remat
from tracefx.core import Value
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import Batchable, BatchDims, Differentiable, MappedAxis, Primitive, Recorder, Tangent
from tracefx.interpreters.jaxpr_transforms import Consts, unzip_jaxpr
from tracefx.interpreters.masks import Mask, merge_masked, select_masked, select_unmasked
from tracefx.interpreters.stage import stage
from tracefx.lowering import Builder, IrValue
from tracefx.ops.annotations.identity import Identity
from tracefx.ops.annotations.optimization_barrier import OPTIMIZATION_BARRIER
from tracefx.passes.dce import dce, prune


@final
@frozen(eq=False)
class CheckpointPrimitive(CallPrimitive):
    """The primitive of `checkpoint`: a call of `jaxpr` that saves only its operands and what `policy` allows.

    Args:
        jaxpr: The body.
        differentiated: Whether this is the second half of a split call, which recomputes the residuals that are not
            saved. False by default.
        policy: The checkpoint policy. By default, `None`: only the operands are saved.
        prevent_cse: Whether an optimization barrier keeps the compiler from merging the recomputation with the first
            half. True by default.
    """

    name = "checkpoint"
    jaxpr: Jaxpr
    differentiated: bool = False
    policy: CheckpointPolicy | None = field(default=None, metadata={"erased": True})
    prevent_cse: bool = True

    @override
    def partial_eval(self, recorder: Recorder, unknown: Sequence[bool], args: Sequence[Value]) -> Sequence[Value]:
        split = rematerialize_jaxpr(self.jaxpr, tuple(unknown), self.policy)
        known = [*split.consts, *select_unmasked(args, unknown)]
        outs = recorder.evaluate(self.with_jaxprs(split.known), known)
        n = split.out_unknown.count(False)
        recompute = evolve(self, jaxpr=split.late, differentiated=True)
        unknown_outs = recorder.record(
            recompute, [*[known[i] for i in split.needed], *outs[n:], *select_masked(args, unknown)]
        )
        return merge_masked(split.out_unknown, unknown_outs, outs[:n])

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        keeps_apart = self.differentiated and self.prevent_cse
        if keeps_apart:
            operands = tuple(OPTIMIZATION_BARRIER.lower(builder, *operands))
        # On the CPU, XLA removes barriers before it merges equal operations; those of separate functions stay apart.
        return builder.call(self.name, self.jaxpr, operands, merged=not keeps_apart)


@final
@frozen(eq=False)
class CheckpointName(Identity, Primitive, Differentiable, Batchable):
    """The identity, with a name that checkpoint policies refer to.

    Args:
        label: The name.
    """

    name = "name"
    label: str = field(metadata={"print": "name"})

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return bind(self, *primals), tangents

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        return bind(self, *args), dims


# ------------------------------------------------------------------ splitting


@final
@frozen(eq=False)
class RematerializedJaxpr:
    """A jaxpr split into two halves, the second of which recomputes values of the first.

    `known` maps `(consts, known inputs)` to `(known outputs, saved values)`; `late` maps those inputs of `known` at
    `needed`, the saved values, and the unknown inputs to the unknown outputs.
    """

    known: Jaxpr
    late: Jaxpr
    consts: Consts
    out_unknown: Mask
    needed: tuple[int, ...]


@memoize_on_object
def rematerialize_jaxpr(jaxpr: Jaxpr, unknown: Mask, policy: CheckpointPolicy | None) -> RematerializedJaxpr:
    """Splits a jaxpr by partial evaluation, with only those residuals that the policy allows."""
    split = unzip_jaxpr(jaxpr, unknown)
    known, n = split.known, split.out_unknown.count(False)
    residuals = split.residuals(known.outs[n:], known.invars[len(split.consts) :])
    plan = plan_remat(known, residuals, policy)
    needed = [i for i, v in enumerate(known.invars) if v in plan.read]
    recompute = Jaxpr((), (*[known.invars[i] for i in needed], *plan.saved), plan.recompute, tuple(residuals))
    m = len(recompute.invars)

    def run(*args: Value) -> list[Value]:
        return eval_jaxpr(split.unknown, (), [*eval_jaxpr(recompute, (), args[:m]), *args[m:]])

    staged, consts = stage(run, [*recompute.in_avals, *split.unknown.in_avals[len(residuals) :]])
    assert not consts
    # Drop saved values that later saved values have made unnecessary.
    late, used = prune(staged, keep=m)
    saved = select_masked(plan.saved, used[len(needed) : m])
    forward = dce(Jaxpr((), known.invars, plan.eqns, (*known.outs[:n], *saved)))
    return RematerializedJaxpr(
        forward, late, split.consts, split.out_unknown, tuple(select_masked(needed, used[: len(needed)]))
    )
