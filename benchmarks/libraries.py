"""The two libraries that are compared, behind one type: a program is written once and made with either."""

from __future__ import annotations

from types import ModuleType
from typing import Final, final

import jax
import jax.numpy as jnp
import jax.scipy.linalg
from attrs import frozen

import tracefx as fx
import tracefx.nn
import tracefx.numpy as fnp


@final
@frozen
class Library:
    """A library's transformations, its functions on arrays, and those of neural networks."""

    core: ModuleType
    numpy: ModuleType
    nn: ModuleType


OURS: Final = Library(fx, fnp, tracefx.nn)
JAX: Final = Library(jax, jnp, jax.nn)
