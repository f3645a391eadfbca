"""`jit` as a primitive: `Call`, and `CallPrimitive`, the base of all primitives that apply one jaxpr."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.remat import CheckpointPolicy, Rematerializable, RematSplit, split_body_for_remat
from tracefx.core import ConcreteArray, ShapedArray, Value, accepts, show_avals
from tracefx.core.backend import BACKEND
from tracefx.core.handler import bind
from tracefx.core.jaxpr import HasBody, Jaxpr
from tracefx.core.primitive import (
    Batchable,
    BatchDims,
    Differentiable,
    MappedAxis,
    Primitive,
    Recorder,
    Tangent,
    Transposable,
    UndefinedPrimal,
)
from tracefx.interpreters.body_transform import (
    BodyInterpreter,
    BodyName,
    BodyTransformable,
    flatten_to_arrays,
    unpack_results,
)
from tracefx.interpreters.jaxpr_transforms import batch_jaxpr, jvp_jaxpr, transpose_jaxpr, unzip_jaxpr
from tracefx.interpreters.masks import (
    Mask,
    drop_zeros,
    insert_cotangents,
    insert_zeros,
    known_values,
    linear_mask,
    merge_masked,
    nonzero_mask,
    select_masked,
    select_unmasked,
)
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.passes.dce import Prunable, prune
from tracefx.passes.varying import HasTypedBodies


@frozen(eq=False)
class CallPrimitive(
    HasBody,
    Primitive,
    HasTypedBodies,
    Prunable,
    BodyTransformable,
    Differentiable,
    Transposable,
    Batchable,
    Lowerable,
):
    """A primitive that applies one jaxpr, its body: its rules transform the body and bind the primitive again.

    >>> from tracefx import jit, make_jaxpr
    >>> (eqn,) = make_jaxpr(jit(lambda x: 2.0 * x))(1.0).eqns
    >>> isinstance(eqn.prim, CallPrimitive), eqn.prim.callee_name, eqn.prim.jaxpr
    (True, '<lambda>', { lambda ; a:f32[]*. let b:f32[]* = mul 2.0:f32[]* a in (b,) })
    """

    @property
    def callee_name(self) -> str:
        """The name of the body in messages and compiled programs."""
        return self.name

    @property
    @override
    def profile_name(self) -> str:
        return self.name if self.callee_name == self.name else f"{self.name}({self.callee_name})"

    @override
    def prune(self, used_outs: tuple[bool, ...]) -> tuple[Primitive, tuple[bool, ...], tuple[bool, ...]]:
        body, used_ins = prune(self.jaxpr, used_outs)
        return (self if body is self.jaxpr else self.with_jaxprs(body)), used_ins, used_outs

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        body = self.jaxpr
        if not accepts(body.in_avals, avals):
            raise TypeError(
                f"{self.name} of {self.callee_name} takes ({show_avals(body.in_avals)}), got ({show_avals(avals)})"
            )
        return body.out_avals

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return BACKEND.value.run(self.jaxpr, args, self.callee_name)

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        body = self.jaxpr
        derived = jvp_jaxpr(body, nonzero_mask(tangents))
        outs = bind(self.with_jaxprs(derived.jaxpr), *derived.consts, *primals, *drop_zeros(tangents))
        n = len(body.outs)
        return outs[:n], insert_zeros(outs[n:], derived.out_nonzero, body.out_avals)

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        derived = transpose_jaxpr(self.jaxpr, linear_mask(args), nonzero_mask(cts))
        outs = bind(self.with_jaxprs(derived.jaxpr), *derived.consts, *known_values(args), *drop_zeros(cts))
        return insert_cotangents(args, outs, derived.in_nonzero)

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        derived = batch_jaxpr(self.jaxpr, axis, tuple(dims))
        return bind(self.with_jaxprs(derived.jaxpr), *derived.consts, *args), derived.out_dims

    @override
    def transform_bodies(self, interpreter: BodyInterpreter, args: Sequence[Value]) -> Sequence[Value]:
        specs = [interpreter.spec(a) for a in args]
        body = interpreter.transform_body(self.jaxpr, specs, BodyName(self.callee_name))
        prim, operands = self.with_jaxprs(body.jaxpr), flatten_to_arrays(interpreter, args, specs)
        outs = bind(prim, *body.consts, *interpreter.state(body.input_state), *operands)
        return unpack_results(interpreter, body, outs)

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return builder.call(self.callee_name, self.jaxpr, operands)


def platform_number(label: str, platforms: Sequence[str], platform: str) -> int:
    """Returns the index of a platform among those that a function was exported for; raises ValueError if it is none."""
    names = ("cuda", "rocm") if platform == "gpu" else (platform,)
    for i, name in enumerate(platforms):
        if name in names:
            return i
    raise ValueError(
        f"{label} was exported for {', '.join(platforms)}, but it is called on {platform}: export it for {platform} "
        "too, by export(f, platforms=...)"
    )


@final
@frozen(eq=False)
class Call(CallPrimitive, Rematerializable):
    """The primitive of `jit`: calls `jaxpr`, which is compiled as one function.

    Args:
        label: The name of the function that the jaxpr was traced from.
        jaxpr: The body, without constants.
        platforms: The platforms on which an exported function may run; empty, the default, if it may run on all.
    """

    name = "jit"
    label: str = field(alias="label", metadata={"print": "name", "erased": True})
    jaxpr: Jaxpr
    platforms: tuple[str, ...] = field(default=(), metadata={"hide_default": True, "jax": False})

    @property
    @override
    def callee_name(self) -> str:
        return self.label

    def require_platform(self, platform: str) -> int:
        """Raises ValueError unless the function may run on a platform of this name; returns 0."""
        platform_number(self.label, self.platforms, platform)
        return 0

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        if self.platforms:
            committed = [x.device for x in args if isinstance(x, ConcreteArray) and x.committed]
            self.require_platform(committed[0].platform if committed else BACKEND.value.platform)
        return super().evaluate(args)

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        if self.platforms:
            builder.platform_index(self.require_platform)
        return super().lower(builder, *operands)

    @override
    def split_for_remat(self, needed: Mask, policy: CheckpointPolicy) -> RematSplit | None:
        split = split_body_for_remat(self.jaxpr, needed, policy)
        if split is None:
            return None
        first, recompute, saved = split
        return RematSplit(self.with_jaxprs(first), self.with_jaxprs(recompute), saved, needed)

    @override
    def partial_eval(self, recorder: Recorder, unknown: Sequence[bool], args: Sequence[Value]) -> Sequence[Value]:
        split = unzip_jaxpr(self.jaxpr, tuple(unknown))
        known = select_unmasked(args, unknown)
        outs = recorder.evaluate(evolve(self, jaxpr=split.known), [*split.consts, *known])
        n = split.out_unknown.count(False)
        operands = [*split.residuals(outs[n:], known), *select_masked(args, unknown)]
        unknown_outs = recorder.record(evolve(self, jaxpr=split.unknown), operands)
        return merge_masked(split.out_unknown, unknown_outs, outs[:n])
