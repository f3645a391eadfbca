"""`jet` and `derivatives`: derivatives of any order in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVarTuple, final

import numpy as np
from attrs import frozen
from typing_extensions import TypeVar

from tracefx.core import ShapedArray, Value, dtypes
from tracefx.core.handler import as_array, current, handling
from tracefx.handlers.taylor.handler import Taylor
from tracefx.handlers.taylor.series import Coefficient, Series, cast_term, instantiate_term, scale_term
from tracefx.ops.structural import constant_like_aval, convert_value
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, TreeDef, keystr
from tracefx.transforms.arguments import flatten_values, leaf_value, output_label, require_callable, to_arrays

Ts = TypeVarTuple("Ts")
R = TypeVar("R")


def jet(
    fun: Callable[[*Ts], R],
    primals: tuple[*Ts] | list[Any],
    series: Sequence[Any],
    *,
    factorial_scaled: bool = True,
) -> tuple[R, Any]:
    """Computes the value and the derivatives of `fun` along a curve, up to any order, in one pass.

    The arguments of `fun` are functions of one parameter `t`: `primals` are their values at `t = 0`, and `series` has
    their derivatives by `t` there. The result has the value of `fun` and its derivatives by `t`. The work grows
    quadratically with the order, whereas nested `jvp` doubles it with each order.

    Args:
        fun: the function.
        primals: its arguments, pytrees of arrays.
        series: for each argument the list of its first, second, ... derivative, arrays like the argument; for a pytree,
            a pytree of such lists. All lists have the same length, the order. None in place of a derivative means
            zero; None in place of a list means a constant argument.
        factorial_scaled: whether lists have derivatives. If False, they have the coefficients of power series:
            derivatives divided by `k!`.

    Returns:
        `(primals_out, series_out)`: the result of `fun`, and a pytree like it of lists of derivatives.

    Raises:
        TypeError: if `fun` is not callable, or a derivative differs from its argument in shape or dtype.
        ValueError: if lists are empty or differ in length, or `series` and `primals` do.

    >>> y, (dy, ddy, dddy) = jet(lambda x: x**3, (2.0,), ([1.0, 0.0, 0.0],))
    >>> float(y), float(dy), float(ddy), float(dddy)
    (8.0, 12.0, 12.0, 6.0)
    """
    require_callable("jet", fun)
    for option, entries in (("primals", primals), ("series", series)):
        if not isinstance(entries, tuple | list):
            raise TypeError(f"jet: {option} must be a tuple or list with one entry per argument, got {entries!r}")
    if len(primals) != len(series):
        raise ValueError(f"jet: there must be a series for each argument, got {len(series)} for {len(primals)}")
    values, treedef = flatten_values(tuple(primals), "jet: primals")
    lists = _derivative_lists(primals, series)
    handler = Taylor(_common_order(lists)).start(current())
    args = [_wrap_argument(handler, x, entries, factorial_scaled) for x, entries in zip(values, lists, strict=True)]
    outputs, out_tree = _evaluate_series(handler, fun, treedef.unflatten(to_arrays(args)))
    primals_out: R = out_tree.unflatten(to_arrays([x.primal for x in outputs]))
    return primals_out, out_tree.unflatten([_derivatives(x, factorial_scaled) for x in outputs])


def derivatives(fun: Callable[[Any], R], order: int) -> Callable[..., tuple[R, ...]]:
    """Returns a function that computes `fun(x)` and its derivatives of order 1 to `order`, in one pass.

    Args:
        fun: a function of one pytree of arrays.
        order: the highest order of derivatives.

    Returns:
        A function of `x` and optionally a `direction`, a pytree like `x`; by default all ones. It returns the tuple of
        the value and the derivatives in this direction, `order + 1` entries. For an elementwise function these are the
        derivatives of each element.

    Raises:
        TypeError: if `fun` is not callable.
        ValueError: if `order` is not a positive integer.

    >>> import tracefx.numpy as fnp
    >>> [y.tolist() for y in derivatives(fnp.square, 3)(np.array([1.0, 3.0]))]
    [[1.0, 9.0], [2.0, 6.0], [2.0, 2.0], [0.0, 0.0]]
    """
    require_callable("derivatives", fun)
    if type(order) is not int or order < 1:
        raise ValueError(f"derivatives: order must be a positive integer, got {order!r}")

    def along(x: PyTree, direction: PyTree = None) -> tuple[R, ...]:
        values, treedef = flatten_values(x, "derivatives: x")
        rates: Sequence[object] = [constant_like_aval(v.aval.tangent(), 1) for v in values]
        if direction is not None:
            rates, tree = trees.flatten(direction)
            trees.require_same_structure("derivatives: direction", treedef, tree, "x", "the direction")
        handler = Taylor(order).start(current())
        lists = [
            _DerivativeList(f"derivatives: direction {i}", [rate, *[None] * (order - 1)])
            for i, rate in enumerate(rates)
        ]
        args = [_wrap_argument(handler, v, given, True) for v, given in zip(values, lists, strict=True)]
        outputs, out_tree = _evaluate_series(handler, fun, (treedef.unflatten(to_arrays(args)),))
        columns = [[x.primal for x in outputs], *zip(*[_derivatives(x, True) for x in outputs], strict=True)]
        return tuple([out_tree.unflatten(column if k else to_arrays(column)) for k, column in enumerate(columns)])

    return along


def _evaluate_series(handler: Taylor, fun: Callable[..., object], args: Sequence[Any]) -> tuple[list[Series], TreeDef]:
    with handling(handler.frame):
        values, tree = flatten_values(fun(*args), output_label(fun))
    return [handler.as_series(handler.unwrap(x)) for x in values], tree


# ------------------------------------------------------------------ arguments and results


@final
@frozen
class _DerivativeList:
    """The derivatives of one array, or None for a constant, with a name for error messages."""

    where: str
    terms: Sequence[object] | None


def _derivative_lists(primals: Sequence[PyTree], series: Sequence[PyTree]) -> list[_DerivativeList]:
    lists = []
    for i, (x, entries_given) in enumerate(zip(primals, series, strict=True)):
        paths, tree = trees.flatten_with_path(x)
        entries = (
            [None] * len(paths) if entries_given is None else trees.flatten_up_to(tree, entries_given, f"series[{i}]")
        )
        for (path, _), entry in zip(paths, entries, strict=True):
            where = f"series[{i}]{keystr(path)}"
            if entry is not None and not isinstance(entry, tuple | list):
                raise TypeError(f"jet: {where} must be a list of derivatives, or None, got {entry!r}")
            lists.append(_DerivativeList(where, entry))
    return lists


def _common_order(lists: Sequence[_DerivativeList]) -> int:
    lengths = {given.where: len(given.terms) for given in lists if given.terms is not None}
    if len(set(lengths.values())) != 1:
        shown = ", ".join([f"{where} has {n}" for where, n in lengths.items()])
        raise ValueError(
            f"jet: all lists of derivatives must have one length, the order, but {shown}"
            if lengths
            else "jet: at least one argument must have a list of derivatives"
        )
    order = next(iter(lengths.values()))
    if not order:
        raise ValueError("jet: the lists of derivatives are empty; they must have at least one entry")
    return order


def _wrap_argument(handler: Taylor, x: Value, given: _DerivativeList, factorial_scaled: bool) -> Value:
    terms = [None] * handler.order if given.terms is None else given.terms
    checked = [_checked_term(x.aval, t, f"{given.where}[{k}]") for k, t in enumerate(terms)]
    if factorial_scaled:
        checked = [_times_factorial(t, k, -1) for k, t in enumerate(checked, 1)]
    return handler.wrap(handler.unlift(Series(x, tuple(checked))))


def _checked_term(aval: ShapedArray, term: object, where: str) -> Coefficient:
    """Checks a derivative of a value of type `aval` and converts it to the tangent type."""
    expected = aval.tangent()
    if term is None or (isinstance(term, np.ndarray) and term.dtype == expected.dtype == dtypes.float0):
        return None
    x = leaf_value(term, 0, term, where)
    real = not dtypes.is_complex(expected.dtype)
    fits = x.aval.dtype == expected.dtype or (x.aval.weak_type and not (real and dtypes.is_complex(x.aval.dtype)))
    if x.aval.shape != expected.shape or not fits:
        raise TypeError(
            f"jet: {where} is {x.aval}, but the argument it belongs to is {aval}, whose derivatives are {expected}"
        )
    return None if expected.dtype == dtypes.float0 else convert_value(x, expected.dtype, expected.weak_type)


def _derivatives(x: Series, factorial_scaled: bool) -> list[object]:
    """Returns the derivatives of one output; those of integers have the dtype float0, as in `jvp`."""
    if x.primal.aval.tangent().dtype == dtypes.float0:
        return [np.zeros(x.primal.aval.shape, dtypes.float0) for _ in x.higher]
    terms = [_times_factorial(t, k, 1) if factorial_scaled else t for k, t in enumerate(x.higher, 1)]
    return [as_array(cast_term(instantiate_term(t, x.primal), x.primal.aval)) for t in terms]


def _times_factorial(x: Coefficient, k: int, power: int) -> Coefficient:
    """Returns `x * (k!)**power`, computed in steps that do not overflow narrow floats."""
    factor = 1.0
    for n in range(2, k + 1):
        if factor * n > _MAX_FACTOR:
            x, factor = scale_term(x, factor**power), 1.0
        factor *= n
    return scale_term(x, factor**power)


_MAX_FACTOR: Final = 2.0**15
