"""Selection between arrays: `select`, `choose`, `piecewise`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tracefx.core import Array, ArrayLike, Value, dtypes, to_numpy
from tracefx.core.handler import Tracer, as_array
from tracefx.errors import ConcretizationError
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, convert_operand, promote_dtypes, reject_out
from tracefx.numpy.shapes import broadcast_arrays, ravel
from tracefx.numpy.ufuncs import clip, remainder, where
from tracefx.ops import structural
from tracefx.ops.elementwise import comparison, selection
from tracefx.ops.indexing import dynamic_slicing
from tracefx.transforms.vmap import vmap

PiecewiseBranch: TypeAlias = ArrayLike | Callable[..., Array]


def select(condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike], default: ArrayLike = 0) -> Array:
    """Returns, for each element, the choice of the first condition that is true there, or the default.

    Args:
        condlist: The conditions, arrays of bools.
        choicelist: The choices, one for each condition.
        default: The element where no condition is true.

    Returns:
        An array of the promoted dtype and the broadcast shape.

    Raises:
        ValueError: If there are no conditions, or another number of choices.

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
    """Returns, for each element, that of the choice with the number `a`; all shapes broadcast.

    Args:
        a: The numbers of the choices, integers.
        choices: The choices: a sequence of arrays, or an array of them along its first axis.
        out: Not supported; must be None.
        mode: How to treat numbers out of bounds: `"raise"` (they must then be concrete), `"wrap"` or `"clip"`.

    Returns:
        An array of the promoted dtype and the broadcast shape.

    Raises:
        ValueError: If a number is out of bounds with `mode="raise"`, or `a` is not of integers.

    >>> choose(np.array([1, 0, 1]), [np.array([1, 2, 3]), np.array([10, 20, 30])]).tolist()
    [10, 2, 30]
    """
    reject_out("choose", out)
    index = as_operand(a, "choose: a")
    if not dtypes.is_integer(index.aval.dtype):
        raise ValueError(f"choose: a must be integers, got {index.aval}")
    index = dynamic_slicing.widen_indices(index)
    items = list(choices) if isinstance(choices, Sequence | Array | np.ndarray) else [choices]
    cases = promote_dtypes("choose", *items)
    count = len(cases)
    if mode == "wrap":
        index = remainder(index, count)
    elif mode == "clip":
        index = clip(index, 0, count - 1)
    elif mode != "raise":
        raise ValueError(f"choose: mode must be 'raise', 'wrap' or 'clip', got {mode!r}")
    else:
        _check_bounds(index, count)
    index_, *broadcast = broadcast_arrays(index, *cases)
    return broadcast[0] if count == 1 else selection.select_n(convert_dtype(index_, dtypes.int32), *broadcast)


def _check_bounds(index: Value, count: int) -> None:
    try:
        numbers = to_numpy(index)
    except ConcretizationError as error:
        raise ConcretizationError(
            "choose: mode 'raise' needs concrete indices, but they are traced; use mode 'wrap' or 'clip'"
        ) from error
    if numbers.size and (numbers.min() < 0 or numbers.max() >= count):
        raise ValueError(f"choose: an index is out of bounds for {count} choices; mode 'wrap' or 'clip' allows that")


def piecewise(
    x: ArrayLike, condlist: ArrayLike | Sequence[ArrayLike], funclist: Sequence[PiecewiseBranch], *args: Any, **kw: Any
) -> Array:
    """Evaluates, for each element, the function of the last condition that is true there.

    Args:
        x: The array.
        condlist: The conditions, arrays of bools.
        funclist: A function of a scalar, or a constant, for each condition; one more is for elements without a true
            condition, which otherwise give 0.
        *args: Further arguments of the functions.
        **kw: Keyword arguments of the functions.

    Returns:
        An array of the shape and dtype of `x`.

    Raises:
        ValueError: If the number of functions does not fit.

    >>> x = np.array([-2.0, 3.0])
    >>> piecewise(x, [x < 0, x >= 0], [lambda x: -x, lambda x: 2 * x]).tolist()
    [2.0, 6.0]
    """
    value = as_array(as_operand(x, "piecewise: x"))
    tests = list(condlist) if isinstance(condlist, Sequence | Array | np.ndarray) else [condlist]
    functions = list(funclist)
    if len(functions) not in (len(tests), len(tests) + 1):
        raise ValueError(f"piecewise: {len(tests)} conditions need as many functions or one more, got {len(functions)}")
    default: PiecewiseBranch = functions.pop() if len(functions) > len(tests) else 0
    conditions = [as_operand(test, "piecewise: a condition") for test in tests]
    chosen: ArrayLike = 0  # 0 for `default`, i + 1 for functions[i]
    for i, test in enumerate(conditions):
        chosen = where(test, i + 1, chosen)
    out = _apply_branch(default, value, comparison.eq(chosen, 0), args, kw)
    for i, (test, function) in enumerate(zip(conditions, functions, strict=True)):
        out = where(test, _apply_branch(function, value, comparison.eq(chosen, i + 1), args, kw), out)
    return out


def _apply_branch(
    function: PiecewiseBranch, x: Array, chosen: Array, args: tuple[Any, ...], kw: dict[str, Any]
) -> Array:
    """Returns the function's values at all elements of `x`.

    Elements that are not chosen are constants for differentiation: the derivative of the function may be infinite
    there, and its product with the zero cotangent NaN.
    """
    if not callable(function):
        constant = convert_operand(function, x.dtype, what="piecewise: a constant")
        return as_array(structural.broadcast_to(constant, x.shape) if not constant.aval.shape else constant)
    each = functools.partial(_call_with_arguments, function, args, kw)
    if isinstance(x, Tracer):
        x = where(chosen, x, selection.stop_gradient(x))
    result = each(x) if not x.ndim else vmap(each)(ravel(x))
    return as_array(convert_dtype(structural.reshape(result, x.shape), x.dtype))


def _call_with_arguments(function: Callable[..., Array], args: tuple[Any, ...], kw: dict[str, Any], x: Array) -> Array:
    return function(x, *args, **kw)
