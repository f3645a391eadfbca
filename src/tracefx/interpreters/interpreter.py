"""The base of handlers that others write: a table of rules, values of one's own, a state, and what is collected."""

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
    """A value of a handler's own. A plain class, as `StageTracer` is, and for its reason."""

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
                f"a NumPy array was asked of {self}, made by {self.handler.title}{at_origin(self.origin)}: NumPy knows "
                f"nothing of what {self.handler.title} keeps beside the number. Use the functions of tracefx.numpy"
            )
        x = self.handler.strip_to_plain(self, "a Python number")
        return x.numpy() if isinstance(x, Literal) else x.concrete_or_error(error)

    @override
    def __repr__(self) -> str:
        return f"Held({self.aval}, {self.held})"


@final
class Store(Generic[S]):
    """What changes while a handler is in force: its state, and what it has collected. It dies with the handler."""

    __slots__ = ("collected", "state")

    def __init__(self) -> None:
        self.state: S | None = None
        self.collected: dict[Hashable, object] = {}


@frozen(eq=False)
class Interpreter(Handler, Generic[V, S]):
    """A handler by rules, that acts inside of loops, branches and calls without a word about them.

    `V` is the type of its own values, a pytree of arrays that stands for one array of the program; handlers without
    such leave it out. `S` is the type of its state, a pytree of arrays which loops carry and branches hand on.

    An operation is handled if one of its operands is such a value; with `everything`, every operation is. What holds
    for it is, in this order: its rule in `rules`, or that of a capability; if it carries programs, these are entered;
    the rule of a family; what smaller operations it is made of. Without any of them a value of one's own is an error,
    and an operation on others is handed on.

    Rules run under the handler below, take operands that are values of `V` or plain ones, and give the like.
    """

    inner: Handler
    store: Store[S] = field(factory=Store, init=False, repr=False)
    thread: int = field(factory=threading.get_ident, init=False, repr=False)

    handles_all: ClassVar[bool] = False
    """Whether operations on plain values are handled too."""
    has_state: ClassVar[bool] = False
    """Whether there is a state, or something is collected: then what programs do to it is looked after."""

    # -------------------------------------------------------------- what subclasses say

    @property
    def rules(self) -> Rules[Self, V | Value]:
        """What is done with which operation."""
        return Rules()

    @property
    def cache_key(self) -> Hashable:
        """All that the rules depend on besides operands and state, if they depend on no array of the handler's.

        Programs that were entered are remembered under it; without a key they are entered anew each time.
        """
        return None

    def aval_of(self, value: V) -> ShapedArray:
        """The type that a value of one's own has for the program."""
        raise TypeError(f"{type(self).__name__} has values of its own, so it must define aval_of(self, value)")

    def lift(self, x: Value) -> V:
        """A plain value as one of one's own, for a loop or a branch where one and the other come together."""
        raise TypeError(f"{self.title} can't make a plain value one of its own: define lift(self, x)")

    def unify(self, x: V, y: V) -> tuple[V, V]:
        """Two values of different structure, with one that both have: where a loop or branches bring them together.

        It depends on their structure alone. The default refuses.
        """
        raise TypeError(f"{trees.structure(x)} and {trees.structure(y)} have no common form")

    def unify_states(self, x: S, y: S) -> tuple[S, S]:
        """Two states of different structure, with one that both have, as `unite` for values. The default refuses."""
        raise TypeError(
            "a state keeps its structure in programs, so give it all its parts before the function is run, or define "
            "unite_states(self, x, y)"
        )

    def strip(self, value: V) -> Value:
        """The plain value that decides where the program branches."""
        raise TypeError(f"{self.title} does not say which plain value stands for one of its own: define bared(self, x)")

    def debug_value(self, value: V) -> Value:
        """The plain value that is shown where the program prints one of one's own: by default the one that decides."""
        return self.strip(value)

    def default_collected(self, name: Hashable, avals: Sequence[ShapedArray], what: str | None) -> Sequence[Value]:
        """What stands for something collected in a branch, which `what` tells, that has not collected it.

        Without `what` it is a loop, which may not have a step that does. The default is zeros.
        """
        return [constant_like_aval(aval, 0) for aval in avals]

    # -------------------------------------------------------------- values, state, and what is collected

    def wrap(self, value: V | Value) -> Value:
        """A value as the program sees it."""
        if isinstance(value, (Array, Literal)):
            return value
        if isinstance(value, _NUMERIC_TYPES):
            return as_value(value)
        return InterpreterTracer(self, value, self.aval_of(value), current_provenance())

    def unwrap(self, x: Value) -> V | Value:
        return cast(V, x.held) if type(x) is InterpreterTracer and x.handler is self else x

    def _is_own(self, x: Value) -> bool:
        return type(x) is InterpreterTracer and x.handler is self

    @property
    def current_state(self) -> S:
        return cast(S, self.store.state)

    def set_state(self, state: S) -> None:
        """Change the state. Raises `TypeError` if the class does not say that it has one."""
        self._require_state()
        self.store.state = state

    def collect(self, name: Hashable, value: object) -> None:
        """Collect a pytree of plain values under a name.

        Raises `ValueError` if there is something under this name, `TypeError` if the class lacks `has_state`.
        """
        self._require_state()
        if name in self.store.collected:
            raise ValueError(f"{self.title} has collected something under the name {name!r} already")
        self.store.collected[name] = value

    def _require_state(self) -> None:
        if not self.has_state:
            raise TypeError(
                f"{type(self).__name__} keeps a state or collects, so its class must say has_state = True: else what "
                "happens in functions with rules of their own would be lost"
            )

    @property
    def collected(self) -> Mapping[Hashable, object]:
        """What has been collected: by steps of a loop, stacked."""
        return MappingProxyType(self.store.collected)

    # -------------------------------------------------------------- handling

    @property
    @override
    def title(self) -> str:
        return type(self).__name__.lower()

    @property
    @override
    def below(self) -> Handler:
        return self.inner

    @property
    @override
    def evaluates(self) -> bool:
        return not self.handles_all and self.inner.evaluates

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        mine = False
        for a in args:
            if type(a) is InterpreterTracer and a.handler is self:
                mine = True
                break
        if not mine and not self.handles_all and not isinstance(prim, HasCallables):  # which may close over ours
            return self.inner.bind(prim, args)
        rules = self.rules
        rule = rules.find_own(prim)
        if rule is None:
            if isinstance(prim, BodyTransformable):
                return self._call_inner(prim.transform_bodies, self, args)
            if isinstance(prim, HasCallables):  # entered as the program it is where it is recorded
                if not mine:
                    return self._bind_with_callables(prim, args)
                if isinstance(prim, Expandable):
                    return bind_expansion(self, prim, args)
            if mine and prim.effects and all(isinstance(effect, DebugEffect) for effect in prim.effects):
                shown = [
                    self._call_inner(self.debug_value, cast(V, self.unwrap(a))) if self._is_own(a) else a for a in args
                ]
                return self._call_inner(self.inner.bind, prim, shown)
            rule = rules.find_family(prim)
        if rule is not None:
            found = self._call_inner(rule, self, prim, *[self.unwrap(a) for a in args])
            if type(found) is not list and type(found) is not tuple:
                self._require_outputs(prim, found)
            return [self.wrap(x) for x in found]
        if not mine:
            if isinstance(prim, HasSubjaxprs):
                raise self._no_rule(prim)
            return self.inner.bind(prim, args)
        if isinstance(prim, Expandable):
            return bind_expansion(self, prim, args)
        raise self._no_rule(prim)

    def _bind_with_callables(self, prim: HasCallables, args: Sequence[Value]) -> Sequence[Value]:
        """Hand on an operation that holds functions, in which the handler is in force.

        What happens to a state in there comes out only where the functions run at once, or as a program; so does what
        they close over.
        """
        assert isinstance(prim, Primitive)
        if (self.handles_all and not self.has_state) or not isinstance(prim, Expandable):
            within = prim.wrap_callables(self.with_inner)
            assert isinstance(within, Primitive)
            return self._call_inner(self.inner.bind, within, args)
        if self.inner is ROOT:  # nobody is there to ask for the rule
            return bind_expansion(self, prim, args)
        try:
            program, operands = prim.stage_callables(Stage(self), args)
        except ConcretizationError:
            if self.handles_all:
                raise
            return self.inner.bind(prim, args)
        if not self.handles_all and not any(map(self._is_own, operands)):
            return self.inner.bind(prim, args)
        if isinstance(program, HasCallables):  # no program even where it is recorded: what it does is
            return bind_expansion(self, prim, args)
        return self.bind(program, operands)

    def _require_outputs(self, prim: Primitive, found: object) -> None:
        """An array is a sequence of its rows, and a named tuple one of its parts: neither is a list of outputs."""
        if isinstance(found, (Array, Literal)) or hasattr(found, "_fields") or not isinstance(found, Sequence):
            raise TypeError(
                f"the rule of {self.title} for {prim.name} gives {type(found).__name__} where a list of the outputs is "
                "expected: return [out]"
            )

    def _no_rule(self, prim: Primitive) -> Exception:
        capabilities = [capability.__name__ for capability, _ in self.rules.capabilities]
        inherit = f" or {' or '.join(capabilities)}" if capabilities else ""
        enter = f"inherit from {'BodyTransformable' if isinstance(prim, HasSubjaxprs) else 'Expandable'}"
        return missing_rule_error(
            prim,
            self.title,
            f"{enter}{inherit}; or give the handler a rule, by rules.on({type(prim).__name__}, ...) or for a family of "
            "operations by rules.family(...)",
        )

    def _call_inner(self, f: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `f` with the handler below in force."""
        token, origin = CURRENT.set(self.inner), EQN_LOCATION.set(current_provenance(2))
        try:
            return f(*args, **kwargs)
        finally:
            CURRENT.reset(token)
            EQN_LOCATION.reset(origin)

    # -------------------------------------------------------------- entering programs

    def with_inner(self, handler: Handler) -> Self:
        """The same interpretation on another handler, with a state of its own."""
        return evolve(self, inner=handler)

    @override
    def unwrap_result(self, x: Value) -> Value:
        return self._call_inner(self.strip_to_plain, x, "what a function gives")

    def spec(self, x: Value) -> ValueSpec:
        if type(x) is InterpreterTracer and x.handler is self:
            return _spec_of(x.held)
        return array_spec(x.aval)

    def arrays(self, x: Value, form: ValueSpec) -> list[Value]:
        given = self.unwrap(x)
        mine = type(x) is InterpreterTracer and x.handler is self
        if form.tree is not None:
            value = cast(V, given) if mine else self.lift(x)
            found = _spec_of(value)
            if not found.same_structure(form):
                value = self.unify(value, cast(V, _zeros_like_spec(form)))[0]
            leaves = _leaf_values(value)
        else:
            leaves = [self.strip_to_plain(x, "a plain value") if mine else x]
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
        """A form that the state has before and after a program."""
        if not x.same_structure(y):
            try:
                a, b = self.unify_states(cast(S, _zeros_like_spec(x)), cast(S, _zeros_like_spec(y)))
            except TypeError as error:
                raise TypeError(f"{self.title}: {what} takes the state {x} and gives {y}: {error}") from error
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
        place = 0
        for each in collected:
            n = len(each.spec.avals)
            self.collect(each.name, _unflatten(each.spec, arrays[place : place + n]))
            place += n

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
        kept = state is not None
        before = state if state is not None else _spec_of(self.store.state)
        outs, wanted = tuple(outs) or (None,) * len(jaxpr.outs), tuple(collected)
        if self.cache_key is None:
            entered = self._transform_body(jaxpr, inputs, what, outs, before, wanted, bare)
        else:
            key = ("entered", type(self), self.cache_key, tuple(inputs), outs, before, wanted, bare)
            entered = jaxpr.memo.get(key, lambda: self._transform_body(jaxpr, inputs, what, outs, before, wanted, bare))
        return entered if kept or entered.state is None else self._drop_unchanged_state(entered, before)

    def _drop_unchanged_state(self, entered: TransformedBody, before: ValueSpec) -> TransformedBody:
        """The program without the state, if it hands that on as it is: what it reads of it is a constant then."""
        k, s, jaxpr = len(entered.consts), len(before.avals), entered.jaxpr
        if entered.state != before or jaxpr.outs[:s] != jaxpr.invars[k : k + s]:
            return entered
        if s:
            jaxpr = jaxpr.memo.get("settled", lambda: Jaxpr((), jaxpr.invars, jaxpr.eqns, jaxpr.outs[s:]))
        consts = (*entered.consts, *self.state(before))
        return TransformedBody(jaxpr, consts, None, None, entered.outs, entered.collected)

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
        after, forms, found = before, list[ValueSpec](), wanted

        def run(*arrays: Value) -> list[Value]:
            nonlocal after, forms, found
            handler = self.with_inner(CURRENT.get())
            taken = iter(arrays)
            handler.restore_state(before, [next(taken) for _ in before.avals])
            args = [handler.value(form, [next(taken) for _ in form.avals]) for form in inputs]
            results = handler.run(jaxpr, args)
            token = CURRENT.set(handler.inner)
            try:
                if bare:
                    results = [handler.strip_to_plain(x, what) for x in results]
                forms = [
                    handler.spec(x) if form is None else handler.join(form, handler.spec(x), f"{what}, output {i},")
                    for i, (x, form) in enumerate(zip(results, outs, strict=True))
                ]
                flat = [a for x, form in zip(results, forms, strict=True) for a in handler.arrays(x, form)]
                after = handler.join_states(before, _spec_of(handler.store.state), what)
                given = handler.state(after)
                ours = handler.store.collected
                found = (
                    *wanted,
                    *[CollectedSpec(n, _spec_of(x)) for n, x in ours.items() if n not in {w.name for w in wanted}],
                )
                more = [
                    a
                    for each in found
                    for a in (
                        _fit_collected(ours[each.name], each.spec, what, each.name)
                        if each.name in ours
                        else handler._default_arrays(each, what)
                    )
                ]
            finally:
                CURRENT.reset(token)
            return [*given, *flat, *more]

        avals = [a for form in (before, *inputs) for a in form.avals]
        entered, consts = stage(run, avals, self.inner, title=self.title)
        return TransformedBody(entered.closed(), tuple(consts), before, after, tuple(forms), found)


def _spec_of(value: object) -> ValueSpec:
    leaves, tree = trees.flatten(value)
    return ValueSpec(tree, tuple([as_value(cast(Value, a)).aval for a in leaves]))


def _unflatten(form: ValueSpec, values: Sequence[Value]) -> object:
    """What a handler's author gets: arrays, where a program may have numbers."""
    assert form.tree is not None
    return trees.unflatten(form.tree, [as_array(x) for x in values])


def _leaf_values(value: object) -> list[Value]:
    return [as_value(cast(Value, a)) for a in trees.leaves(value)]


def _fit_collected(value: object, form: ValueSpec, what: str, name: Hashable) -> list[Value]:
    found = _spec_of(value)
    if not found.same_structure(form) or [(a.shape, a.dtype) for a in found.avals] != [
        (a.shape, a.dtype) for a in form.avals
    ]:
        raise TypeError(f"what is collected as {name!r} in {what} is {found} here and {form} there")
    return _cast_arrays(_leaf_values(value), form)


def _cast_arrays(arrays: Sequence[Value], form: ValueSpec) -> list[Value]:
    return [convert_value(a, aval.dtype, aval.weak_type) for a, aval in zip(arrays, form.avals, strict=True)]


def _zeros_like_spec(form: ValueSpec) -> object:
    """A value of a form, of zeros: to ask what its structure is like."""
    zeros = [constant_like_aval(aval, 0) for aval in form.avals]
    return zeros[0] if form.tree is None else trees.unflatten(form.tree, zeros)
