"""Convolutions and contractions in groups: what the comparison with JAX's functions and the laws don't reach."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

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
from tests.closeness import assert_near
from tracefx import lax
from tracefx.core.array import Array
from tracefx.core.dtypes import NDArray
from tracefx.ops.contractions.convolution import ConvGeneralDilated
from tracefx.testing.tolerances import ELEMENTARY, PROGRAM

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


def in_groups(library: Any) -> Callable[..., Any]:
    return lambda x, y: library.ragged_dot(x, y, SIZES, preferred_element_type="float64")


def scaled(library: Any) -> Callable[..., Any]:
    one = np.ones((1, 1), np.float32)
    return lambda x, y: library.scaled_dot(x, y.T, lhs_scale=one.repeat(4, 0), rhs_scale=one.repeat(5, 1))


@pytest.mark.parametrize(
    ("write", "operands"),
    [(strided, (IMAGES, KERNEL)), (in_groups, (ROWS, MATRICES)), (scaled, (ROWS, MATRICES[0].T))],
)
def test_programs_are_printed_as_jaxs(write: Callable[[Any], Any], operands: tuple[NDArray, ...]) -> None:
    ours = fx.make_jaxpr(write(lax))(*operands).jaxpr.text("jax")
    assert ours == str(jax.make_jaxpr(write(jax.lax))(*operands))


def test_the_gradient_is_jaxs() -> None:
    """Two convolutions, of the same windows and groups."""
    ct = np.ones((2, 2, 6, 6), np.float32)
    shown = ("batch_group_count", "feature_group_count", "padding", "lhs_dilation", "rhs_dilation", "window_strides")

    def parameters(text: str) -> list[str]:
        return sorted([line for line in map(str.strip, text.splitlines()) if line.startswith(shown)])

    ours = fx.make_jaxpr(lambda x, y: fx.vjp(strided(lax), x, y)[1](ct))(IMAGES, KERNEL).jaxpr.text("jax")
    theirs = jax.make_jaxpr(lambda x, y: jax.vjp(strided(jax.lax), x, y)[1](ct))(IMAGES, KERNEL)
    assert parameters(ours) == parameters(str(theirs))


def test_large_ones_are_compiled_with_the_same_result() -> None:
    """Those that NumPy is left to, and those that it isn't."""
    rng = np.random.default_rng(2)
    x, y = rng.integers(-4, 5, (2, 3, 40, 40)).astype(np.float32), rng.integers(-4, 5, (8, 3, 5, 5)).astype(np.float32)
    whole = lax.conv_general_dilated(x, y, (1, 1), "VALID")
    for i in (0, 35):
        part = lax.conv_general_dilated(x[:, :, i : i + 5, :9], y, (1, 1), "VALID")
        np.testing.assert_array_equal(whole[:, :, i : i + 1, :5], part)


def test_a_residual_network_learns_as_with_jax() -> None:
    """The loss and the gradient of two blocks of each of two widths."""
    given = resnet.parameters((4, 8)), *resnet.batch(16)
    value, gradient = fx.jit(fx.value_and_grad(resnet.loss_of(OURS)))(*given)
    cheap = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    expected, slope = jax.jit(jax.value_and_grad(resnet.loss_of(JAX)), compiler_options=cheap)(*given)
    assert_near(value, expected)
    pairs: Any = zip(fx.tree.leaves(gradient), jax.tree.leaves(slope), strict=True)
    for got, want in pairs:
        assert_near(got, want, PROGRAM)


def test_infinite_weights_beside_dilated_images() -> None:
    """Zeros between elements are no elements: eager evaluation agrees with XLA that nothing is multiplied by them."""
    x, y = np.ones((1, 1, 4), np.float32), np.array([[[np.inf, 1.0]]], np.float32)

    def f(x: Any, y: Any) -> Array:
        return lax.conv_general_dilated(x, y, (1,), [(0, 0)], (2,))

    np.testing.assert_array_equal(f(x, y), fx.jit(f)(x, y))


def test_dimension_numbers_as_an_object() -> None:
    numbers = lax.conv_dimension_numbers(IMAGES.shape, KERNEL.shape, LAST)
    assert numbers == lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    given = lax.ConvDimensionNumbers([0, 3, 1, 2], [3, 2, 0, 1], [0, 3, 1, 2])  # type: ignore[arg-type]  # as in JAX
    for each in (LAST, numbers, given):
        out = lax.conv_general_dilated(IMAGES, KERNEL, (1, 1), "SAME", None, None, each, 2)
        assert out.shape == (2, 5, 6, 6)
    wrong = numbers._replace(out_spec=(0, 3, 1, 1))
    with pytest.raises(ValueError, match="must name each of 4 axes once"):
        lax.conv_general_dilated(IMAGES, KERNEL, (1, 1), "SAME", None, None, wrong, 2)


def test_steps_that_are_none() -> None:
    for name in ("window_strides", "lhs_dilation", "rhs_dilation"):
        options: dict[str, Any] = {"window_strides": (1, 1), "padding": [(0, 0), (0, 0)], name: (1, 0)}
        with pytest.raises(ValueError, match=f"{name} must have a positive number for each of 2 spatial axes"):
            lax.conv_general_dilated(IMAGES, KERNEL, dimension_numbers=LAST, feature_group_count=2, **options)


def test_a_batch_without_examples() -> None:
    none = fnp.zeros((0, *IMAGES.shape))
    out = fx.vmap(strided(lax), (0, None))(none, KERNEL)
    assert out.shape == (0, 2, 2, 6, 6)
    assert fx.vmap(strided(lax))(none, fnp.zeros((0, *KERNEL.shape))).shape == (0, 2, 2, 6, 6)


def test_checkpoints_may_keep_convolutions() -> None:
    numbers = lax.conv_dimension_numbers((1, 1, 2), (1, 1, 2), None)
    prim = ConvGeneralDilated((1,), ((0, 0),), (1,), (1,), numbers)
    assert fx.checkpoint_policies.dots_saveable(prim)
    assert not fx.checkpoint_policies.dots_with_no_batch_dims_saveable(prim)


def test_weights_of_resized_images_are_of_no_trace() -> None:
    """They are kept from one call to the next, whichever handler the first call is made under."""

    def f(x: Any) -> Any:
        return tracefx.image.resize(x, (3, 7), "linear").sum()

    first = fx.grad(f)(fnp.ones((3, 5)))
    assert_near(fx.jit(fx.vmap(fx.grad(f)))(fnp.ones((2, 3, 5)))[1], first, ELEMENTARY)


def test_ragged_products_of_groups_that_vary() -> None:
    """Every operand along a batch of its own."""
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
        given: list[Any] = [each if axis == 0 else each[1] for each, axis in zip((x, y, sizes), axes, strict=True)]
        batched: Any = fx.vmap(lax.ragged_dot, axes)
        found = batched(*given)
        places = [[n if axis == 0 else 1 for axis in axes] for n in range(3)]
        np.testing.assert_array_equal(found, np.stack([expected(*place) for place in places]))
