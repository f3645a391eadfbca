"""What a value of a linear program depends on: for each element a set of inputs. What depends on none may be known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.handlers.sparsity.index_sets import EMPTY_SET, SetIds


@final
class Dependence:
    """A value: `ids` has a set of inputs for each element, or is `None` where it depends on none.

    A value that depends on none may be known: it is computed when it is asked for, once.
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
        return self.ids is None and self._compute is not None

    def value(self) -> NDArray | None:
        """The value, if it can be had."""
        if not self.is_known:
            return None
        if self._known is None:
            assert self._compute is not None
            self._known = self._compute()
        return self._known

    def sets(self) -> SetIds:
        """A set for each element."""
        return np.full(self.aval.shape, EMPTY_SET, np.int64) if self.ids is None else self.ids


def unknown_dependence(aval: ShapedArray) -> Dependence:
    return Dependence(aval)


def known_dependence(aval: ShapedArray, x: NDArray) -> Dependence:
    return Dependence(aval, None, lambda: x)


def same_dependence(x: Dependence, y: Dependence) -> bool:
    """Whether nothing more is to be found of `y` than is known of `x`."""
    if x.ids is None or y.ids is None:
        return x.ids is y.ids and x.is_known == y.is_known
    return bool(np.array_equal(x.ids, y.ids))


def all_known(xs: Sequence[Dependence]) -> bool:
    return all(x.is_known for x in xs)
