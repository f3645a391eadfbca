"""Traces for symbolic shapes: `jit(f, shapes=...)` traces a function once for all sizes of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from attrs import evolve

from tracefx.core import ShapedArray
from tracefx.dimensions.bounds import SymbolicScope
from tracefx.dimensions.parser import parse_dimensions
from tracefx.dimensions.solving import is_symbolic, match_shapes
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.transforms.shape_dtype_struct import ShapeDtypeStruct
from tracefx.transforms.size_substitution import at_sizes
from tracefx.transforms.tracing import Trace, TraceKey

R = TypeVar("R")


def symbolic_key(key: TraceKey, shapes: PyTree, scope: SymbolicScope | None, name: str) -> TraceKey:
    """Returns the key of the trace for all sizes; `key` itself if the sizes of all arguments are to be known.

    Args:
        key: The key of a call. If it has symbolic sizes, those of an enclosing trace, it is returned.
        shapes: The shapes of the positional arguments, as for `jit`.
        scope: The scope of the dimension variables in texts; None if all sizes are to be known.
        name: The name of the function in messages.
    """
    if scope is None or is_symbolic(key.avals):
        return key
    positional, _ = key.in_tree.children()
    what = f"jit of {name}: shapes"
    given = trees.broadcast_prefix(shapes, positional, none_is_leaf=True, what=what, of="the arguments")
    symbolic = [_symbolic_aval(aval, shape, scope, what) for aval, shape in zip(key.avals, given, strict=False)]
    return key._replace(avals=(*symbolic, *key.avals[len(symbolic) :])) if is_symbolic(symbolic) else key


def _symbolic_aval(aval: ShapedArray, shape: object, scope: SymbolicScope, what: str) -> ShapedArray:
    if shape is None:
        return aval
    if isinstance(shape, str):
        sizes = parse_dimensions(shape, scope, aval.shape)
    elif isinstance(shape, ShapeDtypeStruct):
        sizes = shape.shape
    else:
        raise TypeError(f"{what} must be strings such as 'b, _', ShapeDtypeStruct or None, got {shape!r}")
    if len(sizes) != aval.ndim:
        raise ValueError(f"{what}: {shape!r} has {len(sizes)} axes, but the argument is of type {aval}")
    return aval.update(shape=sizes)


def trace_at_sizes(
    traced: Trace[R], symbolic: Sequence[ShapedArray], avals: Sequence[ShapedArray], names: Sequence[str]
) -> Trace[R]:
    """Returns the trace with known sizes, without running the function.

    Args:
        traced: The trace for symbolic shapes.
        symbolic: The types of its arguments.
        avals: The types of the arguments of a call.
        names: The names of the arguments, for messages.

    Raises:
        ShapeError: If the sizes are not those of `symbolic` for any integers.
    """
    sizes = match_shapes(symbolic, [aval.shape for aval in avals], names, traced.name, "traced")
    return evolve(traced, jaxpr=at_sizes(traced.jaxpr, sizes))
