"""Methods of universal functions: `reduce`, `accumulate`, `at`, `reduceat`, `outer`.

`add` and the like are plain functions, without extra cost per call, that have these methods as attributes; `ufunc`
makes universal functions from functions of scalars.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, SupportsIndex, cast, final

from tracefx import lax
from tracefx.core import Array, ArrayLike, AxisLike, DType, DTypeLike, ShapedArray, Value, as_value, dtypes
from tracefx.core.array import Index
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import (
    broadcast_operand_shapes,
    convert_dtype,
    convert_operand,
    reject_out,
    rounded_literal,
)
from tracefx.ops import structural
from tracefx.ops.elementwise import selection
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import canonicalize_axes, canonicalize_axis, is_sequence_like
from tracefx.transforms.shape_dtype_struct import ShapeDtypeStruct
from tracefx.transforms.staging import eval_shape

if TYPE_CHECKING:
    from tracefx.numpy.ufunc_types import (
        BinaryFunction,
        InitialValue,
        UfuncAccumulation,
        UfuncIdentity,
        UfuncReduction,
        UnaryFunction,
    )


@final
class UfuncMethods:
    """The methods of a universal function, generic or by a specialized implementation."""

    __slots__ = ("reduction", "function", "identity", "name", "nin", "nout", "accumulation", "update")

    def __init__(
        self,
        function: Callable[..., Array],
        name: str,
        nin: int,
        nout: int,
        identity: UfuncIdentity = None,
        folded: UfuncReduction | None = None,
        so_far: UfuncAccumulation | None = None,
        update: str | None = None,
    ) -> None:
        """Sets the function and its properties.

        `folded` and `so_far` are specialized reductions and accumulations; `update` is the name of the corresponding
        method of `x.at[index]`. None means the generic implementation.
        """
        self.function = function
        self.name = name
        self.nin, self.nout = nin, nout
        self.identity = identity
        self.reduction, self.accumulation = folded, so_far
        self.update = update

    def reduce(
        self,
        a: ArrayLike,
        axis: AxisLike = 0,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array:
        """Reduces axes by applying the function to their elements from the first to the last.

        Args:
            a: The array.
            axis: The axis or axes to reduce; None means all.
            dtype: The dtype of the result; None means that of the function's results.
            out: Not supported; must be None.
            keepdims: Whether to keep the reduced axes with size 1.
            initial: The value to begin with; None means the identity of the function, or the first element.
            where: A mask of the elements to include, which needs an identity or `initial`; None includes all.

        Raises:
            ValueError: If the function is not binary, there are no elements and no identity, or `where` does not fit.
        """
        self._require_binary("reduce", out)
        x = as_value(a, f"{self.name}.reduce: a")
        if where is not None:
            if self.identity is None and initial is None:
                raise ValueError(f"{self.name}.reduce: {self.name} has no identity, so where needs initial")
            if not dtypes.is_bool(as_value(where, f"{self.name}.reduce: where").aval.dtype):
                raise ValueError(f"{self.name}.reduce: where must be bools, got {as_value(where).aval}")
        if self.reduction is not None:
            return self.reduction(x, axis, dtype, keepdims, initial, where)
        return self._reduce_by_scan(x, axis, dtype, keepdims, initial, where)

    def _reduce_by_scan(
        self,
        x: Value,
        axis: AxisLike,
        dtype: DTypeLike | None,
        keepdims: bool,
        initial: ArrayLike | None,
        where: ArrayLike | None,
    ) -> Array:
        """Reduces by a scan over the elements."""
        ndim, sizes = x.aval.ndim, x.aval.shape
        over = range(ndim) if axis is None else axis if is_sequence_like(axis) else [axis]
        along = canonicalize_axes(f"{self.name}.reduce", over, ndim, "axis")
        result = self._result_dtype(x, dtype, f"{self.name}.reduce")
        remaining_shape = [n for i, n in enumerate(sizes) if i not in along]
        count = math.prod([sizes[i] for i in along])
        first = self.identity if initial is None else initial
        if first is None and not count:
            raise ValueError(f"{self.name}.reduce: {x.aval} has no elements, and {self.name} has no identity")
        order = [*along, *[i for i in range(ndim) if i not in along]]
        rows = as_array(
            convert_dtype(structural.reshape(structural.transpose(x, order), (count, *remaining_shape)), result)
        )
        kept = [1 if i in along else n for i, n in enumerate(sizes)] if keepdims else remaining_shape
        if first is None:
            start, rows = shape.squeeze(shape.slice_axis(rows, 0, 1, 0), (0,)), shape.slice_axis(rows, 1, count, 0)
        else:
            start = as_array(
                structural.broadcast_to(
                    convert_operand(first, result, what=f"{self.name}.reduce: initial"), tuple(remaining_shape)
                )
            )
        if where is None:
            total, _ = lax.scan(lambda carry, row: (self._combine(carry, row), None), start, rows)
        else:
            masks = structural.reshape(
                structural.transpose(_broadcast_aligned(as_value(where), sizes), order), (count, *remaining_shape)
            )
            total, _ = lax.scan(
                lambda carry, row: (selection.select_n(row[1], carry, self._combine(carry, row[0])), None),
                start,
                (rows, masks),
            )
        return structural.reshape(total, kept)

    def _combine(self, x: Array, y: Array) -> Array:
        """Returns the function of two values in the dtype of the first."""
        return as_array(convert_dtype(self.function(x, y), x.dtype, x.weak_type))

    def accumulate(
        self, a: ArrayLike, axis: SupportsIndex | None = 0, dtype: DTypeLike | None = None, out: None = None
    ) -> Array:
        """Returns the reductions of the first element, the first two, and so on along an axis.

        The arguments are those of `reduce`; `axis` must be one axis, or None for all elements as a vector.
        """
        self._require_binary("accumulate", out)
        x = as_value(a, f"{self.name}.accumulate: a")
        if axis is None:
            x, axis = structural.reshape(x, (x.aval.size,)), 0
        along = canonicalize_axis(f"{self.name}.accumulate", axis, x.aval.ndim)
        if self.accumulation is not None:
            return self.accumulation(x, along, dtype)
        result = self._result_dtype(x, dtype, f"{self.name}.accumulate")
        if not x.aval.size:
            return structural.full_like_aval(ShapedArray(x.aval.shape, result), 0)
        rows = structural.move_axis(convert_dtype(x, result), along, 0)
        first = shape.slice_axis(rows, 0, 1, 0)

        def step(carry: Array, row: Array) -> tuple[Array, Array]:
            total = self._combine(carry, row)
            return total, total

        _, following = lax.scan(step, shape.squeeze(first, (0,)), shape.slice_axis(rows, 1, rows.shape[0], 0))
        return structural.move_axis(shape.concatenate([first, following], 0), 0, along)

    def at(self, a: ArrayLike, indices: Index, b: ArrayLike | None = None, /, *, inplace: bool = True) -> Array:
        """Returns `a` with the function applied at an index, once for each time that the index names an element.

        Args:
            a: The array.
            indices: The index, as in `a[indices]`.
            b: The second operand of a binary function, broadcast to `a[indices]`; None for a unary function.
            inplace: Must be False, since arrays are immutable.

        Raises:
            NotImplementedError: If `inplace` is True.
            TypeError: If `b` is missing or superfluous.
        """
        if inplace:
            raise NotImplementedError(f"{self.name}.at: arrays are immutable; pass inplace=False and use the result")
        x = as_array(as_value(a, f"{self.name}.at: a"))
        indexed = x.at[indices]
        if (b is None) is (self.nin == 2):
            expectation = "given" if b is None else "left out"
            raise TypeError(f"{self.name}.at: {self.name} takes {self.nin} arrays, so b must be {expectation}")
        if b is None:
            return indexed.apply(self.function)
        if self.update is not None and not dtypes.is_bool(x.dtype):
            updated: Array = getattr(indexed, self.update)(b)
            return updated
        return self._update_by_scan(x, indices, as_value(b, f"{self.name}.at: b"))

    def _update_by_scan(self, x: Array, indices: Index, b: Value) -> Array:
        """Applies updates in the order of the indices, for any function."""
        numbers = structural.reshape(shape.iota(dtypes.int32, x.size), x.shape)
        named = numbers.at[indices].get(mode="fill", fill_value=x.size)  # which the updates drop
        new = _broadcast_aligned(b, named.shape)
        result = self._result_dtype(x, None, f"{self.name}.at", b)
        flat = as_array(convert_dtype(structural.reshape(x, (x.size,)), result))
        pairs = [structural.reshape(v, (named.size,)) for v in (named, convert_dtype(new, result))]

        def step(carry: Array, pair: tuple[Array, Array]) -> tuple[Array, None]:
            position, value = pair
            return carry.at[position].set(self._combine(carry[position], value)), None

        return structural.reshape(lax.scan(step, flat, (pairs[0], pairs[1]))[0], x.shape)

    def reduceat(
        self,
        a: ArrayLike,
        indices: ArrayLike,
        axis: SupportsIndex = 0,
        dtype: DTypeLike | None = None,
        out: None = None,
    ) -> Array:
        """Returns the reductions of the segments from each index to the next one, the last to the end.

        Where the next index is not greater, the result is the element at the index. The other arguments are those of
        `reduce`.
        """
        self._require_binary("reduceat", out)
        name = f"{self.name}.reduceat"
        x, starts = as_value(a, f"{name}: a"), as_value(indices, f"{name}: indices")
        if not x.aval.ndim or starts.aval.ndim != 1:
            raise ValueError(f"{name} takes an array with axes and a vector of indices, got {x.aval} and {starts.aval}")
        if not isinstance(axis, SupportsIndex):
            raise ValueError(f"{name}: axis must be one integer, got {axis!r}")
        along = canonicalize_axis(name, axis, x.aval.ndim)
        rows = structural.move_axis(
            x if dtype is None else convert_dtype(x, dtypes.as_dtype(dtype, f"{name}: dtype")), along, 0
        )
        n = rows.shape[0]
        if not starts.aval.size:
            return structural.move_axis(shape.slice_axis(rows, 0, 0, 0), 0, along)
        if not n:
            raise IndexError(f"{name}: axis {along} of {x.aval} has no elements for the indices")
        begin = as_array(convert_dtype(starts, dtypes.int32))
        end = shape.concatenate([shape.slice_axis(begin, 1, begin.size, 0), _int32_vector(n)], 0)
        wide = (begin.size, *[1] * (rows.ndim - 1))
        begin, end = structural.reshape(begin, wide), structural.reshape(end, wide)

        def step(i: Array, out: Array) -> Array:
            inside = (i > begin) & (i < end)
            row = _broadcast_aligned(shape.expand_dims(rows[i], (0,)), out.shape)
            return selection.select_n(_broadcast_aligned(inside, out.shape), out, self._combine(out, as_array(row)))

        reduced: Array = lax.fori_loop(0, n, step, rows.at[as_array(starts)].get(mode="fill"))
        return structural.move_axis(reduced, 0, along)

    def outer(self, A: ArrayLike, B: ArrayLike, /) -> Array:
        """Applies the function to all pairs of elements: shapes `s` and `t` give `(*s, *t)`."""
        self._require_binary("outer", None)
        x, y = as_value(A, f"{self.name}.outer: A"), as_value(B, f"{self.name}.outer: B")
        return self.function(shape.expand_dims(x, range(x.aval.ndim, x.aval.ndim + y.aval.ndim)), y)

    def _require_binary(self, method: str, out: None) -> None:
        """Raises ValueError unless the function has two operands and one result; `reject_out` checks `out`."""
        reject_out(f"{self.name}.{method}", out)
        if self.nin != 2 or self.nout != 1:
            raise ValueError(
                f"{self.name}.{method} needs a function with two operands and one result, but {self.name} takes "
                f"{self.nin} and gives {self.nout}"
            )

    def _result_dtype(self, x: Value, dtype: DTypeLike | None, what: str, *others: Value) -> DType:
        """Returns `dtype`, or if it is None the dtype of the function's results."""
        if dtype is not None:
            return dtypes.as_dtype(dtype, f"{what}: dtype")
        one = [ShapeDtypeStruct((), v.aval.dtype, weak_type=v.aval.weak_type) for v in (x, *(others or (x,)))]
        result_dtype: DType = eval_shape(self.function, *one).dtype
        return result_dtype


def _int32_vector(*numbers: int) -> Array:
    return shape.stack([rounded_literal(n, ShapedArray((), dtypes.int32)) for n in numbers], 0)


def _broadcast_aligned(x: Value, sizes: Sequence[int]) -> Value:
    """Broadcasts `x` to a shape, with axes aligned at the end."""
    if not x.aval.shape:
        return structural.broadcast_to(x, tuple(sizes))
    broadcast_operand_shapes("where", x.aval.shape, tuple(sizes))
    return structural.broadcast_in_dim(x, sizes, range(len(sizes) - x.aval.ndim, len(sizes)))


# ------------------------------------------------------------------ specialized implementations


def sum_reduction(
    a: ArrayLike, axis: AxisLike, dtype: DTypeLike | None, keepdims: bool, initial: InitialValue, where: InitialValue
) -> Array:
    """Implements `add.reduce`."""
    return as_array(a).sum(axis, dtype, None, keepdims, initial, where)


def product_reduction(
    a: ArrayLike, axis: AxisLike, dtype: DTypeLike | None, keepdims: bool, initial: InitialValue, where: InitialValue
) -> Array:
    """Implements `multiply.reduce`."""
    return as_array(a).prod(axis, dtype, None, keepdims, initial, where)


def max_reduction(
    a: ArrayLike, axis: AxisLike, dtype: DTypeLike | None, keepdims: bool, initial: InitialValue, where: InitialValue
) -> Array:
    """Implements `maximum.reduce`."""
    return _astype_if_given(dtype, as_array(a).max(axis, None, keepdims, initial, where))


def min_reduction(
    a: ArrayLike, axis: AxisLike, dtype: DTypeLike | None, keepdims: bool, initial: InitialValue, where: InitialValue
) -> Array:
    """Implements `minimum.reduce`."""
    return _astype_if_given(dtype, as_array(a).min(axis, None, keepdims, initial, where))


def _astype_if_given(dtype: DTypeLike | None, x: Array) -> Array:
    return x if dtype is None else x.astype(dtype)


def sum_accumulation(a: ArrayLike, axis: int, dtype: DTypeLike | None) -> Array:
    """Implements `add.accumulate`."""
    return as_array(a).cumsum(axis, dtype)


def product_accumulation(a: ArrayLike, axis: int, dtype: DTypeLike | None) -> Array:
    """Implements `multiply.accumulate`."""
    return as_array(a).cumprod(axis, dtype)


# ------------------------------------------------------------------ decorators


def binary_ufunc(
    identity: UfuncIdentity = None,
    folded: UfuncReduction | None = None,
    so_far: UfuncAccumulation | None = None,
    update: str | None = None,
) -> Callable[[Callable[[ArrayLike, ArrayLike], Array]], BinaryFunction]:
    """Decorates a function of two arrays: adds the methods of universal functions as attributes.

    The arguments are those of `UfuncMethods`.
    """

    def with_methods(function: Callable[[ArrayLike, ArrayLike], Array]) -> BinaryFunction:
        methods = UfuncMethods(function, function.__name__, 2, 1, identity, folded, so_far, update)
        ufunc = cast("BinaryFunction", function)
        ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.identity = 2, 1, 2, identity
        ufunc.at, ufunc.reduce, ufunc.accumulate = methods.at, methods.reduce, methods.accumulate
        ufunc.reduceat, ufunc.outer = methods.reduceat, methods.outer
        return ufunc

    return with_methods


def unary_ufunc(function: Callable[[ArrayLike], Array]) -> UnaryFunction:
    """Decorates a function of one array: adds the methods of universal functions as attributes."""
    ufunc = cast("UnaryFunction", function)
    ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.identity = 1, 1, 1, None
    ufunc.at = UfuncMethods(function, function.__name__, 1, 1).at
    return ufunc
