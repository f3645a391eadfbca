"""Categories of operations, which determine their colours."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from tracefx.core.jaxpr import HasSubjaxprs
from tracefx.core.primitive import Primitive
from tracefx.handlers.cost_analysis.cost import Work
from tracefx.handlers.cost_analysis.linalg_flops import LINALG_FLOPS
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.contractions.convolution import ConvGeneralDilated
from tracefx.ops.elementwise.transcendental import Transcendental
from tracefx.ops.indexing.sorting import Sort
from tracefx.ops.random.prng import RandomUnwrap, RandomWrap
from tracefx.ops.random.threefry import Threefry2x32
from tracefx.ops.reductions.cumulative import Cumulative
from tracefx.ops.reductions.reduction import ArgExtremum, Reduction
from tracefx.ops.reductions.window_reduction import WindowReduction
from tracefx.ops.structural import ReduceSum
from tracefx.passes.rebuilding import is_observable

OperationCategory: TypeAlias = Literal[
    "control", "matrix", "reduction", "function", "arithmetic", "moving", "random", "effect"
]

CATEGORY_DESCRIPTIONS: Final[dict[OperationCategory, str]] = {
    "control": "calls, loops, branches",
    "matrix": "products of matrices, convolutions, decompositions",
    "reduction": "reductions, scans along axes, sorting",
    "function": "exponentials, roots, sines",
    "arithmetic": "arithmetic, comparisons, selections",
    "moving": "data movement: shapes, slices, gathers",
    "random": "random bits and keys",
    "effect": "observable effects",
}

_MATRIX: Final = (DotGeneral, ConvGeneralDilated, *LINALG_FLOPS)
_REDUCTION: Final = (Reduction, ReduceSum, ArgExtremum, Cumulative, WindowReduction, Sort)
_RANDOM: Final = (Threefry2x32, RandomWrap, RandomUnwrap)


def operation_category(prim: Primitive, self_work: Work) -> OperationCategory:
    """Returns the category of a primitive whose cost without its bodies is `own`."""
    if isinstance(prim, HasSubjaxprs):
        return "control"
    if is_observable(prim):
        return "effect"
    if isinstance(prim, _MATRIX):
        return "matrix"
    if isinstance(prim, _REDUCTION):
        return "reduction"
    if isinstance(prim, _RANDOM) or prim.name.startswith("random_"):
        return "random"
    if isinstance(prim, Transcendental) or self_work.transcendentals:
        return "function"
    return "arithmetic" if self_work.operations else "moving"
