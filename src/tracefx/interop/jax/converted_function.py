"""The common base class of the results of `from_jax` and `to_jax`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import MethodType
from typing import ClassVar, Generic, Self, TypeVar, cast, overload

from typing_extensions import ParamSpec, override

from tracefx.transforms.arguments import fun_name
from tracefx.transforms.transformed_function import importable_name

P = ParamSpec("P")
R = TypeVar("R")


class ConvertedFunction(ABC, Generic[P, R]):
    """A function written with one library as a function of the other. As a class attribute it binds like a method."""

    title: ClassVar[str]
    """The name of the converting function, for `repr`."""
    __wrapped__: Callable[P, R]
    __name__: str

    def __init__(self, fun: Callable[P, R]) -> None:
        self._fun = fun
        self._name = fun_name(fun)

    @abstractmethod
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @property
    @abstractmethod
    def options(self) -> tuple[object, ...]:
        """The arguments of the constructor besides the function, for pickling."""

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[..., R]: ...
    def __get__(self, instance: object | None, owner: type) -> Self | Callable[..., R]:
        return self if instance is None else cast("Callable[..., R]", MethodType(self, instance))

    @override
    def __repr__(self) -> str:
        return f"{self.title}({self._name})"

    @override
    def __reduce__(self) -> str | tuple[object, ...]:
        """Pickles by reference if a module has the object under its name, as for decorated functions; else by parts."""
        return importable_name(self) or (type(self), (self._fun, *self.options))
