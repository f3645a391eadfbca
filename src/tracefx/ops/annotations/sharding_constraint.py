"""`sharding_constraint`: requests a sharding for a value inside a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from attrs import frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, NDArray, ShapedArray, Value
from tracefx.core.backend import BACKEND
from tracefx.core.effects import Effects
from tracefx.core.handler import bind1
from tracefx.core.named_sharding import NamedSharding, Spec
from tracefx.core.partition_spec import UNCONSTRAINED, PartitionSpec
from tracefx.core.primitive import MappedAxis, Tangent, UndefinedPrimal
from tracefx.lowering import Builder, IrValue, MlirText
from tracefx.ops.operation import DataMovement, LinearOperation, UnaryOperation
from tracefx.shardings.conversions import require_shardable
from tracefx.shardings.meshes import mesh_effects
from tracefx.text.printer import HasJaxParams


@final
@frozen(eq=False)
class ShardingConstraint(UnaryOperation, LinearOperation, DataMovement, HasJaxParams):
    """Returns its operand, with the given sharding.

    Args:
        sharding: The sharding: how the axes of the operand are distributed over the devices of a mesh.

    `x: f32[...] -> f32[...]`, any dtype. Bound by `lax.with_sharding_constraint`.

    >>> from tracefx import NamedSharding, P, bind, make_mesh, numpy, ops
    >>> prim = ops.ShardingConstraint(NamedSharding(make_mesh((1,), ("x",)), P("x")))
    >>> bind(prim, numpy.array([1, 2]))[0].tolist()
    [1, 2]
    """

    name = "sharding_constraint"
    sharding: NamedSharding

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [avals[0].spec]

    @property
    @override
    def effects(self) -> Effects:
        return mesh_effects(self.sharding.mesh)

    @override
    def jax_params(self) -> Mapping[str, object]:
        mesh, spec = self.sharding.mesh, self.sharding.spec
        free = [str(i) for i, part in enumerate(spec) if part is UNCONSTRAINED]
        return {
            "context_mesh": "Mesh()",
            "layout": None,
            "sharding": f"NamedSharding(mesh={mesh.jax_repr}, spec={spec.jax_repr}, memory_kind=device)",
            "unconstrained_dims": f"frozenset({{{', '.join(free)}}})",
        }

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        parts = self.sharding.spec.of_rank(x.ndim)
        known = PartitionSpec(*[None if part is UNCONSTRAINED else part for part in parts])
        require_shardable(x, NamedSharding(self.sharding.mesh, known), "the operand of with_sharding_constraint")
        return x

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return args[0]

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return BACKEND.value.evaluate_on_devices(self, args)

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [bind1(self, ct)]

    @override
    def batch_operand(self, axis: MappedAxis, x: Value, dim: int) -> tuple[Value, int | None]:
        parts = self.sharding.spec.of_rank(x.aval.ndim - 1)
        batch_part = UNCONSTRAINED if axis.spmd_name is None else axis.spmd_name
        spec = PartitionSpec(*parts[:dim], batch_part, *parts[dim:])
        return bind1(ShardingConstraint(NamedSharding(self.sharding.mesh, spec)), x), dim

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        manual = [name for name in self.sharding.spec.names if builder.replica_groups((name,)) is not None]
        if manual:
            raise ValueError(
                f"with_sharding_constraint: {self.sharding.spec} names {', '.join(map(repr, manual))}, a manual axis "
                "of the shard_map around it, along which each device has a shard of its own: constrain the whole array "
                "outside of the shard_map, or name its other axes only"
            )
        attrs = {"sharding": MlirText(builder.sharding(self.sharding, out))}
        return builder.emit("sdy.sharding_constraint", operands, [out], attrs)[0]


def sharding_constraint(x: ArrayLike, sharding: NamedSharding) -> Array:
    """Returns `x`, constrained to have `sharding` at this point of the program."""
    return bind1(ShardingConstraint(sharding), x)
