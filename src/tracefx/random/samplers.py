"""How functions of this package are compiled: under names that tell whoever handles programs what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from typing_extensions import ParamSpec

from tracefx.transforms.jit import Jitted, jit

P = ParamSpec("P")
R = TypeVar("R")

_PREFIX: Final = "random."
"""Which no function of a user's can begin with."""


def jit_sampler(*static: str) -> Callable[[Callable[P, R]], Jitted[P, R]]:
    """Decorates `_normal` so that programs call it as `random.normal`. The arguments named are static.

    Such a function uses each of its keys once, whatever it does with it.
    """

    def decorate(fun: Callable[P, R]) -> Jitted[P, R]:
        fun.__name__ = _PREFIX + fun.__name__.lstrip("_")
        return jit(fun, static_argnames=static)

    return decorate


def is_sampler_name(called: str) -> bool:
    """Whether a program that is called so is one of this package."""
    return called.startswith(_PREFIX)
