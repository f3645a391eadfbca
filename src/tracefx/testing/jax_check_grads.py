"""`jax.test_util.check_grads`, for programs for JAX: `tracefx.testing.check_grads` with JAX's arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracefx.testing import derivatives
from tracefx.testing.tolerances import Ulps


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int,
    modes: Sequence[Any] = derivatives.MODES,
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
) -> None:
    """Checks derivatives against finite differences, as `tracefx.testing.check_grads` does.

    Args:
        f: The function.
        args: Its arguments.
        order: The highest order of the derivatives.
        modes: `"fwd"`, `"rev"`, or both, which is the default.
        atol: The absolute tolerance; None, the default, means the relative one.
        rtol: The relative tolerance; None, the default, means the absolute one, or that of tracefx if that is None too.
        eps: Ignored: the step of the finite differences depends on the dtype.

    Raises:
        AssertionError: If a derivative is wrong.
    """
    relative, absolute = (atol if rtol is None else rtol), (rtol if atol is None else atol)
    ulps = None
    if relative and absolute is not None:
        f64, f32, narrow = (relative / float(np.finfo(dtype).eps) for dtype in (np.float64, np.float32, np.float16))
        ulps = Ulps(f64, f32, narrow, least=absolute / relative)
    derivatives.check_grads(f, *args, order=order, modes=modes, ulps=ulps)
