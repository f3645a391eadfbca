"""Flax and Equinox models trained with Optax, and a NumPyro log density, imported with `from_jax`."""

# These libraries leave some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax, flax, equinox, optax, numpyro"

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typing_extensions import override

import tracefx as fx
from tests.comparison import assert_near
from tracefx.core import NDArray
from tracefx.handlers import (
    around,
    autocast,
    bfloat16,
    bounds,
    checkify,
    count,
    explain,
    float_checks,
    init_lora,
    join_lora,
    lora,
    split_lora,
)
from tracefx.interop.jax import from_jax
from tracefx.testing.tolerances import Ulps

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # JAX deprecation warnings of imported modules
    import equinox as eqx
    import numpyro
    import numpyro.distributions as dist
    import optax
    from flax import linen, nnx
    from numpyro.infer.util import potential_energy

Step = Callable[..., Any]
STEPS: Final = 4


def images() -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(8, 6, 6, 1)).astype(np.float32), np.arange(8) % 3


# ------------------------------------------------------------------ training


def train_losses(library: Any, loss: Step, update: Step, start: Any, optimizer: Any, *data: Any) -> list[float]:
    """The losses of a few training steps, jitted by `library`. `loss` returns its value and the new state."""

    def step(params: Any, state: Any, optimizer_state: Any, key: Any) -> Any:
        value_and_grad = library.value_and_grad(loss, has_aux=True)
        (value, state), gradients = value_and_grad(params, state, key, *data)
        params, optimizer_state = update(params, optimizer_state, gradients)
        return params, state, optimizer_state, value

    step = library.jit(step)
    params, state = start
    optimizer_state, values = optimizer.init(params), []
    for i in range(STEPS):
        key = library.random.fold_in(library.random.key(1), i)
        params, state, optimizer_state, value = step(params, state, optimizer_state, key)
        values.append(float(value))
    return values


def assert_same_losses(loss: Step, start: Any, optimizer: Any, *data: Any) -> None:
    def update(params: Any, state: Any, gradients: Any) -> Any:
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    actual = train_losses(fx, from_jax(loss), from_jax(update), start, optimizer, *data)
    expected = train_losses(jax, loss, update, start, optimizer, *data)
    assert expected[-1] < 0.9 * expected[0]
    assert_near(np.array(actual, np.float32), expected)


class Convolutional(linen.Module):
    """A model with mutable batch statistics and random numbers."""

    @override
    @linen.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        x = linen.Conv(4, (3, 3))(x)
        x = linen.BatchNorm(use_running_average=not train)(x)
        x = linen.avg_pool(linen.relu(x), (2, 2), (2, 2)).reshape(x.shape[0], -1)
        x = linen.Dropout(0.1, deterministic=not train)(linen.gelu(linen.Dense(16)(x)))
        return linen.Dense(3)(linen.LayerNorm()(x))


@pytest.fixture(scope="module")
def convolutional() -> tuple[Convolutional, Any]:
    model = Convolutional()
    return model, jax.jit(model.init)(jax.random.key(0), images()[0])


def test_training_a_flax_model(convolutional: tuple[Convolutional, Any]) -> None:
    model, variables = convolutional

    def loss(params: Any, stats: Any, key: Any, x: Any, y: Any) -> Any:
        logits, changed = model.apply(
            {"params": params, "batch_stats": stats}, x, True, mutable=["batch_stats"], rngs={"dropout": key}
        )
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), changed["batch_stats"]

    start = variables["params"], variables["batch_stats"]
    assert_same_losses(loss, start, optax.adamw(optax.cosine_decay_schedule(0.02, 10)), *images())


class Recurrent(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.cell = nnx.GRUCell(1, 6, rngs=rngs)
        self.out = nnx.Linear(6, 3, rngs=rngs)

    @override
    def __call__(self, xs: Any) -> Any:
        carry, _ = jax.lax.scan(lambda c, x: (self.cell(c, x)[0], None), jnp.zeros((8, 6)), xs)
        return self.out(carry)


def test_training_an_nnx_model() -> None:
    graph, params = nnx.split(Recurrent(nnx.Rngs(0)))

    def loss(params: Any, state: None, key: Any, x: Any, y: Any) -> Any:
        logits = nnx.merge(graph, params)(x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), state

    x, y = images()
    assert_same_losses(loss, (params, None), optax.adam(0.05), x.reshape(8, 36, 1).swapaxes(0, 1), y)


def test_training_an_equinox_model() -> None:
    model = eqx.nn.MLP(36, 3, 16, 2, activation=jax.nn.silu, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(params: Any, state: None, key: Any, x: Any, y: Any) -> Any:
        logits = jax.vmap(eqx.combine(params, static))(x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), state

    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.3, momentum=0.9, nesterov=True))
    x, y = images()
    assert_same_losses(loss, (params, None), optimizer, x.reshape(8, -1), y)
    # A whole model as argument and result: leaves that are not arrays are passed through unchanged.
    double = from_jax(lambda model: jax.tree.map(lambda x: 2 * x if eqx.is_array(x) else x, model))(model)
    assert type(double) is eqx.nn.MLP
    assert double.activation is model.activation
    assert double.layers[0].weight.tolist() == (2 * np.asarray(model.layers[0].weight)).tolist()


def test_gradient_of_a_numpyro_log_density() -> None:
    x, y = np.random.default_rng(1).normal(size=(2, 5, 5)).astype(np.float32)

    def model(x: Any, y: Any) -> None:
        weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([5]).to_event(1))
        scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
        numpyro.sample("y", dist.Normal(x @ weights, scale), obs=y[0])

    def energy(params: Any) -> Any:
        return potential_energy(model, (x, y), {}, params)

    # A scale of about 0.3 is avoided: its gradient is 0 there, so the result would be mostly rounding error.
    params = {"weights": np.linspace(-1, 1, 5, dtype=np.float32), "scale": np.float32(1.0)}
    got, want = fx.jit(fx.value_and_grad(from_jax(energy)))(params), jax.jit(jax.value_and_grad(energy))(params)
    for actual, expected in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert_near(actual, expected)


def test_exported_flax_model_runs_without_flax(convolutional: tuple[Convolutional, Any]) -> None:
    """The process that loads the exported model imports neither JAX nor Flax."""
    model, variables = convolutional
    x, f = images()[0], from_jax(model.apply)
    weights = fx.tree.leaves(variables)

    def predict(weights: list[Any], x: Any) -> Any:
        return f(jax.tree.unflatten(jax.tree.structure(variables), weights), x)

    data = fx.export(fx.jit(predict), drop_rules=True)(weights, x).serialize()
    program = (
        "import sys, pickle, tracefx as fx\n"
        "data, weights, x = pickle.load(sys.stdin.buffer)\n"
        "out = fx.load(data).call(weights, x)\n"
        "assert not {'jax', 'flax'} & sys.modules.keys()\n"
        "pickle.dump(out, sys.stdout.buffer)\n"
    )
    payload = pickle.dumps((data, [np.asarray(w) for w in weights], x))
    process = subprocess.run(
        [sys.executable, "-c", program], input=payload, stdout=subprocess.PIPE, check=True, timeout=60
    )
    assert_near(pickle.loads(process.stdout), f(variables, x))


# ------------------------------------------------------------------ handlers on imported models


def test_count_and_explain_of_a_flax_model(convolutional: tuple[Convolutional, Any]) -> None:
    model, variables = convolutional
    cost = count(from_jax(model.apply))(variables, images()[0])
    products = 8 * (9 * 4 * 36 + 36 * 16 + 16 * 3)
    assert cost.flops > 2 * products
    assert cost.flops < 3 * products
    lines = explain(from_jax(model.apply))(variables, images()[0])
    assert "x = linen.Conv(4, (3, 3))(x)" in str(lines)


def test_bounds_of_a_flax_model(convolutional: tuple[Convolutional, Any]) -> None:
    model, variables = convolutional
    x, rng = images()[0], np.random.default_rng(3)
    f = from_jax(model.apply)
    out = bounds(f)(variables, around(x, 0.01))
    for _ in range(5):
        logits = f(variables, (x + rng.uniform(-0.01, 0.01, x.shape)).astype(np.float32))
        assert bool(((out.lo <= logits) & (logits <= out.hi)).all())
    assert float((out.hi - out.lo).max()) < 10


def test_autocast_of_a_flax_model(convolutional: tuple[Convolutional, Any]) -> None:
    model, variables = convolutional
    x = images()[0]
    f: Callable[..., Any] = from_jax(model.apply)
    program = str(fx.make_jaxpr(autocast(f, bfloat16))(variables, x))
    assert "preferred_element_type=bfloat16" in program or "bf16[8,16] = dot_general" in program
    got, want = autocast(f, bfloat16)(variables, x), f(variables, x)
    assert_near(got, want, Ulps(f32=4 * 2**16, relative_to_max=True))  # 1 ulp of bfloat16 is 2**16 ulps of float32
    assert got.tolist() != want.tolist()


def test_lora_of_a_flax_model(convolutional: tuple[Convolutional, Any]) -> None:
    model, variables = convolutional
    x, y = images()
    trained, frozen = split_lora(init_lora(variables, rank=1, where=lambda path, leaf: leaf.ndim == 2))
    energy = from_jax(lambda v, x, y: optax.softmax_cross_entropy_with_integer_labels(model.apply(v, x), y).mean())

    @fx.jit
    def step(trained: Any) -> Any:
        value, gradients = fx.value_and_grad(lambda t: lora(energy)(join_lora(t, frozen), x, y))(trained)
        return fx.tree.map(lambda p, g: p - 0.5 * g, trained, gradients), value

    values = []
    for _ in range(6):
        trained, value = step(trained)
        values.append(float(value))
    assert_near(values[0], energy(variables, x, y))
    assert values[-1] < 0.95 * values[0]


def test_checkify_locates_nan_in_a_flax_model(convolutional: tuple[Convolutional, Any]) -> None:
    model, variables = convolutional
    x = images()[0]
    x[2, 1, 1, 0] = np.nan
    error, _ = checkify(from_jax(model.apply), float_checks)(variables, x)
    line = 1 + Path(__file__).read_text().splitlines().index("        x = linen.Conv(4, (3, 3))(x)")
    message = error.get()
    assert message is not None
    assert "conv_general_dilated gave NaN" in message
    assert f"test_from_jax_models.py:{line} " in message
