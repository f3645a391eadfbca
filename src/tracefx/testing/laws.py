"""The laws of transformations: properties that hold for every function, checked at given arguments.

A law is called with a function and its arguments, or with a primitive and its operands:

>>> import tracefx.numpy as fnp
>>> jvp_is_the_derivative(lambda x: fnp.sin(x) * x, 0.5)
>>> vmap_is_a_loop(lambda x, y: x @ y, fnp.ones((2, 3)), fnp.ones(3))

A violated law raises `LawError`, an `AssertionError` with the law, the arguments and both results. A law that says
nothing about the arguments, e.g. one of derivatives about integers, raises `Inapplicable`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import NDArray, ShapedArray, Value, as_value, dtypes, show_avals, to_numpy
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import CURRENT, Handler, Tracer, call_under, current
from tracefx.core.primitive import MappedAxis, Primitive, Tangent, Zero
from tracefx.errors import MissingRuleError
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.jvp import JVP
from tracefx.interpreters.stage import Stage
from tracefx.passes.check import check_jaxpr
from tracefx.passes.cse import cse
from tracefx.passes.dce import dce
from tracefx.passes.rebuilding import renumber
from tracefx.programs import parse_jaxpr
from tracefx.testing.errors import Inapplicable, LawError, ViolationManner
from tracefx.testing.law import Law, law, require_close
from tracefx.testing.reproducer import custom_primitives
from tracefx.testing.subjects import (
    BatchAxes,
    SampleBatch,
    Subject,
    ValueFunction,
    array_of_type,
    as_arrays,
    evaluate_batch,
    evaluate_jvp,
    format_value,
    instantiate_zeros,
    linearize_function,
    narrowest_bits,
    promote_to_computed_precision,
    random_like,
    staged,
    subsets,
)
from tracefx.testing.tolerances import (
    DERIVATIVE,
    EXACT,
    FINITE_DIFFERENCES,
    FINITE_DIFFERENCES_32_BITS,
    Ulps,
    max_finite_abs,
    relative_ulps,
)
from tracefx.transforms.jit import jit
from tracefx.transforms.linearization import Linearization


def require_derivatives(subject: Subject) -> None:
    """Raises Inapplicable unless an argument has an inexact dtype."""
    if not subject.differentiable_args:
        types = show_avals([a.aval for a in subject.args])
        raise Inapplicable(
            f"no argument is differentiable: {types}; derivatives are those of floats, e.g. of 3.0, not 3"
        )


def random_tangents(subject: Subject, chosen: Sequence[int], what: str) -> list[Tangent]:
    """Returns random tangents for the chosen arguments, and zeros for the others."""
    rng = subject.rng(what)
    return [random_like(a.aval, rng) if i in chosen else Zero(a.aval.tangent()) for i, a in enumerate(subject.args)]


# ------------------------------------------------------------------ evaluated, staged, compiled


@law("eager evaluation gives the shapes and dtypes that abstract_eval predicts")
def abstract_eval_matches_evaluation(self: Law, subject: Subject) -> None:
    """Checks that `abstract_eval` predicts the avals of eager results."""
    jaxpr, _ = staged(subject.run, [a.aval for a in subject.args])
    try:
        outs = subject.outs()
    except TypeError as error:  # abstract_eval has accepted the operands
        raise self.violation(subject, f"  {error}") from error
    if [o.aval for o in outs] != list(jaxpr.out_avals):
        raise self.violation(subject, f"  evaluated: {[o.aval for o in outs]}\n  staged:    {list(jaxpr.out_avals)}")


@law("the staged program gives the same results as eager evaluation")
def staging_changes_nothing(self: Law, subject: Subject) -> None:
    """Checks that evaluating the staged jaxpr gives the eager results exactly."""
    jaxpr, consts = staged(subject.run, [a.aval for a in subject.args])
    check_jaxpr(jaxpr)
    staged_outs = eval_jaxpr(jaxpr, consts, subject.args)
    require_close(self, subject, staged_outs, subject.outs(), ("staged", "evaluated"), EXACT)


@law("the compiled function gives the same results as eager evaluation")
def jit_changes_nothing(self: Law, subject: Subject) -> None:
    """Checks that the compiled function gives the eager results, at the first call and on the fast path."""
    compiled, args, outs = _jitted(subject.run), as_arrays(subject.args), subject.outs()
    for name in ("compiled", "called again"):  # the second call takes the fast path
        require_close(self, subject, compiled(*args), outs, (name, "evaluated"))


def _jitted(run: ValueFunction) -> ValueFunction:
    """Compiles a function of values."""
    compiled = jit(lambda *xs: run(*xs))
    return lambda *xs: [as_value(o) for o in compiled(*as_arrays(xs))]


@law("jit does not change results under other transformations")
def jit_commutes_with_transforms(self: Law, subject: Subject) -> None:
    """Checks that `vmap`, `jvp`, `linearize` and `vjp` of the compiled function agree with those of the function."""
    compiled = _jitted(subject.run)
    batch = SampleBatch.like(subject.args)
    axes: BatchAxes = (0,) * len(subject.args)
    got, want = [
        batch_axis_first(evaluate_batch(f, batch.stacked(axes), axes, batch.size), batch.size)
        for f in (compiled, subject.run)
    ]
    require_close(self, subject, got, want, ("vmap of jit", "vmap alone"))
    if not subject.differentiable_args:
        return
    tangents = random_tangents(subject, subject.differentiable_args, "directions")
    got, want = [
        [*outs, *map(instantiate_zeros, ts)]
        for outs, ts in (evaluate_jvp(f, subject.args, tangents) for f in (compiled, subject.run))
    ]
    require_close(self, subject, got, want, ("jvp of jit", "jvp alone"), _derivative_tolerance(subject))
    moving = [i in subject.differentiable_args for i in range(len(subject.args))]
    linear = [linearize_function(f, subject.args, moving) for f in (compiled, subject.run)]
    got, want = [list(map(instantiate_zeros, each.push(tangents))) for each in linear]
    require_close(self, subject, got, want, ("linearize of jit", "linearize alone"), _derivative_tolerance(subject))
    if any(linear[1].active_outputs):
        cts = random_cotangents(subject, linear[1], "cotangents")
        got, want = [list(map(instantiate_zeros, each.pull(cts))) for each in linear]
        require_close(self, subject, got, want, ("vjp of jit", "vjp alone"), _derivative_tolerance(subject))


def random_cotangents(subject: Subject, linear: Linearization, what: str) -> list[Tangent]:
    """Returns random cotangents for the outputs that have derivatives."""
    rng = subject.rng(what)
    return [
        random_like(o.aval, rng) if moved else Zero(o.aval.tangent())
        for o, moved in zip(linear.outs, linear.active_outputs, strict=True)
    ]


def pulled_back(subject: Subject, linear: Linearization, what: str) -> list[Value]:
    """Returns the cotangents of the differentiable arguments for random cotangents of the outputs."""
    pulled = linear.pull(random_cotangents(subject, linear, what))
    return [instantiate_zeros(pulled[i]) for i in subject.differentiable_args]


def _derivative_tolerance(subject: Subject) -> Ulps:
    """Returns the tolerance for derivatives, or that of the subject if it is wider."""
    return DERIVATIVE.widen_to(subject.ulps)


# ------------------------------------------------------------------ derivatives


@law("jvp agrees with finite differences")
def jvp_is_the_derivative(self: Law, subject: Subject) -> None:
    """Checks tangents against finite differences, with respect to subsets of the arguments."""
    require_derivatives(subject)
    wide = promote_to_computed_precision(subject)
    at = wide.outs()
    for chosen in subsets(wide.differentiable_args):
        _require_tangents(self, wide, at, random_tangents(wide, chosen, f"direction {chosen}"))


def _require_tangents(broken: Law, wide: Subject, at: Sequence[Value], tangents: Sequence[Tangent]) -> None:
    """Raises LawError unless `jvp` gives the outputs `at` and their derivatives along the tangents."""
    outs, pushed = evaluate_jvp(wide.run, wide.args, tangents)
    require_close(broken, wide, outs, at, ("primal output", "evaluated"))
    for i, (out, t) in enumerate(zip(at, pushed, strict=True)):
        if t.aval != out.aval.tangent():
            raise broken.violation(
                wide,
                f"  output {i} is {out.aval!r}, its tangent {t.aval!r} instead of {out.aval.tangent()!r}",
                ViolationManner.TYPES,
            )
    numbers, names = [instantiate_zeros(t) for t in pushed if t.aval.dtype != dtypes.float0], ("jvp", "differences")
    require_differences(
        wide, tangents, at, lambda slopes, ulps: require_close(broken, wide, numbers, slopes, names, ulps)
    )


def require_differences(
    subject: Subject, tangents: Sequence[Tangent], at: Sequence[Value], require: Callable[[list[Value], Ulps], None]
) -> None:
    """Requires derivatives to agree with finite differences, of one step or else of several.

    Args:
        subject: the function.
        tangents: the direction.
        at: the outputs at the arguments.
        require: raises LawError unless the derivatives agree with differences of the inexact outputs, given with their
            tolerance.

    Raises:
        Inapplicable: if the function computes with floats of fewer than 32 bits.
        LawError: if the derivatives differ from both differences.
    """
    bits = narrowest_bits(subject)
    if bits < 32:
        raise Inapplicable("finite differences of numbers of 16 bits or fewer are meaningless")
    step, ulps = (2.0**-17, FINITE_DIFFERENCES) if bits == 64 else (2.0**-8, FINITE_DIFFERENCES_32_BITS)
    ulps = ulps.widen_to(subject.ulps)
    slopes = _central_differences(subject, tangents, step)[0]
    avals = [o.aval for o in at if dtypes.is_inexact(o.aval.dtype)]
    with suppress(LawError):
        return require(list(map(array_of_type, slopes, avals)), ulps)
    slopes, error = _extrapolated_differences(subject, tangents, slopes, bits)
    require(list(map(array_of_type, slopes, avals)), relative_ulps(min(4 * error, 2.0**-8)).widen_to(ulps))


def _central_differences(
    subject: Subject, tangents: Sequence[Tangent], step: float
) -> tuple[list[NDArray], list[NDArray]]:
    """Returns the central differences of the inexact outputs along a direction, and the outputs ahead."""
    ahead, behind = [
        [to_numpy(o).astype(np.result_type(to_numpy(o), np.float64)) for o in outs if dtypes.is_inexact(o.aval.dtype)]
        for outs in (_evaluate_shifted(subject, tangents, h) for h in (step, -step))
    ]
    return [(a - b) / (2 * step) for a, b in zip(ahead, behind, strict=True)], ahead


def _extrapolated_differences(
    subject: Subject, tangents: Sequence[Tangent], slopes: Sequence[NDArray], bits: int
) -> tuple[list[NDArray], float]:
    """Returns differences extrapolated to the step 0 by Ridders' method, and their largest error relative to the array.

    For each element it is the extrapolation with the least error, estimated by the change from those of lower order and
    of larger steps, and a bound of the rounding error. `slopes` are returned where no extrapolation is finite.
    """
    smallest, eps = (2.0**-30, 2.0**-52) if bits == 64 else (2.0**-20, 2.0**-23)
    moved = [x for x, t in zip(subject.args, tangents, strict=True) if not isinstance(t, Zero)]
    largest = max(max_finite_abs(to_numpy(x)) for x in moved)
    best, errors = list(slopes), [np.full(slope.shape, np.inf) for slope in slopes]
    step, previous = 2.0**-4, list[list[NDArray]]()
    while step >= smallest:
        differences, ahead = _central_differences(subject, tangents, step)
        row = [differences]
        for order, coarser in enumerate(previous, 1):
            finer, weight = row[-1], 16.0**order
            row.append([f + (f - c) / (weight - 1) for f, c in zip(finer, coarser, strict=True)])
            for i, x in enumerate(row[-1]):
                rounding = eps * (max_finite_abs(ahead[i]) + max_finite_abs(x) * largest) / step
                error = np.maximum(np.abs(x - finer[i]), np.abs(x - coarser[i])) + rounding
                better = error < errors[i]
                best[i], errors[i] = np.where(better, x, best[i]), np.where(better, error, errors[i])
        step, previous = step / 4, row
    relative = [max_finite_abs(e) / max(max_finite_abs(x), 1.0) for e, x in zip(errors, best, strict=True)]
    return best, max(relative, default=0.0)


def _evaluate_shifted(subject: Subject, tangents: Sequence[Tangent], step: float) -> list[Value]:
    """Evaluates the function at the arguments plus `step` times the tangents."""
    args = [
        a if isinstance(t, Zero) else array_of_type(to_numpy(a) + step * to_numpy(t), a.aval)
        for a, t in zip(subject.args, tangents, strict=True)
    ]
    return subject.run(*args)


@law("linearize gives the same results as jvp")
def linearize_is_jvp(self: Law, subject: Subject) -> None:
    """Checks that `linearize` gives the primals and tangents of `jvp`."""
    require_derivatives(subject)
    for chosen in subsets(subject.differentiable_args):
        tangents = random_tangents(subject, chosen, f"direction {chosen}")
        outs, pushed = evaluate_jvp(subject.run, subject.args, tangents)
        linear = linearize_function(subject.run, subject.args, [i in chosen for i in range(len(subject.args))])
        check_jaxpr(linear.jaxpr)
        names = ("linearize", "jvp")
        require_close(self, subject, linear.outs, outs, names)
        require_close(
            self,
            subject,
            list(map(instantiate_zeros, linear.push(tangents))),
            list(map(instantiate_zeros, pushed)),
            names,
            _derivative_tolerance(subject),
        )


@law("<J v, w> = <v, Jᵀ w> for all directions v and w")
def transpose_is_adjoint(self: Law, subject: Subject) -> None:
    """Checks that the transpose is the adjoint of the linearized function, and the avals of cotangents."""
    require_derivatives(subject)
    wide = promote_to_computed_precision(subject)
    for chosen in subsets(wide.differentiable_args):
        for at in (wide, *([] if wide is subject else [subject])):
            linear = linearize_function(at.run, at.args, [i in chosen for i in range(len(at.args))])
            if not any(linear.active_outputs):
                continue
            tangents = random_tangents(at, chosen, f"direction {chosen}")
            cts = random_cotangents(at, linear, f"cotangents {chosen}")
            pulled = linear.pull(cts)
            if at is wide:
                pushed = linear.push(tangents)
                require_adjoint(self, wide, tangents, cts, pushed, pulled, _derivative_tolerance(subject))
            else:
                _require_types(self, subject, tangents, pulled)


def _require_types(broken: Law, subject: Subject, vs: Sequence[Tangent], pulled: Sequence[Tangent]) -> None:
    """Raises LawError unless the cotangents have the avals of the tangents."""
    for i, (v, ct) in enumerate(zip(vs, pulled, strict=True)):
        if ct.aval != v.aval:
            raise broken.violation(
                subject,
                f"  the cotangent of argument {i} is {ct.aval!r} instead of {v.aval!r}",
                ViolationManner.TYPES,
            )


def require_adjoint(
    broken: Law,
    subject: Subject,
    vs: Sequence[Tangent],
    ws: Sequence[Tangent],
    pushed: Sequence[Tangent],
    pulled: Sequence[Tangent],
    ulps: Ulps = DERIVATIVE,
) -> None:
    """Raises LawError unless `<pushed, ws> = <vs, pulled>`, and the cotangents have the avals of the arguments.

    Args:
        broken: the law that is violated otherwise.
        subject: the subject of the check.
        vs: tangents of the arguments.
        ws: cotangents of the outputs.
        pushed: the tangents of the outputs for `vs`.
        pulled: the cotangents of the arguments for `ws`.
        ulps: the tolerance.
    """
    _require_types(broken, subject, vs, pulled)
    left, right = [_inner_product_terms(a, b) for a, b in ((pushed, ws), (vs, pulled))]
    numbers = [x.aval.dtype for x in [*vs, *ws] if dtypes.is_inexact(x.aval.dtype)]
    unit = max(float(dtypes.finfo(d).eps) * ulps.of(dtypes.real_dtype(d)) for d in numbers)
    size = float(np.abs(left).sum() + np.abs(right).sum())
    allowed = unit * max(size, ulps.least)
    if not abs(left.sum() - right.sum()) <= allowed and np.isfinite(size):
        sides = f"  <J v, w> = {left.sum()!r}\n  <v, Jᵀ w> = {right.sum()!r}"
        inputs = [f"  v = {[format_value(v) for v in vs if not isinstance(v, Zero)]}"]
        inputs += [f"  w = {[format_value(w) for w in ws if not isinstance(w, Zero)]}"]
        manner = ViolationManner.NAN if np.isnan(left.sum() - right.sum()) else ViolationManner.VALUES
        raise broken.violation(subject, "\n".join([*inputs, sides]), manner)


def _inner_product_terms(xs: Sequence[Tangent], ys: Sequence[Tangent]) -> NDArray:
    """Returns the terms of the pairing of tangents and cotangents: real parts of products without conjugation."""
    products = [np.zeros(1)]
    for x, y in zip(xs, ys, strict=True):
        if not isinstance(x, Zero) and not isinstance(y, Zero):
            a, b = [np.asarray(to_numpy(v)).astype(np.complex128) for v in (x, y)]
            products.append((a * b).real.ravel())
    return np.concatenate(products)


# ------------------------------------------------------------------ batches


@law("vmap gives the same results as a loop, for all batch axes")
def vmap_is_a_loop(self: Law, subject: Subject) -> None:
    """Checks that `vmap`, along every axis of every choice of arguments, gives the stacked results of a loop."""
    batch = SampleBatch.like(subject.args)
    loops: dict[tuple[bool, ...], list[list[Value]]] = {}
    for axes in all_batch_axes([a.aval.ndim for a in subject.args]):
        stacked = subject.at(batch.stacked(axes))
        try:
            outs = evaluate_batch(subject.run, stacked.args, axes, batch.size)
            got = batch_axis_first(outs, batch.size)
        except (IndexError, AssertionError) as error:  # an axis that doesn't exist
            raise self.violation(stacked, f"  in_axes={axes}: {error!r}") from error
        which = tuple([axis is not None for axis in axes])
        if which not in loops:
            loops[which] = [subject.run(*batch.element(k, axes)) for k in range(batch.size)]
        loop = loops[which]
        for i, ((_, _, aval), out) in enumerate(zip(outs, loop[0], strict=True)):
            if aval != out.aval:
                raise self.violation(
                    stacked, f"  in_axes={axes}: an element of output {i} is {aval!r}, in the loop {out.aval!r}"
                )
        want = [
            array_of_type(np.stack([to_numpy(o) for o in each]), each[0].aval.with_axis(batch.size, 0))
            for each in zip(*loop, strict=True)
        ]
        require_close(self, stacked, got, want, (f"vmap over {axes}", "a loop"))


def all_batch_axes(ranks: Sequence[int], most: int = 80) -> list[BatchAxes]:
    """Returns all choices of batch axes, with `None` for unbatched arguments; at most `most`, evenly sampled."""
    choices = [[None, *range(rank + 1)] for rank in ranks]
    all_axes = [axes for axes in itertools.product(*choices) if any(axis is not None for axis in axes)]
    return all_axes[:: -(-len(all_axes) // most)] if all_axes else []


def batch_axis_first(outs: Sequence[tuple[Value, int | None, ShapedArray | None]], size: int) -> list[Value]:
    """Moves the batch axis of each output to the front, broadcasting outputs without one."""
    results: list[Value] = []
    for val, axis, _ in outs:
        if isinstance(val, Tracer):
            results.append(val)
            continue
        host = to_numpy(val)
        host = np.broadcast_to(host, (size, *host.shape)) if axis is None else np.moveaxis(host, axis, 0)
        results.append(array_of_type(host, val.aval.update(shape=host.shape)))
    return results


@law("vmap and jvp commute")
def vmap_commutes_with_jvp(self: Law, subject: Subject) -> None:
    """Checks that `vmap` of `jvp` and `jvp` of `vmap` give the same results."""
    require_derivatives(subject)
    batch = SampleBatch.like(subject.args)
    axes: BatchAxes = (0,) * len(subject.args)
    stacked = subject.at(batch.stacked(axes))
    tangents = random_tangents(stacked, stacked.differentiable_args, "directions")

    def paired(inner: Handler) -> tuple[JVP, list[Value]]:
        handler = JVP(inner)
        return handler, [handler.wrap(a, t) for a, t in zip(stacked.args, tangents, strict=True)]

    outside, duals = paired(current())
    within = Batch(outside, MappedAxis(batch.size))
    outs = call_under(within, subject.run, *[within.wrap(d, 0) for d in duals])
    pushed_last = _dense_pairs([(outside.unwrap(x), axis) for x, axis in map(within.unwrap, outs)], batch.size)

    over = Batch(current(), MappedAxis(batch.size))
    jvp = JVP(over)
    wrapped = [
        jvp.wrap(over.wrap(a, 0), t if isinstance(t, Zero) else over.wrap(t, 0))
        for a, t in zip(stacked.args, tangents, strict=True)
    ]
    pairs = list(map(jvp.unwrap, call_under(jvp, subject.run, *wrapped)))
    first: list[Value] = []
    for p, t in pairs:
        first += batch_axis_first([(*over.unwrap(p), None)], batch.size)
        zeros = [np.zeros((batch.size, *t.aval.shape))]
        first += (
            [array_of_type(zeros[0], t.aval.with_axis(batch.size, 0))]
            if isinstance(t, Zero)
            else batch_axis_first([(*over.unwrap(t), None)], batch.size)
        )
    require_close(self, stacked, first, pushed_last, ("vmap of jvp", "jvp of vmap"), _derivative_tolerance(subject))


def _dense_pairs(pairs: Sequence[tuple[tuple[Value, Tangent], int | None]], size: int) -> list[Value]:
    """Returns primals and tangents as arrays with the batch axis first."""
    both: list[Value] = []
    for (p, t), axis in pairs:
        both += batch_axis_first([(p, axis, None), (instantiate_zeros(t), axis, None)], size)
    return both


# ------------------------------------------------------------------ handlers


@final
@frozen(eq=False)
class IdentityHandler(Handler):
    """A handler that forwards every primitive to the inner handler.

    >>> import tracefx.numpy as fnp
    >>> from tracefx import current, handling
    >>> with handling(IdentityHandler(current())):
    ...     float(fnp.sin(0.0))
    0.0
    """

    title = "identity"
    inner: Handler

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        return self.inner.bind(prim, args)


@law("a handler that forwards every primitive changes nothing")
def identity_changes_nothing(self: Law, subject: Subject) -> None:
    """Checks that results, programs and derivatives are the same under `IdentityHandler`."""
    outs = subject.outs()
    require_close(
        self,
        subject,
        call_under(IdentityHandler(current()), subject.run, *subject.args),
        outs,
        ("under it", "without it"),
        EXACT,
    )

    def unchanged(*xs: Value) -> list[Value]:
        return call_under(IdentityHandler(CURRENT.get()), subject.run, *xs)

    avals = [a.aval for a in subject.args]
    programs = [staged(run, avals)[0] for run in (unchanged, subject.run)]
    if programs[0] != programs[1]:
        raise self.violation(subject, f"  staged under it:\n{programs[0]}\n  without it:\n{programs[1]}")
    with suppress(MissingRuleError):
        tangents = random_tangents(subject, subject.differentiable_args, "directions")
        got, want = [
            [*o, *map(instantiate_zeros, t)]
            for o, t in (evaluate_jvp(r, subject.args, tangents) for r in (unchanged, subject.run))
        ]
        require_close(self, subject, got, want, ("jvp over it", "jvp alone"), EXACT)


@law("no tracer outlives the handler that created it")
def no_tracer_leaks(self: Law, subject: Subject) -> None:
    """Checks that no transformation returns tracers or changes later results."""
    outs = subject.outs()
    stage = Stage(current())
    call_under(stage, subject.run, *[stage.input(a.aval) for a in subject.args])
    results: list[Value] = []
    axes: BatchAxes = (0,) * len(subject.args)
    batch = SampleBatch.like(subject.args)
    with suppress(MissingRuleError):
        results += [x for x, _, _ in evaluate_batch(subject.run, batch.stacked(axes), axes, batch.size)]
    with suppress(MissingRuleError):
        pushed, tangents = evaluate_jvp(
            subject.run, subject.args, random_tangents(subject, subject.differentiable_args, "directions")
        )
        results += [*pushed, *map(instantiate_zeros, tangents)]
    for x in results:
        if isinstance(x, Tracer):
            raise self.violation(subject, f"  {x!r} is a leaked tracer of {x.handler.title}")
    require_close(self, subject, subject.outs(), outs, ("after transformations", "before"), EXACT)


# ------------------------------------------------------------------ programs


@law("parsing the text of a program gives the same program")
def text_round_trips(self: Law, subject: Subject) -> None:
    """Checks that parsing the text of the staged program gives an equal program."""
    jaxpr, _ = staged(subject.run, [a.aval for a in subject.args])
    custom = custom_primitives(jaxpr)
    parsed = parse_jaxpr(str(jaxpr), *custom)
    if parsed != jaxpr:
        raise self.violation(subject, f"  the program: {jaxpr}\n  as parsed:   {parsed}")


@law("passes preserve the results and avals of a program")
def passes_change_nothing(self: Law, subject: Subject) -> None:
    """Checks that `dce`, `cse` and `renumber` preserve the results and avals of the staged program."""
    jaxpr, consts = staged(subject.run, [a.aval for a in subject.args])
    outs = eval_jaxpr(jaxpr, consts, subject.args)
    for simplify in (dce, cse, renumber):
        simpler = simplify(jaxpr)
        check_jaxpr(simpler)
        if (simpler.in_avals, simpler.out_avals) != (jaxpr.in_avals, jaxpr.out_avals):
            raise self.violation(subject, f"  before {simplify.__name__}: {jaxpr}\n  after: {simpler}")
        names = (f"after {simplify.__name__}", "before")
        require_close(self, subject, eval_jaxpr(simpler, consts, subject.args), outs, names, EXACT)


LAWS: Final[tuple[Law, ...]] = (
    abstract_eval_matches_evaluation,
    staging_changes_nothing,
    jit_changes_nothing,
    identity_changes_nothing,
    no_tracer_leaks,
    text_round_trips,
    passes_change_nothing,
    vmap_is_a_loop,
    jvp_is_the_derivative,
    linearize_is_jvp,
    transpose_is_adjoint,
    vmap_commutes_with_jvp,
    jit_commutes_with_transforms,
)
"""All laws of functions, the basic ones first."""
