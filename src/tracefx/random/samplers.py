"""`jit_sampler`: compiles the samplers of this package under names that handlers recognize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, TypeVar

from tracefx.core import Array, ArrayLike
from tracefx.random.keys import check_key
from tracefx.transforms.jit import jit

P = ParamSpec("P")
R = TypeVar("R")

_PREFIX: Final = "random."
"""The prefix of sampler names in programs. It contains a dot, so names of user functions can't start with it."""


def jit_sampler(
    *static: str,
) -> Callable[[Callable[Concatenate[Array, P], R]], Callable[Concatenate[ArrayLike, P], R]]:
    """Returns a decorator that compiles a function `_normal` under the name `random.normal` in programs.

    The result checks the key, which is the first argument. A sampler counts as one use of each of its keys, whatever
    its body does with it.

    Args:
        static: the names of the static arguments.
    """

    def decorate(fun: Callable[Concatenate[Array, P], R]) -> Callable[Concatenate[ArrayLike, P], R]:
        name = fun.__name__.lstrip("_")
        fun.__name__ = _PREFIX + name
        compiled = jit(fun, static_argnames=static)

        def sample(key: ArrayLike, /, *args: P.args, **kwargs: P.kwargs) -> R:
            return compiled(check_key(name, key)[0], *args, **kwargs)

        return sample

    return decorate


def is_sampler_name(called: str) -> bool:
    """Returns whether this is the name of a sampler of this package."""
    return called.startswith(_PREFIX)
