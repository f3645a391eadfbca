"""`help()` of the gallery: signatures that fit on a few lines of a terminal."""

from __future__ import annotations

import inspect

import pytest

from tracefx import handlers
from tracefx.lazy_stubs import exports

MAX_SIGNATURE = 350
"""The largest number of characters of a signature, which `help()` does not break into lines."""


def is_exception(subject: object) -> bool:
    """Whether `subject` is an exception class, whose constructor is that of `Exception`."""
    return isinstance(subject, type) and issubclass(subject, Exception)


NAMES = [name for name in sorted(exports("tracefx.handlers")) if not is_exception(getattr(handlers, name))]


@pytest.mark.parametrize("name", NAMES)
def test_signature_is_short(name: str) -> None:
    subject = getattr(handlers, name)
    if inspect.isfunction(subject) or inspect.isclass(subject):
        assert len(str(inspect.signature(subject))) <= MAX_SIGNATURE
    else:
        assert len(repr(subject)) <= MAX_SIGNATURE
