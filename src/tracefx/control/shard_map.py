"""`shard_map` as an operation: one program that every device of a mesh runs on its own part of the arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.all_at_once import all_at_once
from tracefx.control.call import Application
from tracefx.core.avals import NOWHERE, Axes, ShapedArray, show_avals
from tracefx.core.backend import BACKEND
from tracefx.core.builder import Builder, Ir
from tracefx.core.effects import Effects, NamedAxis, OverMesh, any_ordered
from tracefx.core.entering import Collected, Entry, Form, Taking, flat
from tracefx.core.errors import MissingRuleError
from tracefx.core.handler import bind, current
from tracefx.core.jaxpr import Jaxpr, eval_jaxpr
from tracefx.core.meshes import Mesh, Part, PartitionSpec, names_in
from tracefx.core.primitive import Linear, MappedAxis, Recorder, Tangent, Zero
from tracefx.core.printer import ShownAsJax
from tracefx.core.shardings import NamedSharding
from tracefx.core.values import Value
from tracefx.core.varying import Flow
from tracefx.interpreters.batch import spmd_axes
from tracefx.interpreters.derived import Consts, batch_jaxpr, jvp_jaxpr, transpose_jaxpr, unzip_jaxpr
from tracefx.interpreters.stage import stage
from tracefx.ops.basis import reshape
from tracefx.ops.collective import in_shares, of_shares

X = TypeVar("X")
WHOLE = PartitionSpec()
Specs = tuple[PartitionSpec, ...]


@final
@frozen(eq=False)
class ShardMap(Application, ShownAsJax):
    """`jaxpr` on every device of a mesh: it gets the parts of the operands that `in_specs` say, and its results are the
    parts of the outputs. Along the axes of the mesh in `axis_names` it runs apart and has collectives; along the others
    the compiler cuts what it likes."""

    name = "shard_map"
    jaxpr: Jaxpr
    mesh: Mesh
    in_specs: Specs
    out_specs: Specs
    axis_names: tuple[str, ...]
    label: str = field(default="shard_map", metadata={"erased": True, "jax": False, "hide_default": True})

    @property
    @override
    def called(self) -> str:
        return self.label

    @override
    def jax_params(self) -> Mapping[str, object]:
        # As of one that isn't checked: in a checked one JAX's types say along which axes values differ.
        def shown(specs: Specs) -> str:
            parts = [spec.as_jax for spec in specs]
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

        return {
            "check_vma": False,
            "in_specs": shown(self.in_specs),
            "jaxpr": self.jaxpr,
            "mesh": self.mesh.as_jax,
            "newly_manual_axes": f"frozenset({{{', '.join(map(repr, self.axis_names))}}})",
            "out_specs": shown(self.out_specs),
        }

    @override
    def jaxprs(self) -> tuple[Jaxpr, ...]:
        return (self.jaxpr,)

    @override
    def with_jaxprs(self, *jaxprs: Jaxpr) -> ShardMap:
        return evolve(self, jaxpr=jaxprs[0])

    def of(self, jaxpr: Jaxpr, in_specs: Sequence[PartitionSpec], out_specs: Sequence[PartitionSpec]) -> ShardMap:
        """The same with another program."""
        return evolve(self, jaxpr=jaxpr, in_specs=tuple(in_specs), out_specs=tuple(out_specs))

    @property
    @override
    def effects(self) -> Effects:
        bound = {NamedAxis(name) for name in self.axis_names}
        return frozenset([effect for effect in self.jaxpr.effects if effect not in bound]) | {OverMesh(self.mesh)}

    @property
    def apart(self) -> PartitionSpec:
        """Of arrays that are different on every device: their parts one after the other."""
        return PartitionSpec(self.axis_names)

    def _own_axes(self) -> tuple[str, ...]:
        """The axes but for those that a `vmap` in force gives its batch by `spmd_axis_name`.

        Devices along these have different elements of the batch, so nothing is to be shared between them.
        """
        taken = spmd_axes(current())
        return tuple([name for name in self.axis_names if name not in taken])

    # -------------------------------------------------------------- types

    def part(self, aval: ShapedArray, spec: PartitionSpec, what: str) -> ShapedArray:
        """The type of one device's part. ValueError if the array can't be cut so."""
        if len(spec) > aval.ndim:
            raise ValueError(f"shard_map: {what}, {aval}, has {aval.ndim} axes, but {spec} speaks of {len(spec)}")
        sizes = []
        for axis, (n, along) in enumerate(zip(aval.shape, spec.of_rank(aval.ndim), strict=True)):
            count = self.mesh.size_of(names_in(along))
            if n % count:
                raise ValueError(
                    f"shard_map: {what}, {aval}, can't be cut as {spec} says: axis {axis} is {n} long, and "
                    f"{along!r} of {self.mesh} cuts it into {count}"
                )
            sizes.append(n // count)
        return aval.update(shape=tuple(sizes))

    def joined(self, aval: ShapedArray, spec: PartitionSpec) -> ShapedArray:
        """The type of the whole of which every device has a part of this type."""
        counts = [self.mesh.size_of(names_in(along)) for along in spec.of_rank(aval.ndim)]
        return aval.update(shape=tuple([n * count for n, count in zip(aval.shape, counts, strict=True)]))

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        body = self.jaxpr
        wanted = tuple(map(self.joined, body.in_avals, self.in_specs))
        if avals != wanted:
            raise TypeError(f"shard_map of {self.label} takes ({show_avals(wanted)}), got ({show_avals(avals)})")
        return list(map(self.joined, body.out_avals, self.out_specs))

    # -------------------------------------------------------------- rules

    @override
    def varies(self, operands: Sequence[Axes], count: int, flow: Flow) -> Sequence[Axes]:
        # Along axes that it doesn't check nothing is known of values; they are its own, and end here.
        parts = zip(operands, self.in_specs, strict=True)
        outs = flow.through(self.jaxpr, [operand.union(spec.names) for operand, spec in parts])
        return [out.difference(self.axis_names) for out in outs]

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return BACKEND.value.evaluated(self, args)

    @override
    def prune(self, used_outs: tuple[bool, ...]) -> tuple[ShardMap, tuple[bool, ...], tuple[bool, ...]]:
        pruned, used_ins, given = Application.prune(self, used_outs)
        assert isinstance(pruned, ShardMap)
        if pruned is self:
            return self, used_ins, given
        return (
            pruned.of(pruned.jaxpr, _chosen(self.in_specs, used_ins), _chosen(self.out_specs, given)),
            used_ins,
            given,
        )

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        nonzero = tuple([not isinstance(t, Zero) for t in tangents])
        derived = jvp_jaxpr(self.jaxpr, nonzero)
        given = [t for t in tangents if not isinstance(t, Zero)]
        op = self.of(
            derived.jaxpr,
            [*_whole(derived.consts), *self.in_specs, *_chosen(self.in_specs, nonzero)],
            [*self.out_specs, *_chosen(self.out_specs, derived.out_nonzero)],
        )
        outs = bind(op, *derived.consts, *primals, *given)
        n = len(self.out_specs)
        out_tangents = iter(outs[n:])
        whole = list(map(self.joined, self.jaxpr.out_avals, self.out_specs))
        return outs[:n], [
            next(out_tangents) if has else Zero(aval.tangent())
            for has, aval in zip(derived.out_nonzero, whole, strict=True)
        ]

    @override
    def partial_eval(self, recorder: Recorder, unknown: Sequence[bool], args: Sequence[Value]) -> Sequence[Value]:
        apart = PartitionSpec(self._own_axes())
        # A residual goes from one half to the other as an array of which every device has its own part.
        halves = unzip_jaxpr(self.jaxpr, tuple(unknown))
        known_specs = _chosen(self.in_specs, [not u for u in unknown])
        n = halves.out_unknown.count(False)
        fresh = halves.known.out_avals[n:]
        first = _with_axes(halves.known, n)
        op = self.of(
            first,
            [*_whole(halves.consts), *known_specs],
            [*_chosen(self.out_specs, [not u for u in halves.out_unknown]), *[apart] * len(fresh)],
        )
        known = [a for a, u in zip(args, unknown, strict=True) if not u]
        outs = recorder.evaluate(op, [*halves.consts, *known])
        made = iter(zip(outs[n:], fresh, strict=True))
        residuals: list[Value] = []
        specs: list[PartitionSpec] = []
        scalars: list[bool] = []
        for place in halves.forwarded:
            if place is None:
                residual, aval = next(made)
                residuals.append(residual)
                specs.append(apart)
                scalars.append(not aval.shape)
            else:
                residuals.append(known[place])
                specs.append(known_specs[place])
                scalars.append(False)
        late = self.of(
            _without_axes(halves.unknown, scalars),
            [*specs, *_chosen(self.in_specs, unknown)],
            _chosen(self.out_specs, halves.out_unknown),
        )
        later = iter(recorder.record(late, [*residuals, *[a for a, u in zip(args, unknown, strict=True) if u]]))
        early = iter(outs[:n])
        return [next(later) if u else next(early) for u in halves.out_unknown]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | Linear) -> Sequence[Tangent | None]:
        # An output that is the same along an axis is the mean of what the devices have, an operand that is the same
        # along one is handed to all of them: so much for the two maps around the program whose transposes these are.
        linear = tuple([isinstance(a, Linear) for a in args])
        nonzero = tuple([not isinstance(ct, Zero) for ct in cts])
        derived = transpose_jaxpr(self.jaxpr, linear, nonzero)
        others = [a for a in args if not isinstance(a, Linear)]
        given = [ct for ct in cts if not isinstance(ct, Zero)]
        ct_specs = _chosen(self.out_specs, nonzero)
        in_specs = _chosen(_chosen(self.in_specs, linear), derived.in_nonzero)
        start, axes = len(derived.consts) + len(others), [(name, self.mesh.shape[name]) for name in self._own_axes()]

        def backwards(*values: Value) -> list[Value]:
            shares = [
                in_shares(ct, NOWHERE.union(s.names), axes) for ct, s in zip(values[start:], ct_specs, strict=True)
            ]
            outs = eval_jaxpr(derived.jaxpr, (), [*values[:start], *shares])
            return [of_shares(out, NOWHERE.union(s.names), axes) for out, s in zip(outs, in_specs, strict=True)]

        body, consts = stage(backwards, derived.jaxpr.in_avals)
        assert not consts
        specs = [*_whole(derived.consts), *_chosen(self.in_specs, [not lin for lin in linear]), *ct_specs]
        results = iter(bind(self.of(body, specs, in_specs), *derived.consts, *others, *given))
        has = iter(derived.in_nonzero)
        return [
            (next(results) if next(has) else Zero(a.aval.tangent())) if isinstance(a, Linear) else None for a in args
        ]

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        along: Part = axis.spmd_name
        count = self._cut_along(names_in(along), axis.size)
        if count > 1 and axis.name is not None and NamedAxis(axis.name) in self.jaxpr.effects:
            raise ValueError(
                f"vmap of shard_map of {self.label}: what works along axis {axis.name!r} inside of it would see the "
                f"part of the batch on its own device only, as the batch lies along {along!r}: leave out "
                "spmd_axis_name, or map over the axis inside"
            )
        derived = batch_jaxpr(self.jaxpr, evolve(axis, size=axis.size // count), tuple(dims))
        in_specs = [
            *_whole(derived.consts),
            *map(_with_axis, self.in_specs, self.jaxpr.in_avals, dims, [along] * len(dims)),
        ]
        out_specs = map(
            _with_axis, self.out_specs, self.jaxpr.out_avals, derived.out_dims, [along] * len(self.out_specs)
        )
        return bind(self.of(derived.jaxpr, in_specs, list(out_specs)), *derived.consts, *args), derived.out_dims

    def _cut_along(self, names: tuple[str, ...], size: int) -> int:
        """Into how many parts a batch is cut that is to lie along these axes."""
        unknown = [name for name in names if name not in self.axis_names]
        taken = {name for spec in (*self.in_specs, *self.out_specs) for name in spec.names}.intersection(names)
        if unknown or taken:
            why = (
                f"{unknown} are not among {list(self.axis_names)}" if unknown else f"specs name {sorted(taken)} already"
            )
            raise ValueError(f"vmap of shard_map of {self.label}: the batch can't lie along {names}, as {why}")
        count = self.mesh.size_of(names)
        if size % count:
            raise ValueError(
                f"vmap of shard_map of {self.label}: a batch of {size} can't be cut along {names} of {self.mesh} into "
                f"{count}"
            )
        return count

    @override
    def entered(self, entry: Entry, args: Sequence[Value]) -> Sequence[Value]:
        forms = [entry.form(a) for a in args]
        inputs = [self._part_of(form, spec) for form, spec in zip(forms, self.in_specs, strict=True)]
        try:
            inside = entry.enter(self.jaxpr, inputs, self.label)
        except MissingRuleError:  # of a handler that knows no collectives
            return self._at_once(entry, args)
        ordered = any_ordered(inside.jaxpr.effects) and not any_ordered(self.jaxpr.effects)
        if inside.state is not None or ordered:  # which go from one operation to the next, not from device to device
            return self._at_once(entry, args)
        in_specs = [spec for form, spec in zip(forms, self.in_specs, strict=True) for _ in form.avals]
        outs = [spec for form, spec in zip(inside.outs, self.out_specs, strict=True) for _ in form.avals]
        found = [a for c in inside.collected for a in c.form.avals]
        body = _with_axes(inside.jaxpr, len(outs))
        op = self.of(body, [*_whole(inside.consts), *in_specs], [*outs, *[self.apart] * len(found)])
        results = bind(op, *inside.consts, *flat(entry, args, forms))
        taking = Taking(entry, results)
        values = taking.values([self._whole_of(f, s) for f, s in zip(inside.outs, self.out_specs, strict=True)])
        taking.collect([Collected(c.name, self._gathered(c.form)) for c in inside.collected])
        return values

    def all_at_once(self, avals: Sequence[ShapedArray]) -> tuple[Jaxpr, Consts]:
        """The program of the whole arrays that does what all devices do, and what it takes before them."""
        return all_at_once(self.jaxpr, self.mesh, self.in_specs, self.out_specs, self.axis_names, avals)

    def _at_once(self, entry: Entry, args: Sequence[Value]) -> Sequence[Value]:
        whole, consts = self.all_at_once(list(map(self.joined, self.jaxpr.in_avals, self.in_specs)))
        return entry.run(whole, [*consts, *args])

    def _part_of(self, form: Form, spec: PartitionSpec) -> Form:
        return evolve(form, avals=tuple([self.part(a, spec, "an operand") for a in form.avals]))

    def _whole_of(self, form: Form, spec: PartitionSpec) -> Form:
        return evolve(form, avals=tuple([self.joined(a, spec) for a in form.avals]))

    def _gathered(self, form: Form) -> Form:
        """What is collected on every device, one after the other."""
        return evolve(form, avals=tuple([self.joined(_with_an_axis(a), self.apart) for a in form.avals]))

    @override
    def lower(self, builder: Builder, *operands: Ir) -> Sequence[Ir]:
        outs = list(map(self.joined, self.jaxpr.out_avals, self.out_specs))
        ins = [NamedSharding(self.mesh, spec) for spec in self.in_specs]
        return builder.apart(
            self.jaxpr,
            operands,
            outs,
            ins,
            [NamedSharding(self.mesh, spec) for spec in self.out_specs],
            self.axis_names,
        )


def _chosen(xs: Sequence[X], mask: Sequence[bool]) -> list[X]:
    return [x for x, m in zip(xs, mask, strict=True) if m]


def _whole(consts: Consts) -> list[PartitionSpec]:
    return [WHOLE] * len(consts)


def _with_axis(spec: PartitionSpec, aval: ShapedArray, dim: int | None, along: Part) -> PartitionSpec:
    if dim is None:
        return spec
    parts = spec.of_rank(aval.ndim)
    return PartitionSpec(*parts[:dim], along, *parts[dim:])


def _with_an_axis(aval: ShapedArray) -> ShapedArray:
    return aval if aval.shape else aval.with_axis(1, 0)


def _with_axes(jaxpr: Jaxpr, start: int) -> Jaxpr:
    """The program with an axis for those outputs from `start` on that have none, to lie one behind the other along."""
    if all(aval.shape for aval in jaxpr.out_avals[start:]):
        return jaxpr

    def run(*args: Value) -> list[Value]:
        outs = eval_jaxpr(jaxpr, (), args)
        return [*outs[:start], *[x if x.aval.shape else reshape(x, (1,)) for x in outs[start:]]]

    return stage(run, jaxpr.in_avals)[0]


def _without_axes(jaxpr: Jaxpr, scalars: Sequence[bool]) -> Jaxpr:
    """The opposite of `_with_axes`, of the first inputs."""
    if not any(scalars):
        return jaxpr

    def run(*args: Value) -> list[Value]:
        first = [reshape(x, ()) if s else x for x, s in zip(args, scalars, strict=False)]
        return eval_jaxpr(jaxpr, (), [*first, *args[len(scalars) :]])

    avals = [a.with_axis(1, 0) if s else a for a, s in zip(jaxpr.in_avals, scalars, strict=False)]
    return stage(run, [*avals, *jaxpr.in_avals[len(scalars) :]])[0]
