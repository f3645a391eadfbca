"""Samples of every primitive: its parameters, operands at which its laws are checked, and the JAX function.

Operands are inside the domain and away from kinks, so that derivatives exist; the operands of one sample are distinct.
Other tests draw edge values, other dtypes and other shapes.

Each module has the samples of a group of primitives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from jax import lax

from tests.laws.samples import convolution, elementary, folding, fourier, matrices, order, random, writing
from tests.laws.samples.making import Function
from tests.laws.samples.making import Operands as Operands
from tests.laws.samples.making import Sample as Sample
from tracefx.core.primitive import Primitive

_GROUPS: Final = (elementary, convolution, folding, fourier, matrices, order, random, writing)


def _by_name() -> dict[str, list[Sample]]:
    samples_by_name: dict[str, list[Sample]] = {}
    for group in _GROUPS:
        for sample in group.SAMPLES:
            samples_by_name.setdefault(sample.prim.name, []).append(sample)
    return samples_by_name


SAMPLES: Final[Mapping[str, Sequence[Sample]]] = MappingProxyType(_by_name())
"""The samples of every primitive, by its name."""


def jax_function(prim: Primitive) -> Function:
    """Returns the JAX function that corresponds to `prim`, with the primitive's parameters bound."""
    for sample in SAMPLES[prim.name]:
        if sample.reference is not None:
            return sample.reference(prim)
    function: Function = getattr(lax, prim.name)
    return function
