"""What an operation does or needs beside computing its outputs from its inputs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from attrs import frozen
from typing_extensions import override


class Effect:
    """Base of all effects. Dead-code elimination keeps an equation whose effects are `observable`."""

    __slots__ = ()
    observable = True


@frozen
class NamedAxis(Effect):
    """The operation refers to a mapped axis by its name; the handler that binds the name removes the effect."""

    observable = False
    name: Hashable

    @override
    def __str__(self) -> str:
        return f"axis {self.name!r}"


Effects = frozenset[Effect]
NO_EFFECTS: Final[Effects] = frozenset()
