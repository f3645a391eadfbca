"""`custom_gradient`: a differentiable function from one that returns its output and its backward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, final

from attrs import frozen
from typing_extensions import ParamSpec

from tracefx.core import Value, as_value
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import current
from tracefx.core.jaxpr import Jaxpr
from tracefx.interpreters.stage import stage
from tracefx.pytrees import trees
from tracefx.pytrees.trees import TreeDef
from tracefx.transforms.arguments import flatten_values, fun_label, fun_name, output_label, require_callable, to_arrays
from tracefx.transforms.custom_derivatives import custom_vjp
from tracefx.transforms.custom_functions import call_untyped, require_pair

P = ParamSpec("P")
R = TypeVar("R")


def custom_gradient(fun: Callable[P, tuple[R, Callable[..., Any]]]) -> Callable[P, R]:
    """Returns a differentiable function from a function that returns its output and its backward pass.

    Args:
        fun: A function that returns `(output, pull)`. `pull` takes the cotangent of the output, and returns a tuple
            with one cotangent per argument, or just the cotangent of a single argument. It may use the intermediate
            values of `fun`. It is traced, so its Python control flow cannot depend on the values of cotangents.

    Returns:
        A function with the parameters of `fun` that returns the output alone.

    Raises:
        TypeError: If `fun` is not callable, or, when the result is called, if it does not return a pair.

    >>> from tracefx import grad
    >>> @custom_gradient
    ... def square(x):
    ...     return x**2, lambda ct: (ct * x,)
    >>> float(square(3.0)), float(grad(square)(3.0))
    (9.0, 3.0)
    """
    require_callable("custom_gradient", fun)

    @functools.wraps(fun)
    def output(*args: P.args, **kwargs: P.kwargs) -> R:
        out: R = require_pair(f"custom_gradient of {fun_label(fun)}: the function", fun(*args, **kwargs), _PAIR)[0]
        return out

    def fwd(*args: Any) -> tuple[Any, trees.Partial[Any]]:
        out, pull = require_pair(f"custom_gradient of {fun_label(fun)}: the function", call_untyped(fun, args), _PAIR)
        values, out_tree = flatten_values(out, output_label(fun))
        in_tree: TreeDef | None = None

        def pulled(*cts: Value) -> list[Value]:
            nonlocal in_tree
            result_cts = pull(out_tree.unflatten(to_arrays(cts)))
            result_cts = result_cts if isinstance(result_cts, tuple | list) else (result_cts,)
            leaves, in_tree = flatten_values(tuple(result_cts), f"the result of the backward pass of {fun_label(fun)}")
            return leaves

        jaxpr, consts = stage(pulled, [x.aval.tangent() for x in values], current())
        assert in_tree is not None
        return out, trees.Partial(_TracedPullback(fun_name(fun), jaxpr, in_tree), *to_arrays(consts))

    def bwd(residuals: trees.Partial[Any], ct: Any) -> Any:
        return residuals(ct)

    custom: custom_vjp[P, R] = custom_vjp(output)
    custom.defvjp(fwd, bwd)
    return custom


_PAIR = "output, backward pass"


@final
@frozen
class _TracedPullback:
    """A traced backward pass, as a function of its constants and the cotangent."""

    name: str
    jaxpr: Jaxpr
    in_tree: TreeDef

    def __call__(self, *consts_and_ct: Any) -> Any:
        *consts, ct = consts_and_ct
        cts, _ = flatten_values(ct, f"the cotangents of {self.name}")
        return self.in_tree.unflatten(to_arrays(eval_jaxpr(self.jaxpr, list(map(as_value, consts)), cts)))
