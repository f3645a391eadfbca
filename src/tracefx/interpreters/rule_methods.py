"""`rule`, the decorator of methods that are rules, and `InterpreterType`, the metaclass that collects them."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Hashable, Mapping
from types import FunctionType
from typing import Any, Concatenate, Final, Generic, NoReturn, TypeAlias, TypeVar, cast, final, overload

import numpy as np
from attrs import NOTHING, frozen
from attrs.exceptions import FrozenInstanceError
from typing_extensions import ParamSpec, override

from tracefx.core import Array, Literal
from tracefx.core.equality import attrs_fields, strict_key
from tracefx.core.primitive import Primitive
from tracefx.core.rule_checks import HANDLER_RULE_PARAMETERS, check_definition
from tracefx.interpreters.rules import HandlerRule, Rules
from tracefx.pytrees import trees

A = TypeVar("A", bound=Primitive)
B = TypeVar("B", bound=Primitive)
C = TypeVar("C", bound=Primitive)
D = TypeVar("D", bound=Primitive)
E = TypeVar("E", bound=Primitive)
K = TypeVar("K")
H = TypeVar("H")
P = ParamSpec("P")
R = TypeVar("R")


AddRule: TypeAlias = Callable[[Rules[Any, Any], type, HandlerRule[Any, Any, Any]], Rules[Any, Any]]
"""`Rules.on`, `Rules.capable` or `Rules.family`."""


@final
@frozen(eq=False)
class RuleMethod:
    """A method with the primitives that it handles, until the body of its class ends."""

    function: HandlerRule[Any, Any, Any]
    kinds: tuple[tuple[AddRule, type], ...]

    def __set_name__(self, owner: type, name: str) -> None:
        raise TypeError(f"{owner.__name__}.{name} is a rule, but {owner.__name__} is not a subclass of Interpreter")


@final
@frozen(eq=False)
class RuleDecorator(Generic[K]):
    """The result of `rule`: decorates a method whose second parameter accepts primitives of type `K`."""

    kinds: tuple[tuple[AddRule, type], ...]

    def __call__(self, method: Callable[Concatenate[H, K, P], R]) -> Callable[Concatenate[H, K, P], R]:
        if isinstance(method, FunctionType):
            kinds = ", ".join([kind.__name__ for _, kind in self.kinds])
            check_definition(method, kinds, HANDLER_RULE_PARAMETERS)
        declared = RuleMethod(cast("HandlerRule[Any, Any, Any]", method), self.kinds)
        return declared  # type: ignore[return-value]  # in its place, the body of the class stores the function


@overload
def rule(a: type[A], /) -> RuleDecorator[A]: ...
@overload
def rule(a: type[A], b: type[B], /) -> RuleDecorator[A | B]: ...
@overload
def rule(a: type[A], b: type[B], c: type[C], /) -> RuleDecorator[A | B | C]: ...
@overload
def rule(a: type[A], b: type[B], c: type[C], d: type[D], /) -> RuleDecorator[A | B | C | D]: ...
@overload
def rule(a: type[A], b: type[B], c: type[C], d: type[D], e: type[E], /) -> RuleDecorator[A | B | C | D | E]: ...
@overload
def rule(*classes: type[Primitive]) -> RuleDecorator[Primitive]: ...
@overload
def rule(*, capability: Callable[..., K]) -> RuleDecorator[K]: ...
@overload
def rule(*classes: type[A], capability: Callable[..., K]) -> RuleDecorator[A | K]: ...
@overload
def rule(*, family: Callable[..., K]) -> RuleDecorator[K]: ...
@overload
def rule(*classes: type[A], family: Callable[..., K]) -> RuleDecorator[A | K]: ...
def rule(
    *classes: type[Primitive],
    capability: Callable[..., object] | None = None,
    family: Callable[..., object] | None = None,
) -> RuleDecorator[Any]:
    """Decorates a method of an `Interpreter`: it is the rule for these primitives. The type of `op` must accept them.

    The method is called as `method(self, op, *operands)` with the inner handler current. For a primitive with one
    result it returns the result, or a list of it; for any other, a list or tuple of the results. They have the shapes
    and dtypes of the primitive's results. Several methods may have the name `_`.

    A subclass inherits the rules. Its own rules take precedence, and a method of the same name replaces the inherited
    one.

    Args:
        classes: Classes of primitives, such as `tracefx.ops.Exp`. The rule does not apply to their subclasses.
        capability: A class from which primitives of any family inherit, and whose methods the rule calls.
        family: A base class of primitives. The rule applies to all of them, also to those that are defined later,
            unless there is a rule for a nearer base class.

    Returns:
        The decorator.

    Raises:
        TypeError: If there are no classes, or one is not a class of primitives.

    >>> from tracefx import handle, numpy as fnp, ops
    >>> from tracefx.extend import Interpreter, Value, bind1, rule
    >>> class Careful(Interpreter):
    ...     limit: float = 80.0
    ...     @rule(ops.Exp, ops.Exp2)
    ...     def clip(self, op: ops.Exp | ops.Exp2, x: Value) -> Value:
    ...         return bind1(op, fnp.minimum(x, self.limit))
    >>> print(handle(fnp.exp, Careful(limit=0.0))(5.0))
    1.0
    """
    given: tuple[object, ...] = classes
    for cls in given:
        if not (isinstance(cls, type) and issubclass(cls, Primitive)):
            raise TypeError(f"rule takes classes of primitives, as in @rule(ops.Mul), got {cls!r}; {_class_hint(cls)}")
        if not hasattr(cls, "name"):
            raise TypeError(f"{cls.__name__} is a family of primitives: write rule(family={cls.__name__})")
    kinds: list[tuple[AddRule, object]] = [(Rules.on, cls) for cls in classes]
    kinds += [(add, cls) for add, cls in ((Rules.capable, capability), (Rules.family, family)) if cls is not None]
    if not kinds or not all(isinstance(cls, type) for _, cls in kinds):
        raise TypeError("rule takes classes of primitives, capability=SomeClass or family=SomeClass")
    return RuleDecorator(tuple([(add, cast(type, cls)) for add, cls in kinds]))


def _class_hint(given: object) -> str:
    """Returns how to write the class of primitives that is meant by an argument of `rule`."""
    if isinstance(given, Primitive):
        return f"write the class, {type(given).__name__}"
    if isinstance(given, type):
        return "for classes that are not primitives, write rule(capability=...)"
    return "the classes in tracefx.ops have the names that make_jaxpr shows: `exp` is ops.Exp"


@final
class _ClassBody(dict[str, Any]):
    """The namespace of a class body: stores the functions of rules, and remembers all rules in order."""

    def __init__(self, entries: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.rules: list[tuple[str, RuleMethod]] = []
        for name, value in (entries or {}).items():
            self[name] = value

    @override
    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(value, RuleMethod):
            if isinstance(value.function, RuleMethod):
                raise TypeError(f"{name} is decorated by rule twice: write one, rule(SomeClass, family=SomeFamily)")
            if name != "_" and any(name == other for other, _ in self.rules):
                raise TypeError(f"two rules have the name {name!r}: rename one of them, or call both `_`")
            self.rules.append((name, value))
            value = value.function
        super().__setitem__(name, value)


class InterpreterType(ABCMeta):
    """The metaclass of interpreters: collects the methods that are rules.

    Attributes:
        own_rules: The rules in the body of the class, with the names of the methods.
        rule_table: The table of these and the inherited rules.
    """

    own_rules: tuple[tuple[str, RuleMethod], ...]
    rule_table: Rules[Any, Any]

    @classmethod
    @override
    def __prepare__(cls, name: str, bases: tuple[type, ...], /, **options: object) -> _ClassBody:
        return _ClassBody()

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], /, **options: Any) -> InterpreterType:
        body = body if isinstance(body, _ClassBody) else _ClassBody(body)
        body["own_rules"] = tuple(body.rules)
        made = super().__new__(cls, name, bases, body, **options)
        made.rule_table = _build_table(made)
        return made

    @override
    def __setattr__(cls, name: str, value: object) -> None:
        if name in _DECORATED and _ATTRS in vars(cls):
            raise _decorated_error(cls)
        super().__setattr__(name, value)


_ATTRS: Final = "__attrs_attrs__"
_DECORATED: Final = (_ATTRS, "__dataclass_fields__")
"""The attributes that the decorators of attrs and dataclasses set."""


def _decorated_error(cls: type) -> TypeError:
    return TypeError(
        f"{cls.__name__} is a frozen attrs class, as are all subclasses of Interpreter: remove the decorator (@frozen, "
        "@define, @dataclass); the option eq=False is written in the class statement"
    )


def refuse_assignment(interpreter: object, name: str, value: object) -> NoReturn:
    """The method `__setattr__` of interpreters."""
    error = FrozenInstanceError()
    error.add_note(
        f"{type(interpreter).__name__} is an interpreter, so it is immutable: what changes while it runs belongs to "
        "its state (has_state, set_state) or is collected"
    )
    raise error


def freeze_class(cls: type, eq: bool) -> None:
    """Makes a subclass of `Interpreter` a frozen attrs class, in place; without `eq`, compared by identity.

    Raises:
        TypeError: If it is one (the decorator of attrs, which the subclass has too, makes a copy), has slots, or has a
            mutable default.
    """
    if _ATTRS in vars(cls):
        raise _decorated_error(cls)
    if vars(cls).get("__slots__"):
        raise TypeError(
            f"{cls.__name__} has __slots__, but the fields of an interpreter are in its __dict__: remove them"
        )
    if not eq:
        for name in ("__eq__", "__hash__"):
            setattr(cls, name, getattr(object, name))
    frozen(cls, slots=False, auto_attribs=True)
    for each in attrs_fields(cls):
        if isinstance(each.default, (list, dict, set)):
            raise TypeError(
                f"{cls.__name__}.{each.name}: all instances would share the default {each.default!r}: write "
                f"attrs.field(factory={type(each.default).__name__}), or a tuple; what changes while the interpreter "
                "runs belongs to its state (has_state, set_state) or is collected"
            )
    for name in ("__setattr__", "__delattr__"):  # inherits those of Interpreter; attrs rejects classes with their own
        delattr(cls, name)
    for each in attrs_fields(cls):
        inherited = each.inherited  # type: ignore[attr-defined]  # missing in the stubs of attrs
        if not inherited and (each.default is not NOTHING or hasattr(cls, each.name)):
            setattr(cls, each.name, each.default)  # otherwise an inherited property of this name would hide the field


def option_values(interpreter: object) -> dict[str, object]:
    """Returns the values of the fields of an interpreter, and of other attributes that its own `__init__` has set."""
    return {name: x for name, x in vars(interpreter).items() if name != "_run"}


def options_key(interpreter: object) -> Hashable:
    """Returns a key made of the options of an interpreter; `None` if one is not hashable or holds an array."""
    options = option_values(interpreter)
    if any(isinstance(x, (Array, np.ndarray)) and type(x) is not Literal for x in trees.leaves(list(options.values()))):
        return None
    key = tuple([(name, strict_key(x)) for name, x in options.items()])
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _build_table(cls: InterpreterType) -> Rules[Any, Any]:
    """Returns the table of the rules of a class; those of a subclass take precedence over those of its bases."""
    bases = [base for base in reversed(cls.__mro__) if isinstance(base, InterpreterType)]
    last_owner = {name: base for base in bases for name, _ in base.own_rules}
    table = Rules[Any, Any]()
    for base in bases:
        own, seen = Rules[Any, Any](), set[type]()
        for name, method in base.own_rules:
            for add, kind in method.kinds:
                if kind in seen:
                    raise TypeError(f"{base.__name__} has two rules for {kind.__name__}")
                seen.add(kind)
                if name == "_":
                    own = add(own, kind, method.function)
                elif last_owner[name] is base:
                    own = add(own, kind, getattr(cls, name))
        table = table | own
    return table
