"""Samples of every primitive: the primitive with its parameters, and operands at which its laws are checked.

Operands are inside the domain and away from kinks, so that derivatives exist; the operands of one sample are distinct.
Other tests draw edge values, other dtypes and other shapes.

Each module has the samples of a group of primitives. Its `REFERENCES` map the name of a primitive to a function that
builds the JAX function from the primitive, for primitives whose parameters differ from those of the JAX function.
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
"""Functions that build the JAX function from a primitive, by the primitive's name."""


def _by_name() -> dict[str, list[Sample]]:
    samples_by_name: dict[str, list[Sample]] = {}
    for sample in _ALL:
        samples_by_name.setdefault(sample.prim.name, []).append(sample)
    return samples_by_name


SAMPLES: Final[Mapping[str, Sequence[Sample]]] = MappingProxyType(_by_name())
"""The samples of every primitive, by its name."""
