"""Hypothesis strategies for arguments of array functions, and for programs.

>>> import numpy as np
>>> import tracefx.numpy as fnp
>>> from hypothesis import given, settings
>>> from tracefx.testing import strategies, vmap_is_a_loop
>>> @settings(max_examples=3, deadline=None)
... @given(strategies.arrays(np.dtype("float32")))
... def test_square(x):
...     vmap_is_a_loop(fnp.square, x)
>>> test_square()
"""

from __future__ import annotations

try:
    import hypothesis as _hypothesis  # noqa: F401  # tests whether it is installed
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "tracefx.testing.strategies needs Hypothesis, which is not installed: pip install hypothesis", name="hypothesis"
    ) from error

from tracefx.testing.strategies.arrays import DTYPES as DTYPES
from tracefx.testing.strategies.arrays import arrays as arrays
from tracefx.testing.strategies.arrays import axes as axes
from tracefx.testing.strategies.arrays import axis_tuples as axis_tuples
from tracefx.testing.strategies.arrays import broadcastable_arrays as broadcastable_arrays
from tracefx.testing.strategies.arrays import broadcastable_shapes as broadcastable_shapes
from tracefx.testing.strategies.arrays import dtypes as dtypes
from tracefx.testing.strategies.arrays import edge_values as edge_values
from tracefx.testing.strategies.arrays import scalars as scalars
from tracefx.testing.strategies.arrays import shapes as shapes
from tracefx.testing.strategies.einsums import Einsum as Einsum
from tracefx.testing.strategies.einsums import einsums as einsums
from tracefx.testing.strategies.indices import ADVANCED_INDEXING as ADVANCED_INDEXING
from tracefx.testing.strategies.indices import BASIC_INDEXING as BASIC_INDEXING
from tracefx.testing.strategies.indices import index_expressions as index_expressions
from tracefx.testing.strategies.programs import control_flow_programs as control_flow_programs
from tracefx.testing.strategies.programs import programs as programs
from tracefx.testing.strategies.programs import transform_stacks as transform_stacks
from tracefx.testing.strategies.programs import transformed_control_flow_programs as transformed_control_flow_programs
from tracefx.testing.strategies.programs import transformed_programs as transformed_programs
from tracefx.testing.strategies.trees import NamedPair as NamedPair
from tracefx.testing.strategies.trees import TaggedNode as TaggedNode
from tracefx.testing.strategies.trees import containers as containers
from tracefx.testing.strategies.trees import pytrees as pytrees
