"""Sparse arrays of many layouts: with batch and dense axes, broadcast batch axes, duplicates and padding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import jax.experimental.sparse
import numpy as np
from attrs import frozen

from tracefx.core import NDArray
from tracefx.sparse import BCOO

jax_sparse: Any = jax.experimental.sparse
"""JAX's module; its functions also take arrays of NumPy, which their annotations exclude."""


@frozen
class Layout:
    """The shape of a sparse array, its numbers of batch and dense axes, and which batch axes have size 1."""

    shape: tuple[int, ...]
    n_batch: int = 0
    n_dense: int = 0
    nse: int = 4
    data_ones: tuple[int, ...] = ()
    index_ones: tuple[int, ...] = ()
    dtype: str = "float32"

    @property
    def n_sparse(self) -> int:
        return len(self.shape) - self.n_batch - self.n_dense

    def arrays(self, seed: int = 0) -> tuple[NDArray, NDArray]:
        """Returns random data and indices, some of which are equal or out of bounds."""
        rng = np.random.default_rng(seed)
        n, m = self.n_batch, self.n_batch + self.n_sparse
        batches = [
            [1 if i in ones else size for i, size in enumerate(self.shape[:n])]
            for ones in (self.data_ones, self.index_ones)
        ]
        data = rng.integers(-4, 5, (*batches[0], self.nse, *self.shape[m:])).astype(self.dtype)
        if np.dtype(self.dtype).kind == "c":
            data = (data * (1 + 0.5j)).astype(self.dtype)
        columns = [rng.integers(0, size + 1, (*batches[1], self.nse)) for size in self.shape[n:m]]
        indices = np.stack(columns, -1) if columns else np.zeros((*batches[1], self.nse, 0))
        return data, indices.astype(np.int32)

    def make(self, seed: int = 0) -> BCOO:
        return BCOO(self.arrays(seed), shape=self.shape)

    def make_jax(self, seed: int = 0) -> Any:
        return jax_sparse.BCOO(self.arrays(seed), shape=self.shape)


LAYOUTS: Final = (
    Layout((5,)),
    Layout((3, 4)),
    Layout((3, 4), nse=0),
    Layout((3, 0), nse=2),
    Layout((2, 3, 4), n_batch=1),
    Layout((2, 3, 4), n_batch=1, data_ones=(0,)),
    Layout((2, 3, 4), n_batch=1, index_ones=(0,)),
    Layout((3, 4, 2), n_dense=1),
    Layout((2, 3, 4, 2), n_batch=1, n_dense=1, index_ones=(0,)),
    Layout((2, 3, 4, 5), n_batch=2, data_ones=(0,), index_ones=(1,)),
    Layout((2, 3), n_batch=1, n_dense=1),
    Layout((2, 3), n_batch=2),
    Layout((2, 3), n_dense=2),
    Layout((), nse=3),
    Layout((1, 4, 1)),
    Layout((3, 4), nse=15),
    Layout((3, 4), dtype="int32"),
    Layout((3, 4), dtype="complex64"),
)


def random_layouts(count: int, max_rank: int = 4) -> Iterator[tuple[int, Layout]]:
    """Yields seeds and random layouts."""
    rng = np.random.default_rng(7)
    for seed in range(count):
        rank = int(rng.integers(1, max_rank + 1))
        shape = tuple([int(n) for n in rng.integers(1, 5, rank)])
        n_batch = int(rng.integers(0, rank + 1))
        n_dense = int(rng.integers(0, rank - n_batch + 1))
        data_ones = tuple([i for i in range(n_batch) if rng.random() < 0.3])
        index_ones = tuple([i for i in range(n_batch) if i not in data_ones and rng.random() < 0.3])
        yield seed, Layout(shape, n_batch, n_dense, int(rng.integers(0, 7)), data_ones, index_ones)
