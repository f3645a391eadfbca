"""Rules: what may stand in the place of what, as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from attrs import field, frozen
from typing_extensions import override

from tracefx.core.values import Value
from tracefx.rewriting.terms import Apply

Replacement: TypeAlias = Value | Sequence[Value] | None
"""What stands for a term; for an operation of several outputs, for each of them; None where the rule doesn't apply."""


def _check_roots(rule: RewriteRule, option: object, roots: tuple[type, ...]) -> None:
    if not isinstance(roots, tuple):
        raise TypeError(f"rule {rule.name}: roots must be a tuple of classes of operations, got {roots!r}")
    for root in roots:
        if not isinstance(root, type):
            raise TypeError(f"rule {rule.name}: roots must be classes of operations, such as Neg, got {root!r}")


@final
@frozen(eq=False, repr=False)
class RewriteRule:
    """A function from a term to what may stand in its place, and its name.

    `roots` are the classes of the operations that the function is asked about; without any it is asked about all.
    Operations of several outputs are replaced as a whole: the term is their first output, the result a sequence.
    No rule is asked about operations that give nothing.

    >>> from tracefx.ops.elementwise.arithmetic import Neg
    >>> def double_negation(term):
    ...     match term:
    ...         case Apply(Neg(), (Apply(Neg(), (x,)),)):
    ...             return x
    ...     return None
    >>> RewriteRule("double negation", double_negation, (Neg,))
    Rule('double negation')
    """

    name: str
    function: Callable[[Apply], Replacement]
    roots: tuple[type, ...] = field(default=(), validator=_check_roots)

    def matches(self, kind: type) -> bool:
        """Whether the function is asked about operations of this class."""
        return not self.roots or issubclass(kind, self.roots)

    @override
    def __repr__(self) -> str:
        return f"Rule({self.name!r})"


def rule(*roots: type) -> Callable[[Callable[[Apply], Replacement]], RewriteRule]:
    """Make a rule of a function, whose name it takes; `roots` are the operations that the function is asked about.

    >>> import tracefx as fx
    >>> from tracefx.ops.elementwise.arithmetic import Mul
    >>> @rule(Mul)
    ... def square(term):
    ...     x, y = term.operands
    ...     return fx.lax.square(x) if x is y else None
    >>> square
    Rule('square')
    """

    def made(function: Callable[[Apply], Replacement]) -> RewriteRule:
        return RewriteRule(function.__name__, function, roots)

    return made
