"""Running NumPy kernels: without warnings, since XLA gives none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import Context
from typing import Final, TypeVar

import numpy as np

from tracefx.core.dtypes import NDArray

R = TypeVar("R")


def _context_without_warnings() -> Context:
    context = Context()
    context.run(np.errstate(all="ignore").__enter__)
    return context


class _KernelContext(threading.local):
    """A context a thread in which NumPy stays silent; entering it costs 5 ns, `np.errstate` itself 1 µs."""

    run: Callable[..., NDArray]
    """Call a kernel, on the shortest way: as `quietly`, but for the error that `again` takes care of."""

    def __init__(self) -> None:
        self.run = _context_without_warnings().run  # for kernels, which give arrays


KERNEL_CONTEXT: Final = _KernelContext()


def call_kernel(kernel: Callable[..., R], *args: object) -> R:
    """Call a kernel with NumPy's floating-point warnings off. The kernel must not bind operations."""
    run: Callable[..., R] = KERNEL_CONTEXT.run  # type: ignore[assignment]  # it gives what the kernel gives
    try:
        if len(args) == 2:  # written out, since `*args` costs 0.2 µs on the way to a ufunc
            return run(kernel, args[0], args[1])
        if len(args) == 1:
            return run(kernel, args[0])
        return run(kernel, *args)
    except RuntimeError as error:
        return retry_reentrant(error, kernel, *args)


def retry_reentrant(error: RuntimeError, kernel: Callable[..., R], *args: object) -> R:
    """Call a kernel that met `error` at its start, because it interrupts another one of this thread.

    It is called by a finalizer or a signal handler then. Any other error is raised.
    """
    if not str(error).startswith("cannot enter context"):
        raise error
    return _context_without_warnings().run(kernel, *args)
