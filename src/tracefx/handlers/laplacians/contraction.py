"""Contractions: the inputs are one more free axis of an operand, and for the cross term one more contracted axis.

A block diagonal Jacobian keeps its layout if the axis of its rows is free; if that axis is contracted, each row
contributes the derivatives by its own inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tracefx.core import Value
from tracefx.core.handler import bind1
from tracefx.handlers.laplacians.laplacian_array import (
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
    if form != DENSE_LAYOUT and first:  # the rows follow the free axes of the other operand
        slopes, form = expand_block_diagonal(slopes), DENSE_LAYOUT
    slopes = _swap_axis_groups(slopes, 1 + batches, second, first)
    bend = None if bend is None else _swap_axis_groups(bend, batches, second, first)
    if not isinstance(x, LaplacianArray):
        return [laplacian_array(out, slopes, bend, y.size, form)]
    jac, lap, x_form = _contract_derivatives(prim, x, y.value)
    jac = jac if x_form == DENSE_LAYOUT else expand_block_diagonal(jac)
    slopes = slopes if form == DENSE_LAYOUT else expand_block_diagonal(slopes)
    total, cross = add_or_zero(add_or_zero(lap, bend), mul(_cross_term(prim, x, y), 2.0)), add_or_zero(jac, slopes)
    assert cross is not None
    return [laplacian_array(out, cross, total, x.size)]


def _contract_derivatives(
    prim: DotGeneral, x: LaplacianArray, y: Value
) -> tuple[Value, Value | None, tuple[int | None, bool]]:
    """Contracts the Jacobian and Laplacian of the first operand with the second; returns them and their layout."""
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
    """Contracts over the rows of a block diagonal Jacobian: each row gives the derivatives by its own inputs."""
    (lc, rc), _ = prim.dimension_numbers
    row_axis = lc.index(0)
    others = tuple([d + 1 for d in lc if d]), tuple([d for i, d in enumerate(rc) if i != row_axis])
    out = bind1(
        _with_dimension_numbers(prim, others, ((1,), (rc[row_axis],))), x.jacobian, y
    )  # [rows, inputs per row, ...]
    return reshape(out, (x.size, *out.aval.shape[2:]))


def _cross_term(prim: DotGeneral, x: LaplacianArray, y: LaplacianArray) -> Value:
    """Returns the sum over inputs of the products of derivatives: the inputs are one more contracted axis."""
    (lc, rc), (lb, rb) = prim.dimension_numbers
    rows = [None if lb else to_block_diagonal(a) for a in (x, y)]
    different_blocks = 0 not in lc and 0 not in rc and x.shape[:1] != y.shape[:1]  # the blocks of inputs differ
    if rows[0] is not None and rows[1] is not None and not different_blocks:
        return _cross_term_of_blocks(prim, rows[0], rows[1])
    if rows[1] is not None and 0 in rc:
        return _cross_term_with_blocks(prim, to_dense(x), rows[1])
    if rows[0] is not None and 0 in lc:
        transposed = _cross_term_with_blocks(prim.swapped(), to_dense(y), rows[0])
        first, second = _num_free_axes(prim, x, y)
        return _swap_axis_groups(transposed, 0, second, first)
    both = _with_dimension_numbers(
        prim, ((0, *_shift_axes(lc)), (0, *_shift_axes(rc))), (_shift_axes(lb), _shift_axes(rb))
    )
    return bind1(both, to_dense(x).jacobian, to_dense(y).jacobian)


def _cross_term_of_blocks(prim: DotGeneral, x: LaplacianArray, y: LaplacianArray) -> Value:
    """The cross term of two block diagonal Jacobians: only rows with the same inputs contribute."""
    (lc, rc), _ = prim.dimension_numbers
    left, right = 0 in lc, 0 in rc
    if left and right and lc.index(0) == rc.index(0):  # a sum over rows, each times itself
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
    """The cross term with contracted rows of `y`: only derivatives of `x` by the inputs of the same row contribute."""
    (lc, rc), _ = prim.dimension_numbers
    n = y.shape[0]
    axis = lc[rc.index(0)]
    blocks = reshape(x.jacobian, (n, x.size // n, *x.shape))
    own_blocks = embed_diagonal_blocks(blocks, axis + 2, among=True)
    # The axes are now [rows, inputs per row, axes of x except the contracted rows].
    remaining = [d for d in range(len(x.shape)) if d != axis]
    new_axis = {d: i + 2 for i, d in enumerate(remaining)}
    pairs = [(new_axis[a], b + 1) for a, b in zip(lc, rc, strict=True) if b]
    numbers = (0, 1, *[a for a, _ in pairs]), (1, 0, *[b for _, b in pairs])
    return bind1(_with_dimension_numbers(prim, numbers, ((), ())), own_blocks, y.jacobian)


# ------------------------------------------------------------------ helpers


def _with_dimension_numbers(
    prim: DotGeneral,
    contracting: tuple[ContractionAxes, ContractionAxes],
    batch: tuple[ContractionAxes, ContractionAxes],
) -> DotGeneral:
    return DotGeneral((contracting, batch), prim.precision, prim.preferred_element_type)


def _shift_axes(axes: ContractionAxes) -> ContractionAxes:
    """Returns the axes of a Jacobian that correspond to axes of the value."""
    return tuple([d + 1 for d in axes])


def _num_free_axes(prim: DotGeneral, x: LaplacianOrValue, y: LaplacianOrValue) -> tuple[int, int]:
    """Returns the numbers of free axes of both operands."""
    (lc, rc), (lb, rb) = prim.dimension_numbers
    return primal_of(x).aval.ndim - len(lc) - len(lb), primal_of(y).aval.ndim - len(rc) - len(rb)


def _swap_axis_groups(x: Value, front: int, first: int, second: int) -> Value:
    """Swaps two groups of `first` and `second` adjacent axes after the leading `front` axes."""
    if not first or not second:
        return x
    middle = front + first
    return transpose(x, [*range(front), *range(middle, middle + second), *range(front, middle)])


def _contract_diagonal(prim: DotGeneral, x: LaplacianArray, y: Value) -> Value:
    """Contracts all axes of an operand with a diagonal Jacobian: the derivatives are the factors of its elements."""
    assert x.diagonal_offset is not None
    (lc, rc), _ = prim.dimension_numbers
    free = [d for d in range(y.aval.ndim) if d not in rc]
    rows = transpose(y, [*[rc[lc.index(d)] for d in range(len(lc))], *free])
    shape = (x.value.aval.size, *rows.aval.shape[len(rc) :])
    slopes = broadcast_in_dim(reshape(x.jacobian, (x.value.aval.size,)), shape, (0,))
    return pad_inputs(mul(slopes, reshape(rows, shape)), x.diagonal_offset, x.size)
