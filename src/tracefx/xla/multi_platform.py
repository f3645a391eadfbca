"""Programs for several platforms: what is lowered once for all of them, and where the platform's index chooses."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, final

import numpy as np
from attrs import frozen

from tracefx.core.avals import ShapedArray
from tracefx.core.jaxpr import Eqn
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive
from tracefx.lowering import Attr, Builder, IrValue, Region, RegionBuilder
from tracefx.shardings.meshes import Mesh
from tracefx.xla import runtime
from tracefx.xla.emitted_module import EmittedValue, append_block, aval_to_ir_type, unwrap_values

INDEX_TYPE: Final = ShapedArray((), np.dtype(np.int32))
POSITION_TYPE: Final = ShapedArray((1,), np.dtype(np.int32))
"""The type of a device's position along an axis of a mesh: its part of a counting array."""
PLATFORM_INDEX: Final = object()
"""Stands for the platform's index among the extra parameters of a function."""


class AmbiguousPlatformError(Exception):
    """A rule asks for the platform where it is lowered for several."""


class IndexUnavailableError(Exception):
    """A region that sees nothing from outside needs to know the platform's index."""


@final
@frozen(eq=False)
class EmitterState:
    """Where and for what operations are appended."""

    block: runtime.InsertionPoint
    mark: runtime.MlirOperation
    line: runtime.Location
    eqn: Eqn | None
    prefix: str
    manual_axes: dict[Hashable, tuple[Mesh, IrValue | None]]
    body: runtime.Block | None
    index: EmittedValue | None
    platforms: tuple[str, ...]


class MultiPlatformEmitter:
    """The part of an emitter that appends for several platforms: the module takes the index of that where it runs.

    An equation whose rule asks for the platform is lowered for each of them. Where this gives the same, once is
    enough; else the index chooses. Equations with programs in them don't ask: it chooses in there, one by one.
    """

    __slots__ = (
        *(
            "_all",
            "_prefix",
            "_manual_axes",
            "_platform_dependent",
            "_block",
            "_body",
            "_eqn",
            "_extra_parameters",
            "_index",
            "_line",
            "_platform_numbers",
            "_platforms",
        ),
        "module",
    )

    def __init__(self, module: runtime.Module, platform: str | tuple[str, ...]) -> None:
        self.module = module
        self._all = self._platforms = (platform,) if isinstance(platform, str) else platform
        """All platforms that the module is for, and those that what is appended now is for."""
        self._body: runtime.Block | None = None
        """That of the function which is built, where it can be reached."""
        self._index: EmittedValue | None = None
        """Which of all the platforms the program runs on, once the function or the isolated region knows it."""
        self._platform_numbers: dict[int, tuple[IrValue, Mapping[str, int]]] = {}
        """Numbers that stand for the platform: what each has. The value beside it keeps its id."""
        self._platform_dependent: set[type[Primitive]] = set()
        """Operations whose rules have asked for the platform."""
        # Handed to every operation: for MLIR to find out which are current takes longer than to be told.
        self._block = runtime.at_end(module.body)
        self._line = runtime.unknown_location()
        self._eqn: Eqn | None = None
        self._prefix = ""
        """What operations of programs within equations are called by before their own scopes: the equations' names."""
        self._manual_axes: dict[Hashable, tuple[Mesh, IrValue | None]] = {}
        """The manual axes of this block: their mesh, and a device's position along the axis, if the function has it."""
        self._extra_parameters: list[Hashable] = []
        """What the function takes after its program's inputs: positions by the name of the axis, and
        `PLATFORM_INDEX`.
        """

    @abstractmethod
    def emit(
        self,
        name: str,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        attrs: Mapping[str, Attr | runtime.Attribute] | None = None,
        regions: Sequence[Region] = (),
    ) -> list[IrValue]:
        """As a builder does."""

    @abstractmethod
    def constant(self, value: Literal) -> IrValue: ...

    @abstractmethod
    def _fill(
        self,
        block: runtime.Block,
        region: Region,
        end: str = "stablehlo.return",
        *,
        takes_token: bool = False,
        gives_token: bool = False,
    ) -> None:
        """Append what a region computes to its block, and the operation that ends it."""

    @abstractmethod
    def _apply_rule(self, eqn: Eqn, avals: Sequence[ShapedArray], operands: Sequence[IrValue]) -> Sequence[IrValue]:
        """What the equation's own rule gives."""

    @property
    def platform(self) -> str:
        if len(self._platforms) > 1:
            raise AmbiguousPlatformError
        return self._platforms[0]

    def platform_index(self, number: Callable[[str], int]) -> IrValue:
        places = {platform: number(platform) for platform in self._platforms}
        x = self._emit_platform_number(places)
        self._platform_numbers[id(x)] = x, places
        return x

    def _emit_platform_number(self, numbers: Mapping[str, int]) -> IrValue:
        """The number of the platform that the program runs on: `i32[]`."""
        each = [Literal(numbers.get(platform, 0), INDEX_TYPE) for platform in self._all]
        if len(set(numbers.values())) == 1:
            return self.constant(Literal(numbers[self._platforms[0]], INDEX_TYPE))
        index = self._runtime_platform_index()
        if [x.val for x in each] == list(range(len(each))):
            return index
        regions = [Region((), functools.partial(_emit_constant, x)) for x in each]
        return self.emit("stablehlo.case", [index], [INDEX_TYPE], None, regions)[0]

    def _runtime_platform_index(self) -> EmittedValue:
        if self._index is None:
            if self._body is None:
                raise IndexUnavailableError
            self._index = EmittedValue(runtime.add_parameter(self._body, aval_to_ir_type(INDEX_TYPE)), INDEX_TYPE)
            self._extra_parameters.append(PLATFORM_INDEX)
        return self._index

    def _axis_position(self, name: Hashable) -> IrValue:
        """A device's position along a manual axis, `i32[1]`. A function that lacks it gets it as one more parameter."""
        mesh, position = self._manual_axes[name]
        if position is None:
            if self._body is None:
                raise IndexUnavailableError
            position = EmittedValue(runtime.add_parameter(self._body, aval_to_ir_type(POSITION_TYPE)), POSITION_TYPE)
            self._manual_axes[name] = mesh, position
            self._extra_parameters.append(name)
        return position

    def _extra_operands(self, parameters: Sequence[Hashable]) -> list[IrValue]:
        """What a function with these extra parameters is called with after the inputs of its program."""
        return [
            self._runtime_platform_index() if name is PLATFORM_INDEX else self._axis_position(name)
            for name in parameters
        ]

    def _lower_per_platform(
        self, eqn: Eqn, avals: Sequence[ShapedArray], operands: Sequence[IrValue]
    ) -> Sequence[IrValue]:
        """An equation of a program for several platforms: lowered once, or if its rule asks for one, for each."""
        kind = type(eqn.prim)
        if kind not in self._platform_dependent:
            before = self._save_state()
            try:
                outs = self._apply_rule(eqn, avals, operands)
            except AmbiguousPlatformError:
                self._restore_state(before)
                self._platform_dependent.add(kind)
            else:
                before.mark.erase()
                return outs
        each = [(platform,) for platform in self._platforms]

        def build(_: Builder, xs: Sequence[IrValue]) -> Sequence[IrValue]:
            return self._apply_rule(eqn, avals, xs)

        return self._emit_platform_case([build] * len(each), each, operands, avals)

    def _emit_platform_case(
        self,
        branches: Sequence[RegionBuilder],
        platforms: Sequence[tuple[str, ...]],
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
    ) -> list[IrValue]:
        """The results of the branch for the platforms among which is the one that the program runs on."""
        types, start, outer = list(map(aval_to_ir_type, outs)), self._block, self._platforms
        # They are built in an operation without an index, as it is not known yet whether one is needed.
        tried = runtime.create("stablehlo.case", types, (), None, None, len(branches), self._line, start)
        blocks = [append_block(space, ()) for space in tried.regions]
        line, eqn, around = self._line, self._eqn, self._prefix
        for build, block, self._platforms in zip(branches, blocks, platforms, strict=True):
            self._fill(block, Region((), functools.partial(build_branch, build, operands)))
            self._line, self._eqn, self._prefix = line, eqn, around
        self._platforms = outer
        kinds = [next(i for i, b in enumerate(blocks) if runtime.blocks_equal(b, block)) for block in blocks]
        which = sorted(set(kinds))
        if len(which) == 1:
            return list(map(EmittedValue, runtime.inline_first_region(tried), outs))
        numbers = {p: which.index(kind) for kind, each in zip(kinds, platforms, strict=True) for p in each}
        index = unwrap_values([self._emit_platform_number(numbers)])
        chosen = runtime.create("stablehlo.case", types, index, None, None, len(which), self._line, start)
        runtime.move_regions(tried, chosen, which)
        return list(map(EmittedValue, chosen.results, outs))

    def _save_state(self) -> EmitterState:
        return EmitterState(
            self._block, runtime.insert_marker(self._block), self._line, self._eqn, self._prefix, self._manual_axes,
            self._body, self._index, self._platforms,
        )  # fmt: skip

    def _restore_state(self, state: EmitterState) -> None:
        """Take back what was appended since, after an error has left the rule that did."""
        self._block, self._line, self._eqn, self._prefix = state.block, state.line, state.eqn, state.prefix
        self._manual_axes, self._body, self._index, self._platforms = (
            state.manual_axes,
            state.body,
            state.index,
            state.platforms,
        )
        runtime.erase_from(state.mark)


def _emit_constant(x: Literal, builder: Builder, _: Sequence[IrValue]) -> Sequence[IrValue]:
    return [builder.constant(x)]


def build_branch(
    build: RegionBuilder, operands: Sequence[IrValue], builder: Builder, _: Sequence[IrValue]
) -> Sequence[IrValue]:
    """What a branch computes of operands from outside."""
    return build(builder, operands)
