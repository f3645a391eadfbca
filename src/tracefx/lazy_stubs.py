"""Lazy imports: a package imports a public name at its first use, from the module that the package's stub names.

The stub, `__init__.pyi`, is the only list of the public names of a package. It has one statement for each
name, `from module import name as name`, which type checkers, the documentation and `attach` read.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping

from tracefx.core.bounded_cache import memoize

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


def attach(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns the functions `__getattr__` and `__dir__` of a package with a stub.

    `__getattr__` also defines `__all__`, the names of the stub in their order.

    Args:
        package: The name of the package, `__name__` in its `__init__.py`.
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
        namespace[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*namespace, *exports(package)})

    return __getattr__, __dir__
