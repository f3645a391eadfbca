"""`SparseArray`, the base class of sparse arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Final, Self, SupportsIndex

import numpy as np
from typing_extensions import override

from tracefx import numpy as fnp
from tracefx.control.checkpoint import CheckpointName
from tracefx.core import Array, ArrayLike, DType, Shape, ShapedArray, dtypes
from tracefx.core.handler import Tracer
from tracefx.errors import ConcretizationError
from tracefx.transforms.vmap import HasBatchAxes

TODENSE: Final = CheckpointName("todense")
"""The identity that `tracefx.sparse.todense` binds: under `sparsify`, its result is dense."""


class SparseEfficiencyWarning(UserWarning):
    """A layout of a sparse array stores many zeros."""


class SparseArray(HasBatchAxes):
    """The base class of `BCOO` and `BCSR`: arrays of which only some entries, the specified elements, are stored.

    The axes of a sparse array are batch axes, then sparse axes, then dense axes. Each element along the sparse axes has
    an index vector in `indices`, and stores an array of the shape of the dense axes in `data`. Each batch element has
    its own elements, always `nse` of them. Elements whose index vector is out of bounds are padding, without effect.

    A sparse array is a pytree of its arrays. It may have an additional leading axis in all of them, as `vmap` and
    `scan` have: this is one more batch axis.
    """

    data: Array
    """The specified elements, `f32[*batch, nse, *dense]`. Batch axes may have size 1 if `indices` has their size."""
    indices: Array
    indices_sorted: bool
    """Whether the index vectors of each batch element are known to be sorted."""
    unique_indices: bool
    """Whether the index vectors within bounds of each batch element are known to be different."""

    element_shape: Shape
    """The sizes of the sparse and dense axes."""

    index_axes: ClassVar[int]
    """The number of axes of `indices` that are not batch axes."""

    __hash__ = None  # type: ignore[assignment]  # `==` is elementwise
    __array_priority__ = 100.0
    """Operators of NumPy arrays with a sparse array are those of the sparse array."""

    @property
    def nse(self) -> int:
        """The number of specified elements of each batch element."""
        raise NotImplementedError

    @property
    def n_sparse(self) -> int:
        """The number of sparse axes."""
        raise NotImplementedError

    def todense(self) -> Array:
        """Returns the dense array."""
        raise NotImplementedError

    @property
    def n_batch(self) -> int:
        """The number of batch axes."""
        n_batch = self.indices.ndim - self.index_axes
        if n_batch < 0:
            raise ValueError(f"{type(self).__name__}: an array without batch axes has been split along its first axis")
        return n_batch

    @classmethod
    @override
    def check_mapped_axes(cls, where: str, ranks: Sequence[int], axes: Sequence[int | None]) -> None:
        n_batch = ranks[1] - cls.index_axes
        if any(axis is not None and axis % rank >= n_batch for axis, rank in zip(axes, ranks, strict=True)):
            raise ValueError(
                f"{where}: only batch axes of sparse arrays can be mapped, got axis {axes[0]} of a {cls.__name__} with "
                f"{max(n_batch, 0)} batch axes; convert it by update_layout(n_batch=...)"
            )

    @property
    def n_dense(self) -> int:
        """The number of dense axes."""
        return len(self.element_shape) - self.n_sparse

    @property
    def batch_shape(self) -> Shape:
        """The sizes of the batch axes."""
        n = self.n_batch
        return np.broadcast_shapes(self.data.shape[:n], self.indices.shape[:n])

    @property
    def sparse_shape(self) -> Shape:
        """The sizes of the sparse axes."""
        return self.element_shape[: self.n_sparse]

    @property
    def dense_shape(self) -> Shape:
        """The sizes of the dense axes."""
        return self.element_shape[self.n_sparse :]

    @property
    def shape(self) -> Shape:
        """The sizes of all axes."""
        return (*self.batch_shape, *self.element_shape)

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return self.data.dtype

    @property
    def aval(self) -> ShapedArray:
        """The shape and dtype of the array."""
        return ShapedArray(self.shape, self.dtype, self.data.weak_type)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of entries of the dense array."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def block_until_ready(self) -> Self:
        """Waits until the arrays are computed, and returns the sparse array."""
        self.data.block_until_ready()
        self.indices.block_until_ready()
        return self

    @override
    def __repr__(self) -> str:
        layout = f", nse={self.nse}"
        layout += f", n_batch={self.n_batch}" if self.n_batch else ""
        layout += f", n_dense={self.n_dense}" if self.n_dense else ""
        text = f"{type(self).__name__}({self.dtype}{list(self.shape)}{layout})"
        return f"{type(self.data).__name__}[{text}]" if isinstance(self.data, Tracer) else text


def set_batched_data(array: SparseArray, shape: Sequence[SupportsIndex]) -> None:
    """Checks the shape of a new sparse array against its arrays, and broadcasts batch axes that all of them lack.

    Raises:
        TypeError: If the indices are not integers.
        ValueError: If the shapes of the arrays do not fit.
    """
    sizes = tuple([int(n) for n in shape])
    name, data, indices = type(array).__name__, array.data, array.indices
    if not dtypes.is_integer(indices.dtype):
        raise TypeError(f"{name}: indices must be integers, got {indices.aval}")
    n_batch = indices.ndim - array.index_axes
    n_sparse = array.n_sparse if n_batch >= 0 else 0
    if n_batch < 0 or n_batch + n_sparse > len(sizes):
        raise ValueError(f"{name}: indices {indices.aval} have too few or too many axes for shape {sizes}")
    array.element_shape = sizes[n_batch:]
    batch = sizes[:n_batch]
    for label, x in (("data", data), ("indices", indices)):
        if len(x.shape) < n_batch or any(n not in (1, size) for n, size in zip(x.shape[:n_batch], batch, strict=True)):
            raise ValueError(f"{name}: the batch axes of {label} {x.aval} do not fit shape {sizes}")
    if data.shape[n_batch:] != (array.nse, *sizes[n_batch + n_sparse :]):
        raise ValueError(f"{name}: data {data.aval} do not fit indices {indices.aval} and shape {sizes}")
    if array.batch_shape != batch:
        array.data = fnp.broadcast_to(data, (*batch, *data.shape[n_batch:]))


def static_nse(name: str, nse: ArrayLike, function: str) -> int:
    """Returns the number of specified elements as an integer; raises ConcretizationError with advice if traced."""
    try:
        return int(nse)  # type: ignore[arg-type]  # the error of other types is Python's
    except ConcretizationError as error:
        raise ConcretizationError(
            f"{function}: the number of specified elements depends on traced values; pass {name}=, an integer"
        ) from error
