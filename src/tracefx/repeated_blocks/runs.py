"""Finds where a sequence of equations repeats with a period: candidates for runs of equal blocks.

Two equations are alike if their primitives have the same class and sub-jaxprs, and their operands and results the same
types. Whether alike equations are equal, and refer to each other alike, is decided by `blocks`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.bounded_cache import memoize_on_object
from tracefx.core import Literal, NDArray
from tracefx.core.jaxpr import Eqn, HasSubjaxprs, Jaxpr
from tracefx.core.primitive import Primitive

Codes: TypeAlias = NDArray
"""An integer per equation; equations are alike if their integers are equal: `int64[n]`."""

MAX_PERIODS: Final = 64
"""How many candidate periods are tried, those of the largest share of the program first."""


@final
@frozen
class Stretch:
    """Consecutive equations of which each is alike to the one `period` later.

    Args:
        start: The index of the first equation.
        stop: The index after the last equation, which is at least two periods later.
        period: The distance of alike equations.
        saved: The number of equations, those of sub-jaxprs included, that need not be compiled if the blocks are equal.
    """

    start: int
    stop: int
    period: int
    saved: int


@memoize_on_object
def equation_count(jaxpr: Jaxpr) -> int:
    """Returns the number of equations of a jaxpr, those of its sub-jaxprs included."""
    return sum(map(weight, jaxpr.eqns))


def weight(eqn: Eqn) -> int:
    """Returns the number of equations that an equation stands for: itself and those of its sub-jaxprs."""
    return 1 + sum(map(equation_count, eqn.prim.jaxprs())) if isinstance(eqn.prim, HasSubjaxprs) else 1


def codes_of(eqns: Sequence[Eqn]) -> Codes:
    """Returns an integer for each equation that says with which others it is alike: `int64[n]`."""
    known: dict[Hashable, int] = {}
    codes = []
    for e in eqns:
        kind: object = e.prim if isinstance(e.prim, HasSubjaxprs) else type(e.prim)
        operands = tuple([(type(x) is Literal, x.aval) for x in e.inputs])
        codes.append(known.setdefault((kind, operands, tuple([v.aval for v in e.outs])), len(known)))
    return np.array(codes, np.int64)


def primitive_codes_of(eqns: Sequence[Eqn]) -> Codes:
    """Returns an integer for each equation; the integers of equal primitives are equal: `int64[n]`."""
    known: dict[Primitive, int] = {}
    by_identity: dict[int, int] = {}  # most equal primitives are the same object, whose hash need not be computed again
    codes = []
    for e in eqns:
        code = by_identity.get(id(e.prim))
        if code is None:
            code = by_identity[id(e.prim)] = known.setdefault(e.prim, len(known))
        codes.append(code)
    return np.array(codes, np.int64)


def candidate_periods(codes: Codes, weights: NDArray, least_saved: int) -> list[int]:
    """Returns distances at which so much of a program repeats that blocks of that period could save `least_saved`.

    For windows of 1, 2, 4, ... equations, each distance from one window to the next equal one counts with the weight of
    its equations. In a run of blocks that do not repeat within themselves, nearly all windows have the period as their
    distance. Windows of twice the length are numbered from pairs, so the time is O(n log^2 n).

    Args:
        codes: An integer per equation, `int64[n]`.
        weights: The number of equations that each stands for, `int64[n]`.
        least_saved: The least weight that blocks must save.

    Returns:
        The periods, those with the largest weight first, at most `MAX_PERIODS`.
    """
    best: dict[int, int] = {}
    window, width = codes, 1
    while len(window) > 2 and 3 * width <= len(codes):
        order = np.argsort(window, kind="stable")
        follows = window[order[1:]] == window[order[:-1]]
        first = order[:-1][follows]
        totals = np.bincount(order[1:][follows] - first, weights[first])
        for period in np.flatnonzero(2 * totals >= least_saved):
            best[int(period)] = max(best.get(int(period), 0), int(totals[period]))
        if len(window) <= width:
            break
        window = np.unique(window[:-width] * (int(window.max()) + 1) + window[width:], return_inverse=True)[1]
        width *= 2
    return sorted(best, key=lambda period: (-best[period], period))[:MAX_PERIODS]


def stretches(eqns: Sequence[Eqn], codes: Codes, least_count: int, least_saved: int) -> list[Stretch]:
    """Returns the maximal stretches that repeat with a period, those that save most first; they may overlap.

    Args:
        eqns: The equations.
        codes: Their codes, from `codes_of`: `int64[n]`.
        least_count: The least number of blocks, at least 2.
        least_saved: The least number of equations that need not be compiled.
    """
    weights = np.array([weight(e) for e in eqns], np.int64)
    total = np.concatenate([[0], np.cumsum(weights)])
    result = []
    for period in candidate_periods(codes, weights, least_saved):
        alike = np.concatenate([[False], codes[:-period] == codes[period:], [False]])
        borders = np.flatnonzero(alike[1:] != alike[:-1])
        for start, stop in zip(borders[::2].tolist(), borders[1::2].tolist(), strict=True):
            saved = int(total[stop + period] - total[start + period])
            if stop - start >= (least_count - 1) * period and saved >= least_saved:
                result.append(Stretch(start, stop + period, period, saved))
    return sorted(result, key=lambda s: (-s.saved, s.period, s.start))
