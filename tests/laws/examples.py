"""How many examples the laws are run on."""

from __future__ import annotations

from hypothesis import settings


def few(count: int) -> settings:
    """So many in the place of the usual hundred, and that share of what another profile asks for."""
    return settings(max_examples=max(1, settings().max_examples * count // 100))


def is_long() -> bool:
    """Whether there is time for more than usual."""
    return settings().max_examples > 100
