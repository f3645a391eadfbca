"""`jit_sampler`: compiles the samplers of this package under names that handlers recognize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from typing_extensions import ParamSpec

from tracefx.transforms.jit import Jitted, jit

P = ParamSpec("P")
R = TypeVar("R")

_PREFIX: Final = "random."
"""The prefix of sampler names in programs. It contains a dot, so names of user functions can't start with it."""


def jit_sampler(*static: str) -> Callable[[Callable[P, R]], Jitted[P, R]]:
    """Returns a decorator that compiles a function `_normal` under the name `random.normal` in programs.

    A sampler counts as one use of each of its keys, whatever its body does with it.

    Args:
        static: the names of the static arguments.
    """

    def decorate(fun: Callable[P, R]) -> Jitted[P, R]:
        fun.__name__ = _PREFIX + fun.__name__.lstrip("_")
        return jit(fun, static_argnames=static)

    return decorate


def is_sampler_name(called: str) -> bool:
    """Returns whether this is the name of a sampler of this package."""
    return called.startswith(_PREFIX)
