"""Generated programs under generated stacks of transformations do what JAX does with them."""

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
from tests.closeness import JAX_TRANSFORM_TOLERANCE, assert_near
from tracefx.passes.check import check_jaxpr
from tracefx.testing import transpose_is_adjoint
from tracefx.testing.generated_programs import TransformedProgram
from tracefx.testing.strategies import transformed_programs

FEW: Final = settings(
    max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def in_64_bits() -> Iterator[None]:
    """Rounding stays far below the tolerance, whatever a program does to it."""
    with fx.enable_x64(), jax.enable_x64(True):
        yield


@FEW
@given(transformed_programs())
def test_stacks_do_what_jaxs_do(case: TransformedProgram) -> None:
    inputs = case.inputs()
    want = np.asarray(jax.jit(case.function(jax, jnp))(*inputs))
    got = np.asarray(case.function(fx, fnp)(*inputs))
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert_near(got, want, JAX_TRANSFORM_TOLERANCE, "as it is")


@FEW
@given(transformed_programs())
def test_stacks_give_well_typed_programs_that_do_the_same(case: TransformedProgram) -> None:
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
def test_vmap_is_a_loop_around_any_stack(case: TransformedProgram) -> None:
    inputs = [np.stack([x, x * 0.5]) for x in case.inputs()]
    f = case.function(fx, fnp)
    loop = [np.asarray(f(*[x[i] for x in inputs])) for i in range(2)]
    assert_near(fx.vmap(f)(*inputs), np.stack(loop), JAX_TRANSFORM_TOLERANCE, "vmap")


@FEW
@given(transformed_programs())
def test_reverse_mode_is_the_transpose_of_forward_mode(case: TransformedProgram) -> None:
    transpose_is_adjoint(case.function(fx, fnp), *case.inputs())
