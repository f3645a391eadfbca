"""`mulhi` compared with Python's integers, in programs compiled with default options."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest

import tracefx as fx
from tracefx import lax
from tracefx.core import DType, dtypes

INTEGERS: Final = [dtype for dtype in dtypes.ALL_DTYPES if dtypes.is_integer(dtype)]

pytestmark = pytest.mark.usefixtures("optimised")  # XLA emits fused computations differently


def pairs(dtype: DType) -> tuple[list[int], list[int]]:
    least, most = int(dtypes.iinfo(dtype).min), int(dtypes.iinfo(dtype).max)
    edges = sorted({least, least + 1, -1 if least else 0, 0, 1, most // 3 * 2, most - 1, most})
    return [x for x in edges for _ in edges], edges * len(edges)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_mulhi_matches_python_integers(dtype: DType) -> None:
    xs, ys = pairs(dtype)
    want = [x * y >> dtypes.itemsize_bits(dtype) for x, y in zip(xs, ys, strict=True)]
    x, y = np.array(xs, dtype), np.array(ys, dtype)
    with fx.enable_x64():
        fused = fx.jit(lambda x, y: lax.bitwise_or(lax.mulhi(x, y), lax.bitwise_xor(y, y)))
        broadcast = fx.jit(lax.mulhi)(x[0], y[:1])
        for f in (lax.mulhi, fx.jit(lax.mulhi), fused):
            assert [int(each) for each in np.asarray(f(x, y))] == want
    assert int(np.asarray(broadcast)[0]) == want[0]
