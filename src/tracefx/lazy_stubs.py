"""Lazy imports: a package imports a public name at its first use, from the module that the package's stub names.

The stub, `__init__.pyi`, is the only list of the public names of a package. It has one statement for each
name, `from module import name as name`, which type checkers, the documentation and `attach` read.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType
from typing import Final

from tracefx.bounded_cache import memoize
from tracefx.core.late_binding import LateBound
from tracefx.filtered_tracebacks import as_entry_point, filter_traceback
from tracefx.jax_counterparts import COUNTERPARTS, PARAMETERS

_LOOKED_UP: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tracefx.numpy.special": "tracefx.scipy.special",
        "tracefx.scipy.special.psi": "tracefx.scipy.special.digamma",
        "tracefx.einsum": "tracefx.numpy.einsum",
        "tracefx.tensordot": "tracefx.numpy.tensordot",
        "tracefx.transpose": "tracefx.numpy.transpose",
    }
)
"""Attributes that are not public names, with what they are: SciPy looks up its special functions in the namespace of an
array, and opt_einsum looks up contractions in the package that defines its class."""

_EXPORT = re.compile(r"^from (\S+) import \(?\s*(\w+) as \2\b", re.MULTILINE)


CALL_WITH_OUT_SHARDING: Final[LateBound[Callable[..., object]]] = LateBound("the function for out_sharding")
"""Calls a function whose result gets the sharding `out_sharding`: takes this, the function, and the arguments."""


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


@memoize(limit=256)
def _with_parameters(f: Callable[..., object], name: str, constrains: bool) -> Callable[..., object]:
    """Returns a public function with parameters that it does not have itself.

    Args:
        f: The function.
        name: Its public name, by which `PARAMETERS` has the parameters of which it takes some values only.
        constrains: Whether it takes `out_sharding`, which constrains the sharding of its result.
    """
    restricted = PARAMETERS.get(name, {})

    @functools.wraps(f)
    def call(*args: object, **kwargs: object) -> object:
        try:
            if not kwargs:
                return f(*args)
            for parameter, (accepted, replacement) in restricted.items():
                value = kwargs.pop(parameter, accepted[0])
                if not any(value is each or (type(value) is type(each) and value == each) for each in accepted):
                    raise NotImplementedError(f"{f.__name__}: {parameter}={value!r} is not supported: {replacement}")
            out_sharding = kwargs.pop("out_sharding", None) if constrains else None
            if out_sharding is None:
                return f(*args, **kwargs)
            return CALL_WITH_OUT_SHARDING.value(out_sharding, f, *args, **kwargs)
        except Exception as error:
            filter_traceback(error)
            raise

    signature = inspect.signature(f)
    defaults = {parameter: accepted[0] for parameter, (accepted, _) in restricted.items()}
    if constrains:
        defaults["out_sharding"] = None
    added = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=default) for n, default in defaults.items()]
    own = [*signature.parameters.values()]
    end = len(own) - (bool(own) and own[-1].kind is inspect.Parameter.VAR_KEYWORD)
    vars(call)["__signature__"] = signature.replace(parameters=[*own[:end], *added, *own[end:]])
    return call


def attach(
    package: str, *, take_out_sharding: tuple[str, ...] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns the functions `__getattr__` and `__dir__` of a package with a stub.

    `__getattr__` also defines `__all__`, the names of the stub in their order. The public functions and constructors
    become entry points with filtered tracebacks, which costs 0.1 µs per call.

    Args:
        package: The name of the package, `__name__` in its `__init__.py`.
        take_out_sharding: The names of the functions that also take the argument `out_sharding`: None, the default, or
            a sharding that constrains the result. Empty by default.
    """
    namespace = vars(sys.modules[package])

    def __getattr__(name: str) -> object:
        if name == "__all__":
            return list(exports(package))
        module = exports(package).get(name)
        if module is None and f"{package}.{name}" in _LOOKED_UP:
            source, _, attribute = _LOOKED_UP[f"{package}.{name}"].rpartition(".")
            return getattr(importlib.import_module(source), attribute)
        if module is None:
            counterpart = COUNTERPARTS.get(f"{package}.{name}")
            hint = "" if counterpart is None else f"; the counterpart of JAX's name: {counterpart}"
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        if module == package:
            value: object = importlib.import_module(f"{package}.{name}")
        else:
            value = getattr(__import__(module, fromlist=(name,)), name)
        public_name = f"{package}.{name}"
        if type(value) is FunctionType and (name in take_out_sharding or public_name in PARAMETERS):
            value = _with_parameters(value, public_name, name in take_out_sharding)
            value.__module__ = package  # pickle looks the function up there
        else:
            value = as_entry_point(value, package)
        namespace[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*namespace, *exports(package)})

    return __getattr__, __dir__
