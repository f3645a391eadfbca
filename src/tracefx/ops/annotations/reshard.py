"""`reshard` and `mesh_cast`: change the sharding that is part of the type of a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import ConcreteArray, NDArray, ShapedArray, Value
from tracefx.core.backend import BACKEND
from tracefx.core.effects import Effects
from tracefx.core.handler import as_array, bind1
from tracefx.core.jaxpr import Atom
from tracefx.core.meshes import AxisType, BaseMesh
from tracefx.core.named_sharding import NamedSharding, Spec, explicit_entry, type_sharding
from tracefx.core.partition_spec import PartitionSpec
from tracefx.core.primitive import MappedAxis, UndefinedPrimal
from tracefx.core.rule_arguments import Tangent
from tracefx.errors import ShardingTypeError
from tracefx.lowering import Builder, IrValue
from tracefx.ops.operation import DataMovement, LinearOperation, UnaryOperation
from tracefx.shardings.meshes import Mesh, current_mesh, mesh_effects
from tracefx.shardings.sharded_array import ShardedArray, put_concrete, with_mesh_type


@final
@frozen(eq=False)
class Reshard(UnaryOperation, LinearOperation, DataMovement):
    """Returns its operand, with another sharding over the explicit axes of a mesh.

    Args:
        mesh: The mesh, with or without devices.
        spec: The mesh axes over which each axis of the operand is sharded.

    `x: f32[...] -> f32[...]`, any dtype. Bound by `sharding.reshard`.

    >>> from tracefx import P, bind, make_mesh, numpy, ops
    >>> prim = ops.Reshard(make_mesh((1,), ("x",)), P("x"))
    >>> bind(prim, numpy.array([1, 2]))[0].aval
    i32[2@x]
    """

    name = "reshard"
    mesh: BaseMesh
    spec: PartitionSpec

    @property
    @override
    def effects(self) -> Effects:
        return mesh_effects(self.mesh)

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        entries = self.spec.of_rank(x.ndim)
        sharding = type_sharding(self.mesh, entries, x.ndim)
        out = x.with_explicit_sharding(sharding)
        if sharding is not None:
            for n, entry in zip(x.shape, sharding.spec, strict=True):
                if n % sharding.mesh.size_of(PartitionSpec(entry).names):
                    raise ShardingTypeError(
                        f"reshard of {x} to {self.spec} over {self.mesh}: the axis of size {n} can't be cut into equal "
                        "parts"
                    )
        return out

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [out.spec for out in outs]

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return args[0]

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return [reshard_value(as_array(x), self.mesh, self.spec) for x in args]

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [ct]  # the backward pass gives it the sharding of the operand

    @override
    def batch_operand(self, axis: MappedAxis, x: Value, dim: int) -> tuple[Value, int | None]:
        entries = self.spec.of_rank(x.aval.ndim - 1)
        spec = PartitionSpec(*entries[:dim], x.aval.spec[dim], *entries[dim:])
        return bind1(Reshard(self.mesh, spec), x), dim

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        (x,) = operands
        entries = [explicit_entry(entry, self.mesh) for entry in self.spec.of_rank(out.ndim)]
        return builder.constrain(x, self.mesh.abstract_mesh, PartitionSpec(*entries))


@final
@frozen(eq=False)
class MeshCast(UnaryOperation, LinearOperation, DataMovement):
    """Returns its operand, whose type says nothing of some mesh axes: the compiler decides about these.

    Args:
        axes: The names of the mesh axes.

    `x: f32[...] -> f32[...]`, any dtype. Bound by functions of `sharding.auto_axes`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.MeshCast(("x",)), numpy.array([1, 2]))[0].tolist()
    [1, 2]
    """

    name = "mesh_cast"
    axes: tuple[str, ...]

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        return avals[0]

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        entries = [PartitionSpec(entry).names for entry in avals[0].spec]
        return [tuple([tuple([name for name in names if name not in self.axes]) for names in entries])]

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return args[0]

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [ct]

    @override
    def batch_operand(self, axis: MappedAxis, x: Value, dim: int) -> tuple[Value, int | None]:
        return bind1(self, x), dim

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        return operands[0]


def any_sharded(values: Sequence[Value | Atom]) -> bool:
    """Whether the type of a value has a sharding."""
    for x in values:  # noqa: SIM110  # a loop, not `any`: handlers call this for every operation
        if x.aval.explicit_sharding is not None:
            return True
    return False


def mesh_cast(x: Value, axes: Sequence[str]) -> Value:
    """Returns a value whose type says nothing of some mesh axes; a concrete array has a mesh where they are `Auto`."""
    if type(x) is ShardedArray:
        return with_mesh_type(x, axes, AxisType.Auto)
    return x if x.aval.explicit_sharding is None else bind1(MeshCast(tuple(axes)), x)


def without_type_sharding(x: Value) -> Value:
    """Returns a value whose type has no sharding."""
    sharding = x.aval.explicit_sharding
    return x if sharding is None else mesh_cast(x, sharding.mesh.explicit_axes)


def reshard_value(x: Value, mesh: BaseMesh, spec: PartitionSpec) -> Value:
    """Returns a value with a sharding over a mesh. A concrete array gets it if the devices of the mesh are known."""
    if not isinstance(x, ConcreteArray):
        return bind1(Reshard(mesh, spec), x)
    concrete = _with_devices(mesh, x)
    return x if concrete is None else put_concrete(x, NamedSharding(concrete, spec), "the operand of reshard")


def _with_devices(mesh: BaseMesh, x: ConcreteArray) -> Mesh | None:
    """Returns a mesh with devices: its own, those of an array or of the mesh in use, or else the first ones."""
    if isinstance(mesh, Mesh):
        return mesh
    sharding = x.sharding
    for known in (sharding.mesh if isinstance(sharding, NamedSharding) else None, current_mesh()):
        if isinstance(known, Mesh) and known.shape_tuple == mesh.shape_tuple:
            return known.update_axis_types(dict(zip(mesh.axis_names, mesh.axis_types, strict=True)))
    devices = BACKEND.value.devices(BACKEND.value.platform)
    if len(devices) < mesh.size:
        return None
    array = np.empty(mesh.size, object)
    array[:] = devices[: mesh.size]
    return Mesh(array.reshape(mesh.axis_sizes), mesh.axis_names, mesh.axis_types)


def with_type_of(x: Value, aval: ShapedArray) -> Value:
    """Returns a value with the sharding of a type."""
    have, want = x.aval.explicit_sharding, aval.explicit_sharding
    if have is want or have == want:
        return x
    known = have if want is None else want
    assert known is not None  # they differ
    return reshard_value(x, known.mesh, PartitionSpec(*aval.spec))
