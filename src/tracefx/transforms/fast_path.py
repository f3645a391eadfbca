"""The fast path of `jit`: the compiled programs of recent calls, found by comparison with a new call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, Generic, Self, cast, final

import numpy as np
from attrs import field, frozen
from typing_extensions import ParamSpec, TypeVar

from tracefx.core import ConcreteArray, NDArray, Scalar, ShapedArray, Value, dtypes
from tracefx.core.backend import HostProgram, Runnable
from tracefx.core.device import DEFAULT_DEVICE, Buffer
from tracefx.core.handler import CURRENT, ROOT
from tracefx.core.literal import argument_literal
from tracefx.core.sharding import Sharding
from tracefx.core.traceback_filtering import filter_traceback
from tracefx.core.values import number_aval, numpy_aval
from tracefx.pytrees import trees
from tracefx.pytrees.trees import TreeDef
from tracefx.settings import SETTINGS, X64, Setting
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.transforms.argument_memory import ArgumentMemories, ArgumentMemory
from tracefx.transforms.static_arguments import (
    NO_STATIC_ARGUMENTS,
    DynamicArguments,
    StaticArgument,
    StaticArguments,
    without_statics,
)
from tracefx.transforms.tracing import Trace, TraceKey

P = ParamSpec("P")
Out = TypeVar("Out", default=Any)

MAX_RECENT: Final = 8
"""How many recent programs a call is compared with. A comparison takes 0.2 µs, a lookup in the cache 5 µs."""


@final
@frozen(eq=False)
class FastPathProgram(Generic[Out]):
    """A compiled program with the signature of the calls for which it was found."""

    in_tree: TreeDef
    """The structure of the traced arguments."""
    count: int
    """The number of arguments if all are leaves and positional, and none is static; otherwise -2."""
    names: tuple[str, ...] | None
    """The names of the keyword arguments if each argument is a leaf, so that flattening is not necessary; else None."""
    positional: int
    """The number of positional arguments if each argument is a leaf."""
    statics: tuple[StaticArgument, ...]
    without_statics: Callable[[tuple[Any, ...], dict[str, Any]], DynamicArguments | None]
    """Returns the traced arguments of a call if its static arguments are the very objects `statics`; else None."""
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
    on_buffers: Callable[[Sequence[Buffer]], list[ConcreteArray]] | None
    """Like `run`, but returns the outputs as a list."""
    memories: ArgumentMemories
    """The memory for NumPy arrays and numbers that are passed to a program on the host."""

    @classmethod
    def of(
        cls,
        in_tree: TreeDef,
        avals: tuple[ShapedArray, ...],
        statics: tuple[StaticArgument, ...],
        traced: Trace[Out],
        program: Runnable,
    ) -> Self:
        """Returns the program of a trace, for calls under the current settings."""
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
        on_buffers = None if on_host is None else on_host.on_buffers
        if on_host is not None and on_buffers is not None:
            if has_one_output:
                run = cast("Callable[[list[Buffer]], Out]", on_host.on_buffers_one)
            else:
                run = _unflattening(output, on_buffers)
        number_types = {number_aval(dtypes.scalar_dtype(kind)): kind for kind in (bool, int, float, complex)}
        names = _names_of_leaves(in_tree)
        return cls(
            in_tree,
            len(avals) if names == () and not statics else -2,
            names,
            len(avals) - len(names or ()),
            statics,
            without_statics(statics, len(in_tree.children()[0].children()) if statics else 0),
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
            on_buffers,
            ArgumentMemories(),
        )

    def outputs_for(self, leaves: Sequence[Any], buffers: list[Buffer], first: int) -> list[ConcreteArray] | None:
        """Returns the outputs for leaves of any kind; None if one has another type than the program's.

        Args:
            leaves: The leaves.
            buffers: The buffers of the constants and of the leaves before the first that has none.
            first: The position of that leaf.
        """
        on_host = self.on_host
        if on_host is None:
            return self._outputs_elsewhere(leaves)
        memory: ArgumentMemory | None = None
        took = False
        try:
            i, index, avals = first, len(buffers), self.avals
            for x in leaves[first:] if first else leaves:
                aval, buffer = avals[i], None
                if type(x) is np.ndarray or isinstance(x, np.generic):
                    if x.dtype is not aval.dtype or x.shape != aval.shape or (put := self.put_numpy[i]) is None:
                        break
                    if not took:
                        memory, took = self.memories.take(on_host), True
                    if memory is not None:
                        buffer = memory.write_array(index, x)
                    if buffer is None:
                        buffer = put(np.asarray(x))
                elif type(x) is ConcreteArray:
                    if x.aval is not aval:
                        break
                    buffer = on_host.put(index, x) if x.buffer is None else x.buffer
                elif type(x) is self.number_types[i]:
                    if not took:
                        memory, took = self.memories.take(on_host), True
                    if memory is not None:
                        buffer = memory.write_number(index, x)
                    if buffer is None:
                        buffer = on_host.put(index, argument_literal(x, aval))
                elif type(x) is ShardedArray:
                    return self._outputs_elsewhere(leaves)
                else:
                    break
                buffers.append(buffer)
                i += 1
                index += 1
            else:
                if (on_buffers := self.on_buffers) is not None:
                    outs = on_buffers(buffers)
                else:
                    outs = on_host.call_with_buffers([*self.consts, *leaves], buffers)
                if memory is not None:
                    memory.reader = on_host.pending_result(outs)
                return outs
            return None
        except BaseException:
            if memory is not None:
                memory = None  # a program may read it
                self.memories.forget()
            raise
        finally:
            if memory is not None:
                self.memories.put_back(memory)

    def call_with_buffers(self, leaves: Sequence[Any], buffers: Sequence[Buffer]) -> Out:
        """Runs a program that needs more than buffers: elsewhere, with donated arguments, or with inputs as outputs."""
        if self.on_host is None:  # the leaves are arrays with buffers on the host, or there are no leaves
            return self.output(self._call_elsewhere([*leaves]))
        return self.output(self.on_host.call_with_buffers([*self.consts, *leaves], buffers))

    def _outputs_elsewhere(self, leaves: Sequence[object]) -> list[ConcreteArray] | None:
        """Returns the outputs of a program that may run elsewhere; None if leaves are not arrays of the right types."""
        arrays = [
            x
            for x, aval in zip(leaves, self.avals)  # noqa: B905  # they have the same length
            if (type(x) is ConcreteArray or type(x) is ShardedArray) and x.aval is aval
        ]
        return self._call_elsewhere(arrays) if len(arrays) == len(self.avals) else None

    def _call_elsewhere(self, arrays: list[ConcreteArray]) -> list[ConcreteArray]:
        """Runs the program on the devices of its arguments."""
        inputs = [*self.consts, *arrays]
        if DEFAULT_DEVICE.value is None and (uncommitted := self.program.uncommitted_run) is not None:
            placements, run = uncommitted
            buffers = [buffer for x in inputs if (buffer := _uncommitted_buffer(x, placements)) is not None]
            if len(buffers) == len(inputs):
                return run(buffers)
        return self.program(inputs)


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
    """The base class of compiled functions: calls that resemble a recent one take the fast path."""

    __slots__ = ("__dict__", "__weakref__", "_recent", "_static", "_where")  # slots are faster than the dict
    _recent: tuple[FastPathProgram[Out], ...]
    """The programs of recent calls, the latest first."""
    _static: StaticArguments
    _where: str
    """The name of the arguments in messages."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Out:
        # Every 10 ns count here: nothing is checked twice, and nothing that comparisons by identity decide.
        try:
            if CURRENT.get() is ROOT:
                settings, count = SETTINGS.get().values, -1 if kwargs else len(args)
                flattened: tuple[Sequence[object], TreeDef] | None = None
                split: tuple[DynamicArguments, tuple[StaticArgument, ...]] | None = None
                leaves: Sequence[object]
                for recent in self._recent:
                    if recent.settings is not settings:
                        continue
                    if recent.count == count:
                        leaves = args
                    else:
                        traced_args: tuple[Any, ...] = args
                        traced_kwargs: dict[str, Any] = kwargs
                        if self._static is not NO_STATIC_ARGUMENTS:
                            dynamic = recent.without_statics(args, kwargs)
                            if dynamic is None:
                                if split is None:
                                    split = self._static.split(self._where, args, kwargs)
                                if recent.statics != split[1]:
                                    continue
                                dynamic = split[0]
                            traced_args, traced_kwargs = dynamic
                        names = recent.names
                        if names is None:
                            if flattened is None:
                                flattened = trees.flatten_registered((traced_args, traced_kwargs))
                            leaves, in_tree = flattened
                            if in_tree != recent.in_tree:
                                continue
                        elif len(traced_args) != recent.positional or len(traced_kwargs) != len(names):
                            continue
                        else:
                            leaves = (*traced_args, *map(traced_kwargs.get, names)) if names else traced_args
                    buffers, i, avals = [*recent.const_buffers], 0, recent.avals
                    for x in leaves:  # for one or two arguments, counting is faster than `zip` and `enumerate`
                        if type(x) is not ConcreteArray or x.aval is not avals[i] or (buffer := x.buffer) is None:
                            break
                        buffers.append(buffer)
                        i += 1
                    else:
                        run = recent.run
                        return recent.call_with_buffers(leaves, buffers) if run is None else run(buffers)
                    if (outs := recent.outputs_for(leaves, buffers, i)) is not None:
                        return recent.output(outs)
            return self._call(args, kwargs)
        except Exception as error:
            filter_traceback(error)
            raise

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Out:
        """The slow path: for arguments of any kind, under any handler."""
        raise NotImplementedError

    def _remember(self, key: TraceKey, traced: Trace[Out], program: Runnable) -> None:
        """Makes a program, which was called under the root handler, the latest one."""
        recent = FastPathProgram.of(key.in_tree, key.avals, key.statics, traced, program)
        self._recent = (recent, *self._recent[: MAX_RECENT - 1])


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
