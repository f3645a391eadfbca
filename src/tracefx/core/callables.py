"""Primitives that hold functions: the capability that lets interpreters enter these functions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol, Self

from tracefx.core.handler import Handler
from tracefx.core.primitive import MappedAxis, Primitive, missing_rule_error
from tracefx.core.values import Value


class BatchRunner(Protocol):
    """What batching offers to an operation that holds functions."""

    @property
    def axis(self) -> MappedAxis: ...

    def run(
        self, f: Callable[..., Sequence[Value]], args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[list[Value], list[int | None]]:
        """Run a function once for the whole batch, on the handler that is current; `dims` are as in `batch`."""
        ...


class HasCallables:
    """The operation holds functions of the user's.

    They may close over tracers of any handler, so batching enters the operation even where no operand differs along
    the batch. Where it is evaluated they run under the handler that is current; one further in that wants to be in
    force in them binds `within`. Without an `abstract_eval` the operation is no equation of a program, and `staged`
    gives what is.
    """

    __slots__ = ()

    @abstractmethod
    def wrap_callables(self, enter: Callable[[Handler], Handler]) -> Self:
        """The same operation, each of its functions run under `enter` of the handler that is current then."""
        raise missing_rule_error(self, "wrap_callables", "define wrap_callables(self, enter)")

    @abstractmethod
    def batch_callables(
        self, mapper: BatchRunner, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        """`batch`, for which the functions are run by `mapper`."""
        raise missing_rule_error(self, "batch_callables", "define batch_callables(self, mapper, args, dims)")

    @abstractmethod
    def stage_callables(self, recording: Handler, args: Sequence[Value]) -> tuple[Primitive, Sequence[Value]]:
        """The operation, with its operands, that stands for this one in a program that `recording` makes."""
        raise missing_rule_error(self, "stage_callables", "define stage_callables(self, recording, args)")
