"""A linear regression, trained by AdamW with a schedule and clipping."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import optax

x = jax.random.normal(jax.random.key(0), (32, 4))
y = x @ jnp.arange(4.0) + 1
params = {"w": jnp.zeros(4), "b": jnp.zeros(())}
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(0.1, 50)))
state = optimizer.init(params)


def loss(params, x, y):
    return jnp.mean((x @ params["w"] + params["b"] - y) ** 2)


@jax.jit
def step(params, state):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, value


for _ in range(50):
    params, state, value = step(params, state)
print(json.dumps([float(value), *params["w"].tolist()]))
