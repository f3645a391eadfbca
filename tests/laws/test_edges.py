"""Operations element by element, on operands of all their dtypes and of any shape, edge values among them."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.examples import few
from tests.laws.samples import SAMPLES
from tracefx.ops.elementwise import Elementwise
from tracefx.ops.operation import Compiled
from tracefx.testing import (
    check_primitive,
    identity_changes_nothing,
    staging_changes_nothing,
    text_says_it_all,
    types_are_as_said,
    vmap_is_a_loop,
)
from tracefx.testing.strategies import arrays, dtypes, shapes

# Evaluating an operation that has no kernel compiles it, for every type that a batch may have.
ELEMENTWISE: Final = [
    prim
    for prim in [samples[0].prim for samples in SAMPLES.values()]
    if isinstance(prim, Elementwise) and not isinstance(prim, Compiled)
]
LAWS: Final = (
    types_are_as_said,
    staging_changes_nothing,
    identity_changes_nothing,
    text_says_it_all,
    vmap_is_a_loop,
)


@pytest.mark.parametrize("prim", ELEMENTWISE, ids=lambda prim: prim.name)
@few(8)
@given(st.data())
def test_laws(prim: Elementwise, data: st.DataObject) -> None:
    dtype = data.draw(dtypes(prim.domain.accepts))
    shape = data.draw(shapes(max_dims=2, max_side=2))
    count = len(SAMPLES[prim.name][0].operands[0])
    operands = []
    for i in range(count):
        has_axes = (i, count) == (1, 3) or data.draw(st.booleans())  # clamp's bounds are not wider than what it clamps
        operands.append(data.draw(arrays(dtype, shape if has_axes else (), weak=True)))
    check_primitive(prim, operands, laws=LAWS)
