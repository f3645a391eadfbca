"""Series rules of contractions: coefficients are stacked, so that a few large contractions compute all orders."""

from __future__ import annotations

from attrs import evolve

from tracefx.core import Value
from tracefx.core.avals import Dimensions
from tracefx.core.handler import bind1
from tracefx.core.primitive import MappedAxis
from tracefx.handlers.taylor import series
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.contractions.convolution import ConvGeneralDilated
from tracefx.ops.contractions.ragged_dot import RaggedDotGeneral
from tracefx.ops.shape.shape import concatenate, expand_dims, slice_axis, squeeze, stack


def dot_general_taylor(prim: DotGeneral, x: series.Series, y: series.Series) -> series.Series:
    if not y.varies:
        return _one_varies(prim, x, y, side=0)
    if not x.varies:
        return _one_varies(prim, y, x, side=1)
    return _both_vary(prim, x, y)


def bilinear_taylor(
    prim: ConvGeneralDilated | RaggedDotGeneral, x: series.Series, y: series.Series, *others: series.Series
) -> series.Series:
    """For bilinear primitives: each coefficient is a sum of products of coefficients."""
    if not y.varies:
        return _one_varies(prim, x, y, *others, side=0)
    if not x.varies:
        return _one_varies(prim, y, x, *others, side=1)
    known = [o.primal for o in others]
    out = bind1(prim, x.primal, y.primal, *known)
    terms: list[series.Coefficient] = [out]
    for k in range(1, x.order + 1):
        total: series.Coefficient = None
        for a, b in zip(x.terms[: k + 1], reversed(y.terms[: k + 1]), strict=True):
            if a is not None and b is not None:
                total = series.add_terms(total, bind1(prim, a, b, *known))
        terms.append(total)
    return series.cast_series(terms, out)


def _one_varies(
    prim: DotGeneral | ConvGeneralDilated | RaggedDotGeneral,
    x: series.Series,
    other: series.Series,
    *others: series.Series,
    side: int,
) -> series.Series:
    """Contracts all coefficients with constants at once, so that the constants are read once."""
    present = [t for t in x.terms if t is not None]
    args: list[Value] = [stack(present), other.primal]
    dims: list[int | None] = [0, None]
    if side == 1:
        args, dims = args[::-1], dims[::-1]
    known = [o.primal for o in others]
    (out,), (dim,) = prim.batch(MappedAxis(len(present)), [*args, *known], [*dims, *[None] * len(known)])
    assert dim is not None
    parts = iter([squeeze(slice_axis(out, i, i + 1, dim), (dim,)) for i in range(len(present))])
    terms: list[series.Coefficient] = [None if t is None else next(parts) for t in x.terms]
    return series.cast_series(terms, series.leading_coefficient(terms))


def _both_vary(prim: DotGeneral, x: series.Series, y: series.Series) -> series.Series:
    """Computes each coefficient as one contraction over the orders as well: of `x` forwards with `y` backwards.

    The coefficients are concatenated along a contracted axis; if there is none, along a new one.
    """
    (xc, yc), (xb, yb) = prim.dimension_numbers
    order = x.order
    xs: series.Coefficients = x.terms
    ys: series.Coefficients = y.terms
    x_axis, y_axis, joined = (
        (xc[0], yc[0], prim) if xc else (0, 0, evolve(prim, dimension_numbers=_with_contracted_axis(xb, yb)))
    )
    if not xc:
        xs, ys = [[None if t is None else expand_dims(t, (0,)) for t in terms] for terms in (xs, ys)]
    forwards = concatenate([series.instantiate_term(t, series.leading_coefficient(xs)) for t in xs], x_axis)
    backwards = concatenate([series.instantiate_term(t, series.leading_coefficient(ys)) for t in reversed(ys)], y_axis)
    size = series.leading_coefficient(xs).aval.shape[x_axis]
    out = bind1(prim, x.primal, y.primal)
    terms: list[series.Coefficient] = [out]
    for k in range(1, order + 1):
        pairs = [j for j in range(k + 1) if xs[j] is not None and ys[k - j] is not None]
        if not pairs:
            terms.append(None)
            continue
        first, last = pairs[0], pairs[-1] + 1
        left = slice_axis(forwards, first * size, last * size, x_axis)
        right = slice_axis(backwards, (order - k + first) * size, (order - k + last) * size, y_axis)
        terms.append(bind1(joined, left, right))
    return series.cast_series(terms, out)


def _with_contracted_axis(
    xb: Dimensions, yb: Dimensions
) -> tuple[tuple[Dimensions, Dimensions], tuple[Dimensions, Dimensions]]:
    """Returns the dimension numbers of an outer product with a new leading axis that is contracted."""
    return ((0,), (0,)), (tuple([d + 1 for d in xb]), tuple([d + 1 for d in yb]))
