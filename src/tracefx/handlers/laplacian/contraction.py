"""Contractions of what varies: the inputs are one more free axis, and of two operands that vary one to contract."""

from __future__ import annotations

from collections.abc import Sequence

from tracefx.core.handler import bind1
from tracefx.core.values import Value
from tracefx.handlers.laplacian.curved import Curved, Held, curved, dense, in_place, plus, value_of
from tracefx.ops.arithmetic import mul
from tracefx.ops.basis import broadcast_in_dim, move_axis, reshape, transpose
from tracefx.ops.contraction import DotGeneral


def contracted(handler: object, prim: DotGeneral, x: Held, y: Held) -> Sequence[Held]:
    out = bind1(prim, value_of(x), value_of(y))
    jac: Value | None = None
    lap: Value | None = None
    size = 0
    if isinstance(x, Curved):
        size = x.size
        jac, lap = _pushed(prim, x, value_of(y))
    if isinstance(y, Curved):
        size = y.size
        slopes, bend = _pushed(_swapped(prim), y, value_of(x))
        first, second = _free(prim, x, y)
        jac = plus(jac, _exchanged(slopes, 1 + _batches(prim), second, first))
        lap = plus(lap, None if bend is None else _exchanged(bend, _batches(prim), second, first))
    if isinstance(x, Curved) and isinstance(y, Curved):
        lap = plus(lap, mul(_crossed(prim, dense(x), dense(y)), 2.0))
    assert jac is not None
    return [curved(out, jac, lap, size)]


def _pushed(prim: DotGeneral, x: Curved, y: Value) -> tuple[Value, Value | None]:
    """The derivatives and the Laplacian of the first operand, contracted with the second."""
    (lc, rc), (lb, rb) = prim.dimension_numbers
    lap = None if x.laplacian is None else bind1(prim, x.laplacian, y)
    if x.start is not None and len(lc) == len(x.shape):
        return _by_coefficients(prim, x, y), lap
    numbers = (tuple([d + 1 for d in lc]), rc), (tuple([d + 1 for d in lb]), rb)
    longer = DotGeneral(numbers, prim.precision, prim.preferred_element_type)
    return move_axis(bind1(longer, dense(x).jacobian, y), len(lb), 0), lap


def _swapped(prim: DotGeneral) -> DotGeneral:
    (lc, rc), (lb, rb) = prim.dimension_numbers
    precision = None if prim.precision is None else (prim.precision[1], prim.precision[0])
    return DotGeneral(((rc, lc), (rb, lb)), precision, prim.preferred_element_type)


def _batches(prim: DotGeneral) -> int:
    return len(prim.dimension_numbers[1][0])


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


def _crossed(prim: DotGeneral, x: Curved, y: Curved) -> Value:
    """The sum over inputs of the products of derivatives: inputs are one more axis to contract."""
    (lc, rc), (lb, rb) = [tuple([tuple([d + 1 for d in axes]) for axes in pair]) for pair in prim.dimension_numbers]
    numbers = ((0, *lc), (0, *rc)), (lb, rb)
    return bind1(DotGeneral(numbers, prim.precision, prim.preferred_element_type), x.jacobian, y.jacobian)
