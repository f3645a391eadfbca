"""Property tests: whatever the shardings of its inputs, a program gives the same results as on one device."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_same
from tests.laws.examples import limit_examples
from tracefx import NamedSharding, P
from tracefx.core import dtypes, from_numpy
from tracefx.sharding import AxisType
from tracefx.testing.generated_programs import TransformedProgram
from tracefx.testing.strategies import transformed_control_flow_programs
from tracefx.testing.tolerances import PROGRAM

SIZES: Final = {"x": 3, "y": 2}


@st.composite
def shardings(draw: Any, shape: tuple[int, ...]) -> NamedSharding:
    """Any sharding of an array over a mesh of 3 x 2 devices."""
    parts: list[str | None] = []
    for n in shape:
        candidates = [name for name, size in SIZES.items() if n % size == 0 and name not in parts]
        parts.append(draw(st.sampled_from([None, *candidates])))
    return NamedSharding(fx.make_mesh(tuple(SIZES.values()), tuple(SIZES), (AxisType.Auto,) * 2), P(*parts))


@st.composite
def programs_with_shardings(draw: Any) -> tuple[TransformedProgram, list[Any], list[NamedSharding]]:
    case = draw(transformed_control_flow_programs(max_steps=2, max_layers=2))
    inputs = [from_numpy(x, dtypes.float64) for x in case.inputs()]
    return case, inputs, [draw(shardings(x.shape)) for x in inputs]


assert_close = partial(assert_same, tolerance=PROGRAM, weak=False)


@limit_examples(4)
@given(programs_with_shardings())
def test_jit_on_sharded_arguments(example: tuple[TransformedProgram, list[Any], list[NamedSharding]]) -> None:
    case, inputs, shardings_of_inputs = example
    f = fx.jit(case.function(fx, fnp))
    assert_close(f(*[fx.device_put(x, s) for x, s in zip(inputs, shardings_of_inputs, strict=True)]), f(*inputs))


@limit_examples(3)
@given(programs_with_shardings())
def test_jit_with_in_shardings(example: tuple[TransformedProgram, list[Any], list[NamedSharding]]) -> None:
    case, inputs, shardings_of_inputs = example
    f = case.function(fx, fnp)
    assert_close(fx.jit(f, in_shardings=tuple(shardings_of_inputs))(*inputs), fx.jit(f)(*inputs))


@limit_examples(3)
@given(programs_with_shardings())
def test_eager_evaluation_on_sharded_arguments(
    example: tuple[TransformedProgram, list[Any], list[NamedSharding]],
) -> None:
    case, inputs, shardings_of_inputs = example
    f = case.function(fx, fnp)
    assert_close(
        f(*[fx.device_put(x, s) for x, s in zip(inputs, shardings_of_inputs, strict=True)]), fx.jit(f)(*inputs)
    )
