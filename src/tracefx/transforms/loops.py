"""`while_loop` and `fori_loop`: a function applied again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast, final

from attrs import frozen

from tracefx.control.while_loop import BOOL_AVAL, While
from tracefx.core import dtypes, promotion
from tracefx.core.array import ArrayLike, is_arraylike
from tracefx.core.handler import Tracer, as_array, bind
from tracefx.core.settings import DISABLE_JIT
from tracefx.core.values import Value, as_value, to_numpy
from tracefx.ops.elementwise.bitwise import bitwise_and
from tracefx.ops.elementwise.comparison import lt
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.structural import convert_value
from tracefx.pytrees import trees
from tracefx.transforms.arguments import flatten_values, fun_name, require_callable, to_arrays
from tracefx.transforms.body_tracing import Adapter, CarryVaryingAxes, trace_body, trace_step
from tracefx.transforms.scans import steps

T = TypeVar("T")


def while_loop(
    cond_fun: Callable[[T], Any], body_fun: Callable[[T], T], init_val: T, *, max_steps: int | None = None
) -> T:
    """While `cond_fun(val)` holds, `val = body_fun(val)`, from `init_val` on: the last `val`.

    `val` is a tree of arrays that keeps its structure and types. Forward-mode differentiable. Reverse mode needs to
    know how far back it may have to go: with `max_steps=n` the loop ends after `n` steps at the latest, and can be
    differentiated in reverse, in the memory of about `2 * sqrt(n)` steps, each of them computed twice. Without, it
    raises `ValueError`.

    `TypeError` if `cond_fun` gives anything but a boolean scalar, or `body_fun` another structure or type.

    >>> while_loop(lambda x: x < 100.0, lambda x: x * 3.0, 1.0)
    Array(243., dtype=float32, weak_type=True)
    """
    require_callable("while_loop", cond_fun)
    require_callable("while_loop", body_fun)
    where = f"while_loop of {fun_name(body_fun)}"
    if max_steps is None:
        return cast(T, _adapted_while_loop(cond_fun, None, body_fun, None, where, init_val, None))
    if isinstance(max_steps, bool) or not hasattr(max_steps, "__index__") or max_steps < 1:
        raise ValueError(f"{where}: max_steps must be a positive integer, got {max_steps!r}")
    n = max_steps.__index__()
    _, val = _adapted_while_loop(
        cond_fun, Adapter(_BoundedCondition(n), _user_value), body_fun, _COUNT_STEPS, where, (0, init_val), n
    )
    return cast(T, val)


@final
@frozen
class _BoundedCondition:
    """Makes of a condition one that a number of steps ends as well."""

    max_steps: int

    def __call__(self, cond_fun: Callable[..., Any]) -> Callable[..., Any]:
        def goes(carry: tuple[Any, Any]) -> Any:
            steps, val = carry
            asked = cond_fun(val)
            if not is_arraylike(asked) or as_value(asked).aval.strong() != BOOL_AVAL:
                return asked  # which is refused
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
    """`while_loop` with the functions adapted; messages call it `where`."""
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
    moving = CarryVaryingAxes()
    while True:
        body, step, carry = trace_step(
            where, body_fun, in_tree, carry, tree, (), lambda t: t.out_tree, body_adapt, moving
        )
        going = trace_body(where, cond_fun, in_tree, [c.aval for c in carry], cond_adapt, moving.known(carry, ()))
        if not moving.join_condition(going):  # where the number of steps differs, all does that a step changes
            break
    if going.jaxpr.out_avals != (BOOL_AVAL,) or going.out_tree != trees.structure(0):
        given = going.out_tree.unflatten(map(str, going.jaxpr.out_avals))
        raise TypeError(f"{where}: cond_fun must give a boolean scalar, got {given}")
    asked, done = len(going.consts), len(body.consts)
    key = ("while", id(going.jaxpr), asked, done, max_steps)
    op = step.memo.get(key, lambda: While(step, done, going.jaxpr, asked, max_steps))
    return tree.unflatten(to_arrays(bind(op, *going.consts, *body.consts, *carry)))


def _run_in_python(cond_fun: Callable[[T], Any], body_fun: Callable[[T], T], val: T) -> tuple[T, bool]:
    """The same in Python, for `disable_jit`: how far it comes, and whether that is the end.

    Where the condition has no value, under `vmap` say, the steps from there on are staged all the same.
    """
    while True:
        goes = cond_fun(val)
        if isinstance(goes, Tracer):
            return val, False
        if not goes:
            return val, True
        val = body_fun(val)


def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Any, T], T],
    init_val: T,
    *,
    unroll: int | bool | None = None,
) -> T:
    """`val = body_fun(i, val)` for `i` from `lower` up to but not including `upper`: the last `val`.

    With bounds known when it is traced, it is a `scan`, differentiable in both modes, and `unroll` steps stand in one
    round of the compiled loop; otherwise a `while_loop`.

    Floating-point bounds are truncated to integers where they are known when it is traced.

    `TypeError` for bounds that are no scalars of one dtype, or a `val` that changes its type; `ValueError` for `unroll`
    where the bounds are traced.

    >>> fori_loop(1, 4, lambda i, product: product * i, 1)
    Array(6, dtype=int32, weak_type=True)
    """
    require_callable("fori_loop", body_fun)
    where = f"fori_loop of {fun_name(body_fun)}"
    first, end = [_check_bound(where, name, x) for name, x in (("lower", lower), ("upper", upper))]
    if dtypes.is_integer(first.aval.dtype) != dtypes.is_integer(end.aval.dtype):
        raise TypeError(f"{where}: lower and upper must be of one dtype, got {first.aval} and {end.aval}")
    dtype, weak = promotion.promote([(b.aval.dtype, b.aval.weak_type) for b in (first, end)])
    first, end = [convert_value(b, dtype, weak) for b in (first, end)]
    known = not isinstance(first, Tracer) and not isinstance(end, Tracer)
    if known and not dtypes.is_integer(dtype):
        first, end = as_value(int(to_numpy(first))), as_value(int(to_numpy(end)))
    if DISABLE_JIT.value:  # where the function gets them as they are
        first, end = as_array(first), as_array(end)
    if known:
        count = max(int(to_numpy(end)) - int(to_numpy(first)), 0)
        if not count and DISABLE_JIT.value:
            return init_val
        (_, val), _ = steps(body_fun, _FORI_SCAN, where, (first, init_val), None, count, False, unroll or 1)
        return cast(T, val)
    if unroll not in (None, False, 0, 1):
        raise ValueError(f"{where}: unroll needs bounds that are known when it is traced, not {first} and {end}")
    _, _, val = _adapted_while_loop(_fori_condition, None, body_fun, _FORI_WHILE, where, (first, end, init_val), None)
    return cast(T, val)


def _check_bound(where: str, name: str, x: object) -> Value:
    if not is_arraylike(x):
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
