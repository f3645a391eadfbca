"""`tracefx.nn`: the functions of neural networks, with the names and arguments of `jax.nn`."""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING

from tracefx.nn.activations import celu as celu
from tracefx.nn.activations import elu as elu
from tracefx.nn.activations import gelu as gelu
from tracefx.nn.activations import glu as glu
from tracefx.nn.activations import hard_sigmoid as hard_sigmoid
from tracefx.nn.activations import hard_silu as hard_silu
from tracefx.nn.activations import hard_swish as hard_swish
from tracefx.nn.activations import hard_tanh as hard_tanh
from tracefx.nn.activations import identity as identity
from tracefx.nn.activations import leaky_relu as leaky_relu
from tracefx.nn.activations import log1mexp as log1mexp
from tracefx.nn.activations import log_sigmoid as log_sigmoid
from tracefx.nn.activations import mish as mish
from tracefx.nn.activations import relu as relu
from tracefx.nn.activations import relu6 as relu6
from tracefx.nn.activations import selu as selu
from tracefx.nn.activations import sigmoid as sigmoid
from tracefx.nn.activations import silu as silu
from tracefx.nn.activations import soft_sign as soft_sign
from tracefx.nn.activations import softplus as softplus
from tracefx.nn.activations import sparse_plus as sparse_plus
from tracefx.nn.activations import sparse_sigmoid as sparse_sigmoid
from tracefx.nn.activations import squareplus as squareplus
from tracefx.nn.activations import swish as swish
from tracefx.nn.attention import dot_product_attention as dot_product_attention
from tracefx.nn.attention import scaled_dot_general as scaled_dot_general
from tracefx.nn.attention import scaled_matmul as scaled_matmul
from tracefx.nn.classes import one_hot as one_hot
from tracefx.nn.normalizing import log_softmax as log_softmax
from tracefx.nn.normalizing import logmeanexp as logmeanexp
from tracefx.nn.normalizing import logsumexp as logsumexp
from tracefx.nn.normalizing import softmax as softmax
from tracefx.nn.normalizing import standardize as standardize
from tracefx.numpy import tanh as tanh

if _TYPE_CHECKING:
    from tracefx.nn import initializers as initializers


def __getattr__(name: str) -> object:
    """Initializers bring random numbers along, which programs that only compute do without."""
    if name == "initializers":
        return _importlib.import_module("tracefx.nn.initializers")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
