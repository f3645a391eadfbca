"""Batching (`vmap`): runs a function once on values that have an additional axis."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import ClassVar, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import ShapedArray, Value
from tracefx.core.device import Device
from tracefx.core.effects import NamedAxisEffect, any_per_batch_element
from tracefx.core.handler import (
    CURRENT,
    ROOT,
    AxisEnvironment,
    Handler,
    NamedAxis,
    Origin,
    Tracer,
    bind_expansion,
    call_under,
)
from tracefx.core.jaxpr import HasSubjaxprs
from tracefx.core.partition_spec import entry_axis_names
from tracefx.core.primitive import Batchable, BatchDims, Expandable, MappedAxis, Primitive, missing_rule_error
from tracefx.interpreters.callables import HasCallables
from tracefx.ops.annotations.reshard import with_type_of, without_type_sharding
from tracefx.ops.elementwise.elementwise import Elementwise
from tracefx.passes.varying import infer_types
from tracefx.source_location import SOURCE, current_provenance


@final
class BatchTracer(Tracer):
    """A batched value: the array of the whole batch, and the index of its batch axis.

    A plain class rather than an attrs class, for the same reason as `StageTracer`: speed of construction.
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
    def parts(self) -> Sequence[Value]:
        return (self.val,)

    @property
    @override
    def device(self) -> Device | None:
        return self.val.device

    @property
    @override
    def why_abstract(self) -> str:
        return f"is batched: under vmap it has one value for each of the {self.handler.axis.size} elements of the batch"

    @override
    def __repr__(self) -> str:
        return f"BatchTracer({self.aval}, batch of {self.handler.axis.size})"


@final
@frozen(eq=False)
class Batch(Handler):
    """The handler of `vmap`: applies the `batch` rule of each primitive that has batched operands."""

    title: ClassVar[str] = "vmap"
    inner: Handler
    axis: MappedAxis
    group: object = field(factory=object, repr=False)
    """The identity that copies made by `with_inner` share: each owns the tracers of the others."""
    evaluates: bool = field(init=False, repr=False)
    thread: int = field(factory=threading.get_ident, init=False)

    @evaluates.default
    def _evaluates(self) -> bool:
        # With a named axis, primitives without batched operands may use the axis too (`axis_index`).
        return self.axis.name is None and self.inner.evaluates

    @property
    @override
    def axes(self) -> AxisEnvironment:
        if self.axis.name is None:
            return self.inner.axes
        return MappingProxyType({**self.inner.axes, self.axis.name: NamedAxis(self.axis.size)})

    @override
    def owns(self, tracer: Tracer) -> bool:
        return type(tracer) is BatchTracer and tracer.handler.group is self.group

    def with_inner(self, inner: Handler) -> Batch:
        """Returns the same batch over another handler, for functions that close over its tracers and run elsewhere."""
        return evolve(self, inner=inner)

    def run(
        self, f: Callable[..., Sequence[Value]], args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[list[Value], list[int | None]]:
        """Runs a function once for the whole batch, over the current handler.

        Args:
            f: a function of values.
            args: the operands of the whole batch.
            dims: the batch axis of each operand; `None` for one that is not batched.

        Returns:
            The results, and the batch axis of each.
        """
        handler = self.with_inner(CURRENT.get())
        inputs = [handler.wrap(x, d) for x, d in zip(args, dims, strict=True)]
        outs = call_under(handler, f, *inputs)
        pairs = [handler.unwrap(o) for o in outs]
        return [x for x, _ in pairs], [d for _, d in pairs]

    def wrap(self, x: Value, dim: int | None) -> Value:
        """Returns a tracer with batch axis `dim`, or `x` itself if `dim` is `None`."""
        return x if dim is None else BatchTracer(self, x, dim, current_provenance())

    def unwrap(self, x: Value) -> tuple[Value, int | None]:
        """Returns the array of the whole batch and its batch axis; `None` if `x` is not batched."""
        if type(x) is BatchTracer and (x.handler is self or x.handler.group is self.group):
            return x.val, x.dim
        return x, None

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        values: list[Value] = []
        in_dims: list[int | None] = []
        is_batched = is_sharded = False
        for a in args:
            x, dim = self.unwrap(a)
            values.append(x)
            in_dims.append(dim)
            is_batched = is_batched or dim is not None
            is_sharded = is_sharded or x.aval.explicit_sharding is not None
        if not is_batched and not self.applies_to(prim):
            return self.inner.bind(prim, args)
        if not isinstance(prim, Batchable) and not isinstance(prim, HasCallables):
            if isinstance(prim, Expandable):
                return bind_expansion(self, prim, args)
            raise missing_rule_error(
                prim, "batch", "inherit from Batchable and define batch(self, axis, args, dims), or from Expandable"
            )
        location = current_provenance(1)
        token, origin = CURRENT.set(self.inner), SOURCE.set(location)
        try:
            if is_sharded:
                outs, dims = self._apply_to_sharded(prim, [x.aval for x in args], values, in_dims)
            elif isinstance(prim, Batchable):
                outs, dims = prim.batch(self.axis, values, in_dims)
            else:
                outs, dims = prim.batch_callables(self.with_inner(ROOT), values, in_dims)
        finally:
            CURRENT.reset(token)
            SOURCE.reset(origin)
        return [x if dim is None else BatchTracer(self, x, dim, location) for x, dim in zip(outs, dims, strict=True)]

    def _apply_to_sharded(
        self, prim: Primitive, avals: Sequence[ShapedArray], values: Sequence[Value], dims: BatchDims
    ) -> tuple[Sequence[Value], BatchDims]:
        """Applies the rule to operands whose types have shardings.

        The types of the results follow from those of an element of the batch. A rule may use primitives whose results
        have no unique sharding, so it is applied without the shardings; those of elementwise primitives don't.
        """
        if isinstance(prim, HasCallables):
            return prim.batch_callables(self.with_inner(ROOT), values, dims)
        is_elementwise = isinstance(prim, Elementwise)
        assert isinstance(prim, Batchable)
        if isinstance(prim, HasSubjaxprs):
            return prim.batch(self.axis, values, dims)
        types = infer_types(prim, avals)
        if is_elementwise:
            outs, out_dims = prim.batch(self.axis, values, dims)
        else:
            axis = evolve(self.axis, explicit=None)
            outs, out_dims = prim.batch(axis, [without_type_sharding(x) for x in values], dims)
        typed = [
            with_type_of(x, aval if dim is None else self.axis.add_to(aval, dim))
            for x, dim, aval in zip(outs, out_dims, types, strict=True)
        ]
        return typed, out_dims

    def applies_to(self, prim: Primitive) -> bool:
        """Whether the batch affects a primitive without batched operands."""
        return isinstance(prim, HasCallables) or any_per_batch_element(prim.effects) or self.uses_axis_name(prim)

    def uses_axis_name(self, prim: Primitive) -> bool:
        """Whether the primitive refers to the batch axis by name."""
        return self.axis.name is not None and NamedAxisEffect(self.axis.name) in prim.effects


def spmd_axes(handler: Handler) -> tuple[str, ...]:
    """Returns the mesh axes of all batches from a handler down its chain, as given by `spmd_axis_name`."""
    return tuple([name for h in handler.chain() if isinstance(h, Batch) for name in entry_axis_names(h.axis.spmd_name)])
