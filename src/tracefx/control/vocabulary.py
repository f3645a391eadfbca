"""The primitives of tracefx by the names that jaxprs are printed with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tracefx.control.call import Call
from tracefx.control.checkpoint import CheckpointName, CheckpointPrimitive
from tracefx.control.composite import Composite
from tracefx.control.cond import Cond
from tracefx.control.dce_sink import DceSink
from tracefx.control.generic_reduction import Reduce, ReduceWindow
from tracefx.control.linear_solve import LinearSolve
from tracefx.control.platform import PlatformIndex
from tracefx.control.scan import Scan
from tracefx.control.shard_map import ShardMapPrimitive
from tracefx.control.sow import Plantable, Sow
from tracefx.control.special.bessel import BesselI0e, BesselI1e
from tracefx.control.special.incomplete_beta import BetaDensity, RegularizedIncompleteBeta
from tracefx.control.special.incomplete_gamma import GammaDensity, Igamma, Igammac, IgammaGradA, RandomGammaGrad
from tracefx.control.while_loop import While
from tracefx.core.primitive import Primitive
from tracefx.ops.collectives.pvary import PVary
from tracefx.ops.vocabulary import OPERATIONS

_OWN: Final[tuple[type[Primitive], ...]] = (
    *OPERATIONS,
    Call,
    Cond,
    Scan,
    While,
    CheckpointPrimitive,
    CheckpointName,
    PVary,
    LinearSolve,
    PlatformIndex,
    Plantable,
    Sow,
    BesselI0e,
    BesselI1e,
    Igamma,
    Igammac,
    IgammaGradA,
    RandomGammaGrad,
    GammaDensity,
    RegularizedIncompleteBeta,
    BetaDensity,
    Reduce,
    ReduceWindow,
    Composite,
    DceSink,
    ShardMapPrimitive,
)
VOCABULARY: Final[Mapping[str, type[Primitive]]] = MappingProxyType({prim.name: prim for prim in _OWN})
"""The primitives of tracefx, by name."""


def vocabulary(more: tuple[type[Primitive], ...]) -> Mapping[str, type[Primitive]]:
    """Returns the primitives of tracefx and additional ones, by name; the additional ones take precedence."""
    return {**VOCABULARY, **{prim.name: prim for prim in more}} if more else VOCABULARY
