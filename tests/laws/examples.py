"""The number of examples and cases per test, and a time limit under the profile `long`, which `make laws` selects."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

from hypothesis import settings

F = TypeVar("F", bound=Callable[..., None])
T = TypeVar("T")

SECONDS: Final = float(os.environ.get("LAWS_SECONDS", "10"))
"""The time limit of one law under the profile `long`; shrinking a failure is not limited."""


class TimeIsUp(BaseException):
    """Raised when the time limit is over. Not an `Exception`, so Hypothesis does not treat it as a failing example."""


def limit_examples(count: int, at_length: int | None = None, seconds: float = SECONDS) -> Callable[[F], F]:
    """Limits the number of examples to `count` percent of the current profile's `max_examples`.

    Under the profile `long`, `at_length` replaces that number if given, and the test passes after `seconds`."""
    share = settings(max_examples=max(1, settings().max_examples * count // 100))
    if not is_long_profile():
        return share
    limited = share if at_length is None else settings(max_examples=at_length)
    return lambda test: _within(seconds, test, limited)


def is_long_profile() -> bool:
    """Whether the current profile runs more than the default number of examples."""
    return settings().max_examples > 100


def sampled(cases: Iterable[T], every: int) -> list[T]:
    """Returns every case under the profiles `long` and `every-case`, otherwise one of `every` consecutive ones."""
    has_all = is_long_profile() or settings.get_current_profile_name() == "every-case"
    return list(cases)[:: 1 if has_all else every]


def _within(seconds: float, test: F, share: settings) -> F:
    """Makes the test pass once `seconds` are over, unless an example has failed."""
    handle: Any = getattr(test, "hypothesis")  # noqa: B009  # set by `hypothesis.given`
    body = handle.inner_test
    end, failed = 0.0, False

    @functools.wraps(body)
    def timed(*args: Any, **kwargs: Any) -> None:
        nonlocal failed
        try:
            body(*args, **kwargs)
        except Exception:
            failed = True
            raise
        if time.monotonic() > end and not failed:  # checked after the body, when all draws of this example are done
            raise TimeIsUp

    handle.inner_test = timed
    limited = share(test)

    @functools.wraps(limited)
    def run(*args: Any, **kwargs: Any) -> None:
        nonlocal end, failed
        end, failed = time.monotonic() + seconds, False
        with suppress(TimeIsUp):
            limited(*args, **kwargs)

    return cast(F, run)
