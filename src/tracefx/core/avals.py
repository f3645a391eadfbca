"""Abstract values (avals): the shape, dtype, weak type and sharding of an array, without its elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, final

from attrs import field, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.core import dtypes
from tracefx.core.dtypes import DType
from tracefx.core.fast_init import slot_setter
from tracefx.core.meshes import MESH
from tracefx.core.named_sharding import NamedSharding, Spec, dimension_text, type_sharding
from tracefx.core.partition_spec import PartitionSpec
from tracefx.core.sharding import Shape as Shape
from tracefx.core.sharding import Sharding

Dimensions: TypeAlias = tuple[int, ...]
"""Indices of axes."""
MeshAxes: TypeAlias = frozenset[str]
"""Names of mesh axes."""
NOT_VARYING: Final[MeshAxes] = frozenset()
"""The varying mesh axes (vma) of a value that is replicated, and of all values outside `shard_map`."""


@final
@frozen(init=False, order=False, hash=False)
class ShapedArray:
    """The abstract value of an array: its shape, its dtype, whether the dtype is weak, and how it is on a mesh.

    It is the type of a value in a jaxpr: rules such as `abstract_eval` map the avals of operands to those of results.
    Immutable, compared by value, and printed as in jaxprs.

    Args:
        shape: The sizes of the axes.
        dtype: A NumPy dtype, one of `ml_dtypes`, or the dtype of random keys.
        weak_type: Whether the dtype is weak: it gives way to the dtype of another operand in promotion, as the types of
            Python numbers do. Printed as `*`.
        vma: The manual mesh axes over which the value varies from device to device inside a checked `shard_map`; over
            the other manual axes it is replicated. Printed as `{V:x}`.
        explicit_sharding: The sharding over explicit mesh axes. None, the default, means that it is not sharded over
            such axes. Printed as `8@x` for an axis of size 8.

    >>> import numpy as np
    >>> ShapedArray((2, 3), np.dtype("float32"))
    f32[2,3]
    >>> ShapedArray((2, 3), np.dtype("float32"), vma=frozenset(["x"]))
    f32[2,3]{V:x}
    """

    shape: Shape
    dtype: DType
    weak_type: bool = field(default=False)
    vma: MeshAxes = field(default=NOT_VARYING)
    explicit_sharding: NamedSharding | None = field(default=None)
    _hash: int | None = field(default=None, init=False, eq=False, repr=False)

    def __init__(
        self,
        shape: Shape,
        dtype: DType,
        weak_type: bool = False,
        vma: MeshAxes = NOT_VARYING,
        explicit_sharding: NamedSharding | None = None,
    ) -> None:
        _set_shape(self, shape)
        _set_dtype(self, dtype)
        _set_weak_type(self, weak_type)
        _set_vma(self, vma)
        _set_explicit_sharding(self, explicit_sharding)
        _set_hash(self, None)

    @override
    def __hash__(self) -> int:
        """Returns the hash, which is computed at the first call: avals are hashed far more often than constructed."""
        result = self._hash
        if result is None:
            result = hash((self.shape, self.dtype, self.weak_type, self.vma, self.explicit_sharding))
            _set_hash(self, result)
        return result

    @override
    def __reduce__(self) -> tuple[Callable[..., ShapedArray], tuple[object, ...]]:
        return _unpickle, (self.shape, self.dtype, self.weak_type, self.vma, self.explicit_sharding)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        size = 1
        for n in self.shape:
            size *= n
        return size

    @property
    def nbytes(self) -> int:
        """The size in bytes; dtypes of less than one byte are counted as packed."""
        return -(-self.size * dtypes.itemsize_bits(self.dtype) // 8)

    def update(
        self, *, shape: Shape | None = None, dtype: DType | None = None, weak_type: bool | None = None
    ) -> ShapedArray:
        """Returns the aval with another shape, dtype or weak type.

        Args:
            shape: The new shape; None, the default, keeps it.
            dtype: The new dtype; None, the default, keeps it.
            weak_type: Whether the dtype is weak; None, the default, keeps it.

        Returns:
            An aval with the same `vma`, and with the same sharding unless the shape is another one.
        """
        return ShapedArray(
            self.shape if shape is None else shape,
            self.dtype if dtype is None else dtype,
            self.weak_type if weak_type is None else weak_type,
            self.vma,
            self.explicit_sharding if shape is None or shape == self.shape else None,
        )

    def with_explicit_sharding(self, sharding: NamedSharding | None) -> ShapedArray:
        """Returns the aval with another sharding over explicit mesh axes.

        Args:
            sharding: The sharding; None if it is not sharded over such axes.
        """
        if sharding == self.explicit_sharding:
            return self
        return ShapedArray(self.shape, self.dtype, self.weak_type, self.vma, sharding)

    def with_sharding(self, sharding: Sharding) -> ShapedArray:
        """Returns the type of an array with a sharding: it has the part over explicit mesh axes.

        Args:
            sharding: The sharding.
        """
        if sharding.explicit_axes and isinstance(sharding, NamedSharding):
            return _with_sharding(self, sharding)
        return self if self.explicit_sharding is None else self.with_explicit_sharding(None)

    def with_vma(self, vma: MeshAxes) -> ShapedArray:
        """Returns the aval with other varying mesh axes.

        Args:
            vma: The names of the axes over which values vary.

        Returns:
            The aval.
        """
        return self if vma == self.vma else _with_vma(self, vma)

    def str_short(self, short_dtypes: bool = False, **options: object) -> str:
        """Returns the dtype and shape as text, as JAX's method does.

        Args:
            short_dtypes: Whether the dtype is abbreviated, as in jaxprs. False by default.
            **options: Ignored.

        Returns:
            A string.

        >>> ShapedArray((3,), dtypes.float32).str_short()
        'float32[3]'
        """
        name = dtypes.short_name(self.dtype) if short_dtypes else dtypes.name(self.dtype)
        return f"{name}[{self._dimensions_text()}]"

    def _dimensions_text(self) -> str:
        sharding = self.explicit_sharding
        if sharding is None:
            return ",".join(map(str, self.shape))
        return ",".join([dimension_text(n, entry) for n, entry in zip(self.shape, sharding.spec, strict=True)])

    def strong(self) -> ShapedArray:
        """Returns the aval without `weak_type`."""
        return self.update(weak_type=False) if self.weak_type else self

    def tangent(self) -> ShapedArray:
        """Returns the aval of tangents: the same for floating-point dtypes, `float0` for dtypes without derivatives."""
        dtype = dtypes.tangent_dtype(self.dtype)
        return self if dtype == self.dtype else self.update(dtype=dtype, weak_type=False)

    strip_weak_type = strong  # the names in JAX, which libraries use
    to_tangent_aval = tangent

    @property
    def sharding(self) -> NamedSharding:
        """The sharding that is part of the type: over explicit axes of the mesh in use, or of that of an operand."""
        explicit = self.explicit_sharding
        if explicit is not None:
            return explicit
        return NamedSharding(MESH.value.abstract_mesh, PartitionSpec(*[None] * len(self.shape)))

    @property
    def spec(self) -> Spec:
        """The explicit mesh axes over which each axis is sharded."""
        explicit = self.explicit_sharding
        return (None,) * len(self.shape) if explicit is None else explicit.spec.partitions

    def with_axis(self, size: int, axis: int, along: NamedSharding | None = None) -> ShapedArray:
        """Returns the aval with one more axis.

        Args:
            size: The size of the new axis.
            axis: Its position in the result.
            along: The sharding of an array that has the new axis alone. None, the default, means no sharding.

        Returns:
            The aval: `f32[n, m]` becomes `f32[n, size, m]` with `axis=1`.
        """
        shape, sharding = (*self.shape[:axis], size, *self.shape[axis:]), along or self.explicit_sharding
        new = ShapedArray(shape, self.dtype, self.weak_type, self.vma)
        if sharding is None:
            return new
        entry, spec = None if along is None else along.spec[0], self.spec
        return new.with_explicit_sharding(type_sharding(sharding.mesh, (*spec[:axis], entry, *spec[axis:]), new.ndim))

    def without_axis(self, axis: int) -> ShapedArray:
        """Returns the aval without an axis.

        Args:
            axis: The position of the axis.

        Returns:
            The aval: `f32[n, m, k]` becomes `f32[n, k]` with `axis=1`.
        """
        shape, sharding = (*self.shape[:axis], *self.shape[axis + 1 :]), self.explicit_sharding
        new = ShapedArray(shape, self.dtype, self.weak_type, self.vma)
        if sharding is None:
            return new
        rest = (*sharding.spec[:axis], *sharding.spec[axis + 1 :])
        return new.with_explicit_sharding(type_sharding(sharding.mesh, rest, new.ndim))

    @override
    def __str__(self) -> str:
        text = f"{dtypes.short_name(self.dtype)}[{self._dimensions_text()}]"
        if not self.vma:
            return text
        names = ",".join([name if name.isascii() and name.isidentifier() else repr(name) for name in sorted(self.vma)])
        return f"{text}{{V:{names}}}" if len(self.vma) == 1 else f"{text}{{V:({names})}}"

    @override
    def __repr__(self) -> str:
        return f"{self}*" if self.weak_type else str(self)


@final
@frozen
class RefType:
    """The abstract value of a mutable reference: the type of its contents, which writes do not change.

    Args:
        contents: The shape and dtype of the contents.

    >>> import tracefx as fx
    >>> fx.typeof(fx.new_ref(fx.numpy.zeros(3)))
    Ref{f32[3]}
    """

    contents: ShapedArray

    @property
    def shape(self) -> Shape:
        """The shape of the contents."""
        return self.contents.shape

    @property
    def dtype(self) -> DType:
        """The dtype of the contents."""
        return self.contents.dtype

    @override
    def __repr__(self) -> str:
        return f"Ref{{{self.contents}}}"


def _unpickle(
    shape: Shape, dtype: DType, weak_type: bool, vma: MeshAxes, sharding: NamedSharding | None
) -> ShapedArray:
    return ShapedArray(shape, dtypes.interned(dtype), weak_type, vma, sharding)


_set_shape, _set_dtype, _set_weak_type, _set_vma, _set_explicit_sharding, _set_hash = [
    slot_setter(ShapedArray, name) for name in ("shape", "dtype", "weak_type", "vma", "explicit_sharding", "_hash")
]


@memoize(4096)
def _with_vma(aval: ShapedArray, vma: MeshAxes) -> ShapedArray:
    return ShapedArray(aval.shape, aval.dtype, aval.weak_type, vma, aval.explicit_sharding)


@memoize(4096)
def _with_sharding(aval: ShapedArray, sharding: NamedSharding) -> ShapedArray:
    explicit = type_sharding(sharding.mesh, sharding.spec.partitions, aval.ndim)
    return intern_aval(aval.with_explicit_sharding(explicit))


@memoize(4096)
def intern_aval(aval: ShapedArray) -> ShapedArray:
    """Returns the canonical instance of an aval, so that equal avals can be compared by identity."""
    return aval


def join_vma(avals: Iterable[ShapedArray]) -> MeshAxes:
    """Returns the mesh axes over which any of several values varies."""
    return NOT_VARYING.union(*[aval.vma for aval in avals])


def without_vma(avals: Iterable[ShapedArray]) -> tuple[ShapedArray, ...]:
    """Returns types without their varying mesh axes."""
    return tuple([aval.with_vma(NOT_VARYING) for aval in avals])


def without_mesh_axes(avals: Iterable[ShapedArray]) -> tuple[ShapedArray, ...]:
    """Returns types without their varying mesh axes and without their shardings."""
    return tuple([aval.with_vma(NOT_VARYING).with_explicit_sharding(None) for aval in avals])


def accepts(expected: Sequence[ShapedArray], given: Sequence[ShapedArray]) -> bool:
    """Whether values of the types `given` may be used where the types `expected` are required.

    A value that varies over fewer mesh axes than required may: a replicated value is a special case of a varying one.
    """
    return expected == given or (
        len(expected) == len(given)
        and all(a.vma >= b.vma and a == b.with_vma(a.vma) for a, b in zip(expected, given, strict=True))
    )


def show_avals(avals: Iterable[ShapedArray]) -> str:
    """Returns avals as a list for messages, e.g. `f32[3], i32[]`."""
    return ", ".join(map(str, avals)) or "nothing"
