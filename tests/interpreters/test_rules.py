"""Methods that are rules, the options of interpreters, and the check of what rules return."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, final

import attrs
import numpy as np
import pytest
from attrs import field
from attrs.exceptions import FrozenInstanceError
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import untyped
from tests.primitives import SameTypes
from tracefx import lax, ops
from tracefx.extend import (
    Array,
    Interpreter,
    Primitive,
    Rules,
    ShapedArray,
    Value,
    as_array,
    bind,
    bind1,
    rule,
)
from tracefx.ops.elementwise.transcendental import Transcendental
from tracefx.testing.tolerances import ELEMENTARY

# ------------------------------------------------------------------ which primitives a method handles


class Scales(Interpreter):
    """Multiplies results: sines by 2, cosines by 3, other transcendental functions by 5."""

    @rule(ops.Sin)
    def _(self, op: ops.Sin, x: Value) -> Value:
        return bind1(op, x) * 2.0

    @rule(ops.Cos)
    def _(self, op: ops.Cos, x: Value) -> Value:
        return bind1(op, x) * 3.0

    @rule(family=Transcendental)
    def other(self, op: Transcendental, x: Value) -> Value:
        return bind1(op, x) * 5.0


class MoreScales(Scales):
    """Inherits the rule for sines, and has others for cosines and for the family."""

    @rule(ops.Cos, ops.Exp)
    def cos_and_exp(self, op: ops.Cos | ops.Exp, x: Value) -> Value:
        return bind1(op, x) * 7.0

    @override
    def other(self, op: Transcendental, x: Value) -> Value:
        return bind1(op, x) * 11.0


class Renamed(Scales):
    """The method of the family's rule is the rule of another primitive."""

    @rule(ops.Tanh)
    @override
    def other(self, op: Primitive, x: Value) -> Value:  # type: ignore[override]  # for another primitive, on purpose
        return bind1(op, x) * 13.0


def factors(interpreter: Interpreter) -> list[float]:
    functions = (fnp.sin, fnp.cos, fnp.exp, fnp.tanh, fnp.sqrt)
    return [round(float(fx.handle(f, interpreter)(0.5) / f(0.5)), 4) for f in functions]


def test_methods_handle_the_primitives_of_their_rule() -> None:
    assert factors(Scales()) == [2, 3, 5, 5, 5]


def test_subclasses_inherit_and_replace_rules() -> None:
    assert factors(MoreScales()) == [2, 7, 7, 11, 11]
    assert factors(Renamed()) == [2, 3, 1, 13, 1]
    assert factors(Scales()) == [2, 3, 5, 5, 5]


class HasFactor:
    """A capability."""

    __slots__ = ()

    @property
    def factor(self) -> float:
        return 17.0


class Twice(SameTypes, HasFactor):
    name = "twice"

    @override
    def impl(self, *args: Any) -> Sequence[Any]:
        return [args[0] * 2]


class Twofold(Twice):
    name = "twofold"


class ByCapability(Interpreter):
    @rule(ops.Sin, capability=HasFactor)
    def scale(self, op: ops.Sin | HasFactor, x: Value) -> Value:
        return as_array(x) * (op.factor if isinstance(op, HasFactor) else -1.0)


class ByClass(ByCapability):
    @rule(Twice)
    def twice(self, op: Twice, x: Value) -> Value:
        return x


class ByOtherCapability(ByCapability):
    @rule(capability=HasFactor)
    def other(self, op: HasFactor, x: Value) -> Value:
        return as_array(x) * 0.0


def test_rules_of_capabilities() -> None:
    def applied(interpreter: Interpreter) -> list[float]:
        return [float(fx.handle(lambda x, p=p: bind1(p, x), interpreter)(1.0)) for p in (Twice(), Twofold(), ops.Sin())]

    assert applied(ByCapability()) == [17.0, 17.0, -1.0]
    assert applied(ByClass()) == [1.0, 17.0, -1.0]
    assert applied(ByOtherCapability()) == [0.0, 0.0, -1.0]


class Computed(Scales):
    """The table of the methods, extended by a computed one."""

    classes: tuple[type[Primitive], ...] = ()

    @property
    @override
    def rules(self) -> Rules[Computed, Value]:
        table = super().rules
        for cls in self.classes:
            table = table.on(cls, lambda h, op, *xs: bind1(op, *xs) * 19.0)
        return table


def test_computed_tables_extend_the_table_of_the_methods() -> None:
    assert factors(Computed((ops.Sin, ops.Sqrt))) == [19, 3, 5, 5, 19]
    assert factors(Computed()) == factors(Scales())


def define_two_rules_of_one_name() -> None:
    class Double(Interpreter):
        @rule(ops.Sin)
        def f(self, op: ops.Sin, x: Value) -> Value:
            return x

        @rule(ops.Cos)  # type: ignore[no-redef]  # wrong on purpose
        def f(self, op: ops.Cos, x: Value) -> Value:  # noqa: F811
            return x


def define_two_rules_for_one_class() -> None:
    class Double(Interpreter):
        @rule(ops.Sin, ops.Cos)
        def _(self, op: ops.Sin | ops.Cos, x: Value) -> Value:
            return x

        @rule(ops.Cos)
        def _(self, op: ops.Cos, x: Value) -> Value:
            return x


def define_rule_decorated_twice() -> None:
    class Double(Interpreter):
        @rule(ops.Sin)  # type: ignore[arg-type]  # wrong on purpose
        @rule(ops.Cos)
        def f(self, op: ops.Sin | ops.Cos, x: Value) -> Value:
            return x


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (define_two_rules_of_one_name, "two rules have the name 'f'"),
        (define_two_rules_for_one_class, "Double has two rules for Cos"),
        (define_rule_decorated_twice, "f is decorated by rule twice"),
        (
            lambda: rule(Transcendental),
            r"Transcendental is a family of primitives: write rule\(family=Transcendental\)",
        ),
        (
            lambda: rule(HasFactor),  # type: ignore[type-var]  # wrong on purpose
            r"got <class '.*HasFactor'>; for classes that are not primitives, write rule\(capability=...\)",
        ),
        (
            lambda: rule(ops.Sin()),  # type: ignore[call-overload]  # wrong on purpose
            "write the class, Sin",
        ),
        (
            lambda: rule(fnp.sin),  # type: ignore[call-overload]  # wrong on purpose
            "the classes in tracefx.ops have the names that make_jaxpr shows: `exp` is ops.Exp",
        ),
        (lambda: rule(), "rule takes classes of primitives"),
        (lambda: rule(family=len), "rule takes classes of primitives"),
    ],
)
def test_wrong_declarations_are_errors(define: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        define()


def test_rules_outside_of_interpreters_are_errors() -> None:
    with pytest.raises((TypeError, RuntimeError)) as caught:  # RuntimeError from TypeError up to Python 3.11

        class NoInterpreter:
            @rule(ops.Sin)
            def f(self, op: ops.Sin, x: Value) -> Value:
                return x

    error = caught.value if isinstance(caught.value, TypeError) else caught.value.__cause__
    assert "NoInterpreter is not a subclass of Interpreter" in str(error)


# ------------------------------------------------------------------ options


class Clipped(Interpreter):
    limit: float = 80.0
    names: list[str] = field(factory=list, kw_only=True)

    @rule(ops.Exp)
    def exp(self, op: ops.Exp, x: Value) -> Value:
        return bind1(op, fnp.minimum(x, self.limit))


class Unclipped(Clipped):
    more: int = 3


class OwnInit(Interpreter):
    def __init__(self, *limits: float) -> None:
        object.__setattr__(self, "limits", limits)

    limits: tuple[float, ...] = field(init=False)

    @rule(ops.Exp)
    def exp(self, op: ops.Exp, x: Value) -> Value:
        return fnp.clip(x, *self.limits)


class OwnInitWithoutField(Interpreter):
    def __init__(self, low: float, high: float) -> None:
        object.__setattr__(self, "_bounds", (low, high))

    @rule(ops.Exp)
    def exp(self, op: ops.Exp, x: Value) -> Value:
        return fnp.clip(x, *vars(self)["_bounds"])


class Identity(Interpreter, eq=False):
    limit: float = 80.0


class IdentityOfClipped(Clipped, eq=False):
    pass


class Titled(Interpreter):
    """Fields of the names of inherited properties."""

    title: str
    cache_key: int


def test_annotated_attributes_are_frozen_fields() -> None:
    assert Clipped() == Clipped(80.0) != Clipped(1.0)
    assert Clipped(1.0, names=["a"]) == Clipped(1.0, names=["a"])
    assert repr(Unclipped(1.0, 2)) == "Unclipped(limit=1.0, names=[], more=2)"
    with pytest.raises(FrozenInstanceError) as caught:
        Clipped().limit = 1.0  # type: ignore[misc]  # wrong on purpose
    assert "what changes while it runs belongs to its state" in caught.value.__notes__[0]
    with pytest.raises(FrozenInstanceError):
        del Clipped().limit
    for cls in (Identity, IdentityOfClipped):
        x = cls()
        assert x == x != cls()
        assert len({x, x, cls()}) == 2
    assert (Titled("a", 1).title, Titled("a", 1).cache_key) == ("a", 1)
    assert len({Titled("a", 1), Titled("a", 1), Titled("b", 1)}) == 2


def test_copies_of_interpreters() -> None:
    original = Unclipped(1.0, names=["a"])
    assert pickle.loads(pickle.dumps(original)) == original
    assert copy.deepcopy(original) == copy.copy(original) == original
    changed = attrs.evolve(original, limit=2.0)
    assert (type(changed), changed.limit, changed.names) == (Unclipped, 2.0, ["a"])
    with original.running() as h:
        assert h == original
        assert attrs.evolve(h, limit=3.0) == Unclipped(3.0, names=["a"])
        with pytest.raises(fx.errors.HandlerStateError, match="is not running"):
            _ = attrs.evolve(h, limit=3.0).run


@pytest.mark.parametrize("cls", [OwnInit, OwnInitWithoutField])
def test_interpreters_with_their_own_init(cls: Callable[..., Interpreter]) -> None:
    compiled = fx.jit(fnp.exp)
    for low, high in ((-1.0, 1.0), (-2.0, 2.0)):  # each has its own transformed body
        clip = fx.handle(compiled, cls(low, high))
        assert_near([clip(3.0), clip(0.5)], [high, 0.5])


def test_slots_are_errors_unless_they_are_empty() -> None:
    class Empty(Interpreter):
        __slots__ = ()
        factor: float

    assert Empty(2.0) == Empty(2.0) != Empty(3.0)
    with pytest.raises(TypeError, match="Slotted has __slots__"):

        class Slotted(Interpreter):
            __slots__ = ("factor",)
            factor: float


def test_equality_with_their_own_init() -> None:
    assert OwnInit(1.0) == OwnInit(1.0) != OwnInit(2.0)
    assert pickle.loads(pickle.dumps(OwnInit(1.0))) == OwnInit(1.0)


@pytest.mark.parametrize(
    "decorator",
    [attrs.frozen, attrs.define, attrs.frozen(slots=False), attrs.frozen(eq=False), dataclasses.dataclass(frozen=True)],
    ids=["frozen", "define", "frozen without slots", "frozen without eq", "dataclass"],
)
def test_decorators_of_attrs_are_errors(decorator: Callable[[type], type]) -> None:
    with pytest.raises(TypeError, match="Decorated is a frozen attrs class, .* remove the decorator"):

        @decorator
        class Decorated(Interpreter):
            limit: float = 80.0


@pytest.mark.parametrize("default", [[], {}, set()])
def test_mutable_defaults_are_errors(default: object) -> None:
    """All instances would share them, as those of a dataclass would."""
    with pytest.raises(TypeError, match=rf"^Logging.seen: .*attrs.field\(factory={type(default).__name__}\)"):

        class Logging(Interpreter):
            seen: object = default


def test_rule_without_return() -> None:
    class Forgetful(Interpreter):
        @rule(ops.Sin)
        def sin(self, op: ops.Sin, x: Value) -> Value:  # type: ignore[return]  # is the point
            fnp.cos(x)

    with pytest.raises(TypeError, match=r"Forgetful.sin .* returned None of type NoneType, expected f32\[\]") as caught:
        fx.handle(fnp.sin, Forgetful())(1.0)
    assert caught.value.__cause__ is None


def test_custom_values_must_be_pytrees_of_arrays() -> None:
    class Unregistered:
        def __init__(self, x: Array) -> None:
            self.x = x

    class Doubled(Interpreter[Unregistered]):
        @override
        def aval_of(self, value: Unregistered) -> ShapedArray:
            return value.x.aval

        @rule(ops.Sin)
        def sin(self, op: ops.Sin, x: Unregistered) -> Unregistered:
            return x

    message = r"got an object of type .*Unregistered: register the class, by tracefx.tree_util.register_pytree_node"
    with Doubled().running() as h, pytest.raises(TypeError, match=message):
        fx.jit(fnp.sin)(h.wrap(Unregistered(fnp.ones(2))))


def test_interpreter_in_place_of_the_function() -> None:
    with pytest.raises(TypeError, match=r"handle takes a function and then an interpreter, got .* Clipped"):
        untyped(fx.handle)(Clipped(), fnp.sin)


def test_abstract_interpreters() -> None:
    class Base(Interpreter, ABC):
        @abstractmethod
        def factor(self) -> float: ...

        @rule(ops.Sin)
        def sin(self, op: ops.Sin, x: Value) -> Value:
            return bind1(op, x) * self.factor()

    class Derived(Base):
        @override
        def factor(self) -> float:
            return 2.0

    with pytest.raises(TypeError, match="abstract"):
        Base()  # type: ignore[abstract]  # wrong on purpose
    assert_near(fx.handle(fnp.sin, Derived())(0.5), 2 * np.sin(0.5), ELEMENTARY)


# ------------------------------------------------------------------ what is inferred


class Options(Interpreter):
    option: object

    @rule(ops.Sin)
    def sin(self, op: ops.Sin, x: Value) -> Value:
        return bind1(op, x) * 2.0


def transformed_twice(interpreter: Interpreter) -> tuple[object, object]:
    f = fx.handle(fx.jit(lambda x: fnp.sin(x)), interpreter)
    first, second = [fx.make_jaxpr(f)(0.5).eqns[0].prim for _ in range(2)]
    return first.jaxpr, second.jaxpr  # type: ignore[attr-defined]  # both are calls


@pytest.mark.parametrize("option", [1.0, "a", None, (1, ("b", 2.0)), fnp.sin, frozenset({1})], ids=range(6))
def test_bodies_are_cached_by_hashable_options(option: object) -> None:
    first, second = transformed_twice(Options(option))
    assert first is second
    assert Options(option).cache_key == Options(option).cache_key is not None


@pytest.mark.parametrize(
    "option",
    [fnp.ones(2), np.ones(2), (1, fnp.ones(2)), [1], {"a": 1}],
    ids=["array", "NumPy", "tuple", "list", "dict"],
)
def test_bodies_are_not_cached_with_arrays_or_mutable_options(option: object) -> None:
    assert Options(option).cache_key is None
    first, second = transformed_twice(Options(option))
    assert first is not second


def test_keys_of_options_are_strict() -> None:
    keys = [Options(x).cache_key for x in (1, 1.0, True, 0.0, -0.0)]
    assert len(set(keys)) == 5


class Pair(NamedTuple):
    x: Array
    y: Array


class Pairs(Interpreter[Pair]):
    @override
    def aval_of(self, value: Pair) -> ShapedArray:
        return value.x.aval

    @override
    def lift(self, x: Value) -> Pair:
        return Pair(as_array(x), as_array(x))

    @override
    def strip(self, value: Pair) -> Value:
        return value.x

    @rule(ops.Sin)
    def sin(self, op: ops.Sin, x: Pair) -> Pair:
        return Pair(bind1(op, x.x), x.y)

    @rule(ops.Split)
    def split(self, op: ops.Split, x: Pair) -> tuple[Pair, ...]:
        return tuple([Pair(as_array(a), as_array(b)) for a, b in zip(bind(op, x.x), bind(op, x.y), strict=True)])


class PairsInherited(Pairs):
    pass


class PairsAndOthers(Pairs):
    handles_all: ClassVar[bool] = True


class PairsAgain(PairsAndOthers):
    @override
    def aval_of(self, value: Pair) -> ShapedArray:
        return value.y.aval


class OnlyOwnState(Interpreter):
    handles_all = False


def test_handlers_of_own_values_handle_these_alone_unless_they_say_otherwise() -> None:
    assert Interpreter.handles_all
    assert Scales.handles_all
    assert not Pairs.handles_all
    assert not PairsInherited.handles_all
    assert PairsAndOthers.handles_all
    assert PairsAgain.handles_all
    assert not OnlyOwnState.handles_all


# ------------------------------------------------------------------ outputs


def test_outputs_of_own_values() -> None:
    with Pairs().running() as h:
        x = h.wrap(Pair(fnp.arange(4.0), fnp.ones(4)))
        one = h.unwrap(fnp.sin(x))
        parts = [h.unwrap(part) for part in fnp.split(x, 2)]
    assert isinstance(one, Pair)
    assert_near(one.y, np.ones(4))
    assert [type(part) for part in parts] == [Pair, Pair]


class Tuples(Interpreter[tuple[Array, Array]]):
    """Own values are plain tuples of two arrays."""

    @override
    def aval_of(self, value: tuple[Array, Array]) -> ShapedArray:
        return value[0].aval

    @rule(ops.Sin)
    def sin(self, op: ops.Sin, x: tuple[Array, Array]) -> tuple[Array, Array]:
        return bind1(op, x[0]), x[1]

    @rule(ops.Cos)
    def cos(self, op: ops.Cos, x: tuple[Array, Array]) -> Sequence[Value]:
        return bind(op, x[0])


@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit])
def test_own_values_may_be_tuples(wrap: Callable[..., Any]) -> None:
    def f(x: Any) -> Any:
        with Tuples().running() as h:
            out = h.unwrap(wrap(fnp.sin)(h.wrap((x, x * 2.0))))
            assert isinstance(out, tuple)
            assert h.unwrap(fnp.cos(h.wrap((x, x)))) is not None
        return out

    assert_near(fx.jit(f)(0.5), (np.sin(0.5), 1.0), ELEMENTARY)
    with Tuples().running() as h, pytest.raises(TypeError, match="would be ambiguous as a value of tuples"):
        untyped(h.wrap)((fnp.ones(()),))


@final
class Wrong(Interpreter):
    """Returns something else for sines and for splits."""

    change: Callable[[Sequence[Value]], object]

    @rule(ops.Sin, ops.Split)
    def forgets(self, op: ops.Sin | ops.Split, x: Value) -> object:
        return self.change(bind(op, x))


PROGRAMS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "alone": fnp.sin,
    "jit": fx.jit(lambda x: fnp.sin(x)),  # with a location in this file, unlike `fnp.sin` itself
    "scan": lambda x: lax.scan(lambda c, _: (fnp.sin(c), None), x, None, length=2)[0],
    "fori_loop": lambda x: lax.fori_loop(0, 2, lambda i, c: fnp.sin(c), x),
    "cond": lambda x: lax.cond((x > 0).all(), lambda x: fnp.sin(x), lambda x: x, x),
}
WRONG: Final[Mapping[str, tuple[Callable[[Sequence[Value]], object], str]]] = {
    "none": (lambda outs: None, r"None of type NoneType, expected f32\[3\]"),
    "too many": (lambda outs: [outs[0], outs[0]], r"a list of 2 outputs \(f32\[3\], f32\[3\]\), expected f32\[3\]"),
    "empty": (lambda outs: [], r"an empty list, expected f32\[3\]"),
    "shape": (lambda outs: as_array(outs[0]).sum(), r"f32\[\], expected f32\[3\]"),
    "dtype": (lambda outs: as_array(outs[0]).astype("int32"), r"i32\[3\], expected f32\[3\]"),
    "dtype in a list": (lambda outs: [as_array(outs[0]) > 0], r"bool\[3\], expected f32\[3\]"),
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    "around", [lambda f: f, fx.jit, lambda f: fx.grad(lambda x: f(x).sum())], ids=["", "jit", "grad"]
)
def test_wrong_outputs_are_errors(program: str, wrong: str, around: Callable[..., Any]) -> None:
    change, message = WRONG[wrong]
    f = fx.handle(PROGRAMS[program], Wrong(change))
    with pytest.raises(TypeError) as caught:
        around(f)(fnp.arange(3.0))
    line = r".*test_rules.py:\d+"
    assert caught.match(rf"the rule Wrong.forgets \({line}\) for sin at {line} \(.*\) returned {message}$")


def test_wrong_outputs_under_vmap() -> None:
    f = fx.handle(fnp.sin, Wrong(lambda outs: as_array(outs[0]).sum()))
    with pytest.raises(TypeError, match=r"returned f32\[\], expected f32\[3\]"):
        fx.vmap(f)(fnp.ones((2, 3)))


@pytest.mark.parametrize(
    ("change", "returned"),
    [
        (lambda outs: outs[0], r"f32\[2\]"),
        (lambda outs: outs[:1], r"f32\[2\]"),
        (lambda outs: Pair(*outs), "Pair.* of type Pair"),
        (lambda outs: (outs[0], outs[0], outs[1]), r"a list of 3 outputs \(f32\[2\], f32\[2\], f32\[2\]\)"),
    ],
    ids=["the first", "a list of the first", "named tuple", "three"],
)
def test_wrong_outputs_of_primitives_with_several_results(change: Any, returned: str) -> None:
    def split(x: Any) -> Any:
        return bind(ops.Split((2, 2), 0), x)

    with pytest.raises(TypeError, match=rf"for split .* returned {returned}, expected a list of 2 outputs"):
        fx.handle(split, Wrong(change))(fnp.arange(4.0))
    assert [x.aval.shape for x in fx.handle(split, Wrong(tuple))(fnp.arange(4.0))] == [(2,), (2,)]


class WrongPairs(Pairs):
    """The first part of a value, which gives its type, has the wrong shape."""

    @rule(ops.Cos)
    def cos(self, op: ops.Cos, x: Pair) -> Pair:
        return Pair(x.x.sum(), x.y)

    @rule(ops.Tan)
    def tan(self, op: ops.Tan, x: Pair) -> str:
        return "not a pair"


def test_own_values_are_compared_by_their_type() -> None:
    with WrongPairs().running() as h:
        x = h.wrap(Pair(fnp.ones(3), fnp.ones(3)))
        with pytest.raises(TypeError, match=r"WrongPairs.cos .* returned f32\[\], expected f32\[3\]"):
            fnp.cos(x)
        with pytest.raises(TypeError, match=r"WrongPairs.tan .* returned 'not a pair' of type str, expected f32\[3\]"):
            fnp.tan(x)
