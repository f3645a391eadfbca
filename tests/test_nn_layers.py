"""Attention, initializers and scaled matrix products: error messages, values, and equality of initializers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import untyped
from tracefx import nn, random
from tracefx.nn import initializers

GEN: Final = np.random.default_rng(0)
Q, K, V = [GEN.normal(size=(2, n, h, 4)).astype(np.float32) for n, h in ((3, 4), (5, 2), (5, 2))]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value": V[:, :2]}, "value must have the shape and dtype of key"),
        ({"query": Q[:1]}, "same batch, size and dtype"),
        ({"query": Q[:, :, :3]}, "multiple of the key/value heads"),
        ({"mask": np.ones((1, 1, 3, 5), np.float32)}, "mask must have dtype bool"),
        ({"bias": np.ones((1, 3, 3, 5), np.float32)}, "must have 1 or 4 heads"),
        ({"query_seq_lengths": np.ones(3, np.int32)}, r"query_seq_lengths must be i32\[2\]"),
        ({"implementation": "cudnn"}, "implementation must be 'xla'"),
    ],
)
def test_attention_argument_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nn.dot_product_attention(**{"query": Q, "key": K, "value": V, **options})


def test_scaled_matmul() -> None:
    left, right = GEN.normal(size=(2, 3, 8)), GEN.normal(size=(2, 4, 8))
    scales = [GEN.random((2, n, 2)) for n in (3, 4)]
    product = nn.scaled_matmul(*[np.float32(x) for x in (left, right, *scales)])
    wide = [x * np.repeat(s, 4, axis=-1) for x, s in zip((left, right), scales, strict=True)]
    assert_near(product, np.einsum("bmk,bnk->bmn", *wide))
    for wrong in (np.ones((2, 3, 3)), np.ones((2, 4, 2)), np.ones((2, 3, 0))):
        with pytest.raises(ValueError, match="scaled_matmul"):
            nn.scaled_matmul(*[np.float32(x) for x in (left, right, wrong, scales[1])])


def test_initializers_with_equal_parameters_are_equal() -> None:
    def make_initializers() -> list[object]:
        i = initializers
        return [i.constant(2.5), i.variance_scaling(2.0, "fan_out", "uniform"), i.he_normal(), i.orthogonal(2.0, 1)]

    assert make_initializers() == make_initializers()
    assert initializers.constant(2.5) != initializers.constant(2.0)


def test_initializers_with_array_parameters_compare_by_value() -> None:
    """Initializers are hashable, so they can be dictionary keys and static arguments."""
    one, same = [initializers.constant(np.array([1.0, 2.0], np.float32)) for _ in range(2)]
    assert one == same
    assert hash(one) == hash(same)
    others: list[Any] = [np.array([1.0, 3.0], np.float32), np.array([1, 2]), np.array([[1.0, 2.0]], np.float32), 1.0]
    assert len({one, same, *[initializers.constant(x) for x in others]}) == 5
    assert initializers.normal(fnp.ones(2)) == initializers.normal(np.ones(2, np.float32))
    assert fx.jit(lambda x: initializers.constant(x) == initializers.constant(x))(2.0)
    drawn = fx.jit(lambda make: make(random.key(0), (3, 2)), static_argnums=0)(one)
    assert drawn.tolist() == [[1.0, 2.0]] * 3


def test_initializer_argument_errors() -> None:
    key = random.key(0)
    with pytest.raises(ValueError, match="two axes or more, got shape"):
        initializers.lecun_normal()(key, (3,))
    with pytest.raises(ValueError, match="mode must be fan_in"):
        untyped(initializers.variance_scaling)(1.0, "fan", "normal")
    with pytest.raises(ValueError, match="distribution must be"):
        untyped(initializers.variance_scaling)(1.0, "fan_in", "cauchy")
    with pytest.raises(ValueError, match="3, 4 or 5 axes"):
        initializers.delta_orthogonal()(key, (3, 3))
    with pytest.raises(ValueError, match="as many outputs as inputs"):
        initializers.delta_orthogonal()(key, (3, 4, 2))
