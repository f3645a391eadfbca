"""What the core asks of whoever compiles programs and keeps device memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from tracefx.core.dtypes import NDArray
from tracefx.core.injection import Injected

if TYPE_CHECKING:
    from tracefx.core.jaxpr import Jaxpr
    from tracefx.core.values import ConcreteArray, Value


class Buffer(Protocol):
    """Memory on a device, as the backend that made it knows it; opaque to everyone else."""


class Backend(Protocol):
    """Runs programs compiled, and reads their results."""

    def run(self, jaxpr: Jaxpr, args: Sequence[Value], name: str) -> list[ConcreteArray]:
        """The outputs of a program without constants. Compiled once a program; results may still be on their way."""
        ...

    def read(self, buffer: Buffer) -> NDArray:
        """The numbers, without a copy where the device's memory is the host's. Waits for them."""
        ...

    def wait(self, buffer: Buffer) -> None:
        """Return when the numbers are there; raise what went wrong in making them."""
        ...


BACKEND: Final[Injected[Backend]] = Injected("the backend that runs compiled programs")
