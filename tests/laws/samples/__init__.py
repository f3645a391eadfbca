"""Samples of every operation: the operation with its parameters, and operands at which its laws are checked.

Operands are within the domain and away from kinks, so that derivatives exist; no two operands of one sample are alike.
Edge values, other dtypes and other shapes are drawn by the tests.

A module has the samples of a group of operations, and for those whose function in JAX has other parameters than their
own fields, in `REFERENCES`, what makes that function of the operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from tests.laws.samples import convolution, elementary, folding, fourier, matrices, order, random, writing
from tests.laws.samples.making import Function
from tests.laws.samples.making import Operands as Operands
from tests.laws.samples.making import Sample as Sample

_GROUPS: Final = (convolution, folding, fourier, matrices, order, random, writing)
_ALL: Final[tuple[Sample, ...]] = (*elementary.SAMPLES, *[sample for group in _GROUPS for sample in group.SAMPLES])

REFERENCES: Final[Mapping[str, Callable[[Any], Function]]] = MappingProxyType(
    {name: reference for group in _GROUPS for name, reference in group.REFERENCES.items()}
)
"""By the names of operations, from their parameters."""


def _by_name() -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for sample in _ALL:
        found.setdefault(sample.prim.name, []).append(sample)
    return found


SAMPLES: Final[Mapping[str, Sequence[Sample]]] = MappingProxyType(_by_name())
"""By the names of operations."""
