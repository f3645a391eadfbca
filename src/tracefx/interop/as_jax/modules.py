"""The modules `jax`, `jax.numpy`, ... as an import hook makes them from tracefx, and the hook."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any, Final, final

from typing_extensions import override

from tracefx.core.abstract_array import ARRAY_NAMESPACE
from tracefx.interop.as_jax.config import with_option
from tracefx.interop.as_jax.namespaces import (
    RUN_FROM_JAX,
    UNSUPPORTED_MODULES,
    Namespace,
    reason_unsupported,
    submodules,
)
from tracefx.interop.as_jax.namespaces import namespace as namespace_of
from tracefx.interop.as_jax.primitive import BUILTIN_PRIMITIVES
from tracefx.interop.as_jax.real_jax import RealJaxFinder, is_within
from tracefx.interop.as_jax.unsupported import unsupported_name
from tracefx.settings import NUMERIC_OPTIONS

_EMPTY: Final = Namespace(None, {})
_RENAMED_PRIMITIVES: Final[Mapping[str, str]] = {
    "add_any": "add",
    "add_jaxvals": "add",
    "call": "jit",
    "closed_call": "jit",
    "linear_solve": "custom_linear_solve",
    "pjit": "jit",
    "remat": "checkpoint",
}
"""Primitives of JAX with the primitive of tracefx that has another name."""


@final
class JaxModule(ModuleType):
    """A module of JAX that is made of tracefx. Its names are looked up at the first use."""

    @override
    def __getattr__(self, name: str) -> Any:
        value = self._lookup(name)
        if not name.startswith("__"):
            setattr(self, name, value)
        return value

    def _lookup(self, name: str) -> Any:
        module, full_name = self.__name__, f"{self.__name__}.{name}"
        namespace = namespace_of(module) or _EMPTY
        if name in namespace.names:
            source, _, attribute = namespace.names[name].partition(":")
            return getattr(importlib.import_module(source), attribute)
        if namespace_of(full_name) is not None or full_name in UNSUPPORTED_MODULES:
            return importlib.import_module(full_name)
        if name == "__all__" and namespace.base is not None:
            return [each for each in dir(self) if not each.startswith("_")]
        if namespace.primitives and name.endswith("_p"):
            primitive = name.removesuffix("_p")
            builtin = BUILTIN_PRIMITIVES.get(_RENAMED_PRIMITIVES.get(primitive, primitive))
            if builtin is not None:
                return builtin
        if namespace.base is not None and not name.startswith("__"):
            try:
                value = getattr(importlib.import_module(namespace.base), name)
            except AttributeError:
                pass
            else:
                if not isinstance(value, ModuleType):
                    return value
        reason = None if name.startswith("__") else reason_unsupported(full_name)
        if reason is not None:
            return unsupported_name(full_name, reason)
        raise AttributeError(f"module {module!r} (made of tracefx) has no attribute {name!r}")

    @override
    def __dir__(self) -> list[str]:
        namespace = namespace_of(self.__name__) or _EMPTY
        base = [] if namespace.base is None else dir(importlib.import_module(namespace.base))
        public = [name for name in base if not name.startswith("_")]
        return sorted({*vars(self), *namespace.names, *public, *submodules(self.__name__)})


@final
class JaxFinder(Loader):
    """The import hook: a finder and loader of the modules of JAX."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the specification of a module of JAX that is made of tracefx; None for other modules."""
        if not is_within(fullname, "jax"):
            return None
        if any(is_within(fullname, package) for package in RUN_FROM_JAX):
            real = PathFinder.find_spec("jax")
            return PathFinder.find_spec(fullname, path or (None if real is None else real.submodule_search_locations))
        if namespace_of(fullname) is None and reason_unsupported(fullname) is None:
            return None
        return spec_from_loader(fullname, self, is_package=True)

    @override
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Returns the module."""
        return JaxModule(spec.name)

    @override
    def exec_module(self, module: ModuleType) -> None:
        """Does nothing: the names are looked up when they are used."""


def install() -> None:
    """Makes `import jax` give tracefx in this process, so that libraries written for JAX run on it.

    Call it before anything imports jax. A second call does nothing.

    Raises:
        RuntimeError: If jax has been imported.
    """
    if any(isinstance(finder, JaxFinder) for finder in sys.meta_path):
        return
    if "jax" in sys.modules:
        raise RuntimeError(
            "jax has been imported already: call tracefx.interop.as_jax.install() before anything imports jax, or run "
            "the program by `python -m tracefx.as_jax program.py`"
        )
    NUMERIC_OPTIONS.set_default(with_option(NUMERIC_OPTIONS.default, "narrow_dtypes", True))
    sys.meta_path[:0] = [JaxFinder(), RealJaxFinder()]
    ARRAY_NAMESPACE.set_default(importlib.import_module("jax.numpy"))
