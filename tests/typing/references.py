"""Static types of mutable references. Checked by mypy and pyright. The functions are never called."""

from __future__ import annotations

from typing import assert_type

import tracefx as fx
from tracefx import Array, lax
from tracefx.core import ShapedArray
from tracefx.ref import Ref, RefType, RefView


def made_and_read(x: Array) -> None:
    ref = fx.new_ref(x)
    assert_type(ref, Ref)
    assert_type(fx.new_ref(1.0), Ref)
    assert_type(ref[...], Array)
    assert_type(ref[0, 1:], Array)
    assert_type(ref.at[1:], RefView)
    assert_type(ref.at[1:].at[0][...], Array)
    assert_type(ref.swap(2.0, 0), Array)
    assert_type(fx.freeze(ref), Array)
    assert_type(fx.typeof(ref), RefType)
    assert_type(fx.typeof(x), ShapedArray)
    assert_type(fx.ref.get(ref, 0), Array)
    ref[x > 0] = 1.0
    ref[...] += x
    ref.at[0].set(x)


@fx.jit
def step(ref: Ref, x: Array) -> Array:
    ref[0] += x
    return ref[...]


def transformed(ref: Ref, x: Array) -> None:
    assert_type(step(ref, x), Array)
    assert_type(fx.vmap(step)(ref, x), Array)

    def row(carry: Array, row: Ref) -> tuple[Array, Array]:
        row[0] = carry
        return carry + 1.0, row[1]

    assert_type(lax.scan(row, x, ref), tuple[Array, Array])
