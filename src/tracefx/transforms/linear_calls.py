"""`linear_call`: a linear function that brings its transpose along."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tracefx.control.callables import derive
from tracefx.control.custom_vjp import CustomLinear
from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind, current, varies
from tracefx.core.primitive import Tangent
from tracefx.core.values import Value
from tracefx.interpreters.stage import stage
from tracefx.ops.structural import convert_value, instantiate
from tracefx.pytrees import trees
from tracefx.pytrees.trees import TreeDef
from tracefx.transforms.arguments import flatten_values, fun_name, require_callable, to_arrays
from tracefx.transforms.body_tracing import require_matching_types
from tracefx.transforms.custom_functions import is_valid_tangent, user_code_boundary

Res = TypeVar("Res")
X = TypeVar("X")
Y = TypeVar("Y")


def linear_call(
    fun: Callable[[Res, X], Y], fun_transpose: Callable[[Res, Y], X], residual_args: Res, linear_args: X
) -> Y:
    """`fun(residual_args, linear_args)`, whose transpose in the second argument is `fun_transpose`.

    Transposition, and so reverse mode, calls `fun_transpose(residual_args, cotangent)`, whose transpose in turn is
    `fun`. Both must be linear in their second argument, and each other's transpose: nobody checks it.

    Raises TypeError if linear arguments or outputs are no floats or complex numbers, or if `fun_transpose` gives other
    types than those of `linear_args`.

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
    jaxpr, consts = stage(flat, [x.aval for x in given], current(), along=list(map(varies, given)))
    body, structure, held = jaxpr.closed(), out_tree, len(consts)
    _require_inexact(f"linear_call of {name}: linear arguments", in_avals)
    _require_inexact(f"linear_call of {name}: outputs", body.out_avals)

    @derive(fun, body)
    def push(*values: Value) -> list[Value]:
        return eval_jaxpr(body, (), values)

    @derive(fun_transpose, held, res_tree, structure, in_tree, tuple(in_avals))
    @user_code_boundary(back_name)
    def pull(values: Sequence[Value], cts: Sequence[Tangent]) -> Sequence[Tangent]:
        of_output = structure.unflatten(to_arrays([instantiate(ct) for ct in cts]))
        found = fun_transpose(res_tree.unflatten(to_arrays(values[held:])), of_output)
        return _check_transpose_output(f"{back_name}, the transpose of {name},", found, in_tree, in_avals)

    prim = CustomLinear(name, pull, held + count, (True,) * len(operands), body.out_avals, push)
    result: Y = structure.unflatten(to_arrays(bind(prim, *consts, *residuals, *operands)))
    return result


def _require_inexact(what: str, avals: Sequence[ShapedArray]) -> None:
    for aval in avals:
        if not dtypes.is_inexact(aval.dtype):
            raise TypeError(f"{what} must be floats or complex numbers, got {aval}")


def _check_transpose_output(what: str, found: Any, in_tree: TreeDef, avals: Sequence[ShapedArray]) -> list[Value]:
    values, tree = flatten_values(found, what)
    trees.require_same_structure(f"what {what} gives", in_tree, tree, "linear_args", "it")
    given = [x.aval for x in values]
    fit = [is_valid_tangent(a, b) for a, b in zip(given, avals, strict=True)]
    require_matching_types(
        f"linear_args and what {what} gives", tree, ("linear_args", avals), ("given", given), fit, ""
    )
    return [convert_value(x, a.dtype, a.weak_type) for x, a in zip(values, avals, strict=True)]
