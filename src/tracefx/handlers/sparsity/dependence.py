"""`Dependence`: for each element of a value in a linear program, the set of inputs that it depends on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from tracefx.core import NDArray, ShapedArray
from tracefx.handlers.sparsity.index_sets import EMPTY_SET, SetIds


@final
class Dependence:
    """The dependence of a value: `ids` has a set of inputs for each element, or is None if it depends on none.

    A value that depends on no inputs may be known; it is computed once, when `value` is first called.
    """

    __slots__ = ("_compute", "_known", "aval", "ids")

    def __init__(
        self, aval: ShapedArray, ids: SetIds | None = None, compute: Callable[[], NDArray] | None = None
    ) -> None:
        self.aval = aval
        self.ids = ids if ids is not None and ids.any() else None
        self._compute = compute
        self._known: NDArray | None = None

    @property
    def is_known(self) -> bool:
        """Whether the value depends on no inputs and can be computed."""
        return self.ids is None and self._compute is not None

    def value(self) -> NDArray | None:
        """Returns the value, or None if it is not known."""
        if not self.is_known:
            return None
        if self._known is None:
            assert self._compute is not None
            self._known = self._compute()
        return self._known

    def sets(self) -> SetIds:
        """Returns the set of each element."""
        return np.full(self.aval.shape, EMPTY_SET, np.int64) if self.ids is None else self.ids


def unknown_dependence(aval: ShapedArray) -> Dependence:
    """Returns a value that depends on no inputs and is not known."""
    return Dependence(aval)


def known_dependence(aval: ShapedArray, x: NDArray) -> Dependence:
    """Returns a known value."""
    return Dependence(aval, None, lambda: x)


def same_dependence(x: Dependence, y: Dependence) -> bool:
    """Returns whether two dependences are equal, so that a fixed point is reached."""
    if x.ids is None or y.ids is None:
        return x.ids is y.ids and x.is_known == y.is_known
    return bool(np.array_equal(x.ids, y.ids))


def all_known(xs: Sequence[Dependence]) -> bool:
    return all(x.is_known for x in xs)
