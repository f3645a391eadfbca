"""Functions with a backward pass of their own, as operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.callables import (
    EMPTY_CLOSURE,
    BatchDims,
    ClosureScope,
    FlatFunction,
    OutDims,
    batch_function,
    closed_over_error,
    derive,
    match_weak_types,
    may_close_over,
    partial_eval_function,
    require_no_tracers,
    trace_function,
    transpose_function,
    unwrap_results,
    wrap_in_handler,
)
from tracefx.control.control_flow import (
    drop_zeros,
    insert_zeros,
    merge_masked,
    nonzero_mask,
    select_masked,
    select_unmasked,
)
from tracefx.control.custom_jvp import num_consts_param
from tracefx.control.custom_rules import CustomRuleCall, CustomRuleProgram, ExtraOutputs
from tracefx.core.avals import ShapedArray
from tracefx.core.callables import BatchRunner, HasCallables
from tracefx.core.dtypes import float0
from tracefx.core.effects import Effects, NamedAxisEffect
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import CURRENT, ROOT, Handler, Tracer, bind
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.literal import Literal
from tracefx.core.primitive import (
    Differentiable,
    Expandable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
    Zero,
    not_linear_error,
)
from tracefx.core.values import ConcreteArray, Value, to_numpy
from tracefx.errors import ConcretizationError, MissingRuleError, NotLinearError
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.jaxpr_transforms import Mask, batch_jaxpr, jvp_jaxpr
from tracefx.interpreters.jvp import JVP
from tracefx.interpreters.stage import Stage, stage
from tracefx.interpreters.transpose import backward_pass
from tracefx.ops.elementwise.elementwise import add_tangents
from tracefx.ops.structural import batch_first, instantiate, match_aval, move_axis, reduce_sum
from tracefx.passes.dce import Prunable, dce
from tracefx.text.printer import HasJaxParams

BackwardRule: TypeAlias = Callable[[Sequence[Value], Sequence[Tangent]], Sequence[Tangent]]
"""Residuals and the cotangents of the outputs to the cotangents of the operands."""


@final
@frozen(eq=False)
class ForwardResult:
    """What the forward pass gives: outputs, what to keep for the backward pass, and the backward pass."""

    outs: Sequence[Value]
    residuals: Sequence[Value]
    pullback: BackwardRule
    axes: tuple[str, ...] = ()
    """The axes of a mesh along which the backward pass takes and gives shares of cotangents."""


ForwardRule: TypeAlias = Callable[[Sequence[Value], Mask], ForwardResult]
"""The forward pass, which is told which operands are differentiated."""


@final
@frozen(eq=False)
class CustomVJPCall(CustomRuleCall):
    """A call of `fun`, which `fwd` differentiates. `bwd` is the user's backward pass, to be shown."""

    name = "custom_vjp_call"
    fwd: ForwardRule
    bwd: Callable[..., object]
    symbolic_zeros: bool = False

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        forward = self.fwd(primals, nonzero_mask(tangents))
        return forward.outs, bind_custom_linear(self.label, forward, tangents)

    @override
    def wrap_callables(self, enter: Callable[[Handler], Handler]) -> CustomVJPCall:
        return evolve(self, fun=wrap_in_handler(enter, self.fun), fwd=_wrap_forward_in_handler(enter, self.fwd))

    @override
    def batch_callables(
        self, mapper: BatchRunner, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        out = OutDims(self.label, mapper.axis, any(d is not None for d in dims))
        fun, fwd = batch_function(mapper, self.fun, dims, out), _batch_forward(mapper, self.fwd, dims, out)
        outs = bind(evolve(self, fun=fun, fwd=fwd), *args)
        return outs, out.of(outs)

    @override
    def stage_callables(self, recording: Handler, args: Sequence[Value]) -> tuple[CustomVJP, Sequence[Value]]:
        traced = trace_function(self.fun, recording, args)
        n = len(traced.consts)
        fwd = _rebind_forward(self.label, self.fwd, traced.scope, n)
        return CustomVJP(self.label, traced.jaxpr, fwd, self.bwd, n, self.symbolic_zeros), [*traced.consts, *args]


@final
@frozen(eq=False)
class CustomVJP(CustomRuleProgram, Prunable, HasJaxParams):
    """A call of `jaxpr`, which `fwd` differentiates. The first `num_consts` operands have no derivative."""

    name = "custom_vjp_call"
    fwd: ForwardRule = field(metadata={"erased": True})
    bwd: Callable[..., object] = field(metadata={"erased": True})
    num_consts: int = field(default=0, metadata={"hide_default": True, "erased": True})
    symbolic_zeros: bool = field(default=False, metadata={"hide_default": True, "erased": True})

    @override
    def jax_params(self) -> Mapping[str, object]:
        params = {"name": self.label, "call_jaxpr": self.jaxpr, "fwd": self.fwd, "bwd": self.bwd}
        return params | {"symbolic_zeros": self.symbolic_zeros} | num_consts_param(self.num_consts)

    @override
    def prune(self, used_outs: tuple[bool, ...]) -> tuple[CustomVJP, tuple[bool, ...], tuple[bool, ...]]:
        """The operands stay: the forward pass may use what the function does not."""
        jaxpr = dce(self.jaxpr, used_outs)
        if jaxpr is self.jaxpr:
            return self, (True,) * len(jaxpr.invars), used_outs
        fwd = self.fwd if all(used_outs) else _select_outputs(self.fwd, used_outs)
        return evolve(self, jaxpr=jaxpr, fwd=fwd), (True,) * len(jaxpr.invars), used_outs

    @override
    def with_program(self, jaxpr: Jaxpr, consts: int, enter: Callable[[Handler], Handler]) -> CustomVJP:
        fwd = _rebind_forward(self.label, _wrap_forward_in_handler(enter, self.fwd), EMPTY_CLOSURE, consts)
        return evolve(self, jaxpr=jaxpr, fwd=fwd, num_consts=consts + self.num_consts)

    @override
    def with_extra_outputs(self, among: ExtraOutputs) -> CustomVJP:
        return evolve(self, jaxpr=among.jaxpr, fwd=_with_extra_outputs(self.fwd, among))

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        forward = self.fwd(primals, nonzero_mask(tangents))
        forward = evolve(forward, outs=match_weak_types(forward.outs, self.jaxpr.out_avals))
        return forward.outs, bind_custom_linear(self.label, forward, tangents)

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        forced = (any(d is not None for d in dims),) * len(self.jaxpr.outs)
        derived = batch_jaxpr(self.jaxpr, axis, tuple(dims), forced)
        fwd = _batch_forward(Batch(ROOT, axis), self.fwd, dims, OutDims(self.label, axis, derived.out_dims))
        n = len(derived.consts)
        prim = evolve(
            self,
            jaxpr=derived.jaxpr,
            fwd=_rebind_forward(self.label, fwd, EMPTY_CLOSURE, n),
            num_consts=n + self.num_consts,
        )
        return bind(prim, *derived.consts, *args), derived.out_dims


# ------------------------------------------------------------------ forward passes


def _wrap_forward_in_handler(enter: Callable[[Handler], Handler], fwd: ForwardRule) -> ForwardRule:
    @derive(fwd, "within", enter)
    def entered(primals: Sequence[Value], perturbed: Mask) -> ForwardResult:
        handler = enter(CURRENT.get())
        forward = wrap_in_handler(lambda _: handler, fwd)(primals, perturbed)
        outs, residuals = unwrap_results(handler, (forward.outs, forward.residuals))
        return evolve(forward, outs=outs, residuals=residuals, pullback=wrap_in_handler(enter, forward.pullback))

    return entered


def _rebind_forward(label: str, fwd: ForwardRule, scope: ClosureScope, count: int) -> ForwardRule:
    """The forward pass of an operation whose first `count` operands are what its functions closed over."""

    @derive(fwd, scope.cache_key, count)
    def hosted(primals: Sequence[Value], perturbed: Mask) -> ForwardResult:
        if any(perturbed[:count]):
            raise closed_over_error(label)
        consts = primals[:count]
        forward = scope.rebind(fwd, consts)(primals[count:], perturbed[count:])
        kept = list(consts) if scope.bind_static else []

        @derive(forward.pullback, scope.cache_key, tuple([c.aval for c in consts]))
        def pull(residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
            k = len(kept)
            found = scope.rebind(forward.pullback, residuals[:k])(residuals[k:], cts)
            return [*[Zero(c.aval.tangent()) for c in consts], *found]

        return ForwardResult(forward.outs, [*kept, *forward.residuals], pull, forward.axes)

    return hosted if count or scope.named_axes else fwd


def _select_outputs(fwd: ForwardRule, used: tuple[bool, ...]) -> ForwardRule:
    """The forward pass for those of the outputs that are used."""

    @derive(fwd, "selected", used)
    def some(primals: Sequence[Value], perturbed: Mask) -> ForwardResult:
        forward = fwd(primals, perturbed)
        avals = [o.aval for o in forward.outs]

        @derive(forward.pullback, "selected", used)
        def pull(residuals: Sequence[Value], cts: Sequence[Tangent]) -> Sequence[Tangent]:
            given = iter(cts)
            return forward.pullback(
                residuals, [next(given) if u else Zero(a.tangent()) for u, a in zip(used, avals, strict=True)]
            )

        return ForwardResult(select_masked(forward.outs, used), forward.residuals, pull, forward.axes)

    return some


def _with_extra_outputs(fwd: ForwardRule, among: ExtraOutputs) -> ForwardRule:
    """The forward pass, and for all else the program and its derivative."""

    @derive(fwd, among)
    def all_of_it(primals: Sequence[Value], perturbed: Mask) -> ForwardResult:
        n = among.operands
        outs = eval_jaxpr(among.jaxpr, (), primals)
        forward, kept = fwd(primals[n:], perturbed[n:]), len(primals)

        @derive(forward.pullback, among, perturbed)
        def pull(residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
            at = residuals[:kept]
            found = [
                *[Zero(x.aval.tangent()) for x in at[:n]],
                *forward.pullback(residuals[kept:], among.rule_outputs(cts)),
            ]
            rest = among.merge(cts, [Zero(ct.aval) for ct in among.rule_outputs(cts)])
            if not any(nonzero_mask(rest)):
                return found
            derived = jvp_jaxpr(among.jaxpr, perturbed)

            def forwards(*tangents: Value) -> list[Value]:
                both = eval_jaxpr(derived.jaxpr, (), [*derived.consts, *at, *tangents])
                return both[len(among.jaxpr.outs) :]

            avals = [x.aval.tangent() for x in select_masked(at, perturbed)]
            pulled = transpose_function(forwards, avals, lambda: select_masked(rest, derived.out_nonzero))
            more = merge_masked(perturbed, pulled, [Zero(x.aval.tangent()) for x in select_unmasked(at, perturbed)])
            return [add_tangents(x, y) for x, y in zip(found, more, strict=True)]

        return ForwardResult(outs, [*primals, *forward.residuals], pull, forward.axes)

    return all_of_it


def _batch_forward(mapper: BatchRunner, fwd: ForwardRule, dims: BatchDims, out: OutDims) -> ForwardRule:
    @derive(fwd, "mapped", mapper.axis, tuple(dims), out.cache_key)
    def batched(primals: Sequence[Value], perturbed: Mask) -> ForwardResult:
        made: list[ForwardResult] = []

        def both(*values: Value) -> list[Value]:
            forward = fwd(values, perturbed)
            made.append(forward)
            return [*forward.outs, *forward.residuals]

        values, found = mapper.run(both, primals, dims)
        (forward,) = made
        n = len(forward.outs)
        settled = out.settle(found[:n])
        outs = list(map(out.move_axis_first, values[:n], found[:n], settled))
        pull = _batch_pullback(mapper, forward.pullback, found[n:], [o.aval for o in forward.outs], out.of(outs), dims)
        return ForwardResult(outs, values[n:], pull, forward.axes)

    return batched


def _batch_pullback(
    mapper: BatchRunner,
    pull: BackwardRule,
    dims: BatchDims,
    out_avals: Sequence[ShapedArray],
    out_dims: BatchDims,
    in_dims: BatchDims,
) -> BackwardRule:
    """The backward pass of a whole batch. An operand alike for all of it has the sum of their cotangents.

    `dims` are those of the residuals, `out_avals` the types of one example's outputs.
    """
    mapped = any(d is not None for d in out_dims)

    @derive(pull, mapper.axis, tuple(dims), tuple(out_avals), tuple(out_dims), tuple(in_dims))
    def batched(residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
        n, mask = len(residuals), nonzero_mask(cts)
        found_mask: Mask = ()
        zeros: list[ShapedArray] = []

        def back(*values: Value) -> list[Value]:
            nonlocal found_mask, zeros
            found = pull(values[:n], insert_zeros(values[n:], mask, out_avals))
            found_mask, zeros = nonzero_mask(found), [ct.aval for ct in found]
            return drop_zeros(found)

        results, found_dims = mapper.run(back, [*residuals, *drop_zeros(cts)], [*dims, *select_masked(out_dims, mask)])
        pairs = zip(results, found_dims, strict=True)
        size = mapper.axis.size
        return [
            (
                _move_or_sum_axis(mapper.axis, *next(pairs), dim, mapped)
                if live
                else Zero(_batched_aval(aval, size, dim))
            )
            for live, aval, dim in zip(found_mask, zeros, in_dims, strict=True)
        ]

    return batched


def _move_or_sum_axis(axis: MappedAxis, ct: Value, dim: int | None, target: int | None, mapped: bool) -> Value:
    """A cotangent with its batch axis at `target`, or summed along it."""
    if target is not None:
        return move_axis(batch_first(ct, dim, axis), 0, target)
    if dim is None and not mapped:
        return ct
    return reduce_sum(batch_first(ct, dim, axis), (0,))


def _batched_aval(aval: ShapedArray, size: int, dim: int | None) -> ShapedArray:
    return aval if dim is None else aval.with_axis(size, dim)


# ------------------------------------------------------------------ the linear part


def bind_custom_linear(label: str, forward: ForwardResult, tangents: Sequence[Tangent]) -> list[Tangent]:
    """The tangents of the outputs: a linear map that is known by its transpose, and bound without being computed."""
    avals = [o.aval.tangent() for o in forward.outs]
    prim = CustomLinear(
        label, forward.pullback, len(forward.residuals), nonzero_mask(tangents), tuple(avals), axes=forward.axes
    )
    if not any(prim.out_nonzero):
        return [Zero(a) for a in avals]
    return insert_zeros(bind(prim, *forward.residuals, *drop_zeros(tangents)), prim.out_nonzero, avals)


@frozen(eq=False)
class CustomLinear(Primitive, Expandable, Differentiable, Transposable, HasCallables):
    """The linear map whose transpose is `pull`, a backward pass, at `residuals`, the first operands.

    The other operands are the tangents of those operands of the function that are marked in `nonzero`, the outputs
    the tangents of its outputs, without those that have none. Transposed, which is all that reverse mode asks, it
    calls the backward pass, linear or not. Computed forwards, it calls `push`, a function of all operands, or, where
    there is none, transposes the backward pass, which must be linear.
    """

    name = "custom_lin"
    label: str = field(metadata={"print": "name"})
    pullback: BackwardRule = field(metadata={"print": "bwd"})
    residuals: int = field(metadata={"print": "num_res"})
    in_nonzero: Mask
    out_avals: tuple[ShapedArray, ...]
    push: FlatFunction | None = field(default=None, metadata={"hide_default": True})
    axes: tuple[str, ...] = field(default=(), metadata={"hide_default": True})
    """Those of `ForwardResult`."""

    @property
    @override
    def effects(self) -> Effects:
        # So that who runs a program with it backwards runs it on shares.
        return frozenset([NamedAxisEffect(name) for name in self.axes])

    @property
    def out_nonzero(self) -> Mask:
        """Which outputs of the function have a tangent."""
        return tuple([a.dtype != float0 for a in self.out_avals])

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return require_no_tracers(self.label, self.expand(*args))

    @override
    def stage_callables(self, recording: Handler, args: Sequence[Value]) -> tuple[StagedLinear, Sequence[Value]]:
        """What the backward pass closes over become residuals, if it can run when the trace is over."""
        prim = StagedLinear(
            self.label, self.pullback, self.residuals, self.in_nonzero, self.out_avals, self.push, self.axes
        )
        if type(recording) is not Stage or not may_close_over(self.pullback):
            return prim, args
        n = self.residuals

        def pulled(*values: Value) -> list[Value]:
            return list(map(instantiate, self.cotangents(values[:n], values[n:])))

        avals = [x.aval for x in args[:n]] + select_masked(self.out_avals, self.out_nonzero)
        try:
            _, consts = stage(pulled, avals, recording, along=[frozenset()] * len(avals))
        except ConcretizationError:  # it depends on values, and may yet be given them
            return prim, args
        held = tuple([c for c in consts if isinstance(c, Tracer)])
        if not held:
            return prim, args
        scope, pull = ClosureScope(held, recording.axes, recording.checked), self.pullback

        @derive(pull, scope.cache_key)
        def hosted(residuals: Sequence[Value], cts: Sequence[Tangent]) -> Sequence[Tangent]:
            return scope.rebind(pull, residuals[: len(held)])(residuals[len(held) :], cts)

        return evolve(prim, pullback=hosted, residuals=n + len(held)), [*held, *args]

    @override
    def wrap_callables(self, enter: Callable[[Handler], Handler]) -> CustomLinear:
        push = None if self.push is None else wrap_in_handler(enter, self.push)
        return evolve(self, pullback=wrap_in_handler(enter, self.pullback), push=push)

    def cotangents(self, residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
        """Cotangents of the tangents that are operands, from those of the outputs."""
        given = iter(cts)
        full = [next(given) if live else Zero(a) for live, a in zip(self.out_nonzero, self.out_avals, strict=True)]
        return select_masked(self.pullback(residuals, full), self.in_nonzero)

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        n = self.residuals
        residuals = [x for x in args[:n] if not isinstance(x, UndefinedPrimal)]
        if len(residuals) < n:
            raise not_linear_error(self)
        found = self.cotangents(residuals, cts) if self.push is None else self.bind_transposed(residuals, cts, args[n:])
        return [
            *[None] * n,
            *[ct if isinstance(x, UndefinedPrimal) else None for ct, x in zip(found, args[n:], strict=True)],
        ]

    def bind_transposed(
        self, residuals: Sequence[Value], cts: Sequence[Tangent], operands: Sequence[Value | UndefinedPrimal]
    ) -> Sequence[Value]:
        """The transpose, as an operation whose transpose is this one."""
        push, pull = self.push, self.pullback
        assert push is not None
        mask, n, out_avals = nonzero_mask(cts), len(residuals), self.out_avals

        @derive(pull, "pushed", mask, out_avals)
        def forwards(*values: Value) -> list[Value]:
            return [instantiate(ct) for ct in pull(values[:n], insert_zeros(values[n:], mask, out_avals))]

        @derive(push, "pulled")
        def back(residuals: Sequence[Value], cts: Sequence[Tangent]) -> Sequence[Tangent]:
            return push(*residuals, *map(instantiate, cts))

        avals = tuple([x.aval.tangent() for x in operands])
        prim = CustomLinear(self.label, back, n, mask, avals, forwards)
        return bind(prim, *residuals, *drop_zeros(cts))

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        if self.push is not None:
            return self.push(*args)
        n = self.residuals
        residuals, tangents = args[:n], args[n:]
        avals = select_masked(self.out_avals, self.out_nonzero)

        def pulled(*cts: Value) -> list[Value]:
            return [instantiate(ct) for ct in self.cotangents(residuals, cts)]

        try:
            jaxpr, consts = partial_eval_function(pulled, avals)
        except ConcretizationError as error:
            raise self.not_transposable("depends on the values of its cotangents") from error
        if _adds_a_constant(jaxpr, consts):
            raise self.not_transposable("adds to its cotangents what doesn't depend on them")
        try:
            found = backward_pass(jaxpr, consts, [UndefinedPrimal(a) for a in avals], tangents)
        except (MissingRuleError, TypeError) as error:
            raise self.not_transposable("is not linear in its cotangents") from error
        except ValueError as error:  # of a loop that has no bound
            raise self.not_transposable("cannot be transposed") from error
        return [instantiate(match_aval(Zero(a) if t is None else t, a)) for t, a in zip(found, avals, strict=True)]

    def not_transposable(self, why: str) -> NotLinearError:
        return NotLinearError(
            f"forward-mode differentiation of {self.label} transposes its backward pass, which {why}. Reverse mode "
            "(grad, vjp, jacrev) calls the backward pass as it is, and so does forward mode around reverse mode if the "
            f"forward pass computes its output without calling {self.label}; or give {self.label} a derivative with "
            "custom_jvp"
        )

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        """By the operands the map itself, which stays lazy; by the residuals what differentiating it gives."""
        n = self.residuals
        moved: Sequence[Tangent] = [Zero(a.tangent()) for a in select_masked(self.out_avals, self.out_nonzero)]
        mask = iter(nonzero_mask(tangents[n:]))
        moving = tuple([m and next(mask) for m in self.in_nonzero])
        if any(moving):
            moved = self.bind_nonzero(moving, primals[:n], tangents[n:])
        if not any(nonzero_mask(tangents[:n])):
            return bind(self, *primals), moved
        handler = JVP(CURRENT.get())
        duals = [*map(handler.wrap, primals[:n], tangents[:n]), *primals[n:]]
        token = CURRENT.set(handler)
        try:
            pairs = list(map(handler.unwrap, self.expand(*duals)))
        finally:
            CURRENT.reset(token)
        return [p for p, _ in pairs], [add_tangents(t, m) for (_, t), m in zip(pairs, moved, strict=True)]

    def bind_nonzero(self, moving: Mask, residuals: Sequence[Value], tangents: Sequence[Tangent]) -> Sequence[Value]:
        """The map on tangents of its operands, of which some may be zeros."""
        if self.push is not None:  # which takes all operands
            return bind(self, *residuals, *map(instantiate, tangents))
        return bind(evolve(self, in_nonzero=moving), *residuals, *drop_zeros(tangents))

    @override
    def batch_callables(
        self, mapper: BatchRunner, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        n, size = self.residuals, mapper.axis.size
        given = iter(dims[n:])
        in_dims = [next(given) if m else None for m in self.in_nonzero]
        out_dims = [0] * len(self.out_avals)
        pull = _batch_pullback(mapper, self.pullback, dims[:n], self.out_avals, out_dims, in_dims)
        outs = tuple([a.with_axis(size, 0) for a in self.out_avals])
        out = OutDims(self.label, mapper.axis, True)
        push = None if self.push is None else batch_function(mapper, self.push, dims, out)
        return bind(evolve(self, pullback=pull, out_avals=outs, push=push), *args), [0] * sum(self.out_nonzero)


@final
class StagedLinear(CustomLinear):
    """The map in a program."""

    __slots__ = ()

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return select_masked(self.out_avals, self.out_nonzero)


def _adds_a_constant(jaxpr: Jaxpr, consts: Sequence[Value]) -> bool:
    """Whether a program that should be linear adds something that no input reaches, and that is known not to be 0."""
    held = dict(zip(jaxpr.constvars, consts, strict=True))
    known = [
        x if isinstance(x, Literal) else held.get(x)
        for eqn in jaxpr.eqns
        if eqn.prim.name in ("add", "sub")
        for x in eqn.inputs
    ]
    return any(isinstance(x, ConcreteArray | Literal) and bool(to_numpy(x).any()) for x in known)
