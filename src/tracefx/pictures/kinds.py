"""What an operation is about, for its colour."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from tracefx.core.jaxpr import CarriesJaxprs
from tracefx.core.passes import is_observable
from tracefx.core.primitive import Primitive
from tracefx.handlers.counting.cost import Work
from tracefx.handlers.counting.matrices import FLOPS
from tracefx.ops.basis import ReduceSum
from tracefx.ops.contraction import DotGeneral
from tracefx.ops.convolution import ConvGeneralDilated
from tracefx.ops.cumulative import Cumulative
from tracefx.ops.keys import RandomUnwrap, RandomWrap
from tracefx.ops.reduction import ArgExtremum, Reduction
from tracefx.ops.sorting import Sort
from tracefx.ops.threefry import Threefry2x32
from tracefx.ops.transcendental import Transcendental
from tracefx.ops.window_reduction import WindowReduction

Kind: TypeAlias = Literal["control", "matrix", "reduction", "function", "arithmetic", "moving", "random", "effect"]

LEGEND: Final[dict[Kind, str]] = {
    "control": "calls, loops, branches",
    "matrix": "products of matrices, convolutions, decompositions",
    "reduction": "reductions, scans along axes, sorting",
    "function": "exponentials, roots, sines",
    "arithmetic": "arithmetic, comparisons, selections",
    "moving": "shapes, slices, gathers: nothing is computed",
    "random": "random bits and keys",
    "effect": "what the outside world sees",
}

_MATRIX: Final = (DotGeneral, ConvGeneralDilated, *FLOPS)
_REDUCTION: Final = (Reduction, ReduceSum, ArgExtremum, Cumulative, WindowReduction, Sort)
_RANDOM: Final = (Threefry2x32, RandomWrap, RandomUnwrap)


def kind_of(prim: Primitive, own: Work) -> Kind:
    """The kind of an operation that costs `own` by itself."""
    if isinstance(prim, CarriesJaxprs):
        return "control"
    if is_observable(prim):
        return "effect"
    if isinstance(prim, _MATRIX):
        return "matrix"
    if isinstance(prim, _REDUCTION):
        return "reduction"
    if isinstance(prim, _RANDOM) or prim.name.startswith("random_"):
        return "random"
    if isinstance(prim, Transcendental) or own.transcendentals:
        return "function"
    return "arithmetic" if own.operations else "moving"
