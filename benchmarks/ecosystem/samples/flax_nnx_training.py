"""A network of Flax (nnx) with batch normalization, trained by SGD."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import optax
from flax import nnx


class Network(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(3, 16, rngs=rngs)
        self.norm = nnx.BatchNorm(16, rngs=rngs)
        self.outer = nnx.Linear(16, 1, rngs=rngs)

    def __call__(self, x):
        return self.outer(nnx.relu(self.norm(self.inner(x))))


network = Network(nnx.Rngs(0))
optimizer = nnx.Optimizer(network, optax.sgd(1e-2), wrt=nnx.Param)
x = jax.random.normal(jax.random.key(0), (8, 3))
y = x.sum(1, keepdims=True)


@nnx.jit
def step(network, optimizer):
    value, grads = nnx.value_and_grad(lambda network: jnp.mean((network(x) - y) ** 2))(network)
    optimizer.update(network, grads)
    return value


for _ in range(20):
    value = step(network, optimizer)
print(json.dumps([float(value), float(network.norm.var[...].sum())]))
