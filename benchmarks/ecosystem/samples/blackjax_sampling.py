"""Samples of a normal distribution by NUTS (BlackJAX)."""

from __future__ import annotations

import json

import blackjax
import jax
import jax.numpy as jnp

sampler = blackjax.nuts(lambda x: -0.5 * jnp.sum(x**2), 0.5, jnp.ones(2))
state = sampler.init(jnp.ones(2))
step = jax.jit(sampler.step)
for i in range(20):
    state, _ = step(jax.random.key(i), state)
print(json.dumps(state.position.tolist()))
