"""Products of sparse arrays: contractions and elementwise products, with dense arrays and with each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, overload

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, DType, DTypeLike, Shape, ShapedArray, dtypes
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.sparse.bcoo import BCOO
from tracefx.sparse.entries import in_bounds, index_columns, mask_data, mask_vectors, read_entries, sum_entries
from tracefx.transforms.eager_calls import eager_cached

Axes: TypeAlias = Sequence[int] | int
DimensionNumbers: TypeAlias = tuple[tuple[Axes, Axes], tuple[Axes, Axes]]
_Numbers: TypeAlias = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]


@overload
def bcoo_dot_general(
    lhs: BCOO,
    rhs: BCOO,
    *,
    dimension_numbers: DimensionNumbers,
    precision: object = None,
    preferred_element_type: DTypeLike | None = None,
) -> BCOO: ...
@overload
def bcoo_dot_general(
    lhs: BCOO | ArrayLike,
    rhs: BCOO | ArrayLike,
    *,
    dimension_numbers: DimensionNumbers,
    precision: object = None,
    preferred_element_type: DTypeLike | None = None,
) -> BCOO | Array: ...
def bcoo_dot_general(
    lhs: BCOO | ArrayLike,
    rhs: BCOO | ArrayLike,
    *,
    dimension_numbers: DimensionNumbers,
    precision: object = None,
    preferred_element_type: DTypeLike | None = None,
) -> BCOO | Array:
    """Returns a contraction of two arrays, of which at least one is sparse: `lax.dot_general` for sparse arrays.

    Args:
        lhs: A sparse or dense array.
        rhs: A sparse or dense array.
        dimension_numbers: `((lhs contracted axes, rhs contracted axes), (lhs batch axes, rhs batch axes))`. Batch axes
            must be batch axes of the sparse array. Dense axes cannot be contracted.
        precision: Ignored. None by default.
        preferred_element_type: The dtype of the sums. None, the default, means the dtype of the products.

    Returns:
        A dense array; for two sparse arrays a sparse one, with sorted and unique indices.

    Raises:
        NotImplementedError: If the axes do not have these kinds.
        ValueError: If `rhs` has batch axes that are not batch axes of the product, and `lhs` sparse axes that are not
            contracted.

    >>> matrix = BCOO.fromdense(fnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> bcoo_dot_general(matrix, fnp.array([1.0, 10.0]), dimension_numbers=(((1,), (0,)), ((), ()))).tolist()
    [20.0, 3.0]
    """
    numbers = _to_numbers(dimension_numbers)
    if isinstance(lhs, BCOO) and isinstance(rhs, BCOO):
        return _sparse_product(lhs, rhs, numbers, preferred_element_type)
    if isinstance(lhs, BCOO):
        assert not isinstance(rhs, BCOO)
        return _dense_product(lhs, fnp.asarray(rhs), numbers, preferred_element_type)
    if not isinstance(rhs, BCOO):
        return lax.dot_general(lhs, rhs, numbers, preferred_element_type=preferred_element_type)
    (lc, rc), (lb, rb) = numbers
    out = _dense_product(rhs, fnp.asarray(lhs), ((rc, lc), (rb, lb)), preferred_element_type)
    batch, middle = len(lb), rhs.ndim - len(rc)  # the axes of `rhs` come before those of `lhs`
    return fnp.transpose(out, [*range(batch), *range(middle, out.ndim), *range(batch, middle)])


def _to_numbers(numbers: DimensionNumbers) -> _Numbers:
    (lc, rc), (lb, rb) = [
        tuple([(int(axes),) if isinstance(axes, int) else tuple([int(i) for i in axes]) for axes in pair])
        for pair in numbers
    ]
    return ((lc, rc), (lb, rb))


def _product_aval(lhs: ShapedArray, rhs: ShapedArray, numbers: _Numbers, preferred: DTypeLike | None) -> ShapedArray:
    """Returns the type of the product of dense arrays, and checks the axes."""
    dtype = None if preferred is None else dtypes.as_dtype(preferred, "preferred_element_type")
    return DotGeneral(numbers, None, dtype).out_aval(lhs, rhs)


def _remaining(axes: Iterable[int], *used: Sequence[int]) -> list[int]:
    return [i for i in axes if all(i not in each for each in used)]


def _dense_product(lhs: BCOO, rhs: Array, numbers: _Numbers, preferred: DTypeLike | None) -> Array:
    """Contracts a sparse with a dense array: rows of `rhs` are read, multiplied, and added to rows of the result."""
    out = _product_aval(lhs.aval, rhs.aval, numbers, preferred)
    (lc, _), (lb, _) = numbers
    n, m = lhs.n_batch, lhs.n_batch + lhs.n_sparse
    if any(i >= n for i in lb):
        raise NotImplementedError(f"bcoo_dot_general: the batch axes {lb} must be batch axes of {lhs!r}")
    if any(i >= m for i in lc):
        raise NotImplementedError(f"bcoo_dot_general: the dense axes of {lhs!r} cannot be contracted, got axes {lc}")
    data, indices = lhs.full_batch()
    return _multiply_rows(data, indices, rhs, out.shape, numbers, out.dtype)


# XLA takes a tenth of the time of NumPy for many elements.
@eager_cached(fused="at the first call")
def _multiply_rows(data: Array, indices: Array, rhs: Array, shape: Shape, numbers: _Numbers, dtype: DType) -> Array:
    """Reads rows of `rhs` at index vectors, and adds their products with the data to the rows of the result."""
    (lc, rc), (lb, rb) = numbers
    n, m = indices.ndim - 2, indices.ndim - 2 + indices.shape[-1]
    to_rhs = dict(zip((*lb, *lc), (*rb, *rc), strict=True))
    paired = {to_rhs[i]: i for i in range(n) if i in to_rhs}
    free_sparse = _remaining(range(n, m), lc)
    reads = {to_rhs[i]: i - n for i in lc if i >= n}
    lead = range(n + 1)
    if reads or paired:
        rows = read_entries(rhs, indices, reads, paired)  # [*batch, nse, *free axes of rhs]
        both = [*lead]
    else:
        rows, both = rhs, []
    # Without free sparse axes, the elements are summed at once.
    summed = [i for i in both if i == n or i in lc] if not free_sparse else []
    batch = [i for i in both if i not in summed]
    product = lax.dot_general(data, rows, ((summed, summed), (batch, batch)), preferred_element_type=dtype)
    if not both:  # [*batch, nse, *dense axes, *axes of rhs]
        batch = [*lead]
    kept = [i for i in batch if i < n and i not in lc]
    order = [*lb, *[i for i in kept if i not in lb]]
    if not free_sparse:
        product = product.sum([batch.index(i) for i in batch if i not in kept], dtype=dtype)
        return fnp.transpose(product, [*[kept.index(i) for i in order], *range(len(kept), product.ndim)])
    return sum_entries(
        product,
        indices,
        shape,
        {len(order) + i: axis - n for i, axis in enumerate(free_sparse)},
        dict(enumerate(order)),
    )


def bcoo_dot_general_sampled(
    A: ArrayLike, B: ArrayLike, indices: ArrayLike, *, dimension_numbers: DimensionNumbers
) -> Array:
    """Returns entries of a contraction of two dense arrays, without computing the others.

    Args:
        A: A dense array.
        B: A dense array.
        indices: The index vectors of the entries, `i32[*batch, nse, n_sparse]`, whose batch axes are those of the
            product.
        dimension_numbers: As for `lax.dot_general`.

    Returns:
        The entries, `f32[*batch, nse, *dense]`: the data of a `BCOO` with these index vectors.

    >>> A, B = fnp.array([[1.0], [2.0]]), fnp.array([[3.0, 4.0]])
    >>> bcoo_dot_general_sampled(A, B, fnp.array([[1, 0]]), dimension_numbers=(((1,), (0,)), ((), ()))).tolist()
    [6.0]
    """
    x, y, at = fnp.asarray(A), fnp.asarray(B), fnp.asarray(indices)
    numbers = _to_numbers(dimension_numbers)
    (lc, rc), (lb, rb) = numbers
    out = _product_aval(x.aval, y.aval, numbers, None)
    n, m = at.ndim - 2, at.ndim - 2 + at.shape[-1]
    at = fnp.broadcast_to(at, (*out.shape[:n], *at.shape[n:]))
    # The axes of the product are the batch axes, the free axes of A and those of B.
    x_axes, y_axes = [*lb, *_remaining(range(x.ndim), lb, lc)], [*rb, *_remaining(range(y.ndim), rb, rc)]
    x_at = dict(enumerate(x_axes))
    y_at = {i if i < len(rb) else i + len(x_axes) - len(rb): axis for i, axis in enumerate(y_axes)}
    rows, other_rows = (
        read_entries(
            z,
            at,
            {axis: i - n for i, axis in axes.items() if n <= i < m},
            {axis: i for i, axis in axes.items() if i < n},
        )
        for z, axes in ((x, x_at), (y, y_at))
    )
    # The axes that are left: contracted ones and dense axes of the product, in their order.
    x_left, y_left = (
        _remaining(range(z.ndim), [axis for i, axis in axes.items() if i < m]) for z, axes in ((x, x_at), (y, y_at))
    )
    lead = n + 1
    both = [lead + x_left.index(i) for i in lb if i in x_left], [lead + y_left.index(i) for i in rb if i in y_left]
    summed = [lead + x_left.index(i) for i in lc], [lead + y_left.index(i) for i in rc]
    every = [*range(lead)]
    batch = [*every, *both[0]], [*every, *both[1]]
    return lax.dot_general(rows, other_rows, (summed, batch), precision="highest")


# ------------------------------------------------------------------ products of two sparse arrays


def _pair_elements(
    lhs: BCOO,
    rhs: BCOO,
    batch: tuple[Sequence[int], Sequence[int]],
    equal: Mapping[int, int],
    columns: Sequence[tuple[bool, int]],
    shape: Shape,
    dtype: DTypeLike | None = None,
) -> BCOO:
    """Returns the sparse array of the products of all pairs of elements with some equal indices.

    Args:
        lhs: A sparse array.
        rhs: A sparse array with as many dense axes.
        batch: The batch axes of both that are paired. The others are batch axes of the result, those of `lhs` first.
        equal: The sparse axes of `lhs` whose indices must equal those of a sparse axis of `rhs`.
        columns: The sparse axes of the result: whether each is one of `lhs`, and its number.
        shape: The shape of the result.
        dtype: The dtype of the result. None, the default, means that of the products.
    """
    lb, rb = batch
    l_own, r_own = _remaining(range(lhs.n_batch), lb), _remaining(range(rhs.n_batch), rb)
    n, n_dense = len(lb) + len(l_own) + len(r_own), lhs.n_dense
    before = len(lb) + len(l_own)

    def align(x: Array, of_lhs: bool) -> Array:
        """Gives an array the axes `[*paired, *own of lhs, *own of rhs, nse of lhs, nse of rhs, ...]`."""
        first = [*lb, *l_own] if of_lhs else [*rb, *r_own]
        positions = [*range(before), n] if of_lhs else [*range(len(lb)), *range(before, n), n + 1]
        x = fnp.transpose(x, [*first, *range(len(first), x.ndim)])
        return lax.expand_dims(x, [i for i in range(n + 2) if i not in positions])

    data = align(lhs.data, True) * align(rhs.data, False)
    if dtype is not None:
        data = data.astype(dtype)
    l_columns = index_columns(align(lhs.indices, True))
    r_columns = index_columns(align(rhs.indices, False))
    valid = align(in_bounds(lhs.indices, lhs.sparse_shape), True)
    valid &= align(in_bounds(rhs.indices, rhs.sparse_shape), False)
    for i, j in equal.items():
        valid &= l_columns[i] == r_columns[j]
    data = mask_data(valid, data, n_dense)
    nse = lhs.nse * rhs.nse
    lead = valid.shape
    chosen = [fnp.broadcast_to((l_columns if of_lhs else r_columns)[i], lead) for of_lhs, i in columns]
    index_dtype = fnp.promote_types(lhs.indices.dtype, rhs.indices.dtype)
    indices = fnp.stack(chosen, -1) if chosen else fnp.zeros((*lead, 0))
    indices = mask_vectors(valid, indices.astype(index_dtype), shape[n : n + len(columns)])
    return BCOO(
        (
            data.reshape(*data.shape[:n], nse, *data.shape[n + 2 :]),
            indices.reshape(*lead[:n], nse, len(columns)),
        ),
        shape=shape,
    )


def _sparse_product(lhs: BCOO, rhs: BCOO, numbers: _Numbers, preferred: DTypeLike | None) -> BCOO:
    out = _product_aval(lhs.aval, rhs.aval, numbers, preferred)
    (lc, rc), (lb, rb) = numbers
    if lhs.n_dense or rhs.n_dense:
        raise NotImplementedError(f"bcoo_dot_general: two sparse arrays with dense axes, {lhs!r} and {rhs!r}")
    for mat, contracted, batch in ((lhs, lc, lb), (rhs, rc, rb)):
        if any(i >= mat.n_batch for i in batch):
            raise NotImplementedError(f"bcoo_dot_general: the batch axes {batch} must be batch axes of {mat!r}")
        if any(i < mat.n_batch for i in contracted):
            raise NotImplementedError(f"bcoo_dot_general: the axes {contracted} of {mat!r} must be sparse axes")
    l_free = _remaining(range(lhs.n_sparse), [i - lhs.n_batch for i in lc])
    r_free = _remaining(range(rhs.n_sparse), [i - rhs.n_batch for i in rc])
    if rhs.n_batch > len(rb) and l_free:
        raise ValueError(
            f"bcoo_dot_general: rhs, {rhs!r}, has batch axes of the result, which come after sparse axes of {lhs!r}"
        )
    pairs = _pair_elements(
        lhs,
        rhs,
        (lb, rb),
        {i - lhs.n_batch: j - rhs.n_batch for i, j in zip(lc, rc, strict=True)},
        [*[(True, i) for i in l_free], *[(False, i) for i in r_free]],
        out.shape,
        out.dtype,
    )
    nse = (lhs.nse if l_free else 1) * (rhs.nse if r_free else 1)
    return pairs.sum_duplicates(min(nse, math.prod(pairs.sparse_shape)), remove_zeros=False)


def bcoo_multiply_sparse(lhs: BCOO, rhs: BCOO) -> BCOO:
    """Returns the elementwise product of two sparse arrays.

    Args:
        lhs: A sparse array.
        rhs: A sparse array with as many axes and dense axes. Axes of size 1 are broadcast.

    Returns:
        A sparse array with `lhs.nse * rhs.nse` specified elements, most of which are padding.

    Raises:
        TypeError: If the arrays have different numbers of axes.
        NotImplementedError: If they have different numbers of dense axes.

    >>> x, y = BCOO.fromdense(fnp.array([1.0, 2.0, 0.0])), BCOO.fromdense(fnp.array([0.0, 5.0, 6.0]))
    >>> bcoo_multiply_sparse(x, y).todense().tolist()
    [0.0, 10.0, 0.0]
    """
    if lhs.ndim != rhs.ndim:
        raise TypeError(f"bcoo_multiply_sparse: different numbers of axes: {lhs!r} and {rhs!r}")
    if lhs.n_dense != rhs.n_dense:
        raise NotImplementedError(f"bcoo_multiply_sparse: different numbers of dense axes: {lhs!r} and {rhs!r}")
    n = min(lhs.n_batch, rhs.n_batch)
    x, y = (mat.update_layout(n_batch=n) for mat in (lhs, rhs))
    sizes = [*zip(x.sparse_shape, y.sparse_shape, strict=True)]
    return _pair_elements(
        x,
        y,
        (range(n), range(n)),
        {i: i for i, (p, q) in enumerate(sizes) if p == q or (p != 1 and q != 1)},
        [(p != 1 or q == 1, i) for i, (p, q) in enumerate(sizes)],
        lax.broadcast_shapes(lhs.shape, rhs.shape),
    )


def bcoo_multiply_dense(sp_mat: BCOO, v: ArrayLike) -> Array:
    """Returns the data of the elementwise product of a sparse and a dense array.

    Args:
        sp_mat: The sparse array.
        v: The dense array, which broadcasts to the shape of `sp_mat`.

    Returns:
        The data of the product, whose index vectors are those of `sp_mat`.

    Raises:
        NotImplementedError: If the product is larger than `sp_mat`.

    >>> bcoo_multiply_dense(BCOO.fromdense(fnp.array([0.0, 2.0])), fnp.array([10.0, 20.0])).tolist()
    [40.0]
    """
    return sp_mat.data * read_factor("bcoo_multiply_dense", sp_mat, fnp.asarray(v))


def read_factor(name: str, mat: BCOO, x: Array) -> Array:
    """Returns the entries of a dense array that broadcasts to the shape of `mat`, at its index vectors.

    Args:
        name: The name of the operation, for messages.
        mat: The sparse array.
        x: The dense array.

    Returns:
        An array that broadcasts to the shape of the data, with 0 for padding.

    Raises:
        NotImplementedError: If `x` does not broadcast to the shape of `mat`.
    """
    if not x.ndim:
        return x
    shape = mat.shape
    if x.ndim > len(shape) or lax.broadcast_shapes(x.shape, shape) != shape:
        raise NotImplementedError(
            f"{name}: the result for {mat!r} and {x.aval} is larger than the sparse array; convert it with todense()"
        )
    n, m = mat.n_batch, mat.n_batch + mat.n_sparse
    x = x.reshape(*[1] * (len(shape) - x.ndim), *x.shape)
    kept = [i for i, (size, own) in enumerate(zip(x.shape, shape, strict=True)) if i >= m or size == own]
    x = lax.squeeze(x, [i for i in range(x.ndim) if i not in kept])
    columns = {kept.index(i): i - n for i in kept if n <= i < m}
    batch = {kept.index(i): i for i in kept if i < n}
    if not columns and not batch:
        return x
    return read_entries(x, mat.full_batch()[1] if batch else mat.indices, columns, batch)
