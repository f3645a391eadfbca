"""Contractions of what varies: the inputs are one more free axis, and of two operands that vary one to contract.

Rows that depend on their own inputs each stay so as long as they are free axes; contracted, each row gives the
derivatives by its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tracefx.core.handler import bind1
from tracefx.core.values import Value
from tracefx.handlers.laplacian.curved import (
    DENSE,
    Curved,
    Held,
    by_rows,
    curved,
    dense,
    in_place,
    own_rows,
    plus,
    rows_among,
    value_of,
)
from tracefx.ops.arithmetic import mul
from tracefx.ops.basis import broadcast_in_dim, move_axis, reshape, transpose
from tracefx.ops.contraction import DotGeneral

Axes: TypeAlias = tuple[int, ...]


def contracted(handler: object, prim: DotGeneral, x: Held, y: Held) -> Sequence[Held]:
    out = bind1(prim, value_of(x), value_of(y))
    if not isinstance(y, Curved):
        assert isinstance(x, Curved)
        jac, lap, form = _pushed(prim, x, y)
        return [curved(out, jac, lap, x.size, form)]
    other = prim.swapped()
    batches, (first, second) = len(prim.dimension_numbers[1][0]), _free(prim, x, y)
    slopes, bend, form = _pushed(other, y, value_of(x))
    if form != DENSE and first:  # the rows come behind the free axes of the other operand
        slopes, form = rows_among(slopes, 1), DENSE
    slopes = _exchanged(slopes, 1 + batches, second, first)
    bend = None if bend is None else _exchanged(bend, batches, second, first)
    if not isinstance(x, Curved):
        return [curved(out, slopes, bend, y.size, form)]
    jac, lap, x_form = _pushed(prim, x, y.value)
    jac = jac if x_form == DENSE else rows_among(jac, 1)
    slopes = slopes if form == DENSE else rows_among(slopes, 1)
    total, cross = plus(plus(lap, bend), mul(_crossed(prim, x, y), 2.0)), plus(jac, slopes)
    assert cross is not None
    return [curved(out, cross, total, x.size)]


def _pushed(prim: DotGeneral, x: Curved, y: Value) -> tuple[Value, Value | None, tuple[int | None, bool]]:
    """The derivatives and the Laplacian of the first operand, contracted with the second, and the form of these."""
    (lc, rc), (lb, rb) = prim.dimension_numbers
    lap = None if x.laplacian is None else bind1(prim, x.laplacian, y)
    if x.start is not None and len(lc) == len(x.shape):
        return _by_coefficients(prim, x, y), lap, DENSE
    rows = None if lb else by_rows(x)
    if rows is not None and 0 in lc:
        return _summed_rows(prim, rows, y), lap, DENSE
    form = DENSE if rows is None else (None, True)
    if rows is None:
        rows = dense(x)
    longer = _again(prim, (_behind(lc), rc), (_behind(lb), rb))
    return move_axis(bind1(longer, rows.jacobian, y), len(lb), 0), lap, form


def _summed_rows(prim: DotGeneral, x: Curved, y: Value) -> Value:
    """Where rows are contracted, each has derivatives by its own inputs alone: what it is multiplied by."""
    (lc, rc), _ = prim.dimension_numbers
    place = lc.index(0)
    others = tuple([d + 1 for d in lc if d]), tuple([d for i, d in enumerate(rc) if i != place])
    found = bind1(_again(prim, others, ((1,), (rc[place],))), x.jacobian, y)  # [rows, inputs of each, ...]
    return reshape(found, (x.size, *found.aval.shape[2:]))


def _crossed(prim: DotGeneral, x: Curved, y: Curved) -> Value:
    """The sum over inputs of the products of derivatives: inputs are one more axis to contract."""
    (lc, rc), (lb, rb) = prim.dimension_numbers
    rows = [None if lb else by_rows(a) for a in (x, y)]
    apart = 0 not in lc and 0 not in rc and x.shape[:1] != y.shape[:1]  # rows of one depend on other blocks of inputs
    if rows[0] is not None and rows[1] is not None and not apart:
        return _crossed_rows(prim, rows[0], rows[1])
    if rows[1] is not None and 0 in rc:
        return _crossed_with_rows(prim, dense(x), rows[1])
    if rows[0] is not None and 0 in lc:
        found = _crossed_with_rows(prim.swapped(), dense(y), rows[0])
        first, second = _free(prim, x, y)
        return _exchanged(found, 0, second, first)
    both = _again(prim, ((0, *_behind(lc)), (0, *_behind(rc))), (_behind(lb), _behind(rb)))
    return bind1(both, dense(x).jacobian, dense(y).jacobian)


def _crossed_rows(prim: DotGeneral, x: Curved, y: Curved) -> Value:
    """Rows of both: only those that depend on the same inputs meet."""
    (lc, rc), _ = prim.dimension_numbers
    left, right = 0 in lc, 0 in rc
    if left and right and lc.index(0) == rc.index(0):  # a sum over rows, each with itself
        return bind1(_again(prim, ((0, *_behind(lc)), (0, *_behind(rc))), ((), ())), x.jacobian, y.jacobian)
    if right:
        return _crossed_with_rows(prim, dense(x), y)
    if left:
        first, second = _free(prim, x, y)
        return _exchanged(_crossed_with_rows(prim.swapped(), dense(y), x), 0, second, first)
    first, _ = _free(prim, x, y)
    each = bind1(_again(prim, ((0, *_behind(lc)), (0, *_behind(rc))), ((1,), (1,))), x.jacobian, y.jacobian)
    return own_rows(each, first)


def _crossed_with_rows(prim: DotGeneral, x: Curved, y: Curved) -> Value:
    """Rows of the second operand, contracted: of the first's derivatives those by the inputs of just that row."""
    (lc, rc), _ = prim.dimension_numbers
    n = y.shape[0]
    axis = lc[rc.index(0)]
    blocks = reshape(x.jacobian, (n, x.size // n, *x.shape))
    met = own_rows(blocks, axis + 2, among=True)
    # Now its axes are [rows, inputs of each, those of x but the contracted rows].
    kept = [d for d in range(len(x.shape)) if d != axis]
    places = {d: i + 2 for i, d in enumerate(kept)}
    pairs = [(places[a], b + 1) for a, b in zip(lc, rc, strict=True) if b]
    numbers = (0, 1, *[a for a, _ in pairs]), (1, 0, *[b for _, b in pairs])
    return bind1(_again(prim, numbers, ((), ())), met, y.jacobian)


# ------------------------------------------------------------------ contractions alike


def _again(prim: DotGeneral, contracting: tuple[Axes, Axes], batch: tuple[Axes, Axes]) -> DotGeneral:
    return DotGeneral((contracting, batch), prim.precision, prim.preferred_element_type)


def _behind(axes: Axes) -> Axes:
    """Axes of a value as axes of its Jacobian."""
    return tuple([d + 1 for d in axes])


def _free(prim: DotGeneral, x: Held, y: Held) -> tuple[int, int]:
    (lc, rc), (lb, rb) = prim.dimension_numbers
    return value_of(x).aval.ndim - len(lc) - len(lb), value_of(y).aval.ndim - len(rc) - len(rb)


def _exchanged(x: Value, front: int, first: int, second: int) -> Value:
    """`first` axes behind the ones in front, and the `second` that follow them, with places changed."""
    if not first or not second:
        return x
    middle = front + first
    return transpose(x, [*range(front), *range(middle, middle + second), *range(front, middle)])


def _by_coefficients(prim: DotGeneral, x: Curved, y: Value) -> Value:
    """Where all elements of an operand are contracted that depend on one input each: what they are multiplied by."""
    assert x.start is not None
    (lc, rc), _ = prim.dimension_numbers
    free = [d for d in range(y.aval.ndim) if d not in rc]
    rows = transpose(y, [*[rc[lc.index(d)] for d in range(len(lc))], *free])
    shape = (x.value.aval.size, *rows.aval.shape[len(rc) :])
    slopes = broadcast_in_dim(reshape(x.jacobian, (x.value.aval.size,)), shape, (0,))
    return in_place(mul(slopes, reshape(rows, shape)), x.start, x.size)
