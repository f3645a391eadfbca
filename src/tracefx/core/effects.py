"""Effects: the side effects of primitives, and the named axes on which they depend."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, final

from attrs import frozen
from typing_extensions import override


class Effect:
    """Base class of effects. Dead-code elimination keeps equations with `observable` effects.

    Attributes:
        observable: Whether the equation must be kept even if its results are unused.
        ordered: Whether equations with such effects run in program order, relative to all other ordered effects.
        per_batch_element: Whether the equation runs once per batch element under `vmap`, even if no operand is batched.

    >>> from tracefx import debug, make_jaxpr
    >>> (effect,) = make_jaxpr(lambda x: debug.print("{}", x))(1.0).effects
    >>> effect.observable, effect.ordered, effect.per_batch_element
    (True, False, False)
    """

    __slots__ = ()
    observable = True
    ordered = False
    per_batch_element = False


@frozen
class NamedAxisEffect(Effect):
    """The primitive refers to a mapped axis by name. The handler that binds the axis name removes the effect."""

    observable = False
    name: Hashable

    @override
    def __str__(self) -> str:
        return f"axis {self.name!r}"


@final
@frozen
class IOEffect(Effect):
    """The primitive has a side effect on the host, which must be neither dropped nor duplicated."""

    ordered: bool = False

    @override
    def __str__(self) -> str:
        return "OrderedIO" if self.ordered else "IO"


@frozen
class DebugEffect(Effect):
    """The primitive reports values of the program, e.g. prints them, and runs as often as the code it reports on."""

    ordered: bool = False

    @override
    def __str__(self) -> str:
        return "OrderedDebug" if self.ordered else "Debug"


@final
@frozen
class SowEffect(DebugEffect):
    """The primitive reports a value to the handlers around it. In a compiled program it does nothing."""

    tag: str = ""

    @override
    def __str__(self) -> str:
        return f"Sow {self.tag!r}"


Effects = frozenset[Effect]
NO_EFFECTS: Final[Effects] = frozenset()


def any_per_batch_element(effects: Effects) -> bool:
    """Whether one of the effects happens once per batch element, even if no operand is batched."""
    return any(effect.per_batch_element for effect in effects)


def any_ordered(effects: Effects) -> bool:
    """Whether one of the effects is ordered."""
    return any(effect.ordered for effect in effects)


def non_debug_effects(effects: Effects) -> list[Effect]:
    """Returns the observable effects other than debug effects."""
    return [effect for effect in effects if effect.observable and not isinstance(effect, DebugEffect)]
