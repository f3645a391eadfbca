"""Rules for JAX's primitives that speak of several devices: programs for each, and where arrays are to lie.

What JAX says of where a value may differ from device to device (`pvary`, sums of what differs) changes no number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from attrs import evolve
from jax.sharding import NamedSharding as JaxNamedSharding

from tracefx.control.call import Call
from tracefx.core.array import Array
from tracefx.core.handler import as_array, bind
from tracefx.core.values import Value
from tracefx.interop.jax.checked_shard_map import CheckedShardMap
from tracefx.interop.jax.importing_first_order import collective_reduction_rule
from tracefx.interop.jax.importing_programs import Importer, ImportRule, JaxEquation
from tracefx.interop.jax.meshes import mesh_from_jax, mesh_to_jax, spec_from_jax
from tracefx.interop.jax.parameters import operation_from_jax
from tracefx.ops.annotations.sharding_constraint import sharding_constraint
from tracefx.ops.structural import reduce_sum
from tracefx.shardings.named_sharding import NamedSharding
from tracefx.transforms.shard_maps import shard_map

# ------------------------------------------------------------------ a program for each


def _shard_map(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    mesh = mesh_from_jax(params["mesh"])
    names = [name for name in mesh.axis_names if name in params["newly_manual_axes"]]
    axes = (*translation.axes, *[(name, mesh.shape[name]) for name in names])
    checked = CheckedShardMap(mesh_to_jax(mesh), tuple(names)) if params["check_vma"] and not translation.axes else None
    inside = evolve(translation, axes=axes, checked_shard_map=checked)

    def each(*parts: Array) -> list[Array]:
        return [as_array(x) for x in inside.run(params["jaxpr"], parts)]

    each.__name__ = str(params["jaxpr"].debug_info.func_name).rpartition(".")[2].strip("<>") or "each"
    over = shard_map(
        each,
        mesh=mesh,
        in_specs=tuple(map(spec_from_jax, params["in_specs"])),
        out_specs=list(map(spec_from_jax, params["out_specs"])),
        axis_names=names,
        check_vma=False,  # JAX has, if it was asked to
    )
    found: Sequence[Value] = over(*map(as_array, args))
    return found


def _all_gather(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    return bind(operation_from_jax("all_gather", eqn.params), *args)


def _identity(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    return args


# ------------------------------------------------------------------ where arrays lie


def _constrain(translation: Importer, x: Value, sharding: Any) -> Value:
    """`x` where JAX wants it. Devices that run apart, and one alone, have nothing to say of it."""
    if not isinstance(sharding, JaxNamedSharding) or sharding.mesh.size < 2:
        return x
    apart = {name for name, _ in translation.axes}
    if not apart.isdisjoint(sharding.mesh.axis_names):
        return x
    return sharding_constraint(x, NamedSharding(mesh_from_jax(sharding.mesh), spec_from_jax(sharding.spec)))


def _reshard(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Of a mesh that names no devices it is a statement about types."""
    (x,), mesh = args, eqn.params["concrete_mesh"]
    if mesh is None:
        return args
    return [_constrain(translation, x, JaxNamedSharding(mesh, eqn.params["dst_sharding"].spec))]


def _sharding_rule(parameter: str) -> ImportRule:
    def rule(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
        said = eqn.params[parameter]
        each = said if isinstance(said, tuple | list) else (said,) * len(args)
        return [_constrain(translation, x, s) for x, s in zip(args, each, strict=True)]

    return rule


def _jit(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    given = [_constrain(translation, x, s) for x, s in zip(args, params["in_shardings"], strict=True)]
    program = translation.program(params["jaxpr"], [x.aval for x in given])
    outs = bind(Call(params["name"], program.jaxpr), *program.consts, *given)
    return [_constrain(translation, x, s) for x, s in zip(outs, params["out_shardings"], strict=True)]


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
"""By the names of JAX's primitives."""
