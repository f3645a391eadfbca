"""What operations that hold the user's functions share: running them elsewhere, and once for a whole batch.

Such a function takes and gives values. It may close over tracers, and be called long after the handler that made them
has done its work. The program that was recorded takes them as operands then, and `ClosureRebinder` puts those in their
place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import FunctionType, MappingProxyType
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar, cast, final

from attrs import evolve, frozen
from typing_extensions import ParamSpec, override

from tracefx.control.control_flow import drop_zeros, linear_mask, merge_masked, nonzero_mask, select_masked
from tracefx.core.avals import ShapedArray
from tracefx.core.callables import BatchRunner, HasCallables
from tracefx.core.equality import StrictlyEqual
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import CURRENT, NO_AXES, NOT_CHECKED, ROOT, Handler, Tracer, bind1, varies
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import MappedAxis, Primitive, Tangent, UndefinedPrimal, Zero
from tracefx.core.values import Value
from tracefx.errors import ClosedOverTracerError
from tracefx.interpreters.partial_eval import PartialEval
from tracefx.interpreters.stage import stage
from tracefx.interpreters.transpose import backward_pass
from tracefx.ops.collectives.pvary import PVary
from tracefx.ops.structural import batch_first, convert_value
from tracefx.text.printer import callable_name

P = ParamSpec("P")
R = TypeVar("R")
FlatFunction: TypeAlias = Callable[..., Sequence[Value]]
"""A function of values to values."""
BatchDims: TypeAlias = Sequence[int | None]

# ------------------------------------------------------------------ functions that equal each other


@final
class DerivedCallable(StrictlyEqual, Generic[P, R]):
    """A function made from another one, whose name it has. What was made in one way from one function is equal."""

    def __init__(self, call: Callable[P, R], source: Callable[..., object], how: tuple[object, ...]) -> None:
        self.__qualname__ = callable_name(source)
        self._call = call
        self.source = source
        self._how = how

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._call(*args, **kwargs)

    @override
    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, DerivedCallable) and self._how == other._how and self.source == other.source
        )

    @override
    def __hash__(self) -> int:
        return hash((self._how, self.source))


def derive(source: Callable[..., object], *how: object) -> Callable[[Callable[P, R]], DerivedCallable[P, R]]:
    """Decorates the function that is made from `source`; `how` is all that it depends on besides."""
    return lambda call: DerivedCallable(call, source, how)


def may_close_over(f: Callable[..., object]) -> bool:
    """Whether a function may close over values: a plain function of a module does not."""
    while isinstance(f, DerivedCallable):
        f = f.source
    return not isinstance(f, FunctionType) or f.__closure__ is not None


# ------------------------------------------------------------------ handlers in force in a function


def wrap_in_handler(enter: Callable[[Handler], Handler], f: Callable[P, R]) -> Callable[P, R]:
    """The function, run under `enter` of the handler that is current then."""

    @derive(f, "within", enter)
    def entered(*args: P.args, **kwargs: P.kwargs) -> R:
        handler = enter(CURRENT.get())
        token = CURRENT.set(handler)
        try:
            given = f(*args, **kwargs)
        finally:
            CURRENT.reset(token)
        return unwrap_results(handler, given)

    return entered


def unwrap_results(handler: Handler, given: R) -> R:
    """What a function has given under a handler, in sequences perhaps, without the values of that handler."""
    found: object = given
    if isinstance(found, Tracer) and found.handler is handler:
        found = handler.unwrap_result(found)
    elif type(found) is list:
        found = [unwrap_results(handler, x) for x in found]
    elif type(found) is tuple:
        found = tuple([unwrap_results(handler, x) for x in found])
    return cast(R, found)


@final
@frozen(eq=False)
class ClosureScope:
    """What a function finds where it is traced, and has to find where it runs later.

    `held` are the values it closed over if there are tracers among them; `named` are the axes in scope.
    """

    bind_static: tuple[Value, ...]
    named_axes: Mapping[Hashable, int]
    checked: Mapping[str, int] = NOT_CHECKED
    """Those of them along which it is noted of values where they may differ."""

    @property
    def cache_key(self) -> Hashable:
        return tuple(map(id, self.bind_static)), tuple(self.named_axes.items()), tuple(self.checked)

    def rebind(self, f: Callable[P, R], operands: Sequence[Value]) -> Callable[P, R]:
        """The function, which finds `operands` in the place of what it closed over."""
        if not self.bind_static and not self.named_axes:
            return f
        taken = tuple(map(_vary_like, self.bind_static, operands)) if self.bind_static else ()
        return wrap_in_handler(ClosureRebinder(CURRENT.get(), self, taken).with_inner, f)


def _vary_like(held: Value, operand: Value) -> Value:
    """The operand, along whose axes of a mesh it is noted that it may differ as it was of what it stands for."""
    unknown = varies(held) - varies(operand)
    return bind1(PVary(tuple(sorted(unknown))), operand) if unknown else operand


EMPTY_CLOSURE: Final = ClosureScope((), NO_AXES)


@final
@frozen(eq=False)
class ClosureRebinder(Handler):
    """Puts operands in the place of the values that a function closed over."""

    title: ClassVar[str] = "a custom function"
    inner: Handler
    scope: ClosureScope
    operands: tuple[Value, ...]

    @property
    @override
    def below(self) -> Handler:
        return self.inner

    @property
    @override
    def axes(self) -> Mapping[Hashable, int]:
        return MappingProxyType({**self.scope.named_axes, **self.inner.axes})

    @property
    @override
    def checked(self) -> Mapping[str, int]:
        inner = self.inner
        here = {name: size for name, size in self.scope.checked.items() if name not in inner.axes}
        return MappingProxyType({**here, **inner.checked})  # an axis that is a batch's now is none of a mesh

    def with_inner(self, inner: Handler) -> ClosureRebinder:
        return evolve(self, inner=inner)

    @override
    def owns(self, tracer: Tracer) -> bool:
        return any(tracer is x for x in self.scope.bind_static)

    def resolve(self, x: Value) -> Value:
        for held, operand in zip(self.scope.bind_static, self.operands, strict=True):
            if x is held:
                return operand
        return x

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        values = [self.resolve(a) for a in args]
        if not isinstance(prim, HasCallables):
            return self.inner.bind(prim, values)
        token = CURRENT.set(self.inner)
        try:
            return self.inner.bind(prim.wrap_callables(self.with_inner(ROOT).with_inner), values)
        finally:
            CURRENT.reset(token)


def resolve_closed_over(values: Sequence[Value]) -> list[Value]:
    """What a function gave, which may be what it closes over."""
    current = CURRENT.get()
    return [
        _resolve_closed_over(x, current) if isinstance(x, Tracer) and x.handler is not current else x for x in values
    ]


def _resolve_closed_over(x: Value, handler: Handler) -> Value:
    for h in handler.chain():
        if isinstance(h, ClosureRebinder):
            x = h.resolve(x)
    return x


def closed_over_error(label: str) -> ClosedOverTracerError:
    return ClosedOverTracerError(
        f"{label} is differentiated with respect to a value that it, or a rule of it, closes over, but its rule is "
        "for its arguments alone: make the value an argument, for which tracefx.closure_convert is there, or hand on "
        "tracefx.lax.stop_gradient of it"
    )


def require_no_tracers(label: str, outs: Sequence[Value]) -> Sequence[Value]:
    """The outputs of a function evaluated at values: a tracer among them came in by another way than the operands."""
    for x in outs:
        if isinstance(x, Tracer):
            raise closed_over_error(label)
    return outs


@final
@frozen(eq=False)
class TracedFunction:
    """A function as a program: `consts`, which it closed over, are its first inputs."""

    jaxpr: Jaxpr
    consts: tuple[Value, ...]
    scope: ClosureScope


def trace_function(fun: FlatFunction, recording: Handler, args: Sequence[Value]) -> TracedFunction:
    jaxpr, found = stage(fun, [a.aval for a in args], recording, along=list(map(varies, args)))
    consts = tuple(found)
    held = consts if any(isinstance(c, Tracer) for c in consts) else ()
    return TracedFunction(jaxpr.closed(), consts, ClosureScope(held, recording.axes, recording.checked))


def partial_eval_function(f: FlatFunction, avals: Sequence[ShapedArray]) -> tuple[Jaxpr, list[Value]]:
    """What a function does with values of these types, as a program and its constants; all else is done at once."""
    rest = PartialEval(CURRENT.get())
    inputs = [rest.input(a) for a in avals]
    token = CURRENT.set(rest)
    try:
        outs = f(*inputs)
    finally:
        CURRENT.reset(token)
    return rest.build(inputs, outs)


def transpose_function(
    f: FlatFunction, avals: Sequence[ShapedArray], cts: Callable[[], Sequence[Tangent]]
) -> list[Tangent]:
    """Cotangents of what a linear function takes; those of what it gives are asked for once it has run.

    What doesn't depend on what it takes is computed first, in calls and loops too.
    """
    program, consts = partial_eval_function(f, avals)
    found = backward_pass(program, consts, [UndefinedPrimal(a) for a in avals], cts())
    return [Zero(a.tangent()) if ct is None else ct for ct, a in zip(found, avals, strict=True)]


def transpose_call(
    jaxpr: Jaxpr, cts: Sequence[Tangent], args: Sequence[Value | UndefinedPrimal]
) -> Sequence[Tangent | None]:
    """The transpose rule of a call of a program."""
    mask = linear_mask(args)
    known = [a for a in args if not isinstance(a, UndefinedPrimal)]

    def forwards(*values: Value) -> list[Value]:
        return eval_jaxpr(jaxpr, (), merge_masked(mask, values, known))

    found = transpose_function(forwards, select_masked(jaxpr.in_avals, mask), lambda: cts)
    return merge_masked(mask, [*found], [None] * len(known))


def match_weak_types(outs: Sequence[Value], avals: Sequence[ShapedArray]) -> list[Value]:
    """Outputs whose types differ from `avals` in weakness at most, with these types."""
    return [
        x if x.aval is aval or x.aval == aval else convert_value(x, aval.dtype, aval.weak_type)
        for x, aval in zip(outs, avals, strict=True)
    ]


# ------------------------------------------------------------------ one run for a whole batch


@final
class OutDims:
    """Where the outputs of a function and of its rules have the batch axis: first, or nowhere.

    What runs first settles it, since an output may differ along the batch in one of them and not in another. Where an
    operand differs along the batch all outputs do.
    """

    __slots__ = ("_axis", "_label", "_settled")

    def __init__(self, label: str, axis: MappedAxis, settled: BatchDims | bool) -> None:
        self._label = label
        self._axis = axis
        self._settled: bool | list[bool] = settled if isinstance(settled, bool) else [d is not None for d in settled]

    @property
    def cache_key(self) -> Hashable:
        return tuple(self._settled) if isinstance(self._settled, list) else self._settled

    def settle(self, *dims: BatchDims) -> list[bool]:
        """Which outputs have the axis; in each of `dims`, where the values that share an output's place have it."""
        found = [any(d is not None for d in column) for column in zip(*dims, strict=True)]
        if self._settled is True:
            return [True] * len(found)
        if self._settled is False:
            self._settled = found
        elif any(f and not s for f, s in zip(found, self._settled, strict=True)):
            raise TypeError(
                f"{self._label}: by its rule an output differs along a mapped axis, which none of the arguments has, "
                "nor the output by the function itself"
            )
        return self._settled

    def move_axis_first(self, x: Value, dim: int | None, mapped: bool) -> Value:
        return batch_first(x, dim, self._axis) if mapped else x

    def of(self, outs: Sequence[Value]) -> list[int | None]:
        settled = self._settled if isinstance(self._settled, list) else [self._settled] * len(outs)
        return [0 if mapped else None for mapped in settled]


def batch_function(mapper: BatchRunner, f: FlatFunction, dims: BatchDims, out: OutDims) -> FlatFunction:
    @derive(f, "mapped", mapper.axis, tuple(dims), out.cache_key)
    def batched(*values: Value) -> list[Value]:
        outs, out_dims = mapper.run(f, values, dims)
        return list(map(out.move_axis_first, outs, out_dims, out.settle(out_dims)))

    return batched


JVPRule: TypeAlias = Callable[[Sequence[Value], Sequence[Tangent]], tuple[Sequence[Value], Sequence[Tangent]]]
"""Primals and tangents of the operands to those of the outputs."""


def batch_jvp_rule(mapper: BatchRunner, rule: JVPRule, dims: BatchDims, out: OutDims) -> JVPRule:
    @derive(rule, "mapped", mapper.axis, tuple(dims), out.cache_key)
    def batched(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[list[Value], list[Tangent]]:
        n, mask = len(primals), nonzero_mask(tangents)
        out_mask: tuple[bool, ...] = ()

        def both(*values: Value) -> list[Value]:
            nonlocal out_mask
            given = iter(values[n:])
            duals = [next(given) if m else Zero(x.aval.tangent()) for x, m in zip(values, mask, strict=False)]
            outs, out_tangents = rule(values[:n], duals)
            out_mask = nonzero_mask(out_tangents)
            return [*outs, *drop_zeros(out_tangents)]

        values, found = mapper.run(both, [*primals, *drop_zeros(tangents)], [*dims, *select_masked(dims, mask)])
        count = len(out_mask)
        moved = zip(values[count:], found[count:], strict=True)
        pairs = [next(moved) if m else None for m in out_mask]
        settled = out.settle(found[:count], [None if pair is None else pair[1] for pair in pairs])
        outs = list(map(out.move_axis_first, values[:count], found[:count], settled))
        return outs, [
            Zero(x.aval.tangent()) if pair is None else out.move_axis_first(*pair, mapped)
            for x, pair, mapped in zip(outs, pairs, settled, strict=True)
        ]

    return batched


def rebind_jvp_rule(label: str, rule: JVPRule, scope: ClosureScope, count: int) -> JVPRule:
    """The rule of an operation whose first `count` operands are what its functions closed over."""

    @derive(rule, scope.cache_key, count)
    def hosted(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        if any(nonzero_mask(tangents[:count])):
            raise closed_over_error(label)
        return scope.rebind(rule, primals[:count])(primals[count:], tangents[count:])

    return hosted if count or scope.named_axes else rule
