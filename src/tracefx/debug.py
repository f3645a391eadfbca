"""Callbacks and prints inside programs, and pictures of shardings, under the names of `jax.debug`.

>>> import tracefx as fx
>>> @fx.jit
... def f(x):
...     fx.debug.print("x is {}", x)
...     return x + 1
>>> f(2)
x is 2
Array(3, dtype=int32, weak_type=True)
"""

from __future__ import annotations

from tracefx.transforms.callbacks import debug_callback as callback
from tracefx.transforms.callbacks import debug_print as print
from tracefx.transforms.sharding_visualization import visualize_array_sharding, visualize_sharding

__all__ = ["callback", "print", "visualize_array_sharding", "visualize_sharding"]
