"""`associative_scan`: all prefix sums of an associative operation, in logarithmically many parallel steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from tracefx.core import Array
from tracefx.core.handler import as_array
from tracefx.filtered_tracebacks import api_boundary
from tracefx.ops.shape.shape import concatenate, stack
from tracefx.ops.shape.slicing import rev
from tracefx.ops.shape.slicing import slice as cut
from tracefx.ops.static_integers import canonicalize_axis
from tracefx.ops.structural import reshape
from tracefx.transforms.arguments import flatten_values, fun_label, output_label, require_callable
from tracefx.transforms.body_tracing import raise_structure_mismatch

T = TypeVar("T")


@api_boundary
def associative_scan(fn: Callable[[T, T], T], elems: T, reverse: bool = False, axis: int = 0) -> T:
    """Computes `[a, fn(a, b), fn(fn(a, b), c), ...]` for the elements of `elems` along an axis (a prefix sum or scan).

    It computes the same as this loop along the first axis, but in logarithmically many steps, which run in parallel:

        def associative_scan(fn, elems):
            results = [elems[0]]
            for x in elems[1:]:
                results.append(fn(results[-1], x))
            return np.stack(results)

    It calls `fn` about `2 * log2(n)` times for `n` elements, each time on many elements at once: `fn` works on arrays
    with several elements along `axis`, elementwise along it (apply `vmap` to a function of one element). `fn` has to be
    associative, `fn(fn(a, b), c) == fn(a, fn(b, c))`, which is not checked. Linear recurrences can be written in this
    way.

    Args:
        fn: An associative function of two pytrees like `elems`, which combines the elements at the same positions along
            `axis`. It is called with various numbers of elements along that axis.
        elems: A pytree of arrays with the same size along `axis`.
        reverse: Whether suffixes are combined instead, starting from the last element. False by default.
        axis: The axis along which to combine. The default is the first axis.

    Returns:
        A pytree like `elems` with the combined elements.

    Raises:
        TypeError: If `fn` is not callable or returns another structure.
        ValueError: If the arrays differ in size along `axis`.

    >>> import numpy as np
    >>> associative_scan(lambda a, b: a + b, np.arange(1.0, 6.0)).tolist()
    [1.0, 3.0, 6.0, 10.0, 15.0]

    The recurrence `y[i] = a[i] * y[i - 1] + b[i]`, whose steps are compositions of affine functions:

    >>> def compose(f, g):
    ...     return f[0] * g[0], g[0] * f[1] + g[1]
    >>> _, y = associative_scan(compose, (np.full(4, 2.0), np.ones(4)))
    >>> y.tolist()
    [1.0, 3.0, 7.0, 15.0]
    """
    require_callable("associative_scan", fn)
    where = f"associative_scan of {fun_label(fn)}"
    values, tree = flatten_values(elems, f"{where}: elems")
    arrays = [as_array(v) for v in values]
    if not arrays:
        return elems
    axes = [canonicalize_axis(where, axis, a.ndim) for a in arrays]
    lengths = {a.shape[i] for a, i in zip(arrays, axes, strict=True)}
    if len(lengths) > 1:
        raise ValueError(f"{where}: all arrays must have the same size along axis {axis}, got {sorted(lengths)}")

    def combine(a: Sequence[Array], b: Sequence[Array]) -> list[Array]:
        out, out_tree = flatten_values(fn(tree.unflatten(a), tree.unflatten(b)), output_label(fn))
        if out_tree != tree:
            raise_structure_mismatch(where, ("going in", tree), ("coming out", out_tree))
        return [as_array(x) for x in out]

    def turned(xs: Sequence[Array]) -> list[Array]:
        return [rev(x, (i,)) for x, i in zip(xs, axes, strict=True)] if reverse else list(xs)

    combined: T = tree.unflatten(turned(_scan(combine, turned(arrays), axes)))
    return combined


Combine: TypeAlias = Callable[[Sequence[Array], Sequence[Array]], list[Array]]


def _scan(combine: Combine, xs: Sequence[Array], axes: Sequence[int]) -> list[Array]:
    """Computes the prefixes recursively.

    Combines neighbours in pairs, computes the prefixes of the pairs, which are every second result, and combines each
    with the element after it, which yields the other results.
    """
    n = xs[0].shape[axes[0]]
    if n < 2:
        return list(xs)
    odd = _scan(combine, combine(_slice_all(xs, axes, 0, n - 1), _slice_all(xs, axes, 1, n)), axes)
    if n == 2:
        return [concatenate([x, y], i) for x, y, i in zip(_slice_all(xs, axes, 0, 1), odd, axes, strict=True)]
    prefixes = odd if n % 2 else _slice_all(odd, axes, 0, n // 2 - 1, 1)
    combined = combine(prefixes, _slice_all(xs, axes, 2, n))
    even = [concatenate([x, y], i) for x, y, i in zip(_slice_all(xs, axes, 0, 1), combined, axes, strict=True)]
    return [_interleave(a, b, i) for a, b, i in zip(even, odd, axes, strict=True)]


def _slice_all(xs: Sequence[Array], axes: Sequence[int], start: int, stop: int, stride: int = 2) -> list[Array]:
    return [_slice_axis(x, i, start, stop, stride) for x, i in zip(xs, axes, strict=True)]


def _slice_axis(x: Array, axis: int, start: int, stop: int, stride: int = 1) -> Array:
    starts = [start if i == axis else 0 for i in range(x.ndim)]
    stops = [stop if i == axis else n for i, n in enumerate(x.shape)]
    return cut(x, starts, stops, [stride if i == axis else 1 for i in range(x.ndim)])


def _interleave(even: Array, odd: Array, axis: int) -> Array:
    """Interleaves the elements of both arrays along `axis`; `even` may have one more."""
    n = odd.shape[axis]
    pairs = stack([_slice_axis(even, axis, 0, n), odd], axis + 1)
    interleaved = reshape(pairs, (*odd.shape[:axis], 2 * n, *odd.shape[axis + 1 :]))
    if even.shape[axis] == n:
        return interleaved
    return concatenate([interleaved, _slice_axis(even, axis, n, n + 1)], axis)
