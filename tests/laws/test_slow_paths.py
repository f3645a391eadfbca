"""The laws hold with fast paths disabled, under an evaluating handler that is not the root handler.

`bind1` and jitted functions take a fast path if the root handler is current. The slow path must give the same
results.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given

import tracefx as fx
import tracefx.numpy as fnp
from tests.laws import test_programs
from tests.laws.examples import is_long_profile, limit_examples
from tests.laws.samples import SAMPLES
from tests.laws.test_operations import is_first_with_its_bases, values
from tracefx import testing
from tracefx.core import Array, ConcreteArray, as_value
from tracefx.core.handler import CURRENT, ROOT, Eval, as_array, bind1, handling
from tracefx.core.primitive import Primitive
from tracefx.testing.generated_programs import TransformedProgram
from tracefx.testing.strategies import transformed_programs
from tracefx.transforms.fast_path import FastPathProgram
from tracefx.transforms.tracing import TraceKey

CHEAP_LAWS: Final = tuple(
    [law for law in testing.LAWS if law is not testing.jit_commutes_with_transforms]
)  # compiles five programs
# Numerical derivatives are wrong near a kink, which generated programs may have.
PROGRAM_LAWS: Final = tuple([law for law in CHEAP_LAWS if law is not testing.jvp_is_the_derivative])


@pytest.fixture
def no_fast_path() -> Iterator[None]:
    """Disables fast paths: they require the root handler."""
    with handling(Eval()):
        yield


@pytest.mark.usefixtures("no_fast_path")
@pytest.mark.parametrize(
    "name", [name for name, (first, *_) in SAMPLES.items() if is_long_profile() or is_first_with_its_bases(first.prim)]
)
def test_laws_hold_for_primitives_on_the_slow_path(name: str) -> None:
    """Of primitives with the same base classes, one is checked, with the profile `long` all."""
    for sample in SAMPLES[name]:
        operands = values(sample.operands[0])
        laws = [law for law in CHEAP_LAWS if law not in sample.but]
        if sample.within is None:
            testing.check_primitive(sample.prim, operands, laws=laws)
        else:
            testing.check_function(sample.within, *operands, laws=laws)


@limit_examples(5)
@given(transformed_programs(max_layers=2))
def test_laws_hold_for_programs_on_the_slow_path(case: TransformedProgram) -> None:
    with handling(Eval()):
        test_programs.check(case, PROGRAM_LAWS)


# ------------------------------------------------------------------ fast paths are disabled

X: Final = np.array([0.5, -1.0, 2.0], np.float32)
Y: Final = np.array([4.0, 0.25, 3.0], np.float32)


def wrong_bind1(prim: Primitive, *args: Any) -> Array:
    """A copy of `bind1` with a mistake in its fast path: every operand is the last. Replaces the code of `bind1`."""
    handler = CURRENT.get()
    if handler is ROOT and all(type(a) is ConcreteArray for a in args):
        (out,) = prim.evaluate([args[-1] for _ in args])
    else:
        (out,) = handler.bind(prim, [as_value(a) for a in args])
    return as_array(out)


def wrong_fast_path_program(key: TraceKey, *others: Any) -> FastPathProgram:
    """A fast-path program that returns its first argument."""
    return evolve(of(key, *others), run=lambda buffers: ConcreteArray(key.avals[0], None, buffers[0]))


of: Final = FastPathProgram.of


def difference(x: Any, y: Any) -> Any:
    return fx.lax.sub(fnp.asarray(x), fnp.asarray(y))


def breaks_law(law: testing.Law) -> bool:
    try:
        law(difference, X, Y)
    except testing.LawError:
        return True
    return False


@pytest.mark.parametrize("law", [testing.staging_changes_nothing, testing.jit_changes_nothing])
def test_bind1_takes_its_fast_path_only_under_the_root_handler(
    law: testing.Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not breaks_law(law)
    monkeypatch.setattr(bind1, "__code__", wrong_bind1.__code__)
    assert breaks_law(law)
    with handling(Eval()):
        assert not breaks_law(law)


def test_jit_takes_its_fast_path_only_under_the_root_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not breaks_law(testing.jit_changes_nothing)
    monkeypatch.setattr(FastPathProgram, "of", wrong_fast_path_program)
    assert breaks_law(testing.jit_changes_nothing)
    with handling(Eval()):
        assert not breaks_law(testing.jit_changes_nothing)
