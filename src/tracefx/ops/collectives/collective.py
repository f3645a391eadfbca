"""Operations along a named axis, which a `vmap(axis_name=...)` around them maps over.

Each is an effect of its axis: it passes through all handlers up to the one that binds the name, whose batch rule turns
it into operations on the batch. The size of the axis is a field, so types are known without asking any handler.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import prod
from typing import ClassVar, Final, NoReturn, Self, final

import attrs
import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import NOWHERE, Axes, ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.effects import Effects, NamedAxisEffect
from tracefx.core.handler import as_array, bind1, current
from tracefx.core.literal import Scalar
from tracefx.core.primitive import (
    Batchable,
    Differentiable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
    Zero,
)
from tracefx.core.values import Value, as_value, from_numpy
from tracefx.core.varying import Flow, HasVaryingRule
from tracefx.lowering import Attr, Builder, IrValue, Lowerable, MlirText, Region
from tracefx.ops.collectives.pvary import replicated_axes, varying
from tracefx.ops.elementwise.arithmetic import div, mul
from tracefx.ops.elementwise.elementwise import NUMBERS, add
from tracefx.ops.operation import ANY, Domain, arity_error
from tracefx.ops.reductions.reduction import reduce_max, reduce_min
from tracefx.ops.shape.shape import iota
from tracefx.ops.structural import convert, match_aval, reduce_sum
from tracefx.text.printer import HasJaxParams

AxisNameTuple = tuple[Hashable, ...]
AxisName = Hashable
"""The name of an axis, or a tuple of names, which stand for one axis: that of all their combinations in order."""

NOT_IN_JAX: Final = {"jax": False}
ReplicaGroups = tuple[tuple[int, ...], ...]


def replica_group_attrs(builder: Builder, groups: ReplicaGroups) -> dict[str, Attr]:
    """What operations between devices are told: who works together."""
    shape = f"{len(groups)}x{len(groups[0])}"
    rows = ", ".join([str(list(group)) for group in groups])
    return {
        "replica_groups": MlirText(f"dense<[{rows}]> : tensor<{shape}xi64>"),
        "channel_handle": builder.channel_handle(),
    }


def reducer_region(aval: ShapedArray, name: str) -> Region:
    """The region of a reduction by one operation."""
    element = ShapedArray((), aval.dtype)
    return Region((element, element), lambda builder, xs: builder.emit(name, xs, [element]))


class Collective(Primitive, Batchable, Lowerable, HasVaryingRule):
    """An operation along named axes."""

    __slots__ = ()
    arity: ClassVar[int] = 1
    """How many operands it takes."""

    @property
    @abstractmethod
    def names(self) -> AxisNameTuple:
        """The axes it is along."""
        raise NotImplementedError

    @property
    @override
    def effects(self) -> Effects:
        return frozenset([NamedAxisEffect(name) for name in self.names])

    @override
    def varies(self, operands: Sequence[Axes], count: int, flow: Flow) -> Sequence[Axes]:
        # Declared it is already, of the operand, by who bound the operation: which axes are checked is known there.
        names = map(str, self.names) if flow.of_values else ()
        return [NOWHERE.union(*operands, names)] * count

    @abstractmethod
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        raise NotImplementedError

    @abstractmethod
    def batch_over_axis(self, axis: MappedAxis, x: Value, dim: int | None) -> tuple[Value, int | None]:
        """The output where `axis` is ours: the operation on the whole batch."""
        raise NotImplementedError

    def batch_other_axis(self, x: Value, dim: int) -> tuple[Value, int | None]:
        """The output where the batch is along another axis."""
        return bind1(self, x), dim

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        if len(avals) != self.arity:
            raise arity_error(self.name, self.arity, len(avals))
        return [self.out_aval(*avals)]

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        # So that errors speak of what users see.
        self.abstract_eval(*[a.aval if d is None else a.aval.without_axis(d) for a, d in zip(args, dims, strict=True)])
        (x,), (dim,) = args, dims
        if axis.name is not None and axis.name in self.names:
            out, place = self.batch_over_axis(axis, x, dim)
        else:
            assert dim is not None
            out, place = self.batch_other_axis(x, dim)
        return [out], [place]

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        self.raise_unbound()

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        self.raise_unbound()

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        groups = builder.replica_groups(self.names)
        if groups is None:
            self.raise_unbound()
        out = self.out_aval(*[x.aval for x in operands])
        if operands and len(groups[0]) == 1:
            return [self.emit_single_device(builder, out, *operands)]
        return [self.emit_across_devices(builder, groups, out, *operands)]

    def emit_single_device(self, builder: Builder, out: ShapedArray, x: IrValue) -> IrValue:
        """The operation of a device that is the only one along the axes."""
        return builder.emit("stablehlo.reshape", [x], [out])[0]

    @abstractmethod
    def emit_across_devices(
        self, builder: Builder, groups: ReplicaGroups, out: ShapedArray, *operands: IrValue
    ) -> IrValue:
        """The operation between devices, of which those in one of `groups` work together."""
        raise NotImplementedError

    def raise_unbound(self) -> NoReturn:
        raise NameError(
            f"{self.name} along {_describe_axes(self.names)} was to be computed where nothing maps over that axis: "
            "it has a "
            "meaning only inside vmap(..., axis_name=...), shard_map or pmap"
        )


def _describe_axes(names: Iterable[Hashable]) -> str:
    return ", ".join([f"axis {name!r}" for name in names])


class LinearCollective(Collective, Differentiable, Transposable):
    __slots__ = ()

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        (t,) = tangents
        assert not isinstance(t, Zero)
        return [bind1(self, *primals)], [bind1(self, t)]

    @abstractmethod
    def transposed(self) -> Collective:
        raise NotImplementedError

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        (ct,) = cts
        assert not isinstance(ct, Zero)
        return [match_aval(bind1(self.transposed(), ct), args[0].aval)]


# ------------------------------------------------------------------ psum, pmax, pmin


class ShowsAxisIndexGroups(HasJaxParams):
    """A collective of which JAX's can be of groups of an axis's members."""

    __slots__ = ()

    @override
    def jax_params(self) -> Mapping[str, object]:
        fields = attrs.fields(type(self))  # type: ignore[arg-type]  # each such operation is made by attrs
        shown = {f.name: getattr(self, f.name) for f in fields if f.metadata.get("jax") is not False}
        return {"axis_index_groups": None, **shown}


@frozen(eq=False)
class AllReduce(Collective, ShowsAxisIndexGroups):
    """Folds along all axes of `axes`; every member of the batch gets the result."""

    axes: AxisNameTuple
    axis_sizes: tuple[int, ...] = field(metadata=NOT_IN_JAX)
    domain: ClassVar[Domain] = ANY
    reducer: ClassVar[str]
    """What StableHLO calls the operation of two."""

    @override
    def emit_across_devices(
        self, builder: Builder, groups: ReplicaGroups, out: ShapedArray, *operands: IrValue
    ) -> IrValue:
        attrs = {**replica_group_attrs(builder, groups), "use_global_device_ids": MlirText("unit")}
        region = reducer_region(out, _reducer_for(self.reducer, out))
        return builder.emit("stablehlo.all_reduce", operands, [out], attrs, [region])[0]

    @property
    @override
    def names(self) -> AxisNameTuple:
        return self.axes

    @override
    def varies(self, operands: Sequence[Axes], count: int, flow: Flow) -> Sequence[Axes]:
        return [NOWHERE.union(*operands).difference(map(str, self.names))] * count

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        self.domain.require(self.name, *avals)
        return avals[0]

    @abstractmethod
    def reduce_dim(self, x: Value, dim: int) -> Value:
        raise NotImplementedError

    def reduce_replicated(self, x: Value, size: int) -> Value:
        """The fold of `size` times the same."""
        return x

    def without_axis_name(self, name: Hashable) -> Self:
        left = [(n, size) for n, size in zip(self.axes, self.axis_sizes, strict=True) if n != name]
        return evolve(self, axes=tuple([n for n, _ in left]), axis_sizes=tuple([size for _, size in left]))

    @override
    def batch_over_axis(self, axis: MappedAxis, x: Value, dim: int | None) -> tuple[Value, int | None]:
        out = self.reduce_replicated(x, axis.size) if dim is None else self.reduce_dim(x, dim)
        rest = self.without_axis_name(axis.name)
        return (bind1(rest, out) if rest.axes else out), None


@final
class PSum(AllReduce, LinearCollective):
    __slots__ = ()
    name = "psum"
    reducer = "stablehlo.add"
    domain = NUMBERS

    @override
    def reduce_dim(self, x: Value, dim: int) -> Value:
        return reduce_sum(x, (dim,))

    @override
    def reduce_replicated(self, x: Value, size: int) -> Value:
        return mul(x, scalar_like(size, x.aval))

    @override
    def transposed(self) -> Collective:
        return self  # the sum goes to every member, so the cotangents of all are summed, and go to every member

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        (ct,) = cts
        assert not isinstance(ct, Zero)
        summed = psum_over(ct, list(zip(self.axes, self.axis_sizes, strict=True)))
        return [match_aval(summed, args[0].aval)]


@final
class PMax(AllReduce):
    __slots__ = ()
    name = "pmax"
    reducer = "stablehlo.maximum"

    @override
    def reduce_dim(self, x: Value, dim: int) -> Value:
        return reduce_max(x, (dim,))


@final
class PMin(AllReduce):
    __slots__ = ()
    name = "pmin"
    reducer = "stablehlo.minimum"

    @override
    def reduce_dim(self, x: Value, dim: int) -> Value:
        return reduce_min(x, (dim,))


def _reducer_for(name: str, aval: ShapedArray) -> str:
    if not dtypes.is_bool(aval.dtype):
        return name
    return "stablehlo.or" if name == "stablehlo.maximum" else "stablehlo.and"


def psum_over(x: Value, axes: Iterable[tuple[Hashable, int]]) -> Value:
    """The sum along axes of these names and sizes, wherever it is bound: without a word between devices if all have
    the same."""
    axes = list(axes)
    same = replicated_axes(x, [name for name, _ in axes])
    apart = [(name, size) for name, size in axes if name not in same]
    if apart:
        x = bind1(PSum(tuple([name for name, _ in apart]), tuple([size for _, size in apart])), x)
    count = prod([size for name, size in axes if name in same])
    return x if count == 1 else mul(x, scalar_like(count, x.aval))


def to_unreduced(ct: Value, known: Axes, axes: Sequence[tuple[str, int]]) -> Value:
    """A true cotangent of a value that varies along the axes in `known`, as each device's share of it."""
    n = prod([size for name, size in axes if name not in known])
    return ct if n == 1 else div(ct, scalar_like(n, ct.aval))


def from_unreduced(ct: Value, known: Axes, axes: Sequence[tuple[str, int]]) -> Value:
    """The true cotangent of a value that varies along the axes in `known`, from each device's share of it."""
    return psum_over(ct, [(name, size) for name, size in axes if name not in known])


def scalar_like(n: int, aval: ShapedArray) -> Array:
    return convert(as_value(n), aval.dtype, True)


def resolve_axis_names(name: str, axis_name: AxisName) -> tuple[AxisNameTuple, tuple[int, ...]]:
    """The named axes and their sizes; `NameError` for a name that nothing around binds."""
    names: AxisNameTuple = tuple(axis_name) if isinstance(axis_name, tuple | list) else (axis_name,)
    axes = current().axes
    for n in names:
        if n not in axes:
            scope = f"in scope are {_describe_axes(axes)}" if axes else "no axis is in scope"
            raise NameError(
                f"{name}: unbound axis name {n!r}; {scope}. A name is bound by vmap(..., axis_name=...), shard_map or "
                "pmap around the call"
            )
    if len(set(names)) != len(names):
        raise ValueError(f"{name}: axis_name {axis_name!r} names an axis twice")
    return names, tuple([axes[n] for n in names])


def psum(x: ArrayLike, axis_name: AxisName) -> Array | Scalar:
    """The sum of `x` along the named axis; that of a Python number is known at once: it times the axis's size.

    >>> from tracefx import vmap
    >>> vmap(lambda x: x / psum(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float32)
    """
    names, sizes = resolve_axis_names("psum", axis_name)
    if isinstance(x, bool | int | float | complex):
        return x * prod(sizes)
    value = as_value(x, "x")
    if dtypes.is_bool(value.aval.dtype):
        value = convert(value, dtypes.int32)
    return bind1(PSum(names, sizes), varying(value, names)) if names else as_array(value)


def pmean(x: ArrayLike, axis_name: AxisName) -> Array | Scalar:
    """The mean of `x` along the named axis.

    >>> from tracefx import vmap
    >>> vmap(lambda x: x - pmean(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    Array([-1.,  1.], dtype=float32)
    """
    size = axis_size(axis_name)
    total = psum(x, axis_name)
    if not isinstance(total, Array):
        return total / size
    if not dtypes.is_inexact(total.dtype):
        total = convert(total, dtypes.default_float())
    return div(total, size)


def pmax(x: ArrayLike, axis_name: AxisName) -> Array:
    """The greatest `x` along the named axis.

    >>> from tracefx import vmap
    >>> vmap(lambda x: x - pmax(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    Array([-2.,  0.], dtype=float32)
    """
    names, sizes = resolve_axis_names("pmax", axis_name)
    return bind1(PMax(names, sizes), varying(as_value(x, "x"), names)) if names else as_array(x)


def pmin(x: ArrayLike, axis_name: AxisName) -> Array:
    """The least `x` along the named axis.

    >>> from tracefx import vmap
    >>> vmap(lambda x: x - pmin(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    Array([0., 2.], dtype=float32)
    """
    names, sizes = resolve_axis_names("pmin", axis_name)
    return bind1(PMin(names, sizes), varying(as_value(x, "x"), names)) if names else as_array(x)


# ------------------------------------------------------------------ axis_index, axis_size


@final
@frozen(eq=False)
class AxisIndex(Collective):
    name = "axis_index"
    arity = 0
    axis_name: Hashable
    axis_size: int = field(metadata=NOT_IN_JAX)

    @property
    @override
    def names(self) -> AxisNameTuple:
        return (self.axis_name,)

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        return ShapedArray((), dtypes.int32)

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        self.abstract_eval(*[a.aval for a in args])
        return [iota(dtypes.int32, axis.size)], [0]

    @override
    def emit_across_devices(
        self, builder: Builder, groups: ReplicaGroups, out: ShapedArray, *operands: IrValue
    ) -> IrValue:
        return builder.axis_index(self.axis_name)

    @override
    def batch_over_axis(self, axis: MappedAxis, x: Value, dim: int | None) -> tuple[Value, int | None]:
        raise AssertionError("has no operand")


def axis_index(axis_name: AxisName) -> Array:
    """The index of this member of the batch along the named axis: `i32[]`.

    >>> from tracefx import vmap
    >>> vmap(lambda x: x * axis_index("i"), axis_name="i")(np.array([5, 5]))
    Array([0, 5], dtype=int32)
    """
    names, sizes = resolve_axis_names("axis_index", axis_name)
    index = as_array(from_numpy(np.zeros((), np.int32)))
    for i, (name, size) in enumerate(zip(names, sizes, strict=True)):
        here = as_array(varying(bind1(AxisIndex(name, size)), (name,)))
        index = add(mul(index, size), here) if i else here
    return index


def axis_size(axis_name: AxisName) -> int:
    """The size of the named axis, a Python integer.

    >>> from tracefx import vmap
    >>> vmap(lambda x: x / axis_size("i"), axis_name="i")(np.array([1.0, 3.0]))
    Array([0.5, 1.5], dtype=float32)
    """
    return prod(resolve_axis_names("axis_size", axis_name)[1])
