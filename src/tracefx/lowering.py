"""Lowering of primitives to StableHLO: the capability `Lowerable`, and the builder that its rules are given.

The builder is a protocol, so that primitives do not import MLIR; `xla/emitter.py` implements it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol, TypeAlias, final

from attrs import frozen

from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive, missing_rule_error
from tracefx.core.values import Value
from tracefx.shardings.named_sharding import NamedSharding


class IrValue(Protocol):
    """A value of the program being built."""

    @property
    def aval(self) -> ShapedArray: ...


@final
@frozen
class DenseI64Array:
    """An array of 64-bit integers, such as the dimensions an operation works on."""

    values: tuple[int, ...]


@final
@frozen
class MlirText:
    """An attribute in MLIR's own syntax, e.g. `#stablehlo<comparison_direction LT>`."""

    mlir: str


Attr: TypeAlias = bool | int | DenseI64Array | MlirText
"""A boolean, a 64-bit integer, an integer array, or anything else as MLIR text."""


SingleAttr: TypeAlias = bool | int | float | str | NDArray
CompositeAttr: TypeAlias = SingleAttr | tuple[SingleAttr, ...]
"""An attribute of a composite operation, which says itself what it is."""

RegionBuilder: TypeAlias = "Callable[[Builder, Sequence[IrValue]], Sequence[IrValue]]"
"""Adds what computes results from arguments."""


@final
@frozen(eq=False)
class Region:
    """The body of an operation that has one (a reduction, a loop): its arguments, and what builds it."""

    args: tuple[ShapedArray, ...]
    build: RegionBuilder


@final
@frozen
class KernelLayouts:
    """How the arrays that a kernel takes and gives lie in memory, and which of them share it.

    A layout has the axes of an array from the one whose elements are neighbours to the outermost. `aliases` are pairs
    of an operand and the result that overwrites it.
    """

    operands: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]
    aliases: tuple[tuple[int, int], ...] = ()
    core_ndim: int = 2
    """How many axes the largest of the arrays have but for those of the batch, which come first."""


class Builder(Protocol):
    """Adds operations to the program being built."""

    @property
    def platform(self) -> str:
        """What the program is built for, e.g. `cpu`. A rule that asks is asked for each, if they are several."""
        ...

    def platform_index(self, number: Callable[[str], int]) -> IrValue:
        """The number of the platform that the program runs on, `i32[]`. `case` builds only what can be chosen by it."""
        ...

    def emit(
        self,
        name: str,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        attrs: Mapping[str, Attr] = ...,
        regions: Sequence[Region] = ...,
    ) -> list[IrValue]:
        """Add the operation `name` (e.g. `stablehlo.add`) whose results have the types `outs`."""
        ...

    def constant(self, value: Literal | NDArray) -> IrValue: ...

    def retype_keys(self, x: IrValue, aval: ShapedArray) -> IrValue:
        """The words of random keys, `u32[..., words]`, as the keys, or the other way round: the same numbers."""
        ...

    def emit_per_key_word(
        self, prim: Primitive, outs: Sequence[ShapedArray], operands: Sequence[IrValue]
    ) -> list[IrValue]:
        """What an operation that moves elements does with random keys: the same with each of their words."""
        ...

    def reemit_broadcast(self, x: IrValue) -> IrValue:
        """`x`; where it repeats an array, another value that does the same and has no use yet."""
        ...

    def inline(self, jaxpr: Jaxpr, operands: Sequence[IrValue]) -> list[IrValue]:
        """Add the equations of a program without constants."""
        ...

    def lower_fun(self, function: Callable[..., Sequence[Value]], operands: Sequence[IrValue]) -> list[IrValue]:
        """Add what a function of values binds: a rule may be made of smaller operations on some platforms only."""
        ...

    def loop(self, carry: Sequence[IrValue], condition: RegionBuilder, body: RegionBuilder) -> list[IrValue]:
        """While `condition` of the carry, which gives one boolean, holds: the next carry is `body` of it."""
        ...

    def case(
        self,
        index: IrValue,
        branches: Sequence[RegionBuilder],
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
    ) -> list[IrValue]:
        """The results of the branch at `index`, an `i32[]`, on the operands; the last one's if it is out of bounds."""
        ...

    def call(self, name: str, jaxpr: Jaxpr, operands: Sequence[IrValue]) -> list[IrValue]:
        """Call a function of the program being built, whose body is `jaxpr`; one function serves all calls of it."""
        ...

    def composite(
        self,
        name: str,
        version: int,
        attributes: Mapping[str, CompositeAttr],
        jaxpr: Jaxpr,
        operands: Sequence[IrValue],
    ) -> list[IrValue]:
        """Add a call of a function whose body is `jaxpr`, which compilers may know by the name and the attributes."""
        ...

    def custom_call(
        self,
        target: str,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        config: Mapping[str, Attr] = ...,
        has_side_effect: bool = ...,
        layouts: KernelLayouts | None = ...,
    ) -> list[IrValue]:
        """Add a call of a kernel that the runtime knows by the name `target`.

        Kernels of jaxlib's own (`lapack_spotrf_ffi`) are known everywhere, so a program that calls them can be kept
        and sent away; any other kernel ties the program to this process.
        """
        ...

    def has_custom_call_target(self, target: str) -> bool:
        """Whether a library that is new enough for a kernel, which older ones lack, is installed where one builds."""
        ...

    def manual_computation(
        self,
        jaxpr: Jaxpr,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        ins: Sequence[NamedSharding],
        given: Sequence[NamedSharding],
        axes: Sequence[str],
    ) -> list[IrValue]:
        """Add a program that every device runs on its own parts, cut as `ins` and `given` say, along some axes."""
        ...

    def replica_groups(self, names: Sequence[Hashable]) -> tuple[tuple[int, ...], ...] | None:
        """The devices that differ along these axes alone, group by group; None where nothing runs apart along them."""
        ...

    def axis_index(self, name: Hashable) -> IrValue:
        """Where along an axis the device is that runs the program: `i32[]`."""
        ...

    def channel_handle(self) -> MlirText:
        """What the next operation between devices is known by."""
        ...

    def sharding(self, sharding: NamedSharding, aval: ShapedArray) -> str:
        """How an array of this type lies, in Shardy's syntax, its mesh named as in the program being built."""
        ...

    def host_call(
        self,
        function: Callable[..., Sequence[NDArray]],
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        has_side_effect: bool,
        partitioned: bool = False,
    ) -> list[IrValue]:
        """Add a call of a Python function, which takes and gives NumPy arrays that nobody writes to.

        If the operation that is lowered has ordered effects, it happens after those before it. They reach each other
        through loops, branches and calls, whose rules need to do nothing about it.

        In a program on several devices the first of them calls, with whole arrays. If it is `partitioned`, has no
        results and isn't ordered, each calls with its parts, whose shapes are others.
        """
        ...


class Lowerable:
    """Can be compiled."""

    __slots__ = ()

    @abstractmethod
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        """Build the operation in StableHLO."""
        raise missing_rule_error(self, "lower", "define lower(self, builder, *operands)")

    def lower_with_avals(
        self, builder: Builder, outs: Sequence[ShapedArray], operands: Sequence[IrValue]
    ) -> Sequence[IrValue]:
        """`lower`, where the types of the outputs are known. Families whose rules ask for them override this."""
        return self.lower(builder, *operands)
