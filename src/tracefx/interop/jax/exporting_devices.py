"""Export rules for `shard_map` and sharding constraints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import jax
from jax import lax

from tracefx.control.shard_map import ShardMapPrimitive
from tracefx.core.named_sharding import NamedSharding
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
        mesh=mesh_to_jax(prim.mesh),
        in_specs=tuple(map(spec_to_jax, prim.in_specs)),
        out_specs=list(map(spec_to_jax, prim.out_specs)),
        axis_names=set(prim.axis_names),
        check_vma=False,  # checked when tracefx traced the function
    )
    return list(mapped(*args))


def _sharding_constraint(exporter: Exporter, prim: ShardingConstraint, args: _Arrays) -> _Arrays:
    sharding = sharding_to_jax(prim.sharding)
    return [lax.with_sharding_constraint(x, sharding) for x in args]


def _reshard(exporter: Exporter, prim: Reshard, args: _Arrays) -> _Arrays:
    if not isinstance(prim.mesh, Mesh):
        return args
    sharding = sharding_to_jax(NamedSharding(prim.mesh, prim.spec))  # the exported program has automatic axes
    return [lax.with_sharding_constraint(x, sharding) for x in args]


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
