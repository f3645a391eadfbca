"""`while_loop` and `fori_loop`: a function applied again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from tracefx.control.while_loop import TRUTH, While
from tracefx.core import trees
from tracefx.core.avals import ShapedArray
from tracefx.core.handler import bind
from tracefx.core.settings import DISABLE_JIT
from tracefx.ops.basis import retyped
from tracefx.transforms.arguments import flatten_values, name_of, require_callable, to_arrays
from tracefx.transforms.bodies import differ_in_structure, gives_way, joined, require_types, trace_body, with_outs

T = TypeVar("T")


def while_loop(cond_fun: Callable[[T], Any], body_fun: Callable[[T], T], init_val: T) -> T:
    """While `cond_fun(val)` holds, `val = body_fun(val)`, from `init_val` on: the last `val`.

    `val` is a tree of arrays that keeps its structure and types. Forward-mode differentiable; reverse mode needs to
    know how many steps to go back through, and raises `ValueError`.

    `TypeError` if `cond_fun` gives anything but a boolean scalar, or `body_fun` another structure or type.

    >>> while_loop(lambda x: x < 100.0, lambda x: x * 3.0, 1.0)
    Array(243., dtype=float32, weak_type=True)
    """
    require_callable("while_loop", cond_fun)
    require_callable("while_loop", body_fun)
    where = f"while_loop of {name_of(body_fun)}"
    carry, tree = flatten_values(init_val, f"{where}: init_val")
    if DISABLE_JIT.value:
        return _stepwise(cond_fun, body_fun, init_val)
    in_tree = trees.structure(((tree.unflatten(range(tree.num_leaves)),), {}))
    body = trace_body(body_fun, in_tree, [c.aval for c in carry])
    if body.out_tree != tree:
        differ_in_structure(f"{where}: the carry", ("going in", tree), ("coming out", body.out_tree))
    types = [_carried(c.aval, out) for c, out in zip(carry, body.jaxpr.out_avals, strict=True)]
    if types != [c.aval for c in carry]:  # Python numbers give way to what the first step makes of them
        carry = [retyped(c, a.dtype, a.weak_type) for c, a in zip(carry, types, strict=True)]
        body = trace_body(body_fun, in_tree, types)
    outs = body.jaxpr.out_avals
    fits = [joined((a, b)) == a for a, b in zip(types, outs, strict=True)]
    what, remedy = f"{where}: the carry", "Convert or broadcast it, so that it keeps its type from step to step."
    require_types(what, tree, ("going in", types), ("coming out", outs), fits, remedy)
    going = trace_body(cond_fun, in_tree, types)
    if going.jaxpr.out_avals != (TRUTH,) or going.out_tree != trees.structure(0):
        given = ", ".join(map(str, going.jaxpr.out_avals))
        raise TypeError(f"{where}: cond_fun must give a boolean scalar, got {going.out_tree} of types ({given})")
    step = with_outs(body.jaxpr, types)
    key = ("while", id(going.jaxpr), len(going.consts), len(body.consts))
    op = step.memo.get(key, lambda: While(step, len(body.consts), going.jaxpr, len(going.consts)))
    return cast(T, tree.unflatten(to_arrays(bind(op, *going.consts, *body.consts, *carry))))


def _carried(aval: ShapedArray, out: ShapedArray) -> ShapedArray:
    """The type of a carry that starts with one type and comes back with another."""
    return out if gives_way(aval, out) else aval


def _stepwise(cond_fun: Callable[[T], Any], body_fun: Callable[[T], T], val: T) -> T:
    """The same in Python, for `disable_jit`."""
    while cond_fun(val):
        val = body_fun(val)
    return val
