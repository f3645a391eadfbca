"""Batching: one application stands for many, along one more axis."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core.array import Array
from tracefx.core.avals import Axes, ShapedArray
from tracefx.core.callables import HasCallables
from tracefx.core.device import Device
from tracefx.core.effects import NamedAxisEffect, any_per_batch_element
from tracefx.core.handler import CURRENT, ROOT, Handler, Origin, Tracer, bind_expansion, may_vary, varies
from tracefx.core.primitive import Batchable, Expandable, MappedAxis, Primitive, missing_rule_error
from tracefx.core.source_location import EQN_LOCATION, current_provenance
from tracefx.core.values import Value
from tracefx.shardings.meshes import entry_axis_names


@final
class BatchTracer(Tracer):
    """A value that differs along the batch: the whole batch, and which axis of it is the batch axis.

    A plain class, as `StageTracer` is, and for its reason.
    """

    __slots__ = ("aval", "dim", "handler", "origin", "val")
    aval: ShapedArray
    handler: Batch
    origin: Origin

    def __init__(self, handler: Batch, val: Value, dim: int, origin: Origin) -> None:
        self.handler = handler
        self.val = val
        self.dim = dim
        self.origin = origin
        self.aval = val.aval.without_axis(dim)

    @property
    @override
    def varies(self) -> Axes:
        return varies(self.val)

    @property
    @override
    def may_vary(self) -> Axes:
        return may_vary(self.val)

    @property
    @override
    def device(self) -> Device | None:
        return self.val.device if isinstance(self.val, Array) else None

    @override
    def __repr__(self) -> str:
        return f"BatchTracer({self.aval}, batch of {self.handler.axis.size})"


@final
@frozen(eq=False)
class Batch(Handler):
    """Operations on values that differ along the batch do their `batch` rule, once for all."""

    title: ClassVar[str] = "vmap"
    inner: Handler
    axis: MappedAxis
    group: object = field(factory=object, repr=False)
    """What `over` shares: tracers of one home are at home with all of its handlers."""
    evaluates: bool = field(init=False, repr=False)
    thread: int = field(factory=threading.get_ident, init=False)

    @evaluates.default
    def _evaluates(self) -> bool:
        return self.axis.name is None and self.inner.evaluates  # others than tracers may refer to the axis by name

    @property
    @override
    def below(self) -> Handler:
        return self.inner

    @property
    @override
    def axes(self) -> Mapping[Hashable, int]:
        if self.axis.name is None:
            return self.inner.axes
        return MappingProxyType({**self.inner.axes, self.axis.name: self.axis.size})

    @property
    @override
    def checked(self) -> Mapping[str, int]:
        found = self.inner.checked
        return {name: n for name, n in found.items() if name != self.axis.name} if self.axis.name in found else found

    @override
    def owns(self, tracer: Tracer) -> bool:
        return type(tracer) is BatchTracer and tracer.handler.group is self.group

    def with_inner(self, inner: Handler) -> Batch:
        """The same batch on another handler: for a function that closes over its tracers and runs elsewhere."""
        return evolve(self, inner=inner)

    def run(
        self, f: Callable[..., Sequence[Value]], args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[list[Value], list[int | None]]:
        """Run a function once for the whole batch, on the handler that is current."""
        handler = self.with_inner(CURRENT.get())
        inputs = [handler.wrap(x, d) for x, d in zip(args, dims, strict=True)]
        token = CURRENT.set(handler)
        try:
            outs = f(*inputs)
        finally:
            CURRENT.reset(token)
        pairs = [handler.unwrap(o) for o in outs]
        return [x for x, _ in pairs], [d for _, d in pairs]

    def wrap(self, x: Value, dim: int | None) -> Value:
        return x if dim is None else BatchTracer(self, x, dim, current_provenance())

    def unwrap(self, x: Value) -> tuple[Value, int | None]:
        if type(x) is BatchTracer and (x.handler is self or x.handler.group is self.group):
            return x.val, x.dim
        return x, None

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        pairs = [self.unwrap(a) for a in args]
        if all(dim is None for _, dim in pairs) and not self.applies_to(prim):
            return self.inner.bind(prim, args)
        if not isinstance(prim, Batchable) and not isinstance(prim, HasCallables):
            if isinstance(prim, Expandable):
                return bind_expansion(self, prim, args)
            raise missing_rule_error(
                prim, "batch", "inherit from Batchable and define batch(self, axis, args, dims), or from Expandable"
            )
        line = current_provenance(1)
        token, origin = CURRENT.set(self.inner), EQN_LOCATION.set(line)
        try:
            values, in_dims = [x for x, _ in pairs], [dim for _, dim in pairs]
            if isinstance(prim, Batchable):
                outs, dims = prim.batch(self.axis, values, in_dims)
            else:
                outs, dims = prim.batch_callables(self.with_inner(ROOT), values, in_dims)
        finally:
            CURRENT.reset(token)
            EQN_LOCATION.reset(origin)
        return [x if dim is None else BatchTracer(self, x, dim, line) for x, dim in zip(outs, dims, strict=True)]

    def applies_to(self, prim: Primitive) -> bool:
        """Whether the batch concerns an operation none of whose operands differs along it."""
        return isinstance(prim, HasCallables) or any_per_batch_element(prim.effects) or self.uses_axis_name(prim)

    def uses_axis_name(self, prim: Primitive) -> bool:
        """Whether the operation refers to our axis by name."""
        return self.axis.name is not None and NamedAxisEffect(self.axis.name) in prim.effects


def spmd_axes(handler: Handler) -> tuple[str, ...]:
    """The axes of a mesh that the batches from a handler down lie along, by `spmd_axis_name`."""
    return tuple([name for h in handler.chain() if isinstance(h, Batch) for name in entry_axis_names(h.axis.spmd_name)])
