"""Signatures agree with JAX's: parameter names, positions and defaults."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any, Final

import jax
import jax.ad_checkpoint
import jax.custom_batching
import jax.custom_derivatives
import jax.distributed
import jax.dtypes
import jax.experimental.checkify
import jax.ffi
import jax.flatten_util
import jax.image
import jax.profiler
import jax.ref
import jax.scipy.cluster.vq
import jax.scipy.fft
import jax.scipy.integrate
import jax.scipy.linalg
import jax.scipy.ndimage
import jax.scipy.optimize
import jax.scipy.signal
import jax.scipy.sparse.linalg
import jax.scipy.stats
import jax.sharding
import jax.tree_util
import numpy as np
import pytest

import tracefx as fx
import tracefx.ad_checkpoint
import tracefx.custom_batching
import tracefx.custom_derivatives
import tracefx.debug
import tracefx.distributed
import tracefx.dtypes
import tracefx.ffi
import tracefx.flatten_util
import tracefx.handlers
import tracefx.image
import tracefx.lax
import tracefx.nn
import tracefx.nn.initializers
import tracefx.numpy as fnp
import tracefx.ops
import tracefx.profiler
import tracefx.random
import tracefx.ref
import tracefx.scipy.cluster.vq
import tracefx.scipy.fft
import tracefx.scipy.integrate
import tracefx.scipy.linalg
import tracefx.scipy.ndimage
import tracefx.scipy.optimize
import tracefx.scipy.signal
import tracefx.scipy.sparse.linalg
import tracefx.scipy.special
import tracefx.sharding
import tracefx.tree
import tracefx.tree_util
from tests.versions import OTHER_PARAMETERS, WARNS_OF_ARGUMENTS_BY_PLACE
from tracefx.jax_counterparts import PARAMETERS

# Parameters of JAX that tracefx does not have.
LACKING: Final = frozenset(
    {
        *("to", "axis_index_groups"),
    }
)
# Functions with other signatures, and the reasons.
DIFFERENT: Final = {
    **(
        {"numpy.array": "JAX takes further positional arguments only to warn about them"}
        if WARNS_OF_ARGUMENTS_BY_PLACE
        else {}
    ),
    "numpy.pad": "JAX takes the options of every mode from **kwargs; here they are named",
    "numpy.expand_dims": "the axis has the default of the array API",
    "numpy.clip": "JAX makes the array optional only to raise an error",
    "random.lognormal": "the default has the requested dtype",
    "lax.random_gamma_grad": "JAX takes its operands from *args",
    **dict.fromkeys(
        [f"tracefx.{name}" for name in ("default_device", "enable_x64", "log_compiles")],
        "JAX's are settings objects with one method",
    ),
    "tracefx.jit": "JAX marks shardings that are not given; here the function may be passed by name",
    "dtypes.issubdtype": "it is `numpy.issubdtype`, whose parameters JAX names otherwise",
    "ffi.register_ffi_target": "JAX passes further options to XLA",
    "distributed.initialize": "options are keyword-only, and clusters are not detected",
    "handlers.checkify": "the function is called `fun`, as in other handlers",
    "lax.cond": "its overloads name the operands, and include JAX's old form with one operand",
}
Parameter = tuple[str, str, str]


def parameters(function: Callable[..., object], restricted: Collection[str] = ()) -> list[Parameter] | None:
    """Returns the parameters of a function, those that are only keywords by their names; None if it has no signature.

    Args:
        function: The function.
        restricted: The parameters that the function of tracefx takes as keywords only, since it refuses most values.
    """
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    out = []
    for p in found:
        if p.name in LACKING or p.name.startswith("_"):
            continue
        positional_only = p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD)
        default = "a mark" if " object at 0x" in repr(p.default) else repr(p.default).removeprefix("jax.sharding.")
        kind = p.KEYWORD_ONLY if p.name in restricted else p.kind
        out.append(("" if positional_only else p.name, kind.name, default))
    return sorted(out, key=lambda each: (each[1] == "VAR_KEYWORD", each[0] if each[1] == "KEYWORD_ONLY" else ""))


def without_additions(own: list[Parameter] | None, jax_parameters: list[Parameter] | None) -> list[Parameter] | None:
    """Returns our parameters without keyword-only options that JAX's function lacks, and without additional defaults.

    Without a first argument, decorators with options return a transformation.
    """
    names = {name for name, _, _ in jax_parameters or ()}
    found = own and [p for p in own if p[0] in names or p[1] != "KEYWORD_ONLY"]
    if found and jax_parameters and found[0] == (*jax_parameters[0][:2], "None"):
        found[0] = jax_parameters[0]
    return found


def functions(module: ModuleType) -> list[str]:
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    return sorted([n for n in names if inspect.isfunction(getattr(module, n))])


MODULES: Final = (
    (fnp, jax.numpy),
    (tracefx.lax, jax.lax),
    (tracefx.nn, jax.nn),
    (tracefx.nn.initializers, jax.nn.initializers),
    (tracefx.random, jax.random),
    (tracefx.scipy.special, jax.scipy.special),
    (tracefx.debug, jax.debug),
    (tracefx.ops, jax.ops),
    (fnp.fft, jax.numpy.fft),
    (fnp.linalg, jax.numpy.linalg),
    (tracefx.lax.linalg, jax.lax.linalg),
    (tracefx.scipy.cluster.vq, jax.scipy.cluster.vq),
    (tracefx.scipy.fft, jax.scipy.fft),
    (tracefx.scipy.integrate, jax.scipy.integrate),
    (tracefx.scipy.linalg, jax.scipy.linalg),
    (tracefx.scipy.ndimage, jax.scipy.ndimage),
    (tracefx.scipy.optimize, jax.scipy.optimize),
    (tracefx.scipy.signal, jax.scipy.signal),
    (tracefx.scipy.sparse.linalg, jax.scipy.sparse.linalg),
    (tracefx.image, jax.image),
    (fx, jax),
    (tracefx.ad_checkpoint, jax.ad_checkpoint),
    (tracefx.custom_batching, jax.custom_batching),
    (tracefx.custom_derivatives, jax.custom_derivatives),
    (tracefx.distributed, jax.distributed),
    (tracefx.dtypes, jax.dtypes),
    (tracefx.ffi, jax.ffi),
    (tracefx.flatten_util, jax.flatten_util),
    (tracefx.handlers, jax.experimental.checkify),
    (tracefx.profiler, jax.profiler),
    (tracefx.ref, jax.ref),
    (tracefx.sharding, jax.sharding),
    (tracefx.tree, jax.tree),
    (tracefx.tree_util, jax.tree_util),
    *[
        (importlib.import_module(f"tracefx.scipy.stats{name}"), importlib.import_module(f"jax.scipy.stats{name}"))
        for name in ("", *[f".{module.name}" for module in pkgutil.iter_modules(jax.scipy.stats.__path__)])
    ],
)
CASES: Final = [(module, jax_module, name) for module, jax_module in MODULES for name in functions(module)]


@pytest.mark.parametrize(("module", "jax_module", "name"), CASES, ids=[f"{m.__name__}.{n}" for m, _, n in CASES])
def test_functions(module: ModuleType, jax_module: ModuleType, name: str) -> None:
    namesake: Any = getattr(jax_module, name, None)
    if (
        not callable(namesake)
        or isinstance(namesake, jax.numpy.ufunc)
        or f"{module.__name__.removeprefix('tracefx.')}.{name}" in DIFFERENT
    ):
        return
    others = OTHER_PARAMETERS.get(f"{module.__name__.removeprefix('tracefx.')}.{name}", ())
    restricted = PARAMETERS.get(f"{module.__name__}.{name}", {})
    mine, expected = [
        found and [p for p in found if p[0] not in others]
        for found in (parameters(getattr(module, name)), parameters(namesake, restricted))
    ]
    assert without_additions(mine, expected) == expected


def test_no_stale_exceptions() -> None:
    found = {
        f"{module.__name__.removeprefix('tracefx.')}.{name}": (module, jax_module, name)
        for module, jax_module, name in CASES
    }
    for case in DIFFERENT:
        module, jax_module, name = found[case]
        assert parameters(getattr(module, name)) != parameters(getattr(jax_module, name)), case
    for case, others in OTHER_PARAMETERS.items():
        module, jax_module, name = found[case]
        mine, expected = [{p[0]: p for p in parameters(getattr(m, name)) or ()} for m in (module, jax_module)]
        assert all(mine.get(other) != expected.get(other) for other in others), case


@pytest.mark.parametrize(
    ("class_name", "method"),
    [("custom_jvp", "defjvp"), ("custom_jvp", "defjvps"), ("custom_vjp", "defvjp"), ("custom_jvp", "__init__")],
)
def test_methods_that_define_derivatives(class_name: str, method: str) -> None:
    """Releases of JAX add parameters at the end."""
    mine, expected = [parameters(getattr(getattr(library, class_name), method)) for library in (fx, jax)]
    assert mine is not None
    assert expected is not None
    assert mine[: len(expected)] == expected


METHODS: Final = sorted(
    name for name in dir(fnp.ndarray) if not name.startswith("_") and inspect.isfunction(getattr(fnp.ndarray, name))
)


@pytest.mark.parametrize("name", METHODS)
def test_methods(name: str) -> None:
    jax_parameters = parameters(getattr(jax.numpy.ones(2), name, print))
    if name in ("concrete_or_error", "block_until_ready") or jax_parameters is None:
        return
    if [kind for _, kind, _ in jax_parameters] == ["VAR_POSITIONAL", "VAR_KEYWORD"]:
        return  # a compiled method of JAX, without a signature
    assert parameters(getattr(fnp.ones(2), name)) == jax_parameters


@pytest.mark.parametrize(
    "call",
    [
        lambda out: fnp.sum(fnp.ones(2), out=out),
        lambda out: fnp.max(fnp.ones(2), 0, out),
        lambda out: fnp.ones(2).mean(out=out),
        lambda out: fnp.ones(2).round(1, out),
        lambda out: fnp.std(fnp.ones(2), out=out),
        lambda out: fnp.argmax(fnp.ones(2), out=out),
        lambda out: fnp.stack([fnp.ones(2)], 0, out),
        lambda out: fnp.take(fnp.ones(2), 0, out=out),
    ],
)
def test_out_argument_raises(call: Callable[[object], object]) -> None:
    with pytest.raises(NotImplementedError, match="out must be None, since arrays are immutable"):
        call(np.zeros(()))
