"""`call_stablehlo`: a call of a function that is given by its StableHLO module, such as one that JAX exported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from attrs import field, frozen
from typing_extensions import override

from tracefx.control.call import platform_number
from tracefx.control.custom_vjp import ForwardResult, bind_custom_linear
from tracefx.control.ffi_call import batch_in_loop
from tracefx.core import ShapedArray, Value, float0, show_avals
from tracefx.core.handler import bind
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import (
    Batchable,
    BatchDims,
    Differentiable,
    MappedAxis,
    Primitive,
    Tangent,
    Zero,
)
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.ops.operation import run_compiled
from tracefx.ops.sharding_rules import unsharded_specs
from tracefx.ops.structural import constant_like_aval


@final
@frozen(eq=False)
class CallStableHlo(Primitive, Differentiable, Batchable, Lowerable):
    """Calls a function that is given by its StableHLO module.

    Args:
        label: The name of the function.
        in_avals: The types of the arguments.
        out_avals: The types of the results. Booleans stand for `float0`, here and in `in_avals`.
        platforms: The platforms for which the module was lowered.
        artifact: The module as a portable artifact. If there are several platforms, its `main` takes the index of one.
        kept: The numbers of the arguments that `main` takes.
        vjp: The backward pass, a function of the arguments and of the cotangents of the results. By default, `None`:
            the function has no derivative.
    """

    name = "call_stablehlo"
    multiple_results = True
    label: str = field(metadata={"print": "name"})
    in_avals: tuple[ShapedArray, ...]
    out_avals: tuple[ShapedArray, ...]
    platforms: tuple[str, ...]
    artifact: bytes
    kept: tuple[int, ...]
    vjp: CallStableHlo | None = field(default=None, metadata={"hide_default": True})

    @property
    @override
    def profile_name(self) -> str:
        return f"{self.name}({self.label})"

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        if [(a.shape, a.dtype) for a in avals] != [(a.shape, a.dtype) for a in self.in_avals]:
            raise TypeError(f"{self.label} takes ({show_avals(self.in_avals)}), got ({show_avals(avals)})")
        return self.out_avals

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return unsharded_specs(outs)

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return run_compiled(self, args)

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        kept = [operands[i] for i in self.kept]
        takes_index = len(self.platforms) > 1
        return builder.call_artifact(self.label, self.artifact, self._number, takes_index, kept, self.out_avals)

    def _number(self, platform: str) -> int:
        return platform_number(self.label, self.platforms, platform)

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        return batch_in_loop(self, axis.size, args, dims)

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        if self.vjp is None:
            raise ValueError(
                f"{self.label} cannot be differentiated: JAX exported it without its backward pass, which "
                "`exported.serialize(vjp_order=1)` includes. Derivatives of order n need vjp_order=n"
            )
        outs = bind(self, *primals)
        return outs, bind_custom_linear(self.label, ForwardResult(outs, primals, self._pull), tangents)

    def _pull(self, residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
        """Returns the cotangents of the arguments."""
        assert self.vjp is not None
        results = call_stablehlo(self.vjp, [*residuals, *cts])
        in_avals = [aval.tangent() for aval in self.in_avals]
        return [Zero(a) if a.dtype == float0 else ct for a, ct in zip(in_avals, results, strict=True)]


def call_stablehlo(prim: CallStableHlo, args: Sequence[Tangent]) -> Sequence[Value]:
    """Binds the primitive to arguments that may be symbolic zeros, or have the dtype `float0`."""
    values = [
        constant_like_aval(aval, 0) if isinstance(x, Zero) or x.aval.dtype == float0 else x
        for x, aval in zip(args, prim.in_avals, strict=True)
    ]
    return bind(prim, *values)
