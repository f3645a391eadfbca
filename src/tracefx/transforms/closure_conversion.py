"""`closure_convert`: closed-over values of a function as additional arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from typing_extensions import ParamSpec

from tracefx.core import Value, as_value, dtypes
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import Tracer, current
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interpreters.stage import stage
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, TreeDef
from tracefx.transforms.arguments import flatten_values, fun_name, require_callable, to_arrays
from tracefx.transforms.custom_functions import call_untyped

P = ParamSpec("P")
R = TypeVar("R")


@api_boundary
def closure_convert(fun: Callable[P, R], *example_args: PyTree) -> tuple[Callable[..., R], list[Any]]:
    """Converts a function with closed-over values to one that takes them as additional arguments.

    Use it for functions that are arguments of a `custom_jvp` or `custom_vjp` function: closed-over values are
    differentiated only as arguments. Pass `values` on as differentiated arguments, and call `converted` with them.

    Args:
        fun: A pure function. It is traced, and may later be called only with arguments of the same structure and types.
        *example_args: Arguments of `fun`, of which structure, shapes and dtypes are used.

    Returns:
        A pair `(converted, values)`. `converted(*args, *values)` computes `fun(*args)`; `values` is the list of the
        closed-over tracers of a floating-point or complex dtype.

    Raises:
        TypeError: If `fun` is not callable, or, when `converted` is called, if the arguments have another structure.

    >>> from tracefx import grad
    >>> def slope(scale):
    ...     converted, values = closure_convert(lambda x: x * scale, 1.0)
    ...     return converted(3.0, *values)
    >>> float(grad(slope)(2.0))
    3.0
    """
    require_callable("closure_convert", fun)
    name = fun_name(fun)
    values, in_tree = flatten_values(example_args, f"closure_convert of {name}: example_args")
    out_tree: TreeDef | None = None

    def flat(*values: Value) -> list[Value]:
        nonlocal out_tree
        outs, out_tree = flatten_values(
            call_untyped(fun, in_tree.unflatten(to_arrays(values))), f"the output of {name}"
        )
        return outs

    jaxpr, consts = stage(flat, [x.aval for x in values], current())
    assert out_tree is not None
    structure = out_tree
    is_argument = [isinstance(c, Tracer) and dtypes.is_inexact(c.aval.dtype) for c in consts]
    closed_over = to_arrays([c for c, m in zip(consts, is_argument, strict=True) if m])

    @functools.wraps(fun)
    def converted(*args: Any) -> R:
        count = len(args) - len(closed_over)
        flat_args, tree = flatten_values(tuple(args[:count]), f"the converted {name}: arguments")
        what = f"the converted {name}: the tuple of arguments, without the last {len(closed_over)},"
        trees.require_same_structure(what, in_tree, tree, "example_args", "the arguments")
        remaining = iter([as_value(x) for x in args[count:]])
        given = [next(remaining) if m else c for c, m in zip(consts, is_argument, strict=True)]
        result: R = structure.unflatten(to_arrays(eval_jaxpr(jaxpr, given, flat_args)))
        return result

    return converted, closed_over
