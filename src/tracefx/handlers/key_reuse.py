"""`check_key_reuse`: a function that says so where a random key is used twice."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import ClassVar, Final, Never, ParamSpec, TypeVar, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.control.call import Call
from tracefx.control.callback import DebugCallback, FlatCallback
from tracefx.control.checkpoint import CheckpointPrimitive
from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.dtypes import NDArray
from tracefx.core.effects import DebugEffect
from tracefx.core.handler import bind, current, handling
from tracefx.core.primitive import Primitive
from tracefx.core.settings import X64
from tracefx.core.source_location import SourceLocation, current_provenance
from tracefx.core.values import Value
from tracefx.handlers.instrumentation import relative_path
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules
from tracefx.ops.random.prng import RandomBits, RandomClone, RandomSplit, random_unwrap
from tracefx.pytrees import trees
from tracefx.random.samplers import is_sampler_name
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
        uses = _KeyUses()
        try:
            with handling(_KeyReuseHandler(current(), uses)):
                out = fun(*args, **kwargs)
        finally:
            effects_barrier()  # which raises what programs found that still ran
        return out

    return checked


@final
class _KeyUses:
    """Which keys were used, and where last. It changes while programs run, of which it is a part."""

    def __init__(self) -> None:
        self.remaining_uses: dict[bytes, int] = {}
        self.place: dict[bytes, str] = {}

    def record_use(self, where: str, words: Array) -> None:
        for key in _iterate_keys(words):
            name = key.tobytes()
            if not self.remaining_uses.get(name, 1):
                raise KeyReuseError(
                    f"a random key, of words {key.tolist()}, that was used in {self.place[name]} is used again in "
                    f"{where}: split it before, and use each of the new keys once"
                )
            self.remaining_uses[name] = self.remaining_uses.get(name, 1) - 1
            self.place[name] = where

    def record_clone(self, words: Array) -> None:
        for key in _iterate_keys(words):
            self.remaining_uses[key.tobytes()] = self.remaining_uses.get(key.tobytes(), 1) + 1


def _iterate_keys(words: Array) -> Iterator[NDArray]:
    """Key by key."""
    keys = np.asarray(words)
    yield from keys.reshape(-1, keys.shape[-1])


@final
@frozen(eq=False)
class _KeyReuseHandler(Interpreter[Never, None]):
    """Tells of every use of a key when it happens."""

    title: ClassVar[str] = "check_key_reuse"
    handles_all: ClassVar[bool] = True
    uses: _KeyUses

    @property
    @override
    def rules(self) -> Rules[_KeyReuseHandler, Value]:
        return _RULES

    @property
    @override
    def cache_key(self) -> Hashable:
        return id(self.uses)

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        if isinstance(prim, CheckpointPrimitive) and prim.differentiated:
            return self.inner.bind(prim, args)  # draws the same numbers again, on purpose
        if not isinstance(prim, Call) or not is_sampler_name(prim.callee_name):
            return Interpreter.bind(self, prim, args)
        # A distribution uses its key once, whatever it does with it, and its own lines say nothing.
        for x in args:
            if dtypes.is_key(x.aval.dtype):
                self._call_inner(self.emit_callback, functools.partial(self.uses.record_use, _current_line()), x)
        return self.inner.bind(prim, args)

    def record_use(self, op: RandomBits | RandomSplit, *operands: Value) -> Sequence[Value]:
        self.emit_callback(functools.partial(self.uses.record_use, _current_line()), operands[0])
        return bind(op, *operands)

    def record_clone(self, op: RandomClone, *operands: Value) -> Sequence[Value]:
        self.emit_callback(self.uses.record_clone, operands[0])
        return bind(op, *operands)

    def emit_callback(self, use: Callable[[Array], None], keys: Value) -> None:
        words = random_unwrap(keys)
        function = FlatCallback(use, trees.structure(((words,), {})), None, X64.value)
        bind(DebugCallback(function, DebugEffect(ordered=True)), words)


def _current_line() -> str:
    source = current_provenance(1)
    place: SourceLocation | None = None if source is None else source.resolve()
    return "a line that is not known" if place is None else f"{relative_path(place.file)}:{place.line}"


_RULES: Final = (
    Rules[_KeyReuseHandler, Value]()
    .on(RandomBits, _KeyReuseHandler.record_use)
    .on(RandomSplit, _KeyReuseHandler.record_use)
    .on(RandomClone, _KeyReuseHandler.record_clone)
)
