"""Elementwise primitives and reductions on operands of every dtype and of random shapes, including edge values."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

import tracefx as fx
from tests.comparison import assert_same
from tests.compiling import with_either_compile_options
from tests.laws.examples import is_long_profile, limit_examples
from tests.laws.samples import SAMPLES, jax_function
from tests.ops.harness import edges
from tests.versions import ulps_beside_jax
from tracefx import testing
from tracefx.core import Array, DType, NDArray, ShapedArray, dtypes, from_numpy, to_numpy
from tracefx.core.handler import bind1
from tracefx.core.primitive import Primitive
from tracefx.ops.elementwise.bit_representation import ReducePrecision
from tracefx.ops.elementwise.elementwise import Elementwise
from tracefx.ops.operation import CompiledOperation
from tracefx.ops.reductions.cumulative import CumLogSumExp, CumMax, CumMin, CumProd, CumSum
from tracefx.ops.reductions.reduction import (
    ArgMax,
    ArgMin,
    ReduceAnd,
    ReduceMax,
    ReduceMin,
    ReduceOr,
    ReduceProd,
    ReduceXor,
)
from tracefx.ops.structural import ConvertElementType, ReduceSum
from tracefx.testing import strategies as drawn
from tracefx.testing.strategies import arrays, shapes
from tracefx.testing.tolerances import ulps_of

PRIMITIVES: Final = [samples[0].prim for samples in SAMPLES.values()]
ELEMENTWISE: Final = [prim for prim in PRIMITIVES if isinstance(prim, Elementwise)]
LAWS: Final = (
    testing.abstract_eval_matches_evaluation,
    testing.staging_changes_nothing,
    testing.identity_changes_nothing,
    testing.text_round_trips,
)


@st.composite
def operands(
    draw: DrawFn, prim: Elementwise, count: int, weak: bool, least_bits: int = 1, same_shape: bool = False
) -> list[Array]:
    def accepts(dtype: DType) -> bool:
        return prim.domain.accepts(dtype) and dtypes.itemsize_bits(dtype) >= least_bits

    dtype = draw(drawn.dtypes(accepts))
    shape = draw(shapes(max_dims=2, max_side=2))
    chosen = []
    for i in range(count):
        has_axes = (
            same_shape or (i, count) == (1, 3) or draw(st.booleans())
        )  # the bounds of clamp must not have more axes than its operand
        chosen.append(draw(arrays(dtype, shape if has_axes else (), weak=weak)))
    return chosen


@pytest.mark.parametrize("prim", ELEMENTWISE, ids=lambda prim: prim.name)
@limit_examples(8)
@given(st.data())
def test_laws_hold_on_edge_values(prim: Elementwise, data: st.DataObject) -> None:
    # Evaluating a primitive without a NumPy kernel compiles it once per batched type, so the vmap law is skipped.
    laws = LAWS if isinstance(prim, CompiledOperation) else (*LAWS, testing.vmap_is_a_loop)
    sample = SAMPLES[prim.name][0]
    xs = data.draw(operands(prim, len(sample.operands[0]), weak=True))
    if sample.within is None:
        testing.check_primitive(prim, xs, laws=laws)
    else:
        testing.check_function(sample.within, *xs, laws=laws)


# ------------------------------------------------------------------ comparison with JAX

LEAST_BITS: Final[Mapping[str, int]] = MappingProxyType(
    {"abs": 8, "mulhi": 8, "population_count": 8, "reduce_and": 8, "reduce_or": 8, "reduce_xor": 8}
)
"""Minimal bit widths: JAX refuses narrower integers, or counts the bits of the whole byte that stores one."""


def flush_ambiguous_values(x: NDArray) -> NDArray:
    """Replaces values on which compiled code and NumPy may differ with zero.

    These are subnormals, which compiled code may flush, and complex numbers with an infinite or NaN part."""
    if not dtypes.is_inexact(x.dtype):
        return x
    if dtypes.is_complex(x.dtype):
        return np.where(np.isfinite(x), x, 0)
    wide = x.astype(np.float64)
    is_subnormal = np.abs(wide) < float(dtypes.finfo(x.dtype).smallest_normal)
    return np.where(is_subnormal, np.copysign(0.0, wide), wide).astype(x.dtype)


@pytest.mark.parametrize("prim", ELEMENTWISE, ids=lambda prim: prim.name)
@limit_examples(2)
@given(st.data())
def test_elementwise_values_match_jax(prim: Elementwise, data: st.DataObject) -> None:
    fixes_first_operand = prim.name in ("polygamma", "zeta")  # the first operand is fixed, as in the samples
    count = 2 if fixes_first_operand else len(SAMPLES[prim.name][0].operands[0])
    same_shape = prim.name == "mulhi"  # XLA's CPU backend lacks signed mulhi if a broadcast is fused into it
    one = operands(prim, count, weak=False, least_bits=LEAST_BITS.get(prim.name, 1), same_shape=same_shape)
    calls = [[flush_ambiguous_values(to_numpy(x)) for x in xs] for xs in data.draw(lists_of_eight(one))]
    with_either_compile_options(lambda: check_against_jax(prim, calls))


@pytest.mark.parametrize("prim", ELEMENTWISE, ids=lambda prim: prim.name)
def test_all_tuples_of_edge_values_match_jax(prim: Elementwise) -> None:
    """In every dtype; evaluated, and compiled in one program."""
    count = len(SAMPLES[prim.name][0].operands[0])
    least_bits = LEAST_BITS.get(prim.name, 1)
    calls = []
    for dtype in filter(prim.domain.accepts, drawn.DTYPES):
        if dtypes.itemsize_bits(dtype) >= least_bits:
            x = edges(dtype)
            calls.append([x[index] for index in np.indices([x.size] * count).reshape(count, -1)])
    orders = {"polygamma": 1, "zeta": 3}.get(prim.name)
    calls = calls if orders is None else [[np.full_like(x, orders), x] for (x,) in calls]

    def check() -> None:
        check_against_jax(prim, calls)
        arguments = [[from_numpy(x, x.dtype) for x in xs] for xs in calls]
        compiled = fx.jit(lambda arguments: [bind1(prim, *xs) for xs in arguments])(arguments)
        for xs, got in zip(arguments, compiled, strict=True):
            assert_same(got, bind1(prim, *xs), ulps_of(prim.name), f"compiled {prim} of {xs}")

    with_either_compile_options(check)


T = TypeVar("T")


def lists_of_eight(one: st.SearchStrategy[T]) -> st.SearchStrategy[list[T]]:
    """Lists of eight.

    JAX computes the results for a whole list in one program, because compilation takes most of the time."""
    return st.lists(one, min_size=1, max_size=8) if is_long_profile() else st.lists(one, min_size=8, max_size=8)


def check_against_jax(prim: Primitive, calls: Sequence[Sequence[NDArray]]) -> None:
    """Checks that the results of `prim` have JAX's types and that its values are within the error bound.

    Equal calls are compiled once: Hypothesis begins with a list of the simplest one."""
    f = jax_function(prim)
    distinct = list({tuple([(x.dtype, x.shape, x.tobytes()) for x in xs]): xs for xs in calls}.values())
    given = [[jnp.asarray(x, x.dtype) for x in xs] for xs in distinct]
    expected = jax.jit(lambda given: [f(*xs) for xs in given])(given)
    for xs, want in zip(distinct, expected, strict=True):
        got = bind1(prim, *[from_numpy(x, x.dtype) for x in xs])
        assert_same(got, want, ulps_beside_jax(prim.name, xs[0].dtype, ulps_of(prim.name)), f"{prim} of {xs}")


# ------------------------------------------------------------------ unary primitives that are not elementwise


def array_with_axis(draw: DrawFn, prim: Primitive) -> Array:
    """An array with at least one axis; axes may be empty."""

    def accepts(dtype: DType) -> bool:
        if dtypes.itemsize_bits(dtype) < LEAST_BITS.get(prim.name, 1):
            return False
        if isinstance(prim, CumLogSumExp) and dtypes.is_complex(dtype):
            return False  # JAX adds the identity to each element, with a rounding error; see `tests/ops`
        with suppress(TypeError):
            prim.abstract_eval(ShapedArray((2, 2), dtype))
            return True
        return False

    shape = draw(st.sampled_from([(0,), (1,), (2,), (3,), (2, 2), (0, 2), (3, 0)]))
    return draw(arrays(draw(drawn.dtypes(accepts)), shape))


ALONG: Final[tuple[Primitive, ...]] = (
    ReducePrecision(5, 10),
    ReducePrecision(8, 7),
    *[ConvertElementType(dtype) for dtype in drawn.DTYPES],
    *[kind((0,)) for kind in (ReduceSum, ReduceProd, ReduceMax, ReduceMin, ReduceAnd, ReduceOr, ReduceXor)],
    *[kind((0,), dtypes.int32) for kind in (ArgMax, ArgMin)],
    *[kind(0, back) for kind in (CumSum, CumProd, CumMax, CumMin, CumLogSumExp) for back in (False, True)],
)


@pytest.mark.parametrize("prim", ALONG, ids=str)
@limit_examples(2, at_length=60)
@given(st.data())
def test_reductions_and_conversions_match_jax(prim: Primitive, data: st.DataObject) -> None:
    xs = [flush_ambiguous_values(to_numpy(x)) for x in data.draw(lists_of_eight(st.composite(array_with_axis)(prim)))]
    if isinstance(prim, ArgMax | ArgMin):
        xs = [x for x in xs if x.shape[0]]  # both libraries refuse empty axes
    with warnings.catch_warnings(), jax.enable_x64(True):  # JAX's argmax refuses 64-bit index dtypes without x64
        warnings.simplefilter("ignore")  # JAX warns about discarded imaginary parts
        with_either_compile_options(lambda: check_against_jax(prim, [[x] for x in xs]))
