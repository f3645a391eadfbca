"""Series of operations that are linear in what varies: each coefficient goes through on its own.

So does what is linear around every place but a few (`max`, `select_n`, `abs`): its derivative at the value, taken of a
coefficient, is the result's.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracefx.core import dtypes
from tracefx.core.handler import bind, bind1
from tracefx.core.primitive import Differentiable, Primitive
from tracefx.core.values import Value
from tracefx.handlers.taylor.series import (
    Series,
    Term,
    as_tangent,
    as_term,
    constant,
    fitted,
    minus,
    plus,
    spelled,
)
from tracefx.ops.indexing import Gather


def still(prim: Primitive, *args: Series) -> Sequence[Series]:
    """Results that don't vary, or whose derivative is zero wherever there is one."""
    order = args[0].order
    return [constant(out, order) for out in bind(prim, *[a.primal for a in args])]


def linear(prim: Primitive, x: Series) -> Sequence[Series]:
    """Linear in its one operand; any number of results."""
    outs = bind(prim, x.primal)
    if all(out.aval.tangent().dtype == dtypes.float0 for out in outs):  # converted to integers
        return [constant(out, x.order) for out in outs]
    pushed = [None if t is None else bind(prim, t) for t in x.higher]
    return [fitted([out, *[None if p is None else p[i] for p in pushed]], out) for i, out in enumerate(outs)]


def locally_linear(prim: Primitive, *args: Series) -> Sequence[Series]:
    """By the derivative, which depends on the values alone."""
    assert isinstance(prim, Differentiable)
    primals = [a.primal for a in args]
    outs: Sequence[Value] | None = None
    pushed: list[Sequence[Term] | None] = []
    for k in range(args[0].order):
        tangents = [as_tangent(a.higher[k], a.primal) for a in args]
        if all(a.higher[k] is None for a in args):
            pushed.append(None)
            continue
        found, out_tangents = prim.jvp(primals, tangents)
        outs = found if outs is None else outs
        pushed.append([as_term(t) for t in out_tangents])
    assert outs is not None  # something varies
    return [fitted([out, *[None if p is None else p[i] for p in pushed]], out) for i, out in enumerate(outs)]


def added(prim: Primitive, x: Series, y: Series) -> Sequence[Series]:
    out = bind1(prim, x.primal, y.primal)
    return [fitted([out, *[plus(s, t) for s, t in zip(x.higher, y.higher, strict=True)]], out)]


def subtracted(prim: Primitive, x: Series, y: Series) -> Sequence[Series]:
    out = bind1(prim, x.primal, y.primal)
    return [fitted([out, *[minus(s, t) for s, t in zip(x.higher, y.higher, strict=True)]], out)]


def jointly_linear(prim: Primitive, *args: Series) -> Sequence[Series]:
    """Linear in all operands together but for those that can't vary: indices, masks."""
    return _jointly(prim, prim, args)


def gathered(prim: Gather, *args: Series) -> Sequence[Series]:
    return _jointly(prim, prim.filling(0), args)  # outside of the operand nothing varies


def _jointly(prim: Primitive, push: Primitive, args: Sequence[Series]) -> Sequence[Series]:
    out = bind1(prim, *[a.primal for a in args])
    fixed = [a.primal.aval.tangent().dtype == dtypes.float0 for a in args]
    higher: list[Term] = []
    for terms in zip(*[a.higher for a in args], strict=True):
        given = [a.primal if fix else spelled(t, a.primal) for a, t, fix in zip(args, terms, fixed, strict=True)]
        higher.append(None if all(t is None for t in terms) else bind1(push, *given))
    return [fitted([out, *higher], out)]
