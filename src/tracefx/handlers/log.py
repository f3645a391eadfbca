"""`log`: a function that shows every operation it does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Final, ParamSpec, TypeVar, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.control.scan import Scan
from tracefx.core.array import Array
from tracefx.core.avals import show_avals
from tracefx.core.handler import Handler
from tracefx.core.jaxpr import Jaxpr
from tracefx.handlers.array_summary import format_array
from tracefx.handlers.instrumentation import Instrument, OperationInfo, Position, RuntimeCallback, relative_path
from tracefx.transforms.arguments import require_callable
from tracefx.transforms.handle import handle

P = ParamSpec("P")
R = TypeVar("R")
INDENT: Final = "  "


def log(
    fun: Callable[P, R],
    *,
    sink: Callable[[str], object] | logging.Logger = print,
    where: Callable[[OperationInfo], object] | None = None,
    values: bool = True,
) -> Callable[P, R]:
    """`fun`, which shows every operation that it does: the line of the user's code, types, and values.

    Operations in compiled functions, loops and branches are shown when they happen, in their order, indented, step by
    step; only the branch that is taken is. An array of more than a few elements is shown by its least, greatest and
    mean element. Differentiation and `vmap` inside of `fun` show the operations they make; around it they leave what
    is shown to be the function's own.

    `sink` gets a line of text each time; a logger logs it as information. `where(op)` says which operations are shown,
    by name, types, file, line; it is asked when the program is traced. With `values=False` no values are shown.

    Raises TypeError if `fun`, `sink` or `where` can't be called.

    >>> import tracefx.numpy as fnp
    >>> def f(x):
    ...     return fnp.sin(x) * 2
    >>> log(f)(0.5)  # doctest: +ELLIPSIS
    sin f32[] -> f32[] = 0.479426  (<doctest ...>:2)
    mul f32[], f32[] -> f32[] = 0.958851  (<doctest ...>:2)
    Array(0.9588511, dtype=float32, weak_type=True)
    """
    require_callable("log", fun)
    if isinstance(sink, logging.Logger):
        sink = sink.info
    for name, given in (("sink", sink), ("where", sink if where is None else where)):
        if not callable(given):
            raise TypeError(f"log: {name} must be a function, got {given!r} of type {type(given).__name__}")
    return handle(fun, _LogHandlerFactory(_LogHooks(sink, where), bool(values)))


@final
@frozen
class _LogHandlerFactory:
    """Makes the handler."""

    hooks: _LogHooks
    values: bool

    def __call__(self, inner: Handler) -> Instrument:
        return Instrument(inner, "log", self.hooks, self.values)


@final
@frozen
class _LogHooks:
    """Shows operations as lines of text."""

    sink: Callable[[str], object]
    where: Callable[[OperationInfo], object] | None
    callbacks: dict[Hashable, RuntimeCallback] = field(factory=dict, eq=False, repr=False)
    """What has been made to show something, so that a program that is traced again is the same one."""

    @override
    def __reduce__(self) -> tuple[object, ...]:
        return _LogHooks, (self.sink, self.where)

    def _line(self, text: str, place: str) -> RuntimeCallback:
        key = text, place
        return self.callbacks.get(key) or self.callbacks.setdefault(key, _PrintOperation(self.sink, text, place))

    @property
    def counts_steps(self) -> bool:
        return True

    @property
    def cache_key(self) -> Hashable:
        try:
            hash((self.sink, self.where))
        except TypeError:
            return None
        return self.sink, self.where

    def before(self, position: Position, op: OperationInfo, depth: int) -> RuntimeCallback | None:
        if not self._is_selected(op):
            return None
        name = f"{op.name} of {op.prim.length} steps" if isinstance(op.prim, Scan) else op.name
        return self._line(f"{INDENT * depth}{name} ({show_avals(op.operands)})", _location_suffix(op))

    def enter_body(self, body: str, jaxpr: Jaxpr, depth: int) -> RuntimeCallback | None:
        if body.startswith("a step of "):
            return self.callbacks.get(depth) or self.callbacks.setdefault(depth, _PrintStep(self.sink, INDENT * depth))
        if body.endswith((" of cond", " of while_loop")):
            return self._line(f"{INDENT * depth}{body.removeprefix('the ').partition(' of ')[0]}", "")
        return None

    def after(self, position: Position, op: OperationInfo, depth: int) -> RuntimeCallback | None:
        if op.has_bodies or not self._is_selected(op):
            return None
        text = f"{INDENT * depth}{op.name} {show_avals(op.operands)} -> {show_avals(op.results)}"
        return self._line(text, _location_suffix(op))

    def _is_selected(self, op: OperationInfo) -> bool:
        return self.where is None or bool(self.where(op))


# ------------------------------------------------------------------ what is shown when the program gets there


@final
@frozen(eq=False)
class _PrintOperation:
    """Shows an operation, and its results where it is given them."""

    sink: Callable[[str], object]
    text: str
    place: str

    def __call__(self, *results: Array) -> None:
        values = f" = {', '.join([format_array(np.asarray(x)) for x in results])}" if results else ""
        self.sink(f"{self.text}{values}{self.place}")


@final
@frozen(eq=False)
class _PrintStep:
    sink: Callable[[str], object]
    indent: str

    def __call__(self, step: Array) -> None:
        self.sink(f"{self.indent}step {int(step)}")


def _location_suffix(op: OperationInfo) -> str:
    return "" if op.place is None else f"  ({relative_path(op.file)}:{op.line})"
