"""`check_key_reuse`: which primitives consume a key, key dataflow, and error messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tracefx import lax, random
from tracefx.handlers import KeyReuseError, check_key_reuse

KEY: Final = random.key(4)
Program = Callable[[Any], Any]


def noise(key: Any) -> Any:
    x = random.normal(key)
    return x + random.uniform(key)


@fx.jit
def _normal(key: Any) -> Any:
    return random.normal(key) + random.uniform(key)


def drawn_in_steps(key: Any) -> Any:
    return lax.scan(lambda c, _: (c + random.normal(key), None), fnp.zeros(()), None, length=2)[0]


def drawn_while(key: Any) -> Any:
    return lax.while_loop(
        lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] + random.normal(key)), (fnp.asarray(0), fnp.zeros(()))
    )[1]


REUSED: Final[dict[str, Program]] = {
    "two draws": noise,
    "in a function that is called as one of the library's": lambda k: _normal(k),
    "compiled": fx.jit(noise),
    "draw and split": lambda k: (random.normal(k), random.split(k)),
    "two splits": lambda k: (random.split(k), random.split(k, 3)),
    "in steps": drawn_in_steps,
    "while": drawn_while,
    "in a branch": lambda k: random.normal(k) + lax.cond(True, lambda: random.normal(k), lambda: fnp.zeros(())),
    "an element": lambda k: (fx.vmap(random.normal)(random.split(k, 3)), random.normal(random.split(k, 3)[1])),
    "by way of an array": lambda k: (random.normal(k), random.normal(fnp.stack([k, k])[0])),
    "twice in a checkpoint": lambda k: fx.grad(fx.checkpoint(lambda x: x * random.normal(k) * random.normal(k)))(2.0),
    "twice in a batch": lambda k: fx.vmap(random.normal)(fnp.stack([k, k])),
    "words": lambda k: (random.normal(random.key_data(k)), random.normal(k)),
    "one draw too many of a clone": lambda k: (random.clone(k), random.bits(k), random.bits(k), random.bits(k)),
}
USED_ONCE: Final[dict[str, Program]] = {
    "split": lambda k: [random.normal(each) for each in random.split(k, 2)],
    "folded": lambda k: [random.normal(random.fold_in(k, i)) for i in range(3)],
    "folded and used": lambda k: (random.fold_in(k, 1), random.normal(k)),
    "steps with keys": lambda k: lax.scan(
        lambda c, each: (c + random.normal(each), None), fnp.zeros(()), random.split(k, 3)
    )[0],
    "a branch not taken": lambda k: random.normal(k) + lax.cond(False, lambda: random.normal(k), lambda: fnp.zeros(())),
    "clones": lambda k: random.normal(k) + random.normal(random.clone(k)),
    "a batch with one key": lambda k: fx.vmap(lambda x, k: x + random.normal(k), (0, None))(fnp.arange(3.0), k),
    "derivatives": lambda k: fx.grad(lambda x: random.gamma(k, x) * x)(2.0),
    "checkpoint": lambda k: fx.grad(fx.checkpoint(lambda x: fnp.sin(x * random.normal(k)) * x))(2.0),
    "checkpointed steps": lambda k: fx.jit(
        fx.grad(
            lambda x: lax.scan(
                fx.checkpoint(lambda c, each: (fnp.sin(c * random.normal(each)), None)), x, random.split(k, 3)
            )[0]
        )
    )(2.0),
    "what draws in loops": lambda k: [
        random.poisson(a, 3.0) + random.binomial(b, 9, 0.5) for a, b in [random.split(k)]
    ],
    "what others are made of": lambda k: random.multinomial(k, 9, fnp.array([0.5, 0.5])),
}


@pytest.mark.parametrize("name", REUSED)
def test_second_use_of_a_key_is_detected(name: str) -> None:
    with pytest.raises(KeyReuseError, match=r"test_key_reuse.py:\d+ and is used again in .*test_key_reuse.py:\d+"):
        check_key_reuse(REUSED[name])(KEY)


@pytest.mark.parametrize("name", USED_ONCE)
def test_single_use_of_a_key_is_accepted(name: str) -> None:
    checked_leaves, plain = fx.tree.leaves(check_key_reuse(USED_ONCE[name])(KEY)), fx.tree.leaves(USED_ONCE[name](KEY))
    for x, y in zip(checked_leaves, plain, strict=True):
        assert (x == y).all()


def test_message_names_the_lines_of_both_uses() -> None:
    line = noise.__code__.co_firstlineno
    with pytest.raises(KeyReuseError, match=rf":{line + 1} and is used again in .*:{line + 2}: split it"):
        check_key_reuse(noise)(KEY)


def test_calls_are_checked_independently() -> None:
    checked = check_key_reuse(random.normal)
    assert checked(KEY) == checked(KEY)


def test_reuse_inside_jit_is_detected() -> None:
    compiled = fx.jit(check_key_reuse(noise))
    with pytest.raises(KeyReuseError, match="used again"):
        _run_to_completion(compiled, KEY)


def _run_to_completion(f: Program, key: Any) -> None:
    f(key)
    fx.effects_barrier()
