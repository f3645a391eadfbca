"""Tests made of programs: of one that must agree with JAX, and of all programs of a module."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.comparison import assert_agree


def parametrize_functions(namespace: Mapping[str, Any], *parameters: str) -> pytest.MarkDecorator:
    """Parametrizes a test by `program`: all functions above it in its module that have these parameters.

    Args:
        namespace: The `globals()` of the module. Imported functions, and those with names that start with `_` or
            `test_`, are no cases.
        parameters: The names of the parameters of a case.
    """
    module = namespace["__name__"]
    programs: list[Callable[..., Any]] = [
        f
        for name, f in namespace.items()
        if inspect.isfunction(f)
        and f.__module__ == module
        and not name.startswith(("_", "test_"))
        and tuple(inspect.signature(f).parameters) == parameters
    ]
    return pytest.mark.parametrize("program", programs, ids=lambda f: f.__name__)


def agrees_with_jax(program: Callable[..., object]) -> Callable[..., None]:
    """Makes a test of `program(lib, np_, ...)`, which must return the same with tracefx and with JAX.

    Its further parameters are those of the test, fixtures or parametrized.
    """

    @functools.wraps(program)
    def test(**arguments: Any) -> None:
        assert_agree(lambda lib, np_: program(lib, np_, **arguments))

    parameters = list(inspect.signature(program).parameters.values())
    test.__signature__ = inspect.Signature(parameters[2:])  # type: ignore[attr-defined]  # which pytest reads
    return test
