"""`jax.debug_nans` and `jax.debug_infs`: a handler that looks at the results of operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import ConcreteArray, Value, dtypes, to_numpy
from tracefx.core.handler import Handler
from tracefx.core.primitive import Primitive
from tracefx.source_location import here


@final
@frozen(eq=False)
class ResultChecker(Handler):
    """Raises an error where the result of an operation, or of a compiled program, has NaN or infinity.

    Args:
        inner: The handler that computes the results.
        infinities: Whether it looks for infinities instead of NaN.
    """

    title = "checks of results"
    inner: Handler
    infinities: bool

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        outs = self.inner.bind(prim, args)
        for out in outs:
            if isinstance(out, ConcreteArray) and dtypes.is_inexact(out.aval.dtype):
                x = to_numpy(out)
                if (np.isinf(x) if self.infinities else np.isnan(x)).any():
                    found = "inf" if self.infinities else "nan"
                    raise FloatingPointError(f"{prim.name} at {here()} returned {found} in {out.aval}")
        return outs
