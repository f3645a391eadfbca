"""The function that a transformation returns: it records the transformation and the function, and so can be pickled."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import MethodType
from typing import Any, final

from typing_extensions import override

from tracefx.filtered_tracebacks import filter_traceback
from tracefx.transforms.transform import Transform


@final
class TransformedFunction:
    """A transformed function, with the name, signature and binding behaviour of the original function.

    It is a class and not a closure because closures cannot be pickled. It is pickled as the transformation and the
    function, or by reference if a module has it under the name of the function, as is the case for decorated functions.

    >>> from tracefx.transforms.gradients import Grad
    >>> Grad()(abs)
    Grad()(<built-in function abs>)
    """

    __slots__ = ("__dict__", "__weakref__", "_call", "_transform")

    __wrapped__: Callable[..., Any]

    def __init__(self, transform: Transform, fun: Callable[..., Any], call: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fun)
        self._transform = transform
        self._call = call

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._call(*args, **kwargs)
        except Exception as error:
            filter_traceback(error)
            raise

    def __get__(self, instance: object, owner: type | None = None) -> object:
        return self if instance is None else MethodType(self, instance)

    @override
    def __repr__(self) -> str:
        return f"{self._transform!r}({self.__wrapped__!r})"

    def __copy__(self) -> TransformedFunction:
        return self  # as functions are

    def __deepcopy__(self, memo: object) -> TransformedFunction:
        return self

    @override
    def __reduce__(self) -> str | tuple[object, ...]:
        return importable_name(self) or (_reapply, (self._transform, self.__wrapped__))


def _reapply(transform: Transform, fun: Callable[..., Any]) -> Callable[..., Any]:
    return transform.transformed(fun)


def wrap_transformed(
    transform: Transform, fun: Callable[..., Any]
) -> Callable[[Callable[..., Any]], TransformedFunction]:
    """Returns a decorator that makes a `TransformedFunction` of the implementation of a transformed function."""

    def made(call: Callable[..., Any]) -> TransformedFunction:
        return TransformedFunction(transform, fun, call)

    return made


def importable_name(made: Callable[..., Any]) -> str | None:
    """Returns the qualified name under which the function's module has `made` itself, or None."""
    target: object = sys.modules.get(getattr(made, "__module__", None) or "")
    name: str = getattr(made, "__qualname__", "")
    for part in name.split("."):
        target = getattr(target, part, None)
    return name if target is made else None
