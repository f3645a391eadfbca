"""`pmap` agrees with JAX on the same devices."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.cases import parametrize_functions
from tests.sharding.both import Library, Program, assert_agrees_with_jax, assert_both_raise
from tracefx import lax
from tracefx.errors import PlatformError
from tracefx.testing import check_grads

ROWS: Final = np.arange(24, dtype=np.float32).reshape(8, 3) / 5


def along_a_name(lib: Library) -> Any:
    return lib.m.pmap(lambda x: x / lib.lax.psum(x, "i"), "i")(ROWS)


def over_four_devices(lib: Library) -> Any:
    return lib.m.pmap(lambda x: x / lib.lax.psum(x, "i"), "i")(ROWS[:4])


def not_mapped(lib: Library) -> Any:
    return lib.m.pmap(lambda x, y: x * y, in_axes=(0, None))(ROWS, 2.0)


def mapped_along_another_axis(lib: Library) -> Any:
    return lib.m.pmap(lambda x, y: x * y, in_axes=(1, 0))(ROWS, np.arange(3.0, dtype=np.float32))


def out_axis_behind(lib: Library) -> Any:
    return lib.m.pmap(lambda x: x * 2, out_axes=1)(ROWS)


def out_axes_from_the_end(lib: Library) -> Any:
    return lib.m.pmap(lambda x: {"a": x * 2, "b": (x.sum(), x)}, out_axes={"a": -2, "b": (-1, 1)})(ROWS)


def out_axis_none(lib: Library) -> Any:
    return lib.m.pmap(lambda x: lib.lax.psum(x, "i"), "i", out_axes=None)(ROWS)


def trees_of_out_axes(lib: Library) -> Any:
    return lib.m.pmap(lambda x: {"a": x, "b": (lib.lax.psum(x, "i"), x)}, "i", out_axes={"a": 0, "b": (None, 1)})(ROWS)


def trees_of_in_axes(lib: Library) -> Any:
    return lib.m.pmap(lambda d, s: d["x"] * d["y"] + s, in_axes=({"x": 0, "y": None}, 0))(
        {"x": ROWS, "y": np.float32(3)}, np.arange(8.0, dtype=np.float32)
    )


def static_argument(lib: Library) -> Any:
    return lib.m.pmap(lambda n, x: x * n, static_broadcasted_argnums=0)(3, ROWS)


def static_function(lib: Library) -> Any:
    return lib.m.pmap(lambda x, f, y: f(x, y), static_broadcasted_argnums=(1,), in_axes=(0, None, None))(
        ROWS, lib.np.add, 1.0
    )


def chosen_devices(lib: Library) -> Any:
    return lib.m.pmap(lambda x: x + lib.lax.axis_index("i"), "i", devices=lib.m.devices()[2:6])(ROWS[:4])


def index_and_size(lib: Library) -> Any:
    return lib.m.pmap(lambda x: (lib.lax.axis_index("i"), lib.lax.axis_size("i") * x), "i")(ROWS)


def without_name(lib: Library) -> Any:
    return lib.m.pmap(lambda x: x + 1)(ROWS)


def gradient_around(lib: Library) -> Any:
    return lib.m.grad(lambda x: lib.np.sum(lib.m.pmap(lambda x: lib.np.sin(x) * lib.lax.psum(x, "i"), "i")(x)))(ROWS)


def gradient_inside(lib: Library) -> Any:
    return lib.m.pmap(lib.m.grad(lambda x: lib.np.sum(lib.np.sin(x))))(ROWS)


def gradient_inside_of_a_mean(lib: Library) -> Any:
    return lib.m.pmap(lib.m.grad(lambda x: lib.np.sum(lib.lax.pmean(lib.np.sin(x), "i"))), "i")(ROWS)


def training_step(lib: Library) -> Any:
    return lib.m.pmap(
        lambda w, x: w - lib.lax.pmean(lib.m.grad(lambda w: lib.np.sum(lib.np.tanh(x * w) ** 2))(w), "i"),
        "i",
        in_axes=(None, 0),
        out_axes=None,
    )(np.ones(3, np.float32), ROWS)


def vmap_around(lib: Library) -> Any:
    return lib.m.vmap(lib.m.pmap(lambda x: x - lib.lax.pmean(x, "i"), "i"))(np.stack([ROWS, ROWS * 2]))


def vmap_inside(lib: Library) -> Any:
    return lib.m.pmap(lib.m.vmap(lambda x: x - lib.lax.pmean(x, "i")), "i")(ROWS)


def jit_around(lib: Library) -> Any:
    return lib.m.jit(lib.m.pmap(lambda x: x - lib.lax.pmean(x, "i"), "i"))(ROWS)


def forward(lib: Library) -> Any:
    return lib.m.jvp(lib.m.pmap(lambda x: x * lib.lax.pmean(x, "i"), "i"), (ROWS,), (ROWS,))


def keyword_arguments(lib: Library) -> Any:
    return lib.m.pmap(lambda x, *, y: x + y)(ROWS, y=ROWS)


def scan_around(lib: Library) -> Any:
    return lib.lax.scan(
        lambda c, x: (c + lib.m.pmap(lambda x: lib.lax.psum(x, "i"), "i")(x), None),
        lib.np.zeros((8, 3)),
        np.stack([ROWS, ROWS]),
    )[0]


def random_keys(lib: Library) -> Any:
    return lib.m.pmap(lambda k: lib.m.random.normal(k, (2,)))(lib.m.random.split(lib.m.random.key(1), 8))


def moves(lib: Library) -> Any:
    return lib.m.pmap(
        lambda x: (
            lib.lax.all_gather(x, "i"),
            lib.lax.ppermute(x, "i", [(i, (i + 1) % 8) for i in range(8)]),
            lib.lax.psum_scatter(lib.np.tile(x[:1], 8), "i"),
        ),
        "i",
    )(ROWS)


def booleans(lib: Library) -> Any:
    return lib.m.pmap(lambda x: (lib.lax.pmax(x, "i"), lib.lax.psum(x, "i")), "i")(ROWS > 2)


def donated(lib: Library) -> Any:
    x = lib.m.device_put(ROWS)
    return lib.m.pmap(lambda x: x + 1, donate_argnums=0)(x)


def static_argument_behind(lib: Library) -> Any:
    return lib.m.pmap(lambda x, n: x * n, static_broadcasted_argnums=1, in_axes=0)(ROWS, 3)


def argument_none(lib: Library) -> Any:
    return lib.m.pmap(lambda x, n: x * 2)(ROWS, None)


def checkpoint_around(lib: Library) -> Any:
    return lib.m.grad(
        lambda x: lib.np.sum(lib.m.checkpoint(lib.m.pmap(lambda x: lib.np.sin(x) * lib.lax.psum(x, "i"), "i"))(x))
    )(ROWS)


def parts_of_the_result(lib: Library) -> Any:
    r = lib.m.pmap(lambda x: x + 1)(ROWS)
    return [s.data.shape[-1] for s in r.addressable_shards], len(r.sharding.device_set)


def text_of_the_program(lib: Library) -> Any:
    return len(lib.m.pmap(lambda x: x + 1).lower(ROWS).as_text()) > 10


@parametrize_functions(globals(), "lib")
def test_agrees_with_jax(program: Program) -> None:
    assert_agrees_with_jax(program)


def test_axis_size_without_mapped_arguments() -> None:
    # JAX requires a mapped argument.
    got = fx.pmap(lambda x: x + lax.axis_index("i"), "i", in_axes=None, axis_size=4)(1.0)
    assert got.tolist() == [1, 2, 3, 4]


def test_in_axes_list() -> None:
    # As for vmap; JAX rejects a list here.
    assert np.array_equal(fx.pmap(lambda x, n: x * n, in_axes=[0, None])(ROWS, 2.0), ROWS * 2)


def test_negative_in_axes() -> None:
    assert np.array_equal(fx.pmap(lambda x: x * 2, in_axes=-1)(ROWS), ROWS.T * 2)


def test_last_out_axis() -> None:
    # As for vmap; JAX joins the parts of an array along axis 0.
    f: Any = lambda x: {"a": x * 2, "b": (x.sum(), fnp.outer(x, x))}  # noqa: E731
    axes: Any = {"a": -1, "b": (-1, -2)}
    for a, b in zip(*[fx.tree.leaves(m(f, out_axes=axes)(ROWS)) for m in (fx.pmap, fx.vmap)], strict=True):
        assert np.array_equal(a, b)


def test_result_sharding_follows_out_axes() -> None:
    got = fx.pmap(lambda x: x + 1, "i", out_axes=1)(ROWS)
    assert got.sharding == fx.NamedSharding(fx.Mesh(fx.devices()[:8], "i"), fx.P(None, "i"))
    assert [shard.data.shape for shard in got.addressable_shards] == [(3, 1)] * 8
    assert [shard.device for shard in got.addressable_shards] == fx.devices()[:8]
    from_the_end = fx.pmap(lambda x: x + 1, "i", out_axes=-1)(ROWS)
    assert [shard.data.shape for shard in from_the_end.addressable_shards] == [(3, 1)] * 8


def test_function_is_traced_once() -> None:
    traced = 0

    def f(x: Any) -> Any:
        nonlocal traced
        traced += 1
        return x * 2

    mapped = fx.pmap(f)
    mapped(ROWS)
    mapped(ROWS + 1)
    assert traced == 1


def test_numeric_derivative() -> None:
    f = fx.pmap(lambda x: fnp.sin(x) * lax.pmean(x * x, "i"), "i")
    check_grads(f, ROWS / 5)


INVALID: Final[dict[type[Exception], dict[str, Program]]] = {
    ValueError: {
        "has size 9, but there are 8 devices": lambda lib: lib.m.pmap(lambda x: x)(np.zeros((9, 2))),
        "(?s)argument `x` of <lambda> has size 8.* has size 4": lambda lib: lib.m.pmap(lambda x, y: x)(ROWS, ROWS[:4]),
        "pass axis_size": lambda lib: lib.m.pmap(lambda x: x, in_axes=None)(ROWS),
        "axis_size is 4": lambda lib: lib.m.pmap(lambda x: x, axis_size=4)(ROWS),
        r"the argument `x` of <lambda>, f32\[\], has no axis 0 to map over": lambda lib: lib.m.pmap(lambda x: x)(1.0),
    },
    TypeError: {"in_axes.* 1.0": lambda lib: lib.m.pmap(lambda x: x, in_axes=1.0)(ROWS)},
    NameError: {"'k'; in scope are axis 'i'": lambda lib: lib.m.pmap(lambda x: lib.lax.psum(x, "k"), "i")(ROWS)},
}
"""Programs by their errors."""


@pytest.mark.parametrize(("error", "message"), [(error, text) for error in INVALID for text in INVALID[error]])
def test_invalid_arguments_are_rejected(error: type[Exception], message: str) -> None:
    assert_both_raise(INVALID[error][message], error, message)


def test_too_many_in_axes_are_rejected() -> None:
    with pytest.raises(ValueError, match="has 2 entries, but there are 1 positional"):
        fx.pmap(lambda x: x, in_axes=(0, None))(ROWS)


def test_out_axes_beyond_the_rank_are_rejected() -> None:
    with pytest.raises(ValueError, match="out_axes names axis -3 of an output with 2 axes"):
        fx.pmap(lambda x: x, out_axes=-3)(ROWS)


def test_nested_pmap_is_rejected() -> None:
    def nested(lib: Library) -> Any:
        return lib.m.pmap(lambda x: lib.m.pmap(lambda y: y, "j")(x), "i")(ROWS[:4].reshape(4, 1, 3))

    assert_both_raise(
        nested, ValueError, r"with the manual axes \['i'\]: use vmap here, or one shard_map over a mesh with"
    )


def test_backend() -> None:
    assert np.array_equal(fx.pmap(lambda x: x * 2, backend="cpu")(ROWS), ROWS * 2)
    with pytest.raises(PlatformError, match="there are no devices of platform 'nonsense'"):
        fx.pmap(lambda x: x, backend="nonsense")
