"""Multi-platform lowering: shared code is emitted once, the rest in branches selected by the platform index."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, final

import numpy as np
from attrs import frozen

from tracefx.core import Literal, ShapedArray
from tracefx.core.jaxpr import Eqn
from tracefx.core.meshes import BaseMesh
from tracefx.core.primitive import Primitive
from tracefx.lowering import Attr, Builder, IrValue, Region, RegionBuilder
from tracefx.xla.emitted_module import EmittedValue, append_block, aval_to_ir_type, symbol_name, unwrap_values
from tracefx.xla.runtime import merging, mlir

INDEX_TYPE: Final = ShapedArray((), np.dtype(np.int32))
POSITION_TYPE: Final = ShapedArray((1,), np.dtype(np.int32))
"""The type of a device's position along a mesh axis: its shard of an iota array."""
PLATFORM_INDEX: Final = object()
"""Marks the platform index among the extra parameters of a function."""


class AmbiguousPlatformError(Exception):
    """Raised when a rule reads the platform while it is lowered for several."""


class IndexUnavailableError(Exception):
    """Raised when an isolated region needs the platform index and has no access to it."""


@final
@frozen(eq=False)
class EmitterState:
    """The state of an emitter: where it appends operations, and for which platforms."""

    block: mlir.InsertionPoint
    mark: mlir.MlirOperation
    line: mlir.Location
    eqn: Eqn | None
    prefix: str
    manual_axes: dict[Hashable, tuple[BaseMesh, IrValue | None]]
    body: mlir.Block | None
    index: EmittedValue | None
    platforms: tuple[str, ...]


class MultiPlatformEmitter:
    """The part of an emitter that handles several platforms: the module takes the index of the platform it runs on.

    An equation whose rule reads the platform is lowered once for each platform. If the results are equal, one of them
    is used; else a `case` on the index selects. Equations with sub-jaxprs never read the platform themselves, so the
    selection happens inside of the sub-jaxprs, equation by equation.
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
            "_symbols",
        ),
        "module",
    )

    def __init__(self, module: mlir.Module, platform: str | tuple[str, ...]) -> None:
        self.module = module
        self._all = self._platforms = (platform,) if isinstance(platform, str) else platform
        """All platforms of the module, and the platforms that operations are currently emitted for."""
        self._symbols: set[str] = set()
        """The symbols of functions and meshes."""
        self._body: mlir.Block | None = None
        """The body of the current function; None inside of an isolated region, which cannot reach it."""
        self._index: EmittedValue | None = None
        """The platform index, once the current function or isolated region has it."""
        self._platform_numbers: dict[int, tuple[IrValue, Mapping[str, int]]] = {}
        """Values that depend on the platform only, by id: the value (kept alive) and its number for each platform."""
        self._platform_dependent: set[type[Primitive]] = set()
        """Primitives whose rules have read the platform."""
        # Passed to every operation explicitly, since MLIR takes longer to look up the current ones.
        self._block = mlir.at_end(module.body)
        self._line = mlir.unknown_location()
        self._eqn: Eqn | None = None
        self._prefix = ""
        """The name prefix of operations in sub-jaxprs: the names of the enclosing equations."""
        self._manual_axes: dict[Hashable, tuple[BaseMesh, IrValue | None]] = {}
        """The manual axes of this block: the mesh, and the device's position along the axis if the function has it."""
        self._extra_parameters: list[Hashable] = []
        """The function's parameters after its program's inputs: names of axes (for positions) and `PLATFORM_INDEX`."""

    @abstractmethod
    def emit(
        self,
        name: str,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        attrs: Mapping[str, Attr | mlir.Attribute] | None = None,
        regions: Sequence[Region] = (),
    ) -> list[IrValue]:
        """Appends an operation; see `Builder.emit`."""

    @abstractmethod
    def constant(self, value: Literal) -> IrValue: ...

    @abstractmethod
    def _fill(
        self,
        block: mlir.Block,
        region: Region,
        end: str = "stablehlo.return",
        *,
        takes_token: bool = False,
        gives_token: bool = False,
    ) -> None:
        """Builds a region in its block, and appends the terminator."""

    @abstractmethod
    def _apply_rule(self, eqn: Eqn, avals: Sequence[ShapedArray], operands: Sequence[IrValue]) -> Sequence[IrValue]:
        """Lowers an equation with its primitive's own rule."""

    @abstractmethod
    def _register_kernel(self, target: str) -> None:
        """Makes the kernel that custom calls of `target` call available to the compiler."""

    @property
    def platform(self) -> str:
        if len(self._platforms) > 1:
            raise AmbiguousPlatformError
        return self._platforms[0]

    def platform_index(self, number: Callable[[str], int]) -> IrValue:
        numbers = {platform: number(platform) for platform in self._platforms}
        x = self._emit_platform_number(numbers)
        self._platform_numbers[id(x)] = x, numbers
        return x

    def call_artifact(
        self,
        name: str,
        artifact: bytes,
        number: Callable[[str], int],
        takes_index: bool,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
    ) -> list[IrValue]:
        numbers = [number(platform) for platform in self._platforms]
        known_index = numbers[0] if takes_index and len(numbers) == 1 else None
        if takes_index and known_index is None:
            operands = [self.platform_index(number), *operands]
        types = [aval_to_ir_type(x.aval) for x in operands]
        callee = merging.merge_artifact(
            self.module,
            artifact,
            types,
            [*map(aval_to_ir_type, outs)],
            symbol_name(name),
            self._unique_symbol,
            known_index,
        )
        for kernel in callee.kernels:
            self._register_kernel(kernel)
        return self.emit("func.call", operands, outs, {"callee": mlir.symbol_attr(callee.symbol)})

    def _emit_platform_number(self, numbers: Mapping[str, int]) -> IrValue:
        """Returns the number of the platform that the program runs on, as `i32[]`."""
        literals = [Literal(numbers.get(platform, 0), INDEX_TYPE) for platform in self._all]
        if len(set(numbers.values())) == 1:
            return self.constant(Literal(numbers[self._platforms[0]], INDEX_TYPE))
        index = self._runtime_platform_index()
        if [x.val for x in literals] == list(range(len(literals))):
            return index
        regions = [Region((), functools.partial(_emit_constant, x)) for x in literals]
        return self.emit("stablehlo.case", [index], [INDEX_TYPE], None, regions)[0]

    def _runtime_platform_index(self) -> EmittedValue:
        if self._index is None:
            if self._body is None:
                raise IndexUnavailableError
            self._index = EmittedValue(mlir.add_parameter(self._body, aval_to_ir_type(INDEX_TYPE)), INDEX_TYPE)
            self._extra_parameters.append(PLATFORM_INDEX)
        return self._index

    def _axis_position(self, name: Hashable) -> IrValue:
        """Returns the device's position along a manual axis, `i32[1]`; adds a parameter to the function if needed."""
        mesh, position = self._manual_axes[name]
        if position is None:
            if self._body is None:
                raise IndexUnavailableError
            position = EmittedValue(mlir.add_parameter(self._body, aval_to_ir_type(POSITION_TYPE)), POSITION_TYPE)
            self._manual_axes[name] = mesh, position
            self._extra_parameters.append(name)
        return position

    def _extra_operands(self, parameters: Sequence[Hashable]) -> list[IrValue]:
        """Returns the operands for the extra parameters of a called function."""
        return [
            self._runtime_platform_index() if name is PLATFORM_INDEX else self._axis_position(name)
            for name in parameters
        ]

    def _lower_per_platform(
        self, eqn: Eqn, avals: Sequence[ShapedArray], operands: Sequence[IrValue]
    ) -> Sequence[IrValue]:
        """Lowers an equation for several platforms: once, or for each platform if its rule reads the platform."""
        prim_class = type(eqn.prim)
        if prim_class not in self._platform_dependent:
            state = self._save_state()
            try:
                outs = self._apply_rule(eqn, avals, operands)
            except AmbiguousPlatformError:
                self._restore_state(state)
                self._platform_dependent.add(prim_class)
            else:
                state.mark.erase()
                return outs
        single_platforms = [(platform,) for platform in self._platforms]

        def build(_: Builder, xs: Sequence[IrValue]) -> Sequence[IrValue]:
            return self._apply_rule(eqn, avals, xs)

        return self._emit_platform_case([build] * len(single_platforms), single_platforms, operands, avals)

    def _emit_platform_case(
        self,
        branches: Sequence[RegionBuilder],
        platforms: Sequence[tuple[str, ...]],
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
    ) -> list[IrValue]:
        """Emits the branch for each group of platforms, and selects the one for the runtime platform."""
        types, start, outer = list(map(aval_to_ir_type, outs)), self._block, self._platforms
        # The branches are first built in a `case` without an index, since an index may not be needed.
        draft = mlir.create("stablehlo.case", types, (), None, None, len(branches), self._line, start)
        blocks = [append_block(space, ()) for space in draft.regions]
        line, eqn, prefix = self._line, self._eqn, self._prefix
        for build, block, self._platforms in zip(branches, blocks, platforms, strict=True):
            self._fill(block, Region((), functools.partial(build_branch, build, operands)))
            self._line, self._eqn, self._prefix = line, eqn, prefix
        self._platforms = outer
        representatives = [next(i for i, b in enumerate(blocks) if mlir.blocks_equal(b, block)) for block in blocks]
        distinct = sorted(set(representatives))
        if len(distinct) == 1:
            return list(map(EmittedValue, mlir.inline_first_region(draft), outs))
        numbers = {
            p: distinct.index(representative)
            for representative, group in zip(representatives, platforms, strict=True)
            for p in group
        }
        index = unwrap_values([self._emit_platform_number(numbers)])
        case = mlir.create("stablehlo.case", types, index, None, None, len(distinct), self._line, start)
        mlir.move_regions(draft, case, distinct)
        return list(map(EmittedValue, case.results, outs))

    def _save_state(self) -> EmitterState:
        return EmitterState(
            self._block, mlir.insert_marker(self._block), self._line, self._eqn, self._prefix, self._manual_axes,
            self._body, self._index, self._platforms,
        )  # fmt: skip

    def _restore_state(self, state: EmitterState) -> None:
        """Restores a saved state and erases the operations appended since, after a rule raised an error."""
        self._block, self._line, self._eqn, self._prefix = state.block, state.line, state.eqn, state.prefix
        self._manual_axes, self._body, self._index, self._platforms = (
            state.manual_axes,
            state.body,
            state.index,
            state.platforms,
        )
        mlir.erase_from(state.mark)

    def _unique_symbol(self, symbol: str) -> str:
        """Returns a symbol that the module does not have yet, derived from `symbol`."""
        candidate, n = symbol, 0
        while candidate in self._symbols or candidate == "main":
            n += 1
            candidate = f"{symbol}_{n}"
        self._symbols.add(candidate)
        return candidate


def _emit_constant(x: Literal, builder: Builder, _: Sequence[IrValue]) -> Sequence[IrValue]:
    return [builder.constant(x)]


def build_branch(
    build: RegionBuilder, operands: Sequence[IrValue], builder: Builder, _: Sequence[IrValue]
) -> Sequence[IrValue]:
    """Builds a branch from operands outside of its region."""
    return build(builder, operands)
