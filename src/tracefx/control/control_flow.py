"""The base class of control-flow primitives, and helpers that rearrange jaxprs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeAlias, TypeVar

from attrs import field, frozen
from typing_extensions import override

from tracefx.bounded_cache import Memo, memoize_on_object
from tracefx.core import ShapedArray, Value
from tracefx.core.backend import BACKEND
from tracefx.core.effects import Effects
from tracefx.core.jaxpr import Jaxpr, Var, single_eqn_jaxpr
from tracefx.core.primitive import Batchable, Differentiable, Primitive, Transposable
from tracefx.interpreters.body_transform import BodyTransformable
from tracefx.interpreters.jaxpr_transforms import Consts
from tracefx.interpreters.masks import Mask
from tracefx.lowering import Lowerable
from tracefx.passes.dce import Prunable
from tracefx.passes.rebuilding import renumber
from tracefx.passes.varying import HasTypedBodies

X = TypeVar("X")
InputSource: TypeAlias = int | ShapedArray
"""An input of a rearranged jaxpr: the index of an original input, or the shape and dtype of a new, unused one."""


@frozen(eq=False)
class ControlFlowPrimitive(
    Primitive, HasTypedBodies, Prunable, BodyTransformable, Differentiable, Transposable, Batchable, Lowerable
):
    """Base class of control-flow primitives. Transformed versions are cached in `memo`."""

    memo: Memo = field(factory=Memo, init=False, eq=False, repr=False)

    @property
    @override
    @memoize_on_object
    def effects(self) -> Effects:
        return frozenset().union(*[body.effects for body in self.jaxprs()])

    @memoize_on_object
    def as_jaxpr(self, avals: tuple[ShapedArray, ...]) -> Jaxpr:
        """Returns the jaxpr of one equation that applies this primitive to inputs of the types `avals`."""
        return single_eqn_jaxpr(self, avals)

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return BACKEND.value.run(self.as_jaxpr(tuple([a.aval for a in args])), args, self.name)


# ------------------------------------------------------------------ jaxprs


def used_inputs(jaxpr: Jaxpr) -> Mask:
    """Tells for each input of a jaxpr whether an equation or an output uses it."""
    used = {a.index for eqn in jaxpr.eqns for a in eqn.inputs if isinstance(a, Var)}
    used |= {a.index for a in jaxpr.outs if isinstance(a, Var)}
    return tuple([v.index in used for v in jaxpr.invars])


def rearrange_jaxpr(jaxpr: Jaxpr, inputs: Sequence[InputSource], outs: Sequence[int] | None = None) -> Jaxpr:
    """Returns the jaxpr with its inputs and outputs selected and reordered.

    Args:
        jaxpr: a closed jaxpr.
        inputs: for each new input, the index of the original one, or the shape and dtype of an additional, unused
            input. Original inputs that are left out must be unused.
        outs: the indices of the original outputs; all of them by default.
    """
    new_indices = itertools.count(jaxpr.var_count)
    invars = [jaxpr.invars[i] if isinstance(i, int) else Var(next(new_indices), i) for i in inputs]
    results = jaxpr.outs if outs is None else tuple([jaxpr.outs[i] for i in outs])
    return renumber(Jaxpr((), tuple(invars), jaxpr.eqns, results))


def unify_consts(derived: Sequence[tuple[Jaxpr, Consts]]) -> tuple[tuple[Jaxpr, ...], Consts]:
    """Gives several jaxprs the same leading inputs: the constants of all of them.

    Args:
        derived: jaxprs with the constants that are their first inputs.

    Returns:
        The jaxprs, each with the constants of all first, and these constants.
    """
    avals = [[c.aval for c in consts] for _, consts in derived]
    total = tuple([c for _, consts in derived for c in consts])
    bodies = []
    for i, (jaxpr, consts) in enumerate(derived):
        before: list[InputSource] = [a for each in avals[:i] for a in each]
        after: list[InputSource] = [a for each in avals[i + 1 :] for a in each]
        inputs = [*before, *range(len(consts)), *after, *range(len(consts), len(jaxpr.invars))]
        bodies.append(rearrange_jaxpr(jaxpr, inputs) if len(derived) > 1 and total else jaxpr)
    return tuple(bodies), total
