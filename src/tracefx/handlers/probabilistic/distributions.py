"""`Distribution`, the base class of distributions, and the common ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

import numpy as np
from attrs import frozen
from typing_extensions import override

import tracefx.numpy as fnp
from tracefx import nn, random
from tracefx.core import Array, ArrayLike, DType, Shape, as_value, dtypes
from tracefx.core.handler import as_array
from tracefx.ops.promotion import promote
from tracefx.pytrees import trees

_HALF_LOG_TAU: Final = 0.5 * float(np.log(2 * np.pi))


class Distribution(ABC):
    """The base class of distributions: a frozen dataclass whose fields are arrays, registered as a pytree.

    The methods broadcast the fields against each other. A class whose samples have another shape or dtype than the
    broadcast fields overrides `shape` and `dtype`.

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
        """Returns a sample of shape `shape` and dtype `dtype`, drawn with `key`, a `key<...>[]` of `tracefx.random`.

        Args:
            key: The random key.

        Returns:
            The sample.
        """

    @abstractmethod
    def log_prob(self, x: Array) -> Array:
        """Returns the logarithm of the density or probability at `x`, an array of shape `shape`; `f32[batch...]`.

        Args:
            x: The array.

        Returns:
            The log probabilities.
        """

    @property
    def shape(self) -> Shape:
        """The shape of a sample."""
        return np.broadcast_shapes(*[as_value(x).aval.shape for x in _parameters(self)])

    @property
    def dtype(self) -> DType:
        """The dtype of a sample."""
        dtype, _ = promote([(a.dtype, a.weak_type) for a in [as_value(x).aval for x in _parameters(self)]])
        return dtype if dtypes.is_float(dtype) else fnp.result_type(dtype, float)


class Reparametrized(Distribution):
    """A distribution whose samples are a smooth function of its fields and of noise that does not depend on them.

    So samples have derivatives with respect to the fields, at constant noise (the reparametrization trick).

    >>> from tracefx import grad, random
    >>> grad(lambda mean: Normal(mean, 1.0).sample(random.key(0)))(0.0)
    Array(1., dtype=float32, weak_type=True)
    """

    __slots__ = ()

    @abstractmethod
    def noise(self, key: Array) -> Array:
        """Returns random noise of shape `shape` and dtype `dtype`.

        Args:
            key: The random key.

        Returns:
            The noise.
        """

    @abstractmethod
    def push(self, noise: Array) -> Array:
        """Returns the sample that belongs to this noise.

        Args:
            noise: The noise, as from `noise`.

        Returns:
            The sample, a smooth function of the fields.
        """

    @abstractmethod
    def pull(self, x: Array) -> Array:
        """Returns the noise that belongs to the sample `x`; the inverse of `push`.

        Args:
            x: The sample.

        Returns:
            The noise.
        """

    @override
    def sample(self, key: Array) -> Array:
        return self.push(self.noise(key))


def _parameters(distribution: Distribution) -> list[ArrayLike]:
    return trees.leaves(distribution)


# ------------------------------------------------------------------ continuous distributions


@final
@trees.register_dataclass
@frozen
class Normal(Reparametrized):
    """The normal distribution.

    Attributes:
        loc: the mean, `f32[...]`.
        scale: the standard deviation, which broadcasts with `loc`.

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
    """The uniform distribution on the interval from `low` (included) to `high` (excluded).

    Attributes:
        low: the lower end.
        high: the upper end, which broadcasts with `low`.

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
    """The exponential distribution: times between events of a Poisson process.

    Attributes:
        rate: the number of events per unit of time; the mean is `1 / rate`.

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


# ------------------------------------------------------------------ discrete distributions


@final
@trees.register_dataclass
@frozen
class Bernoulli(Distribution):
    """The Bernoulli distribution: 1 with probability `sigmoid(logits)`, otherwise 0.

    Attributes:
        logits: the log odds, `f32[...]`; samples are `i32[...]`.

    >>> Bernoulli.of(fnp.array([0.25, 0.5])).log_prob(fnp.array([1, 1]))
    Array([-1.3862944, -0.6931472], dtype=float32)
    """

    logits: ArrayLike

    @classmethod
    def of(cls, probability: ArrayLike) -> Bernoulli:
        """Returns the distribution with a given probability of 1.

        Args:
            probability: The probability, between 0 and 1; an array for independent variables.

        Returns:
            The distribution.
        """
        p = as_array(probability)
        return cls(fnp.log(p) - fnp.log1p(-p))

    dtype = np.dtype("int32")

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
    """The categorical distribution: an index `0, ..., k - 1` with probabilities `softmax(logits)`.

    Attributes:
        logits: unnormalized log probabilities, `f32[..., k]`; samples are `i32[...]`.

    >>> Categorical(fnp.zeros(4)).log_prob(fnp.asarray(2))
    Array(-1.3862944, dtype=float32)
    """

    logits: ArrayLike

    @property
    @override
    def shape(self) -> Shape:
        return as_value(self.logits).aval.shape[:-1]

    dtype = np.dtype("int32")

    @override
    def sample(self, key: Array) -> Array:
        logits = as_array(self.logits)
        u = random.uniform(key, logits.shape, logits.aval.dtype)
        tiny = float(dtypes.finfo(logits.aval.dtype).tiny)
        return fnp.argmax(logits - fnp.log(-fnp.log(fnp.maximum(u, tiny))), axis=-1).astype(self.dtype)

    @override
    def log_prob(self, x: Array) -> Array:
        logs = nn.log_softmax(as_array(self.logits))
        indices = fnp.broadcast_to(fnp.arange(logs.shape[-1]), logs.shape)
        return fnp.where(indices == x[..., None], logs, -fnp.inf).max(axis=-1)
