"""`cond`, `switch`, `platform_dependent`: one of several functions, chosen while the program runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar, cast, final, overload

import numpy as np
from typing_extensions import ParamSpec

from tracefx.control.cond import Cond
from tracefx.control.platform import PlatformIndex
from tracefx.core import dtypes
from tracefx.core.array import is_arraylike
from tracefx.core.handler import Tracer, as_array, bind, bind1
from tracefx.core.settings import DISABLE_JIT
from tracefx.core.values import Value, as_value
from tracefx.ops.elementwise.comparison import ne
from tracefx.ops.elementwise.selection import clamp
from tracefx.ops.structural import convert_element_type
from tracefx.transforms.arguments import flatten_values, fun_name, require_callable, to_arrays
from tracefx.transforms.body_tracing import (
    common_consts,
    common_type,
    convert_outputs,
    raise_structure_mismatch,
    require_matching_types,
    trace_body,
)
from tracefx.transforms.tracing import Trace, along

P = ParamSpec("P")
A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")


@final
class _Missing:
    """Stands for an option that was not given, where `None` is a value."""


_MISSING: Final = _Missing()


@overload
def cond(pred: Any, true_fun: Callable[P, R], false_fun: Callable[P, R], *operands: P.args, **none: P.kwargs) -> R: ...
@overload
def cond(pred: Any, true_fun: Callable[[A], R], false_fun: Callable[[A], R], *, operand: A) -> R: ...
@overload
def cond(
    pred: Any, true_operand: A, true_fun: Callable[[A], R], false_operand: B, false_fun: Callable[[B], R], /
) -> R: ...
def cond(pred: Any, *given: Any, operand: Any = _MISSING, **named: Any) -> Any:
    """`true_fun(*operands)` where `pred` holds, else `false_fun(*operands)`: only the one that is chosen runs.

    `pred` is a scalar, a boolean or a number (true unless zero). Both functions are traced, and give trees of one
    structure and the same types. Under `vmap` of a predicate that differs along the batch, both run and the results
    are chosen from. There is a second form, `cond(pred, true_operand, true_fun, false_operand, false_fun)`.

    `TypeError` for a predicate that is no scalar, and for functions whose results differ in type.

    >>> cond(True, lambda x: x + 1.0, lambda x: x * 2.0, 3.0)
    Array(4., dtype=float32, weak_type=True)
    """
    true_fun, false_fun, operands = _parse_cond_arguments(given, operand, named)
    require_callable("cond", true_fun)
    require_callable("cond", false_fun)
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
    """The two functions and their operands, in whichever form the call has."""
    places = ("true_fun", "false_fun")[len(given) :]
    unexpected = [name for name in named if name not in places]
    if unexpected:
        raise TypeError(f"cond() got an unexpected keyword argument {unexpected[0]!r}")
    given = (*given, *[named[name] for name in places if name in named])
    if len(given) == 4 and not callable(given[0]) and callable(given[1]) and callable(given[3]):
        true_operand, true_fun, false_operand, false_fun = given
        return (lambda x, _: true_fun(x)), (lambda _, y: false_fun(y)), (true_operand, false_operand)
    if len(given) < 2:
        raise TypeError("cond takes a predicate, true_fun and false_fun, and their operands")
    true_fun, false_fun, *operands = given
    if not isinstance(operand, _Missing):
        if operands:
            raise TypeError("cond: operands are given by position or as operand=, not both")
        operands = [operand]
    return true_fun, false_fun, tuple(operands)


@overload
def switch(index: Any, branches: Sequence[Callable[P, R]], *operands: P.args, **none: P.kwargs) -> R: ...
@overload
def switch(index: Any, branches: Sequence[Callable[[A], R]], *, operand: A) -> R: ...
def switch(  # type: ignore[misc]  # P.kwargs, which is empty, may not be left out of an overload
    index: Any, branches: Sequence[Callable[..., Any]], *operands: Any, operand: Any = _MISSING
) -> Any:
    """`branches[index](*operands)`, the index (an integer scalar) clamped to the branches there are.

    All branches are traced, and give trees of one structure and the same types. `TypeError` for an index of another
    type and for branches whose results differ, `ValueError` for no branches.

    >>> switch(7, [lambda x: x, lambda x: x + 1.0, lambda x: x * 2.0], 3.0)
    Array(6., dtype=float32, weak_type=True)
    """
    if not isinstance(branches, Iterable):
        raise TypeError(f"switch takes a sequence of functions, got {branches!r} of type {type(branches).__name__}")
    functions = list(branches)
    for f in functions:
        require_callable("switch", f)
    if not isinstance(operand, _Missing):
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
    place = clamp(np.int32(0), convert_element_type(value, np.int32), np.int32(last))
    return _bind_cond("switch", place, functions, [f"branches[{i}]" for i in range(last + 1)], operands)


def _bind_cond(
    what: str, index: Value, functions: Sequence[Callable[..., Any]], names: Sequence[str], operands: tuple[Any, ...]
) -> Any:
    values, in_tree = flatten_values((operands, {}), f"{what}: operands")
    avals = [v.aval for v in values]
    traced = [trace_body(what, f, in_tree, avals, along=along(values)) for f in functions]
    _require_matching_branches(what, functions, names, traced)
    types = [common_type(each) or each[0] for each in zip(*[t.jaxpr.out_avals for t in traced], strict=True)]
    bodies, consts = common_consts(traced)
    fitted = tuple([convert_outputs(body, types) for body in bodies])
    key = ("cond", *map(id, fitted))  # which the operation that is kept keeps alive
    op = fitted[0].memo.get(key, lambda: Cond(fitted))
    return traced[0].out_tree.unflatten(to_arrays(bind(op, index, *consts, *values)))


def _require_matching_branches(
    what: str, functions: Sequence[Callable[..., Any]], names: Sequence[str], traced: Sequence[Trace]
) -> None:
    labels = [f"{name} ({fun_name(f)})" for name, f in zip(names, functions, strict=True)]
    first = traced[0]
    for label, t in zip(labels[1:], traced[1:], strict=True):
        if t.out_tree != first.out_tree:
            raise_structure_mismatch(f"{what}: the results", (label, t.out_tree), (labels[0], first.out_tree))
        ours, theirs = t.jaxpr.out_avals, first.jaxpr.out_avals
        fits = [common_type(pair) is not None for pair in zip(ours, theirs, strict=True)]
        remedy = "Convert or broadcast them, so that every function gives the same types."
        require_matching_types(f"{what}: the results", t.out_tree, (label, ours), (labels[0], theirs), fits, remedy)


def platform_dependent(*args: Any, default: Callable[..., R] | None = None, **per_platform: Callable[..., R]) -> R:
    """The function for the platform that the program runs on, applied: `platform_dependent(x, cpu=f, default=g)`.

    All functions are traced; which one it is, is known when the program is compiled. `ValueError` if there are none,
    `NotImplementedError` where there is none for the platform, and no default.

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
    return cast(R, _bind_cond("platform_dependent", index, functions, names, args))
