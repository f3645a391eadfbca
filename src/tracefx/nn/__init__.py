"""Neural network functions, with the names and arguments of `jax.nn`."""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING

from tracefx.nn.activations import (
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_swish,
    hard_tanh,
    identity,
    leaky_relu,
    log1mexp,
    log_sigmoid,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_sign,
    softplus,
    sparse_plus,
    sparse_sigmoid,
    squareplus,
    swish,
)
from tracefx.nn.attention import dot_product_attention, scaled_dot_general, scaled_matmul
from tracefx.nn.normalization import log_softmax, logmeanexp, logsumexp, softmax, standardize
from tracefx.nn.one_hot_encoding import one_hot
from tracefx.numpy import tanh

if _TYPE_CHECKING:
    from tracefx.nn import initializers as initializers

__all__ = [
    "celu",
    "dot_product_attention",
    "elu",
    "gelu",
    "glu",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "identity",
    "leaky_relu",
    "log1mexp",
    "log_sigmoid",
    "log_softmax",
    "logmeanexp",
    "logsumexp",
    "mish",
    "one_hot",
    "relu",
    "relu6",
    "scaled_dot_general",
    "scaled_matmul",
    "selu",
    "sigmoid",
    "silu",
    "soft_sign",
    "softmax",
    "softplus",
    "sparse_plus",
    "sparse_sigmoid",
    "squareplus",
    "standardize",
    "swish",
    "tanh",
]


def __getattr__(name: str) -> object:
    """Imports `initializers` lazily: it needs `tracefx.random`, which programs without random numbers do not load."""
    if name == "initializers":
        return _importlib.import_module("tracefx.nn.initializers")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
