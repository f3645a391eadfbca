"""`jacobian_sparsity`, `hessian_sparsity`, `sparse_jacobian`, `sparse_hessian`: for users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, cast, final

import numpy as np
from attrs import frozen
from typing_extensions import ParamSpec, override

import tracefx.numpy as fnp
from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray
from tracefx.core.bounded_cache import insert_bounded
from tracefx.core.handler import as_array
from tracefx.core.values import Value
from tracefx.handlers.sparsity.colouring import Colouring, IndexVector, colour_matrix, star_colour_matrix
from tracefx.handlers.sparsity.detection import (
    ArgumentTypes,
    argument_types,
    detect_sparsity,
    function_of_first_argument,
)
from tracefx.handlers.sparsity.matrices import SparseMatrix, SparsityPattern
from tracefx.ops.structural import convert, instantiate, reshape
from tracefx.transforms.arguments import flatten_values, fun_name, require_callable
from tracefx.transforms.linearization import Linearization, linearize_values
from tracefx.transforms.transform import Transform, WrappedFunction
from tracefx.transforms.transformed_function import wrap_transformed
from tracefx.transforms.vmap import vmap

P = ParamSpec("P")
R = TypeVar("R")
MAX_CACHED_PLANS = 64
"""For how many types of arguments a function remembers what was found."""


def jacobian_sparsity(fun: Callable[P, R]) -> WrappedFunction[P, SparsityPattern]:
    """The function that says which outputs of `fun` depend on which elements of its first argument.

    Row `i`, column `j` of the pattern stand for element `i` of the outputs and `j` of the argument, both flattened if
    they are trees. The pattern holds wherever the argument is: entries that it leaves out are zero for all values of
    all arguments, which may be types (`ShapeDtypeStruct`). Nothing is run. What is closed over counts with its values:
    a constant matrix with its zeros, constant indices with the places they name.

    Where the program itself finds out which elements it takes (indices that depend on an argument, sorting, solving),
    it may be any of them. Loops are gone through step by step, long ones until nothing changes; branches count
    together.

    Raises TypeError for a first argument or outputs that are not made of floats, ValueError for a pattern of more than
    30 million entries.

    >>> import tracefx.numpy as fnp
    >>> pattern = jacobian_sparsity(lambda x: x[1:] * x[:-1])(fnp.ones(4))
    >>> pattern.todense().astype(int).tolist()
    [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    """
    return cast("WrappedFunction[P, SparsityPattern]", _SparsityTransform(False)(fun))


def hessian_sparsity(fun: Callable[P, R]) -> WrappedFunction[P, SparsityPattern]:
    """The function that says which second derivatives of `fun`, which gives a scalar, there may be.

    It is `jacobian_sparsity` of the gradient, and symmetric.

    >>> import tracefx.numpy as fnp
    >>> hessian_sparsity(lambda x: x[0] * x[1] + x[2])(fnp.ones(3)).todense().astype(int).tolist()
    [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    """
    return cast("WrappedFunction[P, SparsityPattern]", _SparsityTransform(True)(fun))


def sparse_jacobian(fun: Callable[P, R], pattern: SparsityPattern | None = None) -> WrappedFunction[P, SparseMatrix]:
    """The function that gives the Jacobian of `fun` by its first argument, as a `SparseMatrix`.

    Columns that meet no common row are computed together, as one directional derivative, or rows by one backward
    pass, whichever are fewer: a banded matrix takes as many as the band is wide. The pattern and this colouring are
    found once for each type of the arguments, unless a `pattern` is given. Rows and columns are numbered as
    `jacobian_sparsity` numbers them.

    Raises TypeError for a first argument or outputs that are not made of floats, ValueError for a pattern of another
    shape.

    >>> import tracefx.numpy as fnp
    >>> jacobian = sparse_jacobian(lambda x: x[1:] * x[:-1])(fnp.arange(4.0))
    >>> jacobian.todense().tolist()
    [[1.0, 0.0, 0.0, 0.0], [0.0, 2.0, 1.0, 0.0], [0.0, 0.0, 3.0, 2.0]]
    """
    return cast("WrappedFunction[P, SparseMatrix]", _SparseDerivative(False, pattern)(fun))


def sparse_hessian(fun: Callable[P, R], pattern: SparsityPattern | None = None) -> WrappedFunction[P, SparseMatrix]:
    """The function that gives the Hessian of `fun`, which gives a scalar, by its first argument.

    As `sparse_jacobian`, forward over reverse. Of two mirrored entries one is enough, so columns that meet may be
    computed together too.

    >>> import tracefx.numpy as fnp
    >>> hessian = sparse_hessian(lambda x: (x[1:] * x[:-1] ** 2).sum())(fnp.arange(3.0))
    >>> hessian.todense().tolist()
    [[2.0, 0.0, 0.0], [0.0, 4.0, 2.0], [0.0, 2.0, 0.0]]
    """
    return cast("WrappedFunction[P, SparseMatrix]", _SparseDerivative(True, pattern)(fun))


@final
@frozen(eq=False, repr=False)
class _SparsityTransform(Transform):
    title: ClassVar[str] = "sparsity"
    hessian: bool

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        title = "hessian_sparsity" if self.hessian else "jacobian_sparsity"
        require_callable(title, fun)

        @wrap_transformed(self, fun)
        def found(*args: Any, **kwargs: Any) -> SparsityPattern:
            return detect_sparsity(title, fun, argument_types(title, fun, args, kwargs), self.hessian)

        return found


@final
@frozen
class SparsePlan:
    """How a sparse matrix is computed."""

    pattern: SparsityPattern
    colouring: Colouring


@final
@frozen(eq=False, repr=False)
class _SparseDerivative(Transform):
    title: ClassVar[str] = "sparse"
    hessian: bool
    pattern: SparsityPattern | None

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        title = "sparse_hessian" if self.hessian else "sparse_jacobian"
        require_callable(title, fun)
        if not isinstance(self.pattern, SparsityPattern | None):
            raise TypeError(f"{title}: pattern must be a SparsityPattern, got {self.pattern!r}")
        plans: dict[ArgumentTypes, SparsePlan] = {}

        @wrap_transformed(self, fun)
        def matrix(*args: Any, **kwargs: Any) -> SparseMatrix:
            given = argument_types(title, fun, args, kwargs)
            values, _ = flatten_values(args[0], f"{title} of {fun_name(fun)}: the first argument")
            others, _ = flatten_values((tuple(args[1:]), dict(kwargs)), f"{title} of {fun_name(fun)}: other arguments")
            plan = plans.get(given)
            if plan is None:
                plan = insert_bounded(plans, given, self._plan(title, fun, given), MAX_CACHED_PLANS)
            called = function_of_first_argument(title, fun, given, others, self.hessian)
            linear, _, _ = linearize_values(called, values)
            m, n = sum([o.aval.size for o in linear.outs]), given.size
            if plan.pattern.shape != (m, n):
                raise ValueError(f"{title} of {fun_name(fun)}: the matrix is {m} x {n}, the pattern {plan.pattern}")
            return SparseMatrix(_compute_entries(plan, linear), plan.pattern)

        return matrix

    def _plan(self, title: str, fun: Callable[..., Any], given: ArgumentTypes) -> SparsePlan:
        found = self.pattern
        if found is None:
            found = detect_sparsity(title, fun, given, self.hessian)
        if self.hessian:
            if found != found.T:
                raise ValueError(f"{title} of {fun_name(fun)}: {found} is not symmetric")
            return SparsePlan(found, star_colour_matrix(found.rows, found.cols, found.shape[0]))
        return SparsePlan(found, colour_matrix(found.rows, found.cols, found.shape))


def _compute_entries(plan: SparsePlan, linear: Linearization) -> Array:
    """The compressed matrix, all colours at once, and of it the entries."""
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
    places = colouring.entry_colours * table.shape[1] + colouring.entry_lines
    return reshape(table, (table.size,)).at[_to_int32_indices(places)].get(mode="promise_in_bounds")


def _seed_matrices(colouring: Colouring, avals: Sequence[ShapedArray]) -> list[Array]:
    """For each array, `[colour, ...]`: ones where an element has the colour."""
    numbers = np.arange(colouring.count, dtype=np.int32)[:, None]
    seeds: list[Array] = []
    start = 0
    for a in avals:
        own = fnp.asarray(_to_int32_indices(colouring.colours[start : start + a.size]))
        seeds.append(as_array(reshape(convert(own[None, :] == numbers, a.dtype), (colouring.count, *a.shape))))
        start += a.size
    return seeds


def _to_int32_indices(x: IndexVector) -> np.ndarray[Any, Any]:
    """Indices in 32 bits, if they fit."""
    return x.astype(np.int32) if not x.size or x.max() < 2**31 else x
