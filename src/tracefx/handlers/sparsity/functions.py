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
from tracefx.core.bounds import keep
from tracefx.core.handler import as_array
from tracefx.core.values import Value
from tracefx.handlers.sparsity.colouring import Colouring, Ints, coloured, symmetrically_coloured
from tracefx.handlers.sparsity.detection import Signature, detected, flat_function, signature
from tracefx.handlers.sparsity.matrices import SparseMatrix, SparsityPattern
from tracefx.ops.basis import convert, instantiate, reshape
from tracefx.transforms.arguments import flatten_values, name_of, require_callable
from tracefx.transforms.linearization import Linearization, linearize_values
from tracefx.transforms.pipelines import Function, Transform
from tracefx.transforms.transformed import made_by
from tracefx.transforms.vmap import vmap

P = ParamSpec("P")
R = TypeVar("R")
KEPT = 64
"""For how many types of arguments a function remembers what was found."""


def jacobian_sparsity(fun: Callable[P, R]) -> Function[P, SparsityPattern]:
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
    return cast("Function[P, SparsityPattern]", _Pattern(False)(fun))


def hessian_sparsity(fun: Callable[P, R]) -> Function[P, SparsityPattern]:
    """The function that says which second derivatives of `fun`, which gives a scalar, there may be.

    It is `jacobian_sparsity` of the gradient, and symmetric.

    >>> import tracefx.numpy as fnp
    >>> hessian_sparsity(lambda x: x[0] * x[1] + x[2])(fnp.ones(3)).todense().astype(int).tolist()
    [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    """
    return cast("Function[P, SparsityPattern]", _Pattern(True)(fun))


def sparse_jacobian(fun: Callable[P, R], pattern: SparsityPattern | None = None) -> Function[P, SparseMatrix]:
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
    return cast("Function[P, SparseMatrix]", _Sparse(False, pattern)(fun))


def sparse_hessian(fun: Callable[P, R], pattern: SparsityPattern | None = None) -> Function[P, SparseMatrix]:
    """The function that gives the Hessian of `fun`, which gives a scalar, by its first argument.

    As `sparse_jacobian`, forward over reverse. Of two mirrored entries one is enough, so columns that meet may be
    computed together too.

    >>> import tracefx.numpy as fnp
    >>> hessian = sparse_hessian(lambda x: (x[1:] * x[:-1] ** 2).sum())(fnp.arange(3.0))
    >>> hessian.todense().tolist()
    [[2.0, 0.0, 0.0], [0.0, 4.0, 2.0], [0.0, 2.0, 0.0]]
    """
    return cast("Function[P, SparseMatrix]", _Sparse(True, pattern)(fun))


@final
@frozen(eq=False, repr=False)
class _Pattern(Transform):
    title: ClassVar[str] = "sparsity"
    hessian: bool

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        title = "hessian_sparsity" if self.hessian else "jacobian_sparsity"
        require_callable(title, fun)

        @made_by(self, fun)
        def found(*args: Any, **kwargs: Any) -> SparsityPattern:
            return detected(title, fun, signature(title, fun, args, kwargs), self.hessian)

        return found


@final
@frozen
class Plan:
    """How a sparse matrix is computed."""

    pattern: SparsityPattern
    colouring: Colouring


@final
@frozen(eq=False, repr=False)
class _Sparse(Transform):
    title: ClassVar[str] = "sparse"
    hessian: bool
    pattern: SparsityPattern | None

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        title = "sparse_hessian" if self.hessian else "sparse_jacobian"
        require_callable(title, fun)
        if not isinstance(self.pattern, SparsityPattern | None):
            raise TypeError(f"{title}: pattern must be a SparsityPattern, got {self.pattern!r}")
        plans: dict[Signature, Plan] = {}

        @made_by(self, fun)
        def matrix(*args: Any, **kwargs: Any) -> SparseMatrix:
            given = signature(title, fun, args, kwargs)
            values, _ = flatten_values(args[0], f"{title} of {name_of(fun)}: the first argument")
            others, _ = flatten_values((tuple(args[1:]), dict(kwargs)), f"{title} of {name_of(fun)}: other arguments")
            plan = plans.get(given)
            if plan is None:
                plan = keep(plans, given, self._plan(title, fun, given), KEPT)
            called = flat_function(title, fun, given, others, self.hessian)
            linear, _, _ = linearize_values(called, values)
            m, n = sum([o.aval.size for o in linear.outs]), given.size
            if plan.pattern.shape != (m, n):
                raise ValueError(f"{title} of {name_of(fun)}: the matrix is {m} x {n}, the pattern {plan.pattern}")
            return SparseMatrix(_entries(plan, linear), plan.pattern)

        return matrix

    def _plan(self, title: str, fun: Callable[..., Any], given: Signature) -> Plan:
        found = self.pattern
        if found is None:
            found = detected(title, fun, given, self.hessian)
        if self.hessian:
            if found != found.T:
                raise ValueError(f"{title} of {name_of(fun)}: {found} is not symmetric")
            return Plan(found, symmetrically_coloured(found.rows, found.cols, found.shape[0]))
        return Plan(found, coloured(found.rows, found.cols, found.shape))


def _entries(plan: Plan, linear: Linearization) -> Array:
    """The compressed matrix, all colours at once, and of it the entries."""
    colouring = plan.colouring
    ins, outs = [p.aval for p in linear.primals], [o.aval for o in linear.outs]
    dtype = fnp.result_type(*[o.dtype for o in outs]) if outs else ins[0].dtype
    if not plan.pattern.nnz:
        return fnp.zeros((0,), dtype)
    if colouring.by_rows:

        def pull(*cts: Value) -> list[Value]:
            return [instantiate(ct) for ct in linear.pull(cts)]

        compressed: list[Value] = vmap(pull)(*_seeds(colouring, outs))
    else:

        def push(*tangents: Value) -> list[Value]:
            return [instantiate(t) for t in linear.push(tangents)]

        compressed = vmap(push)(*_seeds(colouring, ins))
    rows = [reshape(convert(x, dtype), (colouring.count, x.aval.size // colouring.count)) for x in compressed]
    table = fnp.concatenate(rows, 1) if len(rows) > 1 else rows[0]
    places = colouring.colour * table.shape[1] + colouring.place
    return reshape(table, (table.size,)).at[_narrow(places)].get(mode="promise_in_bounds")


def _seeds(colouring: Colouring, avals: Sequence[ShapedArray]) -> list[Array]:
    """For each array, `[colour, ...]`: ones where an element has the colour."""
    numbers = np.arange(colouring.count, dtype=np.int32)[:, None]
    seeds: list[Array] = []
    start = 0
    for a in avals:
        own = fnp.asarray(_narrow(colouring.colours[start : start + a.size]))
        seeds.append(as_array(reshape(convert(own[None, :] == numbers, a.dtype), (colouring.count, *a.shape))))
        start += a.size
    return seeds


def _narrow(x: Ints) -> np.ndarray[Any, Any]:
    """Indices in 32 bits, if they fit."""
    return x.astype(np.int32) if not x.size or x.max() < 2**31 else x
