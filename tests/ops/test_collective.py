"""Collectives along named axes of `vmap(axis_name=...)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax as jax_lax

import tracefx as fx
from tests.comparison import assert_near, assert_same
from tests.ops.harness import error_tests
from tracefx import lax
from tracefx.core import NDArray, from_numpy, to_numpy
from tracefx.core.effects import NamedAxisEffect
from tracefx.errors import MissingRuleError
from tracefx.ops.collectives.collective import PSum

jax.config.update("jax_explicit_x64_dtypes", "allow")

Collective = Callable[[Any, Any], Any]
"""A function of a library, `tracefx.lax` or `jax.lax`, and an operand `f32[4, 8]`, with the axis `i` of size 4."""

SIZE: Final = 4
LINEAR: Final[dict[str, Collective]] = {
    "psum": lambda lib, x: lib.psum(x, "i"),
    "psum of a tree": lambda lib, x: lib.psum({"a": x, "b": [x[0], 2]}, "i")["a"],
    "pmean": lambda lib, x: lib.pmean(x, "i"),
    "psum of what is the same for all": lambda lib, x: x * lib.psum(np.float32(3), "i"),
    "psum of a number": lambda lib, x: x * lib.psum(2, "i"),
    "axis_size": lambda lib, x: x * lib.axis_size("i"),
    "axis_index": lambda lib, x: x * lib.axis_index("i"),
    "all_gather": lambda lib, x: lib.all_gather(x, "i"),
    "all_gather behind": lambda lib, x: lib.all_gather(x, "i", axis=-1),
    "all_gather tiled": lambda lib, x: lib.all_gather(x, "i", axis=1, tiled=True),
    "all_gather of what is the same for all": lambda lib, x: (
        x[0] * lib.all_gather(np.arange(8, dtype=np.float32), "i")[1]
    ),
    "psum_scatter": lambda lib, x: lib.psum_scatter(x, "i"),
    "psum_scatter tiled": lambda lib, x: lib.psum_scatter(x, "i", scatter_dimension=1, tiled=True),
    "ppermute": lambda lib, x: lib.ppermute(x, "i", [(0, 1), (1, 2), (2, 3), (3, 0)]),
    "ppermute reversed": lambda lib, x: lib.ppermute(x, "i", [(i, 3 - i) for i in range(4)]),
    "all_to_all": lambda lib, x: lib.all_to_all(x, "i", 0, 0),
    "all_to_all to another axis": lambda lib, x: lib.all_to_all(x, "i", 0, 1),
    "all_to_all tiled": lambda lib, x: lib.all_to_all(x, "i", 1, 1, tiled=True),
    "all_to_all tiled, down": lambda lib, x: lib.all_to_all(x, "i", 1, 0, tiled=True),
    "all_to_all tiled, up": lambda lib, x: lib.all_to_all(x, "i", 0, 1, tiled=True),
}
EXTREME: Final[dict[str, Collective]] = {
    "pmax": lambda lib, x: lib.pmax(x, "i"),
    "pmin": lambda lib, x: lib.pmin(x, "i"),
}
# JAX transposes `all_to_all` to another axis only if it is tiled, and batches `psum_scatter` over few axes.
WITHOUT_ORACLE: Final = {"all_to_all to another axis"}


def data(*shape: int) -> NDArray:
    """Draws integers, whose sums are exact."""
    return np.random.default_rng(0).integers(-9, 10, shape).astype(np.float32)


every_collective = pytest.mark.parametrize("f", [*LINEAR.values(), *EXTREME.values()], ids=[*LINEAR, *EXTREME])
linear_collectives = pytest.mark.parametrize(
    "f",
    [f for name, f in LINEAR.items() if name not in WITHOUT_ORACLE],
    ids=[n for n in LINEAR if n not in WITHOUT_ORACLE],
)


@every_collective
@pytest.mark.parametrize("in_axis", [0, 1, 2])
def test_collective_along_the_batch_axis(f: Collective, in_axis: int) -> None:
    x = np.moveaxis(data(SIZE, 4, 8), 0, in_axis)
    want = jax.jit(jax.vmap(lambda x: f(jax_lax, x), in_axes=in_axis, axis_name="i"))(x)
    assert_same(fx.vmap(lambda x: f(lax, x), in_axes=in_axis, axis_name="i")(x), want)


@every_collective
def test_jit_inside_and_outside_vmap(f: Collective) -> None:
    x = data(SIZE, 4, 8)
    want = jax.jit(jax.vmap(lambda x: f(jax_lax, x), axis_name="i"))(x)
    assert_same(fx.vmap(fx.jit(lambda x: f(lax, x)), axis_name="i")(x), want)
    assert_same(fx.jit(fx.vmap(lambda x: f(lax, x), axis_name="i"))(x), want)


@every_collective
@pytest.mark.parametrize("in_axis", [0, 1, 2])
def test_unnamed_vmap_inside_the_named_axis(f: Collective, in_axis: int) -> None:
    """An inner `vmap` without a name, over any axis, equals a loop."""
    x = data(3, SIZE, 4, 8)
    placed = np.moveaxis(x, 0, 1 + in_axis)
    out = fx.vmap(lambda x: fx.vmap(lambda x: f(lax, x), in_axes=in_axis)(x), axis_name="i")(placed)
    want = np.stack([to_numpy(fx.vmap(lambda x: f(lax, x), axis_name="i")(each)) for each in x], 1)
    np.testing.assert_array_equal(to_numpy(out), want)


@every_collective
def test_another_vmap_outside(f: Collective) -> None:
    x = data(3, SIZE, 4, 8)
    out = fx.vmap(fx.vmap(lambda x: f(lax, x), axis_name="i"), axis_name="j")(x)
    assert_same(out, jax.jit(jax.vmap(jax.vmap(lambda x: f(jax_lax, x), axis_name="i"), axis_name="j"))(x))


# ------------------------------------------------------------------ derivatives


def fx_loss(f: Collective, x: Any) -> Any:
    y = f(lax, x)
    return lax.reduce_sum(y * y, range(y.ndim))


def jax_loss(f: Collective, x: Any) -> Any:
    y = f(jax_lax, x)
    return jnp.sum(y * y)


@linear_collectives
def test_grad_inside_vmap(f: Collective) -> None:
    x = data(SIZE, 4, 8)
    want = jax.jit(jax.vmap(jax.grad(lambda x: jax_loss(f, x)), axis_name="i"))(x)
    assert_same(fx.vmap(fx.grad(lambda x: fx_loss(f, x)), axis_name="i")(x), want)
    assert_same(fx.vmap(fx.jit(fx.grad(lambda x: fx_loss(f, x))), axis_name="i")(x), want)
    assert_same(fx.vmap(fx.grad(fx.jit(lambda x: fx_loss(f, x))), axis_name="i")(x), want)


@linear_collectives
def test_grad_outside_vmap(f: Collective) -> None:
    x = data(SIZE, 4, 8)
    want = jax.jit(jax.grad(lambda x: jnp.sum(jax.vmap(lambda x: jax_loss(f, x), axis_name="i")(x))))(x)
    assert_same(fx.grad(lambda x: lax.reduce_sum(fx.vmap(lambda x: fx_loss(f, x), axis_name="i")(x), (0,)))(x), want)


@linear_collectives
def test_jvp_inside_vmap(f: Collective) -> None:
    x, t = data(SIZE, 4, 8), data(SIZE, 4, 8) + 1
    want = jax.jit(jax.vmap(lambda x, t: jax.jvp(lambda x: f(jax_lax, x), (x,), (t,))[1], axis_name="i"))(x, t)
    assert_same(fx.vmap(lambda x, t: fx.jvp(lambda x: f(lax, x), (x,), (t,))[1], axis_name="i")(x, t), want)


def test_transpose_of_all_to_all_inverts_it() -> None:
    x, w = data(SIZE, 4, 8), data(SIZE, 8, 4)

    def back(x: Any, w: Any) -> Any:
        return fx.vjp(lambda x: lax.all_to_all(x, "i", 0, 1), x)[1](w)[0]

    sent = fx.vmap(lambda x: lax.all_to_all(x, "i", 0, 1), axis_name="i")(x)
    np.testing.assert_array_equal(to_numpy(fx.vmap(back, axis_name="i")(x, sent)), x)
    assert fx.vmap(back, axis_name="i")(x, w).shape == x.shape


def test_pmax_is_differentiable_only_outside_vmap() -> None:
    with pytest.raises(MissingRuleError, match="pmax"):
        fx.vmap(fx.grad(lambda x: lax.pmax(x, "i")), axis_name="i")(data(SIZE))
    # Here the gradient is taken outside of `vmap`, so that a plain maximum is differentiated.
    every = fx.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")
    assert fx.grad(lambda x: lax.reduce_sum(every(x), (0,)))(np.array([1.0, 3.0, 3.0, 2.0])).tolist() == [0, 2, 2, 0]


# ------------------------------------------------------------------ several named axes


@pytest.mark.parametrize(
    "f",
    [
        lambda lib, x: lib.psum(x, ("i", "j")),
        lambda lib, x: lib.psum(x, ("j", "i")),
        lambda lib, x: lib.pmean(x, ("i", "j")),
        lambda lib, x: lib.pmax(x, ("i", "j")),
        lambda lib, x: lib.psum(x, "j"),
        lambda lib, x: lib.psum(x, ()),
        lambda lib, x: x * (lib.axis_index("i") * 3 + lib.axis_index("j")),
        lambda lib, x: x * lib.axis_size(("i", "j")),
    ],
)
def test_two_axes(f: Collective) -> None:
    x = data(2, 3, 5) * 6  # a multiple of 6, so that means are integers too
    out = fx.vmap(fx.vmap(lambda x: f(lax, x), axis_name="j"), axis_name="i")(x)
    assert_same(out, jax.jit(jax.vmap(jax.vmap(lambda x: f(jax_lax, x), axis_name="j"), axis_name="i"))(x))


def test_tuple_of_axis_names_is_in_row_major_order() -> None:
    x = data(2, 3, 5)

    def along_both(f: Callable[[Any], Any]) -> NDArray:
        return to_numpy(fx.vmap(fx.vmap(f, axis_name="j"), axis_name="i")(x))

    index = along_both(lambda x: lax.axis_index(("i", "j")))
    np.testing.assert_array_equal(index, np.arange(6).reshape(2, 3))
    gathered = along_both(lambda x: lax.all_gather(x, ("i", "j")))
    np.testing.assert_array_equal(gathered, np.broadcast_to(x.reshape(6, 5), (2, 3, 6, 5)))
    tiled = along_both(lambda x: lax.all_gather(x, ("i", "j"), tiled=True))
    np.testing.assert_array_equal(tiled, np.broadcast_to(x.reshape(30), (2, 3, 30)))


# ------------------------------------------------------------------ dtypes and unmapped operands


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.float16, np.float64, np.complex64])
@pytest.mark.parametrize("name", ["psum", "pmax", "pmin"])
def test_dtypes(name: str, dtype: type[np.generic]) -> None:
    x = np.array([100, 0, 100, 100]).astype(dtype)
    want = jax.vmap(lambda x: getattr(jax_lax, name)(x, "i"), axis_name="i")(jnp.asarray(x, dtype))
    operand = from_numpy(x, np.dtype(dtype))
    assert_same(fx.vmap(lambda x: getattr(lax, name)(x, "i"), axis_name="i")(operand), want)


def test_psum_of_booleans() -> None:
    x = np.array([True, False, True])
    assert_same(
        fx.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(x),
        jax.vmap(lambda x: jax_lax.psum(x, "i"), axis_name="i")(x),
    )


def test_pmean_of_integers_is_a_float() -> None:
    x = np.array([1, 2], np.int32)
    assert_same(
        fx.vmap(lambda x: lax.pmean(x, "i"), axis_name="i")(x),
        jax.vmap(lambda x: jax_lax.pmean(x, "i"), axis_name="i")(x),
    )


def test_psum_of_a_python_number_is_a_python_number() -> None:
    seen: list[object] = []

    def f(x: Any) -> Any:
        seen.extend([lax.psum(1, "i"), lax.psum(0.5, "i"), lax.pmean(3.0, "i"), lax.axis_size("i")])
        return x

    fx.vmap(f, axis_name="i")(data(SIZE))
    assert seen == [4, 2.0, 3.0, 4]
    assert [type(x) for x in seen] == [int, float, float, int]


def test_unmapped_results_allow_out_axes_none() -> None:
    out = fx.vmap(lambda x: lax.pmax(np.float32(3), "i"), axis_name="i", out_axes=None)(data(SIZE))
    assert out.item() == 3
    out = fx.vmap(lambda x: lax.psum(x, "i"), axis_name="i", out_axes=None)(np.arange(4))
    assert out.item() == 6


def test_ppermute_fills_missing_destinations_with_zeros() -> None:
    send = fx.vmap(lambda x: lax.ppermute(x, "i", [(0, 1), (2, 0)]), axis_name="i")
    np.testing.assert_array_equal(np.asarray(send(np.array([1, 2, 3]))), [3, 1, 0])
    (back,) = fx.vjp(send, np.array([1.0, 2.0, 3.0]))[1](np.array([10.0, 20.0, 30.0]))
    np.testing.assert_array_equal(np.asarray(back), [20, 0, 10])
    same_for_all = fx.vmap(lambda x: lax.ppermute(np.float32(5), "i", [(0, 1)]), axis_name="i")(data(3))
    np.testing.assert_array_equal(same_for_all, [0, 5, 0])


# ------------------------------------------------------------------ programs


def test_jaxpr_has_a_named_axis_effect() -> None:
    jaxprs = []

    def f(x: Any) -> Any:
        jaxprs.append(fx.make_jaxpr(lambda x: lax.psum(x, "i") * lax.axis_index("i"))(x).jaxpr)
        return x

    fx.vmap(f, axis_name="i")(data(SIZE))
    (jaxpr,) = jaxprs
    assert jaxpr.effects == {NamedAxisEffect("i")}
    with pytest.raises(NameError, match="psum along axis 'i'"):
        fx.eval_jaxpr(jaxpr, (), (lax.full((), 1.0),))


@pytest.mark.parametrize(
    "f",
    [
        lambda lib, x: lib.psum(x, "i"),
        lambda lib, x: lib.pmax(x, "i"),
        lambda lib, x: lib.ppermute(x, "i", [(0, 1), (1, 0)]),
        lambda lib, x: lib.all_gather(x, "i"),
        lambda lib, x: lib.all_to_all(x, "i", 0, 0),
        lambda lib, x: lib.psum_scatter(x, "i"),
        lambda lib, x: lib.axis_index("i"),
    ],
)
def test_programs_print_as_in_jax(f: Collective) -> None:
    texts: list[str] = []

    def g(x: Any) -> Any:
        texts.append(fx.make_jaxpr(lambda x: f(lax, x))(x).jaxpr.text(style="jax"))
        return x

    fx.vmap(g, axis_name="i")(data(2, 2, 3))
    want = str(jax.make_jaxpr(lambda x: f(jax_lax, x), axis_env=[("i", 2)])(data(2, 3)))
    assert _words(texts[0]) == _words(want)


def _words(text: str) -> list[str]:
    return text.replace("[", " [ ").replace("]", " ] ").split()


# ------------------------------------------------------------------ invalid input


def along_i(f: Callable[[Any], object], *shape: int) -> Callable[[], object]:
    return lambda: fx.vmap(lambda x: f(x) and x, axis_name="i")(data(SIZE, *shape))


test_invalid_arguments_raise = error_tests(
    (NameError, "psum unbound 'q' no axis", lambda: lax.psum(np.ones(2), "q")),
    (NameError, "psum unbound 'q' in scope axis 'i'", along_i(lambda x: lax.psum(x, "q"))),
    (NameError, "psum unbound 'q'", along_i(lambda x: lax.psum(x, ("i", "q")))),
    (NameError, "axis_index unbound 'q'", along_i(lambda x: lax.axis_index("q"))),
    (NameError, "axis_size unbound 'q'", along_i(lambda x: lax.axis_size("q"))),
    (NameError, "all_gather unbound 'q'", along_i(lambda x: lax.all_gather(x, "q"))),
    (ValueError, "psum axis_name 0 out of bounds", along_i(lambda x: lax.psum(x, 0))),
    (NameError, "psum unbound 'q'", lambda: fx.jit(lambda x: lax.psum(x, "q"))(1.0)),
    (ValueError, "psum axis_name twice", along_i(lambda x: lax.psum(x, ("i", "i")))),
    (TypeError, "x 'a'", along_i(lambda x: lax.psum("a", "i"))),
    (ValueError, "all_gather axis 3", along_i(lambda x: lax.all_gather(x, "i", axis=3), 2)),
    (ValueError, "all_gather axis 0", along_i(lambda x: lax.all_gather(x, "i", tiled=True))),
    (ValueError, "psum_scatter axis 0 size 4", along_i(lambda x: lax.psum_scatter(x, "i"), 3)),
    (ValueError, "psum_scatter axis 0 multiple 4", along_i(lambda x: lax.psum_scatter(x, "i", tiled=True), 3)),
    (
        ValueError,
        "psum_scatter scatter_dimension 1",
        along_i(lambda x: lax.psum_scatter(x, "i", scatter_dimension=1), 4),
    ),
    (ValueError, "ppermute sources perm", along_i(lambda x: lax.ppermute(x, "i", [(0, 1), (0, 2)]))),
    (ValueError, "ppermute destinations perm", along_i(lambda x: lax.ppermute(x, "i", [(0, 4)]))),
    (TypeError, "ppermute perm 0.5", along_i(lambda x: lax.ppermute(x, "i", [(0.5, 1)]))),  # type: ignore[list-item]  # tested
    (ValueError, "all_to_all split_axis 0 size 4", along_i(lambda x: lax.all_to_all(x, "i", 0, 0), 3)),
    (ValueError, "all_to_all split_axis 0 size 4", along_i(lambda x: lax.all_to_all(x, "i", 0, 1), 3, 2)),
    (
        ValueError,
        "all_to_all split_axis 0 multiple 4",
        along_i(lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True), 3),
    ),
    (ValueError, "all_to_all concat_axis 2", along_i(lambda x: lax.all_to_all(x, "i", 0, 2), 4)),
)


@pytest.mark.parametrize("axis_name", [0, (0, 1), ("i", 1), (1, "i", 0)])
@pytest.mark.parametrize("name", ["psum", "pmax", "pmin"])
def test_integers_are_axes_of_the_array(name: str, axis_name: Any) -> None:
    x = data(2, 3, 4)
    got, want = [
        F.jit(F.vmap(lambda x, lax=L: getattr(lax, name)(x, axis_name), axis_name="i"))(x)
        for F, L in ((fx, lax), (jax, jax_lax))
    ]
    assert_same(got, want)


def test_mean_over_integers() -> None:
    """JAX takes no integers here, although it takes them in `psum`."""
    x = data(2, 3, 4)
    assert_near(fx.vmap(lambda x: lax.pmean(x, 0), axis_name="i")(x), x.mean(1))
    assert_near(fx.vmap(lambda x: lax.pmean(x, ("i", 1)), axis_name="i")(x), np.tile(x.mean((0, 2)), (2, 1)))


def test_ppermute_along_two_axes_raises() -> None:
    def f(x: Any) -> Any:
        return lax.ppermute(x, ("i", "j"), [(0, 1)])

    with pytest.raises(
        ValueError, match="is supported only between devices; .* permute along one axis after the other"
    ):
        fx.vmap(fx.vmap(f, axis_name="j"), axis_name="i")(data(2, 3, 6))


def test_collective_with_unbound_axis_raises() -> None:
    with pytest.raises(NameError, match="psum along axis 'i' is evaluated where no axis of that name is bound"):
        fx.bind(PSum(("i",), (4,)), np.ones(2, np.float32))
