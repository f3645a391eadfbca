"""Linear systems solved by products with their matrix, with the names of `jax.scipy.sparse.linalg`.

The matrix is an array, or a function from vectors to vectors; vectors may be trees of arrays of any shapes. Solutions
are differentiated as such, by solving another system, and not by going through the steps that led to them.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx import numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.dtypes import DType
from tracefx.lax import custom_linear_solve, while_loop
from tracefx.ops.linalg.qr import qr
from tracefx.ops.linalg.triangular_solve import triangular_solve
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, TreeDef

__all__ = ["bicgstab", "cg", "gmres"]

LinearOperator: TypeAlias = Callable[[Any], Any]
"""A matrix times vectors: trees, or as the methods see them, arrays of one axis."""
IterativeSolver: TypeAlias = Callable[[LinearOperator, Array, Array, LinearOperator, "StoppingCriterion"], Array]
"""From a matrix, the right side, a guess and the inverse's stand-in to a solution."""


class StoppingCriterion(NamedTuple):
    """When a method has done enough: with an error of this size, or after so many steps."""

    error: Array
    steps: int


def cg(
    A: LinearOperator | ArrayLike,
    b: PyTree,
    x0: PyTree | None = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: LinearOperator | ArrayLike | None = None,
) -> tuple[Any, None]:
    """The `x` with `A x = b` for a Hermitian, positive definite `A`, by conjugate gradients from `x0` on.

    It is there when the error is no longer than `tol` times `b`, or than `atol`, or after `maxiter` steps, by default
    10 for each number. `M` stands in for the inverse of `A`: the better it does, the fewer steps there are. Whether it
    has converged is not told: the second result is None.

    Raises ValueError for a matrix that isn't square and for an `x0` unlike `b`, TypeError for an `A` that is neither
    array nor function.

    >>> x, _ = cg(fnp.array([[4.0, 1.0], [1.0, 3.0]]), fnp.array([5.0, 4.0]))
    >>> fnp.round(x, 3).tolist()
    [1.0, 1.0]
    """
    return _solve_iteratively("cg", _conjugate_gradients, A, b, x0, tol, atol, maxiter, M, is_hermitian=True), None


def bicgstab(
    A: LinearOperator | ArrayLike,
    b: PyTree,
    x0: PyTree | None = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: LinearOperator | ArrayLike | None = None,
) -> tuple[Any, None]:
    """The `x` with `A x = b`, by stabilized biconjugate gradients; arguments as of `cg`, but for any `A`.

    >>> x, _ = bicgstab(fnp.array([[4.0, 1.0], [2.0, 3.0]]), fnp.array([5.0, 5.0]))
    >>> fnp.round(x, 3).tolist()
    [1.0, 1.0]
    """
    return _solve_iteratively("bicgstab", _biconjugate_gradients, A, b, x0, tol, atol, maxiter, M), None


def gmres(
    A: LinearOperator | ArrayLike,
    b: PyTree,
    x0: PyTree | None = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: LinearOperator | ArrayLike | None = None,
    solve_method: str = "batched",
) -> tuple[Any, Array]:
    """The `x` with `A x = b`, and -1 if there is none, else 0, by generalized minimal residuals; arguments as of `cg`,
    but for any `A`.

    Of all that `restart` products with `A` lead to it is the `x` with the least error, after which everything begins
    again from there, `maxiter` times at most. With the `solve_method` "incremental" it ends before `restart` products
    where they are enough; "batched" doesn't look.

    >>> x, _ = gmres(fnp.array([[4.0, 1.0], [2.0, 3.0]]), fnp.array([5.0, 5.0]))
    >>> fnp.round(x, 3).tolist()
    [1.0, 1.0]
    """
    if solve_method not in ("batched", "incremental"):
        raise ValueError(f"gmres: solve_method must be 'batched' or 'incremental', got {solve_method!r}")
    x = _solve_iteratively("gmres", _GMRES(restart, solve_method == "incremental"), A, b, x0, tol, atol, maxiter, M)
    missing = [fnp.any(~fnp.isfinite(leaf)) for leaf in _arrays(x)]
    return x, fnp.where(fnp.any(fnp.stack(missing)), -1, 0)


# ------------------------------------------------------------------ trees as vectors


def _arrays(tree: PyTree) -> list[Array]:
    return [fnp.asarray(leaf) for leaf in trees.leaves(tree)]


@final
@frozen(eq=False)
class _TreeRaveler:
    """How trees are vectors: their leaves one after the other, in the dtype in which these meet."""

    structure: TreeDef
    shapes: Sequence[tuple[int, ...]]
    types: Sequence[DType]
    dtype: DType

    @staticmethod
    def like(tree: PyTree) -> _TreeRaveler:
        leaves = _arrays(tree)
        dtype = fnp.result_type(
            *leaves, np.float32 if not any(dtypes.is_inexact(x.dtype) for x in leaves) else leaves[0]
        )
        return _TreeRaveler(trees.structure(tree), [x.shape for x in leaves], [x.dtype for x in leaves], dtype)

    def flat(self, tree: PyTree) -> Array:
        parts = [fnp.asarray(fnp.ravel(x), self.dtype) for x in _arrays(tree)]
        return parts[0] if len(parts) == 1 else fnp.concatenate(parts)

    def tree(self, vector: Array) -> Any:
        leaves, start = [], 0
        for shape, dtype in zip(self.shapes, self.types, strict=True):
            end = start + math.prod(shape)
            leaves.append(fnp.asarray(vector[start:end].reshape(shape), dtype))
            start = end
        return trees.unflatten(self.structure, leaves)


def _as_linear_operator(name: str, argument: str, f: LinearOperator | ArrayLike) -> LinearOperator:
    if isinstance(f, Array | np.ndarray) or hasattr(f, "__matmul__"):
        shape = getattr(f, "shape", None)
        if shape is not None and (len(shape) != 2 or shape[0] != shape[1]):
            raise ValueError(f"{name}: {argument} must be a square matrix or a function, got one of shape {shape}")
        if isinstance(f, Array | np.ndarray):
            return lambda x: fnp.dot(f, x, precision="highest")
        return functools.partial(operator.matmul, f)
    if not callable(f):
        raise TypeError(f"{name}: {argument} must be a matrix or a function from vectors to vectors, got {f!r}")
    return f


def _solve_iteratively(
    name: str,
    method: IterativeSolver,
    A: LinearOperator | ArrayLike,
    b: PyTree,
    x0: PyTree | None,
    tol: float,
    atol: float,
    maxiter: int | None,
    M: LinearOperator | ArrayLike | None,
    is_hermitian: bool = False,
) -> Any:
    right = trees.map(fnp.asarray, b)
    vectors = _TreeRaveler.like(right)
    guess = trees.map(fnp.zeros_like, right) if x0 is None else trees.map(fnp.asarray, x0)
    if trees.structure(guess) != vectors.structure:
        raise ValueError(
            f"{name}: x0 and b must have one structure, got {trees.structure(guess)} and {vectors.structure}"
        )
    shapes = [x.shape for x in _arrays(guess)]
    if shapes != vectors.shapes:
        raise ValueError(f"{name}: x0 and b must have the same shapes, got {shapes} and {list(vectors.shapes)}")
    product = _as_linear_operator(name, "A", A)
    stand_in = None if M is None else _as_linear_operator(name, "M", M)
    start = vectors.flat(guess)
    steps = 10 * start.size if maxiter is None else maxiter

    def solve(matvec: LinearOperator, rhs: PyTree) -> Any:
        side = vectors.flat(rhs)

        def times(x: Array) -> Array:
            return vectors.flat(matvec(vectors.tree(x)))

        def preconditioned(x: Array) -> Array:
            return x if stand_in is None else vectors.flat(stand_in(vectors.tree(x)))

        limits = StoppingCriterion(fnp.maximum(tol * _norm(side), atol), steps)
        return vectors.tree(method(times, side, start, preconditioned, limits))

    is_symmetric = is_hermitian and not dtypes.is_complex(vectors.dtype)
    return custom_linear_solve(product, right, solve, transpose_solve=solve, symmetric=is_symmetric)


def _inner(x: Array, y: Array) -> Array:
    return fnp.vdot(x, y, precision="highest")


def _norm(x: Array) -> Array:
    return fnp.sqrt(fnp.real(_inner(x, x)))


# ------------------------------------------------------------------ conjugate gradients


class _CGState(NamedTuple):
    x: Array
    error: Array
    """What `b` is beyond the product."""
    size: Array
    """Of the error, squared, as the inverse's stand-in sees it."""
    direction: Array
    steps: Array


def _conjugate_gradients(A: LinearOperator, b: Array, x: Array, M: LinearOperator, limits: StoppingCriterion) -> Array:
    def size(r: Array, z: Array) -> Array:
        return fnp.real(_inner(r, z))

    def goes_on(s: _CGState) -> Array:
        return (size(s.error, s.error) > limits.error**2) & (s.steps < limits.steps)

    def step(s: _CGState) -> _CGState:
        along = A(s.direction)
        far = fnp.asarray(s.size / size(s.direction, along), b.dtype)
        error = s.error - far * along
        z = M(error)
        new = size(error, z)
        direction = z + fnp.asarray(new / s.size, b.dtype) * s.direction
        return _CGState(s.x + far * s.direction, error, new, direction, s.steps + 1)

    error = b - A(x)
    z = M(error)
    return while_loop(goes_on, step, _CGState(x, error, size(error, z), z, fnp.array(0, dtype="int32"))).x


class _BiCGSTABState(NamedTuple):
    x: Array
    error: Array
    direction: Array
    along: Array
    alpha: Array
    omega: Array
    rho: Array
    steps: Array
    """Negative where a division by zero ended it."""


def _biconjugate_gradients(
    A: LinearOperator, b: Array, x: Array, M: LinearOperator, limits: StoppingCriterion
) -> Array:
    """Van der Vorst, Bi-CGSTAB (1992)."""

    def goes_on(s: _BiCGSTABState) -> Array:
        return (_norm(s.error) > limits.error) & (s.steps < limits.steps) & (s.steps >= 0)

    def step(s: _BiCGSTABState) -> _BiCGSTABState:
        rho = _inner(first, s.error)
        beta = rho / s.rho * s.alpha / s.omega
        direction = s.error + beta * (s.direction - s.omega * s.along)
        p = M(direction)
        along = A(p)
        alpha = rho / _inner(first, along)
        half = s.error - alpha * along
        ends = _norm(half) < limits.error
        z = M(half)
        t = A(z)
        omega = _inner(t, half) / _inner(t, t)
        x = s.x + alpha * p
        steps = fnp.where((omega == 0) | (alpha == 0) | (rho == 0), -1, s.steps + 1)
        return _BiCGSTABState(
            fnp.where(ends, x, x + omega * z),
            fnp.where(ends, half, half - omega * t),
            direction,
            along,
            alpha,
            omega,
            rho,
            steps,
        )

    first = b - A(x)
    one, none = fnp.ones((), b.dtype), fnp.zeros_like(b)
    start = _BiCGSTABState(x, first, none, none, one, one, one, fnp.array(0, dtype="int32"))
    return while_loop(goes_on, step, start).x


# ------------------------------------------------------------------ minimal residuals


class _RestartState(NamedTuple):
    x: Array
    error: Array
    """As the inverse's stand-in sees it."""
    rounds: Array


class _ArnoldiState(NamedTuple):
    """Vectors at right angles, in rows, and what the matrix makes of each: a row of numbers, one for each vector."""

    vectors: Array
    products: Array
    done: Array
    ended: Array
    """Whether the matrix leads to nothing new."""


@final
@frozen(eq=False)
class _GMRES:
    """Saad and Schultz, GMRES (1986)."""

    restart: int
    checks_residual: bool
    """Whether the error is looked at after every product."""

    def __call__(self, A: LinearOperator, b: Array, x: Array, M: LinearOperator, limits: StoppingCriterion) -> Array:
        most = min(self.restart, b.size)
        whole = _norm(M(b))
        enough = whole * fnp.minimum(1.0, limits.error / _norm(b))

        def again(s: _RestartState) -> _RestartState:
            basis = while_loop(
                lambda v: (v.done < most) & ~v.ended,
                lambda v: self._arnoldi_step(v, A, M, _norm(s.error), enough),
                _initial_arnoldi_state(s.error, most),
            )
            weights = _least_squares_weights(basis.products, _norm(s.error))
            x = s.x + fnp.dot(weights, basis.vectors[:-1], precision="highest")
            return _RestartState(x, M(b - A(x)), s.rounds + 1)

        def goes_on(s: _RestartState) -> Array:
            return (_norm(s.error) > limits.error) & (s.rounds < limits.steps)

        return while_loop(goes_on, again, _RestartState(x, M(b - A(x)), fnp.array(0, dtype="int32"))).x

    def _arnoldi_step(
        self, basis: _ArnoldiState, A: LinearOperator, M: LinearOperator, error: Array, enough: Array
    ) -> _ArnoldiState:
        vectors = basis.vectors
        new = M(A(vectors[basis.done]))
        size = _norm(new)
        weights = fnp.zeros(vectors.shape[:1], vectors.dtype)
        for _ in range(2):  # what rounding leaves of the others the first time
            along = fnp.dot(fnp.conj(vectors), new, precision="highest")
            new, weights = new - fnp.dot(along, vectors, precision="highest"), weights + along
        rest = _norm(new)
        ended = rest <= float(dtypes.finfo(vectors.dtype).eps) * size
        unit = fnp.where(ended, 0, new / fnp.where(ended, 1, rest))
        weights = weights.at[basis.done + 1].set(fnp.where(ended, 0, rest))
        products = basis.products.at[basis.done].set(weights)
        if self.checks_residual:
            left = _norm(
                _scaled_first_unit(products, error)
                - fnp.dot(_least_squares_weights(products, error), products, precision="highest")
            )
            ended = ended | (left <= enough)
        return _ArnoldiState(vectors.at[basis.done + 1].set(unit), products, basis.done + 1, ended)


def _initial_arnoldi_state(error: Array, most: int) -> _ArnoldiState:
    size = _norm(error)
    unit = error / fnp.where(size > 0, size, 1)
    vectors = fnp.zeros((most + 1, error.size), error.dtype).at[0].set(unit)
    # Rows that aren't there yet are such that their vectors, which are zero, have no part in anything.
    products = fnp.eye(most, most + 1, k=1, dtype=error.dtype)
    return _ArnoldiState(vectors, products, fnp.array(0, dtype="int32"), fnp.array(False))


def _scaled_first_unit(products: Array, error: Array) -> Array:
    return fnp.zeros(products.shape[1:], products.dtype).at[0].set(error)


def _least_squares_weights(products: Array, error: Array) -> Array:
    """The weights of the rows whose sum is nearest to the error, which is along the first vector."""
    q, r = qr(products.T, full_matrices=False)
    side = fnp.dot(fnp.conj(q.T), _scaled_first_unit(products, error), precision="highest")
    return triangular_solve(r, side[:, None], left_side=True)[:, 0]
