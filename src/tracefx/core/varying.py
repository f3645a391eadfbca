"""Varying mesh axes (vma): the manual mesh axes over which a value varies from device to device.

Inside a checked `shard_map`, recording handlers track them for each value and ask the primitive, by its `varies` rule,
for those of its results. They are kept beside the aval rather than in it: rules need not propagate them, and a program
means the same whether or not they are tracked.
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
    """A capability: the primitive has a rule for the mesh axes over which its results vary.

    Without one, each result varies over the axes of all operands.
    """

    __slots__ = ()

    @abstractmethod
    def varies(self, operands: Sequence[Axes], count: int, flow: Flow) -> Sequence[Axes]:
        """Returns, for each of the `count` results, the mesh axes over which it varies.

        Args:
            operands: The mesh axes over which each operand varies.
            count: The number of results.
            flow: Propagates varying axes through sub-jaxprs.
        """
        raise NotImplementedError


@final
@frozen
class Flow:
    """Propagates varying mesh axes through jaxprs.

    Args:
        of_values: Whether to compute the axes over which the elements may actually differ, or else the declared ones. A
            value that `pcast` made varying is declared varying although it is replicated, and so is the result of
            `all_gather`.
    """

    of_values: bool = field(kw_only=True)

    def through(self, jaxpr: Jaxpr, inputs: Sequence[Axes]) -> Sequence[Axes]:
        """Returns the varying axes of the outputs of a jaxpr, from those of its constants and inputs. Cached."""
        input_axes = tuple(inputs)
        return jaxpr.memo.get(("varies", self.of_values, input_axes), lambda: self._through(jaxpr, input_axes))

    def _through(self, jaxpr: Jaxpr, inputs: tuple[Axes, ...]) -> list[Axes]:
        known = dict(zip([v.index for v in (*jaxpr.constvars, *jaxpr.invars)], inputs, strict=True))

        def of(atom: Atom) -> Axes:
            return known[atom.index] if isinstance(atom, Var) else NOWHERE

        for eqn in jaxpr.eqns:
            outs = self.of(eqn.prim, [of(x) for x in eqn.inputs], len(eqn.outs))
            known.update(zip([v.index for v in eqn.outs], outs, strict=True))
        return [of(x) for x in jaxpr.outs]

    def of(self, prim: Primitive, operands: Sequence[Axes], count: int) -> Sequence[Axes]:
        """Returns the varying axes of the `count` results of a primitive, from those of its operands."""
        if isinstance(prim, HasVaryingRule):
            return prim.varies(operands, count, self)
        if not isinstance(prim, HasSubjaxprs):
            return [NOWHERE.union(*operands)] * count
        body_axes = {str(e.name) for body in prim.jaxprs() for e in body.effects if isinstance(e, NamedAxisEffect)}
        return [NOWHERE.union(*operands, body_axes)] * count


DECLARED: Final = Flow(of_values=False)
ACTUAL: Final = Flow(of_values=True)
