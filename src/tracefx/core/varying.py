"""Along which axes of a mesh a value may differ from device to device.

Inside of a checked `shard_map` this is part of what is known of a value, as its type is: whoever records a program
notes it of the values it gives out, and asks the operation, by `Primitive.varies`, what its outputs are like. It stands
beside the type and not in it: no rule has to hand it on, and a program means the same whether anybody looks at it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final, final

from attrs import field, frozen

from tracefx.core.avals import NOWHERE, Axes
from tracefx.core.effects import NamedAxisEffect
from tracefx.core.jaxpr import Atom, HasSubjaxprs, Jaxpr, Var
from tracefx.core.primitive import Primitive


class HasVaryingRule:
    """A capability: the primitive has a rule for the mesh axes along which its outputs vary.

    Without one, each output varies along the axes of all operands.
    """

    __slots__ = ()

    @abstractmethod
    def varies(self, operands: Sequence[Axes], count: int, flow: Flow) -> Sequence[Axes]:
        """Returns, for each of the `count` outputs, the mesh axes along which it varies.

        `operands` says it of the operands; `flow` follows it through sub-jaxprs.
        """
        raise NotImplementedError


@final
@frozen
class Flow:
    """Looks through programs for what their outputs are like.

    `of_values`: whether the values may differ, whatever they are declared to be. Else as what they count: what
    `pcast` made varying is, though it is the same everywhere, and so is what was gathered.
    """

    of_values: bool = field(kw_only=True)

    def through(self, jaxpr: Jaxpr, inputs: Sequence[Axes]) -> Sequence[Axes]:
        """For each output of a program the axes along which it varies, from those of the constants and the inputs."""
        given = tuple(inputs)
        return jaxpr.memo.get(("varies", self.of_values, given), lambda: self._through(jaxpr, given))

    def _through(self, jaxpr: Jaxpr, inputs: tuple[Axes, ...]) -> list[Axes]:
        known = dict(zip([v.index for v in (*jaxpr.constvars, *jaxpr.invars)], inputs, strict=True))

        def of(atom: Atom) -> Axes:
            return known[atom.index] if isinstance(atom, Var) else NOWHERE

        for eqn in jaxpr.eqns:
            outs = self.of(eqn.prim, [of(x) for x in eqn.inputs], len(eqn.outs))
            known.update(zip([v.index for v in eqn.outs], outs, strict=True))
        return [of(x) for x in jaxpr.outs]

    def of(self, prim: Primitive, operands: Sequence[Axes], count: int) -> Sequence[Axes]:
        """For each of the `count` outputs of an operation the axes along which it varies."""
        if isinstance(prim, HasVaryingRule):
            return prim.varies(operands, count, self)
        if not isinstance(prim, HasSubjaxprs):
            return [NOWHERE.union(*operands)] * count
        inside = {str(e.name) for body in prim.jaxprs() for e in body.effects if isinstance(e, NamedAxisEffect)}
        return [NOWHERE.union(*operands, inside)] * count


DECLARED: Final = Flow(of_values=False)
ACTUAL: Final = Flow(of_values=True)
