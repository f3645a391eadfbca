"""`jacobian_sparsity`, `hessian_sparsity`, `sparse_jacobian` and `sparse_hessian`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, final

import numpy as np
from attrs import frozen
from typing_extensions import ParamSpec, override

import tracefx.numpy as fnp
from tracefx.bounded_cache import BoundedCache
from tracefx.core import Array, ShapedArray, Value
from tracefx.core.handler import as_array
from tracefx.handlers.sparsity.colouring import Colouring, IndexVector, colour_matrix, star_colour_matrix
from tracefx.handlers.sparsity.detection import (
    ArgumentTypes,
    argument_types,
    detect_sparsity,
    function_of_first_argument,
)
from tracefx.handlers.sparsity.matrices import SparseMatrix, SparsityPattern
from tracefx.ops.structural import convert, instantiate, reshape
from tracefx.transforms.arguments import flatten_values, fun_label, require_callable
from tracefx.transforms.function_types import WrappedFunction
from tracefx.transforms.linearization import Linearization, linearize_values
from tracefx.transforms.transform import SameArguments, TransformOf
from tracefx.transforms.transformed_function import wrap_transformed
from tracefx.transforms.vmap import vmap

P = ParamSpec("P")
R = TypeVar("R")
MAX_CACHED_PLANS = 64
"""The number of argument types for which a function caches its sparsity pattern and colouring."""


def jacobian_sparsity(fun: Callable[P, R]) -> WrappedFunction[P, SparsityPattern]:
    """Returns a function that computes which outputs of `fun` depend on which elements of its first argument.

    Entry `(i, j)` of the pattern stands for element `i` of the outputs and element `j` of the argument, both
    flattened. Entries outside of the pattern are zero for all argument values. Nothing is run, so arguments may be
    `ShapeDtypeStruct`s. Closed-over values count with their contents: zeros of a constant matrix and constant indices
    make the pattern sparser.

    The pattern is conservative: indices that depend on an argument, sorting and linear solves may touch any element;
    short loops are unrolled, long ones iterated to a fixed point; the branches of a `cond` are combined.

    Args:
        fun: a function whose first argument and outputs are pytrees of floating-point arrays.

    Returns:
        A function with the parameters of `fun` that returns a `SparsityPattern`.

    Raises:
        TypeError: if `fun` is not callable, or its first argument or outputs are not floats.
        ValueError: if the pattern has more than 30 million entries.

    >>> import tracefx.numpy as fnp
    >>> pattern = jacobian_sparsity(lambda x: x[1:] * x[:-1])(fnp.ones(4))
    >>> pattern.todense().astype(int).tolist()
    [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    """
    return _SparsityTransform(False)(fun)


def hessian_sparsity(fun: Callable[P, R]) -> WrappedFunction[P, SparsityPattern]:
    """Returns a function that computes which second derivatives of the scalar function `fun` may be nonzero.

    The result is `jacobian_sparsity` of the gradient, made symmetric.

    Args:
        fun: a function with a scalar result, whose first argument is a pytree of floating-point arrays.

    Returns:
        A function with the parameters of `fun` that returns a symmetric `SparsityPattern`.

    >>> import tracefx.numpy as fnp
    >>> hessian_sparsity(lambda x: x[0] * x[1] + x[2])(fnp.ones(3)).todense().astype(int).tolist()
    [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    """
    return _SparsityTransform(True)(fun)


def sparse_jacobian(fun: Callable[P, R], pattern: SparsityPattern | None = None) -> WrappedFunction[P, SparseMatrix]:
    """Returns a function that computes the Jacobian of `fun` by its first argument as a `SparseMatrix`.

    Columns without a common row are computed together, as one JVP, or rows without a common column as one VJP,
    whichever needs fewer: a banded matrix needs as many as it has bands. Pattern and colouring are computed once per
    argument types. Rows and columns are numbered as by `jacobian_sparsity`.

    Args:
        fun: a function whose first argument and outputs are pytrees of floating-point arrays.
        pattern: the sparsity pattern. With the default, None, it is detected.

    Returns:
        A function with the parameters of `fun` that returns the matrix.

    Raises:
        TypeError: if `fun` is not callable, its first argument or outputs are not floats, or `pattern` is no
            `SparsityPattern`.
        ValueError: if `pattern` has the wrong shape.

    >>> import tracefx.numpy as fnp
    >>> jacobian = sparse_jacobian(lambda x: x[1:] * x[:-1])(fnp.arange(4.0))
    >>> jacobian.todense().tolist()
    [[1.0, 0.0, 0.0, 0.0], [0.0, 2.0, 1.0, 0.0], [0.0, 0.0, 3.0, 2.0]]
    """
    return _SparseDerivative(False, pattern)(fun)


def sparse_hessian(fun: Callable[P, R], pattern: SparsityPattern | None = None) -> WrappedFunction[P, SparseMatrix]:
    """Returns a function that computes the Hessian of the scalar function `fun` by its first argument.

    Works like `sparse_jacobian`, with forward over reverse mode. Because of symmetry one of two mirrored entries is
    enough, so some columns with common rows are computed together as well.

    Args:
        fun: a function with a scalar result, whose first argument is a pytree of floating-point arrays.
        pattern: the sparsity pattern, which must be symmetric. With the default, None, it is detected.

    Returns:
        A function with the parameters of `fun` that returns a symmetric `SparseMatrix`.

    >>> import tracefx.numpy as fnp
    >>> hessian = sparse_hessian(lambda x: (x[1:] * x[:-1] ** 2).sum())(fnp.arange(3.0))
    >>> hessian.todense().tolist()
    [[2.0, 0.0, 0.0], [0.0, 4.0, 2.0], [0.0, 2.0, 0.0]]
    """
    return _SparseDerivative(True, pattern)(fun)


@final
@frozen(eq=False, repr=False)
class _SparsityTransform(TransformOf[SameArguments]):
    """The transformation behind `jacobian_sparsity` and `hessian_sparsity`."""

    title: ClassVar[str] = "sparsity"
    hessian: bool

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        title = "hessian_sparsity" if self.hessian else "jacobian_sparsity"
        require_callable(title, fun)

        @wrap_transformed(self, fun)
        def sparsity(*args: Any, **kwargs: Any) -> SparsityPattern:
            return detect_sparsity(title, fun, argument_types(title, fun, args, kwargs), self.hessian)

        return sparsity


@final
@frozen
class SparsePlan:
    """The pattern of a matrix and the colouring by which it is computed."""

    pattern: SparsityPattern
    colouring: Colouring


@final
@frozen(eq=False, repr=False)
class _SparseDerivative(TransformOf[SameArguments]):
    """The transformation behind `sparse_jacobian` and `sparse_hessian`."""

    title: ClassVar[str] = "sparse"
    hessian: bool
    pattern: SparsityPattern | None

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        title = "sparse_hessian" if self.hessian else "sparse_jacobian"
        require_callable(title, fun)
        if not isinstance(self.pattern, SparsityPattern | None):
            raise TypeError(f"{title}: pattern must be a SparsityPattern, got {self.pattern!r}")
        plans = BoundedCache[ArgumentTypes, SparsePlan](MAX_CACHED_PLANS)

        @wrap_transformed(self, fun)
        def matrix(*args: Any, **kwargs: Any) -> SparseMatrix:
            types = argument_types(title, fun, args, kwargs)
            values, _ = flatten_values(args[0], f"{title} of {fun_label(fun)}: the first argument")
            others, _ = flatten_values((tuple(args[1:]), dict(kwargs)), f"{title} of {fun_label(fun)}: other arguments")
            plan = plans.get(types)
            if plan is None:
                plan = plans.insert(types, self._plan(title, fun, types))
            function = function_of_first_argument(title, fun, types, others, self.hessian)
            linear, _, _ = linearize_values(function, values)
            m, n = sum([o.aval.size for o in linear.outs]), types.size
            if plan.pattern.shape != (m, n):
                raise ValueError(f"{title} of {fun_label(fun)}: the matrix is {m} x {n}, the pattern {plan.pattern}")
            return SparseMatrix(_compute_entries(plan, linear), plan.pattern)

        return matrix

    def _plan(self, title: str, fun: Callable[..., Any], types: ArgumentTypes) -> SparsePlan:
        pattern = self.pattern
        if pattern is None:
            pattern = detect_sparsity(title, fun, types, self.hessian)
        if self.hessian:
            if pattern != pattern.T:
                raise ValueError(f"{title} of {fun_label(fun)}: {pattern} is not symmetric")
            return SparsePlan(pattern, star_colour_matrix(pattern.rows, pattern.cols, pattern.shape[0]))
        return SparsePlan(pattern, colour_matrix(pattern.rows, pattern.cols, pattern.shape))


def _compute_entries(plan: SparsePlan, linear: Linearization) -> Array:
    """Computes one JVP or VJP per colour, batched, and extracts the entries."""
    colouring = plan.colouring
    ins, outs = [p.aval for p in linear.primals], [o.aval for o in linear.outs]
    dtype = fnp.result_type(*[o.dtype for o in outs]) if outs else ins[0].dtype
    if not plan.pattern.nnz:
        return fnp.zeros((0,), dtype)
    if colouring.by_rows:

        def pull(*cts: Value) -> list[Value]:
            return [instantiate(ct) for ct in linear.pull(cts)]

        compressed: list[Value] = vmap(pull)(*_seed_matrices(colouring, outs))
    else:

        def push(*tangents: Value) -> list[Value]:
            return [instantiate(t) for t in linear.push(tangents)]

        compressed = vmap(push)(*_seed_matrices(colouring, ins))
    rows = [reshape(convert(x, dtype), (colouring.count, x.aval.size // colouring.count)) for x in compressed]
    table = fnp.concatenate(rows, 1) if len(rows) > 1 else rows[0]
    indices = colouring.entry_colours * table.shape[1] + colouring.entry_lines
    return reshape(table, (table.size,)).at[_to_int32_indices(indices)].get(mode="promise_in_bounds")


def _seed_matrices(colouring: Colouring, avals: Sequence[ShapedArray]) -> list[Array]:
    """Returns for each array a mask `[colour, ...]`: one where the element has the colour, else zero."""
    numbers = np.arange(colouring.count, dtype=np.int32)[:, None]
    seeds: list[Array] = []
    start = 0
    for a in avals:
        colours = fnp.asarray(_to_int32_indices(colouring.colours[start : start + a.size]))
        seeds.append(as_array(reshape(convert(colours[None, :] == numbers, a.dtype), (colouring.count, *a.shape))))
        start += a.size
    return seeds


def _to_int32_indices(x: IndexVector) -> np.ndarray[Any, Any]:
    """Converts indices to 32 bits if they fit."""
    return x.astype(np.int32) if not x.size or x.max() < 2**31 else x
