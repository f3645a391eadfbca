"""Lowering of primitives to StableHLO: the capability `Lowerable`, and the builder that its rules are given.

The builder is a protocol, so that primitives do not import MLIR; `xla/emitter.py` implements it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol, TypeAlias, final

from attrs import frozen

from tracefx.core import Literal, NDArray, ShapedArray, Value
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.meshes import BaseMesh
from tracefx.core.named_sharding import NamedSharding
from tracefx.core.partition_spec import PartitionSpec
from tracefx.core.primitive import Expandable, Primitive, missing_rule_error
from tracefx.core.rule_checks import RULE_PARAMETERS, check_call


class IrValue(Protocol):
    """An SSA value of the module being built."""

    @property
    def aval(self) -> ShapedArray:
        """The aval of the value."""


@final
@frozen
class DenseI64Array:
    """An attribute: an array of 64-bit integers, e.g. the dimensions of a reduction.

    Args:
        values: The integers.

    >>> DenseI64Array((0, 2))
    DenseI64Array(values=(0, 2))
    """

    values: tuple[int, ...]


@final
@frozen
class MlirText:
    """An attribute in MLIR syntax.

    Args:
        mlir: The text.

    >>> MlirText("#stablehlo<comparison_direction LT>").mlir
    '#stablehlo<comparison_direction LT>'
    """

    mlir: str


@final
@frozen
class WindowPadding:
    """An attribute: the padding of windows, a pair (before, after) for each axis.

    Args:
        pairs: The pairs.
    """

    pairs: tuple[tuple[int, int], ...]


Attr: TypeAlias = bool | int | DenseI64Array | WindowPadding | MlirText
"""A boolean, a 64-bit integer, an integer array, the padding of windows, or anything else as MLIR text."""


SingleAttr: TypeAlias = bool | int | float | str | NDArray
CompositeAttr: TypeAlias = SingleAttr | tuple[SingleAttr, ...]
"""An attribute of a composite operation, whose MLIR type follows from the Python type."""

RegionBuilder: TypeAlias = "Callable[[Builder, Sequence[IrValue]], Sequence[IrValue]]"
"""A function that emits a region body: it gets the block arguments and returns the results."""


@final
@frozen(eq=False)
class Region:
    """A region of an operation (the body of a reduction or loop).

    Args:
        args: The avals of the block arguments.
        build: Emits the body.
    """

    args: tuple[ShapedArray, ...]
    build: RegionBuilder


@final
@frozen
class KernelLayouts:
    """The memory layouts and aliases of the operands and results of a custom call.

    Args:
        operands: For each operand its layout: the axes from the minor-most (contiguous) to the major-most.
        results: For each result its layout.
        aliases: Pairs of an operand index and the index of the result that overwrites it.
        core_ndim: The number of axes of the largest array without its leading batch axes.
    """

    operands: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]
    aliases: tuple[tuple[int, int], ...] = ()
    core_ndim: int = 2


class Builder(Protocol):
    """Emits operations into the module being built."""

    @property
    def platform(self) -> str:
        """The platform, e.g. `cpu`. In a multi-platform lowering, a rule that reads it is run once per platform."""

    def platform_index(self, number: Callable[[str], int]) -> IrValue:
        """Returns `number(platform)` of the platform at run time, as `i32[]`. `case` emits only reachable branches.

        Args:
            number: Maps the name of a platform to a number.
        """

    def emit(
        self,
        name: str,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        attrs: Mapping[str, Attr] = ...,
        regions: Sequence[Region] = ...,
    ) -> list[IrValue]:
        """Emits an operation and returns its results.

        Args:
            name: The name of the operation, e.g. `stablehlo.add`.
            operands: The operands.
            outs: The avals of the results.
            attrs: The attributes by name. None by default.
            regions: The regions. None by default.

        Returns:
            The results.
        """

    def constant(self, value: Literal | NDArray) -> IrValue:
        """Emits a constant.

        Args:
            value: The value: a literal or a NumPy array.

        Returns:
            The constant.
        """

    def dimension(self, size: int, aval: ShapedArray) -> IrValue:
        """Emits an axis size as a scalar; a symbolic one is computed from the shapes of the arguments of the module.

        Args:
            size: The axis size.
            aval: The aval of the result, an integer scalar.

        Returns:
            The scalar.
        """

    def retype_keys(self, x: IrValue, aval: ShapedArray) -> IrValue:
        """Converts between random keys and their words, `u32[..., words]`, without changing the data.

        Args:
            x: The keys or words.
            aval: The aval of the result.

        Returns:
            The words or keys.
        """

    def emit_per_key_word(
        self, prim: Primitive, outs: Sequence[ShapedArray], operands: Sequence[IrValue]
    ) -> list[IrValue]:
        """Emits a data-movement primitive on random keys: applies it to each of their words.

        Args:
            prim: The primitive.
            outs: The avals of the results.
            operands: The operands.

        Returns:
            The results.
        """

    def reemit_broadcast(self, x: IrValue) -> IrValue:
        """Returns `x`; the result of a broadcast is emitted again, so that it has no other use.

        Args:
            x: The value.
        """

    def inline(self, jaxpr: Jaxpr, operands: Sequence[IrValue]) -> list[IrValue]:
        """Emits the equations of a jaxpr without constants.

        Args:
            jaxpr: The jaxpr.
            operands: Its inputs.

        Returns:
            Its outputs.
        """

    def lower_fun(self, function: Callable[..., Sequence[Value]], operands: Sequence[IrValue]) -> list[IrValue]:
        """Emits the primitives that a function binds: for rules that expand into primitives on some platforms only.

        Args:
            function: A function of values.
            operands: Its arguments.

        Returns:
            Its results.
        """

    def loop(self, carry: Sequence[IrValue], condition: RegionBuilder, body: RegionBuilder) -> list[IrValue]:
        """Emits a while loop.

        Args:
            carry: The initial carry.
            condition: Emits the predicate of the carry, a boolean scalar.
            body: Emits the next carry.

        Returns:
            The final carry.
        """

    def case(
        self,
        index: IrValue,
        branches: Sequence[RegionBuilder],
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
    ) -> list[IrValue]:
        """Emits a conditional.

        Args:
            index: The number of the branch, an `i32[]`. Out of bounds it means the last one.
            branches: A function for each branch, which emits its body.
            operands: The arguments of each branch.
            outs: The avals of the results.

        Returns:
            The results of the branch that runs.
        """

    def call(
        self,
        name: str,
        jaxpr: Jaxpr,
        operands: Sequence[IrValue],
        *,
        inlined: bool = True,
        merged: bool = True,
        partitioned: bool = False,
    ) -> list[IrValue]:
        """Emits a call of a function with the body `jaxpr`. All calls of the same jaxpr share one function.

        Args:
            name: The name of the function in the module.
            jaxpr: Its body.
            operands: Its arguments.
            inlined: Whether XLA may inline the function on the CPU before it fuses operations. In programs for several
                devices it always may, unless the function is `partitioned`.
            merged: Whether XLA may inline the function on the CPU at all, and merge its operations with equal ones
                outside of it. In programs for several devices it always may.
            partitioned: Whether XLA partitions the function on its own in programs for several devices.

        Returns:
            The results.
        """

    def composite(
        self,
        name: str,
        version: int,
        attributes: Mapping[str, CompositeAttr],
        jaxpr: Jaxpr,
        operands: Sequence[IrValue],
    ) -> list[IrValue]:
        """Emits a composite operation with decomposition `jaxpr`. Compilers may recognize its name and attributes.

        Args:
            name: The name of the operation, e.g. `my.scaled`.
            version: The version of its definition.
            attributes: Its attributes by name.
            jaxpr: The decomposition.
            operands: The operands.

        Returns:
            The results.
        """

    def call_artifact(
        self,
        name: str,
        artifact: bytes,
        number: Callable[[str], int],
        takes_index: bool,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
    ) -> list[IrValue]:
        """Emits a call of the function `main` of a portable artifact, whose functions are added to the module.

        Args:
            name: The name of the function in the module.
            artifact: The StableHLO module as a portable artifact.
            number: Returns the index of a platform in the artifact; raises if the artifact is not for this platform.
            takes_index: Whether `main` takes this index as its first argument.
            operands: The other arguments of `main`, whose sizes may be known where those of its parameters are not.
            outs: The avals of the results.

        Returns:
            The results.
        """

    def custom_call(
        self,
        target: str,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        config: Mapping[str, Attr] = ...,
        has_side_effect: bool = ...,
        layouts: KernelLayouts | None = ...,
    ) -> list[IrValue]:
        """Emits a custom call of a kernel.

        Kernels of jaxlib (e.g. `lapack_spotrf_ffi`) exist in every process, so programs that call them can be cached
        and exported. Any other kernel ties the program to this process.

        Args:
            target: The name under which the runtime knows the kernel.
            operands: The operands.
            outs: The avals of the results.
            config: The attributes that the kernel receives. None by default.
            has_side_effect: Whether the call must be kept if its results are unused. False by default.
            layouts: The memory layouts and aliases. By default, arrays are row-major and nothing is aliased.

        Returns:
            The results.
        """

    def has_custom_call_target(self, target: str) -> bool:
        """Returns whether the installed libraries are new enough to provide a kernel that older versions lack.

        Args:
            target: The name of the kernel.
        """

    def manual_computation(
        self,
        jaxpr: Jaxpr,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        in_shardings: Sequence[NamedSharding],
        out_shardings: Sequence[NamedSharding],
        axes: Sequence[str],
    ) -> list[IrValue]:
        """Emits an SPMD program that runs on each device's shards (`shard_map`).

        Args:
            jaxpr: The program on shards.
            operands: The global operands.
            outs: The avals of the global results.
            in_shardings: The shardings of the operands.
            out_shardings: The shardings of the results.
            axes: The manual mesh axes.

        Returns:
            The global results.
        """

    def replica_groups(self, names: Sequence[Hashable]) -> tuple[tuple[int, ...], ...] | None:
        """Returns the groups of devices that differ only along these axes; `None` if none of them is a manual axis.

        Args:
            names: The names of the axes.
        """

    def axis_index(self, name: Hashable) -> IrValue:
        """Returns the index of the executing device along a manual axis, as `i32[]`.

        Args:
            name: The name of the axis.
        """

    def channel_handle(self) -> MlirText:
        """Returns a new channel handle for a collective."""

    def sharding(self, sharding: NamedSharding, aval: ShapedArray) -> str:
        """Returns the sharding of an array with this aval in Shardy's syntax; the mesh is named as in the module.

        Args:
            sharding: The sharding.
            aval: The aval of the array.
        """

    def constrain(self, x: IrValue, mesh: BaseMesh, spec: PartitionSpec) -> IrValue:
        """Returns a value with a sharding constraint, if the program is for several devices.

        Args:
            x: The value.
            mesh: The mesh.
            spec: The mesh axes over which each axis is sharded; automatic axes are not constrained.
        """

    def host_call(
        self,
        function: Callable[..., Sequence[NDArray]],
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        has_side_effect: bool,
        partitioned: bool = False,
    ) -> list[IrValue]:
        """Emits a call of a Python function on the host, which gets and returns read-only NumPy arrays.

        If the lowered primitive has ordered effects, the call runs after those before it. The builder threads the
        tokens through loops, branches and calls; rules do nothing about it.

        In a program on several devices the first device calls the function with whole arrays. If `partitioned`, each
        device calls it with its shards, whose shapes differ; then it must not be ordered or have results.

        Args:
            function: The Python function.
            operands: The operands.
            outs: The avals of the results.
            has_side_effect: Whether the call must be kept if its results are unused.
            partitioned: Whether each device calls the function with its shards. False by default.

        Returns:
            The results.
        """


class SharedExpansion(Expandable):
    """A capability: all equations with equal parameters and operand types call one function, the expansion.

    On the CPU, XLA compiles the function once, and does not fuse its loops with those that use its results: a fused
    loop has no vector instructions if one of them, such as an `argmax`, has none.
    """

    __slots__ = ()


class Lowerable:
    """A capability: the primitive can be compiled.

    >>> import numpy as np
    >>> from tracefx import jit
    >>> from tracefx.extend import bind1
    >>> class Negate(Primitive, Lowerable):
    ...     name = "negate"
    ...     def abstract_eval(self, x):
    ...         return [x]
    ...     def lower(self, builder, x):
    ...         return builder.emit("stablehlo.negate", [x], [x.aval])
    >>> jit(lambda x: bind1(Negate(), x))(np.arange(3.0))
    Array([-0., -1., -2.], dtype=float32)
    """

    __slots__ = ()

    @abstractmethod
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        """Emits the primitive in StableHLO.

        Args:
            builder: Emits operations.
            *operands: The operands in the module.

        Returns:
            The results in the module.
        """
        raise missing_rule_error(self, "lower", "define lower(self, builder, *operands)")

    def lower_with_avals(
        self, builder: Builder, outs: Sequence[ShapedArray], operands: Sequence[IrValue]
    ) -> Sequence[IrValue]:
        """Emits the primitive; calls `lower`. Families whose rules need the avals of the results override this.

        Args:
            builder: Emits operations.
            outs: The avals of the results.
            operands: The operands in the module.

        Returns:
            The results in the module.
        """
        try:
            return self.lower(builder, *operands)
        except TypeError:
            name = self.name if isinstance(self, Primitive) else "?"
            check_call(type(self).lower, name, (self, builder, *operands), RULE_PARAMETERS["lower"])
            raise
