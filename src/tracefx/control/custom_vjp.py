"""Functions with a backward pass of their own, as operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.bodies import chosen, merged, nonzero, others, present, spread
from tracefx.control.custom_jvp import shown_count
from tracefx.control.functions import (
    NOWHERE,
    Dims,
    Flat,
    OutDims,
    Scope,
    body,
    closes_over,
    evaluated,
    let_out,
    made_from,
    mapped_function,
    may_close_over,
    program_of,
    pulled_back,
    typed,
    within,
)
from tracefx.control.ruled import Among, RuledCall, RuledProgram
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import float0
from tracefx.core.effects import Effects, NamedAxis
from tracefx.core.errors import ConcretizationError, MissingRuleError, NotLinearError
from tracefx.core.handler import CURRENT, ROOT, Handler, Tracer, bind
from tracefx.core.jaxpr import Jaxpr, eval_jaxpr
from tracefx.core.literal import Literal
from tracefx.core.passes import Prunable, dce
from tracefx.core.primitive import (
    Differentiable,
    Expandable,
    HoldsFunctions,
    Linear,
    MappedAxis,
    Mapper,
    Primitive,
    Tangent,
    Transposable,
    Zero,
    not_linear,
)
from tracefx.core.printer import ShownAsJax
from tracefx.core.values import ConcreteArray, Value, to_numpy
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.derived import Mask, batch_jaxpr, jvp_jaxpr
from tracefx.interpreters.jvp import JVP
from tracefx.interpreters.stage import Stage, stage
from tracefx.interpreters.transpose import backward
from tracefx.ops.basis import batch_first, fit, instantiate, move_axis, reduce_sum
from tracefx.ops.elementwise import add_tangents

Pull: TypeAlias = Callable[[Sequence[Value], Sequence[Tangent]], Sequence[Tangent]]
"""Residuals and the cotangents of the outputs to the cotangents of the operands."""


@final
@frozen(eq=False)
class Forward:
    """What the forward pass gives: outputs, what to keep for the backward pass, and the backward pass."""

    outs: Sequence[Value]
    residuals: Sequence[Value]
    pull: Pull
    axes: tuple[str, ...] = ()
    """The axes of a mesh along which the backward pass takes and gives shares of cotangents."""


ForwardRule: TypeAlias = Callable[[Sequence[Value], Mask], Forward]
"""The forward pass, which is told which operands are differentiated."""


@final
@frozen(eq=False)
class CustomVJPCall(RuledCall):
    """A call of `fun`, which `fwd` differentiates. `bwd` is the user's backward pass, to be shown."""

    name = "custom_vjp_call"
    fwd: ForwardRule
    bwd: Callable[..., object]
    symbolic_zeros: bool = False

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        forward = self.fwd(primals, nonzero(tangents))
        return forward.outs, pushed(self.label, forward, tangents)

    @override
    def within(self, enter: Callable[[Handler], Handler]) -> CustomVJPCall:
        return evolve(self, fun=within(enter, self.fun), fwd=_forward_within(enter, self.fwd))

    @override
    def mapped(
        self, mapper: Mapper, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        out = OutDims(self.label, mapper.axis, any(d is not None for d in dims))
        fun, fwd = mapped_function(mapper, self.fun, dims, out), _mapped_forward(mapper, self.fwd, dims, out)
        outs = bind(evolve(self, fun=fun, fwd=fwd), *args)
        return outs, out.of(outs)

    @override
    def staged(self, recording: Handler, args: Sequence[Value]) -> tuple[CustomVJP, Sequence[Value]]:
        traced = body(self.fun, recording, args)
        n = len(traced.consts)
        fwd = _hosted_forward(self.label, self.fwd, traced.scope, n)
        return CustomVJP(self.label, traced.jaxpr, fwd, self.bwd, n, self.symbolic_zeros), [*traced.consts, *args]


@final
@frozen(eq=False)
class CustomVJP(RuledProgram, Prunable, ShownAsJax):
    """A call of `jaxpr`, which `fwd` differentiates. The first `num_consts` operands have no derivative."""

    name = "custom_vjp_call"
    fwd: ForwardRule = field(metadata={"erased": True})
    bwd: Callable[..., object] = field(metadata={"erased": True})
    num_consts: int = field(default=0, metadata={"hide_default": True, "erased": True})
    symbolic_zeros: bool = field(default=False, metadata={"hide_default": True, "erased": True})

    @override
    def jax_params(self) -> Mapping[str, object]:
        params = {"name": self.label, "call_jaxpr": self.jaxpr, "fwd": self.fwd, "bwd": self.bwd}
        return params | {"symbolic_zeros": self.symbolic_zeros} | shown_count(self.num_consts)

    @override
    def prune(self, used_outs: tuple[bool, ...]) -> tuple[CustomVJP, tuple[bool, ...], tuple[bool, ...]]:
        """The operands stay: the forward pass may use what the function does not."""
        jaxpr = dce(self.jaxpr, used_outs)
        if jaxpr is self.jaxpr:
            return self, (True,) * len(jaxpr.invars), used_outs
        fwd = self.fwd if all(used_outs) else _selected(self.fwd, used_outs)
        return evolve(self, jaxpr=jaxpr, fwd=fwd), (True,) * len(jaxpr.invars), used_outs

    @override
    def with_program(self, jaxpr: Jaxpr, consts: int, enter: Callable[[Handler], Handler]) -> CustomVJP:
        fwd = _hosted_forward(self.label, _forward_within(enter, self.fwd), NOWHERE, consts)
        return evolve(self, jaxpr=jaxpr, fwd=fwd, num_consts=consts + self.num_consts)

    @override
    def among(self, among: Among) -> CustomVJP:
        return evolve(self, jaxpr=among.jaxpr, fwd=_among(self.fwd, among))

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        forward = self.fwd(primals, nonzero(tangents))
        forward = evolve(forward, outs=typed(forward.outs, self.jaxpr.out_avals))
        return forward.outs, pushed(self.label, forward, tangents)

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        forced = (any(d is not None for d in dims),) * len(self.jaxpr.outs)
        derived = batch_jaxpr(self.jaxpr, axis, tuple(dims), forced)
        fwd = _mapped_forward(Batch(ROOT, axis), self.fwd, dims, OutDims(self.label, axis, derived.out_dims))
        n = len(derived.consts)
        prim = evolve(
            self,
            jaxpr=derived.jaxpr,
            fwd=_hosted_forward(self.label, fwd, NOWHERE, n),
            num_consts=n + self.num_consts,
        )
        return bind(prim, *derived.consts, *args), derived.out_dims


# ------------------------------------------------------------------ forward passes


def _forward_within(enter: Callable[[Handler], Handler], fwd: ForwardRule) -> ForwardRule:
    @made_from(fwd, "within", enter)
    def entered(primals: Sequence[Value], perturbed: Mask) -> Forward:
        handler = enter(CURRENT.get())
        forward = within(lambda _: handler, fwd)(primals, perturbed)
        outs, residuals = let_out(handler, (forward.outs, forward.residuals))
        return evolve(forward, outs=outs, residuals=residuals, pull=within(enter, forward.pull))

    return entered


def _hosted_forward(label: str, fwd: ForwardRule, scope: Scope, count: int) -> ForwardRule:
    """The forward pass of an operation whose first `count` operands are what its functions closed over."""

    @made_from(fwd, scope.key, count)
    def hosted(primals: Sequence[Value], perturbed: Mask) -> Forward:
        if any(perturbed[:count]):
            raise closes_over(label)
        consts = primals[:count]
        forward = scope.around(fwd, consts)(primals[count:], perturbed[count:])
        kept = list(consts) if scope.held else []

        @made_from(forward.pull, scope.key, tuple([c.aval for c in consts]))
        def pull(residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
            k = len(kept)
            found = scope.around(forward.pull, residuals[:k])(residuals[k:], cts)
            return [*[Zero(c.aval.tangent()) for c in consts], *found]

        return Forward(forward.outs, [*kept, *forward.residuals], pull, forward.axes)

    return hosted if count or scope.named else fwd


def _selected(fwd: ForwardRule, used: tuple[bool, ...]) -> ForwardRule:
    """The forward pass for those of the outputs that are used."""

    @made_from(fwd, "selected", used)
    def some(primals: Sequence[Value], perturbed: Mask) -> Forward:
        forward = fwd(primals, perturbed)
        avals = [o.aval for o in forward.outs]

        @made_from(forward.pull, "selected", used)
        def pull(residuals: Sequence[Value], cts: Sequence[Tangent]) -> Sequence[Tangent]:
            given = iter(cts)
            return forward.pull(
                residuals, [next(given) if u else Zero(a.tangent()) for u, a in zip(used, avals, strict=True)]
            )

        return Forward(chosen(forward.outs, used), forward.residuals, pull, forward.axes)

    return some


def _among(fwd: ForwardRule, among: Among) -> ForwardRule:
    """The forward pass, and for all else the program and its derivative."""

    @made_from(fwd, among)
    def all_of_it(primals: Sequence[Value], perturbed: Mask) -> Forward:
        n = among.operands
        outs = eval_jaxpr(among.jaxpr, (), primals)
        forward, kept = fwd(primals[n:], perturbed[n:]), len(primals)

        @made_from(forward.pull, among, perturbed)
        def pull(residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
            at = residuals[:kept]
            found = [*[Zero(x.aval.tangent()) for x in at[:n]], *forward.pull(residuals[kept:], among.ours(cts))]
            rest = among.put(cts, [Zero(ct.aval) for ct in among.ours(cts)])
            if not any(nonzero(rest)):
                return found
            derived = jvp_jaxpr(among.jaxpr, perturbed)

            def forwards(*tangents: Value) -> list[Value]:
                both = eval_jaxpr(derived.jaxpr, (), [*derived.consts, *at, *tangents])
                return both[len(among.jaxpr.outs) :]

            avals = [x.aval.tangent() for x in chosen(at, perturbed)]
            pulled = pulled_back(forwards, avals, lambda: chosen(rest, derived.out_nonzero))
            more = merged(perturbed, pulled, [Zero(x.aval.tangent()) for x in others(at, perturbed)])
            return [add_tangents(x, y) for x, y in zip(found, more, strict=True)]

        return Forward(outs, [*primals, *forward.residuals], pull, forward.axes)

    return all_of_it


def _mapped_forward(mapper: Mapper, fwd: ForwardRule, dims: Dims, out: OutDims) -> ForwardRule:
    @made_from(fwd, "mapped", mapper.axis, tuple(dims), out.key)
    def batched(primals: Sequence[Value], perturbed: Mask) -> Forward:
        made: list[Forward] = []

        def both(*values: Value) -> list[Value]:
            forward = fwd(values, perturbed)
            made.append(forward)
            return [*forward.outs, *forward.residuals]

        values, found = mapper.run(both, primals, dims)
        (forward,) = made
        n = len(forward.outs)
        settled = out.settle(found[:n])
        outs = list(map(out.place, values[:n], found[:n], settled))
        pull = _mapped_pull(mapper, forward.pull, found[n:], [o.aval for o in forward.outs], out.of(outs), dims)
        return Forward(outs, values[n:], pull, forward.axes)

    return batched


def _mapped_pull(
    mapper: Mapper, pull: Pull, dims: Dims, out_avals: Sequence[ShapedArray], out_dims: Dims, in_dims: Dims
) -> Pull:
    """The backward pass of a whole batch. An operand alike for all of it has the sum of their cotangents.

    `dims` are those of the residuals, `out_avals` the types of one example's outputs.
    """
    mapped = any(d is not None for d in out_dims)

    @made_from(pull, mapper.axis, tuple(dims), tuple(out_avals), tuple(out_dims), tuple(in_dims))
    def batched(residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
        n, mask = len(residuals), nonzero(cts)
        found_mask: Mask = ()
        zeros: list[ShapedArray] = []

        def back(*values: Value) -> list[Value]:
            nonlocal found_mask, zeros
            found = pull(values[:n], spread(values[n:], mask, out_avals))
            found_mask, zeros = nonzero(found), [ct.aval for ct in found]
            return present(found)

        results, found_dims = mapper.run(back, [*residuals, *present(cts)], [*dims, *chosen(out_dims, mask)])
        pairs = zip(results, found_dims, strict=True)
        size = mapper.axis.size
        return [
            (_fitted(mapper.axis, *next(pairs), dim, mapped) if live else Zero(_spread_aval(aval, size, dim)))
            for live, aval, dim in zip(found_mask, zeros, in_dims, strict=True)
        ]

    return batched


def _fitted(axis: MappedAxis, ct: Value, dim: int | None, target: int | None, mapped: bool) -> Value:
    """A cotangent with its batch axis at `target`, or summed along it."""
    if target is not None:
        return move_axis(batch_first(ct, dim, axis), 0, target)
    if dim is None and not mapped:
        return ct
    return reduce_sum(batch_first(ct, dim, axis), (0,))


def _spread_aval(aval: ShapedArray, size: int, dim: int | None) -> ShapedArray:
    return aval if dim is None else aval.with_axis(size, dim)


# ------------------------------------------------------------------ the linear part


def pushed(label: str, forward: Forward, tangents: Sequence[Tangent]) -> list[Tangent]:
    """The tangents of the outputs: a linear map that is known by its transpose, and bound without being computed."""
    avals = [o.aval.tangent() for o in forward.outs]
    prim = CustomLinear(label, forward.pull, len(forward.residuals), nonzero(tangents), tuple(avals), axes=forward.axes)
    if not any(prim.live):
        return [Zero(a) for a in avals]
    return spread(bind(prim, *forward.residuals, *present(tangents)), prim.live, avals)


@frozen(eq=False)
class CustomLinear(Primitive, Expandable, Differentiable, Transposable, HoldsFunctions):
    """The linear map whose transpose is `pull`, a backward pass, at `residuals`, the first operands.

    The other operands are the tangents of those operands of the function that are marked in `nonzero`, the outputs
    the tangents of its outputs, without those that have none. Transposed, which is all that reverse mode asks, it
    calls the backward pass, linear or not. Computed forwards, it calls `push`, a function of all operands, or, where
    there is none, transposes the backward pass, which must be linear.
    """

    name = "custom_lin"
    label: str = field(metadata={"print": "name"})
    pull: Pull = field(metadata={"print": "bwd"})
    residuals: int = field(metadata={"print": "num_res"})
    nonzero: Mask
    out_avals: tuple[ShapedArray, ...]
    push: Flat | None = field(default=None, metadata={"hide_default": True})
    axes: tuple[str, ...] = field(default=(), metadata={"hide_default": True})
    """Those of `Forward`."""

    @property
    @override
    def effects(self) -> Effects:
        # So that who runs a program with it backwards runs it on shares.
        return frozenset([NamedAxis(name) for name in self.axes])

    @property
    def live(self) -> Mask:
        """Which outputs of the function have a tangent."""
        return tuple([a.dtype != float0 for a in self.out_avals])

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return evaluated(self.label, self.expand(*args))

    @override
    def staged(self, recording: Handler, args: Sequence[Value]) -> tuple[StagedLinear, Sequence[Value]]:
        """What the backward pass closes over become residuals, if it can run when the trace is over."""
        prim = StagedLinear(self.label, self.pull, self.residuals, self.nonzero, self.out_avals, self.push, self.axes)
        if type(recording) is not Stage or not may_close_over(self.pull):
            return prim, args
        n = self.residuals

        def pulled(*values: Value) -> list[Value]:
            return list(map(instantiate, self.cotangents(values[:n], values[n:])))

        avals = [x.aval for x in args[:n]] + chosen(self.out_avals, self.live)
        try:
            _, consts = stage(pulled, avals, recording, along=[frozenset()] * len(avals))
        except ConcretizationError:  # it depends on values, and may yet be given them
            return prim, args
        held = tuple([c for c in consts if isinstance(c, Tracer)])
        if not held:
            return prim, args
        scope, pull = Scope(held, recording.axes, recording.checked), self.pull

        @made_from(pull, scope.key)
        def hosted(residuals: Sequence[Value], cts: Sequence[Tangent]) -> Sequence[Tangent]:
            return scope.around(pull, residuals[: len(held)])(residuals[len(held) :], cts)

        return evolve(prim, pull=hosted, residuals=n + len(held)), [*held, *args]

    @override
    def within(self, enter: Callable[[Handler], Handler]) -> CustomLinear:
        push = None if self.push is None else within(enter, self.push)
        return evolve(self, pull=within(enter, self.pull), push=push)

    def cotangents(self, residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
        """Cotangents of the tangents that are operands, from those of the outputs."""
        given = iter(cts)
        full = [next(given) if live else Zero(a) for live, a in zip(self.live, self.out_avals, strict=True)]
        return chosen(self.pull(residuals, full), self.nonzero)

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | Linear) -> Sequence[Tangent | None]:
        n = self.residuals
        residuals = [x for x in args[:n] if not isinstance(x, Linear)]
        if len(residuals) < n:
            raise not_linear(self)
        found = self.cotangents(residuals, cts) if self.push is None else self.reversed(residuals, cts, args[n:])
        return [*[None] * n, *[ct if isinstance(x, Linear) else None for ct, x in zip(found, args[n:], strict=True)]]

    def reversed(
        self, residuals: Sequence[Value], cts: Sequence[Tangent], operands: Sequence[Value | Linear]
    ) -> Sequence[Value]:
        """The transpose, as an operation whose transpose is this one."""
        push, pull = self.push, self.pull
        assert push is not None
        mask, n, out_avals = nonzero(cts), len(residuals), self.out_avals

        @made_from(pull, "pushed", mask, out_avals)
        def forwards(*values: Value) -> list[Value]:
            return [instantiate(ct) for ct in pull(values[:n], spread(values[n:], mask, out_avals))]

        @made_from(push, "pulled")
        def back(residuals: Sequence[Value], cts: Sequence[Tangent]) -> Sequence[Tangent]:
            return push(*residuals, *map(instantiate, cts))

        avals = tuple([x.aval.tangent() for x in operands])
        prim = CustomLinear(self.label, back, n, mask, avals, forwards)
        return bind(prim, *residuals, *present(cts))

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        if self.push is not None:
            return self.push(*args)
        n = self.residuals
        residuals, tangents = args[:n], args[n:]
        avals = chosen(self.out_avals, self.live)

        def pulled(*cts: Value) -> list[Value]:
            return [instantiate(ct) for ct in self.cotangents(residuals, cts)]

        try:
            jaxpr, consts = program_of(pulled, avals)
        except ConcretizationError as error:
            raise self.only_backwards("depends on the values of its cotangents") from error
        if _adds_a_constant(jaxpr, consts):
            raise self.only_backwards("adds to its cotangents what doesn't depend on them")
        try:
            found = backward(jaxpr, consts, [Linear(a) for a in avals], tangents)
        except (MissingRuleError, TypeError) as error:
            raise self.only_backwards("is not linear in its cotangents") from error
        except ValueError as error:  # of a loop that has no bound
            raise self.only_backwards("cannot be transposed") from error
        return [instantiate(fit(Zero(a) if t is None else t, a)) for t, a in zip(found, avals, strict=True)]

    def only_backwards(self, why: str) -> NotLinearError:
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
        moved: Sequence[Tangent] = [Zero(a.tangent()) for a in chosen(self.out_avals, self.live)]
        mask = iter(nonzero(tangents[n:]))
        moving = tuple([m and next(mask) for m in self.nonzero])
        if any(moving):
            moved = self.of_some(moving, primals[:n], tangents[n:])
        if not any(nonzero(tangents[:n])):
            return bind(self, *primals), moved
        handler = JVP(CURRENT.get())
        duals = [*map(handler.wrap, primals[:n], tangents[:n]), *primals[n:]]
        token = CURRENT.set(handler)
        try:
            pairs = list(map(handler.unwrap, self.expand(*duals)))
        finally:
            CURRENT.reset(token)
        return [p for p, _ in pairs], [add_tangents(t, m) for (_, t), m in zip(pairs, moved, strict=True)]

    def of_some(self, moving: Mask, residuals: Sequence[Value], tangents: Sequence[Tangent]) -> Sequence[Value]:
        """The map on tangents of its operands, of which some may be zeros."""
        if self.push is not None:  # which takes all operands
            return bind(self, *residuals, *map(instantiate, tangents))
        return bind(evolve(self, nonzero=moving), *residuals, *present(tangents))

    @override
    def mapped(
        self, mapper: Mapper, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        n, size = self.residuals, mapper.axis.size
        given = iter(dims[n:])
        in_dims = [next(given) if m else None for m in self.nonzero]
        out_dims = [0] * len(self.out_avals)
        pull = _mapped_pull(mapper, self.pull, dims[:n], self.out_avals, out_dims, in_dims)
        outs = tuple([a.with_axis(size, 0) for a in self.out_avals])
        out = OutDims(self.label, mapper.axis, True)
        push = None if self.push is None else mapped_function(mapper, self.push, dims, out)
        return bind(evolve(self, pull=pull, out_avals=outs, push=push), *args), [0] * sum(self.live)


@final
class StagedLinear(CustomLinear):
    """The map in a program."""

    __slots__ = ()

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return chosen(self.out_avals, self.live)


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
