"""Programs to compile, and lowered modules that can be inspected and compiled."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Generic, NoReturn, TypeVar, final

from attrs import frozen

from tracefx.core import show_avals
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.repeated_blocks import RepeatedBlocks
from tracefx.errors import CompilationError
from tracefx.settings import LOG_COMPILES, CompilationCache
from tracefx.xla.disk_cache import DiskCache
from tracefx.xla.emitted_module import EmittedModule
from tracefx.xla.lower import ExecutionPlan
from tracefx.xla.runtime import bindings, executables, mlir, multi_device, platforms

LOGGER: Final = logging.getLogger("tracefx")
"""The logger of `log_compiles`."""


class InspectableProgram:
    """A compiled program that can be inspected, with XLA's analyses of its executable."""

    __slots__ = ()

    @property
    def executable(self) -> executables.Executable | multi_device.SpmdExecutable:
        raise NotImplementedError

    def text(self) -> str:
        return self.executable.hlo_text()

    def cost_analysis(self) -> dict[str, float]:
        return self.executable.cost_analysis()

    def runtime_executable(self) -> object:
        return self.executable.loaded

    def memory_analysis(self) -> executables.MemoryAnalysis:
        return self.executable.memory_analysis()


C = TypeVar("C", bound=InspectableProgram)


@frozen(eq=False)
class CompileJob(ABC, Generic[C]):
    """A program to compile, or to load from the compilation cache on disk."""

    jaxpr: Jaxpr
    name: str
    plan: ExecutionPlan
    keep_unused: bool
    disk: DiskCache

    @abstractmethod
    def lower(self) -> EmittedModule:
        """Lowers the program."""

    @abstractmethod
    def _disk_key(self, options: Mapping[str, bindings.CompilerOption]) -> bytes | None:
        """Returns the key of the executable on disk, or None if the program must be compiled in every process."""

    @abstractmethod
    def _load(self, data: bytes) -> C:
        """Loads the program from its serialized executable; raises `LoadError`."""

    @abstractmethod
    def _compile(self, lowered: EmittedModule, options: Mapping[str, bindings.CompilerOption]) -> C:
        """Compiles the lowered program."""

    def compile_or_load(
        self,
        options: Mapping[str, bindings.CompilerOption],
        cache: CompilationCache | None,
        lowered: EmittedModule | None = None,
    ) -> C:
        """Loads the compiled program from disk or compiles it; `lowered` is the module, if it exists already."""
        start = time.perf_counter()
        key = None if cache is None else self._disk_key(options)
        program = None if cache is None or key is None else self._load_from(cache, key)
        what = "loaded from the compilation cache"
        if program is None:
            what = "compiled"
            module = lowered or self.lower()
            program = self._compile(module, options)
            if cache is not None and key is not None and not module.calls_host:
                with suppress(CompilationError):  # XLA cannot serialize all executables
                    self.disk.store(cache, key, program.executable.serialize(module.calls_kernels))
        if LOG_COMPILES.value:
            seconds = time.perf_counter() - start
            LOGGER.warning("%s(%s): %s in %.3f s", self.name, show_avals(self.jaxpr.in_avals), what, seconds)
        return program

    def _load_from(self, cache: CompilationCache, key: bytes) -> C | None:
        data = self.disk.load(cache, key)
        if data is not None:
            with suppress(bindings.LoadError):  # XLA may refuse it for reasons that the key does not cover: recompile
                return self._load(data)
        return None


class InspectableModule:
    """A lowered module that can be inspected, as text and as objects of the bindings."""

    __slots__ = ()
    lowered: EmittedModule

    def text(self, debug_info: bool = False) -> str:
        return mlir.module_text(self.lowered.module, locations=debug_info)

    def hlo_text(self) -> str:
        return bindings.hlo_computation(self.lowered.module).as_hlo_text()

    def module(self, dialect: str) -> object:
        return self.lowered.module if dialect == "stablehlo" else bindings.hlo_computation(self.lowered.module)

    @property
    def repeats(self) -> RepeatedBlocks:
        return self.lowered.repeats

    def cost_analysis(self) -> Mapping[str, float]:
        computation = bindings.hlo_computation(self.lowered.module)
        return bindings.hlo_cost_analysis(platforms.client(), computation.as_hlo_module())


@final
@frozen(eq=False)
class CrossPlatformModule(InspectableModule):
    """A module for other platforms, or for several; it can be inspected but not compiled here."""

    lowered: EmittedModule
    platforms: tuple[str, ...]

    def compile(
        self, options: Mapping[str, bindings.CompilerOption], cache: CompilationCache | None = None
    ) -> NoReturn:
        raise ValueError(
            f"a program that was lowered for {', '.join(self.platforms)} can't be compiled here: export it for those "
            "platforms, or lower it without lowering_platforms"
        )


@final
@frozen(eq=False)
class LoweredModule(InspectableModule, Generic[C]):
    """A module lowered for this host's devices, ready to be compiled."""

    job: CompileJob[C]
    lowered: EmittedModule
    shared: Callable[[], C]
    """Returns the program compiled with the default options and cache, which calls of the function share."""

    def compile(self, options: Mapping[str, bindings.CompilerOption], cache: CompilationCache | None = None) -> C:
        return (
            self.shared() if not options and cache is None else self.job.compile_or_load(options, cache, self.lowered)
        )
