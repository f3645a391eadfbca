"""More functions for joining and splitting: `column_stack`, `dstack`, `block`, `unstack`, `vsplit` and relatives."""

from __future__ import annotations

from typing import TypeAlias

from tracefx.core import Array, ArrayLike, DTypeLike
from tracefx.core.handler import as_array
from tracefx.numpy.joining import Arrays, SplitPoints, concatenate, promote_sequence, split
from tracefx.numpy.operand_promotion import as_operand
from tracefx.numpy.shapes import atleast_3d
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import canonicalize_axis
from tracefx.ops.structural import reshape
from tracefx.transforms.eager_calls import eager_cached

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
