"""Exponentials, logarithms, trigonometric and hyperbolic functions, roots: smooth functions of one operand."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core.array import Array, ArrayLike
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import bind1
from tracefx.core.primitive import Tangent
from tracefx.core.values import Value
from tracefx.ops.arithmetic import mul, neg
from tracefx.ops.elementwise import INEXACT, Smooth


@frozen(eq=False)
class Transcendental(Smooth):
    """A function of one float or complex operand, given by its derivative."""

    domain = INEXACT

    @abstractmethod
    def derivative(self, x: Value, out: Value) -> Value:
        """The derivative at `x`, where the function is `out`."""
        raise NotImplementedError

    @override
    def push(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        return mul(tangent, self.derivative(primals[0], out))


@final
class Sin(Transcendental):
    __slots__ = ()
    name = "sin"
    hlo = "stablehlo.sine"

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        out: NDArray = np.sin(*args)
        return out

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return cos(x)


@final
class Cos(Transcendental):
    __slots__ = ()
    name = "cos"
    hlo = "stablehlo.cosine"

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        out: NDArray = np.cos(*args)
        return out

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return neg(sin(x))


SIN: Final = Sin()
COS: Final = Cos()


def sin(x: ArrayLike) -> Array:
    """The sine of `x` (radians), elementwise.

    >>> sin(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind1(SIN, x)


def cos(x: ArrayLike) -> Array:
    """The cosine of `x` (radians), elementwise.

    >>> cos(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return bind1(COS, x)
