"""The sparsity of a function: its derivative is traced, and the linear program gone through with sets of inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.handler import current
from tracefx.core.primitive import Zero
from tracefx.core.values import Value
from tracefx.handlers.sparsity.dependence import Dependence, unknown_dependence
from tracefx.handlers.sparsity.matrices import SparsityPattern
from tracefx.handlers.sparsity.propagation import SparsityPropagation, constant_dependence
from tracefx.interpreters.stage import stage
from tracefx.passes.dce import dce
from tracefx.pytrees.trees import TreeDef
from tracefx.transforms.arguments import flatten_values, fun_name, to_arrays
from tracefx.transforms.gradients import Grad
from tracefx.transforms.linearization import FlatFunctionWithAux, jvp_values
from tracefx.transforms.shape_dtype_struct import flatten_avals

Fun: TypeAlias = Callable[..., Any]


@final
@frozen
class ArgumentTypes:
    """What arguments a function is called with: that by which it is differentiated, and others."""

    tree: TreeDef
    avals: tuple[ShapedArray, ...]
    rest_tree: TreeDef
    rest: tuple[ShapedArray, ...]

    @property
    def size(self) -> int:
        """How many inputs there are."""
        return sum([a.size for a in self.avals])


def argument_types(title: str, fun: Fun, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ArgumentTypes:
    """The types of arguments, which may be arrays or types themselves."""
    if not args:
        raise TypeError(f"{title} of {fun_name(fun)}: derivatives are by the first argument, but there is none")
    avals, tree = flatten_avals(args[0], f"{title} of {fun_name(fun)}: the first argument")
    for a in avals:
        if not dtypes.is_float(a.dtype):
            raise TypeError(f"{title} of {fun_name(fun)}: the first argument must be made of floats, got {a}")
    rest, rest_tree = flatten_avals((tuple(args[1:]), dict(kwargs)), f"{title} of {fun_name(fun)}: the other arguments")
    return ArgumentTypes(tree, tuple(avals), rest_tree, tuple(rest))


def function_of_first_argument(
    title: str, fun: Fun, given: ArgumentTypes, others: Sequence[Value], hessian: bool
) -> FlatFunctionWithAux[None]:
    """`fun`, or its gradient, as a function of the values of its first argument."""
    positional, named = given.rest_tree.unflatten(to_arrays(others))
    derived = Grad()(fun) if hessian else fun

    def called(values: Sequence[Value]) -> tuple[list[Value], None]:
        outs, _ = flatten_values(
            derived(given.tree.unflatten(to_arrays(values)), *positional, **named), f"the output of {fun_name(fun)}"
        )
        for out in outs:
            if not dtypes.is_float(out.aval.dtype):
                raise TypeError(f"{title} of {fun_name(fun)}: outputs must be floats, got {out.aval}")
        return outs, None

    return called


def detect_sparsity(title: str, fun: Fun, given: ArgumentTypes, hessian: bool) -> SparsityPattern:
    """Where the Jacobian of `fun`, or its Hessian, may have entries."""
    k = len(given.avals)
    rows: list[tuple[int, bool]] = []

    def tangents(*values: Value) -> list[Value]:
        called = function_of_first_argument(title, fun, given, values[2 * k :], hessian)
        _, found, _, _ = jvp_values(called, values[:k], values[k : 2 * k])
        rows.extend([(t.aval.size, not isinstance(t, Zero)) for t in found])
        return [t for t in found if not isinstance(t, Zero)]

    moving = [a.tangent() for a in given.avals]
    jaxpr, consts = stage(tangents, [*given.avals, *moving, *given.rest], current(), title=title)
    walk = SparsityPropagation(given.size)
    starts = np.cumsum([0, *[a.size for a in given.avals]]).tolist()
    inputs = [Dependence(a, walk.sets.singletons(a.shape, start)) for a, start in zip(moving, starts, strict=False)]
    args = [
        *map(constant_dependence, consts),
        *map(unknown_dependence, given.avals),
        *inputs,
        *map(unknown_dependence, given.rest),
    ]
    outs = iter(walk.run(dce(jaxpr.closed()), args))
    places, members, start, total = [_NO_INDICES], [_NO_INDICES], 0, 0
    for size, moves in rows:
        if moves:
            ids = next(outs).sets().reshape(-1)
            total += int(walk.sets.sizes(ids).sum())
            if total > MAX_ENTRIES:
                raise ValueError(
                    f"{title} of {fun_name(fun)}: the matrix has {sum([n for n, _ in rows])} x {given.size} places and "
                    f"more than {MAX_ENTRIES:,} entries: it is not sparse. Use jacfwd, jacrev or hessian, or products"
                )
            row, column = walk.sets.members(ids)
            places.append(row + start)
            members.append(column)
        start += size
    m, n, row, column = start, given.size, np.concatenate(places), np.concatenate(members)
    if hessian:  # it is symmetric, so both an entry and its mirror image must be there
        keys = np.intersect1d(row * n + column, column * n + row, assume_unique=True)
        row, column = np.divmod(keys, max(n, 1))
    return SparsityPattern(row, column, (m, n))


MAX_ENTRIES: Final = 30_000_000
"""How many entries are listed: their places take half a gigabyte."""
_NO_INDICES: Final = np.zeros(0, np.int64)
