"""Pytrees: nested tuples, lists, dicts and registered classes with arrays as leaves, under the names of `jax.tree`.

Types that are registered with `jax.tree_util`, such as those of Equinox, Flax and Optax, are nodes here, too.

>>> from tracefx import tree
>>> tree.map(lambda x, y: x + y, {"w": 1, "b": (2, None)}, {"w": 10, "b": (20, None)})
{'b': (22, None), 'w': 11}
"""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
