"""`Recording`, the common base of staging and partial evaluation: records primitives as equations of a jaxpr."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.core import ConcreteArray, Literal, NDArray, ShapedArray, Value
from tracefx.core.handler import Handler, Origin, Tracer, bind_expansion, escaped_tracer_error
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.core.primitive import Expandable, Primitive
from tracefx.interpreters.callables import HasCallables
from tracefx.passes.varying import TYPES
from tracefx.source_location import at_location, current_provenance


@final
class StageTracer(Tracer):
    """A traced value: a variable of the jaxpr being recorded, with shape and dtype but no concrete value.

    A plain class: each equation creates one, in a third of the time that a frozen attrs constructor takes.
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
    def description(self) -> str:
        if isinstance(self.origin, str):
            return self.origin
        producers = [eqn.prim.name for eqn in self.handler.eqns if self.binder in eqn.outs]
        return (
            f"the result of {producers[0]}{at_location(self.origin)}" if producers else f"an input of type {self.aval}"
        )

    @override
    def jit_arguments(self) -> Mapping[str, ShapedArray]:
        return self.handler.jit_arguments(self.binder)

    @override
    def __repr__(self) -> str:
        return f"StageTracer({self.aval})"


_SAMPLE_SIZE: Final = 64
"""About how many elements of a constant are part of its key."""


def _content_key(aval: ShapedArray, host: NDArray) -> Hashable:
    """Returns a key that constants with equal elements share; None if the memory of `host` is not contiguous."""
    if not host.flags.forc:
        return None
    elements = host.ravel("K")
    return aval, host.strides, elements[:: max(1, elements.size // _SAMPLE_SIZE)].tobytes()


def _same_bits(x: NDArray, y: NDArray) -> bool:
    """Whether two contiguous arrays with equal strides have equal bits."""
    word = np.uint64 if x.nbytes % 8 == 0 else np.uint8
    return bool((x.ravel("K").view(word) == y.ravel("K").view(word)).all())


@frozen(eq=False)
class Recording(Handler):
    """A handler that records a jaxpr. Its lists are mutable and are dropped when the trace ends."""

    inner: Handler
    eqns: list[Eqn] = field(factory=list, init=False, repr=False)
    consts: dict[int, tuple[Var, Value]] = field(factory=dict, init=False, repr=False)
    contents: dict[Hashable, tuple[Var, NDArray]] = field(factory=dict, init=False, repr=False)
    """The constants in host memory, by `_content_key`."""
    indices: Iterator[int] = field(factory=itertools.count, init=False, repr=False)
    arguments: dict[Var, str] = field(factory=dict, init=False, repr=False)
    """The inputs that are arguments of a user's function, with their names in messages."""
    thread: int = field(factory=threading.get_ident, init=False)

    def input(self, aval: ShapedArray, origin: Origin = None) -> StageTracer:
        """Adds an input to the jaxpr."""
        var = Var(next(self.indices), aval)
        if isinstance(origin, str):
            self.arguments[var] = origin
        return StageTracer(self, var, origin)

    def jit_arguments(self, var: Var) -> Mapping[str, ShapedArray]:
        """Returns the arguments of functions under `jit` on which a variable depends: names in messages, and types."""
        needed = {var}
        for eqn in reversed(self.eqns):
            if not needed.isdisjoint(eqn.outs):
                needed.update([a for a in eqn.inputs if isinstance(a, Var)])
        found: dict[str, ShapedArray] = {}
        if self.title == "jit":
            found |= {name: v.aval for v, name in self.arguments.items() if v in needed}
        for v, x in self.consts.values():
            if v in needed and isinstance(x, Tracer):
                found.update(x.jit_arguments())
        return found

    @override
    def owns(self, x: object) -> bool:
        return type(x) is StageTracer and x.handler is self

    def atom(self, x: Value) -> Atom:
        """Returns a value as an operand of an equation: a variable or a literal."""
        if type(x) is StageTracer and x.handler is self:
            return x.binder
        if type(x) is Literal:
            return x
        const = self.consts.get(id(x))
        return self.hoist(x) if const is None else const[0]

    def hoist(self, x: Value) -> Var:
        """Makes a value from outside the trace a constant of the jaxpr."""
        if isinstance(x, Tracer) and not any(h.owns(x) for h in self.inner.chain()):
            raise escaped_tracer_error(x, self, "in a traced function")
        # Each use of a NumPy array makes another ConcreteArray of it: equal ones become one constant.
        host = x.host if type(x) is ConcreteArray and x.buffer is None else None
        key = None if host is None else _content_key(x.aval, host)
        if host is not None and key in self.contents:
            var, known = self.contents[key]
            if host is known or _same_bits(host, known):
                return var
        var = Var(next(self.indices), x.aval)
        self.consts[id(x)] = (var, x)
        if host is not None and key is not None:
            self.contents[key] = (var, host)
        return var

    def record(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        """Appends an equation and returns tracers for its outputs."""
        if type(prim).abstract_eval is Primitive.abstract_eval:
            if isinstance(prim, HasCallables):
                prim, args = prim.stage_callables(self, args)
            elif isinstance(prim, Expandable):
                return bind_expansion(self, prim, args)
        inputs: list[Atom] = []
        avals = []
        varying = False
        for a in args:
            atom = a.binder if type(a) is StageTracer and a.handler is self else self.atom(a)
            inputs.append(atom)
            aval = atom.aval
            avals.append(aval)
            if aval.vma or aval.explicit_sharding is not None:
                varying = True
        if varying:
            prim, out_avals = TYPES.apply(prim, avals)
        else:
            out_avals = prim.abstract_eval(*avals)
        source = current_provenance(1)
        if len(out_avals) == 1:  # fast path: nearly all primitives
            var = Var(next(self.indices), out_avals[0])
            self.eqns.append(Eqn(prim, tuple(inputs), (var,), source))
            return (StageTracer(self, var, source),)
        outs = tuple([Var(next(self.indices), a) for a in out_avals])
        self.eqns.append(Eqn(prim, tuple(inputs), outs, source))
        return [StageTracer(self, v, source) for v in outs]

    def build(self, inputs: Sequence[StageTracer], outs: Sequence[Value]) -> tuple[Jaxpr, list[Value]]:
        """Returns the finished jaxpr, its variables numbered in order of creation, and the values of its constants."""
        atoms = tuple([self.atom(o) for o in outs])
        variables: list[Var] = []
        values: list[Value] = []
        for v, x in self.consts.values():
            variables.append(v)
            values.append(x)
        return Jaxpr(tuple(variables), tuple([t.binder for t in inputs]), tuple(self.eqns), atoms), values


def renumber_in_order(jaxpr: Jaxpr) -> Jaxpr:
    """Returns the same jaxpr with variables numbered in the order they are bound, constants first."""
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
