"""What the devices of a mesh compute apart, as one program of the whole arrays: a batch of all that they do."""

from __future__ import annotations

from collections.abc import Sequence

from tracefx.core.avals import ShapedArray
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import MappedAxis
from tracefx.core.values import Value
from tracefx.interpreters.jaxpr_transforms import Consts, batch_jaxpr
from tracefx.interpreters.stage import stage
from tracefx.ops.indexing.along_axis import index_in_dim
from tracefx.ops.structural import reshape, transpose
from tracefx.shardings.meshes import Mesh, PartitionSpec, entry_axis_names


def emulate_shard_map(
    body: Jaxpr,
    mesh: Mesh,
    in_specs: Sequence[PartitionSpec],
    out_specs: Sequence[PartitionSpec],
    axis_names: Sequence[str],
    avals: Sequence[ShapedArray],
) -> tuple[Jaxpr, Consts]:
    """The program of arrays of these types, which takes the constants first.

    Each axis of the mesh is one that is mapped over. An output that is the same along an axis is that of its first
    members.
    """
    jaxpr = body
    consts: Consts = ()
    along = [[name for name in axis_names if name in spec.names] for spec in in_specs]
    for name in reversed(axis_names):
        dims = tuple([0 if name in names else None for names in along])
        axis = MappedAxis(mesh.shape[name], name)
        derived = batch_jaxpr(jaxpr, axis, (None,) * len(consts) + dims, (True,) * len(jaxpr.outs))
        jaxpr, consts = derived.jaxpr, (*derived.consts, *consts)
    start = len(consts)

    def whole(*args: Value) -> list[Value]:
        parts = [
            _split_shards(x, spec, names, mesh) for x, spec, names in zip(args[start:], in_specs, along, strict=True)
        ]
        outs = eval_jaxpr(jaxpr, (), [*args[:start], *parts])
        return [_join_shards(x, spec, axis_names) for x, spec in zip(outs, out_specs, strict=True)]

    staged, found = stage(whole, [*[c.aval for c in consts], *avals])
    return staged.closed(), (*found, *consts)


def _split_shards(x: Value, spec: PartitionSpec, names: Sequence[str], mesh: Mesh) -> Value:
    """The parts of an array: axes for those of the mesh, in its order, before those of a part."""
    shape: list[int] = []
    places: dict[str, int] = {}
    rest: list[int] = []
    for size, part in zip(x.aval.shape, spec.of_rank(x.aval.ndim), strict=True):
        for name in entry_axis_names(part):
            places[name] = len(shape)
            shape.append(mesh.shape[name])
        rest.append(len(shape))
        shape.append(size // mesh.size_of(entry_axis_names(part)))
    return transpose(reshape(x, shape), [*[places[name] for name in names], *rest])


def _join_shards(x: Value, spec: PartitionSpec, axis_names: Sequence[str]) -> Value:
    """The opposite, of an output that has all axes of the mesh first."""
    left: list[str] = []
    for name in axis_names:
        if name in spec.names:
            left.append(name)
        else:
            x = index_in_dim(x, 0, len(left), keepdims=False)
    first = len(left)
    sizes = x.aval.shape
    order: list[int] = []
    shape: list[int] = []
    for i, part in enumerate(spec.of_rank(x.aval.ndim - first), first):
        places = [left.index(name) for name in entry_axis_names(part)]
        order += [*places, i]
        size = sizes[i]
        for place in places:
            size *= sizes[place]
        shape.append(size)
    return reshape(transpose(x, order), shape)
