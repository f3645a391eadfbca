"""A network of Flax (linen) with normalization and dropout, trained by SGD; an LSTM by `nn.scan`."""

from __future__ import annotations

import json

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax


class Network(nn.Module):
    @nn.compact
    def __call__(self, x, train=True):
        x = nn.relu(nn.LayerNorm()(nn.Dense(16)(x)))
        return nn.Dense(1)(nn.Dropout(0.1, deterministic=not train)(x))


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, xs):
        scanned = nn.scan(nn.LSTMCell, variable_broadcast="params", split_rngs={"params": False}, in_axes=1, out_axes=1)
        cell = scanned(8)
        return cell(cell.initialize_carry(key, xs[:, 0].shape), xs)


key = jax.random.key(0)
x = jax.random.normal(key, (8, 3))
y = x.sum(1, keepdims=True)
network = Network()
params = network.init({"params": key, "dropout": key}, x)
optimizer = optax.sgd(0.1)
state = optimizer.init(params)


@jax.jit
def step(params, state, key):
    def loss(params):
        return jnp.mean((network.apply(params, x, rngs={"dropout": key}) - y) ** 2)

    value, grads = jax.value_and_grad(loss)(params)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, value


for i in range(20):
    params, state, value = step(params, state, jax.random.fold_in(key, i))
recurrent, xs = Recurrent(), jax.random.normal(key, (2, 5, 3), jnp.float32)
print(json.dumps([float(value), float(recurrent.apply(recurrent.init(key, xs), xs)[1].sum())]))
