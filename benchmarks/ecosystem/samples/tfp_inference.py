"""Distributions, bijectors, a Gaussian process and Hamiltonian Monte Carlo (TensorFlow Probability on JAX)."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import tensorflow_probability.substrates.jax as tfp

tfd, tfb = tfp.distributions, tfp.bijectors
key = jax.random.PRNGKey(0)
positive = tfd.TransformedDistribution(tfd.Normal(0.0, 1.0), tfb.Chain([tfb.Softplus(), tfb.Scale(2.0)]))
joint = tfd.JointDistributionNamed({"mean": tfd.Normal(0.0, 1.0), "x": lambda mean: tfd.StudentT(4.0, mean, 1.0)})
points = jnp.linspace(0.0, 1.0, 5)[:, None]


@jax.jit
def evidence(length):
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(length_scale=length)
    return tfd.GaussianProcess(kernel, points, observation_noise_variance=0.1).log_prob(points[:, 0])


@jax.jit
def chain(key):
    kernel = tfp.mcmc.HamiltonianMonteCarlo(lambda x: -0.5 * jnp.sum(x**2), step_size=0.3, num_leapfrog_steps=3)
    return tfp.mcmc.sample_chain(20, jnp.ones(2), kernel=kernel, trace_fn=None, seed=key)


print(
    json.dumps(
        [
            *positive.sample(3, seed=key).tolist(),
            *jax.grad(positive.log_prob)(jnp.float32(0.7)).ravel().tolist(),
            float(joint.log_prob(joint.sample(seed=key))),
            *map(float, jax.value_and_grad(evidence)(0.5)),
            *chain(key).mean(0).tolist(),
            *tfp.optimizer.lbfgs_minimize(
                lambda x: tfp.math.value_and_gradient(lambda x: jnp.sum((x - 1.0) ** 4), x), jnp.zeros(2)
            ).position.tolist(),
        ]
    )
)
