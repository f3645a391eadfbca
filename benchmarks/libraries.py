"""The two libraries under one type, so that one program runs with either."""

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
    """The namespaces of a library: transformations, array functions, functions of neural networks."""

    core: ModuleType
    numpy: ModuleType
    nn: ModuleType


OURS: Final = Library(fx, fnp, tracefx.nn)
JAX: Final = Library(jax, jnp, jax.nn)
