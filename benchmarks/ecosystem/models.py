"""Training steps and densities, whose times of tracing and compilation are compared.

`python -m benchmarks.ecosystem.models NAME` prints the CPU seconds of tracing, lowering and compilation on JAX as JSON,
`python -m tracefx.as_jax -m benchmarks.ecosystem.models NAME` those on tracefx.
"""

# These libraries leave some of their classes and decorators unannotated.
# mypy: disable-error-code="explicit-override, import-not-found, import-untyped, misc, untyped-decorator"

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp

STAGES: Final = ("trace", "lower", "compile")
Program: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments."""


def equinox_perceptron() -> Program:
    """A perceptron of Equinox with three layers, trained by AdamW."""
    import equinox as eqx
    import optax

    model = eqx.nn.MLP(64, 10, 256, 3, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_array)
    optimizer = optax.adamw(1e-3)

    def loss(params: Any, x: Any, y: Any) -> Any:
        logits = jax.vmap(eqx.combine(params, static))(x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(slopes, state, params)
        return optax.apply_updates(params, updates), state, value

    return step, (params, optimizer.init(params), jnp.ones((32, 64)), jnp.zeros(32, int))


def flax_transformer(blocks: int) -> Program:
    """A transformer of Flax (linen) with equal blocks, trained by Adam."""
    import flax.linen as nn
    import optax

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            y = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(num_heads=4)(y, mask=nn.make_causal_mask(x[..., 0]))
            return x + nn.Dense(128)(nn.gelu(nn.Dense(512)(nn.LayerNorm()(x))))

    class Transformer(nn.Module):
        @nn.compact
        def __call__(self, words: Any) -> Any:
            x = nn.Embed(96, 128)(words)
            for _ in range(blocks):
                x = Block()(x)
            return nn.Dense(96)(nn.LayerNorm()(x))

    model, optimizer = Transformer(), optax.adam(1e-3)
    words = jnp.zeros((4, 64), int)
    params = jax.jit(model.init)(jax.random.key(0), words)

    def loss(params: Any, words: Any) -> Any:
        logits = model.apply(params, words)
        return optax.softmax_cross_entropy_with_integer_labels(logits, words).mean()

    def step(params: Any, state: Any, words: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(params, words)
        updates, state = optimizer.update(slopes, state, params)
        return optax.apply_updates(params, updates), state, value

    return step, (params, optimizer.init(params), words)


def flax_nnx_perceptron() -> Program:
    """A perceptron of Flax (nnx) with eight equal layers and normalization; the gradient of its parameters."""
    from flax import nnx

    class Network(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.layers = nnx.List([nnx.Linear(64, 64, rngs=rngs) for _ in range(8)])
            self.norms = nnx.List([nnx.LayerNorm(64, rngs=rngs) for _ in range(8)])

        def __call__(self, x: Any) -> Any:
            for layer, norm in zip(self.layers, self.norms, strict=True):
                x = x + nnx.relu(norm(layer(x)))
            return x

    graph, params = nnx.split(Network(nnx.Rngs(0)), nnx.Param)
    return jax.grad(lambda params, x: jnp.mean(nnx.merge(graph, params)(x) ** 2)), (params, jnp.ones((32, 64)))


def numpyro_potential() -> Program:
    """The gradient of the potential of a hierarchical regression of NumPyro."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer.util import potential_energy

    def model(groups: Any, x: Any, y: Any) -> None:
        mean, spread = numpyro.sample("mean", dist.Normal(0, 1)), numpyro.sample("spread", dist.HalfNormal(1.0))
        with numpyro.plate("groups", 8):
            slope = numpyro.sample("slope", dist.Normal(mean, spread))
            offset = numpyro.sample("offset", dist.StudentT(3.0, 0.0, 1.0))
        noise = numpyro.sample("noise", dist.Gamma(2.0, 2.0))
        with numpyro.plate("data", x.shape[0]):
            numpyro.sample("y", dist.Normal(slope[groups] * x + offset[groups], noise), obs=y)

    values = {"mean": jnp.zeros(()), "spread": jnp.zeros(()), "noise": jnp.zeros(())}
    values |= {"slope": jnp.zeros(8), "offset": jnp.zeros(8)}
    data = jnp.arange(64) % 8, jnp.ones(64), jnp.ones(64)
    return jax.grad(lambda values, *data: potential_energy(model, data, {}, values)), (values, *data)


def diffrax_gradient() -> Program:
    """The gradient of the solution of a differential equation by Diffrax."""
    import diffrax

    def end(rate: Any, start: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, rate: -rate * y)
        control = diffrax.PIDController(1e-5, 1e-6)
        solved = diffrax.diffeqsolve(
            term, diffrax.Tsit5(), 0.0, 1.0, 0.1, start, args=rate, stepsize_controller=control, max_steps=64
        )
        return jnp.sum(solved.ys**2)

    return jax.grad(end), (0.5, jnp.ones(3))


MODELS: Final[dict[str, Callable[[], Program]]] = {
    "Equinox: perceptron of 4 layers, a step of AdamW": equinox_perceptron,
    "Flax (linen): transformer of 2 blocks, a step of Adam": lambda: flax_transformer(2),
    "Flax (linen): transformer of 8 blocks, a step of Adam": lambda: flax_transformer(8),
    "Flax (nnx): perceptron of 8 layers with normalization, gradient": flax_nnx_perceptron,
    "NumPyro: hierarchical regression, gradient of its potential": numpyro_potential,
    "Diffrax: adaptive solution, gradient": diffrax_gradient,
}


def seconds_of(program: Program) -> dict[str, float]:
    """Returns the CPU seconds of the stages of a program that is traced for the first time."""
    function, arguments = program
    jax.jit(lambda x: x + 1)(1.0)  # starts the runtime
    jitted, times = jax.jit(function), [time.process_time()]
    traced = jitted.trace(*arguments)
    times.append(time.process_time())
    lowered = traced.lower()
    times.append(time.process_time())
    lowered.compile()
    times.append(time.process_time())
    return {stage: end - start for stage, (start, end) in zip(STAGES, pairwise(times), strict=True)}


if __name__ == "__main__":
    print(json.dumps(seconds_of(MODELS[sys.argv[1]]())))
