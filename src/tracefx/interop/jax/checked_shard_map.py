"""Functions that JAX traces inside of a `shard_map` whose types say along which axes of the mesh values may differ.

The rules of custom derivatives have to be traced there: JAX compares the types of what they give with those of what the
function gave when it was traced.
"""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, final

import jax
from attrs import frozen
from jax import lax
from jax.extend import core as jax_core


def varying_axes(aval: Any) -> tuple[str, ...]:
    """The axes along which values of JAX's type may differ from device to device; none outside of a `shard_map`."""
    return tuple(sorted(aval.manual_axis_type.varying))


@final
@frozen
class CheckedShardMap:
    """The mesh of a `shard_map` that JAX checked, and the axes along which devices run apart there."""

    mesh: Any
    names: tuple[str, ...]

    def trace(
        self, f: Callable[..., Sequence[Any]], types: Sequence[Any], varying: Sequence[tuple[str, ...]]
    ) -> jax_core.ClosedJaxpr:
        """JAX's program of a function on each device, of operands that may differ along axes.

        JAX is handed the function between two operations that make arrays of all operands and results, since only
        these can be cut. They are taken out again.
        """
        spec: Any = jax.sharding.PartitionSpec
        sizes = dict(self.mesh.shape)
        specs = [spec(names) for names in varying]
        whole = [
            jax.ShapeDtypeStruct((prod([sizes[name] for name in names]), *a.shape), a.dtype, weak_type=a.weak_type)
            for names, a in zip(varying, types, strict=True)
        ]

        def each(*parts: Any) -> list[Any]:
            return [lax.expand_dims(x, (0,)) for x in f(*[lax.squeeze(x, (0,)) for x in parts])]

        apart = jax.shard_map(
            each, mesh=self.mesh, in_specs=tuple(specs), out_specs=spec(self.names), axis_names=set(self.names)
        )
        traced = jax.make_jaxpr(apart)(*whole)
        *before, eqn = traced.jaxpr.eqns
        assert not before
        body: Any = eqn.params["jaxpr"]
        held = dict(zip(traced.jaxpr.constvars, traced.consts, strict=True))
        consts = {inner: held[outer] for inner, outer in zip(body.invars, eqn.invars, strict=True) if outer in held}
        parts = [v for v in body.invars if v not in consts]
        squeezed = {e.invars[0]: e.outvars[0] for e in body.eqns[: len(parts)]}
        making = {e.outvars[0]: e for e in body.eqns}
        last: set[Any] = set()
        outs = []
        for v in body.outvars:
            while making[v].primitive.name == "pvary":  # as JAX has it where results lie along more axes
                last.add(v)
                (v,) = making[v].invars
            last.add(v)
            outs.append(making[v].invars[0])
        own = jax_core.Jaxpr(
            [*body.constvars, *consts],
            [squeezed[v] for v in parts],
            outs,
            [e for e in body.eqns[len(parts) :] if e.outvars[0] not in last],
            body.effects,
            body.debug_info,
        )
        return jax_core.ClosedJaxpr(own, list(consts.values()))
