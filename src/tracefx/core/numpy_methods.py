"""Decorators of methods that call functions of `tracefx.numpy`, a later layer, which is loaded at the first call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar, cast

from tracefx.core.abstract_array import NUMPY
from tracefx.core.late_binding import LateBound

M = TypeVar("M", bound=Callable[..., object])


def numpy_function(name: str) -> LateBound[M]:
    """Returns the function of `tracefx.numpy` with this name, which is loaded at its first use."""
    function: LateBound[M] = LateBound(f"tracefx.numpy.{name}")
    function.provide(lambda: getattr(NUMPY.value, name))
    return function


def numpy_method(declaration: M, name: str | None = None) -> M:
    """Returns the method that calls a function of `tracefx.numpy` with the array as first argument.

    Args:
        declaration: The signature and docstring of the method.
        name: The name of the function; by default, that of the method.
    """
    function: LateBound[Callable[..., object]] = numpy_function(name or declaration.__name__)

    @functools.wraps(declaration)
    def method(*args: object, **kwargs: object) -> object:
        return function.value(*args, **kwargs)

    return cast(M, method)


def numpy_method_named(name: str) -> Callable[[M], M]:
    """A decorator like `numpy_method` for a method whose name differs from that of the function."""
    return functools.partial(numpy_method, name=name)
