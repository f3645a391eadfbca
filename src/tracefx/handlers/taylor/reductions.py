"""Series rules of products and log-sum-exps along axes, by tree reductions without divisions by elements."""

from __future__ import annotations

from tracefx.core import Array
from tracefx.core.handler import as_array, bind1
from tracefx.handlers.taylor import series
from tracefx.ops.elementwise.arithmetic import mul
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.reductions.cumulative import CumLogSumExp, CumProd, logaddexp_with_weights
from tracefx.ops.reductions.reduction import ReduceProd
from tracefx.ops.shape.slicing import pad, slice_axis
from tracefx.ops.structural import constant_like_aval, reshape
from tracefx.transforms.associative_scan import associative_scan


def instantiate_terms(x: series.Series) -> list[Array]:
    """Returns all coefficients as arrays: in products none stays zero for long."""
    return [as_array(series.instantiate_term(t, x.primal)) for t in x.terms]


def drop_zero_terms(terms: list[series.Coefficient]) -> list[Array]:
    return [as_array(t) for t in terms if t is not None]


# ------------------------------------------------------------------ products


def cumprod_taylor(prim: CumProd, x: series.Series) -> series.Series:
    terms = associative_scan(
        lambda a, b: drop_zero_terms(series.series_product(a, b)),
        instantiate_terms(x),
        reverse=prim.reverse,
        axis=prim.axis,
    )
    return series.cast_series(terms, bind1(prim, x.primal))


def reduce_prod_taylor(prim: ReduceProd, x: series.Series) -> series.Series:
    out = bind1(prim, x.primal)
    terms = [prim.flatten_axes(t) for t in instantiate_terms(x)]
    if not terms[0].shape[0]:
        return series.cast_series([out, *[None] * x.order], out)
    while (n := terms[0].shape[0]) > 1:
        half = (n + 1) // 2
        others = [_second_half(t, half, 0 if k else 1) for k, t in enumerate(terms)]
        terms = drop_zero_terms(series.series_product([slice_axis(t, 0, half, 0) for t in terms], others))
    return series.cast_series([reshape(t, out.shape) for t in terms], out)


def _second_half(x: Array, half: int, fill: int) -> Array:
    """Returns the second half of the rows, padded to the length of the first."""
    rows = slice_axis(x, half, x.shape[0], 0)
    missing = half - rows.shape[0]
    return pad(rows, fill, [(0, missing, 0), *[(0, 0, 0)] * (x.ndim - 1)]) if missing else rows


# ------------------------------------------------------------------ sums of exponentials


def cumlogsumexp_taylor(prim: CumLogSumExp, x: series.Series) -> series.Series:
    """Computes the series of the sum relative to the sum, a mean of relative terms, so that nothing overflows."""
    out = bind1(prim, x.primal)
    ones = constant_like_aval(x.primal.aval, 1)
    parts = [series.instantiate_term(t, x.primal) for t in series.series_exp(x.terms, ones)[1:]]

    def combine(a: list[Array], b: list[Array]) -> list[Array]:
        (u, *us), (v, *vs) = a, b
        total, share, rest = logaddexp_with_weights(u, v)
        return [as_array(total), *[add(mul(s, share), mul(t, rest)) for s, t in zip(us, vs, strict=True)]]

    elements = [as_array(t) for t in (x.primal, *parts)]
    _, *means = associative_scan(combine, elements, reverse=prim.reverse, axis=prim.axis)
    relative = [ones, *means]
    return series.cast_series(series.integrate_quotient(relative, relative, out), out)
