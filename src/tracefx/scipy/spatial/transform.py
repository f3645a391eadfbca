"""Rotations of space, with the names of `jax.scipy.spatial.transform`.

A rotation is a quaternion of length 1, its real part last; arrays of them have any leading axes. Rotations are trees.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, final

from attrs import frozen

from tracefx import numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.core.dtypes import DTypeLike
from tracefx.ops.linalg.eigen import eigh
from tracefx.pytrees.trees import register_dataclass
from tracefx.random import normal

__all__ = ["Rotation", "Slerp"]

SMALL_ANGLE: Final = 1e-3
"""Up to this angle what divides by an angle is replaced by the first terms of its series."""


@final
@register_dataclass
@frozen(eq=False)
class Rotation:
    """One rotation, or an array of them.

    >>> quarter = Rotation.from_euler("z", 90, degrees=True)
    >>> fnp.round(quarter.apply([1.0, 0.0, 0.0]), 3).tolist()
    [0.0, 1.0, 0.0]
    >>> fnp.round((quarter * quarter).magnitude(), 3)
    Array(3.142, dtype=float32)
    """

    quat: Array

    # -------------------------------------------------------------- made of something else

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """Arrays of rotations one after the other."""
        return cls(fnp.concatenate([rotation.quat for rotation in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: ArrayLike | Sequence[Any], degrees: bool = False) -> Rotation:
        """Turns about up to three axes one after the other, by `angles` (`f32[..., n]`).

        The axes are those of space, as in "xyz", or those turned before, as in "XYZ".
        """
        moving = _is_intrinsic(seq, range(1, 4))
        turns = fnp.atleast_1d(fnp.asarray(angles))
        if turns.shape[-1] != len(seq):
            raise ValueError(f"from_euler: of {seq!r} there must be {len(seq)} angles, got {turns.aval}")
        if degrees:
            turns = fnp.deg2rad(turns)
        out: Array | None = None
        for i, axis in enumerate(seq.lower()):
            half = turns[..., i] / 2
            parts = [fnp.zeros_like(half)] * 3
            parts["xyz".index(axis)] = fnp.sin(half)
            turn = fnp.stack([*parts, fnp.cos(half)], -1)
            out = turn if out is None else _quaternion_product(out, turn) if moving else _quaternion_product(turn, out)
        assert out is not None  # there is an axis
        return cls(out)

    @classmethod
    def from_matrix(cls, matrix: ArrayLike) -> Rotation:
        """From matrices, `f32[..., 3, 3]`: by the largest of the quaternion's entries, which is nowhere near 0."""
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
        rest = [m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1], 1 + trace]
        out = fnp.stack(rest, -1)
        choice = fnp.argmax(fnp.stack([m[..., 0, 0], m[..., 1, 1], m[..., 2, 2], trace], -1), -1)[..., None]
        for i, candidate in enumerate(candidates):
            out = fnp.where(choice == i, candidate, out)
        return cls(_normalize(out))

    @classmethod
    def from_mrp(cls, mrp: ArrayLike) -> Rotation:
        """From modified Rodrigues parameters: axes as long as the tangent of a quarter of the angle."""
        v = fnp.asarray(mrp)
        size = fnp.sum(v * v, -1, keepdims=True) + 1
        return cls(fnp.concatenate([2 * v, 2 - size], -1) / size)

    @classmethod
    def from_quat(cls, quat: ArrayLike) -> Rotation:
        """From quaternions, `f32[..., 4]`, of any length but 0."""
        return cls(_normalize(fnp.asarray(quat)))

    @classmethod
    def from_rotvec(cls, rotvec: ArrayLike, degrees: bool = False) -> Rotation:
        """From axes as long as the angle, `f32[..., 3]`."""
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
        """What turns nothing; `num` of them, if that is given."""
        one = fnp.array([0.0, 0.0, 0.0, 1.0], dtype=dtype)
        return cls(one if num is None else fnp.broadcast_to(one, (num, 4)))

    @classmethod
    def random(cls, random_key: ArrayLike, num: int | None = None) -> Rotation:
        """A rotation, each as likely as any other; `num` of them, if that is given. (JAX has none.)"""
        return cls(_normalize(normal(random_key, (4,) if num is None else (num, 4))))

    # -------------------------------------------------------------- arrays of rotations

    @property
    def single(self) -> bool:
        """Whether this is one rotation and no array of them."""
        return self.quat.ndim == 1

    def __getitem__(self, indexer: Any) -> Rotation:
        if self.single:
            raise TypeError("one rotation has no parts: only an array of rotations can be indexed")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        if self.single:
            raise TypeError("one rotation has no length: only an array of rotations has")
        return self.quat.shape[0]

    def __iter__(self) -> Iterator[Rotation]:
        return (self[i] for i in range(len(self)))

    # -------------------------------------------------------------- computing

    def __mul__(self, other: Rotation) -> Rotation:
        """First the other rotation, then this one."""
        return Rotation(_normalize(_quaternion_product(self.quat, other.quat)))

    def apply(self, vectors: ArrayLike | Sequence[Any], inverse: bool = False) -> Array:
        """Vectors, `f32[..., 3]`, rotated; backwards with `inverse`."""
        matrix = self.as_matrix()
        matrix = fnp.where(inverse, fnp.swapaxes(matrix, -1, -2), matrix)
        return fnp.matmul(matrix, fnp.asarray(vectors)[..., None])[..., 0]

    def inv(self) -> Rotation:
        """The rotation backwards."""
        return Rotation(self.quat * fnp.array([-1.0, -1.0, -1.0, 1.0], dtype=self.quat.dtype))

    def magnitude(self) -> Array:
        """The angle, from 0 to pi."""
        return 2 * fnp.arctan2(_safe_norm(self.quat[..., :3]), fnp.abs(self.quat[..., 3]))

    def mean(self, weights: ArrayLike | None = None) -> Rotation:
        """The rotation whose distances to those of this array, squared, are least in the sum, each with its weight."""
        q = self.quat
        w = fnp.ones(q.shape[0], q.dtype) if weights is None else fnp.asarray(weights, q.dtype)
        if w.ndim != 1:
            raise ValueError(f"mean: weights must have one axis, got {w.aval}")
        if w.shape[0] != len(self):
            raise ValueError(f"mean: there are {len(self)} rotations and {w.shape[0]} weights")
        vectors, _ = eigh(fnp.dot(w * q.T, q))
        return Rotation(vectors[:, -1])

    # -------------------------------------------------------------- made something else

    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """The angles of turns about three axes, as `from_euler` takes them.

        Where they aren't determined, as two axes have become one, the last one is 0.
        """
        moving = _is_intrinsic(seq, range(3, 4))
        i, j, k = ["xyz".index(axis) for axis in (seq.lower()[::-1] if moving else seq)]
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
        is_plain = ~is_zero & (fnp.abs(middle - math.pi) > 1e-7)
        mean, half = fnp.arctan2(b, a), fnp.arctan2(d, c)
        either = fnp.where(is_zero, 2 * mean, 2 * half * (1 if moving else -1))
        first, third = mean - half, mean + half
        if moving:
            first, third = third, first
        first, third = fnp.where(is_plain, first, either), fnp.where(is_plain, third, 0.0)
        if not is_symmetric:
            middle = middle - math.pi / 2
            first, third = (first * sign, third) if moving else (first, third * sign)
        angles = (fnp.stack([first, middle, third], -1) + math.pi) % (2 * math.pi) - math.pi
        return fnp.rad2deg(angles) if degrees else angles

    def as_matrix(self) -> Array:
        """The matrices, `f32[..., 3, 3]`."""
        x, y, z, w = [self.quat[..., n] for n in range(4)]
        rows = [
            [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), y * y - x * x - z * z + w * w, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), z * z - x * x - y * y + w * w],
        ]
        return fnp.stack([fnp.stack(row, -1) for row in rows], -2)

    def as_mrp(self) -> Array:
        """Modified Rodrigues parameters, no longer than 1."""
        sign = fnp.where(self.quat[..., 3:] < 0, -1.0, 1.0)
        return sign * self.quat[..., :3] / (1 + sign * self.quat[..., 3:])

    def as_rotvec(self, degrees: bool = False) -> Array:
        """Axes as long as the angle, which is no more than pi, `f32[..., 3]`."""
        q = fnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        v, w = q[..., :3], q[..., 3:]
        angle = 2 * fnp.arctan2(_safe_norm(v)[..., None], w)
        square, is_small = angle * angle, angle <= SMALL_ANGLE
        sine = fnp.sin(fnp.where(is_small, 1.0, angle) / 2)
        scale = fnp.where(is_small, 2 + square / 12 + 7 * square * square / 2880, angle / sine)
        return (fnp.rad2deg(scale) if degrees else scale) * v

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """The quaternions; of the two that are one rotation, if `canonical`, that whose last entry but 0 is positive,
        the real part counting before all others."""
        q = self.quat
        if canonical:
            is_negative, is_zero = q < 0, q == 0
            flips = is_negative[..., 3]
            so_far = is_zero[..., 3]
            for n in range(3):
                flips, so_far = flips | (so_far & is_negative[..., n]), so_far & is_zero[..., n]
            q = fnp.where(flips[..., None], -q, q)
        return fnp.roll(q, 1, -1) if scalar_first else q


@final
@register_dataclass
@frozen(eq=False)
class Slerp:
    """Rotations between rotations at given times, along the shortest way and evenly: `Slerp.init(times, rotations)`.

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
        """Between two or more rotations, at increasing times."""
        if not isinstance(rotations, Rotation):
            raise TypeError(f"Slerp.init: rotations must be a Rotation, got {rotations!r}")
        if rotations.single or len(rotations) == 1:
            raise ValueError("Slerp.init: there must be at least two rotations")
        at = fnp.asarray(times, rotations.quat.dtype)
        if at.ndim != 1:
            raise ValueError(f"Slerp.init: times must have one axis, got {at.aval}")
        if at.shape[0] != len(rotations):
            raise ValueError(f"Slerp.init: there are {len(rotations)} rotations and {at.shape[0]} times")
        starts = Rotation(rotations.quat[:-1])
        return cls(at, fnp.diff(at), starts, (starts.inv() * Rotation(rotations.quat[1:])).as_rotvec())

    def __call__(self, times: ArrayLike | Sequence[Any]) -> Rotation:
        """The rotations at these times, at one or at several."""
        at = fnp.asarray(times, self.times.dtype)
        if at.ndim > 1:
            raise ValueError(f"Slerp: times must have no more than one axis, got {at.aval}")
        several = fnp.atleast_1d(at)
        place = fnp.maximum(fnp.searchsorted(self.times, several) - 1, 0)
        part = (several - self.times[place]) / self.timedelta[place]
        out = self.rotations[place] * Rotation.from_rotvec(self.rotvecs[place] * part[:, None])
        return out if at.ndim else out[0]


def _is_intrinsic(seq: str, counts: range) -> bool:
    """Whether the axes are those turned before. Raises ValueError for what names no axes."""
    if len(seq) not in counts:
        raise ValueError(f"seq must name {' or '.join(map(str, counts))} axes, got {seq!r}")
    if any(a == b for a, b in itertools.pairwise(seq)):
        raise ValueError(f"seq must not name an axis twice running, got {seq!r}")
    if {*seq} <= {*"XYZ"}:
        return True
    if {*seq} <= {*"xyz"}:
        return False
    raise ValueError(f"seq must be made of 'x', 'y' and 'z', or of 'X', 'Y' and 'Z', got {seq!r}")


def _quaternion_product(p: Array, q: Array) -> Array:
    """Of quaternions."""
    u, a, v, b = p[..., :3], p[..., 3:], q[..., :3], q[..., 3:]
    vector = a * v + b * u + fnp.cross(u, v)
    return fnp.concatenate([vector, a * b - fnp.sum(u * v, -1, keepdims=True)], -1)


def _safe_norm(v: Array) -> Array:
    """With derivative 0 where it is 0."""
    square = fnp.sum(v * v, -1)
    is_zero = square == 0
    return fnp.where(is_zero, 0.0, fnp.sqrt(fnp.where(is_zero, 1.0, square)))


def _normalize(q: Array) -> Array:
    return q / fnp.sqrt(fnp.sum(q * q, -1, keepdims=True))
