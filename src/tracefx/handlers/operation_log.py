"""`log`: prints every operation of a function as it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Final, ParamSpec, TypeVar, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.bounded_cache import BoundedCache
from tracefx.control.scan import Scan
from tracefx.core import Array, show_avals
from tracefx.core.jaxpr import Jaxpr
from tracefx.handlers.array_summary import format_array
from tracefx.handlers.instrumentation import Instrument, OperationInfo, Position, RuntimeCallback, relative_path
from tracefx.interpreters.body_transform import BodyKind, BodyName
from tracefx.transforms.arguments import require_callable
from tracefx.transforms.handle import handle

P = ParamSpec("P")
R = TypeVar("R")
INDENT: Final = "  "
MAX_LINES: Final = 4096
"""How many different lines a logged function keeps callbacks for: each shape of an operand is another line."""


def log(
    fun: Callable[P, R],
    *,
    sink: Callable[[str], object] | logging.Logger = print,
    where: Callable[[OperationInfo], object] | None = None,
    values: bool = True,
) -> Callable[P, R]:
    """Returns `fun` with a printed line for every operation: source line, shapes and dtypes, and values.

    Operations in compiled functions, loops and branches are printed when they run, indented, for each iteration and
    only for the branch taken. Small arrays are printed in full, larger ones as their minimum, maximum and mean.
    `log(grad(f))` and `log(vmap(f))` print the operations of the transformed program, `grad(log(f))` and `vmap(log(f))`
    those of `f` itself.

    Args:
        fun: the function to log.
        sink: called with each line of text; a logger logs it at level INFO.
        where: a predicate on `OperationInfo` (`name`, `operands`, `results`, `file`, `line`, ...) that selects the
            operations to print; it is called when the program is traced. With the default, None, all are printed.
        values: whether to print the values of the results.

    Returns:
        A function like `fun`.

    Raises:
        TypeError: if `fun`, `sink` or `where` is not callable.

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
    for name, argument in (("sink", sink), ("where", sink if where is None else where)):
        if not callable(argument):
            raise TypeError(f"log: {name} must be a function, got {argument!r} of type {type(argument).__name__}")
    return handle(fun, Instrument("log", _LogHooks(sink, where), bool(values)))


@final
@frozen
class _LogHooks:
    """Formats operations as lines of text."""

    sink: Callable[[str], object]
    where: Callable[[OperationInfo], object] | None
    callbacks: BoundedCache[Hashable, RuntimeCallback] = field(
        factory=lambda: BoundedCache(MAX_LINES), eq=False, repr=False
    )
    """The callbacks by what they print, reused so that retracing a program gives an equal one."""

    @override
    def __reduce__(self) -> tuple[object, ...]:
        return _LogHooks, (self.sink, self.where)

    def _line(self, text: str, place: str) -> RuntimeCallback:
        key = text, place
        return self.callbacks.get(key) or self.callbacks.insert(key, _PrintOperation(self.sink, text, place))

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

    def enter_body(self, body: BodyName, jaxpr: Jaxpr, depth: int) -> RuntimeCallback | None:
        if body.kind is BodyKind.STEP:
            return self.callbacks.get(depth) or self.callbacks.insert(depth, _PrintStep(self.sink, INDENT * depth))
        if body.kind is BodyKind.CALLED:
            return None
        name = "condition" if body.kind is BodyKind.CONDITION else f"branch {body.index}"
        return self._line(f"{INDENT * depth}{name}", "")

    def after(self, position: Position, op: OperationInfo, depth: int) -> RuntimeCallback | None:
        if op.has_bodies or not self._is_selected(op):
            return None
        text = f"{INDENT * depth}{op.name} {show_avals(op.operands)} -> {show_avals(op.results)}"
        return self._line(text, _location_suffix(op))

    def _is_selected(self, op: OperationInfo) -> bool:
        return self.where is None or bool(self.where(op))


# ------------------------------------------------------------------ runtime callbacks


@final
@frozen(eq=False)
class _PrintOperation:
    """Prints an operation, with its results if it is called with them."""

    sink: Callable[[str], object]
    text: str
    location: str

    def __call__(self, *results: Array) -> None:
        values = f" = {', '.join([format_array(np.asarray(x)) for x in results])}" if results else ""
        self.sink(f"{self.text}{values}{self.location}")


@final
@frozen(eq=False)
class _PrintStep:
    """Prints the number of a loop iteration."""

    sink: Callable[[str], object]
    indent: str

    def __call__(self, step: Array) -> None:
        self.sink(f"{self.indent}step {int(step)}")


def _location_suffix(op: OperationInfo) -> str:
    return "" if not op.file else f"  ({relative_path(op.file)}:{op.line})"
