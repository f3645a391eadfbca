"""Along which axes of a mesh the values of a program may differ from device to device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tracefx.control.call import Application
from tracefx.control.composite import Composite
from tracefx.control.cond import Cond
from tracefx.control.linear_solve import LinearSolve
from tracefx.control.ruled import RuledProgram
from tracefx.control.scan import Scan
from tracefx.control.shard_map import ShardMap
from tracefx.control.while_loop import While
from tracefx.core.effects import NamedAxis
from tracefx.core.jaxpr import CarriesJaxprs, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.ops.collective import AllReduce, AxisIndex, Collective
from tracefx.ops.exchange import AllGather

Axes: TypeAlias = frozenset[str]
NONE: Axes = frozenset()


def differing(jaxpr: Jaxpr, inputs: Sequence[Axes]) -> list[Axes]:
    """For each output the axes along which it may differ, from those of the inputs."""
    known = dict(zip([v.index for v in jaxpr.invars], inputs, strict=True))

    def of(atom: object) -> Axes:
        return known[atom.index] if isinstance(atom, Var) else NONE

    for eqn in jaxpr.eqns:
        outs = _of_operation(eqn.prim, [of(x) for x in eqn.inputs], len(eqn.outs))
        known.update(zip([v.index for v in eqn.outs], outs, strict=True))
    return [of(x) for x in jaxpr.outs]


def _of_operation(prim: Primitive, operands: Sequence[Axes], count: int) -> list[Axes]:
    together = NONE.union(*operands)
    match prim:
        case AxisIndex():
            return [frozenset([str(prim.axis_name)])]
        case AllReduce() | AllGather():
            return [together - frozenset(map(str, prim.names))]
        case Collective():
            return [together | frozenset(map(str, prim.names))]
        case ShardMap():
            return [out - frozenset(prim.axis_names) for out in differing(prim.body, operands)]
        case Application() | RuledProgram() | Composite():
            return differing(prim.jaxprs()[0], operands)
        case LinearSolve():
            return differing(prim.solve, operands)
        case Cond():
            which, *rest = operands
            ways = [differing(branch, rest) for branch in prim.jaxprs()]
            return [which.union(*way) for way in zip(*ways, strict=True)]
        case Scan():
            consts, carry, slices = prim.parts(operands)
            while True:
                outs = differing(prim.jaxpr, [*consts, *carry, *slices])
                wider = [a | b for a, b in zip(carry, outs, strict=False)]
                if wider == list(carry):
                    return [*carry, *outs[len(carry) :]]
                carry = wider
        case While():
            return _of_while(prim, operands)
        case CarriesJaxprs():
            inside = {str(e.name) for body in prim.jaxprs() for e in body.effects if isinstance(e, NamedAxis)}
            return [together | inside] * count
        case _:
            return [together] * count


def _of_while(prim: While, operands: Sequence[Axes]) -> list[Axes]:
    test_consts, body_consts, carry = prim.parts(operands)
    test, body = prim.jaxprs()
    while True:
        (goes_on,) = differing(test, [*test_consts, *carry])
        outs = differing(body, [*body_consts, *carry])
        wider = [a | b | goes_on for a, b in zip(carry, outs, strict=True)]
        if wider == list(carry):
            return list(carry)
        carry = wider
