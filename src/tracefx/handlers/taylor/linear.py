"""Series rules of operations that are linear in what varies: they apply to each coefficient separately.

The same holds for operations that are linear near almost every point (`max`, `select_n`, `abs`): each coefficient goes
through the JVP at the value.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracefx.core import Value, dtypes
from tracefx.core.handler import bind, bind1
from tracefx.core.primitive import Differentiable, Primitive
from tracefx.handlers.taylor import series
from tracefx.ops.indexing.gather_scatter_add import Gather


def zero_derivative_taylor(prim: Primitive, *args: series.Series) -> Sequence[series.Series]:
    """Results that are constant, or whose derivative is zero almost everywhere."""
    order = args[0].order
    return [series.constant_series(out, order) for out in bind(prim, *[a.primal for a in args])]


def linear_taylor(prim: Primitive, x: series.Series) -> Sequence[series.Series]:
    """For primitives that are linear in their only operand, with any number of results."""
    outs = bind(prim, x.primal)
    if all(out.aval.tangent().dtype == dtypes.float0 for out in outs):  # converted to integers
        return [series.constant_series(out, x.order) for out in outs]
    pushed = [None if t is None else bind(prim, t) for t in x.higher]
    return [
        series.cast_series([out, *[None if p is None else p[i] for p in pushed]], out) for i, out in enumerate(outs)
    ]


def locally_linear_taylor(prim: Differentiable, *args: series.Series) -> Sequence[series.Series]:
    """Applies the JVP at the value to each coefficient."""
    primals = [a.primal for a in args]
    outs: Sequence[Value] | None = None
    pushed: list[Sequence[series.Coefficient] | None] = []
    for k in range(args[0].order):
        tangents = [series.term_to_tangent(a.higher[k], a.primal) for a in args]
        if all(a.higher[k] is None for a in args):
            pushed.append(None)
            continue
        primals_out, out_tangents = prim.jvp(primals, tangents)
        outs = primals_out if outs is None else outs
        pushed.append([series.tangent_to_term(t) for t in out_tangents])
    assert outs is not None  # at least one operand varies
    return [
        series.cast_series([out, *[None if p is None else p[i] for p in pushed]], out) for i, out in enumerate(outs)
    ]


def add_taylor(prim: Primitive, x: series.Series, y: series.Series) -> Sequence[series.Series]:
    out = bind1(prim, x.primal, y.primal)
    return [series.cast_series([out, *[series.add_terms(s, t) for s, t in zip(x.higher, y.higher, strict=True)]], out)]


def sub_taylor(prim: Primitive, x: series.Series, y: series.Series) -> Sequence[series.Series]:
    out = bind1(prim, x.primal, y.primal)
    return [series.cast_series([out, *[series.sub_terms(s, t) for s, t in zip(x.higher, y.higher, strict=True)]], out)]


def jointly_linear_taylor(prim: Primitive, *args: series.Series) -> Sequence[series.Series]:
    """For primitives that are jointly linear in all operands except those without tangents: indices, masks."""
    return _push_jointly(prim, prim, args)


def gather_taylor(prim: Gather, *args: series.Series) -> Sequence[series.Series]:
    return _push_jointly(prim, prim.with_fill_value(0), args)  # elements out of bounds have zero derivatives


def _push_jointly(prim: Primitive, push: Primitive, args: Sequence[series.Series]) -> Sequence[series.Series]:
    out = bind1(prim, *[a.primal for a in args])
    fixed = [a.primal.aval.tangent().dtype == dtypes.float0 for a in args]
    higher: list[series.Coefficient] = []
    for terms in zip(*[a.higher for a in args], strict=True):
        operands = [
            a.primal if fix else series.instantiate_term(t, a.primal)
            for a, t, fix in zip(args, terms, fixed, strict=True)
        ]
        higher.append(None if all(t is None for t in terms) else bind1(push, *operands))
    return [series.cast_series([out, *higher], out)]
