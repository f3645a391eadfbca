"""Context variables that `with` blocks set, whichever order the blocks end in."""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import Generic, TypeVar, final

T = TypeVar("T")


@final
class ContextVarScope(Generic[T]):
    """One `with` block in which a variable has a value."""

    __slots__ = ("before", "left", "outer", "scopes", "value")
    before: T
    outer: ContextVarScope[T] | None

    def __init__(self, scopes: ContextVarScopes[T], value: T) -> None:
        self.scopes = scopes
        self.value = value
        self.left = False

    def __enter__(self) -> T:
        scopes = self.scopes
        self.before, self.outer = scopes.variable.get(), scopes.innermost.get()
        scopes.innermost.set(self)
        scopes.variable.set(self.value)
        return self.value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.left = True
        scope = self.scopes.innermost.get()
        while scope is not None and scope.left:
            self.scopes.variable.set(scope.before)
            scope = scope.outer
        self.scopes.innermost.set(scope)


@final
class ContextVarScopes(Generic[T]):
    """The `with` blocks that set a context variable.

    A block that ends while a later one goes on, as those of suspended generators may, changes nothing; the later one
    then restores what was there before both.
    """

    __slots__ = ("innermost", "variable")

    def __init__(self, variable: ContextVar[T]) -> None:
        self.variable = variable
        self.innermost: ContextVar[ContextVarScope[T] | None] = ContextVar(f"{variable.name}_scopes", default=None)

    def override(self, value: T) -> ContextVarScope[T]:
        """A context manager inside of which the variable has this value."""
        return ContextVarScope(self, value)
