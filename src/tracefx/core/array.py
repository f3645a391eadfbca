"""`Array`: the base class of concrete arrays and tracers, which user code operates on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Final, NoReturn, Self, TypeAlias, TypeGuard, final

import numpy as np
from attrs import frozen
from typing_extensions import CapsuleType, override

from tracefx.core import array_methods
from tracefx.core.array_placement import ArrayPlacement
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.device import Device
from tracefx.core.dtypes import DType, DTypeLike, NDArray
from tracefx.core.late_binding import LateBound
from tracefx.core.literal import Literal, Scalar
from tracefx.core.sharding import DeviceOrSharding, ShardIndex
from tracefx.errors import (
    ConcretizationError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
)

ArrayLike: TypeAlias = array_methods.Like["Array"]
IndexPart: TypeAlias = array_methods.IndexPart["Array"]
Index: TypeAlias = array_methods.Index["Array"]
IndexedUpdates: TypeAlias = array_methods.IndexedUpdates["Array"]
AtIndexer: TypeAlias = array_methods.AtIndexer["Array"]
ArrayMethods: TypeAlias = array_methods.ArrayMethods["Array"]
AxisLike: TypeAlias = array_methods.AxisLike
UpdateMode: TypeAlias = array_methods.UpdateMode

ARRAY_METHODS: Final[LateBound[ArrayMethods]] = LateBound("the meaning of array operators")
_ARRAY_API_VERSIONS: Final = (None, "2021.12", "2022.12", "2023.12", "2024.12")
_PYTHON_SCALARS: Final = frozenset({bool, int, float, complex})


def is_arraylike(x: object) -> TypeGuard[ArrayLike]:
    """Whether `x` is an array (of tracefx, NumPy or JAX), a literal or a Python number: a valid leaf of arguments."""
    return (
        type(x) in _PYTHON_SCALARS
        or isinstance(x, (Array, np.ndarray, np.generic, Literal, int, float, complex))
        or is_jax_array(x)
    )


def has_jax_array_method(x: object) -> bool:
    """Whether `x` has a method `__jax_array__`, which returns the array it stands for; on JAX's tracers it is None."""
    return hasattr(type(x), "__jax_array__") and callable(getattr(x, "__jax_array__", None))


def is_convertible(x: object) -> TypeGuard[ArrayLike]:
    """Whether array functions accept `x`: array-likes, and objects with a method `__jax_array__`."""
    return (  # `is_arraylike` inlined, since every operator calls this
        type(x) in _PYTHON_SCALARS
        or isinstance(x, (Array, np.ndarray, np.generic, Literal, int, float, complex))
        or is_jax_array(x)
        or has_jax_array_method(x)
    )


def is_jax_array(x: object) -> bool:
    """Whether `x` is a concrete JAX array, recognized by its weak type so that jax need not be imported."""
    kind = type(x)
    return hasattr(kind, "weak_type") and hasattr(kind, "__dlpack__") and not isinstance(x, Array)


class Array(ArrayPlacement):
    """An immutable array of any dtype: concrete (with elements) or a tracer (inside a transformation).

    Operators broadcast as in NumPy and promote dtypes as in JAX. Methods are the functions of `tracefx.numpy` of the
    same name, with the array as first argument. To update elements, use `x.at[index].set(values)`, which returns a new
    array.
    """

    # Not an ABC: isinstance checks of an ABC, which run for every operand, are four times slower.

    __slots__ = ()
    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]  # `==` is elementwise, so arrays can't be keys

    @property
    @abstractmethod
    def aval(self) -> ShapedArray:
        """The abstract value: shape, dtype and weak type."""

    # ------------------------------------------------------------------ shape and dtype

    @property
    def shape(self) -> Shape:
        return self.aval.shape

    @property
    def dtype(self) -> DType:
        return self.aval.dtype

    @property
    def weak_type(self) -> bool:
        """Whether the dtype gives way to those of other operands in promotion, as Python numbers do."""
        return self.aval.weak_type

    @property
    def ndim(self) -> int:
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        return self.aval.size

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes, as in NumPy."""
        return self.aval.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    def to_device(self, device: Device, *, stream: int | None = None) -> Array:
        """Returns the array on a device. Has no effect on a tracer. `stream` must be None."""
        if stream is not None:
            raise ValueError(f"to_device: streams are not supported, so stream must be None; got {stream!r}")
        return ARRAY_METHODS.value.astype(self, self.aval.dtype, device=device)

    @property
    def addressable_shards(self) -> Sequence[Shard]:
        """The shards on the devices of this process. Raises AttributeError for a tracer."""
        raise self._is_traced("addressable_shards")

    @property
    def global_shards(self) -> Sequence[Shard]:
        """The shards on all devices; those of other processes have no `data`. Raises AttributeError for a tracer."""
        raise self._is_traced("global_shards")

    def addressable_data(self, index: int) -> Array:
        """Returns the data of the shard with this index in `addressable_shards`."""
        data = self.addressable_shards[index].data
        assert data is not None  # the device belongs to this process
        return data

    def __len__(self) -> int:
        if not self.aval.shape:
            raise TypeError("len() of a zero-dimensional array")
        return self.aval.shape[0]

    # ------------------------------------------------------------------ conversion to Python and NumPy

    def __bool__(self) -> bool:
        return bool(self.concrete_or_error(TracerBoolConversionError))

    def __int__(self) -> int:
        return int(self.concrete_or_error(TracerIntegerConversionError).item())

    def __float__(self) -> float:
        return float(self.concrete_or_error(ConcretizationError).item())

    def __complex__(self) -> complex:
        return complex(self.concrete_or_error(ConcretizationError).item())

    def __index__(self) -> int:
        if self.aval.shape or self.aval.dtype.kind not in "iu":
            raise TypeError(f"only zero-dimensional integer arrays can be an index, got {self.aval}")
        return int(self.concrete_or_error(TracerIntegerConversionError).item())

    def item(self, *args: int) -> Scalar:
        """Returns one element as a Python scalar; without arguments, the only element of an array of size 1."""
        out: Scalar = self.concrete_or_error(ConcretizationError).item(*args)
        return out

    def tolist(self) -> object:
        """Returns the elements as nested lists of Python scalars."""
        return self.concrete_or_error(ConcretizationError).tolist()

    def tobytes(self, order: str = "C") -> bytes:
        """Returns the bytes of the elements in row-major order, or in column-major order for `order="F"`."""
        return self.concrete_or_error(ConcretizationError).tobytes(order)  # type: ignore[arg-type]  # NumPy says which there are

    def block_until_ready(self) -> Self:
        """Waits until the value has been computed and raises errors of the computation. Returns the array."""
        return self

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """Returns a DLPack capsule of the array, which the consumer must not write to."""
        return self.concrete_or_error(TracerArrayConversionError).__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # DLPack's device type of the CPU, and the device id

    def __array__(self, dtype: DType | None = None, copy: bool | None = None) -> NDArray:
        return np.array(self.concrete_or_error(TracerArrayConversionError), dtype, copy=copy)

    @override
    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and not self.aval.shape else format(str(self), spec)

    def __iter__(self) -> Iterator[Array]:
        if not self.aval.shape:
            raise TypeError("iteration over a zero-dimensional array")
        return (ARRAY_METHODS.value.getitem(self, i) for i in range(self.aval.shape[0]))

    def __getitem__(self, index: Index) -> Array:
        return ARRAY_METHODS.value.getitem(self, index)

    @property
    def at(self) -> AtIndexer:
        """The updater of elements: `x.at[index].set(values)`, `.add`, `.multiply`, ... return a new array."""
        return ARRAY_METHODS.value.at(self)

    def __contains__(self, item: ArrayLike) -> bool:
        """Whether an element equals `item`."""
        return bool(ARRAY_METHODS.value.equal(self, item).any())

    def __array_namespace__(self, *, api_version: str | None = None) -> ArrayMethods:
        """Returns `tracefx.numpy`, as the array API standard requires. Raises ValueError for an unknown version."""
        if api_version not in _ARRAY_API_VERSIONS:
            known = ", ".join([repr(version) for version in _ARRAY_API_VERSIONS if version])
            raise ValueError(f"version {api_version!r} of the array API is not supported; supported are {known}")
        return ARRAY_METHODS.value

    def __setitem__(self, index: Index, value: object) -> NoReturn:
        raise TypeError(
            "arrays are immutable: instead of `x[i] = y` write `x = x.at[i].set(y)`, which returns a new array"
        )

    # ------------------------------------------------------------------ operators

    def __add__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.add(self, other) if is_convertible(other) else NotImplemented

    def __radd__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.add(other, self) if is_convertible(other) else NotImplemented

    def __sub__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.subtract(self, other) if is_convertible(other) else NotImplemented

    def __rsub__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.subtract(other, self) if is_convertible(other) else NotImplemented

    def __mul__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.multiply(self, other) if is_convertible(other) else NotImplemented

    def __rmul__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.multiply(other, self) if is_convertible(other) else NotImplemented

    def __truediv__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.true_divide(self, other) if is_convertible(other) else NotImplemented

    def __rtruediv__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.true_divide(other, self) if is_convertible(other) else NotImplemented

    def __floordiv__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.floor_divide(self, other) if is_convertible(other) else NotImplemented

    def __rfloordiv__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.floor_divide(other, self) if is_convertible(other) else NotImplemented

    def __mod__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.remainder(self, other) if is_convertible(other) else NotImplemented

    def __rmod__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.remainder(other, self) if is_convertible(other) else NotImplemented

    def __pow__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.power(self, other) if is_convertible(other) else NotImplemented

    def __rpow__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.power(other, self) if is_convertible(other) else NotImplemented

    def __matmul__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.matmul(self, other) if is_convertible(other) else NotImplemented

    def __rmatmul__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.matmul(other, self) if is_convertible(other) else NotImplemented

    def __and__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.bitwise_and(self, other) if is_convertible(other) else NotImplemented

    def __rand__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.bitwise_and(other, self) if is_convertible(other) else NotImplemented

    def __or__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.bitwise_or(self, other) if is_convertible(other) else NotImplemented

    def __ror__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.bitwise_or(other, self) if is_convertible(other) else NotImplemented

    def __xor__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.bitwise_xor(self, other) if is_convertible(other) else NotImplemented

    def __rxor__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.bitwise_xor(other, self) if is_convertible(other) else NotImplemented

    def __lshift__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.left_shift(self, other) if is_convertible(other) else NotImplemented

    def __rlshift__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.left_shift(other, self) if is_convertible(other) else NotImplemented

    def __rshift__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.right_shift(self, other) if is_convertible(other) else NotImplemented

    def __rrshift__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.right_shift(other, self) if is_convertible(other) else NotImplemented

    def __divmod__(self, other: ArrayLike) -> tuple[Array, Array]:
        methods = ARRAY_METHODS.value
        return (
            (methods.floor_divide(self, other), methods.remainder(self, other))
            if is_convertible(other)
            else NotImplemented
        )

    def __rdivmod__(self, other: ArrayLike) -> tuple[Array, Array]:
        methods = ARRAY_METHODS.value
        return (
            (methods.floor_divide(other, self), methods.remainder(other, self))
            if is_convertible(other)
            else NotImplemented
        )

    def __lt__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.less(self, other) if is_convertible(other) else NotImplemented

    def __le__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.less_equal(self, other) if is_convertible(other) else NotImplemented

    def __gt__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.greater(self, other) if is_convertible(other) else NotImplemented

    def __ge__(self, other: ArrayLike) -> Array:
        return ARRAY_METHODS.value.greater_equal(self, other) if is_convertible(other) else NotImplemented

    @override
    def __eq__(self, other: object) -> Array:  # type: ignore[override]  # elementwise, as in NumPy
        return ARRAY_METHODS.value.equal(self, other) if is_convertible(other) else NotImplemented

    @override
    def __ne__(self, other: object) -> Array:  # type: ignore[override]  # elementwise, as in NumPy
        return ARRAY_METHODS.value.not_equal(self, other) if is_convertible(other) else NotImplemented

    def __neg__(self) -> Array:
        return ARRAY_METHODS.value.negative(self)

    def __pos__(self) -> Array:
        return ARRAY_METHODS.value.positive(self)

    def __abs__(self) -> Array:
        return ARRAY_METHODS.value.absolute(self)

    def __invert__(self) -> Array:
        return ARRAY_METHODS.value.invert(self)

    def __round__(self, ndigits: int | None = None) -> Array:
        rounded = ARRAY_METHODS.value.round(self, ndigits or 0)
        return ARRAY_METHODS.value.astype(rounded, int) if ndigits is None else rounded

    # ------------------------------------------------------------------ methods, as in NumPy

    @property
    def T(self) -> Array:
        return ARRAY_METHODS.value.transpose(self)

    @property
    def mT(self) -> Array:
        return ARRAY_METHODS.value.matrix_transpose(self)

    @property
    def real(self) -> Array:
        return ARRAY_METHODS.value.real(self)

    @property
    def imag(self) -> Array:
        return ARRAY_METHODS.value.imag(self)

    def astype(self, dtype: DTypeLike | None, copy: bool = False, device: DeviceOrSharding | None = None) -> Array:
        del copy  # has no visible effect, since arrays are immutable
        return ARRAY_METHODS.value.astype(self, dtype, device=device)

    def view(self, dtype: DTypeLike | None = None, type: None = None) -> Array:
        """Returns the same bytes as another dtype; the size of the last axis changes if element sizes differ."""
        if type is not None:
            raise TypeError(f"view: type must be None, since there is only one array class; got {type!r}")
        return ARRAY_METHODS.value.view(self, dtype)

    def byteswap(self) -> Array:
        """Returns the array with the bytes of each element reversed."""
        return ARRAY_METHODS.value.byteswap(self)

    def choose(self, choices: ArrayLike | Sequence[ArrayLike], out: None = None, mode: str = "raise") -> Array:
        return ARRAY_METHODS.value.choose(self, choices, out, mode)

    def copy(self) -> Array:
        return ARRAY_METHODS.value.copy(self)

    def conj(self) -> Array:
        return ARRAY_METHODS.value.conjugate(self)

    conjugate = conj

    def reshape(self, *args: int | Sequence[int], order: str = "C") -> Array:
        return ARRAY_METHODS.value.reshape(self, _variadic(args), order)

    def transpose(self, *args: int | Sequence[int]) -> Array:
        return ARRAY_METHODS.value.transpose(self, _variadic(args) if args else None)

    def ravel(self, order: str = "C") -> Array:
        return ARRAY_METHODS.value.ravel(self, order)

    flatten = ravel

    def squeeze(self, axis: AxisLike = None) -> Array:
        return ARRAY_METHODS.value.squeeze(self, axis)

    def swapaxes(self, axis1: int, axis2: int) -> Array:
        return ARRAY_METHODS.value.swapaxes(self, axis1, axis2)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
        return ARRAY_METHODS.value.diagonal(self, offset, axis1, axis2)

    def trace(
        self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike | None = None, out: None = None
    ) -> Array:
        return ARRAY_METHODS.value.trace(self, offset, axis1, axis2, dtype, out)

    def repeat(
        self, repeats: ArrayLike | Sequence[int], axis: int | None = None, *, total_repeat_length: int | None = None
    ) -> Array:
        return ARRAY_METHODS.value.repeat(self, repeats, axis, total_repeat_length=total_repeat_length)

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
        index_promises = unique_indices, indices_are_sorted
        return ARRAY_METHODS.value.take(self, indices, axis, out, mode, *index_promises, fill_value)

    def dot(
        self, b: ArrayLike, *, precision: str | None = None, preferred_element_type: DTypeLike | None = None
    ) -> Array:
        return ARRAY_METHODS.value.dot(self, b, precision=precision, preferred_element_type=preferred_element_type)

    def clip(self, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
        return ARRAY_METHODS.value.clip(self, min, max)

    def round(self, decimals: int = 0, out: None = None) -> Array:
        return ARRAY_METHODS.value.round(self, decimals, out)

    def sum(
        self,
        axis: AxisLike = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
        promote_integers: bool = True,
    ) -> Array:
        return ARRAY_METHODS.value.sum(self, axis, dtype, out, keepdims, initial, where, promote_integers)

    def prod(
        self,
        axis: AxisLike = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
        promote_integers: bool = True,
    ) -> Array:
        return ARRAY_METHODS.value.prod(self, axis, dtype, out, keepdims, initial, where, promote_integers)

    def mean(
        self,
        axis: AxisLike = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        *,
        where: ArrayLike | None = None,
    ) -> Array:
        return ARRAY_METHODS.value.mean(self, axis, dtype, out, keepdims, where=where)

    def var(
        self,
        axis: AxisLike = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        ddof: int = 0,
        keepdims: bool = False,
        *,
        where: ArrayLike | None = None,
        correction: int | float | None = None,
    ) -> Array:
        return ARRAY_METHODS.value.var(self, axis, dtype, out, ddof, keepdims, where=where, correction=correction)

    def std(
        self,
        axis: AxisLike = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        ddof: int = 0,
        keepdims: bool = False,
        *,
        where: ArrayLike | None = None,
        correction: int | float | None = None,
    ) -> Array:
        return ARRAY_METHODS.value.std(self, axis, dtype, out, ddof, keepdims, where=where, correction=correction)

    def max(
        self,
        axis: AxisLike = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array:
        return ARRAY_METHODS.value.max(self, axis, out, keepdims, initial, where)

    def min(
        self,
        axis: AxisLike = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array:
        return ARRAY_METHODS.value.min(self, axis, out, keepdims, initial, where)

    def ptp(self, axis: AxisLike = None, out: None = None, keepdims: bool = False) -> Array:
        return ARRAY_METHODS.value.ptp(self, axis, out, keepdims)

    def all(
        self, axis: AxisLike = None, out: None = None, keepdims: bool = False, *, where: ArrayLike | None = None
    ) -> Array:
        return ARRAY_METHODS.value.all(self, axis, out, keepdims, where=where)

    def any(
        self, axis: AxisLike = None, out: None = None, keepdims: bool = False, *, where: ArrayLike | None = None
    ) -> Array:
        return ARRAY_METHODS.value.any(self, axis, out, keepdims, where=where)

    def argmax(self, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
        return ARRAY_METHODS.value.argmax(self, axis, out, keepdims)

    def argmin(self, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
        return ARRAY_METHODS.value.argmin(self, axis, out, keepdims)

    def cumsum(self, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
        return ARRAY_METHODS.value.cumsum(self, axis, dtype, out)

    def cumprod(self, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
        return ARRAY_METHODS.value.cumprod(self, axis, dtype, out)

    def sort(
        self,
        axis: int | None = -1,
        *,
        kind: None = None,
        order: None = None,
        stable: bool = True,
        descending: bool = False,
    ) -> Array:
        return ARRAY_METHODS.value.sort(self, axis, kind=kind, order=order, stable=stable, descending=descending)

    def argsort(
        self,
        axis: int | None = -1,
        *,
        kind: None = None,
        order: None = None,
        stable: bool = True,
        descending: bool = False,
    ) -> Array:
        return ARRAY_METHODS.value.argsort(self, axis, kind=kind, order=order, stable=stable, descending=descending)

    def argpartition(self, kth: int, axis: int = -1) -> Array:
        return ARRAY_METHODS.value.argpartition(self, kth, axis)

    def searchsorted(
        self, v: ArrayLike, side: str = "left", sorter: ArrayLike | None = None, *, method: str = "scan"
    ) -> Array:
        return ARRAY_METHODS.value.searchsorted(self, v, side, sorter, method=method)

    def nonzero(
        self,
        *,
        fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None,
        size: int | None = None,
    ) -> tuple[Array, ...]:
        return ARRAY_METHODS.value.nonzero(self, size=size, fill_value=fill_value)

    def compress(
        self,
        condition: ArrayLike,
        axis: int | None = None,
        *,
        out: None = None,
        size: int | None = None,
        fill_value: ArrayLike = 0,
    ) -> Array:
        return ARRAY_METHODS.value.compress(condition, self, axis, size=size, fill_value=fill_value, out=out)


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
