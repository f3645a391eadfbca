"""`check_key_reuse`: a function that says so where a random key is used twice."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import ClassVar, Final, Never, ParamSpec, TypeVar, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.control.call import Call
from tracefx.control.callback import DebugCallback, HostFunction
from tracefx.control.checkpoint import Checkpoint
from tracefx.core import dtypes, trees
from tracefx.core.array import Array
from tracefx.core.dtypes import NDArray
from tracefx.core.effects import Debugging
from tracefx.core.handler import bind, current, handling
from tracefx.core.primitive import Primitive
from tracefx.core.settings import X64
from tracefx.core.source import Place, here
from tracefx.core.values import Value
from tracefx.handlers.watching import short
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules
from tracefx.ops.keys import RandomBits, RandomClone, RandomSplit, random_unwrap
from tracefx.random.drawing import is_draw
from tracefx.transforms.arguments import require_callable
from tracefx.transforms.callbacks import effects_barrier

P = ParamSpec("P")
R = TypeVar("R")


class KeyReuseError(ValueError):
    """A random key was used for a second time: what is drawn from it is no news."""


def check_key_reuse(fun: Callable[P, R]) -> Callable[P, R]:
    """`fun`, which raises `KeyReuseError` where a key is used twice, with the lines of both uses.

    To draw from a key uses it, and so does `split`; `fold_in` doesn't, and `clone` gives one more use. Keys are told
    by their words, wherever they went in between, so a key in a loop is seen to be used again in the second step. What
    `checkpoint` computes again in the backward pass is no second use. Each call begins anew; inside of `jit`, the first
    call of the compiled function does.

    >>> from tracefx import random
    >>> def noise(key):
    ...     return random.normal(key) + random.uniform(key)
    >>> check_key_reuse(noise)(random.key(0))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tracefx.handlers.key_reuse.KeyReuseError: a random key, of words [0, 0], that was used in ...
    """
    require_callable("check_key_reuse", fun)

    @functools.wraps(fun)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        uses = _Uses()
        try:
            with handling(_Checker(current(), uses)):
                out = fun(*args, **kwargs)
        finally:
            effects_barrier()  # which raises what programs found that still ran
        return out

    return checked


@final
class _Uses:
    """Which keys were used, and where last. It changes while programs run, of which it is a part."""

    def __init__(self) -> None:
        self.left: dict[bytes, int] = {}
        self.place: dict[bytes, str] = {}

    def used(self, where: str, words: Array) -> None:
        for key in _each(words):
            name = key.tobytes()
            if not self.left.get(name, 1):
                raise KeyReuseError(
                    f"a random key, of words {key.tolist()}, that was used in {self.place[name]} is used again in "
                    f"{where}: split it before, and use each of the new keys once"
                )
            self.left[name] = self.left.get(name, 1) - 1
            self.place[name] = where

    def cloned(self, words: Array) -> None:
        for key in _each(words):
            self.left[key.tobytes()] = self.left.get(key.tobytes(), 1) + 1


def _each(words: Array) -> Iterator[NDArray]:
    """Key by key."""
    keys = np.asarray(words)
    yield from keys.reshape(-1, keys.shape[-1])


@final
@frozen(eq=False)
class _Checker(Interpreter[Never, None]):
    """Tells of every use of a key when it happens."""

    title: ClassVar[str] = "check_key_reuse"
    everything: ClassVar[bool] = True
    uses: _Uses

    @property
    @override
    def rules(self) -> Rules[_Checker, Value]:
        return _RULES

    @property
    @override
    def key(self) -> Hashable:
        return id(self.uses)

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        if isinstance(prim, Checkpoint) and prim.differentiated:
            return self.inner.bind(prim, args)  # draws the same numbers again, on purpose
        if not isinstance(prim, Call) or not is_draw(prim.called):
            return Interpreter.bind(self, prim, args)
        # A distribution uses its key once, whatever it does with it, and its own lines say nothing.
        for x in args:
            if dtypes.is_key(x.aval.dtype):
                self._below(self.tell, functools.partial(self.uses.used, _line()), x)
        return self.inner.bind(prim, args)

    def used(self, op: RandomBits | RandomSplit, *operands: Value) -> Sequence[Value]:
        self.tell(functools.partial(self.uses.used, _line()), operands[0])
        return bind(op, *operands)

    def cloned(self, op: RandomClone, *operands: Value) -> Sequence[Value]:
        self.tell(self.uses.cloned, operands[0])
        return bind(op, *operands)

    def tell(self, use: Callable[[Array], None], keys: Value) -> None:
        words = random_unwrap(keys)
        function = HostFunction(use, trees.structure(((words,), {})), None, X64.value)
        bind(DebugCallback(function, Debugging(ordered=True)), words)


def _line() -> str:
    source = here(1)
    place: Place | None = None if source is None else source.place()
    return "a line that is not known" if place is None else f"{short(place.file)}:{place.line}"


_RULES: Final = (
    Rules[_Checker, Value]()
    .on(RandomBits, _Checker.used)
    .on(RandomSplit, _Checker.used)
    .on(RandomClone, _Checker.cloned)
)
