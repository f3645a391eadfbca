"""Random numbers from explicit keys, as in `jax.random`: the same key gives the same numbers in both libraries.

Split a key before use, and use each key once. Functions that take a key raise TypeError for anything else, and
ValueError for an array of keys, over which `vmap` maps.

>>> from tracefx import random
>>> key = random.key(42)
>>> first, second = random.split(key)
>>> random.bits(first, (2,)).tolist() == random.bits(second, (2,)).tolist()
False
"""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
