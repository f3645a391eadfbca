"""Scatters: `scatter` (replaces elements), `scatter_add`, `scatter_sub`, `scatter_mul`, `scatter_min`, `scatter_max`.

`ScatterAdd`, the transpose of `Gather`, is in `gather_scatter_add`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np
from attrs import evolve
from typing_extensions import override

from tracefx.core import Array, ArrayLike, Literal, NDArray, Scalar, ShapedArray, Value, dtypes
from tracefx.core.handler import as_array, bind, bind1
from tracefx.core.primitive import Tangent, UndefinedPrimal, Zero, not_linear_error
from tracefx.dimensions.symbolic_dimensions import exceeds
from tracefx.lowering import Builder, IrValue
from tracefx.ops.elementwise.arithmetic import div, max, mul, neg
from tracefx.ops.elementwise.comparison import eq
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.selection import select, select_with_aval
from tracefx.ops.indexing.gather_scatter_add import (
    ScatterAdd,
    ScatterArithmetic,
    ScatterDimensionNumbers,
    ScatterOperation,
    scatter_params,
)
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.indexing.sorting import Sort
from tracefx.ops.monoids import MAXIMUM, MINIMUM, MULTIPLY, Combiner, UfuncCombiner
from tracefx.ops.operation import ANY, DataMovement, Domain, HasPullback
from tracefx.ops.shape.array_creation import iota
from tracefx.ops.shape.slicing import pad
from tracefx.ops.structural import convert, full_like_aval, instantiate, match_aval, reshape

_ORDERED = Domain("booleans or numbers", lambda dtype: dtype != dtypes.float0)


def _as_scatter_add(prim: ScatterOperation) -> ScatterAdd:
    """Returns the `scatter-add` with the same parameters."""
    return ScatterAdd(prim.dimension_numbers, prim.indices_are_sorted, prim.unique_indices, prim.mode)


# ------------------------------------------------------------------ scatter


@final
class Replace(Combiner):
    """Replaces the first element by the second one."""

    @override
    def combine(self, x: NDArray, y: NDArray) -> NDArray:
        return y

    @override
    def combine_at(self, out: NDArray, positions: NDArray, new: NDArray) -> None:
        out[positions] = new  # the last of several updates wins, as in XLA on the CPU

    @override
    def emit(self, builder: Builder, out: ShapedArray, x: IrValue, y: IrValue) -> IrValue:
        return y


@final
class Scatter(ScatterOperation, HasPullback, DataMovement):
    """Replaces the elements of windows: `x[indices[i]] = updates[i]`.

    Where windows overlap, which of the updates wins is unspecified. On the CPU, it is the last one.

    `x: f32[n, m], indices: i32[k, 1], updates: f32[k, m] -> f32[n, m]` for windows that are rows; any dtype. Bound by
    `lax.scatter` and `x.at[i].set`.
    """

    name = "scatter"
    function = "scatter"
    takes = ANY
    combiner: ClassVar[Combiner] = Replace()

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        x, indices, updates = primals
        x_t, _, updates_t = tangents
        if isinstance(x_t, Zero) and isinstance(updates_t, Zero):
            out = bind1(self, *primals)
            return [out], [Zero(out.aval.tangent())]
        x_t, updates_t = instantiate(x_t), instantiate(updates_t)
        if self.unique_indices:
            return [bind1(self, *primals)], [bind1(self, x_t, indices, updates_t)]
        # Which of several updates of one element wins is unspecified, but the output and its tangent must agree. So all
        # others are replaced by an additive identity, and then everything is added.
        kept, won = self.winners(indices, x.aval, updates.aval)
        prim = _as_scatter_add(self)
        identity = _additive_identity(x.aval)
        out = bind1(
            prim,
            select_with_aval(kept, x, identity, x.aval),
            indices,
            select_with_aval(won, updates, identity, updates.aval),
        )
        tangent = bind1(
            prim, select_with_aval(kept, x_t, 0, x_t.aval), indices, select_with_aval(won, updates_t, 0, updates_t.aval)
        )
        return [out], [tangent]

    def winners(self, indices: Value, x: ShapedArray, updates: ShapedArray) -> tuple[Array, Array]:
        """Returns masks of the operand's elements that stay and of the updates that win.

        They are computed by scattering the numbers of the updates.

        Args:
            indices: The start indices.
            x: The type of the operand.
            updates: The type of the updates.

        Returns:
            Two boolean arrays, of the shapes of the operand and of the updates.
        """
        count = updates.size
        dtype = dtypes.uint64 if exceeds(count, 2**32 - 2) else dtypes.uint32
        numbers = reshape(add(iota(dtype, count), 1), updates.shape)
        winners = bind1(self, full_like_aval(ShapedArray(x.shape, dtype), 0), indices, numbers)
        read = bind1(self.matching_gather(x.shape, updates.shape), winners, indices)
        return eq(winners, full_like_aval(winners.aval, 0)), eq(read, numbers)

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        x, indices, updates = args
        assert not isinstance(indices, UndefinedPrimal)
        if self.unique_indices:
            kept, won = None, None
        else:
            kept, won = self.winners(indices, x.aval, updates.aval)
        x_ct: Tangent | None = None
        updates_ct: Tangent | None = None
        if isinstance(x, UndefinedPrimal):
            zeros = full_like_aval(ShapedArray(updates.aval.shape, ct.aval.dtype, ct.aval.weak_type), 0)
            x_ct = bind1(self, ct, indices, zeros) if kept is None else select_with_aval(kept, ct, 0, ct.aval)
            x_ct = match_aval(x_ct, x.aval)
        if isinstance(updates, UndefinedPrimal):
            gathered = bind1(self.matching_gather(x.aval.shape, updates.aval.shape), ct, indices)
            updates_ct = match_aval(
                gathered if won is None else select_with_aval(won, gathered, 0, gathered.aval), updates.aval
            )
        return [x_ct, None, updates_ct]


def _additive_identity(aval: ShapedArray) -> Array:
    """Returns negative zero, which changes no number when added, not even the sign of a zero."""
    zero: Scalar = complex(-0.0, -0.0) if dtypes.is_complex(aval.dtype) else -0.0
    return full_like_aval(ShapedArray((), aval.dtype, aval.weak_type), zero)


def scatter(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: GatherScatterMode | str | None = None,
) -> Array:
    """Returns `operand` with windows at the given indices replaced by `updates`.

    Args:
        operand: Array.
        scatter_indices: Integers `i32[..., k]`: vectors of start indices.
        updates: Array of the same dtype: a window for each index vector.
        dimension_numbers: Which axes of operand, indices and updates correspond.
        indices_are_sorted: Whether the indices are known to be sorted. False by default.
        unique_indices: Whether the windows are known not to overlap. False by default.
        mode: What to do with windows out of bounds: by default they are dropped; "clip" moves them inside.

    Returns:
        An array with the shape and dtype of `operand`. If several updates go to one element, one of them wins; which
        one is unspecified.

    Raises:
        TypeError: The dimension numbers don't fit the operands, or dtypes differ.
        ValueError: The indices are not integers, or the mode is unknown.

    >>> rows = ScatterDimensionNumbers((1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> scatter(np.zeros((3, 2)), np.array([[2], [0]]), np.array([[1.0, 2.0], [3.0, 4.0]]), rows).tolist()
    [[3.0, 4.0], [0.0, 0.0], [1.0, 2.0]]
    """
    prim = Scatter(*scatter_params("scatter", dimension_numbers, indices_are_sorted, unique_indices, mode))
    return bind1(prim, operand, scatter_indices, updates)


# ------------------------------------------------------------------ scatter_add


def scatter_add(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: GatherScatterMode | str | None = None,
) -> Array:
    """Returns `operand` with `updates` added to windows at the given indices. Updates of one element accumulate.

    Args:
        operand: Array of numbers.
        scatter_indices: Integers `i32[..., k]`: vectors of start indices.
        updates: Array of the same dtype: a window for each index vector.
        dimension_numbers: Which axes of operand, indices and updates correspond.
        indices_are_sorted: Whether the indices are known to be sorted. False by default.
        unique_indices: Whether the windows are known not to overlap. False by default.
        mode: What to do with windows out of bounds: by default they are dropped; "clip" moves them inside.

    Returns:
        An array with the shape and dtype of `operand`.

    Raises:
        TypeError: The dimension numbers don't fit the operands, or dtypes differ.
        ValueError: The indices are not integers, or the mode is unknown.

    >>> rows = ScatterDimensionNumbers((1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> scatter_add(np.zeros((3, 2)), np.array([[2], [2]]), np.ones((2, 2)), rows).tolist()
    [[0.0, 0.0], [0.0, 0.0], [2.0, 2.0]]
    """
    prim = ScatterAdd(*scatter_params("scatter_add", dimension_numbers, indices_are_sorted, unique_indices, mode))
    return bind1(prim, operand, scatter_indices, updates)


# ------------------------------------------------------------------ scatter_sub


@final
class Subtract(UfuncCombiner):
    """Subtracts the second element from the first one."""

    @override
    def emit(self, builder: Builder, out: ShapedArray, x: IrValue, y: IrValue) -> IrValue:
        return builder.emit("stablehlo.subtract", [x, y], [out])[0]


@final
class ScatterSub(ScatterArithmetic):
    """Subtracts updates from windows: `x[indices[i]] -= updates[i]`, also where windows overlap.

    `x: f32[n, m], indices: i32[k, 1], updates: f32[k, m] -> f32[n, m]` for windows that are rows; numbers. Bound by
    `lax.scatter_sub` and `x.at[i].subtract`.
    """

    name = "scatter-sub"
    function = "scatter_sub"
    combiner: ClassVar[Combiner] = Subtract(np.subtract)

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        updates = args[2]
        x_ct, _, added = _as_scatter_add(self).pullback(ct, *args)
        return [x_ct, None, None if added is None or isinstance(added, Zero) else match_aval(neg(added), updates.aval)]


def scatter_sub(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: GatherScatterMode | str | None = None,
) -> Array:
    """Returns `operand` with `updates` subtracted from windows at the given indices.

    Args:
        operand: Array.
        scatter_indices: Integers `i32[..., k]`: vectors of start indices.
        updates: Array of the same dtype: a window for each index vector.
        dimension_numbers: Which axes of operand, indices and updates correspond.
        indices_are_sorted: Whether the indices are known to be sorted. False by default.
        unique_indices: Whether the windows are known not to overlap. False by default.
        mode: What to do with windows out of bounds: by default they are dropped; "clip" moves them inside.

    Returns:
        An array with the shape and dtype of `operand`. Updates of one element accumulate.

    Raises:
        TypeError: The dimension numbers don't fit the operands, or dtypes differ.
        ValueError: The indices are not integers, or the mode is unknown.

    >>> rows = ScatterDimensionNumbers((1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> scatter_sub(np.ones((3, 1)), np.array([[2], [2]]), np.full((2, 1), 3.0), rows).tolist()
    [[1.0], [1.0], [-5.0]]
    """
    prim = ScatterSub(*scatter_params("scatter_sub", dimension_numbers, indices_are_sorted, unique_indices, mode))
    return bind1(prim, operand, scatter_indices, updates)


# ------------------------------------------------------------------ scatter_mul


@final
class ScatterMul(ScatterArithmetic):
    """Multiplies windows by updates: `x[indices[i]] *= updates[i]`, also where windows overlap.

    `x: f32[n, m], indices: i32[k, 1], updates: f32[k, m] -> f32[n, m]` for windows that are rows; numbers. Bound by
    `lax.scatter_mul` and `x.at[i].multiply`.
    """

    name = "scatter-mul"
    function = "scatter_mul"
    combiner: ClassVar[Combiner] = MULTIPLY

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        x, indices, updates = primals
        x_t, _, updates_t = tangents
        total: Value | None = None
        if not isinstance(x_t, Zero):
            total = bind1(self, x_t, indices, updates)
        if not isinstance(updates_t, Zero):
            gathered = bind1(self.matching_gather(x.aval.shape, updates.aval.shape), x, indices)
            if not self.unique_indices:
                gathered = mul(gathered, product_of_others(self, x.aval, indices, updates))
            start = full_like_aval(out.aval.tangent(), 0) if total is None else total
            total = bind1(_as_scatter_add(self), start, indices, mul(gathered, updates_t))
        return [out], [Zero(out.aval.tangent()) if total is None else match_aval(total, out.aval.tangent())]

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        x, indices, updates = args
        assert not isinstance(indices, UndefinedPrimal)
        if isinstance(updates, UndefinedPrimal):
            assert not isinstance(x, UndefinedPrimal)
            if not self.unique_indices:  # not jointly linear in several updates of one element
                raise not_linear_error(self)
            gathered = bind1(self.matching_gather(x.aval.shape, updates.aval.shape), mul(ct, x), indices)
            return [None, None, match_aval(gathered, updates.aval)]
        return [match_aval(bind1(self, ct, indices, updates), x.aval), None, None]


def scatter_mul(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: GatherScatterMode | str | None = None,
) -> Array:
    """Returns `operand` with windows at the given indices multiplied by `updates`.

    Derivatives with respect to `updates` are faster with `unique_indices=True`; without it, updates are sorted.

    Args:
        operand: Array.
        scatter_indices: Integers `i32[..., k]`: vectors of start indices.
        updates: Array of the same dtype: a window for each index vector.
        dimension_numbers: Which axes of operand, indices and updates correspond.
        indices_are_sorted: Whether the indices are known to be sorted. False by default.
        unique_indices: Whether the windows are known not to overlap. False by default.
        mode: What to do with windows out of bounds: by default they are dropped; "clip" moves them inside.

    Returns:
        An array with the shape and dtype of `operand`. Updates of one element accumulate.

    Raises:
        TypeError: The dimension numbers don't fit the operands, or dtypes differ.
        ValueError: The indices are not integers, or the mode is unknown.

    >>> rows = ScatterDimensionNumbers((1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> scatter_mul(np.ones((3, 1)), np.array([[2], [2]]), np.full((2, 1), 3.0), rows).tolist()
    [[1.0], [1.0], [9.0]]
    """
    prim = ScatterMul(*scatter_params("scatter_mul", dimension_numbers, indices_are_sorted, unique_indices, mode))
    return bind1(prim, operand, scatter_indices, updates)


# ------------------------------------------------------------------ scatter_min, scatter_max


class ScatterExtremum(ScatterOperation):
    """The minimum or maximum of an element and its updates. Those that tie share the tangent."""

    __slots__ = ()
    takes = _ORDERED

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        x, indices, updates = primals
        x_t, _, updates_t = tangents
        aval = out.aval.tangent()
        if isinstance(x_t, Zero) and isinstance(updates_t, Zero):
            return [out], [Zero(aval)]
        prim = evolve(_as_scatter_add(self), unique_indices=self.unique_indices)
        kept = eq(x, out)
        won = eq(updates, bind1(self.matching_gather(x.aval.shape, updates.aval.shape), out, indices))
        ties = bind1(prim, convert(kept, aval.dtype), indices, convert(won, aval.dtype))
        x_t, updates_t = instantiate(match_aval(x_t, aval)), instantiate(updates_t)
        total = bind1(
            prim, select_with_aval(kept, x_t, 0, aval), indices, select_with_aval(won, updates_t, 0, updates_t.aval)
        )
        # Where the result is NaN, no element equals it, so the number of ties is 0.
        return [out], [match_aval(div(total, max(ties, full_like_aval(ties.aval, 1))), aval)]


@final
class ScatterMin(ScatterExtremum):
    """Takes the minimum of windows and updates: `x[indices[i]] = min(x[indices[i]], updates[i])`.

    `x: f32[n, m], indices: i32[k, 1], updates: f32[k, m] -> f32[n, m]` for windows that are rows; booleans or numbers.
    Bound by `lax.scatter_min` and `x.at[i].min`.
    """

    name = "scatter-min"
    function = "scatter_min"
    combiner: ClassVar[Combiner] = MINIMUM


@final
class ScatterMax(ScatterExtremum):
    """Takes the maximum of windows and updates: `x[indices[i]] = max(x[indices[i]], updates[i])`.

    `x: f32[n, m], indices: i32[k, 1], updates: f32[k, m] -> f32[n, m]` for windows that are rows; booleans or numbers.
    Bound by `lax.scatter_max` and `x.at[i].max`.
    """

    name = "scatter-max"
    function = "scatter_max"
    combiner: ClassVar[Combiner] = MAXIMUM


def scatter_min(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: GatherScatterMode | str | None = None,
) -> Array:
    """Returns `operand` with the elementwise minimum of its windows at the given indices and `updates`.

    Args:
        operand: Array.
        scatter_indices: Integers `i32[..., k]`: vectors of start indices.
        updates: Array of the same dtype: a window for each index vector.
        dimension_numbers: Which axes of operand, indices and updates correspond.
        indices_are_sorted: Whether the indices are known to be sorted. False by default.
        unique_indices: Whether the windows are known not to overlap. False by default.
        mode: What to do with windows out of bounds: by default they are dropped; "clip" moves them inside.

    Returns:
        An array with the shape and dtype of `operand`. NaN propagates.

    Raises:
        TypeError: The dimension numbers don't fit the operands, or dtypes differ.
        ValueError: The indices are not integers, or the mode is unknown.

    >>> rows = ScatterDimensionNumbers((1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> scatter_min(np.ones((3, 1)), np.array([[2], [2]]), np.array([[3.0], [-1.0]]), rows).tolist()
    [[1.0], [1.0], [-1.0]]
    """
    prim = ScatterMin(*scatter_params("scatter_min", dimension_numbers, indices_are_sorted, unique_indices, mode))
    return bind1(prim, operand, scatter_indices, updates)


def scatter_max(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: GatherScatterMode | str | None = None,
) -> Array:
    """Returns `operand` with the elementwise maximum of its windows at the given indices and `updates`.

    Args:
        operand: Array.
        scatter_indices: Integers `i32[..., k]`: vectors of start indices.
        updates: Array of the same dtype: a window for each index vector.
        dimension_numbers: Which axes of operand, indices and updates correspond.
        indices_are_sorted: Whether the indices are known to be sorted. False by default.
        unique_indices: Whether the windows are known not to overlap. False by default.
        mode: What to do with windows out of bounds: by default they are dropped; "clip" moves them inside.

    Returns:
        An array with the shape and dtype of `operand`. NaN propagates.

    Raises:
        TypeError: The dimension numbers don't fit the operands, or dtypes differ.
        ValueError: The indices are not integers, or the mode is unknown.

    >>> rows = ScatterDimensionNumbers((1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> scatter_max(np.ones((3, 1)), np.array([[2], [2]]), np.array([[3.0], [-1.0]]), rows).tolist()
    [[1.0], [1.0], [3.0]]
    """
    prim = ScatterMax(*scatter_params("scatter_max", dimension_numbers, indices_are_sorted, unique_indices, mode))
    return bind1(prim, operand, scatter_indices, updates)


def product_of_others(prim: ScatterOperation, operand: ShapedArray, indices: Value, updates: Value) -> Array:
    """Returns, for each update, the product of all other updates of the same element.

    Nothing is divided, so zeros are no problem. Updates are sorted by their target element; then the products of those
    before and of those after each update are computed by doubling.
    """
    shape, count = updates.aval.shape, updates.aval.size
    if count < 2:
        return full_like_aval(updates.aval, 1)
    numbering = dtypes.int64 if exceeds(operand.size, 2**31 - 2) else dtypes.int32
    numbers = reshape(add(iota(numbering, operand.size), 1), operand.shape)
    (positions,) = bind(prim.matching_gather(operand.shape, shape), numbers, indices)  # 0 for dropped updates
    order = iota(numbering, count)
    sort = Sort(0, True, 1)
    ordered = bind(sort, reshape(positions, (count,)), order, reshape(updates, (count,)))
    position, order, factors = [as_array(x) for x in ordered]
    one = Literal(1, ShapedArray((), updates.aval.dtype))
    nowhere = Literal(-1, ShapedArray((), numbering))

    def products(direction: int) -> Array:
        """Returns the products of the factors of the same element before (`direction` 1) or after (-1) each."""

        def moved(x: Array, by: int, fill: Literal) -> Array:
            return pad(x, fill, [(direction * by, -direction * by, 0)])

        def there(x: Array, by: int) -> Array:
            same = eq(position, moved(position, by, nowhere))
            return select(same, moved(x, by, one), full_like_aval(x.aval, 1))

        out, reach = there(factors, 1), 1
        while reach < count:
            out = mul(out, there(out, reach))
            reach *= 2
        return out

    _, back = bind(sort, order, mul(products(1), products(-1)))
    return reshape(back, shape)
