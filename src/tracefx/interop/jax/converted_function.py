"""What the functions that `from_jax` and `to_jax` give have in common."""

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
    """A function written with one library as a function of the other. It is bound to instances as the function is."""

    title: ClassVar[str]
    """Whose result it is."""
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
        """What beside the function it is made with."""

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
        """By reference where a module has it under its name, as decorated functions are; else by function."""
        return importable_name(self) or (type(self), (self._fun, *self.options))
