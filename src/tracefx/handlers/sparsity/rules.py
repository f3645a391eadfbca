"""What results of an operation depend on. The programs are derivatives: linear in what depends on inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import ROOT, handling
from tracefx.core.primitive import Primitive, UndefinedPrimal, Zero
from tracefx.core.values import from_numpy, to_numpy
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

SparsityRule: TypeAlias = Callable[..., Sequence[SetIds]]
"""From the sets, the operation, the types of its results and what its operands depend on, to the results' sets."""
MAX_PRODUCTS: Final = 20_000_000
"""How many products of a contraction are looked at one by one."""


def full_sparsity(sets: IndexSets, prim: Primitive, outs: Sequence[ShapedArray], *args: Dependence) -> Sequence[SetIds]:
    """Every result may depend on all that any operand depends on."""
    flat = np.concatenate([np.unique(a.sets()) for a in args])
    found = sets.union(np.zeros(len(flat), np.int64), flat, 1)[0]
    return [np.full(aval.shape, found, np.int64) for aval in outs]


def data_movement_sparsity(
    sets: IndexSets, prim: Primitive, outs: Sequence[ShapedArray], *args: Dependence
) -> Sequence[SetIds]:
    """Elements change places: the sets do what they do."""
    return [np.asarray(out) for out in prim.impl(*[a.sets() for a in args])]


def elementwise_sparsity(
    sets: IndexSets, prim: Primitive, outs: Sequence[ShapedArray], *args: Dependence
) -> Sequence[SetIds]:
    found: SetIds = np.zeros((), np.int64)
    for a in args:
        if a.ids is not None:
            found = sets.join(found, a.ids)
    return [np.broadcast_to(found, outs[0].shape)]


def mul_sparsity(
    sets: IndexSets, prim: Primitive, outs: Sequence[ShapedArray], x: Dependence, y: Dependence
) -> Sequence[SetIds]:
    """What is multiplied by a known zero doesn't depend on anything."""
    (found,) = elementwise_sparsity(sets, prim, outs, x, y)
    for a in (x, y):
        factor = a.value()
        if factor is not None and not factor.all():
            found = np.where(factor == 0, EMPTY_SET, found)
    return [found]


def select_n_sparsity(
    sets: IndexSets, prim: SelectN, outs: Sequence[ShapedArray], which: Dependence, *cases: Dependence
) -> Sequence[SetIds]:
    place = which.value()
    if place is not None:
        return apply_to_set_ids(prim, place, *[c.sets() for c in cases])
    return elementwise_sparsity(sets, prim, outs, *cases)


def apply_to_set_ids(prim: Primitive, *arrays: NDArray) -> Sequence[SetIds]:
    return [np.asarray(out) for out in prim.impl(*arrays)]


def reduce_sum_sparsity(
    sets: IndexSets, prim: ReduceSum, outs: Sequence[ShapedArray], x: Dependence
) -> Sequence[SetIds]:
    axes = prim.axes
    kept = [d for d in range(x.aval.ndim) if d not in axes]
    rows = x.sets().transpose([*kept, *axes]).reshape(outs[0].size, -1)
    return [_union_of_rows(sets, rows).reshape(outs[0].shape)]


def _union_of_rows(sets: IndexSets, rows: SetIds) -> SetIds:
    """The union of each row."""
    count, size = rows.shape
    if size == 1:
        return rows[:, 0]
    return sets.union(np.repeat(np.arange(count, dtype=np.int64), size), rows.reshape(-1), count)


def reduce_window_sparsity(
    sets: IndexSets, prim: ReduceWindowSum | SelectAndGatherAdd, outs: Sequence[ShapedArray], x: Dependence
) -> Sequence[SetIds]:
    """A window depends on all that it sees."""
    found: SetIds = np.full(outs[0].shape, EMPTY_SET, np.int64)
    for view in prim.windows.views(prim.windows.padded(x.sets(), EMPTY_SET), outs[0].shape):
        found = sets.join(found, view)
    return [found]


def select_and_gather_add_sparsity(
    sets: IndexSets, prim: SelectAndGatherAdd, outs: Sequence[ShapedArray], x: Dependence, keys: Dependence
) -> Sequence[SetIds]:
    """Of what it sees a window has the one that is selected, if that is known."""
    known = keys.value()
    return reduce_window_sparsity(sets, prim, outs, x) if known is None else [prim.kernel(x.sets(), known)]


def cumsum_sparsity(sets: IndexSets, prim: CumSum, outs: Sequence[ShapedArray], x: Dependence) -> Sequence[SetIds]:
    rows = np.moveaxis(x.sets(), prim.axis, 0)
    rows = (rows[::-1] if prim.reverse else rows).copy()
    for i in range(1, len(rows)):
        rows[i] = sets.join(rows[i - 1], rows[i])
    rows = rows[::-1] if prim.reverse else rows
    return [np.moveaxis(rows, 0, prim.axis)]


def fft_sparsity(sets: IndexSets, prim: Fft, outs: Sequence[ShapedArray], x: Dependence) -> Sequence[SetIds]:
    """Each number depends on all of its transform."""
    (out,), lengths = outs, prim.fft_lengths
    before = out.shape[: out.ndim - len(lengths)]
    if not out.size:
        return [np.full(out.shape, EMPTY_SET, np.int64)]
    found = _union_of_rows(sets, x.sets().reshape(math.prod(before), -1))
    return [np.broadcast_to(found.reshape(*before, *[1] * len(lengths)), out.shape)]


# ------------------------------------------------------------------ contractions


def contracted(
    sets: IndexSets, prim: DotGeneral, outs: Sequence[ShapedArray], x: Dependence, y: Dependence
) -> Sequence[SetIds]:
    """A known factor that has zeros says which products there are."""
    (lc, rc), (lb, rb) = prim.dimension_numbers
    left = _as_matrices(x, lb, lc)
    right = _as_matrices(y, rb, rc)
    first = None if x.ids is None else _products(sets, left(x.sets()), y, right)
    second = None if y.ids is None else _products(sets, right(y.sets()), x, left)
    if first is None:
        assert second is not None
        found = second.swapaxes(1, 2)
    else:
        found = first if second is None else sets.join(first, second.swapaxes(1, 2))
    return [found.reshape(outs[0].shape)]


def conv_sparsity(
    sets: IndexSets, prim: ConvGeneralDilated, outs: Sequence[ShapedArray], x: Dependence, y: Dependence
) -> Sequence[SetIds]:
    """Contractions of windows with kernels, for each group; of padding nothing depends on anything."""
    window = tuple([y.aval.shape[d] for d in prim.dimension_numbers.rhs_spec[2:]])
    if not (x.aval.size and y.aval.size and outs[0].size):
        return [np.full(outs[0].shape, EMPTY_SET, np.int64)]
    first = None if x.ids is None else _products(sets, prim.rows(x.sets(), window, EMPTY_SET), y, prim.columns)
    second = None
    if y.ids is not None:
        second = _products(sets, prim.columns(y.sets()), x, lambda array: prim.rows(array, window, 0)).swapaxes(1, 2)
    found = second if first is None else first if second is None else sets.join(first, second)
    assert found is not None
    return [prim.arranged(found, outs[0].shape)]


def _as_matrices(x: Dependence, batch: Sequence[int], contracted: Sequence[int]) -> Callable[[NDArray], NDArray]:
    """Arranges an array like `x` as `[batch, free, contracted]`."""
    free = [d for d in range(x.aval.ndim) if d not in batch and d not in contracted]
    shape = [int(np.prod([x.aval.shape[d] for d in part], dtype=np.int64)) for part in (batch, free, contracted)]
    return lambda array: array.transpose([*batch, *free, *contracted]).reshape(shape)


def _products(sets: IndexSets, ids: SetIds, other: Dependence, arrange: Callable[[NDArray], NDArray]) -> SetIds:
    """`[batch, free, free of the other]` from `[batch, free, contracted]`, the other factor arranged alike."""
    batch, rows, _ = ids.shape
    columns = arrange(np.broadcast_to(np.zeros((), np.int8), other.aval.shape)).shape[1]
    factor = other.value()
    if factor is not None:
        places = np.nonzero(arrange(factor))
        if len(places[0]) < batch * columns * ids.shape[2] and len(places[0]) * rows <= MAX_PRODUCTS:
            b, column, c = [np.asarray(p, np.int64) for p in places]
            row = np.arange(rows, dtype=np.int64)[:, None]
            groups = (b * rows + row) * columns + column
            found = sets.union(groups.reshape(-1), ids[b, row, c].reshape(-1), batch * rows * columns)
            return found.reshape(batch, rows, columns)
    sums = _union_of_rows(sets, ids.reshape(batch * rows, -1)) if ids.shape[2] else np.zeros(batch * rows, np.int64)
    return np.broadcast_to(sums.reshape(batch, rows, 1), (batch, rows, columns))


# ------------------------------------------------------------------ places that are numbers of the program


def gather_sparsity(
    sets: IndexSets, prim: Gather, outs: Sequence[ShapedArray], x: Dependence, indices: Dependence
) -> Sequence[SetIds]:
    places = indices.value()
    return (
        full_sparsity(sets, prim, outs, x)
        if places is None
        else apply_to_set_ids(prim.with_fill_value(EMPTY_SET), x.sets(), places)
    )


def dynamic_slice_sparsity(
    sets: IndexSets, prim: DynamicSlice, outs: Sequence[ShapedArray], x: Dependence, *starts: Dependence
) -> Sequence[SetIds]:
    """With unknown starts, along the axes that are cut, any element may be taken."""
    places = [s.value() for s in starts]
    found = [p for p in places if p is not None]
    if len(found) == len(starts):
        return apply_to_set_ids(prim, x.sets(), *found)
    ids = x.sets()
    for d, (n, size) in enumerate(zip(x.aval.shape, outs[0].shape, strict=True)):
        if n != size:
            rows = np.moveaxis(ids, d, -1)
            ids = np.expand_dims(_union_of_rows(sets, rows.reshape(-1, n)).reshape(rows.shape[:-1]), d)
    return [np.broadcast_to(ids, outs[0].shape)]


def dynamic_update_slice_sparsity(
    sets: IndexSets,
    prim: DynamicUpdateSlice,
    outs: Sequence[ShapedArray],
    x: Dependence,
    y: Dependence,
    *starts: Dependence,
) -> Sequence[SetIds]:
    places = [s.value() for s in starts]
    found = [p for p in places if p is not None]
    if len(found) == len(starts):
        return apply_to_set_ids(prim, x.sets(), y.sets(), *found)
    ids = y.sets()
    for d, (n, size) in enumerate(zip(x.aval.shape, y.aval.shape, strict=True)):
        if n != size:
            rows = np.moveaxis(ids, d, -1)
            ids = np.expand_dims(_union_of_rows(sets, rows.reshape(-1, size)).reshape(rows.shape[:-1]), d)
    return [sets.join(x.sets(), np.broadcast_to(ids, x.aval.shape))]


def scatter_sparsity(
    sets: IndexSets,
    prim: ScatterAdd | ScatterSub | Scatter,
    outs: Sequence[ShapedArray],
    x: Dependence,
    indices: Dependence,
    updates: Dependence,
) -> Sequence[SetIds]:
    where = indices.value()
    if where is None:
        (found,) = full_sparsity(sets, prim, outs, updates)
        return [sets.join(x.sets(), found)]
    size = x.aval.size
    places = _scatter_targets(prim, x.aval, where, updates.aval).reshape(-1)
    inside = places >= 0
    groups, ids = places[inside], updates.sets().reshape(-1)[inside]
    old = x.sets().reshape(-1)
    if isinstance(prim, Scatter):
        old = old.copy()
        old[groups] = EMPTY_SET
    elements = np.arange(size, dtype=np.int64)
    found = sets.union(np.concatenate([elements, groups]), np.concatenate([old, ids]), size)
    return [found.reshape(x.aval.shape)]


def _scatter_targets(
    prim: ScatterAdd | ScatterSub | Scatter, x: ShapedArray, indices: NDArray, updates: ShapedArray
) -> SetIds:
    """Where in the operand, counted through it, each update goes; -1 where it is dropped: by the sum's transpose."""
    adding = ScatterAdd(prim.dimension_numbers, prim.indices_are_sorted, prim.unique_indices, prim.mode)
    wide = np.dtype(np.float64)
    numbers = from_numpy(np.arange(1, x.size + 1, dtype=wide).reshape(x.shape), wide)
    operands = (
        UndefinedPrimal(ShapedArray(x.shape, wide)),
        from_numpy(indices, indices.dtype),
        UndefinedPrimal(ShapedArray(updates.shape, wide)),
    )
    with handling(ROOT):
        found = adding.transpose([numbers], *operands)[2]
    assert found is not None
    assert not isinstance(found, Zero)
    return to_numpy(found).astype(np.int64) - 1


def identity_sparsity(
    sets: IndexSets, prim: Primitive, outs: Sequence[ShapedArray], *args: Dependence
) -> Sequence[SetIds]:
    return [a.sets() for a in args]


SPARSITY_RULES: Final[Mapping[type[Primitive], SparsityRule]] = MappingProxyType(
    {
        **dict.fromkeys(
            (Reshape, Transpose, BroadcastInDim, Squeeze, Concatenate, Stack, Tile, Rev, Slice, Split, Unstack, Pad),
            data_movement_sparsity,
        ),
        ConvertElementType: elementwise_sparsity,
        Mul: mul_sparsity,
        SelectN: select_n_sparsity,
        ReduceSum: reduce_sum_sparsity,
        CumSum: cumsum_sparsity,
        DotGeneral: contracted,
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
        OptimizationBarrier: identity_sparsity,
    }
)


def sparsity_rule(prim: Primitive) -> SparsityRule:
    own = SPARSITY_RULES.get(type(prim))
    if own is not None:
        return own
    return elementwise_sparsity if isinstance(prim, Elementwise) else full_sparsity
