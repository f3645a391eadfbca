"""Records of building blocks of layers: attention, scaled block products, initializers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tests.differential.draws import WORDS
from tests.differential.records import Call, Function, Library, Record, bools, call, grid, i32, record
from tracefx.testing.tolerances import PROGRAM, SUMMED

QUERY, KEY, VALUE = grid(1, 2, 4, 2), grid(1, 3, 2, 2, seed=1), grid(1, 3, 2, 2, seed=2)
MANY: Final = [np.concatenate([x, x[:, ::-1]]) for x in (QUERY, KEY, VALUE)]
BIAS: Final = grid(1, 4, 2, 3, seed=3)
MASK: Final = bools([[[True, False, True], [True, True, False]]])[:, None].reshape(1, 1, 2, 3)
LENGTHS: Final = i32(1, 2)


def attention(*calls: Call, **kw: Any) -> Record:
    return record("dot_product_attention", *calls, module="nn", ulps=PROGRAM, dtypes=("bfloat16", "float16"), **kw)


def initializer(name: str, *calls: Call, of: Callable[[Any], Function] | None = None) -> Record:
    """Record of an initializer factory; the samples are the parameters of a layer."""

    def via(library: Library) -> Function:
        make: Function = getattr(library.nn.initializers, name)

        def draw(words: Any, *args: Any, dtype: Any = None, shape: Any = (3, 2, 6, 4), **kw: Any) -> Any:
            initialize = make(*args, **kw) if name not in ("zeros", "ones") else make
            return initialize(library.root.random.wrap_key_data(words), shape, dtype)

        return draw

    def keyed(c: Call) -> Call:
        args, kwargs = c.arguments
        return call(WORDS, *args, **kwargs)

    values = [keyed(c) for c in calls or (call(),)]
    options: Any = {"dtypes": (), "derivatives": False, "batched": False, "ulps": SUMMED}
    return record(name, module="nn.initializers", values=values, via=via, **options)


RECORDS: Final[tuple[Record, ...]] = (
    attention(
        call(QUERY, KEY, VALUE),
        call(QUERY, KEY, VALUE, BIAS, MASK),
        call(*MANY, query_seq_lengths=LENGTHS, key_value_seq_lengths=LENGTHS + 1),
        call(*MANY, is_causal=True, scale=0.3),
        call(*MANY, local_window_size=(1, 0)),
        call(*MANY, local_window_size=1, is_causal=True),
        call(*MANY, mask=MASK, return_residual=True),
        call(*MANY, mask=np.zeros((1, 1, 1, 1), np.bool_)),
        call(QUERY[0], KEY[0], VALUE[0]),
        refused=[
            call(QUERY, KEY, VALUE[:, :2]),
            call(MANY[0], KEY, VALUE),
            call(QUERY[:, :, :3], KEY, VALUE),
            call(QUERY, KEY, VALUE, mask=BIAS),
            call(QUERY, KEY, VALUE, BIAS[:, :3]),
            call(*MANY, query_seq_lengths=i32(1, 1, 1)),
        ],
    ),
    initializer("zeros"),
    initializer("ones"),
    initializer("constant", call(2.5), call(3, dtype="int32")),
    initializer("uniform", call(0.5)),
    initializer("normal", call(0.5), call(0.5, dtype="complex64")),
    initializer("truncated_normal", call(0.5, lower=-1.0, upper=3.0)),
    initializer(
        "variance_scaling",
        call(2.0, "fan_geo_avg", "normal", in_axis=(1, 2), batch_axis=0),
        call(2.0, "fan_out", "uniform"),
        call(2.0, "fan_avg", "truncated_normal", dtype="complex64"),
    ),
    initializer("glorot_uniform", call(), call(dtype="complex64")),
    initializer("glorot_normal"),
    initializer("lecun_uniform"),
    initializer("lecun_normal", call(), call(dtype="complex64")),
    initializer("he_uniform"),
    initializer("he_normal", call(), call(dtype="bfloat16")),
    initializer("orthogonal", call(2.0, 1)),
    initializer("delta_orthogonal", *[call(shape=s) for s in ((3, 2, 4), (3, 2, 2, 4), (1, 3, 2, 2, 2))]),
)
