"""Emulates `shard_map` by a jaxpr of whole arrays: batches the per-device computation over the mesh axes."""

from __future__ import annotations

from collections.abc import Sequence

from tracefx.core import ShapedArray, Value
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.partition_spec import PartitionSpec, entry_axis_names
from tracefx.core.primitive import MappedAxis
from tracefx.interpreters.jaxpr_transforms import Consts, batch_jaxpr
from tracefx.interpreters.stage import stage
from tracefx.ops.indexing.along_axis import index_in_dim
from tracefx.ops.structural import reshape, transpose
from tracefx.shardings.meshes import Mesh


def emulate_shard_map(
    body: Jaxpr,
    mesh: Mesh,
    in_specs: Sequence[PartitionSpec],
    out_specs: Sequence[PartitionSpec],
    axis_names: Sequence[str],
    avals: Sequence[ShapedArray],
) -> tuple[Jaxpr, Consts]:
    """Returns a jaxpr of whole arrays that computes what all devices compute.

    The body is batched along each manual mesh axis. An output that is replicated along an axis is taken from the first
    device along it.

    Args:
        body: the jaxpr that each device runs.
        mesh: the mesh.
        in_specs: the partitioning of the inputs.
        out_specs: the partitioning of the outputs.
        axis_names: the manual axes.
        avals: the avals of the whole inputs.

    Returns:
        The jaxpr, which takes constants first, and these constants.
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

    def run_all(*args: Value) -> list[Value]:
        parts = [
            _split_shards(x, spec, names, mesh) for x, spec, names in zip(args[start:], in_specs, along, strict=True)
        ]
        outs = eval_jaxpr(jaxpr, (), [*args[:start], *parts])
        return [_join_shards(x, spec, axis_names) for x, spec in zip(outs, out_specs, strict=True)]

    staged, closed_over = stage(run_all, [*[c.aval for c in consts], *avals])
    return staged.closed(), (*closed_over, *consts)


def _split_shards(x: Value, spec: PartitionSpec, names: Sequence[str], mesh: Mesh) -> Value:
    """Splits an array into shards: leading axes for the mesh axes `names`, in this order, then the axes of a shard."""
    shape: list[int] = []
    mesh_positions: dict[str, int] = {}
    shard_positions: list[int] = []
    for size, part in zip(x.aval.shape, spec.of_rank(x.aval.ndim), strict=True):
        for name in entry_axis_names(part):
            mesh_positions[name] = len(shape)
            shape.append(mesh.shape[name])
        shard_positions.append(len(shape))
        shape.append(size // mesh.size_of(entry_axis_names(part)))
    return transpose(reshape(x, shape), [*[mesh_positions[name] for name in names], *shard_positions])


def _join_shards(x: Value, spec: PartitionSpec, axis_names: Sequence[str]) -> Value:
    """Joins the shards of an output that has all manual axes first; the reverse of `_split_shards`."""
    names: list[str] = []
    for name in axis_names:
        if name in spec.names:
            names.append(name)
        else:
            x = index_in_dim(x, 0, len(names), keepdims=False)
    first = len(names)
    sizes = x.aval.shape
    order: list[int] = []
    shape: list[int] = []
    for i, part in enumerate(spec.of_rank(x.aval.ndim - first), first):
        positions = [names.index(name) for name in entry_axis_names(part)]
        order += [*positions, i]
        size = sizes[i]
        for position in positions:
            size *= sizes[position]
        shape.append(size)
    return reshape(transpose(x, order), shape)
