"""`composite` as a primitive: a jaxpr with a name, for which a compiler may have its own implementation.

It differs from its jaxpr only in compiled programs: differentiated, batched, or under any other handler it is a call of
the jaxpr.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.control.call import Call
from tracefx.core import DType, NDArray, Scalar, Shape, ShapedArray, Value, dtypes
from tracefx.core.handler import bind
from tracefx.core.jaxpr import HasBody, Jaxpr
from tracefx.core.primitive import Expandable, Primitive
from tracefx.interpreters.body_transform import BodyInterpreter, BodyTransformable
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.passes.varying import HasTypedBodies


@final
@frozen
class ArrayAttribute:
    """An array as an attribute of a composite; hashable.

    Args:
        dtype: The dtype of the array.
        shape: Its shape.
        values: Its elements in row-major order.
    """

    dtype: DType
    shape: Shape
    values: tuple[Scalar, ...]

    @staticmethod
    def of(x: NDArray) -> ArrayAttribute:
        return ArrayAttribute(dtypes.as_dtype(x.dtype), x.shape, tuple(x.reshape(-1).tolist()))

    def array(self) -> NDArray:
        return np.asarray(self.values, self.dtype).reshape(self.shape)


AttributeValue: TypeAlias = bool | int | float | str | ArrayAttribute
Attributes: TypeAlias = tuple[tuple[str, AttributeValue | tuple[AttributeValue, ...]], ...]


@final
@frozen(eq=False)
class Composite(HasBody, Primitive, HasTypedBodies, BodyTransformable, Expandable, Lowerable):
    """A call of `jaxpr`, which has no constants, that compilers know by the name `label`, a version and attributes.

    Args:
        label: The name of the operation.
        attributes: Pairs of the name and the value of an attribute.
        version: The version of the operation.
        jaxpr: The decomposition, which defines the results.
    """

    name = "composite"
    label: str = field(alias="label", metadata={"print": "name"})
    attributes: Attributes
    version: int
    jaxpr: Jaxpr

    @property
    @override
    def profile_name(self) -> str:
        return f"{self.name}({self.label})"

    @property
    def call(self) -> Call:
        """The plain call of the jaxpr."""
        return Call(self.label, self.jaxpr)

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return self.call.abstract_eval(*avals)

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return self.call.evaluate(args)

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return bind(self.call, *args)

    @override
    def transform_bodies(self, interpreter: BodyInterpreter, args: Sequence[Value]) -> Sequence[Value]:
        return self.call.transform_bodies(interpreter, args)

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        attributes = {
            name: tuple(map(_lower_attribute, value)) if isinstance(value, tuple) else _lower_attribute(value)
            for name, value in self.attributes
        }
        return builder.composite(self.label, self.version, attributes, self.jaxpr, operands)


def _lower_attribute(value: AttributeValue) -> bool | int | float | str | NDArray:
    return value.array() if isinstance(value, ArrayAttribute) else value
