"""Hypothesis strategies: what functions of arrays are called with, and programs.

from hypothesis import given
from tracefx.testing import strategies, vmap_is_a_loop

@given(strategies.arrays())
def test_mine(x):
    vmap_is_a_loop(mine, x)
"""

from __future__ import annotations

from tracefx.testing.strategies.arrays import arrays as arrays
from tracefx.testing.strategies.arrays import edges as edges
from tracefx.testing.strategies.arrays import numbers as numbers
from tracefx.testing.strategies.arrays import operands as operands
from tracefx.testing.strategies.einsums import Einsum as Einsum
from tracefx.testing.strategies.einsums import einsums as einsums
from tracefx.testing.strategies.indices import ADVANCED as ADVANCED
from tracefx.testing.strategies.indices import BASIC as BASIC
from tracefx.testing.strategies.indices import indices as indices
from tracefx.testing.strategies.programs import programs as programs
from tracefx.testing.strategies.programs import stacked as stacked
from tracefx.testing.strategies.programs import stacks as stacks
from tracefx.testing.strategies.programs import structured as structured
from tracefx.testing.strategies.programs import structured_programs as structured_programs
from tracefx.testing.strategies.trees import Pair as Pair
from tracefx.testing.strategies.trees import Tagged as Tagged
from tracefx.testing.strategies.trees import containers as containers
from tracefx.testing.strategies.trees import pytrees as pytrees
from tracefx.testing.strategies.types import DTYPES as DTYPES
from tracefx.testing.strategies.types import axes as axes
from tracefx.testing.strategies.types import axis_groups as axis_groups
from tracefx.testing.strategies.types import broadcastable as broadcastable
from tracefx.testing.strategies.types import dtypes as dtypes
from tracefx.testing.strategies.types import shapes as shapes
