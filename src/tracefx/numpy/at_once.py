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


def at_once(*static: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function, whose arguments by these names are no arrays: it is compiled where numbers are evaluated.

    Where a program is traced it shows its operations, as other functions do.
    """

    def decorate(f: Callable[P, R]) -> Callable[P, R]:
        compiled = jit(f, static_argnames=static)

        @functools.wraps(f)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return compiled(*args, **kwargs) if evaluating() else f(*args, **kwargs)

        return call

    return decorate
