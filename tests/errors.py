"""Assertions about the errors that calls raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from tracefx.core.handler import current

ErrorType: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]


def assert_errors(*cases: tuple[Callable[[], object], ErrorType, str]) -> None:
    """Asserts that each call raises an error of its type, whose message contains a match of its pattern.

    A failure has a note with the number and the pattern of the case.
    """
    for i, (call, error, pattern) in enumerate(cases):
        try:
            with pytest.raises(error, match=pattern):
                call()
        except BaseException as failure:
            failure.add_note(f"in case {i}, which is to match {pattern!r}")
            raise


def error_message(call: Callable[[], object], error: type[Exception] = TypeError) -> str:
    """Returns the message of the error that a call raises, and asserts that it leaves the current handler as it was."""
    before = current()
    with pytest.raises(error) as caught:
        call()
    assert current() is before
    return str(caught.value)


def untyped(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function unchanged but without its signature, so that type checkers accept invalid arguments."""
    return f
