"""Differentiation of functions of flat values: `jvp`, linearization, and transposition of the linear part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeVar, final

from attrs import frozen

from tracefx.core import ShapedArray, Value, dtypes
from tracefx.core.avals import NOT_VARYING, MeshAxes, join_vma
from tracefx.core.effects import NamedAxisEffect
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import CURRENT, call_under, checked_axes
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.late_binding import LateBound
from tracefx.core.primitive import Tangent, UndefinedPrimal, Zero
from tracefx.interpreters.jvp import JVP
from tracefx.interpreters.masks import insert_zeros, select_masked
from tracefx.interpreters.partial_eval import PartialEval
from tracefx.interpreters.recording import StageTracer
from tracefx.interpreters.transpose import backward_pass
from tracefx.ops.structural import instantiate, match_aval

Aux = TypeVar("Aux")
FlatFunctionWithAux: TypeAlias = Callable[[Sequence[Value]], tuple[list[Value], Aux]]
"""A function from values to output values and an auxiliary output that is not differentiated."""


def jvp_values(
    f: FlatFunctionWithAux[Aux], primals: Sequence[Value], tangents: Sequence[Tangent]
) -> tuple[list[Value], list[Tangent], Aux, JVP]:
    """Runs `f` under a `JVP` handler.

    Returns:
        The outputs, their tangents, the auxiliary output, and the handler, whose tracers may be in the auxiliary
        output.
    """
    handler = JVP(CURRENT.get())
    duals = [handler.wrap(p, t) for p, t in zip(primals, tangents, strict=True)]
    outs, aux = call_under(handler, f, duals)
    pairs = [handler.unwrap(o) for o in outs]
    return [p for p, _ in pairs], [t for _, t in pairs], aux, handler


_CotangentMap: TypeAlias = Callable[[Value, MeshAxes, Sequence[tuple[str, int]]], Value]


@final
@frozen
class CotangentCollectives:
    """Collectives that convert between reduced and unreduced cotangents.

    A cotangent is reduced if every device has its true value, and unreduced if the true value is the sum of those of
    the devices. Both take the value, the mesh axes over which its primal varies, and the axes that matter, with their
    sizes.
    """

    split: _CotangentMap
    reduce: _CotangentMap


COTANGENT_COLLECTIVES: Final[LateBound[CotangentCollectives]] = LateBound("the collectives of cotangents")
"""Bound late, so that programs without a mesh do not load collectives."""


@final
@frozen
class UnreducedCotangents:
    """Converts cotangents at the boundary of a linear program that runs on several devices.

    The devices transpose the program together, on unreduced cotangents (see `CotangentCollectives`); those that users
    pass and get are reduced.

    Args:
        axes: The checked mesh axes, with their sizes, over which any value of the program varies.
        checked: The names of all checked mesh axes where the program was recorded.
    """

    axes: tuple[tuple[str, int], ...] = ()
    checked: MeshAxes = NOT_VARYING

    @classmethod
    def of(cls, jaxpr: Jaxpr) -> UnreducedCotangents:
        """Returns the conversion for a linear program that was recorded under the current handler."""
        checked = checked_axes(CURRENT.get().axes)
        if not checked:
            return ALL_REDUCED
        named = [str(e.name) for e in jaxpr.effects if isinstance(e, NamedAxisEffect)]
        variables = (*jaxpr.constvars, *jaxpr.invars, *[v for eqn in jaxpr.eqns for v in eqn.outs])
        used = join_vma([v.aval for v in variables]).union(named)
        return cls(tuple([axis for axis in checked if axis[0] in used]), frozenset([name for name, _ in checked]))

    def require(self, what: str, cts: Sequence[Tangent], avals: Sequence[ShapedArray]) -> None:
        """Raises TypeError for a cotangent that varies over more axes than its output, whose type is in `avals`."""
        for i, (ct, aval) in enumerate(zip(cts, avals, strict=True)):
            if extra_axes := (ct.aval.vma - aval.vma) & self.checked:
                names = ", ".join(map(repr, sorted(extra_axes)))
                raise TypeError(
                    f"{what}: the cotangent of output {i} varies along {names}, but the output is replicated there: "
                    f"got {ct.aval}, expected {aval.tangent()}. Sum it by psum along {names}, or make the output "
                    "varying by lax.pcast"
                )

    def split(self, cts: Sequence[Tangent], avals: Sequence[ShapedArray]) -> Sequence[Tangent]:
        """Converts the cotangents of outputs of types `avals` from reduced to unreduced."""
        if not self.axes:
            return cts
        return [
            ct if isinstance(ct, Zero) else COTANGENT_COLLECTIVES.value.split(ct, aval.vma, self.axes)
            for ct, aval in zip(cts, avals, strict=True)
        ]

    def reduce(self, cts: Sequence[Tangent | None], avals: Sequence[ShapedArray]) -> Sequence[Tangent | None]:
        """Converts the cotangents of inputs of types `avals` from unreduced to reduced."""
        if not self.axes:
            return cts
        return [
            ct if ct is None or isinstance(ct, Zero) else COTANGENT_COLLECTIVES.value.reduce(ct, aval.vma, self.axes)
            for ct, aval in zip(cts, avals, strict=True)
        ]


ALL_REDUCED: Final = UnreducedCotangents()


@frozen(eq=False)
class LinearMap:
    """The derivative of a function at a point: a linear map from tangents of inputs to tangents of outputs.

    It is a jaxpr with its constants. The jaxpr takes the tangents of the inputs marked in `active_inputs`, those that
    can have one, and returns the tangents of the outputs marked in `active_outputs`, those that may be nonzero.
    `in_avals` and `out_avals` are the types of the primal inputs and outputs, not of their tangents.
    """

    jaxpr: Jaxpr
    consts: tuple[Value, ...]
    active_inputs: tuple[bool, ...]
    active_outputs: tuple[bool, ...]
    in_avals: tuple[ShapedArray, ...]
    out_avals: tuple[ShapedArray, ...]
    unreduced: UnreducedCotangents

    def push(self, tangents: Sequence[Tangent]) -> list[Tangent]:
        """Returns the tangents of the outputs, given those of the inputs."""
        given = list(map(instantiate, select_masked(tangents, self.active_inputs)))
        return insert_zeros(eval_jaxpr(self.jaxpr, self.consts, given), self.active_outputs, self.out_avals)

    def pull(self, cts: Sequence[Tangent]) -> list[Tangent]:
        """Returns the cotangents of the inputs, given those of the outputs."""
        operands = [UndefinedPrimal(v.aval) for v in self.jaxpr.invars]
        output_cts = self.unreduced.split(cts, self.out_avals)
        input_cts = backward_pass(self.jaxpr, self.consts, operands, select_masked(output_cts, self.active_outputs))
        results = iter(self.unreduced.reduce(input_cts, self.jaxpr.in_avals))
        pulled: list[Tangent] = []
        for aval, m in zip(self.in_avals, self.active_inputs, strict=True):
            ct = next(results) if m else None
            pulled.append(Zero(aval.tangent()) if ct is None else match_aval(ct, aval.tangent()))
        return pulled


@final
@frozen(eq=False)
class Linearization(LinearMap):
    """A linear map, with the primal inputs at which it was taken and the outputs there."""

    primals: tuple[Value, ...]
    outs: tuple[Value, ...]


def linearize_values(
    f: FlatFunctionWithAux[Aux], primals: Sequence[Value], moving: Sequence[bool] | None = None
) -> tuple[Linearization, Aux, JVP]:
    """Runs `f` once and records the linear part of its derivative: `JVP` over `PartialEval`.

    Args:
        f: The function, which returns outputs and an auxiliary output.
        primals: The point at which to linearize.
        moving: Which inputs to differentiate with respect to; by default all of a floating-point or complex dtype.

    Returns:
        The linearization, the auxiliary output, and the handler, whose tracers may be in the auxiliary output.
    """
    recorder = PartialEval(CURRENT.get())
    handler = JVP(recorder)
    inputs: list[StageTracer] = []
    duals: list[Value] = []
    mask: list[bool] = []
    for i, p in enumerate(primals):
        is_active = dtypes.is_inexact(p.aval.dtype) and (moving is None or moving[i])
        mask.append(is_active)
        if is_active:
            t = recorder.input(p.aval.tangent(), "a tangent")
            inputs.append(t)
            p = handler.wrap(p, t)
        duals.append(p)
    outs, aux = call_under(handler, f, duals)
    primals_out: list[Value] = []
    tangents_out: list[Value] = []
    has_tangent: list[bool] = []
    for out in outs:
        p, tangent = handler.unwrap(out)
        primals_out.append(p)
        has_tangent.append(not isinstance(tangent, Zero))
        if not isinstance(tangent, Zero):
            tangents_out.append(tangent)
    jaxpr, consts = recorder.build(inputs, tangents_out)
    linear = Linearization(
        jaxpr,
        tuple(consts),
        tuple(mask),
        tuple(has_tangent),
        tuple([p.aval for p in primals]),
        tuple([p.aval for p in primals_out]),
        UnreducedCotangents.of(jaxpr),
        tuple(primals),
        tuple(primals_out),
    )
    return linear, aux, handler
