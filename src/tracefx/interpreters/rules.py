"""Tables of rules: what a handler does with which operations, as an immutable value."""

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
"""`rule(handler, operation, *operands)` gives the outputs."""


@final
@frozen
class Rules(Generic[H, X]):
    """The rules of handlers of type `H`, that give values of type `X`.

    For an operation the first of these holds: the rule for its very class; that of a capability it has, the first in
    the table; that of the nearest of its families.

    >>> from tracefx.extend import Primitive, Value, bind
    >>> from tracefx.ops.elementwise.arithmetic import Neg
    >>> from tracefx.ops.elementwise.elementwise import Add
    >>> def loudly(handler: object, op: Primitive, *operands: Value) -> list[Value]:
    ...     print(op.name)
    ...     return list(bind(op, *operands))
    >>> rules = Rules[object, Value]().on(Add, loudly)
    >>> rules.find(Add()) is loudly, rules.find(Neg())
    (True, None)
    """

    own: Mapping[type[Primitive], HandlerRule[H, Primitive, X]] = field(factory=lambda: MappingProxyType({}))
    capabilities: tuple[tuple[type, HandlerRule[H, Primitive, X]], ...] = ()
    families: Mapping[type, HandlerRule[H, Primitive, X]] = field(factory=lambda: MappingProxyType({}))

    def on(self, prim: type[P], rule: HandlerRule[H, P, X], *more: type[P]) -> Rules[H, X]:
        """The table with a rule for operations of exactly these classes."""
        own = dict(self.own)
        own.update(dict.fromkeys((prim, *more), cast("HandlerRule[H, Primitive, X]", rule)))
        return evolve(self, own=MappingProxyType(own))

    def capable(self, capability: Callable[..., C], rule: Callable[Concatenate[H, C, ...], Sequence[X]]) -> Rules[H, X]:
        """The table with a rule for operations that inherit from `capability`, whatever their family.

        Such a class says what an author of operations has to define for this handler; the rule calls it.
        """
        return evolve(
            self,
            capabilities=(*self.capabilities, (cast(type, capability), cast("HandlerRule[H, Primitive, X]", rule))),
        )

    def family(self, family: Callable[..., C], rule: Callable[Concatenate[H, C, ...], Sequence[X]]) -> Rules[H, X]:
        """The table with a rule for all operations of a family, those written later too."""
        return evolve(
            self,
            families=MappingProxyType(
                {**self.families, cast(type, family): cast("HandlerRule[H, Primitive, X]", rule)}
            ),
        )

    def __or__(self, other: Rules[H, X]) -> Rules[H, X]:
        """Both tables; where they differ, the second counts."""
        return Rules(
            MappingProxyType({**self.own, **other.own}),
            (*other.capabilities, *self.capabilities),
            MappingProxyType({**self.families, **other.families}),
        )

    def find_own(self, prim: Primitive) -> HandlerRule[H, Primitive, X] | None:
        """The rule for this class or a capability, if there is one."""
        rule = self.own.get(type(prim))
        if rule is None:
            for capability, rule_of_it in self.capabilities:
                if isinstance(prim, capability):
                    return rule_of_it
        return rule

    def find_family(self, prim: Primitive) -> HandlerRule[H, Primitive, X] | None:
        """The rule of the nearest family, if there is one."""
        if self.families:
            for cls in type(prim).__mro__:
                rule = self.families.get(cls)
                if rule is not None:
                    return rule
        return None

    def find(self, prim: Primitive) -> HandlerRule[H, Primitive, X] | None:
        return self.find_own(prim) or self.find_family(prim)
