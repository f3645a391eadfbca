"""Neural networks and training loops written for JAX, as functions of the library."""

# mypy: untyped-calls-exclude="jax", allow-untyped-decorators

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tests.control.transform_checks import normal

Model: TypeAlias = tuple[Callable[[Any, Any], Any], Any, Any]
"""A loss, parameters, and an example."""


# ------------------------------------------------------------------ sequence networks


def rnn(jax: Any, jnp: Any) -> Model:
    def loss(params: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(params["wh"] @ h + params["wx"] @ x + params["b"])
            return h, params["out"] @ h

        _, ys = jax.lax.scan(step, jnp.zeros(3), xs)
        return jnp.mean((ys - 1.0) ** 2)

    params = {"wh": normal(3, 3), "wx": normal(3, 2, seed=1), "b": normal(3, seed=2), "out": normal(1, 3, seed=3)}
    return loss, params, normal(4, 2, seed=4)


class LSTMState(NamedTuple):
    h: Any
    c: Any


def lstm(jax: Any, jnp: Any) -> Model:
    def cell(params: Any, state: LSTMState, x: Any) -> tuple[LSTMState, Any]:
        gates = jnp.concatenate([x, state.h]) @ params["w"] + params["b"]
        i, f, g, o = jnp.split(gates, 4)
        c = jax.nn.sigmoid(f + 1.0) * state.c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return LSTMState(h, c), h

    def loss(params: Any, xs: Any) -> Any:
        init = LSTMState(jnp.zeros((2,)), jnp.zeros((2,)))
        last, hs = jax.lax.scan(functools.partial(cell, params), init, xs)
        return jnp.sum(hs**2) + jnp.sum(last.c)

    return loss, {"w": normal(4, 8), "b": normal(8, seed=1)}, normal(4, 2, seed=2)


def bidirectional_gru(jax: Any, jnp: Any) -> Model:
    """A forward and a reverse layer, with a mask for the sequence lengths."""

    def gru(p: Any, h: Any, inputs: Any) -> Any:
        x, mask = inputs
        z = jax.nn.sigmoid(x @ p["wz"] + h @ p["uz"])
        r = jax.nn.sigmoid(x @ p["wr"] + h @ p["ur"])
        new = jnp.tanh(x @ p["wn"] + (r * h) @ p["un"])
        h = jnp.where(mask, (1 - z) * new + z * h, h)
        return h, h

    def loss(params: Any, example: Any) -> Any:
        xs, n = example["xs"], example["n"]
        mask = jnp.arange(xs.shape[0])[:, None] < jnp.int32(n)
        _, forward = jax.lax.scan(lambda h, x: gru(params["f"], h, x), jnp.zeros(2), (xs, mask))
        _, backward = jax.lax.scan(lambda h, x: gru(params["b"], h, x), jnp.zeros(2), (xs, mask), reverse=True)
        return jnp.sum(jnp.where(mask, forward * backward, 0.0)) / n

    def weights(seed: int) -> dict[str, Any]:
        return {name: normal(2, 2, seed=seed + i) for i, name in enumerate(["wz", "uz", "wr", "ur", "wn", "un"])}

    return loss, {"f": weights(0), "b": weights(10)}, {"xs": normal(4, 2), "n": np.float32(3)}


def transformer(jax: Any, jnp: Any) -> Model:
    """A scan over checkpointed blocks with stacked parameters."""

    def norm(x: Any, scale: Any) -> Any:
        mean = jnp.mean(x, axis=-1, keepdims=True)
        return (x - mean) * scale / jnp.sqrt(jnp.var(x, axis=-1, keepdims=True) + 1e-5)

    def attention(p: Any, x: Any) -> Any:
        q, k, v = jnp.split(x @ p["qkv"], 3, axis=-1)
        q, k, v = (y.reshape(y.shape[0], 2, -1) for y in (q, k, v))
        scores = jnp.einsum("qhd,khd->hqk", q, k) / jnp.sqrt(q.shape[-1])
        n = x.shape[0]
        scores = jnp.where(jnp.tril(jnp.ones((n, n), bool)), scores, -1e9)
        out = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores, axis=-1), v)
        return out.reshape(n, -1) @ p["proj"]

    @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)
    def block(x: Any, p: Any) -> Any:
        x = x + attention(p, norm(x, p["scale"]))
        return x + jax.nn.gelu(x @ p["up"]) @ p["down"]

    def loss(params: Any, x: Any) -> Any:
        x, _ = jax.lax.scan(lambda x, p: (block(x, p), None), x, params["blocks"])
        logits = x @ params["out"]
        return -jnp.mean(jax.nn.log_softmax(logits)[:, 0])

    layers = 2
    blocks = {
        "scale": np.ones((layers, 4), np.float32),
        "qkv": normal(layers, 4, 12) * 0.5,
        "proj": normal(layers, 4, 4, seed=1) * 0.5,
        "up": normal(layers, 4, 6, seed=2) * 0.5,
        "down": normal(layers, 6, 4, seed=3) * 0.5,
    }
    return loss, {"blocks": blocks, "out": normal(4, 3, seed=4)}, normal(3, 4, seed=5)


# ------------------------------------------------------------------ training loops


def adam(jax: Any, jnp: Any) -> Model:
    """A training loop as a function of its initial weights and learning rate, so that gradients are nested."""

    def model(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(x @ w["a"]) * w["b"])

    def loss(hyper: Any, x: Any) -> Any:
        def step(i: Any, state: Any) -> Any:
            w, m, v = state
            _, g = jax.value_and_grad(lambda w: (model(w, x) - 1.0) ** 2)(w)
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
            v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g**2, v, g)
            t = i + 1
            scale = hyper["rate"] * jnp.sqrt(1 - 0.99**t) / (1 - 0.9**t)
            w = jax.tree.map(lambda w, m, v: w - scale * m / (jnp.sqrt(v) + 1e-3), w, m, v)
            return w, m, v

        zeros = jax.tree.map(jnp.zeros_like, hyper["init"])
        w, _, _ = jax.lax.fori_loop(0, 3, step, (hyper["init"], zeros, zeros))
        return (model(w, x) - 1.0) ** 2

    return loss, {"rate": np.float32(0.05), "init": {"a": normal(2, 3), "b": normal(3, seed=1)}}, normal(2, seed=2)


def clipped_and_straight(jax: Any, jnp: Any) -> Model:
    @jax.custom_vjp
    def clip_gradient(limit: Any, x: Any) -> Any:
        return x

    clip_gradient.defvjp(lambda limit, x: (x, limit), lambda limit, g: (None, jnp.clip(g, -limit, limit)))

    @jax.custom_jvp
    def quantize(x: Any) -> Any:
        return jnp.round(x * 4) / 4

    quantize.defjvp(lambda primals, tangents: (quantize(*primals), tangents[0]))

    def straight_through(x: Any) -> Any:
        zero = x - jax.lax.stop_gradient(x)
        return zero + jax.lax.stop_gradient(jnp.sign(x))

    def loss(params: Any, x: Any) -> Any:
        def step(h: Any, w: Any) -> Any:
            h = jnp.tanh(quantize(w) @ h)
            h = clip_gradient(0.5, h)
            return h, straight_through(h)

        h, ys = jax.lax.scan(step, x, params)
        return jnp.sum(h**3) + jnp.sum(ys * jnp.arange(3.0))

    return loss, normal(2, 3, 3), normal(3, seed=1)
