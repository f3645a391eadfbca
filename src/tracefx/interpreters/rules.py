"""`Rules`: an immutable table that maps classes of primitives to the rules of a handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Concatenate, Generic, TypeAlias, TypeVar, cast, final

from attrs import evolve, field, frozen

from tracefx.core import ShapedArray, Value, show_avals
from tracefx.core.jaxpr import HasSubjaxprs
from tracefx.core.primitive import Primitive, missing_rule_error
from tracefx.core.rule_checks import wrong_results_error
from tracefx.errors import MissingRuleError
from tracefx.passes.varying import infer_types

H = TypeVar("H")
X = TypeVar("X")
C = TypeVar("C")
P = TypeVar("P", bound=Primitive)
HandlerRule: TypeAlias = Callable[Concatenate[H, P, ...], Sequence[X] | X]
"""A function `rule(handler, primitive, *operands)` that returns the list of outputs, or the only output."""


@final
@frozen
class Rules(Generic[H, X]):
    """An immutable table of rules for handlers of type `H`, which return values of type `X`.

    For a primitive, the first of these applies: the rule for its exact class; the rule of the first capability in the
    table that it inherits from; the rule of the nearest family in its class hierarchy.

    Args:
        own: The rules by exact class. Empty by default.
        capabilities: Pairs of a capability and its rule, in order of precedence. Empty by default.
        families: The rules by family. Empty by default.

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

    def capable(
        self, capability: Callable[..., C], rule: Callable[Concatenate[H, C, ...], Sequence[X] | X]
    ) -> Rules[H, X]:
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

    def family(self, family: Callable[..., C], rule: Callable[Concatenate[H, C, ...], Sequence[X] | X]) -> Rules[H, X]:
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
        """Returns the rule for the exact class of a primitive or for one of its capabilities, or `None`.

        Args:
            prim: The primitive.
        """
        rule = self.own.get(type(prim))
        if rule is None:
            for capability, capability_rule in self.capabilities:
                if isinstance(prim, capability):
                    return capability_rule
        return rule

    def find_family(self, prim: Primitive) -> HandlerRule[H, Primitive, X] | None:
        """Returns the rule of the nearest family in the class hierarchy of a primitive, or `None`.

        Args:
            prim: The primitive.
        """
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
        """Returns the error for a primitive without a rule in the table of the handler `title`.

        Args:
            title: The name of the handler, for the message.
            prim: The primitive.
        """
        capabilities = [capability.__name__ for capability, _ in self.capabilities]
        inherit = f" or {' or '.join(capabilities)}" if capabilities else ""
        enter = f"inherit from {'BodyTransformable' if isinstance(prim, HasSubjaxprs) else 'Expandable'}"
        own_rule = f"give the handler a rule, with @rule({type(prim).__name__}), or for a family of primitives with "
        return missing_rule_error(prim, title, f"{enter}{inherit}; or ", f"{own_rule}@rule(family=...)")


def _entry(
    kind: Callable[..., C], rule: Callable[Concatenate[H, C, ...], Sequence[X] | X]
) -> tuple[type, HandlerRule[H, Primitive, X]]:
    """Returns an entry of a table, which applies the rule to instances of `kind` alone."""
    return cast(type, kind), cast("HandlerRule[H, Primitive, X]", rule)


# ------------------------------------------------------------------ outputs


def checked_outputs(
    rule: Callable[..., object], prim: Primitive, args: Sequence[Value], results: object, wrap: Callable[[X], Value]
) -> Sequence[Value]:
    """Returns what a rule returned as values of the program.

    Args:
        rule: The rule, for messages.
        prim: The primitive.
        args: Its operands.
        results: What the rule returned.
        wrap: Converts an own value or a plain value to a value of the program.

    Raises:
        TypeError: If the number, shapes or dtypes of the outputs are not those of the primitive.
    """
    known = type(prim).abstract_eval is not Primitive.abstract_eval
    avals = infer_types(prim, [a.aval for a in args]) if known else None
    outs: list[Value] = []
    for x in _as_output_list(results, avals):
        try:
            outs.append(wrap(cast(X, x)))
        except (AttributeError, TypeError) as error:
            wrong = _wrong_output_error(rule, prim, f"{x!r} of type {type(x).__name__}", avals)
            raise wrong from (None if x is None else error)  # a rule without `return`: nothing else is wrong
    if avals is None:
        return outs
    if len(outs) == len(avals):
        for out, aval in zip(outs, avals, strict=True):
            got = out.aval
            if got is not aval and (got.shape != aval.shape or got.dtype != aval.dtype):
                break
        else:
            return outs
    raise _wrong_output_error(rule, prim, _show_outputs([x.aval for x in outs]), avals)


def _as_output_list(results: object, avals: Sequence[ShapedArray] | None) -> Sequence[object]:
    """Returns the list of the outputs that a rule returned, which for a single one may be the output itself.

    An output may be a tuple. So a tuple is the list only if the primitive has several results, or if it has one element
    (as what `bind` returns). A named tuple is an output.
    """
    if isinstance(results, list):
        return results
    if type(results) is tuple and (len(results) == 1 or avals is None or len(avals) != 1):
        return results
    return [results]


def _wrong_output_error(
    rule: Callable[..., object], prim: Primitive, returned: str, avals: Sequence[ShapedArray] | None
) -> TypeError:
    wanted = "a list of its outputs" if avals is None else _show_outputs(avals)
    return wrong_results_error(rule, prim.name, returned, wanted)


def _show_outputs(avals: Sequence[ShapedArray]) -> str:
    if not avals:
        return "an empty list"
    return str(avals[0]) if len(avals) == 1 else f"a list of {len(avals)} outputs ({show_avals(avals)})"
