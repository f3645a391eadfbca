"""Indexing, as NumPy's: integers, slices, `...`, new axes, integer arrays and masks.

Integers and slices known when the program is traced become one `slice` (and `rev`, `squeeze`). Integer arrays become
one `gather`. An index out of bounds is no error, since compiled programs could not raise it: it is clamped to the
nearest end. Masks must be known when the program is traced, since they decide the result's shape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any, Final, TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike, Index, IndexPart, is_jax_array
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import as_array, bind1, evaluating
from tracefx.core.literal import Literal, Scalar
from tracefx.core.values import ConcreteArray, Value, from_jax_array, require_no_mask
from tracefx.errors import ConcretizationError
from tracefx.numpy import evaluated
from tracefx.numpy.creation import array
from tracefx.numpy.operand_promotion import as_operand, broadcast_operand_shapes, convert_dtype, reject_out
from tracefx.numpy.ufuncs import broadcast_select, literal_like, remainder
from tracefx.ops import structural
from tracefx.ops.elementwise import comparison, elementwise
from tracefx.ops.indexing.dynamic_slicing import DynamicSlice
from tracefx.ops.indexing.gather_scatter_add import GatherDimensionNumbers, gather
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.shape import shape
from tracefx.ops.shape.slicing import Slice
from tracefx.ops.static_integers import canonicalize_axis
from tracefx.transforms.evaluations import Number

_START_AVAL: Final = ShapedArray((), dtypes.int32)
_INT32_MIN: Final = int(dtypes.iinfo(dtypes.int32).min)
_INT32_MAX: Final = int(dtypes.iinfo(dtypes.int32).max)

IndexArray: TypeAlias = NDArray | Array
"""Integers that say where along one axis to look: NumPy's if they are known."""


class MaskIndexError(ConcretizationError, IndexError):
    """A mask that is traced was used as an index: the shape of the result would depend on its values."""


@final
@frozen
class SliceIndex:
    """A slice of one axis: the elements from `start` to before `stop`, `step` apart, perhaps in reverse order."""

    start: int
    stop: int
    step: int = 1
    reverse: bool = False


@final
@frozen
class IntegerIndex:
    """One element of an axis, which the result does not have."""

    position: int


@final
@frozen(eq=False)
class AdvancedIndex:
    """Many elements of an axis, in the place of which the result has the axes of an index array."""

    indices: IndexArray


AxisIndexer: TypeAlias = SliceIndex | IntegerIndex | AdvancedIndex | None
"""What an index says of one axis; None is a new axis."""

_ALL: Final = slice(None)


def getitem(x: Array, index: Index, /) -> Array:
    """`x[index]`.

    Raises TypeError for what is no index and for slice bounds that are traced, IndexError for more parts than `x` has
    axes, two ellipses, or a mask that is traced or has another shape than what it selects from.

    >>> getitem(array([[0, 1, 2], [3, 4, 5]]), (1, slice(None, None, -1))).tolist()
    [5, 4, 3]
    """
    if type(index) is int:
        position, aval, window, starts, squeezed = _integer_index_operations(x.aval, index)
        if type(x) is ConcreteArray and evaluating():  # at one go
            return ConcreteArray(aval, x.numpy()[position, ...])
        return bind1(squeezed, bind1(window, x, *starts))
    if type(x) is ConcreteArray and evaluating() and (found := _getitem_by_numpy(x, index)) is not None:
        return found
    parts, x, ellipsis = parse_index(x, index)
    axis_parts = [part for part in parts if part is not None]
    x = _apply_slices(x, axis_parts)
    if any(isinstance(part, AdvancedIndex) for part in axis_parts):
        return _apply_gather(x, parts, ellipsis)
    gone = [i for i, part in enumerate(axis_parts) if isinstance(part, IntegerIndex)]
    if gone:
        x = shape.squeeze(x, gone)
    left = [part for part in parts if not isinstance(part, IntegerIndex)]
    return shape.expand_dims(x, [i for i, part in enumerate(left) if part is None]) if None in parts else x


def _getitem_by_numpy(x: ConcreteArray, index: Index) -> ConcreteArray | None:
    """`x[index]` by NumPy, which reads an index as we do; None where it refuses it or we may read it otherwise.

    What is out of bounds it refuses.
    """
    parts = as_numpy_index(index)
    if parts is None:
        return None
    try:
        out = x.numpy()[parts]
    except (IndexError, TypeError, ValueError):
        return None
    return ConcreteArray(x.aval.update(shape=out.shape), out)


def as_numpy_index(index: Index) -> tuple[Any, ...] | None:
    """An index as NumPy takes it, which then gives an array; None where we may read it otherwise."""
    parts: list[Any] = []  # what NumPy takes, which its stubs do not say
    complete = False
    for part in index if type(index) is tuple else (index,):
        kind = type(part)
        if kind is ConcreteArray or kind is np.ndarray:
            known = part.numpy() if type(part) is ConcreteArray else part
            assert isinstance(known, np.ndarray)
            if known.dtype.kind not in "iu" and (known.dtype.kind != "b" or not known.ndim):
                return None
            parts.append(known)
        elif kind is int or kind is slice or part is None:
            parts.append(part)
        elif part is Ellipsis:
            parts.append(part)
            complete = True
        elif kind is list and all(type(i) is int for i in part):  # type: ignore[union-attr]  # narrowed by the test
            parts.append(part)
        else:
            return None
    if not complete:  # an ellipsis makes sure of an array, where integers alone give a scalar
        parts.append(Ellipsis)
    return tuple(parts)


@functools.lru_cache(maxsize=4096)
def _integer_index_operations(
    x: ShapedArray, index: int
) -> tuple[int, ShapedArray, Slice | DynamicSlice, Sequence[Literal], shape.Squeeze]:
    """The place that `x[index]` means, its type, and the operations that it is made of."""
    sizes = x.shape
    if not sizes:
        raise IndexError(f"too many indices: an array without axes is indexed with {index}")
    place = _axis_index(index, sizes[0], 0)
    assert isinstance(place, IntegerIndex)
    rest = (0,) * (len(sizes) - 1)
    window: Slice | DynamicSlice = Slice((place.position, *rest), (place.position + 1, *sizes[1:]), None)
    starts: Sequence[Literal] = ()
    if not -sizes[0] <= index < sizes[0]:
        window, starts = _clamped_slice(sizes, index, 0)
    return place.position, x.update(shape=sizes[1:]), window, starts, shape.Squeeze((0,))


# ------------------------------------------------------------------ reading the index


def parse_index(
    x: Array, index: Index, *, clamp: bool = True, wrap: bool = True
) -> tuple[list[AxisIndexer], Array, int]:
    """What the index says of each axis, in order; the array, with an axis put in for each bool; the ellipsis' place.

    Without `clamp` a static integer is an index array without axes, so that one out of bounds stays so; then, without
    `wrap`, negative integers don't count from the end.
    """
    given: list[IndexPart] = list(index) if isinstance(index, tuple) else [index]
    read = [_parse_part(part) for part in given]
    used = sum([_count_indexed_axes(part) for part in read])
    rank = x.aval.ndim
    if used > rank:
        raise IndexError(f"too many indices: {x.aval} has {rank} axes, but {used} are indexed")
    ellipses = sum([part is Ellipsis for part in read])
    if ellipses > 1:
        raise IndexError("an index can have only one ellipsis ('...')")
    rest: list[_ParsedPart] = [_ALL] * (rank - used)
    place = len(read)
    if ellipses:
        place = next(i for i, part in enumerate(read) if part is Ellipsis)
        read[place : place + 1] = rest
    else:
        read += rest
    parts: list[AxisIndexer] = []
    axis = ellipsis = 0
    for i, part in enumerate(read):
        if i == place:
            ellipsis = len(parts)
        if part is None:
            parts.append(None)
            continue
        assert not isinstance(part, EllipsisType)
        if isinstance(part, bool):  # a new axis, of which all or nothing is taken
            x = shape.expand_dims(x, (axis,))
            parts.append(AdvancedIndex(np.zeros(int(part), np.int32)))
            axis += 1
        elif isinstance(part, _MaskIndex):
            parts += part.to_advanced_indices(x.aval.shape[axis : axis + part.values.ndim], axis)
            axis += part.values.ndim
        else:
            size = x.aval.shape[axis]
            if isinstance(part, int) and not clamp:
                part = np.array(part)
            elif isinstance(part, int) and size and not -size <= part < size:
                window, starts = _clamped_slice(x.aval.shape, part, axis)
                x, part = bind1(window, x, *starts), 0
            parts.append(_axis_index(part, x.aval.shape[axis], axis, wrap))
            axis += 1
    return parts, x, ellipsis if place < len(read) else len(parts)


@final
@frozen(eq=False)
class _MaskIndex:
    values: NDArray

    def to_advanced_indices(self, sizes: tuple[int, ...], axis: int) -> list[AdvancedIndex]:
        if self.values.shape != sizes:
            raise IndexError(f"a mask of shape {self.values.shape} selects from axes of sizes {sizes} at axis {axis}")
        return [AdvancedIndex(found.astype(np.int32)) for found in np.nonzero(self.values)]


_ParsedPart: TypeAlias = bool | int | slice | EllipsisType | _MaskIndex | IndexArray | None


def _parse_part(part: IndexPart) -> _ParsedPart:
    """One part of an index, sorted out."""
    if part is None or part is Ellipsis or isinstance(part, bool | slice):
        return part
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
            f"an index must be made of integers, slices, `...`, None and arrays of integers or bools, got {part!r} "
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
    if type(part) is ConcreteArray:
        part = part.numpy()
    if isinstance(part, np.ndarray):
        return part if part.ndim else int(part)
    return part


def _from_sequence(part: Sequence[int]) -> Array | NDArray:
    if not len(part):
        return np.zeros(0, np.int32)
    found = array(part)
    return found.numpy() if type(found) is ConcreteArray else found


def _count_indexed_axes(part: _ParsedPart) -> int:
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return part.values.ndim if isinstance(part, _MaskIndex) else 1


def _axis_index(part: int | slice | IndexArray, size: int, axis: int, wrap: bool = True) -> AxisIndexer:
    if isinstance(part, slice):
        return _slice_index(part, size)
    if not isinstance(part, int):
        return AdvancedIndex(_normalize_indices(part, size if wrap else 0))
    if size == 0:
        raise IndexError(f"index {part} is out of bounds for axis {axis}, which has size 0")
    return IntegerIndex(min(max(part + size if part < 0 else part, 0), size - 1))


def _clamped_slice(sizes: Shape, index: int, axis: int) -> tuple[DynamicSlice, list[Literal]]:
    """What takes the place of an axis that is nearest to one out of bounds, and says which was asked for."""
    place = min(max(index + sizes[axis] if index < 0 else index, _INT32_MIN), _INT32_MAX)
    starts = [Literal(place if d == axis else 0, _START_AVAL) for d in range(len(sizes))]
    return DynamicSlice((*sizes[:axis], 1, *sizes[axis + 1 :])), starts


def _slice_index(part: slice, size: int) -> SliceIndex:
    try:
        start, stop, step = part.indices(size)
    except TypeError as error:
        raise TypeError(
            f"the bounds of {part} must be integers known when the program is traced: {error} Slices decide the shape "
            "of the result; to move a window of fixed size use an integer array as index"
        ) from error
    count = len(range(start, stop, step))
    if count == 0:
        return SliceIndex(0, 0)
    if step > 0:
        return SliceIndex(start, stop, step)
    return SliceIndex(start + (count - 1) * step, start + 1, -step, reverse=True)


def _normalize_indices(indices: IndexArray, size: int) -> IndexArray:
    """Indices counted from the start, where negative ones count from the end."""
    if isinstance(indices, np.ndarray):
        wide = indices if indices.dtype == np.int64 else indices.astype(np.int64)
        return np.where(wide < 0, wide + size, wide).clip(_INT32_MIN, _INT32_MAX).astype(np.int32)
    return normalize_traced_indices(indices, size)


# ------------------------------------------------------------------ carrying it out


def _apply_slices(x: Array, parts: Sequence[AxisIndexer]) -> Array:
    """The slices and single places of an index taken; a single place is left as an axis of size 1."""
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
    """The elements at index arrays, slices being taken already."""
    axis_parts = [part for part in parts if part is not None]
    indexed = [i for i, part in enumerate(axis_parts) if isinstance(part, AdvancedIndex)]
    places = [i for i, part in enumerate(axis_parts) if isinstance(part, IntegerIndex)]
    vectors, sizes = index_vectors([part.indices for part in axis_parts if isinstance(part, AdvancedIndex)])
    layout = result_layout(parts, ellipsis)
    old = [item for item in layout if item != "new"]
    front = old.index("indexed")
    rank = len(old) - 1 + len(sizes)
    numbers = GatherDimensionNumbers(
        offset_dims=[i for i in range(rank) if not front <= i < front + len(sizes)],
        collapsed_slice_dims=sorted([*indexed, *places]),
        start_index_map=indexed,
    )
    windows = [1 if i in indexed or i in places else n for i, n in enumerate(x.aval.shape)]
    if 0 in sizes and 0 in x.aval.shape:  # nothing is read, of an axis that has nothing to read
        kept = [n for i, n in enumerate(windows) if i not in indexed and i not in places]
        out = structural.full_like_aval(x.aval.update(shape=(*kept[:front], *sizes, *kept[front:])), 0)
    else:
        out = gather(x, vectors, numbers, windows, mode=GatherScatterMode.PROMISE_IN_BOUNDS)
    if "new" not in layout:
        return out
    at = layout.index("indexed")
    return shape.expand_dims(out, [i + (len(sizes) - 1) * (i > at) for i, item in enumerate(layout) if item == "new"])


def result_layout(parts: Sequence[AxisIndexer], ellipsis: int) -> list[str]:
    """What stands in the result, in order: "axis" for a slice, "new", and once "indexed" for the index arrays' axes.

    Those stand where the index arrays stood, if they stood side by side, and otherwise in front. An ellipsis between
    them separates them even if it stands for no axis.
    """
    arrays = [i for i, part in enumerate(parts) if isinstance(part, IntegerIndex | AdvancedIndex)]
    if not arrays:
        return ["new" if part is None else "axis" for part in parts]
    together = arrays[-1] - arrays[0] + 1 == len(arrays) and not arrays[0] < ellipsis <= arrays[-1]
    names = ["new" if part is None else "axis" for part in parts]
    before = arrays[0] if together else 0
    rest = [name for i, name in enumerate(names) if i not in arrays]
    return [*rest[:before], "indexed", *rest[before:]]


def index_vectors(indices: Sequence[IndexArray]) -> tuple[ArrayLike, Shape]:
    """Index arrays for several axes as one array of vectors, `i32[..., k]`, and the shape they have together."""
    sizes = broadcast_operand_shapes("indexing", *[tuple(i.shape) for i in indices])
    columns = [structural.broadcast_in_dim(i, (*sizes, 1), range(len(sizes) - i.ndim, len(sizes))) for i in indices]
    return (columns[0] if len(columns) == 1 else shape.concatenate(columns, len(sizes))), sizes


def normalize_traced_indices(indices: Array, size: int) -> Array:
    """Traced indices counted from the start, where negative ones count from the end."""
    found = as_array(convert_dtype(indices, dtypes.int32))
    if not dtypes.is_signed(indices.aval.dtype):
        return found
    return broadcast_select(
        comparison.lt(found, literal_like(found, 0)), elementwise.add(found, literal_like(found, size)), found
    )


# ------------------------------------------------------------------ taking along an axis


def _take_kernel(
    a: ShapedArray | Number, indices: ShapedArray | Number, axis: int | None = None, out: None = None, **options: object
) -> evaluated.Kernel | None:
    """`take` from NumPy's arrays, of indices that are within bounds."""
    if options or not isinstance(a, ShapedArray) or not isinstance(indices, ShapedArray) or not a.size:
        return None
    return lambda v, i: v.take(i, axis)


@evaluated.by_numpy(_take_kernel, arrays=2, among=evaluated.ALL, mixed=True, replays=False)
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
    """The elements of `a` at `indices` along `axis`, or of the flattened array.

    An index out of bounds gives `fill_value` (`mode="fill"`, the default; NaN or the dtype's extreme unless given), the
    nearest element ("clip"), or counts on from the other end ("wrap"). `unique_indices` and `indices_are_sorted` are
    promises that the compiler may use.

    >>> take(array([5.0, 6.0, 7.0]), array([2, 0, 9])).tolist()
    [7.0, 5.0, nan]
    """
    reject_out("take", out)
    x = as_array(as_operand(a, "take: a"))
    if axis is None:
        x, along = structural.reshape(x, (x.aval.size,)), 0
    else:
        along = canonicalize_axis("take", axis, x.aval.ndim)
    found, how = _indices_and_mode("take", indices, x.aval.shape[along], mode)
    if x.aval.shape[along] == 0 and found.aval.size:
        raise IndexError(f"take: axis {along} of {x.aval} has no elements to take")
    columns = structural.broadcast_in_dim(found, (*found.aval.shape, 1), range(found.aval.ndim))
    count, rank = found.aval.ndim, x.aval.ndim - 1 + found.aval.ndim
    numbers = GatherDimensionNumbers(
        offset_dims=[i for i in range(rank) if not along <= i < along + count],
        collapsed_slice_dims=(along,),
        start_index_map=(along,),
    )
    windows = [1 if i == along else n for i, n in enumerate(x.aval.shape)]
    promises = {"unique_indices": unique_indices, "indices_are_sorted": indices_are_sorted}
    return gather(x, columns, numbers, windows, **promises, mode=how, fill_value=fill_value)


def take_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    axis: int | None = -1,
    mode: str | GatherScatterMode | None = None,
    fill_value: Scalar | None = None,
    *,
    wrap_negative_indices: bool | None = None,
) -> Array:
    """For every line of `arr` along `axis` the elements at the same line of `indices`, as a sort gives them.

    The other axes broadcast. Indices out of bounds are treated as in `take`, or give zeros if `mode` is "one_hot";
    "promise_in_bounds" says that there are none, nor negative ones.
    Negative ones count from the end, with "clip" too, unless `wrap_negative_indices` is False: then they are out of
    bounds.

    >>> take_along_axis(array([[1, 2], [3, 4]]), array([[1], [0]]), axis=1).tolist()
    [[2], [3]]
    """
    x, given = (
        as_array(as_operand(arr, "take_along_axis: arr")),
        as_array(as_operand(indices, "take_along_axis: indices")),
    )
    if axis is None:
        x, given, axis = structural.reshape(x, (x.aval.size,)), structural.reshape(given, (given.aval.size,)), 0
    if given.aval.ndim != x.aval.ndim:
        raise ValueError(f"take_along_axis: arr {x.aval} and indices {given.aval} must have equally many axes")
    along = canonicalize_axis("take_along_axis", axis, x.aval.ndim)
    along_lines = x.aval.without_axis(along).shape == given.aval.without_axis(along).shape
    if (
        (mode is None and wrap_negative_indices is None and along_lines)
        and (there := _take_by_numpy(lambda v, i: np.take_along_axis(v, i, along), x, given)) is not None
    ):  # fmt: skip
        return there
    if mode == "one_hot":
        mode, fill_value = "fill", 0
    if mode in ("promise_in_bounds", GatherScatterMode.PROMISE_IN_BOUNDS):
        found, how = as_array(convert_dtype(given, dtypes.int32)), GatherScatterMode.PROMISE_IN_BOUNDS
    else:
        if isinstance(mode, GatherScatterMode):
            mode = "clip" if mode is GatherScatterMode.CLIP else "fill"
        found, how = _indices_and_mode(
            "take_along_axis", given, x.aval.shape[along], mode, wrap_negative_indices is not False
        )
    others = [i for i in range(x.aval.ndim) if i != along]
    lines = broadcast_operand_shapes("take_along_axis", *[tuple([v.aval.shape[i] for i in others]) for v in (x, found)])

    def with_lines(v: Array) -> Array:
        sizes = [*lines[:along], v.aval.shape[along], *lines[along:]]
        return structural.broadcast_to(v, tuple(sizes))

    x, found = with_lines(x), with_lines(found)
    if not found.aval.size or not x.aval.size:  # a window of one element wouldn't fit where an axis has none
        return structural.full_like_aval(x.aval.update(shape=found.aval.shape), 0)
    numbers = GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(along,),
        start_index_map=(along,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )
    columns = structural.reshape(found, (*found.aval.shape, 1))
    return gather(x, columns, numbers, (1,) * x.aval.ndim, mode=how, fill_value=fill_value)


def _take_by_numpy(take: Callable[[NDArray, NDArray], NDArray], x: Array, indices: Value) -> Array | None:
    """Elements that NumPy takes; None where they are traced, or an index is out of bounds."""
    if not dtypes.is_integer(indices.aval.dtype):
        return None
    try:
        return evaluated.numpys(take, x, indices, among=evaluated.ALL)
    except IndexError:
        return None


def _indices_and_mode(
    name: str, indices: ArrayLike, size: int, mode: str | None, wrap: bool = True
) -> tuple[Array, GatherScatterMode]:
    """Index arrays as `take` and its like read them, and what is done with those out of bounds."""
    found = as_array(as_operand(indices, f"{name}: indices"))
    if not dtypes.is_integer(found.aval.dtype):
        raise TypeError(f"{name}: indices must be integers, got {found.aval}")
    if mode == "wrap":
        return remainder(
            as_array(convert_dtype(found, dtypes.int32)), max(size, 1)
        ), GatherScatterMode.PROMISE_IN_BOUNDS
    if mode == "clip":
        counts = wrap and name != "take"
        ends = normalize_traced_indices(found, size) if counts else as_array(convert_dtype(found, dtypes.int32))
        return ends, GatherScatterMode.CLIP
    if mode not in (None, "fill"):
        raise ValueError(f"{name}: mode must be 'fill', 'clip' or 'wrap', got {mode!r}")
    return normalize_traced_indices(found, size if wrap else 0), GatherScatterMode.FILL_OR_DROP
