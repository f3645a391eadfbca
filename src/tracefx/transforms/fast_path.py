"""The fast path of `jit`: a compiled program for arguments that are all arrays of known types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Self, cast, final

from attrs import field, frozen
from typing_extensions import TypeVar

from tracefx.core.avals import ShapedArray
from tracefx.core.backend import Runnable
from tracefx.core.device import Buffer
from tracefx.core.dtypes import NDArray
from tracefx.core.settings import SETTINGS, Setting
from tracefx.core.values import ConcreteArray, Value
from tracefx.pytrees import trees
from tracefx.transforms.tracing import Trace

Out = TypeVar("Out", default=Any)


@final
@frozen(eq=False)
class FastPathProgram(Generic[Out]):
    """A compiled program for positional arguments that are all arrays of these types: they need no flattening."""

    consts: tuple[Value, ...]
    avals: tuple[ShapedArray, ...]
    """The types of the constants, then of the arguments."""
    settings: Mapping[Setting[Any], object]
    """The settings under which the program was found, the very object: comparing it is comparing a pointer."""
    program: Runnable
    output: Callable[[Iterable[object]], Out]
    """Makes the result of its leaves."""
    on_buffers: Callable[[Sequence[Buffer]], Out] | None
    """The program as a function from buffers to the result, if it can be called with buffers alone."""

    @classmethod
    def of(cls, avals: tuple[ShapedArray, ...], traced: Trace[Out], program: Runnable) -> Self:
        """Returns the fast-path program of a trace under the current settings."""
        consts, output = traced.consts, traced.out_tree.unflatten
        avals = (*[c.aval for c in consts], *avals)
        direct: Callable[[Sequence[Buffer]], Out] | None = None
        if (on_buffers := program.on_buffers) is not None:
            if traced.out_tree == trees.leaf():
                direct = cast("Callable[[Sequence[Buffer]], Out]", program.on_buffers_one)  # the output is one array
            else:
                direct = _unflattening(output, on_buffers)
        return cls(consts, avals, SETTINGS.get().values, program, output, direct)


def _unflattening(
    output: Callable[[Iterable[object]], Out], on_buffers: Callable[[Sequence[Buffer]], list[ConcreteArray]]
) -> Callable[[Sequence[Buffer]], Out]:
    return lambda buffers: output(on_buffers(buffers))


@final
@frozen(eq=False)
class DonatingProgram:
    """A compiled program that notes, in the arrays that were donated to it, the names of the arguments for messages."""

    program: Runnable
    names: Mapping[int, str]
    """The names of the donated inputs."""
    on_buffers: None = field(default=None, init=False)
    on_buffers_one: None = field(default=None, init=False)
    uncommitted_run: None = field(default=None, init=False)

    def __call__(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        outs = self.program(args)
        for i, name in self.names.items():
            if isinstance(x := args[i], ConcreteArray) and hasattr(x, "donated_as"):
                x.donated_as = name
        return outs
