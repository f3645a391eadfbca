"""`Rules`: an immutable table that maps classes of primitives to the rules of a handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Concatenate, Generic, TypeAlias, TypeVar, cast, final

from attrs import evolve, field, frozen

from tracefx.core.primitive import Primitive

H = TypeVar("H")
X = TypeVar("X")
C = TypeVar("C")
P = TypeVar("P", bound=Primitive)
HandlerRule: TypeAlias = Callable[Concatenate[H, P, ...], Sequence[X]]
"""A function `rule(handler, primitive, *operands)` that returns the list of outputs."""


@final
@frozen
class Rules(Generic[H, X]):
    """An immutable table of rules for handlers of type `H`, which return values of type `X`.

    For a primitive, the first of these applies: the rule for its exact class; the rule of the first capability in the
    table that it inherits from; the rule of the nearest family in its class hierarchy.

    >>> from tracefx.extend import Primitive, Value, bind
    >>> from tracefx.ops.elementwise.arithmetic import Neg
    >>> from tracefx.ops.elementwise.elementwise import Add
    >>> def log_name(handler: object, op: Primitive, *operands: Value) -> list[Value]:
    ...     print(op.name)
    ...     return list(bind(op, *operands))
    >>> rules = Rules[object, Value]().on(Add, log_name)
    >>> rules.find(Add()) is log_name, rules.find(Neg())
    (True, None)
    """

    own: Mapping[type[Primitive], HandlerRule[H, Primitive, X]] = field(factory=lambda: MappingProxyType({}))
    capabilities: tuple[tuple[type, HandlerRule[H, Primitive, X]], ...] = ()
    families: Mapping[type, HandlerRule[H, Primitive, X]] = field(factory=lambda: MappingProxyType({}))

    def on(self, prim: type[P], rule: HandlerRule[H, P, X], *more: type[P]) -> Rules[H, X]:
        """Returns the table with a rule for exactly these classes of primitives (`prim` and `more`)."""
        own = dict(self.own)
        own.update(dict.fromkeys((prim, *more), cast("HandlerRule[H, Primitive, X]", rule)))
        return evolve(self, own=MappingProxyType(own))

    def capable(self, capability: Callable[..., C], rule: Callable[Concatenate[H, C, ...], Sequence[X]]) -> Rules[H, X]:
        """Returns the table with a rule for primitives that inherit from `capability`, whatever their family.

        A capability is a class with the methods that authors of primitives define for this handler; the rule calls
        them.
        """
        return evolve(
            self,
            capabilities=(*self.capabilities, (cast(type, capability), cast("HandlerRule[H, Primitive, X]", rule))),
        )

    def family(self, family: Callable[..., C], rule: Callable[Concatenate[H, C, ...], Sequence[X]]) -> Rules[H, X]:
        """Returns the table with a rule for all primitives of a family, including subclasses defined later."""
        return evolve(
            self,
            families=MappingProxyType(
                {**self.families, cast(type, family): cast("HandlerRule[H, Primitive, X]", rule)}
            ),
        )

    def __or__(self, other: Rules[H, X]) -> Rules[H, X]:
        """Merges two tables; where both have a rule, that of `other` applies."""
        return Rules(
            MappingProxyType({**self.own, **other.own}),
            (*other.capabilities, *self.capabilities),
            MappingProxyType({**self.families, **other.families}),
        )

    def find_own(self, prim: Primitive) -> HandlerRule[H, Primitive, X] | None:
        """Returns the rule for the exact class of a primitive or for one of its capabilities, or `None`."""
        rule = self.own.get(type(prim))
        if rule is None:
            for capability, capability_rule in self.capabilities:
                if isinstance(prim, capability):
                    return capability_rule
        return rule

    def find_family(self, prim: Primitive) -> HandlerRule[H, Primitive, X] | None:
        """Returns the rule of the nearest family in the class hierarchy of a primitive, or `None`."""
        if self.families:
            for cls in type(prim).__mro__:
                rule = self.families.get(cls)
                if rule is not None:
                    return rule
        return None

    def find(self, prim: Primitive) -> HandlerRule[H, Primitive, X] | None:
        """Returns the rule that applies to a primitive, or `None`."""
        return self.find_own(prim) or self.find_family(prim)
