"""Index helpers: grids, `r_` and `c_`, indices of diagonals and triangles, conversion to flat indices and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, SupportsIndex, TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.core import Array, ArrayLike, DTypeLike, NDArray, Shape, Value, dtypes, from_numpy, to_numpy
from tracefx.core.handler import as_array
from tracefx.errors import ConcretizationError
from tracefx.numpy.creation import NestedArrayLike, array, ones
from tracefx.numpy.dtype_routines import result_type
from tracefx.numpy.joining import concatenate, stack
from tracefx.numpy.mask_selection import nonzero
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, convert_operand, promote_dtypes
from tracefx.numpy.ranges import arange, linspace, meshgrid
from tracefx.numpy.shapes import ShapeLike, expand_dims, sizes_of, transpose
from tracefx.numpy.ufuncs import add, broadcast_select, clip, divmod, literal_like, multiply, remainder
from tracefx.ops import structural
from tracefx.ops.elementwise import comparison
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import static_count, static_int
from tracefx.transforms.eager_calls import eager_cached

GridKey: TypeAlias = slice | tuple[slice, ...]
ConcatenationItem: TypeAlias = NestedArrayLike | slice | str


# ------------------------------------------------------------------ grids


def _slice_points(s: slice, name: str) -> Array:
    """Returns the numbers of a slice; an imaginary step is their count, with the end included."""
    if not isinstance(s, slice):
        raise TypeError(f"{name} is indexed by slices such as {name}[0:3, 0:1:5j], got {s!r}")
    if s.stop is None:
        raise TypeError(f"{name}: the slice {s} must have an end")
    start = 0 if s.start is None else s.start
    if isinstance(s.step, complex | np.complexfloating):
        return linspace(start, s.stop, int(np.abs(s.step)))
    return arange(start, s.stop, 1 if s.step is None else s.step)


def _grid_vectors(key: GridKey, name: str) -> list[Array]:
    points = [_slice_points(s, name) for s in (key if isinstance(key, tuple) else (key,))]
    return [as_array(v) for v in promote_dtypes(name, *points)] if points else []


@final
class DenseGrid:
    """The class of `mgrid`: `mgrid[0:2, 0:3]` returns the coordinates of all points of a grid, as `i32[2, 2, 3]`.

    >>> mgrid[0:2, 0:3].shape
    (2, 2, 3)
    """

    def __getitem__(self, key: GridKey) -> Array:
        vectors = _grid_vectors(key, "mgrid")
        if isinstance(key, slice):
            return vectors[0]
        return stack(meshgrid(*vectors, indexing="ij")) if vectors else arange(0)


@final
class OpenGrid:
    """The class of `ogrid`: `ogrid[0:2, 0:3]` returns a coordinate vector per axis; they broadcast to a grid.

    >>> [a.shape for a in ogrid[0:2, 0:3]]
    [(2, 1), (1, 3)]
    """

    def __getitem__(self, key: GridKey) -> Array | list[Array]:
        vectors = _grid_vectors(key, "ogrid")
        return vectors[0] if isinstance(key, slice) else list(meshgrid(*vectors, sparse=True, indexing="ij"))


mgrid: Final = DenseGrid()
ogrid: Final = OpenGrid()


@final
@frozen(eq=False)
class Concatenation:
    """The class of `r_` and `c_`: `r_[0:3, 5, [6, 7]]` concatenates slices, numbers and arrays along an axis.

    A first item that is a string overrides the defaults: `"axis,ndmin,trans1d"`, or `"r"` and `"c"` for a row and a
    column. Raises ValueError for another string, or one that is not the first item.

    >>> r_[0:3, 5, [6, 7]].tolist()
    [0, 1, 2, 5, 6, 7]
    >>> c_[[1, 2], [3, 4]].tolist()
    [[1, 3], [2, 4]]
    """

    name: str
    axis: int
    ndmin: int
    trans1d: int
    """The position of the axes of an item that has fewer than `ndmin`; -1 means the last axes."""

    def __getitem__(self, key: ConcatenationItem | tuple[ConcatenationItem, ...]) -> Array:
        pieces = key if isinstance(key, tuple) else (key,)
        axis, ndmin, trans1d, matrix = self.axis, self.ndmin, self.trans1d, None
        if pieces and isinstance(pieces[0], str):
            directive, *following = pieces
            pieces = tuple(following)
            if directive in ("r", "c"):
                matrix = ("r", "c").index(directive)
            else:
                axis, ndmin, trans1d = self._parse_directive(str(directive))
        joined = concatenate([self._to_array(piece, ndmin, trans1d) for piece in pieces], axis)
        return joined if matrix is None or joined.ndim != 1 else expand_dims(joined, matrix)

    def __len__(self) -> int:
        return 0

    def _parse_directive(self, directive: str) -> tuple[int, int, int]:
        words = directive.split(",")[:3]
        try:
            axis, ndmin, trans1d = [*map(int, words), *(self.axis, self.ndmin, self.trans1d)[len(words) :]]
        except ValueError as error:
            raise ValueError(
                f"{self.name}: could not understand {directive!r}; write up to three integers as 'axis,ndmin,place', "
                "or 'r' or 'c'"
            ) from error
        return axis, ndmin, trans1d

    def _to_array(self, piece: ConcatenationItem, ndmin: int, trans1d: int) -> Array:
        if isinstance(piece, str):
            raise ValueError(f"{self.name}: the string {piece!r} must come first")
        x = _slice_points(piece, self.name) if isinstance(piece, slice) else array(piece)
        rank = 0 if isinstance(piece, slice) else x.ndim
        x = array(x, ndmin=ndmin)
        if trans1d == -1 or rank >= ndmin:
            return x
        offset = ndmin - abs(ndmin + trans1d + 1) % ndmin
        axes = range(ndmin)
        return transpose(x, [*axes[offset:], *axes[:offset]])


r_: Final = Concatenation("r_", 0, 1, -1)
c_: Final = Concatenation("c_", -1, 2, 0)
s_: Final = np.s_
index_exp: Final = np.index_exp


def indices(
    dimensions: Sequence[SupportsIndex], dtype: DTypeLike | None = None, sparse: bool = False
) -> Array | tuple[Array, ...]:
    """Returns the indices of all elements of an array of a shape.

    Args:
        dimensions: The shape, `(n, m, ...)`.
        dtype: The dtype of the indices; None means the default integer.
        sparse: Whether to return a tuple of vectors that broadcast instead of one array `i32[ndim, n, m, ...]`.

    Returns:
        An array, or with `sparse` a tuple of arrays.

    >>> indices((2, 3)).shape, [a.shape for a in indices((2, 3), sparse=True)]
    ((2, 2, 3), [(2, 1), (1, 3)])
    """
    sizes = sizes_of("indices", dimensions, "dimensions")
    new = dtypes.default_int() if dtype is None else dtypes.as_dtype(dtype, "indices: dtype")
    along = [[n if i == axis else 1 for i, n in enumerate(sizes)] if sparse else sizes for axis in range(len(sizes))]
    index_arrays = tuple([shape.broadcasted_iota(new, part, axis) for axis, part in enumerate(along)])
    if sparse:
        return index_arrays
    return stack(index_arrays) if index_arrays else array([], new)


def ix_(*args: ArrayLike) -> tuple[Array, ...]:
    """Returns index vectors along different axes, so that `x[ix_(rows, columns)]` is a block of `x`.

    Args:
        *args: Vectors of integers, or masks, which stand for the indices where they are true and must be concrete.

    Returns:
        One array for each vector.

    Raises:
        ValueError: If an argument is not a vector.

    >>> [a.shape for a in ix_(np.arange(2), np.array([True, False, True]))]
    [(2, 1), (1, 2)]
    """
    out = []
    for i, a in enumerate(args):
        x = as_operand(a, f"ix_: argument {i}")
        if x.aval.ndim != 1:
            raise ValueError(f"ix_: argument {i} must be a vector, got {x.aval}")
        if dtypes.is_bool(x.aval.dtype):
            x = _as_constants(np.nonzero(to_numpy(x)))[0]
        elif not x.aval.size:
            x = convert_dtype(x, dtypes.default_int())
        out.append(structural.reshape(x, [1] * i + [x.aval.size] + [1] * (len(args) - i - 1)))
    return tuple(out)


# ------------------------------------------------------------------ diagonals and triangles


def _as_constants(index_arrays: Sequence[NDArray]) -> tuple[Array, ...]:
    """Returns NumPy index arrays as arrays of the default integer dtype."""
    return tuple([from_numpy(x.astype(dtypes.default_int()), dtypes.default_int()) for x in index_arrays])


def _shape_of(name: str, arr: ArrayLike) -> tuple[int, ...]:
    """Returns the shape of an array or of an object with the attribute `shape`."""
    own_shape = getattr(arr, "shape", None)
    return tuple(own_shape) if isinstance(own_shape, tuple) else as_operand(arr, f"{name}: arr").aval.shape


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """Returns the indices of the main diagonal of an array with `ndim` axes of size `n`.

    Args:
        n: The size of the axes.
        ndim: The number of axes.

    Returns:
        One vector of integers for each axis.

    Raises:
        ValueError: If `n` or `ndim` is negative.

    >>> [a.tolist() for a in diag_indices(3)]
    [[0, 1, 2], [0, 1, 2]]
    """
    size, rank = static_count("diag_indices", n, "n"), static_count("diag_indices", ndim, "ndim")
    return (shape.iota(dtypes.default_int(), size),) * rank


def diag_indices_from(arr: ArrayLike) -> tuple[Array, ...]:
    """Returns the indices of the main diagonal of `arr`.

    Args:
        arr: An array with two axes or more, all of one size.

    Returns:
        One vector of integers for each axis.

    Raises:
        ValueError: If `arr` has another shape.

    >>> [a.tolist() for a in diag_indices_from(np.eye(2))]
    [[0, 1], [0, 1]]
    """
    sizes = _shape_of("diag_indices_from", arr)
    if len(sizes) < 2 or len(set(sizes)) != 1:
        raise ValueError(f"diag_indices_from: arr must have two axes or more, all of one size, got shape {sizes}")
    return diag_indices(sizes[0], len(sizes))


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Returns the indices of the lower triangle of a matrix: on a diagonal and below.

    Args:
        n: The number of rows.
        k: The diagonal: 0 is the main one, positive numbers lie above it.
        m: The number of columns; None means `n`.

    Returns:
        The indices of the rows and of the columns, vectors of integers.

    >>> [a.tolist() for a in tril_indices(2)]
    [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle("tril_indices", n, k, m, lower=True)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Returns the indices of the upper triangle of a matrix: on a diagonal and above.

    Args:
        n: The number of rows.
        k: The diagonal: 0 is the main one, positive numbers lie above it.
        m: The number of columns; None means `n`.

    Returns:
        The indices of the rows and of the columns, vectors of integers.

    >>> [a.tolist() for a in triu_indices(2)]
    [[0, 0, 1], [0, 1, 1]]
    """
    return _triangle("triu_indices", n, k, m, lower=False)


def _triangle(name: str, n: int, k: int, m: int | None, lower: bool) -> tuple[Array, Array]:
    rows, diagonal = static_count(name, n, "n"), static_int(name, k, "k")
    columns = rows if m is None else static_count(name, m, "m")
    below = np.tri(rows, columns, diagonal if lower else diagonal - 1, bool)
    i, j = _as_constants(np.nonzero(below if lower else ~below))
    return i, j


def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """Returns the indices of the lower triangle of a matrix of the shape of `arr`: on a diagonal and below.

    Args:
        arr: A matrix.
        k: The diagonal: 0 is the main one, positive numbers lie above it.

    Returns:
        The indices of the rows and of the columns, vectors of integers.

    Raises:
        ValueError: If `arr` has another number of axes.

    >>> len(tril_indices_from(np.eye(3))[0])
    6
    """
    return tril_indices(*_matrix("tril_indices_from", arr, k))


def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """Returns the indices of the upper triangle of a matrix of the shape of `arr`: on a diagonal and above.

    Args:
        arr: A matrix.
        k: The diagonal: 0 is the main one, positive numbers lie above it.

    Returns:
        The indices of the rows and of the columns, vectors of integers.

    Raises:
        ValueError: If `arr` has another number of axes.

    >>> len(triu_indices_from(np.eye(3), 1)[0])
    3
    """
    return triu_indices(*_matrix("triu_indices_from", arr, k))


def _matrix(name: str, arr: ArrayLike, k: int) -> tuple[int, int, int]:
    sizes = _shape_of(name, arr)
    if len(sizes) != 2:
        raise ValueError(f"{name}: arr must be a matrix, got shape {sizes}")
    return sizes[0], k, sizes[1]


def mask_indices(
    n: int, mask_func: Callable[[Array, int], ArrayLike], k: int = 0, *, size: int | None = None
) -> tuple[Array, Array]:
    """Returns the indices at which `mask_func(ones((n, n)), k)` is nonzero.

    Args:
        n: The number of rows and of columns.
        mask_func: A function such as `triu`.
        k: The second argument of `mask_func`.
        size: The static number of indices to return, padded with 0; None means all, which `jit` does not support.

    Returns:
        The indices of the rows and of the columns, vectors of integers.

    >>> from tracefx.numpy import triu
    >>> [a.tolist() for a in mask_indices(2, triu)]
    [[0, 0, 1], [0, 1, 1]]
    """
    i, j = nonzero(mask_func(ones((n, n)), k), size=size)
    return i, j


# ------------------------------------------------------------------ flat indices


def ravel_multi_index(
    multi_index: Sequence[ArrayLike],
    dims: Sequence[SupportsIndex],
    mode: str = "raise",
    order: str = "C",
    *,
    dtype: DTypeLike | None = None,
) -> Array:
    """Converts indices along each axis to flat indices into an array of shape `dims`.

    Args:
        multi_index: One array of indices for each axis.
        dims: The shape of the array.
        mode: How to treat indices out of bounds: `"raise"` (the indices must then be concrete), `"wrap"` or `"clip"`.
        order: `"C"` if the last axis changes fastest, `"F"` for the first.
        dtype: The dtype of the result; None means that of the indices promoted with the default integer.

    Returns:
        An array of integers of the broadcast shape of the indices.

    Raises:
        ValueError: If an index is out of bounds with `mode="raise"`, or an argument does not fit.
        TypeError: If indices are not integers.

    >>> ravel_multi_index((np.array([0, 1]), np.array([2, 0])), (2, 3)).tolist()
    [2, 3]
    """
    sizes = sizes_of("ravel_multi_index", dims, "dims")
    if len(multi_index) != len(sizes):
        raise ValueError(f"ravel_multi_index: {len(multi_index)} indices for an array with {len(sizes)} axes")
    values = [as_operand(x, f"ravel_multi_index: multi_index[{i}]") for i, x in enumerate(multi_index)]
    for v in values:
        if not dtypes.is_integer(v.aval.dtype):
            raise TypeError(f"ravel_multi_index: indices must be integers, got {v.aval}")
    new = result_type(int, *values) if dtype is None else dtypes.as_dtype(dtype, "ravel_multi_index: dtype")
    if not dtypes.is_integer(new):
        raise ValueError(f"ravel_multi_index: dtype must be an integer dtype, got {new}")
    if order not in ("C", "F"):
        raise ValueError(f"ravel_multi_index: order must be 'C' or 'F', got {order!r}")
    if math.prod(sizes) - 1 > dtypes.iinfo(new).max:
        raise ValueError(f"ravel_multi_index: {new} cannot represent the last flat index of an array of shape {sizes}")
    out: Array = array(0, new)
    step, pairs = 1, list(zip(values, sizes, strict=True))
    for v, n in pairs if order == "F" else pairs[::-1]:
        inside = convert_dtype(_apply_index_mode("ravel_multi_index", v, n, mode), new)
        out = add(out, multiply(inside, convert_operand(step, new)))
        step *= n
    return out


def _apply_index_mode(name: str, x: Value, n: int, mode: str) -> Value:
    if mode == "clip":
        return clip(x, 0, n - 1)
    if mode == "wrap":
        return remainder(x, n)
    if mode != "raise":
        raise ValueError(f"{name}: mode must be 'raise', 'wrap' or 'clip', got {mode!r}")
    try:
        numbers = to_numpy(x)
    except ConcretizationError as error:
        raise ConcretizationError(
            f"{name}: mode 'raise' needs concrete indices, but they are traced; use mode 'wrap' or 'clip'"
        ) from error
    if numbers.size and (numbers.min() < 0 or numbers.max() >= n):
        raise ValueError(
            f"{name}: an index is out of bounds for an axis of size {n}; mode 'wrap' or 'clip' allows that"
        )
    return x


def unravel_index(indices: ArrayLike, shape: ShapeLike) -> tuple[Array, ...]:
    """Converts flat indices into an array of a shape to indices along each axis.

    Negative indices count from the end; indices out of bounds are clamped.

    Args:
        indices: Integers.
        shape: The shape, an integer or a sequence of integers.

    Returns:
        One array of integers for each axis, of the shape of `indices`.

    >>> [a.tolist() for a in unravel_index(np.array([2, 3]), (2, 3))]
    [[0, 1], [2, 0]]
    """
    flat_indices = as_operand(indices, "unravel_index: indices")
    sizes = sizes_of("unravel_index", shape)
    return _unravel(flat_indices, sizes=sizes)


@eager_cached(compiled=True)
def _unravel(remaining: Value, *, sizes: Shape) -> tuple[Array, ...]:
    out: list[Array] = []
    for n in reversed(sizes):
        remaining, index = divmod(remaining, n)
        out.append(index)
    above, pairs = comparison.gt(remaining, literal_like(remaining, 0)), list(zip(out[::-1], sizes, strict=True))
    out = [broadcast_select(above, literal_like(x, n - 1), x) for x, n in pairs]
    if dtypes.is_signed(remaining.aval.dtype):
        below = comparison.lt(remaining, literal_like(remaining, -1))
        out = [broadcast_select(below, literal_like(x, 0), x) for x in out]
    return tuple(out)
