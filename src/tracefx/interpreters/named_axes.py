"""Named axes in scope, whoever it is that works along them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType

from attrs import frozen
from typing_extensions import override

from tracefx.core.handler import Handler
from tracefx.core.primitive import Primitive
from tracefx.core.values import Value


@frozen(eq=False)
class NamedAxes(Handler):
    """Hands everything on: it only says which named axes there are, and how long they are."""

    inner: Handler
    names: Mapping[Hashable, int]

    @property
    @override
    def below(self) -> Handler:
        return self.inner

    @property
    @override
    def axes(self) -> Mapping[Hashable, int]:
        return MappingProxyType({**self.inner.axes, **self.names})

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        return self.inner.bind(prim, args)
