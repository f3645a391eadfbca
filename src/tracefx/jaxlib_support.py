"""Loads modules of jaxlib, and refuses a jaxlib that is missing, incomplete, or of an unsupported version."""

from __future__ import annotations

import functools
import importlib
import os
import re
from types import ModuleType
from typing import Final

from tracefx.errors import UnsupportedJaxlibError

OLDEST: Final = (0, 10, 2)
"""The oldest version of jaxlib that is supported."""
FIRST_UNSUPPORTED: Final = (0, 13)
"""The first version that is too new: nobody has run the tests with it. `pyproject.toml` has the same range."""

_REMEDY: Final = "install a supported version with: pip install 'jax>={},<{}' 'jaxlib>={},<{}'".format(
    *[".".join(map(str, version)) for version in (OLDEST, FIRST_UNSUPPORTED)] * 2
)

QUIET_LOG: Final = ("TF_CPP_MIN_LOG_LEVEL", "1")
"""XLA logs a line for every device when a client starts, and reads this level when its library is loaded.

jax sets the same default for the same reason; a value that the user has set stands.
"""


def import_jaxlib(name: str) -> ModuleType:
    """Imports a module of jaxlib, such as `jaxlib._jax`.

    Raises:
        UnsupportedJaxlibError: if jaxlib is missing, has an unsupported version, or lacks the module.
    """
    version = jaxlib_version()
    os.environ.setdefault(*QUIET_LOG)
    try:
        return importlib.import_module(name)
    except (ImportError, AttributeError) as error:
        raise incomplete_jaxlib_error(version, error) from error


@functools.cache
def jaxlib_version() -> str:
    """The version of the installed jaxlib, which is a supported one.

    Raises:
        UnsupportedJaxlibError: if jaxlib is missing, incomplete, or has an unsupported version.
    """
    try:
        found: object = importlib.import_module("jaxlib.version").__version__
    except ModuleNotFoundError as error:
        if error.name == "jaxlib":
            raise UnsupportedJaxlibError(f"jaxlib is not installed; {_REMEDY}") from error
        raise incomplete_jaxlib_error("of unknown version", error) from error
    except (ImportError, AttributeError) as error:
        raise incomplete_jaxlib_error("of unknown version", error) from error
    numbers = re.match(r"\d+(\.\d+)*", str(found))
    release = tuple(map(int, numbers[0].split("."))) if numbers else ()
    if not OLDEST <= release < FIRST_UNSUPPORTED:
        raise UnsupportedJaxlibError(f"jaxlib {found} is not supported; {_REMEDY}")
    return str(found)


def incomplete_jaxlib_error(version: str, error: Exception) -> UnsupportedJaxlibError:
    """The error for a jaxlib that lacks something; `error` says what."""
    return UnsupportedJaxlibError(f"the installed jaxlib {version} is incomplete ({error}); {_REMEDY}")
