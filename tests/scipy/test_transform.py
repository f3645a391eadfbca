"""Rotations where JAX's have no derivatives, and as arrays of rotations."""

from __future__ import annotations

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tracefx.scipy.spatial.transform import Rotation, Slerp
from tracefx.testing.tolerances import ELEMENTARY

STEPS = Rotation.from_rotvec(np.array([[0.0, 0.0, 0.1], [0.2, 0.0, 0.0], [0.0, 0.3, 0.0]], np.float32))


def test_vectors_of_rotations_have_derivatives_at_none() -> None:
    there = fx.jacrev(lambda v: Rotation.from_rotvec(v).quat)(fnp.zeros(3))
    assert_near(there, np.eye(4, 3) / 2, ELEMENTARY)
    back = fx.jacrev(lambda v: Rotation.from_rotvec(v).as_rotvec())(fnp.zeros(3))
    assert_near(back, np.eye(3), ELEMENTARY)
    assert fx.grad(lambda v: Rotation.from_rotvec(v).magnitude())(fnp.zeros(3)).tolist() == [0.0, 0.0, 0.0]


def test_rotations_are_trees_that_can_be_gone_through() -> None:
    assert [one.single for one in STEPS] == [True] * 3
    turned = fx.jit(fx.vmap(lambda r: r * r))(STEPS)
    assert_near(turned.magnitude(), [0.2, 0.4, 0.6])
    assert_near(Rotation.concatenate([STEPS, turned])[4].magnitude(), 0.4)
    assert Rotation.identity(2).quat.shape == (2, 4)
    assert_near(STEPS.mean(np.array([1.0, 0.0, 0.0])).magnitude(), 0.1)


def test_one_rotation_is_no_array() -> None:
    one = Rotation.identity()
    for refused in (lambda: one[0], lambda: len(one), lambda: list(one)):
        with pytest.raises(TypeError, match="only an array of rotations"):
            refused()
    with pytest.raises(TypeError, match="must be a Rotation"):
        Slerp.init([0.0, 1.0], one.quat)  # type: ignore[arg-type]  # that is the test


def test_drawn_rotations_are_in_no_direction() -> None:
    key = fx.random.key(0)
    many = Rotation.random(key, 4000)
    assert_near(fnp.sum(many.quat**2, -1), np.ones(4000))
    # An entry has the variance 1/3: the mean of 4,000 of them is within four of its deviations of 0.0091.
    assert float(abs(fnp.mean(many.as_matrix(), 0)).max()) < 4 * (1 / 3 / 4000) ** 0.5
    assert Rotation.random(key).single


def test_weights_fit_the_rotations() -> None:
    with pytest.raises(ValueError, match="must have one axis"):
        STEPS.mean(np.ones((1, 3)))
    with pytest.raises(ValueError, match="3 rotations and 2 weights"):
        STEPS.mean(np.ones(2))
