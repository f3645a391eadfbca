"""A law of arrays over devices: wherever the inputs of a program lie, its results are those of one device."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tests.laws.examples import limit_examples
from tracefx import NamedSharding, P
from tracefx.core import dtypes
from tracefx.core.values import from_numpy
from tracefx.testing.generated_programs import TransformedProgram
from tracefx.testing.strategies import transformed_control_flow_programs
from tracefx.testing.tolerances import PROGRAM

SIZES: Final = {"x": 3, "y": 2}


@st.composite
def shardings(draw: Any, shape: tuple[int, ...]) -> NamedSharding:
    """Any way to cut an array along the axes of 3 x 2 devices."""
    parts: list[str | None] = []
    for n in shape:
        fits = [name for name, size in SIZES.items() if n % size == 0 and name not in parts]
        parts.append(draw(st.sampled_from([None, *fits])))
    return NamedSharding(fx.make_mesh(tuple(SIZES.values()), tuple(SIZES)), P(*parts))


@st.composite
def placed(draw: Any) -> tuple[TransformedProgram, list[Any], list[NamedSharding]]:
    case = draw(transformed_control_flow_programs(max_steps=2, max_layers=2))
    inputs = [from_numpy(x, dtypes.float64) for x in case.inputs()]
    return case, inputs, [draw(shardings(x.shape)) for x in inputs]


def close(got: Any, want: Any) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert_near(got, want, PROGRAM)


@limit_examples(4)
@given(placed())
def test_programs_on_arrays_that_lie_somewhere(
    given: tuple[TransformedProgram, list[Any], list[NamedSharding]],
) -> None:
    case, inputs, lie = given
    f = fx.jit(case.function(fx, fnp))
    close(f(*[fx.device_put(x, s) for x, s in zip(inputs, lie, strict=True)]), f(*inputs))


@limit_examples(3)
@given(placed())
def test_programs_that_say_where_their_inputs_lie(
    given: tuple[TransformedProgram, list[Any], list[NamedSharding]],
) -> None:
    case, inputs, lie = given
    f = case.function(fx, fnp)
    close(fx.jit(f, in_shardings=tuple(lie))(*inputs), fx.jit(f)(*inputs))


@limit_examples(3)
@given(placed())
def test_one_operation_at_a_time(given: tuple[TransformedProgram, list[Any], list[NamedSharding]]) -> None:
    case, inputs, lie = given
    f = case.function(fx, fnp)
    close(f(*[fx.device_put(x, s) for x, s in zip(inputs, lie, strict=True)]), fx.jit(f)(*inputs))
