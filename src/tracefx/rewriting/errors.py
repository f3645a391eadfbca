"""Exceptions raised by the rewriting engine."""

from __future__ import annotations


class RewriteError(Exception):
    """Raised when a rewrite rule adds something that rules may not add: array constants or new effects."""


class RewriteTypeError(RewriteError, TypeError):
    """Raised when a rule returns a value of another shape or dtype, or another number of values, than it replaces."""


class RewriteLoopError(RewriteError, RuntimeError):
    """Raised when rewriting does not terminate: rules undo each other, or keep creating terms that they match."""
