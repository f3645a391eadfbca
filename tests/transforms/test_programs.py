"""Generated programs under generated stacks of transformations, against JAX and algebraic identities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import JAX_TRANSFORM_TOLERANCE, assert_near
from tracefx.passes.check import check_jaxpr
from tracefx.testing import transpose_is_adjoint
from tracefx.testing.generated_programs import TransformedProgram
from tracefx.testing.strategies import transformed_programs

FEW: Final = settings(
    max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def with_x64() -> Iterator[None]:
    """Runs in 64 bits, so that rounding errors stay far below the tolerance."""
    with fx.enable_x64(), jax.enable_x64(True):
        yield


@FEW
@given(transformed_programs())
def test_transform_stacks_agree_with_jax(case: TransformedProgram) -> None:
    inputs = case.inputs()
    want = np.asarray(jax.jit(case.function(jax, jnp))(*inputs))
    got = np.asarray(case.function(fx, fnp)(*inputs))
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert_near(got, want, JAX_TRANSFORM_TOLERANCE, "as it is")


@FEW
@given(transformed_programs())
def test_transform_stacks_trace_to_well_typed_equivalent_programs(case: TransformedProgram) -> None:
    inputs = case.inputs()
    f = case.function(fx, fnp)
    closed = fx.make_jaxpr(f)(*inputs)
    check_jaxpr(closed.jaxpr)
    want = np.asarray(f(*inputs))
    (staged,) = fx.jaxpr_as_fun(closed)(*inputs)
    assert_near(staged, want, JAX_TRANSFORM_TOLERANCE, "staged and evaluated")
    assert_near(fx.jit(f)(*inputs), want, JAX_TRANSFORM_TOLERANCE, "compiled")


@FEW
@given(transformed_programs())
def test_vmap_of_any_stack_equals_loop(case: TransformedProgram) -> None:
    inputs = [np.stack([x, x * 0.5]) for x in case.inputs()]
    f = case.function(fx, fnp)
    loop = [np.asarray(f(*[x[i] for x in inputs])) for i in range(2)]
    assert_near(fx.vmap(f)(*inputs), np.stack(loop), JAX_TRANSFORM_TOLERANCE, "vmap")


@FEW
@given(transformed_programs())
def test_vjp_is_transpose_of_jvp(case: TransformedProgram) -> None:
    transpose_is_adjoint(case.function(fx, fnp), *case.inputs())
