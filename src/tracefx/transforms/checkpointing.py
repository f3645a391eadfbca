"""`checkpoint`: a function whose backward pass computes again what it would otherwise have kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast, overload

from typing_extensions import ParamSpec

from tracefx.control.checkpoint import Checkpoint, Name
from tracefx.control.saving import Policy
from tracefx.core import trees
from tracefx.core.array import is_arraylike
from tracefx.core.bounds import keep
from tracefx.core.handler import bind, bind1
from tracefx.core.settings import DISABLE_JIT
from tracefx.transforms.arguments import argument_names, flatten_values, name_of, require_callable, to_arrays
from tracefx.transforms.statics import StaticArguments
from tracefx.transforms.tracing import KINDS, TRACES, keepable, signature, trace

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@overload
def checkpoint(
    fun: Callable[P, R],
    *,
    prevent_cse: bool = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Callable[P, R]: ...
@overload
def checkpoint(
    *,
    prevent_cse: bool = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    prevent_cse: bool = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Any:
    """`fun`, of whose intermediate values the backward pass keeps none, but computes them again from the arguments.

    Memory for time: a long computation cut into checkpointed pieces needs, backwards, the memory of the cuts and of
    one piece. `policy` says of which operations the results are kept all the same; see `checkpoint_policies`. Set
    `prevent_cse=False` where the compiler can't undo the effect by sharing the two computations, as in the body of a
    `scan`: it may then optimize more. Arguments at `static_argnums` and `static_argnames` are not traced.

    >>> import tracefx as fx
    >>> float(fx.grad(checkpoint(lambda x: fx.numpy.sin(fx.numpy.sin(x))))(0.0))
    1.0
    """
    if fun is None:
        return functools.partial(
            checkpoint,
            prevent_cse=prevent_cse,
            policy=policy,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
        )
    require_callable("checkpoint", fun)
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    static = StaticArguments.of(fun, numbers, names, "static")
    where = f"checkpoint of {name_of(fun)}: arguments"
    traces = TRACES.traces(fun)

    @functools.wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if DISABLE_JIT.value:
            return fun(*args, **kwargs)
        dynamic, statics = static.split(where, args, kwargs)
        values, in_tree = flatten_values(dynamic, where)
        key = signature(in_tree, tuple([v.aval for v in values]), statics), static
        traced = traces.get(key)
        if traced is None:
            origins = argument_names(fun, name_of(fun), *dynamic, static.dynamic_places(len(args)))
            closed = static.closed_over(fun, args, kwargs)
            traced = trace(closed, in_tree, key[0].avals, origins, name_of(fun), "checkpoint")
            if keepable(traced):
                traced = keep(traces, key, traced, KINDS)
        body = traced.jaxpr
        op = body.memo.get(("checkpoint", prevent_cse, policy), lambda: Checkpoint(body, False, policy, prevent_cse))
        return traced.out_tree.unflatten(to_arrays(bind(op, *traced.consts, *values)))

    return checkpointed


remat = checkpoint


def checkpoint_name(x: T, name: str) -> T:
    """`x`, a tree of arrays, under a name that policies such as `save_only_these_names` refer to.

    >>> checkpoint_name(1.0, "activations")
    Array(1., dtype=float32, weak_type=True)
    """
    if not isinstance(name, str):
        raise TypeError(f"checkpoint_name: the name must be a string, got {name!r}")
    return cast(T, trees.map(lambda leaf: bind1(Name(name), leaf) if is_arraylike(leaf) else leaf, x))
