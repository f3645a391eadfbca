"""How many examples the laws are run on, and for how long at most."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

from hypothesis import settings

F = TypeVar("F", bound=Callable[..., None])

SECONDS: Final = float(os.environ.get("LAWS_SECONDS", "10"))
"""How long one law is run on ever more examples under the profile `long`. Shrinking a failure takes what it takes."""


class TimeIsUp(BaseException):
    """The time is over. Hypothesis lets pass what is no `Exception`."""


def limit_examples(count: int, at_length: int | None = None, seconds: float = SECONDS) -> Callable[[F], F]:
    """So many in the place of the usual hundred, and that share of what another profile asks for.

    Under the profile `long` it is `at_length`, if given, and the test ends with success after so many seconds.
    """
    share = settings(max_examples=max(1, settings().max_examples * count // 100))
    if not is_long_profile():
        return share
    whole = share if at_length is None else settings(max_examples=at_length)
    return lambda test: _within(seconds, test, whole)


def is_long_profile() -> bool:
    """Whether there is time for more than usual."""
    return settings().max_examples > 100


def _within(seconds: float, test: F, share: settings) -> F:
    """The test, which ends with success once the time is over, unless an example has failed."""
    handle: Any = getattr(test, "hypothesis")  # noqa: B009  # what `given` adds to the function
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
        if time.monotonic() > end and not failed:  # now that all is drawn that this example draws
            raise TimeIsUp

    handle.inner_test = timed
    whole = share(test)

    @functools.wraps(whole)
    def run(*args: Any, **kwargs: Any) -> None:
        nonlocal end, failed
        end, failed = time.monotonic() + seconds, False
        with suppress(TimeIsUp):
            whole(*args, **kwargs)

    return cast(F, run)
