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

from tracefx.core.bounded_cache import memoize
from tracefx.core.late_binding import LateBound
from tracefx.core.traceback_filtering import api_boundary, filter_traceback

_CONFIGURATION: Final = "arguments of the functions, and the settings `enable_x64`, `disable_jit`, `compilation_cache`"
_NAN_CHECKS: Final = "`tracefx.handlers`: `checkify(f, errors=float_checks)` or `explain(f)`"
COUNTERPARTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tracefx.Shard": "`tracefx.sharding.Shard`",
        "tracefx.ad": "`tracefx.custom_derivatives`",
        "tracefx.auto_pcast": "`tracefx.shard_map` infers what varies between devices",
        "tracefx.config": _CONFIGURATION,
        "tracefx.copy_to_host_async": "`tracefx.device_get`",
        "tracefx.custom_remat": "`tracefx.checkpoint` with a policy",
        "tracefx.debug_infs": "`tracefx.handlers.explain(f)(x).first(lambda op: op.has_inf)`",
        "tracefx.debug_key_reuse": "`tracefx.handlers.check_key_reuse`",
        "tracefx.debug_nans": _NAN_CHECKS,
        "tracefx.default_matmul_precision": "the argument `precision` of functions such as `tracefx.numpy.matmul`",
        "tracefx.default_prng_impl": "`tracefx.random.key(seed, impl=...)`",
        "tracefx.experimental": "`tracefx.handlers` with `checkify`, `tracefx.jet`, `tracefx.shard_map`, ...",
        "tracefx.explain_cache_misses": "`jit(f).trace(x).lower().compile()` compiles explicitly",
        "tracefx.fwd_and_bwd": "`tracefx.vjp`, whose function is a pytree",
        "tracefx.get_abstract_mesh": "`tracefx.sharding.get_mesh`",
        "tracefx.host_count": "`tracefx.process_count`",
        "tracefx.host_id": "`tracefx.process_index`",
        "tracefx.host_ids": "`tracefx.process_indices`",
        "tracefx.memory": "each device has one memory space",
        "tracefx.no_execution": "handlers: `checkify`, `explain`, `log`",
        "tracefx.no_tracing": "handlers: `checkify`, `explain`, `log`",
        "tracefx.numpy_dtype_promotion": _CONFIGURATION,
        "tracefx.numpy_rank_promotion": _CONFIGURATION,
        "tracefx.print_environment_info": "`tracefx.__version__`",
        "tracefx.remove_size_one_mesh_axis_from_type": "`tracefx.shard_map` infers what varies between devices",
        "tracefx.reshard": "`tracefx.device_put`, and `tracefx.lax.with_sharding_constraint` within programs",
        "tracefx.smap": "`tracefx.shard_map` with `axis_names`",
        "tracefx.use_abstract_mesh": "`tracefx.set_mesh`",
    }
)
"""Names of JAX that tracefx does not have, with what replaces them."""

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


_REDUCE_AXES: Final[Mapping[str, tuple[tuple[object, ...], str]]] = {
    "reduce_axes": (((), []), "the gradients of a `shard_map` are sums over the mesh axes along which it is replicated")
}
PARAMETERS: Final[Mapping[str, Mapping[str, tuple[tuple[object, ...], str]]]] = MappingProxyType(
    {
        **dict.fromkeys(
            [f"tracefx.{name}" for name in ("grad", "value_and_grad", "vjp", "linear_transpose")], _REDUCE_AXES
        ),
        "tracefx.local_devices": {"host_id": ((None,), "it is called `process_index`")},
        "tracefx.vmap": {"sum_match": ((False,), "sum the outputs of the batched function")},
        "tracefx.lax.scan": {"_split_transpose": ((False, True), "")},
    }
)
"""Parameters of JAX's functions of which only some values have a meaning here: these, and what replaces the others."""
CONSTRAIN_RESULT: Final[LateBound[Callable[[object, object, str], object]]] = LateBound("the function for out_sharding")
"""Returns the result of a function with the sharding of its argument `out_sharding`, given both and its name."""


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
                if parameter in kwargs and (value := kwargs.pop(parameter)) not in accepted:
                    raise NotImplementedError(f"{f.__name__}: {parameter}={value!r} is not supported: {replacement}")
            out_sharding = kwargs.pop("out_sharding", None) if constrains else None
            out = f(*args, **kwargs)
            return out if out_sharding is None else CONSTRAIN_RESULT.value(out, out_sharding, f.__name__)
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

    `__getattr__` also defines `__all__`, the names of the stub in their order. The public functions become entry points
    with filtered tracebacks, which costs 0.1 µs per call.

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
        elif type(value) is FunctionType and not hasattr(value, "__wrapped__"):
            value = _as_boundary(value)
            value.__module__ = package
        namespace[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*namespace, *exports(package)})

    return __getattr__, __dir__
