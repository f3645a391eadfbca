"""`reduce` and `reduce_window`: arrays, or windows that move over them, folded by any associative function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, SupportsIndex, cast

from tracefx.control.generic_reduction import Reduce, ReduceWindow, ReductionError, ReductionPrimitive
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray, show_avals
from tracefx.core.dtypes import DType
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import Tracer, bind
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.literal import Literal, Scalar
from tracefx.core.values import ConcreteArray, Value
from tracefx.interpreters.stage import stage
from tracefx.ops.elementwise import arithmetic, bitwise, elementwise
from tracefx.ops.reductions import reduction
from tracefx.ops.reductions.reduction import dtype_extreme
from tracefx.ops.reductions.sliding_windows import SlidingWindows, sliding_windows
from tracefx.ops.reductions.window_reduction import ReduceWindowMax, ReduceWindowMin, ReduceWindowSum, WindowReduction
from tracefx.ops.static_integers import static_ints
from tracefx.ops.structural import convert, reduce_sum
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, TreeDef
from tracefx.transforms.arguments import flatten_values, fun_name, require_callable, to_arrays
from tracefx.transforms.body_tracing import convert_outputs, raise_structure_mismatch, trace_body


def _all_ones(dtype: DType) -> Scalar:
    if dtypes.is_bool(dtype):
        return True
    return -1 if dtypes.is_signed(dtype) else int(dtypes.iinfo(dtype).max)


_IdentityElement = Callable[[DType], Scalar]
_IDENTITY_ELEMENTS: Final[Mapping[object, _IdentityElement]] = MappingProxyType(
    {
        elementwise.add: lambda dtype: 0,
        arithmetic.mul: lambda dtype: 1,
        arithmetic.max: lambda dtype: dtype_extreme(dtype, -1),
        arithmetic.min: lambda dtype: dtype_extreme(dtype, 1),
        bitwise.bitwise_and: _all_ones,
        bitwise.bitwise_or: lambda dtype: 0,
        bitwise.bitwise_xor: lambda dtype: 0,
    }
)
"""What changes nothing, by the functions that have operations of their own."""
_REDUCTIONS: Final[Mapping[object, Callable[[ArrayLike, Sequence[int]], Array]]] = MappingProxyType(
    {
        elementwise.add: reduce_sum,
        arithmetic.mul: reduction.reduce_prod,
        arithmetic.max: reduction.reduce_max,
        arithmetic.min: reduction.reduce_min,
        bitwise.bitwise_and: reduction.reduce_and,
        bitwise.bitwise_or: reduction.reduce_or,
        bitwise.bitwise_xor: reduction.reduce_xor,
    }
)
_WINDOW_REDUCTIONS: Final[Mapping[object, type[WindowReduction]]] = MappingProxyType(
    {elementwise.add: ReduceWindowSum, arithmetic.max: ReduceWindowMax, arithmetic.min: ReduceWindowMin}
)


def reduce(
    operands: PyTree,
    init_values: PyTree,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[SupportsIndex],
    out_sharding: object = None,
) -> Any:
    """The axes `dimensions` of arrays folded by `computation`, from `init_values` on.

    `operands` is an array, or a tree of arrays of one shape that are folded together, `init_values` a number for each;
    `computation` takes two such trees of numbers and gives one of as many, in the structure that the result has. It
    must be associative and `init_values` must change nothing, since the order is left open, and so is how often they
    come in.

    `add`, `mul`, `max`, `min`, `bitwise_and`, `bitwise_or` and `bitwise_xor`, from the number that changes nothing, are
    `reduce_sum` and its like. `out_sharding` has no meaning on one device.

    Raises ValueError for initial values of another structure or with axes, TypeError for other dtypes or a
    `computation` that gives anything but numbers of these dtypes.

    >>> import numpy as np
    >>> from tracefx import lax
    >>> reduce(np.array([[1, 2], [3, 5]]), 1, lax.mul, (1,)).tolist()
    [2, 15]
    >>> [x.tolist() for x in reduce((np.arange(4.0), np.arange(4)), (-np.inf, -1),
    ...                             lambda a, b: [lax.select(a[0] > b[0], i, j) for i, j in zip(a, b)], (0,))]
    [3.0, 3]
    """
    arrays, starts, tree = _flatten_operands("reduce", operands, init_values, computation)
    axes = static_ints("reduce", dimensions, "dimensions")
    if _has_primitive("reduce", computation, starts, _REDUCTIONS):
        weak = arrays[0].aval.weak_type and starts[0].aval.weak_type
        out = _REDUCTIONS[computation](arrays[0], axes)
        return tree.unflatten([convert(out, out.aval.dtype, weak)])
    return _generic_reduction("reduce", computation, tree, arrays, starts, lambda jaxpr: Reduce(jaxpr, axes))


def reduce_window(
    operand: PyTree,
    init_value: PyTree,
    computation: Callable[[Any, Any], Any],
    window_dimensions: Sequence[SupportsIndex],
    window_strides: Sequence[SupportsIndex] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[SupportsIndex] | None = None,
    window_dilation: Sequence[SupportsIndex] | None = None,
) -> Any:
    """Windows of the shape `window_dimensions` that move over `operand`, each folded by `computation`, as in `reduce`.

    They move by `window_strides` (1 unless given). `padding` says how many elements, each `init_value`, go before and
    after each axis: "VALID", "SAME", "SAME_LOWER" (see `padtype_to_pads`), or pairs. Before that, elements of `operand`
    are moved `base_dilation` apart, with `init_value` between them; those that a window sees are `window_dilation`
    apart.

    `add`, `max` and `min`, from the number that changes nothing, are the operations `reduce_window_sum`, `_max` and
    `_min`.

    Raises TypeError for windows that haven't an entry for each axis of `operand` or aren't positive; RuntimeError for
    an unknown name of a padding; and what `reduce` raises.

    >>> import numpy as np
    >>> from tracefx import lax
    >>> reduce_window(np.array([1.0, 5.0, 2.0, 3.0]), -np.inf, lax.max, (2,)).tolist()
    [5.0, 5.0, 3.0]
    >>> reduce_window(np.array([1.0, 5.0, 2.0, 3.0]), 0.0, lax.add, (3,), (2,), "SAME").tolist()
    [8.0, 5.0]
    """
    arrays, starts, tree = _flatten_operands("reduce_window", operand, init_value, computation)
    windows = sliding_windows(
        "reduce_window",
        arrays[0].aval.shape,
        window_dimensions,
        window_strides,
        padding,
        base_dilation,
        window_dilation,
    )
    return tree.unflatten(_reduce_windows(computation, tree, arrays, starts, windows))


def _reduce_windows(
    computation: Callable[[Any, Any], Any],
    tree: TreeDef,
    arrays: Sequence[Value],
    starts: Sequence[Value],
    windows: SlidingWindows,
) -> Sequence[object]:
    if _has_primitive("reduce_window", computation, starts, _WINDOW_REDUCTIONS):
        return to_arrays(bind(_WINDOW_REDUCTIONS[computation].over(windows), arrays[0]))
    out = _generic_reduction(
        "reduce_window", computation, tree, arrays, starts, lambda jaxpr: ReduceWindow.over(jaxpr, windows)
    )
    return trees.leaves(out)


def _flatten_operands(
    name: str, operands: PyTree, init_values: PyTree, computation: Callable[[Any, Any], Any]
) -> tuple[list[Value], list[Value], TreeDef]:
    """Arrays and where folding them starts; a Python number among these has the dtype of its array."""
    require_callable(name, computation)
    arrays, tree = flatten_values(operands, f"{name}: operands")
    given, start_tree = trees.flatten(init_values)
    if tree != start_tree:
        raise ReductionError(f"{name}: init_values must have the structure of operands, {tree}, got {start_tree}")
    if not arrays:
        raise ValueError(f"{name}: operands must have an array, got none")
    starts, _ = flatten_values(
        [
            elementwise.as_weak_literal(start, x.aval.dtype)
            if isinstance(start, bool | int | float | complex)
            else start
            for start, x in zip(given, arrays, strict=True)
        ],
        f"{name}: init_values",
    )
    return arrays, starts, tree


def _has_primitive(name: str, computation: object, starts: Sequence[Value], known: Mapping[object, object]) -> bool:
    """Whether the computation has an operation of its own, from where it starts."""
    if len(starts) != 1 or computation not in known or starts[0].aval.shape:
        return False
    dtype = starts[0].aval.dtype
    if isinstance(starts[0], Literal):
        value = starts[0].val
    elif isinstance(starts[0], ConcreteArray):
        value = starts[0].numpy().item()
    else:
        return False
    return bool(value == _IDENTITY_ELEMENTS[computation](dtype))


def _generic_reduction(
    name: str,
    computation: Callable[[Any, Any], Any],
    tree: TreeDef,
    arrays: Sequence[Value],
    starts: Sequence[Value],
    operation: Callable[[Jaxpr], ReductionPrimitive],
) -> Any:
    where = f"{name} of {fun_name(computation)}"
    if any(start.aval.shape for start in starts):
        raise ReductionError(f"{name}: initial values must have no axes, got {show_avals([s.aval for s in starts])}")
    avals = [
        ShapedArray((), start.aval.dtype, start.aval.weak_type and x.aval.weak_type)
        for x, start in zip(arrays, starts, strict=True)
    ]
    numbers = tree.unflatten(range(tree.num_leaves))
    traced = trace_body(where, computation, trees.structure(((numbers, numbers), {})), [*avals, *avals])
    if traced.out_tree != tree and (name != "reduce" or traced.out_tree.num_leaves != tree.num_leaves):
        raise_structure_mismatch(f"{where}: numbers", ("going in", tree), ("coming out", traced.out_tree))
    given = traced.jaxpr.out_avals
    if [(a.shape, a.dtype) for a in given] != [((), a.dtype) for a in avals]:
        raise TypeError(f"{where}: it must give ({show_avals(avals)}), as it takes, got ({show_avals(given)})")
    if traced.jaxpr.effects:
        raise NotImplementedError(f"{where}: it must have no effects, since it is left open how often it runs")
    body = convert_outputs(traced.jaxpr, avals)
    if all(not c.aval.shape and not isinstance(c, Tracer) for c in traced.consts):
        return traced.out_tree.unflatten(
            to_arrays(bind(operation(_inline_consts(body, traced.consts)), *arrays, *starts))
        )
    # XLA's reductions compute with nothing but elements.
    return traced.out_tree.unflatten(operation(body).reduce_pairwise(traced.consts, [*arrays, *starts]))


def _inline_consts(body: Jaxpr, consts: Sequence[Value]) -> Jaxpr:
    """The program with the numbers that it takes first written into it."""
    if not consts:
        return body
    literals = [c if isinstance(c, Literal) else Literal(cast(ConcreteArray, c).numpy().item(), c.aval) for c in consts]
    jaxpr, _ = stage(lambda *xs: eval_jaxpr(body, (), [*literals, *xs]), body.in_avals[len(consts) :])
    return jaxpr
