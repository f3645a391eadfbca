"""Parameters and the state of an optimizer, saved after each step and restored (Orbax)."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp

optimizer = optax.adam(0.1)
params = {"w": jnp.ones((2, 3)), "b": jnp.zeros(3, jnp.bfloat16)}
tree = {"params": params, "state": optimizer.init(params), "step": 0}


def loss(params):
    return jnp.sum((params["w"] - 2.0) ** 2) + jnp.sum((params["b"] + 1.0) ** 2)


@jax.jit
def train(tree):
    updates, state = optimizer.update(jax.grad(loss)(tree["params"]), tree["state"])
    return {"params": optax.apply_updates(tree["params"], updates), "state": state, "step": tree["step"] + 1}


with tempfile.TemporaryDirectory() as folder:
    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager(Path(folder) / "checkpoints", options=options) as manager:
        for step in range(4):
            tree = train(tree)
            manager.save(step, args=ocp.args.StandardSave(tree))
        manager.wait_until_finished()
        shapes = jax.eval_shape(lambda: tree)
        restored = [manager.restore(step, args=ocp.args.StandardRestore(shapes)) for step in manager.all_steps()]
print(json.dumps([float(jnp.sum(leaf)) for leaf in jax.tree.leaves(restored)]))
