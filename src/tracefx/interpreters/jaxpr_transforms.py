"""Transformed jaxprs: each is a handler over `Stage`, and a pure function of (jaxpr, masks), kept with the jaxpr.

A mask says of each input or output whether it takes part: has a tangent, is unknown, is linear, is batched.
The arrays that rules bring along (a matrix of coefficients, say) are `consts`, the first inputs of a derived program:
they are arguments of what is compiled, and never tracers, since deriving depends on the jaxpr alone.
Where outputs must fit others (a loop's carry fits its input, a branch fits its neighbours), `forced` says which have to
take part even if they need not: their tangents and cotangents are made zeros, known ones are handed through, and those
alike for the whole batch are repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, final

from attrs import frozen

from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import CURRENT, ROOT, Handler
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import MappedAxis, Tangent, UndefinedPrimal, Zero
from tracefx.core.values import Value
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.jvp import JVP
from tracefx.interpreters.partial_eval import PartialEval
from tracefx.interpreters.stage import Stage, stage
from tracefx.interpreters.transpose import backward_pass
from tracefx.ops.structural import batch_first, instantiate
from tracefx.passes.dce import dce, prune

Mask: TypeAlias = tuple[bool, ...]
Consts: TypeAlias = tuple[Value, ...]


def _instantiate_forced(tangents: Sequence[Tangent], forced: Mask) -> Sequence[Tangent]:
    """The tangents, those that are forced no `Zero`."""
    if not any(forced):
        return tangents
    return [instantiate(t) if must else t for t, must in zip(tangents, forced, strict=True)]


def _run_under(handler: Handler, jaxpr: Jaxpr, args: Sequence[Value]) -> list[Value]:
    token = CURRENT.set(handler)
    try:
        return eval_jaxpr(jaxpr, (), args)
    finally:
        CURRENT.reset(token)


# ------------------------------------------------------------------ forward mode


@final
@frozen(eq=False)
class JVPJaxpr:
    """`(consts, primals, tangents of the inputs that have one) -> (outputs, tangents of those that have one)`."""

    jaxpr: Jaxpr
    consts: Consts
    out_nonzero: Mask


def jvp_jaxpr(jaxpr: Jaxpr, nonzero: Mask, forced: Mask = ()) -> JVPJaxpr:
    """The derivative of a program, `nonzero` saying which inputs have a tangent."""
    return jaxpr.memo.get(("jvp", nonzero, forced), lambda: _jvp_jaxpr(jaxpr, nonzero, forced))


def _jvp_jaxpr(jaxpr: Jaxpr, nonzero: Mask, forced: Mask) -> JVPJaxpr:
    n = len(jaxpr.invars)
    out_nonzero: Mask = ()

    def both(*args: Value) -> list[Value]:
        nonlocal out_nonzero
        handler = JVP(CURRENT.get())
        tangents = iter(args[n:])
        duals = [handler.wrap(x, next(tangents)) if t else x for x, t in zip(args, nonzero, strict=False)]
        pairs = [handler.unwrap(o) for o in _run_under(handler, jaxpr, duals)]
        tangents_out = _instantiate_forced([t for _, t in pairs], forced)
        out_nonzero = tuple([not isinstance(t, Zero) for t in tangents_out])
        return [p for p, _ in pairs] + [t for t in tangents_out if not isinstance(t, Zero)]

    tangent_avals = [a.tangent() for a, t in zip(jaxpr.in_avals, nonzero, strict=True) if t]
    result, consts = stage(both, [*jaxpr.in_avals, *tangent_avals])
    return JVPJaxpr(result.closed(), tuple(consts), out_nonzero)


# ------------------------------------------------------------------ batching


@final
@frozen(eq=False)
class BatchedJaxpr:
    """`(consts, inputs) -> outputs` for the whole batch."""

    jaxpr: Jaxpr
    consts: Consts
    out_dims: tuple[int | None, ...]


def batch_jaxpr(jaxpr: Jaxpr, axis: MappedAxis, dims: tuple[int | None, ...], forced: Mask = ()) -> BatchedJaxpr:
    """The program for a whole batch, `dims` saying where each input has the batch axis.

    Outputs that are forced have it first.
    """
    return jaxpr.memo.get(("batch", axis, dims, forced), lambda: _batch_jaxpr(jaxpr, axis, dims, forced))


def _batch_jaxpr(jaxpr: Jaxpr, axis: MappedAxis, dims: tuple[int | None, ...], forced: Mask) -> BatchedJaxpr:
    out_dims: tuple[int | None, ...] = ()

    def batched(*args: Value) -> list[Value]:
        nonlocal out_dims
        handler = Batch(CURRENT.get(), axis)
        inputs = [handler.wrap(x, d) for x, d in zip(args, dims, strict=True)]
        pairs = [handler.unwrap(o) for o in _run_under(handler, jaxpr, inputs)]
        if any(forced):
            pairs = [
                (batch_first(x, d, axis), 0) if must else (x, d) for (x, d), must in zip(pairs, forced, strict=True)
            ]
        out_dims = tuple([d for _, d in pairs])
        return [x for x, _ in pairs]

    avals = [a if d is None else a.with_axis(axis.size, d) for a, d in zip(jaxpr.in_avals, dims, strict=True)]
    result, consts = stage(batched, avals)
    return BatchedJaxpr(result.closed(), tuple(consts), out_dims)


# ------------------------------------------------------------------ partial evaluation


@final
@frozen(eq=False)
class UnzippedJaxpr:
    """A program in two halves: what can be computed from the known inputs, and the rest.

    `known` maps `consts` and the known inputs to the known outputs followed by new residuals; `unknown` maps the
    residuals, then the unknown inputs, to the unknown outputs. A residual that is a known input is not computed by
    `known`: `forwarded` gives, for each residual, the place of that input among the known inputs, or `None`.
    """

    known: Jaxpr
    unknown: Jaxpr
    consts: Consts
    out_unknown: Mask
    forwarded: tuple[int | None, ...]


def unzip_jaxpr(jaxpr: Jaxpr, unknown: Mask, forced: Mask = ()) -> UnzippedJaxpr:
    """Partial evaluation of a program: `PartialEval` over `Stage`."""
    return jaxpr.memo.get(("unzip", unknown, forced), lambda: _unzip_jaxpr(jaxpr, unknown, forced))


def _unzip_jaxpr(jaxpr: Jaxpr, unknown: Mask, forced: Mask) -> UnzippedJaxpr:
    outer = Stage(ROOT)
    rest = PartialEval(outer)
    inputs = [(rest if u else outer).input(v.aval) for v, u in zip(jaxpr.invars, unknown, strict=True)]
    outs = _run_under(rest, jaxpr, inputs)
    out_unknown = tuple([rest.owns(o) for o in outs])
    if any(forced):
        out_unknown = tuple([u or must for u, must in zip(out_unknown, forced, strict=True)])
    late, residuals = rest.build(
        [t for t, u in zip(inputs, unknown, strict=True) if u], [o for o, u in zip(outs, out_unknown, strict=True) if u]
    )
    late, used = prune(late.closed(), (True,) * sum(out_unknown), keep=len(residuals))
    residuals = [r for r, u in zip(residuals, used, strict=False) if u]
    known_inputs = [t for t, u in zip(inputs, unknown, strict=True) if not u]
    places = {id(t): i for i, t in enumerate(known_inputs)}
    forwarded = tuple([places.get(id(r)) for r in residuals])
    fresh = [r for r, place in zip(residuals, forwarded, strict=True) if place is None]
    known, consts = outer.build(known_inputs, [o for o, u in zip(outs, out_unknown, strict=True) if not u] + fresh)
    return UnzippedJaxpr(dce(known.closed()), late, tuple(consts), out_unknown, forwarded)


# ------------------------------------------------------------------ transposition


@final
@frozen(eq=False)
class TransposedJaxpr:
    """`(consts, the other inputs, cotangents of the outputs that have one) -> cotangents of the linear inputs`.

    Only the cotangents that are not known to be zero are outputs; `in_nonzero` says which, among the linear inputs.
    """

    jaxpr: Jaxpr
    consts: Consts
    in_nonzero: Mask


def transpose_jaxpr(jaxpr: Jaxpr, linear: Mask, out_nonzero: Mask, forced: Mask = ()) -> TransposedJaxpr:
    """The program backwards, `linear` saying which inputs it is linear in; `forced` is of these inputs alone."""
    key = ("transpose", linear, out_nonzero, forced)
    return jaxpr.memo.get(key, lambda: _transpose_jaxpr(jaxpr, linear, out_nonzero, forced))


def _transpose_jaxpr(jaxpr: Jaxpr, linear: Mask, out_nonzero: Mask, forced: Mask) -> TransposedJaxpr:
    in_nonzero: Mask = ()
    others = [a for a, lin in zip(jaxpr.in_avals, linear, strict=True) if not lin]

    def transposed(*args: Value) -> list[Value]:
        nonlocal in_nonzero
        values, given = iter(args[: len(others)]), iter(args[len(others) :])
        operands = [UndefinedPrimal(a) if lin else next(values) for a, lin in zip(jaxpr.in_avals, linear, strict=True)]
        cts: list[Tangent] = [
            next(given) if nz else Zero(a.tangent()) for a, nz in zip(jaxpr.out_avals, out_nonzero, strict=True)
        ]
        results = _instantiate_forced([ct for ct in backward_pass(jaxpr, (), operands, cts) if ct is not None], forced)
        in_nonzero = tuple([not isinstance(ct, Zero) for ct in results])
        return [ct for ct in results if not isinstance(ct, Zero)]

    ct_avals = [a for a, nz in zip(jaxpr.out_avals, out_nonzero, strict=True) if nz]
    result, consts = stage(transposed, [*others, *ct_avals])
    return TransposedJaxpr(result.closed(), tuple(consts), in_nonzero)
