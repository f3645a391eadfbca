"""`InterpreterHooks`, the methods of `Interpreter` that subclasses override."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, Never

from typing_extensions import TypeVar

from tracefx.core import ShapedArray, Value
from tracefx.interpreters.rule_methods import options_key
from tracefx.ops.structural import constant_like_aval
from tracefx.pytrees import trees

V = TypeVar("V", default=Never)
S = TypeVar("S", default=None)
N = TypeVar("N", bound=Hashable, default=Hashable)


class InterpreterHooks(Generic[V, S, N]):
    """The methods of `Interpreter` that subclasses override, with their defaults.

    `V` is the type of the handler's own values, `S` that of the state, and `N` that of the names of collected values.
    """

    @property
    def title(self) -> str:
        """The name of the transformation in messages."""
        return type(self).__name__.lower()

    @property
    def cache_key(self) -> Hashable:
        """A hashable key of everything the rules depend on besides operands and state, or `None`.

        Interpreted bodies are cached under this key; with `None`, they are interpreted anew each time. The default is
        made of the fields, and `None` if one is not hashable or holds an array. Handlers whose rules depend on
        something else, or have side effects in Python, define another one.
        """
        return options_key(self)

    def aval_of(self, value: V) -> ShapedArray:
        """Returns the shape and dtype that one of the handler's own values has in the program.

        Args:
            value: The own value.

        Raises:
            TypeError: By default: classes with own values override this.
        """
        raise TypeError(f"{type(self).__name__} has custom values, so it must define aval_of(self, value)")

    def lift(self, x: Value) -> V:
        """Converts a plain value to an own value, where a loop or a branch joins the two.

        Args:
            x: The plain value.

        Returns:
            An own value that represents the same array.

        Raises:
            TypeError: By default: there is no conversion.
        """
        raise TypeError(f"{self.title} cannot convert a plain value to one of its own values: define lift(self, x)")

    def unify(self, x: V, y: V) -> tuple[V, V]:
        """Converts two own values of different structure to a common structure, where a loop or branches join them.

        The result structure may depend only on the structures of `x` and `y`.

        Args:
            x: An own value.
            y: An own value of another structure.

        Returns:
            The two values, converted.

        Raises:
            TypeError: If there is no common structure; by default, always.
        """
        raise TypeError(f"{trees.structure(x)} and {trees.structure(y)} have no common structure")

    def unify_states(self, x: S, y: S) -> tuple[S, S]:
        """Converts two states of different structure to a common one, like `unify` for values.

        Args:
            x: A state.
            y: A state of another structure.

        Returns:
            The two states, converted.

        Raises:
            TypeError: If there is no common structure; by default, always.
        """
        raise TypeError(
            "a state must keep its structure: initialize all its parts before the function runs, or define "
            "unify_states(self, x, y)"
        )

    def strip(self, value: V) -> Value:
        """Returns the plain value of an own value, where the program branches on it.

        Args:
            value: The own value.

        Raises:
            TypeError: By default: there is no conversion.
        """
        raise TypeError(
            f"{self.title} cannot convert one of its own values to a plain value: define strip(self, value)"
        )

    def debug_value(self, value: V) -> Value:
        """Returns the plain value that debug effects, such as printing, receive for an own value.

        The default is that of `strip`.

        Args:
            value: The own value.
        """
        return self.strip(value)

    def default_collected(self, name: N, avals: Sequence[ShapedArray], what: str | None) -> Sequence[Value]:
        """Returns the arrays for `name` where a branch or an empty loop has not collected anything under it.

        Args:
            name: The name under which another branch, or a step of the loop, collects a value.
            avals: The shape and dtype of each array to return.
            what: The branch, in words for messages; `None` for a loop, which may run no step.

        Returns:
            The arrays; by default, zeros.
        """
        return [constant_like_aval(aval, 0) for aval in avals]
