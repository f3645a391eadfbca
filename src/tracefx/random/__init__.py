"""Random numbers from keys, as in `jax.random`: the same key gives the same numbers, here and there.

A key is split before it is used, and used once:

>>> from tracefx import random
>>> key = random.key(42)
>>> first, second = random.split(key)
>>> random.bits(first, (2,)).tolist() == random.bits(second, (2,)).tolist()
False
"""

from tracefx.random.keys import PRNGKey as PRNGKey
from tracefx.random.keys import bits as bits
from tracefx.random.keys import clone as clone
from tracefx.random.keys import fold_in as fold_in
from tracefx.random.keys import key as key
from tracefx.random.keys import key_data as key_data
from tracefx.random.keys import key_dtype as key_dtype
from tracefx.random.keys import key_impl as key_impl
from tracefx.random.keys import split as split
from tracefx.random.keys import wrap_key_data as wrap_key_data
