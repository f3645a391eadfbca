"""`scan` and `map`: a function applied along the first axis of arrays, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from tracefx.control.scan import Scan
from tracefx.core import trees
from tracefx.core.avals import ShapedArray
from tracefx.core.handler import as_array, bind
from tracefx.core.settings import DISABLE_JIT
from tracefx.core.trees import KeyPath, PyTree, TreeDef, keystr
from tracefx.core.values import Value
from tracefx.ops.basis import retyped
from tracefx.ops.shape import stack
from tracefx.transforms.arguments import flatten_values, name_of, require_callable, to_arrays
from tracefx.transforms.bodies import differ_in_structure, gives_way, joined, require_types, trace_body, with_outs
from tracefx.transforms.tracing import Trace

C = TypeVar("C")
X = TypeVar("X")
Y = TypeVar("Y")


def scan(
    f: Callable[[C, X], tuple[C, Y]],
    init: C,
    xs: X | None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[C, Y]:
    """`f` applied along the first axis of `xs`, the carry handed from step to step: the last carry and all results.

    `carry, y = f(carry, x)` for each slice `x` of `xs`; every carry has the structure and types of `init`. The result
    is the last carry, and the `y` stacked along a new first axis of the `length` of `xs` (which is given where `xs` is
    `None`). With `reverse` the steps run from the last slice to the first. `unroll` steps are put into one round of the
    compiled loop, all of them if it is `True`.

    Differentiable in both modes; what a step leaves for the backward pass is kept for every step.

    `TypeError` if `f` gives no pair, or a carry of another structure or type; `ValueError` if the first axes of `xs`
    differ, or are not there.

    >>> import numpy as np
    >>> scan(lambda total, x: (total + x, total * x), 0.0, np.arange(4.0))
    (Array(6., dtype=float32), Array([0., 0., 2., 9.], dtype=float32))
    """
    require_callable("scan", f)
    where = f"scan of {name_of(f)}"
    carry, carry_tree = flatten_values(init, f"{where}: init")
    arrays, xs_tree = flatten_values(xs, f"{where}: xs")
    n = _length(where, arrays, xs, length)
    rounds = _unroll(where, unroll, n)
    if DISABLE_JIT.value:
        return cast(tuple[C, Y], _stepwise(f, init, arrays, xs_tree, n, reverse, where))
    slices = [a.aval.without_axis(0) for a in arrays]
    in_tree = trees.structure(((_skeleton(carry_tree), _skeleton(xs_tree)), {}))
    traced = trace_body(f, in_tree, [*[c.aval for c in carry], *slices])
    out_trees = _pair(where, traced, carry_tree)
    types = [_carried(c.aval, out) for c, out in zip(carry, traced.jaxpr.out_avals, strict=False)]
    if types != [c.aval for c in carry]:  # Python numbers give way to what the first step makes of them
        carry = [retyped(c, a.dtype, a.weak_type) for c, a in zip(carry, types, strict=True)]
        traced = trace_body(f, in_tree, [*types, *slices])
    outs = traced.jaxpr.out_avals
    fits = [joined((a, b)) == a for a, b in zip(types, outs, strict=False)]
    what, remedy = f"{where}: the carry", "Convert or broadcast it, so that it keeps its type from step to step."
    require_types(what, carry_tree, ("going in", types), ("coming out", outs), fits, remedy)
    body = with_outs(traced.jaxpr, [*types, *outs[len(types) :]])
    key = ("scan", len(types), n, reverse, rounds)
    op = body.memo.get(key, lambda: Scan(body, n, len(types), len(traced.consts), reverse, rounds))
    results = to_arrays(bind(op, *traced.consts, *carry, *arrays))
    last, ys = out_trees
    return last.unflatten(results[: len(types)]), ys.unflatten(results[len(types) :])


def _skeleton(tree: TreeDef) -> Any:
    return tree.unflatten(range(tree.num_leaves))


def _carried(aval: ShapedArray, out: ShapedArray) -> ShapedArray:
    """The type of a carry that starts with one type and comes back with another."""
    return out if gives_way(aval, out) else aval


def _paths(tree: PyTree) -> list[KeyPath]:
    return [path for path, _ in trees.flatten_with_path(tree)[0]]


def _length(where: str, arrays: list[Value], xs: PyTree, length: int | None) -> int:
    """How many steps there are."""
    sizes = {}
    for path, x in zip(_paths(xs), arrays, strict=True):
        if not x.aval.shape:
            raise ValueError(f"{where}: xs{keystr(path)} has no axis to scan over, it is {x.aval}")
        sizes[keystr(path)] = x.aval.shape[0]
    if length is not None and (isinstance(length, bool) or not hasattr(length, "__index__")):
        raise TypeError(f"{where}: length must be an integer, got {length!r}")
    told = ", ".join(f"xs{path} has {size}" for path, size in sizes.items())
    if len(set(sizes.values())) > 1:
        raise ValueError(f"{where}: all arrays of xs must have one first axis, but {told}")
    if length is None:
        if not sizes:
            raise ValueError(f"{where}: there are no arrays in xs, so length must say how many steps to take")
        return next(iter(sizes.values()))
    n = length.__index__()
    if n < 0 or any(size != n for size in sizes.values()):
        raise ValueError(
            f"{where}: length is {n}, but {told}" if told else f"{where}: length must not be negative: {n}"
        )
    return n


def _unroll(where: str, unroll: int | bool, length: int) -> int:
    if isinstance(unroll, bool):
        return max(length, 1) if unroll else 1
    if unroll < 1:
        raise ValueError(f"{where}: unroll must be a positive integer or a bool, got {unroll!r}")
    return unroll


def _pair(where: str, traced: Trace, carry_tree: TreeDef) -> tuple[TreeDef, TreeDef]:
    """The structures of the carry and of the results that the function gives."""
    out = _skeleton(traced.out_tree)
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError(f"{where}: the function must give a pair (carry, result), got {traced.out_tree}")
    last, ys = map(trees.structure, out)
    if last != carry_tree:
        differ_in_structure(f"{where}: the carry", ("going in", carry_tree), ("coming out", last))
    return last, ys


def _stepwise(
    f: Callable[..., Any],
    init: Any,
    arrays: list[Value],
    xs_tree: TreeDef,
    length: int,
    reverse: bool,
    where: str,
) -> Any:
    """The same in Python, for `disable_jit`."""
    if length == 0:
        raise ValueError(f"{where}: with jit disabled a scan must have a step, to show what its results are like")
    carry, ys = init, []
    for i in reversed(range(length)) if reverse else range(length):
        carry, y = f(carry, xs_tree.unflatten([as_array(a)[i] for a in arrays]))
        ys.append(y)
    if reverse:
        ys.reverse()
    return carry, trees.map(lambda *each: stack(each), ys[0], *ys[1:])
