"""`while_loop` and `fori_loop`: a function applied repeatedly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, final, overload

from attrs import frozen

from tracefx.bounded_cache import MemoKey
from tracefx.control.while_loop import BOOL_AVAL, While
from tracefx.core import Array, ArrayLike, Value, as_value, dtypes, is_arraylike, to_numpy
from tracefx.core.avals import NOT_VARYING, join_vma, without_vma
from tracefx.core.handler import Tracer, as_array, bind
from tracefx.core.jaxpr import Jaxpr
from tracefx.dimensions.symbolic_dimensions import is_symbolic_dim
from tracefx.errors import RefError
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interpreters.refs import Ref
from tracefx.ops import promotion
from tracefx.ops.elementwise.bitwise import bitwise_and
from tracefx.ops.elementwise.comparison import lt
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.structural import convert_value
from tracefx.pytrees import trees
from tracefx.settings import DISABLE_JIT
from tracefx.transforms.arguments import flatten_values, fun_label, require_callable, to_arrays
from tracefx.transforms.body_tracing import Adapter, rearranged, trace_body, trace_step
from tracefx.transforms.function_types import NamedTupleLike
from tracefx.transforms.scans import scan_adapted
from tracefx.transforms.tracing import Trace

T = TypeVar("T")
N = TypeVar("N", bound=NamedTupleLike)


@overload
def while_loop(
    cond_fun: Callable[[Array], ArrayLike],
    body_fun: Callable[[Array], ArrayLike],
    init_val: ArrayLike,
    *,
    max_steps: int | None = None,
) -> Array: ...
@overload
def while_loop(
    cond_fun: Callable[[N], ArrayLike],
    body_fun: Callable[[N], N],
    init_val: N,
    *,
    max_steps: int | None = None,
) -> N: ...
@overload
def while_loop(
    cond_fun: Callable[[tuple[Array, Array]], ArrayLike],
    body_fun: Callable[[tuple[Array, Array]], tuple[ArrayLike, ArrayLike]],
    init_val: tuple[ArrayLike, ArrayLike],
    *,
    max_steps: int | None = None,
) -> tuple[Array, Array]: ...
@overload
def while_loop(
    cond_fun: Callable[[tuple[Array, T]], ArrayLike],
    body_fun: Callable[[tuple[Array, T]], tuple[ArrayLike, T]],
    init_val: tuple[ArrayLike, T],
    *,
    max_steps: int | None = None,
) -> tuple[Array, T]: ...
@overload
def while_loop(
    cond_fun: Callable[[T], ArrayLike],
    body_fun: Callable[[T], T],
    init_val: T,
    *,
    max_steps: int | None = None,
) -> T: ...
@api_boundary
def while_loop(
    cond_fun: Callable[[Any], ArrayLike],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    *,
    max_steps: int | None = None,
) -> Any:
    """Applies `body_fun` as long as `cond_fun` is true.

    It computes the same as this loop, but both functions are traced once and compiled to one loop:

        def while_loop(cond_fun, body_fun, init_val):
            val = init_val
            while cond_fun(val):
                val = body_fun(val)
            return val

    The loop variable keeps its structure, shapes and dtypes, so it cannot collect a result per step; write results into
    an array of fixed size (`x.at[i].set(...)`), or use `scan` for a known number of steps. Under `vmap` with a batched
    condition, the loop runs until the condition is false for all elements, and elements that are done keep their
    values.

    Python numbers in `init_val` are weakly typed: where `body_fun` returns another dtype for one of them, the loop
    variable has this dtype from the start, as if the number had been converted before the loop. Arrays of a definite
    dtype are not converted: `body_fun` must return their dtype.

    It is differentiable in forward mode. Reverse mode needs a bound on the number of steps, `max_steps`.

    Args:
        cond_fun: A function of the loop variable that returns a boolean scalar, `bool[]`.
        body_fun: A function of the loop variable that returns its new value, of the same structure, shapes and dtypes.
        init_val: The first value of the loop variable, a pytree of arrays. Python numbers take the dtype that
            `body_fun` returns for them.
        max_steps: A bound on the number of steps: after so many the loop ends even if `cond_fun` is still true. The
            loop is then differentiable in reverse mode, in the memory of about `2 * sqrt(max_steps)` steps; each step
            is computed twice. None, the default, is no bound.

    Returns:
        The last value of the loop variable.

    Raises:
        TypeError: If a function is not callable, `cond_fun` does not return a boolean scalar, or `body_fun` changes the
            structure, shapes or dtypes of the loop variable.
        ValueError: If `max_steps` is not a positive integer. Under reverse mode, if there is no `max_steps`.

    >>> while_loop(lambda x: x < 100.0, lambda x: x * 3.0, 1.0)
    Array(243., dtype=float32, weak_type=True)

    The integer 0 becomes a float32, because the body returns one:

    >>> import numpy as np
    >>> while_loop(lambda x: x < 3, lambda x: x + np.float32(0.5), 0)
    Array(3., dtype=float32)

    The square root by Newton's method, with the number of steps, and its derivative in reverse mode:

    >>> from tracefx import grad
    >>> def root(x):
    ...     goes = lambda state: abs(state[0] ** 2 - x) > 1e-4
    ...     step = lambda state: ((state[0] + x / state[0]) / 2, state[1] + 1)
    ...     return while_loop(goes, step, (x, 0), max_steps=20)
    >>> [float(each) for each in root(4.0)]
    [2.0, 4.0]
    >>> f"{grad(lambda x: root(x)[0])(4.0):.3f}"
    '0.250'
    """
    require_callable("while_loop", cond_fun, "cond_fun")
    require_callable("while_loop", body_fun, "body_fun")
    where = f"while_loop of {fun_label(body_fun)}"
    if max_steps is None:
        return _adapted_while_loop(cond_fun, None, body_fun, None, where, init_val, None)
    if isinstance(max_steps, bool) or not hasattr(max_steps, "__index__") or max_steps < 1:
        raise ValueError(f"{where}: max_steps must be a positive integer, got {max_steps!r}")
    n = max_steps.__index__()
    _, val = _adapted_while_loop(
        cond_fun, Adapter(_BoundedCondition(n), _user_value), body_fun, _COUNT_STEPS, where, (0, init_val), n
    )
    return val


@final
@frozen
class _BoundedCondition:
    """Adapts a condition so that it is false after `max_steps` steps."""

    max_steps: int

    def __call__(self, cond_fun: Callable[..., Any]) -> Callable[..., Any]:
        def goes(carry: tuple[Any, Any]) -> Any:
            steps, val = carry
            asked = cond_fun(val)
            if not is_arraylike(asked) or as_value(asked).aval.strong() != BOOL_AVAL:
                return asked  # an error, which the caller raises
            return bitwise_and(lt(steps, self.max_steps), asked)

        return goes


def _user_value(carry: tuple[Any, Any]) -> tuple[Any]:
    return (carry[1],)


def _count_steps(body_fun: Callable[..., Any]) -> Callable[..., Any]:
    def step(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        steps, val = carry
        return add(steps, 1), body_fun(val)

    return step


_COUNT_STEPS: Final = Adapter(_count_steps, _user_value)


def _adapted_while_loop(
    cond_fun: Callable[..., Any],
    cond_adapt: Adapter | None,
    body_fun: Callable[..., Any],
    body_adapt: Adapter | None,
    where: str,
    init: Any,
    max_steps: int | None,
) -> Any:
    """Does the work of `while_loop` for adapted functions; `where` begins the messages."""
    carry, tree = flatten_values(init, f"{where}: init_val")
    if DISABLE_JIT.value:
        init, ended = _run_in_python(
            cond_fun if cond_adapt is None else cond_adapt.adapt(cond_fun),
            body_fun if body_adapt is None else body_adapt.adapt(body_fun),
            init,
        )
        if ended:
            return init
        carry, tree = flatten_values(init, f"{where}: init_val")
    in_tree = trees.structure(((tree.unflatten(range(tree.num_leaves)),), {}))
    carry_vma = NOT_VARYING
    while True:  # fixed point: all carries vary over the mesh axes over which the number of steps does
        body, step, carry = trace_step(
            where, body_fun, in_tree, carry, tree, (), lambda t: t.out_tree, body_adapt, carry_vma
        )
        carry_avals = step.in_avals[len(body.consts) :]
        condition = trace_body(where, cond_fun, in_tree, carry_avals, cond_adapt, writes_refs=True)
        if condition.written:
            raise RefError(
                f"{where}: cond_fun writes {condition.written[0].description}: only body_fun may write to references"
            )
        steps_vma = join_vma(condition.jaxpr.out_avals)
        if steps_vma <= carry_vma:
            break
        carry_vma = steps_vma
    if without_vma(condition.jaxpr.out_avals) != (BOOL_AVAL,) or condition.out_tree != trees.structure(0):
        given = condition.out_tree.unflatten(map(str, condition.jaxpr.out_avals))
        raise TypeError(f"{where}: cond_fun must return a boolean scalar, got {given}")
    consts, written = body.consts, len(body.written)
    goes, cond_consts = _condition_of_carry(condition, body.written)
    asked, done = len(cond_consts), len(consts) - written
    arguments = id(goes), asked, done, max_steps  # the cached primitive keeps the condition alive
    op = step.memo.get(_WHILE, arguments, lambda: While(step, done, goes, asked, max_steps))
    results = bind(op, *cond_consts, *consts, *carry)
    return tree.unflatten(to_arrays(body.write_refs(results)))


def _condition_of_carry(condition: Trace, written: Sequence[Ref]) -> tuple[Jaxpr, list[Value]]:
    """Returns the condition of a loop whose carry begins with the contents of references, and its constants."""
    if not written:
        return condition.jaxpr, list(condition.consts)
    n = len(condition.constants)
    own = {ref: n + i for i, ref in enumerate(condition.read)}
    constants = [*range(n), *[i for ref, i in own.items() if ref not in written]]
    carried = [own.get(ref, ref.aval.contents) for ref in written]
    others = range(n + len(own), len(condition.jaxpr.invars))
    consts = condition.consts
    return rearranged(condition.jaxpr, (*constants, *carried, *others)), [consts[i] for i in constants]


_WHILE: Final = MemoKey[While]("the primitive of a body and the condition with this id")


def _run_in_python(cond_fun: Callable[[T], Any], body_fun: Callable[[T], T], val: T) -> tuple[T, bool]:
    """Runs the loop in Python, for `disable_jit`. Returns the loop variable, and whether the loop has ended.

    It stops early where the condition is a tracer, under `vmap` for example: the remaining steps are staged.
    """
    while True:
        goes = cond_fun(val)
        if isinstance(goes, Tracer):
            return val, False
        if not goes:
            return val, True
        val = body_fun(val)


@overload
def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Any, Array], ArrayLike],
    init_val: ArrayLike,
    *,
    unroll: int | bool | None = None,
) -> Array: ...
@overload
def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Any, N], N],
    init_val: N,
    *,
    unroll: int | bool | None = None,
) -> N: ...
@overload
def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Any, tuple[Array, Array]], tuple[ArrayLike, ArrayLike]],
    init_val: tuple[ArrayLike, ArrayLike],
    *,
    unroll: int | bool | None = None,
) -> tuple[Array, Array]: ...
@overload
def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Any, tuple[Array, T]], tuple[ArrayLike, T]],
    init_val: tuple[ArrayLike, T],
    *,
    unroll: int | bool | None = None,
) -> tuple[Array, T]: ...
@overload
def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Any, T], T],
    init_val: T,
    *,
    unroll: int | bool | None = None,
) -> T: ...
@api_boundary
def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    unroll: int | bool | None = None,
) -> Any:
    """Applies `body_fun` to the loop variable for each integer from `lower` to `upper - 1`.

    It computes the same as this loop, but `body_fun` is traced once and compiled to one loop:

        def fori_loop(lower, upper, body_fun, init_val):
            val = init_val
            for i in range(lower, upper):
                val = body_fun(i, val)
            return val

    Inside `body_fun` the index is traced: it can index arrays but not Python lists, and it cannot be a shape. The loop
    variable keeps its structure, shapes and dtypes; Python numbers in `init_val` take the dtypes that `body_fun`
    returns for them.

    With concrete bounds it is a `scan`, and differentiable in both modes. With traced bounds it is a `while_loop`, and
    differentiable in forward mode.

    Args:
        lower: The first index, an integer scalar. A floating-point scalar is truncated if it is concrete.
        upper: The end of the range, of the same dtype.
        body_fun: A function `body_fun(i, val)` that returns the new value of the loop variable, of the same structure,
            shapes and dtypes.
        init_val: The first value of the loop variable, a pytree of arrays.
        unroll: How many steps one iteration of the compiled loop does; only for concrete bounds. None, the default,
            means one.

    Returns:
        The last value of the loop variable; `init_val` if the range is empty.

    Raises:
        TypeError: If `body_fun` is not callable or changes the structure, shapes or dtypes of the loop variable, or if
            the bounds are not real scalars of one dtype.
        ValueError: If `unroll` is given although the bounds are traced.

    >>> fori_loop(1, 4, lambda i, product: product * i, 1)
    Array(6, dtype=int32, weak_type=True)

    A loop that writes into an array:

    >>> import tracefx.numpy as fnp
    >>> fori_loop(1, 5, lambda i, x: x.at[i].set(2 * x[i - 1]), fnp.ones(5)).tolist()
    [1.0, 2.0, 4.0, 8.0, 16.0]
    """
    require_callable("fori_loop", body_fun)
    where = f"fori_loop of {fun_label(body_fun)}"
    first, end = [_check_bound(where, name, x) for name, x in (("lower", lower), ("upper", upper))]
    if dtypes.is_integer(first.aval.dtype) != dtypes.is_integer(end.aval.dtype):
        raise TypeError(f"{where}: lower and upper must be of one dtype, got {first.aval} and {end.aval}")
    dtype, weak = promotion.promote([(b.aval.dtype, b.aval.weak_type) for b in (first, end)])
    first, end = [convert_value(b, dtype, weak) for b in (first, end)]
    known = not isinstance(first, Tracer) and not isinstance(end, Tracer)
    if known:  # the counter is weakly typed, so that it does not change the dtype of the loop variable
        first, end = as_value(int(to_numpy(first))), as_value(int(to_numpy(end)))
    if DISABLE_JIT.value:  # the body gets the bounds themselves
        first, end = as_array(first), as_array(end)
    if known:
        count = max(int(to_numpy(end)) - int(to_numpy(first)), 0)
        if not count and DISABLE_JIT.value:
            return init_val
        (_, val), _ = scan_adapted(body_fun, _FORI_SCAN, where, (first, init_val), None, count, False, unroll or 1)
        return val
    if unroll not in (None, False, 0, 1):
        raise ValueError(f"{where}: unroll needs concrete bounds, got {first} and {end}")
    _, _, val = _adapted_while_loop(_fori_condition, None, body_fun, _FORI_WHILE, where, (first, end, init_val), None)
    return val


def _check_bound(where: str, name: str, x: object) -> Value:
    """Returns a bound of `fori_loop` as a value; raises TypeError unless it is a real scalar."""
    if not is_arraylike(x) and not is_symbolic_dim(x):
        raise TypeError(f"{where}: {name} must be a real scalar, got {x!r} of type {type(x).__name__}")
    value = as_value(x)
    if value.aval.shape or not (dtypes.is_integer(value.aval.dtype) or dtypes.is_float(value.aval.dtype)):
        raise TypeError(f"{where}: {name} must be a real scalar, got one of type {value.aval}")
    return value


def _fori_scan_body(body_fun: Callable[..., Any]) -> Callable[..., Any]:
    def step(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
        i, val = carry
        return (add(i, 1), body_fun(i, val)), None

    return step


_FORI_SCAN: Final = Adapter(_fori_scan_body, lambda carry, _: carry)


def _fori_while_body(body_fun: Callable[..., Any]) -> Callable[..., Any]:
    def step(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        i, end, val = carry
        return add(i, 1), end, body_fun(i, val)

    return step


_FORI_WHILE: Final = Adapter(_fori_while_body, lambda carry: (carry[0], carry[2]))


def _fori_condition(carry: tuple[Any, Any, Any]) -> Any:
    i, end, _ = carry
    return lt(i, end)
