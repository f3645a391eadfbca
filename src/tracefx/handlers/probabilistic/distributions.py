"""Distributions: frozen values that know how to draw from a key, and how likely a number is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

import numpy as np
from attrs import frozen
from typing_extensions import override

import tracefx.numpy as fnp
from tracefx import nn, random
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape
from tracefx.core.dtypes import DType
from tracefx.core.handler import as_array
from tracefx.core.promotion import promote
from tracefx.core.values import as_value
from tracefx.pytrees import trees

_HALF_LOG_TAU: Final = 0.5 * float(np.log(2 * np.pi))


class Distribution(ABC):
    """Base of distributions: a frozen class whose fields are arrays, that is a node of trees.

    Operations on it broadcast its fields against each other. A class whose draws have another shape than that, or
    another dtype than the fields', says so by `shape` and `dtype`.

    >>> from attrs import frozen
    >>> from tracefx.tree import register_dataclass
    >>> @register_dataclass
    ... @frozen
    ... class Point(Distribution):
    ...     at: Array
    ...     def sample(self, key):
    ...         return self.at
    ...     def log_prob(self, x):
    ...         return fnp.where(x == self.at, 0.0, -fnp.inf)
    >>> Point(fnp.ones(3)).shape
    (3,)
    """

    __slots__ = ()

    @abstractmethod
    def sample(self, key: Array) -> Array:
        """A draw, of `shape` and `dtype`. The key is one of `tracefx.random`, `key<...>[]`."""
        raise NotImplementedError

    @abstractmethod
    def log_prob(self, x: Array) -> Array:
        """The logarithm of the density or probability at `x`, which is of `shape`; `f32[batch...]`."""
        raise NotImplementedError

    @property
    def shape(self) -> Shape:
        """The shape of a draw."""
        return np.broadcast_shapes(*[as_value(x).aval.shape for x in _parameters(self)])

    @property
    def dtype(self) -> DType:
        """The dtype of a draw."""
        dtype, _ = promote([(a.dtype, a.weak_type) for a in [as_value(x).aval for x in _parameters(self)]])
        return dtype if dtypes.is_float(dtype) else fnp.result_type(dtype, float)


class Reparametrized(Distribution):
    """A distribution whose draws are a smooth function of its fields and of noise that depends on none of them.

    So draws have derivatives: the noise stays, the fields change.
    """

    __slots__ = ()

    @abstractmethod
    def noise(self, key: Array) -> Array:
        """What a draw is made of, of `shape` and `dtype`."""
        raise NotImplementedError

    @abstractmethod
    def push(self, noise: Array) -> Array:
        """The draw that is made of this noise."""
        raise NotImplementedError

    @abstractmethod
    def pull(self, x: Array) -> Array:
        """The noise that this draw is made of."""
        raise NotImplementedError

    @override
    def sample(self, key: Array) -> Array:
        return self.push(self.noise(key))


def _parameters(distribution: Distribution) -> list[ArrayLike]:
    return trees.leaves(distribution)


# ------------------------------------------------------------------ on real numbers


@final
@trees.register_dataclass
@frozen
class Normal(Reparametrized):
    """The normal distribution: `loc` and `scale` broadcast, `f32[...]`.

    >>> Normal(0.0, 1.0).log_prob(fnp.asarray(0.0))
    Array(-0.9189385, dtype=float32, weak_type=True)
    """

    loc: ArrayLike = 0.0
    scale: ArrayLike = 1.0

    @override
    def noise(self, key: Array) -> Array:
        return random.normal(key, self.shape, self.dtype)

    @override
    def push(self, noise: Array) -> Array:
        return noise * self.scale + self.loc

    @override
    def pull(self, x: Array) -> Array:
        return (x - self.loc) / self.scale

    @override
    def log_prob(self, x: Array) -> Array:
        return -0.5 * self.pull(x) ** 2 - fnp.log(self.scale) - _HALF_LOG_TAU


@final
@trees.register_dataclass
@frozen
class Uniform(Reparametrized):
    """Numbers from `low` on and below `high`, all equally likely.

    >>> Uniform(0.0, 4.0).log_prob(fnp.array([1.0, 5.0]))
    Array([-1.3862944,       -inf], dtype=float32, weak_type=True)
    """

    low: ArrayLike = 0.0
    high: ArrayLike = 1.0

    @override
    def noise(self, key: Array) -> Array:
        return random.uniform(key, self.shape, self.dtype)

    @override
    def push(self, noise: Array) -> Array:
        return noise * (as_array(self.high) - self.low) + self.low

    @override
    def pull(self, x: Array) -> Array:
        return (x - self.low) / (as_array(self.high) - self.low)

    @override
    def log_prob(self, x: Array) -> Array:
        inside = (x >= self.low) & (x < self.high)
        return fnp.where(inside, -fnp.log(as_array(self.high) - self.low), -fnp.inf)


@final
@trees.register_dataclass
@frozen
class Exponential(Reparametrized):
    """Waiting times for what happens at a `rate`: the mean is `1 / rate`.

    >>> Exponential(2.0).log_prob(fnp.array([1.0, -1.0]))
    Array([-1.3068528,       -inf], dtype=float32)
    """

    rate: ArrayLike = 1.0

    @override
    def noise(self, key: Array) -> Array:
        return -fnp.log1p(-random.uniform(key, self.shape, self.dtype))

    @override
    def push(self, noise: Array) -> Array:
        return noise / self.rate

    @override
    def pull(self, x: Array) -> Array:
        return x * self.rate

    @override
    def log_prob(self, x: Array) -> Array:
        return fnp.where(x >= 0, fnp.log(self.rate) - x * self.rate, -fnp.inf)


# ------------------------------------------------------------------ on integers


@final
@trees.register_dataclass
@frozen
class Bernoulli(Distribution):
    """1 with the probability `sigmoid(logits)`, else 0: `i32[...]`.

    >>> Bernoulli.of(fnp.array([0.25, 0.5])).log_prob(fnp.array([1, 1]))
    Array([-1.3862944, -0.6931472], dtype=float32)
    """

    logits: ArrayLike

    @classmethod
    def of(cls, probability: ArrayLike) -> Bernoulli:
        """1 with this probability."""
        p = as_array(probability)
        return cls(fnp.log(p) - fnp.log1p(-p))

    @property
    @override
    def dtype(self) -> DType:
        return np.dtype("int32")

    @override
    def sample(self, key: Array) -> Array:
        p = nn.sigmoid(self.logits)
        return (random.uniform(key, self.shape, p.aval.dtype) < p).astype(self.dtype)

    @override
    def log_prob(self, x: Array) -> Array:
        return -nn.softplus(fnp.where(x != 0, -as_array(self.logits), self.logits))


@final
@trees.register_dataclass
@frozen
class Categorical(Distribution):
    """One of `k` places, with probabilities `softmax(logits)`: `f32[..., k]` gives `i32[...]`.

    >>> Categorical(fnp.zeros(4)).log_prob(fnp.asarray(2))
    Array(-1.3862944, dtype=float32)
    """

    logits: ArrayLike

    @property
    @override
    def shape(self) -> Shape:
        return as_value(self.logits).aval.shape[:-1]

    @property
    @override
    def dtype(self) -> DType:
        return np.dtype("int32")

    @override
    def sample(self, key: Array) -> Array:
        logits = as_array(self.logits)
        u = random.uniform(key, logits.shape, logits.aval.dtype)
        tiny = float(dtypes.finfo(logits.aval.dtype).tiny)
        return fnp.argmax(logits - fnp.log(-fnp.log(fnp.maximum(u, tiny))), axis=-1).astype(self.dtype)

    @override
    def log_prob(self, x: Array) -> Array:
        logs = nn.log_softmax(as_array(self.logits))
        places = fnp.broadcast_to(fnp.arange(logs.shape[-1]), logs.shape)
        return fnp.where(places == x[..., None], logs, -fnp.inf).max(axis=-1)
