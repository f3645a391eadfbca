"""`autocast`: which primitives run in the narrow dtype, result types, and that training converges as in float32."""

from __future__ import annotations

import itertools
import pickle
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from attrs import evolve

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import assert_errors, untyped
from tracefx import lax, nn
from tracefx.core import DType
from tracefx.core.dtypes import is_inexact
from tracefx.custom_batching import custom_vmap
from tracefx.handlers import (
    DynamicLossScale,
    Policy,
    StaticLossScale,
    all_finite,
    autocast,
    bfloat16,
    count,
    float16,
    select_tree,
)
from tracefx.handlers.precision.policy import EITHER
from tracefx.ops.elementwise.transcendental import Exp
from tracefx.ops.reductions.reduction import ReduceProd
from tracefx.testing import HANDLER_LAWS, check_interpretation
from tracefx.testing.tolerances import Ulps

F = Callable[..., Any]
NARROWEST = Policy("bfloat16", promote="narrowest")
RNG = np.random.default_rng(0)


def cast(f: F, policy: Policy = bfloat16) -> F:
    """`autocast` typed for lambdas."""
    return autocast(f, policy)


def normal(*shape: int) -> Any:
    return fnp.asarray(RNG.normal(size=shape).astype(np.float32))


X, W, B = normal(4, 8), normal(8, 8) / 3, normal(8)


def assert_near_in(got: Any, want: Any, dtype: DType = bfloat16.compute) -> None:
    """Compares in the dtype of the contractions, whose last digits may differ."""
    narrow = lambda x: np.asarray(x).astype(dtype) if is_inexact(np.asarray(x).dtype) else x  # noqa: E731
    assert_near(fx.tree.map(narrow, got), want)


def leaves(tree: Any) -> list[Any]:
    return fx.tree.leaves(tree)


def contraction_dtypes(f: F, *args: Any) -> list[str]:
    """The result dtypes of the contractions."""
    return re.findall(r":(\w+)\[[\d,]*\] = dot_general", str(fx.make_jaxpr(f)(*args)))


def result_dtypes(operation: str, f: F, *args: Any) -> list[str]:
    return re.findall(rf":(\w+)\[[\d,]*\]\*? = {operation}\b", str(fx.make_jaxpr(f)(*args)))


# ------------------------------------------------------------------ primitives that run in the narrow dtype


@pytest.mark.parametrize("policy", [bfloat16, float16], ids=["bfloat16", "float16"])
def test_contractions_run_in_the_compute_dtype(policy: Policy) -> None:
    short = "bf16" if policy is bfloat16 else "f16"
    assert contraction_dtypes(cast(lambda x, w: x @ w, policy), X, W) == [short]
    assert contraction_dtypes(cast(lambda x, w: fnp.einsum("ij,kj,jl->ikl", x, w, w), policy), X, W) == [short, short]

    def loss(w: Any) -> Any:
        return fnp.sum((X @ w) ** 2)

    assert contraction_dtypes(fx.grad(cast(loss, policy)), W) == [short] * 2
    assert contraction_dtypes(cast(fx.grad(loss), policy), W) == [short] * 2


def test_other_primitives_run_in_the_original_dtype() -> None:
    def f(x: Any, w: Any) -> Any:
        y = x @ w
        return fnp.exp(y), fnp.log(y), fnp.sum(y), fnp.cumsum(y), y**3, fnp.sqrt(y), fnp.prod(y)

    for name in ("exp", "log", "reduce_sum", "cumsum", "integer_pow", "sqrt", "reduce_prod"):
        assert result_dtypes(name, cast(f), X, W) == ["f32"], name


def test_elementwise_primitives_between_contractions_stay_narrow() -> None:
    def f(x: Any, w: Any) -> Any:
        y = x @ w
        y = fnp.where(y > 0, y, 0.0) * 0.25
        y = fnp.tanh(fnp.concatenate([y.T, fnp.zeros((1, 4))])[::-1])
        return fnp.maximum(y, 1.0) - y

    program = fx.make_jaxpr(cast(f))(X, W)
    wide = [e.prim.name for e in program.jaxpr.eqns if any(str(v.aval).startswith("f32") for v in e.outs)]
    assert wide == ["convert_element_type"]  # cast of the result


def test_bias_addition_is_narrow() -> None:
    assert result_dtypes("add", cast(lambda x, w, b: x @ w + b), X, W, B) == ["bf16"]
    assert result_dtypes("add", cast(lambda x, w, b: b + x @ w), X, W, B) == ["bf16"]
    batched = fx.vmap(lambda x, w, b: x @ w + b, (0, None, None))
    assert result_dtypes("add", cast(batched), X, W, B) == ["bf16"]
    assert result_dtypes("add", fx.vmap(cast(lambda x, w, b: x @ w + b), (0, None, None)), X, W, B)[0] in (
        "f32",
        "bf16",
    )


def test_mixed_operands_promote_to_the_widest_dtype() -> None:
    assert result_dtypes("add", cast(lambda x, w: x @ w + X), X, W) == ["f32"]
    assert result_dtypes("mul", cast(lambda x, w, b: (x @ w) * b), X, W, B) == ["f32"]
    assert result_dtypes("sub", cast(lambda x, w: (x @ w) - fnp.mean(x @ w, 0)), X, W) == ["f32"]


def test_policy_may_promote_to_the_narrowest_dtype() -> None:
    assert result_dtypes("add", cast(lambda x, w: x @ w + X, NARROWEST), X, W) == ["bf16"]
    assert result_dtypes("mul", cast(lambda x, w, b: (x @ w) * b, NARROWEST), X, W, B) == ["bf16"]
    assert result_dtypes("exp", cast(lambda x, w: fnp.exp(x @ w), NARROWEST), X, W) == ["f32"]
    assert result_dtypes("add", cast(lambda x: x + X, NARROWEST), X) == ["f32"]


def test_constants_out_of_range_of_the_narrow_dtype_stay_wide() -> None:
    def masked(x: Any, w: Any) -> Any:
        y = x @ w
        return fnp.where(y > 0, y, -1e9), y + 1e-9

    assert result_dtypes("select_n", cast(masked, float16), X, W) == ["f32"]
    assert result_dtypes("add", cast(masked, float16), X, W) == ["f32"]
    assert result_dtypes("add", cast(masked, bfloat16), X, W) == ["bf16"]  # has numbers as small
    assert result_dtypes("select_n", cast(lambda x, w: fnp.where(x > 0, x @ w, -fnp.inf), float16), X[:, :8], W) == [
        "f16"
    ]


def test_integer_and_complex_dtypes_are_not_cast() -> None:
    for dtype in (np.float64, np.int32, np.complex64, ml_dtypes.bfloat16, np.float16):
        with fx.enable_x64(True):
            x = fnp.asarray(np.ones((3, 3)).astype(dtype))
            f = lambda x: fnp.abs(x @ x) + 1  # noqa: E731
            plain, mixed = fx.make_jaxpr(f)(x), fx.make_jaxpr(cast(f, float16))(x)
            assert plain == mixed, dtype


def test_explicit_dtypes_are_respected() -> None:
    def f(x: Any) -> Any:
        return lax.dot(x.astype("bfloat16"), x.astype("bfloat16"), preferred_element_type=np.float32)

    assert fx.make_jaxpr(cast(f))(W) == fx.make_jaxpr(f)(W)
    assert cast(lambda x: (x @ x).astype("bfloat16"))(W).dtype == ml_dtypes.bfloat16
    converted = result_dtypes("convert_element_type", cast(lambda x: (x @ x).astype("bfloat16")), W)
    assert converted == ["bf16", "bf16"]  # casts of the operands
    np.testing.assert_array_equal(cast(lambda x: (x @ x).astype("int32"))(W).dtype, np.int32)


def test_user_defined_policy() -> None:
    policy = Policy("bfloat16", narrow=(*bfloat16.narrow, Exp))
    assert result_dtypes("exp", cast(fnp.exp, policy), X) == ["bf16"]
    policy = evolve(bfloat16, either=(*EITHER, ReduceProd))
    assert result_dtypes("reduce_prod", cast(lambda x: fnp.prod(x @ x), policy), W) == ["bf16"]
    policy = evolve(bfloat16, either=())
    assert result_dtypes("tanh", cast(lambda x: fnp.tanh(x @ x), policy), W) == ["f32"]
    f = lambda x: fnp.tanh(x @ x)  # noqa: E731
    assert fx.make_jaxpr(cast(f, Policy("float32")))(W) == fx.make_jaxpr(f)(W)


# ------------------------------------------------------------------ types, loops and branches


def recurrent(x: Any, w: Any) -> Any:
    def step(c: Any, y: Any) -> Any:
        c = c + y @ w
        return c, (fnp.tanh(c @ w), y @ w)

    return lax.scan(step, fnp.zeros(8), x)


def branching(x: Any, w: Any) -> Any:
    y = x @ w
    return lax.cond(fnp.sum(y) > 0, lambda y: y @ w, lambda y: fnp.exp(y), y), lax.cond(
        y[0, 0] > 0, lambda y: y @ w, lambda y: -y, y
    )


def looping(x: Any, w: Any) -> Any:
    y = lax.while_loop(lambda c: fnp.sum(fnp.abs(c)) > 1, lambda c: fnp.tanh(c @ w) * 0.5, x @ w)
    return lax.fori_loop(0, 3, lambda i, y: y @ w + i, y)


def attention(x: Any, w: Any) -> Any:
    q, k, v = x @ w, x @ (2 * w), x @ w.T
    return nn.softmax(q @ k.T / 8**0.5) @ v


@fx.custom_jvp
def with_custom_rule(x: Any) -> Any:
    return fnp.sin(x)


with_custom_rule.defjvps(lambda t, ans, x: 7.0 * t)

PROGRAMS: dict[str, F] = {
    "perceptron": lambda x, w: nn.relu(x @ w + w[0]) @ w,
    "attention": attention,
    "scan": recurrent,
    "cond": branching,
    "while": looping,
    "jit": lambda x, w: fx.jit(attention)(x, w) @ w,
    "checkpoint": lambda x, w: fx.checkpoint(attention)(x, w) @ w,
    "custom rule": lambda x, w: with_custom_rule(x @ w) @ w,
    "weak": lambda x, w: (2.0 * fnp.asarray(3.0), x @ w * 2.0, fnp.sum(x) + 1),
    "batch": lambda x, w: fx.vmap(lambda y: nn.softmax(y @ w) @ w)(x),
    "moved": lambda x, w: fnp.split((x @ w).reshape(2, -1).T, 2),
    "indexed": lambda x, w: ((x @ w)[1:, ::2], (x @ w)[fnp.array([0, 2])], (x @ w).at[0].set(1.0), fnp.argmax(x @ w)),
    "nothing": lambda x, w: (None, 3, {"x": x}),
}


@pytest.mark.parametrize("policy", [bfloat16, float16, NARROWEST], ids=["bfloat16", "float16", "narrowest"])
@pytest.mark.parametrize("name", [*PROGRAMS])
def test_autocast_preserves_types_and_values(name: str, policy: Policy) -> None:
    f = PROGRAMS[name]
    want, types = f(X, W), fx.make_jaxpr(f)(X, W).jaxpr.out_avals
    for g in (cast(f, policy), fx.jit(cast(f, policy)), cast(fx.jit(f), policy)):
        assert fx.make_jaxpr(g)(X, W).jaxpr.out_avals == types
        got = g(X, W)
        assert fx.tree.structure(got) == fx.tree.structure(want)
        assert_near_in(got, want, policy.compute)


@pytest.mark.parametrize(
    "name", ["perceptron", "attention", "scan", "cond", "jit", "checkpoint", "custom rule", "batch"]
)
def test_gradients_keep_their_dtype_and_values(name: str) -> None:
    def loss(x: Any, w: Any) -> Any:
        return sum([fnp.sum(fnp.tanh(y)) for y in leaves(PROGRAMS[name](x, w))], start=fnp.array(0.0))

    want = fx.grad(loss, (0, 1))(X, W)
    for g in (
        fx.grad(cast(loss), (0, 1)),
        cast(fx.grad(loss, (0, 1))),
        fx.jit(fx.grad(cast(loss), (0, 1))),
        cast(fx.jit(fx.grad(loss, (0, 1)))),
    ):
        got = g(X, W)
        assert {x.dtype for x in got} == {np.dtype(np.float32)}
        assert_near_in(got, want)


def test_autocast_commutes_with_vmap() -> None:
    xs = normal(3, 4, 8)
    for f in (attention, recurrent, looping):
        want = fx.vmap(f, (0, None))(xs, W)
        for g in (fx.vmap(cast(f), (0, None)), cast(fx.vmap(f, (0, None)))):
            got = g(xs, W)
            assert {x.dtype for x in leaves(got)} == {np.dtype(np.float32)}
            assert_near_in(got, want)


def test_scan_with_a_float32_carry_accumulates_in_float32() -> None:
    xs, w = fnp.ones((4096, 1)), fnp.ones((1, 1))

    def total(xs: Any) -> Any:
        return lax.scan(lambda c, x: (c + x @ w, None), fnp.zeros(1), xs)[0]

    assert cast(total)(xs) == 4096  # bfloat16 would stay at 256
    while_total = lambda xs: lax.fori_loop(0, xs.shape[0], lambda i, c: c + xs[i] @ w, fnp.zeros(1))  # noqa: E731
    assert cast(while_total)(xs) == 4096


def test_intermediate_values_are_narrow_in_loop_bodies() -> None:
    def f(x: Any, w: Any) -> Any:
        ys = lax.scan(lambda c, y: (c, y @ w), 0.0, x)[1]
        return fnp.max(ys)

    assert "bf16[4,8] = scan" in re.sub(r"_:f32\[\]\*? ", "", str(fx.make_jaxpr(cast(f))(X, W)))


def test_custom_rules_stay_in_force() -> None:
    assert fx.grad(cast(lambda x: with_custom_rule(x)))(0.5) == 7.0
    got = fx.grad(lambda w: fnp.sum(cast(lambda w: with_custom_rule(X @ w))(w)))(W)
    assert_near_in(got, 7 * fnp.broadcast_to(fnp.sum(X, 0)[:, None], (8, 8)))


@fx.custom_jvp
def squared(x: Any) -> Any:
    return x @ x


@squared.defjvp
def squared_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return squared(x), 7.0 * (x @ t + t @ x)


@fx.custom_vjp
def cubed(x: Any) -> Any:
    return x @ x @ x


cubed.defvjp(lambda x: (cubed(x), x @ x), lambda r, t: (7.0 * t @ r,))


@custom_vmap
def mapped(x: Any) -> Any:
    return x @ x


@mapped.def_vmap
def mapped_rule(size: int, batched: Any, x: Any) -> Any:
    return x @ x, True


def first_of_batch(f: F) -> F:
    """Maps the function over a batch of two and returns the first result."""

    return lambda x: f(fnp.stack([x, x]))[0]


@pytest.mark.parametrize("f", [squared, cubed, mapped], ids=["custom_jvp", "custom_vjp", "custom_vmap"])
def test_contractions_in_custom_rules_are_narrow(f: F) -> None:
    def loss(x: Any) -> Any:
        return fnp.sum(fnp.sin(f(x)))

    want = fx.grad(loss)(W)
    makes: list[F] = [
        fx.grad(cast(loss)),
        cast(fx.grad(loss)),
        fx.jit(fx.grad(cast(loss))),
        fx.grad(cast(fx.jit(loss))),
        fx.grad(cast(fx.checkpoint(loss))),
        fx.grad(first_of_batch(cast(fx.vmap(loss)))),
        fx.grad(first_of_batch(fx.vmap(cast(loss)))),
        fx.grad(cast(lambda x: lax.scan(lambda c, _: (c + loss(x), None), 0.0, None, 2)[0] / 2)),
    ]
    for g in makes:
        assert_near_in(g(W), want)
        assert g(W).dtype == np.float32
    assert cast(f)(W).dtype == np.float32


# ------------------------------------------------------------------ memory and traffic


def test_gradients_take_fewer_bytes_of_traffic_and_memory() -> None:
    layers = [(np.zeros((64, 64), np.float32), np.zeros(64, np.float32))] * 4

    def loss(layers: Any, x: Any) -> Any:
        for w, b in layers:
            x = fnp.tanh(x @ w + b)
        return fnp.mean(x)

    x = np.zeros((512, 64), np.float32)
    plain, mixed = count(fx.grad(loss))(layers, x), count(fx.grad(cast(loss)))(layers, x)
    assert mixed.bytes_accessed < 0.8 * plain.bytes_accessed
    assert mixed.peak_bytes < 0.8 * plain.peak_bytes


# ------------------------------------------------------------------ training


def train(step: F, state: Any, n: int) -> Any:
    return fx.jit(lambda state: lax.scan(lambda s, _: step(s), state, None, n))(state)


def layers(*sizes: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(1)
    pairs = itertools.pairwise(sizes)
    return [(fnp.asarray((rng.normal(size=(m, n)) / m**0.5).astype(np.float32)), fnp.zeros(n)) for m, n in pairs]


def regression(params: Any, x: Any, y: Any) -> Any:
    for w, b in params[:-1]:
        x = nn.gelu(x @ w + b)
    (w, b) = params[-1]
    return fnp.mean((x @ w + b - y) ** 2)


def descend(loss: F, rate: float) -> F:
    def step(params: Any) -> Any:
        value, grads = fx.value_and_grad(loss)(params)
        return fx.tree.map(lambda p, g: p - rate * g, params, grads), value

    return step


def test_training_a_perceptron_matches_float32() -> None:
    x = fnp.asarray(np.linspace(-2, 2, 64, dtype=np.float32)[:, None])
    y = fnp.sin(2 * x)
    losses = {}
    for name, f in (("wide", regression), ("bfloat16", cast(regression)), ("float16", cast(regression, float16))):
        _, history = train(descend(lambda p, f=f: f(p, x, y), 0.1), layers(1, 32, 32, 1), 400)
        losses[name] = history
    first, last = losses["wide"][0], losses["wide"][-1]
    assert first > 0.4
    assert last < 0.05
    for name in ("bfloat16", "float16"):
        assert abs(losses[name][-1] - last) < first / 256  # allows for one rounding of the learned values to bfloat16


def transformer(params: Any, tokens: Any) -> Any:
    """A transformer with one causal layer that predicts the next token."""
    x = params["embedding"][tokens[:, :-1]] + params["positions"]

    def normed(x: Any) -> Any:
        centered = x - fnp.mean(x, -1, keepdims=True)
        return centered / fnp.sqrt(fnp.mean(centered**2, -1, keepdims=True) + 1e-5)

    h = normed(x)
    q, k, v = [h @ params[name] for name in "qkv"]
    scores = fnp.einsum("bid,bjd->bij", q, k) / q.shape[-1] ** 0.5
    scores = fnp.where(fnp.tril(fnp.ones(scores.shape[1:], bool)), scores, -fnp.inf)
    x = x + nn.softmax(scores) @ v
    (w1, b1), (w2, b2) = params["mlp"]
    x = x + nn.gelu(normed(x) @ w1 + b1) @ w2 + b2
    logits = nn.log_softmax(normed(x) @ params["embedding"].T)
    return -fnp.mean(fnp.take_along_axis(logits, tokens[:, 1:, None], -1))


def test_training_a_transformer_matches_float32() -> None:
    rng = np.random.default_rng(2)
    d, vocabulary, length = 16, 8, 12
    tokens = fnp.asarray((np.arange(length) * rng.integers(1, 4, (16, 1)) + rng.integers(0, 8, (16, 1))) % vocabulary)
    params = {
        "embedding": fnp.asarray(rng.normal(size=(vocabulary, d)).astype(np.float32)),
        "positions": fnp.asarray(0.1 * rng.normal(size=(length - 1, d)).astype(np.float32)),
        **{name: fnp.asarray((rng.normal(size=(d, d)) / d**0.5).astype(np.float32)) for name in "qkv"},
        "mlp": layers(d, 32, d),
    }
    _, wide = train(descend(lambda p: transformer(p, tokens), 0.3), params, 150)
    _, narrow = train(descend(lambda p: cast(transformer)(p, tokens), 0.3), params, 150)
    assert wide[-1] < 0.5 * wide[0]
    assert abs(narrow[-1] - wide[-1]) < wide[0] / 256  # as above
    assert set(contraction_dtypes(cast(transformer), params, tokens)) == {"bf16"}


# ------------------------------------------------------------------ loss scales


def test_loss_scale_prevents_underflow_of_float16_gradients() -> None:
    def loss(w: Any) -> Any:
        return cast(lambda w: fnp.sum(fnp.tanh(X @ w) @ W) * 1e-9, float16)(w)

    want = fx.grad(lambda w: fnp.sum(fnp.tanh(X @ w) @ W) * 1e-9)(W)
    assert not fnp.any(fx.grad(loss)(W))
    for scale in (StaticLossScale(2.0**24), DynamicLossScale(2.0**24)):
        got = scale.unscale(fx.grad(lambda w, scale=scale: scale.scale(loss(w)))(W))
        assert_near_in(got * 2.0**24, want * 2.0**24, float16.compute)


def test_steps_with_overflow_are_skipped() -> None:
    def loss(w: Any) -> Any:
        return cast(lambda w: fnp.sum(X @ w), float16)(w)

    def step(state: Any) -> Any:
        w, scale = state
        grads = scale.unscale(fx.grad(lambda w: scale.scale(loss(w)))(w))
        finite = all_finite(grads)
        new = w - 0.001 * fnp.where(finite, grads, fnp.nan)
        return (select_tree(finite, new, w), scale.adjust(finite)), (scale.value, finite)

    (w, scale), (values, finite) = train(step, (W, DynamicLossScale(2.0**20, period=4)), 16)
    assert all_finite(w)
    assert not finite[0]
    assert finite[8:].sum() >= 4
    grown = finite[:-1] & (values[1:] > values[:-1])
    assert grown.sum() >= 1
    np.testing.assert_array_equal(values[1:][~finite[:-1]], values[:-1][~finite[:-1]] / 2)
    assert isinstance(scale, DynamicLossScale)


def test_dynamic_scale_grows_and_backs_off() -> None:
    rng = np.random.default_rng(3)
    scale, value, steps = DynamicLossScale(8.0, period=3, factor=4.0, minimum=2.0), 8.0, 0
    for finite in rng.random(60) < 0.8:
        scale = fx.jit(lambda s, ok: s.adjust(ok))(scale, bool(finite))
        if not finite:
            value, steps = max(value / 4.0, 2.0), 0
        elif steps + 1 == 3:
            value, steps = value * 4.0, 0
        else:
            steps += 1
        assert (float(scale.value), int(scale.steps)) == (value, steps)
    assert DynamicLossScale(2.0**127, period=1).adjust(True).value == 2.0**127


def test_loss_scales_are_pytrees() -> None:
    scale = DynamicLossScale(4.0, period=7)
    rebuilt = fx.tree.map(lambda x: x, scale)
    assert (rebuilt.value, rebuilt.steps, rebuilt.period, rebuilt.factor) == (4.0, 0, 7, 2.0)
    assert pickle.loads(pickle.dumps(scale)).period == 7
    static = fx.jit(lambda s: s)(StaticLossScale(4.0))
    assert static.adjust(False) is static
    assert static.scale({"a": 2.0, "n": np.int32(3)})["a"] == 8.0
    assert static.scale({"n": np.int32(3)})["n"] == 3
    assert static.unscale(fnp.ones(2, "bfloat16")).dtype == ml_dtypes.bfloat16


def test_select_tree_and_all_finite_on_pytrees() -> None:
    assert all_finite({})
    assert all_finite({"n": 3, "x": X})
    assert not all_finite([X, fnp.array([1.0, fnp.inf])])
    assert not fx.jit(all_finite)(fnp.array(fnp.nan))
    new, old = {"w": fnp.ones(2), "n": 1}, {"w": fnp.zeros(2), "n": 2}
    for pred in (True, False):
        got = fx.jit(select_tree)(pred, new, old)
        assert got["n"] == (1 if pred else 2)
        np.testing.assert_array_equal(got["w"], [pred, pred])


# ------------------------------------------------------------------ refused arguments


def test_invalid_arguments_are_refused() -> None:
    assert_errors(
        (lambda: untyped(autocast)(3), TypeError, "autocast"),
        (lambda: untyped(autocast)(fnp.sin, "bfloat16"), TypeError, "policy must be a Policy, .* got 'bfloat16'"),
        (lambda: Policy("int32"), TypeError, "compute must be a float dtype of at most 32 bits, got int32"),
        (lambda: Policy("float64"), TypeError, "compute must be a float dtype of at most 32 bits, got float64"),
        (
            lambda: untyped(Policy)("bfloat16", narrow=("dot",)),
            TypeError,
            "narrow must be classes of operations, got 'dot'",
        ),
        (
            lambda: untyped(Policy)("bfloat16", promote="up"),
            ValueError,
            "promote must be 'widest' or 'narrowest', got 'up'",
        ),
        (lambda: DynamicLossScale(period=0), ValueError, "period must be a positive integer, got 0"),
        (lambda: DynamicLossScale(factor=1), ValueError, "factor must be greater than 1, got 1"),
        (lambda: DynamicLossScale().adjust(1), TypeError, "finite must be a boolean scalar, got 1"),
        (lambda: StaticLossScale(2.0).scale("x"), TypeError, "the loss must be a tree of arrays, got 'x'"),
        (lambda: all_finite(["x"]), TypeError, "all_finite takes a tree of arrays, got 'x'"),
        (lambda: all_finite(1j), TypeError, "not complex"),
    )
    with pytest.raises(TypeError, match=r"select_tree: on_true has f32\[2\] where on_false has f32\[3\]"):
        select_tree(True, fnp.ones(2), fnp.ones(3))


def test_policies_compare_and_hash_by_value() -> None:
    assert Policy("bfloat16") == bfloat16
    assert hash(Policy("bfloat16")) == hash(bfloat16)
    assert pickle.loads(pickle.dumps(NARROWEST)) == NARROWEST
    assert autocast(attention).__name__ == "attention"


def test_autocast_obeys_the_handler_laws() -> None:
    assert not check_interpretation(cast).skipped  # functions without contractions are unchanged
    laws = [
        law for law in HANDLER_LAWS if law.name != "satisfies_function_laws"
    ]  # rounding errors exceed finite differences
    assert_near_in = Ulps(f32=8 * 2**16, relative_to_max=True)  # one ulp of bfloat16 is 2**16 ulps of float32
    actual = check_interpretation(cast, attention, X, W, transparent=False, laws=laws, ulps=assert_near_in)
    assert {"restores_context", "does_not_leak_tracers", "interprets_bodies"} <= {*actual.passed}
