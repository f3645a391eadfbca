"""What an operation does or needs beside computing its outputs from its inputs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, final

from attrs import frozen
from typing_extensions import override


class Effect:
    """Base of all effects. Dead-code elimination keeps an equation whose effects are `observable`.

    Equations with `ordered` effects happen one after the other, in the order of the program, whatever their effects.
    What has an effect that is of `each` happens for each element of a batch, even where no operand differs along it.
    """

    __slots__ = ()
    observable = True
    ordered = False
    per_batch_element = False


@frozen
class NamedAxisEffect(Effect):
    """The operation refers to a mapped axis by its name; the handler that binds the name removes the effect."""

    observable = False
    name: Hashable

    @override
    def __str__(self) -> str:
        return f"axis {self.name!r}"


@final
@frozen
class IOEffect(Effect):
    """The operation does on the host what a program must neither drop nor repeat."""

    ordered: bool = False

    @override
    def __str__(self) -> str:
        return "OrderedIO" if self.ordered else "IO"


@frozen
class DebugEffect(Effect):
    """The operation shows what a program does, and so happens as often as what it shows."""

    ordered: bool = False

    @override
    def __str__(self) -> str:
        return "OrderedDebug" if self.ordered else "Debug"


@final
@frozen
class SowEffect(DebugEffect):
    """The operation shows a value to the handlers around, and does nothing once the program is compiled."""

    tag: str = ""

    @override
    def __str__(self) -> str:
        return f"Sow {self.tag!r}"


Effects = frozenset[Effect]
NO_EFFECTS: Final[Effects] = frozenset()


def any_per_batch_element(effects: Effects) -> bool:
    """Whether what has these effects happens for each element of a batch, whatever it is applied to."""
    return any(effect.per_batch_element for effect in effects)


def any_ordered(effects: Effects) -> bool:
    """Whether what has these effects must keep its place among others that have such."""
    return any(effect.ordered for effect in effects)


def non_debug_effects(effects: Effects) -> list[Effect]:
    """Those that make a difference beyond showing what a program does, however often that is done."""
    return [effect for effect in effects if effect.observable and not isinstance(effect, DebugEffect)]
