"""The builder that `lower` rules speak to: it appends operations to a module."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from typing import final

import numpy as np
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.device import Device
from tracefx.core.dtypes import NDArray
from tracefx.core.effects import any_ordered
from tracefx.core.jaxpr import Eqn, Jaxpr, Var
from tracefx.core.key_data import key_data_aval, on_key_data
from tracefx.core.literal import Literal
from tracefx.core.primitive import Batchable, Expandable, MappedAxis, Primitive, missing_rule_error
from tracefx.core.source_location import EQN_LOCATION, LazySourceLocation
from tracefx.core.values import Value
from tracefx.interpreters.stage import stage
from tracefx.lowering import (
    Attr,
    Builder,
    CompositeAttr,
    DenseI64Array,
    IrValue,
    KernelLayouts,
    Lowerable,
    MlirText,
    Region,
    RegionBuilder,
)
from tracefx.shardings.meshes import Mesh, PartitionSpec
from tracefx.shardings.named_sharding import NamedSharding
from tracefx.xla import runtime
from tracefx.xla.attributes import (
    batch_partitioning_attributes,
    composite_attribute,
    custom_call_attributes,
    layout_attributes,
    row_major_layouts,
    shardy_dim_sharding,
    to_mlir_attribute,
)
from tracefx.xla.emitted_module import (
    EmittedModule,
    EmittedValue,
    append_block,
    aval_to_ir_type,
    scoped_name,
    symbol_name,
    unwrap_values,
)
from tracefx.xla.multi_platform import POSITION_TYPE, IndexUnavailableError, MultiPlatformEmitter, build_branch


@final
class Emitter(MultiPlatformEmitter):
    """The `Builder` that `lower` rules speak to: appends to the block that is current, at the line that is.

    What happens in order hands a token from one to the next. A function or a region that has such equations in it takes
    the token first and gives it back first, beside what the rule that calls for it knows of.
    """

    __slots__ = (
        *(
            "_channels",
            "_all_devices_mesh",
            "_first_device_mesh",
            "_functions",
            "_locations",
            "_meshes",
            "_symbols",
            "_token",
        ),
        *("calls_kernels", "devices", "host_functions", "host_results", "targets"),
    )

    def __init__(
        self, module: runtime.Module, platform: str | tuple[str, ...], devices: tuple[Device, ...] = ()
    ) -> None:
        super().__init__(module, platform)
        self.devices = devices
        """The partitions, of a program on several devices."""
        self._meshes: dict[Mesh, str] = {}
        self._first_device_mesh = self._all_devices_mesh = ""
        """The meshes of the first device alone and of all in a row, once something needs them."""
        self._channels = 0
        self.targets: set[str] = set()
        """What custom calls call, other than kernels of jaxlib's."""
        self.calls_kernels = False
        """Whether custom calls call those."""
        self.host_functions: list[runtime.FfiCallback] = []
        """What custom calls of Python functions call, by number."""
        self.host_results: list[tuple[runtime.ArraySpec, ...]] = []
        self._functions: dict[tuple[Hashable, ...], tuple[Jaxpr, str, tuple[Hashable, ...]]] = {}
        """By program, platforms and manual axes: their names and extra parameters."""
        self._symbols: set[str] = set()
        self._locations: dict[
            tuple[str, str, int, int, tuple[str, ...]], tuple[runtime.Location, LazySourceLocation]
        ] = {}
        """By operation and place in a code object, which the source beside it keeps alive."""
        self._token: runtime.MlirValue | None = None
        """What the last of them gave in this block, if there was one."""

    def manual_computation(
        self,
        jaxpr: Jaxpr,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        ins: Sequence[NamedSharding],
        given: Sequence[NamedSharding],
        axes: Sequence[str],
    ) -> list[IrValue]:
        if len(self._platforms) == 1:
            return self._emit_manual_computation(jaxpr, operands, outs, ins, given, axes)
        before = self._save_state()
        try:
            found = self._emit_manual_computation(jaxpr, operands, outs, ins, given, axes)
        except IndexUnavailableError:
            self._restore_state(before)
        else:
            before.mark.erase()
            return found
        index = self._runtime_platform_index()
        return self._emit_manual_computation(jaxpr, [*operands, index], outs, ins, given, axes, takes_index=True)

    def _emit_manual_computation(
        self,
        jaxpr: Jaxpr,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        ins: Sequence[NamedSharding],
        given: Sequence[NamedSharding],
        axes: Sequence[str],
        takes_index: bool = False,
    ) -> list[IrValue]:
        """`apart`; the last operand may be the platform's index, which reaches the region no other way."""
        outer, outside = self._manual_axes, (self._body, self._index)
        beyond = [name for name in outer if name not in axes]
        known = [*beyond, *axes]

        def run(_: Builder, xs: Sequence[IrValue]) -> Sequence[IrValue]:
            meshes = [*[outer[name][0] for name in beyond], *[mesh for _ in axes]]
            self._manual_axes = {name: (m, x) for name, m, x in zip(known, meshes, xs[count:], strict=True)}
            if takes_index:
                index = xs[count - 1]
                assert type(index) is EmittedValue
                self._index = index
            return self.inline(jaxpr, xs[: len(jaxpr.invars)])

        mesh = (*ins, *given)[0].mesh
        count = len(operands)
        # Where a device is along an axis, it reads off its part of a counting array.
        whole = ShapedArray((), np.dtype(np.int32))
        counting = [whole.with_axis(mesh.shape[name], 0) for name in axes]
        tables = [self.emit("stablehlo.iota", (), [aval], {"iota_dimension": 0})[0] for aval in counting]
        operands = [*operands, *map(self._axis_position, beyond), *tables]
        if mesh.size_of(axes) == 1:  # whoever is alone has everything, and XLA knows of no parts for one device
            alone = list(run(self, operands))
            self._manual_axes = outer
            return alone
        self._body = self._index = None
        everywhere = [NamedSharding(mesh, PartitionSpec())] * (takes_index + len(beyond))
        ins = [*ins, *everywhere, *[NamedSharding(mesh, PartitionSpec(name)) for name in axes]]
        inputs = (*jaxpr.in_avals, *[whole] * takes_index, *[POSITION_TYPE for _ in known])
        ordered = any_ordered(jaxpr.effects)
        attrs: dict[str, Attr] = {
            "in_shardings": MlirText(self._per_value_shardings(ins, [x.aval for x in operands], ordered)),
            "out_shardings": MlirText(self._per_value_shardings(given, outs, ordered)),
            "manual_axes": MlirText(
                f"#sdy<manual_axes{{{', '.join([f'{name!r}' for name in axes])}}}>".replace("'", '"')
            ),
        }
        attributes = {k: to_mlir_attribute(v) for k, v in attrs.items()}
        values, name = unwrap_values(operands), "sdy.manual_computation"
        if ordered:
            operation, found = self._emit_ordered(name, [self._last_token(), *values], outs, attributes, 1)
        else:
            types = list(map(aval_to_ir_type, outs))
            operation = runtime.create(name, types, values, attributes, None, 1, self._line, self._block)
            found = list(map(EmittedValue, operation.results, outs))
        block = append_block(operation.regions[0], inputs, ordered)
        self._fill(block, Region(inputs, run), "sdy.return", takes_token=ordered, gives_token=ordered)
        self._manual_axes, (self._body, self._index) = outer, outside
        return found

    def _per_value_shardings(
        self, shardings: Sequence[NamedSharding], avals: Sequence[ShapedArray], ordered: bool
    ) -> str:
        parts = [self.sharding(s, a).removeprefix("#sdy.sharding") for s, a in zip(shardings, avals, strict=True)]
        if ordered:  # the token
            parts.insert(0, f"<@{self.mesh(shardings[0].mesh)}, []>")
        return f"#sdy.sharding_per_value<[{', '.join(parts)}]>"

    def replica_groups(self, names: Sequence[Hashable]) -> tuple[tuple[int, ...], ...] | None:
        if any(name not in self._manual_axes for name in names):
            return None
        mesh, _ = self._manual_axes[names[0]]
        places = np.array([self.devices.index(d) for d in mesh.flat]).reshape(mesh.axis_sizes)
        along = [mesh.axis_names.index(str(name)) for name in names]
        rest = [i for i in range(places.ndim) if i not in along]
        rows = places.transpose([*rest, *along]).reshape(-1, prod([mesh.axis_sizes[i] for i in along]))
        return tuple([tuple(map(int, row)) for row in rows])

    def axis_index(self, name: Hashable) -> IrValue:
        position = self._axis_position(name)
        return self.emit("stablehlo.reshape", [position], [position.aval.without_axis(0)])[0]

    def channel_handle(self) -> MlirText:
        self._channels += 1
        return MlirText(f"#stablehlo.channel_handle<handle = {self._channels}, type = 1>")

    def lowered(self) -> EmittedModule:
        calls = bool(self.targets), self.calls_kernels, tuple(self.host_functions), tuple(self.host_results)
        return EmittedModule(self.module, *calls)

    def mesh(self, mesh: Mesh) -> str:
        """The name of a mesh in the module."""
        symbol = self._meshes.get(mesh)
        if symbol is None:
            symbol = self._meshes[mesh] = self._unique_symbol("mesh")
            axes = ", ".join([f'"{name}"={size}' for name, size in mesh.shape.items()])
            ids = "" if mesh.flat == self.devices else f", device_ids={[self.devices.index(d) for d in mesh.flat]}"
            self._define_mesh(symbol, f"#sdy.mesh<[{axes}]{ids}>")
        return symbol

    def sharding(self, sharding: NamedSharding, aval: ShapedArray) -> str:
        parts = [shardy_dim_sharding(part) for part in sharding.spec.of_rank(aval.ndim)]
        if dtypes.is_key(aval.dtype):
            parts.append("{}")  # the words of a key are together
        return f"#sdy.sharding<@{self.mesh(sharding.mesh)}, [{', '.join(parts)}]>"

    def function(
        self,
        name: str,
        jaxpr: Jaxpr,
        attributes: Sequence[Mapping[str, runtime.Attribute]] | None = None,
        results: Sequence[Mapping[str, runtime.Attribute]] | None = None,
    ) -> tuple[Hashable, ...]:
        """Add a function whose body is `jaxpr`, and return its extra parameters; it is public if it is `main`.

        For several platforms `main` takes their index first, another function last and only if it makes a difference.
        Likewise another function takes positions along manual axes that its body uses.
        """
        ordered = name != "main" and any_ordered(jaxpr.effects)
        tokens = [runtime.token_type()] * ordered
        block = runtime.add_function(
            self.module,
            name,
            [*tokens, *map(aval_to_ir_type, jaxpr.in_avals)],
            [*tokens, *map(aval_to_ir_type, jaxpr.out_avals)],
            public=name == "main",
            argument_attributes=attributes,
            result_attributes=results,
        )
        outer = self._token, self._eqn, self._prefix, self._body, self._index, self._manual_axes, self._extra_parameters
        self._token, self._eqn, self._prefix = None, None, ""  # XLA puts the call's name in front
        chosen = name == "main" and len(self._all) > 1
        self._body, self._index = block, EmittedValue(block.arguments[0], jaxpr.in_avals[0]) if chosen else None
        self._manual_axes, self._extra_parameters = (
            {name: (mesh, None) for name, (mesh, _) in self._manual_axes.items()},
            [],
        )
        with runtime.unknown_location():
            region = Region(jaxpr.in_avals, lambda _, xs: self.inline(jaxpr, xs))
            self._fill(block, region, "func.return", takes_token=ordered, gives_token=ordered)
        extra = tuple(self._extra_parameters)
        self._token, self._eqn, self._prefix, self._body, self._index, self._manual_axes, self._extra_parameters = outer
        return extra

    def inline(self, jaxpr: Jaxpr, args: Sequence[IrValue]) -> list[IrValue]:
        """Append the equations of a program without constants."""
        env: dict[int, IrValue] = {v.index: x for v, x in zip(jaxpr.invars, args, strict=True)}
        outer = self._line, self._eqn, self._prefix
        if self._eqn is not None:
            self._prefix += scoped_name(self._eqn) + "/"
        alone = len(self._platforms) == 1
        for eqn in jaxpr.eqns:
            self._eqn = eqn
            prim, binders = eqn.prim, eqn.outs
            self._line = self.line(eqn)
            operands = []
            for a in eqn.inputs:
                operands.append(env[a.index] if type(a) is Var else self.constant(a))
            avals = [binders[0].aval] if len(binders) == 1 else [v.aval for v in binders]
            outs = self._apply_rule(eqn, avals, operands) if alone else self._lower_per_platform(eqn, avals, operands)
            if len(outs) != len(binders):
                raise TypeError(f"the lower rule of {prim.name} gave {len(outs)} results for {len(binders)} outputs")
            if len(outs) == 1:  # nearly all operations
                env[binders[0].index] = outs[0]
            else:
                env.update(zip([v.index for v in binders], outs, strict=True))
        self._line, self._eqn, self._prefix = outer
        return [env[a.index] if type(a) is Var else self.constant(a) for a in jaxpr.outs]

    @override
    def _apply_rule(self, eqn: Eqn, avals: Sequence[ShapedArray], operands: Sequence[IrValue]) -> Sequence[IrValue]:
        prim = eqn.prim
        return (
            prim.lower_with_avals(self, avals, operands) if isinstance(prim, Lowerable) else self.expand(eqn, operands)
        )

    def line(self, eqn: Eqn) -> runtime.Location:
        """The equation's name, scopes and line, which XLA keeps as metadata for profilers."""
        source = eqn.source
        if type(source) is not LazySourceLocation:
            return self._location(eqn)
        key = (self._prefix, eqn.prim.profile_name, id(source.code), source.lasti, source.scope)
        found = self._locations.get(key)
        if found is None:  # finding the line takes as long as the code is
            found = self._locations[key] = (self._location(eqn), source)
        return found[0]

    def _location(self, eqn: Eqn) -> runtime.Location:
        place = None if eqn.source is None else eqn.source.resolve()
        name = self._prefix + scoped_name(eqn)
        return runtime.location(name, None, 0) if place is None else runtime.location(name, place.file, place.line)

    def expand(self, eqn: Eqn, operands: Sequence[IrValue]) -> Sequence[IrValue]:
        prim = eqn.prim
        if isinstance(prim, Expandable):
            return self.lower_fun(prim.expand, operands)
        raise missing_rule_error(
            prim, "lower", "inherit from Lowerable and define lower(self, builder, *operands), or Expandable"
        )

    def lower_fun(self, function: Callable[..., Sequence[Value]], operands: Sequence[IrValue]) -> list[IrValue]:
        token = EQN_LOCATION.set(None if self._eqn is None else self._eqn.source)
        try:
            body, consts = stage(function, [x.aval for x in operands])
        finally:
            EQN_LOCATION.reset(token)
        held = [self.constant(np.asarray(c)) for c in consts]
        self._eqn = None  # whose scopes the smaller operations have themselves
        return self.inline(body.closed(), [*held, *operands])

    @override
    def emit(
        self,
        name: str,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        attrs: Mapping[str, Attr | runtime.Attribute] | None = None,
        regions: Sequence[Region] = (),
    ) -> list[IrValue]:
        values, types = [], []  # filled by loops, which for an element or two take half the time of a comprehension
        for x in operands:
            assert type(x) is EmittedValue
            values.append(x.value)
        for a in outs:
            types.append(runtime.tensor_type(a.shape, a.dtype))
        attributes = {k: to_mlir_attribute(v) for k, v in attrs.items()} if attrs else None
        operation = runtime.create(name, types, values, attributes, None, len(regions), self._line, self._block)
        if regions:
            for region, space in zip(regions, operation.regions, strict=True):
                self._fill(append_block(space, region.args), region)
        if len(outs) == 1:  # nearly all operations
            return [EmittedValue(operation.result, outs[0])]
        return list(map(EmittedValue, operation.results, outs))

    @override
    def _fill(
        self,
        block: runtime.Block,
        region: Region,
        end: str = "stablehlo.return",
        *,
        takes_token: bool = False,
        gives_token: bool = False,
    ) -> None:
        """Append what a region computes to its block, and the operation that ends it."""
        arguments = list(block.arguments)
        outer_block, outer_token = self._block, self._token
        self._block = runtime.at_end(block)
        if takes_token:
            self._token = arguments.pop(0)
        outs = region.build(self, list(map(EmittedValue, arguments, region.args)))
        values = unwrap_values(outs)
        if gives_token:
            values.insert(0, self._last_token())
        runtime.create(end, (), values, None, None, 0, self._line, self._block)
        self._block, self._token = outer_block, outer_token

    @override
    def constant(self, value: Literal | NDArray) -> IrValue:
        array = value.numpy() if isinstance(value, Literal) else np.asarray(value)
        aval = value.aval if isinstance(value, Literal) else ShapedArray(array.shape, array.dtype)
        return self.emit("stablehlo.constant", (), (aval,), {"value": runtime.dense_attr(array)})[0]

    def retype_keys(self, x: IrValue, aval: ShapedArray) -> IrValue:
        assert isinstance(x, EmittedValue)
        return EmittedValue(x.value, aval)

    def emit_per_key_word(
        self, prim: Primitive, outs: Sequence[ShapedArray], operands: Sequence[IrValue]
    ) -> list[IrValue]:
        assert isinstance(prim, Batchable)
        axis = MappedAxis(dtypes.key_data_size(outs[0].dtype))
        dims = [x.aval.ndim if dtypes.is_key(x.aval.dtype) else None for x in operands]
        places: list[int | None] = []

        def each_word(*words: Value) -> Sequence[Value]:
            found, places[:] = prim.batch(axis, words, dims)
            return found

        body, consts = stage(each_word, [key_data_aval(x.aval) for x in operands])
        held = [self.constant(np.asarray(c)) for c in consts]
        results = self.inline(body.closed(), [*held, *[self.retype_keys(x, key_data_aval(x.aval)) for x in operands]])
        return [self._with_words_last(x, place, out) for x, place, out in zip(results, places, outs, strict=True)]

    def _with_words_last(self, x: IrValue, place: int | None, out: ShapedArray) -> IrValue:
        assert isinstance(x, EmittedValue)
        assert place is not None  # words of keys come from those of keys
        if place != out.ndim:
            others = [i for i in range(out.ndim + 1) if i != place]
            (x,) = self.emit("stablehlo.transpose", [x], [out], {"permutation": DenseI64Array((*others, place))})
            assert isinstance(x, EmittedValue)
        return EmittedValue(x.value, out)

    def reemit_broadcast(self, x: IrValue) -> IrValue:
        assert isinstance(x, EmittedValue)
        found = runtime.broadcast_of(x.value)
        if found is None:
            return x
        source, sizes = found
        # By way of its own reshape: XLA takes plain broadcasts of one value together before it looks at their uses.
        part = self.emit("stablehlo.reshape", [EmittedValue(source, x.aval)], [x.aval.update(shape=sizes)])
        dims = DenseI64Array(tuple(range(len(sizes))))
        return self.emit("stablehlo.broadcast_in_dim", part, [x.aval], {"broadcast_dimensions": dims})[0]

    def call(self, name: str, jaxpr: Jaxpr, operands: Sequence[IrValue]) -> list[IrValue]:
        if not operands and any_ordered(jaxpr.effects):
            # The function's only operand would be a token. Since jaxlib 0.11 XLA inlines such a function with control
            # dependencies on its constants, and aborts the process in common-subexpression elimination.
            return self.inline(jaxpr, operands)
        key = id(jaxpr), self._platforms, tuple([(name, mesh) for name, (mesh, _) in self._manual_axes.items()])
        if key not in self._functions:
            symbol = self._unique_symbol(symbol_name(name))
            self._functions[key] = (jaxpr, symbol, self.function(symbol, jaxpr))
        _, symbol, extra = self._functions[key]
        operands = [*operands, *self._extra_operands(extra)]
        callee: dict[str, runtime.Attribute] = {"callee": runtime.symbol_attr(symbol)}
        if any_ordered(jaxpr.effects):
            return self._emit_ordered(
                "func.call", [self._last_token(), *unwrap_values(operands)], jaxpr.out_avals, callee
            )[1]
        return self.emit("func.call", operands, jaxpr.out_avals, callee)

    def composite(
        self,
        name: str,
        version: int,
        attributes: Mapping[str, CompositeAttr],
        jaxpr: Jaxpr,
        operands: Sequence[IrValue],
    ) -> list[IrValue]:
        symbol = self._unique_symbol(symbol_name(name))
        operands = [*operands, *self._extra_operands(self.function(symbol, jaxpr))]
        attrs: dict[str, runtime.Attribute] = {
            "name": runtime.string_attr(name),
            "version": runtime.integer_attr(version, 32),
            "decomposition": runtime.symbol_attr(symbol),
            "composite_attributes": runtime.dict_attr({k: composite_attribute(v) for k, v in attributes.items()}),
        }
        return self.emit("stablehlo.composite", operands, jaxpr.out_avals, attrs)

    def loop(self, carry: Sequence[IrValue], condition: RegionBuilder, body: RegionBuilder) -> list[IrValue]:
        avals = tuple([x.aval for x in carry])
        if not self._is_ordered():
            return self.emit("stablehlo.while", carry, avals, None, [Region(avals, condition), Region(avals, body)])

        # The region of a condition gives no token, so the conditions are computed outside: before the loop, and at the
        # end of its body.
        def next_carry(builder: Builder, xs: Sequence[IrValue]) -> list[IrValue]:
            outs = body(builder, xs[1:])
            return [*condition(builder, outs), *outs]

        (first,) = condition(self, carry)
        avals = (first.aval, *avals)
        operands = [self._last_token(), *unwrap_values([first, *carry])]
        operation, outs = self._emit_ordered("stablehlo.while", operands, avals, None, 2)
        test, step = [append_block(space, avals, token=True) for space in operation.regions]
        self._fill(test, Region(avals, lambda _, xs: xs[:1]), takes_token=True)
        self._fill(step, Region(avals, next_carry), takes_token=True, gives_token=True)
        return outs[1:]

    def case(
        self,
        index: IrValue,
        branches: Sequence[RegionBuilder],
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
    ) -> list[IrValue]:
        if id(index) in self._platform_numbers:
            _, places = self._platform_numbers[id(index)]
            which = sorted({places[platform] for platform in self._platforms})
            if len(which) == 1:
                return list(branches[which[0]](self, operands))
            each = [tuple([p for p in self._platforms if places[p] == i]) for i in which]
            return self._emit_platform_case([branches[i] for i in which], each, operands, outs)
        regions = [Region((), functools.partial(build_branch, branch, operands)) for branch in branches]
        if not self._is_ordered():
            return self.emit("stablehlo.case", [index], outs, None, regions)
        before = self._last_token()
        operation, results = self._emit_ordered("stablehlo.case", unwrap_values([index]), outs, None, len(branches))
        after, self._token = self._token, before
        for region, space in zip(regions, operation.regions, strict=True):
            self._fill(append_block(space, ()), region, gives_token=True)
        self._token = after
        return results

    def _is_ordered(self) -> bool:
        """Whether the equation that is lowered has ordered effects."""
        return self._eqn is not None and any_ordered(self._eqn.prim.effects)

    def _last_token(self) -> runtime.MlirValue:
        if self._token is None:
            kind = [runtime.token_type()]
            self._token = runtime.create(
                "stablehlo.create_token", kind, (), None, None, 0, self._line, self._block
            ).result
        return self._token

    def _emit_ordered(
        self,
        name: str,
        operands: Sequence[runtime.MlirValue],
        outs: Sequence[ShapedArray],
        attributes: dict[str, runtime.Attribute] | None = None,
        regions: int = 0,
    ) -> tuple[runtime.MlirOperation, list[IrValue]]:
        """Append an operation that gives the next token first."""
        types = [runtime.token_type(), *map(aval_to_ir_type, outs)]
        operation = runtime.create(name, types, operands, attributes, None, regions, self._line, self._block)
        self._token, *results = operation.results
        return operation, list(map(EmittedValue, results, outs))

    def custom_call(
        self,
        target: str,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        config: Mapping[str, Attr] | None = None,
        has_side_effect: bool = False,
        layouts: KernelLayouts | None = None,
    ) -> list[IrValue]:
        if runtime.is_lapack_kernel(target):
            self.calls_kernels = True
            if "cpu" in self._platforms:
                runtime.register_lapack_kernels()
        elif runtime.is_hybrid_kernel(target):
            self.calls_kernels = True
            runtime.initialize_hybrid_kernels()
        elif not runtime.is_gpu_kernel(target):
            self.targets.add(target)
        attributes = custom_call_attributes(target, config or {}, has_side_effect)
        attributes |= layout_attributes(layouts or row_major_layouts([x.aval for x in operands], outs))
        if layouts is not None and len(self.devices) > 1:
            attributes |= batch_partitioning_attributes([x.aval for x in operands], outs, layouts.core_ndim)
        return self.emit("stablehlo.custom_call", operands, outs, attributes)

    def has_custom_call_target(self, target: str) -> bool:
        return runtime.is_kernel_available(target)

    def host_call(
        self,
        function: Callable[..., Sequence[NDArray]],
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        has_side_effect: bool,
        partitioned: bool = False,
    ) -> list[IrValue]:
        if any(dtypes.is_key(aval.dtype) for aval in (*[x.aval for x in operands], *outs)):
            function = on_key_data(function, [x.aval.dtype for x in operands])
        config = {"index": MlirText(f"{len(self.host_functions)} : ui64")}
        once = len(self.devices) > 1 and not self._manual_axes  # or else each device calls for its own part
        if has_side_effect and (together := self._auto_axes()):
            raise NotImplementedError(
                f"a Python function can't be called for what it does in a shard_map that leaves the axes {together} of "
                "the mesh to the compiler: devices along these run one program. Name all axes, or call it outside"
            )
        parts = partitioned and once and not self._is_ordered()
        target = runtime.host_call_target(self.platform, parts)
        attributes = custom_call_attributes(target, config, has_side_effect)
        layouts = row_major_layouts([x.aval for x in operands], outs)
        attributes |= layout_attributes(layouts, ordered=self._is_ordered())
        self.targets.add(target)
        words = map(key_data_aval, outs)
        self.host_results.append(tuple([runtime.ArraySpec(kind.shape, kind.dtype) for kind in words]))
        if once and not parts:
            attributes["sdy.sharding"] = self._first_device_sharding(max(1, len(outs) + self._is_ordered()))
        if self._is_ordered():
            self.host_functions.append(lambda token, *arrays: (token, *function(*arrays)))
            given = [self._last_token(), *unwrap_values(operands)]
            found = self._emit_ordered("stablehlo.custom_call", given, outs, attributes)[1]
        else:
            self.host_functions.append(function)
            found = self.emit("stablehlo.custom_call", operands, outs, attributes)
        return list(map(self._replicate, found)) if once and not parts else found

    def _auto_axes(self) -> list[str]:
        """The axes, of the mesh along some of whose axes devices run apart, along which they don't."""
        meshes = [mesh for mesh, _ in self._manual_axes.values()][:1]
        return [
            name for mesh in meshes for name, size in mesh.shape.items() if size > 1 and name not in self._manual_axes
        ]

    def _first_device_sharding(self, count: int) -> runtime.Attribute:
        """The sharding of what the first device gives, which alone has it."""
        if not self._first_device_mesh:
            self._first_device_mesh = self._unique_symbol("first_device")
            self._define_mesh(self._first_device_mesh, "#sdy.mesh<[], device_ids=[0]>")
        return runtime.parse_attribute(
            f"#sdy.sharding_per_value<[{', '.join([f'<@{self._first_device_mesh}, []>'] * count)}]>"
        )

    def _replicate(self, x: IrValue) -> IrValue:
        """An array of which all devices have all."""
        if not self._all_devices_mesh:
            self._all_devices_mesh = self._unique_symbol("everyone")
            self._define_mesh(self._all_devices_mesh, f'#sdy.mesh<["devices"={len(self.devices)}]>')
        parts = ", ".join(["{}"] * (x.aval.ndim + dtypes.is_key(x.aval.dtype)))
        attrs: dict[str, Attr] = {"sharding": MlirText(f"#sdy.sharding<@{self._all_devices_mesh}, [{parts}]>")}
        return self.emit("sdy.sharding_constraint", [x], [x.aval], attrs)[0]

    def _define_mesh(self, symbol: str, mesh: str) -> None:
        attributes = {"sym_name": runtime.string_attr(symbol), "mesh": runtime.parse_attribute(mesh)}
        runtime.create("sdy.mesh", (), (), attributes, None, 0, self._line, runtime.at_end(self.module.body))

    def _unique_symbol(self, symbol: str) -> str:
        candidate, n = symbol, 0
        while candidate in self._symbols or candidate == "main":
            n += 1
            candidate = f"{symbol}_{n}"
        self._symbols.add(candidate)
        return candidate
