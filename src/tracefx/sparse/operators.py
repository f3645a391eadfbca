"""`SPARSIFY`, the slot of the transformation by which the operators of sparse arrays are implemented."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tracefx.core.late_binding import LateBound

SPARSIFY: Final = LateBound[Callable[[Callable[..., Any]], Callable[..., Any]]]("sparsify")
"""`tracefx.sparse.sparsify`: operators of sparse arrays are functions of `tracefx.numpy` under it."""
