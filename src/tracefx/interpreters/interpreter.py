"""The base of handlers that others write: a table of rules, values of one's own, a state, and what is collected."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, Never, Self, cast, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import ParamSpec, TypeVar, override

from tracefx.core import trees
from tracefx.core.array import Array
from tracefx.core.avals import NOWHERE, Axes, ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.effects import Debugging
from tracefx.core.entering import Collected, Enterable, Entered, Form, plain
from tracefx.core.errors import (
    ConcretizationError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
)
from tracefx.core.handler import CURRENT, ROOT, Handler, Origin, Tracer, as_array, at_origin, under, varies
from tracefx.core.jaxpr import CarriesJaxprs, Jaxpr, eval_jaxpr
from tracefx.core.literal import Literal
from tracefx.core.primitive import Expandable, HoldsFunctions, Primitive, missing
from tracefx.core.source import ORIGIN, here
from tracefx.core.values import Value, as_value
from tracefx.interpreters.rules import Rules
from tracefx.interpreters.stage import Stage, stage
from tracefx.ops.basis import filled, retyped

V = TypeVar("V", default=Never)
S = TypeVar("S", default=None)
P = ParamSpec("P")
R = TypeVar("R")

_NUMBERS: Final = (bool, int, float, complex, np.generic, np.ndarray)
_FLAT: Final = frozenset({TracerBoolConversionError, TracerIntegerConversionError})


@final
class Held(Tracer):
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
        return NOWHERE.union(*map(varies, _values(self.held)))

    @override
    def concrete(self, error: type[ConcretizationError]) -> NDArray:
        if error not in _FLAT:
            raise error(
                f"a NumPy array was asked of {self}, made by {self.handler.title}{at_origin(self.origin)}: NumPy knows "
                f"nothing of what {self.handler.title} keeps beside the number. Use the functions of tracefx.numpy"
            )
        x = self.handler.bare(self, "a Python number")
        return x.numpy() if isinstance(x, Literal) else x.concrete(error)

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

    everything: ClassVar[bool] = False
    """Whether operations on plain values are handled too."""
    has_state: ClassVar[bool] = False
    """Whether there is a state, or something is collected: then what programs do to it is looked after."""

    # -------------------------------------------------------------- what subclasses say

    @property
    def rules(self) -> Rules[Self, V | Value]:
        """What is done with which operation."""
        return Rules()

    @property
    def key(self) -> Hashable:
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

    def unite(self, x: V, y: V) -> tuple[V, V]:
        """Two values of different structure, with one that both have: where a loop or branches bring them together.

        It depends on their structure alone. The default refuses.
        """
        raise TypeError(f"{trees.structure(x)} and {trees.structure(y)} have no common form")

    def unite_states(self, x: S, y: S) -> tuple[S, S]:
        """Two states of different structure, with one that both have, as `unite` for values. The default refuses."""
        raise TypeError(
            "a state keeps its structure in programs, so give it all its parts before the function is run, or define "
            "unite_states(self, x, y)"
        )

    def bared(self, value: V) -> Value:
        """The plain value that decides where the program branches."""
        raise TypeError(f"{self.title} does not say which plain value stands for one of its own: define bared(self, x)")

    def displayed(self, value: V) -> Value:
        """The plain value that is shown where the program prints one of one's own: by default the one that decides."""
        return self.bared(value)

    def missing_from(self, name: Hashable, avals: Sequence[ShapedArray], what: str | None) -> Sequence[Value]:
        """What stands for something collected in a branch, which `what` tells, that has not collected it.

        Without `what` it is a loop, which may not have a step that does. The default is zeros.
        """
        return [filled(aval, 0) for aval in avals]

    # -------------------------------------------------------------- values, state, and what is collected

    def wrap(self, value: V | Value) -> Value:
        """A value as the program sees it."""
        if isinstance(value, (Array, Literal)):
            return value
        if isinstance(value, _NUMBERS):
            return as_value(value)
        return Held(self, value, self.aval_of(value), here())

    def unwrap(self, x: Value) -> V | Value:
        return cast(V, x.held) if type(x) is Held and x.handler is self else x

    def _is_mine(self, x: Value) -> bool:
        return type(x) is Held and x.handler is self

    @property
    def current_state(self) -> S:
        return cast(S, self.store.state)

    def become(self, state: S) -> None:
        """Change the state. Raises `TypeError` if the class does not say that it has one."""
        self._require_state()
        self.store.state = state

    def keep(self, name: Hashable, value: object) -> None:
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
        return not self.everything and self.inner.evaluates

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        mine = False
        for a in args:
            if type(a) is Held and a.handler is self:
                mine = True
                break
        if not mine and not self.everything and not isinstance(prim, HoldsFunctions):  # which may close over ours
            return self.inner.bind(prim, args)
        rules = self.rules
        rule = rules.find_own(prim)
        if rule is None:
            if isinstance(prim, Enterable):
                return self._below(prim.entered, self, args)
            if isinstance(prim, HoldsFunctions):  # entered as the program it is where it is recorded
                if not mine:
                    return self._with_functions(prim, args)
                if isinstance(prim, Expandable):
                    return under(self, prim, args)
            if mine and prim.effects and all(isinstance(effect, Debugging) for effect in prim.effects):
                shown = [self._below(self.displayed, cast(V, self.unwrap(a))) if self._is_mine(a) else a for a in args]
                return self._below(self.inner.bind, prim, shown)
            rule = rules.find_family(prim)
        if rule is not None:
            found = self._below(rule, self, prim, *[self.unwrap(a) for a in args])
            if type(found) is not list and type(found) is not tuple:
                self._require_outputs(prim, found)
            return [self.wrap(x) for x in found]
        if not mine:
            if isinstance(prim, CarriesJaxprs):
                raise self._no_rule(prim)
            return self.inner.bind(prim, args)
        if isinstance(prim, Expandable):
            return under(self, prim, args)
        raise self._no_rule(prim)

    def _with_functions(self, prim: HoldsFunctions, args: Sequence[Value]) -> Sequence[Value]:
        """Hand on an operation that holds functions, in which the handler is in force.

        What happens to a state in there comes out only where the functions run at once, or as a program; so does what
        they close over.
        """
        assert isinstance(prim, Primitive)
        if (self.everything and not self.has_state) or not isinstance(prim, Expandable):
            within = prim.within(self.within)
            assert isinstance(within, Primitive)
            return self._below(self.inner.bind, within, args)
        if self.inner is ROOT:  # nobody is there to ask for the rule
            return under(self, prim, args)
        try:
            program, operands = prim.staged(Stage(self), args)
        except ConcretizationError:
            if self.everything:
                raise
            return self.inner.bind(prim, args)
        if not self.everything and not any(map(self._is_mine, operands)):
            return self.inner.bind(prim, args)
        if isinstance(program, HoldsFunctions):  # no program even where it is recorded: what it does is
            return under(self, prim, args)
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
        enter = f"inherit from {'Enterable' if isinstance(prim, CarriesJaxprs) else 'Expandable'}"
        return missing(
            prim,
            self.title,
            f"{enter}{inherit}; or give the handler a rule, by rules.on({type(prim).__name__}, ...) or for a family of "
            "operations by rules.family(...)",
        )

    def _below(self, f: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `f` with the handler below in force."""
        token, origin = CURRENT.set(self.inner), ORIGIN.set(here(2))
        try:
            return f(*args, **kwargs)
        finally:
            CURRENT.reset(token)
            ORIGIN.reset(origin)

    # -------------------------------------------------------------- entering programs

    def within(self, handler: Handler) -> Self:
        """The same interpretation on another handler, with a state of its own."""
        return evolve(self, inner=handler)

    @override
    def let_out(self, x: Value) -> Value:
        return self._below(self.bare, x, "what a function gives")

    def form(self, x: Value) -> Form:
        if type(x) is Held and x.handler is self:
            return _form(x.held)
        return plain(x.aval)

    def arrays(self, x: Value, form: Form) -> list[Value]:
        given = self.unwrap(x)
        mine = type(x) is Held and x.handler is self
        if form.tree is not None:
            value = cast(V, given) if mine else self.lift(x)
            found = _form(value)
            if not found.like(form):
                value = self.unite(value, cast(V, _dummy(form)))[0]
            leaves = _values(value)
        else:
            leaves = [self.bare(x, "a plain value") if mine else x]
        return _retyped(leaves, form)

    def value(self, form: Form, arrays: Sequence[Value]) -> Value:
        if form.tree is None:
            (x,) = arrays
            return x
        return self.wrap(cast(V, _tree(form, arrays)))

    def join(self, x: Form, y: Form, what: str) -> Form:
        if x == y:
            return x
        if not x.like(y):
            try:
                a = cast(V, _dummy(x)) if x.tree is not None else self.lift(cast(Value, _dummy(x)))
                b = cast(V, _dummy(y)) if y.tree is not None else self.lift(cast(Value, _dummy(y)))
                if trees.structure(a) != trees.structure(b):
                    a, b = self.unite(a, b)
            except TypeError as error:
                raise TypeError(f"{self.title}: {what} is {x} here and {y} there: {error}") from error
            x, y = _form(a), _form(b)
        return self._weaker(x, y, what)

    def join_states(self, x: Form, y: Form, what: str) -> Form:
        """A form that the state has before and after a program."""
        if not x.like(y):
            try:
                a, b = self.unite_states(cast(S, _dummy(x)), cast(S, _dummy(y)))
            except TypeError as error:
                raise TypeError(f"{self.title}: {what} takes the state {x} and gives {y}: {error}") from error
            x, y = _form(a), _form(b)
        return self._weaker(x, y, f"the state in {what}")

    def _weaker(self, x: Form, y: Form, what: str) -> Form:
        avals = []
        for p, q in zip(x.avals, y.avals, strict=True):
            if p.shape != q.shape or p.dtype != q.dtype:
                raise TypeError(f"{self.title}: {what} is {x} here and {y} there")
            avals.append(ShapedArray(p.shape, p.dtype, p.weak_type and q.weak_type))
        return Form(x.tree, tuple(avals))

    def bare(self, x: Value, what: str) -> Value:
        return self.bared(cast(V, x.held)) if type(x) is Held and x.handler is self else x

    def state(self, form: Form | None) -> list[Value]:
        if form is None:
            return []
        state = self.current_state
        if not _form(state).like(form):
            state, _ = self.unite_states(state, cast(S, _dummy(form)))
        return _retyped(_values(state), form)

    def proceed(self, form: Form, arrays: Sequence[Value]) -> None:
        self.store.state = cast(S, _tree(form, arrays))

    def collect(self, collected: Sequence[Collected], arrays: Sequence[Value]) -> None:
        place = 0
        for each in collected:
            n = len(each.form.avals)
            self.keep(each.name, _tree(each.form, arrays[place : place + n]))
            place += n

    def absent(self, collected: Collected) -> list[Value]:
        return self._missing(collected, None)

    def _missing(self, collected: Collected, what: str | None) -> list[Value]:
        return [as_value(a) for a in self.missing_from(collected.name, collected.form.avals, what)]

    def run(self, jaxpr: Jaxpr, args: Sequence[Value]) -> Sequence[Value]:
        token = CURRENT.set(self)
        try:
            return eval_jaxpr(jaxpr, (), args)
        finally:
            CURRENT.reset(token)

    def enter(
        self,
        jaxpr: Jaxpr,
        inputs: Sequence[Form],
        what: str,
        *,
        outs: Sequence[Form | None] = (),
        state: Form | None = None,
        collected: Sequence[Collected] = (),
        bare: bool = False,
    ) -> Entered:
        kept = state is not None
        before = state if state is not None else _form(self.store.state)
        outs, wanted = tuple(outs) or (None,) * len(jaxpr.outs), tuple(collected)
        if self.key is None:
            entered = self._enter(jaxpr, inputs, what, outs, before, wanted, bare)
        else:
            key = ("entered", type(self), self.key, tuple(inputs), outs, before, wanted, bare)
            entered = jaxpr.memo.get(key, lambda: self._enter(jaxpr, inputs, what, outs, before, wanted, bare))
        return entered if kept or entered.state is None else self._settled(entered, before)

    def _settled(self, entered: Entered, before: Form) -> Entered:
        """The program without the state, if it hands that on as it is: what it reads of it is a constant then."""
        k, s, jaxpr = len(entered.consts), len(before.avals), entered.jaxpr
        if entered.state != before or jaxpr.outs[:s] != jaxpr.invars[k : k + s]:
            return entered
        if s:
            jaxpr = jaxpr.memo.get("settled", lambda: Jaxpr((), jaxpr.invars, jaxpr.eqns, jaxpr.outs[s:]))
        consts = (*entered.consts, *self.state(before))
        return Entered(jaxpr, consts, None, None, entered.outs, entered.collected)

    def _enter(
        self,
        jaxpr: Jaxpr,
        inputs: Sequence[Form],
        what: str,
        outs: Sequence[Form | None],
        before: Form,
        wanted: tuple[Collected, ...],
        bare: bool,
    ) -> Entered:
        after, forms, found = before, list[Form](), wanted

        def run(*arrays: Value) -> list[Value]:
            nonlocal after, forms, found
            handler = self.within(CURRENT.get())
            taken = iter(arrays)
            handler.proceed(before, [next(taken) for _ in before.avals])
            args = [handler.value(form, [next(taken) for _ in form.avals]) for form in inputs]
            results = handler.run(jaxpr, args)
            token = CURRENT.set(handler.inner)
            try:
                if bare:
                    results = [handler.bare(x, what) for x in results]
                forms = [
                    handler.form(x) if form is None else handler.join(form, handler.form(x), f"{what}, output {i},")
                    for i, (x, form) in enumerate(zip(results, outs, strict=True))
                ]
                flat = [a for x, form in zip(results, forms, strict=True) for a in handler.arrays(x, form)]
                after = handler.join_states(before, _form(handler.store.state), what)
                given = handler.state(after)
                ours = handler.store.collected
                found = (
                    *wanted,
                    *[Collected(n, _form(x)) for n, x in ours.items() if n not in {w.name for w in wanted}],
                )
                more = [
                    a
                    for each in found
                    for a in (
                        _fitted(ours[each.name], each.form, what, each.name)
                        if each.name in ours
                        else handler._missing(each, what)
                    )
                ]
            finally:
                CURRENT.reset(token)
            return [*given, *flat, *more]

        avals = [a for form in (before, *inputs) for a in form.avals]
        entered, consts = stage(run, avals, self.inner, title=self.title)
        return Entered(entered.closed(), tuple(consts), before, after, tuple(forms), found)


def _form(value: object) -> Form:
    leaves, tree = trees.flatten(value)
    return Form(tree, tuple([as_value(cast(Value, a)).aval for a in leaves]))


def _tree(form: Form, values: Sequence[Value]) -> object:
    """What a handler's author gets: arrays, where a program may have numbers."""
    assert form.tree is not None
    return trees.unflatten(form.tree, [as_array(x) for x in values])


def _values(value: object) -> list[Value]:
    return [as_value(cast(Value, a)) for a in trees.leaves(value)]


def _fitted(value: object, form: Form, what: str, name: Hashable) -> list[Value]:
    found = _form(value)
    if not found.like(form) or [(a.shape, a.dtype) for a in found.avals] != [(a.shape, a.dtype) for a in form.avals]:
        raise TypeError(f"what is collected as {name!r} in {what} is {found} here and {form} there")
    return _retyped(_values(value), form)


def _retyped(arrays: Sequence[Value], form: Form) -> list[Value]:
    return [retyped(a, aval.dtype, aval.weak_type) for a, aval in zip(arrays, form.avals, strict=True)]


def _dummy(form: Form) -> object:
    """A value of a form, of zeros: to ask what its structure is like."""
    zeros = [filled(aval, 0) for aval in form.avals]
    return zeros[0] if form.tree is None else trees.unflatten(form.tree, zeros)
