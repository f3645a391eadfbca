"""A linear regression by NUTS and by variational inference (NumPyro)."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO, autoguide


def model(x, y=None):
    slope, offset = numpyro.sample("slope", dist.Normal(0, 1)), numpyro.sample("offset", dist.Normal(0, 1))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(slope * x + offset, noise), obs=y)


x = jnp.linspace(-1, 1, 20)
y = 2 * x + 0.5 + 0.1 * jax.random.normal(jax.random.PRNGKey(1), (20,))
mcmc = MCMC(NUTS(model), num_warmup=30, num_samples=20, progress_bar=False)
mcmc.run(jax.random.PRNGKey(0), x, y)
svi = SVI(model, autoguide.AutoNormal(model), numpyro.optim.Adam(0.05), Trace_ELBO())
result = svi.run(jax.random.PRNGKey(2), 50, x, y, progress_bar=False)
print(json.dumps([*[float(v.mean()) for v in mcmc.get_samples().values()], float(result.losses[-1])]))
