"""Einstein's summation: products of arrays by the names of their axes.

Operands are contracted two at a time, each pair by one `dot_general`; what only one of them has and the result
doesn't is summed first, an axis named twice becomes the diagonal.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import EllipsisType
from typing import Final, TypeAlias, final, overload

import numpy as np
from attrs import frozen

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.dtypes import DType, DTypeLike
from tracefx.core.handler import as_array
from tracefx.core.values import Value
from tracefx.numpy.diagonals import diagonal
from tracefx.numpy.dtype_routines import promote_types
from tracefx.numpy.evaluated import by_numpy
from tracefx.numpy.operand_promotion import convert_dtype, promote_dtypes, reject_out
from tracefx.ops import structural
from tracefx.ops.contractions import contraction
from tracefx.ops.contractions.contraction import PrecisionLike
from tracefx.ops.reductions.reduction import reduce_or
from tracefx.ops.static_integers import static_int

Labels: TypeAlias = tuple[str, ...]
ContractionPathLike: TypeAlias = Sequence[Sequence[int] | str]
AxisLabels: TypeAlias = Sequence["int | EllipsisType"]
_LETTERS: Final = sorted(string.ascii_letters)
_MAX_OPTIMAL_OPERANDS: Final = 5
"""Up to so many operands every order is tried."""


@overload
def einsum(
    subscripts: str,
    /,
    *operands: ArrayLike,
    out: None = None,
    optimize: bool | str | ContractionPathLike = "auto",
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array: ...
@overload
def einsum(
    first: ArrayLike,
    axes: AxisLabels,
    /,
    *operands: ArrayLike | AxisLabels,
    out: None = None,
    optimize: bool | str | ContractionPathLike = "auto",
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array: ...
@by_numpy(arrays=0)
def einsum(
    subscripts: str | ArrayLike,
    /,
    *operands: ArrayLike | AxisLabels,
    out: None = None,
    optimize: bool | str | ContractionPathLike = "auto",
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """The products of the operands' elements, summed over every axis that the result doesn't name.

    `subscripts` names the axes: a letter for each, operands separated by commas, `...` for any others, and after `->`
    the result's; without `->` it has the letters that stand once, in order. Axes of one name have one size, or size 1.
    `einsum(x, [0, 1], y, [1, 2], [0, 2])` names the axes by numbers, of each operand and of the result, `...` included.
    `optimize` is the order of contraction: "auto", "optimal", "greedy", False for left to right, or pairs of places.
    Raises ValueError for subscripts that don't fit the operands.

    >>> einsum("ij,jk->ik", np.ones((2, 3)), np.ones((3, 4))).shape
    (2, 4)
    >>> einsum("ii", np.eye(3))
    Array(3., dtype=float32)
    """
    reject_out("einsum", out)
    if not isinstance(subscripts, str):
        subscripts, arrays = _letter_subscripts(subscripts, operands)
    else:
        arrays = operands  # type: ignore[assignment]  # what is no array is refused below
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
        # A step may name more than two.
        total = chosen[0]
        for i, factor in enumerate(chosen[1:], 1):
            kept = {*result, *[name for f in (*factors, *chosen[i + 1 :]) for name in f.labels]}
            total = _contract(total, factor, kept, result, precision, dtype)
        factors.append(total)
    (last,) = factors
    last = last.sum_out(result, dtype)
    present = [name for name in result if name in last.labels]
    found = structural.transpose(last.value, [last.labels.index(name) for name in present])
    # A name may have been left with operands of size 1 there.
    found = structural.broadcast_in_dim(
        found, [sizes[name] for name in result], [i for i, name in enumerate(result) if name in present]
    )
    return as_array(convert_dtype(found, dtype, weak))


@final
@frozen(eq=False)
class Factor:
    """An operand, or a product of some, and the names of its axes, all different."""

    value: Value
    labels: Labels

    def sum_out(self, kept: Iterable[str], dtype: DType) -> Factor:
        """Without the axes that aren't kept. Sums have `dtype`, that of the result, if it holds the elements; those of
        bools are logical or."""
        names = set(kept)
        over = [i for i, name in enumerate(self.labels) if name not in names]
        if not over:
            return self
        own = self.value.aval.dtype
        value = convert_dtype(self.value, dtype) if own != dtype and promote_types(own, dtype) == dtype else self.value
        fold = reduce_or if dtypes.is_bool(value.aval.dtype) else structural.reduce_sum
        return Factor(fold(value, over), tuple([name for name in self.labels if name in names]))


def _letter_subscripts(first: ArrayLike, rest: Sequence[ArrayLike | AxisLabels]) -> tuple[str, Sequence[ArrayLike]]:
    """The subscripts that operands and the numbers of their axes, in turn, and those of the result mean."""
    given = [first, *rest]
    axes = [*given[1::2], *given[-1:]] if len(given) % 2 else given[1::2]
    if len(given) < 2 or not all(isinstance(each, Sequence) and not isinstance(each, str) for each in axes):
        raise TypeError(
            "einsum takes subscripts, a string such as 'ij,jk->ik', and operands, or operands each with a list of "
            f"numbers for its axes, then one for the result's: einsum(x, [0, 1], y, [1, 2], [0, 2]); got {first!r}"
        )
    terms: list[list[int | EllipsisType]] = [
        [i if i is ... else static_int("einsum", i, "an axis") for i in each]
        for each in axes
        if isinstance(each, Sequence)  # as was found above
    ]
    numbers = sorted({i for term in terms for i in term if i is not ...})
    if len(numbers) > len(_LETTERS):
        raise ValueError(f"einsum: there are names for {len(_LETTERS)} axes, but {len(numbers)} are numbered")
    letter = dict(zip(numbers, _LETTERS, strict=False))
    words = ["".join(["..." if i is ... else letter[i] for i in term]) for term in terms]
    count = len(given) // 2
    subscripts = ",".join(words[:count]) + ("->" + words[count] if len(given) % 2 else "")
    return subscripts, given[: 2 * count : 2]  # type: ignore[return-value]  # what is no array is refused by the caller


def _parse_subscripts(subscripts: str, values: Sequence[Value]) -> tuple[list[Labels], Labels]:
    """The names of the operands' axes and of the result's, `...` spelled out."""
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
    """Letters, and numbers for the axes that `...` stands for."""
    front, dots, back = term.partition("...")
    if any(c not in string.ascii_letters for c in front + back):
        raise ValueError(f"einsum: {term!r} in {subscripts!r} must be made of letters and one '...'")
    return (*front, *[str(i) for i in wild if dots], *back)


def _axis_sizes(subscripts: str, terms: Sequence[Labels], values: Sequence[Value]) -> dict[str, int]:
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
    """Without axes of size 1 that stand for larger ones, and with diagonals in the place of axes of one name."""
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


def _contraction_order(
    terms: Sequence[Labels], sizes: Mapping[str, int], result: Labels, optimize: bool | str | ContractionPathLike
) -> list[tuple[int, ...]]:
    """Which operands to contract, step by step; products go to the end of the list."""
    count = len(terms)
    if not isinstance(optimize, bool | str):
        steps = [tuple(sorted(step)) for step in optimize if not isinstance(step, str)]
        left = count
        for step in steps:
            if not step or len(set(step)) != len(step) or step[0] < 0 or step[-1] >= left:
                raise ValueError(f"einsum: optimize {optimize!r} must name operands that are left, each step some")
            left -= len(step) - 1
        if left != 1:
            raise ValueError(f"einsum: optimize {optimize!r} leaves {left} operands")
        return steps
    if optimize not in (True, False, "auto", "optimal", "greedy"):
        raise ValueError(f"einsum: optimize must be 'auto', 'optimal', 'greedy', a bool or a path, got {optimize!r}")
    if count <= 2 or optimize is False:
        return [(0, 1), *[(0, count - 1 - i) for i in range(1, count - 1)]] if count > 1 else []
    how = optimize if optimize in ("optimal", "greedy") else "optimal" if count <= _MAX_OPTIMAL_OPERANDS else "greedy"
    letters = {name: string.ascii_letters[i] for i, name in enumerate(sizes)}
    inputs, output = [",".join(["".join([letters[name] for name in t]) for t in ts]) for ts in (terms, [result])]
    # NumPy plans by shapes alone: these arrays have no memory.
    shapes = [np.broadcast_to(np.empty(()), [sizes[name] for name in term]) for term in terms]
    path, _ = np.einsum_path(f"{inputs}->{output}", *shapes, optimize=(how, 2**62))
    return [tuple(sorted(step)) for step in path[1:]]


def _contract(x: Factor, y: Factor, kept: set[str], result: Labels, precision: PrecisionLike, dtype: DType) -> Factor:
    """The product of two factors, summed over the axes that aren't kept."""
    x, y = x.sum_out({*kept, *y.labels}, dtype), y.sum_out({*kept, *x.labels}, dtype)
    shared = [name for name in x.labels if name in y.labels]
    over = [name for name in shared if name not in kept]
    batch = [name for name in result if name in shared]
    batch += [name for name in shared if name in kept and name not in batch]
    free = [[name for name in f.labels if name not in shared] for f in (x, y)]
    # The later operand comes first where the other order is not that of the result's axes.
    order = [name for name in (*batch, *free[0], *free[1]) if name in result]
    if order != [name for name in result if name in order]:
        x, y, free = y, x, free[::-1]
    numbers = (
        (tuple([x.labels.index(name) for name in over]), tuple([y.labels.index(name) for name in over])),
        (tuple([x.labels.index(name) for name in batch]), tuple([y.labels.index(name) for name in batch])),
    )
    left, right = x.value, y.value
    if left.aval.dtype != right.aval.dtype:  # one of them is a product in the dtype of the result
        left, right = [convert_dtype(v, dtype) for v in (left, right)]
    out = contraction.dot_general(left, right, numbers, precision, dtype)
    return Factor(out, (*batch, *free[0], *free[1]))
