"""Sparsity detection: traces the derivative of a function and propagates sets of inputs through the linear program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.core import ShapedArray, Value, dtypes
from tracefx.core.handler import current
from tracefx.core.primitive import Zero
from tracefx.handlers.sparsity.dependence import Dependence, unknown_dependence
from tracefx.handlers.sparsity.matrices import SparsityPattern
from tracefx.handlers.sparsity.propagation import SparsityPropagation, constant_dependence
from tracefx.interpreters.stage import stage
from tracefx.passes.dce import dce
from tracefx.pytrees.trees import TreeDef
from tracefx.transforms.arguments import flatten_values, fun_label, output_label, to_arrays
from tracefx.transforms.gradients import Grad
from tracefx.transforms.linearization import FlatFunctionWithAux, jvp_values
from tracefx.transforms.shape_dtype_struct import flatten_avals

Fun: TypeAlias = Callable[..., Any]


@final
@frozen
class ArgumentTypes:
    """The types of a call's arguments: the first one, by which derivatives are taken, and the others."""

    tree: TreeDef
    avals: tuple[ShapedArray, ...]
    rest_tree: TreeDef
    rest: tuple[ShapedArray, ...]

    @property
    def size(self) -> int:
        """The number of inputs: elements of the first argument."""
        return sum([a.size for a in self.avals])


def argument_types(title: str, fun: Fun, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ArgumentTypes:
    """Returns the types of arguments, which may be arrays or `ShapeDtypeStruct`s."""
    if not args:
        raise TypeError(f"{title} of {fun_label(fun)}: derivatives are by the first argument, but there is none")
    avals, tree = flatten_avals(args[0], f"{title} of {fun_label(fun)}: the first argument")
    for a in avals:
        if not dtypes.is_float(a.dtype):
            raise TypeError(f"{title} of {fun_label(fun)}: the first argument must consist of floats, got {a}")
    others, others_tree = flatten_avals(
        (tuple(args[1:]), dict(kwargs)), f"{title} of {fun_label(fun)}: the other arguments"
    )
    return ArgumentTypes(tree, tuple(avals), others_tree, tuple(others))


def function_of_first_argument(
    title: str, fun: Fun, types: ArgumentTypes, others: Sequence[Value], hessian: bool
) -> FlatFunctionWithAux[None]:
    """Returns `fun`, or its gradient, as a function of the flat values of its first argument."""
    positional, named = types.rest_tree.unflatten(to_arrays(others))
    derived = Grad()(fun) if hessian else fun

    def flat_function(values: Sequence[Value]) -> tuple[list[Value], None]:
        outs, _ = flatten_values(
            derived(types.tree.unflatten(to_arrays(values)), *positional, **named), output_label(fun)
        )
        for out in outs:
            if not dtypes.is_float(out.aval.dtype):
                raise TypeError(f"{title} of {fun_label(fun)}: outputs must be floats, got {out.aval}")
        return outs, None

    return flat_function


def detect_sparsity(title: str, fun: Fun, types: ArgumentTypes, hessian: bool) -> SparsityPattern:
    """Returns the sparsity pattern of the Jacobian or Hessian of `fun`."""
    k = len(types.avals)
    rows: list[tuple[int, bool]] = []

    def tangents(*values: Value) -> list[Value]:
        function = function_of_first_argument(title, fun, types, values[2 * k :], hessian)
        _, out_tangents, _, _ = jvp_values(function, values[:k], values[k : 2 * k])
        rows.extend([(t.aval.size, not isinstance(t, Zero)) for t in out_tangents])
        return [t for t in out_tangents if not isinstance(t, Zero)]

    moving = [a.tangent() for a in types.avals]
    jaxpr, consts = stage(tangents, [*types.avals, *moving, *types.rest], current(), title=title)
    walk = SparsityPropagation(types.size)
    starts = np.cumsum([0, *[a.size for a in types.avals]]).tolist()
    inputs = [Dependence(a, walk.sets.singletons(a.shape, start)) for a, start in zip(moving, starts, strict=False)]
    args = [
        *map(constant_dependence, consts),
        *map(unknown_dependence, types.avals),
        *inputs,
        *map(unknown_dependence, types.rest),
    ]
    outs = iter(walk.run(dce(jaxpr.closed()), args))
    row_parts, column_parts, start, total = [_NO_INDICES], [_NO_INDICES], 0, 0
    for size, is_nonzero in rows:
        if is_nonzero:
            ids = next(outs).sets().reshape(-1)
            total += int(walk.sets.sizes(ids).sum())
            if total > MAX_ENTRIES:
                raise ValueError(
                    f"{title} of {fun_label(fun)}: the {sum([n for n, _ in rows])} x {types.size} matrix has more than "
                    f"{MAX_ENTRIES:,} entries: it is not sparse. Use jacfwd, jacrev, hessian, or jvp and vjp"
                )
            row, column = walk.sets.members(ids)
            row_parts.append(row + start)
            column_parts.append(column)
        start += size
    m, n, row, column = start, types.size, np.concatenate(row_parts), np.concatenate(column_parts)
    if hessian:  # symmetric, so only entries whose mirror image is in the pattern can be nonzero
        keys = np.intersect1d(row * n + column, column * n + row, assume_unique=True)
        row, column = np.divmod(keys, max(n, 1))
    return SparsityPattern(row, column, (m, n))


MAX_ENTRIES: Final = 30_000_000
"""The largest number of entries that are listed: their indices take half a gigabyte."""
_NO_INDICES: Final = np.zeros(0, np.int64)
