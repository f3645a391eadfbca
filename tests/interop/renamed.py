"""Runs a module written for JAX on tracefx: `python -m tests.interop.renamed some.module`.

Imports of `jax` and its submodules, in the module and in the libraries it uses, return tracefx's modules of the same
names. `jax.__version__` stays JAX's version, because libraries check it to find out which names exist.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from importlib.util import spec_from_loader
from types import ModuleType
from typing import final

from typing_extensions import override


@final
class JaxImportAlias(MetaPathFinder, Loader):
    """A meta path finder that resolves imports of `jax` and its submodules to `tracefx`."""

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_loader(fullname, self, is_package=True) if fullname.split(".")[0] == "jax" else None

    @override
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        fx_module = importlib.import_module("tracefx" + spec.name.removeprefix("jax"))
        module = ModuleType(spec.name)
        vars(module).update(__getattr__=lambda name: getattr(fx_module, name), __version__=version("jax"))
        return module

    @override
    def exec_module(self, module: ModuleType) -> None:
        pass


if __name__ == "__main__":
    sys.meta_path.insert(0, JaxImportAlias())
    runpy.run_module(sys.argv[1], run_name="__main__")
