"""NumPy indexing: integers, slices, `...`, new axes, integer arrays and masks.

Static integers and slices become one `slice` (and `rev`, `squeeze`), integer arrays one `gather`. An index out of
bounds is not an error, since compiled programs could not raise it: it is clamped to the nearest end. Masks must be
concrete, since they determine the result's shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, Final, TypeAlias, cast, final

import numpy as np
from attrs import frozen

from tracefx.bounded_cache import memoize
from tracefx.core import Array, ArrayLike, ConcreteArray, Literal, NDArray, Scalar, Shape, ShapedArray, as_value, dtypes
from tracefx.core.abstract_array import is_jax_array
from tracefx.core.array import Index, IndexPart
from tracefx.core.handler import as_array, bind1, evaluating
from tracefx.core.values import from_jax_array, require_no_mask
from tracefx.dimensions.symbolic_dimensions import has_symbolic_dims, is_symbolic_dim, max_dim, min_dim
from tracefx.errors import ConcretizationError, InconclusiveDimensionOperation, MaskIndexError, SliceIndexError
from tracefx.numpy.creation import array
from tracefx.numpy.kernels import KERNELS
from tracefx.numpy.operand_promotion import as_operand, broadcast_operand_shapes, convert_dtype, reject_out
from tracefx.numpy.symbolic_sizes import size_like, symbolic_slice
from tracefx.numpy.ufuncs import broadcast_select, literal_like, remainder
from tracefx.ops import structural
from tracefx.ops.elementwise import comparison, elementwise, selection
from tracefx.ops.indexing.dynamic_slicing import DynamicSlice
from tracefx.ops.indexing.gather_scatter_add import GatherDimensionNumbers, gather
from tracefx.ops.indexing.indexed_windows import GatherScatterMode, canonicalize_mode
from tracefx.ops.shape import shape
from tracefx.ops.shape.slicing import Slice
from tracefx.ops.static_integers import canonicalize_axis
from tracefx.transforms.eager_calls import eager_cached

_START_AVAL: Final = ShapedArray((), dtypes.int32)
_INT32_MIN: Final = int(dtypes.iinfo(dtypes.int32).min)
_INT32_MAX: Final = int(dtypes.iinfo(dtypes.int32).max)

IndexArray: TypeAlias = NDArray | Array
"""An integer array that indexes one axis: a NumPy array if it is concrete."""


@final
@frozen
class SliceIndex:
    """A slice of one axis: elements from `start` to `stop` (exclusive) with stride `step`, reversed if `reverse`."""

    start: int
    stop: int
    step: int = 1
    reverse: bool = False


@final
@frozen
class IntegerIndex:
    """A single element of an axis, which the result drops."""

    position: int


@final
@frozen(eq=False)
class AdvancedIndex:
    """An integer array that indexes one axis, which the result replaces by the array's axes."""

    indices: IndexArray


AxisIndexer: TypeAlias = SliceIndex | IntegerIndex | AdvancedIndex | None
"""The part of an index for one axis; None is a new axis."""

_ALL: Final = slice(None)


def getitem(x: Array, index: Index, /) -> Array:
    """Returns `x[index]`.

    Args:
        x: The array.
        index: An integer, slice, `...`, None, integer array or mask, or a tuple of them.

    Returns:
        An array of the dtype of `x`.

    Raises:
        TypeError: If a part of the index is of another type, or the bounds of a slice are traced.
        IndexError: If there are more parts than axes, two ellipses, or a mask that is traced or of the wrong shape.

    >>> getitem(array([[0, 1, 2], [3, 4, 5]]), (1, slice(None, None, -1))).tolist()
    [5, 4, 3]
    """
    if type(index) is int:
        position, aval, window, starts, squeezed = _integer_index_operations(x.aval, index)
        if type(x) is ConcreteArray and evaluating():  # fast path
            return ConcreteArray(aval, x.numpy()[position, ...])
        return bind1(squeezed, bind1(window, x, *starts))
    if type(x) is ConcreteArray and evaluating() and (element := _getitem_by_numpy(x, index)) is not None:
        return element
    parts, x, ellipsis = parse_index(x, index)
    axis_parts = [part for part in parts if part is not None]
    x = _apply_slices(x, axis_parts)
    if any(isinstance(part, AdvancedIndex) for part in axis_parts):
        return _apply_gather(x, parts, ellipsis)
    dropped = [i for i, part in enumerate(axis_parts) if isinstance(part, IntegerIndex)]
    if dropped:
        x = shape.squeeze(x, dropped)
    kept = [part for part in parts if not isinstance(part, IntegerIndex)]
    return shape.expand_dims(x, [i for i, part in enumerate(kept) if part is None]) if None in parts else x


def _getitem_by_numpy(x: ConcreteArray, index: Index) -> ConcreteArray | None:
    """Returns `x[index]` computed by NumPy, or None where NumPy would interpret the index differently or raises.

    NumPy raises for indices out of bounds.
    """
    parts = as_numpy_index(index)
    if parts is None:
        return None
    try:
        out = x.numpy()[parts]
    except (IndexError, OverflowError, TypeError, ValueError):
        return None
    return ConcreteArray(x.aval.update(shape=out.shape), out)


def as_numpy_index(index: Index) -> tuple[Any, ...] | None:
    """Returns an index for NumPy that gives an array, or None where NumPy may interpret it differently."""
    parts: list[Any] = []  # NumPy's stubs do not name the type of an index
    complete = False
    for part in index if type(index) is tuple else (index,):
        kind = type(part)
        if type(part) is ConcreteArray or type(part) is np.ndarray:
            known = part.numpy() if isinstance(part, ConcreteArray) else part
            if known.dtype.kind not in "iu" and (known.dtype.kind != "b" or not known.ndim):
                return None
            parts.append(known)
        elif kind is int or kind is slice or part is None:
            parts.append(part)
        elif part is Ellipsis:
            parts.append(part)
            complete = True
        elif type(part) is list and all(type(i) is int for i in part):
            parts.append(part)
        else:
            return None
    if not complete:  # with an ellipsis NumPy returns an array where integers alone give a scalar
        parts.append(Ellipsis)
    return tuple(parts)


@memoize(4096)
def _integer_index_operations(
    x: ShapedArray, index: int
) -> tuple[int, ShapedArray, Slice | DynamicSlice, Sequence[Literal], shape.Squeeze]:
    """Returns the position that `x[index]` selects, the result's aval, and the operations that compute it; cached."""
    sizes = x.shape
    if not sizes:
        raise IndexError(f"too many indices: an array without axes cannot be indexed with {index}")
    indexer = _axis_index(index, sizes[0], 0)
    assert isinstance(indexer, IntegerIndex)
    zeros = (0,) * (len(sizes) - 1)
    window: Slice | DynamicSlice = Slice((indexer.position, *zeros), (indexer.position + 1, *sizes[1:]), None)
    starts: Sequence[Literal] = ()
    if not _is_within(index, sizes[0]):
        window, starts = _clamped_slice(sizes, index, 0)
    return indexer.position, x.update(shape=sizes[1:]), window, starts, shape.Squeeze((0,))


# ------------------------------------------------------------------ parsing the index


def parse_index(
    x: Array, index: Index, *, clamp: bool = True, wrap: bool = True
) -> tuple[list[AxisIndexer], Array, int]:
    """Parses an index into one part per axis.

    Without `clamp`, a static integer becomes an index array without axes, so that one out of bounds stays so; then,
    without `wrap`, negative integers do not count from the end.

    Returns the parts in order, the array (with an axis inserted for each bool), and the position of the ellipsis.
    """
    raw_parts: list[IndexPart] = list(index) if isinstance(index, tuple) else [index]
    parsed = [_parse_part(part) for part in raw_parts]
    used = sum([_count_indexed_axes(part) for part in parsed])
    rank = x.aval.ndim
    if used > rank:
        raise IndexError(f"too many indices: {x.aval} has {rank} axes, but {used} are indexed")
    ellipses = sum([part is Ellipsis for part in parsed])
    if ellipses > 1:
        raise IndexError("an index can have only one ellipsis ('...')")
    remaining_axes: list[_ParsedPart] = [_ALL] * (rank - used)
    ellipsis_position = len(parsed)
    if ellipses:
        ellipsis_position = next(i for i, part in enumerate(parsed) if part is Ellipsis)
        parsed[ellipsis_position : ellipsis_position + 1] = remaining_axes
    else:
        parsed += remaining_axes
    parts: list[AxisIndexer] = []
    axis = ellipsis = 0
    for i, part in enumerate(parsed):
        if i == ellipsis_position:
            ellipsis = len(parts)
        if part is None:
            parts.append(None)
            continue
        assert not isinstance(part, EllipsisType)
        if isinstance(part, bool):  # a new axis of size 1, of which one element or none is selected
            x = shape.expand_dims(x, (axis,))
            parts.append(AdvancedIndex(np.zeros(int(part), np.int32)))
            axis += 1
        elif isinstance(part, _MaskIndex):
            parts += part.to_advanced_indices(x.aval.shape[axis : axis + part.values.ndim], axis)
            axis += part.values.ndim
        else:
            size = x.aval.shape[axis]
            if is_symbolic_dim(part) and not clamp:
                part = as_array(as_value(part))
            elif isinstance(part, int) and not clamp:
                part = np.array(part)
            elif isinstance(part, int) and size and not _is_within(part, size):
                window, starts = _clamped_slice(x.aval.shape, part, axis)
                x, part = bind1(window, x, *starts), 0
            parts.append(_axis_index(part, x.aval.shape[axis], axis, wrap))
            axis += 1
    return parts, x, ellipsis if ellipsis_position < len(parsed) else len(parts)


@final
@frozen(eq=False)
class _MaskIndex:
    """A concrete mask as an index."""

    values: NDArray

    def to_advanced_indices(self, sizes: tuple[int, ...], axis: int) -> list[AdvancedIndex]:
        if self.values.shape != sizes:
            raise IndexError(
                f"a mask of shape {self.values.shape} selects from axes of sizes {sizes} at axis {axis}: "
                "these must agree"
            )
        return [AdvancedIndex(indices.astype(np.int32)) for indices in np.nonzero(self.values)]


_ParsedPart: TypeAlias = bool | int | slice | EllipsisType | _MaskIndex | IndexArray | None


def _parse_part(part: IndexPart) -> _ParsedPart:
    """Validates one part of an index and converts arrays."""
    if part is None or part is Ellipsis or isinstance(part, bool | slice):
        return part
    if is_symbolic_dim(part):
        return cast(int, part)
    if isinstance(part, int | np.integer):
        return int(part)
    if isinstance(part, np.bool_):
        return bool(part)
    if isinstance(part, list | tuple | range):
        part = _from_sequence(part)
    if is_jax_array(part):
        part = from_jax_array(part)
    if not isinstance(part, Array | np.ndarray):
        raise TypeError(
            f"an index must consist of integers, slices, `...`, None and arrays of integers or bools, got {part!r} "
            f"of type {type(part).__name__}"
        )
    if isinstance(part, np.ndarray):
        require_no_mask(part)
    dtype = dtypes.as_dtype(part.dtype, "the dtype of an index")
    if dtypes.is_bool(dtype):
        mask = part.concrete_or_error(MaskIndexError) if isinstance(part, Array) else part
        return _MaskIndex(mask) if mask.ndim else bool(mask)
    if not dtypes.is_integer(dtype):
        raise TypeError(
            f"an index array must be of integers or bools, got {dtypes.name(dtype)}{list(part.shape)}; convert it"
        )
    if type(part) is ConcreteArray or type(part) is Literal:
        part = part.numpy()
    if isinstance(part, np.ndarray):
        return part if part.ndim else int(part)
    return part


def _from_sequence(part: Sequence[int]) -> Array | NDArray:
    if not len(part):
        return np.zeros(0, np.int32)
    indices = array(part)
    return indices.numpy() if type(indices) is ConcreteArray else indices


def _count_indexed_axes(part: _ParsedPart) -> int:
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return part.values.ndim if isinstance(part, _MaskIndex) else 1


def _is_within(index: int, size: int) -> bool:
    """Whether an index is in the bounds of an axis; True for an axis of symbolic size, where it is clamped."""
    return is_symbolic_dim(size) or -size <= index < size


def _axis_index(part: int | slice | IndexArray, size: int, axis: int, wrap: bool = True) -> AxisIndexer:
    if isinstance(part, slice):
        return _slice_index(part, size)
    if isinstance(part, np.ndarray | Array):
        return AdvancedIndex(_normalize_indices(part, size if wrap else 0))
    if size == 0:
        raise IndexError(f"index {part} is out of bounds for axis {axis}, which has size 0")
    return IntegerIndex(min_dim(max_dim(part + size if part < 0 else part, 0), size - 1))


def _clamped_slice(sizes: Shape, index: int, axis: int) -> tuple[DynamicSlice, list[Literal]]:
    """Returns a `dynamic_slice` for an index out of bounds, which clamps it, so that programs show the index itself."""
    start = min(max(index + sizes[axis] if index < 0 else index, _INT32_MIN), _INT32_MAX)
    starts = [Literal(start if d == axis else 0, _START_AVAL) for d in range(len(sizes))]
    return DynamicSlice((*sizes[:axis], 1, *sizes[axis + 1 :])), starts


def _slice_index(part: slice, size: int) -> SliceIndex:
    try:
        start, stop, step = part.indices(size)
    except InconclusiveDimensionOperation:  # the size of the axis or a bound is symbolic
        return SliceIndex(*symbolic_slice(part, size))
    except ConcretizationError as error:
        raise SliceIndexError(
            f"the bounds of {part} determine the shape of the result, so they must be concrete, but {error.detail} For "
            "a window of fixed size at a traced position, use lax.dynamic_slice or an array of indices; to ignore the "
            "other elements, tracefx.numpy.where",
            error.detail,
        ) from error
    except TypeError as error:
        raise TypeError(f"the bounds of {part} must be integers or None") from error
    count = len(range(start, stop, step))
    if count == 0:
        return SliceIndex(0, 0)
    if step > 0:
        return SliceIndex(start, stop, step)
    return SliceIndex(start + (count - 1) * step, start + 1, -step, reverse=True)


def _normalize_indices(indices: IndexArray, size: int) -> IndexArray:
    """Returns nonnegative indices: negative ones count from the end."""
    if isinstance(indices, np.ndarray) and has_symbolic_dims((size,)) and (indices < 0).any():
        indices = as_array(as_value(indices))
    if isinstance(indices, np.ndarray):
        size = 0 if is_symbolic_dim(size) else size  # then no index is negative
        if indices.dtype == np.uint64:
            indices = np.minimum(indices, np.uint64(_INT32_MAX))
        wide = indices if indices.dtype == np.int64 else indices.astype(np.int64)
        return np.where(wide < 0, wide + size, wide).clip(_INT32_MIN, _INT32_MAX).astype(np.int32)
    return normalize_traced_indices(indices, size)


# ------------------------------------------------------------------ applying the index


def _apply_slices(x: Array, parts: Sequence[AxisIndexer]) -> Array:
    """Applies slices and integer indices; an integer index leaves an axis of size 1."""
    starts, limits, strides, reversed_axes = [], [], [], []
    for axis, (part, size) in enumerate(zip(parts, x.aval.shape, strict=True)):
        if isinstance(part, IntegerIndex):
            window = SliceIndex(part.position, part.position + 1)
        else:
            window = part if isinstance(part, SliceIndex) else SliceIndex(0, size)
        starts.append(window.start)
        limits.append(window.stop)
        strides.append(window.step)
        if window.reverse:
            reversed_axes.append(axis)
    if any(starts) or tuple(limits) != x.aval.shape or any(s != 1 for s in strides):
        x = shape.slice(x, starts, limits, None if all(s == 1 for s in strides) else strides)
    return shape.rev(x, reversed_axes) if reversed_axes else x


def _apply_gather(x: Array, parts: Sequence[AxisIndexer], ellipsis: int) -> Array:
    """Gathers the elements at index arrays, after slices have been applied."""
    axis_parts = [part for part in parts if part is not None]
    indexed = [i for i, part in enumerate(axis_parts) if isinstance(part, AdvancedIndex)]
    integer_axes = [i for i, part in enumerate(axis_parts) if isinstance(part, IntegerIndex)]
    vectors, sizes = index_vectors([part.indices for part in axis_parts if isinstance(part, AdvancedIndex)])
    layout = result_layout(parts, ellipsis)
    without_new = [item for item in layout if item != "new"]
    front = without_new.index("indexed")
    rank = len(without_new) - 1 + len(sizes)
    numbers = GatherDimensionNumbers(
        offset_dims=[i for i in range(rank) if not front <= i < front + len(sizes)],
        collapsed_slice_dims=sorted([*indexed, *integer_axes]),
        start_index_map=indexed,
    )
    windows = [1 if i in indexed or i in integer_axes else n for i, n in enumerate(x.aval.shape)]
    if 0 in sizes and 0 in x.aval.shape:  # an empty result, from an array without elements
        kept = [n for i, n in enumerate(windows) if i not in indexed and i not in integer_axes]
        out = structural.full_like_aval(x.aval.update(shape=(*kept[:front], *sizes, *kept[front:])), 0)
    else:
        out = gather(x, vectors, numbers, windows, mode=GatherScatterMode.PROMISE_IN_BOUNDS)
    if "new" not in layout:
        return out
    position = layout.index("indexed")
    return shape.expand_dims(
        out, [i + (len(sizes) - 1) * (i > position) for i, item in enumerate(layout) if item == "new"]
    )


def result_layout(parts: Sequence[AxisIndexer], ellipsis: int) -> list[str]:
    """Returns the kinds of the result's axes: "axis" for a slice, "new", and once "indexed" for the index arrays.

    The axes of the index arrays replace the arrays if these are adjacent, and otherwise come first. An ellipsis between
    index arrays separates them even if it stands for no axis.
    """
    arrays = [i for i, part in enumerate(parts) if isinstance(part, IntegerIndex | AdvancedIndex)]
    if not arrays:
        return ["new" if part is None else "axis" for part in parts]
    adjacent = arrays[-1] - arrays[0] + 1 == len(arrays) and not arrays[0] < ellipsis <= arrays[-1]
    names = ["new" if part is None else "axis" for part in parts]
    before = arrays[0] if adjacent else 0
    others = [name for i, name in enumerate(names) if i not in arrays]
    return [*others[:before], "indexed", *others[before:]]


def index_vectors(indices: Sequence[IndexArray]) -> tuple[ArrayLike, Shape]:
    """Returns index arrays of `k` axes as one array of vectors, `i32[..., k]`, and their broadcast shape."""
    sizes = broadcast_operand_shapes("indexing", *[tuple(i.shape) for i in indices])
    columns = [structural.broadcast_in_dim(i, (*sizes, 1), range(len(sizes) - i.ndim, len(sizes))) for i in indices]
    return (columns[0] if len(columns) == 1 else shape.concatenate(columns, len(sizes))), sizes


def saturate_to_int32(indices: Array) -> Array:
    """Returns indices as int32; those beyond it, which are out of bounds of every axis, become its extremes."""
    if not _fits_int32(indices):
        low = _INT32_MIN if dtypes.is_signed(indices.aval.dtype) else 0
        indices = selection.clamp(literal_like(indices, low), indices, literal_like(indices, _INT32_MAX))
    return as_array(convert_dtype(indices, dtypes.int32))


def index_remainder(indices: Array, size: int) -> Array:
    """Returns the remainders of integers modulo an axis size, as int32."""
    if _fits_int32(indices):
        indices = as_array(convert_dtype(indices, dtypes.int32))
    return as_array(convert_dtype(remainder(indices, size), dtypes.int32))


def _fits_int32(indices: Array) -> bool:
    dtype = indices.aval.dtype
    return dtypes.itemsize_bits(dtype) + (not dtypes.is_signed(dtype)) <= 32


def normalize_traced_indices(indices: Array, size: int) -> Array:
    """Returns nonnegative indices from traced ones: negative ones count from the end."""
    converted = saturate_to_int32(indices)
    if not dtypes.is_signed(indices.aval.dtype):
        return converted
    return broadcast_select(
        comparison.lt(converted, literal_like(converted, 0)),
        elementwise.add(converted, size_like(converted, size)),
        converted,
    )


# ------------------------------------------------------------------ taking along an axis


@eager_cached(kernel=KERNELS["take"])
def take(
    a: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: Scalar | None = None,
) -> Array:
    """Returns the elements of `a` at `indices` along an axis.

    Args:
        a: The array.
        indices: An integer array; negative indices count from the end, except with `mode="clip"`.
        axis: The axis; None means the flattened array.
        out: Not supported; must be None.
        mode: How to treat indices out of bounds: `"fill"` (or None) gives `fill_value`, `"clip"` the nearest element,
            `"wrap"` the index modulo the size.
        unique_indices: Promises that no index occurs twice, which the compiler may use.
        indices_are_sorted: Promises that the indices are sorted.
        fill_value: The element for indices out of bounds; None means NaN, or an extreme of an integer dtype.

    Returns:
        An array of the dtype of `a`, with the axes of `indices` in place of the axis.

    Raises:
        IndexError: If the axis has no elements to take.

    >>> take(array([5.0, 6.0, 7.0]), array([2, 0, 9])).tolist()
    [7.0, 5.0, nan]
    """
    reject_out("take", out)
    x = as_array(as_operand(a, "take: a"))
    if axis is None:
        x, along = structural.reshape(x, (x.aval.size,)), 0
    else:
        along = canonicalize_axis("take", axis, x.aval.ndim)
    if mode not in (None, "fill", "clip", "wrap"):
        raise ValueError(f"take: mode must be 'fill', 'clip' or 'wrap', got {mode!r}")
    normalized, gather_mode = _indices_and_mode("take", indices, x.aval.shape[along], mode, mode != "clip")
    if x.aval.shape[along] == 0 and normalized.aval.size:
        raise IndexError(f"take: axis {along} of {x.aval} has no elements to take")
    columns = structural.broadcast_in_dim(normalized, (*normalized.aval.shape, 1), range(normalized.aval.ndim))
    count, rank = normalized.aval.ndim, x.aval.ndim - 1 + normalized.aval.ndim
    numbers = GatherDimensionNumbers(
        offset_dims=[i for i in range(rank) if not along <= i < along + count],
        collapsed_slice_dims=(along,),
        start_index_map=(along,),
    )
    windows = [1 if i == along else n for i, n in enumerate(x.aval.shape)]
    promises = {"unique_indices": unique_indices, "indices_are_sorted": indices_are_sorted}
    return gather(x, columns, numbers, windows, **promises, mode=gather_mode, fill_value=fill_value)


@eager_cached(kernel=KERNELS["take_along_axis"])
def take_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    axis: int | None = -1,
    mode: str | GatherScatterMode | None = None,
    fill_value: Scalar | None = None,
    *,
    wrap_negative_indices: bool = True,
) -> Array:
    """Returns the elements of `arr` at `indices` along an axis, separately for each position along the other axes.

    Args:
        arr: The array.
        indices: Integers with as many axes as `arr`, for example from `argsort`. The other axes broadcast.
        axis: The axis; None means the flattened arrays.
        mode: How to treat indices out of bounds: as for `take`, or `"one_hot"` for zeros; `"promise_in_bounds"`
            promises that there are none.
        fill_value: The element for indices out of bounds, as for `take`.
        wrap_negative_indices: Whether negative indices count from the end, with every `mode`; if False, they are out of
            bounds.

    Returns:
        An array of the dtype of `arr`, with the size of `indices` along the axis.

    Raises:
        ValueError: If `arr` and `indices` have different numbers of axes.

    >>> take_along_axis(array([[1, 2], [3, 4]]), array([[1], [0]]), axis=1).tolist()
    [[2], [3]]
    """
    x, index = (
        as_array(as_operand(arr, "take_along_axis: arr")),
        as_array(as_operand(indices, "take_along_axis: indices")),
    )
    if axis is None:
        x, index, axis = structural.reshape(x, (x.aval.size,)), structural.reshape(index, (index.aval.size,)), 0
    if index.aval.ndim != x.aval.ndim:
        raise ValueError(f"take_along_axis: arr {x.aval} and indices {index.aval} must have equally many axes")
    along = canonicalize_axis("take_along_axis", axis, x.aval.ndim)
    if mode in ("one_hot", GatherScatterMode.ONE_HOT):
        mode, fill_value = "fill", 0
    normalized, gather_mode = _indices_and_mode(
        "take_along_axis", index, x.aval.shape[along], mode, wrap_negative_indices
    )
    others = [i for i in range(x.aval.ndim) if i != along]
    other_sizes = broadcast_operand_shapes(
        "take_along_axis", *[tuple([v.aval.shape[i] for i in others]) for v in (x, normalized)]
    )

    def broadcast_others(v: Array) -> Array:
        sizes = [*other_sizes[:along], v.aval.shape[along], *other_sizes[along:]]
        return structural.broadcast_to(v, tuple(sizes))

    x, normalized = broadcast_others(x), broadcast_others(normalized)
    if not normalized.aval.size or not x.aval.size:  # a window of one element does not fit an axis without elements
        return structural.full_like_aval(x.aval.update(shape=normalized.aval.shape), 0)
    numbers = GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(along,),
        start_index_map=(along,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )
    columns = structural.reshape(normalized, (*normalized.aval.shape, 1))
    return gather(x, columns, numbers, (1,) * x.aval.ndim, mode=gather_mode, fill_value=fill_value)


def _indices_and_mode(
    name: str, indices: ArrayLike, size: int, mode: str | GatherScatterMode | None, wrap: bool
) -> tuple[Array, GatherScatterMode]:
    """Returns validated indices and the gather mode for those out of bounds.

    Negative ones count from the end if `wrap`.
    """
    checked = as_array(as_operand(indices, f"{name}: indices"))
    if not dtypes.is_integer(checked.aval.dtype):
        raise TypeError(f"{name}: indices must be integers, got {checked.aval}")
    if mode == "wrap":
        return index_remainder(checked, max(size, 1)), GatherScatterMode.PROMISE_IN_BOUNDS
    gather_mode = canonicalize_mode(name, "fill" if mode is None else mode)
    if not wrap and gather_mode is GatherScatterMode.CLIP:
        return saturate_to_int32(checked), gather_mode
    return normalize_traced_indices(checked, size if wrap else 0), gather_mode
