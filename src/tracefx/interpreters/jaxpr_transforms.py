"""Transformed jaxprs: differentiated, batched, partially evaluated and transposed.

Each transformation is a handler over `Stage`, and a pure function of a jaxpr and masks. Results are cached in the
`memo` of the jaxpr that they come from.

A mask is a tuple of booleans, one for each input or output: whether it has a tangent, is unknown, is linear, or is
batched.

Arrays that rules introduce (a matrix of coefficients, for example) are the `consts` of a transformed jaxpr, and its
first inputs. So they are arguments of the compiled program, and never tracers, since the transformation depends on the
jaxpr alone.

Where outputs must match other values (a loop's carry must match its input, a branch the other branches), the mask
`forced` marks the outputs that must take part even if they need not: zero tangents and cotangents are instantiated,
known outputs become unknown ones, and unbatched outputs are broadcast along the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeVar, final

from attrs import frozen

from tracefx.bounded_cache import memoize_on_object
from tracefx.core import Value
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import CURRENT, ROOT, Handler, call_under
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import MappedAxis, Tangent, UndefinedPrimal
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.jvp import JVP
from tracefx.interpreters.masks import Mask, drop_zeros, insert_zeros, nonzero_mask, select_masked, select_unmasked
from tracefx.interpreters.partial_eval import PartialEval
from tracefx.interpreters.stage import Stage, stage
from tracefx.interpreters.transpose import backward_pass
from tracefx.ops.structural import batch_first, instantiate
from tracefx.passes.dce import dce, prune

X = TypeVar("X")
Consts: TypeAlias = tuple[Value, ...]


def _instantiate_forced(tangents: Sequence[Tangent], forced: Mask) -> Sequence[Tangent]:
    """Returns the tangents, with each forced `Zero` replaced by an array of zeros."""
    if not any(forced):
        return tangents
    return [instantiate(t) if must else t for t, must in zip(tangents, forced, strict=True)]


def _run_under(handler: Handler, jaxpr: Jaxpr, args: Sequence[Value]) -> list[Value]:
    return call_under(handler, eval_jaxpr, jaxpr, (), args)


# ------------------------------------------------------------------ forward mode


@final
@frozen(eq=False)
class JVPJaxpr:
    """The JVP of a jaxpr.

    `jaxpr` maps `(consts, primals, nonzero input tangents)` to `(outputs, nonzero output tangents)`. `out_nonzero`
    tells which outputs have a tangent.
    """

    jaxpr: Jaxpr
    consts: Consts
    out_nonzero: Mask


@memoize_on_object
def jvp_jaxpr(jaxpr: Jaxpr, nonzero: Mask, forced: Mask = ()) -> JVPJaxpr:
    """Returns the JVP of a jaxpr, where `nonzero` tells which inputs have a tangent."""
    n = len(jaxpr.invars)
    out_nonzero: Mask = ()

    def both(*args: Value) -> list[Value]:
        nonlocal out_nonzero
        handler = JVP(CURRENT.get())
        tangents = iter(args[n:])
        duals = [handler.wrap(x, next(tangents)) if t else x for x, t in zip(args, nonzero, strict=False)]
        pairs = [handler.unwrap(o) for o in _run_under(handler, jaxpr, duals)]
        tangents_out = _instantiate_forced([t for _, t in pairs], forced)
        out_nonzero = nonzero_mask(tangents_out)
        return [p for p, _ in pairs] + drop_zeros(tangents_out)

    tangent_avals = [a.tangent() for a in select_masked(jaxpr.in_avals, nonzero)]
    result, consts = stage(both, [*jaxpr.in_avals, *tangent_avals])
    return JVPJaxpr(result.closed(), tuple(consts), out_nonzero)


# ------------------------------------------------------------------ batching


@final
@frozen(eq=False)
class BatchedJaxpr:
    """A jaxpr for a whole batch.

    `jaxpr` maps `(consts, inputs)` to outputs. `out_dims` is the batch axis of each output, or `None`.
    """

    jaxpr: Jaxpr
    consts: Consts
    out_dims: tuple[int | None, ...]


@memoize_on_object
def batch_jaxpr(jaxpr: Jaxpr, axis: MappedAxis, dims: tuple[int | None, ...], forced: Mask = ()) -> BatchedJaxpr:
    """Returns the jaxpr for a whole batch, where `dims` is the batch axis of each input, or `None`.

    Forced outputs have the batch axis first.
    """
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

    avals = [a if d is None else axis.add_to(a, d) for a, d in zip(jaxpr.in_avals, dims, strict=True)]
    result, consts = stage(batched, avals)
    return BatchedJaxpr(result.closed(), tuple(consts), out_dims)


# ------------------------------------------------------------------ partial evaluation


@final
@frozen(eq=False)
class UnzippedJaxpr:
    """A jaxpr split by partial evaluation into a known and an unknown half.

    `known` maps `(consts, known inputs)` to `(known outputs, new residuals)`; `unknown` maps `(residuals, unknown
    inputs)` to unknown outputs. `out_unknown` tells which outputs of the original are unknown. `known` does not return
    a residual that is one of its inputs: `forwarded` gives, for each residual, its index among the known inputs, or
    `None` for a new residual.
    """

    known: Jaxpr
    unknown: Jaxpr
    consts: Consts
    out_unknown: Mask
    forwarded: tuple[int | None, ...]

    def residuals(self, new: Sequence[X], known_inputs: Sequence[X]) -> list[X]:
        """Returns all residuals, given the new ones and the known inputs."""
        remaining = iter(new)
        return [next(remaining) if index is None else known_inputs[index] for index in self.forwarded]


@memoize_on_object
def unzip_jaxpr(jaxpr: Jaxpr, unknown: Mask, forced: Mask = ()) -> UnzippedJaxpr:
    """Splits a jaxpr into a known and an unknown half, where `unknown` tells which inputs are unknown.

    The transformation is `PartialEval` over `Stage`.
    """
    outer = Stage(ROOT)
    partial = PartialEval(outer)
    inputs = [(partial if u else outer).input(v.aval) for v, u in zip(jaxpr.invars, unknown, strict=True)]
    outs = _run_under(partial, jaxpr, inputs)
    out_unknown = tuple([partial.owns(o) for o in outs])
    if any(forced):
        out_unknown = tuple([u or must for u, must in zip(out_unknown, forced, strict=True)])
    unknown_half, residuals = partial.build(select_masked(inputs, unknown), select_masked(outs, out_unknown))
    unknown_half, used = prune(unknown_half.closed(), (True,) * sum(out_unknown), keep=len(residuals))
    residuals = [r for r, u in zip(residuals, used, strict=False) if u]
    known_inputs = select_unmasked(inputs, unknown)
    positions = {id(t): i for i, t in enumerate(known_inputs)}
    forwarded = tuple([positions.get(id(r)) for r in residuals])
    new = [r for r, position in zip(residuals, forwarded, strict=True) if position is None]
    known, consts = outer.build(known_inputs, select_unmasked(outs, out_unknown) + new)
    return UnzippedJaxpr(dce(known.closed()), unknown_half, tuple(consts), out_unknown, forwarded)


# ------------------------------------------------------------------ transposition


@final
@frozen(eq=False)
class TransposedJaxpr:
    """The transpose of a jaxpr.

    `jaxpr` maps `(consts, non-linear inputs, nonzero output cotangents)` to the nonzero cotangents of the linear
    inputs. `in_nonzero` tells, for each linear input, whether it has a nonzero cotangent.
    """

    jaxpr: Jaxpr
    consts: Consts
    in_nonzero: Mask


@memoize_on_object
def transpose_jaxpr(jaxpr: Jaxpr, linear: Mask, out_nonzero: Mask, forced: Mask = ()) -> TransposedJaxpr:
    """Returns the transpose of a jaxpr.

    `linear` tells which inputs the outputs are linear in, `out_nonzero` which outputs have a nonzero cotangent.
    `forced` has one entry for each linear input.
    """
    in_nonzero: Mask = ()
    others = select_unmasked(jaxpr.in_avals, linear)

    def transposed(*args: Value) -> list[Value]:
        nonlocal in_nonzero
        values = iter(args[: len(others)])
        operands = [UndefinedPrimal(a) if lin else next(values) for a, lin in zip(jaxpr.in_avals, linear, strict=True)]
        cts = insert_zeros(args[len(others) :], out_nonzero, jaxpr.out_avals)
        results = _instantiate_forced([ct for ct in backward_pass(jaxpr, (), operands, cts) if ct is not None], forced)
        in_nonzero = nonzero_mask(results)
        return drop_zeros(results)

    result, consts = stage(transposed, [*others, *select_masked(jaxpr.out_avals, out_nonzero)])
    return TransposedJaxpr(result.closed(), tuple(consts), in_nonzero)
