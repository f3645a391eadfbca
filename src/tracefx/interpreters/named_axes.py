"""`NamedAxes`, a handler that only adds named axes to the axis environment."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from attrs import frozen
from typing_extensions import override

from tracefx.core import Value
from tracefx.core.handler import AxisEnvironment, Handler
from tracefx.core.primitive import Primitive


@frozen(eq=False)
class NamedAxes(Handler):
    """Adds named axes to the axis environment, and passes every primitive to `inner`."""

    inner: Handler
    names: AxisEnvironment

    @property
    @override
    def axes(self) -> AxisEnvironment:
        return MappingProxyType({**self.inner.axes, **self.names})

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        return self.inner.bind(prim, args)
