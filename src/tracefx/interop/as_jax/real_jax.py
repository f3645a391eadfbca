"""The real JAX in a process in which `import jax` gives tracefx: it is loaded under another name.

The modules of JAX, those of `tracefx.interop.jax` and PJRT plug-ins are executed with an `__import__` of their own, for
which `jax` means the package `tracefx_real_jax`: JAX's files, loaded under that name.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from types import ModuleType
from typing import Final, final

from typing_extensions import override

REAL_JAX: Final = "tracefx_real_jax"
_IMPORTERS: Final = (REAL_JAX, "tracefx.interop.jax", "jax_plugins")
_READ_BY_JAXLIB: Final = tuple([f"{REAL_JAX}._src.{name}" for name in ("named_sharding", "sharding_impls")])
"""Modules that jaxlib looks up in `sys.modules`, where they must have their names in JAX."""


def is_within(module: str, package: str) -> bool:
    """Whether a module is a package or within it, by their names."""
    return f"{module}.".startswith(f"{package}.")


def _import_real(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """Imports as `__import__` does, except that `jax` is the real JAX."""
    if level == 0 and is_within(name, "jax"):
        name = REAL_JAX + name.removeprefix("jax")
    return __import__(name, globals, locals, fromlist or (), level)


@final
class _Loader(SourceFileLoader):
    @override
    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import_real}
        if module.__name__ in _READ_BY_JAXLIB:
            sys.modules["jax" + module.__name__.removeprefix(REAL_JAX)] = module
        super().exec_module(module)


@final
class RealJaxFinder:
    """A finder of the modules that import the real JAX, and of JAX itself under its other name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the specification of a module that imports the real JAX; None for other modules."""
        if not any(is_within(fullname, package) for package in _IMPORTERS):
            return None
        spec = PathFinder.find_spec("jax" if fullname == REAL_JAX else fullname, path, target)
        if spec is None or spec.origin is None or not isinstance(spec.loader, SourceFileLoader):
            return spec
        locations = spec.submodule_search_locations
        loader = _Loader(fullname, spec.origin)
        return spec_from_file_location(
            fullname, spec.origin, loader=loader, submodule_search_locations=None if locations is None else [*locations]
        )
