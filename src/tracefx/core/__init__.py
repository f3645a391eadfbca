"""The core: values, their types, primitives, handlers and jaxprs. It depends on no transformation and on no device.

The package exports the values and types that nearly every other module uses; everything else is imported from the
modules of the package.
"""

from tracefx.core.array import Array as Array
from tracefx.core.array import ArrayLike as ArrayLike
from tracefx.core.array import AxisLike as AxisLike
from tracefx.core.array import is_arraylike as is_arraylike
from tracefx.core.avals import Shape as Shape
from tracefx.core.avals import ShapedArray as ShapedArray
from tracefx.core.avals import accepts as accepts
from tracefx.core.avals import show_avals as show_avals
from tracefx.core.dtypes import DType as DType
from tracefx.core.dtypes import DTypeLike as DTypeLike
from tracefx.core.dtypes import NDArray as NDArray
from tracefx.core.dtypes import Scalar as Scalar
from tracefx.core.dtypes import float0 as float0
from tracefx.core.literal import Literal as Literal
from tracefx.core.values import ConcreteArray as ConcreteArray
from tracefx.core.values import Value as Value
from tracefx.core.values import as_value as as_value
from tracefx.core.values import from_numpy as from_numpy
from tracefx.core.values import get_aval as get_aval
from tracefx.core.values import to_numpy as to_numpy
