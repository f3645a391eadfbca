"""The exceptions that checks raise."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from enum import Enum, unique
from typing import final

from attrs import frozen
from typing_extensions import override


@final
@frozen
class Reproducer:
    """Evidence for a violated law.

    Attributes:
        programs: the programs as text.
        python: Python code that reproduces the failure, or None.

    >>> print(Reproducer("{ lambda ; a:f32[]. let in (a,) }"))
    { lambda ; a:f32[]. let in (a,) }
    """

    programs: str
    python: str | None = None

    @override
    def __str__(self) -> str:
        return self.programs if self.python is None else f"{self.programs}\nin Python:\n\n{self.python}"


@final
@unique
class ViolationManner(Enum):
    """How a law is violated.

    >>> [manner.name for manner in ViolationManner]
    ['TYPES', 'NAN', 'VALUES', 'OTHER']
    """

    TYPES = "the numbers, shapes or dtypes of the results differ"
    NAN = "a result is NaN"
    VALUES = "the results differ"
    OTHER = "the law describes it"


@final
class LawError(AssertionError):
    """Raised for a violated law.

    `message` says which law, at which arguments, and how results differ. `str` appends the reproducer: the smallest
    program found that violates the law, as a jaxpr and as Python code. The search for it runs when it is first needed,
    in the context of the failure.

    >>> import numpy as np
    >>> from tracefx.extend import Primitive
    >>> from tracefx.testing import abstract_eval_matches_evaluation
    >>> class Wrong(Primitive):
    ...     name = "wrong"
    ...     def abstract_eval(self, x):
    ...         return [x]
    ...     def impl(self, x):
    ...         return [x.sum()]
    >>> abstract_eval_matches_evaluation(Wrong(), np.ones(2))
    Traceback (most recent call last):
        ...
    tracefx.testing.errors.LawError: eager evaluation gives ...: violated by wrong(f32[2] [1.,1.])
      the rule Wrong.impl ... returned [a NumPy array float32[]], expected the list [f32[2]]
    ...
    """

    def __init__(self, message: str, manner: ViolationManner = ViolationManner.OTHER) -> None:
        super().__init__(message)
        self.message = message
        self.manner = manner
        self._find: Callable[[], Reproducer | None] | None = None
        self._reproducer: Reproducer | None = None

    def with_reproducer(self, find: Callable[[], Reproducer | None]) -> LawError:
        """Sets the function that finds the reproducer, and returns the error.

        Args:
            find: returns the reproducer, or None if there is none. It is called at most once.

        Returns:
            The error itself.
        """
        context = contextvars.copy_context()
        self._find = lambda: context.run(find)
        return self

    def is_like(self, other: LawError) -> bool:
        """Returns whether both are violations of the same law in the same manner.

        Args:
            other: another error.

        Returns:
            A bool.
        """
        same_law = self.message.split(": violated by", 1)[0] == other.message.split(": violated by", 1)[0]
        return same_law and self.manner is other.manner

    @property
    def reproducer(self) -> Reproducer | None:
        """The smallest program found that violates the law, as a jaxpr and as Python code; None if there is none."""
        if self._find is not None:
            find, self._find = self._find, None
            try:
                self._reproducer = find()
            except Exception as error:  # a failing search must not hide the message
                self._reproducer = Reproducer(f"the search for a reproducer failed: {error!r}")
        return self._reproducer

    @override
    def __str__(self) -> str:
        return self.message if self.reproducer is None else f"{self.message}\n\n{self.reproducer}"

    @override
    def __reduce__(self) -> tuple[type[LawError], tuple[str]]:
        return LawError, (str(self),)


@final
class Inapplicable(ValueError):
    """Raised if a law says nothing about the given arguments.

    >>> from tracefx.testing import jvp_is_the_derivative
    >>> jvp_is_the_derivative(lambda n: n + 1, 3)
    Traceback (most recent call last):
        ...
    tracefx.testing.errors.Inapplicable: no argument is differentiable: i32[]; ...
    """
