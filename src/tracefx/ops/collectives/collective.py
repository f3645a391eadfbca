"""Base classes of collectives, reducing collectives (`psum`, `pmean`, `pmax`, `pmin`), `axis_index` and `axis_size`.

A collective has an effect on its named axes. It passes through handlers up to the one that binds the name (a `vmap`
with `axis_name`), whose batch rule turns it into operations on the batch; `shard_map` lowers it to communication
between devices. The axis size is a field of the primitive, so output avals don't depend on a handler.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import prod
from typing import ClassVar, Final, NoReturn, Self, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, NDArray, Scalar, ShapedArray, Value, as_value, dtypes, from_numpy
from tracefx.core.avals import MeshAxes
from tracefx.core.effects import Effects, NamedAxisEffect
from tracefx.core.equality import attrs_fields
from tracefx.core.handler import as_array, bind1, current
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import Batchable, BatchDims, MappedAxis, Primitive, Tangent, UndefinedPrimal
from tracefx.lowering import Attr, Builder, IrValue, Lowerable, MlirText, Region
from tracefx.ops.collectives.pvary import replicated_axes, varying
from tracefx.ops.elementwise.arithmetic import div, mul
from tracefx.ops.elementwise.elementwise import NUMBERS, add
from tracefx.ops.operation import ANY, Domain, HasPullback, UnaryLinear, require_arity
from tracefx.ops.reductions.reduction import reduce_max, reduce_min
from tracefx.ops.shape.shape import iota
from tracefx.ops.static_integers import canonicalize_axes
from tracefx.ops.structural import convert, match_aval, reduce_sum
from tracefx.passes.varying import HasVmaRule
from tracefx.text.printer import HasJaxParams

AxisNameTuple = tuple[Hashable, ...]
AxisName = Hashable
"""The name of an axis, or a tuple of names, which stands for the product of these axes in row-major order."""

NOT_IN_JAX: Final = {"jax": False}
ReplicaGroups = tuple[tuple[int, ...], ...]


def replica_group_attrs(builder: Builder, groups: ReplicaGroups) -> dict[str, Attr]:
    """Returns the StableHLO attributes of a collective between devices: its replica groups and a channel."""
    shape = f"{len(groups)}x{len(groups[0])}"
    rows = ", ".join([str(list(group)) for group in groups])
    return {
        "replica_groups": MlirText(f"dense<[{rows}]> : tensor<{shape}xi64>"),
        "channel_handle": builder.channel_handle(),
    }


def reducer_region(aval: ShapedArray, name: str) -> Region:
    """Returns a region that combines two elements with one operation."""
    element = ShapedArray((), aval.dtype)
    return Region((element, element), lambda builder, xs: builder.emit(name, xs, [element]))


class Collective(Primitive, Batchable, Lowerable):
    """A primitive over named axes, whose members are the elements of a mapped axis or the devices of a mesh axis.

    Where an axis is checked, the caller of `bind` has cast the operand to varying over it (see `varying`).

    >>> from tracefx import lax, numpy, vmap
    >>> vmap(lambda x: lax.psum(x, "i"), axis_name="i")(numpy.array([1, 2]))
    Array([3, 3], dtype=int32)
    """

    __slots__ = ()
    arity: ClassVar[int] = 1
    """The number of operands."""

    @property
    @abstractmethod
    def names(self) -> AxisNameTuple:
        """The named axes that the collective runs over."""
        raise NotImplementedError

    @property
    @override
    def effects(self) -> Effects:
        return frozenset([NamedAxisEffect(name) for name in self.names])

    @abstractmethod
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        """Returns the output's aval."""
        raise NotImplementedError

    @abstractmethod
    def batch_over_axis(self, axis: MappedAxis, x: Value, dim: int | None) -> tuple[Value, int | None]:
        """Returns the output, and its batch axis, for a batch along one of the collective's own axes."""
        raise NotImplementedError

    def batch_other_axis(self, x: Value, dim: int) -> tuple[Value, int | None]:
        """Returns the output, and its batch axis, for a batch along any other axis."""
        return bind1(self, x), dim

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        require_arity(self.name, self.arity, avals)
        return [self.out_aval(*avals)]

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [avals[0].spec]

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        # Checks the unbatched avals, so that error messages show these.
        self.abstract_eval(*[a.aval if d is None else a.aval.without_axis(d) for a, d in zip(args, dims, strict=True)])
        (x,), (dim,) = args, dims
        if axis.name is not None and axis.name in self.names:
            out, out_dim = self.batch_over_axis(axis, x, dim)
        else:
            assert dim is not None
            out, out_dim = self.batch_other_axis(x, dim)
        return [out], [out_dim]

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
        """Emits the collective for an axis of one device."""
        return builder.emit("stablehlo.reshape", [x], [out])[0]

    @abstractmethod
    def emit_across_devices(
        self, builder: Builder, groups: ReplicaGroups, out: ShapedArray, *operands: IrValue
    ) -> IrValue:
        """Emits the collective between the devices of each of `groups`."""
        raise NotImplementedError

    def raise_unbound(self) -> NoReturn:
        """Raises the error for a collective whose axis nothing binds."""
        raise NameError(
            f"{self.name} along {_describe_axes(self.names)} is evaluated where no axis of that name is bound: "
            "use it "
            "only inside vmap(..., axis_name=...), shard_map or pmap"
        )


def _describe_axes(names: Iterable[Hashable]) -> str:
    return ", ".join([f"axis {name!r}" for name in names])


class LinearCollective(Collective, UnaryLinear, HasPullback):
    """A linear collective of one operand."""

    __slots__ = ()

    @abstractmethod
    def transposed(self) -> Collective:
        """Returns the transposed collective."""
        raise NotImplementedError

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        # The result differs between devices even if the cotangent does not, so the cotangent is declared to vary.
        return [match_aval(bind1(self.transposed(), varying(ct, self.names)), args[0].aval)]


# ------------------------------------------------------------------ psum, pmax, pmin


class ShowsAxisIndexGroups(HasJaxParams):
    """Capability: prints the parameter `axis_index_groups` of the corresponding JAX primitive."""

    __slots__ = ()

    @override
    def jax_params(self) -> Mapping[str, object]:
        shown = {f.name: getattr(self, f.name) for f in attrs_fields(type(self)) if f.metadata.get("jax") is not False}
        return {"axis_index_groups": None, **shown}


@frozen(eq=False)
class AllReduce(Collective, ShowsAxisIndexGroups, HasVmaRule):
    """A reduction over all axes in `axes`. Every member gets the result.

    Args:
        axes: The names of the axes.
        axis_sizes: Their sizes.
    """

    axes: AxisNameTuple
    axis_sizes: tuple[int, ...] = field(metadata=NOT_IN_JAX)
    domain: ClassVar[Domain] = ANY
    reducer: ClassVar[str]
    """The StableHLO operation that combines two elements."""

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
    def vma(self, operands: MeshAxes) -> MeshAxes:
        return operands.difference(map(str, self.names))

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        self.domain.require(self.name, *avals)
        return avals[0]

    @abstractmethod
    def reduce_dim(self, x: Value, dim: int) -> Value:
        """Returns `x` reduced over the axis `dim`."""
        raise NotImplementedError

    def reduce_replicated(self, x: Value, size: int) -> Value:
        """Returns the reduction of `size` copies of `x`."""
        return x

    def without_axis_name(self, name: Hashable) -> Self:
        """Returns the reduction over the other axes."""
        remaining = [(n, size) for n, size in zip(self.axes, self.axis_sizes, strict=True) if n != name]
        return evolve(self, axes=tuple([n for n, _ in remaining]), axis_sizes=tuple([size for _, size in remaining]))

    @override
    def batch_over_axis(self, axis: MappedAxis, x: Value, dim: int | None) -> tuple[Value, int | None]:
        out = self.reduce_replicated(x, axis.size) if dim is None else self.reduce_dim(x, dim)
        prim = self.without_axis_name(axis.name)
        return (bind1(prim, out) if prim.axes else out), None


@final
class PSum(AllReduce, LinearCollective):
    """The sum of the operands of all members of named axes: `sum(x[i] for i in members)`.

    `x: f32[...] -> f32[...]`, numbers. Bound by `lax.psum`.
    """

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
        return self  # every member gets the sum, so the cotangents of all members are summed for every member

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        summed = psum_over(ct, list(zip(self.axes, self.axis_sizes, strict=True)))
        return [match_aval(summed, args[0].aval)]


@final
class PMax(AllReduce):
    """The elementwise maximum of the operands of all members of named axes: `max(x[i] for i in members)`.

    `x: f32[...] -> f32[...]`, any dtype. Bound by `lax.pmax`.
    """

    name = "pmax"
    reducer = "stablehlo.maximum"

    @override
    def reduce_dim(self, x: Value, dim: int) -> Value:
        return reduce_max(x, (dim,))


@final
class PMin(AllReduce):
    """The elementwise minimum of the operands of all members of named axes: `min(x[i] for i in members)`.

    `x: f32[...] -> f32[...]`, any dtype. Bound by `lax.pmin`.
    """

    name = "pmin"
    reducer = "stablehlo.minimum"

    @override
    def reduce_dim(self, x: Value, dim: int) -> Value:
        return reduce_min(x, (dim,))


def _reducer_for(name: str, aval: ShapedArray) -> str:
    """Returns the StableHLO operation for booleans or numbers: booleans have no maximum or minimum."""
    if not dtypes.is_bool(aval.dtype):
        return name
    return "stablehlo.or" if name == "stablehlo.maximum" else "stablehlo.and"


def psum_over(x: Value, axes: Iterable[tuple[Hashable, int]]) -> Value:
    """Returns the sum along axes of these names and sizes.

    Along axes over which `x` is known to be replicated, it multiplies by their size instead of communicating.
    """
    axes = list(axes)
    replicated = replicated_axes(x, [name for name, _ in axes])
    varying_axes = [(name, size) for name, size in axes if name not in replicated]
    if varying_axes:
        x = bind1(PSum(tuple([name for name, _ in varying_axes]), tuple([size for _, size in varying_axes])), x)
    count = prod([size for name, size in axes if name in replicated])
    return x if count == 1 else mul(x, scalar_like(count, x.aval))


def to_unreduced(ct: Value, known: MeshAxes, axes: Sequence[tuple[str, int]]) -> Value:
    """Returns each device's summand of a cotangent `ct`, whose primal varies over the axes in `known`.

    The sum over the other axes is the cotangent.
    """
    n = prod([size for name, size in axes if name not in known])
    return ct if n == 1 else div(ct, scalar_like(n, ct.aval))


def from_unreduced(ct: Value, known: MeshAxes, axes: Sequence[tuple[str, int]]) -> Value:
    """Returns the cotangent of a primal that varies over the axes in `known`, from each device's summand of it."""
    return psum_over(ct, [(name, size) for name, size in axes if name not in known])


def scalar_like(n: int, aval: ShapedArray) -> Array:
    """Returns the integer `n` as a weakly typed scalar of `aval`'s dtype."""
    return convert(as_value(n), aval.dtype, True)


def resolve_axis_names(name: str, axis_name: AxisName) -> tuple[AxisNameTuple, tuple[int, ...]]:
    """Returns the axis names as a tuple, and their sizes; raises NameError for a name that is not bound."""
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
    return names, tuple([axes[n].size for n in names])


def _split_positional(name: str, x: ArrayLike, axis_name: AxisName) -> tuple[AxisNameTuple, tuple[int, ...]]:
    """Splits a tuple into names and axes of `x`: the integers to which no axis name is equal."""
    names: AxisNameTuple = tuple(axis_name) if isinstance(axis_name, tuple | list) else (axis_name,)
    positional = [n for n in names if isinstance(n, int) and n not in current().axes]
    if not positional:
        return names, ()
    axes = canonicalize_axes(name, positional, as_value(x, "x").aval.ndim, "axis_name")
    return tuple([n for n in names if n not in positional]), axes


def psum(x: ArrayLike, axis_name: AxisName) -> Array | Scalar:
    """Returns the sum of `x` over the named axis. For a Python number, that is the number times the axis size.

    Args:
        x: Array or number. Booleans are counted as integers.
        axis_name: The name of the axis, or a tuple of names. Integers are axes of `x`, which are summed and removed.

    Returns:
        An array of the shape of `x`, equal for all members of the axis, or a Python number.

    Raises:
        NameError: The name is not bound.
        ValueError: A name occurs twice.

    >>> from tracefx import vmap
    >>> vmap(lambda x: x / psum(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float32)
    """
    axis_name, axes = _split_positional("psum", x, axis_name)
    names, sizes = resolve_axis_names("psum", axis_name)
    if isinstance(x, bool | int | float | complex):
        return x * prod(sizes)
    value = as_value(x, "x")
    if dtypes.is_bool(value.aval.dtype):
        value = convert(value, dtypes.int32)
    if axes:
        value = reduce_sum(value, axes)
    return bind1(PSum(names, sizes), varying(value, names)) if names else as_array(value)


def pmean(x: ArrayLike, axis_name: AxisName) -> Array | Scalar:
    """Returns the mean of `x` over the named axis; the arguments and errors are those of `psum`.

    >>> from tracefx import vmap
    >>> vmap(lambda x: x - pmean(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    Array([-1.,  1.], dtype=float32)
    """
    names, axes = _split_positional("pmean", x, axis_name)
    size = axis_size(names) * prod([as_value(x).aval.shape[a] for a in axes])
    total = psum(x, axis_name)
    if not isinstance(total, Array):
        return total / size
    if not dtypes.is_inexact(total.dtype):
        total = convert(total, dtypes.default_float())
    return div(total, size)


def pmax(x: ArrayLike, axis_name: AxisName) -> Array:
    """Returns the maximum of `x` over the named axis; the arguments and errors are those of `psum`.

    >>> from tracefx import vmap
    >>> vmap(lambda x: x - pmax(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    Array([-2.,  0.], dtype=float32)
    """
    axis_name, axes = _split_positional("pmax", x, axis_name)
    names, sizes = resolve_axis_names("pmax", axis_name)
    value = as_value(x, "x")
    if axes:
        value = reduce_max(value, axes)
    return bind1(PMax(names, sizes), varying(value, names)) if names else as_array(value)


def pmin(x: ArrayLike, axis_name: AxisName) -> Array:
    """Returns the minimum of `x` over the named axis; the arguments and errors are those of `psum`.

    >>> from tracefx import vmap
    >>> vmap(lambda x: x - pmin(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    Array([0., 2.], dtype=float32)
    """
    axis_name, axes = _split_positional("pmin", x, axis_name)
    names, sizes = resolve_axis_names("pmin", axis_name)
    value = as_value(x, "x")
    if axes:
        value = reduce_min(value, axes)
    return bind1(PMin(names, sizes), varying(value, names)) if names else as_array(value)


# ------------------------------------------------------------------ axis_index, axis_size


@final
@frozen(eq=False)
class AxisIndex(Collective):
    """The index of the member along a named axis, from 0 to `axis_size - 1`.

    Args:
        axis_name: The name of the axis.
        axis_size: The number of its members.

    `-> i32[]`. Bound by `lax.axis_index`.
    """

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
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
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
    """Returns the index of the current member of the batch, or device, along a named axis.

    Args:
        axis_name: The name of the axis, or a tuple of names for the row-major index along all of them.

    Returns:
        A traced scalar `i32[]`.

    Raises:
        NameError: The name is not bound.

    >>> from tracefx import vmap
    >>> vmap(lambda x: x * axis_index("i"), axis_name="i")(np.array([5, 5]))
    Array([0, 5], dtype=int32)
    """
    names, sizes = resolve_axis_names("axis_index", axis_name)
    index = as_array(from_numpy(np.zeros((), np.int32)))
    for i, (name, size) in enumerate(zip(names, sizes, strict=True)):
        position = as_array(varying(bind1(AxisIndex(name, size)), (name,)))
        index = add(mul(index, size), position) if i else position
    return index


def axis_size(axis_name: AxisName) -> int:
    """Returns the size of a named axis.

    Args:
        axis_name: The name of the axis, or a tuple of names for the product of their sizes.

    Returns:
        A Python integer.

    Raises:
        NameError: The name is not bound.

    >>> from tracefx import vmap
    >>> vmap(lambda x: x / axis_size("i"), axis_name="i")(np.array([1.0, 3.0]))
    Array([0.5, 1.5], dtype=float32)
    """
    return prod(resolve_axis_names("axis_size", axis_name)[1])
