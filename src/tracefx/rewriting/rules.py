"""Rewrite rules as values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from attrs import field, frozen
from typing_extensions import override

from tracefx.core import Value
from tracefx.rewriting.terms import Apply

Replacement: TypeAlias = Value | Sequence[Value] | None
"""The result of a rule: the value that replaces a term (for an operation with several outputs, one value for each),
or None where the rule does not apply."""


def _check_roots(rule: RewriteRule, option: object, roots: tuple[type, ...]) -> None:
    if not isinstance(roots, tuple):
        raise TypeError(f"rule {rule.name}: roots must be a tuple of classes of operations, got {roots!r}")
    for root in roots:
        if not isinstance(root, type):
            raise TypeError(f"rule {rule.name}: roots must be classes of operations, such as Neg, got {root!r}")


@final
@frozen(eq=False, repr=False)
class RewriteRule:
    """A named function that maps a term to its replacement.

    Attributes:
        name: the name that error messages use.
        function: takes a term and returns its replacement, or None if the rule does not apply. An operation with
            several outputs is replaced as a whole: the term is its first output, the result a sequence of values.
        roots: classes of primitives; the rule is tried on outputs of these and of their subclasses only. The default
            `()` means all primitives.

    Rules are never tried on operations without outputs.

    >>> from tracefx.ops.elementwise.arithmetic import Neg
    >>> def double_negation(term):
    ...     match term:
    ...         case Apply(Neg(), (Apply(Neg(), (x,)),)):
    ...             return x
    ...     return None
    >>> RewriteRule("double negation", double_negation, (Neg,))
    RewriteRule('double negation')
    """

    name: str
    function: Callable[[Apply], Replacement]
    roots: tuple[type, ...] = field(default=(), validator=_check_roots)

    def matches(self, kind: type) -> bool:
        """Returns whether the rule is tried on primitives of a class.

        Args:
            kind: A primitive class.

        Returns:
            True if `kind` is a subclass of one of `roots`, or if the rule has none.
        """
        return not self.roots or issubclass(kind, self.roots)

    @override
    def __repr__(self) -> str:
        return f"RewriteRule({self.name!r})"


def rule(*roots: type) -> Callable[[Callable[[Apply], Replacement]], RewriteRule]:
    """Decorator that makes a `RewriteRule` from a function and names the rule after it.

    Args:
        *roots: classes of primitives on whose outputs the rule is tried; without any, it is tried on all.

    Returns:
        A decorator that maps a function to a `RewriteRule`.

    Raises:
        TypeError: If one of the roots is not a class, or the decorated function does not take one argument, the term.

    >>> import tracefx as fx
    >>> from tracefx.ops.elementwise.arithmetic import Mul
    >>> @rule(Mul)
    ... def square(term):
    ...     x, y = term.operands
    ...     return fx.lax.square(x) if x is y else None
    >>> square
    RewriteRule('square')
    """
    for root in roots:
        if not isinstance(root, type):
            raise TypeError(
                f"tracefx.rewriting.rule takes classes of primitives, got {root!r}: write a class, as in "
                "@rule(ops.Log), or @rule(), with parentheses, for a rule that is tried on all primitives"
            )

    def decorate(function: Callable[[Apply], Replacement]) -> RewriteRule:
        signature = inspect.signature(function)
        try:
            signature.bind(None)
        except TypeError:
            code = inspect.unwrap(function).__code__
            raise TypeError(
                f"a rewrite rule takes one argument, the term, but {function.__qualname__}{signature} "
                f"({code.co_filename}:{code.co_firstlineno}) does not: the methods of an Interpreter are decorated by "
                "tracefx.extend.rule"
            ) from None
        return RewriteRule(function.__name__, function, roots)

    return decorate
