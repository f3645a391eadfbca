"""Interpretation of a program with the semantics of its compiled form: equation by equation, or piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

import numpy as np
from attrs import field, frozen

from tracefx.core import ConcreteArray, Literal, NDArray, Value, as_value
from tracefx.core.device import DEFAULT_DEVICE
from tracefx.core.handler import ROOT
from tracefx.core.jaxpr import Atom, Jaxpr
from tracefx.settings import REPEATS
from tracefx.shardings.meshes import MeshEffect
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.xla.lower import ExecutionPlan, assemble_outputs
from tracefx.xla.runtime import platforms
from tracefx.xla.spmd import MayRunElsewhere, distinct

LARGEST_VALUE: Final = 2**28
"""The size in bytes above which an intermediate value may need memory that the compiled program does not need."""


@final
@frozen(eq=False)
class InterpretedProgram:
    """A program that is interpreted: its equations are evaluated eagerly, one after the other.

    Outputs and donated inputs are treated as the compiled program treats them.

    Args:
        name: The name of the program in messages.
        plan: The plan of the compiled program.
        body: The program to interpret, equal to `plan.computed`.
    """

    name: str
    plan: ExecutionPlan
    body: Jaxpr
    _is_suitable: bool = field(init=False)

    @_is_suitable.default
    def _runs_here_in_little_memory(self) -> bool:
        values_are_small = all(v.aval.nbytes <= LARGEST_VALUE for e in self.body.eqns for v in e.outs)
        return values_are_small and not any(isinstance(effect, MeshEffect) for effect in self.body.effects)

    def __call__(self, args: Sequence[Value | NDArray], is_compiled: Callable[[], bool]) -> list[ConcreteArray] | None:
        """Runs the program on the host, unless the compiled program has to run, or can run sooner.

        Args:
            args: The inputs, as for the compiled program.
            is_compiled: Whether the compiled program is ready. Then a program without effects is not interpreted to
                its end.

        Returns:
            The outputs; None if the compiled program has to be called with the same inputs. That is so for arrays on
            other devices, for programs that refer to a mesh or have values of more than `LARGEST_VALUE` bytes, and for
            an array that is donated and passed twice. It is also so if the interpretation of a program without effects
            fails: the compiled program decides whether that is an error.
        """
        values = _values_on_host(self.plan, args) if self._is_suitable else None
        if values is None:
            return None
        kept = [values[i] for i in self.plan.kept_inputs]
        if self.body.effects:
            results = _interpret(self.body, kept, lambda: False)
        else:
            try:
                results = _interpret(self.body, kept, is_compiled)
            except Exception:  # of any kind: `MemoryError`, an exception of a pure callback, a missing rule
                return None
        return None if results is None else _outputs(self.plan, self.name, args, values, results)


@final
@frozen(eq=False)
class PiecewiseProgram(MayRunElsewhere):
    """A program that runs as a sequence of executables, which are compiled at the first call.

    Args:
        name: The name of the program in messages.
        plan: The plan of the program.
        body: A program of calls, equal to `plan.computed`.
        whole: The program as one executable, for arguments on other devices, or one that is donated and passed twice.
    """

    name: str
    plan: ExecutionPlan
    body: Jaxpr
    whole: Callable[[Sequence[Value | NDArray]], list[ConcreteArray]]
    uncommitted_run: None = field(default=None, init=False)

    def __call__(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        values = _values_on_host(self.plan, args)
        if values is None:
            return self.whole(args)
        with REPEATS.override("share"):  # for repeats in the pieces
            results = _interpret(self.body, [values[i] for i in self.plan.kept_inputs], lambda: False)
        assert results is not None
        return _outputs(self.plan, self.name, args, values, results)


def _values_on_host(plan: ExecutionPlan, args: Sequence[Value | NDArray]) -> list[Value] | None:
    """Returns the inputs as values on the host; None if they are elsewhere, or one is donated and passed twice."""
    default = DEFAULT_DEVICE.value or platforms.default_device()
    if default is not platforms.devices()[0] or any(type(x) is ShardedArray for x in args):
        return None
    if plan.donated and len({*map(id, args)}) < len(args):
        return None
    return [as_value(x) if isinstance(x, np.ndarray) else x for x in args]


def _outputs(
    plan: ExecutionPlan,
    name: str,
    args: Sequence[Value | NDArray],
    values: Sequence[Value],
    results: Sequence[Value],
) -> list[ConcreteArray]:
    """Returns the outputs of a program as new arrays, and deletes donated inputs."""
    given = {*map(id, args), *map(id, values)}
    arrays = [_as_new_array(x, given) for x in results]
    for i in plan.aliases:
        x = args[plan.kept_inputs[i]]
        if isinstance(x, ConcreteArray):
            x.delete_donated(f"an argument of {name}")
    return distinct(assemble_outputs(plan.outputs, values, arrays))


def _interpret(jaxpr: Jaxpr, args: Sequence[Value], is_compiled: Callable[[], bool]) -> list[Value] | None:
    """Evaluates a program; returns None if it was compiled before the last equation."""
    env: dict[int, Value] = dict(zip([v.index for v in jaxpr.invars], args, strict=True))

    def read(atom: Atom) -> Value:
        return atom if isinstance(atom, Literal) else env[atom.index]

    for eqn, unused in zip(jaxpr.eqns, jaxpr.last_uses, strict=True):
        if is_compiled():
            return None
        outs = ROOT.bind(eqn.prim, [read(a) for a in eqn.inputs])
        env.update(zip([v.index for v in eqn.outs], outs, strict=True))
        for i in unused:
            env.pop(i, None)
    return [read(a) for a in jaxpr.outs]


def _as_new_array(x: Value, given: set[int]) -> ConcreteArray:
    """Returns a result as an array that is none of the given ones, by identity."""
    if isinstance(x, Literal):
        return ConcreteArray(x.aval, x.numpy())
    assert isinstance(x, ConcreteArray)
    return x.alias() if id(x) in given else x
