"""`Array`: the base class of concrete arrays and tracers, which user code operates on."""

# Decorators give methods without a body a function of tracefx.numpy as their body.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias, TypeGuard, TypeVar, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import indexed_updates
from tracefx.core.abstract_array import has_jax_array_method, is_jax_array
from tracefx.core.array_reductions import ArrayReductions
from tracefx.core.device import Device
from tracefx.core.dtypes import DTypeLike, Scalar
from tracefx.core.late_binding import LateBound
from tracefx.core.numpy_methods import numpy_function, numpy_method, numpy_method_named, numpy_operator
from tracefx.core.sharding import DeviceOrSharding, ShardIndex
from tracefx.filtered_tracebacks import api_boundary

ArrayLike: TypeAlias = indexed_updates.Like["Array"]
IndexPart: TypeAlias = indexed_updates.IndexPart["Array"]
Index: TypeAlias = indexed_updates.Index["Array"]
IndexedUpdates: TypeAlias = indexed_updates.IndexedUpdates["Array"]
AtIndexer: TypeAlias = indexed_updates.AtIndexer["Array"]
AxisLike: TypeAlias = indexed_updates.AxisLike
UpdateMode: TypeAlias = indexed_updates.UpdateMode
_ArrayFunction: TypeAlias = Callable[..., "Array"]

M = TypeVar("M", bound=Callable[..., object])
_PYTHON_SCALARS: Final = frozenset({bool, int, float, complex})


def is_arraylike(x: object) -> TypeGuard[ArrayLike]:
    """Whether `x` is an array (of tracefx, NumPy or JAX) or a Python number: a valid leaf of arguments."""
    return (
        type(x) in _PYTHON_SCALARS
        or isinstance(x, (Array, np.ndarray, np.generic, int, float, complex))
        or is_jax_array(x)
    )


def is_convertible(x: object) -> TypeGuard[ArrayLike]:
    """Whether array functions accept `x`: array-likes, and objects with a method `__jax_array__`."""
    return (  # `is_arraylike` inlined, since every operator calls this
        type(x) in _PYTHON_SCALARS
        or isinstance(x, (Array, np.ndarray, np.generic, int, float, complex))
        or is_jax_array(x)
        or has_jax_array_method(x)
    )


def _is_operand(x: object) -> TypeGuard[ArrayLike]:
    """Whether operators accept `x`. Raises TypeError for collections, which Python's `==` would find unequal."""
    if is_convertible(x):
        return True
    if type(x) in (list, tuple, set, dict):
        kind = type(x).__name__
        raise TypeError(f"unsupported operand of an array: a {kind}; convert it with tracefx.numpy.asarray")
    return False


def _operator(name: str, *, reflected: bool = False) -> Callable[[M], M]:
    return numpy_operator(name, _is_operand, reflected=reflected)


_EQUAL: Final[LateBound[_ArrayFunction]] = numpy_function("equal")
_ASTYPE: Final[LateBound[_ArrayFunction]] = numpy_function("astype")
_VIEW: Final[LateBound[_ArrayFunction]] = numpy_function("view")
_RESHAPE: Final[LateBound[_ArrayFunction]] = numpy_function("reshape")
_TRANSPOSE: Final[LateBound[_ArrayFunction]] = numpy_function("transpose")
_COMPRESS: Final[LateBound[_ArrayFunction]] = numpy_function("compress")


class Array(ArrayReductions["Array"]):
    """An immutable array of any dtype: concrete (with elements) or a tracer (inside a transformation).

    Operators broadcast as in NumPy and promote dtypes as in JAX. Methods are the functions of `tracefx.numpy` of the
    same name, with the array as first argument. To update elements, use `x.at[index].set(values)`, which returns a new
    array.
    """

    # Not an ABC: isinstance checks of an ABC, which run for every operand, are four times slower.

    __slots__ = ()
    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]  # `==` is elementwise, so arrays can't be keys

    # ------------------------------------------------------------------ devices, and indexing

    @api_boundary
    def to_device(self, device: Device, *, stream: int | None = None) -> Array:
        """Returns the array on a device. Has no effect on a tracer.

        Args:
            device: The device.
            stream: Must be None, since streams are not supported.

        Raises:
            ValueError: If `stream` is not None.
        """
        if stream is not None:
            raise ValueError(f"to_device: streams are not supported, so stream must be None; got {stream!r}")
        return self.astype(self.aval.dtype, device=device)

    @property
    def addressable_shards(self) -> Sequence[Shard]:
        """The shards on the devices of this process. Raises AttributeError for a tracer."""
        raise self._no_placement("addressable_shards")

    @property
    def global_shards(self) -> Sequence[Shard]:
        """The shards on all devices; those of other processes have no `data`. Raises AttributeError for a tracer."""
        raise self._no_placement("global_shards")

    @api_boundary
    def addressable_data(self, index: int) -> Array:
        """Returns the data of one of the `addressable_shards`.

        Args:
            index: The index of the shard.
        """
        data = self.addressable_shards[index].data
        assert data is not None  # the device belongs to this process
        return data

    def __iter__(self) -> Iterator[Array]:
        if not self.aval.shape:
            raise TypeError("iteration over a zero-dimensional array")
        return (self[i] for i in range(self.aval.shape[0]))

    @numpy_method_named("getitem")
    def __getitem__(self, index: Index) -> Array: ...

    @property
    @numpy_method
    def at(self) -> AtIndexer:
        """The updater of elements: `x.at[index].set(values)`, `.add`, `.multiply`, ... return a new array."""

    @api_boundary
    def __contains__(self, item: ArrayLike) -> bool:
        """Whether an element equals `item`."""
        return bool(_EQUAL.value(self, item).any())

    # ------------------------------------------------------------------ operators

    @_operator("add")
    def __add__(self, other: ArrayLike) -> Array: ...

    @_operator("add", reflected=True)
    def __radd__(self, other: ArrayLike) -> Array: ...

    @_operator("subtract")
    def __sub__(self, other: ArrayLike) -> Array: ...

    @_operator("subtract", reflected=True)
    def __rsub__(self, other: ArrayLike) -> Array: ...

    @_operator("multiply")
    def __mul__(self, other: ArrayLike) -> Array: ...

    @_operator("multiply", reflected=True)
    def __rmul__(self, other: ArrayLike) -> Array: ...

    @_operator("true_divide")
    def __truediv__(self, other: ArrayLike) -> Array: ...

    @_operator("true_divide", reflected=True)
    def __rtruediv__(self, other: ArrayLike) -> Array: ...

    @_operator("floor_divide")
    def __floordiv__(self, other: ArrayLike) -> Array: ...

    @_operator("floor_divide", reflected=True)
    def __rfloordiv__(self, other: ArrayLike) -> Array: ...

    @_operator("remainder")
    def __mod__(self, other: ArrayLike) -> Array: ...

    @_operator("remainder", reflected=True)
    def __rmod__(self, other: ArrayLike) -> Array: ...

    @_operator("power")
    def __pow__(self, other: ArrayLike) -> Array: ...

    @_operator("power", reflected=True)
    def __rpow__(self, other: ArrayLike) -> Array: ...

    @_operator("matmul")
    def __matmul__(self, other: ArrayLike) -> Array: ...

    @_operator("matmul", reflected=True)
    def __rmatmul__(self, other: ArrayLike) -> Array: ...

    @_operator("bitwise_and")
    def __and__(self, other: ArrayLike) -> Array: ...

    @_operator("bitwise_and", reflected=True)
    def __rand__(self, other: ArrayLike) -> Array: ...

    @_operator("bitwise_or")
    def __or__(self, other: ArrayLike) -> Array: ...

    @_operator("bitwise_or", reflected=True)
    def __ror__(self, other: ArrayLike) -> Array: ...

    @_operator("bitwise_xor")
    def __xor__(self, other: ArrayLike) -> Array: ...

    @_operator("bitwise_xor", reflected=True)
    def __rxor__(self, other: ArrayLike) -> Array: ...

    @_operator("left_shift")
    def __lshift__(self, other: ArrayLike) -> Array: ...

    @_operator("left_shift", reflected=True)
    def __rlshift__(self, other: ArrayLike) -> Array: ...

    @_operator("right_shift")
    def __rshift__(self, other: ArrayLike) -> Array: ...

    @_operator("right_shift", reflected=True)
    def __rrshift__(self, other: ArrayLike) -> Array: ...

    @_operator("divmod")
    def __divmod__(self, other: ArrayLike) -> tuple[Array, Array]: ...

    @_operator("divmod", reflected=True)
    def __rdivmod__(self, other: ArrayLike) -> tuple[Array, Array]: ...

    @_operator("less")
    def __lt__(self, other: ArrayLike) -> Array: ...

    @_operator("less_equal")
    def __le__(self, other: ArrayLike) -> Array: ...

    @_operator("greater")
    def __gt__(self, other: ArrayLike) -> Array: ...

    @_operator("greater_equal")
    def __ge__(self, other: ArrayLike) -> Array: ...

    @override
    @_operator("equal")
    def __eq__(self, other: object) -> Array: ...  # type: ignore[override]  # elementwise, as in NumPy

    @override
    @_operator("not_equal")
    def __ne__(self, other: object) -> Array: ...  # type: ignore[override]  # elementwise, as in NumPy

    @numpy_method_named("negative")
    def __neg__(self) -> Array: ...

    @numpy_method_named("positive")
    def __pos__(self) -> Array: ...

    @numpy_method_named("absolute")
    def __abs__(self) -> Array: ...

    @numpy_method_named("invert")
    def __invert__(self) -> Array: ...

    @api_boundary
    def __round__(self, ndigits: int | None = None) -> Array:
        rounded = self.round(ndigits or 0)
        return rounded.astype(int) if ndigits is None else rounded

    # ------------------------------------------------------------------ dtype, copies and indexing

    @property
    @numpy_method
    def real(self) -> Array:
        """The real part."""

    @property
    @numpy_method
    def imag(self) -> Array:
        """The imaginary part; zeros for a real array."""

    @numpy_method_named("conjugate")
    def conj(self) -> Array:
        """Returns the complex conjugates of the elements."""

    conjugate = conj

    @api_boundary
    def astype(self, dtype: DTypeLike | None, copy: bool = False, device: DeviceOrSharding | None = None) -> Array:
        """Returns the array converted to a dtype; None is the default float dtype.

        Args:
            dtype: The dtype.
            copy: Has no effect, since arrays are immutable.
            device: A device or sharding to place the result on; by default, the placement is unchanged.
        """
        return _ASTYPE.value(self, dtype, device=device)

    @api_boundary
    def view(self, dtype: DTypeLike | None = None, type: None = None) -> Array:
        """Returns the same bytes as another dtype; the size of the last axis changes if element sizes differ.

        Args:
            dtype: The dtype of the result; None means the default float.
            type: Must be None, since there is only one array class.

        Raises:
            TypeError: If `type` is not None.
        """
        if type is not None:
            raise TypeError(f"view: type must be None, since there is only one array class; got {type!r}")
        return _VIEW.value(self, dtype)

    @numpy_method
    def byteswap(self) -> Array:
        """Returns the array with the bytes of each element reversed."""

    @numpy_method
    def copy(self) -> Array:
        """Returns a copy of the array."""

    @numpy_method
    def choose(self, choices: ArrayLike | Sequence[ArrayLike], out: None = None, mode: str = "raise") -> Array:
        """Returns an array of elements of `choices`, each from the choice whose number is the element of this array.

        Args:
            choices: The choices: a sequence of arrays, or an array of them along its first axis.
            out: Must be None, since arrays are immutable.
            mode: How to treat numbers out of bounds: "raise" (they must then be concrete), "wrap" or "clip".
        """

    @numpy_method
    def take(
        self,
        indices: ArrayLike,
        axis: int | None = None,
        out: None = None,
        mode: str | None = None,
        unique_indices: bool = False,
        indices_are_sorted: bool = False,
        fill_value: Scalar | None = None,
    ) -> Array:
        """Returns the elements at indices along an axis.

        Args:
            indices: An integer array; negative indices count from the end, except with `mode="clip"`.
            axis: The axis; None means the flattened array.
            out: Must be None, since arrays are immutable.
            mode: How to treat indices out of bounds: "fill" (or None) gives `fill_value`, "clip" the nearest element,
                "wrap" the index modulo the size.
            unique_indices: A promise that no index occurs twice, which permits faster code.
            indices_are_sorted: A promise that the indices are sorted, which permits faster code.
            fill_value: The element for indices out of bounds; None means NaN, or an extreme of an integer dtype.
        """

    @numpy_method
    def nonzero(
        self, *, fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None, size: int | None = None
    ) -> tuple[Array, ...]:
        """Returns the indices of the nonzero elements, one array for each axis.

        Args:
            fill_value: The index that pads the result if there are fewer than `size`; by default 0.
            size: The number of indices to return, which must be given in compiled functions.
        """

    @api_boundary
    def compress(
        self,
        condition: ArrayLike,
        axis: int | None = None,
        *,
        out: None = None,
        size: int | None = None,
        fill_value: ArrayLike = 0,
    ) -> Array:
        """Returns the slices along an axis where a condition is true.

        Args:
            condition: A vector; beyond its end it is false.
            axis: The axis; None means the flattened array.
            out: Must be None, since arrays are immutable.
            size: The number of slices to return, which must be given in compiled functions; None means all.
            fill_value: The element of missing slices.
        """
        return _COMPRESS.value(condition, self, axis, size=size, fill_value=fill_value, out=out)

    # ------------------------------------------------------------------ shape

    @property
    @numpy_method_named("transpose")
    def T(self) -> Array:
        """The array with its axes in reverse order."""

    @property
    @numpy_method_named("matrix_transpose")
    def mT(self) -> Array:
        """The array with its last two axes exchanged: a batch of transposed matrices."""

    @api_boundary
    def reshape(self, *args: int | Sequence[int], order: str = "C", out_sharding: object = None) -> Array:
        """Returns the array with another shape: `x.reshape(2, 3)` or `x.reshape((2, 3))`. One size may be -1.

        Args:
            *args: The sizes of the axes, or a sequence of them.
            order: "C" to read and write the elements in row-major order, "F" in column-major order.
            out_sharding: The sharding of the result, as a constraint.
        """
        return _RESHAPE.value(self, _variadic(args), order, out_sharding=out_sharding)

    @api_boundary
    def transpose(self, *args: int | Sequence[int]) -> Array:
        """Returns the array with permuted axes: `x.transpose(1, 0)` or `x.transpose((1, 0))`.

        Args:
            *args: The order of the axes in the result, or a sequence of them; without any, the axes are reversed.
        """
        return _TRANSPOSE.value(self, _variadic(args) if args else None)

    @numpy_method
    def ravel(self, order: str = "C", *, out_sharding: object = None) -> Array:
        """Returns the elements as a vector.

        Args:
            order: "C" to read the elements in row-major order, "F" in column-major order.
            out_sharding: The sharding of the result, as a constraint.
        """

    flatten = ravel

    @numpy_method
    def squeeze(self, axis: AxisLike = None) -> Array:
        """Returns the array without axes of size 1.

        Args:
            axis: The axis or axes to remove; None removes all axes of size 1.
        """

    @numpy_method
    def swapaxes(self, axis1: int, axis2: int) -> Array:
        """Returns the array with two axes exchanged.

        Args:
            axis1: One axis.
            axis2: The other axis.
        """

    @numpy_method
    def repeat(
        self,
        repeats: ArrayLike | Sequence[int],
        axis: int | None = None,
        *,
        total_repeat_length: int | None = None,
        out_sharding: object = None,
    ) -> Array:
        """Returns each element, or each slice along `axis`, repeated `repeats` times.

        Args:
            repeats: The number of repetitions, one for all or one for each.
            axis: The axis; by default, the flattened array is repeated.
            total_repeat_length: The size of the result along `axis`, which is needed for traced `repeats`.
            out_sharding: The sharding of the result, as a constraint.
        """

    # ------------------------------------------------------------------ linear algebra, rounding

    @numpy_method
    def dot(
        self, b: ArrayLike, *, precision: str | None = None, preferred_element_type: DTypeLike | None = None
    ) -> Array:
        """Returns the product with `b`, summed over the last axis of the array and the last but one axis of `b`.

        Args:
            b: The other factor; a scalar multiplies the array.
            precision: The precision of the products; None means the default.
            preferred_element_type: The dtype of the result; None means the promoted dtype.
        """

    @numpy_method
    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
        """Returns the diagonals of the matrices in two axes, as a new last axis.

        Args:
            offset: The diagonal: 0 is the main one, positive numbers lie above it.
            axis1: The axis of the rows.
            axis2: The axis of the columns.
        """

    @numpy_method
    def trace(
        self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike | None = None, out: None = None
    ) -> Array:
        """Returns the sums of the diagonals of the matrices in two axes.

        Args:
            offset: The diagonal: 0 is the main one, positive numbers lie above it.
            axis1: The axis of the rows.
            axis2: The axis of the columns.
            dtype: The dtype of the result; None means that of `sum`.
            out: Must be None, since arrays are immutable.
        """

    @numpy_method
    def clip(self, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
        """Returns the elements limited to a range.

        Args:
            min: The lower bound; None is no bound.
            max: The upper bound; None is no bound.
        """

    @numpy_method
    def round(self, decimals: int = 0, out: None = None) -> Array:
        """Returns the elements rounded to a number of decimals, halves to the even neighbor.

        Args:
            decimals: How many decimals to keep; negative numbers round to tens, hundreds and so on.
            out: Must be None, since arrays are immutable.
        """

    # ------------------------------------------------------------------ sorting and searching

    @numpy_method
    def sort(
        self,
        axis: int | None = -1,
        *,
        kind: None = None,
        order: None = None,
        stable: bool = True,
        descending: bool = False,
    ) -> Array:
        """Returns the array sorted along an axis; None sorts the flattened array.

        Args:
            axis: The axis.
            kind: Must be None; there is one algorithm.
            order: Must be None; there are no structured arrays.
            stable: Whether equal elements keep their order.
            descending: Whether the largest element comes first.
        """

    @numpy_method
    def argsort(
        self,
        axis: int | None = -1,
        *,
        kind: None = None,
        order: None = None,
        stable: bool = True,
        descending: bool = False,
    ) -> Array:
        """Returns the indices that sort the array along an axis.

        Args:
            axis: The axis; None sorts the flattened array.
            kind: Must be None; there is one algorithm.
            order: Must be None; there are no structured arrays.
            stable: Whether equal elements keep their order.
            descending: Whether the largest element comes first.
        """

    @numpy_method
    def argpartition(self, kth: int, axis: int = -1) -> Array:
        """Returns indices that put the `kth` smallest element in its sorted position, smaller elements before it.

        Args:
            kth: The position in sorted order, a static integer.
            axis: The axis.
        """

    @numpy_method
    def searchsorted(
        self, v: ArrayLike, side: str = "left", sorter: ArrayLike | None = None, *, method: str = "scan"
    ) -> Array:
        """Returns the indices at which to insert the elements of `v` into the sorted vector, to keep it sorted.

        Args:
            v: The elements.
            side: "left" for the first suitable index, "right" for the last one.
            sorter: Indices that sort the vector, if it is not sorted.
            method: The algorithm: "scan", "scan_unrolled", "sort" or "compare_all".
        """


@final
@frozen(eq=False)
class Shard:
    """The part of an array on one device."""

    device: Device
    index: ShardIndex
    """The slices of the array that form the shard."""
    replica_id: int
    """The number of the replica: 0 on the first device with this part, 1 on the next one, ..."""
    data: Array | None
    """The shard itself; None if the device belongs to another process."""


def _variadic(parts: tuple[int | Sequence[int], ...]) -> Sequence[int]:
    """Unpacks variadic arguments: `x.reshape(2, 3)` and `x.reshape((2, 3))` are equivalent. Does not validate them."""
    if (
        len(parts) == 1 and not isinstance(parts[0], int) and getattr(parts[0], "ndim", True)
    ):  # a zero-dimensional array is one size
        return parts[0]
    return parts  # type: ignore[return-value]  # the called function reports non-integers
