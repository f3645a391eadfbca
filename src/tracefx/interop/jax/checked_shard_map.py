"""Tracing functions with JAX inside a `shard_map` that tracks varying mesh axes (vma).

Rules of custom derivatives have to be traced there, because JAX compares the types of their results, vma included, with
the types of the primal function's results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, final

import jax
from attrs import frozen
from jax import lax
from jax.extend import core as jax_core


def varying_axes(aval: Any) -> tuple[str, ...]:
    """Returns the mesh axes that a JAX type varies over; none outside of a `shard_map`."""
    return tuple(sorted(aval.manual_axis_type.varying))


@final
@frozen
class CheckedShardMap:
    """The mesh and the manual axes of a `shard_map` that JAX checks (`check_vma`)."""

    mesh: Any
    names: tuple[str, ...]

    def trace(
        self, f: Callable[..., Sequence[Any]], types: Sequence[Any], varying: Sequence[tuple[str, ...]]
    ) -> jax_core.ClosedJaxpr:
        """Traces a function on shards of types `types` that vary over the mesh axes `varying`.

        JAX traces the function between two operations that add an axis to all operands and results, because scalars
        cannot be sharded. The added operations are removed from the result.
        """
        spec: Any = jax.sharding.PartitionSpec
        sizes = dict(self.mesh.shape)
        specs = [spec(names) for names in varying]
        global_types = [
            jax.ShapeDtypeStruct((prod([sizes[name] for name in names]), *a.shape), a.dtype, weak_type=a.weak_type)
            for names, a in zip(varying, types, strict=True)
        ]

        def each(*parts: Any) -> list[Any]:
            return [lax.expand_dims(x, (0,)) for x in f(*[lax.squeeze(x, (0,)) for x in parts])]

        mapped = jax.shard_map(
            each, mesh=self.mesh, in_specs=tuple(specs), out_specs=spec(self.names), axis_names=set(self.names)
        )
        traced = jax.make_jaxpr(mapped)(*global_types)
        *preceding, eqn = traced.jaxpr.eqns
        assert not preceding
        body: Any = eqn.params["jaxpr"]
        const_values = dict(zip(traced.jaxpr.constvars, traced.consts, strict=True))
        consts = {
            inner: const_values[outer]
            for inner, outer in zip(body.invars, eqn.invars, strict=True)
            if outer in const_values
        }
        parts = [v for v in body.invars if v not in consts]
        squeezed = {e.invars[0]: e.outvars[0] for e in body.eqns[: len(parts)]}
        producers = {e.outvars[0]: e for e in body.eqns}
        removed: set[Any] = set()
        outs = []
        for v in body.outvars:
            while producers[v].primitive.name == "pvary":  # inserted by JAX where the result varies over more axes
                removed.add(v)
                (v,) = producers[v].invars
            removed.add(v)
            outs.append(producers[v].invars[0])
        unwrapped = jax_core.Jaxpr(
            [*body.constvars, *consts],
            [squeezed[v] for v in parts],
            outs,
            [e for e in body.eqns[len(parts) :] if e.outvars[0] not in removed],
            body.effects,
            body.debug_info,
        )
        return jax_core.ClosedJaxpr(unwrapped, list(consts.values()))
