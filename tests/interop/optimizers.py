"""A program written for JAX and Optax: trains the same parameters with several optimizers; prints them as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax, random
from jax.typing import ArrayLike

Tree = Any
STEPS = 4


def loss(params: Tree, x: ArrayLike) -> jax.Array:
    hidden = jnp.tanh(x @ params["w"] + params["b"])
    return jnp.mean(optax.losses.huber_loss(hidden @ params["v"], jnp.sin(jnp.sum(x, axis=-1))))


def trained(optimizer: Any) -> dict[str, list[float]]:
    w, v, x = (
        random.normal(key, shape)
        for key, shape in zip(random.split(random.key(0), 3), [(3, 4), (4,), (8, 3)], strict=True)
    )
    params = {"w": w, "b": jnp.zeros(4), "v": v}

    def step(carry: tuple[Tree, Tree], _: None) -> tuple[tuple[Tree, Tree], jax.Array]:
        params, state = carry
        value, grads = jax.value_and_grad(loss)(params, x)
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    (params, _), losses = jax.jit(lambda c: lax.scan(step, c, length=STEPS))((params, optimizer.init(params)))
    return {name: jnp.ravel(leaf).tolist() for name, leaf in {**params, "losses": losses}.items()}


def by_line_search() -> dict[str, list[float]]:
    x = random.normal(random.key(1), (6, 3))
    params = {"w": jnp.ones((3, 4)) / 3, "b": jnp.zeros(4), "v": jnp.arange(4.0) / 4}
    optimizer = optax.lbfgs(memory_size=3)
    state = optimizer.init(params)
    for _ in range(2):
        value, grad = optax.value_and_grad_from_state(lambda p: loss(p, x))(params, state=state)
        updates, state = jax.jit(optimizer.update, static_argnames="value_fn")(
            grad, state, params, value=value, grad=grad, value_fn=lambda p: loss(p, x)
        )
        params = optax.apply_updates(params, updates)
    return {name: jnp.ravel(leaf).tolist() for name, leaf in params.items()}


if __name__ == "__main__":
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, STEPS)
    optimizers = {
        "sgd": optax.sgd(schedule, momentum=0.9, nesterov=True),
        "adamw": optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(0.01, weight_decay=0.1)),
        "lamb": optax.lamb(0.01),
        "lion": optax.lion(0.01),
        "adafactor": optax.adafactor(0.01),
        "muon": optax.contrib.muon(0.01),
        "schedule free": optax.contrib.schedule_free_adamw(0.01),
        "several steps": optax.MultiSteps(optax.rmsprop(0.01), 2),
        "parts": optax.partition(
            {"fast": optax.adabelief(0.1), "still": optax.set_to_zero()}, {"w": "fast", "b": "still", "v": "fast"}
        ),
        "average": optax.chain(optax.yogi(0.01), optax.ema(0.5)),
    }
    results = {name: trained(optimizer) for name, optimizer in optimizers.items()}
    sys.stdout.write(json.dumps({"array": jax.Array.__module__, "results": {**results, "lbfgs": by_line_search()}}))
