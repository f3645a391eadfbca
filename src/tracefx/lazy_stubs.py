"""Lazy imports: a package imports a public name at its first use, from the module that the package's stub names.

The stub, `__init__.pyi`, is the only list of the public names of a package. It has one statement for each
name, `from module import name as name`, which type checkers, the documentation and `attach` read.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from types import FunctionType

from tracefx.core.bounded_cache import memoize
from tracefx.core.traceback_filtering import api_boundary

_EXPORT = re.compile(r"^from (\S+) import \(?\s*(\w+) as \2\b", re.MULTILINE)


@memoize(limit=64)
def exports(package: str) -> Mapping[str, str]:
    """Returns the public names of a package with a stub, each with the module that it is imported from.

    Args:
        package: The name of the package.

    >>> exports("tracefx.image")["resize"]
    'tracefx.image.resizing'
    """
    folder = importlib.import_module(package).__path__[0]
    with open(f"{folder}/__init__.pyi", encoding="utf-8") as stub:
        return {name: module for module, name in _EXPORT.findall(stub.read())}


@memoize(limit=2048)
def _as_boundary(f: FunctionType) -> Callable[..., object]:
    return api_boundary(f)


def attach(package: str, *, filter_tracebacks: bool = False) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns the functions `__getattr__` and `__dir__` of a package with a stub.

    `__getattr__` also defines `__all__`, the names of the stub in their order.

    Args:
        package: The name of the package, `__name__` in its `__init__.py`.
        filter_tracebacks: Whether the public functions become entry points with filtered tracebacks. This costs 0.1 µs
            per call, so it is false for packages of functions that take only microseconds.
    """
    namespace = vars(sys.modules[package])

    def __getattr__(name: str) -> object:
        if name == "__all__":
            return list(exports(package))
        module = exports(package).get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if module == package:
            value: object = importlib.import_module(f"{package}.{name}")
        else:
            value = getattr(__import__(module, fromlist=(name,)), name)
        if filter_tracebacks and type(value) is FunctionType and not hasattr(value, "__wrapped__"):
            value = _as_boundary(value)
            value.__module__ = package  # pickle looks the function up there
        namespace[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*namespace, *exports(package)})

    return __getattr__, __dir__
