"""`seed`: draws the random values of a probabilistic program with a key."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ClassVar, Never, ParamSpec, TypeVar, final

from tracefx import random
from tracefx.core import Array, ArrayLike, Value, dtypes, get_aval
from tracefx.core.handler import bind
from tracefx.errors import UnseededError
from tracefx.filtered_tracebacks import api_boundary
from tracefx.handlers.probabilistic.sample_sites import Sample
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rule_methods import rule
from tracefx.random.keys import check_key
from tracefx.transforms.arguments import require_callable

P = ParamSpec("P")
R = TypeVar("R")


def seed(fun: Callable[P, R], key: ArrayLike) -> Callable[P, R]:
    """Returns `fun` with random numbers: each `sample` in it draws a value with its own key.

    The same key gives the same values. Every loop iteration draws new values. `vmap(seed(f, key))` draws the same
    values for the whole batch; `seed(vmap(f), key)`, and `vmap(lambda key, x: seed(f, key)(x))` with a batch of keys,
    draw different ones for each element. Under `grad`, a value depends on the fields of a `Reparametrized`
    distribution.

    Args:
        fun: a probabilistic program, which calls `sample`.
        key: a key of `tracefx.random`, or an integer seed.

    Returns:
        A function like `fun`.

    Raises:
        TypeError: if `fun` is not callable or `key` is neither a key nor an integer.

    >>> from tracefx.handlers import Uniform, sample
    >>> from tracefx import lax
    >>> def walk():
    ...     return lax.fori_loop(0, 100, lambda i, x: x + sample("step", Uniform(-1.0, 1.0)), 0.0)
    >>> seed(walk, 1)() != seed(walk, 2)()
    Array(True, dtype=bool)
    """
    require_callable("seed", fun)
    as_key(key)

    @api_boundary
    @functools.wraps(fun)
    def seeded(*args: P.args, **kwargs: P.kwargs) -> R:
        with _SeedHandler().running(as_key(key)):
            return fun(*args, **kwargs)

    return seeded


def as_key(seed: ArrayLike) -> Array:
    """Returns a key made from an integer seed; a key, or the words of one, is returned unchanged."""
    aval = get_aval(seed)
    is_number = not aval.shape and dtypes.is_integer(aval.dtype)
    return random.key(seed) if is_number else check_key("seed", seed)[0]


@final
class _SeedHandler(Interpreter[Never, Array]):
    """Draws the values that no inner handler has given. Its state is the key for the remaining draws."""

    title: ClassVar[str] = "seed"
    has_state: ClassVar[bool] = True

    @rule(Sample)
    def sample_rule(self, op: Sample, *operands: Value) -> Sequence[Value]:
        if op.origin != "open":
            return bind(op, *operands)
        if self.run.state is None:
            raise UnseededError(
                f"sample of {op.label!r}: it is in a derivative or batching rule of a custom function, which has no "
                "random numbers; draw the value outside and hand it to the function"
            )
        remaining_key, draw_key = random.split(self.current_state)
        self.set_state(remaining_key)
        return op.bind_with_value("drawn", operands, op.draw(draw_key, operands))
