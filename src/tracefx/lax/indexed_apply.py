"""`scatter_apply`: applies a function to the elements at given indices, once for each time an element is indexed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

from tracefx import lax
from tracefx.core import Array, ArrayLike, Shape, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import as_array, bind1
from tracefx.errors import ConcretizationError
from tracefx.ops.elementwise.arithmetic import max as larger
from tracefx.ops.elementwise.comparison import gt, lt
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.selection import select
from tracefx.ops.indexing.gather_scatter_add import ScatterAdd, ScatterDimensionNumbers, scatter_params
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.indexing.scatter import Scatter
from tracefx.ops.operation import static_shape
from tracefx.ops.reductions.reduction import reduce_max
from tracefx.ops.structural import broadcast_to, convert, full_like_aval, reshape
from tracefx.transforms.arguments import require_callable
from tracefx.transforms.vmap import vmap


def scatter_apply(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    func: Callable[[Any], Any],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[SupportsIndex] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: GatherScatterMode | str | None = None,
) -> Array:
    """Applies a scalar function to indexed elements of an array, once for each time an element is indexed.

    Windows and dimension numbers are those of `scatter`. Differentiable in forward and reverse mode.

    Args:
        operand: the array to update.
        scatter_indices: `i32[..., k]`, the start indices of the windows.
        func: a function from a scalar (`f32[]`) to a scalar.
        dimension_numbers: how the axes of the windows and of `scatter_indices` map to axes of `operand`.
        update_shape: the shape that the updates of the equivalent `scatter` would have.
        indices_are_sorted: whether the indices are known to be sorted.
        unique_indices: whether no element is indexed twice; then `func` is applied in one pass.
        mode: what happens with indices out of bounds, as in `scatter`.

    Returns:
        An array of the shape and dtype of `operand`.

    Raises:
        TypeError: if `func` is not callable.

    >>> import numpy as np
    >>> numbers = ScatterDimensionNumbers((), (0,), (0,))
    >>> scatter_apply(np.arange(4.0), np.array([[1], [2], [2]]), lambda x: 10 * x, numbers, update_shape=(3,)).tolist()
    [0.0, 10.0, 200.0, 3.0]
    """
    require_callable("scatter_apply", func)
    fields = scatter_params("scatter_apply", dimension_numbers, indices_are_sorted, unique_indices, mode)
    shape = static_shape("scatter_apply", [n.__index__() for n in update_shape], "update_shape")

    def apply_elementwise(x: Array) -> Array:
        out: Array = vmap(func)(reshape(x, (x.size,)))
        return reshape(out, x.shape)

    return apply_at_indices(
        Scatter(*fields), as_value(operand, "operand"), as_value(scatter_indices), apply_elementwise, shape
    )


def apply_at_indices(
    prim: Scatter, operand: Value, indices: Value, func: Callable[[Array], ArrayLike], updates: Shape
) -> Array:
    """Applies `func`, a function of arrays, to the elements of `operand` that `prim` would overwrite.

    `updates` is the shape of the updates. An element that is indexed `n` times is updated in the first `n` rounds; each
    round gathers, applies `func`, and scatters.
    """
    x = as_array(operand)
    aval = x.aval
    prim.out_aval(aval, indices.aval, aval.update(shape=updates))  # checks the dimension numbers
    if 0 in updates:
        return x
    gather = prim.matching_gather(aval.shape, updates)

    def apply_func(old: Array) -> Array:
        return convert(broadcast_to(as_value(func(old), "the result of func"), updates), aval.dtype, aval.weak_type)

    batch_sizes = [n for i, n in enumerate(updates) if i not in prim.dimension_numbers.update_window_dims]
    if prim.unique_indices or all(n == 1 for n in batch_sizes):
        return bind1(prim, x, indices, apply_func(bind1(gather, x, indices)))
    scatter_add = ScatterAdd(prim.dimension_numbers, prim.indices_are_sorted, False, prim.mode)
    ones, zeros = [full_like_aval(ShapedArray(shape, dtypes.int32), n) for shape, n in ((updates, 1), (aval.shape, 0))]
    index_counts = bind1(scatter_add, zeros, indices, ones)
    window_counts = bind1(gather, index_counts, indices)
    rounds = larger(reduce_max(index_counts, range(aval.ndim)), 0)

    def run_round(i: ArrayLike, x: Array) -> Array:
        old = bind1(gather, x, indices)
        return bind1(prim, x, indices, select(gt(window_counts, broadcast_to(i, updates)), apply_func(old), old))

    try:
        concrete_rounds = int(rounds.concrete_or_error(ConcretizationError))
    except ConcretizationError:
        max_rounds = 1
        for n in batch_sizes:
            max_rounds *= n
        _, out = lax.while_loop(
            lambda carry: lt(carry[0], rounds),
            lambda carry: (add(carry[0], 1), run_round(*carry)),
            (full_like_aval(ShapedArray((), dtypes.int32), 0), x),
            max_steps=max_rounds,
        )
        return out
    for i in range(concrete_rounds):
        x = run_round(i, x)
    return x
