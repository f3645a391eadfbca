"""The stages of a jitted call, held in hand: traced, lowered, compiled."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, cast, final

from attrs import field, frozen
from typing_extensions import ParamSpec

from tracefx.core.backend import BACKEND, LoweredProgram, Program
from tracefx.core.handler import Tracer
from tracefx.core.jaxpr import ClosedJaxpr
from tracefx.core.settings import cache_at
from tracefx.core.shardings import Wishes
from tracefx.core.traffic import Collective
from tracefx.core.trees import PyTree, TreeDef
from tracefx.core.values import ConcreteArray, Value
from tracefx.transforms.shapes import ShapeDtypeStruct
from tracefx.transforms.tracing import Trace

P = ParamSpec("P")
R = TypeVar("R")
CompilerOptions = Mapping[str, str | int | float | bool]


@final
@frozen(eq=False)
class CompiledCall(Generic[P, R]):
    """A function compiled for one kind of arguments; arguments of any other kind are a `TypeError`."""

    program: Program
    trace: Trace
    in_tree: TreeDef
    flatten: Callable[P, list[Value]] = field(repr=False)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        values = self.flatten(*args, **kwargs)
        for x in values:
            if isinstance(x, Tracer):
                raise TypeError(
                    f"the compiled {self.trace.name} runs on numbers and cannot be transformed, but was called with "
                    f"{x}: transform the jitted function instead"
                )
        outs: list[ConcreteArray] = self.program([*self.trace.consts, *values])
        return cast(R, self.trace.out_tree.unflatten(outs))

    def as_text(self) -> str:
        """The program after XLA's optimizations."""
        return self.program.text()

    def cost_analysis(self) -> Mapping[str, float]:
        """XLA's estimates for one call: `flops`, `bytes accessed` and more."""
        return self.program.cost_analysis()

    def memory_analysis(self) -> Any:
        """What XLA planned to allocate for one call, in bytes: arguments, outputs, temporaries, code."""
        return self.program.memory_analysis()

    @property
    def input_shardings(self) -> PyTree:
        """How the arguments have to lie: those by position, and those by name."""
        return self.in_tree.unflatten(self.program.input_shardings[len(self.trace.consts) :])

    @property
    def output_shardings(self) -> PyTree:
        """How the output will lie, in its structure."""
        return self.trace.out_tree.unflatten(self.program.output_shardings)

    def collectives(self) -> tuple[Collective, ...]:
        """What the program's devices do together, as the compiler has put it in, and how much they send for it.

        >>> import tracefx as fx
        >>> fx.jit(lambda x: x + 1).lower(1.0).compile().collectives()
        ()
        """
        return self.program.collectives()


@final
@frozen(eq=False)
class LoweredCall(Generic[P, R]):
    """A function lowered to StableHLO for one kind of arguments."""

    program: LoweredProgram
    trace: Trace
    in_tree: TreeDef
    wishes: Wishes | None
    flatten: Callable[P, list[Value]] = field(repr=False)

    @property
    def out_info(self) -> PyTree:
        """The outputs' types, in their structure."""
        return _out_info(self.trace, self.wishes)

    def as_text(self, *, debug_info: bool = False) -> str:
        """The StableHLO module, with the line and the `named_scope`s of each operation if asked for."""
        return self.program.text(debug_info)

    def compile(
        self, compiler_options: CompilerOptions | None = None, *, cache: str | os.PathLike[str] | None = None
    ) -> CompiledCall[P, R]:
        """Compile, with XLA's options by name if any are given.

        `cache` is a folder from which the result is taken if it is there, and where it is kept else; without it
        `compilation_cache` says whether there is one.
        """
        folder = None if cache is None else cache_at(cache)
        program = self.program.compile(compiler_options or {}, folder)
        return CompiledCall(program, self.trace, self.in_tree, self.flatten)


@final
@frozen(eq=False)
class TracedCall(Generic[P, R]):
    """A function traced for one kind of arguments; `in_tree` is the structure of those that are traced."""

    trace: Trace
    in_tree: TreeDef
    donated: tuple[int, ...]
    keep_unused: bool
    wishes: Wishes | None
    flatten: Callable[P, list[Value]] = field(repr=False)

    @property
    def jaxpr(self) -> ClosedJaxpr:
        """The program, with the values it closed over."""
        return self.trace.closed()

    @property
    def out_info(self) -> PyTree:
        """The outputs' types, in their structure."""
        return _out_info(self.trace, self.wishes)

    def lower(self) -> LoweredCall[P, R]:
        program = BACKEND.value.lower(self.trace.jaxpr, self.trace.name, self.donated, self.keep_unused, self.wishes)
        return LoweredCall(program, self.trace, self.in_tree, self.wishes, self.flatten)


def _out_info(trace: Trace, wishes: Wishes | None) -> PyTree:
    said = [None] * len(trace.jaxpr.outs) if wishes is None else wishes.outputs
    structs = [
        ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type, sharding=sharding)
        for a, sharding in zip(trace.jaxpr.out_avals, said, strict=True)
    ]
    return trace.out_tree.unflatten(structs)
