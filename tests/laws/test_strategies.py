"""What the strategies draw, and that the laws do without them."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from tests.test_imports import run
from tracefx.core import dtypes as kinds
from tracefx.core.array import Array
from tracefx.core.dtypes import DType
from tracefx.testing.programs import Program, Shape
from tracefx.testing.strategies import DTYPES, arrays, broadcastable, edges, programs, shapes

SEARCH: Final = settings(max_examples=20_000, derandomize=True, database=None)


@settings(max_examples=30)
@given(broadcastable(3))
def test_groups_of_shapes_broadcast(group: tuple[Shape, ...]) -> None:
    np.broadcast_shapes(*group)


@pytest.mark.parametrize("wanted", [(), (0,), (1, 1), (2, 0, 3)])
def test_shapes_are_of_every_kind(wanted: Shape) -> None:
    assert find(shapes(), lambda shape: shape == wanted, settings=SEARCH) == wanted


@settings(max_examples=30)
@given(st.data(), st.sampled_from(DTYPES))
def test_arrays_have_the_type_asked_for(data: st.DataObject, dtype: DType) -> None:
    x = data.draw(arrays(dtype, (2, 1)))
    assert (x.shape, x.dtype, x.weak_type) == ((2, 1), dtype, False)


@pytest.mark.parametrize("dtype", [kinds.bfloat16, kinds.float16, kinds.float32, kinds.float64])
def test_edge_values_of_floats(dtype: DType) -> None:
    x = np.array(edges(dtype), np.float64).astype(dtype).astype(np.float64)
    tiny = float(kinds.finfo(dtype).smallest_normal)
    assert np.isnan(x).any()
    assert {np.inf, -np.inf} <= set(x)
    assert ((x == 0) & np.signbit(x)).any()
    assert ((x > 0) & (x < tiny)).any()


def test_arrays_have_edge_values_among_their_numbers() -> None:
    def is_extreme(x: Array) -> bool:
        return bool(np.isnan(np.asarray(x, np.float64)).any())

    assert is_extreme(find(arrays(kinds.bfloat16, (2,)), is_extreme, settings=SEARCH))
    low = int(kinds.iinfo(kinds.int8).min)
    assert int(find(arrays(kinds.int8, ()), lambda x: int(x) == low, settings=SEARCH)) == low


def test_a_program_is_read_as_what_it_is() -> None:
    program = find(programs(), lambda p: "fnp.dot(" in p.source, settings=SEARCH)
    assert isinstance(program, Program)
    assert str(program).splitlines() == [
        "def program(v0):  # (1,)",
        "    v1 = fnp.dot(v0, v0)",
        "    return v1",
    ]


def test_the_laws_need_no_hypothesis() -> None:
    out = run(
        {"hypothesis", "jax", "pytest"},
        """
        import numpy as np
        import tracefx.numpy as fnp
        from tracefx.testing import check_function

        print(len(check_function(fnp.sin, np.ones(2)).held))
        """,
    )
    assert out == "13\n"
