"""`scan` and `map`: a function applied step by step along the first axis of arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeVar, overload

from tracefx.bounded_cache import memoize_on_object
from tracefx.control.scan import Scan
from tracefx.core import Array, ArrayLike, Value
from tracefx.core.handler import as_array, bind
from tracefx.errors import ShardingTypeError, TracerIntegerConversionError
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interpreters.refs import Ref, lent
from tracefx.ops.shape.shape import concatenate, stack
from tracefx.ops.structural import reshape
from tracefx.pytrees import trees
from tracefx.pytrees.trees import KeyPath, PyTree, TreeDef, keystr
from tracefx.settings import DISABLE_JIT
from tracefx.transforms.arguments import (
    flatten_values,
    flatten_values_and_refs,
    fun_label,
    fun_name,
    require_callable,
    to_arrays,
)
from tracefx.transforms.body_tracing import Adapter, trace_step
from tracefx.transforms.function_types import NamedTupleLike
from tracefx.transforms.tracing import Trace
from tracefx.transforms.vmap import vmap

C = TypeVar("C")
N = TypeVar("N", bound=NamedTupleLike)
X = TypeVar("X")
Y = TypeVar("Y")


@overload
def scan(
    f: Callable[[Array, Array], tuple[ArrayLike, Y]],
    init: ArrayLike,
    xs: ArrayLike,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    checkpoint: int | Literal["binomial"] | None = None,
) -> tuple[Array, Y]: ...
@overload
def scan(
    f: Callable[[Array, X], tuple[ArrayLike, Y]],
    init: ArrayLike,
    xs: X | None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    checkpoint: int | Literal["binomial"] | None = None,
) -> tuple[Array, Y]: ...
@overload
def scan(
    f: Callable[[N, X], tuple[N, Y]],
    init: N,
    xs: X | None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    checkpoint: int | Literal["binomial"] | None = None,
) -> tuple[N, Y]: ...
@overload
def scan(
    f: Callable[[tuple[Array, Array], X], tuple[tuple[ArrayLike, ArrayLike], Y]],
    init: tuple[ArrayLike, ArrayLike],
    xs: X | None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    checkpoint: int | Literal["binomial"] | None = None,
) -> tuple[tuple[Array, Array], Y]: ...
@overload
def scan(
    f: Callable[[C, Array], tuple[C, Y]],
    init: C,
    xs: ArrayLike,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    checkpoint: int | Literal["binomial"] | None = None,
) -> tuple[C, Y]: ...
@overload
def scan(
    f: Callable[[C, X], tuple[C, Y]],
    init: C,
    xs: X | None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    checkpoint: int | Literal["binomial"] | None = None,
) -> tuple[C, Y]: ...
@api_boundary
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    checkpoint: int | Literal["binomial"] | None = None,
) -> tuple[Any, Any]:
    """Applies `f` step by step along the first axis of `xs`, and passes a carry from each step to the next.

    It computes the same as this loop, but `f` is traced once and compiled to one loop:

        def scan(f, init, xs):
            carry, ys = init, []
            for x in xs:
                carry, y = f(carry, x)
                ys.append(y)
            return carry, np.stack(ys)

    In terms of types, `f` is a function `(C, X) -> (C, Y)`: `init` has the type `C`, `xs` has the type `X` with a
    leading axis of steps, and the stacked results have the type `Y` with that axis. All of them may be pytrees.

    The size of the program does not depend on the number of steps, in contrast to a Python loop in a traced function,
    which is unrolled and takes long to compile. The types of the carry cannot change from step to step: weakly typed
    numbers in `init` take the dtype that `f` returns, and any other change is an error. Values that `f` closes over are
    the same in all steps, and their derivatives are summed over the steps. To keep a result of every step, return it as
    `y`; to have none, return None.

    It is differentiable in both modes. Reverse mode stores the residuals of every step, unless `checkpoint` is given.

    Args:
        f: The function of a step, `f(carry, x) -> (carry, y)`. The carry keeps its structure, shapes and dtypes.
        init: The first carry, a pytree of arrays. Python numbers take the dtypes that `f` returns for them.
        xs: A pytree of arrays with the same first axis; step `i` gets their slices at `i`. For a reference
            (`tracefx.new_ref`) it gets a reference to the slice. None, the default, means no slices: `length` is then
            needed.
        length: The number of steps. None, the default, takes it from `xs`.
        reverse: Whether the steps run from the last slice to the first. Results stay at the indices of their slices.
            False by default.
        unroll: How many steps one iteration of the compiled loop does; True means all of them, and 0 and False mean
            one. The default is 1.
        checkpoint: How much reverse mode stores. None, the default: the residuals of all steps. A positive integer `k`:
            one carry per `k` steps, from which the steps are recomputed; this takes the memory of `length / k` carries
            and of the residuals of `k` steps. `"binomial"`: recursive checkpoints, whose memory grows with the
            logarithm of `length`, as does the number of times that a step is computed.

    Returns:
        The pair `(carry, ys)` of the last carry and the results of all steps, stacked along a new first axis.

    Raises:
        TypeError: If `f` is not callable, does not return a pair, or changes the structure, shapes or dtypes of the
            carry, or if `length` or `unroll` is not an integer.
        ValueError: If the first axes of `xs` differ or are missing, if the number of steps is unknown, or if `unroll`
            or `checkpoint` is out of range.

    >>> import numpy as np
    >>> scan(lambda total, x: (total + x, total * x), 0.0, np.arange(4.0))
    (Array(6., dtype=float32), Array([0., 0., 2., 9.], dtype=float32))

    A recurrence without inputs, with a pytree as carry:

    >>> def fibonacci(carry, _):
    ...     return {"a": carry["b"], "b": carry["a"] + carry["b"]}, carry["a"]
    >>> _, numbers = scan(fibonacci, {"a": 0, "b": 1}, length=8)
    >>> numbers.tolist()
    [0, 1, 1, 2, 3, 5, 8, 13]

    The gradient of a recurrent network with respect to its weights, which the step closes over:

    >>> import tracefx.numpy as fnp
    >>> from tracefx import grad
    >>> def last_state(weight, inputs):
    ...     state, _ = scan(lambda h, x: (fnp.tanh(weight * h + x), None), 0.0, inputs)
    ...     return state
    >>> float(grad(last_state)(0.0, np.zeros(3)))
    0.0
    """
    require_callable("scan", f)
    return scan_adapted(f, None, f"scan of {fun_label(f)}", init, xs, length, reverse, unroll, checkpoint)


def scan_adapted(
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
    """Does the work of `scan` for the adapted function `adapt.adapt(f)`; `where` begins the messages."""
    carry, carry_tree = flatten_values(init, f"{where}: init")
    arrays, xs_tree, refs = flatten_values_and_refs(xs, f"{where}: xs")
    if refs:
        body = _over_slices_of_refs(f if adapt is None else adapt.adapt(f), tuple(refs))
        stacked = xs_tree.unflatten(to_arrays(arrays))
        with lent(refs.values(), where):
            out, (outs, contents) = scan_adapted(body, None, where, init, stacked, length, reverse, unroll, checkpoint)
        for ref, new in zip(refs.values(), contents, strict=True):
            ref[...] = new
        return out, outs
    n = _check_length(where, arrays, xs, length)
    for x in arrays:
        if x.aval.spec[0] is not None:
            raise ShardingTypeError(
                f"{where}: the slices of xs must be on all devices, but its first axis is sharded, got {x.aval}: "
                "reshard it with tracefx.sharding.reshard"
            )
    unroll_count = _check_unroll(where, unroll, n)
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
    )
    ys = _split_out_tree(where, traced)[1]
    consts, written = traced.consts, len(traced.written)
    op = _scan_primitive(step, n, m + written, len(consts) - written, reverse, unroll_count, checkpoint)
    results = to_arrays(traced.write_refs(bind(op, *consts, *carry, *arrays)))
    return carry_tree.unflatten(results[:m]), ys.unflatten(results[m:])


_scan_primitive: Final = memoize_on_object(Scan)


def _over_slices_of_refs(f: Callable[..., Any], positions: tuple[int, ...]) -> Callable[..., Any]:
    """Returns the body of a scan whose leaves of `xs` at these positions are references: it gets slices of them.

    It returns the new slices as well, which the scan stacks.
    """

    @functools.wraps(f)
    def step(carry: Any, x: Any) -> Any:
        leaves, tree = trees.flatten(x)
        refs = {i: Ref(leaves[i], f"a slice of a reference in the xs of {fun_name(f)}") for i in positions}
        carry, y = f(carry, tree.unflatten([refs.get(i, leaf) for i, leaf in enumerate(leaves)]))
        return carry, (y, [ref[...] for ref in refs.values()])

    return step


@overload
def map(f: Callable[[Array], Y], xs: ArrayLike, *, batch_size: int | None = None) -> Y: ...
@overload
def map(f: Callable[[X], Y], xs: X, *, batch_size: int | None = None) -> Y: ...
@api_boundary
def map(f: Callable[[Any], Y], xs: PyTree, *, batch_size: int | None = None) -> Y:
    """Applies `f` to each slice of `xs` along the first axis, one after the other, and stacks the results.

    It computes the same as this loop, but `f` is traced once:

        def map(f, xs):
            return np.stack([f(x) for x in xs])

    The result is a `scan` without a carry: it takes the memory of one step at a time, and a `tracefx.lax.cond` in `f`
    runs only one branch. Where memory allows, `vmap` is faster.

    Args:
        f: A function of one slice. It takes and returns pytrees of arrays.
        xs: A pytree of arrays with the same first axis.
        batch_size: How many slices are computed at once, as by `vmap`: more memory for less time. If it does not divide
            the number of slices, the rest is computed as a last, smaller batch. None, the default, and 0 mean one at a
            time.

    Returns:
        The results of `f`, stacked along a new first axis.

    Raises:
        TypeError: If `f` is not callable or `batch_size` is not an integer.
        ValueError: If the first axes of `xs` differ or are missing, or `batch_size` is negative.

    >>> import numpy as np
    >>> map(lambda x: x * x, np.arange(3.0)).tolist()
    [0.0, 1.0, 4.0]
    >>> map(lambda x: x.sum(), np.ones((5, 4)), batch_size=2).tolist()
    [4.0, 4.0, 4.0, 4.0, 4.0]
    """
    require_callable("map", f)
    where = f"map of {fun_label(f)}"
    if batch_size is not None and (isinstance(batch_size, float) or not hasattr(batch_size, "__index__")):
        raise TypeError(f"{where}: batch_size must be an integer or None, got {batch_size!r}")
    ys: Y
    if not batch_size:
        _, ys = scan_adapted(f, _WITHOUT_CARRY, where, (), xs, None, False, 1)
        return ys
    if batch_size < 1:
        raise ValueError(f"{where}: batch_size must be a non-negative integer, got {batch_size!r}")
    arrays, tree = flatten_values(xs, f"{where}: xs")
    n = _check_length(where, arrays, xs, None)
    count = n // batch_size
    whole = count * batch_size

    def batches(xs: list[Array], count: int, size: int) -> Y:
        grouped = [reshape(x, (count, size, *x.shape[1:])) for x in xs]
        _, ys = scan_adapted(f, _VMAPPED, where, (), tree.unflatten(grouped), count, False, 1)
        joined: Y = trees.map(lambda y: reshape(y, (count * size, *y.shape[2:])), ys)
        return joined

    if not whole:
        return batches(_arrays(arrays), 1, n)
    ys = batches([a[:whole] for a in _arrays(arrays)], count, batch_size)
    if whole == n:
        return ys
    last = batches([a[whole:] for a in _arrays(arrays)], 1, n - whole)
    both: Y = trees.map(lambda a, b: concatenate([a, b], 0), ys, last)
    return both


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
    """Returns the number of steps."""
    sizes = {}
    for path, x in zip(_paths(xs), arrays, strict=True):
        if not x.aval.shape:
            raise ValueError(f"{where}: xs{keystr(path)} has no axis to scan over, it is {x.aval}")
        sizes[keystr(path)] = x.aval.shape[0]
    if length is not None and (isinstance(length, bool) or not hasattr(length, "__index__")):
        raise TypeError(f"{where}: length must be an integer, got {length!r}")
    sizes_text = ", ".join(f"xs{path} has {size}" for path, size in sizes.items())
    if len(set(sizes.values())) > 1:
        raise ValueError(f"{where}: all arrays of xs must have the same first axis, but {sizes_text}")
    if length is None:
        if not sizes:
            raise ValueError(f"{where}: there are no arrays in xs, so the number of steps is unknown; pass length")
        return next(iter(sizes.values()))
    try:
        n = length.__index__()
    except TracerIntegerConversionError as error:
        raise TracerIntegerConversionError(
            f"{where}: length must be a concrete integer, but {error.detail} For a traced number of steps, use "
            "fori_loop or while_loop",
            error.detail,
        ) from error
    if n < 0 or any(size != n for size in sizes.values()):
        raise ValueError(
            f"{where}: length is {n}, but {sizes_text}" if sizes_text else f"{where}: length must not be negative: {n}"
        )
    return n


def _check_unroll(where: str, unroll: int | bool, length: int) -> int:
    """Returns the number of steps per iteration of the compiled loop."""
    if isinstance(unroll, bool):
        return max(length, 1) if unroll else 1
    if not hasattr(unroll, "__index__"):
        raise TypeError(f"{where}: unroll must be an integer or a bool, got {unroll!r}")
    if unroll < 0:
        raise ValueError(f"{where}: unroll must be a non-negative integer or a bool, got {unroll!r}")
    return unroll.__index__() or 1


def _split_out_tree(where: str, traced: Trace) -> tuple[TreeDef, TreeDef]:
    """Returns the structures of the carry and of the results of a step."""
    out = _index_tree(traced.out_tree)
    if not isinstance(out, tuple | list) or len(out) != 2:
        got = trees.show_structure(traced.out_tree, "one array")
        raise TypeError(f"{where}: the function must return a pair (carry, result), got {got}")
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
    """Runs the steps in a Python loop, for `disable_jit`."""
    if length == 0:
        raise ValueError(
            f"{where}: with jit disabled a scan of no steps is impossible: the types of its results are unknown"
        )
    carry, ys = init, []
    for i in reversed(range(length)) if reverse else range(length):
        carry, y = f(carry, xs_tree.unflatten([as_array(a)[i] for a in arrays]))
        ys.append(y)
    if reverse:
        ys.reverse()
    return carry, trees.map(lambda *each: stack(each), ys[0], *ys[1:])
