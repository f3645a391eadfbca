"""`select_and_gather_add` and gradients of windowed extremes: unrolled lowering for accelerators, dilated windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

import jax
import numpy as np
import pytest
from attrs import frozen
from jax import lax as jax_lax
from typing_extensions import override

import tracefx as fx
from tracefx import lax
from tracefx.core import ShapedArray
from tracefx.core.handler import bind1
from tracefx.core.primitive import Primitive
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.ops.reductions.select_and_scatter import SelectAndGatherAdd, SelectComparator

X: Final = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
T: Final = np.random.default_rng(1).normal(size=(5, 6)).astype(np.float32)
WINDOWS: Final[dict[str, Any]] = {
    "plain": ((2, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
    "strided": ((2, 3), (2, 1), ((1, 0), (0, 2)), (1, 1), (1, 1)),
    "dilated": ((3, 2), (1, 2), ((1, 2), (0, 1)), (2, 1), (1, 3)),
    "cut": ((2, 2), (1, 1), ((-1, 0), (1, -2)), (1, 1), (1, 1)),
    "too large": ((9, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
}


@final
@frozen(eq=False)
class Unrolled(Primitive, Lowerable):
    """The selection with its unrolled lowering for accelerators."""

    name = "unrolled"
    selection: SelectAndGatherAdd

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return self.selection.abstract_eval(*avals)

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        (out,) = self.abstract_eval(*[x.aval for x in operands])
        return [self.selection.emit_unrolled(builder, out, *operands)]


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("selecting", SelectComparator)
def test_unrolled_lowering_matches_reduce_window(selecting: SelectComparator, name: str) -> None:
    prim = SelectAndGatherAdd(selecting, *WINDOWS[name])
    want = np.asarray(bind1(prim, T, X))
    for variant in (prim, Unrolled(prim)):
        got = fx.jit(lambda t, x, variant=variant: bind1(variant, t, x))(T, X)
        np.testing.assert_array_equal(np.asarray(got), want)


def test_lowering_for_accelerators_is_unrolled() -> None:
    f = fx.jit(fx.grad(lambda t: bind1(SelectAndGatherAdd(SelectComparator.GE, *WINDOWS["plain"]), t * t, X).sum()))
    forward = fx.jit(lambda t: bind1(SelectAndGatherAdd(SelectComparator.GE, *WINDOWS["plain"]), t, X))
    assert "reduce_window" not in fx.export(forward, platforms=("cuda",))(T).mlir_module()
    assert "reduce_window" in fx.export(forward, platforms=("cpu",))(T).mlir_module()
    assert "select_and_scatter" in fx.export(f, platforms=("cuda",))(T).mlir_module()


@pytest.mark.parametrize("name", ["dilated", "cut"])
@pytest.mark.parametrize("largest", [True, False])
def test_reverse_mode_of_dilated_and_cropped_windows(largest: bool, name: str) -> None:
    """JAX lacks reverse mode for dilated windows and negative padding; compared with its forward mode."""
    sizes, strides, padding, base, window_dilation = WINDOWS[name]

    def pooled(library: Any, x: Any) -> Any:
        start, choose = (-np.inf, library.max) if largest else (np.inf, library.min)
        return library.reduce_window(x, np.float32(start), choose, sizes, strides, padding, base, window_dilation)

    whole = fx.jacrev(lambda x: pooled(lax, x))(X)
    np.testing.assert_array_equal(np.asarray(whole), np.asarray(jax.jacfwd(lambda x: pooled(jax_lax, x))(X)))
