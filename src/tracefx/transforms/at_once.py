"""Functions of many operations, evaluated as one compiled program."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar, overload

import numpy as np
from typing_extensions import ParamSpec

from tracefx.core.backend import BACKEND
from tracefx.core.values import ConcreteArray, from_numpy
from tracefx.pytrees import trees
from tracefx.pytrees.trees import TreeDef
from tracefx.transforms.evaluations import Compiled, Kind, Plans, evaluated, traced
from tracefx.transforms.jit import jit
from tracefx.transforms.tracing import Trace

P = ParamSpec("P")
R = TypeVar("R")


@overload
def at_once(f: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def at_once(*, arrays: int) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def at_once(f: Callable[..., Any] | None = None, /, *, arrays: int = sys.maxsize) -> Any:
    """`f`, whose arguments by place are arrays (the first `arrays` of them, if it says how many), and whose others are
    none and hashable: compiled where numbers are evaluated, once for each choice of the latter.

    Where a program is traced, it shows the operations of `f`, as other functions do.
    """
    if f is None:
        return functools.partial(_at_once, arrays)
    return _at_once(arrays, f)


def _at_once(arrays: int, f: Callable[P, R]) -> Callable[P, R]:
    plain = jit(f)

    @functools.lru_cache(maxsize=256)
    def chosen(**static: object) -> Callable[..., R]:
        fixed = functools.partial(f, **static)  # type: ignore[arg-type]  # which are arguments of `f`
        return jit(functools.update_wrapper(fixed, f))

    def plan(*kinds: Kind, **options: Any) -> Compiled[R]:
        return _compiled(traced(f, kinds, options))

    def otherwise(*args: P.args, **kwargs: P.kwargs) -> R:
        if arrays != sys.maxsize:
            if not any(isinstance(a, np.ndarray) and a.ndim for a in args):
                return f(*args, **kwargs)
            return call(*[from_numpy(a) if isinstance(a, np.ndarray) and a.ndim else a for a in args], **kwargs)  # type: ignore[arg-type]  # as they were but for their type
        if not kwargs:
            return plain(*args, **kwargs)
        return chosen(**kwargs)(*args)  # type: ignore[arg-type]  # which are hashable

    call = evaluated(f, Plans(plan, arrays, numbers=False, patient=False), otherwise)
    return call


def _compiled(found: Trace) -> Compiled[Any]:
    program = BACKEND.value.compiled(found.jaxpr, found.name, (), False)
    consts, tree, direct = found.consts, found.out_tree, program.on_buffers
    gives_one = tree == trees.structure(0)

    def on_arrays(given: list[ConcreteArray]) -> Any:
        results = program([*consts, *given])
        return results[0] if gives_one else tree.unflatten(results)

    if consts or direct is None:
        return None, on_arrays
    if gives_one:
        return program.on_buffers_one, on_arrays
    together = _together(tree)
    return (lambda buffers: together(direct(buffers))), on_arrays


def _together(tree: TreeDef) -> Callable[[list[ConcreteArray]], Any]:
    """What makes a result of several arrays; of a tuple of some, in less time than of a tree."""
    example = tree.unflatten(range(tree.num_leaves))
    kind = type(example)
    if issubclass(kind, tuple) and [*example] == [*range(tree.num_leaves)]:
        return getattr(kind, "_make", kind)
    return tree.unflatten
