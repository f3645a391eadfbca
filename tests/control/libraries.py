"""A common interface to tracefx and JAX, for programs that are run with both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
from attrs import frozen
from jax.experimental import io_callback

import tracefx as fx
import tracefx.numpy as fnp

jax.config.update("jax_explicit_x64_dtypes", "allow")


@frozen
class Library:
    """Functions of tracefx or of JAX under common names."""

    top: Any
    np: Any
    io_callback: Callable[..., Any]
    cond: Callable[..., Any]
    scan: Callable[..., Any]
    while_loop: Callable[..., Any]

    @property
    def print(self) -> Callable[..., None]:
        printing: Callable[..., None] = self.top.debug.print
        return printing


TRACEFX: Final = Library(fx, fnp, fx.io_callback, fx.lax.cond, fx.lax.scan, fx.lax.while_loop)
JAX: Final = Library(jax, jnp, io_callback, jax.lax.cond, jax.lax.scan, jax.lax.while_loop)
