"""What operations that hold the user's functions share: running them elsewhere, and once for a whole batch.

Such a function takes and gives values. It may close over tracers, and be called long after the handler that made them
has done its work. The program that was recorded takes them as operands then, and `Hosting` puts those in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import FunctionType, MappingProxyType
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar, cast, final

from attrs import evolve, frozen
from typing_extensions import ParamSpec, override

from tracefx.control.bodies import chosen, linear, merged, nonzero, present
from tracefx.core.avals import ShapedArray
from tracefx.core.equality import StrictlyEqual
from tracefx.core.errors import ClosedOverTracerError
from tracefx.core.handler import CURRENT, NO_AXES, NOT_CHECKED, ROOT, Handler, Tracer, bind1, varies
from tracefx.core.jaxpr import Jaxpr, eval_jaxpr
from tracefx.core.primitive import HoldsFunctions, Linear, MappedAxis, Mapper, Primitive, Tangent, Zero
from tracefx.core.printer import callable_name
from tracefx.core.values import Value
from tracefx.interpreters.partial_eval import PartialEval
from tracefx.interpreters.stage import stage
from tracefx.interpreters.transpose import backward
from tracefx.ops.basis import batch_first, retyped
from tracefx.ops.varying import Vary

P = ParamSpec("P")
R = TypeVar("R")
Flat: TypeAlias = Callable[..., Sequence[Value]]
"""A function of values to values."""
Dims: TypeAlias = Sequence[int | None]

# ------------------------------------------------------------------ functions that equal each other


@final
class Made(StrictlyEqual, Generic[P, R]):
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
        return self is other or (isinstance(other, Made) and self._how == other._how and self.source == other.source)

    @override
    def __hash__(self) -> int:
        return hash((self._how, self.source))


def made_from(source: Callable[..., object], *how: object) -> Callable[[Callable[P, R]], Made[P, R]]:
    """Decorates the function that is made from `source`; `how` is all that it depends on besides."""
    return lambda call: Made(call, source, how)


def may_close_over(f: Callable[..., object]) -> bool:
    """Whether a function may close over values: a plain function of a module does not."""
    while isinstance(f, Made):
        f = f.source
    return not isinstance(f, FunctionType) or f.__closure__ is not None


# ------------------------------------------------------------------ handlers in force in a function


def within(enter: Callable[[Handler], Handler], f: Callable[P, R]) -> Callable[P, R]:
    """The function, run under `enter` of the handler that is current then."""

    @made_from(f, "within", enter)
    def entered(*args: P.args, **kwargs: P.kwargs) -> R:
        handler = enter(CURRENT.get())
        token = CURRENT.set(handler)
        try:
            given = f(*args, **kwargs)
        finally:
            CURRENT.reset(token)
        return let_out(handler, given)

    return entered


def let_out(handler: Handler, given: R) -> R:
    """What a function has given under a handler, in sequences perhaps, without the values of that handler."""
    found: object = given
    if isinstance(found, Tracer) and found.handler is handler:
        found = handler.let_out(found)
    elif type(found) is list:
        found = [let_out(handler, x) for x in found]
    elif type(found) is tuple:
        found = tuple([let_out(handler, x) for x in found])
    return cast(R, found)


@final
@frozen(eq=False)
class Scope:
    """What a function finds where it is traced, and has to find where it runs later.

    `held` are the values it closed over if there are tracers among them; `named` are the axes in scope.
    """

    held: tuple[Value, ...]
    named: Mapping[Hashable, int]
    checked: Mapping[str, int] = NOT_CHECKED
    """Those of them along which it is noted of values where they may differ."""

    @property
    def key(self) -> Hashable:
        return tuple(map(id, self.held)), tuple(self.named.items()), tuple(self.checked)

    def around(self, f: Callable[P, R], operands: Sequence[Value]) -> Callable[P, R]:
        """The function, which finds `operands` in the place of what it closed over."""
        if not self.held and not self.named:
            return f
        taken = tuple(map(_told, self.held, operands)) if self.held else ()
        return within(Hosting(CURRENT.get(), self, taken).over, f)


def _told(held: Value, operand: Value) -> Value:
    """The operand, along whose axes of a mesh it is noted that it may differ as it was of what it stands for."""
    unknown = varies(held) - varies(operand)
    return bind1(Vary(tuple(sorted(unknown))), operand) if unknown else operand


NOWHERE: Final = Scope((), NO_AXES)


@final
@frozen(eq=False)
class Hosting(Handler):
    """Puts operands in the place of the values that a function closed over."""

    title: ClassVar[str] = "a custom function"
    inner: Handler
    scope: Scope
    operands: tuple[Value, ...]

    @property
    @override
    def below(self) -> Handler:
        return self.inner

    @property
    @override
    def axes(self) -> Mapping[Hashable, int]:
        return MappingProxyType({**self.scope.named, **self.inner.axes})

    @property
    @override
    def checked(self) -> Mapping[str, int]:
        inner = self.inner
        here = {name: size for name, size in self.scope.checked.items() if name not in inner.axes}
        return MappingProxyType({**here, **inner.checked})  # an axis that is a batch's now is none of a mesh

    def over(self, inner: Handler) -> Hosting:
        return evolve(self, inner=inner)

    @override
    def hosts(self, tracer: Tracer) -> bool:
        return any(tracer is x for x in self.scope.held)

    def resolve(self, x: Value) -> Value:
        for held, operand in zip(self.scope.held, self.operands, strict=True):
            if x is held:
                return operand
        return x

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        values = [self.resolve(a) for a in args]
        if not isinstance(prim, HoldsFunctions):
            return self.inner.bind(prim, values)
        token = CURRENT.set(self.inner)
        try:
            return self.inner.bind(prim.within(self.over(ROOT).over), values)
        finally:
            CURRENT.reset(token)


def resolved(values: Sequence[Value]) -> list[Value]:
    """What a function gave, which may be what it closes over."""
    current = CURRENT.get()
    return [_resolved(x, current) if isinstance(x, Tracer) and x.handler is not current else x for x in values]


def _resolved(x: Value, handler: Handler) -> Value:
    for h in handler.chain():
        if isinstance(h, Hosting):
            x = h.resolve(x)
    return x


def closes_over(label: str) -> ClosedOverTracerError:
    return ClosedOverTracerError(
        f"{label} is differentiated with respect to a value that it, or a rule of it, closes over, but its rule is "
        "for its arguments alone: make the value an argument, for which tracefx.closure_convert is there, or hand on "
        "tracefx.lax.stop_gradient of it"
    )


def evaluated(label: str, outs: Sequence[Value]) -> Sequence[Value]:
    """The outputs of a function evaluated at values: a tracer among them came in by another way than the operands."""
    for x in outs:
        if isinstance(x, Tracer):
            raise closes_over(label)
    return outs


@final
@frozen(eq=False)
class Body:
    """A function as a program: `consts`, which it closed over, are its first inputs."""

    jaxpr: Jaxpr
    consts: tuple[Value, ...]
    scope: Scope


def body(fun: Flat, recording: Handler, args: Sequence[Value]) -> Body:
    jaxpr, found = stage(fun, [a.aval for a in args], recording, along=list(map(varies, args)))
    consts = tuple(found)
    held = consts if any(isinstance(c, Tracer) for c in consts) else ()
    return Body(jaxpr.closed(), consts, Scope(held, recording.axes, recording.checked))


def program_of(f: Flat, avals: Sequence[ShapedArray]) -> tuple[Jaxpr, list[Value]]:
    """What a function does with values of these types, as a program and its constants; all else is done at once."""
    rest = PartialEval(CURRENT.get())
    inputs = [rest.input(a) for a in avals]
    token = CURRENT.set(rest)
    try:
        outs = f(*inputs)
    finally:
        CURRENT.reset(token)
    return rest.build(inputs, outs)


def pulled_back(f: Flat, avals: Sequence[ShapedArray], cts: Callable[[], Sequence[Tangent]]) -> list[Tangent]:
    """Cotangents of what a linear function takes; those of what it gives are asked for once it has run.

    What doesn't depend on what it takes is computed first, in calls and loops too.
    """
    program, consts = program_of(f, avals)
    found = backward(program, consts, [Linear(a) for a in avals], cts())
    return [Zero(a.tangent()) if ct is None else ct for ct, a in zip(found, avals, strict=True)]


def transposed_call(jaxpr: Jaxpr, cts: Sequence[Tangent], args: Sequence[Value | Linear]) -> Sequence[Tangent | None]:
    """The transpose rule of a call of a program."""
    mask = linear(args)
    known = [a for a in args if not isinstance(a, Linear)]

    def forwards(*values: Value) -> list[Value]:
        return eval_jaxpr(jaxpr, (), merged(mask, values, known))

    found = pulled_back(forwards, chosen(jaxpr.in_avals, mask), lambda: cts)
    return merged(mask, [*found], [None] * len(known))


def typed(outs: Sequence[Value], avals: Sequence[ShapedArray]) -> list[Value]:
    """Outputs whose types differ from `avals` in weakness at most, with these types."""
    return [
        x if x.aval is aval or x.aval == aval else retyped(x, aval.dtype, aval.weak_type)
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

    def __init__(self, label: str, axis: MappedAxis, settled: Dims | bool) -> None:
        self._label = label
        self._axis = axis
        self._settled: bool | list[bool] = settled if isinstance(settled, bool) else [d is not None for d in settled]

    @property
    def key(self) -> Hashable:
        return tuple(self._settled) if isinstance(self._settled, list) else self._settled

    def settle(self, *dims: Dims) -> list[bool]:
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

    def place(self, x: Value, dim: int | None, mapped: bool) -> Value:
        return batch_first(x, dim, self._axis) if mapped else x

    def of(self, outs: Sequence[Value]) -> list[int | None]:
        settled = self._settled if isinstance(self._settled, list) else [self._settled] * len(outs)
        return [0 if mapped else None for mapped in settled]


def mapped_function(mapper: Mapper, f: Flat, dims: Dims, out: OutDims) -> Flat:
    @made_from(f, "mapped", mapper.axis, tuple(dims), out.key)
    def batched(*values: Value) -> list[Value]:
        outs, out_dims = mapper.run(f, values, dims)
        return list(map(out.place, outs, out_dims, out.settle(out_dims)))

    return batched


Rule: TypeAlias = Callable[[Sequence[Value], Sequence[Tangent]], tuple[Sequence[Value], Sequence[Tangent]]]
"""Primals and tangents of the operands to those of the outputs."""


def mapped_rule(mapper: Mapper, rule: Rule, dims: Dims, out: OutDims) -> Rule:
    @made_from(rule, "mapped", mapper.axis, tuple(dims), out.key)
    def batched(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[list[Value], list[Tangent]]:
        n, mask = len(primals), nonzero(tangents)
        out_mask: tuple[bool, ...] = ()

        def both(*values: Value) -> list[Value]:
            nonlocal out_mask
            given = iter(values[n:])
            duals = [next(given) if m else Zero(x.aval.tangent()) for x, m in zip(values, mask, strict=False)]
            outs, out_tangents = rule(values[:n], duals)
            out_mask = nonzero(out_tangents)
            return [*outs, *present(out_tangents)]

        values, found = mapper.run(both, [*primals, *present(tangents)], [*dims, *chosen(dims, mask)])
        count = len(out_mask)
        moved = zip(values[count:], found[count:], strict=True)
        pairs = [next(moved) if m else None for m in out_mask]
        settled = out.settle(found[:count], [None if pair is None else pair[1] for pair in pairs])
        outs = list(map(out.place, values[:count], found[:count], settled))
        return outs, [
            Zero(x.aval.tangent()) if pair is None else out.place(*pair, mapped)
            for x, pair, mapped in zip(outs, pairs, settled, strict=True)
        ]

    return batched


def hosted_rule(label: str, rule: Rule, scope: Scope, count: int) -> Rule:
    """The rule of an operation whose first `count` operands are what its functions closed over."""

    @made_from(rule, scope.key, count)
    def hosted(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        if any(nonzero(tangents[:count])):
            raise closes_over(label)
        return scope.around(rule, primals[:count])(primals[count:], tangents[count:])

    return hosted if count or scope.named else rule
