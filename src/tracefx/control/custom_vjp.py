"""`custom_vjp` as a primitive: functions with a user-defined backward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control import callables
from tracefx.control.custom_jvp import num_consts_param
from tracefx.control.custom_rules import CustomDerivativeCall, CustomDerivativeProgram, ExtraOutputs
from tracefx.core import ConcreteArray, Literal, ShapedArray, Value, float0, to_numpy
from tracefx.core.effects import Effects, NamedAxisEffect
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import CURRENT, Handler, bind, call_under
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import (
    BatchDims,
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
from tracefx.core.type_sharding import Spec
from tracefx.errors import ConcretizationError, MissingRuleError, NotLinearError
from tracefx.interpreters.callables import BatchRunner, HasCallables
from tracefx.interpreters.jaxpr_transforms import jvp_jaxpr
from tracefx.interpreters.jvp import JVP
from tracefx.interpreters.masks import (
    Mask,
    drop_zeros,
    insert_zeros,
    known_values,
    merge_masked,
    nonzero_mask,
    select_masked,
    select_unmasked,
)
from tracefx.interpreters.stage import Stage
from tracefx.interpreters.transpose import backward_pass
from tracefx.ops.elementwise.elementwise import add_tangents
from tracefx.ops.structural import batch_first, instantiate, match_aval, move_axis, reduce_sum
from tracefx.source_location import full_scopes

BackwardRule: TypeAlias = Callable[[Sequence[Value], Sequence[Tangent]], Sequence[Tangent]]
"""A function from `(residuals, output cotangents)` to operand cotangents."""


@final
@frozen(eq=False)
class ForwardResult:
    """The result of a forward pass.

    Args:
        outs: The outputs.
        residuals: The residuals.
        pullback: The backward pass: maps the residuals and the output cotangents to the operand cotangents.
        axes: The mesh axes along which the backward pass takes and returns unreduced cotangents (one summand per
            device). None by default.
    """

    outs: Sequence[Value]
    residuals: Sequence[Value]
    pullback: BackwardRule
    axes: tuple[str, ...] = ()


ForwardRule: TypeAlias = Callable[[Sequence[Value], Mask], ForwardResult]
"""A forward pass, a function of the operands and a mask of those that are differentiated."""


@final
@frozen(eq=False)
class CustomVJPCall(CustomDerivativeCall):
    """A call of `fun`, which `fwd` differentiates.

    Args:
        fwd: The forward pass, a function of the operands and a mask of those that are differentiated.
        bwd: The user's backward pass, for printing.
        symbolic_zeros: The option of `defvjp`, for printing. False by default.
    """

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
        return evolve(
            self, fun=callables.wrap_in_handler(enter, self.fun), fwd=_wrap_forward_in_handler(enter, self.fwd)
        )

    @override
    def batch_rule(self, mapper: BatchRunner, dims: BatchDims, out: callables.OutDims) -> CustomVJPCall:
        return evolve(self, fwd=_batch_forward(mapper, self.fwd, dims, out))

    @override
    def stage_callables(self, recording: Handler, args: Sequence[Value]) -> tuple[CustomVJP, Sequence[Value]]:
        traced = callables.trace_function(self.fun, recording, args)
        n = len(traced.consts)
        fwd = _rebind_forward(self.label, self.fwd, traced.scope, n)
        return CustomVJP(self.label, traced.jaxpr, fwd, self.bwd, n, self.symbolic_zeros), [*traced.consts, *args]


@final
@frozen(eq=False)
class CustomVJP(CustomDerivativeProgram):
    """A call of `jaxpr`, which `fwd` differentiates.

    Args:
        fwd: The forward pass, a function of the operands and a mask of those that are differentiated.
        bwd: The user's backward pass, for printing.
        num_consts: The number of leading operands that are closed-over values, which are not differentiable. 0 by
            default.
        symbolic_zeros: The option of `defvjp`, for printing. False by default.
    """

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
    def select_outputs(self, used: tuple[bool, ...]) -> CustomVJP:
        return evolve(self, fwd=_select_outputs(self.fwd, used))

    @override
    def batch_rule(self, mapper: BatchRunner, dims: BatchDims, out: callables.OutDims) -> CustomVJP:
        return evolve(self, fwd=_batch_forward(mapper, self.fwd, dims, out))

    @override
    def with_program(self, jaxpr: Jaxpr, consts: int, enter: Callable[[Handler], Handler] | None = None) -> CustomVJP:
        fwd = self.fwd if enter is None else _wrap_forward_in_handler(enter, self.fwd)
        rebound = _rebind_forward(self.label, fwd, callables.EMPTY_CLOSURE, consts)
        return evolve(self, jaxpr=jaxpr, fwd=rebound, num_consts=consts + self.num_consts)

    @override
    def with_extra_outputs(self, extra: ExtraOutputs) -> CustomVJP:
        return evolve(self, jaxpr=extra.jaxpr, fwd=_with_extra_outputs(self.fwd, extra))

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        forward = self.fwd(primals, nonzero_mask(tangents))
        forward = evolve(forward, outs=callables.match_weak_types(forward.outs, self.jaxpr.out_avals))
        return forward.outs, bind_custom_linear(self.label, forward, tangents)


# ------------------------------------------------------------------ forward passes


def _wrap_forward_in_handler(enter: Callable[[Handler], Handler], fwd: ForwardRule) -> ForwardRule:
    scopes = full_scopes()

    @callables.derive(fwd, "within", enter, scopes)
    def entered(primals: Sequence[Value], perturbed: Mask) -> ForwardResult:
        handler = enter(CURRENT.get())
        forward = callables.wrap_in_handler(lambda _: handler, fwd, scopes)(primals, perturbed)
        outs, residuals = callables.unwrap_results(handler, (forward.outs, forward.residuals))
        pullback = callables.wrap_in_handler(enter, forward.pullback, scopes)
        return evolve(forward, outs=outs, residuals=residuals, pullback=pullback)

    return entered


def _rebind_forward(label: str, fwd: ForwardRule, scope: callables.ClosureScope, count: int) -> ForwardRule:
    """Returns the forward pass of a primitive whose first `count` operands are the values its functions closed over."""

    @callables.derive(fwd, scope.cache_key, count)
    def rebound(primals: Sequence[Value], perturbed: Mask) -> ForwardResult:
        if any(perturbed[:count]):
            raise callables.closed_over_error(label)
        consts = primals[:count]
        forward = scope.rebind(fwd, consts)(primals[count:], perturbed[count:])
        closed_over = list(consts) if scope.bind_static else []

        @callables.derive(forward.pullback, scope.cache_key, tuple([c.aval for c in consts]))
        def pull(residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
            k = len(closed_over)
            in_cts = scope.rebind(forward.pullback, residuals[:k])(residuals[k:], cts)
            return [*[Zero(c.aval.tangent()) for c in consts], *in_cts]

        return ForwardResult(forward.outs, [*closed_over, *forward.residuals], pull, forward.axes)

    return rebound if count or scope.named_axes else fwd


def _select_outputs(fwd: ForwardRule, used: tuple[bool, ...]) -> ForwardRule:
    """Returns the forward pass restricted to the outputs in the mask `used`."""

    @callables.derive(fwd, "selected", used)
    def selected(primals: Sequence[Value], perturbed: Mask) -> ForwardResult:
        forward = fwd(primals, perturbed)
        avals = [o.aval for o in forward.outs]

        @callables.derive(forward.pullback, "selected", used)
        def pull(residuals: Sequence[Value], cts: Sequence[Tangent]) -> Sequence[Tangent]:
            return forward.pullback(residuals, insert_zeros(cts, used, avals))

        return ForwardResult(select_masked(forward.outs, used), forward.residuals, pull, forward.axes)

    return selected


def _with_extra_outputs(fwd: ForwardRule, extra: ExtraOutputs) -> ForwardRule:
    """Extends the forward pass to additional outputs by the jaxpr and its JVP."""

    @callables.derive(fwd, extra)
    def extended(primals: Sequence[Value], perturbed: Mask) -> ForwardResult:
        n = extra.operands
        outs = eval_jaxpr(extra.jaxpr, (), primals)
        forward, num_primals = fwd(primals[n:], perturbed[n:]), len(primals)

        @callables.derive(forward.pullback, extra, perturbed)
        def pull(residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
            saved_primals = residuals[:num_primals]
            rule_cts = [
                *[Zero(x.aval.tangent()) for x in saved_primals[:n]],
                *forward.pullback(residuals[num_primals:], extra.rule_outputs(cts)),
            ]
            other_cts = extra.merge(cts, [Zero(ct.aval) for ct in extra.rule_outputs(cts)])
            if not any(nonzero_mask(other_cts)):
                return rule_cts
            derived = jvp_jaxpr(extra.jaxpr, perturbed)

            def forwards(*tangents: Value) -> list[Value]:
                both = eval_jaxpr(derived.jaxpr, (), [*derived.consts, *saved_primals, *tangents])
                return both[len(extra.jaxpr.outs) :]

            avals = [x.aval.tangent() for x in select_masked(saved_primals, perturbed)]
            nonzero_cts = callables.transpose_function(
                forwards, avals, lambda: select_masked(other_cts, derived.out_nonzero)
            )
            jaxpr_cts = merge_masked(
                perturbed, nonzero_cts, [Zero(x.aval.tangent()) for x in select_unmasked(saved_primals, perturbed)]
            )
            return [add_tangents(x, y) for x, y in zip(rule_cts, jaxpr_cts, strict=True)]

        return ForwardResult(outs, [*primals, *forward.residuals], pull, forward.axes)

    return extended


def _batch_forward(mapper: BatchRunner, fwd: ForwardRule, dims: BatchDims, out: callables.OutDims) -> ForwardRule:
    """Returns the forward pass for a whole batch, with batched outputs as `out` determines."""

    @callables.derive(fwd, "mapped", mapper.axis, tuple(dims), out.settled)
    def batched(primals: Sequence[Value], perturbed: Mask) -> ForwardResult:
        results: list[ForwardResult] = []

        def both(*values: Value) -> list[Value]:
            forward = fwd(values, perturbed)
            results.append(forward)
            return [*forward.outs, *forward.residuals]

        values, value_dims = mapper.run(both, primals, dims)
        (forward,) = results
        n = len(forward.outs)
        settled = out.settle(value_dims[:n])
        outs = list(map(out.move_axis_first, values[:n], value_dims[:n], settled))
        pull = _batch_pullback(
            mapper, forward.pullback, value_dims[n:], [o.aval for o in forward.outs], out.of(outs), dims
        )
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
    """Returns the backward pass for a whole batch; cotangents of operands that are not batched are summed.

    Args:
        mapper: runs functions once for the batch.
        pull: the backward pass of one batch element.
        dims: the batch axis of each residual.
        out_avals: the avals of the outputs of one batch element.
        out_dims: the batch axis of each output.
        in_dims: the batch axis of each operand.
    """
    mapped = any(d is not None for d in out_dims)

    @callables.derive(pull, mapper.axis, tuple(dims), tuple(out_avals), tuple(out_dims), tuple(in_dims))
    def batched(residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
        n, mask = len(residuals), nonzero_mask(cts)
        in_nonzero: Mask = ()
        in_avals: list[ShapedArray] = []

        def back(*values: Value) -> list[Value]:
            nonlocal in_nonzero, in_avals
            in_cts = pull(values[:n], insert_zeros(values[n:], mask, out_avals))
            in_nonzero, in_avals = nonzero_mask(in_cts), [ct.aval for ct in in_cts]
            return drop_zeros(in_cts)

        results, result_dims = mapper.run(back, [*residuals, *drop_zeros(cts)], [*dims, *select_masked(out_dims, mask)])
        pairs = zip(results, result_dims, strict=True)
        return [
            (
                _move_or_sum_axis(mapper.axis, *next(pairs), dim, mapped)
                if nonzero
                else Zero(aval if dim is None else mapper.axis.add_to(aval, dim))
            )
            for nonzero, aval, dim in zip(in_nonzero, in_avals, in_dims, strict=True)
        ]

    return batched


def _move_or_sum_axis(axis: MappedAxis, ct: Value, dim: int | None, target: int | None, mapped: bool) -> Value:
    """Moves the batch axis of a cotangent to `target`, or sums along it if that is `None`."""
    if target is not None:
        return move_axis(batch_first(ct, dim, axis), 0, target)
    if dim is None and not mapped:
        return ct
    return reduce_sum(batch_first(ct, dim, axis), (0,))


# ------------------------------------------------------------------ the linear map of tangents


def bind_custom_linear(label: str, forward: ForwardResult, tangents: Sequence[Tangent]) -> list[Tangent]:
    """Returns the output tangents: a linear map that is known by its transpose, and bound without being computed."""
    avals = [o.aval.tangent() for o in forward.outs]
    prim = CustomLinear(
        label, forward.pullback, len(forward.residuals), nonzero_mask(tangents), tuple(avals), axes=forward.axes
    )
    if not any(prim.out_nonzero):
        return [Zero(a) for a in avals]
    return insert_zeros(bind(prim, *forward.residuals, *drop_zeros(tangents)), prim.out_nonzero, avals)


@frozen(eq=False)
class CustomLinear(Primitive, Expandable, Differentiable, Transposable, HasCallables):
    """The linear map whose transpose is the backward pass `pullback`.

    The first operands are `residuals` residuals; the others are the tangents of those operands of the function that are
    in the mask `in_nonzero`. The outputs are the tangents of the function's outputs, without those that have none.

    Reverse mode only transposes it, which calls the backward pass, linear or not. Forward mode evaluates it: by `push`,
    a function of all operands, or without one by transposing the backward pass, which must then be linear.

    Args:
        label: The name of the function.
        pullback: The backward pass: maps the residuals and the output cotangents to the operand cotangents.
        residuals: The number of residuals.
        in_nonzero: The mask of the function's operands that have a tangent.
        out_avals: The avals of the tangents of all outputs of the function.
        push: The map itself; by default, `None`: the transpose of the backward pass.
        axes: The mesh axes along which the backward pass takes and returns unreduced cotangents. None by default.
    """

    name = "custom_lin"
    label: str = field(metadata={"print": "name"})
    pullback: BackwardRule = field(metadata={"print": "bwd"})
    residuals: int = field(metadata={"print": "num_res"})
    in_nonzero: Mask
    out_avals: tuple[ShapedArray, ...]
    push: callables.FlatFunction | None = field(default=None, metadata={"hide_default": True})
    axes: tuple[str, ...] = field(default=(), metadata={"hide_default": True})

    @property
    @override
    def effects(self) -> Effects:
        # So that transposing a jaxpr with this primitive uses unreduced cotangents.
        return frozenset([NamedAxisEffect(name) for name in self.axes])

    @property
    def out_nonzero(self) -> Mask:
        """Which outputs of the function have a tangent."""
        return tuple([a.dtype != float0 for a in self.out_avals])

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return callables.require_no_tracers(self.label, self.expand(*args))

    @override
    def stage_callables(self, recording: Handler, args: Sequence[Value]) -> tuple[StagedLinear, Sequence[Value]]:
        """Makes tracers that the two functions close over residuals, if they can be traced now."""
        prim = StagedLinear(
            self.label, self.pullback, self.residuals, self.in_nonzero, self.out_avals, self.push, self.axes
        )
        if type(recording) is not Stage:
            return prim, args
        n = self.residuals

        def pulled(*values: Value) -> list[Value]:
            return list(map(instantiate, self.cotangents(values[:n], values[n:])))

        avals = [x.aval for x in args[:n]] + select_masked(self.out_avals, self.out_nonzero)
        found = callables.stage_for_closure(self.pullback, pulled, avals, recording)
        if self.push is not None:
            found += callables.stage_for_closure(self.push, self.push, [x.aval for x in args], recording)
        closed_over = tuple({id(x): x for x in found}.values())
        if not closed_over:
            return prim, args
        scope, pull, push = callables.ClosureScope(closed_over, recording.axes), self.pullback, self.push

        @callables.derive(pull, scope.cache_key)
        def rebound(residuals: Sequence[Value], cts: Sequence[Tangent]) -> Sequence[Tangent]:
            return scope.rebind(pull, residuals[: len(closed_over)])(residuals[len(closed_over) :], cts)

        if push is not None:

            @callables.derive(push, scope.cache_key)
            def rebound_push(*values: Value) -> Sequence[Value]:
                return scope.rebind(push, values[: len(closed_over)])(*values[len(closed_over) :])

            prim = evolve(prim, push=rebound_push)
        return evolve(prim, pullback=rebound, residuals=n + len(closed_over)), [*closed_over, *args]

    @override
    def wrap_callables(self, enter: Callable[[Handler], Handler]) -> CustomLinear:
        push = None if self.push is None else callables.wrap_in_handler(enter, self.push)
        return evolve(self, pullback=callables.wrap_in_handler(enter, self.pullback), push=push)

    def cotangents(self, residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
        """Returns the cotangents of the tangent operands."""
        full = insert_zeros(cts, self.out_nonzero, self.out_avals)
        return select_masked(self.pullback(residuals, full), self.in_nonzero)

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        n = self.residuals
        residuals = known_values(args[:n])
        if len(residuals) < n:
            raise not_linear_error(self)
        in_cts = (
            self.cotangents(residuals, cts) if self.push is None else self.bind_transposed(residuals, cts, args[n:])
        )
        return [
            *[None] * n,
            *[ct if isinstance(x, UndefinedPrimal) else None for ct, x in zip(in_cts, args[n:], strict=True)],
        ]

    def bind_transposed(
        self, residuals: Sequence[Value], cts: Sequence[Tangent], operands: Sequence[Value | UndefinedPrimal]
    ) -> Sequence[Value]:
        """Binds the transpose as a `CustomLinear` whose own transpose is this map."""
        push, pull = self.push, self.pullback
        assert push is not None
        mask, n, out_avals = nonzero_mask(cts), len(residuals), self.out_avals

        @callables.derive(pull, "pushed", mask, out_avals)
        def forwards(*values: Value) -> list[Value]:
            return [instantiate(ct) for ct in pull(values[:n], insert_zeros(values[n:], mask, out_avals))]

        @callables.derive(push, "pulled")
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
            jaxpr, consts = callables.partial_eval_function(pulled, avals)
        except ConcretizationError as error:
            raise self.not_transposable("depends on the values of its cotangents") from error
        if _adds_a_constant(jaxpr, consts):
            raise self.not_transposable("adds a constant to its cotangents")
        try:
            out_tangents = backward_pass(jaxpr, consts, [UndefinedPrimal(a) for a in avals], tangents)
        except (MissingRuleError, TypeError) as error:
            raise self.not_transposable("is not linear in its cotangents") from error
        except ValueError as error:  # a loop without a bound
            raise self.not_transposable("cannot be transposed") from error
        return [
            instantiate(match_aval(Zero(a) if t is None else t, a)) for t, a in zip(out_tangents, avals, strict=True)
        ]

    def not_transposable(self, why: str) -> NotLinearError:
        """Returns the error for a backward pass that has no transpose."""
        return NotLinearError(
            f"forward-mode differentiation of {self.label} transposes its backward pass, which {why}. Reverse mode "
            "(grad, vjp, jacrev) calls the backward pass without transposing it, and so does forward mode around "
            f"reverse mode if the forward pass does not call {self.label}; or give {self.label} a derivative with "
            "custom_jvp"
        )

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        """Applies the map to tangents of its tangent operands, and differentiates it with respect to its residuals."""
        n = self.residuals
        map_tangents: Sequence[Tangent] = [Zero(a.tangent()) for a in select_masked(self.out_avals, self.out_nonzero)]
        mask = iter(nonzero_mask(tangents[n:]))
        moving = tuple([m and next(mask) for m in self.in_nonzero])
        if any(moving):
            map_tangents = self.bind_nonzero(moving, primals[:n], tangents[n:])
        if not any(nonzero_mask(tangents[:n])):
            return bind(self, *primals), map_tangents
        handler = JVP(CURRENT.get())
        duals = [*map(handler.wrap, primals[:n], tangents[:n]), *primals[n:]]
        pairs = list(map(handler.unwrap, call_under(handler, self.expand, *duals)))
        return [p for p, _ in pairs], [add_tangents(t, m) for (_, t), m in zip(pairs, map_tangents, strict=True)]

    def bind_nonzero(self, moving: Mask, residuals: Sequence[Value], tangents: Sequence[Tangent]) -> Sequence[Value]:
        """Applies the map to tangents of its operands, some of which may be `Zero`."""
        if self.push is not None:  # `push` takes all operands
            return bind(self, *residuals, *map(instantiate, tangents))
        return bind(evolve(self, in_nonzero=moving), *residuals, *drop_zeros(tangents))

    @override
    def batch_callables(
        self, mapper: BatchRunner, args: Sequence[Value], dims: BatchDims
    ) -> tuple[Sequence[Value], BatchDims]:
        n, size = self.residuals, mapper.axis.size
        remaining = iter(dims[n:])
        in_dims = [next(remaining) if m else None for m in self.in_nonzero]
        out_dims = [0] * len(self.out_avals)
        pull = _batch_pullback(mapper, self.pullback, dims[:n], self.out_avals, out_dims, in_dims)
        outs = tuple([a.with_axis(size, 0) for a in self.out_avals])
        out = callables.OutDims(self.label, mapper.axis, True)
        push = None if self.push is None else callables.batch_function(mapper, self.push, dims, out)
        return bind(evolve(self, pullback=pull, out_avals=outs, push=push), *args), [0] * sum(self.out_nonzero)


@final
class StagedLinear(CustomLinear):
    """A `CustomLinear` in a jaxpr."""

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return select_masked(self.out_avals, self.out_nonzero)

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [out.spec for out in outs]


def _adds_a_constant(jaxpr: Jaxpr, consts: Sequence[Value]) -> bool:
    """Whether a supposedly linear jaxpr adds or subtracts a constant that is known not to be zero."""
    const_values = dict(zip(jaxpr.constvars, consts, strict=True))
    operands = [
        x if isinstance(x, Literal) else const_values.get(x)
        for eqn in jaxpr.eqns
        if eqn.prim.name in ("add", "sub")
        for x in eqn.inputs
    ]
    return any(isinstance(x, ConcreteArray | Literal) and bool(to_numpy(x).any()) for x in operands)
