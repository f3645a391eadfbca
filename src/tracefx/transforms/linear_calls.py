"""`linear_call`: a linear function with a user-defined transpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tracefx.control.callables import derive
from tracefx.control.custom_vjp import CustomLinear
from tracefx.core import ShapedArray, Value, dtypes
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind, current
from tracefx.core.primitive import Tangent
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interpreters.stage import stage
from tracefx.ops.structural import convert_value, instantiate
from tracefx.pytrees import trees
from tracefx.pytrees.trees import TreeDef
from tracefx.transforms.arguments import flatten_values, fun_name, require_callable, to_arrays
from tracefx.transforms.body_tracing import require_matching_types
from tracefx.transforms.custom_functions import user_code_boundary
from tracefx.transforms.derivative_checks import is_valid_tangent

Res = TypeVar("Res")
X = TypeVar("X")
Y = TypeVar("Y")


@api_boundary
def linear_call(
    fun: Callable[[Res, X], Y], fun_transpose: Callable[[Res, Y], X], residual_args: Res, linear_args: X
) -> Y:
    """Calls a linear function whose transpose is user-defined.

    Reverse mode calls `fun_transpose(residual_args, cotangent)` instead of transposing `fun`; the transpose of that is
    `fun` again. It is not checked that the two are linear and transposes of each other.

    Args:
        fun: The function `fun(residual_args, linear_args)`, linear in its second argument.
        fun_transpose: Its transpose `fun_transpose(residual_args, cotangent)`, linear in its second argument. It
            returns a pytree of the structure and types of `linear_args`.
        residual_args: A pytree of arrays.
        linear_args: A pytree of floating-point or complex arrays.

    Returns:
        `fun(residual_args, linear_args)`.

    Raises:
        TypeError: If a function is not callable, or if linear arguments or outputs are not floating-point or complex.
            When transposed: if the result of `fun_transpose` does not have the structure and types of `linear_args`.

    >>> from tracefx import linear_transpose
    >>> def scaled(x):
    ...     return linear_call(lambda r, x: x / r, lambda r, ct: ct / r, 4.0, x)
    >>> float(scaled(2.0)), float(linear_transpose(scaled, 1.0)(8.0)[0])
    (0.5, 2.0)
    """
    require_callable("linear_call", fun)
    require_callable("linear_call", fun_transpose)
    name, back_name = fun_name(fun), fun_name(fun_transpose)
    residuals, res_tree = flatten_values(residual_args, f"linear_call of {name}: residual_args")
    operands, in_tree = flatten_values(linear_args, f"linear_call of {name}: linear_args")
    in_avals = [x.aval for x in operands]
    count, out_tree = len(residuals), trees.structure(None)

    @user_code_boundary(name)
    def flat(*values: Value) -> list[Value]:
        nonlocal out_tree
        given = to_arrays(values)
        out = fun(res_tree.unflatten(given[:count]), in_tree.unflatten(given[count:]))
        outs, out_tree = flatten_values(out, f"the output of {name}")
        return outs

    given = [*residuals, *operands]
    jaxpr, consts = stage(flat, [x.aval for x in given], current())
    body, structure, const_count = jaxpr.closed(), out_tree, len(consts)
    _require_inexact(f"linear_call of {name}: linear arguments", in_avals)
    _require_inexact(f"linear_call of {name}: outputs", body.out_avals)

    @derive(fun, body)
    def push(*values: Value) -> list[Value]:
        return eval_jaxpr(body, (), values)

    @derive(fun_transpose, const_count, res_tree, structure, in_tree, tuple(in_avals))
    @user_code_boundary(back_name)
    def pull(values: Sequence[Value], cts: Sequence[Tangent]) -> Sequence[Tangent]:
        of_output = structure.unflatten(to_arrays([instantiate(ct) for ct in cts]))
        transposed = fun_transpose(res_tree.unflatten(to_arrays(values[const_count:])), of_output)
        return _check_transpose_output(f"{back_name}, the transpose of {name},", transposed, in_tree, in_avals)

    prim = CustomLinear(name, pull, const_count + count, (True,) * len(operands), body.out_avals, push)
    result: Y = structure.unflatten(to_arrays(bind(prim, *consts, *residuals, *operands)))
    return result


def _require_inexact(what: str, avals: Sequence[ShapedArray]) -> None:
    """Raises TypeError unless all types are floating-point or complex."""
    for aval in avals:
        if not dtypes.is_inexact(aval.dtype):
            raise TypeError(f"{what} must be floats or complex numbers, got {aval}")


def _check_transpose_output(what: str, transposed: Any, in_tree: TreeDef, avals: Sequence[ShapedArray]) -> list[Value]:
    """Returns the output of the transpose, converted to the types of `linear_args`."""
    values, tree = flatten_values(transposed, what)
    trees.require_same_structure(f"the output of {what}", in_tree, tree, "linear_args", "it")
    given = [x.aval for x in values]
    fit = [is_valid_tangent(a, b) for a, b in zip(given, avals, strict=True)]
    require_matching_types(
        f"linear_args and the output of {what}", tree, ("linear_args", avals), ("output", given), fit, ""
    )
    return [convert_value(x, a.dtype, a.weak_type) for x, a in zip(values, avals, strict=True)]
