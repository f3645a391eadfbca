"""Import rules for primitives about several devices: `shard_map`, shardings and collectives.

Casts that only change the varying mesh axes of JAX's types (`pvary`) do not change values; they are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from attrs import evolve
from jax.sharding import NamedSharding as JaxNamedSharding

from tracefx.control.call import Call
from tracefx.core import Array, Value
from tracefx.core.handler import as_array, bind
from tracefx.core.named_sharding import NamedSharding
from tracefx.interop.jax.checked_shard_map import CheckedShardMap
from tracefx.interop.jax.importing_first_order import collective_reduction_rule
from tracefx.interop.jax.importing_programs import Importer, ImportRule, JaxEquation
from tracefx.interop.jax.meshes import mesh_from_jax, mesh_to_jax, spec_from_jax
from tracefx.interop.jax.parameters import operation_from_jax
from tracefx.ops.annotations.sharding_constraint import sharding_constraint
from tracefx.ops.structural import reduce_sum
from tracefx.transforms.shard_maps import shard_map

# ------------------------------------------------------------------ shard_map


def _shard_map(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    mesh = mesh_from_jax(params["mesh"])
    names = [name for name in mesh.axis_names if name in params["newly_manual_axes"]]
    axes = (*importer.axes, *[(name, mesh.shape[name]) for name in names])
    checked = CheckedShardMap(mesh_to_jax(mesh), tuple(names)) if params["check_vma"] and not importer.axes else None
    inner = evolve(importer, axes=axes, checked_shard_map=checked)

    def each(*parts: Array) -> list[Array]:
        return [as_array(x) for x in inner.run(params["jaxpr"], parts)]

    each.__name__ = str(params["jaxpr"].debug_info.func_name).rpartition(".")[2].strip("<>") or "each"
    mapped = shard_map(
        each,
        mesh=mesh,
        in_specs=tuple(map(spec_from_jax, params["in_specs"])),
        out_specs=list(map(spec_from_jax, params["out_specs"])),
        axis_names=names,
        check_vma=False,  # JAX has checked it, unless the user disabled that
    )
    results: Sequence[Value] = mapped(*map(as_array, args))
    return results


def _all_gather(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    return bind(operation_from_jax("all_gather", eqn.params, invarying=True), *args)


def _identity(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    return args


# ------------------------------------------------------------------ shardings


def _constrain(importer: Importer, x: Value, sharding: Any) -> Value:
    """Constrains `x` to JAX's sharding, unless the mesh has one device or its axes are manual here."""
    if not isinstance(sharding, JaxNamedSharding) or sharding.mesh.size < 2:
        return x
    manual_axes = {name for name, _ in importer.axes}
    if not manual_axes.isdisjoint(sharding.mesh.axis_names):
        return x
    return sharding_constraint(x, NamedSharding(mesh_from_jax(sharding.mesh), spec_from_jax(sharding.spec)))


def _reshard(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Reshards to a concrete mesh. With an abstract mesh, `reshard` changes only JAX's types."""
    (x,), mesh = args, eqn.params["concrete_mesh"]
    if mesh is None:
        return args
    return [_constrain(importer, x, JaxNamedSharding(mesh, eqn.params["dst_sharding"].spec))]


def _sharding_rule(parameter: str) -> ImportRule:
    def rule(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
        shardings = eqn.params[parameter]
        per_operand = shardings if isinstance(shardings, tuple | list) else (shardings,) * len(args)
        return [_constrain(importer, x, s) for x, s in zip(args, per_operand, strict=True)]

    return rule


def _jit(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    operands = [_constrain(importer, x, s) for x, s in zip(args, params["in_shardings"], strict=True)]
    program = importer.program(params["jaxpr"], [x.aval for x in operands])
    outs = bind(Call(params["name"], program.jaxpr), *program.consts, *operands)
    return [_constrain(importer, x, s) for x, s in zip(outs, params["out_shardings"], strict=True)]


RULES: Final[Mapping[str, ImportRule]] = MappingProxyType(
    {
        "all_gather_invariant": _all_gather,
        "device_put": _sharding_rule("devices"),
        "jit": _jit,
        "psum_invariant": collective_reduction_rule(reduce_sum, "psum"),
        "pvary": _identity,
        "reshard": _reshard,
        "sharding_constraint": _sharding_rule("sharding"),
        "shard_map": _shard_map,
    }
)
"""Import rules by name of JAX's primitive."""
