"""Sparsity rules of primitives, for programs that are linear in everything that depends on inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from tracefx.core import NDArray, Shape, ShapedArray, from_numpy, to_numpy
from tracefx.core.handler import ROOT, handling
from tracefx.core.primitive import Primitive, UndefinedPrimal, Zero
from tracefx.handlers.sparsity.dependence import Dependence
from tracefx.handlers.sparsity.index_sets import EMPTY_SET, IndexSets, SetIds
from tracefx.ops.annotations.optimization_barrier import OptimizationBarrier
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.contractions.convolution import ConvGeneralDilated
from tracefx.ops.elementwise.arithmetic import Mul
from tracefx.ops.elementwise.elementwise import Elementwise
from tracefx.ops.elementwise.selection import SelectN
from tracefx.ops.fourier import Fft
from tracefx.ops.indexing.along_axis import Unstack
from tracefx.ops.indexing.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from tracefx.ops.indexing.gather_scatter_add import Gather, ScatterAdd
from tracefx.ops.indexing.scatter import Scatter, ScatterSub
from tracefx.ops.reductions.cumulative import CumSum
from tracefx.ops.reductions.select_and_scatter import SelectAndGatherAdd
from tracefx.ops.reductions.window_reduction import ReduceWindowSum
from tracefx.ops.shape.shape import Concatenate, Split, Squeeze, Stack, Tile
from tracefx.ops.shape.slicing import Pad, Rev, Slice
from tracefx.ops.structural import BroadcastInDim, ConvertElementType, ReduceSum, Reshape, Transpose

Avals: TypeAlias = Sequence[ShapedArray]
ResultSets: TypeAlias = Sequence[SetIds]
"""For each result, the index sets of its elements."""
SparsityRule: TypeAlias = Callable[..., ResultSets]
"""Called with the index sets, the primitive, the types of its results and its operands; returns the results' sets."""
MAX_PRODUCTS: Final = 20_000_000
"""The largest number of products of a contraction that are considered one by one."""


def full_sparsity(sets: IndexSets, prim: Primitive, outs: Avals, *args: Dependence) -> ResultSets:
    """Every result element may depend on everything that any operand depends on."""
    flat = np.concatenate([np.unique(a.sets()) for a in args])
    union = sets.union(np.zeros(len(flat), np.int64), flat, 1)[0]
    return [np.full(aval.shape, union, np.int64) for aval in outs]


def data_movement_sparsity(sets: IndexSets, prim: Primitive, outs: Avals, *args: Dependence) -> ResultSets:
    """Moves the sets as the operation moves elements."""
    return apply_to_set_ids(prim, *[a.sets() for a in args])


def elementwise_sparsity(sets: IndexSets, prim: Primitive, outs: Avals, *args: Dependence) -> ResultSets:
    """Each result element depends on the corresponding elements of all operands."""
    joined: SetIds = np.zeros((), np.int64)
    for a in args:
        if a.ids is not None:
            joined = sets.join(joined, a.ids)
    return [np.broadcast_to(joined, outs[0].shape)]


def mul_sparsity(sets: IndexSets, prim: Primitive, outs: Avals, x: Dependence, y: Dependence) -> ResultSets:
    """Like `elementwise_sparsity`, but a product with a known zero depends on nothing."""
    (joined,) = elementwise_sparsity(sets, prim, outs, x, y)
    for a in (x, y):
        factor = a.value()
        if factor is not None and not factor.all():
            joined = np.where(factor == 0, EMPTY_SET, joined)
    return [joined]


def select_n_sparsity(
    sets: IndexSets, prim: SelectN, outs: Avals, condition: Dependence, *cases: Dependence
) -> ResultSets:
    """Selects sets if the condition is known; otherwise joins those of all cases."""
    known_condition = condition.value()
    if known_condition is not None:
        return apply_to_set_ids(prim, known_condition, *[c.sets() for c in cases])
    return elementwise_sparsity(sets, prim, outs, *cases)


def apply_to_set_ids(prim: Primitive, *arrays: NDArray) -> ResultSets:
    """Applies a primitive that moves elements to arrays of set numbers."""
    return [np.asarray(out) for out in prim.impl(*arrays)]


def reduce_sum_sparsity(sets: IndexSets, prim: ReduceSum, outs: Avals, x: Dependence) -> ResultSets:
    """Each sum depends on all of its terms."""
    axes = prim.axes
    kept = [d for d in range(x.aval.ndim) if d not in axes]
    rows = x.sets().transpose([*kept, *axes]).reshape(outs[0].size, -1)
    return [_union_of_rows(sets, rows).reshape(outs[0].shape)]


def _union_of_rows(sets: IndexSets, rows: SetIds) -> SetIds:
    """Returns the union of the sets in each row."""
    count, size = rows.shape
    if size == 1:
        return rows[:, 0]
    return sets.union(np.repeat(np.arange(count, dtype=np.int64), size), rows.reshape(-1), count)


def reduce_window_sparsity(
    sets: IndexSets, prim: ReduceWindowSum | SelectAndGatherAdd, outs: Avals, x: Dependence
) -> ResultSets:
    """Each window depends on all of its elements."""
    joined: SetIds = np.full(outs[0].shape, EMPTY_SET, np.int64)
    for view in prim.windows.views(prim.windows.padded(x.sets(), EMPTY_SET), outs[0].shape):
        joined = sets.join(joined, view)
    return [joined]


def select_and_gather_add_sparsity(
    sets: IndexSets, prim: SelectAndGatherAdd, outs: Avals, x: Dependence, keys: Dependence
) -> ResultSets:
    """Each window depends on its selected element if the keys are known, otherwise on all of its elements."""
    known = keys.value()
    return reduce_window_sparsity(sets, prim, outs, x) if known is None else [prim.kernel(x.sets(), known)]


def cumsum_sparsity(sets: IndexSets, prim: CumSum, outs: Avals, x: Dependence) -> ResultSets:
    """Each partial sum depends on all of its terms."""
    rows = np.moveaxis(x.sets(), prim.axis, 0)
    rows = (rows[::-1] if prim.reverse else rows).copy()
    for i in range(1, len(rows)):
        rows[i] = sets.join(rows[i - 1], rows[i])
    rows = rows[::-1] if prim.reverse else rows
    return [np.moveaxis(rows, 0, prim.axis)]


def fft_sparsity(sets: IndexSets, prim: Fft, outs: Avals, x: Dependence) -> ResultSets:
    """Each element depends on all elements of its transform."""
    (out,), lengths = outs, prim.fft_lengths
    before = out.shape[: out.ndim - len(lengths)]
    if not out.size:
        return [np.full(out.shape, EMPTY_SET, np.int64)]
    unions = _union_of_rows(sets, x.sets().reshape(math.prod(before), -1))
    return [np.broadcast_to(unions.reshape(*before, *[1] * len(lengths)), out.shape)]


# ------------------------------------------------------------------ contractions


def dot_general_sparsity(sets: IndexSets, prim: DotGeneral, outs: Avals, x: Dependence, y: Dependence) -> ResultSets:
    """Contracts the sets; products with known zeros are left out."""
    (lc, rc), (lb, rb) = prim.dimension_numbers
    left = _as_matrices(x, lb, lc)
    right = _as_matrices(y, rb, rc)
    first = None if x.ids is None else _products(sets, left(x.sets()), y, right)
    second = None if y.ids is None else _products(sets, right(y.sets()), x, left)
    if first is None:
        assert second is not None
        joined = second.swapaxes(1, 2)
    else:
        joined = first if second is None else sets.join(first, second.swapaxes(1, 2))
    return [joined.reshape(outs[0].shape)]


def conv_sparsity(sets: IndexSets, prim: ConvGeneralDilated, outs: Avals, x: Dependence, y: Dependence) -> ResultSets:
    """Contracts windows with kernels in each group; padding depends on nothing."""
    window = tuple([y.aval.shape[d] for d in prim.dimension_numbers.rhs_spec[2:]])
    if not (x.aval.size and y.aval.size and outs[0].size):
        return [np.full(outs[0].shape, EMPTY_SET, np.int64)]
    first = None if x.ids is None else _products(sets, prim.rows(x.sets(), window, EMPTY_SET), y, prim.columns)
    second = None
    if y.ids is not None:
        second = _products(sets, prim.columns(y.sets()), x, lambda array: prim.rows(array, window, 0)).swapaxes(1, 2)
    joined = second if first is None else first if second is None else sets.join(first, second)
    assert joined is not None
    return [prim.arranged(joined, outs[0].shape)]


def _as_matrices(x: Dependence, batch: Sequence[int], contracted: Sequence[int]) -> Callable[[NDArray], NDArray]:
    """Returns a function that rearranges an array like `x` to `[batch, free, contracted]`."""
    free = [d for d in range(x.aval.ndim) if d not in batch and d not in contracted]
    shape = [int(np.prod([x.aval.shape[d] for d in part], dtype=np.int64)) for part in (batch, free, contracted)]
    return lambda array: array.transpose([*batch, *free, *contracted]).reshape(shape)


def _products(sets: IndexSets, ids: SetIds, other: Dependence, arrange: Callable[[NDArray], NDArray]) -> SetIds:
    """Contracts sets `[batch, free, contracted]` with an operand; the result is `[batch, free, free of the other]`."""
    batch, rows, _ = ids.shape
    columns = arrange(np.broadcast_to(np.zeros((), np.int8), other.aval.shape)).shape[1]
    factor = other.value()
    if factor is not None:
        nonzero = np.nonzero(arrange(factor))
        if len(nonzero[0]) < batch * columns * ids.shape[2] and len(nonzero[0]) * rows <= MAX_PRODUCTS:
            b, column, c = [np.asarray(p, np.int64) for p in nonzero]
            row = np.arange(rows, dtype=np.int64)[:, None]
            groups = (b * rows + row) * columns + column
            unions = sets.union(groups.reshape(-1), ids[b, row, c].reshape(-1), batch * rows * columns)
            return unions.reshape(batch, rows, columns)
    sums = _union_of_rows(sets, ids.reshape(batch * rows, -1)) if ids.shape[2] else np.zeros(batch * rows, np.int64)
    return np.broadcast_to(sums.reshape(batch, rows, 1), (batch, rows, columns))


# ------------------------------------------------------------------ indexing


def gather_sparsity(sets: IndexSets, prim: Gather, outs: Avals, x: Dependence, indices: Dependence) -> ResultSets:
    """Gathers sets if the indices are known; otherwise any element may be taken."""
    known_indices = indices.value()
    return (
        full_sparsity(sets, prim, outs, x)
        if known_indices is None
        else apply_to_set_ids(prim.with_fill_value(EMPTY_SET), x.sets(), known_indices)
    )


def dynamic_slice_sparsity(
    sets: IndexSets, prim: DynamicSlice, outs: Avals, x: Dependence, *starts: Dependence
) -> ResultSets:
    """Slices sets if the starts are known; otherwise any element along the sliced axes may be taken."""
    known = _known_starts(starts)
    if known is not None:
        return apply_to_set_ids(prim, x.sets(), *known)
    return [_union_along_sliced_axes(sets, x.sets(), outs[0].shape)]


def dynamic_update_slice_sparsity(
    sets: IndexSets,
    prim: DynamicUpdateSlice,
    outs: Avals,
    x: Dependence,
    y: Dependence,
    *starts: Dependence,
) -> ResultSets:
    """Updates sets if the starts are known; otherwise any element may have been updated."""
    known = _known_starts(starts)
    if known is not None:
        return apply_to_set_ids(prim, x.sets(), y.sets(), *known)
    return [sets.join(x.sets(), _union_along_sliced_axes(sets, y.sets(), x.aval.shape))]


def _known_starts(starts: Sequence[Dependence]) -> list[NDArray] | None:
    values = [s.value() for s in starts]
    known = [value for value in values if value is not None]
    return known if len(known) == len(starts) else None


def _union_along_sliced_axes(sets: IndexSets, ids: SetIds, shape: Shape) -> SetIds:
    """Returns sets of the given shape: along each axis whose size differs, all are the union of the sets there."""
    for d, (n, size) in enumerate(zip(ids.shape, shape, strict=True)):
        if n != size:
            rows = np.moveaxis(ids, d, -1)
            ids = np.expand_dims(_union_of_rows(sets, rows.reshape(-1, n)).reshape(rows.shape[:-1]), d)
    return np.broadcast_to(ids, shape)


def scatter_sparsity(
    sets: IndexSets,
    prim: ScatterAdd | ScatterSub | Scatter,
    outs: Avals,
    x: Dependence,
    indices: Dependence,
    updates: Dependence,
) -> ResultSets:
    """Scatters sets if the indices are known; otherwise any element may depend on all updates."""
    known_indices = indices.value()
    if known_indices is None:
        (unions,) = full_sparsity(sets, prim, outs, updates)
        return [sets.join(x.sets(), unions)]
    size = x.aval.size
    targets = _scatter_targets(prim, x.aval, known_indices, updates.aval).reshape(-1)
    inside = targets >= 0
    groups, ids = targets[inside], updates.sets().reshape(-1)[inside]
    old = x.sets().reshape(-1)
    if isinstance(prim, Scatter):
        old = old.copy()
        old[groups] = EMPTY_SET
    elements = np.arange(size, dtype=np.int64)
    unions = sets.union(np.concatenate([elements, groups]), np.concatenate([old, ids]), size)
    return [unions.reshape(x.aval.shape)]


def _scatter_targets(
    prim: ScatterAdd | ScatterSub | Scatter, x: ShapedArray, indices: NDArray, updates: ShapedArray
) -> SetIds:
    """Returns the flat index that each update goes to, or -1 if it is dropped, computed by the transpose of a sum."""
    scatter_add = ScatterAdd(prim.dimension_numbers, prim.indices_are_sorted, prim.unique_indices, prim.mode)
    wide = np.dtype(np.float64)
    numbers = from_numpy(np.arange(1, x.size + 1, dtype=wide).reshape(x.shape), wide)
    operands = (
        UndefinedPrimal(ShapedArray(x.shape, wide)),
        from_numpy(indices, indices.dtype),
        UndefinedPrimal(ShapedArray(updates.shape, wide)),
    )
    with handling(ROOT):
        targets = scatter_add.transpose([numbers], *operands)[2]
    assert targets is not None
    assert not isinstance(targets, Zero)
    return to_numpy(targets).astype(np.int64) - 1


SPARSITY_RULES: Final[Mapping[type[Primitive], SparsityRule]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                *(Reshape, Transpose, BroadcastInDim, Squeeze, Concatenate, Stack, Tile, Rev, Slice, Split, Unstack),
                *(Pad, OptimizationBarrier),
            ),
            data_movement_sparsity,
        ),
        ConvertElementType: elementwise_sparsity,
        Mul: mul_sparsity,
        SelectN: select_n_sparsity,
        ReduceSum: reduce_sum_sparsity,
        CumSum: cumsum_sparsity,
        DotGeneral: dot_general_sparsity,
        ConvGeneralDilated: conv_sparsity,
        Fft: fft_sparsity,
        Gather: gather_sparsity,
        DynamicSlice: dynamic_slice_sparsity,
        DynamicUpdateSlice: dynamic_update_slice_sparsity,
        ScatterAdd: scatter_sparsity,
        ScatterSub: scatter_sparsity,
        ReduceWindowSum: reduce_window_sparsity,
        SelectAndGatherAdd: select_and_gather_add_sparsity,
        Scatter: scatter_sparsity,
    }
)


def sparsity_rule(prim: Primitive) -> SparsityRule:
    """Returns the rule of a primitive; without one, every result depends on all operands."""
    rule = SPARSITY_RULES.get(type(prim))
    if rule is not None:
        return rule
    return elementwise_sparsity if isinstance(prim, Elementwise) else full_sparsity
