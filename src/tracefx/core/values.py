"""Values: what operations take and give, and how Python's and NumPy's numbers become them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, Self, TypeAlias

import numpy as np
from typing_extensions import CapsuleType, override

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike, Shard, has_jax_array_method, is_jax_array
from tracefx.core.avals import Shape, ShapedArray, intern_aval
from tracefx.core.device import MEMORY, Buffer, Device, SupportsDLPack
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.host_memory import read_only_copy
from tracefx.core.kernel_context import call_kernel
from tracefx.core.key_data import from_key_data, to_key_data
from tracefx.core.late_binding import LateBound
from tracefx.core.literal import Literal, Scalar
from tracefx.core.settings import X64
from tracefx.core.sharding import Sharding, SingleDeviceSharding
from tracefx.errors import ConcretizationError, DeletedArrayError

Value: TypeAlias = Array | Literal


_WORTH_FREEING: Final = 1 << 16  # bytes


class ArrayImporter(Protocol):
    """Makes arrays of other libraries' arrays on devices. The compiler's backend provides it."""

    def import_array(self, external: SupportsDLPack, weak_type: bool = False) -> ConcreteArray:
        """Returns an array in the memory of another library's array, which is on a device that is not the host's."""
        ...


ARRAY_IMPORTER: Final[LateBound[ArrayImporter]] = LateBound("what imports arrays on devices")


class ConcreteArray(Array):
    """Numbers: a NumPy array nobody can write to, a buffer of the host's first device, or both, if both were used.

    They go where they are needed. Those that lie on other devices, or are to stay where they were put, are of the one
    class below this, `ShardedArray`; hot paths ask for `type(x) is ConcreteArray`, and so never take one of these for
    one of those.
    """

    __slots__ = ("__weakref__", "aval", "device_copy", "buffer", "host")
    aval: ShapedArray  # slots in place of properties, since every dispatch reads them
    buffer: Buffer | None  # on a device, if there is one yet
    host: NDArray | None  # in host memory, if they are there; `numpy` gives them wherever they are
    device_copy: tuple[Sharding, Buffer]  # a copy on the device that programs run on; unset if there is none

    def __init__(self, aval: ShapedArray, host: NDArray | None, buffer: Buffer | None = None) -> None:
        self.aval = aval
        self.host = host
        self.buffer = buffer

    def numpy(self) -> NDArray:
        """The numbers as a NumPy array; not to be written to."""
        host = self.host  # read once: another thread's `adopt` may drop it
        if host is None:
            if self.buffer is None:
                raise DeletedArrayError(f"the array of type {self.aval} was deleted: keep a copy before that")
            host = self.host = from_key_data(MEMORY.value.read(self.buffer), self.aval.dtype)
        return host

    def attach_buffer(self, buffer: Buffer) -> None:
        """Keep the device buffer that a first use made. A large host copy goes: the buffer can be read in place."""
        self.buffer = buffer
        if self.aval.nbytes > _WORTH_FREEING:
            self.host = None

    @override
    def is_ready(self) -> bool:
        if self.is_deleted():
            self.numpy()
        return self.host is not None or (self.buffer is not None and MEMORY.value.is_ready(self.buffer))

    @override
    def is_deleted(self) -> bool:
        if self.host is not None:
            return False
        return self.buffer is None or MEMORY.value.is_deleted(self.buffer)

    @override
    def delete(self) -> None:
        buffer, self.host = self.buffer, None
        if buffer is not None:
            MEMORY.value.delete(buffer)
        if hasattr(self, "device_copy"):
            del self.device_copy

    @override
    def on_device_size_in_bytes(self) -> int:
        return self.nbytes

    @override
    def copy_to_host_async(self) -> None:
        pass

    def drop_host_view(self) -> None:
        """Drops the host view of the buffer, so that a program that the buffer is donated to can use its memory."""
        if self.buffer is not None:
            self.host = None

    @property
    @override
    def device(self) -> Device:
        """Where the numbers are; for those in host memory, where programs will take them."""
        backend = MEMORY.value
        return backend.default_device if self.buffer is None else backend.device_of(self.buffer)

    @property
    @override
    def sharding(self) -> Sharding:
        return SingleDeviceSharding(self.device)

    @property
    @override
    def addressable_shards(self) -> Sequence[Shard]:
        return (Shard(self.device, (slice(None),) * self.aval.ndim, 0, self),)

    @property
    @override
    def global_shards(self) -> Sequence[Shard]:
        return self.addressable_shards

    @property
    @override
    def committed(self) -> bool:
        return False

    @override
    def concrete_or_error(self, error: type[ConcretizationError]) -> NDArray:
        host = self.numpy()
        if dtypes.is_key(host.dtype):
            raise TypeError(
                f"random keys, such as this {self.aval}, are no numbers: draw numbers from them with tracefx.random, "
                "or look at their words with tracefx.random.key_data"
            )
        shown = read_only(host)
        if host.base is not None:
            self.host = shown  # which need not be protected again
        return shown

    @override
    def block_until_ready(self) -> Self:
        if self.buffer is not None:
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
            # Such a capsule lies anywhere, and says that nobody may write to it unless it is a copy.
            host = np.array(self.numpy()) if copy else self.concrete_or_error(ConcretizationError)
            return host.__dlpack__(max_version=max_version)
        if copy:
            return ConcreteArray(self.aval, read_only_copy(self.numpy(), self.aval.dtype)).__dlpack__()
        buffer = self.buffer
        if buffer is None:
            buffer = MEMORY.value.put(self.numpy(), None)
            self.buffer, self.host = buffer, None  # from now on both are the memory that is exported
        return MEMORY.value.to_dlpack(buffer)

    def __buffer__(self, flags: int, /) -> memoryview:
        """The numbers for `memoryview(x)` from Python 3.12 on (PEP 688), not to be written to."""
        return self.concrete_or_error(ConcretizationError).data

    def __copy__(self) -> ConcreteArray:
        """An array of its own, which stays when this one is deleted or donated."""
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
        """As NumPy formats them, which shows a number without axes to the last digit."""
        host = self.numpy()
        return format(host if host.ndim else host[()], spec)


_DLPACK_HAS_READ_ONLY: Final = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
"""Whether NumPy makes the capsules of DLPack 1.0; those of before can't say that memory is read-only."""


def _check_export(stream: int | None, dl_device: tuple[int, int] | None) -> None:
    """What a consumer may ask of numbers in host memory."""
    if stream is not None:
        raise ValueError(f"__dlpack__: numbers in host memory have no streams, stream must be None, got {stream!r}")
    if dl_device is not None and tuple(dl_device) != (1, 0):
        raise BufferError(
            f"__dlpack__: the numbers are in host memory, dl_device (1, 0), and can't be exported to {dl_device}: "
            "move them there with the consumer's own functions"
        )


def _unpickle(host: NDArray, weak_type: bool) -> ConcreteArray:
    return ConcreteArray(ShapedArray(host.shape, host.dtype, weak_type), read_only_copy(host, host.dtype))


_PYTHON_SCALARS: Final = frozenset({bool, int, float, complex})


def as_value(x: ArrayLike, what: str = "argument") -> Value:
    """`x` as a value with a type. This is where settings are read: numbers narrow to 32 bits unless x64 is on.

    A Python scalar (or a number of a subclass, such as a member of an `IntEnum`) becomes a weakly typed literal, a
    NumPy scalar or array without axes a literal of its dtype, any other NumPy array an array (copied if it can be
    written to), an array of JAX an array of the same type, an object with a method `__jax_array__` what that returns.
    Anything else is a `TypeError`, a masked array a `ValueError`.
    """
    kind = type(x)
    if kind is ConcreteArray or kind is Literal:
        return x  # type: ignore[return-value]  # narrowed by `type(x) is`, which is faster than isinstance
    if kind in _PYTHON_SCALARS:
        return Literal(x, _number_aval(dtypes.scalar_dtype(kind)))  # type: ignore[arg-type]  # narrowed as above
    if isinstance(x, (Array, Literal)):
        return x
    if isinstance(x, np.ndarray):
        if x.ndim or x.dtype.names is not None:
            return from_numpy(x)
        require_no_mask(x)
        x = x[()]
    if isinstance(x, np.generic):
        dtype = dtypes.canonicalize(dtypes.as_dtype(x.dtype))
        scalar: Scalar = (x if x.dtype == dtype else call_kernel(x.astype, dtype)).item()
        return Literal(scalar, ShapedArray((), dtype))
    if is_jax_array(x):
        return from_jax_array(x)
    found = unwrap_arraylike(x)
    if found is not x:
        return as_value(found, what)
    hint = jax_hint(x) or "; turn sequences into arrays with tracefx.numpy.asarray"
    raise TypeError(
        f"{what} must be an array or a number, got {x!r} of type {kind.__module__}.{kind.__qualname__}{hint}"
    )


def unwrap_arraylike(x: Any) -> ArrayLike:
    """A number of a subclass of `int`, `float` or `complex` as that Python number, and the array that an object with
    a method `__jax_array__` stands for. Anything else is returned as it is."""
    if not isinstance(x, np.generic):  # np.float64 is a subclass of float
        if isinstance(x, int):
            return x if type(x) is bool else int(x)
        if isinstance(x, float):
            return float(x)
        if isinstance(x, complex):
            return complex(x)
        if has_jax_array_method(x):
            return x.__jax_array__()  # type: ignore[no-any-return]  # checked by who asks
    return x  # type: ignore[no-any-return]  # as above


def require_no_mask(x: NDArray) -> None:
    """Raises ValueError for a masked array, whose mask would be lost."""
    if type(x) is not np.ndarray and isinstance(x, np.ma.MaskedArray):
        raise ValueError(
            "masked arrays of NumPy are not supported, since their mask would be lost: use arr.filled() to get a plain "
            "array"
        )


def filled_key(word: int, dtype: DType) -> ConcreteArray:
    """A random key of this dtype, without axes, each of whose words is `word`."""
    words = np.full(dtypes.key_data_size(dtype), word, np.int64).astype(np.uint32)
    return ConcreteArray(ShapedArray((), dtype), from_key_data(words, dtype))


def jax_hint(x: object) -> str:
    """What messages say to do with a tracer or random keys of JAX; nothing for anything else."""
    if type(x).__module__.partition(".")[0] not in ("jax", "jaxlib"):
        return ""
    return (
        "; what JAX traces is for functions that tracefx.interop.jax.to_jax made, and random keys of JAX become keys "
        "of tracefx by tracefx.interop.jax.as_tracefx"
    )


def from_jax_array(x: Any) -> ConcreteArray:
    """An array with the numbers and the type of one of JAX, whose memory nobody writes to: it is shared."""
    devices = x.devices()
    dtype = dtypes.as_dtype(x.dtype)
    aval = intern_aval(ShapedArray(x.shape, dtype, bool(x.weak_type) and not dtypes.is_bool(dtype)))
    if len(devices) == 1 and next(iter(devices)).platform != "cpu":
        return ARRAY_IMPORTER.value.import_array(x, aval.weak_type)
    return ConcreteArray(aval, np.asarray(x))


@functools.cache
def _number_aval(dtype: DType) -> ShapedArray:
    """The type of Python numbers that are taken for numbers of this dtype."""
    return ShapedArray((), dtype, not dtypes.is_bool(dtype))


def read_only(host: NDArray) -> NDArray:
    """The numbers in the same memory, by an array that can't be made writable again.

    NumPy makes an array writable that owns its memory, or that has a writable array among its bases. Such a base may
    be another library's, so its flags are left as they are.
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


def from_numpy(x: NDArray, dtype: dtypes.DType | None = None) -> ConcreteArray:
    """An array with the numbers of `x`, whose memory is copied if anyone could write to it."""
    require_no_mask(x)
    aval = numpy_aval(x.shape, x.dtype, X64.value) if dtype is None else intern_aval(ShapedArray(x.shape, dtype))
    if x.flags.writeable or x.dtype != aval.dtype or x.base is not None:
        x = read_only_copy(x, aval.dtype)
    return ConcreteArray(aval, x)


@functools.lru_cache(maxsize=4096)
def numpy_aval(shape: Shape, dtype: DType, x64: bool) -> ShapedArray:
    """The type that NumPy data of a shape and dtype come in with. `x64` must be what the setting is."""
    assert x64 == X64.value
    return intern_aval(ShapedArray(shape, dtypes.canonicalize(dtypes.as_dtype(dtype))))


def get_aval(x: ArrayLike) -> ShapedArray:
    """The type of anything that can be an argument.

    >>> get_aval(2.0)
    f32[]*
    """
    return as_value(x).aval


def to_numpy(x: Value) -> NDArray:
    """The numbers of a literal or concrete array."""
    if type(x) is ConcreteArray:
        return x.numpy()
    if type(x) is Literal:
        return x.numpy()
    assert isinstance(x, Array)
    return x.concrete_or_error(ConcretizationError)
