"""Low-rank adapted weights give the results of their merged sum without computing the sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import untyped
from tests.jaxprs import all_equations
from tracefx import lax, tree
from tracefx.extend import Array, Eqn
from tracefx.handlers import LowRank, init_lora, join_lora, lora, merge, split_lora
from tracefx.testing.tolerances import DERIVATIVE, ULPS

RNG = np.random.default_rng(0)


def random(*shape: int) -> Array:
    return fnp.asarray(RNG.normal(size=shape).astype(np.float32))


W = LowRank(random(4, 6), random(4, 2), random(2, 6), 0.5)
LAYERS = LowRank(random(5, 4, 4), random(5, 4, 2), random(5, 2, 4), 0.25)
X = random(3, 4)


def weight_sized_sums(f: Callable[..., Any], *args: Any) -> list[Eqn]:
    """The equations with a result as large as the weight, except for data movement and dtype conversion."""
    moving = {"transpose", "convert_element_type", "stop_gradient", "scan", "jit", "pjit", "cond", "checkpoint"}
    eqns = all_equations(fx.make_jaxpr(f)(*args).jaxpr)
    return [
        e
        for e in eqns
        if e.prim.name not in moving and any(o.aval.size >= 16 and _square(o.aval.shape) for o in e.outs)
    ]


def _square(shape: tuple[int, ...]) -> bool:
    return sorted(shape[-2:]) in ([4, 6], [4, 4]) and 3 not in shape


def net(x: Any, layers: Any) -> Any:
    return lax.scan(lambda x, w: (fnp.tanh(x @ w), None), x, layers)[0]


KEPT: list[tuple[Callable[..., Any], tuple[Any, ...], LowRank]] = [
    (lambda x, w: x @ w, (X,), W),
    (lambda x, w: x @ w, (X[0],), W),
    (lambda x, w: w.T @ x, (X.T,), W),
    (lambda x, w: w @ x, (random(6),), W),
    (lambda x, w: x @ w.T, (random(3, 6),), W),
    (lambda x, w: fnp.einsum("bsi,io->bos", x, w), (random(2, 3, 4),), W),
    (lambda x, w: fnp.einsum("io,bo->bi", w, x), (random(3, 6),), W),
    (lambda x, w: fnp.einsum("io,io->", x, w), (random(4, 6),), W),
    (lambda x, w: (x @ w.astype("float16")).astype("float32"), (X,), LowRank(W.weight, W.a, fnp.zeros((2, 6)))),
    (lambda x, w: x @ lax.stop_gradient(w), (X,), W),
    (lambda x, w: fx.vmap(lambda x: x @ w)(x), (X,), W),
    (lambda x, w: fx.vmap(lambda c: x @ c, in_axes=1)(w), (X[0],), W),
    (lambda x, w: fx.grad(lambda x: fnp.tanh(x @ w).sum())(x), (X,), W),
    (lambda x, w: fx.checkpoint(lambda x: x @ w)(x), (X,), W),
    (lambda x, w: lax.cond(x[0, 0] > 0, lambda: x @ w, lambda: -x @ w), (X,), W),
    (lambda x, w: lax.fori_loop(0, 3, lambda i, y: (y @ w) @ w.T, x), (X * 0.1,), W),
    (net, (X,), LAYERS),
    (lambda x, w: fx.grad(lambda x: net(x, w).sum())(x), (X,), LAYERS),
    (lambda x, w: fx.vmap(lambda x, w: x @ w)(x, w), (random(5, 3, 4),), LAYERS),
    (lambda x, w: fnp.einsum("bi,lio->lbo", x, w), (X,), LAYERS),
    (lambda x, w: fnp.einsum("lbi,lio->blo", x, w), (random(5, 3, 4),), LAYERS),
    (lambda x, w: fnp.einsum("lbi,lio->bo", x, w), (random(5, 3, 4),), LAYERS),
    (lambda x, w: fnp.transpose(w, (0, 2, 1)) @ x.T, (X,), LAYERS),
    (lambda x, w: lax.scan(lambda x, w: (x @ w.T, None), x, w, reverse=True)[0], (X,), LAYERS),
]


@pytest.mark.parametrize(("f", "args", "w"), KEPT)
def test_products_with_adapted_weights_do_not_form_the_sum(
    f: Callable[..., Any], args: tuple[Any, ...], w: LowRank
) -> None:
    want = f(*args, w.merged())
    tolerance = DERIVATIVE if w is LAYERS else ULPS["dot_general"]  # some are derivatives of a network
    for g in (lora(f), fx.jit(lora(f)), lora(fx.jit(f))):
        assert_near(g(*args, w), want, tolerance)
    assert not weight_sized_sums(lora(f), *args, w)


def test_weight_sized_sums_detects_sums() -> None:
    assert weight_sized_sums(lambda x, w: x @ w.merged(), X, W)
    assert weight_sized_sums(lambda x, w: net(x, w.merged()), X, LAYERS)

    def loss(w: Any) -> Any:
        return net(X, w).sum()

    assert weight_sized_sums(fx.grad(loss), LAYERS.merged())


SUMMED: list[tuple[Callable[..., Any], LowRank]] = [
    (lambda w: w * 2, W),
    (lambda w: w[1], W),
    (lambda w: w.reshape(-1), W),
    (lambda w: fnp.split(w, 2)[0], W),
    (lambda w: w, W),
    (lambda w: w @ w.T, W),
    (lambda w: w.astype("int32"), LowRank(fnp.ones((2, 2)), fnp.ones((2, 1)), fnp.ones((1, 2)))),
    (lambda w: fnp.einsum("k,io->kio", X[0], w), W),
    (lambda w: fnp.transpose(w, (2, 0, 1)).sum(axis=0), LAYERS),
    (lambda w: lax.scan(lambda c, row: (c + row, row), fnp.zeros(6), w), W),
    (lambda w: lax.scan(lambda c, _: (c, w), 0.0, None, length=2)[1], W),
    (lambda w: lax.scan(lambda c, _: (c * 2, None), w, None, length=2)[0], W),
    (lambda w: lax.cond(w[0, 0] > 0, lambda: w, lambda: 2 * w), W),
    (lambda w: lax.while_loop(lambda c: c[0, 0] < 100, lambda c: c + 100, w), W),
    (lambda w: fx.jvp(lambda w: w @ w.T, (w,), (w,)), W),
    (lambda w: lax.scan(lambda c, w: (c, w.T), 0.0, w)[1] @ X.T, LAYERS),
    (lambda w: fx.vmap(lambda w: w.T, out_axes=1)(w), LAYERS),
    (lambda w: fx.vmap(lambda w: w @ X[0], in_axes=1)(w), LAYERS),
    (lambda w: fx.grad(lambda w: fnp.sin(X @ w).sum())(w), W),
    (lambda w: fx.grad(lambda w: fnp.sin(fnp.einsum("ab,lbc->lac", X, w)).sum())(w), LAYERS),
    (lambda w: fx.jvp(lambda w: X @ w, (w,), (fnp.ones((4, 6)),)), W),
    (lambda w: lax.fori_loop(0, 2, lambda i, c: (c[0] + 1.0, c[1]), (0.0, w))[1].T @ X.T, W),
    (lambda w: lora(lambda v: X @ v)(w), W),
]


@pytest.mark.parametrize(("f", "w"), SUMMED)
def test_other_primitives_use_the_merged_sum(f: Callable[..., Any], w: LowRank) -> None:
    want = f(w.merged())
    for g in (lora(f), fx.jit(lora(f)), lora(fx.jit(f))):
        assert_near(g(w), want)


def test_adapted_weights_under_vmap() -> None:
    xs = random(5, 3, 4)
    assert_near(fx.vmap(lora(lambda x, w: x @ w))(xs, LAYERS), xs @ LAYERS.merged())
    assert_near(fx.vmap(lora(lambda x, w: x @ w), in_axes=(0, None))(xs, W), xs @ W.merged())


def test_custom_rule_that_closes_over_an_adapted_weight() -> None:
    @fx.custom_jvp
    def f(x: Any, w: Any) -> Any:
        return x @ w

    f.defjvps(lambda t, ans, x, w: 7.0 * (t @ w), None)
    assert_near(lora(f)(X, W), X @ W.merged())
    assert_near(fx.jit(lora(fx.jit(f)))(X, W), X @ W.merged())


def test_gradients_of_the_low_rank_factors() -> None:
    params = {"layers": LAYERS, "out": random(4, 2), "bias": random(2)}

    def model(params: Any, x: Any) -> Any:
        return (net(x, params["layers"]) @ params["out"] + params["bias"]).sum()

    trained, frozen = split_lora(params)
    assert [np.asarray(leaf).shape for leaf in tree.leaves(trained)] == [(5, 4, 2), (5, 2, 4)]

    def loss(trained: Any) -> Any:
        return lora(model)(join_lora(trained, frozen), X)

    def merged(trained: Any) -> Any:
        return model(merge(join_lora(trained, frozen)), X)

    assert_near(loss(trained), merged(trained))
    want = fx.grad(merged)(trained)
    # Merging rounds the weights once more, and each layer amplifies the error.
    for g in (fx.grad(loss), fx.jit(fx.grad(loss)), fx.grad(fx.jit(loss))):
        assert_near(g(trained), want, DERIVATIVE)
    assert not weight_sized_sums(fx.grad(loss), trained)
    assert want["layers"].weight is None
    assert want["out"] is None


def test_initial_factors() -> None:
    params = {"a": random(4, 3), "b": random(3), "n": fnp.arange(6).reshape(2, 3), "s": random(5, 4, 3)}
    adapted = init_lora(params, 2, alpha=8.0)
    assert adapted["b"] is params["b"]
    assert adapted["n"] is params["n"]
    assert adapted["a"].scale == 4.0
    assert adapted["s"].a.shape == (5, 4, 2)
    assert adapted["s"].b.shape == (5, 2, 3)
    assert_near(merge(adapted), params)
    assert 0.2 < float(adapted["s"].a.std()) < 0.9
    other = init_lora(params, 2, key=1)
    assert (np.asarray(other["a"].a) != np.asarray(adapted["a"].a)).all()
    assert other["a"].scale == 1.0
    some = init_lora(params, 1, where=lambda path, leaf: path == "['s']")
    assert not isinstance(some["a"], LowRank)
    assert isinstance(some["s"], LowRank)
    assert init_lora({}, 1) == {}
    small = init_lora(random(4, 3).astype("bfloat16"), 1)
    assert str(small.a.dtype) == str(small.b.dtype) == "bfloat16"
    assert str(lora(lambda w: fnp.ones(4, "bfloat16") @ w)(small).dtype) == "bfloat16"


def test_split_and_merge() -> None:
    params = {"w": W, "list": [random(2), LAYERS]}
    assert_near(join_lora(*split_lora(params)), params)
    trained, frozen = split_lora(params)
    assert len(tree.leaves(trained)) == 4
    assert len(tree.leaves(frozen)) == 3
    assert join_lora(trained, frozen)["w"].scale == W.scale


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="the rank must be at least 1, got 0"):
        init_lora({}, 0)
    with pytest.raises(TypeError, match=r"where selects params\['b'\], which is f32\[3\], not a floating-point matrix"):
        init_lora({"b": random(3)}, 1, where=lambda path, leaf: True)
    for wrong in (
        LowRank(random(4, 6), random(4, 2), random(3, 6)),
        LowRank(random(4), random(4, 2), random(2, 4)),
        LowRank(random(5, 4, 6), random(4, 2), random(2, 6)),
    ):
        with pytest.raises(ValueError, match=r"must have the shapes \[\.\.\., n, m\], \[\.\.\., n, r\] and"):
            lora(lambda w: w)(wrong)
    with pytest.raises(TypeError, match="lora takes a function"):
        untyped(lora)(3)
