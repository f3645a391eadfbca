"""Lowering: translates a jaxpr to a StableHLO module, with the `lower` rules of its primitives."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar, final

import numpy as np
from attrs import evolve, field, frozen

from tracefx.core import ConcreteArray, DType, Literal, NDArray, Shape, ShapedArray, Value, as_value, float0
from tracefx.core.jaxpr import Jaxpr, Var
from tracefx.core.repeated_blocks import RepeatedBlocks
from tracefx.core.sharding import Sharding
from tracefx.dimensions.solving import is_symbolic
from tracefx.passes.dce import prune
from tracefx.repeated_blocks.sharing import SharedProgram, share_repeats
from tracefx.settings import RepeatsMode
from tracefx.shardings.named_sharding import NamedSharding, ShardingAssignment
from tracefx.xla.dynamic_emitter import DynamicEmitter
from tracefx.xla.emitted_module import EmittedModule, symbol_name
from tracefx.xla.emitter import Emitter
from tracefx.xla.runtime import bindings, executables, mlir, platforms

X = TypeVar("X")

# ------------------------------------------------------------------ execution plans


@final
@frozen
class ForwardedInput:
    """A program output that is one of the inputs, returned without being computed."""

    index: int


@final
@frozen
class Result:
    """A program output that the module's `main` returns, by index of the result."""

    index: int


Output: TypeAlias = ForwardedInput | Result | Literal


@final
@frozen(eq=False)
class ExecutionPlan:
    """The program of an executable, and how inputs and outputs relate to its parameters and results.

    The executable's parameters are the `kept_inputs` of the program's `inputs` inputs; `donated` are the indices of
    donated inputs. `outputs` says where each output of the program comes from.
    """

    computed: Jaxpr
    inputs: int
    kept_inputs: tuple[int, ...]
    donated: frozenset[int]
    outputs: tuple[Output, ...]
    aliases: Mapping[int, int] = field(init=False, repr=False)
    """Maps donated parameters to the result of the same shape and dtype that they alias."""

    @aliases.default
    def _find_aliases(self) -> Mapping[int, int]:
        free: dict[tuple[Shape, DType], list[int]] = {}
        for k, aval in enumerate(self.computed.out_avals if self.donated else ()):
            free.setdefault((aval.shape, aval.dtype), []).append(k)
        alias_of: dict[int, int] = {}
        for i, (index, aval) in enumerate(zip(self.kept_inputs, self.computed.in_avals, strict=True)):
            if index in self.donated and (candidates := free.get((aval.shape, aval.dtype))):
                alias_of[i] = candidates.pop(0)
        return MappingProxyType(alias_of)

    @property
    def unusable_donations(self) -> tuple[int, ...]:
        """The donated inputs that the executable takes, but whose memory no result can reuse."""
        aliased = {self.kept_inputs[i] for i in self.aliases}
        return tuple([i for i in self.kept_inputs if i in self.donated and i not in aliased])

    @property
    def results(self) -> tuple[ShapedArray, ...]:
        """The types of the executable's results."""
        return self.computed.out_avals

    def select_results(self, of_outputs: Sequence[X]) -> list[X]:
        """Selects, from one value for each output, the values of the outputs that are results."""
        return [of_outputs[self.outputs.index(Result(i))] for i in range(len(self.results))]


def assemble_outputs(
    outputs: Sequence[Output], args: Sequence[Value | NDArray], results: Sequence[ConcreteArray]
) -> list[ConcreteArray]:
    """Returns the outputs of a program that was called with `args`, and whose executable returned `results`."""

    def output(source: Output) -> ConcreteArray:
        if isinstance(source, Result):
            return results[source.index]
        value = source if isinstance(source, Literal) else as_value(args[source.index])
        if isinstance(value, Literal):
            return ConcreteArray(value.aval, value.numpy())
        assert isinstance(value, ConcreteArray)
        if value.is_deleted():
            raise value.deleted_error()
        return value.alias()

    return list(map(output, outputs))


def plan(
    jaxpr: Jaxpr, donated: Sequence[int] = (), keep_unused: bool = False, moved: Collection[int] = frozenset()
) -> ExecutionPlan:
    """Plans the execution of a jaxpr without constants, leaving out unused inputs and outputs that need no computation.

    Args:
        jaxpr: the program.
        donated: indices of donated inputs.
        keep_unused: whether unused inputs stay parameters of the executable.
        moved: indices of outputs that must be results even if they are inputs, because they change their sharding.
            Outputs that are donated inputs are results too, because the input's array is deleted after the call.
    """
    assert not jaxpr.constvars
    donated_inputs = frozenset([i for i in donated if jaxpr.invars[i].aval.dtype != float0])
    input_index = {v.index: i for i, v in enumerate(jaxpr.invars)}
    computed: list[Var] = []
    result_index: dict[int, int] = {}
    outputs: list[Output] = []
    for i, a in enumerate(jaxpr.outs):
        if isinstance(a, Literal):
            outputs.append(a)
        elif i in moved or input_index.get(a.index) in donated_inputs:
            outputs.append(Result(len(computed)))
            computed.append(a)
        elif a.index in input_index:
            outputs.append(ForwardedInput(input_index[a.index]))
        else:
            if a.index not in result_index:
                result_index[a.index] = len(computed)
                computed.append(a)
            outputs.append(Result(result_index[a.index]))
    body = Jaxpr((), jaxpr.invars, jaxpr.eqns, tuple(computed))
    pruned, is_used = prune(body, (True,) * len(computed))
    if keep_unused:
        is_used = tuple([v.aval.dtype != float0 for v in jaxpr.invars])
        pruned = Jaxpr((), tuple([v for v, u in zip(jaxpr.invars, is_used, strict=True) if u]), body.eqns, body.outs)
    kept_inputs = tuple([i for i, u in enumerate(is_used) if u])
    return ExecutionPlan(pruned, len(jaxpr.invars), kept_inputs, donated_inputs, tuple(outputs))


def lower(plan: ExecutionPlan, name: str, repeats: RepeatsMode) -> EmittedModule:
    """Lowers a plan for the host's first device; repeated blocks share functions unless `repeats` is `"inline"`."""
    platform = platforms.lowering_platform(platforms.devices()[0])
    emitter = Emitter(_new_module(name), platform)
    program = _share_repeats(plan.computed, platform, repeats)
    emitter.shares_blocks = bool(program.bodies)
    emitter.function("main", program.jaxpr, _donation_attributes(plan))
    return evolve(emitter.lowered(), repeats=program.report)


_INLINED: Final = "repeated blocks are compiled each time: repeats='inline'"
_OTHER_PLATFORM: Final = "repeated blocks are compiled each time: sharing them is supported on CPUs, except in exports"
_NO_EFFECT: Final = (
    "repeated blocks are compiled each time: the compiler option that shares them has no effect in jaxlib "
    + bindings.JAXLIB_VERSION
)


def _share_repeats(jaxpr: Jaxpr, platform: str, repeats: RepeatsMode, partitioned: bool = False) -> SharedProgram:
    if repeats == "inline" or platform != "cpu":
        return _unshared(jaxpr, _INLINED if repeats == "inline" else _OTHER_PLATFORM)
    program = share_repeats(jaxpr, partitioned=partitioned, spares_memory=repeats == "auto")
    has_effect = partitioned or not program.bodies or executables.compiles_functions_once()
    return program if has_effect else _unshared(jaxpr, _NO_EFFECT)


def _unshared(jaxpr: Jaxpr, reason: str) -> SharedProgram:
    return SharedProgram(jaxpr, (), RepeatedBlocks(reason=reason))


def lower_spmd(plan: ExecutionPlan, name: str, assignment: ShardingAssignment, repeats: RepeatsMode) -> EmittedModule:
    """Lowers a plan for several devices. Shardings of inputs and outputs become Shardy annotations where specified."""
    platform = platforms.lowering_platform(bindings.native_device(assignment.devices[0]))
    emitter = Emitter(_new_module(name), platform, assignment.devices)
    input_attributes, output_attributes = _sharding_attributes(emitter, plan, assignment)
    for attributes, i in zip(input_attributes, plan.kept_inputs, strict=True):
        if i in plan.donated:
            attributes["jax.buffer_donor"] = mlir.bool_attr(True)
    program = _share_repeats(plan.computed, platform, repeats, partitioned=True)
    emitter.function("main", program.jaxpr, input_attributes, output_attributes)
    return evolve(emitter.lowered(), repeats=program.report)


def _sharding_attributes(
    emitter: Emitter, plan: ExecutionPlan, assignment: ShardingAssignment
) -> tuple[list[dict[str, mlir.Attribute]], list[dict[str, mlir.Attribute]]]:
    """Returns attributes of the parameters and the results, and sets the module's number of partitions."""
    input_attributes = [
        _sharding_attribute(emitter, assignment.inputs[i], v.aval)
        for i, v in zip(plan.kept_inputs, plan.computed.invars, strict=True)
    ]
    output_attributes = [
        _sharding_attribute(emitter, sharding, aval)
        for sharding, aval in zip(plan.select_results(assignment.outputs), plan.results, strict=True)
    ]
    module_attributes = emitter.module.operation.attributes
    module_attributes["mhlo.num_partitions"] = mlir.integer_attr(len(assignment.devices), 32)
    module_attributes["mhlo.num_replicas"] = mlir.integer_attr(1, 32)
    return input_attributes, output_attributes


def _sharding_attribute(emitter: Emitter, sharding: Sharding | None, aval: ShapedArray) -> dict[str, mlir.Attribute]:
    """Returns the Shardy annotation of an input or output; none unless it has a `NamedSharding`."""
    if not isinstance(sharding, NamedSharding):
        return {}
    return {"sdy.sharding": mlir.parse_attribute(emitter.sharding(sharding, aval))}


def plan_export(jaxpr: Jaxpr) -> ExecutionPlan:
    """Plans a module for export: it returns all outputs of the program, and takes the inputs that these depend on.

    With symbolic dimensions it takes all inputs, since their sizes give the dimension variables.
    """
    pruned, is_used = prune(jaxpr, (True,) * len(jaxpr.outs))
    if is_symbolic(jaxpr.in_avals):
        pruned, is_used = jaxpr.closed(), (True,) * len(jaxpr.invars)
    kept_inputs = tuple([i for i, u in enumerate(is_used) if u])
    return ExecutionPlan(
        pruned, len(jaxpr.invars), kept_inputs, frozenset(), tuple(map(Result, range(len(jaxpr.outs))))
    )


def lower_for(
    plan: ExecutionPlan, name: str, platforms: tuple[str, ...], assignment: ShardingAssignment | None = None
) -> EmittedModule:
    """Lowers a plan for given platforms. For several, `main` takes the platform index first, as in JAX's exports."""
    devices = () if assignment is None else assignment.devices
    dynamic = is_symbolic(plan.computed.in_avals)
    module = _new_module(name)
    emitter = DynamicEmitter(module, platforms, devices, name) if dynamic else Emitter(module, platforms, devices)
    output_attributes: list[dict[str, mlir.Attribute]] | None = None
    if assignment is None:
        input_attributes: list[dict[str, mlir.Attribute]] = [{} for _ in plan.computed.invars]
    else:
        input_attributes, output_attributes = _sharding_attributes(emitter, plan, assignment)
    computed = plan.computed
    if len(platforms) > 1:
        index = Var(computed.var_count, ShapedArray((), np.dtype(np.int32)))
        computed = Jaxpr((), (index, *computed.invars), computed.eqns, computed.outs)
        input_attributes.insert(0, {"jax.global_constant": mlir.string_attr("_platform_index")})
    emitter.function("main", computed, input_attributes, output_attributes)
    return evolve(emitter.lowered(), repeats=RepeatedBlocks(reason=_OTHER_PLATFORM))


def _new_module(name: str) -> mlir.Module:
    return mlir.new_module("jit_" + symbol_name(name))


def _donation_attributes(plan: ExecutionPlan) -> list[dict[str, mlir.Attribute]]:
    """Returns attributes of the parameters: a donated one aliases a result, or else is a buffer donor for any use."""
    attributes: list[dict[str, mlir.Attribute]] = [{} for _ in plan.kept_inputs]
    aliases = plan.aliases
    for i, index in enumerate(plan.kept_inputs):
        if i in aliases:
            attributes[i]["tf.aliasing_output"] = mlir.integer_attr(aliases[i], 32)
        elif index in plan.donated:
            attributes[i]["jax.buffer_donor"] = mlir.bool_attr(True)
    return attributes
