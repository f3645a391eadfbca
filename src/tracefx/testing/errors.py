"""What checks raise."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import final

from typing_extensions import override


@final
class LawError(AssertionError):
    """A law is broken: by what, where, and by how much.

    `message` says so. `str` adds the evidence: the smallest program found that breaks the law, as a jaxpr and as Python
    to run. It is looked for when it is asked for, in the context of the failure.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self._find: Callable[[], str] | None = None
        self._evidence = ""

    def shown_by(self, find: Callable[[], str]) -> LawError:
        """The same error, with `find` to say what shows it, in place of what it had."""
        context = contextvars.copy_context()
        self._find = lambda: context.run(find)
        return self

    @property
    def evidence(self) -> str:
        """The smallest program found that breaks the law, as a jaxpr and as Python to run; empty if there is none."""
        if self._find is not None:
            find, self._find = self._find, None
            self._evidence = find()
        return self._evidence

    @override
    def __str__(self) -> str:
        return f"{self.message}\n\n{self.evidence}" if self.evidence else self.message

    @override
    def __reduce__(self) -> tuple[type[LawError], tuple[str]]:
        return LawError, (str(self),)


@final
class Inapplicable(ValueError):
    """The law says nothing about these arguments."""
