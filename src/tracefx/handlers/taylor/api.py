"""`jet` and `derivatives`: derivatives of any order, for users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVarTuple, final

import numpy as np
from attrs import frozen
from typing_extensions import TypeVar

from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.handler import as_array, current, handling
from tracefx.core.values import Value
from tracefx.handlers.taylor.handler import Taylor
from tracefx.handlers.taylor.series import Coefficient, Series, cast_term, instantiate_term, scale_term
from tracefx.ops.structural import constant_like_aval, convert_value
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, TreeDef, keystr
from tracefx.transforms.arguments import flatten_values, fun_name, leaf_value, require_callable, to_arrays

Ts = TypeVarTuple("Ts")
R = TypeVar("R")


def jet(
    fun: Callable[[*Ts], R],
    primals: tuple[*Ts] | list[Any],
    series: Sequence[Any],
    *,
    factorial_scaled: bool = True,
) -> tuple[R, Any]:
    """`fun` along a curve: its value and its derivatives of all orders up to that of `series`, in one pass.

    The arguments are `primals` at the curve's parameter 0, and `series` has their derivatives by it there: for each
    argument a list of the first, the second, ... derivative, arrays like the argument; for an argument that is a tree,
    a tree like it of such lists. `None` in place of a derivative stands for zero, in place of a list for an argument
    that doesn't vary. All lists have one length, the order.

    Gives `(primals_out, series_out)`: the value, and for each array in it the list of its derivatives. The work grows
    with the square of the order, where nested `jvp` doubles it with each. With `factorial_scaled=False` the k-th
    entries of all lists are coefficients of a power series: derivatives divided by `k!`.

    Raises TypeError for a derivative that has not the shape and dtype of its argument, ValueError for lists of
    different lengths or without an entry.

    >>> y, (dy, ddy, dddy) = jet(lambda x: x**3, (2.0,), ([1.0, 0.0, 0.0],))
    >>> float(y), float(dy), float(ddy), float(dddy)
    (8.0, 12.0, 12.0, 6.0)
    """
    require_callable("jet", fun)
    for option, given in (("primals", primals), ("series", series)):
        if not isinstance(given, tuple | list):
            raise TypeError(f"jet: {option} must be a tuple or list with one entry an argument, got {given!r}")
    if len(primals) != len(series):
        raise ValueError(f"jet: there must be a series for each argument, got {len(series)} for {len(primals)}")
    values, treedef = flatten_values(tuple(primals), "jet: primals")
    lists = _derivative_lists(primals, series)
    handler = Taylor(current(), _common_order(lists))
    args = [_wrap_argument(handler, x, given, factorial_scaled) for x, given in zip(values, lists, strict=True)]
    found, out_tree = _evaluate_series(handler, fun, treedef.unflatten(to_arrays(args)))
    primals_out: R = out_tree.unflatten(to_arrays([x.primal for x in found]))
    return primals_out, out_tree.unflatten([_derivatives(x, factorial_scaled) for x in found])


def derivatives(fun: Callable[[Any], R], order: int) -> Callable[..., tuple[R, ...]]:
    """The function that gives `fun(x)` and its derivatives at `x` of order 1 to `order`, in one pass.

    They are derivatives in the direction of a second argument, by default ones all over. For a function that works
    element by element that is each element's own derivative.

    >>> import tracefx.numpy as jnp
    >>> [y.tolist() for y in derivatives(jnp.square, 3)(np.array([1.0, 3.0]))]
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
        handler = Taylor(current(), order)
        lists = [
            _DerivativeList(f"derivatives: direction {i}", [rate, *[None] * (order - 1)])
            for i, rate in enumerate(rates)
        ]
        args = [_wrap_argument(handler, v, given, True) for v, given in zip(values, lists, strict=True)]
        found, out_tree = _evaluate_series(handler, fun, (treedef.unflatten(to_arrays(args)),))
        columns = [[x.primal for x in found], *zip(*[_derivatives(x, True) for x in found], strict=True)]
        return tuple([out_tree.unflatten(column if k else to_arrays(column)) for k, column in enumerate(columns)])

    return along


def _evaluate_series(handler: Taylor, fun: Callable[..., object], args: Sequence[Any]) -> tuple[list[Series], TreeDef]:
    with handling(handler):
        values, tree = flatten_values(fun(*args), f"the output of {fun_name(fun)}")
    return [handler.as_series(handler.unwrap(x)) for x in values], tree


# ------------------------------------------------------------------ series at the border


@final
@frozen
class _DerivativeList:
    """The derivatives of one array, and what messages call them; without any it doesn't vary."""

    where: str
    terms: Sequence[object] | None


def _derivative_lists(primals: Sequence[PyTree], series: Sequence[PyTree]) -> list[_DerivativeList]:
    found = []
    for i, (x, given) in enumerate(zip(primals, series, strict=True)):
        paths, tree = trees.flatten_with_path(x)
        entries = [None] * len(paths) if given is None else trees.flatten_up_to(tree, given, f"series[{i}]")
        for (path, _), entry in zip(paths, entries, strict=True):
            where = f"series[{i}]{keystr(path)}"
            if entry is not None and not isinstance(entry, tuple | list):
                raise TypeError(f"jet: {where} must be a list of derivatives, or None, got {entry!r}")
            found.append(_DerivativeList(where, entry))
    return found


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
    """A derivative of a value of type `aval`, with just that type."""
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
    """The derivatives as users get them: those of integers are of type float0, as `jvp` has them."""
    if x.primal.aval.tangent().dtype == dtypes.float0:
        return [np.zeros(x.primal.aval.shape, dtypes.float0) for _ in x.higher]
    terms = [_times_factorial(t, k, 1) if factorial_scaled else t for k, t in enumerate(x.higher, 1)]
    return [as_array(cast_term(instantiate_term(t, x.primal), x.primal.aval)) for t in terms]


def _times_factorial(x: Coefficient, k: int, power: int) -> Coefficient:
    """`x * (k!)**power`, in steps that narrow floats can hold."""
    factor = 1.0
    for n in range(2, k + 1):
        if factor * n > _MAX_FACTOR:
            x, factor = scale_term(x, factor**power), 1.0
        factor *= n
    return scale_term(x, factor**power)


_MAX_FACTOR: Final = 2.0**15
