"""Samplers of random numbers: their arguments, and the decorator that compiles them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, TypeVar

from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, DType, DTypeLike, Literal, Scalar, Shape, ShapedArray, dtypes, get_aval
from tracefx.numpy.operand_promotion import rounded_literal
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.numpy.static_queries import broadcast_shapes
from tracefx.ops.structural import convert_element_type
from tracefx.random.keys import check_key
from tracefx.transforms.jit import jit


def float_dtype(name: str, dtype: DTypeLike | None, *, complex_too: bool = False) -> DType:
    """Returns the float dtype that the function `name` draws: the default float dtype if `dtype` is None.

    Raises:
        ValueError: if `dtype` is not a float dtype (or complex, with `complex_too`).
    """
    canonical = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype, f"{name}: dtype")
    if not (dtypes.is_float(canonical) or (complex_too and dtypes.is_complex(canonical))):
        expected = "a float or complex dtype" if complex_too else "a float dtype"
        raise ValueError(f"{name}: dtype must be {expected}, got {dtypes.name(canonical)}")
    return canonical


def int_dtype(name: str, dtype: DTypeLike | None) -> DType:
    """Returns the integer dtype that the function `name` draws: the default integer dtype if `dtype` is None.

    Raises:
        TypeError: if `dtype` is not an integer dtype.
    """
    canonical = dtypes.default_int() if dtype is None else dtypes.as_dtype(dtype, f"{name}: dtype")
    if not dtypes.is_integer(canonical):
        raise TypeError(f"{name}: dtype must be an integer dtype, got {dtypes.name(canonical)}")
    return canonical


def sample_shape(name: str, shape: ShapeLike | None, *parameters: ArrayLike) -> Shape:
    """Returns the shape to draw: `shape`, or if it is None the shape that the parameters broadcast to.

    Raises:
        ValueError: if the parameters don't broadcast to `shape`.
    """
    shapes = [get_aval(parameter).shape for parameter in parameters]
    if shape is None:
        return broadcast_shapes(*shapes)
    canonical = sizes_of(name, shape)
    check_parameter_shapes(name, canonical, *shapes)
    return canonical


def check_parameter_shapes(name: str, shape: Shape, *parameters: Shape) -> None:
    """Raises ValueError unless parameters of these shapes broadcast to `shape`."""
    try:
        fits = broadcast_shapes(shape, *parameters) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name}: the parameters, of shapes {', '.join(map(str, parameters))}, don't broadcast to shape {shape}"
        )


def scalar_literal(x: Scalar, dtype: DType) -> Literal:
    """Returns a number of a dtype as a literal, which is inlined in programs."""
    return rounded_literal(x, ShapedArray((), dtype))


def broadcast_parameter(parameter: ArrayLike, dtype: DType, shape: Shape) -> Array:
    """Converts a parameter to a dtype and broadcasts it to a shape."""
    return fnp.broadcast_to(convert_element_type(parameter, dtype), shape)


P = ParamSpec("P")
R = TypeVar("R")

_PREFIX: Final = "random."
"""The prefix of sampler names in programs. It contains a dot, so names of user functions can't start with it."""


def jit_sampler(
    *static: str,
) -> Callable[[Callable[Concatenate[Array, P], R]], Callable[Concatenate[ArrayLike, P], R]]:
    """Returns a decorator that compiles a function `_normal` under the name `random.normal` in programs.

    The result checks the key, which is the first argument. A sampler counts as one use of each of its keys, whatever
    its body does with it.

    Args:
        static: the names of the static arguments.
    """

    def decorate(fun: Callable[Concatenate[Array, P], R]) -> Callable[Concatenate[ArrayLike, P], R]:
        name = fun.__name__.lstrip("_")
        fun.__name__ = _PREFIX + name
        compiled = jit(fun, static_argnames=static)

        def sample(key: ArrayLike, /, *args: P.args, **kwargs: P.kwargs) -> R:
            return compiled(check_key(name, key)[0], *args, **kwargs)

        return sample

    return decorate


def is_sampler_name(called: str) -> bool:
    """Returns whether this is the name of a sampler of this package."""
    return called.startswith(_PREFIX)
