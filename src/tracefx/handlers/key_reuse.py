"""`check_key_reuse`: raises an error where a random key is used twice."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Never, ParamSpec, TypeVar, final

import numpy as np
from typing_extensions import override

from tracefx.control.call import Call
from tracefx.control.callback import DebugCallback, FlatCallback
from tracefx.control.checkpoint import CheckpointPrimitive
from tracefx.core import Array, NDArray, Value, dtypes
from tracefx.core.effects import DebugEffect
from tracefx.core.handler import bind
from tracefx.core.primitive import Primitive
from tracefx.errors import KeyReuseError
from tracefx.extend import here
from tracefx.filtered_tracebacks import api_boundary
from tracefx.handlers.instrumentation import relative_path
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rule_methods import rule
from tracefx.ops.random.prng import RandomBits, RandomClone, RandomSplit, random_unwrap
from tracefx.pytrees import trees
from tracefx.random.samplers import is_sampler_name
from tracefx.settings import X64
from tracefx.transforms.arguments import require_callable
from tracefx.transforms.callbacks import effects_barrier

P = ParamSpec("P")
R = TypeVar("R")


def check_key_reuse(fun: Callable[P, R]) -> Callable[P, R]:
    """Returns `fun` with a runtime check that raises `KeyReuseError` where a random key is used twice.

    Drawing from a key and `split` count as uses; `fold_in` does not, and `clone` permits one more use. Keys are
    compared by value, so a key that a loop closes over is found to be reused in its second iteration. Recomputation in
    the backward pass of `checkpoint` does not count. Every call starts without used keys; inside `jit`, only the first
    call of the compiled function does.

    Args:
        fun: the function to check.

    Returns:
        A function like `fun`.

    Raises:
        KeyReuseError: when the program runs and reuses a key; the message has the lines of both uses.
        TypeError: if `fun` is not callable.

    >>> from tracefx import random
    >>> def noise(key):
    ...     return random.normal(key) + random.uniform(key)
    >>> check_key_reuse(noise)(random.key(0))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tracefx.errors.KeyReuseError: the random key [0, 0] is reused: it was used in ...
    """
    require_callable("check_key_reuse", fun)

    @api_boundary
    @functools.wraps(fun)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with _KeyReuseHandler(_KeyUses()).running():
                out = fun(*args, **kwargs)
        finally:
            effects_barrier()  # raises the errors of programs that were still running
        return out

    return checked


@final
class _KeyUses:
    """The keys used so far and the lines of their last uses; it changes while the checked programs run."""

    def __init__(self) -> None:
        self.remaining_uses: dict[bytes, int] = {}
        self.last_use: dict[bytes, str] = {}

    def record_use(self, where: str, words: Array) -> None:
        for key in _iterate_keys(words):
            name = key.tobytes()
            if not self.remaining_uses.get(name, 1):
                raise KeyReuseError(
                    f"the random key {key.tolist()} is reused: it was used in {self.last_use[name]} and is used again "
                    f"in {where}: split it before, and use each of the new keys once"
                )
            self.remaining_uses[name] = self.remaining_uses.get(name, 1) - 1
            self.last_use[name] = where

    def record_clone(self, words: Array) -> None:
        for key in _iterate_keys(words):
            self.remaining_uses[key.tobytes()] = self.remaining_uses.get(key.tobytes(), 1) + 1


def _iterate_keys(words: Array) -> Iterator[NDArray]:
    """Yields the words of each key."""
    keys = np.asarray(words)
    yield from keys.reshape(-1, keys.shape[-1])


@final
class _KeyReuseHandler(Interpreter[Never, None]):
    """Records each use of a key at run time."""

    title: ClassVar[str] = "check_key_reuse"
    uses: _KeyUses

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        if isinstance(prim, CheckpointPrimitive) and prim.differentiated:
            return self.inner.bind(prim, args)  # recomputes the same random numbers on purpose
        if not isinstance(prim, Call) or not is_sampler_name(prim.callee_name):
            return Interpreter.bind(self, prim, args)
        # A sampler uses its key once, whatever it does inside; the lines of its implementation are not reported.
        for x in args:
            if dtypes.is_key(x.aval.dtype):
                self._call_inner(self.emit_callback, functools.partial(self.uses.record_use, _current_line()), x)
        return self.inner.bind(prim, args)

    @rule(RandomBits, RandomSplit)
    def record_use(self, op: RandomBits | RandomSplit, *operands: Value) -> Sequence[Value]:
        self.emit_callback(functools.partial(self.uses.record_use, _current_line()), operands[0])
        return bind(op, *operands)

    @rule(RandomClone)
    def record_clone(self, op: RandomClone, *operands: Value) -> Sequence[Value]:
        self.emit_callback(self.uses.record_clone, operands[0])
        return bind(op, *operands)

    def emit_callback(self, use: Callable[[Array], None], keys: Value) -> None:
        words = random_unwrap(keys)
        function = FlatCallback(use, trees.structure(((words,), {})), None, X64.value)
        bind(DebugCallback(function, DebugEffect(ordered=True)), words)


def _current_line() -> str:
    location = here()
    return f"{relative_path(location.file)}:{location.line}" if location.file else str(location)
