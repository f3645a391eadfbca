"""`seed`: the values of a probabilistic program, drawn from a key."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, Final, Never, ParamSpec, TypeVar, final

from attrs import frozen
from typing_extensions import override

from tracefx import random
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.handler import bind, current, handling
from tracefx.core.values import Value, get_aval
from tracefx.handlers.probabilistic.sample_sites import Sample, UnseededError
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules
from tracefx.random.keys import check_key
from tracefx.transforms.arguments import require_callable

P = ParamSpec("P")
R = TypeVar("R")


def seed(fun: Callable[P, R], key: ArrayLike) -> Callable[P, R]:
    """`fun` with random numbers: each `sample` in it draws its value, from a key of its own.

    `key` is a key of `tracefx.random`, or an integer to make one of. The same key gives the same values. Steps
    of loops draw anew; `vmap(seed(f, key))` draws the same for the whole batch, `seed(vmap(f), key)` for each element
    another value, and so does `vmap(lambda key, x: seed(f, key)(x))` with a key for each. In `grad`, a value moves with
    the fields of a `Reparametrized` distribution.

    Raises TypeError for keys of another type.

    >>> from tracefx.handlers import Uniform, sample
    >>> from tracefx import lax
    >>> def walk():
    ...     return lax.fori_loop(0, 100, lambda i, x: x + sample("step", Uniform(-1.0, 1.0)), 0.0)
    >>> seed(walk, 1)() != seed(walk, 2)()
    Array(True, dtype=bool)
    """
    require_callable("seed", fun)
    as_key(key)

    @functools.wraps(fun)
    def seeded(*args: P.args, **kwargs: P.kwargs) -> R:
        with handling(_SeedHandler(current())) as handler:
            handler.set_state(as_key(key))
            return fun(*args, **kwargs)

    return seeded


def as_key(seed: ArrayLike) -> Array:
    """A key from an integer; a key, or its words, stay what they are."""
    aval = get_aval(seed)
    is_number = not aval.shape and dtypes.is_integer(aval.dtype)
    return random.key(seed) if is_number else check_key("seed", seed)[0]


@final
@frozen(eq=False)
class _SeedHandler(Interpreter[Never, Array]):
    """Draws what nobody inside of it has a value for. The state is the key of the rest."""

    title: ClassVar[str] = "seed"
    key: ClassVar[Hashable] = ()
    handles_all: ClassVar[bool] = True
    has_state: ClassVar[bool] = True

    @property
    @override
    def rules(self) -> Rules[_SeedHandler, Value]:
        return _SEED_RULES

    def sample_rule(self, op: Sample, *operands: Value) -> Sequence[Value]:
        if op.origin != "open":
            return bind(op, *operands)
        if self.store.state is None:
            raise UnseededError(
                f"sample of {op.label!r}: it is in a derivative or batching rule of a custom function, which has no "
                "random numbers; draw the value outside and hand it to the function"
            )
        rest, ours = random.split(self.current_state)
        self.set_state(rest)
        return op.bind_with_value("drawn", operands, op.draw(ours, operands))


_SEED_RULES: Final = Rules[_SeedHandler, Value]().on(Sample, _SeedHandler.sample_rule)
