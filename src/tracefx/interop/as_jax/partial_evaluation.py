"""`jax.interpreters.partial_eval`: programs of `WrappedFun` values whose arguments are partly known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from tracefx.core import ShapedArray, as_value, get_aval
from tracefx.core.handler import Tracer, as_array, call_under, current
from tracefx.interop.as_jax.jaxprs import Jaxpr, JaxprEqn, close, from_program
from tracefx.interop.as_jax.linear_util import WrappedFun
from tracefx.interpreters.partial_eval import PartialEval
from tracefx.transforms.shape_dtype_struct import ShapeDtypeStruct
from tracefx.transforms.staging import make_jaxpr


@final
class PartialVal(tuple[Any, Any]):
    """A value of which only the aval is known, or a known value: a pair of the aval, or None, and the value."""

    __slots__ = ()

    @classmethod
    def unknown(cls, aval: ShapedArray) -> PartialVal:
        """Returns an unknown value."""
        return cls((aval, None))

    @classmethod
    def known(cls, const: Any) -> PartialVal:
        """Returns a known value."""
        return cls((None, const))

    def is_known(self) -> bool:
        """Whether the value is known."""
        return self[0] is None

    def get_known(self) -> Any:
        """Returns the value if it is known, else None."""
        return self[1]

    def get_aval(self) -> ShapedArray:
        """Returns the aval."""
        aval: ShapedArray = get_aval(self[1]) if self[0] is None else self[0]
        return aval


def _struct(aval: ShapedArray) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def trace_to_jaxpr_nounits(
    fun: WrappedFun, pvals: Sequence[PartialVal], instantiate: bool = False
) -> tuple[Jaxpr, list[PartialVal], list[Any]]:
    """Computes what depends on known arguments only, and records the rest.

    Args:
        fun: The function.
        pvals: The arguments.
        instantiate: Whether known results are results of the program, too. False by default.

    Returns:
        The program of the unknown results, the results, and the constants of the program.
    """
    recorder = PartialEval(current())
    inputs = [None if p.is_known() else recorder.input(p.get_aval(), "an unknown argument") for p in pvals]
    args = [p.get_known() if tracer is None else tracer for p, tracer in zip(pvals, inputs, strict=True)]
    results = [as_value(x) for x in call_under(recorder, fun.call_wrapped, *args)]
    is_unknown = [instantiate or (isinstance(x, Tracer) and x.handler is recorder) for x in results]
    tracers = [x for x in inputs if x is not None]
    program, consts = recorder.build(tracers, [x for x, unknown in zip(results, is_unknown, strict=True) if unknown])
    outs = [
        PartialVal.unknown(x.aval) if unknown else PartialVal.known(as_array(x))
        for x, unknown in zip(results, is_unknown, strict=True)
    ]
    return from_program(program), outs, list(map(as_array, consts))


def trace_to_jaxpr_dynamic(
    fun: WrappedFun, in_avals: Sequence[ShapedArray], **options: object
) -> tuple[Jaxpr, list[ShapedArray], list[Any]]:
    """Traces a function; returns its program, the avals of the results, and the constants."""
    closed = close(make_jaxpr(lambda *args: list(fun.call_wrapped(*args)))(*map(_struct, in_avals)))
    return closed.jaxpr, closed.out_avals, closed.consts


def convert_constvars_jaxpr(jaxpr: Jaxpr) -> Jaxpr:
    """Returns the program with its constants as the first inputs."""
    return jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])


def dce_jaxpr(
    jaxpr: Jaxpr, used_outputs: Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[bool]]:
    """Removes outputs and the equations that only they need; returns the program and which inputs it uses."""
    outs = [x for x, used in zip(jaxpr.outvars, used_outputs, strict=True) if used]
    needed = set(outs)
    eqns: list[JaxprEqn] = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or needed.intersection(eqn.outvars):
            eqns.insert(0, eqn)
            needed.update(eqn.invars)
    forced = [instantiate] * len(jaxpr.invars) if isinstance(instantiate, bool) else list(instantiate)
    used_inputs = [v in needed or keep for v, keep in zip(jaxpr.invars, forced, strict=True)]
    invars = [v for v, used in zip(jaxpr.invars, used_inputs, strict=True) if used]
    return jaxpr.replace(invars=invars, outvars=outs, eqns=eqns), used_inputs
