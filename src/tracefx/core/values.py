"""Values: the operands and results of primitives, and the conversion of Python and NumPy numbers to them.

A value is an `Array` or a `Literal`. An array is concrete (`ConcreteArray`: its elements exist, in host or device
memory) or a tracer of a handler. Every value has an `aval`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from typing_extensions import CapsuleType, override

from tracefx.bounded_cache import memoize
from tracefx.core import dtypes
from tracefx.core.abstract_array import has_jax_array_method, is_jax_array
from tracefx.core.array import Array, ArrayLike, Shard
from tracefx.core.avals import Shape, ShapedArray, intern_aval
from tracefx.core.device import MEMORY, Buffer, Device, SupportsDLPack
from tracefx.core.dtypes import DType, NDArray, Scalar
from tracefx.core.host_memory import read_only_copy, shared_read_only_copy
from tracefx.core.kernel_context import call_kernel
from tracefx.core.key_data import from_key_data, to_key_data
from tracefx.core.late_binding import LateBound
from tracefx.core.layouts import Format, format_of
from tracefx.core.literal import Literal
from tracefx.core.sharding import Sharding, SingleDeviceSharding
from tracefx.errors import ConcretizationError, DeletedArrayError
from tracefx.settings import X64

T = TypeVar("T")
Value: TypeAlias = Array | Literal


_WORTH_FREEING: Final = 1 << 16  # bytes


class ArrayImporter(Protocol):
    """Imports other libraries' arrays on accelerators. The compiler backend provides it."""

    def import_array(self, external: SupportsDLPack, weak_type: bool = False) -> ConcreteArray:
        """Returns an array that shares the memory of another library's array, which is not on the host."""


ARRAY_IMPORTER: Final[LateBound[ArrayImporter]] = LateBound("the importer of device arrays")


class ConcreteArray(Array):
    """An array with elements: a read-only NumPy array, a buffer on the first device, or both once both were used.

    It is uncommitted: it moves to whichever device a computation runs on. Committed arrays and arrays on other devices
    are instances of the only subclass, `ShardedArray`. Hot paths test `type(x) is ConcreteArray`, which excludes them.
    """

    __slots__ = ("__weakref__", "aval", "device_copy", "donated_as", "buffer", "host", "shares_buffer")
    aval: ShapedArray  # slots instead of properties: every dispatch reads them
    buffer: Buffer | None  # the device buffer, if one has been made
    host: NDArray | None  # the host copy, if there is one; `numpy()` makes it
    device_copy: tuple[Sharding, Buffer] | None  # a copy on the device that a program runs on
    donated_as: str  # the argument that it was donated as; unset if there is none
    shares_buffer: bool  # whether another array has the same buffer

    def __init__(self, aval: ShapedArray, host: NDArray | None, buffer: Buffer | None = None) -> None:
        self.aval = aval
        self.host = host
        self.buffer = buffer
        self.device_copy = None
        self.shares_buffer = False

    def numpy(self) -> NDArray:
        """Returns the elements as a NumPy array, which must not be written to."""
        host = self.host  # read once: `attach_buffer` in another thread may drop it
        if host is None:
            if self.buffer is None or MEMORY.value.is_deleted(self.buffer):
                raise self.deleted_error()
            host = self.host = from_key_data(MEMORY.value.read(self.buffer), self.aval.dtype)
        return host

    def attach_buffer(self, buffer: Buffer) -> None:
        """Stores the device buffer that the first compiled use made.

        Drops a large host copy, since the host can read the buffer in place.
        """
        self.buffer = buffer
        if self.aval.nbytes > _WORTH_FREEING:
            self.host = None

    def deleted_error(self) -> DeletedArrayError:
        """Returns the error for a use of this array after it was deleted or donated."""
        if hasattr(self, "donated_as"):
            return DeletedArrayError(
                f"an array of type {self.aval} is used after it was donated as {self.donated_as}: use the output of "
                "that function, pass a copy to it, or do not donate the argument"
            )
        return DeletedArrayError(
            f"an array of type {self.aval} is used after it was deleted: copy it before `delete` or donation"
        )

    def alias(self) -> ConcreteArray:
        """Returns another array with the same memory, which stays valid when this one is deleted or donated."""
        self.shares_buffer = True
        result = ConcreteArray(self.aval, self.host, self.buffer)
        result.shares_buffer = True
        result.device_copy = self.device_copy
        return result

    @override
    def is_ready(self) -> bool:
        if self.is_deleted():
            raise self.deleted_error()
        return self.host is not None or (self.buffer is not None and MEMORY.value.is_ready(self.buffer))

    @override
    def is_deleted(self) -> bool:
        if self.host is not None:
            return False
        return self.buffer is None or MEMORY.value.is_deleted(self.buffer)

    @override
    def delete(self) -> None:
        if self.buffer is not None and not self.shares_buffer:
            MEMORY.value.delete(self.buffer)
        self._drop_memory()

    def _drop_memory(self) -> None:
        self.buffer = self.host = self.device_copy = None

    @override
    def on_device_size_in_bytes(self) -> int:
        return self.nbytes

    @override
    def copy_to_host_async(self) -> None:
        pass

    def prepare_donation(self) -> None:
        """Drops the host view of the buffer, so that a program to which the buffer is donated can reuse its memory.

        Drops the buffer instead if another array has it too, so that a copy is donated.
        """
        if self.shares_buffer:
            self.host, self.buffer = self.numpy(), None
        elif self.buffer is not None:
            self.host = None

    def delete_donated(self, name: str) -> None:
        """Deletes the array after a call to which it was donated, as an argument that messages call `name`."""
        self._drop_memory()  # no other array has the buffer: `prepare_donation` has seen to it
        self.donated_as = name

    @property
    @override
    def device(self) -> Device:
        """The device of the buffer; for an array in host memory, the default device, where programs will use it."""
        backend = MEMORY.value
        return backend.default_device if self.buffer is None else backend.device_of(self.buffer)

    @property
    @override
    def sharding(self) -> Sharding:
        return SingleDeviceSharding(self.device)

    @property
    @override
    def format(self) -> Format:
        return format_of(self.sharding, self.aval.ndim)

    @property
    @override
    def addressable_shards(self) -> Sequence[Shard]:
        if self.is_deleted():
            raise self.deleted_error()
        return (Shard(self.device, (slice(None),) * self.aval.ndim, 0, self),)

    @property
    @override
    def global_shards(self) -> Sequence[Shard]:
        return self.addressable_shards

    committed = False

    @override
    def concrete_or_error(self, error: type[ConcretizationError], use: str = "") -> NDArray:
        host = self.numpy()
        if dtypes.is_key(host.dtype):
            raise TypeError(
                f"random keys, such as this {self.aval}, are not numbers: draw numbers from them with tracefx.random, "
                "or read their words with tracefx.random.key_data"
            )
        view = read_only(host)
        if host.base is not None:
            self.host = view  # already protected at the next call
        return view

    @override
    def block_until_ready(self) -> Self:
        if self.host is None:
            if self.buffer is None or MEMORY.value.is_deleted(self.buffer):
                raise self.deleted_error()
            MEMORY.value.wait((self.buffer,))
        return self

    @override
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        if dtypes.is_key(self.aval.dtype):
            self.concrete_or_error(ConcretizationError)
        _check_export(stream, dl_device)
        if (
            max_version is not None
            and max_version >= (1, 0)
            and self.aval.dtype.isbuiltin == 1
            and _DLPACK_HAS_READ_ONLY
        ):
            # A capsule of DLPack 1.0 can export the host memory itself: it is marked read-only unless it is a copy.
            host = np.array(self.numpy()) if copy else self.concrete_or_error(ConcretizationError)
            return host.__dlpack__(max_version=max_version)
        if copy:
            return ConcreteArray(self.aval, read_only_copy(self.numpy(), self.aval.dtype)).__dlpack__()
        buffer = self.buffer
        if buffer is None:
            buffer = MEMORY.value.put(self.numpy(), None)
            self.buffer, self.host = buffer, None  # from now on the array uses the exported memory
        return MEMORY.value.to_dlpack(buffer)

    def __buffer__(self, flags: int, /) -> memoryview:
        """Returns a read-only view for `memoryview(x)`, from Python 3.12 on (PEP 688)."""
        return self.concrete_or_error(ConcretizationError).data

    def __copy__(self) -> ConcreteArray:
        """Returns an independent array, which stays valid when this one is deleted or donated."""
        return ConcreteArray(self.aval, self.numpy())

    def __deepcopy__(self, memo: object) -> ConcreteArray:
        return self.__copy__()

    @override
    def __reduce__(self) -> tuple[Callable[[NDArray, bool], ConcreteArray], tuple[NDArray, bool]]:
        return _unpickle, (self.numpy(), self.aval.weak_type)

    @override
    def __repr__(self) -> str:
        if dtypes.is_key(self.aval.dtype):
            return f"Array({self.aval}, words={to_key_data(self.numpy()).tolist()})"
        body = np.array2string(self.numpy(), separator=", ", prefix="Array(")
        weak = ", weak_type=True" if self.aval.weak_type else ""
        if not self.aval.size:
            return f"Array([], shape={self.aval.shape}, dtype={self.aval.dtype}{weak})"
        return f"Array({body}, dtype={self.aval.dtype}{weak})"

    @override
    def __str__(self) -> str:
        return repr(self) if dtypes.is_key(self.aval.dtype) else str(self.numpy())

    @override
    def __format__(self, spec: str) -> str:
        """Formats the array as NumPy does: a zero-dimensional array like its element, in full precision."""
        if dtypes.is_key(self.aval.dtype):
            return format(str(self), spec)
        host = self.numpy()
        return format(host if host.ndim else host[()], spec)


_DLPACK_HAS_READ_ONLY: Final = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
"""Whether NumPy exports capsules of DLPack 1.0; older capsules cannot be marked read-only."""


def _check_export(stream: int | None, dl_device: tuple[int, int] | None) -> None:
    """Raises if a DLPack consumer asks for a stream or a device that host memory does not have."""
    if stream is not None:
        raise ValueError(f"__dlpack__: arrays in host memory have no streams, so stream must be None; got {stream!r}")
    if dl_device is not None and tuple(dl_device) != (1, 0):
        raise BufferError(
            f"__dlpack__: the array is in host memory, dl_device (1, 0), and can't be exported to {dl_device}: "
            "move it there with the consumer's own functions"
        )


def _unpickle(host: NDArray, weak_type: bool) -> ConcreteArray:
    dtype = dtypes.interned(host.dtype)
    return ConcreteArray(ShapedArray(host.shape, dtype, weak_type), read_only_copy(host, dtype))


_PYTHON_SCALARS: Final = frozenset({bool, int, float, complex})


def as_value(x: object, what: str = "argument") -> Value:
    """Converts an array-like to a value: an `Array` or a `Literal`.

    This is where the x64 setting is read: without x64, 64-bit dtypes become their 32-bit counterparts.

    - A Python number, or one of a subclass such as a member of an `IntEnum`, becomes a weakly typed literal.
    - A NumPy scalar or zero-dimensional NumPy array becomes a literal of its dtype.
    - Any other NumPy array becomes a `ConcreteArray`; it is copied if it is writable.
    - A JAX array becomes an array with the same aval.
    - An object with a method `__jax_array__` is replaced by what the method returns.

    Args:
        x: The array-like.
        what: The name of the argument in error messages.

    Returns:
        The value; `x` itself if it is one.

    Raises:
        TypeError: If `x` is not array-like.
        ValueError: If `x` is a masked NumPy array, whose mask would be lost.

    >>> as_value(2), as_value(np.float16(2)).aval, as_value([1.0, 2.0][0])
    (Literal(val=2, aval=i32[]*), f16[], Literal(val=1.0, aval=f32[]*))
    """
    kind = type(x)
    if kind is ConcreteArray or kind is Literal:
        return x  # type: ignore[return-value]  # narrowed by `type(x) is`, which is faster than isinstance
    if kind in _PYTHON_SCALARS:
        return Literal(x, number_aval(dtypes.scalar_dtype(kind)))  # type: ignore[arg-type]  # narrowed as above
    if isinstance(x, Array):
        return x
    if isinstance(x, np.ndarray):
        if x.ndim or x.dtype.names is not None:
            return from_numpy(x)
        require_no_mask(x)
        x = x[()]
    if isinstance(x, np.generic):
        aval = numpy_aval((), x.dtype, X64.value)
        scalar: Scalar = (x if x.dtype == aval.dtype else call_kernel(x.astype, aval.dtype)).item()
        return Literal(scalar, aval)
    if is_jax_array(x):
        return from_jax_array(x)
    unwrapped = unwrap_arraylike(x)
    if unwrapped is not x:
        return as_value(unwrapped, what)
    is_sequence = isinstance(x, list | tuple)
    hint = "; convert it with tracefx.numpy.asarray" if is_sequence else jax_hint(x)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    raise TypeError(f"{what} must be an array or a number, got {x!r} of type {module}{kind.__qualname__}{hint}")


def unwrap_arraylike(x: T) -> T | ArrayLike:
    """Returns the plain Python number or array behind an object; anything else unchanged.

    An object with a method `__jax_array__` becomes the array that the method returns; any other number of a subclass of
    `int`, `float` or `complex` that Python number.
    """
    if not isinstance(x, np.generic):  # np.float64 is a subclass of float
        if has_jax_array_method(x):
            array: ArrayLike = x.__jax_array__()
            return array
        if isinstance(x, int):
            return x if type(x) is bool else int(x)
        if isinstance(x, float):
            return float(x)
        if isinstance(x, complex):
            return complex(x)
    return x


def require_no_mask(x: NDArray) -> None:
    """Raises ValueError for a masked NumPy array, whose mask would be lost."""
    if type(x) is not np.ndarray and isinstance(x, np.ma.MaskedArray):
        raise ValueError(
            "masked arrays of NumPy are not supported, since their mask would be lost: use arr.filled() to get a plain "
            "NumPy array"
        )


def filled_key(word: int, dtype: DType) -> ConcreteArray:
    """Returns a random key of the given dtype, of shape `()`, all of whose words are `word`."""
    words = np.full(dtypes.key_data_size(dtype), word, np.int64).astype(np.uint32)
    return ConcreteArray(ShapedArray((), dtype), from_key_data(words, dtype))


def jax_hint(x: object) -> str:
    """Returns advice for messages about a JAX tracer or JAX random keys; the empty string for anything else."""
    if type(x).__module__.partition(".")[0] not in ("jax", "jaxlib"):
        return ""
    return (
        "; to call a tracefx function under a JAX transformation, convert it with tracefx.interop.jax.to_jax; convert "
        "JAX random keys with tracefx.interop.jax.as_tracefx"
    )


def from_jax_array(x: Any) -> ConcreteArray:
    """Returns an array with the elements and the aval of a JAX array. It shares the memory, which is immutable."""
    devices = x.devices()
    dtype = dtypes.as_dtype(x.dtype)
    aval = intern_aval(ShapedArray(x.shape, dtype, bool(x.weak_type) and not dtypes.is_bool(dtype)))
    if len(devices) == 1 and next(iter(devices)).platform != "cpu":
        return ARRAY_IMPORTER.value.import_array(x, aval.weak_type)
    return ConcreteArray(aval, np.asarray(x))


@memoize(256)
def number_aval(dtype: DType) -> ShapedArray:
    """Returns the aval of Python numbers of this dtype: a weakly typed scalar, unless it is boolean."""
    return ShapedArray((), dtype, not dtypes.is_bool(dtype))


def read_only(host: NDArray) -> NDArray:
    """Returns a view of the same memory that cannot be made writable again.

    NumPy lets users make an array writable if it owns its memory or has a writable array among its bases. Such a base
    may belong to another library, so its flags are left unchanged.
    """
    if host.base is None:
        host.flags.writeable = False
        return host.view()
    owner: object = host
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            words = host if host.dtype.isbuiltin == 1 else host.view(f"V{host.itemsize}")
            return np.asarray(words.data.toreadonly()).view(host.dtype)
        owner = owner.base
    return host


def is_immutable(x: NDArray) -> bool:
    """Whether the memory of a NumPy array is immutable: a read-only view of an array of tracefx or JAX."""
    owner: object = x
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    return isinstance(owner, memoryview) and is_jax_array(owner.obj)  # the memory of an XLA buffer


def from_numpy(x: NDArray, dtype: dtypes.DType | None = None) -> ConcreteArray:
    """Returns an array with the elements of `x`; copies them unless the memory is immutable and of the right dtype."""
    require_no_mask(x)
    aval = numpy_aval(x.shape, x.dtype, X64.value) if dtype is None else intern_aval(ShapedArray(x.shape, dtype))
    if x.dtype != aval.dtype:
        x = read_only_copy(x, aval.dtype)
    elif x.flags.writeable or (x.base is not None and not is_immutable(x)):
        x = shared_read_only_copy(x)
    return ConcreteArray(aval, x)


@memoize(4096)
def numpy_aval(shape: Shape, dtype: DType, x64: bool) -> ShapedArray:
    """Returns the aval that NumPy data of a shape and dtype get.

    `x64` must be the current setting: it is part of the cache key.
    """
    assert x64 == X64.value
    return intern_aval(ShapedArray(shape, dtypes.canonicalize(dtypes.as_dtype(dtype))))


def get_aval(x: ArrayLike) -> ShapedArray:
    """Returns the aval of any array-like.

    Args:
        x: An array, a tracer, a NumPy array or scalar, or a Python number.

    Returns:
        Its shape, dtype and weak type.

    Raises:
        TypeError: If `x` is not array-like.

    >>> get_aval(2.0)
    f32[]*
    """
    return as_value(x).aval


def to_numpy(x: Value) -> NDArray:
    """Returns the NumPy array of a literal or a concrete array.

    Args:
        x: The value.

    Returns:
        The elements, as a read-only NumPy array; those of an array on a device are copied to the host.

    Raises:
        ConcretizationError: If `x` is a tracer. It is a TypeError.

    >>> to_numpy(as_value(2.0))
    array(2., dtype=float32)
    """
    if type(x) is ConcreteArray:
        return x.numpy()
    if isinstance(x, Literal):
        return x.numpy()
    return x.concrete_or_error(ConcretizationError)
