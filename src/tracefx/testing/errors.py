"""What checks raise."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import final

from attrs import frozen
from typing_extensions import override


@final
@frozen
class Reproducer:
    """What shows that a law is broken: programs, and Python that fails in the same way; `None` if there is none."""

    programs: str
    python: str | None = None

    @override
    def __str__(self) -> str:
        return self.programs if self.python is None else f"{self.programs}\nin Python:\n\n{self.python}"


@final
class LawError(AssertionError):
    """A law is broken: by what, where, and by how much.

    `message` says so. `str` adds the evidence: the smallest program found that breaks the law, as a jaxpr and as Python
    to run. It is looked for when it is asked for, in the context of the failure.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self._find: Callable[[], Reproducer | None] | None = None
        self._evidence: Reproducer | None = None

    def with_reproducer(self, find: Callable[[], Reproducer | None]) -> LawError:
        """The same error, with `find` to say what shows it, in place of what it had."""
        context = contextvars.copy_context()
        self._find = lambda: context.run(find)
        return self

    @property
    def reproducer(self) -> Reproducer | None:
        """The smallest program found that breaks the law, as a jaxpr and as Python to run; `None` if there is none."""
        if self._find is not None:
            find, self._find = self._find, None
            try:
                self._evidence = find()
            except Exception as error:  # the message is worth more than what was to come with it
                self._evidence = Reproducer(f"looking for a program that shows it has failed: {error!r}")
        return self._evidence

    @override
    def __str__(self) -> str:
        return self.message if self.reproducer is None else f"{self.message}\n\n{self.reproducer}"

    @override
    def __reduce__(self) -> tuple[type[LawError], tuple[str]]:
        return LawError, (str(self),)


@final
class Inapplicable(ValueError):
    """The law says nothing about these arguments."""
