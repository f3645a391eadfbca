"""The sparsity of a function: its derivative is traced, and the linear program gone through with sets of inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.handler import current
from tracefx.core.passes import dce
from tracefx.core.primitive import Zero
from tracefx.core.trees import TreeDef
from tracefx.core.values import Value
from tracefx.handlers.sparsity.dependence import Dependence, unknown
from tracefx.handlers.sparsity.matrices import SparsityPattern
from tracefx.handlers.sparsity.walk import Walk, of_constant
from tracefx.interpreters.stage import stage
from tracefx.transforms.arguments import flatten_values, name_of, to_arrays
from tracefx.transforms.gradients import Grad
from tracefx.transforms.linearization import Flat, jvp_values
from tracefx.transforms.shapes import flatten_avals

Fun: TypeAlias = Callable[..., Any]


@final
@frozen
class Signature:
    """What arguments a function is called with: that by which it is differentiated, and others."""

    tree: TreeDef
    avals: tuple[ShapedArray, ...]
    rest_tree: TreeDef
    rest: tuple[ShapedArray, ...]

    @property
    def size(self) -> int:
        """How many inputs there are."""
        return sum([a.size for a in self.avals])


def signature(title: str, fun: Fun, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Signature:
    """The types of arguments, which may be arrays or types themselves."""
    if not args:
        raise TypeError(f"{title} of {name_of(fun)}: derivatives are by the first argument, but there is none")
    avals, tree = flatten_avals(args[0], f"{title} of {name_of(fun)}: the first argument")
    for a in avals:
        if not dtypes.is_float(a.dtype):
            raise TypeError(f"{title} of {name_of(fun)}: the first argument must be made of floats, got {a}")
    rest, rest_tree = flatten_avals((tuple(args[1:]), dict(kwargs)), f"{title} of {name_of(fun)}: the other arguments")
    return Signature(tree, tuple(avals), rest_tree, tuple(rest))


def flat_function(title: str, fun: Fun, given: Signature, others: Sequence[Value], hessian: bool) -> Flat[None]:
    """`fun`, or its gradient, as a function of the values of its first argument."""
    positional, named = given.rest_tree.unflatten(to_arrays(others))
    derived = Grad()(fun) if hessian else fun

    def called(values: Sequence[Value]) -> tuple[list[Value], None]:
        outs, _ = flatten_values(
            derived(given.tree.unflatten(to_arrays(values)), *positional, **named), f"the output of {name_of(fun)}"
        )
        for out in outs:
            if not dtypes.is_float(out.aval.dtype):
                raise TypeError(f"{title} of {name_of(fun)}: outputs must be floats, got {out.aval}")
        return outs, None

    return called


def detected(title: str, fun: Fun, given: Signature, hessian: bool) -> SparsityPattern:
    """Where the Jacobian of `fun`, or its Hessian, may have entries."""
    k = len(given.avals)
    rows: list[tuple[int, bool]] = []

    def tangents(*values: Value) -> list[Value]:
        called = flat_function(title, fun, given, values[2 * k :], hessian)
        _, found, _, _ = jvp_values(called, values[:k], values[k : 2 * k])
        rows.extend([(t.aval.size, not isinstance(t, Zero)) for t in found])
        return [t for t in found if not isinstance(t, Zero)]

    moving = [a.tangent() for a in given.avals]
    jaxpr, consts = stage(tangents, [*given.avals, *moving, *given.rest], current(), title=title)
    walk = Walk(given.size)
    starts = np.cumsum([0, *[a.size for a in given.avals]]).tolist()
    inputs = [Dependence(a, walk.sets.single(a.shape, start)) for a, start in zip(moving, starts, strict=False)]
    args = [*map(of_constant, consts), *map(unknown, given.avals), *inputs, *map(unknown, given.rest)]
    outs = iter(walk.run(dce(jaxpr.closed()), args))
    places, members, start, total = [_NONE], [_NONE], 0, 0
    for size, moves in rows:
        if moves:
            ids = next(outs).sets().reshape(-1)
            total += int(walk.sets.sizes(ids).sum())
            if total > LARGEST:
                raise ValueError(
                    f"{title} of {name_of(fun)}: the matrix has {sum([n for n, _ in rows])} x {given.size} places and "
                    f"more than {LARGEST:,} entries: it is not sparse. Use jacfwd, jacrev or hessian, or products"
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


LARGEST: Final = 30_000_000
"""How many entries are listed: their places take half a gigabyte."""
_NONE: Final = np.zeros(0, np.int64)
