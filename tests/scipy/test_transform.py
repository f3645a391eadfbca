"""`Rotation`: derivatives at the identity, where JAX has none, and arrays of rotations."""

from __future__ import annotations

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import untyped
from tracefx.scipy.spatial.transform import Rotation, Slerp
from tracefx.testing.tolerances import ELEMENTARY

STEPS = Rotation.from_rotvec(np.array([[0.0, 0.0, 0.1], [0.2, 0.0, 0.0], [0.0, 0.3, 0.0]], np.float32))


def test_derivatives_of_rotation_vectors_at_zero() -> None:
    to_quat = fx.jacrev(lambda v: Rotation.from_rotvec(v).quat)(fnp.zeros(3))
    assert_near(to_quat, np.eye(4, 3) / 2, ELEMENTARY)
    to_rotvec = fx.jacrev(lambda v: Rotation.from_rotvec(v).as_rotvec())(fnp.zeros(3))
    assert_near(to_rotvec, np.eye(3), ELEMENTARY)
    assert fx.grad(lambda v: Rotation.from_rotvec(v).magnitude())(fnp.zeros(3)).tolist() == [0.0, 0.0, 0.0]


def test_rotations_are_pytrees_and_iterable() -> None:
    assert [one.single for one in STEPS] == [True] * 3
    squared = fx.jit(fx.vmap(lambda r: r * r))(STEPS)
    assert_near(squared.magnitude(), [0.2, 0.4, 0.6])
    assert_near(Rotation.concatenate([STEPS, squared])[4].magnitude(), 0.4)
    assert Rotation.identity(2).quat.shape == (2, 4)
    assert_near(STEPS.mean(np.array([1.0, 0.0, 0.0])).magnitude(), 0.1)


def test_single_rotation_is_not_indexable() -> None:
    one = Rotation.identity()
    for call in (lambda: one[0], lambda: len(one), lambda: list(one)):
        with pytest.raises(TypeError, match="only an array of rotations"):
            call()
    with pytest.raises(TypeError, match="must be a Rotation"):
        untyped(Slerp.init)([0.0, 1.0], one.quat)


def test_random_rotations_are_uniform() -> None:
    key = fx.random.key(0)
    many = Rotation.random(key, 4000)
    assert_near(fnp.sum(many.quat**2, -1), np.ones(4000))
    # Entries have variance 1/3, so the mean of 4,000 has a standard deviation of 0.0091; four of them are allowed.
    assert float(abs(fnp.mean(many.as_matrix(), 0)).max()) < 4 * (1 / 3 / 4000) ** 0.5
    assert Rotation.random(key).single


def test_mean_with_invalid_weights_raises() -> None:
    with pytest.raises(ValueError, match="must have one axis"):
        STEPS.mean(np.ones((1, 3)))
    with pytest.raises(ValueError, match="3 rotations and 2 weights"):
        STEPS.mean(np.ones(2))
