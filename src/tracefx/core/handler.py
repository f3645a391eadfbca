"""Handlers, and the one context variable that says which of them is current."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType, TracebackType
from typing import Final, Generic, NoReturn, Self, TypeAlias, TypeVar, final

from attrs import frozen
from typing_extensions import override

from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import NOWHERE, Axes
from tracefx.core.backend import BACKEND
from tracefx.core.dtypes import NDArray
from tracefx.core.literal import Literal
from tracefx.core.primitive import Expandable, Primitive
from tracefx.core.source_location import Provenance, at_location
from tracefx.core.values import ConcreteArray, Value, as_value
from tracefx.errors import ConcretizationError, EscapedTracerError, HandlerStateError

NO_AXES: Final[Mapping[Hashable, int]] = MappingProxyType({})
NOT_CHECKED: Final[Mapping[str, int]] = MappingProxyType({})


class Handler(ABC):
    """An interpreter: says what one operation means.

    All but the root stand on an `inner` handler, under which their rules run; the handlers from one down to the root
    are its chain. A handler's `bind` makes `inner` current before it runs a rule, and hands what is not its own to
    `inner.bind` as it is.
    """

    __slots__ = ()

    @property
    def title(self) -> str:
        """How messages call the transformation, e.g. `jvp`."""
        return type(self).__name__

    @property
    def thread(self) -> int:
        """The thread the handler was made in; a handler without a thread of its own is at home in every one."""
        return threading.get_ident()

    @abstractmethod
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        """The outputs of one operation."""

    @property
    @abstractmethod
    def below(self) -> Handler | None:
        """The next handler of the chain; `None` at the root."""

    @property
    def evaluates(self) -> bool:
        """Whether the root is all that operations on numbers alone come to, so that they need not be handed down.

        A handler that hands on what has no tracer of its own among the operands says what its `inner` says.
        """
        return False

    @property
    def axes(self) -> Mapping[Hashable, int]:
        """The named axes in scope, with their sizes."""
        below = self.below
        while below is not None and type(below).axes is Handler.axes:  # no recursion: functions in `jit` are nested
            below = below.below
        return NO_AXES if below is None else below.axes

    @property
    def checked(self) -> Mapping[str, int]:
        """Those of them along which devices run a program apart that it is noted of where values may differ."""
        below = self.below
        while below is not None and type(below).checked is Handler.checked:
            below = below.below
        return NOT_CHECKED if below is None else below.checked

    def owns(self, tracer: Tracer) -> bool:
        """Whether the tracer means something here: most handlers know their own alone."""
        return tracer.handler is self

    def unwrap_result(self, x: Value) -> Value:
        """What a value is to the handler below: for what functions give that are run under this one alone."""
        return x

    def chain(self) -> Iterator[Handler]:
        handler: Handler | None = self
        while handler is not None:
            yield handler
            handler = handler.below


Origin: TypeAlias = Provenance | str | None
"""Where a tracer comes from: a line of user code, or words such as "the argument `x` of `loss`"."""


class Tracer(Array):
    """A value on its way through one handler; only that handler looks inside."""

    __slots__ = ()

    @property
    @abstractmethod
    def handler(self) -> Handler: ...

    @property
    @abstractmethod
    def origin(self) -> Origin: ...

    @property
    def varies(self) -> Axes:
        """Along which checked axes of a mesh the value may differ from device to device."""
        return NOWHERE

    @property
    def may_vary(self) -> Axes:
        """The same of all that is beside the value too."""
        return self.varies

    @override
    def concrete_or_error(self, error: type[ConcretizationError]) -> NDArray:
        raise error(
            f"{self}, made by {self.handler.title}{at_origin(self.origin)}, has a type but no value of its own: "
            f"{self.handler.title} traces without numbers"
        )

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @override
    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self}, made by {self.handler.title}{at_origin(self.origin)}, can't be pickled: it means nothing outside "
            "the call that is traced; pickle what the transformed function returns"
        )

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.aval})"

    @override
    def __str__(self) -> str:
        return repr(self)


@final
@frozen(eq=False)
class Eval(Handler):
    """The root: compute now. An evaluation without `evaluates` is asked every time."""

    title = "evaluation"
    checked = NOT_CHECKED
    evaluates: bool = False

    @property
    @override
    def below(self) -> None:
        return None

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        for a in args:
            if type(a) is not ConcreteArray and type(a) is not Literal:
                if isinstance(a, Tracer):
                    raise escaped_tracer_error(a, self, f"as an operand of {prim.name}")
                return self._evaluate_on_devices(prim, args)
        return prim.evaluate(args)

    def _evaluate_on_devices(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        """What an operation gives of arrays that lie where they were put."""
        for a in args:
            if isinstance(a, Tracer):
                raise escaped_tracer_error(a, self, f"as an operand of {prim.name}")
        return BACKEND.value.evaluate_on_devices(prim, args)


ROOT: Final = Eval(evaluates=True)
CURRENT: Final[ContextVar[Handler]] = ContextVar("tracefx_handler", default=ROOT)
H = TypeVar("H", bound=Handler)


def current() -> Handler:
    """The handler that gives operations their meaning here."""
    return CURRENT.get()


@final
class handling(Generic[H]):
    """Make `handler` current in a block: `with handling(Count(current())) as h: ...`.

    On leaving, what was current before is current again. If another handler has become current meanwhile and was not
    taken off (a generator suspended inside its own `with`, say), nothing is changed and `HandlerStateError` names both.
    It is raised too on entering a block that has been entered and not left yet.
    """

    __slots__ = ("_handler", "_outer")

    def __init__(self, handler: H) -> None:
        if not isinstance(handler, Handler):
            raise TypeError(
                f"handling takes a handler, got {handler!r}: make one on the handler in force, as in "
                "handling(Mine(current()))"
            )
        self._handler = handler
        self._outer: Handler | None = None

    def __enter__(self) -> H:
        if self._outer is not None:
            raise HandlerStateError(
                f"the block that makes {self._handler.title} current has been entered already; make another one with "
                "handling(...) to nest it"
            )
        self._outer = CURRENT.get()
        CURRENT.set(self._handler)
        return self._handler

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now = CURRENT.get()
        if now is not self._handler or self._outer is None:
            raise HandlerStateError(
                f"leaving a block that made {self._handler.title} current, but {now.title} is current: "
                "blocks must be left in the reverse order of entering them (was one entered in a generator?)"
            )
        CURRENT.set(self._outer)
        self._outer = None


def ensure_compile_time_eval() -> handling[Handler]:
    """A block in which operations are evaluated at once, in functions that are being traced too.

    What is computed in it is known while the program is made: it may decide an `if`, or a shape. Tracers of the program
    are not known, so they can't take part.

    >>> from tracefx import jit, numpy as fnp
    >>> def f(x):
    ...     with ensure_compile_time_eval():
    ...         n = int(fnp.sqrt(16.0))
    ...     return x.reshape(n, -1)
    >>> jit(f)(fnp.ones(8)).shape
    (4, 2)
    """
    return handling(ROOT)


def evaluating() -> bool:
    """Whether operations on numbers alone are evaluated here at once."""
    return CURRENT.get().evaluates


def bind(prim: Primitive, *args: ArrayLike) -> Sequence[Value]:
    """Apply an operation under the current handler. Numbers and NumPy arrays become values first."""
    return CURRENT.get().bind(prim, [a if isinstance(a, (Array, Literal)) else as_value(a) for a in args])


def bind1(prim: Primitive, *args: ArrayLike) -> Array:
    """`bind` for operations with one output, as an array."""
    handler = CURRENT.get()
    if handler.evaluates:
        for a in args:
            if type(a) is not ConcreteArray and type(a) is not Literal:
                break
        else:  # there is nothing to look for in operands that are no tracers
            (out,) = prim.evaluate(args)  # type: ignore[arg-type]  # all are values
            return out if type(out) is ConcreteArray else as_array(out)
    values: Sequence[Value] = args  # type: ignore[assignment]  # unless the loop finds another
    for a in args:
        if not isinstance(a, Array) and type(a) is not Literal:
            values = [as_value(a) for a in args]
            break
    (out,) = handler.bind(prim, values)
    return out if isinstance(out, Array) else as_array(out)


def as_array(x: ArrayLike) -> Array:
    """`x` as an array; a literal becomes a concrete array without axes.

    >>> as_array(2.0)
    Array(2., dtype=float32, weak_type=True)
    """
    if isinstance(x, Array):
        return x
    value = as_value(x)
    return ConcreteArray(value.aval, value.numpy()) if isinstance(value, Literal) else value


def bind_expansion(handler: Handler, prim: Expandable, args: Sequence[Value]) -> Sequence[Value]:
    """Handle an operation by the smaller ones it is made of."""
    token = CURRENT.set(handler)
    try:
        return prim.expand(*args)
    finally:
        CURRENT.reset(token)


def varies(x: Value) -> Axes:
    """Along which checked axes of a mesh a value may differ from device to device."""
    return x.varies if isinstance(x, Tracer) else NOWHERE


def may_vary(x: Value) -> Axes:
    """The same of the value and of all that stands beside it, a tangent say."""
    return x.may_vary if isinstance(x, Tracer) else NOWHERE


def require_not_escaped(tracer: Tracer, where: str) -> None:
    """`EscapedTracerError` for a tracer that is a stranger to the handlers in force here."""
    handler = CURRENT.get()
    if not any(h.owns(tracer) for h in handler.chain()):
        raise escaped_tracer_error(tracer, handler, where)


def at_origin(origin: Origin) -> str:
    """Where a tracer comes from, to follow the name of what made it."""
    return f", as {origin}," if isinstance(origin, str) else at_location(origin)


def escaped_tracer_error(tracer: Tracer, handler: Handler, where: str) -> EscapedTracerError:
    """The error for a tracer whose handler is not on the chain of the one that met it."""
    home = tracer.handler
    made = f"{home.title}{at_origin(tracer.origin)}"
    message = (
        f"{type(tracer).__name__}({tracer.aval}) was made by {made} and turned up {where}, where "
        f"the handlers are {' on '.join(h.title for h in handler.chain())}. "
    )
    if home.thread != threading.get_ident():
        return EscapedTracerError(
            message + "It was made in another thread, and a new thread starts outside all transformations: start it "
            "with `contextvars.copy_context().run` as its target to pass the transformations on."
        )
    return EscapedTracerError(
        message + "A tracer is good only while the transformed function runs: return it from the function instead of "
        "storing it in a variable, attribute or container outside."
    )
