"""Export rules for `shard_map` and sharding constraints. In exported programs all axes of meshes are automatic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import jax
from jax import lax

from tracefx.control.shard_map import ShardMapPrimitive
from tracefx.core.meshes import AxisType, BaseMesh
from tracefx.core.named_sharding import NamedSharding
from tracefx.core.partition_spec import PartitionSpec
from tracefx.core.primitive import Primitive
from tracefx.interop.jax.exporting_programs import Exporter, ExportRule
from tracefx.interop.jax.meshes import mesh_to_jax, sharding_to_jax, spec_to_jax
from tracefx.ops.annotations.reshard import MeshCast, Reshard
from tracefx.ops.annotations.sharding_constraint import ShardingConstraint
from tracefx.shardings.meshes import Mesh

_Arrays = Sequence[jax.Array]


def _shard_map(exporter: Exporter, prim: ShardMapPrimitive, args: _Arrays) -> _Arrays:
    def per_device(*operands: jax.Array) -> list[jax.Array]:
        return list(exporter.run(prim.jaxpr, operands))

    mapped = jax.shard_map(
        per_device,
        mesh=mesh_to_jax(_automatic(prim.mesh)),
        in_specs=tuple(map(spec_to_jax, prim.in_specs)),
        out_specs=list(map(spec_to_jax, prim.out_specs)),
        axis_names=set(prim.axis_names),
        check_vma=False,  # checked when tracefx traced the function
    )
    return list(mapped(*args))


def _sharding_constraint(exporter: Exporter, prim: ShardingConstraint, args: _Arrays) -> _Arrays:
    return _constrained(args, prim.sharding.mesh, prim.sharding.spec)


def _reshard(exporter: Exporter, prim: Reshard, args: _Arrays) -> _Arrays:
    return _constrained(args, prim.mesh, prim.spec)


def _constrained(args: _Arrays, mesh: BaseMesh, spec: PartitionSpec) -> _Arrays:
    """Returns arrays with a constraint over a mesh with devices, without one otherwise."""
    if not isinstance(mesh, Mesh):
        return args
    sharding = sharding_to_jax(NamedSharding(_automatic(mesh), spec))
    return [lax.with_sharding_constraint(x, sharding) for x in args]


def _automatic(mesh: Mesh) -> Mesh:
    return mesh.update_axis_types(dict.fromkeys(mesh.axis_names, AxisType.Auto))


def _mesh_cast(exporter: Exporter, prim: MeshCast, args: _Arrays) -> _Arrays:
    return args


RULES: Final[Mapping[type[Primitive], ExportRule]] = MappingProxyType(
    {
        ShardMapPrimitive: _shard_map,
        ShardingConstraint: _sharding_constraint,
        Reshard: _reshard,
        MeshCast: _mesh_cast,
    }
)
"""Export rules by class of primitive."""
