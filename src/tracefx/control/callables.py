"""Helpers for primitives that hold user functions: running the functions under other handlers, and once per batch.

Such a function maps values to values. It may close over tracers, and be called long after the handler that made them
has finished. A staged equation takes these tracers as operands, and `ClosureRebinder` substitutes the operands for the
closed-over tracers when the function runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from types import FunctionType, MappingProxyType
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar, cast, final

from attrs import evolve, frozen
from typing_extensions import ParamSpec, override

from tracefx.core import ShapedArray, Value
from tracefx.core.equality import StrictlyEqual
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import CURRENT, NO_AXES, ROOT, AxisEnvironment, Handler, Tracer, call_under
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import BatchDims, MappedAxis, Primitive, Tangent, UndefinedPrimal, Zero
from tracefx.errors import ClosedOverTracerError, ConcretizationError
from tracefx.interpreters.callables import BatchRunner, HasCallables
from tracefx.interpreters.masks import (
    known_values,
    linear_mask,
    merge_masked,
    select_masked,
)
from tracefx.interpreters.partial_eval import PartialEval
from tracefx.interpreters.stage import stage
from tracefx.interpreters.transpose import backward_pass
from tracefx.ops.structural import batch_first, convert_value
from tracefx.settings import Setting
from tracefx.source_location import ENCLOSING_SCOPES, SOURCE, NamedScopes, full_scopes
from tracefx.text.printer import callable_name

P = ParamSpec("P")
R = TypeVar("R")
FlatFunction: TypeAlias = Callable[..., Sequence[Value]]
"""A function from values to a sequence of values."""

# ------------------------------------------------------------------ derived functions with equality


@final
class DerivedCallable(StrictlyEqual, Generic[P, R]):
    """A function derived from another one, with its name. Equal if derived in the same way from equal functions."""

    def __init__(self, call: Callable[P, R], source: Callable[..., object], how: tuple[object, ...]) -> None:
        self.__qualname__ = callable_name(source)
        self._call = call
        self.source = source
        self.how = how

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._call(*args, **kwargs)

    @override
    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, DerivedCallable) and self.how == other.how and self.source == other.source
        )

    @override
    def __hash__(self) -> int:
        return hash((self.how, self.source))


def derive(source: Callable[..., object], *how: object) -> Callable[[Callable[P, R]], DerivedCallable[P, R]]:
    """Returns a decorator for a function derived from `source`; `how` is everything else that it depends on."""
    return lambda call: DerivedCallable(call, source, how)


_STAGED_FOR_CLOSURE: Final = Setting[tuple[Callable[..., object], ...]]("staged_for_closure", ())
"""The functions that are being staged in order to find the tracers that they close over."""


def stage_for_closure(
    f: Callable[..., object], flat: FlatFunction, avals: Sequence[ShapedArray], recording: Handler
) -> tuple[Tracer, ...]:
    """Returns the tracers that `flat`, which calls `f`, closes over; none if it needs concrete values.

    A function that calls itself, such as the transpose of a self-adjoint `linear_call`, is staged once. A transpose may
    also make a new function at each call, so functions with the same code are staged at most twice within each other.
    """
    while isinstance(f, DerivedCallable):
        f = f.source
    staged = _STAGED_FOR_CLOSURE.value
    if (isinstance(f, FunctionType) and f.__closure__ is None) or any(f is other for other in staged):
        return ()
    if [_code_of(other) for other in staged].count(_code_of(f)) == 2:
        return ()
    try:
        with _STAGED_FOR_CLOSURE.override((*staged, f)):
            _, consts = stage(flat, avals, recording)
    except ConcretizationError:  # it may get them when it runs
        return ()
    return tuple([c for c in consts if isinstance(c, Tracer)])


def _code_of(f: Callable[..., object]) -> object:
    """Returns the code that functions made by one `def` or `lambda` share; the class of other callables."""
    return getattr(f, "__code__", type(f))


# ------------------------------------------------------------------ running functions under handlers


def wrap_in_handler(
    enter: Callable[[Handler], Handler], f: Callable[P, R], scopes: NamedScopes | None = None
) -> Callable[P, R]:
    """Returns the function run under `enter(handler)`, where `handler` is the current handler at the call.

    Args:
        enter: Maps that handler to the one under which the function runs.
        f: The function.
        scopes: All scopes around the function; those at this call by default. The function may run after the sub-jaxpr
            that has it was interpreted, when an outer transformation derives that: the scopes around the sub-jaxpr are
            then no longer known.
    """
    scopes = full_scopes() if scopes is None else scopes

    @derive(f, "within", enter, scopes)
    def entered(*args: P.args, **kwargs: P.kwargs) -> R:
        handler = enter(CURRENT.get())
        known = full_scopes()
        lost = scopes[: len(scopes) - len(known)] if known[: len(scopes)] != scopes else ()
        with ENCLOSING_SCOPES.override((*lost, *ENCLOSING_SCOPES.value)):
            results = call_under(handler, f, *args, **kwargs)
        return unwrap_results(handler, results)

    return entered


def unwrap_results(handler: Handler, results: R) -> R:
    """Replaces tracers of `handler` in the results of a function by values of its inner handler, also in sequences."""
    plain: object = results
    if isinstance(plain, Tracer) and handler.owns(plain):
        plain = handler.unwrap_result(plain)
    elif type(plain) is list:
        plain = [unwrap_results(handler, x) for x in plain]
    elif type(plain) is tuple:
        plain = tuple([unwrap_results(handler, x) for x in plain])
    return cast(R, plain)


@final
@frozen(eq=False)
class ClosureScope:
    """The closed-over values and the axis environment of a traced function, which are restored where it runs later.

    `bind_static` are the values that it closed over, if there are tracers among them; `named_axes` is the axis
    environment.
    """

    bind_static: tuple[Value, ...]
    named_axes: AxisEnvironment

    @property
    def cache_key(self) -> Hashable:
        return tuple(map(id, self.bind_static)), tuple(self.named_axes.items())

    def rebind(self, f: Callable[P, R], operands: Sequence[Value]) -> Callable[P, R]:
        """Returns the function with `operands` substituted for the values that it closed over."""
        if not self.bind_static and not self.named_axes:
            return f
        substitutes = tuple(operands) if self.bind_static else ()
        return wrap_in_handler(ClosureRebinder(CURRENT.get(), self, substitutes).with_inner, f, scopes=())


EMPTY_CLOSURE: Final = ClosureScope((), NO_AXES)


@final
@frozen(eq=False)
class ClosureRebinder(Handler):
    """A handler that substitutes operands for the values that a function closed over."""

    title: ClassVar[str] = "a custom function"
    inner: Handler
    scope: ClosureScope
    operands: tuple[Value, ...]

    @property
    @override
    def axes(self) -> AxisEnvironment:
        return MappingProxyType({**self.scope.named_axes, **self.inner.axes})

    def with_inner(self, inner: Handler) -> ClosureRebinder:
        return evolve(self, inner=inner)

    @override
    def owns(self, tracer: Tracer) -> bool:
        return any(tracer is x for x in self.scope.bind_static)

    def resolve(self, x: Value) -> Value:
        """Returns the operand for a closed-over value, and any other value unchanged."""
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
    """Substitutes operands for closed-over values among the results of a function."""
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
        f"{label} is differentiated with respect to a value that it, or a rule of it, closes over, but its rule "
        "covers only its arguments: make the value an argument (tracefx.closure_convert does so), or close over "
        "tracefx.lax.stop_gradient of it"
    )


def require_no_tracers(label: str, outs: Sequence[Value]) -> Sequence[Value]:
    """Returns the outputs of an evaluated function; raises if one is a tracer, which was closed over."""
    for x in outs:
        if isinstance(x, Tracer):
            raise closed_over_error(label)
    return outs


@final
@frozen(eq=False)
class TracedFunction:
    """A staged function. The values that it closed over, `consts`, are the first inputs of `jaxpr`."""

    jaxpr: Jaxpr
    consts: tuple[Value, ...]
    scope: ClosureScope


def trace_function(fun: FlatFunction, recording: Handler, args: Sequence[Value]) -> TracedFunction:
    """Stages a function for arguments like `args`; `recording` is the handler that may own closed-over tracers."""
    # As in all bodies, scopes are relative to the equation that has the body; rules of interpreters see all of them.
    with ENCLOSING_SCOPES.override(full_scopes()):
        token = SOURCE.set(None)
        try:
            jaxpr, const_values = stage(fun, [a.aval for a in args], recording)
        finally:
            SOURCE.reset(token)
    consts = tuple(const_values)
    held = consts if any(isinstance(c, Tracer) for c in consts) else ()
    return TracedFunction(jaxpr.closed(), consts, ClosureScope(held, recording.axes))


def partial_eval_function(f: FlatFunction, avals: Sequence[ShapedArray]) -> tuple[Jaxpr, list[Value]]:
    """Partially evaluates a function of unknown values; returns the jaxpr that depends on them, and its constants."""
    handler = PartialEval(CURRENT.get())
    inputs = [handler.input(a) for a in avals]
    outs = call_under(handler, f, *inputs)
    return handler.build(inputs, outs)


def transpose_function(
    f: FlatFunction, avals: Sequence[ShapedArray], cts: Callable[[], Sequence[Tangent]]
) -> list[Tangent]:
    """Computes the input cotangents of a linear function.

    Operations that don't depend on the inputs are evaluated first, inside calls and loops too.

    Args:
        f: a linear function of values.
        avals: the shapes and dtypes of its inputs.
        cts: returns the cotangents of its outputs; called after `f` has run.

    Returns:
        The cotangent of each input.
    """
    program, consts = partial_eval_function(f, avals)
    in_cts = backward_pass(program, consts, [UndefinedPrimal(a) for a in avals], cts())
    return [Zero(a.tangent()) if ct is None else ct for ct, a in zip(in_cts, avals, strict=True)]


def transpose_call(
    jaxpr: Jaxpr, cts: Sequence[Tangent], args: Sequence[Value | UndefinedPrimal]
) -> Sequence[Tangent | None]:
    """The transpose rule of primitives that call one jaxpr."""
    mask = linear_mask(args)
    known = known_values(args)

    def forwards(*values: Value) -> list[Value]:
        return eval_jaxpr(jaxpr, (), merge_masked(mask, values, known))

    in_cts = transpose_function(forwards, select_masked(jaxpr.in_avals, mask), lambda: cts)
    return merge_masked(mask, [*in_cts], [None] * len(known))


def match_weak_types(outs: Sequence[Value], avals: Sequence[ShapedArray]) -> list[Value]:
    """Converts outputs that differ from `avals` at most in weak typing to exactly these avals."""
    return [
        x if x.aval is aval or x.aval == aval else convert_value(x, aval.dtype, aval.weak_type)
        for x, aval in zip(outs, avals, strict=True)
    ]


# ------------------------------------------------------------------ batching functions and rules


@final
class OutDims:
    """Which outputs of a function and of its rules are batched; these have the batch axis first.

    Whichever of them runs first determines it, since an output may be batched in one of them and not in another. If an
    operand is batched, all outputs are.
    """

    __slots__ = ("_axis", "_label", "_settled")

    def __init__(self, label: str, axis: MappedAxis, settled: BatchDims | bool) -> None:
        self._label = label
        self._axis = axis
        self._settled: bool | list[bool] = settled if isinstance(settled, bool) else [d is not None for d in settled]

    @property
    def settled(self) -> bool | tuple[bool, ...]:
        """Which outputs are batched: all, each by a mask, or False if this is not determined yet."""
        return tuple(self._settled) if isinstance(self._settled, list) else self._settled

    def settle(self, *dims: BatchDims) -> list[bool]:
        """Returns which outputs are batched. Each of `dims` holds the batch axes of values that belong to the outputs.

        Raises `TypeError` if an output is batched that was not when this was determined.
        """
        batched = [any(d is not None for d in column) for column in zip(*dims, strict=True)]
        if self._settled is True:
            return [True] * len(batched)
        if self._settled is False:
            self._settled = batched
        elif any(f and not s for f, s in zip(batched, self._settled, strict=True)):
            raise TypeError(
                f"{self._label}: its rule returned an output that is batched along a mapped axis, but no argument is "
                "batched, nor is this output of the function itself"
            )
        return self._settled

    def move_axis_first(self, x: Value, dim: int | None, mapped: bool) -> Value:
        return batch_first(x, dim, self._axis) if mapped else x

    def of(self, outs: Sequence[Value]) -> list[int | None]:
        """Returns the batch axis of each output: 0 or `None`."""
        settled = self._settled if isinstance(self._settled, list) else [self._settled] * len(outs)
        return [0 if mapped else None for mapped in settled]


def batch_function(mapper: BatchRunner, f: FlatFunction, dims: BatchDims, out: OutDims) -> FlatFunction:
    """Returns the function for a whole batch, with batched outputs as `out` determines."""

    @derive(f, "mapped", mapper.axis, tuple(dims), out.settled)
    def batched(*values: Value) -> list[Value]:
        outs, out_dims = mapper.run(f, values, dims)
        return list(map(out.move_axis_first, outs, out_dims, out.settle(out_dims)))

    return batched
