"""Which residuals a loop keeps for its second half, and which are cheaper to compute again than to store.

A loop stores a residual once for every step, and the second half reads it back: more work than a multiplication. So
what elementwise arithmetic makes of other residuals is not stored. Of a gate `1 / (1 + exp(-x))` only the exponential
is left, and of a hyperbolic tangent its value.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from tracefx.control.sow import Plantable
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive
from tracefx.core.values import Value
from tracefx.interpreters.jaxpr_transforms import UnzippedJaxpr
from tracefx.interpreters.stage import stage
from tracefx.ops.elementwise.abs_sign import Abs, Sign
from tracefx.ops.elementwise.arithmetic import Div, Max, Min, Mul, Neg, Sub
from tracefx.ops.elementwise.bitwise import And, Not, Or, Xor
from tracefx.ops.elementwise.comparison import Comparison
from tracefx.ops.elementwise.elementwise import Add
from tracefx.ops.elementwise.powers import IntegerPow, Square
from tracefx.ops.elementwise.selection import Clamp, SelectN
from tracefx.ops.structural import BroadcastInDim, ConvertElementType, Reshape

CHEAP_PRIMITIVES: Final[tuple[type[Primitive], ...]] = (
    Neg,
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Abs,
    Sign,
    Square,
    IntegerPow,
    Clamp,
    SelectN,
    Comparison,
    And,
    Or,
    Xor,
    Not,
    ConvertElementType,
    BroadcastInDim,
    Reshape,
    Plantable,
)
"""What a fused loop over elements does for nothing."""

MAX_RECOMPUTED_EQNS: Final = 16  # for one residual: more are no longer cheaper than storing it


def drop_cheap_residuals(split: UnzippedJaxpr, free: Set[int], results: Set[Atom]) -> UnzippedJaxpr:
    """The halves without the residuals that arithmetic makes of the others.

    The known inputs at `free`, and the known half's outputs `results`, cost nothing to hand over.
    """
    known, n = split.known, split.out_unknown.count(False)
    inputs = known.invars[len(split.consts) :]
    fresh = iter(known.outs[n:])
    residuals = [next(fresh) if place is None else inputs[place] for place in split.forwarded]
    at_hand = {*residuals, *results, *[inputs[i] for i in free]}
    makers = {v: eqn for eqn in known.eqns if isinstance(eqn.prim, CHEAP_PRIMITIVES) for v in eqn.outs}
    again: dict[int, Eqn] = {}
    dropped: set[Atom] = set()
    order = {v: i for i, eqn in enumerate(known.eqns) for v in eqn.outs}
    for v in sorted([r for r in residuals if r in makers and r not in results], key=lambda v: -order[v]):  # type: ignore[index]  # makers has equations' outputs alone
        at_hand.discard(v)
        steps = _recomputation(v, at_hand, makers)
        maker = makers[v]  # type: ignore[index]  # as above
        if steps is None and isinstance(maker.prim, Plantable):
            # What got a name is kept in place of itself under the name, so that others can be made of it too.
            steps = {id(maker): maker}
            at_hand.update(maker.inputs)
        if steps is None:
            at_hand.add(v)
        else:
            dropped.add(v)
            again.update(steps)
    if not dropped:
        return split
    read = {a for eqn in again.values() for a in eqn.inputs if isinstance(a, Var)}
    made = {v for eqn in again.values() for v in eqn.outs}
    left = [r for r in residuals if r not in dropped]
    more: list[Var] = sorted(read - made - set(left), key=lambda v: v.index)
    left += more
    places = {v: i for i, v in enumerate(inputs)}
    eqns = [eqn for eqn in known.eqns if id(eqn) in again]
    program = Jaxpr((), tuple([v for v in left if isinstance(v, Var)]), tuple(eqns), tuple(residuals))
    m = len(left)

    def run(*args: Value) -> list[Value]:
        return eval_jaxpr(split.unknown, (), [*eval_jaxpr(program, (), args[:m]), *args[m:]])

    late, consts = stage(run, [*[v.aval for v in left], *split.unknown.in_avals[len(residuals) :]])
    assert not consts
    forwarded = tuple([places.get(v) if isinstance(v, Var) else None for v in left])
    kept = [v for v, place in zip(left, forwarded, strict=True) if place is None]
    first = Jaxpr((), known.invars, known.eqns, (*known.outs[:n], *kept))
    return UnzippedJaxpr(first, late, split.consts, split.out_unknown, forwarded)


def _recomputation(atom: Atom, at_hand: Set[Atom], makers: dict[Var, Eqn]) -> dict[int, Eqn] | None:
    """The equations that compute a value from what is at hand; `None` if a little arithmetic doesn't."""
    found: dict[int, Eqn] = {}
    todo: list[Atom] = [atom]
    while todo:
        a = todo.pop()
        if isinstance(a, Literal) or a in at_hand:
            continue
        eqn = makers.get(a)
        if eqn is None or len(found) > MAX_RECOMPUTED_EQNS:
            return None
        if id(eqn) not in found:
            found[id(eqn)] = eqn
            todo += eqn.inputs
    return found
