"""Conversion of programs to other devices, and programs with sharding constraints for their inputs and outputs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from attrs import evolve

from tracefx.core import Literal
from tracefx.core.device import Device
from tracefx.core.jaxpr import Atom, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.named_sharding import NamedSharding
from tracefx.core.primitive import Primitive
from tracefx.core.sharding import Sharding
from tracefx.ops.annotations.sharding_constraint import ShardingConstraint
from tracefx.passes.rebuilding import renumber
from tracefx.shardings.meshes import Mesh, MeshEffect


def devices_of(jaxpr: Jaxpr) -> tuple[Device, ...]:
    """Returns the devices of a program: those of the mesh with the lowest ids; none if it uses no mesh."""
    meshes = [effect.mesh.flat for effect in jaxpr.effects if isinstance(effect, MeshEffect)]
    return min(meshes, key=lambda flat: [d.id for d in flat], default=())


def remap_devices(jaxpr: Jaxpr, devices: Mapping[Device, Device]) -> Jaxpr:
    """Returns the program with devices replaced in all its meshes and shardings."""

    def at(value: object) -> object:
        if isinstance(value, Mesh):
            return remap_mesh(value, devices)
        if isinstance(value, NamedSharding) and isinstance(value.mesh, Mesh):
            return value.update(mesh=remap_mesh(value.mesh, devices))
        return value

    def operation(prim: Primitive) -> Primitive:
        params = {f.name: getattr(prim, f.name) for f in attrs.fields(type(prim))}
        changed = {name: new for name, value in params.items() if (new := at(value)) is not value}
        if changed:
            prim = evolve(prim, **changed)
        return prim.with_jaxprs(*map(program, prim.jaxprs())) if isinstance(prim, HasSubjaxprs) else prim

    def program(body: Jaxpr) -> Jaxpr:
        if not devices_of(body):
            return body
        return evolve(body, eqns=tuple([evolve(eqn, prim=operation(eqn.prim)) for eqn in body.eqns]))

    return program(jaxpr)


def remap_mesh(mesh: Mesh, devices: Mapping[Device, Device]) -> Mesh:
    """Returns the mesh with its devices replaced."""
    flat = np.empty(mesh.size, object)
    flat[:] = [devices[d] for d in mesh.flat]
    return Mesh(flat.reshape(mesh.axis_sizes), mesh.axis_names, mesh.axis_types)


def add_sharding_constraints(
    jaxpr: Jaxpr, inputs: Sequence[Sharding | None], outputs: Sequence[Sharding | None]
) -> Jaxpr:
    """Returns the program with sharding constraints as its first and last equations, for some inputs and outputs."""
    fresh = itertools.count(jaxpr.var_count)
    first: list[Eqn] = []
    last: list[Eqn] = []
    replacements: dict[int, Var] = {}

    def constrained(v: Atom, sharding: Sharding | None, eqns: list[Eqn]) -> Atom:
        if not isinstance(sharding, NamedSharding):
            return v
        w = Var(next(fresh), v.aval)
        eqns.append(Eqn(ShardingConstraint(sharding), (v,), (w,), None))
        return w

    def at(a: Atom) -> Atom:
        return a if isinstance(a, Literal) else replacements.get(a.index, a)

    for v, sharding in zip(jaxpr.invars, inputs, strict=True):
        w = constrained(v, sharding, first)
        if isinstance(w, Var) and w is not v:
            replacements[v.index] = w
    body = [evolve(eqn, inputs=tuple(map(at, eqn.inputs))) for eqn in jaxpr.eqns]
    outs = [constrained(at(a), sharding, last) for a, sharding in zip(jaxpr.outs, outputs, strict=True)]
    return renumber(Jaxpr(jaxpr.constvars, jaxpr.invars, (*first, *body, *last), tuple(outs)))


def boundary_shardings(jaxpr: Jaxpr) -> tuple[tuple[NamedSharding | None, ...], tuple[NamedSharding | None, ...]]:
    """Returns the shardings of inputs and outputs that `add_sharding_constraints` added; None where there are none."""
    inputs: dict[int, NamedSharding] = {}
    outputs: dict[int, NamedSharding] = {}
    for eqn in jaxpr.eqns:
        if isinstance(eqn.prim, ShardingConstraint):
            (x,), (y,) = eqn.inputs, eqn.outs
            if isinstance(x, Var):
                inputs.setdefault(x.index, eqn.prim.sharding)
            outputs[y.index] = eqn.prim.sharding
    return (
        tuple([inputs.get(v.index) for v in jaxpr.invars]),
        tuple([None if isinstance(a, Literal) else outputs.get(a.index) for a in jaxpr.outs]),
    )
