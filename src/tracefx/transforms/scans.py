"""`scan` and `map`: a function applied along the first axis of arrays, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeVar, cast

from tracefx.control.scan import Scan
from tracefx.core.array import Array
from tracefx.core.handler import as_array, bind
from tracefx.core.settings import DISABLE_JIT
from tracefx.core.values import Value
from tracefx.errors import TracerIntegerConversionError
from tracefx.ops.shape.shape import concatenate, stack
from tracefx.ops.structural import reshape
from tracefx.pytrees import trees
from tracefx.pytrees.trees import KeyPath, PyTree, TreeDef, keystr
from tracefx.transforms.arguments import flatten_values, fun_name, require_callable, to_arrays
from tracefx.transforms.body_tracing import Adapter, CarryVaryingAxes, trace_step
from tracefx.transforms.tracing import Trace
from tracefx.transforms.vmap import vmap

C = TypeVar("C")
X = TypeVar("X")
Y = TypeVar("Y")


def scan(
    f: Callable[[C, X], tuple[C, Y]],
    init: C,
    xs: X | None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    checkpoint: int | Literal["binomial"] | None = None,
) -> tuple[C, Y]:
    """`f` applied along the first axis of `xs`, the carry handed from step to step: the last carry and all results.

    `carry, y = f(carry, x)` for each slice `x` of `xs`; every carry has the structure and types of `init`. The result
    is the last carry, and the `y` stacked along a new first axis of the `length` of `xs` (which is given where `xs` is
    `None`). With `reverse` the steps run from the last slice to the first. `unroll` steps are put into one round of the
    compiled loop, all of them if it is `True`, one if it is 0.

    Differentiable in both modes; what a step leaves for the backward pass is kept for every step. With `checkpoint=k`
    it is kept for `k` steps at a time: the carry alone is kept where a piece of `k` steps begins, and the steps are
    run once more, which for `length` steps takes the memory of `length / k` carries and `k` steps. `"binomial"` cuts
    the pieces into pieces, and so on: memory grows with the logarithm of `length`, and so does the work.

    `TypeError` if `f` gives no pair, or a carry of another structure or type; `ValueError` if the first axes of `xs`
    differ, or are not there.

    >>> import numpy as np
    >>> scan(lambda total, x: (total + x, total * x), 0.0, np.arange(4.0))
    (Array(6., dtype=float32), Array([0., 0., 2., 9.], dtype=float32))
    """
    require_callable("scan", f)
    return cast(tuple[C, Y], steps(f, None, f"scan of {fun_name(f)}", init, xs, length, reverse, unroll, checkpoint))


def steps(
    f: Callable[..., Any],
    adapt: Adapter | None,
    where: str,
    init: Any,
    xs: Any,
    length: int | None,
    reverse: bool,
    unroll: int | bool,
    checkpoint: int | str | None = None,
) -> tuple[Any, Any]:
    """`scan` of `adapt.adapt(f)`; messages call it `where`."""
    carry, carry_tree = flatten_values(init, f"{where}: init")
    arrays, xs_tree = flatten_values(xs, f"{where}: xs")
    n = _check_length(where, arrays, xs, length)
    rounds = _check_unroll(where, unroll, n)
    if not (checkpoint is None or checkpoint == "binomial" or (type(checkpoint) is int and checkpoint > 0)):
        raise ValueError(f"{where}: checkpoint must be a positive integer, 'binomial' or None, got {checkpoint!r}")
    if DISABLE_JIT.value:
        body = f if adapt is None else adapt.adapt(f)
        return _run_in_python(body, init, arrays, xs_tree, n, reverse, where)
    slices = [a.aval.without_axis(0) for a in arrays]
    in_tree = trees.structure(((_index_tree(carry_tree), _index_tree(xs_tree)), {}))
    m = len(carry)
    traced, step, carry = trace_step(
        where,
        f,
        in_tree,
        carry,
        carry_tree,
        slices,
        lambda t: _split_out_tree(where, t)[0],
        adapt,
        CarryVaryingAxes(arrays),
    )
    ys = _split_out_tree(where, traced)[1]
    key = ("scan", m, n, reverse, rounds, checkpoint)
    op = step.memo.get(key, lambda: Scan(step, n, m, len(traced.consts), reverse, rounds, checkpoint))
    results = to_arrays(bind(op, *traced.consts, *carry, *arrays))
    return carry_tree.unflatten(results[:m]), ys.unflatten(results[m:])


def map(f: Callable[[X], Y], xs: X, *, batch_size: int | None = None) -> Y:
    """`f` of each slice of `xs` along its first axis, one after the other: the results, stacked.

    With `batch_size`, that many slices at a time are done at once, as by `vmap`: more memory for less time. None and 0
    are one slice at a time.

    >>> import numpy as np
    >>> map(lambda x: x * x, np.arange(3.0)).tolist()
    [0.0, 1.0, 4.0]
    """
    require_callable("map", f)
    where = f"map of {fun_name(f)}"
    if batch_size is not None and (isinstance(batch_size, float) or not hasattr(batch_size, "__index__")):
        raise TypeError(f"{where}: batch_size must be an integer or None, got {batch_size!r}")
    if not batch_size:
        _, ys = steps(f, _WITHOUT_CARRY, where, (), xs, None, False, 1)
        return cast(Y, ys)
    if batch_size < 1:
        raise ValueError(f"{where}: batch_size must be a non-negative integer, got {batch_size!r}")
    arrays, tree = flatten_values(xs, f"{where}: xs")
    n = _check_length(where, arrays, xs, None)
    count = n // batch_size
    whole = count * batch_size

    def batches(xs: list[Array], count: int, size: int) -> Any:
        grouped = [reshape(x, (count, size, *x.shape[1:])) for x in xs]
        _, ys = steps(f, _VMAPPED, where, (), tree.unflatten(grouped), count, False, 1)
        return trees.map(lambda y: reshape(y, (count * size, *y.shape[2:])), ys)

    if not whole:
        return cast(Y, batches(_arrays(arrays), 1, n))
    ys = batches([a[:whole] for a in _arrays(arrays)], count, batch_size)
    if whole == n:
        return cast(Y, ys)
    last = batches([a[whole:] for a in _arrays(arrays)], 1, n - whole)
    return cast(Y, trees.map(lambda a, b: concatenate([a, b], 0), ys, last))


def _without_carry(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda none, x: (none, f(x))


_WITHOUT_CARRY: Final = Adapter(_without_carry, lambda _, x: (x,))


def _vmapped(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda none, x: (none, vmap(f)(x))


_VMAPPED: Final = Adapter(_vmapped, lambda _, x: (x,))


def _arrays(values: Sequence[Value]) -> list[Array]:
    return [as_array(v) for v in values]


def _index_tree(tree: TreeDef) -> Any:
    return tree.unflatten(range(tree.num_leaves))


def _paths(tree: PyTree) -> list[KeyPath]:
    return [path for path, _ in trees.flatten_with_path(tree)[0]]


def _check_length(where: str, arrays: list[Value], xs: PyTree, length: int | None) -> int:
    """How many steps there are."""
    sizes = {}
    for path, x in zip(_paths(xs), arrays, strict=True):
        if not x.aval.shape:
            raise ValueError(f"{where}: xs{keystr(path)} has no axis to scan over, it is {x.aval}")
        sizes[keystr(path)] = x.aval.shape[0]
    if length is not None and (isinstance(length, bool) or not hasattr(length, "__index__")):
        raise TypeError(f"{where}: length must be an integer, got {length!r}")
    told = ", ".join(f"xs{path} has {size}" for path, size in sizes.items())
    if len(set(sizes.values())) > 1:
        raise ValueError(f"{where}: all arrays of xs must have one first axis, but {told}")
    if length is None:
        if not sizes:
            raise ValueError(f"{where}: there are no arrays in xs, so length must say how many steps to take")
        return next(iter(sizes.values()))
    try:
        n = length.__index__()
    except TracerIntegerConversionError as error:
        raise TracerIntegerConversionError(
            f"{where}: length must be known when the program is traced, got {length}. {error.detail}For a number of "
            "steps that is known only when the program runs use fori_loop or while_loop",
            error.detail,
        ) from error
    if n < 0 or any(size != n for size in sizes.values()):
        raise ValueError(
            f"{where}: length is {n}, but {told}" if told else f"{where}: length must not be negative: {n}"
        )
    return n


def _check_unroll(where: str, unroll: int | bool, length: int) -> int:
    if isinstance(unroll, bool):
        return max(length, 1) if unroll else 1
    if not hasattr(unroll, "__index__"):
        raise TypeError(f"{where}: unroll must be an integer or a bool, got {unroll!r}")
    if unroll < 0:
        raise ValueError(f"{where}: unroll must be a non-negative integer or a bool, got {unroll!r}")
    return unroll.__index__() or 1


def _split_out_tree(where: str, traced: Trace) -> tuple[TreeDef, TreeDef]:
    """The structures of the carry and of the results that the function gives."""
    out = _index_tree(traced.out_tree)
    if not isinstance(out, tuple | list) or len(out) != 2:
        raise TypeError(f"{where}: the function must give a pair (carry, result), got {traced.out_tree}")
    carry, results = out
    return trees.structure(carry), trees.structure(results)


def _run_in_python(
    f: Callable[..., Any],
    init: Any,
    arrays: list[Value],
    xs_tree: TreeDef,
    length: int,
    reverse: bool,
    where: str,
) -> tuple[Any, Any]:
    """The same in Python, for `disable_jit`."""
    if length == 0:
        raise ValueError(f"{where}: with jit disabled a scan must have a step, to show what its results are like")
    carry, ys = init, []
    for i in reversed(range(length)) if reverse else range(length):
        carry, y = f(carry, xs_tree.unflatten([as_array(a)[i] for a in arrays]))
        ys.append(y)
    if reverse:
        ys.reverse()
    return carry, trees.map(lambda *each: stack(each), ys[0], *ys[1:])
