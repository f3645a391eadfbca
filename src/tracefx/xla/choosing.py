"""Programs for several platforms: what is lowered once for all of them, and where the platform's index chooses."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, final

import numpy as np
from attrs import frozen

from tracefx.core.avals import ShapedArray
from tracefx.core.builder import Attr, Build, Builder, Ir, Region
from tracefx.core.jaxpr import Eqn
from tracefx.core.literal import Literal
from tracefx.core.meshes import Mesh
from tracefx.core.primitive import Primitive
from tracefx.xla import runtime
from tracefx.xla.modules import Node, block_in, type_of, values_of

INDEX: Final = ShapedArray((), np.dtype(np.int32))
POSITION: Final = ShapedArray((1,), np.dtype(np.int32))
"""The type of a device's position along an axis of a mesh: its part of a counting array."""
PLATFORM: Final = object()
"""Stands for the platform's index among the extra parameters of a function."""


class UndecidedError(Exception):
    """A rule asks for the platform where it is lowered for several."""


class OutOfReachError(Exception):
    """A region that sees nothing from outside needs to know the platform's index."""


@final
@frozen(eq=False)
class State:
    """Where and for what operations are appended."""

    block: runtime.Point
    mark: runtime.Operation
    line: runtime.Location
    eqn: Eqn | None
    around: str
    apart: dict[Hashable, tuple[Mesh, Ir | None]]
    body: runtime.Block | None
    index: Node | None
    platforms: tuple[str, ...]


class ForPlatforms:
    """The part of an emitter that appends for several platforms: the module takes the index of that where it runs.

    An equation whose rule asks for the platform is lowered for each of them. Where this gives the same, once is
    enough; else the index chooses. Equations with programs in them don't ask: it chooses in there, one by one.
    """

    __slots__ = (
        *(
            "_all",
            "_around",
            "_apart",
            "_asking",
            "_block",
            "_body",
            "_eqn",
            "_extra_parameters",
            "_index",
            "_line",
            "_places",
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
        self._index: Node | None = None
        """Which of all the platforms the program runs on, once the function or the isolated region knows it."""
        self._places: dict[int, tuple[Ir, Mapping[str, int]]] = {}
        """Numbers that stand for the platform: what each has. The value beside it keeps its id."""
        self._asking: set[type[Primitive]] = set()
        """Operations whose rules have asked for the platform."""
        # Handed to every operation: for MLIR to find out which are current takes longer than to be told.
        self._block = runtime.at_end(module.body)
        self._line = runtime.lowering()
        self._eqn: Eqn | None = None
        self._around = ""
        """What operations of programs within equations are called by before their own scopes: the equations' names."""
        self._apart: dict[Hashable, tuple[Mesh, Ir | None]] = {}
        """The manual axes of this block: their mesh, and a device's position along the axis, if the function has it."""
        self._extra_parameters: list[Hashable] = []
        """What the function takes after its program's inputs: positions by the name of the axis, and `PLATFORM`."""

    @abstractmethod
    def emit(
        self,
        name: str,
        operands: Sequence[Ir],
        outs: Sequence[ShapedArray],
        attrs: Mapping[str, Attr | runtime.Attribute] | None = None,
        regions: Sequence[Region] = (),
    ) -> list[Ir]:
        """As a builder does."""

    @abstractmethod
    def constant(self, value: Literal) -> Ir: ...

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
    def _rule(self, eqn: Eqn, avals: Sequence[ShapedArray], operands: Sequence[Ir]) -> Sequence[Ir]:
        """What the equation's own rule gives."""

    @property
    def platform(self) -> str:
        if len(self._platforms) > 1:
            raise UndecidedError
        return self._platforms[0]

    def place(self, number: Callable[[str], int]) -> Ir:
        places = {platform: number(platform) for platform in self._platforms}
        x = self._by_platform(places)
        self._places[id(x)] = x, places
        return x

    def _by_platform(self, numbers: Mapping[str, int]) -> Ir:
        """The number of the platform that the program runs on: `i32[]`."""
        each = [Literal(numbers.get(platform, 0), INDEX) for platform in self._all]
        if len(set(numbers.values())) == 1:
            return self.constant(Literal(numbers[self._platforms[0]], INDEX))
        index = self._index_here()
        if [x.val for x in each] == list(range(len(each))):
            return index
        regions = [Region((), functools.partial(_number, x)) for x in each]
        return self.emit("stablehlo.case", [index], [INDEX], None, regions)[0]

    def _index_here(self) -> Node:
        if self._index is None:
            if self._body is None:
                raise OutOfReachError
            self._index = Node(runtime.add_parameter(self._body, type_of(INDEX)), INDEX)
            self._extra_parameters.append(PLATFORM)
        return self._index

    def _position_along(self, name: Hashable) -> Ir:
        """A device's position along a manual axis, `i32[1]`. A function that lacks it gets it as one more parameter."""
        mesh, position = self._apart[name]
        if position is None:
            if self._body is None:
                raise OutOfReachError
            position = Node(runtime.add_parameter(self._body, type_of(POSITION)), POSITION)
            self._apart[name] = mesh, position
            self._extra_parameters.append(name)
        return position

    def _extra_operands(self, parameters: Sequence[Hashable]) -> list[Ir]:
        """What a function with these extra parameters is called with after the inputs of its program."""
        return [self._index_here() if name is PLATFORM else self._position_along(name) for name in parameters]

    def _on_each(self, eqn: Eqn, avals: Sequence[ShapedArray], operands: Sequence[Ir]) -> Sequence[Ir]:
        """An equation of a program for several platforms: lowered once, or if its rule asks for one, for each."""
        kind = type(eqn.prim)
        if kind not in self._asking:
            before = self._state()
            try:
                outs = self._rule(eqn, avals, operands)
            except UndecidedError:
                self._return_to(before)
                self._asking.add(kind)
            else:
                before.mark.erase()
                return outs
        each = [(platform,) for platform in self._platforms]

        def build(_: Builder, xs: Sequence[Ir]) -> Sequence[Ir]:
            return self._rule(eqn, avals, xs)

        return self._chosen([build] * len(each), each, operands, avals)

    def _chosen(
        self,
        branches: Sequence[Build],
        platforms: Sequence[tuple[str, ...]],
        operands: Sequence[Ir],
        outs: Sequence[ShapedArray],
    ) -> list[Ir]:
        """The results of the branch for the platforms among which is the one that the program runs on."""
        types, start, outer = list(map(type_of, outs)), self._block, self._platforms
        # They are built in an operation without an index, as it is not known yet whether one is needed.
        tried = runtime.create("stablehlo.case", types, (), None, None, len(branches), self._line, start)
        blocks = [block_in(space, ()) for space in tried.regions]
        line, eqn, around = self._line, self._eqn, self._around
        for build, block, self._platforms in zip(branches, blocks, platforms, strict=True):
            self._fill(block, Region((), functools.partial(on, build, operands)))
            self._line, self._eqn, self._around = line, eqn, around
        self._platforms = outer
        kinds = [next(i for i, b in enumerate(blocks) if runtime.same_block(b, block)) for block in blocks]
        which = sorted(set(kinds))
        if len(which) == 1:
            return list(map(Node, runtime.unwrapped(tried), outs))
        numbers = {p: which.index(kind) for kind, each in zip(kinds, platforms, strict=True) for p in each}
        index = values_of([self._by_platform(numbers)])
        chosen = runtime.create("stablehlo.case", types, index, None, None, len(which), self._line, start)
        runtime.hand_bodies(tried, chosen, which)
        return list(map(Node, chosen.results, outs))

    def _state(self) -> State:
        return State(
            self._block, runtime.mark(self._block), self._line, self._eqn, self._around, self._apart,
            self._body, self._index, self._platforms,
        )  # fmt: skip

    def _return_to(self, state: State) -> None:
        """Take back what was appended since, after an error has left the rule that did."""
        self._block, self._line, self._eqn, self._around = state.block, state.line, state.eqn, state.around
        self._apart, self._body, self._index, self._platforms = state.apart, state.body, state.index, state.platforms
        runtime.erase_from(state.mark)


def _number(x: Literal, builder: Builder, _: Sequence[Ir]) -> Sequence[Ir]:
    return [builder.constant(x)]


def on(build: Build, operands: Sequence[Ir], builder: Builder, _: Sequence[Ir]) -> Sequence[Ir]:
    """What a branch computes of operands from outside."""
    return build(builder, operands)
