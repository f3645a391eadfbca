"""`Interpreter`, the base class of user-written handlers: a table of rules, own values, a state, collected values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, Never, Self, cast, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import ParamSpec, TypeVar, override

from tracefx.core.array import Array
from tracefx.core.avals import NOWHERE, Axes, ShapedArray
from tracefx.core.body_transform import BodyTransformable, CollectedSpec, TransformedBody, ValueSpec, array_spec
from tracefx.core.callables import HasCallables
from tracefx.core.dtypes import NDArray
from tracefx.core.effects import DebugEffect
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import CURRENT, ROOT, Handler, Origin, Tracer, as_array, at_origin, bind_expansion, varies
from tracefx.core.jaxpr import HasSubjaxprs, Jaxpr
from tracefx.core.literal import Literal
from tracefx.core.primitive import Expandable, Primitive, missing_rule_error
from tracefx.core.source_location import EQN_LOCATION, current_provenance
from tracefx.core.values import Value, as_value
from tracefx.errors import (
    ConcretizationError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
)
from tracefx.interpreters.rules import Rules
from tracefx.interpreters.stage import Stage, stage
from tracefx.ops.structural import constant_like_aval, convert_value
from tracefx.pytrees import trees

V = TypeVar("V", default=Never)
S = TypeVar("S", default=None)
P = ParamSpec("P")
R = TypeVar("R")

_NUMERIC_TYPES: Final = (bool, int, float, complex, np.generic, np.ndarray)
_PIECEWISE_CONSTANT: Final = frozenset({TracerBoolConversionError, TracerIntegerConversionError})


@final
class InterpreterTracer(Tracer):
    """A tracer of an `Interpreter`: one of the handler's own values, seen by the program as an array of `aval`.

    A plain class rather than an attrs class, for the same reason as `StageTracer`: speed of construction.
    """

    __slots__ = ("aval", "handler", "held", "origin")
    aval: ShapedArray
    handler: Interpreter[Any, Any]
    origin: Origin

    def __init__(self, handler: Interpreter[Any, Any], held: object, aval: ShapedArray, origin: Origin) -> None:
        self.handler = handler
        self.held = held
        self.aval = aval
        self.origin = origin

    @property
    @override
    def varies(self) -> Axes:
        return NOWHERE.union(*map(varies, _leaf_values(self.held)))

    @override
    def concrete_or_error(self, error: type[ConcretizationError]) -> NDArray:
        if error not in _PIECEWISE_CONSTANT:
            raise error(
                f"a NumPy array cannot be made from {self}, created by {self.handler.title}{at_origin(self.origin)}: "
                f"it would lose what {self.handler.title} stores with the value. Use the functions of tracefx.numpy"
            )
        x = self.handler.strip_to_plain(self, "a Python number")
        return x.numpy() if isinstance(x, Literal) else x.concrete_or_error(error)

    @override
    def __repr__(self) -> str:
        return f"InterpreterTracer({self.aval}, {self.held})"


@final
class Store(Generic[S]):
    """The mutable part of an `Interpreter`: its state and the values it has collected."""

    __slots__ = ("collected", "state")

    def __init__(self) -> None:
        self.state: S | None = None
        self.collected: dict[Hashable, object] = {}


@frozen(eq=False)
class Interpreter(Handler, Generic[V, S]):
    """Base class of user-written handlers. Loops, branches and calls need no rules: their bodies are interpreted.

    `V` is the type of the handler's own values: a pytree of arrays that represents one array of the program. Handlers
    without own values omit it. `S` is the type of the state: a pytree of arrays, which loops carry and branches return.

    The handler handles a primitive if one of its operands is an own value; with `handles_all`, it handles every
    primitive. It applies the first of these that exists:

    1. the rule in `rules` for the exact class of the primitive, or for a capability that the class inherits from;
    2. for primitives with sub-jaxprs that are `BodyTransformable`: the primitive with interpreted bodies;
    3. the rule in `rules` for a family of primitives;
    4. the expansion into smaller primitives (`Expandable`).

    If none exists, `bind` raises `MissingRuleError` if an operand is an own value or the primitive has sub-jaxprs, and
    otherwise passes the primitive to `inner`. Primitives whose only effects are debug effects (printing, for example)
    receive `debug_value` of own values.

    Rules run with `inner` as the current handler. They take and return values of type `V` or plain values.

    Args:
        inner: the next handler of the chain, usually `current()`.

    >>> from tracefx import numpy as fnp
    >>> from tracefx.core.handler import current, handling
    >>> from tracefx.ops.elementwise.transcendental import Sin
    >>> class CosineForSine(Interpreter):
    ...     handles_all = True
    ...     @property
    ...     def rules(self):
    ...         return Rules().on(Sin, lambda handler, prim, x: [fnp.cos(x)])
    >>> with handling(CosineForSine(current())):
    ...     print(fnp.sin(0.0))
    1.0
    """

    inner: Handler
    store: Store[S] = field(factory=Store, init=False, repr=False)
    thread: int = field(factory=threading.get_ident, init=False, repr=False)

    handles_all: ClassVar[bool] = False
    """Whether the handler also handles primitives all of whose operands are plain values."""
    has_state: ClassVar[bool] = False
    """Whether the handler has a state or collects values; if so, both are threaded through the bodies of primitives."""

    # -------------------------------------------------------------- methods that subclasses override

    @property
    def rules(self) -> Rules[Self, V | Value]:
        """The table of rules, from classes of primitives to functions `rule(handler, primitive, *operands)`."""
        return Rules()

    @property
    def cache_key(self) -> Hashable:
        """A hashable key of everything the rules depend on besides operands and state, or `None`.

        Interpreted bodies are cached under this key; with `None`, the default, they are interpreted anew each time.
        Handlers whose rules depend on arrays that they hold must return `None`.
        """
        return None

    def aval_of(self, value: V) -> ShapedArray:
        """Returns the shape and dtype that one of the handler's own values has in the program."""
        raise TypeError(f"{type(self).__name__} has values of its own, so it must define aval_of(self, value)")

    def lift(self, x: Value) -> V:
        """Converts a plain value to an own value, where a loop or a branch joins the two."""
        raise TypeError(f"{self.title} cannot convert a plain value to one of its own values: define lift(self, x)")

    def unify(self, x: V, y: V) -> tuple[V, V]:
        """Converts two own values of different structure to a common structure, where a loop or branches join them.

        The result structure may depend only on the structures of `x` and `y`. The default raises `TypeError`.
        """
        raise TypeError(f"{trees.structure(x)} and {trees.structure(y)} have no common structure")

    def unify_states(self, x: S, y: S) -> tuple[S, S]:
        """Converts two states of different structure to a common one, like `unify` for values.

        The default raises `TypeError`.
        """
        raise TypeError(
            "a state must keep its structure: initialize all its parts before the function runs, or define "
            "unify_states(self, x, y)"
        )

    def strip(self, value: V) -> Value:
        """Returns the plain value of an own value, where the program branches on it."""
        raise TypeError(
            f"{self.title} cannot convert one of its own values to a plain value: define strip(self, value)"
        )

    def debug_value(self, value: V) -> Value:
        """Returns the plain value that debug effects, such as printing, receive for an own value.

        The default is that of `strip`.
        """
        return self.strip(value)

    def default_collected(self, name: Hashable, avals: Sequence[ShapedArray], what: str | None) -> Sequence[Value]:
        """Returns the arrays for `name` where a branch or an empty loop has not collected anything under it.

        Args:
            name: the name under which another branch, or a step of the loop, collects a value.
            avals: the shape and dtype of each array to return.
            what: the branch, in words for messages; `None` for a loop, which may run no step.

        Returns:
            The arrays; by default, zeros.
        """
        return [constant_like_aval(aval, 0) for aval in avals]

    # -------------------------------------------------------------- values, state, collected values

    def wrap(self, value: V | Value) -> Value:
        """Returns a value as the program sees it: an own value becomes a tracer, a plain one stays as it is."""
        if isinstance(value, (Array, Literal)):
            return value
        if isinstance(value, _NUMERIC_TYPES):
            return as_value(value)
        return InterpreterTracer(self, value, self.aval_of(value), current_provenance())

    def unwrap(self, x: Value) -> V | Value:
        """Returns the own value of a tracer of this handler, and any other value unchanged."""
        return cast(V, x.held) if type(x) is InterpreterTracer and x.handler is self else x

    def _is_own(self, x: Value) -> bool:
        return type(x) is InterpreterTracer and x.handler is self

    @property
    def current_state(self) -> S:
        """The state at this point of the program."""
        return cast(S, self.store.state)

    def set_state(self, state: S) -> None:
        """Replaces the state. Raises `TypeError` if the class does not set `has_state`."""
        self._require_state()
        self.store.state = state

    def collect(self, name: Hashable, value: object) -> None:
        """Stores a pytree of plain values under a name, to be read from `collected`.

        Raises:
            ValueError: something has been collected under this name.
            TypeError: the class does not set `has_state`.
        """
        self._require_state()
        if name in self.store.collected:
            raise ValueError(f"{self.title} has already collected a value under the name {name!r}")
        self.store.collected[name] = value

    def _require_state(self) -> None:
        if not self.has_state:
            raise TypeError(
                f"{type(self).__name__} has a state or collects values, so its class must set has_state = True: "
                "otherwise updates inside functions with custom rules would be lost"
            )

    @property
    def collected(self) -> Mapping[Hashable, object]:
        """The collected values by name; a value that the steps of a loop collected has a leading axis of steps."""
        return MappingProxyType(self.store.collected)

    # -------------------------------------------------------------- handling

    @property
    @override
    def title(self) -> str:
        return type(self).__name__.lower()

    @property
    @override
    def evaluates(self) -> bool:
        return not self.handles_all and self.inner.evaluates

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        has_own = False
        for a in args:
            if type(a) is InterpreterTracer and a.handler is self:
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
                    return bind_expansion(self, prim, args)
            if has_own and prim.effects and all(isinstance(effect, DebugEffect) for effect in prim.effects):
                operands = [
                    self._call_inner(self.debug_value, cast(V, self.unwrap(a))) if self._is_own(a) else a for a in args
                ]
                return self._call_inner(self.inner.bind, prim, operands)
            rule = rules.find_family(prim)
        if rule is not None:
            results = self._call_inner(rule, self, prim, *[self.unwrap(a) for a in args])
            if type(results) is not list and type(results) is not tuple:
                self._require_outputs(prim, results)
            return [self.wrap(x) for x in results]
        if not has_own:
            if isinstance(prim, HasSubjaxprs):
                raise self._no_rule(prim)
            return self.inner.bind(prim, args)
        if isinstance(prim, Expandable):
            return bind_expansion(self, prim, args)
        raise self._no_rule(prim)

    def _bind_with_callables(self, prim: HasCallables, args: Sequence[Value]) -> Sequence[Value]:
        """Binds a primitive that holds user functions, which run under this handler.

        Updates of the state inside these functions, and own values that they close over, are visible only if the
        functions run now or are staged as jaxprs.
        """
        assert isinstance(prim, Primitive)
        if (self.handles_all and not self.has_state) or not isinstance(prim, Expandable):
            wrapped = prim.wrap_callables(self.with_inner)
            assert isinstance(wrapped, Primitive)
            return self._call_inner(self.inner.bind, wrapped, args)
        if self.inner is ROOT:  # no transformation below uses the custom rule
            return bind_expansion(self, prim, args)
        try:
            program, operands = prim.stage_callables(Stage(self), args)
        except ConcretizationError:
            if self.handles_all:
                raise
            return self.inner.bind(prim, args)
        if not self.handles_all and not any(map(self._is_own, operands)):
            return self.inner.bind(prim, args)
        if isinstance(program, HasCallables):  # staging keeps the functions: only the expansion can be interpreted
            return bind_expansion(self, prim, args)
        return self.bind(program, operands)

    def _require_outputs(self, prim: Primitive, results: object) -> None:
        """Raises `TypeError` unless a rule returned a list of outputs.

        An array is a sequence of its rows and a named tuple one of its fields; neither is a list of outputs.
        """
        if isinstance(results, (Array, Literal)) or hasattr(results, "_fields") or not isinstance(results, Sequence):
            raise TypeError(
                f"the rule of {self.title} for {prim.name} returned {type(results).__name__} instead of a list of "
                "outputs: return [out]"
            )

    def _no_rule(self, prim: Primitive) -> Exception:
        capabilities = [capability.__name__ for capability, _ in self.rules.capabilities]
        inherit = f" or {' or '.join(capabilities)}" if capabilities else ""
        enter = f"inherit from {'BodyTransformable' if isinstance(prim, HasSubjaxprs) else 'Expandable'}"
        return missing_rule_error(
            prim,
            self.title,
            f"{enter}{inherit}; or give the handler a rule, with rules.on({type(prim).__name__}, ...), or with "
            "rules.family(...) for a family of primitives",
        )

    def _call_inner(self, f: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls `f` with `inner` as the current handler."""
        token, origin = CURRENT.set(self.inner), EQN_LOCATION.set(current_provenance(2))
        try:
            return f(*args, **kwargs)
        finally:
            CURRENT.reset(token)
            EQN_LOCATION.reset(origin)

    # -------------------------------------------------------------- interpreting sub-jaxprs (`BodyInterpreter`)

    def with_inner(self, handler: Handler) -> Self:
        """Returns the same interpretation over another handler, with an empty state."""
        return evolve(self, inner=handler)

    @override
    def unwrap_result(self, x: Value) -> Value:
        return self._call_inner(self.strip_to_plain, x, "the result of a function")

    def spec(self, x: Value) -> ValueSpec:
        if type(x) is InterpreterTracer and x.handler is self:
            return _spec_of(x.held)
        return array_spec(x.aval)

    def arrays(self, x: Value, form: ValueSpec) -> list[Value]:
        unwrapped = self.unwrap(x)
        is_own = type(x) is InterpreterTracer and x.handler is self
        if form.tree is not None:
            value = cast(V, unwrapped) if is_own else self.lift(x)
            actual = _spec_of(value)
            if not actual.same_structure(form):
                value = self.unify(value, cast(V, _zeros_like_spec(form)))[0]
            leaves = _leaf_values(value)
        else:
            leaves = [self.strip_to_plain(x, "a plain value") if is_own else x]
        return _cast_arrays(leaves, form)

    def value(self, form: ValueSpec, arrays: Sequence[Value]) -> Value:
        if form.tree is None:
            (x,) = arrays
            return x
        return self.wrap(cast(V, _unflatten(form, arrays)))

    def join(self, x: ValueSpec, y: ValueSpec, what: str) -> ValueSpec:
        if x == y:
            return x
        if not x.same_structure(y):
            try:
                a = cast(V, _zeros_like_spec(x)) if x.tree is not None else self.lift(cast(Value, _zeros_like_spec(x)))
                b = cast(V, _zeros_like_spec(y)) if y.tree is not None else self.lift(cast(Value, _zeros_like_spec(y)))
                if trees.structure(a) != trees.structure(b):
                    a, b = self.unify(a, b)
            except TypeError as error:
                raise TypeError(f"{self.title}: {what} is {x} here and {y} there: {error}") from error
            x, y = _spec_of(a), _spec_of(b)
        return self._join_avals(x, y, what)

    def join_states(self, x: ValueSpec, y: ValueSpec, what: str) -> ValueSpec:
        """Returns a spec that the state can have both before (`x`) and after (`y`) a body."""
        if not x.same_structure(y):
            try:
                a, b = self.unify_states(cast(S, _zeros_like_spec(x)), cast(S, _zeros_like_spec(y)))
            except TypeError as error:
                raise TypeError(f"{self.title}: {what} takes the state {x} and returns {y}: {error}") from error
            x, y = _spec_of(a), _spec_of(b)
        return self._join_avals(x, y, f"the state in {what}")

    def _join_avals(self, x: ValueSpec, y: ValueSpec, what: str) -> ValueSpec:
        avals = []
        for p, q in zip(x.avals, y.avals, strict=True):
            if p.shape != q.shape or p.dtype != q.dtype:
                raise TypeError(f"{self.title}: {what} is {x} here and {y} there")
            avals.append(ShapedArray(p.shape, p.dtype, p.weak_type and q.weak_type))
        return ValueSpec(x.tree, tuple(avals))

    def strip_to_plain(self, x: Value, what: str) -> Value:
        return self.strip(cast(V, x.held)) if type(x) is InterpreterTracer and x.handler is self else x

    def state(self, form: ValueSpec | None) -> list[Value]:
        if form is None:
            return []
        state = self.current_state
        if not _spec_of(state).same_structure(form):
            state, _ = self.unify_states(state, cast(S, _zeros_like_spec(form)))
        return _cast_arrays(_leaf_values(state), form)

    def restore_state(self, form: ValueSpec, arrays: Sequence[Value]) -> None:
        self.store.state = cast(S, _unflatten(form, arrays))

    def collect_from_body(self, collected: Sequence[CollectedSpec], arrays: Sequence[Value]) -> None:
        start = 0
        for each in collected:
            n = len(each.spec.avals)
            self.collect(each.name, _unflatten(each.spec, arrays[start : start + n]))
            start += n

    def collected_of_empty_loop(self, collected: CollectedSpec) -> list[Value]:
        return self._default_arrays(collected, None)

    def _default_arrays(self, collected: CollectedSpec, what: str | None) -> list[Value]:
        return [as_value(a) for a in self.default_collected(collected.name, collected.spec.avals, what)]

    def run(self, jaxpr: Jaxpr, args: Sequence[Value]) -> Sequence[Value]:
        token = CURRENT.set(self)
        try:
            return eval_jaxpr(jaxpr, (), args)
        finally:
            CURRENT.reset(token)

    def transform_body(
        self,
        jaxpr: Jaxpr,
        inputs: Sequence[ValueSpec],
        what: str,
        *,
        outs: Sequence[ValueSpec | None] = (),
        state: ValueSpec | None = None,
        collected: Sequence[CollectedSpec] = (),
        bare: bool = False,
    ) -> TransformedBody:
        keeps_state = state is not None
        before = state if state is not None else _spec_of(self.store.state)
        outs, wanted = tuple(outs) or (None,) * len(jaxpr.outs), tuple(collected)
        if self.cache_key is None:
            body = self._transform_body(jaxpr, inputs, what, outs, before, wanted, bare)
        else:
            key = ("entered", type(self), self.cache_key, tuple(inputs), outs, before, wanted, bare)
            body = jaxpr.memo.get(key, lambda: self._transform_body(jaxpr, inputs, what, outs, before, wanted, bare))
        return body if keeps_state or body.state is None else self._drop_unchanged_state(body, before)

    def _drop_unchanged_state(self, body: TransformedBody, before: ValueSpec) -> TransformedBody:
        """Removes the state from a body that returns it unchanged: the parts it reads become constants."""
        k, s, jaxpr = len(body.consts), len(before.avals), body.jaxpr
        if body.state != before or jaxpr.outs[:s] != jaxpr.invars[k : k + s]:
            return body
        if s:
            jaxpr = jaxpr.memo.get("settled", lambda: Jaxpr((), jaxpr.invars, jaxpr.eqns, jaxpr.outs[s:]))
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
        bare: bool,
    ) -> TransformedBody:
        after, out_specs, collected_specs = before, list[ValueSpec](), wanted

        def run(*arrays: Value) -> list[Value]:
            nonlocal after, out_specs, collected_specs
            handler = self.with_inner(CURRENT.get())
            remaining = iter(arrays)
            handler.restore_state(before, [next(remaining) for _ in before.avals])
            args = [handler.value(spec, [next(remaining) for _ in spec.avals]) for spec in inputs]
            results = handler.run(jaxpr, args)
            token = CURRENT.set(handler.inner)
            try:
                if bare:
                    results = [handler.strip_to_plain(x, what) for x in results]
                out_specs = [
                    handler.spec(x) if spec is None else handler.join(spec, handler.spec(x), f"{what}, output {i},")
                    for i, (x, spec) in enumerate(zip(results, outs, strict=True))
                ]
                flat = [a for x, spec in zip(results, out_specs, strict=True) for a in handler.arrays(x, spec)]
                after = handler.join_states(before, _spec_of(handler.store.state), what)
                state_arrays = handler.state(after)
                collected = handler.store.collected
                collected_specs = (
                    *wanted,
                    *[CollectedSpec(n, _spec_of(x)) for n, x in collected.items() if n not in {w.name for w in wanted}],
                )
                collected_arrays = [
                    a
                    for each in collected_specs
                    for a in (
                        _fit_collected(collected[each.name], each.spec, what, each.name)
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


def _spec_of(value: object) -> ValueSpec:
    leaves, tree = trees.flatten(value)
    return ValueSpec(tree, tuple([as_value(cast(Value, a)).aval for a in leaves]))


def _unflatten(spec: ValueSpec, values: Sequence[Value]) -> object:
    """Returns the pytree of a spec, with literals converted to arrays."""
    assert spec.tree is not None
    return trees.unflatten(spec.tree, [as_array(x) for x in values])


def _leaf_values(value: object) -> list[Value]:
    return [as_value(cast(Value, a)) for a in trees.leaves(value)]


def _fit_collected(value: object, spec: ValueSpec, what: str, name: Hashable) -> list[Value]:
    actual = _spec_of(value)
    if not actual.same_structure(spec) or [(a.shape, a.dtype) for a in actual.avals] != [
        (a.shape, a.dtype) for a in spec.avals
    ]:
        raise TypeError(f"the value collected as {name!r} in {what} is {actual} here and {spec} there")
    return _cast_arrays(_leaf_values(value), spec)


def _cast_arrays(arrays: Sequence[Value], spec: ValueSpec) -> list[Value]:
    return [convert_value(a, aval.dtype, aval.weak_type) for a, aval in zip(arrays, spec.avals, strict=True)]


def _zeros_like_spec(spec: ValueSpec) -> object:
    """Returns a value of zeros with this spec, to inspect its structure."""
    zeros = [constant_like_aval(aval, 0) for aval in spec.avals]
    return zeros[0] if spec.tree is None else trees.unflatten(spec.tree, zeros)
