"""Einstein summation (`einsum`).

Operands are contracted two at a time, each pair by one `dot_general`. An axis of only one operand that the result does
not have is summed first; an axis that an operand names twice becomes the diagonal.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import EllipsisType
from typing import Final, TypeAlias, final, overload

import numpy as np
from attrs import frozen

from tracefx.core import Array, ArrayLike, DType, DTypeLike, Value, as_value, dtypes
from tracefx.core.handler import as_array
from tracefx.core.named_sharding import OutSharding
from tracefx.numpy.diagonals import diagonal
from tracefx.numpy.dtype_routines import promote_types
from tracefx.numpy.operand_promotion import convert_dtype, promote_dtypes, reject_out
from tracefx.ops import structural
from tracefx.ops.contractions import contraction
from tracefx.ops.contractions.contraction import PrecisionLike
from tracefx.ops.reductions.reduction import reduce_or
from tracefx.ops.static_integers import static_int
from tracefx.transforms.eager_calls import eager_cached

Labels: TypeAlias = tuple[str, ...]
ContractionPathLike: TypeAlias = Sequence[Sequence[int] | str]
AxisLabels: TypeAlias = Sequence["int | EllipsisType"]
DotGeneral: TypeAlias = Callable[..., Array]
"""A function that contracts two operands, with the arguments of `lax.dot_general`; `_dot_general` of `einsum`."""
_LETTERS: Final = sorted(string.ascii_letters)
_MAX_OPTIMAL_OPERANDS: Final = 5
"""The largest number of operands for which all contraction orders are tried."""


@overload
def einsum(
    subscripts: str,
    /,
    *operands: ArrayLike,
    out: None = None,
    optimize: bool | str | ContractionPathLike | None = "auto",
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    _dot_general: DotGeneral = contraction.dot_general,
    out_sharding: OutSharding = None,
) -> Array: ...
@overload
def einsum(
    first: ArrayLike,
    axes: AxisLabels,
    /,
    *operands: ArrayLike | AxisLabels,
    out: None = None,
    optimize: bool | str | ContractionPathLike | None = "auto",
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    _dot_general: DotGeneral = contraction.dot_general,
    out_sharding: OutSharding = None,
) -> Array: ...
@eager_cached
def einsum(
    subscripts: str | ArrayLike,
    /,
    *operands: ArrayLike | AxisLabels,
    out: None = None,
    optimize: bool | str | ContractionPathLike | None = "auto",
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    _dot_general: DotGeneral = contraction.dot_general,
    out_sharding: OutSharding = None,
) -> Array:
    """Evaluates an Einstein summation: products of elements, summed over the axes that the result does not name.

    Axes of one name have one size, or size 1. `einsum(x, [0, 1], y, [1, 2], [0, 2])` names the axes of each operand and
    of the result by integers instead of letters, with `...` as in subscripts.

    Args:
        subscripts: A letter for each axis, with operands separated by commas, `...` for the other axes, and after `->`
            the axes of the result. Without `->`, the result has the letters that occur once, in alphabetical order.
        *operands: The arrays.
        out: Not supported; must be None.
        optimize: The order of contraction: `"optimal"`, `"greedy"`, `"auto"` (optimal for few operands), False or None
            for left to right, or a path of tuples of operand positions.
        precision: The precision of the products; None means the default.
        preferred_element_type: The dtype of the result; None means the promoted dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array with the axes that the subscripts name after `->`.

    Raises:
        ValueError: If the subscripts do not fit the operands.

    >>> einsum("ij,jk->ik", np.ones((2, 3)), np.ones((3, 4))).shape
    (2, 4)
    >>> einsum("ii", np.eye(3))
    Array(3., dtype=float32)
    """
    reject_out("einsum", out)
    if not isinstance(subscripts, str):
        subscripts, arrays = _letter_subscripts(subscripts, operands)
    else:
        arrays = operands  # type: ignore[assignment]  # checked below
    if not arrays:
        raise ValueError("einsum takes at least one operand after the subscripts")
    values = promote_dtypes("einsum", *arrays)
    dtype, weak = values[0].aval.dtype, values[0].aval.weak_type
    if preferred_element_type is not None:
        dtype, weak = dtypes.as_dtype(preferred_element_type, "einsum: preferred_element_type"), False
    terms, result = _parse_subscripts(subscripts, values)
    sizes = _axis_sizes(subscripts, terms, values)
    factors = [_make_factor(v, labels, sizes) for v, labels in zip(values, terms, strict=True)]
    for step in _contraction_order(terms, sizes, result, optimize):
        chosen = [factors[i] for i in step]
        factors = [f for i, f in enumerate(factors) if i not in step]
        # A step may contract more than two operands.
        total = chosen[0]
        for i, factor in enumerate(chosen[1:], 1):
            kept = {*result, *[name for f in (*factors, *chosen[i + 1 :]) for name in f.labels]}
            total = _contract(total, factor, kept, result, precision, dtype, _dot_general)
        factors.append(total)
    (last,) = factors
    last = last.sum_out(result, dtype)
    present = [name for name in result if name in last.labels]
    product = structural.transpose(last.value, [last.labels.index(name) for name in present])
    # An axis may have size 1 in all operands that remain with its name.
    product = structural.broadcast_in_dim(
        product, [sizes[name] for name in result], [i for i, name in enumerate(result) if name in present]
    )
    return as_array(convert_dtype(product, dtype, weak))


@final
@frozen(eq=False)
class Factor:
    """An operand or a product of operands, with the names of its axes, all different."""

    value: Value
    labels: Labels

    def sum_out(self, kept: Iterable[str], dtype: DType) -> Factor:
        """Returns the factor summed over the axes that are not kept.

        Sums have the result's `dtype` if it can represent the elements; sums of bools are logical or.
        """
        names = set(kept)
        over = [i for i, name in enumerate(self.labels) if name not in names]
        if not over:
            return self
        value_dtype = self.value.aval.dtype
        value = (
            convert_dtype(self.value, dtype)
            if value_dtype != dtype and promote_types(value_dtype, dtype) == dtype
            else self.value
        )
        fold = reduce_or if dtypes.is_bool(value.aval.dtype) else structural.reduce_sum
        return Factor(fold(value, over), tuple([name for name in self.labels if name in names]))


def _letter_subscripts(first: ArrayLike, rest: Sequence[ArrayLike | AxisLabels]) -> tuple[str, Sequence[ArrayLike]]:
    """Converts operands that alternate with integer axis lists to letter subscripts and a sequence of operands."""
    given = [first, *rest]
    axes = [*given[1::2], *given[-1:]] if len(given) % 2 else given[1::2]
    if len(given) < 2 or not all(isinstance(each, Sequence) and not isinstance(each, str) for each in axes):
        raise TypeError(
            "einsum takes subscripts (a string such as 'ij,jk->ik') and operands, or operands that alternate with "
            f"lists of axis numbers, as in einsum(x, [0, 1], y, [1, 2], [0, 2]); got {first!r}"
        )
    terms: list[list[int | EllipsisType]] = [
        [i if i is ... else static_int("einsum", i, "an axis") for i in each]
        for each in axes
        if isinstance(each, Sequence)  # always true, as checked above
    ]
    numbers = sorted({i for term in terms for i in term if i is not ...})
    if len(numbers) > len(_LETTERS):
        raise ValueError(f"einsum: at most {len(_LETTERS)} different axes are supported, got {len(numbers)}")
    letter = dict(zip(numbers, _LETTERS, strict=False))
    labels = ["".join(["..." if i is ... else letter[i] for i in term]) for term in terms]
    count = len(given) // 2
    subscripts = ",".join(labels[:count]) + ("->" + labels[count] if len(given) % 2 else "")
    return subscripts, given[: 2 * count : 2]  # type: ignore[return-value]  # checked by the caller


def _parse_subscripts(subscripts: str, values: Sequence[Value]) -> tuple[list[Labels], Labels]:
    """Returns the names of the axes of each operand and of the result, with numbers for the axes of `...`."""
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    given = inputs.split(",")
    if len(given) != len(values):
        raise ValueError(f"einsum: {subscripts!r} names {len(given)} operands, but there are {len(values)}")
    wild = [v.aval.ndim - len(term.replace("...", "", 1)) for term, v in zip(given, values, strict=True)]
    most = max([n for term, n in zip(given, wild, strict=True) if "..." in term], default=0)
    terms: list[Labels] = []
    for term, v, n in zip(given, values, wild, strict=True):
        if n < 0 or (n > 0 and "..." not in term):
            raise ValueError(f"einsum: {term!r} in {subscripts!r} doesn't fit {v.aval}: one letter for each axis")
        terms.append(_parse_term(subscripts, term, range(most - n, most)))
    if arrow:
        result = _parse_term(subscripts, output, range(most))
        if len(set(result)) != len(result):
            raise ValueError(f"einsum: the result of {subscripts!r} names an axis twice")
    else:
        counts = Counter([name for term in terms for name in term if not name.isdigit()])
        letters = sorted([name for name, count in counts.items() if count == 1])
        result = (*[str(i) for i in range(most)], *letters)
    unknown = set(result) - {name for term in terms for name in term}
    if unknown:
        raise ValueError(f"einsum: the result of {subscripts!r} names {sorted(unknown)}, which no operand has")
    return terms, result


def _parse_term(subscripts: str, term: str, wild: range) -> Labels:
    """Returns the labels of one term: letters, and numbers for the axes that `...` stands for."""
    front, dots, back = term.partition("...")
    if any(c not in string.ascii_letters for c in front + back):
        raise ValueError(f"einsum: {term!r} in {subscripts!r} must consist of letters and one '...'")
    return (*front, *[str(i) for i in wild if dots], *back)


def _axis_sizes(subscripts: str, terms: Sequence[Labels], values: Sequence[Value]) -> dict[str, int]:
    """Returns the size of each named axis; raises ValueError if operands disagree."""
    sizes: dict[str, int] = {}
    for labels, v in zip(terms, values, strict=True):
        for name, n in zip(labels, v.aval.shape, strict=True):
            if sizes.setdefault(name, n) != n and n != 1:
                if sizes[name] != 1:
                    what = "an axis of '...'" if name.isdigit() else f"{name!r}"
                    raise ValueError(f"einsum: {what} in {subscripts!r} has sizes {sizes[name]} and {n}")
                sizes[name] = n
    return sizes


def _make_factor(value: Value, labels: Labels, sizes: Mapping[str, int]) -> Factor:
    """Returns an operand without broadcast axes of size 1, and with the diagonal of axes that share a name."""
    kept = [i for i, name in enumerate(labels) if value.aval.shape[i] == sizes[name]]
    value = structural.reshape(value, [value.aval.shape[i] for i in kept])
    names = [labels[i] for i in kept]
    while len(set(names)) < len(names):
        name, _ = Counter(names).most_common(1)[0]
        i = names.index(name)
        j = names.index(name, i + 1)
        value = diagonal(value, 0, i, j)
        names = [*names[:i], *names[i + 1 : j], *names[j + 1 :], name]
    return Factor(value, tuple(names))


def check_strategy(function: str, optimize: bool | str) -> None:
    """Raises ValueError for a method that does not exist."""
    if optimize not in (True, False, "auto", "optimal", "greedy"):
        raise ValueError(
            f"{function}: optimize must be 'auto', 'optimal', 'greedy', a bool or a path, got {optimize!r}"
        )


def _contraction_order(
    terms: Sequence[Labels], sizes: Mapping[str, int], result: Labels, optimize: bool | str | ContractionPathLike | None
) -> list[tuple[int, ...]]:
    """Returns the operand positions that each step contracts; its product is appended to the list of operands."""
    count = len(terms)
    optimize = False if optimize is None else optimize
    if not isinstance(optimize, bool | str):
        steps = [tuple(sorted(step)) for step in optimize if not isinstance(step, str)]
        left = count
        for step in steps:
            if not step or len(set(step)) != len(step) or step[0] < 0 or step[-1] >= left:
                raise ValueError(f"einsum: each step of optimize {optimize!r} must name different remaining operands")
            left -= len(step) - 1
        if left != 1:
            raise ValueError(f"einsum: optimize {optimize!r} leaves {left} operands")
        return steps
    check_strategy("einsum", optimize)
    if count <= 2 or optimize is False:
        return [(0, 1), *[(0, count - 1 - i) for i in range(1, count - 1)]] if count > 1 else []
    strategy = (
        optimize if optimize in ("optimal", "greedy") else "optimal" if count <= _MAX_OPTIMAL_OPERANDS else "greedy"
    )
    letters = {name: string.ascii_letters[i] for i, name in enumerate(sizes)}
    inputs, output = [",".join(["".join([letters[name] for name in t]) for t in ts]) for ts in (terms, [result])]
    # NumPy plans by shapes alone: these arrays are broadcast scalars without memory.
    shapes = [np.broadcast_to(np.empty(()), [sizes[name] for name in term]) for term in terms]
    path, _ = np.einsum_path(f"{inputs}->{output}", *shapes, optimize=(strategy, 2**62))
    return [tuple(sorted(step)) for step in path[1:]]


def _contract(
    x: Factor,
    y: Factor,
    kept: set[str],
    result: Labels,
    precision: PrecisionLike,
    dtype: DType,
    dot_general: DotGeneral,
) -> Factor:
    """Returns the product of two factors, summed over the axes that are not kept."""
    x, y = x.sum_out({*kept, *y.labels}, dtype), y.sum_out({*kept, *x.labels}, dtype)
    shared = [name for name in x.labels if name in y.labels]
    over = [name for name in shared if name not in kept]
    batch = [name for name in result if name in shared]
    batch += [name for name in shared if name in kept and name not in batch]
    free = [[name for name in f.labels if name not in shared] for f in (x, y)]
    # The operands are swapped if otherwise the axes would not be in the result's order.
    order = [name for name in (*batch, *free[0], *free[1]) if name in result]
    if order != [name for name in result if name in order]:
        x, y, free = y, x, free[::-1]
    numbers = (
        (tuple([x.labels.index(name) for name in over]), tuple([y.labels.index(name) for name in over])),
        (tuple([x.labels.index(name) for name in batch]), tuple([y.labels.index(name) for name in batch])),
    )
    left, right = x.value, y.value
    if left.aval.dtype != right.aval.dtype:  # one is already a product in the result's dtype
        left, right = [convert_dtype(v, dtype) for v in (left, right)]
    out = as_value(
        dot_general(as_array(left), as_array(right), numbers, precision=precision, preferred_element_type=dtype)
    )
    return Factor(out, (*batch, *free[0], *free[1]))
