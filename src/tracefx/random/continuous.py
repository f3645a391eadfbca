"""Continuous distributions that are transformations of uniform or normal numbers."""

from __future__ import annotations

import math

import numpy as np

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, DType, DTypeLike, Shape, dtypes, get_aval
from tracefx.core.named_sharding import OutSharding
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.random.keys import bits, split
from tracefx.random.samplers import broadcast_parameter, float_dtype, jit_sampler, sample_shape, scalar_literal
from tracefx.random.uniforms import rademacher, uniform

# ------------------------------------------------------------------ normal


def normal(
    key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *, out_sharding: OutSharding = None
) -> Array:
    """Draws from the standard normal distribution.

    For complex dtypes the real and imaginary parts have variance 1/2 each.

    Args:
        key: a random key, `key<...>[]`.
        shape: the shape of the result.
        dtype: the float or complex dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is neither a float nor a complex dtype.

    >>> from tracefx import random
    >>> [f"{x:.2f}" for x in random.normal(random.key(0), (2,))]
    ['1.62', '2.03']
    """
    return _normal(key, sizes_of("normal", shape), float_dtype("normal", dtype, complex_too=True))


@jit_sampler("shape", "dtype")
def _normal(key: Array, shape: Shape, dtype: DType) -> Array:
    if not dtypes.is_complex(dtype):
        below = np.nextafter(np.array(-1, dtype), np.array(0, dtype), dtype=dtype)
        u = uniform(key, shape, dtype, scalar_literal(float(below), dtype), 1.0)
        return lax.erf_inv(u) * scalar_literal(math.sqrt(2), dtype)
    parts = [normal(each, shape, dtypes.real_dtype(dtype)) for each in split(key)]
    return lax.complex(*parts) / scalar_literal(math.sqrt(2), dtype)


def truncated_normal(
    key: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws from the standard normal distribution, truncated to the interval from `lower` to `upper`.

    Args:
        key: a random key, `key<...>[]`.
        lower: the lower bound, an array that broadcasts to `shape`.
        upper: the upper bound, an array that broadcasts to `shape`.
        shape: the shape of the result; by default that of the broadcast bounds.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype, or the parameters don't broadcast to `shape`.

    >>> from tracefx import random
    >>> [f"{x:.2f}" for x in random.truncated_normal(random.key(0), -1.0, 1.0, (2,))]
    ['0.86', '0.94']
    """
    sizes = sample_shape("truncated_normal", shape, lower, upper)
    return _truncated_normal(key, lower, upper, sizes, float_dtype("truncated_normal", dtype))


@jit_sampler("shape", "dtype")
def _truncated_normal(key: Array, lower: ArrayLike, upper: ArrayLike, shape: Shape, dtype: DType) -> Array:
    low, high = [lax.convert_element_type(x, dtype) for x in (lower, upper)]
    scale = scalar_literal(math.sqrt(2), dtype)
    u = uniform(key, shape, dtype, lax.erf(low / scale), lax.erf(high / scale))
    # By rounding, numbers may reach or exceed a bound.
    least = fnp.nextafter(lax.stop_gradient(low), scalar_literal(math.inf, dtype))
    most = fnp.nextafter(lax.stop_gradient(high), scalar_literal(-math.inf, dtype))
    return fnp.clip(scale * lax.erf_inv(u), least, most)


def lognormal(
    key: ArrayLike,
    sigma: ArrayLike = 1.0,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws from the log-normal distribution: numbers whose logarithm is normal with mean 0.

    Args:
        key: a random key, `key<...>[]`.
        sigma: the standard deviation of the logarithm, an array that broadcasts to `shape`.
        shape: the shape of the result; by default that of `sigma`.
        dtype: the float or complex dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is neither a float nor a complex dtype, or `sigma` doesn't broadcast to `shape`.

    >>> from tracefx import random
    >>> [f"{x:.2f}" for x in random.lognormal(random.key(0), 0.5, (2,))]
    ['2.25', '2.75']
    """
    sizes = sample_shape("lognormal", shape, sigma)
    return _lognormal(key, sigma, sizes, float_dtype("lognormal", dtype, complex_too=True))


@jit_sampler("shape", "dtype")
def _lognormal(key: Array, sigma: ArrayLike, shape: Shape, dtype: DType) -> Array:
    return lax.exp(normal(key, shape, dtype) * lax.convert_element_type(sigma, dtype))


def maxwell(
    key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *, out_sharding: OutSharding = None
) -> Array:
    """Draws from the Maxwell distribution: the norm of a vector of three standard normal numbers.

    Args:
        key: a random key, `key<...>[]`.
        shape: the shape of the result.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype.

    >>> from tracefx import random
    >>> [f"{x:.2f}" for x in random.maxwell(random.key(0), (2,))]
    ['2.63', '0.99']
    """
    return _maxwell(key, sizes_of("maxwell", shape), float_dtype("maxwell", dtype))


@jit_sampler("shape", "dtype")
def _maxwell(key: Array, shape: Shape, dtype: DType) -> Array:
    return fnp.sqrt(fnp.sum(fnp.square(normal(key, (*shape, 3), dtype)), axis=-1))


def double_sided_maxwell(
    key: ArrayLike,
    loc: ArrayLike,
    scale: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
) -> Array:
    """Draws from the double-sided Maxwell distribution: Maxwell numbers with a random sign, times `scale`, plus `loc`.

    Args:
        key: a random key, `key<...>[]`.
        loc: the location parameter.
        scale: the scale parameter.
        shape: the leading axes of the result; if empty, those that `loc` and `scale` broadcast to.
        dtype: the float dtype of the result; None means the default float dtype.

    Returns:
        `dtype[*shape, *parameters]`, where `parameters` is the shape that `loc` and `scale` broadcast to.

    Raises:
        ValueError: if `dtype` is not a float dtype.

    >>> from tracefx import random
    >>> random.double_sided_maxwell(random.key(0), 1.0, 0.5, (2,)).shape
    (2,)
    """
    sizes = sizes_of("double_sided_maxwell", shape)
    return _double_sided_maxwell(key, loc, scale, sizes, float_dtype("double_sided_maxwell", dtype))


@jit_sampler("shape", "dtype")
def _double_sided_maxwell(key: Array, loc: ArrayLike, scale: ArrayLike, shape: Shape, dtype: DType) -> Array:
    parameters = np.broadcast_shapes(get_aval(loc).shape, get_aval(scale).shape)
    sizes = (*(shape or parameters), *parameters)
    first, second = split(key)
    return fnp.add(fnp.multiply(rademacher(second, sizes, dtype) * maxwell(first, sizes, dtype), scale), loc)


# ------------------------------------------------------------------ inverse transform sampling


def exponential(
    key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *, out_sharding: OutSharding = None
) -> Array:
    """Draws from the exponential distribution with mean 1.

    Args:
        key: a random key, `key<...>[]`.
        shape: the shape of the result.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype.

    >>> from tracefx import random
    >>> [f"{x:.2f}" for x in random.exponential(random.key(0), (2,))]
    ['2.95', '3.84']
    """
    return _exponential(key, sizes_of("exponential", shape), float_dtype("exponential", dtype))


@jit_sampler("shape", "dtype")
def _exponential(key: Array, shape: Shape, dtype: DType) -> Array:
    return -lax.log1p(-uniform(key, shape, dtype))


def pareto(
    key: ArrayLike,
    b: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws from the Pareto distribution on `x >= 1`, whose density is `b * x**-(b + 1)`.

    Args:
        key: a random key, `key<...>[]`.
        b: the shape parameter, an array that broadcasts to `shape`.
        shape: the shape of the result; by default that of `b`.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype, or the parameters don't broadcast to `shape`.

    >>> from tracefx import random
    >>> [f"{x:.2f}" for x in random.pareto(random.key(0), 2.0, (2,))]
    ['4.37', '6.83']
    """
    return _pareto(key, b, sample_shape("pareto", shape, b), float_dtype("pareto", dtype))


@jit_sampler("shape", "dtype")
def _pareto(key: Array, b: ArrayLike, shape: Shape, dtype: DType) -> Array:
    return lax.exp(exponential(key, shape, dtype) / lax.convert_element_type(b, dtype))


def cauchy(
    key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *, out_sharding: OutSharding = None
) -> Array:
    """Draws from the standard Cauchy distribution.

    Args:
        key: a random key, `key<...>[]`.
        shape: the shape of the result.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype.

    >>> from tracefx import random
    >>> random.cauchy(random.key(0), (2,)).dtype
    dtype('float32')
    """
    return _cauchy(key, sizes_of("cauchy", shape), float_dtype("cauchy", dtype))


@jit_sampler("shape", "dtype")
def _cauchy(key: Array, shape: Shape, dtype: DType) -> Array:
    u = uniform(key, shape, dtype, float(dtypes.finfo(dtype).eps), 1.0)
    return lax.tan((u - 0.5) * math.pi)


def laplace(
    key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *, out_sharding: OutSharding = None
) -> Array:
    """Draws from the standard Laplace distribution, whose density is `exp(-abs(x)) / 2`.

    Args:
        key: a random key, `key<...>[]`.
        shape: the shape of the result.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype.

    >>> from tracefx import random
    >>> [f"{x:.2f}" for x in random.laplace(random.key(0), (2,))]
    ['-2.26', '-3.15']
    """
    return _laplace(key, sizes_of("laplace", shape), float_dtype("laplace", dtype))


@jit_sampler("shape", "dtype")
def _laplace(key: Array, shape: Shape, dtype: DType) -> Array:
    u = uniform(key, shape, dtype, float(dtypes.finfo(dtype).epsneg) - 1.0, 1.0)
    return fnp.sign(u) * lax.log1p(-fnp.abs(u))


def logistic(
    key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *, out_sharding: OutSharding = None
) -> Array:
    """Draws from the standard logistic distribution.

    Args:
        key: a random key, `key<...>[]`.
        shape: the shape of the result.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype.

    >>> from tracefx import random
    >>> [f"{x:.2f}" for x in random.logistic(random.key(0), (2,))]
    ['2.90', '3.82']
    """
    return _logistic(key, sizes_of("logistic", shape), float_dtype("logistic", dtype))


@jit_sampler("shape", "dtype")
def _logistic(key: Array, shape: Shape, dtype: DType) -> Array:
    u = uniform(key, shape, dtype, float(dtypes.finfo(dtype).tiny), 1.0)
    return lax.log(u) - lax.log1p(-u)


def weibull_min(
    key: ArrayLike,
    scale: ArrayLike,
    concentration: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
) -> Array:
    """Draws from the Weibull distribution with a scale and a concentration (shape parameter).

    Args:
        key: a random key, `key<...>[]`.
        scale: the scale parameter, which broadcasts against `shape`.
        concentration: the shape parameter, which broadcasts against `shape`.
        shape: the shape of the result.
        dtype: the float dtype of the result; None means the default float dtype.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype.

    >>> from tracefx import random
    >>> [f"{x:.2f}" for x in random.weibull_min(random.key(0), 2.0, 1.5, (2,))]
    ['4.11', '4.91']
    """
    sizes = sizes_of("weibull_min", shape)
    return _weibull_min(key, scale, concentration, sizes, float_dtype("weibull_min", dtype))


@jit_sampler("shape", "dtype")
def _weibull_min(key: Array, scale: ArrayLike, concentration: ArrayLike, shape: Shape, dtype: DType) -> Array:
    power = fnp.true_divide(1.0, concentration)
    return fnp.multiply(fnp.power(exponential(key, shape, dtype), power), scale)


def rayleigh(
    key: ArrayLike,
    scale: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws from the Rayleigh distribution: the norm of a vector of two normal numbers with standard deviation `scale`.

    Args:
        key: a random key, `key<...>[]`.
        scale: the scale parameter, an array that broadcasts to `shape`.
        shape: the shape of the result; by default that of `scale`.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype, or the parameters don't broadcast to `shape`.

    >>> from tracefx import random
    >>> [f"{x:.2f}" for x in random.rayleigh(random.key(0), 2.0, (2,))]
    ['0.66', '0.42']
    """
    return _rayleigh(key, scale, sample_shape("rayleigh", shape, scale), float_dtype("rayleigh", dtype))


@jit_sampler("shape", "dtype")
def _rayleigh(key: Array, scale: ArrayLike, shape: Shape, dtype: DType) -> Array:
    return broadcast_parameter(scale, dtype, shape) * fnp.sqrt(lax.log(uniform(key, shape, dtype)) * -2)


def triangular(
    key: ArrayLike,
    left: ArrayLike,
    mode: ArrayLike,
    right: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws from the triangular distribution on the interval from `left` to `right`, with the given mode.

    Args:
        key: a random key, `key<...>[]`.
        left: the lower end, an array that broadcasts to `shape`.
        mode: the point of the highest density, an array that broadcasts to `shape`.
        right: the upper end, an array that broadcasts to `shape`.
        shape: the shape of the result; by default that of the broadcast parameters.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype, or the parameters don't broadcast to `shape`.

    >>> from tracefx import random
    >>> [f"{x:.2f}" for x in random.triangular(random.key(0), 0.0, 1.0, 4.0, (2,))]
    ['3.21', '3.49']
    """
    sizes = sample_shape("triangular", shape, left, mode, right)
    return _triangular(key, left, mode, right, sizes, float_dtype("triangular", dtype))


@jit_sampler("shape", "dtype")
def _triangular(key: Array, left: ArrayLike, mode: ArrayLike, right: ArrayLike, shape: Shape, dtype: DType) -> Array:
    low, tip, high = [broadcast_parameter(x, dtype, shape) for x in (left, mode, right)]
    u = uniform(key, shape, dtype)
    rising = low + fnp.sqrt(u * (high - low) * (tip - low))
    falling = high - fnp.sqrt((1 - u) * (high - low) * (high - tip))
    return fnp.where(u < (tip - low) / (high - low), rising, falling)


def wald(
    key: ArrayLike,
    mean: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws from the Wald distribution: the inverse Gaussian distribution of scale 1.

    The method is that of Michael, Schucany and Haas, Generating random variates using transformations with multiple
    roots, The American Statistician 30 (1976).

    Args:
        key: a random key, `key<...>[]`.
        mean: the mean, an array that broadcasts to `shape`.
        shape: the shape of the result; by default that of `mean`.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype, or the parameters don't broadcast to `shape`.

    >>> from tracefx import random
    >>> random.wald(random.key(0), 2.0, (2,)).shape
    (2,)
    """
    return _wald(key, mean, sample_shape("wald", shape, mean), float_dtype("wald", dtype))


@jit_sampler("shape", "dtype")
def _wald(key: Array, mean: ArrayLike, shape: Shape, dtype: DType) -> Array:
    first, second = split(key)
    mu = broadcast_parameter(mean, dtype, shape)
    y = fnp.square(normal(first, shape, dtype))
    square = fnp.square(mu)
    x = mu + square * y / 2 - mu / 2 * fnp.sqrt(4 * mu * y + square * fnp.square(y))
    return fnp.where(uniform(second, shape, dtype) <= mu / (mu + x), x, square / x)


def gumbel(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    mode: str | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws from the standard Gumbel distribution.

    Args:
        key: a random key, `key<...>[]`.
        shape: the shape of the result.
        dtype: the float dtype of the result; None means the default float dtype.
        mode: how many random bits are drawn, which limits the largest numbers: `"low"` (the default); `"high"`, twice
            as many; or `"highest"`, which makes better use of them for float32 and is as `"high"` for other dtypes.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `mode` is unknown, or `dtype` is not a float dtype.

    >>> from tracefx import random
    >>> [f"{x:.2f}" for x in random.gumbel(random.key(0), (2,))]
    ['2.92', '3.83']
    """
    canonical_mode = "low" if mode is None else mode
    if canonical_mode not in ("low", "high", "highest"):
        raise ValueError(f"gumbel: mode must be 'low', 'high' or 'highest', got {mode!r}")
    return _gumbel(key, sizes_of("gumbel", shape), float_dtype("gumbel", dtype), canonical_mode)


@jit_sampler("shape", "dtype", "mode")
def _gumbel(key: Array, shape: Shape, dtype: DType, mode: str) -> Array:
    info = dtypes.finfo(dtype)
    if mode == "low":
        return -lax.log(-lax.log(uniform(key, shape, dtype, float(info.tiny), 1.0)))
    if mode == "highest" and dtype == dtypes.float32:
        from_below, x = _fine_uniform(key, shape)
        return -lax.log(-fnp.where(from_below, lax.log1p(-x), lax.log(x)))
    high, low = uniform(key, (2, *shape), dtype)
    x = fnp.where(high >= 0.5, high, high + 2.0**-info.nmant * low + float(info.tiny))
    return -lax.log(-lax.log1p(-x))


def _fine_uniform(key: Array, shape: Shape) -> tuple[Array, Array]:
    """Draws uniform 64-bit numbers: whether each is below 1/2, and its `f32` distance from the nearer end."""
    high, low = bits(key, (2, *shape), np.uint32)
    word = lax.shift_left(high.astype(np.uint64), 32) | low.astype(np.uint64)
    from_below = high < np.uint32(1 << 31)
    word = fnp.where(from_below, word, -word)
    zeros = lax.clz(word)
    digits = lax.shift_right_logical(lax.shift_left(word, zeros), 40).astype(np.float32)
    unit = lax.bitcast_convert_type(lax.shift_left((103 - zeros.astype(np.int32)).astype(np.uint32), 23), np.float32)
    return from_below, fnp.where(word == 0, 2.0**-65, digits * unit)
