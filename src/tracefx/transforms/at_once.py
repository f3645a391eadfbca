"""Functions of many operations, evaluated as one compiled program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from typing_extensions import ParamSpec

from tracefx.core.handler import evaluating
from tracefx.transforms.jit import jit

P = ParamSpec("P")
R = TypeVar("R")


def at_once(f: Callable[P, R]) -> Callable[P, R]:
    """`f`, whose arguments by place are arrays, and whose arguments by name are none and hashable: compiled where
    numbers are evaluated, once for each choice of the latter.

    Where a program is traced, it shows the operations of `f`, as other functions do.
    """
    plain = jit(f)

    @functools.lru_cache(maxsize=256)
    def chosen(**static: object) -> Callable[..., R]:
        fixed = functools.partial(f, **static)  # type: ignore[arg-type]  # which are arguments of `f`
        return jit(functools.update_wrapper(fixed, f))

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not evaluating():
            return f(*args, **kwargs)
        if not kwargs:
            return plain(*args, **kwargs)
        return chosen(**kwargs)(*args)  # type: ignore[arg-type]  # which are hashable

    return call
