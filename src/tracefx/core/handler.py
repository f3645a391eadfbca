"""Handlers: stacked interpreters, and the context variable that holds the current one.

Applying a primitive is an effect, in the sense of effect handlers: `bind(prim, *args)` calls the current handler, which
decides what the primitive means. A transformation such as `jvp`, `vmap` or `jit` makes a handler current, calls the
user's function with tracers of that handler, and reads the results off the tracers that the function returns:

    Eval                 the root: evaluates with NumPy
    JVP(inner)           a tracer has a primal and a tangent
    Batch(inner, axis)   a tracer has a value with a batch axis
    Stage(inner)         records equations; a tracer is a variable of a jaxpr
    PartialEval(inner)   records what depends on unknown inputs, passes the rest to `inner`

Each handler but the root has an inner handler. Its rules run with the inner handler current, so the primitives that
they bind are interpreted by that one: transformations compose because their handlers are stacked.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType, TracebackType
from typing import Final, Generic, NoReturn, Self, TypeAlias, TypeVar, final

from attrs import field, frozen
from typing_extensions import ParamSpec, override

from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.backend import BACKEND
from tracefx.core.dtypes import NDArray
from tracefx.core.eager_cache import EagerCache
from tracefx.core.literal import Literal
from tracefx.core.primitive import Expandable, Primitive
from tracefx.core.values import ConcreteArray, Value, as_value
from tracefx.errors import ConcretizationError, EscapedTracerError, HandlerStateError
from tracefx.filtered_tracebacks import api_boundary, filter_traceback
from tracefx.source_location import Provenance, at_location

P = ParamSpec("P")
R = TypeVar("R")


@final
@frozen
class NamedAxis:
    """A named axis in scope.

    Args:
        size: The number of elements of the batch, or of devices, along the axis.
        check_vma: Whether it is a manual mesh axis over which `shard_map` tracks varying values.
    """

    size: int
    check_vma: bool = False


AxisEnvironment: TypeAlias = Mapping[Hashable, NamedAxis]
NO_AXES: Final[AxisEnvironment] = MappingProxyType({})


class Handler(ABC):
    """Base class of handlers: an interpreter, which decides what binding a primitive means.

    Every handler but the root is constructed on an inner handler, under which its own rules run. The handlers from one
    down to the root form its chain. A handler's `bind` makes the inner handler current before it runs a rule, and
    passes operands without tracers of its own to `inner.bind` unchanged.

    >>> from attrs import field, frozen
    >>> from tracefx.ops.elementwise.transcendental import Sin
    >>> @frozen(eq=False)
    ... class Record(Handler):
    ...     inner: Handler
    ...     names: list
    ...     def bind(self, prim, args):
    ...         self.names.append(prim.name)
    ...         return self.inner.bind(prim, args)
    >>> with handling(Record(current(), [])) as record:
    ...     y = bind1(Sin(), 0.0)
    >>> record.names
    ['sin']
    """

    __slots__ = ()

    @property
    def title(self) -> str:
        """The name of the transformation in messages, e.g. `jvp`."""
        return type(self).__name__

    @property
    def thread(self) -> int:
        """The identifier of the thread that made the handler; by default the current one, so it is valid in all."""
        return threading.get_ident()

    @abstractmethod
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        """Applies a primitive.

        Args:
            prim: The primitive with its parameters.
            args: The operands.

        Returns:
            The results.
        """

    @property
    @abstractmethod
    def inner(self) -> Handler | None:
        """The next handler on the chain; `None` for the root."""

    @property
    def evaluates(self) -> bool:
        """Whether primitives on concrete operands are simply evaluated by the root, which permits a fast path.

        A handler that passes on primitives without its own tracers returns the value of its inner handler.
        """
        return False

    @property
    def axes(self) -> AxisEnvironment:
        """The axis environment: the named axes in scope."""
        handler = self.inner
        while (
            handler is not None and type(handler).axes is Handler.axes
        ):  # a loop, not recursion: `jit` calls nest deeply
            handler = handler.inner
        return NO_AXES if handler is None else handler.axes

    def owns(self, tracer: Tracer) -> bool:
        """Whether the tracer is valid under this handler. By default a handler owns the tracers that it made.

        Args:
            tracer: The tracer.

        Returns:
            A Python bool.
        """
        return tracer.handler is self

    def unwrap_result(self, x: Value) -> Value:
        """Returns a result of a function that ran under this handler alone, as a value of the inner handler.

        Args:
            x: The result.

        Returns:
            The value; by default the result itself.
        """
        return x

    def chain(self) -> Iterator[Handler]:
        """Iterates over the handlers from this one down to the root.

        Yields:
            This handler, its inner handler, and so on.
        """
        handler: Handler | None = self
        while handler is not None:
            yield handler
            handler = handler.inner


Origin: TypeAlias = Provenance | str | None
"""The origin of a tracer: a source location, or a description such as "the argument `x` of `loss`"."""


class Tracer(Array):
    """A traced value. Only the handler that made it reads its contents, e.g. the primal and the tangent.

    >>> from tracefx import jit
    >>> _ = jit(lambda x: print(x, isinstance(x, Tracer), x.origin) or x)(1.0)
    StageTracer(f32[]) True the argument `x` of <lambda>
    """

    __slots__ = ("__weakref__",)

    @property
    @abstractmethod
    def handler(self) -> Handler:
        """The handler that made the tracer."""

    @property
    @abstractmethod
    def origin(self) -> Origin:
        """The source location or argument from which the tracer originates, for messages."""

    @property
    def parts(self) -> Sequence[Value]:
        """The values that the tracer consists of; of these, a tangent may vary over more mesh axes than the primal."""
        return ()

    @property
    def description(self) -> str:
        """The tracer in messages: the argument that it is, or its type and where it was made."""
        if isinstance(self.origin, str):
            return self.origin
        return f"a value of type {self.aval}, made by {self.handler.title}{at_location(self.origin)},"

    @property
    def why_abstract(self) -> str:
        """Why the tracer has no concrete value, as the predicate of a sentence, for messages."""
        return f"is traced: under {self.handler.title} only its shape and dtype, {self.aval}, are known"

    def jit_arguments(self) -> Mapping[str, ShapedArray]:
        """Returns the arguments of functions under `jit` on which the value depends: names in messages, and types."""
        found: dict[str, ShapedArray] = {}
        for x in self.parts:
            if isinstance(x, Tracer):
                found.update(x.jit_arguments())
        return found

    @override
    def concrete_or_error(self, error: type[ConcretizationError], use: str = "") -> NDArray:
        need = use or error.use
        require_not_escaped(self, f"by {need.strip(',')}")
        arguments = self.jit_arguments()
        names = list(arguments)
        shown = [*names[:3], f"{len(names) - 3} more"] if len(names) > 4 else names
        depends = "" if not arguments or self.origin in arguments else f" It depends on {' and '.join(shown)}."
        static = " Or mark the argument as static, by static_argnums, so that jit compiles for each of its values."
        is_static_possible = bool(arguments) and all(not aval.shape for aval in arguments.values())  # arrays: no hash
        detail = f"{self.description} {self.why_abstract}.{depends}"
        raise error(
            f"{need} needs a concrete value, but {detail} {error.advice}{static if is_static_possible else ''}", detail
        )

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @override
    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self}, made by {self.handler.title}{at_origin(self.origin).rstrip(',')}, can't be pickled: it is valid "
            "only during the traced call; pickle what the transformed function returns"
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
    """The root handler: evaluates primitives eagerly.

    Args:
        evaluates: Whether callers may skip `bind` and evaluate primitives on concrete operands themselves (the fast
            path).

    Attributes:
        eager_cache: How calls of library functions on concrete arrays are evaluated.

    >>> from tracefx.core.values import as_value
    >>> from tracefx.ops.elementwise.transcendental import Sin
    >>> Eval().bind(Sin(), [as_value(0.0)])
    (Array(0., dtype=float32, weak_type=True),)
    """

    title = "evaluation"
    evaluates: bool = False
    eager_cache: EagerCache = field(factory=EagerCache, init=False, repr=False)

    inner = None

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        for a in args:
            if type(a) is not ConcreteArray and type(a) is not Literal:
                if isinstance(a, Tracer):
                    raise escaped_tracer_error(a, self, f"as an operand of {prim.name}")
                return self._evaluate_on_devices(prim, args)
        return prim.evaluate(args)

    def _evaluate_on_devices(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        """Evaluates a primitive with operands that are committed or sharded."""
        for a in args:
            if isinstance(a, Tracer):
                raise escaped_tracer_error(a, self, f"as an operand of {prim.name}")
        return BACKEND.value.evaluate_on_devices(prim, args)


ROOT: Final = Eval(evaluates=True)
CURRENT: Final[ContextVar[Handler]] = ContextVar("tracefx_handler", default=ROOT)
H = TypeVar("H", bound=Handler)


def current() -> Handler:
    """Returns the current handler.

    Returns:
        The innermost handler that is in effect: the root handler, which evaluates, outside of all transformations.

    >>> current()
    Eval(evaluates=True)
    >>> from tracefx import vmap
    >>> import numpy as np
    >>> _ = vmap(lambda x: print(type(current()).__name__) or x)(np.arange(3.0))
    Batch
    """
    return CURRENT.get()


@final
class handling(Generic[H]):
    """Makes a handler current in a `with` block.

    On exit the previous handler is current again. `HandlerStateError` is raised, and nothing changed, if another
    handler is current at exit (because of a generator that is suspended inside its own `with` block, say). It is also
    raised on entering the same instance twice.

    Args:
        handler: The handler, usually constructed on `current()`. It is the value of `with ... as`.

    Raises:
        TypeError: If `handler` is not a handler.

    >>> from tracefx.testing import IdentityHandler
    >>> with handling(IdentityHandler(current())) as handler:
    ...     current() is handler
    True
    """

    __slots__ = ("_handler", "_outer")

    @api_boundary
    def __init__(self, handler: H) -> None:
        if not isinstance(handler, Handler):
            raise TypeError(
                f"handling takes a handler, got {handler!r}: construct one on the current handler, as in "
                "handling(MyHandler(current()))"
            )
        self._handler = handler
        self._outer: Handler | None = None

    def __enter__(self) -> H:
        if self._outer is not None:
            raise HandlerStateError(
                f"the `with` block of {self._handler.title} has been entered already; make another one with "
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
                f"leaving the `with` block of {self._handler.title}, but {now.title} is current: "
                "blocks must be left in the reverse order of entering them (was one entered in a generator?)"
            )
        CURRENT.set(self._outer)
        self._outer = None


@final
@frozen(eq=False)
class CompileTimeEval(Handler):
    """Evaluates primitives on concrete operands eagerly; `inner` interprets those with tracers among the operands."""

    title = "compile-time evaluation"
    inner: Handler

    evaluates = True

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        if any(isinstance(a, Tracer) for a in args):
            return self.inner.bind(prim, args)
        return call_under(ROOT, ROOT.bind, prim, args)


def ensure_compile_time_eval() -> handling[Handler]:
    """Returns a context manager in which primitives are evaluated eagerly, even while a function is traced.

    Values computed in the block from concrete values are concrete, so they may decide an `if` or a shape. Primitives
    with tracers among their operands are traced as outside of the block.

    Returns:
        A context manager.

    >>> from tracefx import ensure_compile_time_eval, jit, numpy as fnp
    >>> def f(x):
    ...     with ensure_compile_time_eval():
    ...         n = int(fnp.sqrt(16.0))
    ...     return x.reshape(n, -1)
    >>> jit(f)(fnp.ones(8)).shape
    (4, 2)
    """
    handler = CURRENT.get()
    return handling(handler if handler is ROOT else CompileTimeEval(handler))


def evaluating() -> bool:
    """Whether primitives on concrete operands are evaluated eagerly here."""
    return CURRENT.get().evaluates


def bind(prim: Primitive, *args: ArrayLike) -> Sequence[Value]:
    """Applies a primitive under the current handler.

    All functions of tracefx compute by this call. The current handler interprets it: the root handler evaluates the
    primitive, `jit` records it, `grad` computes derivatives as well.

    Args:
        prim: The primitive with its parameters.
        *args: The operands. Python numbers and NumPy arrays are converted to values.

    Returns:
        The results: a sequence also for a primitive with one result.

    Raises:
        TypeError: If `prim` is not an instance of a primitive class.

    >>> from tracefx.ops.elementwise.transcendental import Sin
    >>> (y,) = bind(Sin(), 0.0)
    >>> y
    Array(0., dtype=float32, weak_type=True)
    """
    try:
        if not isinstance(prim, Primitive):
            raise _not_a_primitive(prim)
        return CURRENT.get().bind(prim, [a if isinstance(a, Array) else as_value(a) for a in args])
    except Exception as error:
        filter_traceback(error)
        raise


def bind1(prim: Primitive, *args: ArrayLike) -> Array:
    """Applies a primitive with one result under the current handler, and returns the result as an array.

    Args:
        prim: The primitive with its parameters.
        *args: The operands. Python numbers and NumPy arrays are converted to values.

    Returns:
        The result.

    Raises:
        TypeError: If `prim` is not an instance of a primitive class, or does not have one result.

    >>> from tracefx.ops.elementwise.transcendental import Sin
    >>> bind1(Sin(), 0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    try:
        handler = CURRENT.get()
        if handler.evaluates:
            for a in args:
                if type(a) is not ConcreteArray and type(a) is not Literal:
                    break
            else:  # fast path: all operands are concrete
                outs = prim.evaluate(args)  # type: ignore[arg-type]  # all are values
                try:
                    (out,) = outs
                except ValueError:
                    raise _not_one_result(prim, outs) from None
                return out if type(out) is ConcreteArray else as_array(out)
        if not isinstance(prim, Primitive):
            raise _not_a_primitive(prim)
        values: Sequence[Value] = args  # type: ignore[assignment]  # unless the loop finds another
        for a in args:
            if not isinstance(a, Array):
                values = [as_value(a) for a in args]
                break
        outs = handler.bind(prim, values)
        try:
            (out,) = outs
        except ValueError:
            raise _not_one_result(prim, outs) from None
        return as_array(out) if type(out) is Literal else out
    except Exception as error:
        filter_traceback(error)
        if not isinstance(prim, Primitive):
            raise _not_a_primitive(prim) from None
        raise


def _not_one_result(prim: Primitive, outs: Sequence[Value]) -> TypeError:
    """Returns the error for a primitive that is bound by `bind1` and does not have one result."""
    return TypeError(f"bind1 is for primitives with one result, but {prim.name} has {len(outs)}: write bind")


def _not_a_primitive(prim: object) -> TypeError:
    """Returns the error for an object that is bound but is no primitive."""
    got = repr(prim)
    if isinstance(prim, type) and issubclass(prim, Primitive):
        got = f"the class {prim.__name__}: write {prim.__name__}()"
    elif callable(getattr(prim, "abstract_eval", None)):
        name = type(prim).__name__
        got = f"{prim!r}: the class {name} has to inherit from Primitive, besides the base classes for its rules"
    return TypeError(f"bind takes an instance of a primitive class, got {got}")


def as_array(x: object) -> Array:
    """Converts an array-like to an array; a literal becomes a concrete array of shape `()`.

    Args:
        x: An array, a number, or another object that `as_value` accepts.

    Returns:
        The array; `x` itself if it is one.

    Raises:
        TypeError: If `x` is not array-like.

    >>> as_array(2.0)
    Array(2., dtype=float32, weak_type=True)
    """
    value = as_value(x)
    return ConcreteArray(value.aval, value.numpy()) if type(value) is Literal else value


def call_under(handler: Handler, f: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Calls `f` with `handler` as the current handler."""
    token = CURRENT.set(handler)
    try:
        return f(*args, **kwargs)
    finally:
        CURRENT.reset(token)


def bind_expansion(handler: Handler, prim: Expandable, args: Sequence[Value]) -> Sequence[Value]:
    """Applies a primitive by its expansion into other primitives, under the given handler.

    Args:
        handler: The handler that interprets the primitives of the expansion.
        prim: The primitive.
        args: The operands.

    Returns:
        The results of the primitive.

    >>> from tracefx.extend import Expandable, Primitive
    >>> class Double(Primitive, Expandable):
    ...     name = "double"
    ...     def expand(self, x):
    ...         return [as_array(x) + x]
    >>> bind_expansion(current(), Double(), [as_array(2.0)])
    [Array(4., dtype=float32, weak_type=True)]
    """
    return call_under(handler, prim.expand, *args)


def checked_axes(axes: AxisEnvironment) -> list[tuple[str, int]]:
    """Returns the names and sizes of the mesh axes over which varying values are tracked."""
    return [(str(name), axis.size) for name, axis in axes.items() if axis.check_vma]


def require_not_escaped(tracer: Tracer, where: str) -> None:
    """Raises `EscapedTracerError` unless a handler on the current chain owns the tracer."""
    handler = CURRENT.get()
    if not any(h.owns(tracer) for h in handler.chain()):
        raise escaped_tracer_error(tracer, handler, where)


def at_origin(origin: Origin) -> str:
    """Returns the origin of a tracer as a phrase that follows the name of its handler."""
    return f", as {origin}," if isinstance(origin, str) else at_location(origin)


def escaped_tracer_error(tracer: Tracer, handler: Handler, where: str) -> EscapedTracerError:
    """Returns the error for a tracer whose handler is not on the chain.

    Args:
        tracer: The escaped tracer.
        handler: The handler that met it.
        where: Its use, e.g. `as an operand of sin`.

    Returns:
        The error, for the caller to raise.

    >>> from tracefx import jit
    >>> leaked = []
    >>> _ = jit(lambda x: leaked.append(x) or x)(1.0)
    >>> escaped_tracer_error(leaked[0], current(), "as an operand of sin")
    EscapedTracerError('escaped tracer: StageTracer(f32[]) was made by jit, ... but used as an operand of sin, ...')
    """
    home = tracer.handler
    made = f"{home.title}{at_origin(tracer.origin)}"
    running = " in ".join([h.title for h in handler.chain() if h.inner is not None])
    message = (
        f"escaped tracer: {type(tracer).__name__}({tracer.aval}) was made by {made} but used {where}, "
        f"{f'inside {running}' if running else 'outside of all transformations'}. "
    )
    if home.thread != threading.get_ident():
        return EscapedTracerError(
            message + "It was made in another thread, and a new thread starts outside all transformations: start it "
            "with `contextvars.copy_context().run` as its target to pass the transformations on."
        )
    return EscapedTracerError(
        message + "A tracer is valid only while the transformed function runs: return it from the function instead of "
        "storing it in a variable, attribute or container outside."
    )
