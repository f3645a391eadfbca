"""Indices as arrays: grids and concatenations written with slices, diagonals, triangles, places counted through."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, SupportsIndex, TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape
from tracefx.core.dtypes import DTypeLike, NDArray
from tracefx.core.handler import as_array
from tracefx.core.values import Value, from_numpy, to_numpy
from tracefx.errors import ConcretizationError
from tracefx.numpy.creation import NestedArrayLike, arange, array, linspace, meshgrid, ones
from tracefx.numpy.dtype_routines import result_type
from tracefx.numpy.joining import concatenate, stack
from tracefx.numpy.mask_selection import nonzero
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, convert_operand, promote_dtypes
from tracefx.numpy.shapes import ShapeLike, expand_dims, sizes_of, transpose
from tracefx.numpy.ufuncs import add, broadcast_select, clip, divmod, literal_like, multiply, remainder
from tracefx.ops import structural
from tracefx.ops.elementwise import comparison
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import ShapeError, static_int
from tracefx.transforms.at_once import at_once

GridKey: TypeAlias = slice | tuple[slice, ...]
ConcatenationItem: TypeAlias = NestedArrayLike | slice | str


# ------------------------------------------------------------------ grids


def _slice_points(s: slice, name: str) -> Array:
    """The numbers that a slice counts; with an imaginary step, so many up to and including its end."""
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
    """`mgrid[0:2, 0:3]`: the coordinates of all points of a grid, the axis they are for in front.

    >>> mgrid[0:2, 0:3].shape
    (2, 2, 3)
    """

    __slots__ = ()

    def __getitem__(self, key: GridKey) -> Array:
        vectors = _grid_vectors(key, "mgrid")
        if isinstance(key, slice):
            return vectors[0]
        return stack(meshgrid(*vectors, indexing="ij")) if vectors else arange(0)


@final
class OpenGrid:
    """`ogrid[0:2, 0:3]`: vectors of coordinates, each along its own axis, which broadcast to a grid.

    >>> [a.shape for a in ogrid[0:2, 0:3]]
    [(2, 1), (1, 3)]
    """

    __slots__ = ()

    def __getitem__(self, key: GridKey) -> Array | list[Array]:
        vectors = _grid_vectors(key, "ogrid")
        return vectors[0] if isinstance(key, slice) else list(meshgrid(*vectors, sparse=True, indexing="ij"))


mgrid: Final = DenseGrid()
ogrid: Final = OpenGrid()


@final
@frozen(eq=False)
class Concatenation:
    """`r_[0:3, 5, [6, 7]]`: slices, numbers and arrays joined along `axis`, each made to have `ndmin` axes at least.

    A string in front says otherwise: `"axis,ndmin,place"`, where `place` is that of the first axis of what has fewer,
    or `"r"` and `"c"` for a row and a column. ValueError for a string that isn't one of these or isn't in front.

    >>> r_[0:3, 5, [6, 7]].tolist()
    [0, 1, 2, 5, 6, 7]
    >>> c_[[1, 2], [3, 4]].tolist()
    [[1, 3], [2, 4]]
    """

    name: str
    axis: int
    ndmin: int
    trans1d: int
    """Where the axes of a piece with fewer than `ndmin` begin; -1 for at the end."""

    def __getitem__(self, key: ConcatenationItem | tuple[ConcatenationItem, ...]) -> Array:
        pieces = key if isinstance(key, tuple) else (key,)
        axis, ndmin, place, matrix = self.axis, self.ndmin, self.trans1d, None
        if pieces and isinstance(pieces[0], str):
            directive, *rest = pieces
            pieces = tuple(rest)
            if directive in ("r", "c"):
                matrix = ("r", "c").index(directive)
            else:
                axis, ndmin, place = self._parse_directive(str(directive))
        joined = concatenate([self._to_array(piece, ndmin, place) for piece in pieces], axis)
        return joined if matrix is None or joined.ndim != 1 else expand_dims(joined, matrix)

    def __len__(self) -> int:
        return 0

    def _parse_directive(self, directive: str) -> tuple[int, int, int]:
        words = directive.split(",")[:3]
        try:
            axis, ndmin, place = [*map(int, words), *(self.axis, self.ndmin, self.trans1d)[len(words) :]]
        except ValueError as error:
            raise ValueError(
                f"{self.name}: could not understand {directive!r}; write up to three integers as 'axis,ndmin,place', "
                "or 'r' or 'c'"
            ) from error
        return axis, ndmin, place

    def _to_array(self, piece: ConcatenationItem, ndmin: int, place: int) -> Array:
        if isinstance(piece, str):
            raise ValueError(f"{self.name}: the string {piece!r} must come first")
        x = _slice_points(piece, self.name) if isinstance(piece, slice) else array(piece)
        rank = 0 if isinstance(piece, slice) else x.ndim
        x = array(x, ndmin=ndmin)
        if place == -1 or rank >= ndmin:
            return x
        turned = ndmin - abs(ndmin + place + 1) % ndmin
        axes = range(ndmin)
        return transpose(x, [*axes[turned:], *axes[:turned]])


r_: Final = Concatenation("r_", 0, 1, -1)
c_: Final = Concatenation("c_", -1, 2, 0)
s_: Final = np.s_
index_exp: Final = np.index_exp


def indices(
    dimensions: Sequence[SupportsIndex], dtype: DTypeLike | None = None, sparse: bool = False
) -> Array | tuple[Array, ...]:
    """The indices of all elements of an array of these dimensions, the axis they are for in front; with `sparse` as
    vectors that broadcast.

    >>> indices((2, 3)).shape, [a.shape for a in indices((2, 3), sparse=True)]
    ((2, 2, 3), [(2, 1), (1, 3)])
    """
    sizes = sizes_of("indices", dimensions, "dimensions")
    new = dtypes.default_int() if dtype is None else dtypes.as_dtype(dtype, "indices: dtype")
    along = [[n if i == axis else 1 for i, n in enumerate(sizes)] if sparse else sizes for axis in range(len(sizes))]
    found = tuple([shape.broadcasted_iota(new, part, axis) for axis, part in enumerate(along)])
    if sparse:
        return found
    return stack(found) if found else array([], new)


def ix_(*args: ArrayLike) -> tuple[Array, ...]:
    """Vectors of indices, each along its own axis, so that `x[ix_(rows, columns)]` is a block. Bools stand for the
    indices where they are true, and must be known when the program is traced. ValueError for what is no vector.

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


def _as_constants(found: Sequence[NDArray]) -> tuple[Array, ...]:
    return tuple([from_numpy(x.astype(dtypes.default_int()), dtypes.default_int()) for x in found])


def _shape_of(name: str, arr: ArrayLike) -> tuple[int, ...]:
    found = getattr(arr, "shape", None)
    return tuple(found) if isinstance(found, tuple) else as_operand(arr, f"{name}: arr").aval.shape


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """The indices of the diagonal of an array with `ndim` axes of size `n`. ValueError if either is negative.

    >>> [a.tolist() for a in diag_indices(3)]
    [[0, 1, 2], [0, 1, 2]]
    """
    size, rank = static_int("diag_indices", n, "n"), static_int("diag_indices", ndim, "ndim")
    if size < 0 or rank < 0:
        raise ValueError(f"diag_indices: n and ndim must not be negative, got {size} and {rank}")
    return (shape.iota(dtypes.default_int(), size),) * rank


def diag_indices_from(arr: ArrayLike) -> tuple[Array, ...]:
    """`diag_indices` of an array, all of whose axes have one size. ValueError if they don't or there is only one.

    >>> [a.tolist() for a in diag_indices_from(np.eye(2))]
    [[0, 1], [0, 1]]
    """
    sizes = _shape_of("diag_indices_from", arr)
    if len(sizes) < 2 or len(set(sizes)) != 1:
        raise ValueError(f"diag_indices_from: arr must have two axes or more, all of one size, got shape {sizes}")
    return diag_indices(sizes[0], len(sizes))


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """The indices of an `n` by `m` matrix on diagonal `k` and below.

    >>> [a.tolist() for a in tril_indices(2)]
    [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle("tril_indices", n, k, m, lower=True)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """The indices of an `n` by `m` matrix on diagonal `k` and above.

    >>> [a.tolist() for a in triu_indices(2)]
    [[0, 0, 1], [0, 1, 1]]
    """
    return _triangle("triu_indices", n, k, m, lower=False)


def _triangle(name: str, n: int, k: int, m: int | None, lower: bool) -> tuple[Array, Array]:
    rows, diagonal = static_int(name, n, "n"), static_int(name, k, "k")
    columns = rows if m is None else static_int(name, m, "m")
    if rows < 0 or columns < 0:
        raise ShapeError(f"{name}: n and m must not be negative, got {rows} and {columns}")
    below = np.tri(rows, columns, diagonal if lower else diagonal - 1, bool)
    i, j = _as_constants(np.nonzero(below if lower else ~below))
    return i, j


def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """`tril_indices` of a matrix. ValueError for an array of other rank.

    >>> len(tril_indices_from(np.eye(3))[0])
    6
    """
    return tril_indices(*_matrix("tril_indices_from", arr, k))


def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """`triu_indices` of a matrix. ValueError for an array of other rank.

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
    """Where `mask_func(ones((n, n)), k)`, such as `triu`, is not zero; the first `size` such places, zeros if there are
    fewer.

    >>> from tracefx.numpy import triu
    >>> [a.tolist() for a in mask_indices(2, triu)]
    [[0, 0, 1], [0, 1, 1]]
    """
    i, j = nonzero(mask_func(ones((n, n)), k), size=size)
    return i, j


# ------------------------------------------------------------------ places counted through


def ravel_multi_index(
    multi_index: Sequence[ArrayLike],
    dims: Sequence[SupportsIndex],
    mode: str = "raise",
    order: str = "C",
    *,
    dtype: DTypeLike | None = None,
) -> Array:
    """The places of elements in a flattened array of shape `dims`, from their indices along each axis.

    Indices out of bounds are a ValueError, and must be known when the program is traced, unless `mode` is "wrap" or
    "clip".

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
        raise ValueError(f"ravel_multi_index: {new} does not hold the last place of an array of shape {sizes}")
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
            f"{name}: whether indices are in bounds isn't known while the program is traced; use mode 'wrap' or 'clip'"
        ) from error
    if numbers.size and (numbers.min() < 0 or numbers.max() >= n):
        raise ValueError(f"{name}: an index is out of bounds for an axis of size {n}; mode 'wrap' or 'clip' mends it")
    return x


def unravel_index(indices: ArrayLike, shape: ShapeLike) -> tuple[Array, ...]:
    """The indices along each axis of an array of this shape, from places in the flattened array. Negative places are
    counted from the end, places out of bounds become the first or last.

    >>> [a.tolist() for a in unravel_index(np.array([2, 3]), (2, 3))]
    [[0, 1], [2, 0]]
    """
    rest = as_operand(indices, "unravel_index: indices")
    sizes = sizes_of("unravel_index", shape)
    return _unravel(rest, sizes=sizes)


@at_once
def _unravel(rest: Value, *, sizes: Shape) -> tuple[Array, ...]:
    out: list[Array] = []
    for n in reversed(sizes):
        rest, index = divmod(rest, n)
        out.append(index)
    above, pairs = comparison.gt(rest, literal_like(rest, 0)), list(zip(out[::-1], sizes, strict=True))
    out = [broadcast_select(above, literal_like(x, n - 1), x) for x, n in pairs]
    if dtypes.is_signed(rest.aval.dtype):
        below = comparison.lt(rest, literal_like(rest, -1))
        out = [broadcast_select(below, literal_like(x, 0), x) for x in out]
    return tuple(out)
