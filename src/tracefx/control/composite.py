"""`composite` as an operation: a program under a name, for which a compiler may have an operation of its own.

Only compiled it is more than its program: differentiated, batched or under any other handler it is a call of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.call import Call
from tracefx.core import dtypes
from tracefx.core.avals import Axes, Shape, ShapedArray
from tracefx.core.builder import Builder, Ir
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.effects import Effects
from tracefx.core.entering import Enterable, Entry
from tracefx.core.handler import bind
from tracefx.core.jaxpr import CarriesJaxprs, Jaxpr
from tracefx.core.literal import Scalar
from tracefx.core.primitive import Expandable, Lowerable, Primitive
from tracefx.core.values import Value
from tracefx.core.varying import Flow


@final
@frozen
class Numbers:
    """An array that is an attribute."""

    dtype: DType
    shape: Shape
    values: tuple[Scalar, ...]

    @staticmethod
    def of(x: NDArray) -> Numbers:
        return Numbers(dtypes.as_dtype(x.dtype), x.shape, tuple(x.reshape(-1).tolist()))

    def array(self) -> NDArray:
        return np.asarray(self.values, self.dtype).reshape(self.shape)


Single: TypeAlias = bool | int | float | str | Numbers
Attributes: TypeAlias = tuple[tuple[str, Single | tuple[Single, ...]], ...]


@final
@frozen(eq=False)
class Composite(Primitive, CarriesJaxprs, Enterable, Expandable, Lowerable):
    """A call of `jaxpr`, which has no constants, that compilers know as `label`, of a version and with attributes."""

    name = "composite"
    label: str = field(alias="label", metadata={"print": "name"})
    attributes: Attributes
    version: int
    jaxpr: Jaxpr

    @property
    @override
    def profile_name(self) -> str:
        return f"{self.name}({self.label})"

    @override
    def jaxprs(self) -> tuple[Jaxpr, ...]:
        return (self.jaxpr,)

    @override
    def with_jaxprs(self, *jaxprs: Jaxpr) -> Composite:
        return evolve(self, jaxpr=jaxprs[0])

    @property
    @override
    def effects(self) -> Effects:
        return self.jaxpr.effects

    @property
    def call(self) -> Call:
        return Call(self.label, self.jaxpr)

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return self.call.abstract_eval(*avals)

    @override
    def varies(self, operands: Sequence[Axes], count: int, flow: Flow) -> Sequence[Axes]:
        return flow.through(self.jaxpr, operands)

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return self.call.evaluate(args)

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return bind(self.call, *args)

    @override
    def entered(self, entry: Entry, args: Sequence[Value]) -> Sequence[Value]:
        return self.call.entered(entry, args)

    @override
    def lower(self, builder: Builder, *operands: Ir) -> Sequence[Ir]:
        attributes = {
            name: tuple(map(_plain, value)) if isinstance(value, tuple) else _plain(value)
            for name, value in self.attributes
        }
        return builder.composite(self.label, self.version, attributes, self.jaxpr, operands)


def _plain(value: Single) -> bool | int | float | str | NDArray:
    return value.array() if isinstance(value, Numbers) else value
