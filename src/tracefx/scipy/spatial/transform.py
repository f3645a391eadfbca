"""Rotations in three dimensions, with the names of `jax.scipy.spatial.transform`.

A rotation is stored as a unit quaternion with the real part last; arrays of rotations have leading axes. Rotations are
pytrees.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, final

from attrs import frozen

from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, DTypeLike
from tracefx.ops.linalg.eigen import eigh
from tracefx.pytrees.trees import register_dataclass
from tracefx.random import normal

__all__ = ["Rotation", "Slerp"]

SMALL_ANGLE: Final = 1e-3
"""Up to this angle quotients by an angle are computed by the first terms of their series."""


@final
@register_dataclass
@frozen(eq=False)
class Rotation:
    """A rotation in three dimensions, or an array of rotations.

    >>> quarter = Rotation.from_euler("z", 90, degrees=True)
    >>> fnp.round(quarter.apply([1.0, 0.0, 0.0]), 3).tolist()
    [0.0, 1.0, 0.0]
    >>> fnp.round((quarter * quarter).magnitude(), 3)
    Array(3.142, dtype=float32)
    """

    quat: Array
    """The unit quaternions, `f32[..., 4]`, with the real part last."""

    # -------------------------------------------------------------- constructors

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """Concatenates arrays of rotations along the first axis.

        Args:
            rotations: arrays of rotations.

        Returns:
            an array of all these rotations.
        """
        return cls(fnp.concatenate([rotation.quat for rotation in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: ArrayLike | Sequence[Any], degrees: bool = False) -> Rotation:
        """Creates rotations from Euler angles.

        Args:
            seq: up to three axes: lower case, as in `"xyz"`, for extrinsic rotations about fixed axes; upper case, as
                in `"XYZ"`, for intrinsic rotations about the rotated axes.
            angles: `f32[..., n]`, one angle for each axis.
            degrees: whether angles are in degrees; in radians by default.

        Returns:
            `[...]` rotations.

        Raises:
            ValueError: if `seq` is invalid, or the number of angles differs from that of axes.
        """
        is_intrinsic = _is_intrinsic(seq, range(1, 4))
        angle_array = fnp.atleast_1d(fnp.asarray(angles))
        if angle_array.shape[-1] != len(seq):
            raise ValueError(f"from_euler: {seq!r} needs {len(seq)} angles, got {angle_array.aval}")
        if degrees:
            angle_array = fnp.deg2rad(angle_array)
        out: Array | None = None
        for i, axis in enumerate(seq.lower()):
            half = angle_array[..., i] / 2
            parts = [fnp.zeros_like(half)] * 3
            parts["xyz".index(axis)] = fnp.sin(half)
            factor = fnp.stack([*parts, fnp.cos(half)], -1)
            out = (
                factor
                if out is None
                else _quaternion_product(out, factor)
                if is_intrinsic
                else _quaternion_product(factor, out)
            )
        assert out is not None  # there is at least one axis
        return cls(out)

    @classmethod
    def from_matrix(cls, matrix: ArrayLike) -> Rotation:
        """Creates rotations from rotation matrices, by way of the largest entry of the quaternion, which is not near 0.

        Args:
            matrix: `f32[..., 3, 3]`.

        Returns:
            `[...]` rotations.
        """
        m = fnp.asarray(matrix)
        trace = m[..., 0, 0] + m[..., 1, 1] + m[..., 2, 2]
        candidates = []
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            entries: list[Any] = [None] * 4
            entries[i] = 1 - trace + 2 * m[..., i, i]
            entries[j] = m[..., j, i] + m[..., i, j]
            entries[k] = m[..., k, i] + m[..., i, k]
            entries[3] = m[..., k, j] - m[..., j, k]
            candidates.append(fnp.stack(entries, -1))
        last_entries = [
            m[..., 2, 1] - m[..., 1, 2],
            m[..., 0, 2] - m[..., 2, 0],
            m[..., 1, 0] - m[..., 0, 1],
            1 + trace,
        ]
        out = fnp.stack(last_entries, -1)
        choice = fnp.argmax(fnp.stack([m[..., 0, 0], m[..., 1, 1], m[..., 2, 2], trace], -1), -1)[..., None]
        for i, candidate in enumerate(candidates):
            out = fnp.where(choice == i, candidate, out)
        return cls(_normalize(out))

    @classmethod
    def from_mrp(cls, mrp: ArrayLike) -> Rotation:
        """Creates rotations from modified Rodrigues parameters: the axis times the tangent of a quarter of the angle.

        Args:
            mrp: `f32[..., 3]`.

        Returns:
            `[...]` rotations.
        """
        v = fnp.asarray(mrp)
        size = fnp.sum(v * v, -1, keepdims=True) + 1
        return cls(fnp.concatenate([2 * v, 2 - size], -1) / size)

    @classmethod
    def from_quat(cls, quat: ArrayLike) -> Rotation:
        """Creates rotations from quaternions, which are normalized.

        Args:
            quat: `f32[..., 4]`, nonzero, with the real part last.

        Returns:
            `[...]` rotations.
        """
        return cls(_normalize(fnp.asarray(quat)))

    @classmethod
    def from_rotvec(cls, rotvec: ArrayLike, degrees: bool = False) -> Rotation:
        """Creates rotations from rotation vectors: the axis times the angle.

        Args:
            rotvec: `f32[..., 3]`.
            degrees: whether angles are in degrees; in radians by default.

        Returns:
            `[...]` rotations.
        """
        v = fnp.asarray(rotvec)
        if degrees:
            v = fnp.deg2rad(v)
        square = fnp.sum(v * v, -1, keepdims=True)
        is_small = square <= SMALL_ANGLE**2
        half = fnp.sqrt(fnp.where(is_small, 1.0, square)) / 2
        scale = fnp.where(is_small, 0.5 - square / 48 + square * square / 3840, fnp.sin(half) / (2 * half))
        cosine = fnp.where(is_small, 1 - square / 8 + square * square / 384, fnp.cos(half))
        return cls(fnp.concatenate([scale * v, cosine], -1))

    @classmethod
    def identity(cls, num: int | None = None, dtype: DTypeLike = float) -> Rotation:
        """Creates identity rotations.

        Args:
            num: the number of rotations; None creates a single one.
            dtype: the dtype of the quaternion.

        Returns:
            an array of `num` rotations, or a single one.
        """
        one = fnp.array([0.0, 0.0, 0.0, 1.0], dtype=dtype)
        return cls(one if num is None else fnp.broadcast_to(one, (num, 4)))

    @classmethod
    def random(cls, random_key: ArrayLike, num: int | None = None) -> Rotation:
        """Draws uniformly distributed rotations. (JAX has no such function.)

        Args:
            random_key: a random key.
            num: the number of rotations; None draws a single one.

        Returns:
            an array of `num` rotations, or a single one.
        """
        return cls(_normalize(normal(random_key, (4,) if num is None else (num, 4))))

    # -------------------------------------------------------------- arrays of rotations

    @property
    def single(self) -> bool:
        """Whether this is a single rotation, not an array of rotations."""
        return self.quat.ndim == 1

    def __getitem__(self, indexer: Any) -> Rotation:
        if self.single:
            raise TypeError("a single rotation can't be indexed, only an array of rotations")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        if self.single:
            raise TypeError("a single rotation has no length, only an array of rotations")
        return self.quat.shape[0]

    def __iter__(self) -> Iterator[Rotation]:
        return (self[i] for i in range(len(self)))

    # -------------------------------------------------------------- operations

    def __mul__(self, other: Rotation) -> Rotation:
        """Composes rotations: applies the other one first, then this one."""
        return Rotation(_normalize(_quaternion_product(self.quat, other.quat)))

    def apply(self, vectors: ArrayLike | Sequence[Any], inverse: bool = False) -> Array:
        """Rotates vectors.

        Args:
            vectors: `f32[..., 3]`.
            inverse: whether to apply the inverse rotation.

        Returns:
            The rotated vectors, `f32[..., 3]`.
        """
        matrix = self.as_matrix()
        matrix = fnp.where(inverse, fnp.swapaxes(matrix, -1, -2), matrix)
        return fnp.matmul(matrix, fnp.asarray(vectors)[..., None])[..., 0]

    def inv(self) -> Rotation:
        """Returns the inverse rotation."""
        return Rotation(self.quat * fnp.array([-1.0, -1.0, -1.0, 1.0], dtype=self.quat.dtype))

    def magnitude(self) -> Array:
        """Returns the angle in radians, from 0 to pi."""
        return 2 * fnp.arctan2(_safe_norm(self.quat[..., :3]), fnp.abs(self.quat[..., 3]))

    def mean(self, weights: ArrayLike | None = None) -> Rotation:
        """Returns the rotation that minimizes the weighted sum of squared distances to the rotations of this array.

        Args:
            weights: `f32[n]`, equal by default.

        Raises:
            ValueError: if `weights` has another shape.
        """
        q = self.quat
        w = fnp.ones(q.shape[0], q.dtype) if weights is None else fnp.asarray(weights, q.dtype)
        if w.ndim != 1:
            raise ValueError(f"mean: weights must have one axis, got {w.aval}")
        if w.shape[0] != len(self):
            raise ValueError(f"mean: there are {len(self)} rotations and {w.shape[0]} weights")
        vectors, _ = eigh(fnp.dot(w * q.T, q))
        return Rotation(vectors[:, -1])

    # -------------------------------------------------------------- conversions

    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """Returns Euler angles about three axes, see `from_euler`.

        Args:
            seq: three axes, as for `from_euler`.
            degrees: whether to return degrees; radians by default.

        Returns:
            `f32[..., 3]`. In gimbal lock, where the angles are not unique, the third one is 0.

        Raises:
            ValueError: if `seq` is invalid.
        """
        is_intrinsic = _is_intrinsic(seq, range(3, 4))
        i, j, k = ["xyz".index(axis) for axis in (seq.lower()[::-1] if is_intrinsic else seq)]
        is_symmetric = i == k
        k = 3 - i - j if is_symmetric else k
        sign = (i - j) * (j - k) * (k - i) // 2
        q = [self.quat[..., n] for n in range(4)]
        if is_symmetric:
            a, b, c, d = q[3], q[i], q[j], q[k] * sign
        else:
            a, b, c, d = q[3] - q[j], q[i] + q[k] * sign, q[j] + q[3], q[k] * sign - q[i]
        middle = 2 * fnp.arctan2(fnp.hypot(c, d), fnp.hypot(a, b))
        is_zero = fnp.abs(middle) <= 1e-7
        is_regular = ~is_zero & (fnp.abs(middle - math.pi) > 1e-7)
        mean, half = fnp.arctan2(b, a), fnp.arctan2(d, c)
        combined = fnp.where(is_zero, 2 * mean, 2 * half * (1 if is_intrinsic else -1))
        first, third = mean - half, mean + half
        if is_intrinsic:
            first, third = third, first
        first, third = fnp.where(is_regular, first, combined), fnp.where(is_regular, third, 0.0)
        if not is_symmetric:
            middle = middle - math.pi / 2
            first, third = (first * sign, third) if is_intrinsic else (first, third * sign)
        angles = (fnp.stack([first, middle, third], -1) + math.pi) % (2 * math.pi) - math.pi
        return fnp.rad2deg(angles) if degrees else angles

    def as_matrix(self) -> Array:
        """Returns rotation matrices, `f32[..., 3, 3]`."""
        x, y, z, w = [self.quat[..., n] for n in range(4)]
        rows = [
            [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), y * y - x * x - z * z + w * w, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), z * z - x * x - y * y + w * w],
        ]
        return fnp.stack([fnp.stack(row, -1) for row in rows], -2)

    def as_mrp(self) -> Array:
        """Returns modified Rodrigues parameters, `f32[..., 3]`, of norm at most 1."""
        sign = fnp.where(self.quat[..., 3:] < 0, -1.0, 1.0)
        return sign * self.quat[..., :3] / (1 + sign * self.quat[..., 3:])

    def as_rotvec(self, degrees: bool = False) -> Array:
        """Returns rotation vectors, `f32[..., 3]`: the axis times the angle, which is at most pi.

        Args:
            degrees: whether to return degrees; radians by default.
        """
        q = fnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        v, w = q[..., :3], q[..., 3:]
        angle = 2 * fnp.arctan2(_safe_norm(v)[..., None], w)
        square, is_small = angle * angle, angle <= SMALL_ANGLE
        sine = fnp.sin(fnp.where(is_small, 1.0, angle) / 2)
        scale = fnp.where(is_small, 2 + square / 12 + 7 * square * square / 2880, angle / sine)
        return (fnp.rad2deg(scale) if degrees else scale) * v

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """Returns unit quaternions, `f32[..., 4]`.

        Args:
            canonical: whether to return the one of both equivalent quaternions whose real part is positive; where it is
                0, the first nonzero entry.
            scalar_first: whether the real part comes first; last by default.
        """
        q = self.quat
        if canonical:
            is_negative, is_zero = q < 0, q == 0
            is_flipped = is_negative[..., 3]
            are_previous_zero = is_zero[..., 3]
            for n in range(3):
                is_flipped, are_previous_zero = (
                    is_flipped | (are_previous_zero & is_negative[..., n]),
                    are_previous_zero & is_zero[..., n],
                )
            q = fnp.where(is_flipped[..., None], -q, q)
        return fnp.roll(q, 1, -1) if scalar_first else q


@final
@register_dataclass
@frozen(eq=False)
class Slerp:
    """Spherical linear interpolation of rotations. Create it by `Slerp.init(times, rotations)`.

    >>> ends = Rotation.from_euler("z", [[0.0], [90.0]], degrees=True)
    >>> fnp.round(Slerp.init([0.0, 1.0], ends)(0.5).magnitude(), 4)
    Array(0.7854, dtype=float32)
    """

    times: Array
    timedelta: Array
    rotations: Rotation
    rotvecs: Array

    @classmethod
    def init(cls, times: ArrayLike | Sequence[Any], rotations: Rotation) -> Slerp:
        """Creates an interpolator.

        Args:
            times: `f32[n]`, increasing.
            rotations: an array of `n >= 2` rotations.

        Returns:
            a function from times to rotations.

        Raises:
            TypeError: if `rotations` is not a `Rotation`.
            ValueError: if there are fewer than two rotations, or `times` has another shape.
        """
        if not isinstance(rotations, Rotation):
            raise TypeError(f"Slerp.init: rotations must be a Rotation, got {rotations!r}")
        if rotations.single or len(rotations) == 1:
            raise ValueError("Slerp.init: there must be at least two rotations")
        time_array = fnp.asarray(times, rotations.quat.dtype)
        if time_array.ndim != 1:
            raise ValueError(f"Slerp.init: times must have one axis, got {time_array.aval}")
        if time_array.shape[0] != len(rotations):
            raise ValueError(f"Slerp.init: there are {len(rotations)} rotations and {time_array.shape[0]} times")
        starts = Rotation(rotations.quat[:-1])
        return cls(time_array, fnp.diff(time_array), starts, (starts.inv() * Rotation(rotations.quat[1:])).as_rotvec())

    def __call__(self, times: ArrayLike | Sequence[Any]) -> Rotation:
        """Interpolates rotations at given times.

        Args:
            times: a scalar or `f32[m]`.

        Returns:
            A rotation, or an array of them.

        Raises:
            ValueError: if `times` has more than one axis.
        """
        time_array = fnp.asarray(times, self.times.dtype)
        if time_array.ndim > 1:
            raise ValueError(f"Slerp: times must have no more than one axis, got {time_array.aval}")
        flat_times = fnp.atleast_1d(time_array)
        interval = fnp.maximum(fnp.searchsorted(self.times, flat_times) - 1, 0)
        fraction = (flat_times - self.times[interval]) / self.timedelta[interval]
        out = self.rotations[interval] * Rotation.from_rotvec(self.rotvecs[interval] * fraction[:, None])
        return out if time_array.ndim else out[0]


def _is_intrinsic(seq: str, counts: range) -> bool:
    """Returns whether a sequence of axes is intrinsic (upper case).

    Raises:
        ValueError: if it is invalid.
    """
    if len(seq) not in counts:
        raise ValueError(f"seq must name {' or '.join(map(str, counts))} axes, got {seq!r}")
    if any(a == b for a, b in itertools.pairwise(seq)):
        raise ValueError(f"seq must not repeat an axis, got {seq!r}")
    if {*seq} <= {*"XYZ"}:
        return True
    if {*seq} <= {*"xyz"}:
        return False
    raise ValueError(f"seq must be made of 'x', 'y' and 'z', or of 'X', 'Y' and 'Z', got {seq!r}")


def _quaternion_product(p: Array, q: Array) -> Array:
    """Multiplies quaternions."""
    u, a, v, b = p[..., :3], p[..., 3:], q[..., :3], q[..., 3:]
    vector = a * v + b * u + fnp.cross(u, v)
    return fnp.concatenate([vector, a * b - fnp.sum(u * v, -1, keepdims=True)], -1)


def _safe_norm(v: Array) -> Array:
    """Computes the norm along the last axis, with derivative 0 at 0."""
    square = fnp.sum(v * v, -1)
    is_zero = square == 0
    return fnp.where(is_zero, 0.0, fnp.sqrt(fnp.where(is_zero, 1.0, square)))


def _normalize(q: Array) -> Array:
    return q / fnp.sqrt(fnp.sum(q * q, -1, keepdims=True))
