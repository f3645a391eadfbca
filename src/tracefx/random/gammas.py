"""The gamma distribution, and distributions that are transformations of it."""

from __future__ import annotations

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, DType, DTypeLike, Shape, dtypes
from tracefx.core.named_sharding import OutSharding
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.ops.operation import static_shape
from tracefx.random.continuous import exponential, normal
from tracefx.random.keys import check_key, split
from tracefx.random.samplers import broadcast_parameter, check_parameter_shapes, float_dtype, jit_sampler, sample_shape
from tracefx.random.uniforms import rademacher, uniform
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.vmap import vmap


def gamma(
    key: ArrayLike,
    a: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws from the gamma distribution with shape parameter `a` and scale 1.

    Differentiable with respect to `a`, by implicit reparameterization: the uniform numbers stay fixed.

    Args:
        key: a random key, `key<...>[]`.
        a: the shape parameter, positive; an array that broadcasts to `shape`.
        shape: the shape of the result; by default that of `a`.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype, or the parameters don't broadcast to `shape`.

    >>> from tracefx import random
    >>> random.gamma(random.key(0), 2.0, (2,)).dtype
    dtype('float32')
    """
    return _sample_gamma("gamma", key, a, shape, dtype, log_space=False)


def loggamma(
    key: ArrayLike,
    a: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws logarithms of gamma distributed numbers, accurate for small `a` too.

    Args:
        key: a random key, `key<...>[]`.
        a: the shape parameter, positive; an array that broadcasts to `shape`.
        shape: the shape of the result; by default that of `a`.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype, or the parameters don't broadcast to `shape`.

    >>> from tracefx import random
    >>> bool(random.loggamma(random.key(0), 1e-3) < -10)
    True
    """
    return _sample_gamma("loggamma", key, a, shape, dtype, log_space=True)


def _sample_gamma(
    name: str, key: ArrayLike, a: ArrayLike, shape: ShapeLike | None, dtype: DTypeLike | None, log_space: bool
) -> Array:
    checked_key, _ = check_key(name, key)
    float_type, sizes = float_dtype(name, dtype), sample_shape(name, shape, a)
    return _gamma(checked_key, broadcast_parameter(a, float_type, sizes), log_space)


@jit_sampler("log_space")
def _gamma(key: Array, a: Array, log_space: bool) -> Array:
    drawn: Array = _gammas(log_space, key, a)
    return drawn


def _sample_each(log_space: bool, key: Array, a: Array) -> Array:
    """Draws each element with a key of its own."""
    flat = a.reshape(-1)
    drawn = vmap(lambda one, alpha: _sample_one(one, alpha, log_space))(split(key, flat.shape[0]), flat)
    return drawn.reshape(a.shape)


_gammas = custom_jvp(_sample_each, nondiff_argnums=(0,))


@_gammas.defjvp
def _gammas_jvp(log_space: bool, primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (key, a), (_, t) = primals, tangents
    out: Array = _gammas(log_space, key, a)
    if not log_space:
        return out, t * lax.random_gamma_grad(a, out)
    number = lax.exp(out)
    number = fnp.where(number == 0, float(dtypes.finfo(a.dtype).tiny), number)
    return out, t * (lax.random_gamma_grad(a, number) / number)


def _sample_one(key: Array, a: Array, log_space: bool) -> Array:
    """Draws one number by rejection.

    The method is that of Marsaglia and Tsang, A simple method for generating gamma variables, ACM TOMS 26 (2000). For
    `a < 1`, a draw for `a + 1` is multiplied by `uniform**(1 / a)`.
    """
    dtype = a.dtype
    is_large = a >= 1
    d = fnp.where(is_large, a, a + 1) - 1 / 3
    c = 1 / 3 / fnp.sqrt(d)

    def is_rejected(carry: tuple[Array, Array, Array, Array]) -> Array:
        _, square, v, u = carry
        return (u >= 1 - 0.0331 * (square * square)) & (lax.log(u) >= square * 0.5 + d * (1 - v + lax.log(v)))

    def propose(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        key, first, second = split(carry[0], 3)

        def redraw(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            key, normal_key = split(state[0])
            x = normal(normal_key, (), dtype)
            return key, x, 1 + x * c

        zero = fnp.zeros((), dtype)
        _, x, v = lax.while_loop(lambda state: state[2] <= 0, redraw, (first, zero, zero - 1))
        return key, x * x, v * v * v, uniform(second, (), dtype)

    key, last = split(key)
    zero, one, two = [fnp.full((), n, dtype) for n in (0, 1, 2)]
    _, _, v, _ = lax.while_loop(is_rejected, propose, (key, zero, one, two))
    if not log_space:
        lowered = fnp.power(1 - uniform(last, (), dtype), 1 / a)
        return d * v * fnp.where(is_large, one, lowered)
    log_uniform = -exponential(last, (), dtype)
    lowering = fnp.where(is_large | (log_uniform == 0), zero, log_uniform * (1 / a))
    return lax.log(d) + lax.log(v) + lowering


# ------------------------------------------------------------------ transformations of gamma numbers


def beta(
    key: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws from the beta distribution.

    Args:
        key: a random key, `key<...>[]`.
        a: the first shape parameter, an array that broadcasts to `shape`.
        b: the second shape parameter, an array that broadcasts to `shape`.
        shape: the shape of the result; by default that of the broadcast parameters.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        Numbers between 0 and 1, `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype, or the parameters don't broadcast to `shape`.

    >>> from tracefx import random
    >>> bool(random.beta(random.key(0), 2.0, 3.0) < 1)
    True
    """
    return _beta(key, a, b, sample_shape("beta", shape, a, b), float_dtype("beta", dtype))


@jit_sampler("shape", "dtype")
def _beta(key: Array, a: ArrayLike, b: ArrayLike, shape: Shape, dtype: DType) -> Array:
    first, second = split(key)
    log_a = loggamma(first, broadcast_parameter(a, dtype, shape), shape, dtype)
    log_b = loggamma(second, broadcast_parameter(b, dtype, shape), shape, dtype)
    largest = fnp.maximum(log_a, log_b)
    part, complement = lax.exp(log_a - largest), lax.exp(log_b - largest)
    return part / (part + complement)


def dirichlet(
    key: ArrayLike,
    alpha: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws from the Dirichlet distribution: vectors of positive numbers that sum to 1.

    Args:
        key: a random key, `key<...>[]`.
        alpha: the concentration parameters, `f32[..., n]`; all axes except the last broadcast to `shape`.
        shape: the shape of the result without its last axis; by default that of `alpha`.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape, n]`.

    Raises:
        ValueError: if `alpha` has no axes or doesn't match `shape`, or `dtype` is not a float dtype.

    >>> from tracefx import random
    >>> random.dirichlet(random.key(0), [1.0, 2.0, 3.0], (4,)).shape
    (4, 3)
    """
    parameters = fnp.asarray(alpha)
    if not parameters.ndim:
        raise ValueError("dirichlet: alpha must have at least one axis, that of the parameters")
    *lead, n = parameters.shape
    sizes = tuple(lead) if shape is None else sizes_of("dirichlet", shape)
    check_parameter_shapes("dirichlet", sizes, tuple(lead))
    if not n:  # max is undefined for empty axes
        return fnp.zeros((*sizes, 0), float_dtype("dirichlet", dtype))
    return _dirichlet(key, parameters, (*sizes, n), float_dtype("dirichlet", dtype))


@jit_sampler("shape", "dtype")
def _dirichlet(key: Array, alpha: Array, shape: Shape, dtype: DType) -> Array:
    logs = loggamma(key, lax.convert_element_type(alpha, dtype), shape, dtype)
    parts = lax.exp(logs - lax.stop_gradient(fnp.max(logs, axis=-1, keepdims=True)))
    return parts / fnp.sum(parts, axis=-1, keepdims=True)


def chisquare(
    key: ArrayLike,
    df: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws from the chi-squared distribution.

    Args:
        key: a random key, `key<...>[]`.
        df: the degrees of freedom, an array that broadcasts to `shape`.
        shape: the shape of the result; by default that of `df`.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype, or the parameters don't broadcast to `shape`.

    >>> from tracefx import random
    >>> bool(random.chisquare(random.key(0), 3.0) > 0)
    True
    """
    return _chisquare(key, df, sample_shape("chisquare", shape, df), float_dtype("chisquare", dtype))


@jit_sampler("shape", "dtype")
def _chisquare(key: Array, df: ArrayLike, shape: Shape, dtype: DType) -> Array:
    return lax.exp(loggamma(key, lax.convert_element_type(df, dtype) / 2, shape, dtype)) * 2


def f(
    key: ArrayLike,
    dfnum: ArrayLike,
    dfden: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws from the F distribution.

    Args:
        key: a random key, `key<...>[]`.
        dfnum: the degrees of freedom of the numerator, an array that broadcasts to `shape`.
        dfden: the degrees of freedom of the denominator, an array that broadcasts to `shape`.
        shape: the shape of the result; by default that of the broadcast parameters.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype, or the parameters don't broadcast to `shape`.

    >>> from tracefx import random
    >>> bool(random.f(random.key(0), 3.0, 5.0) > 0)
    True
    """
    return _f(key, dfnum, dfden, sample_shape("f", shape, dfnum, dfden), float_dtype("f", dtype))


@jit_sampler("shape", "dtype")
def _f(key: Array, dfnum: ArrayLike, dfden: ArrayLike, shape: Shape, dtype: DType) -> Array:
    above, below = [lax.convert_element_type(x, dtype) for x in (dfnum, dfden)]
    first, second = split(key)
    return (chisquare(second, above, shape, dtype) / above) / (chisquare(first, below, shape, dtype) / below)


def t(
    key: ArrayLike,
    df: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws from Student's t distribution.

    Args:
        key: a random key, `key<...>[]`.
        df: the degrees of freedom, an array that broadcasts to `shape`.
        shape: the shape of the result; by default that of `df`.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype, or the parameters don't broadcast to `shape`.

    >>> from tracefx import random
    >>> random.t(random.key(0), 3.0, (2,)).shape
    (2,)
    """
    return _t(key, df, sample_shape("t", shape, df), float_dtype("t", dtype))


@jit_sampler("shape", "dtype")
def _t(key: Array, df: ArrayLike, shape: Shape, dtype: DType) -> Array:
    first, second = split(key)
    half = lax.convert_element_type(df, dtype) / 2
    return normal(first, shape, dtype) * fnp.sqrt(half / gamma(second, half, shape, dtype))


def generalized_normal(
    key: ArrayLike,
    p: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws from the generalized normal distribution, whose density is proportional to `exp(-abs(x)**p)`.

    Args:
        key: a random key, `key<...>[]`.
        p: the shape parameter, which broadcasts against `shape`.
        shape: the shape of the result.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype.

    >>> from tracefx import random
    >>> random.generalized_normal(random.key(0), 1.5, (2,)).shape
    (2,)
    """
    sizes = sizes_of("generalized_normal", shape)
    return _generalized_normal(key, p, sizes, float_dtype("generalized_normal", dtype))


@jit_sampler("shape", "dtype")
def _generalized_normal(key: Array, p: ArrayLike, shape: Shape, dtype: DType) -> Array:
    first, second = split(key)
    power = fnp.true_divide(1, p)
    return rademacher(second, shape, dtype) * fnp.power(gamma(first, power, shape, dtype), power)


def ball(
    key: ArrayLike,
    d: int,
    p: ArrayLike = 2,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws uniformly from the unit ball of the `p`-norm in `d` dimensions.

    The method is that of Barthe, Guédon, Mendelson and Naor, A probabilistic approach to the geometry of the lp-ball,
    Annals of Probability 33 (2005).

    Args:
        key: a random key, `key<...>[]`.
        d: the number of dimensions, a concrete integer.
        p: the order of the norm.
        shape: the shape of the result without its last axis.
        dtype: the float dtype of the result; None means the default float dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape, d]`.

    Raises:
        ValueError: if `dtype` is not a float dtype.

    >>> from tracefx import random
    >>> random.ball(random.key(0), 3, shape=(2,)).shape
    (2, 3)
    """
    (size,) = static_shape("ball", (d,), "d")
    return _ball(key, p, size, sizes_of("ball", shape), float_dtype("ball", dtype))


@jit_sampler("d", "shape", "dtype")
def _ball(key: Array, p: ArrayLike, d: int, shape: Shape, dtype: DType) -> Array:
    first, second = split(key)
    g = generalized_normal(first, p, (*shape, d), dtype)
    e = exponential(second, shape, dtype)
    size = fnp.power(fnp.sum(fnp.power(fnp.abs(g), p), axis=-1) + e, fnp.true_divide(1, p))
    return g / size[..., None]
