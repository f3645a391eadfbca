"""`shard_map` as a primitive: maps a jaxpr over the shards of its arguments (SPMD)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.call import CallPrimitive
from tracefx.control.shard_map_emulation import emulate_shard_map
from tracefx.core import ShapedArray, Value, accepts, show_avals
from tracefx.core.backend import BACKEND
from tracefx.core.effects import Effects, NamedAxisEffect, any_ordered
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind, current
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.meshes import AxisType
from tracefx.core.named_sharding import NamedSharding, type_sharding
from tracefx.core.partition_spec import PartitionEntry, PartitionSpec, entry_axis_names
from tracefx.core.primitive import BatchDims, MappedAxis, Recorder, Tangent, UndefinedPrimal
from tracefx.errors import MissingRuleError
from tracefx.interpreters.batch import spmd_axes
from tracefx.interpreters.body_transform import (
    BodyInterpreter,
    BodyName,
    CollectedSpec,
    ResultReader,
    ValueSpec,
    flatten_to_arrays,
)
from tracefx.interpreters.jaxpr_transforms import Consts, batch_jaxpr, jvp_jaxpr, transpose_jaxpr, unzip_jaxpr
from tracefx.interpreters.masks import (
    drop_zeros,
    insert_cotangents,
    insert_zeros,
    known_values,
    linear_mask,
    merge_masked,
    nonzero_mask,
    select_masked,
    select_unmasked,
)
from tracefx.interpreters.stage import stage
from tracefx.lowering import Builder, IrValue
from tracefx.ops.collectives.collective import from_unreduced, to_unreduced
from tracefx.ops.structural import reshape
from tracefx.passes.rebuilding import erase_vma
from tracefx.passes.varying import Retype
from tracefx.shardings.meshes import Mesh, MeshEffect
from tracefx.text.printer import HasJaxParams

REPLICATED = PartitionSpec()
Specs = tuple[PartitionSpec, ...]


@final
@frozen(eq=False)
class ShardMapPrimitive(CallPrimitive, HasJaxParams):
    """Runs `jaxpr` on every device of a mesh, on the shards of the operands.

    Args:
        jaxpr: The program of each device, which takes and returns shards.
        mesh: The mesh.
        in_specs: For each operand, how it is partitioned.
        out_specs: For each output, how it is partitioned.
        axis_names: The manual mesh axes: the jaxpr may use collectives along them. The compiler partitions along the
            other axes automatically.
        label: The name of the mapped function. `"shard_map"` by default.
        batch_axes: The mesh axes over which `vmap`s around the traced function will partition their batches. None by
            default.
    """

    name = "shard_map"
    jaxpr: Jaxpr
    mesh: Mesh
    in_specs: Specs
    out_specs: Specs
    axis_names: tuple[str, ...]
    label: str = field(default="shard_map", metadata={"erased": True, "jax": False, "hide_default": True})
    batch_axes: tuple[str, ...] = field(default=(), metadata={"erased": True, "jax": False, "hide_default": True})

    @property
    @override
    def callee_name(self) -> str:
        return self.label

    @override
    def jax_params(self) -> Mapping[str, object]:
        # Printed as unchecked, without varying mesh axes: tracefx does not cast replicated operands to varying ones.
        def shown(specs: Specs) -> str:
            parts = [spec.jax_repr for spec in specs]
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

        return {
            "check_vma": False,
            "in_specs": shown(self.in_specs),
            "jaxpr": erase_vma(self.jaxpr),
            "mesh": self.mesh.jax_repr,
            "newly_manual_axes": f"frozenset({{{', '.join(map(repr, self.axis_names))}}})",
            "out_specs": shown(self.out_specs),
        }

    def with_body(
        self, jaxpr: Jaxpr, in_specs: Sequence[PartitionSpec], out_specs: Sequence[PartitionSpec]
    ) -> ShardMapPrimitive:
        """Returns the same primitive with another jaxpr and its specs."""
        return evolve(self, jaxpr=jaxpr, in_specs=tuple(in_specs), out_specs=tuple(out_specs))

    @property
    @override
    def effects(self) -> Effects:
        bound = {NamedAxisEffect(name) for name in self.axis_names}
        return frozenset([effect for effect in self.jaxpr.effects if effect not in bound]) | {MeshEffect(self.mesh)}

    @property
    def per_device_spec(self) -> PartitionSpec:
        """The spec of arrays that differ on every device: one shard per device along the first axis."""
        return PartitionSpec(self.axis_names)

    def _own_axes(self) -> tuple[str, ...]:
        """Returns the manual axes without those that an enclosing `vmap` partitions its batch over (`spmd_axis_name`).

        Devices along the latter have different elements of the batch, so they have nothing to reduce. While the body
        of a call or loop is transformed, such a `vmap` is not on the chain; then `batch_axes` has its axes.
        """
        batch_axes = (*self.batch_axes, *spmd_axes(current()))
        return tuple([name for name in self.axis_names if name not in batch_axes])

    # -------------------------------------------------------------- shapes

    def shard_aval(self, aval: ShapedArray, spec: PartitionSpec, what: str) -> ShapedArray:
        """Returns the aval of one shard; raises `ValueError` if the array cannot be partitioned by `spec`."""
        if len(spec) > aval.ndim:
            raise ValueError(f"shard_map: {what}, {aval}, has {aval.ndim} axes, but {spec} is for {len(spec)}")
        sizes = []
        for axis, (n, along) in enumerate(zip(aval.shape, spec.of_rank(aval.ndim), strict=True)):
            count = self.mesh.size_of(entry_axis_names(along))
            if n % count:
                raise ValueError(
                    f"shard_map: {what}, {aval}, cannot be partitioned by {spec}: axis {axis} has size {n}, and "
                    f"{along!r} of {self.mesh} splits it into {count}"
                )
            sizes.append(n // count)
        inner = aval.update(shape=tuple(sizes))
        if aval.explicit_sharding is None:
            return inner
        manual = dict.fromkeys(self.axis_names, AxisType.Manual)
        mesh = self.mesh.abstract_mesh.update_axis_types(manual)
        return inner.with_explicit_sharding(type_sharding(mesh, aval.spec, aval.ndim))

    def global_aval(self, aval: ShapedArray, spec: PartitionSpec) -> ShapedArray:
        """Returns the aval of the whole array whose shards have the aval `aval`."""
        counts = [self.mesh.size_of(entry_axis_names(along)) for along in spec.of_rank(aval.ndim)]
        shape = tuple([n * count for n, count in zip(aval.shape, counts, strict=True)])
        whole = aval.update(shape=shape).with_vma(aval.vma.difference(self.axis_names))
        if not self.mesh.explicit_axes:
            return whole
        entries = zip(spec.of_rank(aval.ndim), aval.spec, strict=True)
        along = [(*entry_axis_names(outer), *entry_axis_names(inner)) for outer, inner in entries]
        return whole.with_explicit_sharding(type_sharding(self.mesh, along, aval.ndim))

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        body = self.jaxpr
        expected = tuple(map(self.global_aval, body.in_avals, self.in_specs))
        if not accepts(expected, avals):
            raise TypeError(f"shard_map of {self.label} takes ({show_avals(expected)}), got ({show_avals(avals)})")
        return list(map(self.global_aval, body.out_avals, self.out_specs))

    # -------------------------------------------------------------- rules

    @override
    def with_operand_types(self, avals: Sequence[ShapedArray], retype: Retype) -> ShardMapPrimitive:
        # The manual axes are bound by this primitive: over the others, the inputs vary as the operands do.
        inputs = self.jaxpr.in_avals
        inner = [a.with_vma(b.vma | a.vma.intersection(self.axis_names)) for a, b in zip(inputs, avals, strict=True)]
        body = retype(self.jaxpr, inner)
        return self if body is self.jaxpr else evolve(self, jaxpr=body)

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return BACKEND.value.evaluate_on_devices(self, args)

    @override
    def prune(self, used_outs: tuple[bool, ...]) -> tuple[ShardMapPrimitive, tuple[bool, ...], tuple[bool, ...]]:
        pruned, used_ins, used_outputs = CallPrimitive.prune(self, used_outs)
        assert isinstance(pruned, ShardMapPrimitive)
        if pruned is self:
            return self, used_ins, used_outputs
        return (
            pruned.with_body(
                pruned.jaxpr, select_masked(self.in_specs, used_ins), select_masked(self.out_specs, used_outputs)
            ),
            used_ins,
            used_outputs,
        )

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        nonzero = nonzero_mask(tangents)
        derived = jvp_jaxpr(self.jaxpr, nonzero)
        prim = self.with_body(
            derived.jaxpr,
            [*_replicated_specs(derived.consts), *self.in_specs, *select_masked(self.in_specs, nonzero)],
            [*self.out_specs, *select_masked(self.out_specs, derived.out_nonzero)],
        )
        outs = bind(prim, *derived.consts, *primals, *drop_zeros(tangents))
        n = len(self.out_specs)
        out_avals = list(map(self.global_aval, self.jaxpr.out_avals, self.out_specs))
        return outs[:n], insert_zeros(outs[n:], derived.out_nonzero, out_avals)

    @override
    def partial_eval(self, recorder: Recorder, unknown: Sequence[bool], args: Sequence[Value]) -> Sequence[Value]:
        per_device = PartitionSpec(self._own_axes())
        # A new residual is passed between the halves as an array with one shard per device.
        split = unzip_jaxpr(self.jaxpr, tuple(unknown))
        known_specs = select_unmasked(self.in_specs, unknown)
        n = split.out_unknown.count(False)
        new_avals = split.known.out_avals[n:]
        known_body = _scalars_to_1d(split.known, n)
        prim = self.with_body(
            known_body,
            [*_replicated_specs(split.consts), *known_specs],
            [*select_unmasked(self.out_specs, split.out_unknown), *[per_device] * len(new_avals)],
        )
        known = select_unmasked(args, unknown)
        outs = recorder.evaluate(prim, [*split.consts, *known])
        specs = split.residuals([per_device] * len(new_avals), known_specs)
        scalars = split.residuals([not aval.shape for aval in new_avals], [False] * len(known))
        unknown_prim = self.with_body(
            _scalars_from_1d(split.unknown, scalars),
            [*specs, *select_masked(self.in_specs, unknown)],
            select_masked(self.out_specs, split.out_unknown),
        )
        operands = [*split.residuals(outs[n:], known), *select_masked(args, unknown)]
        return merge_masked(split.out_unknown, recorder.record(unknown_prim, operands), outs[:n])

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        # `shard_map` composes three linear maps. The first passes an operand that is replicated along an axis to all
        # devices, the second is the jaxpr, and the third takes the mean of the devices' values for an output that is
        # replicated along an axis. `to_unreduced` and `from_unreduced` are the transposes of the third and the first.
        linear, nonzero, others = linear_mask(args), nonzero_mask(cts), known_values(args)
        derived = transpose_jaxpr(self.jaxpr, linear, nonzero)
        ct_specs = select_masked(self.out_specs, nonzero)
        in_specs = select_masked(select_masked(self.in_specs, linear), derived.in_nonzero)
        start, axes = len(derived.consts) + len(others), [(name, self.mesh.shape[name]) for name in self._own_axes()]

        def backwards(*values: Value) -> list[Value]:
            shares = [
                to_unreduced(ct, frozenset(s.names), axes) for ct, s in zip(values[start:], ct_specs, strict=True)
            ]
            outs = eval_jaxpr(derived.jaxpr, (), [*values[:start], *shares])
            return [from_unreduced(out, frozenset(s.names), axes) for out, s in zip(outs, in_specs, strict=True)]

        body, consts = stage(backwards, derived.jaxpr.in_avals)
        assert not consts
        specs = [
            *_replicated_specs(derived.consts),
            *select_unmasked(self.in_specs, linear),
            *ct_specs,
        ]
        outs = bind(self.with_body(body, specs, in_specs), *derived.consts, *others, *drop_zeros(cts))
        return insert_cotangents(args, outs, derived.in_nonzero)

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        along: PartitionEntry = axis.spmd_name
        count = self._batch_shards(entry_axis_names(along), axis.size)
        if count > 1 and axis.name is not None and NamedAxisEffect(axis.name) in self.jaxpr.effects:
            raise ValueError(
                f"vmap of shard_map of {self.label}: collectives along axis {axis.name!r} inside it would see only the "
                f"batch elements on their own device, as the batch is partitioned over {along!r}: omit "
                "spmd_axis_name, or map over the axis inside"
            )
        derived = batch_jaxpr(self.jaxpr, evolve(axis, size=axis.size // count), tuple(dims))
        in_specs = [
            *_replicated_specs(derived.consts),
            *map(_insert_axis, self.in_specs, self.jaxpr.in_avals, dims, [along] * len(dims)),
        ]
        out_specs = map(
            _insert_axis, self.out_specs, self.jaxpr.out_avals, derived.out_dims, [along] * len(self.out_specs)
        )
        partitioned = entry_axis_names(along)
        batch_axes = tuple([name for name in self.batch_axes if name not in partitioned])
        prim = evolve(self.with_body(derived.jaxpr, in_specs, list(out_specs)), batch_axes=batch_axes)
        return bind(prim, *derived.consts, *args), derived.out_dims

    def _batch_shards(self, names: tuple[str, ...], size: int) -> int:
        """Returns the number of shards of a batch of `size` elements that is partitioned over the mesh axes `names`.

        Raises `ValueError` if the batch cannot be partitioned over these axes.
        """
        unknown = [name for name in names if name not in self.axis_names]
        used = {name for spec in (*self.in_specs, *self.out_specs) for name in spec.names}.intersection(names)
        if unknown or used:
            why = f"{unknown} are not among {list(self.axis_names)}" if unknown else f"specs already use {sorted(used)}"
            raise ValueError(f"vmap of shard_map of {self.label}: cannot partition the batch over {names}: {why}")
        count = self.mesh.size_of(names)
        if size % count:
            raise ValueError(
                f"vmap of shard_map of {self.label}: a batch of {size} cannot be partitioned over {names} of "
                f"{self.mesh} into {count}"
            )
        return count

    @override
    def transform_bodies(self, interpreter: BodyInterpreter, args: Sequence[Value]) -> Sequence[Value]:
        value_specs = [interpreter.spec(a) for a in args]
        inputs = [
            self._shard_spec(value_spec, spec) for value_spec, spec in zip(value_specs, self.in_specs, strict=True)
        ]
        try:
            transformed = interpreter.transform_body(self.jaxpr, inputs, BodyName(self.label))
        except MissingRuleError:  # the handler has no rules for collectives
            return self._run_emulated(interpreter, args)
        ordered = any_ordered(transformed.jaxpr.effects) and not any_ordered(self.jaxpr.effects)
        if transformed.state is not None or ordered:  # state and tokens are sequential, not per device
            return self._run_emulated(interpreter, args)
        in_specs = [spec for value_spec, spec in zip(value_specs, self.in_specs, strict=True) for _ in value_spec.avals]
        outs = [
            spec for value_spec, spec in zip(transformed.outs, self.out_specs, strict=True) for _ in value_spec.avals
        ]
        collected_avals = [a for c in transformed.collected for a in c.spec.avals]
        body = _scalars_to_1d(transformed.jaxpr, len(outs))
        collected_specs = [self.per_device_spec] * len(collected_avals)
        prim = self.with_body(body, [*_replicated_specs(transformed.consts), *in_specs], [*outs, *collected_specs])
        results = bind(prim, *transformed.consts, *flatten_to_arrays(interpreter, args, value_specs))
        reader = ResultReader(interpreter, results)
        values = reader.values([self._global_spec(f, s) for f, s in zip(transformed.outs, self.out_specs, strict=True)])
        reader.collect_from_body([CollectedSpec(c.name, self._gathered_spec(c.spec)) for c in transformed.collected])
        return values

    def emulated(self, avals: Sequence[ShapedArray]) -> tuple[Jaxpr, Consts]:
        """Returns a jaxpr of the whole arrays that computes what all devices compute, and its constants."""
        return emulate_shard_map(
            erase_vma(self.jaxpr), self.mesh, self.in_specs, self.out_specs, self.axis_names, avals
        )

    def _run_emulated(self, interpreter: BodyInterpreter, args: Sequence[Value]) -> Sequence[Value]:
        jaxpr, consts = self.emulated(list(map(self.global_aval, self.jaxpr.in_avals, self.in_specs)))
        return interpreter.interpret(jaxpr, [*consts, *args])

    def _shard_spec(self, value_spec: ValueSpec, spec: PartitionSpec) -> ValueSpec:
        return evolve(value_spec, avals=tuple([self.shard_aval(a, spec, "an operand") for a in value_spec.avals]))

    def _global_spec(self, value_spec: ValueSpec, spec: PartitionSpec) -> ValueSpec:
        return evolve(value_spec, avals=tuple([self.global_aval(a, spec) for a in value_spec.avals]))

    def _gathered_spec(self, value_spec: ValueSpec) -> ValueSpec:
        """Returns the spec of a collected value of all devices, concatenated."""
        return evolve(
            value_spec, avals=tuple([self.global_aval(_at_least_1d(a), self.per_device_spec) for a in value_spec.avals])
        )

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        outs = list(map(self.global_aval, self.jaxpr.out_avals, self.out_specs))
        ins = [NamedSharding(self.mesh, spec) for spec in self.in_specs]
        return builder.manual_computation(
            erase_vma(self.jaxpr),
            operands,
            outs,
            ins,
            [NamedSharding(self.mesh, spec) for spec in self.out_specs],
            self.axis_names,
        )


def _replicated_specs(consts: Consts) -> list[PartitionSpec]:
    return [REPLICATED] * len(consts)


def _insert_axis(spec: PartitionSpec, aval: ShapedArray, dim: int | None, along: PartitionEntry) -> PartitionSpec:
    if dim is None:
        return spec
    parts = spec.of_rank(aval.ndim)
    return PartitionSpec(*parts[:dim], along, *parts[dim:])


def _at_least_1d(aval: ShapedArray) -> ShapedArray:
    return aval if aval.shape else aval.with_axis(1, 0)


def _scalars_to_1d(jaxpr: Jaxpr, start: int) -> Jaxpr:
    """Gives scalar outputs from index `start` on an axis of size 1, so that the devices' values can be concatenated."""
    if all(aval.shape for aval in jaxpr.out_avals[start:]):
        return jaxpr

    def run(*args: Value) -> list[Value]:
        outs = eval_jaxpr(jaxpr, (), args)
        return [*outs[:start], *[x if x.aval.shape else reshape(x, (1,)) for x in outs[start:]]]

    return stage(run, jaxpr.in_avals)[0]


def _scalars_from_1d(jaxpr: Jaxpr, scalars: Sequence[bool]) -> Jaxpr:
    """Reverses `_scalars_to_1d` for the first inputs: removes the axis where `scalars` is true."""
    if not any(scalars):
        return jaxpr

    def run(*args: Value) -> list[Value]:
        first = [reshape(x, ()) if s else x for x, s in zip(args, scalars, strict=False)]
        return eval_jaxpr(jaxpr, (), [*first, *args[len(scalars) :]])

    avals = [a.with_axis(1, 0) if s else a for a, s in zip(jaxpr.in_avals, scalars, strict=False)]
    return stage(run, [*avals, *jaxpr.in_avals[len(scalars) :]])[0]
