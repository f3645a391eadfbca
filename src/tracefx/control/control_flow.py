"""What operations that carry programs share: their bases, and programs fitted to the places they stand in."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

from attrs import field, frozen
from typing_extensions import override

from tracefx.core.avals import ShapedArray
from tracefx.core.body_transform import BodyTransformable
from tracefx.core.effects import Effects
from tracefx.core.jaxpr import Eqn, HasSubjaxprs, Jaxpr, Memo, Var
from tracefx.core.primitive import Batchable, Differentiable, Primitive, Tangent, Transposable, UndefinedPrimal, Zero
from tracefx.core.values import Value
from tracefx.interpreters.jaxpr_transforms import Consts, Mask
from tracefx.lowering import Lowerable
from tracefx.passes.dce import Prunable, renumber

X = TypeVar("X")
InputSource: TypeAlias = int | ShapedArray
"""An input of a program by its place, or the type of one that it doesn't read."""


@frozen(eq=False)
class ControlFlowPrimitive(
    Primitive, HasSubjaxprs, Prunable, BodyTransformable, Differentiable, Transposable, Batchable, Lowerable
):
    """An operation that carries programs. What is derived from it is kept in its `memo`, and dies with it."""

    memo: Memo = field(factory=Memo, init=False, eq=False, repr=False)

    @property
    @override
    def effects(self) -> Effects:
        return self.memo.get("effects", lambda: frozenset().union(*[body.effects for body in self.jaxprs()]))


# ------------------------------------------------------------------ masks


def select_masked(xs: Iterable[X], mask: Iterable[bool]) -> list[X]:
    return [x for x, use in zip(xs, mask, strict=True) if use]


def select_unmasked(xs: Iterable[X], mask: Iterable[bool]) -> list[X]:
    return [x for x, use in zip(xs, mask, strict=True) if not use]


def union_masks(masks: Iterable[Mask]) -> Mask:
    return tuple(map(any, zip(*masks, strict=True)))


def nonzero_mask(tangents: Iterable[Tangent]) -> Mask:
    return tuple([not isinstance(t, Zero) for t in tangents])


def drop_zeros(tangents: Iterable[Tangent]) -> list[Value]:
    """Those that are no zeros."""
    return [t for t in tangents if not isinstance(t, Zero)]


def linear_mask(args: Iterable[Value | UndefinedPrimal]) -> Mask:
    return tuple([isinstance(a, UndefinedPrimal) for a in args])


def known_values(args: Iterable[Value | UndefinedPrimal], late: Iterable[bool] | None = None) -> list[Value]:
    """The values outside the mask, among which no `UndefinedPrimal` is."""
    values = args if late is None else select_unmasked(args, late)
    return [x for x in values if not isinstance(x, UndefinedPrimal)]


def insert_zeros(values: Sequence[Value], mask: Sequence[bool], avals: Sequence[ShapedArray]) -> list[Tangent]:
    """The values at the places of the mask, zeros of the tangents' types at the others."""
    given = iter(values)
    return [next(given) if use else Zero(a.tangent()) for use, a in zip(mask, avals, strict=True)]


def merge_masked(mask: Sequence[bool], ours: Sequence[X], rest: Sequence[X]) -> list[X]:
    """`ours` at the places of the mask, `rest` at the others."""
    a, b = iter(ours), iter(rest)
    return [next(a) if use else next(b) for use in mask]


# ------------------------------------------------------------------ programs in their places


def single_eqn_jaxpr(prim: Primitive, avals: Sequence[ShapedArray]) -> Jaxpr:
    """The program of one equation."""
    inputs = tuple([Var(i, aval) for i, aval in enumerate(avals)])
    outs = tuple([Var(len(avals) + i, aval) for i, aval in enumerate(prim.abstract_eval(*avals))])
    return Jaxpr((), inputs, (Eqn(prim, inputs, outs),), outs)


def used_inputs(jaxpr: Jaxpr) -> Mask:
    """Which inputs a program uses."""
    used = {a.index for eqn in jaxpr.eqns for a in eqn.inputs if isinstance(a, Var)}
    used |= {a.index for a in jaxpr.outs if isinstance(a, Var)}
    return tuple([v.index in used for v in jaxpr.invars])


def rearrange_jaxpr(jaxpr: Jaxpr, inputs: Sequence[InputSource], outs: Sequence[int] | None = None) -> Jaxpr:
    """The program with its inputs and outputs in another order.

    Inputs that are left out must be unused; those given by a type alone are new, and nobody reads them.
    """
    fresh = itertools.count(jaxpr.var_count)
    invars = [jaxpr.invars[i] if isinstance(i, int) else Var(next(fresh), i) for i in inputs]
    results = jaxpr.outs if outs is None else tuple([jaxpr.outs[i] for i in outs])
    return renumber(Jaxpr((), tuple(invars), jaxpr.eqns, results))


def unify_consts(derived: Sequence[tuple[Jaxpr, Consts]]) -> tuple[tuple[Jaxpr, ...], Consts]:
    """Programs that take the constants of all of them first, and those constants."""
    avals = [[c.aval for c in consts] for _, consts in derived]
    total = tuple([c for _, consts in derived for c in consts])
    bodies = []
    for i, (jaxpr, consts) in enumerate(derived):
        before: list[InputSource] = [a for each in avals[:i] for a in each]
        after: list[InputSource] = [a for each in avals[i + 1 :] for a in each]
        inputs = [*before, *range(len(consts)), *after, *range(len(consts), len(jaxpr.invars))]
        bodies.append(rearrange_jaxpr(jaxpr, inputs) if len(derived) > 1 and total else jaxpr)
    return tuple(bodies), total
