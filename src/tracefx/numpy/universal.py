"""What universal functions can do beside being called: reduce, accumulate, update, and pair all with all.

`add` and the like are plain functions, called as fast as such, that carry these methods as attributes; `ufunc` makes
them of a function of scalars.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast, final

from tracefx import lax
from tracefx.core import dtypes
from tracefx.core.array import METHODS, Array, ArrayLike, Axes, Index
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DType, DTypeLike
from tracefx.core.handler import as_array
from tracefx.core.values import Value, as_value
from tracefx.numpy.promoting import broadcast_shapes, literal, no_out, retyped, to_type
from tracefx.ops import basis, selection, shape
from tracefx.ops.static import axes_of, axis_of
from tracefx.transforms.shapes import ShapeDtypeStruct
from tracefx.transforms.staging import eval_shape

if TYPE_CHECKING:
    from tracefx.numpy.universal_types import BinaryFunction, Folded, Identity, SoFar, Start, UnaryFunction


@final
class Methods:
    """The methods of a universal function; those with a faster way of their own say so."""

    __slots__ = ("folded", "function", "identity", "name", "nin", "nout", "so_far", "update")

    def __init__(
        self,
        function: Callable[..., Array],
        name: str,
        nin: int,
        nout: int,
        identity: Identity = None,
        folded: Folded | None = None,
        so_far: SoFar | None = None,
        update: str | None = None,
    ) -> None:
        """`update` is the name of the update that `x.at[index]` has for it."""
        self.function = function
        self.name = name
        self.nin, self.nout = nin, nout
        self.identity = identity
        self.folded, self.so_far = folded, so_far
        self.update = update

    def reduce(
        self,
        a: ArrayLike,
        axis: Axes = 0,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array:
        """The function applied between all elements along an axis (all axes, if it is None), from the first to the
        last, beginning with `initial` if given, and only where `where` holds.
        """
        self._pairs("reduce", out)
        x = as_value(a, f"{self.name}.reduce: a")
        if where is not None:
            if self.identity is None and initial is None:
                raise ValueError(f"{self.name}.reduce: {self.name} has no identity: where needs an initial value")
            if not dtypes.is_bool(as_value(where, f"{self.name}.reduce: where").aval.dtype):
                raise ValueError(f"{self.name}.reduce: where must be bools, got {as_value(where).aval}")
        if self.folded is not None:
            return self.folded(x, axis, dtype, keepdims, initial, where)
        return self._one_by_one(x, axis, dtype, keepdims, initial, where)

    def _one_by_one(
        self,
        x: Value,
        axis: Axes,
        dtype: DTypeLike | None,
        keepdims: bool,
        initial: ArrayLike | None,
        where: ArrayLike | None,
    ) -> Array:
        ndim, sizes = x.aval.ndim, x.aval.shape
        over = range(ndim) if axis is None else [axis] if isinstance(axis, int) else axis
        along = axes_of(f"{self.name}.reduce", over, ndim, "axis")
        result = self._result(x, dtype, f"{self.name}.reduce")
        rest = [n for i, n in enumerate(sizes) if i not in along]
        count = math.prod([sizes[i] for i in along])
        first = self.identity if initial is None else initial
        if first is None and not count:
            raise ValueError(f"{self.name}.reduce: {x.aval} has no elements, and {self.name} has no identity")
        order = [*along, *[i for i in range(ndim) if i not in along]]
        rows = as_array(retyped(basis.reshape(basis.transpose(x, order), (count, *rest)), result))
        kept = [1 if i in along else n for i, n in enumerate(sizes)] if keepdims else rest
        if first is None:
            start, rows = shape.squeeze(shape.slice_axis(rows, 0, 1, 0), (0,)), shape.slice_axis(rows, 1, count, 0)
        else:
            start = as_array(
                basis.broadcast_to(to_type(first, result, what=f"{self.name}.reduce: initial"), tuple(rest))
            )
        if where is None:
            total, _ = lax.scan(lambda carry, row: (self._next(carry, row), None), start, rows)
        else:
            masks = basis.reshape(basis.transpose(_spread(as_value(where), sizes), order), (count, *rest))
            total, _ = lax.scan(
                lambda carry, row: (selection.select_n(row[1], carry, self._next(carry, row[0])), None),
                start,
                (rows, masks),
            )
        return basis.reshape(total, kept)

    def _next(self, x: Array, y: Array) -> Array:
        return as_array(retyped(self.function(x, y), x.dtype, x.weak_type))

    def accumulate(self, a: ArrayLike, axis: int = 0, dtype: DTypeLike | None = None, out: None = None) -> Array:
        """What `reduce` gives of the first element, the first two, and so on along an axis."""
        self._pairs("accumulate", out)
        x = as_value(a, f"{self.name}.accumulate: a")
        if not isinstance(axis, int):
            raise ValueError(f"{self.name}.accumulate goes along one axis, got {axis!r}")
        along = axis_of(f"{self.name}.accumulate", axis, x.aval.ndim)
        if self.so_far is not None:
            return self.so_far(x, along, dtype)
        result = self._result(x, dtype, f"{self.name}.accumulate")
        if not x.aval.size:
            return basis.full(ShapedArray(x.aval.shape, result), 0)
        rows = basis.move_axis(retyped(x, result), along, 0)
        first = shape.slice_axis(rows, 0, 1, 0)

        def step(carry: Array, row: Array) -> tuple[Array, Array]:
            found = self._next(carry, row)
            return found, found

        _, rest = lax.scan(step, shape.squeeze(first, (0,)), shape.slice_axis(rows, 1, rows.shape[0], 0))
        return basis.move_axis(shape.concatenate([first, rest], 0), 0, along)

    def at(self, a: ArrayLike, indices: Index, b: ArrayLike | None = None, /, *, inplace: bool = True) -> Array:
        """`a` with the function applied at an index, once for each time that it is named. `inplace` must be False,
        since arrays never change.
        """
        if inplace:
            raise NotImplementedError(
                f"{self.name}.at: arrays never change; pass inplace=False and use what is returned"
            )
        x = as_array(as_value(a, f"{self.name}.at: a"))
        places = METHODS.value.at(x)[indices]
        if (b is None) is (self.nin == 2):
            wanted = "given" if b is None else "left out"
            raise TypeError(f"{self.name}.at: {self.name} takes {self.nin} arrays, so b must be {wanted}")
        if b is None:
            return places.apply(self.function)
        if self.update is not None and not dtypes.is_bool(x.dtype):
            changed: Array = getattr(places, self.update)(b)
            return changed
        return self._one_place_after_another(x, indices, as_value(b, f"{self.name}.at: b"))

    def _one_place_after_another(self, x: Array, indices: Index, b: Value) -> Array:
        """Updates in the order of the indices, whatever the function."""
        numbers = basis.reshape(shape.iota(dtypes.int32, x.size), x.shape)
        named = METHODS.value.getitem(numbers, indices)
        new = _spread(b, named.shape)
        result = self._result(x, None, f"{self.name}.at", b)
        flat = as_array(retyped(basis.reshape(x, (x.size,)), result))
        pairs = [basis.reshape(v, (named.size,)) for v in (named, retyped(new, result))]

        def step(carry: Array, pair: tuple[Array, Array]) -> tuple[Array, None]:
            place, value = pair
            old = METHODS.value.getitem(carry, place)
            return METHODS.value.at(carry)[place].set(self._next(old, value)), None

        return basis.reshape(lax.scan(step, flat, (pairs[0], pairs[1]))[0], x.shape)

    def reduceat(
        self, a: ArrayLike, indices: ArrayLike, axis: int = 0, dtype: DTypeLike | None = None, out: None = None
    ) -> Array:
        """What `reduce` gives from each index to before the next, the last one to the end; the element at an index
        where the next is no greater.
        """
        self._pairs("reduceat", out)
        name = f"{self.name}.reduceat"
        x, starts = as_value(a, f"{name}: a"), as_value(indices, f"{name}: indices")
        if not x.aval.ndim or starts.aval.ndim != 1:
            raise ValueError(f"{name} takes an array with axes and a vector of indices, got {x.aval} and {starts.aval}")
        if not isinstance(axis, int):
            raise ValueError(f"{name} goes along one axis, got {axis!r}")
        along = axis_of(name, axis, x.aval.ndim)
        rows = basis.move_axis(x if dtype is None else retyped(x, dtypes.as_dtype(dtype, f"{name}: dtype")), along, 0)
        n, means = rows.shape[0], METHODS.value
        if not starts.aval.size:
            return basis.move_axis(shape.slice_axis(rows, 0, 0, 0), 0, along)
        begin = as_array(retyped(starts, dtypes.int32))
        end = shape.concatenate([shape.slice_axis(begin, 1, begin.size, 0), _integers(n)], 0)
        wide = (begin.size, *[1] * (rows.ndim - 1))
        begin, end = basis.reshape(begin, wide), basis.reshape(end, wide)

        def step(i: Array, out: Array) -> Array:
            inside = means.bitwise_and(means.greater(i, begin), means.less(i, end))
            row = _spread(shape.expand_dims(means.getitem(rows, i), (0,)), out.shape)
            return selection.select_n(_spread(inside, out.shape), out, self._next(out, as_array(row)))

        found: Array = lax.fori_loop(0, n, step, means.getitem(rows, as_array(starts)))
        return basis.move_axis(found, 0, along)

    def outer(self, A: ArrayLike, B: ArrayLike, /) -> Array:
        """The function of each element of `A` with each of `B`: shapes `s` and `t` give `(*s, *t)`."""
        self._pairs("outer", None)
        x, y = as_value(A, f"{self.name}.outer: A"), as_value(B, f"{self.name}.outer: B")
        return self.function(shape.expand_dims(x, range(x.aval.ndim, x.aval.ndim + y.aval.ndim)), y)

    def _pairs(self, method: str, out: None) -> None:
        no_out(f"{self.name}.{method}", out)
        if self.nin != 2 or self.nout != 1:
            raise ValueError(
                f"{self.name}.{method}: only functions of two arrays that give one have it, and {self.name} takes "
                f"{self.nin} and gives {self.nout}"
            )

    def _result(self, x: Value, dtype: DTypeLike | None, what: str, *others: Value) -> DType:
        """The dtype asked for, or else that of the function's results."""
        if dtype is not None:
            return dtypes.as_dtype(dtype, f"{what}: dtype")
        one = [ShapeDtypeStruct((), v.aval.dtype) for v in (x, *(others or (x,)))]
        found: DType = eval_shape(self.function, *one).dtype
        return found


def _integers(*numbers: int) -> Array:
    return shape.stack([literal(n, ShapedArray((), dtypes.int32)) for n in numbers], 0)


def _spread(x: Value, sizes: Sequence[int]) -> Value:
    """`x` broadcast to a shape, axes aligned at the end."""
    if not x.aval.shape:
        return basis.broadcast_to(x, tuple(sizes))
    broadcast_shapes("where", x.aval.shape, tuple(sizes))
    return basis.broadcast_in_dim(x, sizes, range(len(sizes) - x.aval.ndim, len(sizes)))


# ------------------------------------------------------------------ faster ways


def sums(a: ArrayLike, axis: Axes, dtype: DTypeLike | None, keepdims: bool, initial: Start, where: Start) -> Array:
    return METHODS.value.sum(a, axis, dtype, None, keepdims, initial, where, True)


def products(a: ArrayLike, axis: Axes, dtype: DTypeLike | None, keepdims: bool, initial: Start, where: Start) -> Array:
    return METHODS.value.prod(a, axis, dtype, None, keepdims, initial, where, True)


def greatest(a: ArrayLike, axis: Axes, dtype: DTypeLike | None, keepdims: bool, initial: Start, where: Start) -> Array:
    return _in(dtype, METHODS.value.max(a, axis, None, keepdims, initial, where))


def least(a: ArrayLike, axis: Axes, dtype: DTypeLike | None, keepdims: bool, initial: Start, where: Start) -> Array:
    return _in(dtype, METHODS.value.min(a, axis, None, keepdims, initial, where))


def _in(dtype: DTypeLike | None, x: Array) -> Array:
    return x if dtype is None else METHODS.value.astype(x, dtype)


def sums_so_far(a: ArrayLike, axis: int, dtype: DTypeLike | None) -> Array:
    return METHODS.value.cumsum(a, axis, dtype, None)


def products_so_far(a: ArrayLike, axis: int, dtype: DTypeLike | None) -> Array:
    return METHODS.value.cumprod(a, axis, dtype, None)


# ------------------------------------------------------------------ functions that carry them


def binary(
    identity: Identity = None,
    folded: Folded | None = None,
    so_far: SoFar | None = None,
    update: str | None = None,
) -> Callable[[Callable[[ArrayLike, ArrayLike], Array]], BinaryFunction]:
    """Gives a function of two arrays the methods of universal functions; it stays the function that it is."""

    def with_methods(function: Callable[[ArrayLike, ArrayLike], Array]) -> BinaryFunction:
        methods = Methods(function, function.__name__, 2, 1, identity, folded, so_far, update)
        found = cast("BinaryFunction", function)
        found.nin, found.nout, found.nargs, found.identity = 2, 1, 2, identity
        found.at, found.reduce, found.accumulate = methods.at, methods.reduce, methods.accumulate
        found.reduceat, found.outer = methods.reduceat, methods.outer
        return found

    return with_methods


def unary(function: Callable[[ArrayLike], Array]) -> UnaryFunction:
    """Gives a function of one array the methods of universal functions."""
    found = cast("UnaryFunction", function)
    found.nin, found.nout, found.nargs, found.identity = 1, 1, 1, None
    found.at = Methods(function, function.__name__, 1, 1).at
    return found
