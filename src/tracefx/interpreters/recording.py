"""Recording operations as the equations of a jaxpr: what staging and partial evaluation share."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, final

from attrs import field, frozen
from typing_extensions import override

from tracefx.core.avals import NOWHERE, Axes, ShapedArray
from tracefx.core.callables import HasCallables
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import Handler, Origin, Tracer, bind_expansion, escaped_tracer_error, varies
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.primitive import Expandable, Primitive
from tracefx.core.source_location import at_location, current_provenance
from tracefx.core.values import Value
from tracefx.core.varying import DECLARED
from tracefx.errors import (
    ConcretizationError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
)
from tracefx.ops.collectives.pvary import PVary


@final
class StageTracer(Tracer):
    """A value of the program being recorded: a type, and no numbers.

    A plain class: every operation makes one, in a third of the time that a frozen constructor takes.
    """

    __slots__ = ("aval", "binder", "handler", "origin")
    aval: ShapedArray
    handler: Recording
    origin: Origin

    def __init__(self, handler: Recording, binder: Var, origin: Origin = None) -> None:
        self.handler = handler
        self.binder = binder
        self.aval = binder.aval
        self.origin = origin

    @property
    @override
    def varies(self) -> Axes:
        return self.handler.varying.get(self.binder.index, NOWHERE)

    @override
    def concrete_or_error(self, error: type[ConcretizationError]) -> NDArray:
        need, remedy = _CONVERSION_HINTS.get(error, ("its value", _STATIC_HINT))
        where = self.explain()
        told = f"{need} was asked of {self}, which {self.handler.title} traces without numbers."
        raise error(f"{told} {where}{remedy}", where)

    def explain(self) -> str:
        """Where this tracer comes from, as a sentence with a blank after it; nothing if that is unknown."""
        if isinstance(self.origin, str):
            return f"It is {self.origin}. "
        makers = [eqn.prim.name for eqn in self.handler.eqns if self.binder in eqn.outs]
        return f"It was made by {makers[0]}{at_location(self.origin)}. " if makers else ""

    @override
    def __repr__(self) -> str:
        return f"StageTracer({self.aval})"


_STATIC_HINT: Final = "If the program may depend on its value, mark the argument it depends on in static_argnums."
_CONVERSION_HINTS: Final[Mapping[type[ConcretizationError], tuple[str, str]]] = MappingProxyType(
    {
        TracerBoolConversionError: (
            "a truth value",
            "Use tracefx.numpy.where to choose between arrays, lax.cond between functions. " + _STATIC_HINT,
        ),
        TracerIntegerConversionError: ("a Python integer", _STATIC_HINT),
        TracerArrayConversionError: (
            "a NumPy array",
            "Use the functions of tracefx.numpy, and to index a NumPy array make it tracefx.numpy.asarray of it.",
        ),
    }
)


@frozen(eq=False)
class Recording(Handler):
    """A jaxpr in the making. Its lists are the one place that changes, and they die with the trace."""

    inner: Handler
    eqns: list[Eqn] = field(factory=list, init=False, repr=False)
    consts: dict[int, tuple[Var, Value]] = field(factory=dict, init=False, repr=False)
    checked: Mapping[str, int] = field(init=False, repr=False)
    varying: dict[int, Axes] = field(init=False, repr=False)
    """Along which axes of a mesh variables may differ, for those that may; empty where nobody asks."""
    indices: Iterator[int] = field(factory=itertools.count, init=False, repr=False)
    thread: int = field(factory=threading.get_ident, init=False)

    @checked.default
    def _checked(self) -> Mapping[str, int]:
        return self.inner.checked

    @varying.default
    def _varying(self) -> dict[int, Axes]:
        return {-1: NOWHERE} if self.checked else {}

    @property
    @override
    def below(self) -> Handler:
        return self.inner

    def input(self, aval: ShapedArray, origin: Origin = None, along: Axes = NOWHERE) -> StageTracer:
        """A new input of the program, which may differ along these axes of a mesh."""
        var = Var(next(self.indices), aval)
        if along:
            self.varying[var.index] = along
        return StageTracer(self, var, origin)

    @override
    def owns(self, x: object) -> bool:
        return type(x) is StageTracer and x.handler is self

    def atom(self, x: Value) -> Atom:
        if type(x) is StageTracer and x.handler is self:
            return x.binder
        if type(x) is Literal:
            return x
        held = self.consts.get(id(x))
        return self.hoist(x) if held is None else held[0]

    def hoist(self, x: Value) -> Var:
        """Make a value from outside a constant of the program."""
        if isinstance(x, Tracer) and not any(h.owns(x) for h in self.inner.chain()):
            raise escaped_tracer_error(x, self, "in a traced function")
        var = Var(next(self.indices), x.aval)
        self.consts[id(x)] = (var, x)
        if along := varies(x):
            self.varying[var.index] = along
        return var

    def record(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        """Add an equation."""
        if type(prim).abstract_eval is Primitive.abstract_eval:
            if isinstance(prim, HasCallables):
                prim, args = prim.stage_callables(self, args)
            elif isinstance(prim, Expandable):
                return bind_expansion(self, prim, args)
        inputs: list[Atom] = []
        avals = []
        for a in args:
            atom = a.binder if type(a) is StageTracer and a.handler is self else self.atom(a)
            inputs.append(atom)
            avals.append(atom.aval)
        out_avals = prim.abstract_eval(*avals)
        source = current_provenance(1)
        if len(out_avals) == 1:  # nearly all operations
            var = Var(next(self.indices), out_avals[0])
            self.eqns.append(Eqn(prim, tuple(inputs), (var,), source))
            if self.varying or type(prim) is PVary:
                self.note(prim, inputs, (var,))
            return (StageTracer(self, var, source),)
        outs = tuple([Var(next(self.indices), a) for a in out_avals])
        self.eqns.append(Eqn(prim, tuple(inputs), outs, source))
        if self.varying:
            self.note(prim, inputs, outs)
        return [StageTracer(self, v, source) for v in outs]

    def note(self, prim: Primitive, inputs: Sequence[Atom], outs: Sequence[Var]) -> None:
        """Note along which axes the outputs of an operation may differ."""
        known = self.varying
        given = [known.get(a.index, NOWHERE) if type(a) is Var else NOWHERE for a in inputs]
        for v, along in zip(outs, DECLARED.of(prim, given, len(outs)), strict=True):
            if along:
                known[v.index] = along

    def build(self, inputs: Sequence[StageTracer], outs: Sequence[Value]) -> tuple[Jaxpr, list[Value]]:
        """The finished program, its variables numbered as they came, and the values of its constants."""
        atoms = tuple([self.atom(o) for o in outs])
        variables: list[Var] = []
        values: list[Value] = []
        for v, x in self.consts.values():
            variables.append(v)
            values.append(x)
        return Jaxpr(tuple(variables), tuple([t.binder for t in inputs]), tuple(self.eqns), atoms), values


def renumber_in_order(jaxpr: Jaxpr) -> Jaxpr:
    """The same program, variables numbered in the order they are bound, as if constants had come first."""
    binders = [*jaxpr.constvars, *jaxpr.invars, *[v for eqn in jaxpr.eqns for v in eqn.outs]]
    new = {v.index: Var(i, v.aval) for i, v in enumerate(binders)}

    def renamed(atom: Atom) -> Atom:
        return new[atom.index] if isinstance(atom, Var) else atom

    eqns = [
        Eqn(eqn.prim, tuple([renamed(a) for a in eqn.inputs]), tuple([new[v.index] for v in eqn.outs]), eqn.source)
        for eqn in jaxpr.eqns
    ]
    return Jaxpr(
        tuple([new[v.index] for v in jaxpr.constvars]),
        tuple([new[v.index] for v in jaxpr.invars]),
        tuple(eqns),
        tuple([renamed(a) for a in jaxpr.outs]),
    )
