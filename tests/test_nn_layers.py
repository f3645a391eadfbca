"""Attention and initializers, against `jax.nn`."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tracefx import nn, random
from tracefx.nn import initializers

GEN: Final = np.random.default_rng(0)
Q, K, V = [GEN.normal(size=(2, n, h, 4)).astype(np.float32) for n, h in ((3, 4), (5, 2), (5, 2))]
BIAS: Final = GEN.normal(size=(1, 4, 3, 5)).astype(np.float32)
MASK: Final = GEN.random((2, 1, 3, 5)) > 0.3
LENGTHS: Final = np.array([2, 3], np.int32)

ATTENTIONS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "bias and mask": {"bias": BIAS, "mask": MASK},
    "causal": {"is_causal": True, "scale": 0.3},
    "window": {"local_window_size": (1, 0)},
    "one window": {"local_window_size": 1, "is_causal": True},
    "lengths": {"query_seq_lengths": LENGTHS, "key_value_seq_lengths": LENGTHS + 1},
    "with sums": {"return_residual": True, "mask": MASK},
    "nothing to see": {"mask": np.zeros((1, 1, 1, 1), bool)},
}


def close(ours: Any, theirs: Any, tolerance: float = 2e-5) -> None:
    mine: list[Any] = fx.tree.leaves(ours)
    for x, y in zip(mine, jax.tree.leaves(theirs), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        got, want = np.asarray(x, np.complex128), np.asarray(y, np.complex128)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention(name: str) -> None:
    options = ATTENTIONS[name]

    def ours(q: Any, k: Any, v: Any) -> Any:
        return nn.dot_product_attention(q, k, v, **options)

    def theirs(q: Any, k: Any, v: Any) -> Any:
        given: dict[str, Any] = {n: jnp.asarray(x) if isinstance(x, np.ndarray) else x for n, x in options.items()}
        return jax.nn.dot_product_attention(q, k, v, **given)

    close(fx.jit(ours)(Q, K, V), theirs(Q, K, V))

    def total(m: Any, out: Any) -> Any:
        return m.sum(m.sin(out[0] if isinstance(out, tuple) else out))

    mine = fx.grad(lambda args: total(fnp, ours(*args)))((Q, K, V))
    close(mine, jax.grad(lambda args: total(jnp, theirs(*args)))((Q, K, V)))


def test_attention_without_a_batch_and_in_few_bits() -> None:
    close(nn.dot_product_attention(Q[0], K[0], V[0]), jax.nn.dot_product_attention(Q[0], K[0], V[0]))
    ours = [fnp.asarray(x, "bfloat16") for x in (Q, K, V)]
    theirs = [jnp.asarray(x, "bfloat16") for x in (Q, K, V)]
    close(nn.dot_product_attention(*ours), jax.nn.dot_product_attention(*theirs), 0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value": V[:, :2]}, "value must be of the type of key"),
        ({"query": Q[:1]}, "one batch, size and dtype"),
        ({"query": Q[:, :, :3]}, "multiple of those of keys"),
        ({"mask": np.ones((1, 1, 3, 5), np.float32)}, "mask must be of booleans"),
        ({"bias": np.ones((1, 3, 3, 5), np.float32)}, "must have 1 or 4 heads"),
        ({"query_seq_lengths": np.ones(3, np.int32)}, r"query_seq_lengths must be i32\[2\]"),
        ({"implementation": "cudnn"}, "implementation must be 'xla'"),
    ],
)
def test_attention_says_what_does_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nn.dot_product_attention(**{"query": Q, "key": K, "value": V, **options})


def test_products_of_scaled_blocks() -> None:
    left, right = GEN.normal(size=(2, 3, 8)), GEN.normal(size=(2, 4, 8))
    scales = [GEN.random((2, n, 2)) for n in (3, 4)]
    ours = nn.scaled_matmul(*[np.float32(x) for x in (left, right, *scales)])
    wide = [x * np.repeat(s, 4, axis=-1) for x, s in zip((left, right), scales, strict=True)]
    np.testing.assert_allclose(ours, np.einsum("bmk,bnk->bmn", *wide), rtol=1e-5, atol=1e-5)
    for wrong in (np.ones((2, 3, 3)), np.ones((2, 4, 2)), np.ones((2, 3, 0))):
        with pytest.raises(ValueError, match="scaled_matmul"):
            nn.scaled_matmul(*[np.float32(x) for x in (left, right, wrong, scales[1])])


SHAPE: Final = (3, 2, 6, 4)
MAKERS: Final[dict[str, Callable[[Any], Any]]] = {
    "zeros": lambda i: i.zeros,
    "ones": lambda i: i.ones,
    "constant": lambda i: i.constant(2.5),
    "uniform": lambda i: i.uniform(0.5),
    "normal": lambda i: i.normal(0.5),
    "truncated_normal": lambda i: i.truncated_normal(0.5, lower=-1.0, upper=3.0),
    "variance_scaling": lambda i: i.variance_scaling(2.0, "fan_geo_avg", "normal", in_axis=(1, 2), batch_axis=0),
    "fan_out": lambda i: i.variance_scaling(2.0, "fan_out", "uniform"),
    "glorot_uniform": lambda i: i.glorot_uniform(),
    "glorot_normal": lambda i: i.xavier_normal(),
    "lecun_uniform": lambda i: i.lecun_uniform(),
    "lecun_normal": lambda i: i.lecun_normal(),
    "he_uniform": lambda i: i.kaiming_uniform(),
    "he_normal": lambda i: i.he_normal(),
    "orthogonal": lambda i: i.orthogonal(2.0, 1),
}
COMPLEX: Final = ("normal", "glorot_uniform", "lecun_normal", "variance_scaling")


@pytest.mark.parametrize("name", MAKERS)
def test_initializers(name: str) -> None:
    make = MAKERS[name]
    for dtype in (None, np.complex64) if name in COMPLEX else (None, "bfloat16") if name == "he_normal" else (None,):
        ours = make(initializers)(random.key(1), SHAPE, dtype)
        close(ours, make(jax.nn.initializers)(jax.random.key(1), SHAPE, dtype), 0.02 if dtype == "bfloat16" else 1e-4)
    assert make(initializers) == make(initializers)


def test_initializers_with_arrays_are_told_apart() -> None:
    """So that they are keys of dictionaries and static arguments."""
    one, same = [initializers.constant(np.array([1.0, 2.0], np.float32)) for _ in range(2)]
    assert one == same
    assert hash(one) == hash(same)
    others: list[Any] = [np.array([1.0, 3.0], np.float32), np.array([1, 2]), np.array([[1.0, 2.0]], np.float32), 1.0]
    assert len({one, same, *[initializers.constant(x) for x in others]}) == 5
    assert initializers.normal(fnp.ones(2)) == initializers.normal(np.ones(2, np.float32))
    assert fx.jit(lambda x: initializers.constant(x) == initializers.constant(x))(2.0)
    drawn = fx.jit(lambda make: make(random.key(0), (3, 2)), static_argnums=0)(one)
    assert drawn.tolist() == [[1.0, 2.0]] * 3


def test_delta_orthogonal() -> None:
    for shape in ((3, 2, 4), (3, 2, 2, 4), (1, 3, 2, 2, 2)):
        ours = initializers.delta_orthogonal()(random.key(1), shape)
        close(ours, jax.nn.initializers.delta_orthogonal()(jax.random.key(1), shape), 1e-4)


def test_initializers_say_what_does_not_fit() -> None:
    key = random.key(0)
    with pytest.raises(ValueError, match="two axes or more, got shape"):
        initializers.lecun_normal()(key, (3,))
    with pytest.raises(ValueError, match="mode must be fan_in"):
        initializers.variance_scaling(1.0, "fan", "normal")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(ValueError, match="distribution must be"):
        initializers.variance_scaling(1.0, "fan_in", "cauchy")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(ValueError, match="3, 4 or 5 axes"):
        initializers.delta_orthogonal()(key, (3, 3))
    with pytest.raises(ValueError, match="as many outputs as inputs"):
        initializers.delta_orthogonal()(key, (3, 4, 2))
