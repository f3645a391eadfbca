"""The stages of a jitted call as objects: traced, lowered, compiled."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar, final

from attrs import define, frozen
from typing_extensions import ParamSpec, override

from tracefx.core import DType, Shape, ShapedArray, Value
from tracefx.core.backend import BACKEND, CompiledProgram, LoweredProgram
from tracefx.core.compiled_collectives import CompiledCollective
from tracefx.core.handler import CURRENT, ROOT, Tracer
from tracefx.core.jaxpr import NOTEBOOK_HTML, ClosedJaxpr
from tracefx.core.layouts import format_of
from tracefx.core.repeated_blocks import RepeatedBlocks
from tracefx.core.sharding import RequestedShardings, Sharding
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interpreters.refs import Ref
from tracefx.pytrees.trees import PyTree, TreeDef
from tracefx.settings import REPEATS, RepeatsMode, as_compilation_cache
from tracefx.transforms.fast_path import RepeatedCall
from tracefx.transforms.shape_dtype_struct import struct_of
from tracefx.transforms.static_arguments import StaticArguments
from tracefx.transforms.tracing import Trace, TraceKey, check_not_closed_over

P = ParamSpec("P")
R = TypeVar("R")
CompilerOptions: TypeAlias = Mapping[str, str | int | float | bool]
LOWERING_PLATFORMS: Final = ("cpu", "cuda", "rocm", "tpu")


@final
@frozen
class ArgInfo:
    """The type of an argument, and whether it is donated."""

    _aval: ShapedArray
    donated: bool

    @property
    def shape(self) -> Shape:
        return self._aval.shape

    @property
    def dtype(self) -> DType:
        return self._aval.dtype


class CallInfo:
    """The arguments and outputs of a call; the base of all stages."""

    _stage: ClassVar[str]
    trace: Trace
    in_tree: TreeDef
    donated: tuple[int, ...]

    @property
    def in_avals(self) -> PyTree:
        """The types of the arguments, as `(args, kwargs)`."""
        return self.in_tree.unflatten(self._input_avals)

    @property
    def args_info(self) -> PyTree:
        """An `ArgInfo` for each leaf of the arguments, in the structure of `in_avals`."""
        donated = self.donate_argnums
        return self.in_tree.unflatten([ArgInfo(a, i in donated) for i, a in enumerate(self._input_avals)])

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The indices of the donated leaves of the arguments."""
        return tuple([i - len(self.trace.closed_over) for i in self.donated])

    @property
    def out_tree(self) -> TreeDef:
        """The structure of the output."""
        return self.trace.out_tree

    @override
    def __repr__(self) -> str:
        types = f"({_few(self._input_avals)}) -> ({_few(self.trace.out_avals)})"
        return f"<{self.trace.name} {self._stage}: {types}>"

    def _repr_html_(self) -> str | None:
        return NOTEBOOK_HTML.value(self)

    @property
    def _input_avals(self) -> tuple[ShapedArray, ...]:
        return self.trace.jaxpr.in_avals[len(self.trace.closed_over) :]


@final
@define(eq=False, repr=False, slots=False)
class CompiledCall(CallInfo, RepeatedCall[P, R]):
    """A function compiled for one structure, shapes and dtypes of its arguments; `LoweredCall.compile` returns it.

    Calling it runs the program. Static arguments may be omitted; if they are given, they must be those that the program
    was compiled for. It raises TypeError for arguments of another structure, shape or dtype, and for tracers.
    """

    _stage: ClassVar[str] = "compiled"
    program: CompiledProgram
    trace: Trace[R]
    in_tree: TreeDef
    donated: tuple[int, ...]
    _static: StaticArguments
    _where: str
    _flatten: Callable[P, tuple[list[Value], TraceKey, Sequence[Ref]]]

    def __attrs_post_init__(self) -> None:
        self._set_recent(())

    @override
    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        values, key, refs = self._flatten(*args, **kwargs)
        check_not_closed_over(self._where, refs, self.trace)
        for x in values:
            if isinstance(x, Tracer):
                raise TypeError(
                    f"the compiled {self.trace.name} takes concrete values and cannot be transformed, but was "
                    f"called with {x}: transform the jitted function instead"
                )
        outs = self.program([*self.trace.consts, *values])
        if CURRENT.get() is ROOT and not self.trace.uses_refs:
            self._remember(key, self.trace, self.program)
        return self.trace.output(self.trace.write_refs(outs, refs))

    def as_text(self) -> str:
        """Returns the HLO text of the program after optimization."""
        return self.program.text()

    def cost_analysis(self) -> Mapping[str, float]:
        """Returns XLA's estimates for one call: `flops`, `bytes accessed` and others."""
        return self.program.cost_analysis()

    def memory_analysis(self) -> Any:
        """Returns the memory that XLA planned for one call, in bytes.

        Its attributes are `argument_bytes`, `output_bytes`, `alias_bytes` (results in the memory of donated arguments),
        `temp_bytes` (intermediate results), `generated_code_bytes`, and `peak_bytes`: arguments, results and
        intermediate results together. JAX's names (`temp_size_in_bytes`, ...) exist, too.
        """
        return self.program.memory_analysis()

    @property
    def out_info(self) -> PyTree:
        """The shapes, dtypes and shardings of the outputs, a pytree of `ShapeDtypeStruct`."""
        return _out_info(self.trace, self.program.output_shardings)

    @property
    def input_shardings(self) -> PyTree:
        """The shardings that the program needs for its arguments, as `(args, kwargs)`."""
        return self.in_tree.unflatten(self.program.input_shardings[len(self.trace.closed_over) :])

    @property
    def output_shardings(self) -> PyTree:
        """The shardings of the output, in its structure."""
        return self.trace.output(self.program.output_shardings[self.trace.ref_outputs :])

    @property
    def input_formats(self) -> PyTree:
        """The layouts and shardings that the program needs for its arguments, as `(args, kwargs)`."""
        shardings = self.program.input_shardings[len(self.trace.closed_over) :]
        return self.in_tree.unflatten([format_of(s, a.ndim) for s, a in zip(shardings, self._input_avals, strict=True)])

    @property
    def output_formats(self) -> PyTree:
        """The layouts and shardings of the output, in its structure.

        >>> import tracefx as fx
        >>> fx.jit(lambda x: x + 1).lower(fx.ShapeDtypeStruct((2, 3), "float32")).compile().output_formats.layout
        Layout(major_to_minor=(0, 1), tiling=(), sub_byte_element_size_in_bits=0)
        """
        shardings = self.program.output_shardings[self.trace.ref_outputs :]
        pairs = zip(shardings, self.trace.out_avals, strict=True)
        return self.trace.out_tree.unflatten([format_of(s, a.ndim) for s, a in pairs])

    def runtime_executable(self) -> object:
        """Returns jaxlib's executable, whose methods are not part of any stable interface."""
        return self.program.runtime_executable()

    def collectives(self) -> tuple[CompiledCollective, ...]:
        """Returns the collectives of the compiled program, with the amount of data that each sends.

        >>> import tracefx as fx
        >>> fx.jit(lambda x: x + 1).lower(1.0).compile().collectives()
        ()
        """
        return self.program.collectives()


@final
@frozen(eq=False, repr=False)
class LoweredCall(CallInfo, Generic[P, R]):
    """A function lowered to StableHLO for one structure, shapes and dtypes of its arguments."""

    _stage: ClassVar[str] = "lowered"
    program: LoweredProgram
    trace: Trace[R]
    in_tree: TreeDef
    donated: tuple[int, ...]
    requested_shardings: RequestedShardings | None
    _static: StaticArguments
    _where: str
    _flatten: Callable[P, tuple[list[Value], TraceKey, Sequence[Ref]]]
    _compiler_options: CompilerOptions

    @property
    def out_info(self) -> PyTree:
        """The shapes, dtypes and requested shardings of the outputs, a pytree of `ShapeDtypeStruct`."""
        return _out_info(self.trace, None if self.requested_shardings is None else self.requested_shardings.outputs)

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """Returns the text of the module.

        Args:
            dialect: `"stablehlo"` or `"hlo"`, the latter before optimization. None, the default, means `"stablehlo"`.
            debug_info: Whether StableHLO includes the source location and the `named_scope`s of each operation. False
                by default.

        Raises:
            ValueError: If the dialect is unknown.
        """
        return self.program.hlo_text() if _dialect(dialect) == "hlo" else self.program.text(debug_info)

    def compiler_ir(self, dialect: str | None = None) -> object:
        """Returns the module as an object of jaxlib.

        Args:
            dialect: `"stablehlo"` for an MLIR module, or `"hlo"` for an XLA computation. None, the default, means
                `"stablehlo"`.

        Raises:
            ValueError: If the dialect is unknown.
        """
        return self.program.module(_dialect(dialect))

    @property
    def repeats(self) -> RepeatedBlocks:
        """The repeated blocks of the program, those compiled once and those that are not, with the reason.

        >>> import tracefx as fx
        >>> print(fx.jit(lambda x: x + 1).lower(1.0).repeats)
        no repeated blocks of enough equations
        """
        return self.program.repeats

    def cost_analysis(self) -> Mapping[str, float]:
        """Returns XLA's estimates for one call, before optimization."""
        return self.program.cost_analysis()

    @api_boundary
    def compile(
        self, compiler_options: CompilerOptions | None = None, *, cache: str | os.PathLike[str] | None = None
    ) -> CompiledCall[P, R]:
        """Compiles the module; without arguments, into the program that calls of the jitted function share.

        Args:
            compiler_options: XLA's options, by name, in addition to those of `jit`. None by default.
            cache: A folder in which the executable is looked up, and stored after compilation. None, the default, means
                the folder of `compilation_cache`, if one is set.

        Returns:
            A `CompiledCall`.
        """
        folder = None if cache is None else as_compilation_cache(cache)
        program = self.program.compile({**self._compiler_options, **(compiler_options or {})}, folder)
        trace = self.trace.with_aliased_consts()
        return CompiledCall(program, trace, self.in_tree, self.donated, self._static, self._where, self._flatten)


@final
@frozen(eq=False, repr=False)
class TracedCall(CallInfo, Generic[P, R]):
    """A function traced for one structure, shapes and dtypes of its arguments; `jit(f).trace` returns it.

    `in_tree` is the structure of the traced arguments.
    """

    _stage: ClassVar[str] = "traced"
    trace: Trace[R]
    in_tree: TreeDef
    donated: tuple[int, ...]
    keep_unused: bool
    requested_shardings: RequestedShardings | None
    _static: StaticArguments
    _where: str
    _flatten: Callable[P, tuple[list[Value], TraceKey, Sequence[Ref]]]
    _compiler_options: CompilerOptions
    repeats: RepeatsMode | None

    @property
    def jaxpr(self) -> ClosedJaxpr:
        """The program, with the values that the function closes over as constants."""
        return self.trace.closed()

    @property
    def out_info(self) -> PyTree:
        """The shapes, dtypes and requested shardings of the outputs, a pytree of `ShapeDtypeStruct`."""
        return _out_info(self.trace, None if self.requested_shardings is None else self.requested_shardings.outputs)

    @property
    def out_avals(self) -> PyTree:
        """The abstract values of the outputs, in their structure."""
        return self.trace.out_tree.unflatten(self.trace.out_avals)

    @property
    def fun_name(self) -> str:
        """The name of the function."""
        return self.trace.name

    @api_boundary
    def lower(self, *, lowering_platforms: tuple[str, ...] | None = None) -> LoweredCall[P, R]:
        """Lowers the program to StableHLO.

        Args:
            lowering_platforms: The platforms to lower for, such as `("cuda",)`. None, the default, means the default
                platform. A module for another platform can be read, but not compiled.

        Returns:
            A `LoweredCall`.

        Raises:
            ValueError: If a platform is unknown.
        """
        backend, jaxpr, name = BACKEND.value, self.trace.jaxpr, self.trace.name
        program: LoweredProgram
        if lowering_platforms is None or tuple(lowering_platforms) in ((), (backend.platform,)):
            with REPEATS.override(self.repeats or REPEATS.value):
                program = backend.lower(jaxpr, name, self.donated, self.keep_unused, self.requested_shardings)
        else:
            platforms = require_platforms(lowering_platforms, "lower: lowering_platforms")
            program = backend.lower_for(jaxpr, name, platforms, self.keep_unused, self.requested_shardings)
        return LoweredCall(
            program,
            self.trace,
            self.in_tree,
            self.donated,
            self.requested_shardings,
            self._static,
            self._where,
            self._flatten,
            self._compiler_options,
        )


def _few(avals: Sequence[ShapedArray], count: int = 6) -> str:
    """Returns the types as text, at most `count` of them."""
    others = [f"{len(avals) - count} more"] if len(avals) > count + 1 else map(str, avals[count:])
    return ", ".join([*map(str, avals[:count]), *others])


def require_platforms(given: Sequence[str], what: str) -> tuple[str, ...]:
    """Returns the platforms as a tuple; raises ValueError unless they are distinct and can be lowered for."""
    names = () if isinstance(given, str) else tuple(given)
    if not names or any(name not in LOWERING_PLATFORMS for name in names) or len(set(names)) != len(names):
        raise ValueError(
            f"{what} must be None or a sequence of some of {', '.join(LOWERING_PLATFORMS)}, each once, got {given!r}"
        )
    return names


def _dialect(dialect: str | None) -> str:
    """Returns the dialect, with its default; raises ValueError if it is unknown."""
    if dialect not in (None, "stablehlo", "hlo"):
        raise ValueError(f"unknown dialect: dialect must be 'stablehlo' or 'hlo', got {dialect!r}")
    return dialect or "stablehlo"


def _out_info(trace: Trace, shardings: Sequence[Sharding | None] | None) -> PyTree:
    out_shardings = [None] * len(trace.out_avals) if shardings is None else shardings[trace.ref_outputs :]
    structs = [struct_of(a, sharding) for a, sharding in zip(trace.out_avals, out_shardings, strict=True)]
    return trace.out_tree.unflatten(structs)
