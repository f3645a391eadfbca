"""Programs exported for several platforms, which choose where they run: JAX runs them and exports them again."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tracefx.xla import runtime
from tracefx.xla.lower import lower_for, plan_export

X: Final = np.random.RandomState(0).randn(4, 4).astype(np.float32)
BOTH: Final = ("cpu", "cuda")


def decomposed(x: Any) -> Any:
    """Kernels at the top, in a function that is called twice and in a loop."""
    triangle = fx.jit(lambda x: fnp.linalg.qr(x)[1])
    start = fnp.linalg.cholesky(x @ x.T + 4 * fnp.eye(4, dtype="float32")) + triangle(x)
    return fx.lax.fori_loop(0, 3, lambda _, y: fnp.linalg.qr(y)[0] + triangle(y), start)


def exported(f: Callable[..., Any], platforms: Sequence[str] = BOTH, x: Any = X) -> fx.Exported[..., Any]:
    return fx.export(fx.jit(f), platforms=platforms)(x)


def in_jax(it: fx.Exported[..., Any], *platforms: str) -> jax.export.Exported:
    """The function as JAX reads it; other platforms than its own have the host take another one's place."""
    theirs = jax.export.deserialize(bytearray(it.to_jax()))
    return dataclasses.replace(theirs, platforms=platforms) if platforms else theirs


def targets(text: str) -> list[str]:
    return sorted(set(re.findall(r"custom_call @(\w+)", text)))


@pytest.mark.parametrize("platforms", [BOTH, ("cuda", "cpu"), ("rocm", "cuda", "cpu")])
def test_kernels_are_those_of_the_platform(platforms: tuple[str, ...]) -> None:
    it, want = exported(decomposed, platforms), np.asarray(fx.jit(decomposed)(X))
    alone = [targets(exported(decomposed, [platform]).mlir_module()) for platform in platforms]
    assert targets(it.mlir_module()) == sorted(set().union(*alone))
    np.testing.assert_array_equal(in_jax(it).call(X), want)
    np.testing.assert_array_equal(fx.load(it.serialize()).call(X), want)


def test_functions_take_the_index_where_it_makes_a_difference() -> None:
    square = fx.jit(lambda x: x @ x)
    alike = exported(lambda x: square(x) + 1).mlir_module()
    assert 'tensor<i32> {jax.global_constant = "_platform_index"}' in alike
    assert "case" not in alike
    assert "private @_lambda_(%arg0: tensor<4x4xf32>) ->" in alike
    functions = re.findall(r"func private @\w+\((.*?)\) ->", exported(decomposed).mlir_module())
    assert functions
    assert all(types.endswith(": tensor<i32>") for types in functions)


def test_modules_without_a_difference_are_those_of_one_platform_but_for_the_index() -> None:
    def f(x: Any) -> Any:
        return fnp.sum(fnp.fft.irfft(x @ x) ** 2)

    several, alone = [exported(f, platforms).mlir_module() for platforms in (("cpu", "cuda"), ("cpu",))]
    several = several.replace('%arg0: tensor<i32> {jax.global_constant = "_platform_index"}, ', "")
    assert several.replace("%arg1", "%arg0") == alone


def chosen(x: Any) -> Any:
    """Schur forms are LAPACK's alone, which doesn't matter on other platforms."""
    schur = fx.lax.platform_dependent(x, cpu=lambda x: fx.lax.linalg.schur(x)[0], default=fnp.cos)
    return schur + fx.lax.platform_dependent(x, cuda=fnp.sin, default=fnp.exp)


def test_the_index_says_which_function() -> None:
    it = exported(chosen, ("cpu", "cuda", "tpu"))
    schur = fx.lax.linalg.schur(X)[0]
    for places, want in (
        (("cpu", "cuda", "tpu"), schur + fnp.exp(X)),
        (("tpu", "cpu", "cuda"), fnp.cos(X) + fnp.sin(X)),
        (("tpu", "cuda", "cpu"), fnp.cos(X) + fnp.exp(X)),
    ):
        np.testing.assert_allclose(in_jax(it, *places).call(X), want, rtol=1e-6, atol=1e-6)
    # One body serves the platforms that share it: two conditions of two branches each.
    assert it.mlir_module().count("stablehlo.cosine") == it.mlir_module().count("stablehlo.exponential") == 1


def test_programs_of_one_platform_have_its_branch_only() -> None:
    text = exported(chosen, ("cuda",)).mlir_module()
    assert "case" not in text
    assert "custom_call" not in text


def test_transforms_of_several_axes_are_taken_apart_for_gpus_only() -> None:
    spectrum = fx.jit(lambda x: fnp.fft.irfftn(x))
    z = (X + 1j * X.T).astype(np.complex64)
    both = exported(spectrum, x=z)
    want = in_jax(exported(spectrum, ("cuda",), z), "cpu").call(z)
    np.testing.assert_array_equal(in_jax(both, "cuda", "cpu").call(z), want)
    np.testing.assert_array_equal(in_jax(both).call(z), fx.jit(spectrum)(z))


def test_nothing_stays_of_what_a_rule_did_before_it_asked() -> None:
    def solved(x: Any) -> Any:
        return fx.lax.linalg.triangular_solve(x, x, left_side=True, conjugate_a=True)

    z = (X + 1j * X.T).astype(np.complex64)
    program = fx.jit(solved).trace(z).trace.jaxpr
    text = runtime.module_text(lower_for(plan_export(program), "solved", BOTH).module)  # not yet tidied by StableHLO
    assert text.count("stablehlo.case") == 1
    assert text.count("chlo.conj") == 2
    assert "token" not in text


def test_jax_exports_them_again() -> None:
    theirs = jax.export.export(jax.jit(in_jax(exported(decomposed)).call), platforms=("cuda", "cpu"))(X)
    np.testing.assert_array_equal(theirs.call(X), fx.jit(decomposed)(X))


def test_indices_are_in_the_order_that_jax_has() -> None:
    ours = in_jax(exported(lambda x: fx.lax.platform_dependent(x, cpu=fnp.sin, cuda=fnp.cos), ("cuda", "cpu")))
    theirs = jax.export.export(
        jax.jit(lambda x: jax.lax.platform_dependent(x, cpu=jnp.sin, cuda=jnp.cos)), platforms=("cuda", "cpu")
    )(X)
    for places in (("cuda", "cpu"), ("cpu", "cuda")):
        got, want = [dataclasses.replace(each, platforms=places).call(X) for each in (ours, theirs)]
        np.testing.assert_array_equal(got, want)


def test_operations_that_a_platform_lacks_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="it can't be compiled for 'cuda'"):
        exported(lambda x: fx.lax.linalg.schur(x)[0])


@pytest.mark.parametrize("differs", [True, False])
def test_devices_that_run_apart_are_told_the_index(differs: bool) -> None:
    mesh, stack = fx.make_mesh((2,), ("x",)), np.stack([X, X.T])
    body = (lambda x: fnp.linalg.qr(x)[0]) if differs else (lambda x: x @ x)
    f = fx.jit(fx.shard_map(body, mesh=mesh, in_specs=fx.P("x"), out_specs=fx.P("x")))
    it = fx.export(f, platforms=BOTH)(stack)
    taken = re.findall(r"manual_axes=\{\"x\"\} \((.*?)\)", it.mlir_module())
    assert ["tensor<i32>" in types for types in taken] == [differs]
    sharding = jax.NamedSharding(jax.make_mesh((2,), ("x",)), jax.P("x"))
    np.testing.assert_array_equal(in_jax(it).call(jax.device_put(stack, sharding)), f(stack))
    np.testing.assert_array_equal(fx.load(it.serialize()).call(stack), f(stack))
