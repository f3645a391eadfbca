"""Haiku, Distrax, Chex, mctx, jaxopt and einops."""

from __future__ import annotations

import json

import chex
import distrax
import einops
import haiku as hk
import jax
import jax.numpy as jnp
import jaxopt
import mctx

key, x = jax.random.PRNGKey(0), jnp.ones((3, 4))
network = hk.transform(lambda x: hk.Sequential([hk.Linear(8), jax.nn.relu, hk.Linear(2)])(x))
params = network.init(key, x)
normal = distrax.MultivariateNormalDiag(jnp.zeros(2), jnp.ones(2))
_, log_prob = normal.sample_and_log_prob(seed=key, sample_shape=(3,))
transformed = distrax.Transformed(distrax.Normal(0.0, 1.0), distrax.Lambda(jnp.tanh))
rearranged = einops.rearrange(x, "a (b c) -> b a c", b=2)
chex.assert_shape(rearranged, (2, 3, 2))


@chex.dataclass
class Pair:
    a: chex.Array
    b: chex.Array


pair = jax.tree.map(lambda leaf: leaf + 1, Pair(a=x, b=rearranged))
minimum = jaxopt.LBFGS(lambda z: jnp.sum((z - 3.0) ** 2)).run(jnp.zeros(3)).params
root = mctx.RootFnOutput(prior_logits=jnp.zeros((2, 3)), value=jnp.zeros(2), embedding=jnp.zeros(2))


def recurrent(params, key, action, embedding):
    output = mctx.RecurrentFnOutput(
        reward=action.astype(jnp.float32), discount=jnp.full(2, 0.9), prior_logits=jnp.zeros((2, 3)), value=embedding
    )
    return output, embedding + 1


policy = mctx.muzero_policy({}, key, root, recurrent, num_simulations=8)
print(
    json.dumps(
        [
            float(network.apply(params, key, x).sum()),
            float(log_prob.sum()),
            float(transformed.log_prob(jnp.array(0.3))),
            float(pair.a.sum() + pair.b.sum()),
            *minimum.tolist(),
            *policy.action_weights.ravel().tolist(),
        ]
    )
)
