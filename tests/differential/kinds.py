"""Records of `tracefx.numpy`: properties and promotion of dtypes. Results are not arrays."""

from __future__ import annotations

from typing import Final

import jax.numpy as jnp
import numpy as np

from tests.differential.records import Call, Record, Weak, bools, call, f32, i32, record


def plain(name: str, *calls: Call, refused: tuple[Call, ...]) -> Record:
    return record(name, *calls, refused=refused, is_plain=True, derivatives=False, batched=False, dtypes=())


NARROW: Final = np.ones(1, np.float16)

RECORDS: Final[tuple[Record, ...]] = (
    plain(
        "result_type",
        call(f32(1), 2),
        call(i32(1), 2.5),
        call(i32(1), f32(1)),
        call("int8", "uint8"),
        call(True, 1),
        call(Weak(f32(1)), f32(1)),
        call(1j),
        call(int, float),
        call(np.float64(1)),
        call("bfloat16", "float16"),
        call(bools(True), 1),
        call("float64", 1),
        call(np.ones(2), 1),
        call(NARROW, 2.0),
        call("int64", 2.0),
        refused=(call(), call("other"), call(None, None)),
    ),
    plain(
        "promote_types",
        call("int8", "uint8"),
        call("int32", "bfloat16"),
        call("float64", "int8"),
        call("int8", int),
        call("bool", "bool"),
        call(float, "float16"),
        call("int64", "float32"),
        call("bfloat16", "float16"),
        call("complex64", "float64"),
        refused=(call("other", "int8"), call("int8", 1)),
    ),
    plain(
        "isdtype",
        call("int8", "integral"),
        call("int8", "signed integer"),
        call("uint8", "signed integer"),
        call("bool", "bool"),
        call("float32", "numeric"),
        call("bfloat16", "real floating"),
        call("complex64", "complex floating"),
        call("int8", ("real floating", "bool")),
        call("int8", "int8"),
        refused=(call("int8", "other"), call("other", "bool")),
    ),
    plain(
        "issubdtype",
        call("bfloat16", jnp.floating),
        call("int4", jnp.integer),
        call("int8", np.int8),
        call("int8", "int8"),
        call("float32", "float64"),
        call(jnp.floating, jnp.inexact),
        call(np.uint8, jnp.signedinteger),
        call("bool", jnp.number),
        call(np.complex64, jnp.complexfloating),
        refused=(),
    ),
)
