"""The classes of all first-order primitives, and the functions of `jax.ops`.

An instance of a class is the primitive with particular parameters; `tracefx.extend.bind` applies it, and equations of
jaxprs refer to it. The functions that check arguments and bind primitives are in `tracefx.lax`.

>>> import numpy as np
>>> from tracefx import ops
>>> ops.segment_sum(np.array([1, 2, 3]), np.array([0, 2, 2])).tolist()
[1, 0, 5]
"""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
