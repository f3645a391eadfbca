"""The laws hold where no fast path is taken: under an evaluation that is not the root.

`bind1` and a jitted function take a shorter way where the root handler is current. What they do there must be what
they do elsewhere, so the laws are checked on the longer ways too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given

import tracefx as fx
import tracefx.numpy as fnp
from tests.laws import test_programs
from tests.laws.examples import limit_examples
from tests.laws.samples import SAMPLES
from tests.laws.test_operations import values
from tracefx.core.array import Array
from tracefx.core.device import Buffer
from tracefx.core.handler import CURRENT, ROOT, Eval, as_array, bind1, handling
from tracefx.core.primitive import Primitive
from tracefx.core.values import ConcreteArray, as_value
from tracefx.testing import (
    LAWS,
    Law,
    LawError,
    check_function,
    check_primitive,
    jit_changes_nothing,
    jit_commutes_with_transforms,
    jvp_is_the_derivative,
    staging_changes_nothing,
)
from tracefx.testing.generated_programs import TransformedProgram
from tracefx.testing.strategies import transformed_programs
from tracefx.transforms.jit import FastPathProgram

MOST: Final = tuple([law for law in LAWS if law is not jit_commutes_with_transforms])  # which compiles five programs
# Differences say nothing near a kink, where generated programs may well be.
OF_PROGRAMS: Final = tuple([law for law in MOST if law is not jvp_is_the_derivative])


@pytest.fixture
def no_fast_path() -> Iterator[None]:
    """Fast paths are for the root handler, and for no other evaluation."""
    with handling(Eval()):
        yield


@pytest.mark.usefixtures("no_fast_path")
@pytest.mark.parametrize("name", SAMPLES)
def test_operations_keep_the_laws(name: str) -> None:
    for sample in SAMPLES[name]:
        operands = values(sample.operands[0])
        laws = [law for law in MOST if law not in sample.but]
        if sample.within is None:
            check_primitive(sample.prim, operands, laws=laws)
        else:
            check_function(sample.within, *operands, laws=laws)


@limit_examples(5)
@given(transformed_programs(max_layers=2))
def test_programs_keep_the_laws(case: TransformedProgram) -> None:
    with handling(Eval()):
        test_programs.check(case, OF_PROGRAMS)


# ------------------------------------------------------------------ that they are off

X: Final = np.array([0.5, -1.0, 2.0], np.float32)
Y: Final = np.array([4.0, 0.25, 3.0], np.float32)


def wrong_bind1(prim: Primitive, *args: Any) -> Array:
    """`bind1` with a mistake in its fast path, that all operands are the last one. Its code runs in `bind1`'s place."""
    handler = CURRENT.get()
    if handler is ROOT and all(type(a) is ConcreteArray for a in args):
        (out,) = prim.evaluate([args[-1] for _ in args])
    else:
        (out,) = handler.bind(prim, [as_value(a) for a in args])
    return as_array(out)


def wrong_ready(avals: Any, traced: Any, program: Any) -> FastPathProgram:
    """A program that is at hand, and when it is called again gives its first argument."""

    def on_buffers(buffers: Sequence[Buffer]) -> list[ConcreteArray]:
        return [ConcreteArray(avals[0], None, buffers[0])]

    return evolve(of(avals, traced, program), on_buffers=on_buffers)


of: Final = FastPathProgram.of


def difference(x: Any, y: Any) -> Any:
    return fx.lax.sub(fnp.asarray(x), fnp.asarray(y))


def is_noticed(law: Law) -> bool:
    try:
        law(difference, X, Y)
    except LawError:
        return True
    return False


@pytest.mark.parametrize("law", [staging_changes_nothing, jit_changes_nothing])
def test_bind_takes_its_fast_path_under_the_root_alone(law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_noticed(law)
    monkeypatch.setattr(bind1, "__code__", wrong_bind1.__code__)
    assert is_noticed(law)
    with handling(Eval()):
        assert not is_noticed(law)


def test_a_jitted_function_takes_its_fast_path_under_the_root_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_noticed(jit_changes_nothing)
    monkeypatch.setattr(FastPathProgram, "of", wrong_ready)
    assert is_noticed(jit_changes_nothing)
    with handling(Eval()):
        assert not is_noticed(jit_changes_nothing)
