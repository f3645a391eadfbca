"""`Rules`: an immutable table that maps classes of primitives to the rules of a handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Concatenate, Generic, TypeAlias, TypeVar, cast, final

from attrs import evolve, field, frozen

from tracefx.core.array import Array
from tracefx.core.jaxpr import HasSubjaxprs
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive, missing_rule_error
from tracefx.errors import MissingRuleError

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
        """Returns the table with a rule for exactly these classes of primitives (`prim` and `more`).

        Args:
            prim: The class of primitives.
            rule: The rule, `rule(handler, primitive, *operands)`; it returns the list of results.
            *more: More classes with the same rule.

        Returns:
            The new table; the old one is unchanged.
        """
        own = dict(self.own)
        own.update(dict.fromkeys((prim, *more), cast("HandlerRule[H, Primitive, X]", rule)))
        return evolve(self, own=MappingProxyType(own))

    def capable(self, capability: Callable[..., C], rule: Callable[Concatenate[H, C, ...], Sequence[X]]) -> Rules[H, X]:
        """Returns the table with a rule for primitives that inherit from `capability`, whatever their family.

        A capability is a class with the methods that authors of primitives define for this handler; the rule calls
        them.

        Args:
            capability: The class.
            rule: The rule, as for `on`.

        Returns:
            The new table; the old one is unchanged.
        """
        return evolve(self, capabilities=(*self.capabilities, _entry(capability, rule)))

    def family(self, family: Callable[..., C], rule: Callable[Concatenate[H, C, ...], Sequence[X]]) -> Rules[H, X]:
        """Returns the table with a rule for all primitives of a family, including subclasses defined later.

        Args:
            family: A base class of primitives.
            rule: The rule, as for `on`.

        Returns:
            The new table; the old one is unchanged.
        """
        return evolve(self, families=MappingProxyType(dict([*self.families.items(), _entry(family, rule)])))

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
        """Returns the rule that applies to a primitive, or `None`.

        Args:
            prim: The primitive.

        Returns:
            The rule, or None.
        """
        return self.find_own(prim) or self.find_family(prim)

    def missing_rule_error(self, title: str, prim: Primitive) -> MissingRuleError:
        """Returns the error for a primitive without a rule in the table of the handler `title`."""
        capabilities = [capability.__name__ for capability, _ in self.capabilities]
        inherit = f" or {' or '.join(capabilities)}" if capabilities else ""
        enter = f"inherit from {'BodyTransformable' if isinstance(prim, HasSubjaxprs) else 'Expandable'}"
        return missing_rule_error(
            prim,
            title,
            f"{enter}{inherit}; or give the handler a rule, with rules.on({type(prim).__name__}, ...), or with "
            "rules.family(...) for a family of primitives",
        )


def _entry(
    kind: Callable[..., C], rule: Callable[Concatenate[H, C, ...], Sequence[X]]
) -> tuple[type, HandlerRule[H, Primitive, X]]:
    """Returns an entry of a table, which applies the rule to instances of `kind` alone."""
    return cast(type, kind), cast("HandlerRule[H, Primitive, X]", rule)


def require_outputs(title: str, prim: Primitive, results: object) -> None:
    """Raises `TypeError` unless a rule of the handler `title` returned a list of outputs.

    An array is a sequence of its rows and a named tuple one of its fields; neither is a list of outputs.
    """
    if isinstance(results, (Array, Literal)) or hasattr(results, "_fields") or not isinstance(results, Sequence):
        raise TypeError(
            f"the rule of {title} for {prim.name} returned {type(results).__name__} instead of a list of outputs: "
            "return [out]"
        )
