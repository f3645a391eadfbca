"""The fast path of `jit`: the compiled programs of recent calls, found by comparison with a new call."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeAlias, cast, final

import numpy as np
from attrs import field, frozen
from typing_extensions import ParamSpec, TypeVar

from tracefx.core import ConcreteArray, NDArray, Scalar, ShapedArray, Value, dtypes
from tracefx.core.backend import HostProgram, Runnable
from tracefx.core.device import DEFAULT_DEVICE, Buffer
from tracefx.core.handler import CURRENT, ROOT
from tracefx.core.literal import argument_literal
from tracefx.core.sharding import Sharding
from tracefx.core.values import number_aval, numpy_aval
from tracefx.filtered_tracebacks import filter_traceback
from tracefx.pytrees import trees
from tracefx.pytrees.trees import TreeDef
from tracefx.settings import SETTINGS, X64, Setting
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.transforms.argument_memory import ArgumentMemories, ArgumentMemory
from tracefx.transforms.arguments import WrappedSignature
from tracefx.transforms.generated_calls import LEAVES_OF, LEAVES_OF_TREE, generate_call, plain_leaves
from tracefx.transforms.static_arguments import (
    SplitStatics,
    StaticArguments,
    traced_arguments,
)
from tracefx.transforms.tracing import Trace, TraceKey

P = ParamSpec("P")
Out = TypeVar("Out", default=Any)

LeavesOf: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], Sequence[Any] | None]
"""Returns the leaves of the traced arguments of a call; None if the call does not have the expected structure."""

MAX_RECENT: Final = 8
"""How many recent programs a call is compared with. A comparison takes 0.2 µs, a lookup in the cache 5 µs."""


class Mismatch(Enum):
    """The type of `MISMATCH`."""

    MISMATCH = 0


MISMATCH: Final = Mismatch.MISMATCH
"""The result of a program that does not run, because a leaf has another type."""


@final
@frozen(eq=False)
class FastPathProgram(Generic[Out]):
    """A compiled program with the signature of the calls for which it was found."""

    key: TraceKey
    leaves_of: LeavesOf
    """Returns the leaves of a call's traced arguments; None if the structure or the static arguments are others."""
    avals: tuple[ShapedArray, ...]
    """The types of the leaves."""
    put_numpy: tuple[Callable[[NDArray], Buffer] | None, ...]
    """For each leaf of a program on the host, makes a buffer of a NumPy array with the leaf's shape and dtype.

    None if such an array has another type, since 64-bit dtypes may become 32-bit ones, and for random keys.
    """
    number_types: tuple[type[Scalar] | None, ...]
    """For each leaf, the type of the Python numbers that have its type; None if there is none."""
    settings: Mapping[Setting[Any], object]
    """The settings under which the program was found, the very object: comparing it is comparing a pointer."""
    consts: tuple[Value, ...]
    const_buffers: tuple[Buffer, ...]
    program: Runnable
    output: Callable[[list[ConcreteArray]], Out]
    """Makes the result of its leaves."""
    on_host: HostProgram | None
    """The program, if calls on the host can take the fast path."""
    run: Callable[[list[Buffer]], Out] | None
    """The program as a function from the buffers of constants and leaves to the result; None if it needs more."""
    donated: Mapping[int, str]
    """The leaves that `run` deletes, with the names of these arguments for messages."""
    on_buffers: Callable[[Sequence[Buffer]], list[ConcreteArray]] | None
    """Like `run`, but returns the outputs as a list."""
    memories: ArgumentMemories
    """The memory for NumPy arrays and numbers that are passed to a program on the host."""

    @classmethod
    def of(cls, key: TraceKey, split_statics: SplitStatics, traced: Trace[Out], program: Runnable) -> Self:
        """Returns the program of a trace, for calls under the current settings."""
        avals = key.avals
        consts, has_one_output = traced.consts, traced.out_tree == trees.leaf()
        output: Callable[[list[ConcreteArray]], Out] = itemgetter(0) if has_one_output else traced.out_tree.unflatten
        is_on_host = DEFAULT_DEVICE.value is None and all(type(x) is not ShardedArray for x in consts)
        on_host = program.on_host if is_on_host else None
        const_buffers = () if on_host is None else tuple([on_host.put(i, x) for i, x in enumerate(consts)])
        put_numpy = [
            on_host.put_function(len(consts) + i)
            if on_host is not None
            and numpy_aval(aval.shape, aval.dtype, X64.value) is aval
            and not dtypes.is_key(aval.dtype)
            else None
            for i, aval in enumerate(avals)
        ]
        run: Callable[[list[Buffer]], Out] | None = None
        donated: dict[int, str] = {}
        on_buffers = None if on_host is None else on_host.on_buffers
        if on_host is not None and on_buffers is not None:
            if has_one_output:
                run = cast("Callable[[list[Buffer]], Out]", on_host.on_buffers_one)
            else:
                run = _unflattening(output, on_buffers)
        elif on_host is not None and (donating := on_host.on_donated_buffers) is not None:
            run = _unflattening(output, donating[0])
            donated = {i - len(consts): name for i, name in donating[1].items()}
        number_types = {number_aval(dtypes.scalar_dtype(kind)): kind for kind in (bool, int, float, complex)}
        return cls(
            key,
            _leaves_function(key, split_statics),
            avals,
            tuple(put_numpy),
            tuple(map(number_types.get, avals)),
            SETTINGS.get().values,
            consts,
            const_buffers,
            program,
            output,
            on_host,
            run,
            donated,
            on_buffers,
            ArgumentMemories(),
        )

    def call_or(self, otherwise: Callable[..., Out]) -> Callable[..., Out]:
        """Returns a function that runs the program for calls with its signature, and `otherwise` for all others."""
        variables: dict[str, object] = {
            "CURRENT": CURRENT,
            "MISMATCH": MISMATCH,
            "ROOT": ROOT,
            "SETTINGS": SETTINGS,
            "ConcreteArray": ConcreteArray,
            "call_with_buffers": self.call_with_buffers,
            "consts": self.const_buffers,
            "filter_traceback": filter_traceback,
            "flatten": trees.flatten_registered,
            "in_tree": self.key.in_tree,
            "leaves_of": self.leaves_of,
            "otherwise": otherwise,
            "run": self.run,
            "run_on_leaves": self.run_on_leaves,
            "settings": self.settings,
            **{f"aval_{i}": aval for i, aval in enumerate(self.avals)},
            **{f"static_{k}": s.value for k, s in enumerate(self.key.statics)},
            **{f"donated_{i}": name for i, name in self.donated.items()},
        }
        leaves, consts = _leaves_source(self.key), len(self.const_buffers)
        return generate_call(leaves, len(self.avals), consts, self.run is not None, self.donated, variables)

    def run_on_leaves(self, leaves: Sequence[Any]) -> Out | Mismatch:
        """Runs the program on leaves of any kind; returns `MISMATCH` if one has another type than the program's."""
        on_host = self.on_host
        if on_host is None:
            return self._run_elsewhere(leaves)
        memory: ArgumentMemory | None = None
        took = False
        try:
            buffers = [*self.const_buffers]
            first = len(buffers)
            for x, aval in zip(leaves, self.avals):  # noqa: B905  # they have the same length
                buffer, index = None, len(buffers)
                if type(x) is ConcreteArray:
                    if x.aval is not aval:
                        return MISMATCH
                    buffer = on_host.put(index, x) if x.buffer is None else x.buffer
                elif type(x) is self.number_types[index - first]:
                    if not took:
                        memory, took = self.memories.take(on_host), True
                    if memory is not None:
                        buffer = memory.write_number(index, x)
                    if buffer is None:
                        buffer = on_host.put(index, argument_literal(x, aval))
                elif type(x) is np.ndarray or isinstance(x, np.generic):
                    put = self.put_numpy[index - first]
                    if x.dtype is not aval.dtype or x.shape != aval.shape or put is None:
                        return MISMATCH
                    if not took:
                        memory, took = self.memories.take(on_host), True
                    if memory is not None:
                        buffer = memory.write_array(index, x)
                    if buffer is None:
                        buffer = put(np.asarray(x))
                elif type(x) is ShardedArray:
                    return self._run_elsewhere(leaves)
                else:
                    return MISMATCH
                buffers.append(buffer)
            if (on_buffers := self.on_buffers) is not None:
                outs = on_buffers(buffers)
            else:
                outs = on_host.call_with_buffers([*self.consts, *leaves], buffers)
            if memory is not None:
                memory.reader = on_host.pending_result(outs)
            return self.output(outs)
        except BaseException:
            if memory is not None:
                memory = None  # a program may read it
                self.memories.forget()
            raise
        finally:
            if memory is not None:
                self.memories.put_back(memory)

    def call_with_buffers(self, leaves: Sequence[Any], buffers: Sequence[Buffer]) -> Out:
        """Runs a program that needs more: elsewhere, with donations that XLA decides, or with inputs as outputs."""
        if self.on_host is None:  # the leaves are arrays with buffers on the host, or there are no leaves
            return self.output(self._call_elsewhere([*leaves]))
        return self.output(self.on_host.call_with_buffers([*self.consts, *leaves], buffers))

    def _run_elsewhere(self, leaves: Sequence[object]) -> Out | Mismatch:
        """Runs a program that may run elsewhere; returns `MISMATCH` if leaves are not arrays of the right types."""
        arrays = [
            x
            for x, aval in zip(leaves, self.avals)  # noqa: B905  # they have the same length
            if (type(x) is ConcreteArray or type(x) is ShardedArray) and x.aval is aval
        ]
        return self.output(self._call_elsewhere(arrays)) if len(arrays) == len(self.avals) else MISMATCH

    def _call_elsewhere(self, arrays: list[ConcreteArray]) -> list[ConcreteArray]:
        """Runs the program on the devices of its arguments."""
        inputs = [*self.consts, *arrays]
        if DEFAULT_DEVICE.value is None and (uncommitted := self.program.uncommitted_run) is not None:
            placements, run = uncommitted
            buffers = [buffer for x in inputs if (buffer := _uncommitted_buffer(x, placements)) is not None]
            if len(buffers) == len(inputs):
                return run(buffers)
        return self.program(inputs)


def _leaves_source(key: TraceKey) -> str:
    """Returns the source of the leaves of calls with the signature `key`."""
    statics = [s.key for s in key.statics]
    if (names := _names_of_leaves(key.in_tree)) is None:
        return LEAVES_OF if statics else LEAVES_OF_TREE
    if not all(s.has_constant_hash for s in key.statics):
        return LEAVES_OF
    positional = len(key.avals) - len(names) + sum(isinstance(s, int) for s in statics)
    return plain_leaves(positional, names, statics)


def _leaves_function(key: TraceKey, split_statics: SplitStatics) -> LeavesOf:
    """Returns the function `leaves_of` for calls with static arguments and the signature `key`."""
    in_tree, flatten = key.in_tree, trees.flatten_registered
    traced_of = traced_arguments(key.statics, len(in_tree.children()[0].children()), split_statics)

    def leaves_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any] | None:
        traced = traced_of(args, kwargs)
        if traced is None:
            return None
        leaves, tree = flatten(traced)
        return leaves if tree == in_tree else None

    return leaves_of


def _names_of_leaves(in_tree: TreeDef) -> tuple[str, ...] | None:
    """Returns the names of the keyword arguments if each argument of a call is a leaf; otherwise None."""
    if in_tree.num_nodes != in_tree.num_leaves + 3:  # the call, the positional arguments and the keyword arguments
        return None
    _, kwargs = in_tree.children()
    data = kwargs.node_data()
    assert data is not None
    return tuple(cast("list[str]", data[1]))


def _uncommitted_buffer(x: Value, placements: Sharding) -> Buffer | None:
    """Returns the buffer of an uncommitted array on a device that does not share memory with the host, or None."""
    if type(x) is ShardedArray:
        return x.buffer if x.placed is placements and not x.committed else None
    copy = x.device_copy if isinstance(x, ConcreteArray) else None
    return copy[1] if copy is not None and copy[0] is placements else None


class RepeatedCall(Generic[P, Out]):
    """The base class of compiled functions: calls that resemble a recent one take the fast path.

    An instance stores the function that calls of it run, in a slot that Python finds in place of a method: this takes
    half of the time of a method `__call__`.
    """

    if TYPE_CHECKING:  # with a method, messages about wrong calls are better

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Out: ...

    else:
        __slots__ = ("__call__", "__dict__", "__weakref__")
    __signature__ = WrappedSignature()
    _recent: tuple[FastPathProgram[Out], ...]
    """The programs of recent calls, the latest first."""
    _static: StaticArguments
    _where: str
    """The name of the arguments in messages."""

    def _set_recent(self, recent: tuple[FastPathProgram[Out], ...]) -> None:
        """Sets the programs to which calls are compared, in this order."""
        self._recent = recent
        kind, state, reference = type(self), self.__dict__, weakref.ref(self)

        def call_slowly(*args: Any, **kwargs: Any) -> Out:
            owner = reference()  # weak, so that no reference cycle keeps the programs in memory
            if owner is None:  # only the attribute `__call__` is still in use
                owner = object.__new__(kind)
                owner.__dict__ = state
            try:
                return owner._call(args, kwargs)
            except Exception as error:
                filter_traceback(error)
                raise

        call: Callable[..., Out] = call_slowly
        for program in reversed(recent):
            call = program.call_or(call)
        object.__setattr__(self, "__call__", call)  # type checkers know a method

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Out:
        """The slow path: for arguments of any kind, under any handler."""
        raise NotImplementedError

    def _remember(self, key: TraceKey, traced: Trace[Out], program: Runnable) -> None:
        """Makes a program, which was called under the root handler, the latest one."""
        recent = FastPathProgram.of(key, partial(self._static.split, self._where), traced, program)
        self._set_recent((recent, *self._recent[: MAX_RECENT - 1]))


def _unflattening(
    output: Callable[[list[ConcreteArray]], Out], on_buffers: Callable[[Sequence[Buffer]], list[ConcreteArray]]
) -> Callable[[Sequence[Buffer]], Out]:
    return lambda buffers: output(on_buffers(buffers))


@final
@frozen(eq=False)
class DonatingProgram:
    """A compiled program that notes, in the arrays that were donated to it, the names of the arguments for messages."""

    program: Runnable
    names: Mapping[int, str]
    """The names of the donated inputs."""
    uncommitted_run: None = field(default=None, init=False)

    @property
    def on_host(self) -> HostProgram | None:
        host_program = self.program.on_host
        return None if host_program is None else host_program.with_donated_names(self.names)

    def __call__(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        outs = self.program(args)
        note_donations(self.names, args)
        return outs


def note_donations(names: Mapping[int, str], args: Sequence[Value | NDArray]) -> None:
    """Notes, in the arrays that a call donated, the names of the arguments that they were."""
    for i, name in names.items():
        if isinstance(x := args[i], ConcreteArray) and hasattr(x, "donated_as"):
            x.donated_as = name
