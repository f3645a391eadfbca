"""`reduce` and `reduce_window`: reductions of arrays, or of sliding windows, by any associative function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, SupportsIndex, cast, overload

from tracefx.control.generic_reduction import Reduce, ReduceWindow, ReductionError, ReductionPrimitive
from tracefx.core import Array, ArrayLike, ConcreteArray, DType, Literal, Scalar, ShapedArray, Value, show_avals
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import Tracer, bind
from tracefx.core.jaxpr import Jaxpr
from tracefx.filtered_tracebacks import api_boundary, without_boundary
from tracefx.interpreters.stage import stage
from tracefx.ops.elementwise import arithmetic, bitwise, elementwise
from tracefx.ops.monoids import ADD, AND, MAXIMUM, MINIMUM, MULTIPLY, OR, XOR
from tracefx.ops.reductions import reduction
from tracefx.ops.reductions.sliding_windows import SlidingWindows, sliding_windows
from tracefx.ops.reductions.window_reduction import ReduceWindowMax, ReduceWindowMin, ReduceWindowSum, WindowReduction
from tracefx.ops.static_integers import static_ints
from tracefx.ops.structural import convert, reduce_sum
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, TreeDef
from tracefx.transforms.arguments import flatten_values, fun_label, require_callable, to_arrays
from tracefx.transforms.body_tracing import convert_outputs, raise_structure_mismatch, trace_body

_IdentityElement = Callable[[DType], Scalar]
_IDENTITY_ELEMENTS: Final[Mapping[object, _IdentityElement]] = MappingProxyType(
    {
        elementwise.add: ADD.identity,
        arithmetic.mul: MULTIPLY.identity,
        arithmetic.max: MAXIMUM.identity,
        arithmetic.min: MINIMUM.identity,
        bitwise.bitwise_and: AND.identity,
        bitwise.bitwise_or: OR.identity,
        bitwise.bitwise_xor: XOR.identity,
    }
)
"""The identity elements of the functions that have reduction primitives."""
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


@overload
def reduce(
    operands: ArrayLike,
    init_values: ArrayLike,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[SupportsIndex],
) -> Array: ...
@overload
def reduce(
    operands: PyTree,
    init_values: PyTree,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[SupportsIndex],
) -> Any: ...
@api_boundary
def reduce(
    operands: PyTree,
    init_values: PyTree,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[SupportsIndex],
) -> Any:
    """Reduces axes of arrays by an associative function.

    The elements are combined in an unspecified order, with `init_values` an unspecified number of times. With `add`,
    `mul`, `max`, `min`, `bitwise_and`, `bitwise_or` or `bitwise_xor` of `tracefx.lax` and its identity element, this is
    the primitive reduction (`reduce_sum` and so on).

    Args:
        operands: An array, or a pytree of arrays of the same shape, which are reduced together.
        init_values: A pytree like `operands`, of scalars of their dtypes: the identity element of `computation`.
        computation: An associative function of two pytrees of scalars like `operands`. It returns a pytree of as many
            scalars of the same dtypes, whose structure is that of the result.
        dimensions: The axes to reduce.

    Returns:
        A pytree of arrays without the reduced axes.

    Raises:
        TypeError: If `computation` is not callable or returns other types, or if the initial values have other dtypes.
        ValueError: If `init_values` has another structure or has axes, or there are no operands.
        NotImplementedError: If `computation` has side effects.

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
    function = without_boundary(computation)
    if _has_primitive(function, starts, _REDUCTIONS):
        weak = arrays[0].aval.weak_type and starts[0].aval.weak_type
        out = _REDUCTIONS[function](arrays[0], axes)
        return tree.unflatten([convert(out, out.aval.dtype, weak)])
    return _generic_reduction("reduce", computation, tree, arrays, starts, lambda jaxpr: Reduce(jaxpr, axes))


@overload
def reduce_window(
    operand: ArrayLike,
    init_value: ArrayLike,
    computation: Callable[[Any, Any], Any],
    window_dimensions: Sequence[SupportsIndex],
    window_strides: Sequence[SupportsIndex] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[SupportsIndex] | None = None,
    window_dilation: Sequence[SupportsIndex] | None = None,
) -> Array: ...
@overload
def reduce_window(
    operand: PyTree,
    init_value: PyTree,
    computation: Callable[[Any, Any], Any],
    window_dimensions: Sequence[SupportsIndex],
    window_strides: Sequence[SupportsIndex] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[SupportsIndex] | None = None,
    window_dilation: Sequence[SupportsIndex] | None = None,
) -> Any: ...
@api_boundary
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
    """Reduces sliding windows of arrays by an associative function.

    With `add`, `max` or `min` of `tracefx.lax` and its identity element, this is a primitive (`reduce_window_sum` and
    so on).

    Args:
        operand: An array, or a pytree of arrays of the same shape, which are reduced together.
        init_value: The identity element of `computation`, as for `reduce`; another one is combined with every window.
        computation: An associative function, as for `reduce`.
        window_dimensions: The shape of the windows: one size per axis.
        window_strides: The distances between windows, one per axis. None, the default, means 1.
        padding: How many positions are added before and after each axis, which windows skip: `"VALID"` (none, the
            default), `"SAME"` or `"SAME_LOWER"` (see `padtype_to_pads`), or one pair of integers per axis.
        base_dilation: The distances between the elements of `operand` before padding; windows skip the positions
            between them. None, the default, means 1.
        window_dilation: The distances between the elements of a window. None, the default, means 1.

    Returns:
        A pytree of arrays, with one element per window.

    Raises:
        TypeError: If there is not one positive entry per axis, and as for `reduce`.
        RuntimeError: If the name of the padding is unknown.
        ValueError: As for `reduce`.

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
    function = without_boundary(computation)
    if _has_primitive(function, starts, _WINDOW_REDUCTIONS):
        return to_arrays(bind(_WINDOW_REDUCTIONS[function].from_windows(windows), arrays[0]))
    out = _generic_reduction(
        "reduce_window", computation, tree, arrays, starts, lambda jaxpr: ReduceWindow.from_windows(jaxpr, windows)
    )
    return trees.leaves(out)


def _flatten_operands(
    name: str, operands: PyTree, init_values: PyTree, computation: Callable[[Any, Any], Any]
) -> tuple[list[Value], list[Value], TreeDef]:
    """Returns the arrays, the initial values and the structure. A Python number takes the dtype of its array."""
    require_callable(name, computation)
    arrays, tree = flatten_values(operands, f"{name}: operands")
    given, start_tree = trees.flatten(init_values)
    if tree != start_tree:
        raise ReductionError(
            f"{name}: init_values must have the structure of operands, "
            f"{trees.show_structure(tree)}, got {trees.show_structure(start_tree)}"
        )
    if not arrays:
        raise ValueError(f"{name}: there must be at least one operand, got none")
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


def _has_primitive(function: object, starts: Sequence[Value], known: Mapping[object, object]) -> bool:
    """Whether there is a primitive for a reduction by this function with these initial values."""
    if len(starts) != 1 or function not in known or starts[0].aval.shape:
        return False
    dtype = starts[0].aval.dtype
    if isinstance(starts[0], Literal):
        value = starts[0].val
    elif isinstance(starts[0], ConcreteArray):
        value = starts[0].numpy().item()
    else:
        return False
    return bool(value == _IDENTITY_ELEMENTS[function](dtype))


def _generic_reduction(
    name: str,
    computation: Callable[[Any, Any], Any],
    tree: TreeDef,
    arrays: Sequence[Value],
    starts: Sequence[Value],
    operation: Callable[[Jaxpr], ReductionPrimitive],
) -> Any:
    """Traces the computation, and binds the reduction primitive that `operation` makes of it."""
    where = f"{name} of {fun_label(computation)}"
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
        raise TypeError(
            f"{where}: it must return ({show_avals(avals)}), the types of its arguments, got ({show_avals(given)})"
        )
    if traced.jaxpr.effects:
        raise NotImplementedError(f"{where}: it must have no effects, since the number of calls is unspecified")
    body = convert_outputs(traced.jaxpr, avals)
    if all(not c.aval.shape and not isinstance(c, Tracer) for c in traced.consts):
        return traced.out_tree.unflatten(
            to_arrays(bind(operation(_inline_consts(body, traced.consts)), *arrays, *starts))
        )
    # The body of an XLA reduction has no other inputs than elements.
    return traced.out_tree.unflatten(operation(body).reduce_pairwise(traced.consts, [*arrays, *starts]))


def _inline_consts(body: Jaxpr, consts: Sequence[Value]) -> Jaxpr:
    """Returns the program with its first inputs replaced by literals."""
    if not consts:
        return body
    literals = [c if isinstance(c, Literal) else Literal(cast(ConcreteArray, c).numpy().item(), c.aval) for c in consts]
    jaxpr, _ = stage(lambda *xs: eval_jaxpr(body, (), [*literals, *xs]), body.in_avals[len(consts) :])
    return jaxpr
