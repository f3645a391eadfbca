"""Series of generated programs, compared with nested `jvp`."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.handlers.series_oracle import assert_same_dtype_and_values, nested_jvp_series
from tests.laws.examples import limit_examples
from tracefx.handlers import jet
from tracefx.testing.generated_programs import GeneratedProgram
from tracefx.testing.strategies import control_flow_programs, programs

ORDER = 3


def check(program: GeneratedProgram, seed: int) -> None:
    """Compares the series of a program at a random point, with one input possibly constant."""
    rng = np.random.default_rng(seed)
    xs = [rng.normal(size=shape) for shape in program.shapes]
    series = [[rng.normal(size=shape) for _ in range(ORDER)] for shape in program.shapes]
    if len(xs) > 1 and seed % 2:
        series[seed % len(xs)] = [None] * ORDER  # type: ignore[list-item]  # as the others' type says
    f = program.function(fx, fnp)
    with fx.enable_x64(True):
        (want,) = nested_jvp_series(f, xs, series)
        out, got = jet(f, xs, series)
        assert_same_dtype_and_values(out, f(*xs))
        assert_same_dtype_and_values(got, want)


@limit_examples(50)
@given(programs(), st.integers(0, 100))
def test_straight_line_programs(program: GeneratedProgram, seed: int) -> None:
    check(program, seed)


@limit_examples(4, at_length=120)
@given(control_flow_programs(), st.integers(0, 100))
def test_control_flow_programs(program: GeneratedProgram, seed: int) -> None:
    check(program, seed)
