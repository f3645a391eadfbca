"""Primitives with functions as parameters, and the capability by which interpreters run these functions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol, Self

from tracefx.core import Value
from tracefx.core.handler import Handler
from tracefx.core.primitive import MappedAxis, Primitive, missing_rule_error


class BatchRunner(Protocol):
    """Runs a function parameter of a primitive for a whole batch. Batching provides it."""

    @property
    def axis(self) -> MappedAxis:
        """The batch axis."""

    def run(
        self, f: Callable[..., Sequence[Value]], args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[list[Value], list[int | None]]:
        """Runs a function once for the whole batch, over the current handler.

        Args:
            f: The function.
            args: Its arguments.
            dims: For each argument, the position of its batch axis; `None` if it is not batched.

        Returns:
            The results, and for each the position of its batch axis, or `None`.
        """


class HasCallables:
    """A capability: the primitive has user functions as parameters, e.g. those of custom rules.

    The functions may close over tracers of any handler, so batching applies `batch_callables` even if no operand is
    batched. During evaluation they run under the current handler; an inner handler that must interpret them binds
    `wrap_callables(...)` instead. A primitive without `abstract_eval` cannot be an equation of a jaxpr:
    `stage_callables` returns the one that can.
    """

    __slots__ = ()

    @abstractmethod
    def wrap_callables(self, enter: Callable[[Handler], Handler]) -> Self:
        """Returns the primitive with each function wrapped to run under `enter(current handler)`.

        Args:
            enter: Maps the current handler to the one that interprets the functions.
        """
        raise missing_rule_error(self, "wrap_callables", "define wrap_callables(self, enter)")

    @abstractmethod
    def batch_callables(
        self, mapper: BatchRunner, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        """Applies the primitive to batched operands, as `Batchable.batch` does.

        Args:
            mapper: Runs the functions for the whole batch.
            args: The operands.
            dims: For each operand, the position of its batch axis; `None` if it is not batched.

        Returns:
            The results, and for each the position of its batch axis, or `None`.
        """
        raise missing_rule_error(self, "batch_callables", "define batch_callables(self, mapper, args, dims)")

    @abstractmethod
    def stage_callables(self, recording: Handler, args: Sequence[Value]) -> tuple[Primitive, Sequence[Value]]:
        """Returns the primitive and operands that represent this one in a jaxpr which `recording` records.

        Args:
            recording: The handler that records the jaxpr.
            args: The operands.
        """
        raise missing_rule_error(self, "stage_callables", "define stage_callables(self, recording, args)")
