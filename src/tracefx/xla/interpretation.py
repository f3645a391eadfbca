"""Interpretation of a program with the semantics of its compiled form, for calls before it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

import numpy as np
from attrs import field, frozen

from tracefx.core.device import DEFAULT_DEVICE
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import ROOT
from tracefx.core.jaxpr import Atom, Jaxpr
from tracefx.core.literal import Literal
from tracefx.core.values import ConcreteArray, Value, as_value
from tracefx.shardings.meshes import MeshEffect
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.xla import runtime
from tracefx.xla.lower import ExecutionPlan, assemble_outputs
from tracefx.xla.spmd import distinct

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
        default = DEFAULT_DEVICE.value or runtime.default_device()
        if not self._is_suitable or default is not runtime.devices()[0]:
            return None
        if any(type(x) is ShardedArray for x in args) or (self.plan.donated and len({*map(id, args)}) < len(args)):
            return None
        values = [as_value(x) if isinstance(x, np.ndarray) else x for x in args]
        kept = [values[i] for i in self.plan.kept_inputs]
        if self.body.effects:
            results = _interpret(self.body, kept, lambda: False)
        else:
            try:
                results = _interpret(self.body, kept, is_compiled)
            except Exception:  # of any kind: `MemoryError`, an exception of a pure callback, a missing rule
                return None
        if results is None:
            return None
        given = {*map(id, args), *map(id, values)}
        arrays = [_as_new_array(x, given) for x in results]
        for i in self.plan.aliases:
            x = args[self.plan.kept_inputs[i]]
            if isinstance(x, ConcreteArray):
                x.delete_donated(self.name)
        return distinct(assemble_outputs(self.plan.outputs, values, arrays))


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
