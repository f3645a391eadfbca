"""One of several: by an index, by the first condition that holds, by the function of a condition."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.handler import Tracer, as_array
from tracefx.core.values import Value, to_numpy
from tracefx.errors import ConcretizationError
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, convert_operand, promote_dtypes, reject_out
from tracefx.numpy.shapes import broadcast_arrays, ravel
from tracefx.numpy.ufuncs import clip, remainder, where
from tracefx.ops import structural
from tracefx.ops.elementwise import comparison, selection
from tracefx.transforms.vmap import vmap

PiecewiseBranch: TypeAlias = ArrayLike | Callable[..., Array]


def select(condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike], default: ArrayLike = 0) -> Array:
    """For each element the choice beside the first condition that holds there, or the default.

    ValueError for no conditions, and for another number of choices.

    >>> x = np.arange(4)
    >>> select([x < 1, x > 2], [x - 10, x + 10]).tolist()
    [-10, 0, 0, 13]
    """
    if len(condlist) != len(choicelist):
        raise ValueError(f"select: {len(condlist)} conditions, but {len(choicelist)} choices")
    if not len(condlist):
        raise ValueError("select takes one condition at least, got none")
    tests = [as_operand(c, f"select: condlist[{i}]") for i, c in enumerate(condlist)]
    out, *choices = broadcast_arrays(*promote_dtypes("select", default, *choicelist))
    for test, choice in reversed(list(zip(tests, choices, strict=True))):
        out = where(test, choice, out)
    return out


def choose(a: ArrayLike, choices: ArrayLike | Sequence[ArrayLike], out: None = None, mode: str = "raise") -> Array:
    """For each element the one of the choices that the integer `a` names; all shapes broadcast.

    An index out of bounds is a ValueError, and must be known when the program is traced, unless `mode` is "wrap" or
    "clip".

    >>> choose(np.array([1, 0, 1]), [np.array([1, 2, 3]), np.array([10, 20, 30])]).tolist()
    [10, 2, 30]
    """
    reject_out("choose", out)
    index = as_operand(a, "choose: a")
    if not dtypes.is_integer(index.aval.dtype):
        raise ValueError(f"choose: a must be integers, got {index.aval}")
    given = list(choices) if isinstance(choices, Sequence | Array | np.ndarray) else [choices]
    cases = promote_dtypes("choose", *given)
    count = len(cases)
    if mode == "wrap":
        index = remainder(index, count)
    elif mode == "clip":
        index = clip(index, 0, count - 1)
    elif mode != "raise":
        raise ValueError(f"choose: mode must be 'raise', 'wrap' or 'clip', got {mode!r}")
    else:
        _check_bounds(index, count)
    which, *spread = broadcast_arrays(index, *cases)
    return spread[0] if count == 1 else selection.select_n(convert_dtype(which, dtypes.int32), *spread)


def _check_bounds(index: Value, count: int) -> None:
    try:
        numbers = to_numpy(index)
    except ConcretizationError as error:
        raise ConcretizationError(
            "choose: whether indices are in bounds isn't known while the program is traced; use mode 'wrap' or 'clip'"
        ) from error
    if numbers.size and (numbers.min() < 0 or numbers.max() >= count):
        raise ValueError(f"choose: an index is out of bounds for {count} choices; mode 'wrap' or 'clip' mends it")


def piecewise(
    x: ArrayLike, condlist: ArrayLike | Sequence[ArrayLike], funclist: Sequence[PiecewiseBranch], *args: Any, **kw: Any
) -> Array:
    """For each element the value of the function beside the last condition that holds there; one function more is for
    where none does, which else is 0. Functions take one element and further arguments; constants stand for themselves.

    ValueError for another number of functions.

    >>> x = np.array([-2.0, 3.0])
    >>> piecewise(x, [x < 0, x >= 0], [lambda x: -x, lambda x: 2 * x]).tolist()
    [2.0, 6.0]
    """
    value = as_array(as_operand(x, "piecewise: x"))
    tests = list(condlist) if isinstance(condlist, Sequence | Array | np.ndarray) else [condlist]
    functions = list(funclist)
    if len(functions) not in (len(tests), len(tests) + 1):
        raise ValueError(f"piecewise: {len(tests)} conditions take as many functions or one more, got {len(functions)}")
    rest: PiecewiseBranch = functions.pop() if len(functions) > len(tests) else 0
    conditions = [as_operand(test, "piecewise: a condition") for test in tests]
    chosen: ArrayLike = 0  # 0 for `rest`, i + 1 for functions[i]
    for i, test in enumerate(conditions):
        chosen = where(test, i + 1, chosen)
    out = _apply_branch(rest, value, comparison.eq(chosen, 0), args, kw)
    for i, (test, function) in enumerate(zip(conditions, functions, strict=True)):
        out = where(test, _apply_branch(function, value, comparison.eq(chosen, i + 1), args, kw), out)
    return out


def _apply_branch(
    function: PiecewiseBranch, x: Array, chosen: Array, args: tuple[Any, ...], kw: dict[str, Any]
) -> Array:
    """The function's values at all elements of `x`. Those that are not chosen are constants for differentiation: there
    the derivative of the function may be infinite, and its product with the zero cotangent NaN."""
    if not callable(function):
        constant = convert_operand(function, x.dtype, what="piecewise: a constant")
        return as_array(structural.broadcast_to(constant, x.shape) if not constant.aval.shape else constant)
    each = functools.partial(_call_with_arguments, function, args, kw)
    if isinstance(x, Tracer):
        x = where(chosen, x, selection.stop_gradient(x))
    found = each(x) if not x.ndim else vmap(each)(ravel(x))
    return as_array(convert_dtype(structural.reshape(found, x.shape), x.dtype))


def _call_with_arguments(function: Callable[..., Array], args: tuple[Any, ...], kw: dict[str, Any], x: Array) -> Array:
    return function(x, *args, **kw)
