"""`ragged_dot_general` and `ragged_dot`: contractions with an axis partitioned into groups of different sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, unique
from typing import Final, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, DTypeLike, ShapedArray, Value, dtypes
from tracefx.core.avals import Dimensions
from tracefx.core.handler import bind1
from tracefx.core.named_sharding import OutSharding
from tracefx.core.primitive import Batchable, BatchDims, Expandable, MappedAxis, Tangent
from tracefx.ops.contractions.bilinear import Bilinear
from tracefx.ops.contractions.contraction import (
    DotDimensionNumbers,
    DotGeneral,
    DotPrecision,
    PrecisionLike,
    canonicalize_dot_precision,
)
from tracefx.ops.elementwise.arithmetic import sub
from tracefx.ops.elementwise.bitwise import bitwise_and
from tracefx.ops.elementwise.comparison import ge, lt
from tracefx.ops.elementwise.selection import select_n
from tracefx.ops.operation import memoize_aval, require_arity, run_compiled
from tracefx.ops.reductions.cumulative import cumsum
from tracefx.ops.shape.array_creation import broadcasted_iota
from tracefx.ops.static_integers import static_ints
from tracefx.ops.structural import (
    batch_first,
    broadcast_in_dim,
    constant_like_aval,
    convert,
    match_aval,
    move_axis,
    transpose,
)
from tracefx.text.printer import HasJaxParams


def _both(spec: DotDimensionNumbers) -> tuple[tuple[Dimensions, Dimensions], tuple[Dimensions, Dimensions]]:
    """Returns contracting and batch axes as tuples of Python integers."""
    (lc, rc), (lb, rb) = spec
    name, what = "ragged_dot_general", "dot_dimension_numbers"
    return (
        (static_ints(name, lc, what), static_ints(name, rc, what)),
        (static_ints(name, lb, what), static_ints(name, rb, what)),
    )


def _axes(spec: Sequence[int]) -> Dimensions:
    return static_ints("ragged_dot_general", tuple(spec), "dimensions")


@final
@frozen
class RaggedDotDimensionNumbers:
    """The axes of a `ragged_dot_general`."""

    dot_dimension_numbers: tuple[tuple[Dimensions, Dimensions], tuple[Dimensions, Dimensions]] = field(converter=_both)
    """The axes to contract and to map over, as in `dot_general`."""
    lhs_ragged_dimensions: Dimensions = field(converter=_axes)
    """The axis of `lhs` that is partitioned into groups."""
    rhs_group_dimensions: Dimensions = field(converter=_axes)
    """The axis of `rhs` with one entry per group, if any."""


@unique
class _RaggedMode(Enum):
    """The kind of the ragged axis."""

    FREE = 0
    """A free axis: each group is multiplied with its own entry of `rhs`."""
    CONTRACTED = 1
    """A contracting axis: each group is summed separately, along a new first axis of the result."""
    MAPPED = 2
    """A batch axis: the groups have no effect."""


@final
@frozen(eq=False)
class RaggedDotGeneral(Bilinear, Batchable, Expandable, HasJaxParams):
    """A contraction of two arrays with an axis of `lhs`, the ragged axis, that is partitioned into consecutive groups.

    `group_sizes` are the sizes of the groups: one vector, or one for each index before the ragged axis. If the ragged
    axis is a free axis, as in the type below, each group is multiplied with its own entry of `rhs`; if it is
    contracted, each group is summed separately, along a new first axis of the result; if it is a batch axis, groups
    have no effect.

    Args:
        ragged_dot_dimension_numbers: The axes to contract and to map over, the ragged axis, and the group axis of
            `rhs`.
        precision: How accurately accelerators multiply: a pair of `Precision`, an algorithm, or None (default) for the
            platform's default.
        preferred_element_type: The dtype of the result; None, the default, means the common dtype of the operands.

    `lhs: f32[b, m, k], rhs: f32[g, k, n], group_sizes: i32[b, g] -> f32[b, m, n]`, any dtypes; `group_sizes` are
    integers. Bound by `lax.ragged_dot_general` and `lax.ragged_dot`.

    >>> from tracefx import bind, lax, numpy, ops
    >>> prim = ops.RaggedDotGeneral(lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,)))
    >>> bind(prim, numpy.array([[1.0], [2.0]]), numpy.array([[[3.0]], [[5.0]]]), numpy.array([1, 1]))[0].tolist()
    [[3.0], [10.0]]
    """

    name = "ragged_dot_general"
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers
    precision: DotPrecision = field(default=None, metadata={"hide_default": True})
    preferred_element_type: DType | None = field(default=None, metadata={"hide_default": True})

    @override
    def jax_params(self) -> Mapping[str, object]:
        names = ("ragged_dot_dimension_numbers", "precision", "preferred_element_type")
        return {**{name: getattr(self, name) for name in names}, "group_offset": None, "out_sharding": None}

    # ------------------------------------------------------------------ types

    @property
    def dot(self) -> DotGeneral:
        """The contraction without groups."""
        numbers = self.ragged_dot_dimension_numbers.dot_dimension_numbers
        return DotGeneral(numbers, self.precision, self.preferred_element_type)

    @property
    def ragged_axis(self) -> int:
        """The axis of `lhs` that is partitioned."""
        return self.ragged_dot_dimension_numbers.lhs_ragged_dimensions[0]

    @property
    def mode(self) -> _RaggedMode:
        (lc, _), (lb, _) = self.ragged_dot_dimension_numbers.dot_dimension_numbers
        return (
            _RaggedMode.CONTRACTED
            if self.ragged_axis in lc
            else _RaggedMode.MAPPED
            if self.ragged_axis in lb
            else _RaggedMode.FREE
        )

    def free_axes(self, side: int, ndim: int) -> list[int]:
        """Returns the axes of an operand that are neither contracted, nor batch axes, nor the group axis.

        Args:
            side: The operand: 0 for `lhs`, 1 for `rhs`.
            ndim: Its rank.

        Returns:
            The axes in increasing order.
        """
        contracted, mapped = self.ragged_dot_dimension_numbers.dot_dimension_numbers
        used = {*contracted[side], *mapped[side], *(self.ragged_dot_dimension_numbers.rhs_group_dimensions * side)}
        return [d for d in range(ndim) if d not in used]

    def group_size_axes(self, ndim: int) -> list[int]:
        """Returns the axes of `lhs` for each index of which group sizes may differ.

        Args:
            ndim: The rank of `lhs`.

        Returns:
            The batch axes, then those before the ragged axis.
        """
        (lc, _), (lb, _) = self.ragged_dot_dimension_numbers.dot_dimension_numbers
        axes: Sequence[int]
        match self.mode:
            case _RaggedMode.FREE:
                axes = self.free_axes(0, ndim)
            case _RaggedMode.CONTRACTED:
                axes = lc
            case _RaggedMode.MAPPED:
                return list(lb[: lb.index(self.ragged_axis)])
        return [*lb, *axes[: axes.index(self.ragged_axis)]]

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        require_arity(self.name, 3, avals)
        return [self.out_aval(*avals)]

    @memoize_aval("ragged_dot_dimension_numbers", "precision", "preferred_element_type")
    def out_aval(self, lhs: ShapedArray, rhs: ShapedArray, sizes: ShapedArray) -> ShapedArray:
        """Returns the type of the result.

        Args:
            lhs: The type of the operand with the ragged axis.
            rhs: The type of the other operand.
            sizes: The type of the group sizes.

        Returns:
            The type.

        Raises:
            TypeError: The dimension numbers or the group sizes do not fit the operands.
        """
        numbers = self.ragged_dot_dimension_numbers
        if not dtypes.is_integer(sizes.dtype):
            raise TypeError(f"ragged_dot_general: group_sizes must be integers, got {sizes}")
        if not sizes.ndim:
            raise TypeError("ragged_dot_general: group_sizes must have an axis for the groups, got a scalar")
        if len(numbers.lhs_ragged_dimensions) != 1 or not 0 <= self.ragged_axis < lhs.ndim:
            raise TypeError(
                "ragged_dot_general: lhs_ragged_dimensions must be one non-negative axis of lhs, got "
                f"{numbers.lhs_ragged_dimensions} for {lhs}"
            )
        groups, mode, of_groups = sizes.shape[-1], self.mode, numbers.rhs_group_dimensions
        if len(of_groups) != (mode is _RaggedMode.FREE):
            raise TypeError(
                "ragged_dot_general: rhs_group_dimensions must be one axis of rhs if the ragged axis of lhs is "
                f"neither contracting nor a batch axis, else none, got {of_groups}"
            )
        for d in of_groups:
            if d not in range(rhs.ndim) or rhs.shape[d] != groups or d in self._contracted_or_batch_of_rhs:
                raise TypeError(
                    f"ragged_dot_general: rhs_group_dimensions must be an axis of rhs of size {groups}, that of "
                    f"group_sizes, neither contracting nor a batch axis, got {of_groups} for {rhs}"
                )
        one_group = rhs.update(shape=tuple([n for d, n in enumerate(rhs.shape) if d not in of_groups]))
        out = self._dot_without_groups.out_aval(lhs, one_group)
        expected = (*[lhs.shape[d] for d in self.group_size_axes(lhs.ndim)], groups)
        if sizes.ndim > 1 and sizes.shape != expected:
            raise TypeError(
                f"ragged_dot_general: group_sizes must have shape {(groups,)} or, for each index of lhs before the "
                f"ragged axis, {expected}, got {sizes}"
            )
        return out.update(shape=(groups, *out.shape)) if mode is _RaggedMode.CONTRACTED else out

    @property
    def _contracted_or_batch_of_rhs(self) -> set[int]:
        (_, rc), (_, rb) = self.ragged_dot_dimension_numbers.dot_dimension_numbers
        return {*rc, *rb}

    @property
    def _dot_without_groups(self) -> DotGeneral:
        """The contraction with the entry of `rhs` for one group."""
        (lc, rc), (lb, rb) = self.dot.dimension_numbers
        dropped = self.ragged_dot_dimension_numbers.rhs_group_dimensions
        rc, rb = [tuple([d - sum(g < d for g in dropped) for d in axes]) for axes in (rc, rb)]
        return evolve(self.dot, dimension_numbers=((lc, rc), (lb, rb)))

    # ------------------------------------------------------------------ expansion

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return run_compiled(self, args)

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        lhs, rhs, sizes = args
        (lc, rc), (lb, rb) = self.dot.dimension_numbers
        before = self.group_size_axes(lhs.aval.ndim)
        if sizes.aval.ndim == 1 and before:
            shape = (*[lhs.aval.shape[d] for d in before], *sizes.aval.shape)
            sizes = broadcast_in_dim(sizes, shape, (len(before),))
        left = _shift_axes(lc), _shift_axes(lb)
        match self.mode:
            case _RaggedMode.MAPPED:
                return [bind1(self.dot, lhs, rhs)]
            case _RaggedMode.FREE:
                (group,) = self.ragged_dot_dimension_numbers.rhs_group_dimensions
                numbers = ((*left[0], 0), (*rc, group)), (left[1], rb)
                grouped = _mask_by_group(lhs, self.ragged_axis, sizes, before)
                return [bind1(evolve(self.dot, dimension_numbers=numbers), grouped, rhs)]
            case _RaggedMode.CONTRACTED:
                position = lc.index(self.ragged_axis)
                numbers = (left[0], _shift_axes(rc)), ((0, *left[1]), (0, *_shift_axes(rb)))
                # Both operands are masked, so that infinities outside of the group have no effect.
                x = _mask_by_group(lhs, self.ragged_axis, sizes, before)
                y = _mask_by_group(rhs, rc[position], sizes, [*rb, *rc[:position]])
                return [bind1(evolve(self.dot, dimension_numbers=numbers), x, y)]

    # ------------------------------------------------------------------ derivatives

    @override
    def transpose_lhs(self, ct: Value, x: ShapedArray, y: Value, *others: Value) -> Tangent:
        (sizes,) = others
        (xc, yc), (xb, yb) = self.dot.dimension_numbers
        free, other = self.free_axes(0, x.ndim), self.free_axes(1, y.aval.ndim)
        batch, mapped = tuple(range(len(xb))), len(xb)
        match self.mode:
            case _RaggedMode.MAPPED:
                return self.dot.transpose_lhs(ct, x, y)
            case _RaggedMode.FREE:
                last = tuple(range(mapped + len(free), ct.aval.ndim))
                position, groups = (
                    mapped + free.index(self.ragged_axis),
                    self.ragged_dot_dimension_numbers.rhs_group_dimensions,
                )
                prim = self._with_dimension_numbers(((last, tuple(other)), (batch, yb)), position, groups)
                order = [*xb, *free, *[xc[i] for i in sorted(range(len(yc)), key=yc.__getitem__)]]
                return match_aval(_permute_to(bind1(prim, ct, y, sizes), order), x)
            case _RaggedMode.CONTRACTED:
                # Multiplies `y`, partitioned along the contracting axis, with the part of `ct` for each group.
                rows = transpose(y, [*yb, *yc, *other])
                ends = tuple(range(mapped + len(yc), rows.ndim))
                matching = tuple(range(1 + mapped + len(free), ct.aval.ndim))
                mapping = batch, tuple([d + 1 for d in batch])
                prim = self._with_dimension_numbers(
                    ((ends, matching), mapping), mapped + xc.index(self.ragged_axis), (0,)
                )
                return match_aval(_permute_to(bind1(prim, rows, ct, sizes), [*xb, *xc, *free]), x)

    @override
    def transpose_rhs(self, ct: Value, x: Value, y: ShapedArray, *others: Value) -> Tangent:
        (sizes,) = others
        (xc, yc), (xb, yb) = self.dot.dimension_numbers
        free, other = self.free_axes(0, x.aval.ndim), self.free_axes(1, y.ndim)
        batch, mapped = tuple(range(len(xb))), len(xb)
        match self.mode:
            case _RaggedMode.MAPPED:
                return self.dot.transpose_rhs(ct, x, y)
            case _RaggedMode.FREE:
                contracted = tuple(free), tuple(range(mapped, mapped + len(free)))
                prim = self._with_dimension_numbers((contracted, (xb, batch)), self.ragged_axis, ())
                groups = self.ragged_dot_dimension_numbers.rhs_group_dimensions
                order = [*groups, *yb, *[yc[i] for i in sorted(range(len(xc)), key=xc.__getitem__)], *other]
                return match_aval(_permute_to(bind1(prim, x, ct, sizes), order), y)
            case _RaggedMode.CONTRACTED:
                rows = transpose(x, [*xb, *xc, *free])
                ends = tuple(range(mapped + len(xc), rows.ndim))
                matching = tuple(range(1 + mapped, 1 + mapped + len(free)))
                mapping = batch, tuple([d + 1 for d in batch])
                prim = self._with_dimension_numbers(
                    ((ends, matching), mapping), mapped + xc.index(self.ragged_axis), (0,)
                )
                return match_aval(_permute_to(bind1(prim, rows, ct, sizes), [*yb, *yc, *other]), y)

    def _with_dimension_numbers(
        self, numbers: DotDimensionNumbers, ragged: int, groups: Dimensions
    ) -> RaggedDotGeneral:
        return evolve(self, ragged_dot_dimension_numbers=RaggedDotDimensionNumbers(numbers, (ragged,), groups))

    # ------------------------------------------------------------------ batching

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        lhs, rhs, sizes = args
        (lc, rc), (lb, rb) = self.dot.dimension_numbers
        groups = self.ragged_dot_dimension_numbers.rhs_group_dimensions
        extra = self.mode is _RaggedMode.CONTRACTED
        if dims[0] is None and dims[2] is None:  # the batch axis becomes the first free axis of `rhs`
            numbers = (lc, _shift_axes(rc)), (lb, _shift_axes(rb))
            prim = self._with_dimension_numbers(numbers, self.ragged_axis, _shift_axes(groups))
            out = bind1(prim, lhs, batch_first(rhs, dims[1], axis), sizes)
            return [out], [extra + lhs.aval.ndim - len(lc)]
        ragged = self.ragged_axis + 1
        x = batch_first(lhs, dims[0], axis)
        if dims[1] is None and self.mode is _RaggedMode.FREE:  # the batch axis becomes a free axis of `lhs`
            prim = self._with_dimension_numbers(((_shift_axes(lc), rc), (_shift_axes(lb), rb)), ragged, groups)
            return [bind1(prim, x, rhs, self._batched_sizes(sizes, dims[2], x, len(lb), axis))], [len(lb)]
        numbers = (_shift_axes(lc), _shift_axes(rc)), ((0, *_shift_axes(lb)), (0, *_shift_axes(rb)))
        prim = self._with_dimension_numbers(numbers, ragged, _shift_axes(groups))
        y = batch_first(rhs, dims[1], axis)
        return [bind1(prim, x, y, self._batched_sizes(sizes, dims[2], x, 0, axis))], [int(extra)]

    def _batched_sizes(self, sizes: Value, dim: int | None, lhs: Value, position: int, axis: MappedAxis) -> Value:
        """Returns the group sizes for an `lhs` with its batch axis in front; their own is at `position`."""
        plain = sizes.aval.ndim - (dim is not None) == 1
        if dim is None and plain:
            return sizes
        batched = batch_first(sizes, dim, axis)
        if not plain:
            return move_axis(batched, 0, position)
        shape = [lhs.aval.shape[1 + d] for d in self.group_size_axes(lhs.aval.ndim - 1)]
        shape.insert(position, axis.size)
        return broadcast_in_dim(batched, (*shape, batched.shape[-1]), (position, len(shape)))


def _shift_axes(axes: Dimensions) -> Dimensions:
    """Returns the axes of an array with a new leading axis."""
    return tuple([d + 1 for d in axes])


def _permute_to(x: Value, order: Sequence[int]) -> Array:
    """Returns `x`, transposed so that its axis `i` becomes axis `order[i]`."""
    return transpose(x, sorted(range(len(order)), key=order.__getitem__))


def _mask_by_group(x: Value, axis: int, sizes: Value, before: Sequence[int]) -> Array:
    """Returns a copy of `x` for each group, along a new first axis, with zeros outside of the group."""
    shape = (sizes.aval.shape[-1], *x.aval.shape)
    last = sizes.aval.ndim - 1
    if dtypes.itemsize_bits(sizes.aval.dtype) < 32:
        sizes = convert(sizes, dtypes.int32)
    ends = cumsum(sizes, last)
    starts = sub(ends, sizes)
    order = [last, *[before.index(d) for d in sorted(before)]]
    out_axes = [0, *[d + 1 for d in sorted(before)]]
    index = broadcasted_iota(sizes.aval.dtype, shape, axis + 1)
    first, end = [broadcast_in_dim(transpose(bound, order), shape, out_axes) for bound in (starts, ends)]
    inside = bitwise_and(ge(index, first), lt(index, end))
    each = broadcast_in_dim(x, shape, range(1, len(shape)))
    return select_n(inside, constant_like_aval(each.aval, 0), each)


# ------------------------------------------------------------------ functions

_RAGGED_ROWS: Final = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))


def ragged_dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: ArrayLike | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Returns a contraction with an axis of `lhs` that is partitioned into consecutive groups.

    If the ragged axis is free, each group is multiplied with its own entry of `rhs`; results beyond the last group are
    zero. If it is contracting, each group is summed separately, and the result has a new first axis for the groups. If
    it is a batch axis, the groups have no effect.

    Args:
        lhs: Array.
        rhs: Array.
        group_sizes: Integers `[groups]`: the sizes of consecutive groups. Or separate sizes for each index of the axes
            before the ragged one: the batch axes, then those of its own kind.
        ragged_dot_dimension_numbers: The axes to contract and to map over, the ragged axis of `lhs`, and the axis of
            `rhs` with one entry per group.
        precision: As in `dot_general`. None by default.
        preferred_element_type: The dtype of the result and of the accumulation. None, the default, means the operands'.
        group_offset: Not supported; must be None.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array, with axes as in `dot_general`.

    Raises:
        NotImplementedError: `group_offset` is given.
        TypeError: Dimension numbers, shapes or group sizes don't fit.

    >>> import numpy as np
    >>> numbers = RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), (0,), ())
    >>> ragged_dot_general(np.ones((3, 1)), np.ones((3, 1)), np.array([1, 2]), numbers).tolist()
    [[[1.0]], [[2.0]]]
    """
    if group_offset is not None:
        raise NotImplementedError(
            "ragged_dot_general: group_offset is not supported; pass only the groups to compute and their sizes"
        )
    new = None if preferred_element_type is None else dtypes.as_dtype(preferred_element_type, "preferred_element_type")
    prim = RaggedDotGeneral(
        ragged_dot_dimension_numbers, canonicalize_dot_precision("ragged_dot_general", precision), new
    )
    return bind1(prim, lhs, rhs, group_sizes)


def ragged_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: ArrayLike | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Returns the rows of `lhs`, partitioned into groups, each multiplied with its own matrix.

    Args:
        lhs: The rows, `[m, k]`.
        rhs: The matrices, `[groups, k, n]`.
        group_sizes: Integers `[groups]`: the number of rows of each group.
        precision: As in `ragged_dot_general`. None by default.
        preferred_element_type: As in `ragged_dot_general`. None by default.
        group_offset: Not supported; must be None.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array `[m, n]`; rows beyond the last group are zero.

    Raises:
        NotImplementedError: `group_offset` is given.
        TypeError: Shapes or group sizes don't fit.

    >>> import numpy as np
    >>> rows, matrices = np.ones((3, 1), np.float32), np.array([[[1]], [[10]]], np.float32)
    >>> ragged_dot(rows, matrices, np.array([2, 1])).tolist()
    [[1.0], [1.0], [10.0]]
    """
    return ragged_dot_general(
        lhs, rhs, group_sizes, _RAGGED_ROWS, precision, preferred_element_type, group_offset=group_offset
    )
