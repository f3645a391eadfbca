"""Multi-platform exports, which select a branch by the platform index: structure, and compatibility with JAX."""

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
from tracefx.xla.lower import lower_for, plan_export
from tracefx.xla.runtime import mlir

X: Final = np.random.RandomState(0).randn(4, 4).astype(np.float32)
BOTH: Final = ("cpu", "cuda")


def decomposed(x: Any) -> Any:
    """Calls kernels at the top level, in a function that is called twice, and in a loop."""
    triangle = fx.jit(lambda x: fnp.linalg.qr(x)[1])
    start = fnp.linalg.cholesky(x @ x.T + 4 * fnp.eye(4, dtype="float32")) + triangle(x)
    return fx.lax.fori_loop(0, 3, lambda _, y: fnp.linalg.qr(y)[0] + triangle(y), start)


def exported(f: Callable[..., Any], platforms: Sequence[str] = BOTH, x: Any = X) -> fx.Exported[..., Any]:
    return fx.export(fx.jit(f), platforms=platforms)(x)


def in_jax(export: fx.Exported[..., Any], *platforms: str) -> jax.export.Exported:
    """Returns the function as JAX reads it. `platforms` replaces its platforms, so that the host can run any branch."""
    jax_export = jax.export.deserialize(bytearray(export.to_jax()))
    return dataclasses.replace(jax_export, platforms=platforms) if platforms else jax_export


def targets(text: str) -> list[str]:
    return sorted(set(re.findall(r"custom_call @(\w+)", text)))


@pytest.mark.parametrize("platforms", [BOTH, ("cuda", "cpu"), ("rocm", "cuda", "cpu")])
def test_kernels_of_each_platform(platforms: tuple[str, ...]) -> None:
    export, want = exported(decomposed, platforms), np.asarray(fx.jit(decomposed)(X))
    single = [targets(exported(decomposed, [platform]).mlir_module()) for platform in platforms]
    assert targets(export.mlir_module()) == sorted(set().union(*single))
    np.testing.assert_array_equal(in_jax(export).call(X), want)
    np.testing.assert_array_equal(fx.load(export.serialize()).call(X), want)


def test_functions_take_the_platform_index_only_if_they_use_it() -> None:
    square = fx.jit(lambda x: x @ x)
    text = exported(lambda x: square(x) + 1).mlir_module()
    assert 'tensor<i32> {jax.global_constant = "_platform_index"}' in text
    assert "case" not in text
    assert "private @_lambda_(%arg0: tensor<4x4xf32>) ->" in text
    functions = re.findall(r"func private @\w+\((.*?)\) ->", exported(decomposed).mlir_module())
    assert functions
    assert all(types.endswith(": tensor<i32>") for types in functions)


def test_platform_independent_module_differs_only_by_the_index_argument() -> None:
    def f(x: Any) -> Any:
        return fnp.sum(fnp.fft.irfft(x @ x) ** 2)

    multi, single = [exported(f, platforms).mlir_module() for platforms in (("cpu", "cuda"), ("cpu",))]
    multi = multi.replace('%arg0: tensor<i32> {jax.global_constant = "_platform_index"}, ', "")
    assert multi.replace("%arg1", "%arg0") == single


def chosen(x: Any) -> Any:
    """Only LAPACK computes Schur forms; the other platforms take another branch."""
    schur = fx.lax.platform_dependent(x, cpu=lambda x: fx.lax.linalg.schur(x)[0], default=fnp.cos)
    return schur + fx.lax.platform_dependent(x, cuda=fnp.sin, default=fnp.exp)


def test_platform_index_selects_the_branch() -> None:
    export = exported(chosen, ("cpu", "cuda", "tpu"))
    schur = fx.lax.linalg.schur(X)[0]
    for places, want in (
        (("cpu", "cuda", "tpu"), schur + fnp.exp(X)),
        (("tpu", "cpu", "cuda"), fnp.cos(X) + fnp.sin(X)),
        (("tpu", "cuda", "cpu"), fnp.cos(X) + fnp.exp(X)),
    ):
        np.testing.assert_allclose(in_jax(export, *places).call(X), want, rtol=1e-6, atol=1e-6)
    # Platforms with equal lowerings share a branch: two conditionals of two branches each.
    assert export.mlir_module().count("stablehlo.cosine") == export.mlir_module().count("stablehlo.exponential") == 1


def test_single_platform_program_has_one_branch() -> None:
    text = exported(chosen, ("cuda",)).mlir_module()
    assert "case" not in text
    assert "custom_call" not in text


def test_multi_axis_ffts_are_decomposed_on_gpus_only() -> None:
    spectrum = fx.jit(lambda x: fnp.fft.irfftn(x))
    z = (X + 1j * X.T).astype(np.complex64)
    both = exported(spectrum, x=z)
    want = in_jax(exported(spectrum, ("cuda",), z), "cpu").call(z)
    np.testing.assert_array_equal(in_jax(both, "cuda", "cpu").call(z), want)
    np.testing.assert_array_equal(in_jax(both).call(z), fx.jit(spectrum)(z))


def test_discarded_lowering_attempts_leave_no_operations() -> None:
    def solved(x: Any) -> Any:
        return fx.lax.linalg.triangular_solve(x, x, left_side=True, conjugate_a=True)

    z = (X + 1j * X.T).astype(np.complex64)
    program = fx.jit(solved).trace(z).trace.jaxpr
    text = mlir.module_text(lower_for(plan_export(program), "solved", BOTH).module)  # before StableHLO's cleanup passes
    assert text.count("stablehlo.case") == 1
    assert text.count("chlo.conj") == 2
    assert "token" not in text


def test_jax_reexports_multi_platform_programs() -> None:
    jax_export = jax.export.export(jax.jit(in_jax(exported(decomposed)).call), platforms=("cuda", "cpu"))(X)
    np.testing.assert_array_equal(jax_export.call(X), fx.jit(decomposed)(X))


def test_platform_index_order_matches_jax() -> None:
    tracefx_export = in_jax(
        exported(lambda x: fx.lax.platform_dependent(x, cpu=fnp.sin, cuda=fnp.cos), ("cuda", "cpu"))
    )
    jax_export = jax.export.export(
        jax.jit(lambda x: jax.lax.platform_dependent(x, cpu=jnp.sin, cuda=jnp.cos)), platforms=("cuda", "cpu")
    )(X)
    for places in (("cuda", "cpu"), ("cpu", "cuda")):
        got, want = [dataclasses.replace(each, platforms=places).call(X) for each in (tracefx_export, jax_export)]
        np.testing.assert_array_equal(got, want)


def test_operation_unsupported_on_a_platform_raises() -> None:
    with pytest.raises(NotImplementedError, match="it can't be compiled for 'cuda'"):
        exported(lambda x: fx.lax.linalg.schur(x)[0])


@pytest.mark.parametrize("differs", [True, False])
def test_platform_index_in_shard_map(differs: bool) -> None:
    mesh, stack = fx.make_mesh((2,), ("x",)), np.stack([X, X.T])
    body = (lambda x: fnp.linalg.qr(x)[0]) if differs else (lambda x: x @ x)
    f = fx.jit(fx.shard_map(body, mesh=mesh, in_specs=fx.P("x"), out_specs=fx.P("x")))
    export = fx.export(f, platforms=BOTH)(stack)
    operand_types = re.findall(r"manual_axes=\{\"x\"\} \((.*?)\)", export.mlir_module())
    assert ["tensor<i32>" in types for types in operand_types] == [differs]
    sharding = jax.NamedSharding(jax.make_mesh((2,), ("x",)), jax.P("x"))
    np.testing.assert_array_equal(in_jax(export).call(jax.device_put(stack, sharding)), f(stack))
    np.testing.assert_array_equal(fx.load(export.serialize()).call(stack), f(stack))
