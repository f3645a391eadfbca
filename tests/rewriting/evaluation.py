"""Stepwise evaluation of programs: loops and calls are evaluated equation by equation, nothing is compiled as a whole.

So passes that move equations between programs can be compared bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

import numpy as np

from tests.comparison import difference
from tracefx.control.call import CallPrimitive
from tracefx.control.cond import Cond
from tracefx.control.custom_rules import CustomRuleProgram
from tracefx.control.linear_solve import LinearSolve
from tracefx.control.scan import Scan
from tracefx.control.while_loop import While
from tracefx.core import ConcreteArray, Literal, Value, to_numpy
from tracefx.core.jaxpr import Atom, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.passes.check import check_jaxpr
from tracefx.passes.rebuilding import is_observable

Log: TypeAlias = list[tuple[str, tuple[bytes, ...]]]
Pass: TypeAlias = Callable[[Jaxpr], Jaxpr]


@final
class StepwiseEvaluator:
    """Evaluates a program and logs each primitive with effects, with the bytes of its operands."""

    def __init__(self) -> None:
        self.log: Log = []

    def run(self, jaxpr: Jaxpr, args: Sequence[Value]) -> list[Value]:
        env = {v.index: x for v, x in zip(jaxpr.constvars + jaxpr.invars, args, strict=True)}

        def read(x: Atom) -> Value:
            return env[x.index] if isinstance(x, Var) else x

        for eqn in jaxpr.eqns:
            outs = self.apply(eqn.prim, list(map(read, eqn.inputs)))
            env.update(zip([v.index for v in eqn.outs], outs, strict=True))
        return list(map(read, jaxpr.outs))

    def apply(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        match prim:
            case CallPrimitive():
                return self.run(prim.jaxpr, args)
            case CustomRuleProgram():
                return self.run(prim.jaxpr, args)
            case LinearSolve():
                return self.run(prim.solve, args)
            case Cond():
                branch_index = min(max(int(to_numpy(args[0])), 0), len(prim.branches) - 1)
                return self.run(prim.branches[branch_index], args[1:])
            case While():
                cond_consts, body_consts, carry = prim.split_operands(args)
                while bool(to_numpy(self.run(prim.cond_jaxpr, [*cond_consts, *carry])[0])):
                    carry = self.run(prim.body_jaxpr, [*body_consts, *carry])
                return carry
            case Scan():
                return self.scan(prim, args)
            case _:
                pass
        if is_observable(prim):
            self.log.append((prim.name, tuple([to_numpy(x).tobytes() for x in args])))
            if not prim.abstract_eval(*[x.aval for x in args]):
                return ()
        return prim.evaluate(args)

    def scan(self, op: Scan, args: Sequence[Value]) -> Sequence[Value]:
        consts, carry, arrays = op.split_operands(args)
        rows: list[list[Value]] = []
        order = range(op.length)
        for i in reversed(order) if op.reverse else order:
            slices = [ConcreteArray(x.aval.without_axis(0), to_numpy(x)[i, ...].copy()) for x in arrays]
            outs = self.run(op.jaxpr, [*consts, *carry, *slices])
            carry = outs[: op.num_carry]
            rows.append(outs[op.num_carry :])
        if op.reverse:
            rows.reverse()
        stacks = []
        for k, aval in enumerate(op.stacked(op.jaxpr.out_avals[op.num_carry :])):
            parts = [to_numpy(row[k]) for row in rows]
            host = np.stack(parts) if parts else np.zeros(aval.shape, aval.dtype)
            stacks.append(ConcreteArray(aval, host))
        return [*carry, *stacks]


def results(jaxpr: Jaxpr, args: Sequence[Value]) -> tuple[list[Value], Log]:
    stepwise = StepwiseEvaluator()
    return stepwise.run(jaxpr, args), stepwise.log


def assert_pass_is_sound(change: Pass, jaxpr: Jaxpr, args: Sequence[Value], *, exact: bool = True) -> Jaxpr:
    """Asserts that a pass keeps types, values and effects and is idempotent; returns the transformed program."""
    new = change(jaxpr)
    check_jaxpr(new)
    assert (new.in_avals, new.out_avals) == (jaxpr.in_avals, jaxpr.out_avals)
    assert [v.aval for v in new.constvars] == [v.aval for v in jaxpr.constvars]
    assert change(new) is new, f"not idempotent:\n{new}\n{change(new)}"
    if exact:
        (got, log), (want, expected) = results(new, args), results(jaxpr, args)
        found = difference(got, want)
        assert not found, f"{found}\nbefore: {jaxpr}\nafter: {new}"
        assert log == expected
    return new


def is_literal(x: Atom) -> bool:
    return isinstance(x, Literal)
