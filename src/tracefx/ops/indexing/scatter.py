"""Writing windows at computed places: `scatter` puts updates in the place of what is there, `scatter_sub` subtracts,
`scatter_mul` multiplies, `scatter_min` and `scatter_max` keep the lesser or the greater. (`scatter_add`, the transpose
of `gather`, stands with it.)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np
from attrs import evolve
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import bind1
from tracefx.core.literal import Scalar
from tracefx.core.primitive import Tangent, Transposable, UndefinedPrimal, Zero, not_linear_error
from tracefx.core.values import Value
from tracefx.lowering import Builder, IrValue
from tracefx.ops.elementwise.arithmetic import div, max, mul, neg
from tracefx.ops.elementwise.comparison import eq
from tracefx.ops.elementwise.elementwise import NUMBERS, add
from tracefx.ops.elementwise.min_max import emit_min_max, maximum, minimum
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.indexing.gather_scatter_add import (
    ScatterAdd,
    ScatterDimensionNumbers,
    ScatterOperation,
    scatter_params,
)
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.indexing.scatter_mul_jvp import product_of_others
from tracefx.ops.operation import ANY, DataMovement, Domain
from tracefx.ops.shape.array_creation import iota
from tracefx.ops.structural import broadcast_to, convert, full_like_aval, instantiate, match_aval, reshape

_ORDERED = Domain("booleans or numbers", lambda dtype: dtype != dtypes.float0)


def _as_scatter_add(prim: ScatterOperation) -> ScatterAdd:
    """The sum with the same windows."""
    return ScatterAdd(prim.dimension_numbers, prim.indices_are_sorted, prim.unique_indices, prim.mode)


# ------------------------------------------------------------------ scatter


@final
class Scatter(ScatterOperation, Transposable, DataMovement):
    __slots__ = ()
    name = "scatter"
    function = "scatter"
    takes = ANY

    @override
    def merge(self, old: NDArray, new: NDArray) -> NDArray:
        return new

    @override
    def merge_at(self, out: NDArray, places: NDArray, new: NDArray) -> None:
        out[places] = new  # the last of several wins, as on XLA's CPU

    @override
    def emit_merged(self, builder: Builder, element: ShapedArray, old: IrValue, new: IrValue) -> IrValue:
        return new

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
        # Which of several updates of one place wins is left open, so the output must come from the same choice as its
        # tangent: everything that lost is replaced by what adds nothing, and the rest added up.
        kept, won = self.winners(indices, x.aval, updates.aval)
        prim = _as_scatter_add(self)
        none = _additive_identity(x.aval)
        out = bind1(
            prim, select_with_aval(kept, x, none, x.aval), indices, select_with_aval(won, updates, none, updates.aval)
        )
        tangent = bind1(
            prim, select_with_aval(kept, x_t, 0, x_t.aval), indices, select_with_aval(won, updates_t, 0, updates_t.aval)
        )
        return [out], [tangent]

    def winners(self, indices: Value, x: ShapedArray, updates: ShapedArray) -> tuple[Array, Array]:
        """Which elements of the operand stay, and which of the updates win: found by scattering their numbers."""
        count = updates.size
        dtype = dtypes.uint32 if count < 2**32 - 1 else dtypes.uint64
        numbers = reshape(add(iota(dtype, count), 1), updates.shape)
        winners = bind1(self, full_like_aval(ShapedArray(x.shape, dtype), 0), indices, numbers)
        read = bind1(self.matching_gather(x.shape, updates.shape), winners, indices)
        return eq(winners, full_like_aval(winners.aval, 0)), eq(read, numbers)

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        (ct,), (x, indices, updates) = cts, args
        assert not isinstance(ct, Zero)
        assert not isinstance(indices, UndefinedPrimal)
        if self.unique_indices:
            kept, won = None, None
        else:
            kept, won = self.winners(indices, x.aval, updates.aval)
        of_x: Tangent | None = None
        of_updates: Tangent | None = None
        if isinstance(x, UndefinedPrimal):
            zeros = full_like_aval(ShapedArray(updates.aval.shape, ct.aval.dtype, ct.aval.weak_type), 0)
            of_x = bind1(self, ct, indices, zeros) if kept is None else select_with_aval(kept, ct, 0, ct.aval)
            of_x = match_aval(of_x, x.aval)
        if isinstance(updates, UndefinedPrimal):
            found = bind1(self.matching_gather(x.aval.shape, updates.aval.shape), ct, indices)
            of_updates = match_aval(found if won is None else select_with_aval(won, found, 0, found.aval), updates.aval)
        return [of_x, None, of_updates]


def _additive_identity(aval: ShapedArray) -> Array:
    """What adds nothing to anything, not even to a zero of negative sign."""
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
    """`operand` with `updates` in its windows at the places that `scatter_indices` (`i32[..., k]`) names.

    A window that is not within the operand is left out, or with `mode="clip"` moved to the nearest place within it.
    Of several updates of one place one wins; which one is left open.

    >>> rows = ScatterDimensionNumbers((1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> scatter(np.zeros((3, 2)), np.array([[2], [0]]), np.array([[1.0, 2.0], [3.0, 4.0]]), rows).tolist()
    [[3.0, 4.0], [0.0, 0.0], [1.0, 2.0]]
    """
    prim = Scatter(*scatter_params("scatter", dimension_numbers, indices_are_sorted, unique_indices, mode))
    return bind1(prim, operand, scatter_indices, updates)


# ------------------------------------------------------------------ scatter_sub


@final
class ScatterSub(ScatterOperation, Transposable):
    __slots__ = ()
    name = "scatter-sub"
    function = "scatter_sub"
    takes = NUMBERS

    @override
    def merge(self, old: NDArray, new: NDArray) -> NDArray:
        return old - new

    @override
    def merge_at(self, out: NDArray, places: NDArray, new: NDArray) -> None:
        np.subtract.at(out, places, new)

    @override
    def emit_merged(self, builder: Builder, element: ShapedArray, old: IrValue, new: IrValue) -> IrValue:
        return builder.emit("stablehlo.subtract", [old, new], [element])[0]

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        x_t, _, updates_t = tangents
        if isinstance(x_t, Zero) and isinstance(updates_t, Zero):
            return [out], [Zero(out.aval.tangent())]
        return [out], [bind1(self, instantiate(x_t), primals[1], instantiate(updates_t))]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        updates = args[2]
        of_x, _, added = _as_scatter_add(self).transpose(cts, *args)
        return [of_x, None, None if added is None or isinstance(added, Zero) else match_aval(neg(added), updates.aval)]


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
    """`operand` with `updates` subtracted from its windows at the places that `scatter_indices` names, all of them.

    A window that is not within the operand is left out, or with `mode="clip"` moved to the nearest place within it.

    >>> rows = ScatterDimensionNumbers((1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> scatter_sub(np.ones((3, 1)), np.array([[2], [2]]), np.full((2, 1), 3.0), rows).tolist()
    [[1.0], [1.0], [-5.0]]
    """
    prim = ScatterSub(*scatter_params("scatter_sub", dimension_numbers, indices_are_sorted, unique_indices, mode))
    return bind1(prim, operand, scatter_indices, updates)


# ------------------------------------------------------------------ scatter_mul


@final
class ScatterMul(ScatterOperation, Transposable):
    __slots__ = ()
    name = "scatter-mul"
    function = "scatter_mul"
    takes = NUMBERS

    @override
    def merge(self, old: NDArray, new: NDArray) -> NDArray:
        return old * new

    @override
    def merge_at(self, out: NDArray, places: NDArray, new: NDArray) -> None:
        np.multiply.at(out, places, new)

    @override
    def emit_merged(self, builder: Builder, element: ShapedArray, old: IrValue, new: IrValue) -> IrValue:
        return builder.emit("stablehlo.multiply", [old, new], [element])[0]

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        x, indices, updates = primals
        x_t, _, updates_t = tangents
        total: Value | None = None
        if not isinstance(x_t, Zero):
            total = bind1(self, x_t, indices, updates)
        if not isinstance(updates_t, Zero):
            found = bind1(self.matching_gather(x.aval.shape, updates.aval.shape), x, indices)
            if not self.unique_indices:
                found = mul(found, product_of_others(self, x.aval, indices, updates))
            start = full_like_aval(out.aval.tangent(), 0) if total is None else total
            total = bind1(_as_scatter_add(self), start, indices, mul(found, updates_t))
        return [out], [Zero(out.aval.tangent()) if total is None else match_aval(total, out.aval.tangent())]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        (ct,), (x, indices, updates) = cts, args
        assert not isinstance(ct, Zero)
        assert not isinstance(indices, UndefinedPrimal)
        if isinstance(updates, UndefinedPrimal):
            assert not isinstance(x, UndefinedPrimal)
            if not self.unique_indices:  # it is linear in each of several updates of a place, but not in all together
                raise not_linear_error(self)
            found = bind1(self.matching_gather(x.aval.shape, updates.aval.shape), mul(ct, x), indices)
            return [None, None, match_aval(found, updates.aval)]
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
    """`operand` with its windows at the places that `scatter_indices` names multiplied by `updates`, all of them.

    A window that is not within the operand is left out, or with `mode="clip"` moved to the nearest place within it.
    Derivatives by `updates` are faster with the promise `unique_indices=True`: without it updates are sorted.

    >>> rows = ScatterDimensionNumbers((1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> scatter_mul(np.ones((3, 1)), np.array([[2], [2]]), np.full((2, 1), 3.0), rows).tolist()
    [[1.0], [1.0], [9.0]]
    """
    prim = ScatterMul(*scatter_params("scatter_mul", dimension_numbers, indices_are_sorted, unique_indices, mode))
    return bind1(prim, operand, scatter_indices, updates)


# ------------------------------------------------------------------ scatter_min, scatter_max


class ScatterExtremum(ScatterOperation):
    """Keeps one of all elements that meet at a place. Those that are equal to it share its tangent."""

    __slots__ = ()
    takes = _ORDERED
    direction: ClassVar[str]

    @property
    @abstractmethod
    def ufunc(self) -> np.ufunc:
        raise NotImplementedError

    @override
    def merge_at(self, out: NDArray, places: NDArray, new: NDArray) -> None:
        if dtypes.is_complex(out.dtype):  # which NumPy orders otherwise
            for place, element in zip(places.tolist(), new, strict=True):
                out[place] = self.merge(out[place], element)
            return
        old = out.copy()
        self.ufunc.at(out, places, new)
        if dtypes.is_float(out.dtype) and (zeros := out == 0).any():  # of which NumPy takes either
            favoured = self.direction == "LT"  # the sign bit of the zero that wins
            has = (old == 0) & (np.signbit(old) == favoured)
            np.logical_or.at(has, places, (new == 0) & (np.signbit(new) == favoured))
            winner, loser = (-0.0, 0.0) if favoured else (0.0, -0.0)
            out[zeros] = np.where(has[zeros], winner, loser).astype(out.dtype)

    @override
    def emit_merged(self, builder: Builder, element: ShapedArray, old: IrValue, new: IrValue) -> IrValue:
        return emit_min_max(builder, self.direction, element, old, new)

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
        shares = bind1(prim, convert(kept, aval.dtype), indices, convert(won, aval.dtype))
        x_t, updates_t = instantiate(match_aval(x_t, aval)), instantiate(updates_t)
        total = bind1(
            prim, select_with_aval(kept, x_t, 0, aval), indices, select_with_aval(won, updates_t, 0, updates_t.aval)
        )
        # Where NaN is kept nothing is equal to it.
        return [out], [match_aval(div(total, max(shares, broadcast_to(_one(shares.aval), shares.shape))), aval)]


def _one(aval: ShapedArray) -> Array:
    return full_like_aval(ShapedArray((), aval.dtype), 1)


@final
class ScatterMin(ScatterExtremum):
    __slots__ = ()
    name = "scatter-min"
    function = "scatter_min"
    direction = "LT"
    ufunc = np.minimum

    @override
    def merge(self, old: NDArray, new: NDArray) -> NDArray:
        return minimum(old, new)


@final
class ScatterMax(ScatterExtremum):
    __slots__ = ()
    name = "scatter-max"
    function = "scatter_max"
    direction = "GT"
    ufunc = np.maximum

    @override
    def merge(self, old: NDArray, new: NDArray) -> NDArray:
        return maximum(old, new)


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
    """`operand`, in its windows at the places that `scatter_indices` names the least of what is there and `updates`.

    NaN wins. A window that is not within the operand is left out, or with `mode="clip"` moved to the nearest place
    within it.

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
    """`operand`, in its windows at the places that `scatter_indices` names the greatest of what is there and `updates`.

    NaN wins. A window that is not within the operand is left out, or with `mode="clip"` moved to the nearest place
    within it.

    >>> rows = ScatterDimensionNumbers((1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> scatter_max(np.ones((3, 1)), np.array([[2], [2]]), np.array([[3.0], [-1.0]]), rows).tolist()
    [[1.0], [1.0], [3.0]]
    """
    prim = ScatterMax(*scatter_params("scatter_max", dimension_numbers, indices_are_sorted, unique_indices, mode))
    return bind1(prim, operand, scatter_indices, updates)
