"""Accuracy and precision options: accuracies of elementwise functions, algorithms of dot products,
as compiled by JAX.
"""

from __future__ import annotations

import re
from inspect import signature
from typing import Any, Final

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax as jax_lax

import tracefx as fx
from tests.comparison import assert_agree, assert_near
from tracefx import lax
from tracefx.core import NDArray
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.vocabulary import OPERATIONS
from tracefx.programs import deserialize, parse_jaxpr, serialize
from tracefx.testing.tolerances import SUMMED, ulp_distance

X: Final = np.linspace(0.1, 0.9, 12, dtype=np.float32).reshape(3, 4)
FUNCTIONS: Final = [
    prim.name
    for prim in OPERATIONS
    if hasattr(lax, prim.name) and "accuracy" in signature(getattr(lax, prim.name)).parameters
]
CPU_PRESETS: Final = (
    *("DEFAULT", "F16_F16_F16", "F32_F32_F32", "F64_F64_F64"),
    *("BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6"),
)
PRESETS: Final = tuple(jax_lax.DotAlgorithmPreset.__members__)


def attributes(text: str, name: str) -> list[str]:
    """Returns the values of an attribute in the text of a program, in order, with floats parsed."""
    matches = re.findall(rf"{name} = (?:#stablehlo\.\w+)?(<[^\n]*?>+)(?=[,}} ])", text)
    return [re.sub(r"\d\.\d+e[+-]\d+", lambda m: str(float(m[0])), match) for match in matches]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_accuracy_is_compiled_as_in_jax(name: str) -> None:
    def program_of(lax: Any) -> Any:
        def f(x: Any) -> Any:
            function = getattr(lax, name)
            if "accuracy" not in signature(function).parameters:  # `erfc` of JAX before 0.12
                return [function(x)]
            accuracies = lax.Tolerance(1e-3, 0.0, 2), lax.AccuracyMode.HIGHEST, lax.AccuracyMode.DEFAULT, None
            return [function(x, accuracy=accuracy) for accuracy in accuracies]

        return f

    text = fx.jit(program_of(lax)).lower(X).as_text()
    jax_text = jax.jit(program_of(jax_lax), keep_unused=True).lower(X).as_text()
    compiled_accuracies = attributes(text, "result_accuracy")
    assert len(compiled_accuracies) == (0 if name in ("erfc", "logistic") else 2)  # the default accuracy is omitted
    if name != "erfc":  # JAX since 0.12 has a second implementation, with an accurate `exp`
        assert set(compiled_accuracies) == set(attributes(jax_text, "result_accuracy"))
    for out in (*program_of(lax)(X), *fx.jit(program_of(lax))(X)):
        assert ulp_distance(np.asarray(out), np.asarray(getattr(lax, name)(X))).max() <= 4


def test_accuracy_survives_serialization_and_differentiation() -> None:
    """Text and binary round trips, and derivatives."""
    program = fx.make_jaxpr(lambda x: lax.sin(lax.exp(x, accuracy=lax.Tolerance(rtol=1e-7)), accuracy=None))(X)
    assert parse_jaxpr(str(program)) == program.jaxpr
    assert deserialize(serialize(program)) == program
    slope = fx.make_jaxpr(fx.grad(lambda x: lax.sin(x, accuracy=lax.AccuracyMode.HIGHEST)))(0.5)
    assert "cos[accuracy=AccuracyMode.HIGHEST]" in str(slope)
    assert fx.make_jaxpr(lax.exp)(X).text("jax") == str(jax.make_jaxpr(jax_lax.exp)(X))


def test_invalid_accuracy_raises() -> None:
    untyped: Any = "HIGHEST"
    with pytest.raises(TypeError, match="exp: accuracy must be an AccuracyMode, a Tolerance or None, got 'HIGHEST'"):
        lax.exp(1.0, accuracy=untyped)
    with pytest.raises(ValueError, match="must not be negative"):
        lax.Tolerance(-1.0)
    with pytest.raises(ValueError, match="one of atol, rtol and ulps must be positive"):
        lax.Tolerance()


# ------------------------------------------------------------------ algorithms


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("preset", CPU_PRESETS)
def test_cpu_dot_algorithms_match_jax(preset: str, dtype: Any) -> None:
    x: NDArray = X.astype(dtype)
    want = jax_lax.dot(jnp.asarray(x), jnp.asarray(x.T), precision=preset)

    def f(x: Any, y: Any) -> Any:
        return lax.dot(x, y, precision=preset)

    for got in (f(x, x.T), fx.jit(f)(x, x.T)):
        assert got.dtype == want.dtype
        assert (ulp_distance(np.asarray(got), np.asarray(want)) <= SUMMED.of(got.dtype)).all()


@pytest.mark.parametrize("preset", ["F32_F32_F32", "BF16_BF16_F32", "BF16_BF16_F32_X3"])
def test_algorithms_of_ragged_products(preset: str) -> None:
    """JAX has no derivatives of these; they use the same algorithm."""
    sizes = np.array([1, 2], np.int32)
    matrices = np.stack([X.T, -X.T])
    assert_agree(lambda F, N: F.lax.ragged_dot(X[:3], matrices, sizes, precision=preset), SUMMED)
    product, pull = fx.vjp(lambda x: lax.ragged_dot(x, matrices, sizes, precision=preset), X[:3])
    each = [lax.dot(product[:1], X, precision=preset), lax.dot(product[1:], -X, precision=preset)]
    assert_near(pull(product)[0], np.concatenate(each))


def test_unsupported_dot_algorithms_raise_on_the_cpu() -> None:
    assert tuple(lax.DotAlgorithmPreset.__members__) == PRESETS
    others: list[Any] = [p for p in lax.DotAlgorithmPreset if p.name not in CPU_PRESETS]
    for precision in (*others, lax.DotAlgorithm(np.float32, np.float32, np.float32)):
        with pytest.raises(ValueError, match="the CPU does not support the precision"):
            lax.dot(X, X.T, precision=precision)
        with pytest.raises(ValueError, match="the CPU does not support the precision"):
            fx.jit(lambda p=precision: lax.dot(X, X.T, precision=p))()
    with pytest.raises(ValueError, match="got the algorithm F32_F32_F32"):
        lax.conv(X[None, None], X[None, None], (1, 1), "SAME", precision=lax.DotAlgorithmPreset.F32_F32_F32)


@pytest.mark.parametrize("preset", [p for p in PRESETS if p != "DEFAULT"])
def test_exported_dot_algorithms_match_jax(preset: str) -> None:
    x: NDArray = X.astype(ml_dtypes.float8_e5m2) if preset.startswith("ANY") else X
    gpu_platforms: Any = ("cuda",)
    exported = fx.export(fx.jit(lambda x, y: lax.dot(x, y, precision=preset)), platforms=gpu_platforms)(x, x.T)
    jax_exported = jax.export.export(
        jax.jit(lambda x, y: jax_lax.dot(x, y, precision=preset)), platforms=gpu_platforms
    )(jnp.asarray(x), jnp.asarray(x.T))
    assert attributes(str(exported.mlir_module()), "algorithm") == attributes(jax_exported.mlir_module(), "algorithm")
    assert attributes(jax_exported.mlir_module(), "algorithm")


def test_dot_algorithms_survive_serialization_transpose_and_gradient() -> None:
    algorithm = lax.DotAlgorithm("bfloat16", np.float32, np.float32, 1, 3)

    def f(x: Any, y: Any) -> Any:
        return lax.dot(x, lax.dot(x, y, precision=algorithm), precision="F32_F32_F32")

    x = X[:, :3]
    program = fx.make_jaxpr(f)(x, x)
    assert parse_jaxpr(str(program)) == program.jaxpr
    assert deserialize(serialize(program)) == program
    jax_program = jax.make_jaxpr(lambda x: jax_lax.dot(x, x, precision="F32_F32_F32"))(x)
    assert fx.make_jaxpr(lambda x: lax.dot(x, x, precision="F32_F32_F32"))(x).text("jax") == str(jax_program)
    product = program.eqns[0].prim
    assert isinstance(product, DotGeneral)
    other = product.swapped().precision
    assert other == lax.DotAlgorithm(np.float32, "bfloat16", np.float32, 3, 1)
    gradient = fx.make_jaxpr(fx.grad(lambda x: lax.dot(x, x, precision="F32_F32_F32").sum()))(x)
    assert str(gradient).count("precision=DotAlgorithmPreset.F32_F32_F32") == 3
