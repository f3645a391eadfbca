"""`jax.extend.linear_util`: functions with transformations that are applied to their arguments and results."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias, final

from tracefx.tree_util import tree_flatten, tree_unflatten

Transformation: TypeAlias = Callable[..., Any]
"""A generator function, which yields arguments, receives a result, and yields another; or a plain function."""


class StoreException(Exception):
    """A `Store` has no value yet, or has two."""


@final
class Store:
    """A value that a transformation computes beside the result of the function."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: list[Any] = []

    def store(self, value: Any) -> None:
        """Sets the value."""
        self._values = [value]

    @property
    def val(self) -> Any:
        """The value; raises `StoreException` before the function has been called."""
        if not self._values:
            raise StoreException("the function has not been called yet")
        return self._values[0]

    def __bool__(self) -> bool:
        return bool(self._values)


@final
class WrappedFun:
    """A function with transformations, the outermost first.

    Args:
        f: The function.
        transforms: Its transformations: each a function, its own arguments, and the store for its second result.
        params: Keyword arguments of the function.
        debug_info: Names for messages.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        transforms: tuple[tuple[Transformation, tuple[Any, ...], Store | None], ...] = (),
        params: dict[str, Any] | None = None,
        debug_info: object = None,
    ) -> None:
        self.f, self.transforms, self.params, self.debug_info = f, transforms, params or {}, debug_info
        self.in_type = None

    @property
    def __name__(self) -> str:
        return str(getattr(self.f, "__name__", "<unnamed function>"))

    def wrap(self, gen: Transformation, gen_args: tuple[Any, ...], store: Store | None) -> WrappedFun:
        """Returns the function with one more transformation."""
        return WrappedFun(self.f, ((gen, gen_args, store), *self.transforms), self.params, self.debug_info)

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function with its transformations."""
        call: Callable[..., Any] = functools.partial(self.f, **self.params)
        for gen, gen_args, store in reversed(self.transforms):
            call = functools.partial(_apply, gen, gen_args, store, call)
        return call(*args, **kwargs)


def _apply(
    gen: Transformation,
    gen_args: tuple[Any, ...],
    store: Store | None,
    f: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    if not inspect.isgeneratorfunction(inspect.unwrap(gen)):
        return gen(f, *(() if store is None else (store,)), *gen_args, *args, **kwargs)
    steps = gen(*gen_args, *args, **kwargs)
    inner_args, inner_kwargs = next(steps)
    out = steps.send(f(*inner_args, **inner_kwargs))
    steps.close()
    if store is not None:
        out, aux = out
        store.store(aux)
    return out


def transformation(gen: Transformation) -> Callable[..., WrappedFun]:
    """Makes a transformation of `WrappedFun` values."""
    return lambda fun, *gen_args: fun.wrap(gen, gen_args, None)


def transformation_with_aux(gen: Transformation) -> Callable[..., tuple[WrappedFun, Callable[[], Any]]]:
    """Makes a transformation that also returns a function, which returns the value that the transformation stores."""

    def wrap(fun: WrappedFun, *gen_args: Any) -> tuple[WrappedFun, Callable[[], Any]]:
        store = Store()
        return fun.wrap(gen, gen_args, store), lambda: store.val

    return wrap


def wrap_init(f: Callable[..., Any], params: dict[str, Any] | None = None, *, debug_info: object = None) -> WrappedFun:
    """Returns a function without transformations."""
    return WrappedFun(f, (), params, debug_info)


def merge_linear_aux(aux1: Callable[[], Any], aux2: Callable[[], Any]) -> tuple[bool, Any]:
    """Returns the value that one of two transformations stored, and whether it was the first."""
    try:
        out1 = aux1()
    except StoreException:
        return False, aux2()
    try:
        aux2()
    except StoreException:
        return True, out1
    raise StoreException("both functions have been called")


@transformation_with_aux
def flatten_fun(in_tree: Any, *args_flat: Any) -> Any:
    """Makes a function take and return flat lists; `in_tree` is the structure of `(args, kwargs)`."""
    args, kwargs = tree_unflatten(in_tree, args_flat)
    yield tree_flatten((yield args, kwargs))


@transformation_with_aux
def flatten_fun_nokwargs(in_tree: Any, *args_flat: Any) -> Any:
    """Makes a function take and return flat lists; `in_tree` is the structure of its arguments."""
    yield tree_flatten((yield tree_unflatten(in_tree, args_flat), {}))
