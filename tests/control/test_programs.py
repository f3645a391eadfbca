"""Generated programs with nested loops and branches under generated transformations, against Python and JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, reject
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_same
from tests.laws.examples import SECONDS, limit_examples
from tracefx.control import while_loop
from tracefx.control.cond import Cond
from tracefx.control.scan import Scan
from tracefx.core import ConcreteArray, dtypes, from_numpy
from tracefx.interpreters.masks import Mask
from tracefx.passes.check import check_jaxpr
from tracefx.passes.cse import cse
from tracefx.passes.dce import dce
from tracefx.testing import (
    Law,
    LawError,
    check_function,
    jvp_is_the_derivative,
    linearize_is_jvp,
    no_tracer_leaks,
    passes_change_nothing,
    transpose_is_adjoint,
    vmap_is_a_loop,
)
from tracefx.testing.control_flow_steps import JaxAdapter
from tracefx.testing.generated_programs import TransformedProgram
from tracefx.testing.strategies import transformed_control_flow_programs, transformed_programs
from tracefx.testing.tolerances import PROGRAM

jax.config.update("jax_explicit_x64_dtypes", "allow")


def inputs(case: TransformedProgram) -> list[ConcreteArray]:
    return [from_numpy(x, dtypes.float64) for x in case.inputs()]


def evaluate_without_jit(case: TransformedProgram, shift: float = 0.0) -> Any:
    """Evaluates a program with `jit` disabled (loops and branches in Python); `shift` is added to the inputs."""
    with fx.disable_jit():
        return np.asarray(case.function(fx, fnp)(*[x + shift for x in inputs(case)]))


close = partial(assert_same, tolerance=PROGRAM, weak=False)


@limit_examples(8, at_length=320)
@given(transformed_control_flow_programs())
def test_compiled_agrees_with_evaluation(case: TransformedProgram) -> None:
    close(fx.jit(case.function(fx, fnp))(*inputs(case)), evaluate_without_jit(case))


@limit_examples(4)
@given(transformed_control_flow_programs(max_steps=2, max_layers=2))
def test_eager_agrees_with_evaluation(case: TransformedProgram) -> None:
    close(case.function(fx, fnp)(*inputs(case)), evaluate_without_jit(case))


@limit_examples(8)
@given(transformed_control_flow_programs(max_layers=2))
def test_compiled_agrees_with_jax(case: TransformedProgram) -> None:
    got = fx.jit(case.function(fx, fnp))(*inputs(case))
    try:
        want = jax.jit(case.function(JaxAdapter(jax), jnp))(*[jnp.asarray(x, "float64") for x in case.inputs()])
    except NotImplementedError:  # JAX can't transpose some of the bodies that its own rules produce
        reject()
    close(got, want)


SOURCES: Final = {
    "structured": transformed_control_flow_programs(max_steps=2, max_layers=2),
    "deep": transformed_control_flow_programs(max_steps=1, max_layers=1, depth=3),
    "straight": transformed_programs(),
}
"""Programs to evaluate with `jit` disabled: small ones, since JAX compiles each operation for each shape."""


@pytest.mark.parametrize("source", SOURCES)
def test_evaluation_agrees_with_jax(source: str) -> None:
    """Evaluation takes a fiftieth of the time of compilation, so `make laws` can try 100,000; one in 20 is compiled."""

    @limit_examples(4, at_length=40_000, seconds=150 * SECONDS)
    @given(SOURCES[source], st.integers(0, 19))
    def check(case: TransformedProgram, turn: int) -> None:
        got = evaluate_without_jit(case)
        if turn == 0:
            close(fx.jit(case.function(fx, fnp))(*inputs(case)), got)
        try:
            with jax.disable_jit():
                xs = [jnp.asarray(x, "float64") for x in case.inputs()]
                want = np.asarray(case.function(JaxAdapter(jax), jnp)(*xs))
        except (NotImplementedError, TypeError):
            # JAX can't transpose some of the bodies that its rules produce, and without `jit` pads 64-bit arrays with
            # 32-bit zeros.
            return
        try:
            close(got, want)
        except AssertionError:
            if not is_rounding(case, got, want):
                raise

    check()


def is_rounding(case: TransformedProgram, got: Any, want: Any) -> bool:
    """Returns whether a difference is due to rounding: at most 4 times the change when inputs move by 256 ulps of 1.

    The elementary functions of NumPy and XLA differ by some ulps. Programs that subtract nearly equal numbers, or are
    near a singularity, multiply that by thousands.
    """
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return False
    moved = [evaluate_without_jit(case, shift) for shift in (2.0**-44, -(2.0**-44))]
    change = np.maximum(*[np.abs(m - got) for m in moved])
    return bool((np.abs(got - want) <= 4 * change).all())


@limit_examples(10, at_length=500)
@given(transformed_control_flow_programs())
def test_jaxprs_check_and_passes_preserve_results(case: TransformedProgram) -> None:
    jaxpr = fx.make_jaxpr(case.function(fx, fnp))(*inputs(case)).jaxpr
    again = fx.make_jaxpr(case.function(fx, fnp))(*inputs(case)).jaxpr
    for program in (jaxpr, dce(jaxpr), cse(jaxpr), dce(cse(dce(jaxpr)))):
        check_jaxpr(program)
        if "custom_" not in str(program):  # which contain Python functions and can't be parsed
            assert fx.programs.parse_jaxpr(str(program)) == program
    if "custom_" not in str(jaxpr):
        assert jaxpr == again


LAWS: Final = (transpose_is_adjoint, linearize_is_jvp, vmap_is_a_loop, passes_change_nothing, no_tracer_leaks)


@limit_examples(3)
@given(transformed_control_flow_programs(max_steps=1, max_layers=1, depth=1))
def test_the_laws_hold(case: TransformedProgram) -> None:
    check_function(case.function(fx, fnp), *inputs(case), laws=LAWS, ulps=evolve(PROGRAM, least=1.0))


# ------------------------------------------------------------------ wrong rules are detected

X: Final = np.array([0.5, -0.25, 0.75], np.float32)
K: Final = np.array([0.5, 2.0, 3.0], np.float32)


def scanned(x: Any) -> Any:
    return fx.lax.scan(lambda c, k: (c * k + 1, fnp.sin(c)), x, K)


def last_of_scan(x: Any) -> Any:
    return scanned(x)[0]


def branched(x: Any) -> Any:
    return fx.lax.cond(x[0] > 0, lambda x: (x * 2, fnp.sin(x)), lambda x: (x, x * x), x)


def repeated(x: Any) -> Any:
    return fx.lax.while_loop(lambda c: c[0] * c[0] < 4, lambda c: c * 1.5, x)


def plant_scan_transposed_in_the_wrong_direction(patch: pytest.MonkeyPatch) -> None:
    original = Scan._transposed
    patch.setattr(Scan, "_transposed", lambda self, *args: original(evolve(self, reverse=not self.reverse), *args))


def plant_scan_reversed_when_pruned(patch: pytest.MonkeyPatch) -> None:
    original = Scan.prune

    def wrong(self: Scan, used_outs: Mask) -> tuple[Scan, Mask, Mask]:
        op, used, outs = original(self, used_outs)
        return (op if all(used_outs) else evolve(op, reverse=not op.reverse)), used, outs

    patch.setattr(Scan, "prune", wrong)


def plant_cond_with_swapped_derivatives(patch: pytest.MonkeyPatch) -> None:
    original = Cond._jvp
    patch.setattr(Cond, "_jvp", lambda self, operands: original(Cond(self.branches[::-1]), operands))


def plant_cond_batching_one_branch(patch: pytest.MonkeyPatch) -> None:
    original = Cond._batch_all
    patch.setattr(Cond, "_batch_all", lambda self, *args: original(Cond((self.branches[0],) * 2), *args))


def plant_while_updating_finished_elements(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(while_loop, "_where", lambda goes, new, old: new)


PLANTED: Final = (
    (plant_scan_transposed_in_the_wrong_direction, scanned, transpose_is_adjoint),
    (plant_scan_reversed_when_pruned, last_of_scan, passes_change_nothing),
    (plant_cond_with_swapped_derivatives, branched, jvp_is_the_derivative),
    (plant_cond_batching_one_branch, branched, vmap_is_a_loop),
    (plant_while_updating_finished_elements, repeated, vmap_is_a_loop),
)


@pytest.mark.parametrize(("plant", "f", "law"), PLANTED, ids=[plant.__name__ for plant, _, _ in PLANTED])
def test_laws_detect_wrong_rules(
    plant: Callable[[pytest.MonkeyPatch], None], f: Callable[[Any], Any], law: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    law(lambda x: f(x), X)
    plant(monkeypatch)
    with pytest.raises(LawError):
        law(lambda x: f(x), X)
