"""`scatter_apply`: a function applied to the elements at computed places, as often as each is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

from tracefx import lax
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.handler import as_array, bind1
from tracefx.core.values import Value, as_value
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
    """`operand`, `func` applied to the elements of its windows at the places that `scatter_indices` names.

    `func` takes a number (`f32[]`) and gives one. It is applied to an element as often as it is named. Windows are as
    in `scatter`, with updates of the shape `update_shape`. Differentiable, in reverse mode too.

    >>> import numpy as np
    >>> numbers = ScatterDimensionNumbers((), (0,), (0,))
    >>> scatter_apply(np.arange(4.0), np.array([[1], [2], [2]]), lambda x: 10 * x, numbers, update_shape=(3,)).tolist()
    [0.0, 10.0, 200.0, 3.0]
    """
    require_callable("scatter_apply", func)
    fields = scatter_params("scatter_apply", dimension_numbers, indices_are_sorted, unique_indices, mode)
    shape = static_shape("scatter_apply", [n.__index__() for n in update_shape], "update_shape")

    def each(x: Array) -> Array:
        out: Array = vmap(func)(reshape(x, (x.size,)))
        return reshape(out, x.shape)

    return apply_at_indices(Scatter(*fields), as_value(operand, "operand"), as_value(scatter_indices), each, shape)


def apply_at_indices(
    prim: Scatter, operand: Value, indices: Value, func: Callable[[Array], ArrayLike], updates: Shape
) -> Array:
    """`operand` with `func`, which takes arrays, applied where `prim` would put updates of this shape.

    Every round applies it once to the elements that are named more often than there have been rounds.
    """
    x = as_array(operand)
    aval = x.aval
    prim.out_aval(aval, indices.aval, aval.update(shape=updates))  # checks the dimension numbers
    if 0 in updates:
        return x
    read = prim.matching_gather(aval.shape, updates)

    def fresh(old: Array) -> Array:
        return convert(broadcast_to(as_value(func(old), "what func gives"), updates), aval.dtype, aval.weak_type)

    places = [n for i, n in enumerate(updates) if i not in prim.dimension_numbers.update_window_dims]
    if prim.unique_indices or all(n == 1 for n in places):
        return bind1(prim, x, indices, fresh(bind1(read, x, indices)))
    counting = ScatterAdd(prim.dimension_numbers, prim.indices_are_sorted, False, prim.mode)
    one, none = [full_like_aval(ShapedArray(shape, dtypes.int32), n) for shape, n in ((updates, 1), (aval.shape, 0))]
    named = bind1(counting, none, indices, one)
    count = bind1(read, named, indices)
    times = larger(reduce_max(named, range(aval.ndim)), 0)

    def again(i: ArrayLike, x: Array) -> Array:
        old = bind1(read, x, indices)
        return bind1(prim, x, indices, select(gt(count, broadcast_to(i, updates)), fresh(old), old))

    try:
        known = int(times.concrete_or_error(ConcretizationError))
    except ConcretizationError:
        most = 1
        for n in places:
            most *= n
        _, out = lax.while_loop(
            lambda carry: lt(carry[0], times),
            lambda carry: (add(carry[0], 1), again(*carry)),
            (full_like_aval(ShapedArray((), dtypes.int32), 0), x),
            max_steps=most,
        )
        return out
    for i in range(known):
        x = again(i, x)
    return x
