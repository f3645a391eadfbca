"""`custom_linear_solve` and `custom_root`: solutions of equations, differentiated implicitly."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, overload

from tracefx.control.linear_solve import LinearSolve
from tracefx.core import Array, ArrayLike, Value
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind, checked_axes, current
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import Zero
from tracefx.filtered_tracebacks import api_boundary
from tracefx.ops.collectives.pvary import varying
from tracefx.ops.elementwise.arithmetic import neg
from tracefx.pytrees import trees
from tracefx.pytrees.trees import TreeDef
from tracefx.transforms.arguments import flatten_values, fun_name, require_callable, to_arrays
from tracefx.transforms.body_tracing import (
    common_consts,
    common_type,
    convert_outputs,
    raise_structure_mismatch,
    require_matching_types,
)
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.derivative_checks import tangent_to_array
from tracefx.transforms.differentiation import jvp, linear_transpose
from tracefx.transforms.tracing import Trace, trace

T = TypeVar("T")
A = TypeVar("A")
Solver = Callable[[Callable[[T], T], T], Any]


@overload
def custom_linear_solve(
    matvec: Callable[[T], T],
    b: T,
    solve: Solver[T],
    transpose_solve: Solver[T] | None = None,
    symmetric: bool = False,
    has_aux: Literal[False] = False,
) -> T: ...
@overload
def custom_linear_solve(
    matvec: Callable[[T], T],
    b: T,
    solve: Solver[T],
    transpose_solve: Solver[T] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any: ...
@api_boundary
def custom_linear_solve(
    matvec: Callable[[T], T],
    b: T,
    solve: Solver[T],
    transpose_solve: Solver[T] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """Solves the linear equation `matvec(x) == b` with a user-defined solver that is not differentiated itself.

    Derivatives are those of the equation: the solver is called again for tangents and cotangents.

    Args:
        matvec: A linear function from pytrees like `b` to pytrees like `b`. Values that it closes over may be
            differentiated.
        b: The right-hand side, a pytree of arrays.
        solve: The solver `solve(matvec, b)`, which returns `x`. It is not differentiated, so it may be anything, for
            example an unbounded `while_loop`.
        transpose_solve: The solver `transpose_solve(vecmat, b)` for the transposed function `vecmat`, needed for
            reverse mode. None, the default, means that there is none, or that it is `solve` if `symmetric` is True.
        symmetric: Whether `matvec` is its own transpose. False by default.
        has_aux: Whether the solvers return a pair `(x, aux)`, whose second part is not differentiated. False by
            default.

    Returns:
        The solution `x`, a pytree like `b`, or `(x, aux)` with `has_aux`.

    Raises:
        TypeError: If a function is not callable, or if `matvec` or a solver returns another structure or other types
            than those of `b`.

    >>> import numpy as np
    >>> scale = np.array([2.0, 4.0])
    >>> custom_linear_solve(lambda x: scale * x, np.ones(2), lambda _, b: b / scale, symmetric=True).tolist()
    [0.5, 0.25]
    """
    for f in (matvec, solve, *(() if transpose_solve is None else (transpose_solve,))):
        require_callable("custom_linear_solve", f)
    if symmetric and transpose_solve is None:
        transpose_solve = solve
    where = "custom_linear_solve"
    values, tree = flatten_values(b, f"{where}: b")
    while True:
        multiply = _trace_like_operand(where, "matvec", matvec, tree, values, False)
        solver, aux = _trace_solver(where, "solve", lambda x: solve(matvec, x), tree, values, has_aux)
        wider = [
            varying(v, product.vma | x.vma)
            for v, product, x in zip(values, multiply.jaxpr.out_avals, solver.jaxpr.out_avals, strict=False)
        ]
        if all(map(operator.is_, wider, values)):
            break
        values = wider  # the right-hand side varies over the same mesh axes as the solution
    b = tree.unflatten(to_arrays(values))
    parts = [multiply, solver]
    if transpose_solve is not None:
        back = transpose_solve
        vecmat = matvec if symmetric else _transpose_matvec(matvec, b)
        parts += [
            multiply
            if symmetric
            else _trace_like_operand(where, "the transpose of matvec", vecmat, tree, values, False),
            _trace_solver(where, "transpose_solve", lambda x: back(vecmat, x), tree, values, has_aux)[0],
        ]
    jaxprs, consts = common_consts(parts)
    axes = tuple(checked_axes(current().axes))
    multiplied, solved, *back_again = jaxprs
    vecmat_jaxpr, transposed = back_again or (None, None)
    op = LinearSolve(len(consts), multiplied, solved, vecmat_jaxpr, transposed, axes)
    outs = to_arrays(bind(op, *consts, *values))
    x = tree.unflatten(outs[: len(values)])
    return (x, aux.unflatten(outs[len(values) :])) if has_aux else x


def _transpose_matvec(matvec: Callable[[T], T], b: T) -> Callable[[T], T]:
    """Returns the transposed function of `matvec`."""
    back = linear_transpose(matvec, b)

    def vecmat(x: Any) -> Any:
        return back(x)[0]

    return vecmat


def _trace_like_operand(
    where: str, name: str, f: Callable[[Any], Any], tree: TreeDef, values: Sequence[Value], has_aux: bool
) -> Trace:
    """Traces a function of one argument whose result has the structure of that argument; converts it to its types."""
    in_tree = trees.structure(((tree.unflatten(range(tree.num_leaves)),), {}))
    avals = [v.aval for v in values]
    traced = trace(f, in_tree, tuple(avals), None, fun_name(f), where)
    out, outs = traced.out_tree, traced.jaxpr.out_avals
    if has_aux:
        given = out.unflatten(range(out.num_leaves))
        if not isinstance(given, tuple) or len(given) != 2:
            raise TypeError(f"{where}: with has_aux=True {name} must return a pair (solution, aux), got {out}")
        out = trees.structure(given[0])
    n = len(avals)
    if out != tree:
        raise_structure_mismatch(f"{where}: b and the result of {name}", ("b", tree), (name, out))
    fits = [common_type(pair) is not None for pair in zip(avals, outs, strict=False)]
    remedy = "Convert the result, so that it has the type of the right-hand side."
    require_matching_types(f"{where}: b and the result of {name}", tree, ("b", avals), (name, outs[:n]), fits, remedy)
    return Trace(convert_outputs(traced.jaxpr, [*avals, *outs[n:]]), traced.consts, traced.out_tree, traced.name)


def _trace_solver(
    where: str, name: str, f: Callable[[Any], Any], tree: TreeDef, values: Sequence[Value], has_aux: bool
) -> tuple[Trace, TreeDef]:
    """Traces a solver. Returns the trace and the structure of its auxiliary output."""
    traced = _trace_like_operand(where, name, f, tree, values, has_aux)
    given = traced.out_tree.unflatten(range(traced.out_tree.num_leaves))
    return traced, trees.structure(given[1] if has_aux else ())


@overload
def custom_root(
    f: Callable[[Array], ArrayLike],
    initial_guess: ArrayLike,
    solve: Callable[[Callable[[Array], Array], Array], ArrayLike],
    tangent_solve: Callable[[Callable[[Array], Array], Array], ArrayLike],
    has_aux: Literal[False] = False,
) -> Array: ...
@overload
def custom_root(
    f: Callable[[T], T],
    initial_guess: T,
    solve: Callable[[Callable[[T], T], T], T],
    tangent_solve: Callable[[Callable[[T], T], T], T],
    has_aux: Literal[False] = False,
) -> T: ...
@overload
def custom_root(
    f: Callable[[T], T],
    initial_guess: T,
    solve: Callable[[Callable[[T], T], T], Any],
    tangent_solve: Callable[[Callable[[T], T], T], T],
    has_aux: bool = False,
) -> Any: ...
@api_boundary
def custom_root(
    f: Callable[[Any], Any],
    initial_guess: Any,
    solve: Callable[..., Any],
    tangent_solve: Callable[..., Any],
    has_aux: bool = False,
) -> Any:
    """Solves the equation `f(x) == 0` with a user-defined solver that is not differentiated itself.

    Derivatives with respect to the values that `f` closes over follow from the implicit function theorem: if these
    change so that `f` changes by `df`, the root changes by the solution `dx` of the linear equation `g(dx) == -df`,
    where `g` is the derivative of `f` at the root.

    Args:
        f: A function from pytrees like `initial_guess` to pytrees like it.
        initial_guess: A pytree of arrays, for the solver.
        solve: The solver `solve(f, initial_guess)`, which returns a root. It is not differentiated, so it may be
            anything.
        tangent_solve: A solver `tangent_solve(g, y)` of the linear equation `g(x) == y`. Reverse mode needs one that is
            linear in `y`, such as one by `custom_linear_solve`.
        has_aux: Whether `solve` returns a pair `(x, aux)`, whose second part is not differentiated. False by default.

    Returns:
        The root, a pytree like `initial_guess`, or `(root, aux)` with `has_aux`.

    Raises:
        TypeError: If a function is not callable, or if `f` or `solve` returns another structure or other types than
            those of `initial_guess`.

    >>> import tracefx as fx
    >>> def cube_root(a):
    ...     newton = lambda f, x: fx.lax.fori_loop(0, 20, lambda _, x: x - f(x) / (3 * x * x), x)
    ...     return custom_root(lambda x: x**3 - a, 1.0, newton, lambda g, y: y / g(1.0))
    >>> float(cube_root(8.0)), round(float(fx.grad(cube_root)(8.0)), 6)
    (2.0, 0.083333)
    """
    for given, name in ((f, "f"), (solve, "solve"), (tangent_solve, "tangent_solve")):
        require_callable("custom_root", given, name)
    where = "custom_root"
    values, tree = flatten_values(initial_guess, f"{where}: initial_guess")
    avals = [v.aval for v in values]
    residual = _trace_like_operand(where, "f", f, tree, values, False)
    solver, aux = _trace_solver(where, "solve", lambda x: solve(f, x), tree, values, has_aux)
    (f_jaxpr, solve_jaxpr), consts = common_consts([residual, solver])
    n = len(avals)

    def program(jaxpr: Jaxpr, consts: Sequence[Any], xs: Any) -> list[Any]:
        return to_arrays(eval_jaxpr(jaxpr, (), [*consts, *flatten_values(xs, where)[0]]))

    @custom_jvp
    def root(consts: list[Any], guess: Any) -> tuple[Any, Any]:
        outs = program(solve_jaxpr, consts, guess)
        return tree.unflatten(outs[:n]), aux.unflatten(outs[n:])

    def of_consts(x: Any, consts: list[Any]) -> Any:
        return tree.unflatten(program(f_jaxpr, consts, x))

    def rule(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
        (consts, guess), (d_consts, _) = primals, tangents
        x, aux_out = root(consts, guess)
        _, change = jvp(lambda cs: of_consts(x, cs), (consts,), (d_consts,))

        def linearized(dx: Any) -> Any:
            return jvp(lambda x: of_consts(x, consts), (x,), (dx,))[1]

        dx = tangent_solve(linearized, trees.map(lambda leaf: neg(leaf), change))
        flatten_values(dx, f"{where}: the result of tangent_solve")  # names it in the error
        return (x, aux_out), (dx, _zero_tangents(aux_out))

    root.defjvp(rule)
    x, aux_out = root(to_arrays(consts), initial_guess)
    return (x, aux_out) if has_aux else x


def _zero_tangents(tree: Any) -> Any:
    """Returns the zero tangents of an auxiliary output."""
    values, structure = flatten_values(tree, "custom_root: aux")
    return structure.unflatten([tangent_to_array(Zero(v.aval.tangent())) for v in values])
