"""Sorting: `sort`, `argsort`, `lexsort`, `partition` and relatives.

NaN comes last, -0.0 equals 0.0, complex numbers are ordered by their real and then by their imaginary parts, each of
which may be NaN. Indices have the default integer dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal as LiteralType
from typing import SupportsIndex

import numpy as np

from tracefx.core import Array, ArrayLike, ConcreteArray, DType, DTypeLike, Literal, NDArray, ShapedArray, Value, dtypes
from tracefx.core.handler import as_array, bind, evaluating
from tracefx.core.kernel_context import call_kernel
from tracefx.numpy.kernels import KERNELS
from tracefx.numpy.operand_promotion import as_operand, convert_dtype
from tracefx.ops import structural
from tracefx.ops.elementwise.arithmetic import neg
from tracefx.ops.elementwise.bitwise import bitwise_not
from tracefx.ops.indexing import sorting
from tracefx.ops.indexing import top_k as indexing_top_k
from tracefx.ops.shape import array_creation, shape
from tracefx.ops.static_integers import canonicalize_axis
from tracefx.transforms.eager_calls import eager_cached


def _sort_operand(name: str, a: ArrayLike, axis: int | None) -> tuple[Value, int]:
    """Returns the operand and the axis to sort along; flattens for None."""
    x = as_operand(a, f"{name}: a")
    if axis is None:
        return structural.reshape(x, (x.aval.size,)), 0
    return x, canonicalize_axis(name, axis, x.aval.ndim)


def _reject_kind_and_order(name: str, kind: object, order: object) -> None:
    if kind is not None:
        raise TypeError(f"{name}: kind must be None, got {kind!r}; pass stable=True or stable=False")
    if order is not None:
        raise TypeError(f"{name}: order must be None, since arrays have no named fields, got {order!r}")


@eager_cached
def sort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Array:
    """Sorts elements along an axis.

    Args:
        a: The array.
        axis: The axis; None means the flattened array.
        kind: Not supported; must be None.
        order: Not supported; must be None.
        stable: Whether equal elements keep their order (in reverse if `descending`), which shows for -0.0 and 0.0 only.
        descending: Whether to sort in descending order.

    Returns:
        An array of the shape and dtype of `a`; a vector if `axis` is None.

    >>> sort(np.array([3, 1, 2]))
    Array([1, 2, 3], dtype=int32)
    """
    _reject_kind_and_order("sort", kind, order)
    x, along = _sort_operand("sort", a, axis)
    out = sorting.sort(x, along, stable)
    return shape.rev(out, (along,)) if descending else out


@eager_cached(kernel=KERNELS["argsort"])
def argsort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
    dtype: DTypeLike | None = None,
) -> Array:
    """Returns the indices that sort elements along an axis.

    Args:
        a: The array.
        axis: The axis; None means the flattened array.
        kind: Not supported; must be None.
        order: Not supported; must be None.
        stable: Whether equal elements keep their order, also if `descending`.
        descending: Whether to sort in descending order.
        dtype: The dtype of the indices; None means the default integer.

    Returns:
        An array of integers of the shape of `a`; a vector if `axis` is None.

    >>> argsort(np.array([3, 1, 2]))
    Array([1, 2, 0], dtype=int32)
    """
    _reject_kind_and_order("argsort", kind, order)
    x, along = _sort_operand("argsort", a, axis)
    result_dtype = (
        dtypes.index_dtype(x.aval.shape[along]) if dtype is None else dtypes.as_dtype(dtype, "argsort: dtype")
    )
    if (
        type(x) is ConcreteArray
        and evaluating()
        and dtypes.itemsize_bits(result_dtype) >= 32
        and not dtypes.is_key(x.aval.dtype)
    ):
        return call_kernel(_argsort_by_numpy, [x.numpy()], along, stable and descending, descending, result_dtype)
    numbers = array_creation.broadcasted_iota(result_dtype, x.aval.shape, along)
    if descending and stable:
        x, numbers = shape.rev(x, (along,)), shape.rev(numbers, (along,))
    _, indices = bind(sorting.Sort(along, stable, 1), x, numbers)
    return shape.rev(indices, (along,)) if descending else as_array(indices)


def _argsort_by_numpy(keys: Sequence[NDArray], axis: int, backwards: bool, descending: bool, dtype: DType) -> Array:
    """Returns the sorting indices of concrete keys with NumPy, as `Sort` would, without moving the keys."""
    n = keys[0].shape[axis]
    ordered_keys = [np.flip(key, axis) for key in keys] if backwards else keys
    out = sorting.Sort(axis, True, len(keys)).argsort(*ordered_keys)
    if backwards:
        out = n - 1 - out
    indices = np.ascontiguousarray(np.flip(out, axis) if descending else out).astype(dtype, copy=False)
    return ConcreteArray(ShapedArray(indices.shape, dtype), indices)


def lexsort(keys: Array | NDArray | Sequence[ArrayLike], axis: int = -1, *, batch_size: SupportsIndex = 16) -> Array:
    """Returns the indices that sort by several keys, of which the last is the most significant.

    Args:
        keys: A sequence of arrays of one shape, or an array of them along its first axis.
        axis: The axis to sort along.
        batch_size: The number of keys that JAX compares in one sort. It has no effect: one sort compares all keys.

    Returns:
        An array of integers of the shape of one key.

    Raises:
        TypeError: If there are no keys.
        ValueError: If the shapes of keys differ.

    >>> lexsort((np.array([3, 1, 2]), np.array([1, 1, 0])))
    Array([2, 1, 0], dtype=int32)
    """
    if isinstance(keys, Array | np.ndarray) and not keys.ndim:
        raise TypeError(f"lexsort: keys must be a sequence of arrays, or an array with axes, got {keys!r}")
    values = [as_operand(key, f"lexsort: key {i}") for i, key in enumerate(keys)]
    if not values:
        raise TypeError("lexsort: there must be at least one key")
    sizes = values[0].aval.shape
    for i, value in enumerate(values):
        if value.aval.shape != sizes:
            raise ValueError(f"lexsort: keys must have one shape, but key 0 is {values[0].aval} and {i} {value.aval}")
    if not sizes:
        return as_array(Literal(0, ShapedArray((), dtypes.default_int())))
    along = canonicalize_axis("lexsort", axis, len(sizes))
    dtype = dtypes.index_dtype(sizes[along])
    if evaluating() and all(type(v) is ConcreteArray for v in values):
        known = [v.numpy() for v in reversed(values) if type(v) is ConcreteArray]
        return call_kernel(_argsort_by_numpy, known, along, False, False, dtype)
    numbers = array_creation.broadcasted_iota(dtype, sizes, along)
    return sorting.sort([*reversed(values), numbers], along, num_keys=len(values))[-1]


def sort_complex(a: ArrayLike) -> Array:
    """Returns `a` as complex numbers, sorted along the last axis.

    Args:
        a: An array with at least one axis.

    Returns:
        An array of complex numbers of the shape of `a`.

    >>> sort_complex(np.array([3, 1, 2]))
    Array([1.+0.j, 2.+0.j, 3.+0.j], dtype=complex64)
    """
    out = sorting.sort(as_operand(a, "sort_complex: a"))
    if dtypes.is_complex(out.aval.dtype):
        return out
    return as_array(convert_dtype(out, dtypes.complex128 if out.aval.dtype == dtypes.float64 else dtypes.complex64))


# ------------------------------------------------------------------ partitioning


def _partition_operand(name: str, a: ArrayLike, kth: int, axis: int) -> tuple[Value, int, int]:
    x = as_operand(a, f"{name}: a")
    if dtypes.is_complex(x.aval.dtype):
        raise NotImplementedError(f"{name} does not support complex numbers; use sort or argsort")
    along = canonicalize_axis(name, axis, x.aval.ndim)
    return x, canonicalize_axis(name, kth, x.aval.shape[along], "kth"), along


def partition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """Partitions elements along an axis around the element that is at `kth` in sorted order.

    Elements before it are not greater, elements after it not less; their order is unspecified.

    Args:
        a: The array.
        kth: The position in sorted order, a static integer.
        axis: The axis.

    Returns:
        An array of the shape and dtype of `a`.

    Raises:
        NotImplementedError: If `a` is complex.

    >>> partition(np.array([5, 1, 4, 2, 3]), 2)[2]
    Array(3, dtype=int32)
    """
    x, position, along = _partition_operand("partition", a, kth, axis)
    out = sorting.sort(x, along, is_stable=False)
    n = out.aval.shape[along]
    after = shape.rev(shape.slice_axis(out, position + 1, n, along), (along,))
    return shape.concatenate([shape.slice_axis(out, 0, position + 1, along), after], along)


def argpartition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """Returns the indices of the elements of `partition`, those after `kth` in ascending order.

    Args:
        a: The array.
        kth: The position in sorted order, a static integer.
        axis: The axis.

    Returns:
        An array of integers of the shape of `a`.

    Raises:
        NotImplementedError: If `a` is complex.

    >>> argpartition(np.array([5, 1, 4, 2, 3]), 2).tolist()
    [1, 3, 4, 0, 2]
    """
    x, position, along = _partition_operand("argpartition", a, kth, axis)
    n = x.aval.shape[along]
    order = argsort(x, along, dtype=dtypes.int32)
    after = sorting.sort(shape.slice_axis(order, position + 1, n, along), along)
    return shape.concatenate([shape.slice_axis(order, 0, position + 1, along), after], along)


def top_k(
    a: ArrayLike,
    k: SupportsIndex,
    /,
    *,
    axis: SupportsIndex = -1,
    mode: LiteralType["largest", "smallest"] = "largest",
    sorted: bool = True,
) -> tuple[Array, Array]:
    """Returns the `k` largest or smallest elements along an axis, and their indices.

    Of equal elements, the one with the smaller index comes first. The largest ones are those of `lax.top_k`; the
    smallest floats are the largest ones of `-a`.

    Args:
        a: The array; not complex.
        k: How many elements, static; at most the size of the axis.
        axis: The axis to search.
        mode: "largest" or "smallest".
        sorted: Whether the elements must be in order; they always are.

    Returns:
        A pair of arrays: values, and indices (`i32`). Their size along the axis is `k`.

    Raises:
        TypeError: If `a` is a scalar.
        ValueError: If `a` is complex, `k` is out of range, there is no such axis, or `mode` is another string.

    >>> values, indices = top_k(np.array([4, 1, 3]), 2, mode="smallest")
    >>> values.tolist(), indices.tolist()
    ([1, 3], [1, 2])
    """
    x = as_operand(a, "top_k: a")
    if mode not in ("largest", "smallest"):
        raise ValueError(f"top_k: mode must be 'largest' or 'smallest', got {mode!r}")
    if mode == "largest":
        return indexing_top_k.top_k(x, k, axis=axis)
    reverse = neg if dtypes.is_float(x.aval.dtype) else bitwise_not
    values, indices = indexing_top_k.top_k(reverse(x), k, axis=axis)
    return reverse(values), indices
