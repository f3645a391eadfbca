"""Iterative (Krylov) solvers of linear systems, with the names of `jax.scipy.sparse.linalg`.

The matrix is an array or a function from vectors to vectors; vectors may be trees of arrays of any shapes. Solutions
are differentiated implicitly, by solving another linear system, not through the iterations.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, dtypes
from tracefx.filtered_tracebacks import api_boundary
from tracefx.flatten_util import ravel_pytree
from tracefx.lax import custom_linear_solve, while_loop
from tracefx.ops.linalg.qr import qr
from tracefx.ops.linalg.triangular_solve import triangular_solve
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree

__all__ = ["bicgstab", "cg", "gmres"]

LinearOperator: TypeAlias = Callable[[Any], Any]
"""A function that multiplies a matrix with a vector: a tree, or inside the solvers an array of one axis."""
IterativeSolver: TypeAlias = Callable[[LinearOperator, Array, Array, LinearOperator, "StoppingCriterion"], Array]
"""A solver: a function of a matrix, the right-hand side, a guess, a preconditioner, and limits."""


class StoppingCriterion(NamedTuple):
    """When to stop: at a residual of this norm, or after this many steps."""

    error: Array
    steps: int


@api_boundary
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
    """Solves `A x = b` for Hermitian positive definite `A` by conjugate gradients.

    Args:
        A: the matrix, `f32[n, n]`, or a function from vectors to vectors.
        b: the right-hand side, a tree of arrays.
        x0: the initial guess, a tree like `b`; zeros by default.
        tol: the relative tolerance: the solver stops when the norm of the residual is at most `tol` times that of `b`.
        atol: the absolute tolerance: the solver also stops when the norm of the residual is at most `atol`.
        maxiter: the maximum number of steps; 10 times the number of elements by default.
        M: a preconditioner: an approximation of the inverse of `A`, as a matrix or a function.

    Returns:
        The solution, a tree like `b`, and None: whether the solver converged is not reported.

    Raises:
        TypeError: if `A` is neither an array nor a function.
        ValueError: if a matrix is not square, or `x0` and `b` differ in structure or shapes.

    >>> x, _ = cg(fnp.array([[4.0, 1.0], [1.0, 3.0]]), fnp.array([5.0, 4.0]))
    >>> fnp.round(x, 3).tolist()
    [1.0, 1.0]
    """
    return _solve_iteratively("cg", _conjugate_gradients, A, b, x0, tol, atol, maxiter, M, is_hermitian=True), None


@api_boundary
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
    """Solves `A x = b` by the stabilized biconjugate gradient method, for any square `A`.

    Args:
        A: the matrix, `f32[n, n]`, or a function from vectors to vectors.
        b: the right-hand side, a tree of arrays.
        x0: the initial guess, a tree like `b`; zeros by default.
        tol: the relative tolerance: the solver stops when the norm of the residual is at most `tol` times that of `b`.
        atol: the absolute tolerance: the solver also stops when the norm of the residual is at most `atol`.
        maxiter: the maximum number of steps; 10 times the number of elements by default.
        M: a preconditioner: an approximation of the inverse of `A`, as a matrix or a function.

    Returns:
        The solution, a tree like `b`, and None: whether the solver converged is not reported.

    Raises:
        TypeError: if `A` is neither an array nor a function.
        ValueError: if a matrix is not square, or `x0` and `b` differ in structure or shapes.

    >>> x, _ = bicgstab(fnp.array([[4.0, 1.0], [2.0, 3.0]]), fnp.array([5.0, 5.0]))
    >>> fnp.round(x, 3).tolist()
    [1.0, 1.0]
    """
    return _solve_iteratively("bicgstab", _biconjugate_gradients, A, b, x0, tol, atol, maxiter, M), None


@api_boundary
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
    """Solves `A x = b` by the restarted generalized minimal residual method, for any square `A`.

    Args:
        A: the matrix, `f32[n, n]`, or a function from vectors to vectors.
        b: the right-hand side, a tree of arrays.
        x0: the initial guess, a tree like `b`; zeros by default.
        tol: the relative tolerance: the solver stops when the norm of the residual is at most `tol` times that of `b`.
        atol: the absolute tolerance: the solver also stops when the norm of the residual is at most `atol`.
        restart: the dimension of the Krylov space, after which the method restarts.
        maxiter: the maximum number of restarts; 10 times the number of elements by default.
        M: a preconditioner: an approximation of the inverse of `A`, as a matrix or a function.
        solve_method: `"batched"` computes `restart` products before each check; `"incremental"` checks the residual
            after each.

    Returns:
        The solution, a tree like `b`, and a status: -1 if it is not finite, else 0.

    Raises:
        TypeError: if `A` is neither an array nor a function.
        ValueError: if a matrix is not square, or `x0` and `b` differ in structure or shapes.

    >>> x, _ = gmres(fnp.array([[4.0, 1.0], [2.0, 3.0]]), fnp.array([5.0, 5.0]))
    >>> fnp.round(x, 3).tolist()
    [1.0, 1.0]
    """
    if solve_method not in ("batched", "incremental"):
        raise ValueError(f"gmres: solve_method must be 'batched' or 'incremental', got {solve_method!r}")
    x = _solve_iteratively("gmres", _GMRES(restart, solve_method == "incremental"), A, b, x0, tol, atol, maxiter, M)
    is_nonfinite = [fnp.any(~fnp.isfinite(leaf)) for leaf in trees.leaves(x)]
    return x, fnp.where(fnp.any(fnp.stack(is_nonfinite)), -1, 0)


# ------------------------------------------------------------------ trees and operators


def _as_linear_operator(name: str, argument: str, f: LinearOperator | ArrayLike) -> LinearOperator:
    """Converts a matrix to a function that multiplies with it."""
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
    """Runs a solver on raveled vectors, inside `custom_linear_solve`."""
    rhs_tree = trees.map(fnp.asarray, b)
    vector, unravel = ravel_pytree(rhs_tree)
    dtype = vector.dtype if dtypes.is_inexact(vector.dtype) else fnp.result_type(vector, np.float32)

    def flat(tree: PyTree) -> Array:
        return fnp.asarray(ravel_pytree(tree)[0], dtype)

    def unflatten(x: Array) -> Any:
        return unravel(fnp.asarray(x, vector.dtype))

    guess = trees.map(fnp.zeros_like, rhs_tree) if x0 is None else trees.map(fnp.asarray, x0)
    structures = [trees.structure(tree) for tree in (guess, rhs_tree)]
    if structures[0] != structures[1]:
        raise ValueError(
            f"{name}: x0 and b must have one structure, got {' and '.join(map(trees.show_structure, structures))}"
        )
    shapes = [[x.shape for x in trees.leaves(tree)] for tree in (guess, rhs_tree)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{name}: x0 and b must have the same shapes, got {shapes[0]} and {shapes[1]}")
    product = _as_linear_operator(name, "A", A)
    preconditioner = None if M is None else _as_linear_operator(name, "M", M)
    start = flat(guess)
    steps = 10 * start.size if maxiter is None else maxiter

    def solve(matvec: LinearOperator, rhs: PyTree) -> Any:
        side = flat(rhs)

        def times(x: Array) -> Array:
            return flat(matvec(unflatten(x)))

        def preconditioned(x: Array) -> Array:
            return x if preconditioner is None else flat(preconditioner(unflatten(x)))

        limits = StoppingCriterion(fnp.maximum(tol * _norm(side), atol), steps)
        return unflatten(method(times, side, start, preconditioned, limits))

    is_symmetric = is_hermitian and not dtypes.is_complex(dtype)
    return custom_linear_solve(product, rhs_tree, solve, transpose_solve=solve, symmetric=is_symmetric)


def _inner(x: Array, y: Array) -> Array:
    return fnp.vdot(x, y, precision="highest")


def _norm(x: Array) -> Array:
    return fnp.sqrt(fnp.real(_inner(x, x)))


# ------------------------------------------------------------------ conjugate gradients


class _CGState(NamedTuple):
    """The state of the iteration."""

    x: Array
    error: Array
    """The residual, `b - A x`."""
    size: Array
    """The squared norm of the residual with respect to the preconditioner."""
    direction: Array
    steps: Array


def _conjugate_gradients(A: LinearOperator, b: Array, x: Array, M: LinearOperator, limits: StoppingCriterion) -> Array:
    def size(r: Array, z: Array) -> Array:
        return fnp.real(_inner(r, z))

    def is_unfinished(s: _CGState) -> Array:
        return (size(s.error, s.error) > limits.error**2) & (s.steps < limits.steps)

    def step(s: _CGState) -> _CGState:
        product = A(s.direction)
        step_size = fnp.asarray(s.size / size(s.direction, product), b.dtype)
        error = s.error - step_size * product
        z = M(error)
        new = size(error, z)
        direction = z + fnp.asarray(new / s.size, b.dtype) * s.direction
        return _CGState(s.x + step_size * s.direction, error, new, direction, s.steps + 1)

    error = b - A(x)
    z = M(error)
    return while_loop(is_unfinished, step, _CGState(x, error, size(error, z), z, fnp.array(0, dtype="int32"))).x


class _BiCGSTABState(NamedTuple):
    """The state of the iteration."""

    x: Array
    error: Array
    direction: Array
    along: Array
    """The product of `A` with the preconditioned direction."""
    alpha: Array
    omega: Array
    rho: Array
    steps: Array
    """The number of steps; -1 after a breakdown (a division by zero)."""


def _biconjugate_gradients(
    A: LinearOperator, b: Array, x: Array, M: LinearOperator, limits: StoppingCriterion
) -> Array:
    """Runs the Bi-CGSTAB method of Van der Vorst (1992)."""

    def is_unfinished(s: _BiCGSTABState) -> Array:
        return (_norm(s.error) > limits.error) & (s.steps < limits.steps) & (s.steps >= 0)

    def step(s: _BiCGSTABState) -> _BiCGSTABState:
        rho = _inner(shadow_residual, s.error)
        beta = rho / s.rho * s.alpha / s.omega
        direction = s.error + beta * (s.direction - s.omega * s.along)
        p = M(direction)
        product = A(p)
        alpha = rho / _inner(shadow_residual, product)
        half_residual = s.error - alpha * product
        converges = _norm(half_residual) < limits.error
        z = M(half_residual)
        t = A(z)
        omega = _inner(t, half_residual) / _inner(t, t)
        x = s.x + alpha * p
        steps = fnp.where((omega == 0) | (alpha == 0) | (rho == 0), -1, s.steps + 1)
        return _BiCGSTABState(
            fnp.where(converges, x, x + omega * z),
            fnp.where(converges, half_residual, half_residual - omega * t),
            direction,
            product,
            alpha,
            omega,
            rho,
            steps,
        )

    shadow_residual = b - A(x)
    one, zeros = fnp.ones((), b.dtype), fnp.zeros_like(b)
    start = _BiCGSTABState(x, shadow_residual, zeros, zeros, one, one, one, fnp.array(0, dtype="int32"))
    return while_loop(is_unfinished, step, start).x


# ------------------------------------------------------------------ generalized minimal residuals


class _RestartState(NamedTuple):
    """The state of the outer iteration."""

    x: Array
    error: Array
    """The preconditioned residual."""
    rounds: Array


class _ArnoldiState(NamedTuple):
    """Orthonormal basis vectors in rows, and for each the coefficients of its product with the matrix in the basis."""

    vectors: Array
    products: Array
    done: Array
    ended: Array
    """Whether the Krylov space is exhausted, or the residual small enough."""


@final
@frozen(eq=False)
class _GMRES:
    """The restarted GMRES method of Saad and Schultz (1986)."""

    restart: int
    checks_residual: bool
    """Whether the residual is checked after every product."""

    def __call__(self, A: LinearOperator, b: Array, x: Array, M: LinearOperator, limits: StoppingCriterion) -> Array:
        dimension = min(self.restart, b.size)
        rhs_norm = _norm(M(b))
        tolerance = rhs_norm * fnp.minimum(1.0, limits.error / _norm(b))

        def restart(s: _RestartState) -> _RestartState:
            basis = while_loop(
                lambda v: (v.done < dimension) & ~v.ended,
                lambda v: self._arnoldi_step(v, A, M, _norm(s.error), tolerance),
                _initial_arnoldi_state(s.error, dimension),
            )
            weights = _least_squares_weights(basis.products, _norm(s.error))
            x = s.x + fnp.dot(weights, basis.vectors[:-1], precision="highest")
            return _RestartState(x, M(b - A(x)), s.rounds + 1)

        def is_unfinished(s: _RestartState) -> Array:
            return (_norm(s.error) > limits.error) & (s.rounds < limits.steps)

        return while_loop(is_unfinished, restart, _RestartState(x, M(b - A(x)), fnp.array(0, dtype="int32"))).x

    def _arnoldi_step(
        self, basis: _ArnoldiState, A: LinearOperator, M: LinearOperator, error: Array, enough: Array
    ) -> _ArnoldiState:
        """Appends the normalized product of the matrix with the last basis vector."""
        vectors = basis.vectors
        new = M(A(vectors[basis.done]))
        size = _norm(new)
        weights = fnp.zeros(vectors.shape[:1], vectors.dtype)
        for _ in range(2):  # orthogonalizes twice, against rounding errors
            projections = fnp.dot(fnp.conj(vectors), new, precision="highest")
            new, weights = new - fnp.dot(projections, vectors, precision="highest"), weights + projections
        remaining_norm = _norm(new)
        ended = remaining_norm <= float(dtypes.finfo(vectors.dtype).eps) * size
        unit = fnp.where(ended, 0, new / fnp.where(ended, 1, remaining_norm))
        weights = weights.at[basis.done + 1].set(fnp.where(ended, 0, remaining_norm))
        products = basis.products.at[basis.done].set(weights)
        if self.checks_residual:
            residual_norm = _norm(
                _scaled_first_unit(products, error)
                - fnp.dot(_least_squares_weights(products, error), products, precision="highest")
            )
            ended = ended | (residual_norm <= enough)
        return _ArnoldiState(vectors.at[basis.done + 1].set(unit), products, basis.done + 1, ended)


def _initial_arnoldi_state(error: Array, most: int) -> _ArnoldiState:
    """Returns the state with the normalized residual as the only basis vector."""
    size = _norm(error)
    unit = error / fnp.where(size > 0, size, 1)
    vectors = fnp.zeros((most + 1, error.size), error.dtype).at[0].set(unit)
    # Rows of later steps keep the least-squares problem nonsingular; their basis vectors are still zero.
    products = fnp.eye(most, most + 1, k=1, dtype=error.dtype)
    return _ArnoldiState(vectors, products, fnp.array(0, dtype="int32"), fnp.array(False))


def _scaled_first_unit(products: Array, error: Array) -> Array:
    """Returns the first unit vector times the norm of the residual."""
    return fnp.zeros(products.shape[1:], products.dtype).at[0].set(error)


def _least_squares_weights(products: Array, error: Array) -> Array:
    """Returns the weights of the rows whose sum is nearest to the residual, a multiple of the first unit vector."""
    q, r = qr(products.T, full_matrices=False)
    side = fnp.dot(fnp.conj(q.T), _scaled_first_unit(products, error), precision="highest")
    return triangular_solve(r, side[:, None], left_side=True)[:, 0]
