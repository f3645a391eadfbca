"""First-order primitives, one package per family, with the typed functions that bind them.

The functions exported here are those of `jax.ops`.

>>> import numpy as np
>>> from tracefx import ops
>>> ops.segment_sum(np.array([1, 2, 3]), np.array([0, 2, 2])).tolist()
[1, 0, 5]
"""

from tracefx.ops.reductions.segment_reductions import segment_max as segment_max
from tracefx.ops.reductions.segment_reductions import segment_min as segment_min
from tracefx.ops.reductions.segment_reductions import segment_prod as segment_prod
from tracefx.ops.reductions.segment_reductions import segment_sum as segment_sum

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]
