"""Differences between the supported versions of jaxlib, each with its reason.

Other modules of this package use the names below and do not check the version. Where possible, a difference is detected
from what jaxlib offers. This module is imported before all others of the package, so an unsupported jaxlib is rejected
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tracefx.jaxlib_support import import_jaxlib

_jax: Final = import_jaxlib("jaxlib._jax")

# Since 0.11 the extension module of Shardy's bindings imports `jaxlib.mlir.dialects.sdy` while it is initialized, for
# the type of a default argument. Were the extension module imported first, that Python module would copy the names of
# a half-initialized module and lack most of them, for jax in the same process, too. So the Python module goes first.
import_jaxlib("jaxlib.mlir.dialects.sdy")


def _parameters(function: object) -> str:
    """Returns the signature of an extension function, which is its docstring."""
    return str(getattr(function, "__doc__", ""))


SKIP_CHECKS: Final[tuple[bool, ...]] = (True,) if "_skip_checks" in _parameters(_jax.array_result_handler) else ()
"""The last argument of `_jax.array_result_handler`, in versions that have it.

Until 0.10 the handler checks each result with Python code that only jax defines, unless it is told to skip the check.
In 0.11 the check and the parameter are gone.
"""

EFFORT_OPTIONS: Final[tuple[str, ...]] = tuple(
    name
    for name in (
        "exec_time_optimization_effort",  # until 0.10
        "memory_fitting_effort",  # until 0.10
        "optimization_level",
        "memory_fitting_level",
    )
    if hasattr(_jax.ExecutableBuildOptions, name)  # of the class, because the first instance makes XLA read XLA_FLAGS
)
"""Compiler options that are fields of the build options, not flags that XLA parses."""

SHARED_FUNCTION_OPTIONS: Final[Mapping[str, bool]] = MappingProxyType({"xla_cpu_use_fusion_emitters": True})
"""Compiler options that programs with functions compiled on their own need, in versions that have them.

Until 0.11.0, XLA can also emit fusions in an older way, which computes wrong values for such programs. In 0.11.1 the
older way and the option are gone.
"""
