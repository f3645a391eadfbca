"""`Interpreter`, the base class of user-written handlers: rules, own values, a state, collected values.

An `Interpreter` is an immutable value. `start` starts a run of it over an inner handler: a copy that refers to a `Run`,
which holds the inner handler, the current state and the collected values. The handler of a run is an
`InterpreterFrame`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, Self, TypeGuard, cast, final

import numpy as np
from attrs import field, frozen
from typing_extensions import ParamSpec, TypeVar, dataclass_transform, override

from tracefx.bounded_cache import MemoKey
from tracefx.core import Array, Literal, NDArray, ShapedArray, Value, as_value
from tracefx.core.avals import join_vma
from tracefx.core.effects import DebugEffect
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import CURRENT, ROOT, Handler, Origin, Tracer, bind_expansion, call_under, handling
from tracefx.core.jaxpr import HasSubjaxprs, Jaxpr
from tracefx.core.primitive import Expandable, Primitive
from tracefx.core.rule_checks import HANDLER_RULE_PARAMETERS, check_call
from tracefx.errors import ConcretizationError, HandlerStateError
from tracefx.interpreters.body_transform import (
    BodyInterpreter,
    BodyName,
    BodyTransformable,
    CollectedSpec,
    TransformedBody,
    ValueSpec,
    array_spec,
)
from tracefx.interpreters.callables import HasCallables
from tracefx.interpreters.interpreter_hooks import InterpreterHooks, N, S, V
from tracefx.interpreters.jvp import PIECEWISE_CONSTANT
from tracefx.interpreters.rule_methods import InterpreterType, freeze_class, option_values, refuse_assignment
from tracefx.interpreters.rules import Rules, checked_outputs
from tracefx.interpreters.run import Run
from tracefx.interpreters.stage import Stage, stage
from tracefx.interpreters.value_specs import (
    cast_arrays,
    cast_collected,
    join_avals,
    leaf_values,
    spec_of,
    unflatten_spec,
    zeros_like_spec,
)
from tracefx.ops.structural import constant_like_aval
from tracefx.passes.rebuilding import drop_outputs
from tracefx.pytrees import trees
from tracefx.source_location import ENCLOSING_SCOPES, SOURCE, current_provenance, full_scopes

P = ParamSpec("P")
R = TypeVar("R")

_NUMERIC_TYPES: Final = (bool, int, float, complex, np.generic, np.ndarray)


@final
class InterpreterTracer(Tracer, Generic[V]):
    """A tracer of an `Interpreter`: one of the handler's own values, seen by the program as an array of `aval`.

    A plain class rather than an attrs class, for the same reason as `StageTracer`: speed of construction.
    """

    __slots__ = ("aval", "interpreter", "origin", "value")
    aval: ShapedArray
    origin: Origin

    def __init__(self, interpreter: Interpreter[V, Any, Any], value: V, aval: ShapedArray, origin: Origin) -> None:
        self.interpreter = interpreter
        self.value = value
        self.aval = aval
        self.origin = origin

    @property
    @override
    def handler(self) -> Handler:
        return self.interpreter.frame

    @override
    def concrete_or_error(self, error: type[ConcretizationError], use: str = "") -> NDArray:
        if error not in PIECEWISE_CONSTANT:
            title = self.interpreter.title
            raise error(
                f"{use or error.use} needs a concrete value, but {self.description} would lose what {title} stores "
                "with it. Use the functions of tracefx.numpy"
            )
        x = self.interpreter.strip_to_plain(self, "a Python number")
        return x.numpy() if isinstance(x, Literal) else x.concrete_or_error(error, use)

    @override
    def __repr__(self) -> str:
        return f"InterpreterTracer({self.aval}, {self.value})"


_TRANSFORMED: Final = MemoKey[TransformedBody]("body transformed by an interpreter")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
@frozen(slots=False, eq=False)
class Interpreter(InterpreterHooks[V, S, N], BodyInterpreter, Generic[V, S, N], metaclass=InterpreterType):
    """Base class of user-written handlers. Loops, branches and calls need no rules: their bodies are interpreted.

    `V` is the type of the handler's own values: a pytree of arrays that represents one array of the program. Handlers
    without own values omit it. `S` is the type of the state: a pytree of arrays, which loops carry and branches return.
    `N` is the type of the names under which the handler collects values.

    An interpreter is a value: subclasses are frozen attrs classes, whose annotated attributes are fields. The fields
    are its options, and two interpreters with equal options are equal (by identity with `class X(Interpreter,
    eq=False)`). To run a function under it, pass it to `tracefx.handle`, or write `with interpreter.running() as
    handler:`. `handler` is a copy of the interpreter that refers to this run; only such a copy, which is also what
    rules receive, has a state, an inner handler and values. So an interpreter may run several times, also in several
    threads at once.

    The methods that are decorated with `rule` are the rules. The handler handles a primitive if one of its operands is
    an own value; with `handles_all`, it handles every primitive. It applies the first of these that exists:

    1. the rule for the exact class of the primitive, or for a capability that the class inherits from;
    2. for primitives with sub-jaxprs that are `BodyTransformable`: the primitive with interpreted bodies;
    3. the rule for a family of primitives;
    4. the expansion into smaller primitives (`Expandable`).

    If none exists, `bind` raises `MissingRuleError` if an operand is an own value or the primitive has sub-jaxprs, and
    otherwise passes the primitive to `inner`. Primitives whose only effects are debug effects (printing, for example)
    receive `debug_value` of own values.

    Rules run with `inner` as the current handler. They take and return values of type `V` or plain values.

    >>> from tracefx import handle, numpy as fnp, ops
    >>> from tracefx.extend import Interpreter, Value, rule
    >>> class CosineForSine(Interpreter):
    ...     @rule(ops.Sin)
    ...     def sin(self, op: ops.Sin, x: Value) -> Value:
    ...         return fnp.cos(x)
    >>> print(handle(fnp.sin, CosineForSine())(0.0))
    1.0
    """

    _run: Run[S, N] | None = field(default=None, init=False, eq=False, repr=False)

    handles_all: ClassVar[bool] = True
    """Whether the handler also handles primitives all of whose operands are plain values.

    By default, a class with own values, which defines `aval_of`, does not.
    """
    has_state: ClassVar[bool] = False
    """Whether the handler has a state or collects values; if so, both are threaded through the bodies of primitives."""

    @override
    def __init_subclass__(cls, *, eq: bool = True) -> None:
        super().__init_subclass__()
        freeze_class(cls, eq)
        overrides_handles_all = any("handles_all" in vars(c) for c in cls.__mro__[: cls.__mro__.index(Interpreter)])
        if cls.aval_of is not Interpreter.aval_of and not overrides_handles_all:
            cls.handles_all = False

    @property
    def rules(self) -> Rules[Self, V | Value]:
        """The table of rules: of the methods decorated with `rule`, unless a subclass computes another one."""
        return type(self).rule_table

    # -------------------------------------------------------------- values, state, collected values

    def wrap(self, value: V | Value) -> Value:
        """Returns a value as the program sees it: an own value becomes a tracer, a plain one stays as it is.

        Args:
            value: An own value, a plain value, or a number.

        Raises:
            TypeError: If it is a list of values, or the class has no own values.
        """
        if isinstance(value, Array):
            return value
        if isinstance(value, _NUMERIC_TYPES):
            return as_value(value)
        if isinstance(value, list) or (isinstance(value, tuple) and type(value) is tuple and len(value) == 1):
            raise TypeError(f"{value!r} would be ambiguous as a value of {self.title}: it is a list of values")
        aval = self.aval_of(value)
        if self.run.checks_vma:  # it varies wherever anything that is stored with the value does
            aval = aval.with_vma(join_vma([x.aval for x in leaf_values(value)]))
        return InterpreterTracer(self, value, aval, current_provenance())

    def unwrap(self, x: Value) -> V | Value:
        """Returns the own value of a tracer of this handler, and any other value unchanged.

        Args:
            x: A value of the program.
        """
        return x.value if type(x) is InterpreterTracer and x.interpreter is self else x

    def _is_own(self, x: Value) -> TypeGuard[InterpreterTracer[V]]:
        return type(x) is InterpreterTracer and x.interpreter is self

    @property
    def current_state(self) -> S:
        """The state at this point of the program."""
        return cast(S, self.run.state)

    def set_state(self, state: S) -> None:
        """Replaces the state.

        Args:
            state: The new state.

        Raises:
            TypeError: If the class does not set `has_state`.
        """
        self._require_state()
        self.run.state = state

    def collect(self, name: N, value: object) -> None:
        """Stores a pytree of plain values under a name, to be read from `collected`.

        Args:
            name: The name.
            value: The pytree.

        Raises:
            ValueError: If something has been collected under this name.
            TypeError: If the class does not set `has_state`.
        """
        self._require_state()
        collected = self.run.collected
        if name in collected:
            raise ValueError(f"{self.title} has already collected a value under the name {name!r}")
        collected[name] = value

    def _require_state(self) -> None:
        if not self.has_state:
            raise TypeError(
                f"{type(self).__name__} has a state or collects values, so its class must set has_state = True: "
                "otherwise updates inside functions with custom rules would be lost"
            )

    @property
    def collected(self) -> Mapping[N, object]:
        """The collected values by name; a value that the steps of a loop collected has a leading axis of steps."""
        return MappingProxyType(self.run.collected)

    # -------------------------------------------------------------- runs

    def start(self, inner: Handler, state: S | None = None) -> Self:
        """Starts a run over an inner handler.

        Args:
            inner: The inner handler.
            state: The initial state. None by default.

        Returns:
            The copy of the interpreter that refers to this run.
        """
        running: Self = object.__new__(type(self))
        for name, option in option_values(self).items():
            object.__setattr__(running, name, option)
        object.__setattr__(running, "_run", Run(inner, state))
        return running

    @override
    def over(self, inner: Handler, /) -> Handler:
        return self.start(inner).frame

    def __call__(self, inner: Handler, /) -> Handler:
        """Does the same as `over`, so that `tracefx.handle` takes an interpreter."""
        return self.over(inner)

    @contextmanager
    def running(self, state: S | None = None) -> Iterator[Self]:
        """A context manager that runs its block under the interpreter, over the current handler.

        Args:
            state: The initial state, for classes that set `has_state`.

        Yields:
            The copy of the interpreter that refers to this run. After the block it has the final state.
        """
        if state is not None:
            self._require_state()
        handler = self.start(CURRENT.get(), state)
        with handling(handler.frame):
            yield handler

    @property
    def run(self) -> Run[S, N]:
        """The run that this copy refers to. Raises `HandlerStateError` if it is not running."""
        if self._run is None:
            raise HandlerStateError(
                f"{self!r} is not running, so it has no state, no values and no inner handler: run a function under it "
                "with handle(f, interpreter), or write `with interpreter.running() as handler:`"
            )
        return self._run

    @property
    def inner(self) -> Handler:
        """The inner handler, under which rules run."""
        return self.run.inner

    @property
    def frame(self) -> InterpreterFrame:
        """The handler of the run."""
        return InterpreterFrame(self)

    # -------------------------------------------------------------- handling

    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        """Applies a primitive: by a rule, by interpreting its bodies, by its expansion, or under the inner handler.

        Args:
            prim: The primitive.
            args: The operands, which may be tracers of this handler.

        Returns:
            The results, which may be tracers of this handler.

        Raises:
            MissingRuleError: If none of these applies, and an operand is an own value or the primitive has sub-jaxprs.
        """
        has_own = False
        for a in args:
            if type(a) is InterpreterTracer and a.interpreter is self:
                has_own = True
                break
        # Callables may close over own values.
        if not has_own and not self.handles_all and not isinstance(prim, HasCallables):
            return self.inner.bind(prim, args)
        rules = self.rules
        rule = rules.find_own(prim)
        if rule is None:
            if isinstance(prim, BodyTransformable):
                return self._call_inner(prim.transform_bodies, self, args)
            if isinstance(prim, HasCallables):  # interpreted as the jaxpr that staging would record
                if not has_own:
                    return self._bind_with_callables(prim, args)
                if isinstance(prim, Expandable):
                    return bind_expansion(self.frame, prim, args)
            if has_own and prim.effects and all(isinstance(effect, DebugEffect) for effect in prim.effects):
                operands = [self._call_inner(self.debug_value, a.value) if self._is_own(a) else a for a in args]
                return self._call_inner(self.inner.bind, prim, operands)
            rule = rules.find_family(prim)
        if rule is not None:
            unwrapped = [self.unwrap(a) for a in args]
            try:
                results = self._call_inner(rule, self, prim, *unwrapped)
            except TypeError:
                check_call(rule, prim.name, (self, prim, *unwrapped), HANDLER_RULE_PARAMETERS)
                raise
            return checked_outputs(rule, prim, args, results, self.wrap)
        if not has_own:
            if isinstance(prim, HasSubjaxprs):
                raise rules.missing_rule_error(self.title, prim)
            return self.inner.bind(prim, args)
        if isinstance(prim, Expandable):
            return bind_expansion(self.frame, prim, args)
        raise rules.missing_rule_error(self.title, prim)

    def _bind_with_callables(self, prim: HasCallables, args: Sequence[Value]) -> Sequence[Value]:
        """Binds a primitive that holds user functions, which run under this handler.

        Updates of the state inside these functions, and own values that they close over, are visible only if the
        functions run now or are staged as jaxprs.
        """
        assert isinstance(prim, Primitive)
        if (self.handles_all and not self.has_state) or not isinstance(prim, Expandable):
            wrapped = prim.wrap_callables(self.over)
            assert isinstance(wrapped, Primitive)
            return self._call_inner(self.inner.bind, wrapped, args)
        if self.inner is ROOT:  # no transformation below uses the custom rule
            return bind_expansion(self.frame, prim, args)
        try:
            program, operands = prim.stage_callables(Stage(self.frame), args)
        except ConcretizationError:
            if self.handles_all:
                raise
            return self.inner.bind(prim, args)
        if not self.handles_all and not any(map(self._is_own, operands)):
            return self.inner.bind(prim, args)
        if isinstance(program, HasCallables):  # staging keeps the functions: only the expansion can be interpreted
            return bind_expansion(self.frame, prim, args)
        return self.bind(program, operands)

    def _call_inner(self, f: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls `f` with `inner` as the current handler."""
        token, origin = CURRENT.set(self.inner), SOURCE.set(current_provenance(2))
        try:
            return f(*args, **kwargs)
        finally:
            CURRENT.reset(token)
            SOURCE.reset(origin)

    # -------------------------------------------------------------- interpreting sub-jaxprs (`BodyInterpreter`)

    @override
    def spec(self, x: Value) -> ValueSpec:
        if type(x) is InterpreterTracer and x.interpreter is self:
            return spec_of(x.value)
        return array_spec(x.aval)

    @override
    def arrays(self, x: Value, spec: ValueSpec) -> list[Value]:
        if spec.tree is not None:
            value = x.value if self._is_own(x) else self.lift(x)
            actual = spec_of(value)
            if not actual.same_structure(spec):
                value = self.unify(value, self._zeros(spec))[0]
            leaves = leaf_values(value)
        else:
            leaves = [self.strip_to_plain(x, "a plain value")]
        return cast_arrays(leaves, spec)

    @override
    def value(self, spec: ValueSpec, arrays: Sequence[Value]) -> Value:
        if spec.tree is None:
            (x,) = arrays
            return x
        return self.wrap(unflatten_spec(spec, arrays))

    @override
    def join(self, x: ValueSpec, y: ValueSpec, what: str) -> ValueSpec:
        if x == y:
            return x
        if not x.same_structure(y):
            try:
                a, b = self._zeros(x), self._zeros(y)
                if trees.structure(a) != trees.structure(b):
                    a, b = self.unify(a, b)
            except TypeError as error:
                raise TypeError(f"{self.title}: {what} must have one type, got {x} and {y}: {error}") from error
            x, y = spec_of(a), spec_of(b)
        return join_avals(x, y, f"{self.title}: {what}")

    def _zeros(self, spec: ValueSpec) -> V:
        """Returns an own value of zeros with a spec; that of a plain value is lifted."""
        if spec.tree is None:
            return self.lift(constant_like_aval(spec.avals[0], 0))
        return cast(V, zeros_like_spec(spec))

    def _zero_state(self, spec: ValueSpec) -> S:
        return cast(S, zeros_like_spec(spec))

    def join_states(self, x: ValueSpec, y: ValueSpec, what: str) -> ValueSpec:
        """Returns a spec that the state can have both before and after a body.

        Args:
            x: The spec of the state before the body.
            y: The spec of the state after it.
            what: The name of the body, for messages.

        Raises:
            TypeError: If there is none.
        """
        if not x.same_structure(y):
            try:
                a, b = self.unify_states(self._zero_state(x), self._zero_state(y))
            except TypeError as error:
                raise TypeError(f"{self.title}: {what} takes the state {x} and returns {y}: {error}") from error
            x, y = spec_of(a), spec_of(b)
        return join_avals(x, y, f"{self.title}: the state in {what}")

    @override
    def strip_to_plain(self, x: Value, what: str) -> Value:
        return self.strip(x.value) if self._is_own(x) else x

    @override
    def state(self, spec: ValueSpec | None) -> list[Value]:
        if spec is None:
            return []
        state = self.current_state
        if not spec_of(state).same_structure(spec):
            state, _ = self.unify_states(state, self._zero_state(spec))
        return cast_arrays(leaf_values(state), spec)

    @override
    def restore_state(self, spec: ValueSpec, arrays: Sequence[Value]) -> None:
        self.run.state = unflatten_spec(spec, arrays)

    @override
    def collect_from_body(self, collected: Sequence[CollectedSpec], arrays: Sequence[Value]) -> None:
        start = 0
        for each in collected:
            n = len(each.spec.avals)
            self.collect(self._name(each), unflatten_spec(each.spec, arrays[start : start + n]))
            start += n

    @override
    def collected_of_empty_loop(self, collected: CollectedSpec) -> list[Value]:
        return self._default_arrays(collected, None)

    def _default_arrays(self, collected: CollectedSpec, what: str | None) -> list[Value]:
        return [as_value(a) for a in self.default_collected(self._name(collected), collected.spec.avals, what)]

    def _name(self, collected: CollectedSpec) -> N:
        return cast(N, collected.name)  # specs of values that this handler collects

    @override
    def interpret(self, jaxpr: Jaxpr, args: Sequence[Value]) -> Sequence[Value]:
        with ENCLOSING_SCOPES.override(full_scopes()):
            return call_under(self.frame, eval_jaxpr, jaxpr, (), args)

    @override
    def transform_body(
        self,
        jaxpr: Jaxpr,
        inputs: Sequence[ValueSpec],
        name: BodyName,
        *,
        outs: Sequence[ValueSpec | None] = (),
        state: ValueSpec | None = None,
        collected: Sequence[CollectedSpec] = (),
        plain: bool = False,
    ) -> TransformedBody:
        keeps_state = state is not None
        before = state if state is not None else spec_of(self.run.state)
        outs, wanted = tuple(outs) or (None,) * len(jaxpr.outs), tuple(collected)
        transform = partial(self._transform_body, jaxpr, inputs, str(name), outs, before, wanted, plain)
        own_key = self.cache_key
        key = type(self), own_key, full_scopes(), tuple(inputs), outs, before, wanted, plain
        body = transform() if own_key is None else jaxpr.memo.get(_TRANSFORMED, key, transform)
        return body if keeps_state or body.state is None else self._drop_unchanged_state(body, before)

    def _drop_unchanged_state(self, body: TransformedBody, before: ValueSpec) -> TransformedBody:
        """Removes the state from a body that returns it unchanged: the parts it reads become constants."""
        k, s, jaxpr = len(body.consts), len(before.avals), body.jaxpr
        if body.state != before or jaxpr.outs[:s] != jaxpr.invars[k : k + s]:
            return body
        if s:
            jaxpr = drop_outputs(jaxpr, s)
        consts = (*body.consts, *self.state(before))
        return TransformedBody(jaxpr, consts, None, None, body.outs, body.collected)

    def _transform_body(
        self,
        jaxpr: Jaxpr,
        inputs: Sequence[ValueSpec],
        what: str,
        outs: Sequence[ValueSpec | None],
        before: ValueSpec,
        wanted: tuple[CollectedSpec, ...],
        plain: bool,
    ) -> TransformedBody:
        after, out_specs, collected_specs = before, list[ValueSpec](), wanted

        def run(*arrays: Value) -> list[Value]:
            nonlocal after, out_specs, collected_specs
            handler = self.start(CURRENT.get())
            remaining = iter(arrays)
            handler.restore_state(before, [next(remaining) for _ in before.avals])
            args = [handler.value(spec, [next(remaining) for _ in spec.avals]) for spec in inputs]
            results = handler.interpret(jaxpr, args)
            token = CURRENT.set(handler.inner)
            try:
                if plain:
                    results = [handler.strip_to_plain(x, what) for x in results]
                out_specs = [
                    handler.spec(x) if spec is None else handler.join(spec, handler.spec(x), f"{what}, output {i},")
                    for i, (x, spec) in enumerate(zip(results, outs, strict=True))
                ]
                flat = [a for x, spec in zip(results, out_specs, strict=True) for a in handler.arrays(x, spec)]
                after = handler.join_states(before, spec_of(handler.run.state), what)
                state_arrays = handler.state(after)
                collected = handler.run.collected
                collected_specs = (
                    *wanted,
                    *[CollectedSpec(n, spec_of(x)) for n, x in collected.items() if n not in {w.name for w in wanted}],
                )
                collected_arrays = [
                    a
                    for each in collected_specs
                    for a in (
                        cast_collected(collected[self._name(each)], each.spec, what, each.name)
                        if each.name in collected
                        else handler._default_arrays(each, what)
                    )
                ]
            finally:
                CURRENT.reset(token)
            return [*state_arrays, *flat, *collected_arrays]

        avals = [a for spec in (before, *inputs) for a in spec.avals]
        body, consts = stage(run, avals, self.inner, title=self.title)
        return TransformedBody(body.closed(), tuple(consts), before, after, tuple(out_specs), collected_specs)


Interpreter.__setattr__ = refuse_assignment  # type: ignore[method-assign]  # attrs rejects a class with its own


@final
@frozen(eq=False)
class InterpreterFrame(Handler):
    """The handler of a run of an interpreter."""

    interpreter: Interpreter[Any, Any, Any]

    @property
    @override
    def title(self) -> str:
        return self.interpreter.title

    @property
    @override
    def inner(self) -> Handler:
        return self.interpreter.inner

    @property
    @override
    def thread(self) -> int:
        return self.interpreter.run.thread

    @property
    @override
    def evaluates(self) -> bool:
        return not self.interpreter.handles_all and self.interpreter.inner.evaluates

    @override
    def owns(self, tracer: Tracer) -> bool:
        return type(tracer) is InterpreterTracer and tracer.interpreter is self.interpreter

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        return self.interpreter.bind(prim, args)

    @override
    def unwrap_result(self, x: Value) -> Value:
        return self.interpreter._call_inner(self.interpreter.strip_to_plain, x, "the result of a function")
