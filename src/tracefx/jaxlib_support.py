"""Imports modules of jaxlib; rejects a jaxlib that is missing, incomplete, or of an unsupported version."""

from __future__ import annotations

import functools
import importlib
import os
import re
from types import ModuleType
from typing import Final

from tracefx.errors import UnsupportedJaxlibError

OLDEST: Final = (0, 10, 2)
"""The oldest supported version of jaxlib."""
FIRST_UNSUPPORTED: Final = (0, 13)
"""The first version that is too new, i.e. untested. `pyproject.toml` has the same range."""

_REMEDY: Final = "install a supported version with: pip install 'jax>={},<{}' 'jaxlib>={},<{}'".format(
    *[".".join(map(str, version)) for version in (OLDEST, FIRST_UNSUPPORTED)] * 2
)

QUIET_LOG: Final = ("TF_CPP_MIN_LOG_LEVEL", "1")
"""The environment variable and default log level of XLA, which is read when its library is loaded.

At a lower level it logs a line per device when a client starts. jax sets the same default. A user's value takes
precedence.
"""


def import_jaxlib(name: str) -> ModuleType:
    """Imports a module of jaxlib.

    Args:
        name: The module, e.g. `jaxlib._jax`.

    Raises:
        UnsupportedJaxlibError: If jaxlib is missing, has an unsupported version, or lacks the module.
    """
    version = jaxlib_version()
    os.environ.setdefault(*QUIET_LOG)
    try:
        return importlib.import_module(name)
    except (ImportError, AttributeError) as error:
        raise incomplete_jaxlib_error(version, error) from error


@functools.cache
def jaxlib_version() -> str:
    """Returns the version of the installed jaxlib, which is a supported one.

    Raises:
        UnsupportedJaxlibError: If jaxlib is missing, incomplete, or has an unsupported version.
    """
    try:
        version: object = importlib.import_module("jaxlib.version").__version__
    except ModuleNotFoundError as error:
        if error.name == "jaxlib":
            raise UnsupportedJaxlibError(f"jaxlib is not installed; {_REMEDY}") from error
        raise incomplete_jaxlib_error("of unknown version", error) from error
    except (ImportError, AttributeError) as error:
        raise incomplete_jaxlib_error("of unknown version", error) from error
    numbers = re.match(r"\d+(\.\d+)*", str(version))
    release = tuple(map(int, numbers[0].split("."))) if numbers else ()
    if not OLDEST <= release < FIRST_UNSUPPORTED:
        raise UnsupportedJaxlibError(f"jaxlib {version} is not supported; {_REMEDY}")
    return str(version)


def incomplete_jaxlib_error(version: str, error: Exception) -> UnsupportedJaxlibError:
    """Returns the error for a jaxlib that lacks a module or attribute; `error` is the import error."""
    return UnsupportedJaxlibError(f"the installed jaxlib {version} is incomplete ({error}); {_REMEDY}")
