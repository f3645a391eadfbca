"""Lowering: a jaxpr becomes a StableHLO module, by the `lower` rules of its operations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias, TypeVar, cast, final

import numpy as np
from attrs import field, frozen

from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.dtypes import DType, float0
from tracefx.core.jaxpr import Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.sharding import Sharding
from tracefx.passes.dce import prune
from tracefx.shardings.named_sharding import NamedSharding, ShardingAssignment
from tracefx.xla import runtime
from tracefx.xla.emitted_module import EmittedModule, symbol_name
from tracefx.xla.emitter import Emitter

X = TypeVar("X")

# ------------------------------------------------------------------ the result


@final
@frozen
class ForwardedInput:
    """An output that is an input, handed through without being computed."""

    index: int


@final
@frozen
class Result:
    """An output that the module's `main` returns."""

    index: int


Output: TypeAlias = ForwardedInput | Result | Literal


@final
@frozen(eq=False)
class ExecutionPlan:
    """How a program is run by an executable, which is not made yet: what it computes, of which of the inputs.

    The executable's parameters are those of the `inputs` that are at `kept`; those at `donated` give their memory away.
    `outputs` says where the program's outputs come from.
    """

    computed: Jaxpr
    inputs: int
    kept_inputs: tuple[int, ...]
    donated: frozenset[int]
    outputs: tuple[Output, ...]
    aliases: Mapping[int, int] = field(init=False, repr=False)
    """The donated parameters that alias a result of the same shape and dtype, and which result it is."""

    @aliases.default
    def _find_aliases(self) -> Mapping[int, int]:
        free: dict[tuple[Shape, DType], list[int]] = {}
        for k, aval in enumerate(self.computed.out_avals if self.donated else ()):
            free.setdefault((aval.shape, aval.dtype), []).append(k)
        found: dict[int, int] = {}
        for i, (place, aval) in enumerate(zip(self.kept_inputs, self.computed.in_avals, strict=True)):
            if place in self.donated and (fits := free.get((aval.shape, aval.dtype))):
                found[i] = fits.pop(0)
        return MappingProxyType(found)

    @property
    def results(self) -> tuple[ShapedArray, ...]:
        """The types of what the executable returns."""
        return self.computed.out_avals

    def select_results(self, of_outputs: Sequence[X]) -> list[X]:
        """What is said of the outputs, for the results that they are."""
        return [of_outputs[self.outputs.index(Result(i))] for i in range(len(self.results))]


def plan(
    jaxpr: Jaxpr, donated: Sequence[int] = (), keep_unused: bool = False, moved: Collection[int] = frozenset()
) -> ExecutionPlan:
    """Plan for a program without constants. Inputs it doesn't use, and outputs that need no computing, are left out.

    Outputs at `moved` are the executable's even if they are inputs, and so are outputs that are donated inputs, whose
    array is deleted after the call.
    """
    assert not jaxpr.constvars
    given = frozenset([i for i in donated if jaxpr.invars[i].aval.dtype != float0])
    places = {v.index: i for i, v in enumerate(jaxpr.invars)}
    computed: list[Var] = []
    order: dict[int, int] = {}
    outputs: list[Output] = []
    for i, a in enumerate(jaxpr.outs):
        if isinstance(a, Literal):
            outputs.append(a)
        elif i in moved or places.get(a.index) in given:
            outputs.append(Result(len(computed)))
            computed.append(a)
        elif a.index in places:
            outputs.append(ForwardedInput(places[a.index]))
        else:
            if a.index not in order:
                order[a.index] = len(computed)
                computed.append(a)
            outputs.append(Result(order[a.index]))
    body = Jaxpr((), jaxpr.invars, jaxpr.eqns, tuple(computed))
    pruned, used = prune(body, (True,) * len(computed))
    if keep_unused:
        used = tuple([v.aval.dtype != float0 for v in jaxpr.invars])
        pruned = Jaxpr((), tuple([v for v, u in zip(jaxpr.invars, used, strict=True) if u]), body.eqns, body.outs)
    kept = tuple([i for i, u in enumerate(used) if u])
    return ExecutionPlan(pruned, len(jaxpr.invars), kept, given, tuple(outputs))


def lower(plan: ExecutionPlan, name: str) -> EmittedModule:
    """The module that computes what is planned."""
    emitter = Emitter(_new_module(name), runtime.lowering_platform(runtime.devices()[0]))
    emitter.function("main", plan.computed, _donation_attributes(plan))
    return emitter.lowered()


def lower_spmd(plan: ExecutionPlan, name: str, placing: ShardingAssignment) -> EmittedModule:
    """The module for several devices. How inputs and outputs are cut is said to Shardy, where anything says it."""
    device = cast(runtime.Device, placing.devices[0])
    emitter = Emitter(_new_module(name), runtime.lowering_platform(device), placing.devices)
    taken, given = _sharding_attributes(emitter, plan, placing)
    for attributes, i in zip(taken, plan.kept_inputs, strict=True):
        if i in plan.donated:
            attributes["jax.buffer_donor"] = runtime.bool_attr(True)
    emitter.function("main", plan.computed, taken, given)
    return emitter.lowered()


def _sharding_attributes(
    emitter: Emitter, plan: ExecutionPlan, placing: ShardingAssignment
) -> tuple[list[dict[str, runtime.Attribute]], list[dict[str, runtime.Attribute]]]:
    """Attributes of the parameters and of the results; the module is one for so many devices from now on."""
    taken = [
        _sharding_attribute(emitter, placing.inputs[i], v.aval)
        for i, v in zip(plan.kept_inputs, plan.computed.invars, strict=True)
    ]
    given = [
        _sharding_attribute(emitter, sharding, aval)
        for sharding, aval in zip(plan.select_results(placing.outputs), plan.results, strict=True)
    ]
    counts = emitter.module.operation.attributes
    counts["mhlo.num_partitions"] = runtime.integer_attr(len(placing.devices), 32)
    counts["mhlo.num_replicas"] = runtime.integer_attr(1, 32)
    return taken, given


def _sharding_attribute(emitter: Emitter, sharding: Sharding | None, aval: ShapedArray) -> dict[str, runtime.Attribute]:
    """What says to Shardy how an input or output of the program lies."""
    if not isinstance(sharding, NamedSharding):
        return {}
    return {"sdy.sharding": runtime.parse_attribute(emitter.sharding(sharding, aval))}


def plan_export(jaxpr: Jaxpr) -> ExecutionPlan:
    """A plan for a module that gives all outputs of a program, of those of its inputs that they depend on."""
    pruned, used = prune(jaxpr, (True,) * len(jaxpr.outs))
    kept = tuple([i for i, u in enumerate(used) if u])
    return ExecutionPlan(pruned, len(jaxpr.invars), kept, frozenset(), tuple(map(Result, range(len(jaxpr.outs)))))


def lower_for(
    plan: ExecutionPlan, name: str, platforms: tuple[str, ...], placing: ShardingAssignment | None = None
) -> EmittedModule:
    """The module for platforms other than this one, too. For several it takes their index first, as JAX's do."""
    emitter = Emitter(_new_module(name), platforms, () if placing is None else placing.devices)
    given: list[dict[str, runtime.Attribute]] | None = None
    if placing is None:
        taken: list[dict[str, runtime.Attribute]] = [{} for _ in plan.computed.invars]
    else:
        taken, given = _sharding_attributes(emitter, plan, placing)
    computed = plan.computed
    if len(platforms) > 1:
        index = Var(computed.var_count, ShapedArray((), np.dtype(np.int32)))
        computed = Jaxpr((), (index, *computed.invars), computed.eqns, computed.outs)
        taken.insert(0, {"jax.global_constant": runtime.string_attr("_platform_index")})
    emitter.function("main", computed, taken, given)
    return emitter.lowered()


def _new_module(name: str) -> runtime.Module:
    return runtime.new_module("jit_" + symbol_name(name))


def _donation_attributes(plan: ExecutionPlan) -> list[dict[str, runtime.Attribute]]:
    """Attributes of the parameters: a donated one aliases a result, or else may be used for any result or temporary."""
    attributes: list[dict[str, runtime.Attribute]] = [{} for _ in plan.kept_inputs]
    aliases = plan.aliases
    for i, place in enumerate(plan.kept_inputs):
        if i in aliases:
            attributes[i]["tf.aliasing_output"] = runtime.integer_attr(aliases[i], 32)
        elif place in plan.donated:
            attributes[i]["jax.buffer_donor"] = runtime.bool_attr(True)
    return attributes
