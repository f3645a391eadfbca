"""What can be wrong with a rule."""

from __future__ import annotations


class RewriteError(Exception):
    """A rule did what no rule may do."""


class RewriteTypeError(RewriteError, TypeError):
    """A rule gave a value of another type, or another number of values, than what it replaces."""


class RewriteLoopError(RewriteError, RuntimeError):
    """Rules went on forever: they undo each other, or make ever more of what they match."""
