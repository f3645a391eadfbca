"""Helpers that build samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import numpy as np
from attrs import evolve, frozen

import tracefx as fx
from tracefx.core import NDArray
from tracefx.core.primitive import Primitive
from tracefx.testing import Law, jvp_is_the_derivative, transpose_is_adjoint

Function: TypeAlias = Callable[..., Any]
Reference: TypeAlias = Callable[[Any], Function]
Operands: TypeAlias = tuple[Any, ...]
"""NumPy arrays, which keep their dtype, and Python numbers, which become weakly typed."""


@final
@frozen(eq=False)
class Sample:
    """A primitive and several tuples of operands."""

    prim: Primitive
    operands: tuple[Operands, ...]
    within: Callable[..., Any] | None = None
    """A function that is the operation, where it needs something around it."""
    but: frozenset[Law] = frozenset()
    """The laws that the operation is there to break."""
    reference: Reference | None = None
    """Returns the JAX function for a primitive of this class; by default, the function of `jax.lax` with its name.

    It suffices that one of the samples of a primitive has it."""
    interval: tuple[float, float] | None = None
    """For a smooth function of one number: an open interval in its domain, from which other tests draw operands."""

    @property
    def partitionable(self) -> bool:
        """Whether JAX computes the same under its default settings: one is a parameter of random generators here."""
        return getattr(self.prim, "partitionable", True)


def f32(*numbers: Any) -> NDArray:
    return np.array(numbers, np.float32)


def grid(*shape: int, dtype: Any = np.float32) -> NDArray:
    """Distinct numbers between -1 and 1 in shuffled order."""
    count = int(np.prod(shape))
    return (np.random.default_rng(count).permutation(count).reshape(shape) * 2.0 / max(count, 1) - 0.9).astype(dtype)


def i32(*numbers: Any) -> NDArray:
    return np.array(numbers, np.int32)


def unary_sample(prim: Primitive, *numbers: float, reference: Reference | None = None) -> Sample:
    """A sample of a unary elementwise primitive: an array and a weakly typed number."""
    return make_sample(prim, (f32(*numbers),), (numbers[0],), reference=reference)


def function_sample(prim: Primitive, low: float, high: float, reference: Reference | None = None) -> Sample:
    """A sample of a smooth function of one number: the record from which the tests of such functions are derived."""
    numbers = [low + fraction * (high - low) for fraction in (0.3, 0.6, 0.9)]
    return evolve(unary_sample(prim, *numbers, reference=reference), interval=(low, high))


def binary_sample(prim: Primitive, xs: Sequence[float], ys: Sequence[float]) -> Sample:
    """A sample of a binary elementwise primitive: two arrays, and an array with a weakly typed number."""
    return Sample(prim, ((f32(*xs), f32(*ys)), (f32(*xs), ys[0]), (xs[0], f32(*ys))))


def make_sample(prim: Primitive, *operands: Operands, reference: Reference | None = None) -> Sample:
    return Sample(prim, operands, reference=reference)


def collective_sample(prim: Primitive, *operands: Operands, reference: Reference | None = None) -> Sample:
    """A sample of a collective over the axis `i` of size 2, which is the first axis of the operands."""

    def within(*xs: Any) -> Any:
        return fx.vmap(lambda *each: fx.extend.bind1(prim, *each), axis_name="i", axis_size=2)(*xs)

    within.__name__ = prim.name
    return Sample(prim, operands, within, reference=reference)


def with_false_derivative(sample: Sample) -> Sample:
    """A sample of a primitive whose derivative intentionally differs from that of the computed function."""
    return evolve(sample, but=frozenset({jvp_is_the_derivative, transpose_is_adjoint}))
