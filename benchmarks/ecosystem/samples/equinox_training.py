"""A perceptron of Equinox, trained with filtered transformations; batch normalization; a checkpointed loop."""

from __future__ import annotations

import json

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import optax

key = jax.random.PRNGKey(0)
model = eqx.nn.MLP(2, 1, 16, 2, key=key)
x = jax.random.normal(key, (64, 2))
y = jnp.sin(x[:, :1])
optimizer = optax.adam(1e-2)
state = optimizer.init(eqx.filter(model, eqx.is_array))


@eqx.filter_value_and_grad
def loss(model, x, y):
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


@eqx.filter_jit
def step(model, state):
    value, grads = loss(model, x, y)
    updates, state = optimizer.update(grads, state, model)
    return eqx.apply_updates(model, updates), state, value


for _ in range(20):
    model, state, value = step(model, state)

norm, norm_state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(2, axis_name="batch", mode="batch")
normalized, _ = jax.vmap(norm, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, norm_state)


def loop(a):
    body = lambda carry: (carry[0] + 1, jnp.sin(a * carry[1]))  # noqa: E731
    return eqxi.while_loop(lambda carry: carry[0] < 5, body, (0, a), max_steps=8, kind="checkpointed")[1]


print(json.dumps([float(value), float((normalized**2).sum()), float(jax.grad(loop)(0.7))]))
