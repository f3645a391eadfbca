"""`symbolic_shape` and `symbolic_args_specs`: shapes with dimension variables, for which `export` exports functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tracefx.dimensions.bounds import SymbolicScope
from tracefx.dimensions.parser import parse_dimensions
from tracefx.filtered_tracebacks import api_boundary
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.transforms.shape_dtype_struct import ShapeDtypeStruct, flatten_avals


def _scope(scope: SymbolicScope | None, constraints: Sequence[str], what: str) -> SymbolicScope:
    if scope is None:
        return SymbolicScope(constraints)
    if constraints:
        raise ValueError(f"{what}: give either scope= or constraints=, since a scope has its constraints already")
    return scope


@api_boundary
def symbolic_shape(
    shape_spec: str | None,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence[int | None] | None = None,
) -> tuple[int, ...]:
    """Returns the shape that a text describes, whose sizes may be expressions of dimension variables.

    `export` traces a function once for arguments of symbolic shapes; the exported function takes arrays of all sizes
    that match. Dimension variables stand for integers of at least 1.

    Args:
        shape_spec: The sizes, separated by commas. A size is an integer, a variable, `e1 + e2`, `e1 - e2`, `e1 * e2`,
            `e ^ 2`, `floordiv(e1, e2)`, `mod(e1, e2)`, `max(e1, e2)` or `min(e1, e2)`. `_` stands for the size of
            `like` at this axis, and `...`, or None, for all its remaining sizes.
        constraints: Constraints on the variables, such as `"a >= 2*b"`, with `>=`, `<=` or `==`. None by default.
        scope: The scope of the variables; dimensions can be combined only if they have the same one. None, the default,
            makes a new scope with the constraints.
        like: The shape that gives the sizes of placeholders. None by default.

    Returns:
        A tuple of integers and symbolic dimensions.

    Raises:
        ValueError: If the text cannot be parsed, or both `scope` and `constraints` are given.

    >>> b, n = symbolic_shape("b, _", like=(None, 3))
    >>> (2 * b + 1) * n, b >= 1, b == 4
    (6*b + 3, True, False)
    """
    if shape_spec is not None and not isinstance(shape_spec, str):
        raise ValueError(f"symbolic_shape: shape_spec must be a string or None, got {shape_spec!r}")
    where = _scope(scope, constraints, "symbolic_shape")
    return parse_dimensions("..." if shape_spec is None else shape_spec, where, like)


@api_boundary
def symbolic_args_specs(
    args: PyTree, shapes_specs: PyTree, constraints: Sequence[str] = (), scope: SymbolicScope | None = None
) -> PyTree:
    """Returns `ShapeDtypeStruct` with symbolic shapes for the arguments of a function to export.

    Args:
        args: A pytree of arrays or `ShapeDtypeStruct`, which give the structure, the dtypes, and the sizes for
            placeholders in `shapes_specs`.
        shapes_specs: The shapes as for `symbolic_shape`: a pytree of strings and None that is a prefix of `args`. None
            keeps the shapes.
        constraints: Constraints as for `symbolic_shape`. None by default.
        scope: The scope of the dimension variables. None, the default, makes a new one.

    Returns:
        A pytree of the structure of `args`.

    Raises:
        ValueError: If a shape cannot be parsed, or `shapes_specs` is not a prefix of `args`.

    >>> import numpy as np
    >>> symbolic_args_specs((np.zeros((2, 3), "float32"), np.zeros(3, "float32")), ("b, _", None))
    (ShapeDtypeStruct(shape=(b, 3), dtype=float32), ShapeDtypeStruct(shape=(3,), dtype=float32))
    """
    where = _scope(scope, constraints, "symbolic_args_specs")
    avals, tree = flatten_avals(args, "symbolic_args_specs: args")
    prefix = tuple(shapes_specs) if isinstance(args, tuple) and isinstance(shapes_specs, list) else shapes_specs
    specs = trees.broadcast_prefix(prefix, args, none_is_leaf=True, what="symbolic_args_specs: shapes_specs", of="args")
    return tree.unflatten(
        [
            ShapeDtypeStruct(symbolic_shape(cast(str | None, spec), scope=where, like=aval.shape), aval.dtype)
            for aval, spec in zip(avals, specs, strict=True)
        ]
    )
