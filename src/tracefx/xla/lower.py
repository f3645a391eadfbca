"""Lowering: a jaxpr becomes a StableHLO module, by the `lower` rules of its operations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.core.avals import ShapedArray
from tracefx.core.builder import Attr, Build, Dims, Ir, Region, Text
from tracefx.core.dtypes import NDArray, float0
from tracefx.core.jaxpr import Eqn, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.passes import prune
from tracefx.core.primitive import Expandable, Lowerable, missing
from tracefx.core.source import ORIGIN, Place, Source
from tracefx.handlers.stage import stage
from tracefx.xla import runtime

# ------------------------------------------------------------------ the result


@final
@frozen
class Argument:
    """An output that is an input, handed through without being computed."""

    index: int


@final
@frozen
class Result:
    """An output that the module's `main` returns."""

    index: int


Output: TypeAlias = Argument | Result | Literal


@final
@frozen(eq=False)
class Plan:
    """How a program is run by an executable, which is not made yet: what it computes, of which of the inputs.

    The executable's parameters are the inputs at `kept`; those at `donated` give their memory away. `outputs` says
    where the program's outputs come from.
    """

    computed: Jaxpr
    kept: tuple[int, ...]
    donated: frozenset[int]
    outputs: tuple[Output, ...]

    @property
    def results(self) -> tuple[ShapedArray, ...]:
        """The types of what the executable returns."""
        return self.computed.out_avals


@final
@frozen(eq=False)
class Lowered:
    """A module, and whether it calls code by the address that code has in this process."""

    module: runtime.Module
    calls_host: bool


def plan(jaxpr: Jaxpr, donated: Sequence[int] = (), keep_unused: bool = False) -> Plan:
    """Plan for a program without constants. Inputs it doesn't use, and outputs that need no computing, are left out."""
    assert not jaxpr.constvars
    places = {v.index: i for i, v in enumerate(jaxpr.invars)}
    computed = {a.index: a for a in jaxpr.outs if not isinstance(a, Literal) and a.index not in places}
    order = {index: i for i, index in enumerate(computed)}
    outputs: list[Output] = []
    for a in jaxpr.outs:
        if isinstance(a, Literal):
            outputs.append(a)
        else:
            outputs.append(Argument(places[a.index]) if a.index in places else Result(order[a.index]))
    body = Jaxpr((), jaxpr.invars, jaxpr.eqns, tuple(computed.values()))
    pruned, used = prune(body, (True,) * len(computed))
    if keep_unused:
        used = tuple([v.aval.dtype != float0 for v in jaxpr.invars])
        pruned = Jaxpr((), tuple([v for v, u in zip(jaxpr.invars, used, strict=True) if u]), body.eqns, body.outs)
    kept = tuple([i for i, u in enumerate(used) if u])
    return Plan(pruned, kept, frozenset(donated), tuple(outputs))


def lower(plan: Plan, name: str) -> Lowered:
    """The module that computes what is planned."""
    module = runtime.new_module("jit_" + _symbol(name))
    emitter = Emitter(module)
    places = [place for place, i in enumerate(plan.kept) if i in plan.donated]
    emitter.function("main", plan.computed, _donations(plan.computed, places))
    return Lowered(module, bool(emitter.targets))


def _donations(jaxpr: Jaxpr, donated: Sequence[int]) -> list[dict[str, runtime.Attribute]]:
    """Attributes of the arguments: a donated one gives its memory to an output of its type, or to XLA at large."""
    free = dict(enumerate(jaxpr.out_avals))
    attributes: list[dict[str, runtime.Attribute]] = [{} for _ in jaxpr.invars]
    for i in donated:
        aval = jaxpr.in_avals[i]
        fits = [k for k, a in free.items() if (a.shape, a.dtype) == (aval.shape, aval.dtype)]
        if fits:
            del free[fits[0]]
            attributes[i]["tf.aliasing_output"] = runtime.integer_attr(fits[0], 32)
        else:
            attributes[i]["jax.buffer_donor"] = runtime.bool_attr(True)
    return attributes


# ------------------------------------------------------------------ the builder


@final
class Node:
    """A value of the module and its type. A plain class, since every operation makes one."""

    __slots__ = ("aval", "value")

    def __init__(self, value: runtime.Value, aval: ShapedArray) -> None:
        self.value = value
        self.aval = aval


@final
class Emitter:
    """The `Builder` that `lower` rules speak to: appends to the block that is current, at the line that is."""

    __slots__ = ("_block", "_functions", "_line", "_lines", "_symbols", "module", "targets")

    def __init__(self, module: runtime.Module) -> None:
        self.module = module
        self.targets: set[str] = set()
        """What custom calls call."""
        self._functions: dict[int, tuple[Jaxpr, str]] = {}
        self._symbols: set[str] = set()
        self._lines: dict[tuple[str, int, int, tuple[str, ...]], tuple[runtime.Location, Source]] = {}
        """By operation and place in a code object, which the source beside it keeps alive."""
        # Handed to every operation: for MLIR to find out which are current takes longer than to be told.
        self._block = runtime.at_end(module.body)
        self._line = runtime.lowering()

    def function(
        self, name: str, jaxpr: Jaxpr, attributes: Sequence[Mapping[str, runtime.Attribute]] | None = None
    ) -> None:
        """Add a function whose body is `jaxpr`; it is public if it is `main`."""
        inputs = [_type(a) for a in jaxpr.in_avals]
        results = [_type(a) for a in jaxpr.out_avals]
        block = runtime.function(
            self.module, name, inputs, results, public=name == "main", argument_attributes=attributes
        )
        outer, self._block = self._block, runtime.at_end(block)
        with runtime.lowering():
            outs = self.inline(jaxpr, list(map(Node, block.arguments, jaxpr.in_avals)))
            self.emit("func.return", outs, ())
        self._block = outer

    def inline(self, jaxpr: Jaxpr, args: Sequence[Ir]) -> list[Ir]:
        """Append the equations of a program without constants."""
        env: dict[int, Ir] = {v.index: x for v, x in zip(jaxpr.invars, args, strict=True)}
        outer = self._line
        for eqn in jaxpr.eqns:
            prim, binders = eqn.prim, eqn.outs
            self._line = self.line(eqn)
            operands = []
            for a in eqn.inputs:
                operands.append(env[a.index] if type(a) is Var else self.constant(a))
            if isinstance(prim, Lowerable):
                outs = prim.lower_to(self, [v.aval for v in binders], operands)
            else:
                outs = self.expand(eqn, operands)
            if len(outs) != len(binders):
                raise TypeError(f"the lower rule of {prim.name} gave {len(outs)} results for {len(binders)} outputs")
            for v, x in zip(binders, outs):  # noqa: B905  # of one length
                env[v.index] = x
        self._line = outer
        return [env[a.index] if type(a) is Var else self.constant(a) for a in jaxpr.outs]

    def line(self, eqn: Eqn) -> runtime.Location:
        """The equation's name, scopes and line, which XLA keeps as metadata for profilers."""
        name, source = eqn.prim.name, eqn.source
        if type(source) is not Source:
            return _location(name, source)
        key = (name, id(source.code), source.lasti, source.scope)
        found = self._lines.get(key)
        if found is None:  # finding the line takes as long as the code is
            found = self._lines[key] = (_location(name, source.place()), source)
        return found[0]

    def expand(self, eqn: Eqn, operands: Sequence[Ir]) -> Sequence[Ir]:
        prim = eqn.prim
        if isinstance(prim, Expandable):
            token = ORIGIN.set(eqn.source)
            try:
                body, consts = stage(prim.expand, [x.aval for x in operands])
            finally:
                ORIGIN.reset(token)
            held = [self.constant(np.asarray(c)) for c in consts]
            return self.inline(body.closed(), [*held, *operands])
        raise missing(prim, "lower", "inherit from Lowerable and define lower(self, builder, *operands), or Expandable")

    def emit(
        self,
        name: str,
        operands: Sequence[Ir],
        outs: Sequence[ShapedArray],
        attrs: Mapping[str, Attr | runtime.Attribute] | None = None,
        regions: Sequence[Region] = (),
    ) -> list[Ir]:
        values, types = [], []  # filled by loops, which for an element or two take half the time of a comprehension
        for x in operands:
            assert type(x) is Node
            values.append(x.value)
        for a in outs:
            types.append(runtime.tensor_type(a.shape, a.dtype))
        attributes = {k: _attribute(v) for k, v in attrs.items()} if attrs else None
        operation = runtime.create(name, types, values, attributes, None, len(regions), self._line, self._block)
        if regions:
            for region, space in zip(regions, operation.regions, strict=True):
                self._fill(space, region)
        if len(outs) == 1:  # nearly all operations
            return [Node(operation.result, outs[0])]
        return list(map(Node, operation.results, outs))

    def _fill(self, space: runtime.Space, region: Region) -> None:
        """Give an operation's region its one block."""
        block = space.blocks.append(*map(_type, region.args), arg_locs=None)
        outer, self._block = self._block, runtime.at_end(block)
        self.emit("stablehlo.return", region.build(self, list(map(Node, block.arguments, region.args))), ())
        self._block = outer

    def loop(self, carry: Sequence[Ir], condition: Build, body: Build) -> list[Ir]:
        avals = tuple([x.aval for x in carry])
        return self.emit("stablehlo.while", carry, avals, regions=[Region(avals, condition), Region(avals, body)])

    def case(
        self, index: Ir, branches: Sequence[Build], operands: Sequence[Ir], outs: Sequence[ShapedArray]
    ) -> list[Ir]:
        def region(build: Build) -> Region:  # a branch has no arguments of its own: it sees what is around it
            return Region((), lambda builder, _: build(builder, operands))

        return self.emit("stablehlo.case", [index], outs, regions=[region(build) for build in branches])

    def constant(self, value: Literal | NDArray) -> Ir:
        array = value.numpy() if isinstance(value, Literal) else np.asarray(value)
        aval = value.aval if isinstance(value, Literal) else ShapedArray(array.shape, array.dtype)
        return self.emit("stablehlo.constant", (), (aval,), {"value": runtime.dense(array)})[0]

    def call(self, name: str, jaxpr: Jaxpr, operands: Sequence[Ir]) -> list[Ir]:
        if id(jaxpr) not in self._functions:
            symbol = self._fresh(_symbol(name))
            self._functions[id(jaxpr)] = (jaxpr, symbol)
            self.function(symbol, jaxpr)
        _, symbol = self._functions[id(jaxpr)]
        return self.emit("func.call", operands, jaxpr.out_avals, {"callee": runtime.symbol_attr(symbol)})

    def custom_call(
        self,
        target: str,
        operands: Sequence[Ir],
        outs: Sequence[ShapedArray],
        config: Mapping[str, Attr] | None = None,
        has_side_effect: bool = False,
    ) -> list[Ir]:
        self.targets.add(target)
        attributes: dict[str, Attr | runtime.Attribute] = {
            "call_target_name": runtime.string_attr(target),
            "api_version": runtime.integer_attr(4, 32),
            "has_side_effect": has_side_effect,
            "backend_config": runtime.dict_attr({k: _attribute(v) for k, v in (config or {}).items()}),
        }
        return self.emit("stablehlo.custom_call", operands, outs, attributes)

    def _fresh(self, symbol: str) -> str:
        candidate, n = symbol, 0
        while candidate in self._symbols or candidate == "main":
            n += 1
            candidate = f"{symbol}_{n}"
        self._symbols.add(candidate)
        return candidate


def _type(aval: ShapedArray) -> runtime.Type:
    return runtime.tensor_type(aval.shape, aval.dtype)


def _attribute(attr: Attr | runtime.Attribute) -> runtime.Attribute:
    if isinstance(attr, Dims):
        return runtime.i64_array_attr(attr.values)
    if isinstance(attr, Text):
        return runtime.attribute(attr.mlir)
    if isinstance(attr, bool):
        return runtime.bool_attr(attr)
    return runtime.integer_attr(attr) if isinstance(attr, int) else attr


def _location(name: str, place: Place | None) -> runtime.Location:
    if place is None:
        return runtime.location(name, None, 0)
    return runtime.location("/".join([*place.scope, name]), place.file, place.line)


def _symbol(name: str) -> str:
    return re.sub(r"\W", "_", name) or "anonymous"
