"""Joining and splitting of arrays: concatenating, stacking, splitting."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import SupportsIndex, TypeAlias

import numpy as np

from tracefx.core import Array, ArrayLike, DTypeLike, NDArray, Value, dtypes
from tracefx.core.handler import as_array
from tracefx.errors import ShapeError
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, promote_dtypes, reject_out
from tracefx.numpy.shapes import atleast_1d, atleast_2d, atleast_3d, ravel
from tracefx.ops import structural
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import canonicalize_axis, static_int, static_ints
from tracefx.ops.structural import reshape
from tracefx.transforms.eager_calls import eager_cached

Arrays: TypeAlias = Sequence[ArrayLike] | Array | NDArray
SplitPoints: TypeAlias = SupportsIndex | Sequence[int] | NDArray
"""The number of equal sections, or the indices at which to split."""


def promote_sequence(name: str, arrays: Arrays, dtype: DTypeLike | None = None) -> list[Value]:
    """Returns the arrays of a sequence in one dtype: `dtype`, or the promoted one if None."""
    if not isinstance(arrays, list | tuple | Array | np.ndarray):
        raise TypeError(f"{name}: arrays must be a list or tuple of arrays or an array, got {arrays!r}")
    items = list(arrays)
    if not items:
        raise ValueError(f"{name} needs at least one array, got an empty sequence")
    values = [as_operand(a, f"{name}: arrays[{i}]") for i, a in enumerate(items)]
    if dtype is not None:
        new = dtypes.as_dtype(dtype, f"{name}: dtype")
        return [convert_dtype(v, new) for v in values]
    return promote_dtypes(name, *items) if len(items) > 1 else values


@eager_cached
def concatenate(arrays: Arrays, axis: int | None = 0, dtype: DTypeLike | None = None) -> Array:
    """Joins arrays along an existing axis.

    Args:
        arrays: A sequence of arrays, whose shapes are equal except along `axis`.
        axis: The axis; None flattens the arrays first.
        dtype: The dtype of the result; None means the promoted dtype.

    Returns:
        An array with the axes of the arrays; its size along `axis` is the sum of theirs.

    Raises:
        TypeError: If an element is not an array.
        ValueError: If there are no arrays, one is a scalar, or the shapes do not fit.

    >>> concatenate([np.arange(2), np.arange(3)]).tolist()
    [0, 1, 0, 1, 2]
    """
    _require_axis("concatenate", axis)
    values = promote_sequence("concatenate", arrays, dtype)
    if axis is None:
        values, axis = [ravel(v) for v in values], 0
    if any(not v.aval.shape for v in values):
        raise ValueError("concatenate: scalars have no axis to concatenate; use stack")
    along = canonicalize_axis("concatenate", axis, values[0].aval.ndim)
    _require_same_shapes("concatenate", values, along)
    return shape.concatenate(values, along)


def _require_axis(name: str, axis: object) -> None:
    """Raises TypeError if an array is passed as the axis, since the arrays were not put into one sequence."""
    if isinstance(axis, Array | np.ndarray | list) and np.ndim(axis):
        raise TypeError(f"{name} takes the arrays as one sequence, {name}([x, y]), but got a second one as the axis")


def _require_same_shapes(name: str, values: Sequence[Value], axis: int | None) -> None:
    """Raises ShapeError unless the shapes agree, except along `axis`."""
    first = values[0].aval.shape
    for v in values[1:]:
        other = v.aval.shape
        fits = len(other) == len(first) and all(
            m == n or i == axis for i, (m, n) in enumerate(zip(first, other, strict=True))
        )
        if not fits:
            exception = "" if axis is None else f" but for axis {axis}"
            raise ShapeError(
                f"{name}: arrays must have one shape{exception}, got {', '.join(str(v.aval) for v in values)}"
            )


@eager_cached
def stack(arrays: Arrays, axis: int = 0, out: None = None, dtype: DTypeLike | None = None) -> Array:
    """Joins arrays of one shape along a new axis.

    Args:
        arrays: A sequence of arrays.
        axis: The position of the new axis in the result.
        out: Not supported; must be None.
        dtype: The dtype of the result; None means the promoted dtype.

    Returns:
        An array with one more axis, whose size is the number of arrays.

    Raises:
        ValueError: If there are no arrays or their shapes differ.

    >>> stack([np.arange(2), np.arange(2)], axis=1).tolist()
    [[0, 0], [1, 1]]
    """
    reject_out("stack", out)
    _require_axis("stack", axis)
    values = promote_sequence("stack", arrays, dtype)
    _require_same_shapes("stack", values, None)
    return shape.stack(values, canonicalize_axis("stack", axis, values[0].aval.ndim + 1))


@eager_cached
def vstack(tup: Arrays, dtype: DTypeLike | None = None) -> Array:
    """Stacks arrays vertically: along the first axis, with vectors as rows.

    Args:
        tup: A sequence of arrays, whose shapes are equal except along the first axis.
        dtype: The dtype of the result; None means the promoted dtype.

    Returns:
        An array with at least two axes.

    Raises:
        ValueError: If there are no arrays or the shapes do not fit.

    >>> vstack([np.arange(2), np.arange(2)]).shape
    (2, 2)
    """
    return concatenate([atleast_2d(v) for v in promote_sequence("vstack", tup)], 0, dtype)


@eager_cached
def hstack(tup: Arrays, dtype: DTypeLike | None = None) -> Array:
    """Stacks arrays horizontally: joined along the second axis, vectors along their only one.

    Args:
        tup: A sequence of arrays, whose shapes are equal except along that axis.
        dtype: The dtype of the result; None means the promoted dtype.

    Returns:
        An array with at least one axis.

    Raises:
        ValueError: If there are no arrays or the shapes do not fit.

    >>> hstack([np.arange(2), np.arange(2)]).tolist()
    [0, 1, 0, 1]
    """
    parts = [atleast_1d(v) for v in promote_sequence("hstack", tup)]
    return concatenate(parts, 0 if parts[0].ndim == 1 else 1, dtype)


@eager_cached
def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """Joins `values` to the end of `arr` along an axis.

    Args:
        arr: The array.
        values: The elements to append, with as many axes as `arr` if `axis` is given.
        axis: The axis; None flattens both arrays first.

    Returns:
        An array of the promoted dtype; a vector without `axis`.

    Raises:
        ValueError: If the shapes do not fit.

    >>> append(np.arange(2), 5).tolist()
    [0, 1, 5]
    """
    return concatenate([atleast_1d(arr), atleast_1d(values)], axis)


@eager_cached
def split(ary: ArrayLike, indices_or_sections: SplitPoints, axis: int = 0) -> list[Array]:
    """Splits `ary` along an axis.

    Args:
        ary: The array.
        indices_or_sections: The number of equal sections, or a sequence of indices before which to split.
        axis: The axis.

    Returns:
        The sections, a list of arrays.

    Raises:
        ValueError: If the sections cannot be equal; `array_split` makes them nearly so.

    >>> [part.tolist() for part in split(np.arange(4), 2)]
    [[0, 1], [2, 3]]
    """
    return _split("split", ary, indices_or_sections, axis)


@eager_cached
def array_split(ary: ArrayLike, indices_or_sections: SplitPoints, axis: int = 0) -> list[Array]:
    """Splits `ary` along an axis into sections whose sizes differ by one at most.

    Args:
        ary: The array.
        indices_or_sections: The number of sections, or a sequence of indices before which to split.
        axis: The axis.

    Returns:
        The sections, a list of arrays.

    Raises:
        ValueError: If the number of sections is not positive.

    >>> [part.tolist() for part in array_split(np.arange(3), 2)]
    [[0, 1], [2]]
    """
    return _split("array_split", ary, indices_or_sections, axis)


def _split(name: str, ary: ArrayLike, where: SplitPoints, axis: int) -> list[Array]:
    x = as_operand(ary, f"{name}: ary")
    along = canonicalize_axis(name, axis, x.aval.ndim)
    n = x.aval.shape[along]
    if isinstance(where, Array | np.ndarray) and where.ndim == 1:
        where = static_ints(name, where, "indices_or_sections")
    if isinstance(where, Sequence):
        cuts = [min(max(i + n if i < 0 else i, 0), n) for i in static_ints(name, where, "indices_or_sections")]
        ends = [0, *cuts, n]
        return [shape.slice_axis(x, a, max(a, b), along) for a, b in itertools.pairwise(ends)]
    sections = static_int(name, where, "indices_or_sections")
    if sections <= 0:
        raise ValueError(f"{name}: indices_or_sections must be positive, got {sections}")
    if name == "split" and n % sections:
        raise ValueError(f"split: axis {along} of {x.aval} does not divide into {sections} equal sections")
    sizes = [n // sections + (i < n % sections) for i in range(sections)]
    return shape.split(x, sizes, along) if sections > 1 else [structural.reshape(x, x.aval.shape)]


NestedBlocks: TypeAlias = "ArrayLike | list[NestedBlocks]"


@eager_cached
def concat(arrays: Arrays, /, *, axis: int | None = 0) -> Array:
    """Joins arrays along an existing axis: the array API's name for `concatenate`.

    Args:
        arrays: A sequence of arrays, whose shapes are equal except along `axis`.
        axis: The axis; None flattens the arrays first.

    Returns:
        An array with the axes of the arrays; its size along `axis` is the sum of theirs.

    Raises:
        ValueError: If there are no arrays, one is a scalar, or the shapes do not fit.

    >>> import numpy as np
    >>> concat([np.arange(2), np.arange(3)]).tolist()
    [0, 1, 0, 1, 2]
    """
    return concatenate(arrays, axis)


@eager_cached
def column_stack(tup: Arrays) -> Array:
    """Stacks vectors as the columns of a matrix; matrices contribute their columns.

    Args:
        tup: A sequence of vectors and matrices with as many rows.

    Returns:
        A matrix of the promoted dtype.

    Raises:
        ValueError: If there are no arrays or the shapes do not fit.

    >>> import numpy as np
    >>> column_stack([np.arange(3), np.zeros((3, 2))]).shape
    (3, 3)
    """
    columns = [as_array(v) for v in promote_sequence("column_stack", tup)]
    return concatenate([x if x.ndim > 1 else reshape(x, (x.size, 1)) for x in columns], 1)


@eager_cached
def dstack(tup: Arrays, dtype: DTypeLike | None = None) -> Array:
    """Stacks arrays along the third axis, which vectors and matrices get.

    Args:
        tup: A sequence of arrays, whose shapes are equal except along that axis.
        dtype: The dtype of the result; None means the promoted dtype.

    Returns:
        An array with at least three axes.

    Raises:
        ValueError: If there are no arrays or the shapes do not fit.

    >>> import numpy as np
    >>> dstack([np.arange(3), np.arange(3)]).shape
    (1, 3, 2)
    """
    return concatenate([atleast_3d(v) for v in promote_sequence("dstack", tup)], 2, dtype)


def block(arrays: NestedBlocks) -> Array:
    """Assembles an array from nested lists of blocks; the innermost lists are joined along the last axis.

    Args:
        arrays: The blocks: an array, or lists of equal depth, nested in any number of levels.

    Returns:
        An array of the promoted dtype, with at least as many axes as levels of lists.

    Raises:
        ValueError: If a list is empty, there are tuples, or lists differ in depth.

    >>> import numpy as np
    >>> block([[np.eye(2), np.zeros((2, 1))], [np.ones((1, 2)), 5]]).shape
    (3, 3)
    """
    return _join_blocks(arrays, _depth(arrays))[0]


def _depth(x: NestedBlocks) -> int:
    """Returns the depth of nested lists."""
    if isinstance(x, tuple):
        raise ValueError(f"block takes lists and arrays, got the tuple {x!r}; make it a list")
    if not isinstance(x, list):
        return 0
    if not x:
        raise ValueError("block: lists must not be empty")
    depths = {_depth(each) for each in x}
    if len(depths) > 1:
        raise ValueError(f"block: lists must be equally deep, but lists of depths {sorted(depths)} are side by side")
    return 1 + depths.pop()


def _join_blocks(x: NestedBlocks, depth: int) -> tuple[Array, int]:
    """Joins blocks along the last `depth` axes; returns the array and the least common number of axes."""
    if not isinstance(x, list):
        value = as_array(as_operand(x, "block: a block"))
        return value, max(value.ndim, depth)
    parts = [_join_blocks(each, depth - 1 if isinstance(each, list) else depth) for each in x]
    rank = max(depth, *[rank for _, rank in parts])
    return concatenate([shape.expand_dims(part, range(rank - part.ndim)) for part, _ in parts], rank - depth), rank


@eager_cached
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Splits `x` into the slices along an axis.

    Args:
        x: An array with at least one axis.
        axis: The axis.

    Returns:
        A tuple of arrays, without the axis.

    Raises:
        ValueError: If `x` is a scalar.

    >>> import numpy as np
    >>> [part.tolist() for part in unstack(np.ones((2, 3)), axis=1)]
    [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    """
    value = as_operand(x, "unstack: x")
    along = canonicalize_axis("unstack", axis, value.aval.ndim)
    parts = shape.split(value, [1] * value.aval.shape[along], along)
    return tuple([shape.squeeze(part, (along,)) for part in parts])


@eager_cached
def vsplit(ary: ArrayLike, indices_or_sections: SplitPoints) -> list[Array]:
    """Splits `ary` along its first axis.

    Args:
        ary: An array with at least one axis.
        indices_or_sections: The number of equal sections, or a sequence of indices before which to split.

    Returns:
        The sections, a list of arrays.

    Raises:
        ValueError: If the sections cannot be equal.

    >>> import numpy as np
    >>> [part.tolist() for part in vsplit(np.arange(4).reshape(2, 2), 2)]
    [[[0, 1]], [[2, 3]]]
    """
    return split(ary, indices_or_sections, 0)


@eager_cached
def hsplit(ary: ArrayLike, indices_or_sections: SplitPoints) -> list[Array]:
    """Splits `ary` along its second axis, or the only one of a vector.

    Args:
        ary: An array with at least one axis.
        indices_or_sections: The number of equal sections, or a sequence of indices before which to split.

    Returns:
        The sections, a list of arrays.

    Raises:
        ValueError: If the sections cannot be equal.

    >>> import numpy as np
    >>> [part.tolist() for part in hsplit(np.arange(4).reshape(2, 2), 2)]
    [[[0], [2]], [[1], [3]]]
    """
    return split(ary, indices_or_sections, min(1, max(0, as_operand(ary, "hsplit: ary").aval.ndim - 1)))


@eager_cached
def dsplit(ary: ArrayLike, indices_or_sections: SplitPoints) -> list[Array]:
    """Splits `ary` along its third axis.

    Args:
        ary: An array with at least three axes.
        indices_or_sections: The number of equal sections, or a sequence of indices before which to split.

    Returns:
        The sections, a list of arrays.

    Raises:
        ValueError: If the sections cannot be equal.

    >>> import numpy as np
    >>> [part.shape for part in dsplit(np.ones((2, 2, 4)), [1])]
    [(2, 2, 1), (2, 2, 3)]
    """
    return split(ary, indices_or_sections, 2)
