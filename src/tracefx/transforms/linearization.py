"""Differentiation of functions of values: `jvp`, linearization, and running the linear part backwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeVar, final

from attrs import frozen

from tracefx.core import dtypes
from tracefx.core.avals import NOWHERE, Axes, ShapedArray
from tracefx.core.effects import NamedAxisEffect
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import CURRENT, Handler, varies
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.late_binding import LateBound
from tracefx.core.primitive import Tangent, UndefinedPrimal, Zero
from tracefx.core.values import Value
from tracefx.interpreters.jvp import JVP
from tracefx.interpreters.partial_eval import PartialEval
from tracefx.interpreters.recording import Recording, StageTracer
from tracefx.interpreters.transpose import backward_pass
from tracefx.ops.structural import instantiate, match_aval

Aux = TypeVar("Aux")
FlatFunctionWithAux: TypeAlias = Callable[[Sequence[Value]], tuple[list[Value], Aux]]
"""A function of values to values, and something beside them that is not differentiated."""


def run_with_handler(handler: Handler, f: FlatFunctionWithAux[Aux], args: Sequence[Value]) -> tuple[list[Value], Aux]:
    token = CURRENT.set(handler)
    try:
        return f(args)
    finally:
        CURRENT.reset(token)


def jvp_values(
    f: FlatFunctionWithAux[Aux], primals: Sequence[Value], tangents: Sequence[Tangent]
) -> tuple[list[Value], list[Tangent], Aux, JVP]:
    """Outputs, their tangents, and the handler whose tracers may still be in what stands beside them."""
    handler = JVP(CURRENT.get())
    duals = [handler.wrap(p, t) for p, t in zip(primals, tangents, strict=True)]
    outs, aux = run_with_handler(handler, f, duals)
    pairs = [handler.unwrap(o) for o in outs]
    return [p for p, _ in pairs], [t for _, t in pairs], aux, handler


_CotangentMap: TypeAlias = Callable[[Value, Axes, Sequence[tuple[str, int]]], Value]


@final
@frozen
class CotangentCollectives:
    """What makes shares of the true cotangent of a value that varies along some of these axes, and what sums them."""

    split: _CotangentMap
    reduce: _CotangentMap


COTANGENT_COLLECTIVES: Final[LateBound[CotangentCollectives]] = LateBound("what is done between devices")
"""Collectives, which programs that run on no mesh need not load."""


@final
@frozen
class UnreducedCotangents:
    """Between devices, what is linear is run backwards by all of them together, on shares of cotangents: here true ones
    become shares, and shares true ones.

    `axes` are those checked axes of a mesh, with their sizes, along which something in between differs; the others
    say of inputs (those of the program) and of outputs along which they do.
    """

    axes: tuple[tuple[str, int], ...] = ()
    ins: tuple[Axes, ...] = ()
    outs: tuple[Axes, ...] = ()

    @classmethod
    def of(cls, recorded: Recording, named: Axes, ins: Sequence[Value], outs: Sequence[Value]) -> UnreducedCotangents:
        """Of a linear program as it was recorded, with operations along these named axes, at inputs and outputs."""
        checked = recorded.checked
        if not checked:
            return ALL_REDUCED
        touched = named.union(*recorded.varying.values())
        axes = tuple([(name, size) for name, size in checked.items() if name in touched])
        return cls(axes, tuple(map(varies, ins)), tuple(map(varies, outs)))

    def require(self, what: str, cts: Sequence[Tangent]) -> None:
        """TypeError for a cotangent that differs along axes along which its output is the same."""
        for i, (ct, known) in enumerate(zip(cts, self.outs, strict=bool(self.outs))):
            if isinstance(ct, Zero):
                continue
            if more := varies(ct) - known:
                names = ", ".join(map(repr, sorted(more)))
                raise TypeError(
                    f"{what}: the cotangent of output {i} varies along {names}, but the output is the same there on "
                    f"all devices: {ct.aval.varying(varies(ct))} was given, {ct.aval.varying(known)} is needed. Sum it "
                    f"by psum along {names}, or make the output one that varies, by lax.pcast"
                )

    def split(self, cts: Sequence[Tangent]) -> Sequence[Tangent]:
        """Of the cotangents of outputs."""
        if not self.axes:
            return cts
        return [
            ct if isinstance(ct, Zero) else COTANGENT_COLLECTIVES.value.split(ct, known, self.axes)
            for ct, known in zip(cts, self.outs, strict=True)
        ]

    def reduce(self, cts: Sequence[Tangent | None]) -> Sequence[Tangent | None]:
        """The cotangents of inputs."""
        if not self.axes:
            return cts
        return [
            ct if ct is None or isinstance(ct, Zero) else COTANGENT_COLLECTIVES.value.reduce(ct, known, self.axes)
            for ct, known in zip(cts, self.ins, strict=True)
        ]


ALL_REDUCED: Final = UnreducedCotangents()


@frozen(eq=False)
class LinearMap:
    """The linear map from tangents of inputs to tangents of outputs at a point, as a jaxpr and its constants.

    Only inputs that can have a tangent are inputs of the jaxpr (`moving`), and only outputs whose tangent may be
    nonzero are outputs of it (`moved`). The types are those of inputs and outputs, not of their tangents.
    """

    jaxpr: Jaxpr
    consts: tuple[Value, ...]
    active_inputs: tuple[bool, ...]
    active_outputs: tuple[bool, ...]
    in_avals: tuple[ShapedArray, ...]
    out_avals: tuple[ShapedArray, ...]
    unreduced: UnreducedCotangents

    def push(self, tangents: Sequence[Tangent]) -> list[Tangent]:
        """Tangents of the outputs from those of the inputs."""
        given = [instantiate(t) for t, m in zip(tangents, self.active_inputs, strict=True) if m]
        results = iter(eval_jaxpr(self.jaxpr, self.consts, given))
        return [
            next(results) if m else Zero(o.tangent()) for o, m in zip(self.out_avals, self.active_outputs, strict=True)
        ]

    def pull(self, cts: Sequence[Tangent]) -> list[Tangent]:
        """Cotangents of the inputs from those of the outputs."""
        operands = [UndefinedPrimal(v.aval) for v in self.jaxpr.invars]
        shares = self.unreduced.split(cts)
        found = backward_pass(
            self.jaxpr, self.consts, operands, [ct for ct, m in zip(shares, self.active_outputs, strict=True) if m]
        )
        results = iter(self.unreduced.reduce(found))
        pulled: list[Tangent] = []
        for aval, m in zip(self.in_avals, self.active_inputs, strict=True):
            ct = next(results) if m else None
            pulled.append(Zero(aval.tangent()) if ct is None else match_aval(ct, aval.tangent()))
        return pulled


@final
@frozen(eq=False)
class Linearization(LinearMap):
    """A linear map, with the point it belongs to and the outputs there."""

    primals: tuple[Value, ...]
    outs: tuple[Value, ...]


def linearize_values(
    f: FlatFunctionWithAux[Aux], primals: Sequence[Value], moving: Sequence[bool] | None = None
) -> tuple[Linearization, Aux, JVP]:
    """Run `f` once, recording the linear part of its derivative: `JVP` over `PartialEval`.

    `moving` says which inputs to differentiate with respect to; by default all that can be.
    """
    rest = PartialEval(CURRENT.get())
    handler = JVP(rest)
    inputs: list[StageTracer] = []
    duals: list[Value] = []
    mask: list[bool] = []
    for i, p in enumerate(primals):
        moves = dtypes.is_inexact(p.aval.dtype) and (moving is None or moving[i])
        mask.append(moves)
        if moves:
            t = rest.input(p.aval.tangent(), "a tangent", varies(p))
            inputs.append(t)
            p = handler.wrap(p, t)
        duals.append(p)
    outs, aux = run_with_handler(handler, f, duals)
    primals_out: list[Value] = []
    tangents_out: list[Value] = []
    moved: list[bool] = []
    for out in outs:
        p, tangent = handler.unwrap(out)
        primals_out.append(p)
        moved.append(not isinstance(tangent, Zero))
        if not isinstance(tangent, Zero):
            tangents_out.append(tangent)
    jaxpr, consts = rest.build(inputs, tangents_out)
    named = (
        frozenset([str(e.name) for e in jaxpr.effects if isinstance(e, NamedAxisEffect)]) if rest.checked else NOWHERE
    )
    linear = Linearization(
        jaxpr,
        tuple(consts),
        tuple(mask),
        tuple(moved),
        tuple([p.aval for p in primals]),
        tuple([p.aval for p in primals_out]),
        UnreducedCotangents.of(rest, named, [p for p, m in zip(primals, mask, strict=True) if m], primals_out),
        tuple(primals),
        tuple(primals_out),
    )
    return linear, aux, handler
