"""`AbstractArray`: the attributes, conversions and placement of arrays, without functions of `tracefx.numpy`."""

from __future__ import annotations

from abc import abstractmethod
from types import ModuleType
from typing import Any, Final, NoReturn, Protocol, Self, TypeGuard
from typing import Literal as OneOf

import numpy as np
from typing_extensions import CapsuleType, override

from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.device import MEMORY, Device
from tracefx.core.dtypes import DType, NDArray, Scalar
from tracefx.core.late_binding import LateBound
from tracefx.core.layouts import Format
from tracefx.core.sharding import Sharding
from tracefx.errors import (
    ConcretizationError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
)
from tracefx.filtered_tracebacks import api_boundary
from tracefx.settings import Setting


class ArrayPlacement:
    """The attributes of `Array` that describe its placement.

    The methods here are those of tracers, which have no memory, so most of them raise. Concrete arrays override them.
    """

    __slots__ = ()

    @abstractmethod
    def concrete_or_error(self, error: type[ConcretizationError], use: str = "") -> NDArray:
        """Returns the concrete value; raises an error for a tracer.

        Args:
            error: The class of the error.
            use: What needs the value, for the message.
        """

    @property
    def device(self) -> Device | None:
        """The device of the array; None for a tracer, so that functions which create arrays use the default device."""
        return None

    def devices(self) -> set[Device]:
        """Returns the devices that hold a shard of the array; the empty set for a tracer."""
        return set() if self.device is None else {self.device}

    def platform(self) -> str:
        """Returns the platform of the device, e.g. "cpu"; for a tracer, the default platform."""
        return MEMORY.value.platform if self.device is None else self.device.platform

    def is_ready(self) -> bool:
        """Returns whether the value has been computed; `block_until_ready` waits for it."""
        self.concrete_or_error(ConcretizationError)
        return True

    def is_deleted(self) -> bool:
        """Returns whether the memory was freed by `delete` or donated to a compiled function."""
        self.concrete_or_error(ConcretizationError)
        return False

    def delete(self) -> None:
        """Frees the memory as soon as no view uses it. The value cannot be read afterwards."""
        self.concrete_or_error(ConcretizationError)

    def on_device_size_in_bytes(self) -> int:
        """Returns the size of the value in device memory, in bytes."""
        return self.concrete_or_error(ConcretizationError).nbytes

    def copy_to_host_async(self) -> None:
        """Does nothing: arrays in host memory need no copy, and others are copied when they are read."""
        self.concrete_or_error(ConcretizationError)

    @property
    def sharding(self) -> Sharding:
        """How the array is distributed over devices. Raises AttributeError for a tracer."""
        raise self._no_placement("sharding")

    @property
    def format(self) -> Format:
        """The layout in memory, which is row-major, and the sharding. Raises AttributeError for a tracer."""
        raise self._no_placement("format")

    @property
    def committed(self) -> bool:
        """Whether computations on the array must run on its devices. Raises AttributeError for a tracer."""
        raise self._no_placement("commitment")

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all its devices belong to this process."""
        return self.sharding.is_fully_addressable

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each of its devices has the whole array."""
        return self.sharding.is_fully_replicated

    def _no_placement(self, attribute: str) -> AttributeError:
        return AttributeError(f"{self} has no {attribute}: it is traced, and its placement is decided at run time")


NUMPY: Final[LateBound[ModuleType]] = LateBound("the module tracefx.numpy, which implements the methods of arrays,")
ARRAY_NAMESPACE: Final[Setting[ModuleType | None]] = Setting("array_namespace", None)
"""The module that arrays name as their namespace instead of `tracefx.numpy`: `jax.numpy` for `interop.as_jax`."""
_ARRAY_API_VERSIONS: Final = (None, "2021.12", "2022.12", "2023.12", "2024.12")


class AbstractArray(ArrayPlacement):
    """The base class of `Array` without the functions of `tracefx.numpy`.

    Conversion to Python and NumPy needs a concrete value, so on a tracer it raises the matching error.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def aval(self) -> ShapedArray:
        """The abstract value: shape, dtype and weak type."""

    # ------------------------------------------------------------------ shape and dtype

    @property
    def shape(self) -> Shape:
        """The sizes of the axes."""
        return self.aval.shape

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return self.aval.dtype

    @property
    def weak_type(self) -> bool:
        """Whether the dtype gives way to those of other operands in promotion, as Python numbers do."""
        return self.aval.weak_type

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.aval.size

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes, as in NumPy."""
        return self.aval.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes."""
        return self.size * self.itemsize

    def __len__(self) -> int:
        if not self.aval.shape:
            raise TypeError("len() of a zero-dimensional array")
        return self.aval.shape[0]

    # ------------------------------------------------------------------ conversion to Python and NumPy

    def __bool__(self) -> bool:
        return bool(self.concrete_or_error(TracerBoolConversionError))

    def __int__(self) -> int:
        return int(self._scalar(TracerIntegerConversionError, "`int()`").item())

    def __float__(self) -> float:
        return float(self._scalar(ConcretizationError, "`float()`").item())

    def __complex__(self) -> complex:
        return complex(self._scalar(ConcretizationError, "`complex()`").item())

    def _scalar(self, error: type[ConcretizationError], use: str) -> NDArray:
        value = self.concrete_or_error(error, use)
        if value.ndim:
            raise TypeError(f"{use} needs a zero-dimensional array, got {self.aval}: use `item()` or an index")
        return value

    def __index__(self) -> int:
        if self.aval.shape or self.aval.dtype.kind not in "iu":
            raise TypeError(f"only zero-dimensional integer arrays can be an index, got {self.aval}")
        return int(self.concrete_or_error(TracerIntegerConversionError).item())

    @api_boundary
    def item(self, *args: int) -> Scalar:
        """Returns one element as a Python scalar.

        Args:
            *args: The index of the element: one integer for each axis, or one into the flattened array. Without any,
                the array must have size 1.
        """
        out: Scalar = self.concrete_or_error(ConcretizationError, "`item()`").item(*args)
        return out

    def tolist(self) -> object:
        """Returns the elements as nested lists of Python scalars."""
        return self.concrete_or_error(ConcretizationError, "`tolist()`").tolist()

    @api_boundary
    def tobytes(self, order: OneOf["C", "F", "A", "K"] = "C") -> bytes:
        """Returns the bytes of the elements.

        Args:
            order: "C" for row-major order, "F" for column-major order, "A" or "K" for that of the memory.
        """
        return self.concrete_or_error(ConcretizationError, "`tobytes()`").tobytes(order)

    def block_until_ready(self) -> Self:
        """Waits until the value has been computed, and raises errors of the computation.

        Returns:
            The array.
        """
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
        if not spec or self.aval.shape:
            return format(str(self), spec)
        return format(self.concrete_or_error(ConcretizationError, f"the format `:{spec}`").item(), spec)

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """Returns `tracefx.numpy`, as the array API standard requires. Raises ValueError for an unknown version."""
        if api_version not in _ARRAY_API_VERSIONS:
            known = ", ".join([repr(version) for version in _ARRAY_API_VERSIONS if version])
            raise ValueError(f"version {api_version!r} of the array API is not supported; supported are {known}")
        return ARRAY_NAMESPACE.value or NUMPY.value

    @api_boundary
    def __setitem__(self, index: object, value: object) -> NoReturn:
        raise TypeError(
            "arrays are immutable: instead of `x[i] = y` write `x = x.at[i].set(y)`, instead of `x[i] += y` "
            "`x = x.at[i].add(y)`, which return a new array"
        )


class HasJaxArrayMethod(Protocol):
    """An object that stands for an array."""

    def __jax_array__(self) -> Any: ...  # an `ArrayLike`, which includes subclasses of the class below


def has_jax_array_method(x: object) -> TypeGuard[HasJaxArrayMethod]:
    """Whether `x` has a method `__jax_array__`, which returns the array it stands for; on JAX's tracers it is None."""
    return hasattr(type(x), "__jax_array__") and callable(getattr(x, "__jax_array__", None))


def is_jax_array(x: object) -> bool:
    """Whether `x` is a concrete JAX array, recognized by its weak type so that jax need not be imported."""
    kind = type(x)
    return hasattr(kind, "weak_type") and hasattr(kind, "__dlpack__") and not isinstance(x, AbstractArray)
