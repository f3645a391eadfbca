"""The emitter: the StableHLO builder that `lower` rules use; it appends operations to a module."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod

import numpy as np
from typing_extensions import override

from tracefx.core import Literal, NDArray, ShapedArray, Value, dtypes
from tracefx.core.device import Device
from tracefx.core.effects import any_ordered
from tracefx.core.jaxpr import Eqn, Jaxpr, Var
from tracefx.core.key_data import key_data_aval, on_key_data
from tracefx.core.meshes import BaseMesh
from tracefx.core.named_sharding import NamedSharding
from tracefx.core.partition_spec import PartitionSpec
from tracefx.core.primitive import Batchable, Expandable, MappedAxis, Primitive, missing_rule_error
from tracefx.interpreters.stage import stage, stage_expansion
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
    SharedExpansion,
)
from tracefx.source_location import SOURCE, LazySourceLocation
from tracefx.xla.attributes import (
    batch_partitioning_attributes,
    composite_attribute,
    custom_call_attributes,
    layout_attributes,
    row_major_layouts,
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
from tracefx.xla.module_meshes import ModuleMeshes
from tracefx.xla.multi_platform import POSITION_TYPE, IndexUnavailableError, MultiPlatformEmitter, build_branch
from tracefx.xla.runtime import bindings, callbacks, executables, gpu_kernels, mlir


class Emitter(MultiPlatformEmitter):
    """The `Builder` that `lower` rules use: appends to the current block with the current source location.

    Ordered effects are chained by a token. A function or region that contains ordered equations takes the token as its
    first argument and returns it as its first result, besides the operands and results that rules deal with.
    """

    __slots__ = (
        *("_channels", "_functions", "_locations", "_token", "calls_kernels", "devices", "host_functions"),
        *("host_results", "meshes", "shares_blocks", "targets"),
    )

    def __init__(self, module: mlir.Module, platform: str | tuple[str, ...], devices: tuple[Device, ...] = ()) -> None:
        super().__init__(module, platform)
        self.devices = devices
        """The partitions of a program on several devices."""
        self.meshes = ModuleMeshes(module, devices, self._unique_symbol)
        self._channels = 0
        self.shares_blocks = False
        """Whether all functions of the module are compiled on their own. Calls that XLA may inline are then inlined."""
        self.targets: set[str] = set()
        """Targets of custom calls, except jaxlib's kernels."""
        self.calls_kernels = False
        """Whether custom calls use jaxlib's kernels."""
        self.host_functions: list[callbacks.FfiCallback] = []
        """The Python functions that custom calls call, by index."""
        self.host_results: list[tuple[bindings.ArraySpec, ...]] = []
        self._functions: dict[tuple[Hashable, ...], tuple[Jaxpr, str, tuple[Hashable, ...]]] = {}
        """Functions by jaxpr, platforms and manual axes: the jaxpr (kept alive), the symbol and extra parameters."""
        self._locations: dict[tuple[str, str, int, int, tuple[str, ...]], tuple[mlir.Location, LazySourceLocation]] = {}
        """MLIR locations by operation and position in a code object; the source kept beside keeps its id valid."""
        self._token: mlir.MlirValue | None = None
        """The last token in this block, if there is one."""

    def manual_computation(
        self,
        jaxpr: Jaxpr,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        in_shardings: Sequence[NamedSharding],
        out_shardings: Sequence[NamedSharding],
        axes: Sequence[str],
    ) -> list[IrValue]:
        shardings = in_shardings, out_shardings
        if len(self._platforms) == 1:
            return self._emit_manual_computation(jaxpr, operands, outs, *shardings, axes)
        state = self._save_state()
        try:
            results = self._emit_manual_computation(jaxpr, operands, outs, *shardings, axes)
        except IndexUnavailableError:
            self._restore_state(state)
        else:
            state.mark.erase()
            return results
        index = self._runtime_platform_index()
        return self._emit_manual_computation(jaxpr, [*operands, index], outs, *shardings, axes, takes_index=True)

    def _emit_manual_computation(
        self,
        jaxpr: Jaxpr,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        in_shardings: Sequence[NamedSharding],
        out_shardings: Sequence[NamedSharding],
        axes: Sequence[str],
        takes_index: bool = False,
    ) -> list[IrValue]:
        """Emits a manual computation; with `takes_index` the last operand is the platform index.

        The region is isolated, so it can get the platform index as an operand only.
        """
        outer_axes, outer_function = self._manual_axes, (self._body, self._index)
        outer_names = [name for name in outer_axes if name not in axes]
        all_names = [*outer_names, *axes]

        def run(_: Builder, xs: Sequence[IrValue]) -> Sequence[IrValue]:
            meshes = [*[outer_axes[name][0] for name in outer_names], *[mesh for _ in axes]]
            self._manual_axes = {name: (m, x) for name, m, x in zip(all_names, meshes, xs[count:], strict=True)}
            if takes_index:
                index = xs[count - 1]
                assert type(index) is EmittedValue
                self._index = index
            return self.inline(jaxpr, xs[: len(jaxpr.invars)])

        mesh = (*in_shardings, *out_shardings)[0].mesh
        count = len(operands)
        # A device reads its position along an axis from its shard of an iota array.
        scalar_type = ShapedArray((), np.dtype(np.int32))
        iota_types = [scalar_type.with_axis(mesh.shape[name], 0) for name in axes]
        tables = [self.emit("stablehlo.iota", (), [aval], {"iota_dimension": 0})[0] for aval in iota_types]
        operands = [*operands, *map(self._axis_position, outer_names), *tables]
        if mesh.size_of(axes) == 1:  # no partitioning: the only device has whole arrays
            unpartitioned = list(run(self, operands))
            self._manual_axes = outer_axes
            return unpartitioned
        self._body = self._index = None
        replicated = [NamedSharding(mesh, PartitionSpec())] * (takes_index + len(outer_names))
        in_shardings = [*in_shardings, *replicated, *[NamedSharding(mesh, PartitionSpec(name)) for name in axes]]
        inputs = (*jaxpr.in_avals, *[scalar_type] * takes_index, *[POSITION_TYPE for _ in all_names])
        ordered = any_ordered(jaxpr.effects)
        is_open = len(all_names) < len(mesh.axis_names)  # then the compiler may shard along the other axes
        attrs: dict[str, Attr] = {
            "in_shardings": MlirText(
                self._per_value_shardings(in_shardings, [x.aval for x in operands], ordered, is_open)
            ),
            "out_shardings": MlirText(self._per_value_shardings(out_shardings, outs, ordered, is_open)),
            "manual_axes": MlirText(
                f"#sdy<manual_axes{{{', '.join([f'{name!r}' for name in axes])}}}>".replace("'", '"')
            ),
        }
        attributes = {k: to_mlir_attribute(v) for k, v in attrs.items()}
        values, name = unwrap_values(operands), "sdy.manual_computation"
        if ordered:
            operation, results = self._emit_ordered(name, [self._last_token(), *values], outs, attributes, 1)
        else:
            types = list(map(aval_to_ir_type, outs))
            operation = mlir.create(name, types, values, attributes, None, 1, self._line, self._block)
            results = list(map(EmittedValue, operation.results, outs))
        block = append_block(operation.regions[0], inputs, ordered)
        self._fill(block, Region(inputs, run), "sdy.return", takes_token=ordered, gives_token=ordered)
        self._manual_axes, (self._body, self._index) = outer_axes, outer_function
        return results

    def _per_value_shardings(
        self, shardings: Sequence[NamedSharding], avals: Sequence[ShapedArray], ordered: bool, is_open: bool
    ) -> str:
        parts = [
            self.sharding(s, a, is_open).removeprefix("#sdy.sharding") for s, a in zip(shardings, avals, strict=True)
        ]
        if ordered:  # for the token
            parts.insert(0, f"<@{self.meshes.symbol(shardings[0].mesh)}, []>")
        return f"#sdy.sharding_per_value<[{', '.join(parts)}]>"

    def replica_groups(self, names: Sequence[Hashable]) -> tuple[tuple[int, ...], ...] | None:
        if any(name not in self._manual_axes for name in names):
            return None
        mesh, _ = self._manual_axes[names[0]]
        partitions = np.array([self.devices.index(d) for d in mesh.flat]).reshape(mesh.axis_sizes)
        dims = [mesh.axis_names.index(str(name)) for name in names]
        other_dims = [i for i in range(partitions.ndim) if i not in dims]
        rows = partitions.transpose([*other_dims, *dims]).reshape(-1, prod([mesh.axis_sizes[i] for i in dims]))
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

    def constrain(self, x: IrValue, mesh: BaseMesh, spec: PartitionSpec) -> IrValue:
        if len(self.devices) != mesh.size or mesh.size == 1:
            return x
        text = self.meshes.sharding(mesh, spec, x.aval, is_open=bool(mesh.auto_axes))
        return self.emit("sdy.sharding_constraint", [x], [x.aval], {"sharding": MlirText(text)})[0]

    def sharding(self, sharding: NamedSharding, aval: ShapedArray, is_open: bool = False) -> str:
        return self.meshes.sharding(sharding.mesh, sharding.spec, aval, is_open)

    def function(
        self,
        name: str,
        jaxpr: Jaxpr,
        attributes: Sequence[Mapping[str, mlir.Attribute]] | None = None,
        results: Sequence[Mapping[str, mlir.Attribute]] | None = None,
    ) -> tuple[Hashable, ...]:
        """Adds a function with body `jaxpr`, public if it is `main`; returns its extra parameters.

        For several platforms `main` takes the platform index first; other functions take it last, and only if they need
        it. Likewise other functions take the positions along manual axes that they need.
        """
        ordered = name != "main" and any_ordered(jaxpr.effects)
        tokens = [mlir.token_type()] * ordered
        block = mlir.add_function(
            self.module,
            name,
            [*tokens, *map(aval_to_ir_type, jaxpr.in_avals)],
            [*tokens, *map(aval_to_ir_type, jaxpr.out_avals)],
            public=name == "main",
            argument_attributes=attributes,
            result_attributes=results,
        )
        outer = self._token, self._eqn, self._prefix, self._body, self._index, self._manual_axes, self._extra_parameters
        self._token, self._eqn, self._prefix = None, None, ""  # XLA prefixes the name of a call when it inlines it
        takes_index = name == "main" and len(self._all) > 1
        self._body, self._index = block, EmittedValue(block.arguments[0], jaxpr.in_avals[0]) if takes_index else None
        self._manual_axes, self._extra_parameters = (
            {name: (mesh, None) for name, (mesh, _) in self._manual_axes.items()},
            [],
        )
        with mlir.unknown_location():
            region = Region(jaxpr.in_avals, lambda _, xs: self.inline(jaxpr, xs))
            self._fill(block, region, "func.return", takes_token=ordered, gives_token=ordered)
        extra = tuple(self._extra_parameters)
        self._token, self._eqn, self._prefix, self._body, self._index, self._manual_axes, self._extra_parameters = outer
        return extra

    def inline(self, jaxpr: Jaxpr, args: Sequence[IrValue]) -> list[IrValue]:
        """Appends the equations of a jaxpr without constants."""
        env: dict[int, IrValue] = {v.index: self._plain(x) for v, x in zip(jaxpr.invars, args, strict=True)}
        outer = self._line, self._eqn, self._prefix
        if self._eqn is not None:
            self._prefix += scoped_name(self._eqn) + "/"
        single = len(self._platforms) == 1
        token = SOURCE.set(None)
        try:
            for eqn in jaxpr.eqns:
                self._eqn = eqn
                SOURCE.set(eqn.source)  # for messages, and for the equations of expansions
                prim, binders = eqn.prim, eqn.outs
                self._line = self.line(eqn)
                operands = []
                for a in eqn.inputs:
                    operands.append(env[a.index] if type(a) is Var else self.constant(a))
                avals = [binders[0].aval] if len(binders) == 1 else [v.aval for v in binders]
                is_sharded = any(aval.explicit_sharding is not None for aval in avals)
                if is_sharded:
                    avals = [aval.with_explicit_sharding(None) for aval in avals]
                outs = (
                    self._apply_rule(eqn, avals, operands) if single else self._lower_per_platform(eqn, avals, operands)
                )
                if len(outs) != len(binders):
                    raise TypeError(
                        f"the lower rule of {prim.name} gave {len(outs)} results for {len(binders)} outputs"
                    )
                if is_sharded:
                    outs = [self._constrain_to_type(self._plain(x), v.aval) for x, v in zip(outs, binders, strict=True)]
                if len(outs) == 1:  # the most frequent case
                    env[binders[0].index] = outs[0]
                else:
                    env.update(zip([v.index for v in binders], outs, strict=True))
        finally:
            SOURCE.reset(token)
        self._line, self._eqn, self._prefix = outer
        return [env[a.index] if type(a) is Var else self.constant(a) for a in jaxpr.outs]

    def _plain(self, x: IrValue) -> IrValue:
        """Returns a value whose type has no sharding: rules and expansions know nothing of shardings."""
        aval = x.aval
        return x if aval.explicit_sharding is None else self.retype_keys(x, aval.with_explicit_sharding(None))

    def _constrain_to_type(self, x: IrValue, aval: ShapedArray) -> IrValue:
        sharding = aval.explicit_sharding
        return x if sharding is None else self.constrain(x, sharding.mesh, sharding.spec)

    @override
    def _apply_rule(self, eqn: Eqn, avals: Sequence[ShapedArray], operands: Sequence[IrValue]) -> Sequence[IrValue]:
        prim = eqn.prim
        return (
            prim.lower_with_avals(self, avals, operands) if isinstance(prim, Lowerable) else self.expand(eqn, operands)
        )

    def line(self, eqn: Eqn) -> mlir.Location:
        """Returns an equation's location: name, scopes and source line, which XLA passes to profilers as metadata."""
        source = eqn.source
        if type(source) is not LazySourceLocation:
            return self._location(eqn)
        key = (self._prefix, eqn.prim.profile_name, id(source.code), source.lasti, source.scope)
        cached = self._locations.get(key)
        if cached is None:  # resolving a line takes time linear in the length of the code object
            cached = self._locations[key] = (self._location(eqn), source)
        return cached[0]

    def _location(self, eqn: Eqn) -> mlir.Location:
        line = None if eqn.source is None else eqn.source.resolve()
        name = self._prefix + scoped_name(eqn)
        return mlir.location(name, line.file, line.line) if line and line.file else mlir.location(name, None, 0)

    def expand(self, eqn: Eqn, operands: Sequence[IrValue]) -> Sequence[IrValue]:
        prim = eqn.prim
        if isinstance(prim, SharedExpansion):
            jaxpr, consts = stage_expansion(prim, tuple([x.aval for x in operands]))
            operands = [*[self.constant(np.asarray(c)) for c in consts], *operands]
            return self.call(prim.name, jaxpr, operands, inlined=False)
        if isinstance(prim, Expandable):
            return self.lower_fun(prim.expand, operands)
        raise missing_rule_error(
            prim, "lower", "inherit from Lowerable and define lower(self, builder, *operands), or Expandable"
        )

    def lower_fun(self, function: Callable[..., Sequence[Value]], operands: Sequence[IrValue]) -> list[IrValue]:
        body, consts = stage(function, [x.aval for x in operands])
        self._eqn = None  # the inlined equations have its scopes already
        return self.inline(body.closed(), [*[self.constant(np.asarray(c)) for c in consts], *operands])

    @override
    def emit(
        self,
        name: str,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        attrs: Mapping[str, Attr | mlir.Attribute] | None = None,
        regions: Sequence[Region] = (),
    ) -> list[IrValue]:
        values, types = [], []  # loops, since for one or two elements they take half the time of a comprehension
        for x in operands:
            assert type(x) is EmittedValue
            values.append(x.value)
        for a in outs:
            types.append(mlir.tensor_type(a.shape, a.dtype))
        attributes = {k: to_mlir_attribute(v) for k, v in attrs.items()} if attrs else None
        operation = mlir.create(name, types, values, attributes, None, len(regions), self._line, self._block)
        if regions:
            for region, space in zip(regions, operation.regions, strict=True):
                self._fill(append_block(space, region.args), region)
        if len(outs) == 1:  # the most frequent case
            return [EmittedValue(operation.result, outs[0])]
        return list(map(EmittedValue, operation.results, outs))

    @override
    def _fill(
        self,
        block: mlir.Block,
        region: Region,
        end: str = "stablehlo.return",
        *,
        takes_token: bool = False,
        gives_token: bool = False,
    ) -> None:
        """Builds a region in its block, and appends the terminator."""
        arguments = list(block.arguments)
        outer_block, outer_token = self._block, self._token
        self._block = mlir.at_end(block)
        if takes_token:
            self._token = arguments.pop(0)
        outs = region.build(self, list(map(EmittedValue, arguments, region.args)))
        values = unwrap_values(outs)
        if gives_token:
            values.insert(0, self._last_token())
        mlir.create(end, (), values, None, None, 0, self._line, self._block)
        self._block, self._token = outer_block, outer_token

    @override
    def constant(self, value: Literal | NDArray) -> IrValue:
        array = value.numpy() if isinstance(value, Literal) else np.asarray(value)
        aval = value.aval if isinstance(value, Literal) else ShapedArray(array.shape, array.dtype)
        return self.emit("stablehlo.constant", (), (aval,), {"value": mlir.dense_attr(array)})[0]

    def dimension(self, size: int, aval: ShapedArray) -> IrValue:
        return self.constant(Literal(size, aval))

    def retype_keys(self, x: IrValue, aval: ShapedArray) -> IrValue:
        (value,) = unwrap_values([x])
        return EmittedValue(value, aval)

    def emit_per_key_word(
        self, prim: Primitive, outs: Sequence[ShapedArray], operands: Sequence[IrValue]
    ) -> list[IrValue]:
        assert isinstance(prim, Batchable)
        axis = MappedAxis(dtypes.key_data_size(outs[0].dtype))
        dims = [x.aval.ndim if dtypes.is_key(x.aval.dtype) else None for x in operands]
        out_dims: list[int | None] = []

        def batched(*words: Value) -> Sequence[Value]:
            batched_outs, out_dims[:] = prim.batch(axis, words, dims)
            return batched_outs

        body, consts = stage(batched, [key_data_aval(x.aval) for x in operands])
        captured = [self.constant(np.asarray(c)) for c in consts]
        results = self.inline(
            body.closed(), [*captured, *[self.retype_keys(x, key_data_aval(x.aval)) for x in operands]]
        )
        return [self._with_words_last(x, dim, out) for x, dim, out in zip(results, out_dims, outs, strict=True)]

    def _with_words_last(self, x: IrValue, dim: int | None, out: ShapedArray) -> IrValue:
        assert dim is not None  # words of the result depend on words of the operands
        if dim != out.ndim:
            others = [i for i in range(out.ndim + 1) if i != dim]
            (x,) = self.emit("stablehlo.transpose", [x], [out], {"permutation": DenseI64Array((*others, dim))})
        return self.retype_keys(x, out)

    def reemit_broadcast(self, x: IrValue) -> IrValue:
        broadcast = mlir.broadcast_of(*unwrap_values([x]))
        if broadcast is None:
            return x
        source, sizes = broadcast
        # With a reshape of its own: XLA merges plain broadcasts of the same value before it looks at their uses.
        reshaped = self.emit("stablehlo.reshape", [EmittedValue(source, x.aval)], [x.aval.update(shape=sizes)])
        dims = DenseI64Array(tuple(range(len(sizes))))
        return self.emit("stablehlo.broadcast_in_dim", reshaped, [x.aval], {"broadcast_dimensions": dims})[0]

    def call(
        self,
        name: str,
        jaxpr: Jaxpr,
        operands: Sequence[IrValue],
        *,
        inlined: bool = True,
        merged: bool = True,
        partitioned: bool = False,
    ) -> list[IrValue]:
        if (inlined and merged and self.shares_blocks) or (not operands and any_ordered(jaxpr.effects)):
            # In the second case the function's only operand would be a token. Since jaxlib 0.11 XLA inlines such a
            # function with control dependencies on its constants, and aborts the process in its CSE.
            return self.inline(jaxpr, operands)
        key = id(jaxpr), self._platforms, tuple([(name, mesh) for name, (mesh, _) in self._manual_axes.items()])
        if key not in self._functions:
            symbol = self._unique_symbol(symbol_name(name))
            self._functions[key] = (jaxpr, symbol, self.function(symbol, jaxpr))
        _, symbol, extra = self._functions[key]
        operands = [*operands, *self._extra_operands(extra)]
        callee: dict[str, mlir.Attribute] = {"callee": mlir.symbol_attr(symbol)}
        may_inline = (merged and (inlined or self.shares_blocks)) or (self.devices and not partitioned)
        if not may_inline and self._platforms == ("cpu",):
            callee["mhlo.frontend_attributes"] = mlir.dict_attr({"inlineable": mlir.string_attr("false")})
        if any_ordered(jaxpr.effects):
            values = [self._last_token(), *unwrap_values(operands)]
            return self._emit_ordered("func.call", values, jaxpr.out_avals, callee)[1]
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
        attrs: dict[str, mlir.Attribute] = {
            "name": mlir.string_attr(name),
            "version": mlir.integer_attr(version, 32),
            "decomposition": mlir.symbol_attr(symbol),
            "composite_attributes": mlir.dict_attr({k: composite_attribute(v) for k, v in attributes.items()}),
        }
        return self.emit("stablehlo.composite", operands, jaxpr.out_avals, attrs)

    def loop(self, carry: Sequence[IrValue], condition: RegionBuilder, body: RegionBuilder) -> list[IrValue]:
        avals = tuple([x.aval for x in carry])
        if not self._is_ordered():
            return self.emit("stablehlo.while", carry, avals, None, [Region(avals, condition), Region(avals, body)])

        # The region of a condition cannot return a token, so the condition is computed outside: before the loop, and at
        # the end of its body.
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
            _, branch_of = self._platform_numbers[id(index)]
            branch_indices = sorted({branch_of[platform] for platform in self._platforms})
            if len(branch_indices) == 1:
                return list(branches[branch_indices[0]](self, operands))
            platforms = [tuple([p for p in self._platforms if branch_of[p] == i]) for i in branch_indices]
            return self._emit_platform_case([branches[i] for i in branch_indices], platforms, operands, outs)
        regions = [Region((), functools.partial(build_branch, branch, operands)) for branch in branches]
        if not self._is_ordered():
            return self.emit("stablehlo.case", [index], outs, None, regions)
        token_before = self._last_token()
        operation, results = self._emit_ordered("stablehlo.case", unwrap_values([index]), outs, None, len(branches))
        token_after, self._token = self._token, token_before
        for region, space in zip(regions, operation.regions, strict=True):
            self._fill(append_block(space, ()), region, gives_token=True)
        self._token = token_after
        return results

    def _is_ordered(self) -> bool:
        """Whether the current equation has ordered effects."""
        return self._eqn is not None and any_ordered(self._eqn.prim.effects)

    def _last_token(self) -> mlir.MlirValue:
        if self._token is None:
            types = [mlir.token_type()]
            self._token = mlir.create(
                "stablehlo.create_token", types, (), None, None, 0, self._line, self._block
            ).result
        return self._token

    def _emit_ordered(
        self,
        name: str,
        operands: Sequence[mlir.MlirValue],
        outs: Sequence[ShapedArray],
        attributes: dict[str, mlir.Attribute] | None = None,
        regions: int = 0,
    ) -> tuple[mlir.MlirOperation, list[IrValue]]:
        """Appends an operation whose first result is the next token."""
        types = [mlir.token_type(), *map(aval_to_ir_type, outs)]
        operation = mlir.create(name, types, operands, attributes, None, regions, self._line, self._block)
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
        self._register_kernel(target)
        attributes = custom_call_attributes(target, config or {}, has_side_effect)
        attributes |= layout_attributes(layouts or row_major_layouts([x.aval for x in operands], outs))
        if layouts is not None and len(self.devices) > 1:
            attributes |= batch_partitioning_attributes([x.aval for x in operands], outs, layouts.core_ndim)
        return self.emit("stablehlo.custom_call", operands, outs, attributes)

    @override
    def _register_kernel(self, target: str) -> None:
        if executables.is_lapack_kernel(target):
            self.calls_kernels = True
            if "cpu" in self._platforms:
                executables.register_lapack_kernels()
        elif gpu_kernels.is_hybrid_kernel(target):
            self.calls_kernels = True
            gpu_kernels.initialize_hybrid_kernels()
        elif not gpu_kernels.is_gpu_kernel(target):
            self.targets.add(target)

    def has_custom_call_target(self, target: str) -> bool:
        return gpu_kernels.is_kernel_available(target)

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
        once = len(self.devices) > 1 and not self._manual_axes  # with manual axes each device calls with its shards
        if has_side_effect and (auto_axes := self._auto_axes()):
            raise NotImplementedError(
                "a Python function with side effects can't be called in a shard_map that leaves the axes "
                f"{auto_axes} of the mesh to the compiler: devices along these run one program. Make all axes manual, "
                "or call it outside"
            )
        per_shard = partitioned and once and not self._is_ordered()
        target = callbacks.host_call_target(self.platform, per_shard)
        attributes = custom_call_attributes(target, config, has_side_effect)
        layouts = row_major_layouts([x.aval for x in operands], outs)
        attributes |= layout_attributes(layouts, ordered=self._is_ordered())
        self.targets.add(target)
        word_avals = map(key_data_aval, outs)
        self.host_results.append(tuple([bindings.ArraySpec(a.shape, a.dtype) for a in word_avals]))
        if once and not per_shard:
            attributes["sdy.sharding"] = self.meshes.on_first_device(max(1, len(outs) + self._is_ordered()))
        if self._is_ordered():
            self.host_functions.append(lambda token, *arrays: (token, *function(*arrays)))
            mlir_operands = [self._last_token(), *unwrap_values(operands)]
            results = self._emit_ordered("stablehlo.custom_call", mlir_operands, outs, attributes)[1]
        else:
            self.host_functions.append(function)
            results = self.emit("stablehlo.custom_call", operands, outs, attributes)
        return list(map(self._replicate, results)) if once and not per_shard else results

    def _auto_axes(self) -> list[str]:
        """Returns the mesh axes of size > 1 that are not manual in the current `shard_map`."""
        meshes = [mesh for mesh, _ in self._manual_axes.values()][:1]
        return [
            name for mesh in meshes for name, size in mesh.shape.items() if size > 1 and name not in self._manual_axes
        ]

    def _replicate(self, x: IrValue) -> IrValue:
        """Replicates a value over all devices."""
        attrs: dict[str, Attr] = {"sharding": MlirText(self.meshes.replicated(x.aval))}
        return self.emit("sdy.sharding_constraint", [x], [x.aval], attrs)[0]
