"""`make_jaxpr`, `eval_shape`, `named_call`: functions as programs, without running them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from typing_extensions import ParamSpec

from tracefx.core.jaxpr import ClosedJaxpr, eval_jaxpr
from tracefx.core.source import named_scope
from tracefx.core.values import as_value
from tracefx.transforms.arguments import argument_names, name_of, require_callable, to_arrays
from tracefx.transforms.jit import jit_options
from tracefx.transforms.shapes import ShapeDtypeStruct, flatten_avals
from tracefx.transforms.statics import StaticArguments
from tracefx.transforms.tracing import Trace, trace

P = ParamSpec("P")
R = TypeVar("R")


def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    return_shape: bool = False,
) -> Callable[..., Any]:
    """A function that gives the program of `fun` for its arguments, which may be arrays or only types.

    With `return_shape` the second result is the tree of the outputs' types.

    >>> import tracefx.numpy as fnp
    >>> print(make_jaxpr(lambda x: fnp.sin(x))(ShapeDtypeStruct((3,), "float32")))
    { lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }
    """
    require_callable("make_jaxpr", fun)
    static = StaticArguments.of(fun, jit_options(static_argnums).static_argnums, (), "static")

    @functools.wraps(fun)
    def traced(*args: Any, **kwargs: Any) -> Any:
        made = _traced("make_jaxpr", fun, static, args, kwargs)
        closed = made.closed()
        return (closed, _out_shapes(made)) if return_shape else closed

    return traced


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The types of `fun`'s outputs, as a tree of `ShapeDtypeStruct`, without computing anything.

    >>> eval_shape(lambda x: x @ x.T, ShapeDtypeStruct((2, 3), "float32"))
    ShapeDtypeStruct(shape=(2, 2), dtype=float32)
    """
    require_callable("eval_shape", fun)
    return _out_shapes(_traced("eval_shape", fun, StaticArguments((), ()), args, kwargs))


def named_call(fun: Callable[P, R], *, name: str | None = None) -> Callable[P, R]:
    """`fun` with its operations inside a `named_scope`, called as the function is unless `name` is given."""
    require_callable("named_call", fun)
    scope = name_of(fun) if name is None else name

    @functools.wraps(fun)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        with named_scope(scope):
            return fun(*args, **kwargs)

    return named


def jaxpr_as_fun(closed: ClosedJaxpr) -> Callable[..., list[Any]]:
    """A program as a function of its inputs, one argument each, that gives the list of its outputs.

    >>> closed = make_jaxpr(lambda x: x * 2.0)(1.0)
    >>> jaxpr_as_fun(closed)(3.0)
    [Array(6., dtype=float32, weak_type=True)]
    """
    if not isinstance(closed, ClosedJaxpr):
        raise TypeError(f"jaxpr_as_fun takes a ClosedJaxpr, as make_jaxpr gives, got {closed!r}")

    def run(*args: Any) -> list[Any]:
        return to_arrays(eval_jaxpr(closed.jaxpr, closed.consts, [as_value(a) for a in args]))

    return run


def _traced(
    transform: str, fun: Callable[..., Any], static: StaticArguments, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Trace:
    where = f"{transform} of {name_of(fun)}: arguments"
    dynamic, _ = static.split(where, args, kwargs)
    avals, in_tree = flatten_avals(dynamic, where)
    of_traced = static.closed_over(fun, args, kwargs)
    return trace(of_traced, in_tree, tuple(avals), argument_names(of_traced, name_of(fun), *dynamic), name_of(fun))


def _out_shapes(made: Trace) -> Any:
    structs = [ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in made.jaxpr.out_avals]
    return made.out_tree.unflatten(structs)
