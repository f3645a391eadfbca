"""Contractions of what varies: the inputs are one more free axis, and of two operands that vary one to contract.

Rows that depend on their own inputs each stay so as long as they are free axes; contracted, each row gives the
derivatives by its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tracefx.core.handler import bind1
from tracefx.core.values import Value
from tracefx.handlers.laplacian.laplacian_array import (
    DENSE_LAYOUT,
    LaplacianArray,
    LaplacianOrValue,
    add_or_zero,
    embed_diagonal_blocks,
    expand_block_diagonal,
    laplacian_array,
    pad_inputs,
    primal_of,
    to_block_diagonal,
    to_dense,
)
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.elementwise.arithmetic import mul
from tracefx.ops.structural import broadcast_in_dim, move_axis, reshape, transpose

ContractionAxes: TypeAlias = tuple[int, ...]


def dot_general_laplacian(
    handler: object, prim: DotGeneral, x: LaplacianOrValue, y: LaplacianOrValue
) -> Sequence[LaplacianOrValue]:
    out = bind1(prim, primal_of(x), primal_of(y))
    if not isinstance(y, LaplacianArray):
        assert isinstance(x, LaplacianArray)
        jac, lap, form = _contract_derivatives(prim, x, y)
        return [laplacian_array(out, jac, lap, x.size, form)]
    other = prim.swapped()
    batches, (first, second) = len(prim.dimension_numbers[1][0]), _num_free_axes(prim, x, y)
    slopes, bend, form = _contract_derivatives(other, y, primal_of(x))
    if form != DENSE_LAYOUT and first:  # the rows come behind the free axes of the other operand
        slopes, form = expand_block_diagonal(slopes, 1), DENSE_LAYOUT
    slopes = _swap_axis_groups(slopes, 1 + batches, second, first)
    bend = None if bend is None else _swap_axis_groups(bend, batches, second, first)
    if not isinstance(x, LaplacianArray):
        return [laplacian_array(out, slopes, bend, y.size, form)]
    jac, lap, x_form = _contract_derivatives(prim, x, y.value)
    jac = jac if x_form == DENSE_LAYOUT else expand_block_diagonal(jac, 1)
    slopes = slopes if form == DENSE_LAYOUT else expand_block_diagonal(slopes, 1)
    total, cross = add_or_zero(add_or_zero(lap, bend), mul(_cross_term(prim, x, y), 2.0)), add_or_zero(jac, slopes)
    assert cross is not None
    return [laplacian_array(out, cross, total, x.size)]


def _contract_derivatives(
    prim: DotGeneral, x: LaplacianArray, y: Value
) -> tuple[Value, Value | None, tuple[int | None, bool]]:
    """The derivatives and the Laplacian of the first operand, contracted with the second, and the form of these."""
    (lc, rc), (lb, rb) = prim.dimension_numbers
    lap = None if x.laplacian is None else bind1(prim, x.laplacian, y)
    if x.diagonal_offset is not None and len(lc) == len(x.shape):
        return _contract_diagonal(prim, x, y), lap, DENSE_LAYOUT
    rows = None if lb else to_block_diagonal(x)
    if rows is not None and 0 in lc:
        return _contract_blocks(prim, rows, y), lap, DENSE_LAYOUT
    form = DENSE_LAYOUT if rows is None else (None, True)
    if rows is None:
        rows = to_dense(x)
    longer = _with_dimension_numbers(prim, (_shift_axes(lc), rc), (_shift_axes(lb), rb))
    return move_axis(bind1(longer, rows.jacobian, y), len(lb), 0), lap, form


def _contract_blocks(prim: DotGeneral, x: LaplacianArray, y: Value) -> Value:
    """Where rows are contracted, each has derivatives by its own inputs alone: what it is multiplied by."""
    (lc, rc), _ = prim.dimension_numbers
    place = lc.index(0)
    others = tuple([d + 1 for d in lc if d]), tuple([d for i, d in enumerate(rc) if i != place])
    found = bind1(
        _with_dimension_numbers(prim, others, ((1,), (rc[place],))), x.jacobian, y
    )  # [rows, inputs of each, ...]
    return reshape(found, (x.size, *found.aval.shape[2:]))


def _cross_term(prim: DotGeneral, x: LaplacianArray, y: LaplacianArray) -> Value:
    """The sum over inputs of the products of derivatives: inputs are one more axis to contract."""
    (lc, rc), (lb, rb) = prim.dimension_numbers
    rows = [None if lb else to_block_diagonal(a) for a in (x, y)]
    apart = 0 not in lc and 0 not in rc and x.shape[:1] != y.shape[:1]  # rows of one depend on other blocks of inputs
    if rows[0] is not None and rows[1] is not None and not apart:
        return _cross_term_of_blocks(prim, rows[0], rows[1])
    if rows[1] is not None and 0 in rc:
        return _cross_term_with_blocks(prim, to_dense(x), rows[1])
    if rows[0] is not None and 0 in lc:
        found = _cross_term_with_blocks(prim.swapped(), to_dense(y), rows[0])
        first, second = _num_free_axes(prim, x, y)
        return _swap_axis_groups(found, 0, second, first)
    both = _with_dimension_numbers(
        prim, ((0, *_shift_axes(lc)), (0, *_shift_axes(rc))), (_shift_axes(lb), _shift_axes(rb))
    )
    return bind1(both, to_dense(x).jacobian, to_dense(y).jacobian)


def _cross_term_of_blocks(prim: DotGeneral, x: LaplacianArray, y: LaplacianArray) -> Value:
    """Rows of both: only those that depend on the same inputs meet."""
    (lc, rc), _ = prim.dimension_numbers
    left, right = 0 in lc, 0 in rc
    if left and right and lc.index(0) == rc.index(0):  # a sum over rows, each with itself
        return bind1(
            _with_dimension_numbers(prim, ((0, *_shift_axes(lc)), (0, *_shift_axes(rc))), ((), ())),
            x.jacobian,
            y.jacobian,
        )
    if right:
        return _cross_term_with_blocks(prim, to_dense(x), y)
    if left:
        first, second = _num_free_axes(prim, x, y)
        return _swap_axis_groups(_cross_term_with_blocks(prim.swapped(), to_dense(y), x), 0, second, first)
    first, _ = _num_free_axes(prim, x, y)
    each = bind1(
        _with_dimension_numbers(prim, ((0, *_shift_axes(lc)), (0, *_shift_axes(rc))), ((1,), (1,))),
        x.jacobian,
        y.jacobian,
    )
    return embed_diagonal_blocks(each, first)


def _cross_term_with_blocks(prim: DotGeneral, x: LaplacianArray, y: LaplacianArray) -> Value:
    """Rows of the second operand, contracted: of the first's derivatives those by the inputs of just that row."""
    (lc, rc), _ = prim.dimension_numbers
    n = y.shape[0]
    axis = lc[rc.index(0)]
    blocks = reshape(x.jacobian, (n, x.size // n, *x.shape))
    met = embed_diagonal_blocks(blocks, axis + 2, among=True)
    # Now its axes are [rows, inputs of each, those of x but the contracted rows].
    kept = [d for d in range(len(x.shape)) if d != axis]
    places = {d: i + 2 for i, d in enumerate(kept)}
    pairs = [(places[a], b + 1) for a, b in zip(lc, rc, strict=True) if b]
    numbers = (0, 1, *[a for a, _ in pairs]), (1, 0, *[b for _, b in pairs])
    return bind1(_with_dimension_numbers(prim, numbers, ((), ())), met, y.jacobian)


# ------------------------------------------------------------------ contractions alike


def _with_dimension_numbers(
    prim: DotGeneral,
    contracting: tuple[ContractionAxes, ContractionAxes],
    batch: tuple[ContractionAxes, ContractionAxes],
) -> DotGeneral:
    return DotGeneral((contracting, batch), prim.precision, prim.preferred_element_type)


def _shift_axes(axes: ContractionAxes) -> ContractionAxes:
    """Axes of a value as axes of its Jacobian."""
    return tuple([d + 1 for d in axes])


def _num_free_axes(prim: DotGeneral, x: LaplacianOrValue, y: LaplacianOrValue) -> tuple[int, int]:
    (lc, rc), (lb, rb) = prim.dimension_numbers
    return primal_of(x).aval.ndim - len(lc) - len(lb), primal_of(y).aval.ndim - len(rc) - len(rb)


def _swap_axis_groups(x: Value, front: int, first: int, second: int) -> Value:
    """`first` axes behind the ones in front, and the `second` that follow them, with places changed."""
    if not first or not second:
        return x
    middle = front + first
    return transpose(x, [*range(front), *range(middle, middle + second), *range(front, middle)])


def _contract_diagonal(prim: DotGeneral, x: LaplacianArray, y: Value) -> Value:
    """Where all elements of an operand are contracted that depend on one input each: what they are multiplied by."""
    assert x.diagonal_offset is not None
    (lc, rc), _ = prim.dimension_numbers
    free = [d for d in range(y.aval.ndim) if d not in rc]
    rows = transpose(y, [*[rc[lc.index(d)] for d in range(len(lc))], *free])
    shape = (x.value.aval.size, *rows.aval.shape[len(rc) :])
    slopes = broadcast_in_dim(reshape(x.jacobian, (x.value.aval.size,)), shape, (0,))
    return pad_inputs(mul(slopes, reshape(rows, shape)), x.diagonal_offset, x.size)
