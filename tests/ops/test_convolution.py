"""Convolutions and grouped contractions: cases that the comparison with JAX and the properties of
`harness` leave out.
"""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np
import pytest

import tracefx as fx
import tracefx.image
import tracefx.numpy as fnp
from benchmarks import resnet
from benchmarks.libraries import JAX, OURS
from tests.comparison import assert_agree, assert_near, assert_same
from tests.errors import untyped
from tracefx import lax
from tracefx.core import Array, NDArray, dtypes
from tracefx.ops.contractions.convolution import ConvGeneralDilated
from tracefx.testing.tolerances import ELEMENTARY, PROGRAM, SUMMED

LAST: Final = ("NHWC", "HWIO", "NHWC")
IMAGES: Final = np.random.default_rng(0).normal(size=(2, 5, 6, 4)).astype(np.float32)
KERNEL: Final = np.random.default_rng(1).normal(size=(3, 2, 2, 6)).astype(np.float32)
ROWS: Final = np.ones((4, 3), np.float32)
MATRICES: Final = np.ones((2, 3, 5), np.float32)
SIZES: Final = np.array([1, 3], np.int32)


def strided(library: Any) -> Callable[..., Any]:
    return lambda x, y: library.conv_general_dilated(
        x, y, (2, 1), [(1, 0), (0, 2)], None, (1, 2), LAST, feature_group_count=2, precision="highest"
    )


def ragged(library: Any) -> Callable[..., Any]:
    return lambda x, y: library.ragged_dot(x, y, SIZES, preferred_element_type="float64")


def scaled(library: Any) -> Callable[..., Any]:
    one = np.ones((1, 1), np.float32)
    return lambda x, y: library.scaled_dot(x, y.T, lhs_scale=one.repeat(4, 0), rhs_scale=one.repeat(5, 1))


@pytest.mark.parametrize(
    ("write", "operands"),
    [(strided, (IMAGES, KERNEL)), (ragged, (ROWS, MATRICES)), (scaled, (ROWS, MATRICES[0].T))],
)
def test_programs_print_as_in_jax(write: Callable[[Any], Any], operands: tuple[NDArray, ...]) -> None:
    text = fx.make_jaxpr(write(lax))(*operands).jaxpr.text("jax")
    assert text == str(jax.make_jaxpr(write(jax.lax))(*operands))


def test_gradient_program_matches_jax() -> None:
    """The gradient consists of two convolutions with the same windows and groups as in JAX."""
    ct = np.ones((2, 2, 6, 6), np.float32)
    names = ("batch_group_count", "feature_group_count", "padding", "lhs_dilation", "rhs_dilation", "window_strides")

    def parameters(text: str) -> list[str]:
        return sorted([line for line in map(str.strip, text.splitlines()) if line.startswith(names)])

    text = fx.make_jaxpr(lambda x, y: fx.vjp(strided(lax), x, y)[1](ct))(IMAGES, KERNEL).jaxpr.text("jax")
    jax_program = jax.make_jaxpr(lambda x, y: jax.vjp(strided(jax.lax), x, y)[1](ct))(IMAGES, KERNEL)
    assert parameters(text) == parameters(str(jax_program))


def test_large_and_small_convolutions_agree() -> None:
    """Small convolutions are evaluated by NumPy, large ones are compiled."""
    rng = np.random.default_rng(2)
    x, y = rng.integers(-4, 5, (2, 3, 40, 40)).astype(np.float32), rng.integers(-4, 5, (8, 3, 5, 5)).astype(np.float32)
    whole = lax.conv_general_dilated(x, y, (1, 1), "VALID")
    for i in (0, 35):
        part = lax.conv_general_dilated(x[:, :, i : i + 5, :9], y, (1, 1), "VALID")
        np.testing.assert_array_equal(whole[:, :, i : i + 1, :5], part)


def test_gradient_of_a_residual_network_matches_jax() -> None:
    """Compares the loss and the gradient of a network with two blocks of each of two widths."""
    args = resnet.parameters((4, 8)), *resnet.batch(16)
    value, gradient = fx.jit(fx.value_and_grad(resnet.loss_of(OURS)))(*args)
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    expected, slope = jax.jit(jax.value_and_grad(resnet.loss_of(JAX)), compiler_options=options)(*args)
    assert_near(value, expected)
    pairs: Any = zip(fx.tree.leaves(gradient), jax.tree.leaves(slope), strict=True)
    for got, want in pairs:
        assert_near(got, want, PROGRAM)


def test_infinite_weights_with_dilated_operand() -> None:
    """Dilation inserts no elements: eager evaluation and XLA both multiply nothing by the holes, so no NaN arises."""
    x, y = np.ones((1, 1, 4), np.float32), np.array([[[np.inf, 1.0]]], np.float32)

    def f(x: Any, y: Any) -> Array:
        return lax.conv_general_dilated(x, y, (1,), [(0, 0)], (2,))

    np.testing.assert_array_equal(f(x, y), fx.jit(f)(x, y))


def test_conv_dimension_numbers_object() -> None:
    numbers = lax.conv_dimension_numbers(IMAGES.shape, KERNEL.shape, LAST)
    assert numbers == lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    from_lists = untyped(lax.ConvDimensionNumbers)([0, 3, 1, 2], [3, 2, 0, 1], [0, 3, 1, 2])
    for dimension_numbers_ in (LAST, numbers, from_lists):
        out = lax.conv_general_dilated(IMAGES, KERNEL, (1, 1), "SAME", None, None, dimension_numbers_, 2)
        assert out.shape == (2, 5, 6, 6)
    invalid = numbers._replace(out_spec=(0, 3, 1, 1))
    with pytest.raises(ValueError, match="must name each of 4 axes once"):
        lax.conv_general_dilated(IMAGES, KERNEL, (1, 1), "SAME", None, None, invalid, 2)


def test_zero_strides_and_dilations_raise() -> None:
    for name in ("window_strides", "lhs_dilation", "rhs_dilation"):
        options: dict[str, Any] = {"window_strides": (1, 1), "padding": [(0, 0), (0, 0)], name: (1, 0)}
        with pytest.raises(ValueError, match=f"{name} must have one positive entry for each of 2 spatial axes"):
            lax.conv_general_dilated(IMAGES, KERNEL, dimension_numbers=LAST, feature_group_count=2, **options)


def test_vmap_over_an_empty_batch() -> None:
    none = fnp.zeros((0, *IMAGES.shape))
    out = fx.vmap(strided(lax), (0, None))(none, KERNEL)
    assert out.shape == (0, 2, 2, 6, 6)
    assert fx.vmap(strided(lax))(none, fnp.zeros((0, *KERNEL.shape))).shape == (0, 2, 2, 6, 6)


def test_checkpoint_policies_for_convolutions() -> None:
    numbers = lax.conv_dimension_numbers((1, 1, 2), (1, 1, 2), None)
    prim = ConvGeneralDilated((1,), ((0, 0),), (1,), (1,), numbers)
    assert fx.checkpoint_policies.dots_saveable(prim)
    assert not fx.checkpoint_policies.dots_with_no_batch_dims_saveable(prim)


def test_cached_resize_weights_are_not_tracers() -> None:
    """The weights are cached between calls, whichever trace the first call is part of."""

    def f(x: Any) -> Any:
        return tracefx.image.resize(x, (3, 7), "linear").sum()

    first = fx.grad(f)(fnp.ones((3, 5)))
    assert_near(fx.jit(fx.vmap(fx.grad(f)))(fnp.ones((2, 3, 5)))[1], first, ELEMENTARY)


def test_vmap_of_ragged_dot() -> None:
    """Every combination of batched operands."""
    rng = np.random.default_rng(3)
    x, y = rng.integers(-4, 5, (3, 4, 3)).astype(np.float32), rng.integers(-4, 5, (3, 2, 3, 5)).astype(np.float32)
    sizes = np.array([[1, 3], [4, 0], [1, 1]], np.int32)

    def expected(i: int, j: int, k: int) -> NDArray:
        out = np.zeros((4, 5), np.float32)
        first, second = sizes[k]
        out[:first] = x[i, :first] @ y[j, 0]
        out[first : first + second] = x[i, first : first + second] @ y[j, 1]
        return out

    for axes in ((0, None, None), (None, 0, None), (None, None, 0), (0, None, 0), (None, 0, 0), (0, 0, 0)):
        args: list[Any] = [each if axis == 0 else each[1] for each, axis in zip((x, y, sizes), axes, strict=True)]
        batched: Any = fx.vmap(lax.ragged_dot, axes)
        got = batched(*args)
        batch_indices = [[n if axis == 0 else 1 for axis in axes] for n in range(3)]
        np.testing.assert_array_equal(got, np.stack([expected(*batch_index) for batch_index in batch_indices]))


@pytest.mark.parametrize(
    ("dtype", "preferred"), [("float8_e5m2", "float8_e5m2fnuz"), ("float8_e4m3fnuz", "float8_e4m3")]
)
def test_results_in_another_dtype_of_the_same_range(dtype: str, preferred: str) -> None:
    """XLA aborts the process if it multiplies in these dtypes."""
    x, y = [np.rint(a).astype(dtypes.as_dtype(dtype)) for a in (IMAGES, KERNEL)]
    products: list[Callable[..., Any]] = [
        lambda: lax.conv_general_dilated(x, y, (1, 1), "SAME", None, None, LAST, 2, preferred_element_type=preferred),
        lambda: lax.dot(x[0, 0], x[0, 0].T, preferred_element_type=preferred),
    ]
    for product in products:
        got, want = fx.jit(product)(), product()
        assert got.dtype == want.dtype == dtypes.as_dtype(preferred)
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


@pytest.mark.parametrize("preferred", ["float8_e4m3fn", "int8", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8", "bool", "bfloat16", "float16"])
def test_narrow_results_of_narrow_operands(dtype: str, preferred: str) -> None:
    """NumPy's sums are wider than the requested dtype."""
    x, y = [np.rint(a).astype(dtypes.as_dtype(dtype)) for a in (IMAGES, KERNEL)]  # sums are exact
    assert_agree(
        lambda F, N: F.lax.conv_general_dilated(
            x, y, (1, 1), "SAME", None, None, LAST, 2, preferred_element_type=preferred
        ),
        may_raise=True,
    )


@pytest.mark.parametrize("numbers", [("NCHW", "OIHW", "NCHW"), ("HWNC", "IOHW", "CHWN")])
def test_cpu_kernels_get_operands_in_their_order(numbers: tuple[str, str, str]) -> None:
    """XLA transposes operands for its fast kernel only outside of functions, so lowering does it."""
    n, c, h, w, o = 2, 3, 6, 5, 4
    sizes = {"N": n, "C": c, "H": h, "W": w}, {"O": o, "I": c, "H": 3, "W": 2}
    x, k = [
        np.random.default_rng(0).normal(size=[size[axis] for axis in spec]).astype(np.float32)
        for spec, size in zip(numbers, sizes, strict=False)
    ]

    def loss(x: Any, k: Any) -> Any:
        y = lax.conv_general_dilated(x, k, (2, 1), ((1, 0), (2, 1)), None, (1, 2), numbers)
        return fnp.sum(y * fnp.cos(y))

    gradient = fx.value_and_grad(loss, (0, 1))
    text = fx.jit(gradient).lower(x, k).as_text()
    labels = set(re.findall(r"dim_numbers = (\S+, .*?\])\s*, window", text))
    assert labels == {"[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"}
    with fx.disable_jit():
        want = gradient(x, k)
    assert_same(fx.jit(gradient)(x, k), want, SUMMED)
