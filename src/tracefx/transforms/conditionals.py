"""`cond`, `switch` and `platform_dependent`: one of several functions, chosen when the program runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, overload

import numpy as np
from typing_extensions import TypeVarTuple

from tracefx.bounded_cache import MemoKey
from tracefx.control.cond import Cond
from tracefx.control.platform import PlatformIndex
from tracefx.core import Array, ArrayLike, Value, as_value, dtypes, is_arraylike
from tracefx.core.handler import Tracer, as_array, bind, bind1
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interpreters.refs import Ref, ref_arguments
from tracefx.ops.elementwise.comparison import ne
from tracefx.ops.elementwise.selection import clamp
from tracefx.ops.structural import convert_element_type
from tracefx.pytrees import trees
from tracefx.pytrees.trees import MISSING, Missing, TreeDef
from tracefx.settings import DISABLE_JIT
from tracefx.transforms.arguments import LEAF_TYPES, flatten_values, fun_label, require_callable, to_arrays
from tracefx.transforms.body_tracing import (
    common_consts,
    common_type,
    convert_outputs,
    raise_structure_mismatch,
    require_matching_types,
    trace_body,
    with_all_writes,
    written_by_any,
)
from tracefx.transforms.tracing import Trace

Ts = TypeVarTuple("Ts")
A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")


@overload
def cond(
    pred: ArrayLike, true_fun: Callable[[Array], R], false_fun: Callable[[Array], R], operand: ArrayLike, /
) -> R: ...
@overload
def cond(pred: ArrayLike, true_fun: Callable[[*Ts], R], false_fun: Callable[[*Ts], R], *operands: *Ts) -> R: ...
@overload
def cond(pred: ArrayLike, true_fun: Callable[[A], R], false_fun: Callable[[A], R], *, operand: A) -> R: ...
@overload
def cond(
    pred: ArrayLike, true_operand: A, true_fun: Callable[[A], R], false_operand: B, false_fun: Callable[[B], R], /
) -> R: ...
@api_boundary  # type: ignore[misc]  # mypy does not match `*given` with `*operands: *Ts`
def cond(pred: Any, *given: Any, operand: Any = MISSING, **named: Any) -> Any:
    """Returns `true_fun(*operands)` if `pred` is true, otherwise `false_fun(*operands)`. Only one of them runs.

    It computes the same as this function, but `pred` may be traced:

        def cond(pred, true_fun, false_fun, *operands):
            return true_fun(*operands) if pred else false_fun(*operands)

    Both functions are traced, whatever the predicate, and become the two branches of one equation; so Python side
    effects of both happen. Outside of `jit`, too, both are traced; an `if` on a concrete value traces nothing. Values
    that the functions close over are operands like the others, for derivatives as well.

    Under `vmap` with a predicate that differs between batch elements, both branches run, and their results are selected
    from. Derivatives are those of the selected branch: unlike with `tracefx.numpy.where`, a NaN in the derivative of
    the other branch does not reach them.

    A second form of the call is `cond(pred, true_operand, true_fun, false_operand, false_fun)`.

    Args:
        pred: A scalar: a boolean or a real number, which is true unless it is zero.
        true_fun: The function for a true predicate.
        false_fun: The function for a false predicate. Its output has the structure, shapes and dtypes of that of
            `true_fun`.
        *operands: The arguments of either function, pytrees of arrays.
        operand: The only argument, by keyword. It may be None; by default there is none.

    Returns:
        The output of the chosen function.

    Raises:
        TypeError: If the predicate is not a real scalar, a function is not callable, or the outputs of the functions
            differ in structure, shape or dtype.

    >>> cond(True, lambda x: x + 1.0, lambda x: x * 2.0, 3.0)
    Array(4., dtype=float32, weak_type=True)

    The predicate may depend on traced values:

    >>> import tracefx.numpy as fnp
    >>> from tracefx import jit
    >>> @jit
    ... def clipped(gradient, limit):
    ...     norm = fnp.sqrt((gradient**2).sum())
    ...     return cond(norm > limit, lambda g: g * (limit / norm), lambda g: g, gradient)
    >>> clipped(fnp.array([3.0, 4.0]), 1.0)
    Array([0.6, 0.8], dtype=float32)

    Batched, with a derivative that is finite although that of the other branch is not:

    >>> from tracefx import grad, vmap
    >>> root = lambda x: cond(x > 0.0, fnp.sqrt, lambda x: 0.0 * x, x)
    >>> vmap(grad(root))(fnp.array([4.0, -1.0, 0.0]))
    Array([0.25, 0.  , 0.  ], dtype=float32)
    """
    true_fun, false_fun, operands = _parse_cond_arguments(given, operand, named)
    require_callable("cond", true_fun, "true_fun")
    require_callable("cond", false_fun, "false_fun")
    if not is_arraylike(pred):
        raise TypeError(f"cond: the predicate must be a scalar, got {pred!r} of type {type(pred).__name__}")
    value = as_value(pred)
    if value.aval.shape:
        raise TypeError(f"cond: the predicate must be a scalar, got one of type {value.aval}")
    if dtypes.is_complex(value.aval.dtype):
        raise TypeError(f"cond: the predicate must be a boolean or a real number, got one of type {value.aval}")
    if DISABLE_JIT.value and not isinstance(value, Tracer):
        return (true_fun if bool(as_array(value)) else false_fun)(*operands)
    if not dtypes.is_bool(value.aval.dtype):
        value = ne(value, 0)
    index = convert_element_type(value, np.int32)
    return _bind_cond("cond", index, [false_fun, true_fun], ["false_fun", "true_fun"], operands)


def _parse_cond_arguments(
    given: tuple[Any, ...], operand: Any, named: dict[str, Any]
) -> tuple[Any, Any, tuple[Any, ...]]:
    """Returns the two functions and their operands, for all forms of a call of `cond`."""
    parameter_names = ("true_fun", "false_fun")[len(given) :]
    unexpected = [name for name in named if name not in parameter_names]
    if unexpected:
        raise TypeError(f"cond() got an unexpected keyword argument {unexpected[0]!r}")
    given = (*given, *[named[name] for name in parameter_names if name in named])
    if len(given) == 4 and not callable(given[0]) and callable(given[1]) and callable(given[3]):
        true_operand, true_fun, false_operand, false_fun = given
        return (lambda x, _: true_fun(x)), (lambda _, y: false_fun(y)), (true_operand, false_operand)
    if len(given) < 2:
        raise TypeError("cond takes a predicate, true_fun, false_fun and their operands")
    true_fun, false_fun, *operands = given
    if not isinstance(operand, Missing):
        if operands:
            raise TypeError("cond: operands are given by position or as operand=, not both")
        operands = [operand]
    return true_fun, false_fun, tuple(operands)


@overload
def switch(index: ArrayLike, branches: Sequence[Callable[[Array], R]], operand: ArrayLike, /) -> R: ...
@overload
def switch(index: ArrayLike, branches: Sequence[Callable[[*Ts], R]], *operands: *Ts) -> R: ...
@overload
def switch(index: ArrayLike, branches: Sequence[Callable[[A], R]], *, operand: A) -> R: ...
@api_boundary  # type: ignore[misc]  # mypy does not match `*operands: Any` with `*operands: *Ts`
def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any, operand: Any = MISSING) -> Any:
    """Returns `branches[index](*operands)`. Only the chosen function runs.

    It computes the same as this function, but `index` may be traced:

        def switch(index, branches, *operands):
            return branches[min(max(index, 0), len(branches) - 1)](*operands)

    All functions are traced. Under `vmap` with an index that differs between batch elements, all of them run and their
    results are selected from.

    Args:
        index: An integer scalar. It is clamped to the range of the branches.
        branches: A sequence of functions whose outputs have the same structure, shapes and dtypes.
        *operands: The arguments of each function, pytrees of arrays.
        operand: The only argument, by keyword. It may be None; by default there is none.

    Returns:
        The output of the chosen function.

    Raises:
        TypeError: If the index is not an integer scalar, `branches` is not a sequence of functions, or their outputs
            differ in structure, shape or dtype.
        ValueError: If there are no branches.

    >>> branches = [lambda x: x, lambda x: x + 1.0, lambda x: x * 2.0]
    >>> switch(1, branches, 3.0)
    Array(4., dtype=float32, weak_type=True)
    >>> switch(7, branches, 3.0)
    Array(6., dtype=float32, weak_type=True)
    """
    if not isinstance(branches, Iterable):
        raise TypeError(f"switch takes a sequence of functions, got {branches!r} of type {type(branches).__name__}")
    functions = list(branches)
    for i, f in enumerate(functions):
        require_callable("switch", f, f"branches[{i}]")
    if not isinstance(operand, Missing):
        if operands:
            raise TypeError("switch: operands are given by position or as operand=, not both")
        operands = (operand,)
    if not is_arraylike(index):
        raise TypeError(f"switch: the index must be an integer scalar, got {index!r} of type {type(index).__name__}")
    value = as_value(index)
    if value.aval.shape or not dtypes.is_integer(value.aval.dtype):
        raise TypeError(f"switch: the index must be an integer scalar, got one of type {value.aval}")
    if not functions:
        raise ValueError("switch: there are no branches to choose from")
    last = len(functions) - 1
    if DISABLE_JIT.value and not isinstance(value, Tracer):
        return functions[min(max(int(as_array(value)), 0), last)](*operands)
    if last == 0:
        return functions[0](*operands)
    branch_index = clamp(np.int32(0), convert_element_type(value, np.int32), np.int32(last))
    return _bind_cond("switch", branch_index, functions, [f"branches[{i}]" for i in range(last + 1)], operands)


_COND: Final = MemoKey[Cond]("the primitive of the branches with these ids")


def _bind_cond(
    what: str, index: Value, functions: Sequence[Callable[..., Any]], names: Sequence[str], operands: tuple[Any, ...]
) -> Any:
    """Traces the functions, converts them to common types, and binds `Cond`."""
    leaves, operands_tree = trees.flatten_with_known_types(operands, LEAF_TYPES)
    if refs := ref_arguments(f"{what}: operands", leaves):
        functions = [_closing_over(f, operands_tree, refs) for f in functions]
        operands = tuple([leaf for i, leaf in enumerate(leaves) if i not in refs])
    values, in_tree = flatten_values((operands, {}), f"{what}: operands")
    avals = [v.aval for v in values]
    traced = [trace_body(what, f, in_tree, avals, writes_refs=True) for f in functions]
    _require_matching_branches(what, functions, names, traced)
    types = [common_type(each) or each[0] for each in zip(*[t.out_avals for t in traced], strict=True)]
    written = written_by_any(traced)
    bodies, consts = common_consts(traced)
    out_avals = [*[ref.aval.contents for ref in written], *types]
    fitted = tuple([convert_outputs(body, out_avals) for body in with_all_writes(traced, bodies)])
    ids = tuple(map(id, fitted))  # the cached primitive keeps these objects alive
    op = fitted[0].memo.get(_COND, ids, lambda: Cond(fitted))
    results = bind(op, index, *consts, *values)
    for ref, contents in zip(written, results, strict=False):
        ref[...] = contents
    return traced[0].out_tree.unflatten(to_arrays(results[len(written) :]))


def _closing_over(f: Callable[..., Any], operands_tree: TreeDef, refs: Mapping[int, Ref]) -> Callable[..., Any]:
    """Returns `f` as a function of those leaves of its operands that are arrays; it closes over the references."""

    @functools.wraps(f)
    def closing(*arrays: object) -> Any:
        remaining = iter(arrays)
        leaves = [refs[i] if i in refs else next(remaining) for i in range(operands_tree.num_leaves)]
        return f(*operands_tree.unflatten(leaves))

    return closing


def _require_matching_branches(
    what: str, functions: Sequence[Callable[..., Any]], names: Sequence[str], traced: Sequence[Trace]
) -> None:
    """Raises a TypeError unless the outputs of all branches have the same structure and types."""
    labels = [f"{name} ({fun_label(f)})" for name, f in zip(names, functions, strict=True)]
    first = traced[0]
    for label, t in zip(labels[1:], traced[1:], strict=True):
        if t.out_tree != first.out_tree:
            raise_structure_mismatch(f"{what}: the results", (label, t.out_tree), (labels[0], first.out_tree))
        branch_avals, first_avals = t.out_avals, first.out_avals
        fits = [common_type(pair) is not None for pair in zip(branch_avals, first_avals, strict=True)]
        remedy = "Convert or broadcast them, so that all functions return the same types."
        require_matching_types(
            f"{what}: the results", t.out_tree, (label, branch_avals), (labels[0], first_avals), fits, remedy
        )


@api_boundary
def platform_dependent(*args: Any, default: Callable[..., R] | None = None, **per_platform: Callable[..., R]) -> R:
    """Calls the function for the platform on which the program runs: `platform_dependent(x, cpu=f, default=g)`.

    All functions are traced; the choice is made when the program is compiled, or lowered for several platforms.

    Args:
        *args: The arguments of each function, pytrees of arrays.
        default: The function for all other platforms. None, the default, means that there is none.
        **per_platform: The functions, by the names of their platforms, such as `cpu`, `cuda` or `tpu`. Their outputs
            have the same structure, shapes and dtypes.

    Returns:
        The output of the chosen function.

    Raises:
        TypeError: If a function is not callable, or the outputs differ in structure, shape or dtype.
        ValueError: If there are no functions.
        NotImplementedError: If there is neither a function for the platform nor a default.

    >>> platform_dependent(2.0, cpu=lambda x: x + 1.0, default=lambda x: x)
    Array(3., dtype=float32, weak_type=True)
    """
    if not per_platform and default is None:
        raise ValueError("platform_dependent: there are no functions to choose from")
    names = [*per_platform, *([] if default is None else ["default"])]
    functions = [*per_platform.values(), *([] if default is None else [default])]
    for f in functions:
        require_callable("platform_dependent", f)
    index = bind1(PlatformIndex(tuple(per_platform), default is not None))
    if DISABLE_JIT.value and not isinstance(index, Tracer):
        return functions[int(index)](*args)
    result: R = _bind_cond("platform_dependent", index, functions, names, args)
    return result
