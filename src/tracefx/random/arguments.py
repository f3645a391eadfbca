"""What all distributions ask of their arguments."""

from __future__ import annotations

import numpy as np

from tracefx import numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.dtypes import DType, DTypeLike
from tracefx.core.literal import Literal, Scalar
from tracefx.core.values import get_aval
from tracefx.numpy.operand_promotion import rounded_literal
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.ops.structural import convert_element_type


def float_dtype(name: str, dtype: DTypeLike | None, *, complex_too: bool = False) -> DType:
    """The dtype of numbers that function `name` draws: float32, or float64 if that is the default, if none is given."""
    found = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype)
    if not (dtypes.is_float(found) or (complex_too and dtypes.is_complex(found))):
        kinds = "a float or complex dtype" if complex_too else "a float dtype"
        raise ValueError(f"{name}: dtype must be {kinds}, got {dtypes.name(found)}")
    return found


def int_dtype(name: str, dtype: DTypeLike | None) -> DType:
    """The dtype of integers that function `name` draws: int32, or int64 if that is the default, if none is given."""
    found = dtypes.default_int() if dtype is None else dtypes.as_dtype(dtype)
    if not dtypes.is_integer(found):
        raise TypeError(f"{name}: dtype must be an integer dtype, got {dtypes.name(found)}")
    return found


def sample_shape(name: str, shape: ShapeLike | None, *parameters: ArrayLike) -> Shape:
    """The shape to draw: as it is given, to which parameters must broadcast, or that to which they do together."""
    shapes = [get_aval(parameter).shape for parameter in parameters]
    if shape is None:
        return np.broadcast_shapes(*shapes)
    found = sizes_of(name, shape)
    check_parameter_shapes(name, found, *shapes)
    return found


def check_parameter_shapes(name: str, shape: Shape, *parameters: Shape) -> None:
    """ValueError unless parameters of these shapes broadcast to `shape`."""
    try:
        fits = np.broadcast_shapes(shape, *parameters) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name}: the parameters, of shapes {', '.join(map(str, parameters))}, don't broadcast to shape {shape}"
        )


def scalar_literal(x: Scalar, dtype: DType) -> Literal:
    """A number of a dtype, which stands in programs as it is written."""
    return rounded_literal(x, ShapedArray((), dtype))


def broadcast_parameter(parameter: ArrayLike, dtype: DType, shape: Shape) -> Array:
    """A parameter as an array of a dtype and shape."""
    return fnp.broadcast_to(convert_element_type(parameter, dtype), shape)
