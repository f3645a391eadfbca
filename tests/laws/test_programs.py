"""The laws hold for generated programs under generated stacks of transformations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import evolve
from hypothesis import example, given

import tracefx as fx
import tracefx.numpy as fnp
from tests.laws.examples import limit_examples
from tracefx import testing
from tracefx.core import dtypes, from_numpy
from tracefx.testing.generated_programs import GeneratedProgram, TransformedProgram, TransformLayer, unary_step
from tracefx.testing.strategies import transformed_programs
from tracefx.testing.tolerances import PROGRAM

COMPILED: Final = (testing.jit_changes_nothing, testing.jit_commutes_with_transforms)
# Numerical derivatives are wrong near a kink, which generated programs may have.
EVALUATED: Final = tuple([law for law in testing.LAWS if law not in (*COMPILED, testing.jvp_is_the_derivative)])
# Terms of derivatives may cancel: those of the gradient of `sqrt(x) * sqrt'(x)` cancel completely.
ULPS: Final = evolve(PROGRAM, least=1.0)
CANCELLING: Final = TransformedProgram(
    GeneratedProgram(((),), (unary_step("sqrt", 0),)),
    (TransformLayer("vjp", (True,)), TransformLayer("grad", (True,))),
    seed=0,
)


def check(case: TransformedProgram, laws: Sequence[testing.Law]) -> None:
    inputs = [from_numpy(x, dtypes.float64) for x in case.inputs()]
    report = testing.check_function(case.function(fx, fnp), *inputs, laws=laws, ulps=ULPS)
    assert not report.skipped


@limit_examples(25)
@given(transformed_programs(max_layers=2))
def test_laws_hold_for_eager_programs(case: TransformedProgram) -> None:
    with fx.disable_jit():  # `test_compiled` covers the compilation of a nested jit
        check(case, EVALUATED)


@example(CANCELLING)
@limit_examples(8)
@given(transformed_programs(max_steps=5, max_layers=2))
def test_laws_hold_for_compiled_programs(case: TransformedProgram) -> None:
    check(case, COMPILED)
