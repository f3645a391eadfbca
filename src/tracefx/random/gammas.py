"""Draws from the gamma distribution, and from those that are made of it."""

from __future__ import annotations

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape
from tracefx.core.dtypes import DType, DTypeLike
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.ops.operation import static_shape
from tracefx.random.arguments import broadcast_parameter, check_parameter_shapes, float_dtype, sample_shape
from tracefx.random.continuous import exponential, normal
from tracefx.random.keys import check_key, split
from tracefx.random.samplers import jit_sampler
from tracefx.random.uniforms import rademacher, uniform
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.vmap import vmap


def gamma(key: ArrayLike, a: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None) -> Array:
    """Numbers of the gamma distribution of shape parameter `a` and scale 1, `dtype[*shape]`.

    They have derivatives with respect to `a`: how a number moves where the uniform ones behind it stay.

    Args:
        key: `key<...>[]`.
        a: an array, of numbers above 0, that broadcasts to `shape`.
        shape: that of `a` if it isn't given.

    >>> from tracefx import random
    >>> random.gamma(random.key(0), 2.0, (2,)).dtype
    dtype('float32')
    """
    return _sample_gamma("gamma", key, a, shape, dtype, log_space=False)


def loggamma(key: ArrayLike, a: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None) -> Array:
    """Logarithms of numbers of the gamma distribution, which are right for a small `a` too; otherwise as `gamma`.

    >>> from tracefx import random
    >>> bool(random.loggamma(random.key(0), 1e-3) < -10)
    True
    """
    return _sample_gamma("loggamma", key, a, shape, dtype, log_space=True)


def _sample_gamma(
    name: str, key: ArrayLike, a: ArrayLike, shape: ShapeLike | None, dtype: DTypeLike | None, log_space: bool
) -> Array:
    one, _ = check_key(name, key)
    wanted, sizes = float_dtype(name, dtype), sample_shape(name, shape, a)
    return _gamma(one, broadcast_parameter(a, wanted, sizes), log_space)


@jit_sampler("log_space")
def _gamma(key: Array, a: Array, log_space: bool) -> Array:
    return (_log_gammas if log_space else _gammas)(key, a)


@custom_jvp
def _gammas(key: Array, a: Array) -> Array:
    return _sample_each(key, a, log_space=False)


@_gammas.defjvp
def _gammas_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (key, a), (_, t) = primals, tangents
    out = _gammas(key, a)
    return out, t * lax.random_gamma_grad(a, out)


@custom_jvp
def _log_gammas(key: Array, a: Array) -> Array:
    return _sample_each(key, a, log_space=True)


@_log_gammas.defjvp
def _log_gammas_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (key, a), (_, t) = primals, tangents
    out = _log_gammas(key, a)
    number = lax.exp(out)
    number = fnp.where(number == 0, float(dtypes.finfo(a.dtype).tiny), number)
    return out, t * (lax.random_gamma_grad(a, number) / number)


def _sample_each(key: Array, a: Array, log_space: bool) -> Array:
    """One draw after another, each with a key of its own."""
    flat = a.reshape(-1)
    drawn = vmap(lambda one, alpha: _sample_one(one, alpha, log_space))(split(key, flat.shape[0]), flat)
    return drawn.reshape(a.shape)


def _sample_one(key: Array, a: Array, log_space: bool) -> Array:
    """By rejection: Marsaglia and Tsang, A simple method for generating gamma variables, ACM TOMS 26 (2000).

    For `a` below 1 a draw for `a + 1` is multiplied by a uniform number to the power of `1 / a`.
    """
    dtype = a.dtype
    is_large = a >= 1
    d = fnp.where(is_large, a, a + 1) - 1 / 3
    c = 1 / 3 / fnp.sqrt(d)

    def is_rejected(carry: tuple[Array, Array, Array, Array]) -> Array:
        _, square, v, u = carry
        return (u >= 1 - 0.0331 * (square * square)) & (lax.log(u) >= square * 0.5 + d * (1 - v + lax.log(v)))

    def proposed(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        key, first, second = split(carry[0], 3)

        def redrawn(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            key, now = split(state[0])
            x = normal(now, (), dtype)
            return key, x, 1 + x * c

        zero = fnp.zeros((), dtype)
        _, x, v = lax.while_loop(lambda state: state[2] <= 0, redrawn, (first, zero, zero - 1))
        return key, x * x, v * v * v, uniform(second, (), dtype)

    key, last = split(key)
    zero, one, two = [fnp.full((), n, dtype) for n in (0, 1, 2)]
    _, _, v, _ = lax.while_loop(is_rejected, proposed, (key, zero, one, two))
    if not log_space:
        lowered = fnp.power(1 - uniform(last, (), dtype), 1 / a)
        return d * v * fnp.where(is_large, one, lowered)
    log_uniform = -exponential(last, (), dtype)
    lowering = fnp.where(is_large | (log_uniform == 0), zero, log_uniform * (1 / a))
    return lax.log(d) + lax.log(v) + lowering


# ------------------------------------------------------------------ what is made of gamma numbers


def beta(
    key: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """Numbers of the beta distribution with parameters `a` and `b`, between 0 and 1, `dtype[*shape]`.

    >>> from tracefx import random
    >>> bool(random.beta(random.key(0), 2.0, 3.0) < 1)
    True
    """
    one, _ = check_key("beta", key)
    return _beta(one, a, b, sample_shape("beta", shape, a, b), float_dtype("beta", dtype))


@jit_sampler("shape", "dtype")
def _beta(key: Array, a: ArrayLike, b: ArrayLike, shape: Shape, dtype: DType) -> Array:
    first, second = split(key)
    log_a = loggamma(first, broadcast_parameter(a, dtype, shape), shape, dtype)
    log_b = loggamma(second, broadcast_parameter(b, dtype, shape), shape, dtype)
    largest = fnp.maximum(log_a, log_b)
    part, rest = lax.exp(log_a - largest), lax.exp(log_b - largest)
    return part / (part + rest)


def dirichlet(
    key: ArrayLike, alpha: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None
) -> Array:
    """Vectors of the Dirichlet distribution, `dtype[*shape, n]`: of numbers above 0 that add up to 1.

    Args:
        key: `key<...>[]`.
        alpha: `f32[..., n]`, whose axes but for the last broadcast to `shape`.
        shape: without the last axis.

    Raises ValueError for an `alpha` without axes.

    >>> from tracefx import random
    >>> random.dirichlet(random.key(0), [1.0, 2.0, 3.0], (4,)).shape
    (4, 3)
    """
    one, _ = check_key("dirichlet", key)
    parameters = fnp.asarray(alpha)
    if not parameters.ndim:
        raise ValueError("dirichlet: alpha must have at least one axis, along which are the parameters of a vector")
    *lead, n = parameters.shape
    sizes = tuple(lead) if shape is None else sizes_of("dirichlet", shape)
    check_parameter_shapes("dirichlet", sizes, tuple(lead))
    if not n:  # of no elements there is no greatest
        return fnp.zeros((*sizes, 0), float_dtype("dirichlet", dtype))
    return _dirichlet(one, parameters, (*sizes, n), float_dtype("dirichlet", dtype))


@jit_sampler("shape", "dtype")
def _dirichlet(key: Array, alpha: Array, shape: Shape, dtype: DType) -> Array:
    logs = loggamma(key, lax.convert_element_type(alpha, dtype), shape, dtype)
    parts = lax.exp(logs - lax.stop_gradient(fnp.max(logs, axis=-1, keepdims=True)))
    return parts / fnp.sum(parts, axis=-1, keepdims=True)


def chisquare(key: ArrayLike, df: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None) -> Array:
    """Numbers of the chi-squared distribution with `df` degrees of freedom, `dtype[*shape]`.

    >>> from tracefx import random
    >>> bool(random.chisquare(random.key(0), 3.0) > 0)
    True
    """
    one, _ = check_key("chisquare", key)
    return _chisquare(one, df, sample_shape("chisquare", shape, df), float_dtype("chisquare", dtype))


@jit_sampler("shape", "dtype")
def _chisquare(key: Array, df: ArrayLike, shape: Shape, dtype: DType) -> Array:
    return lax.exp(loggamma(key, lax.convert_element_type(df, dtype) / 2, shape, dtype)) * 2


def f(
    key: ArrayLike,
    dfnum: ArrayLike,
    dfden: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """Numbers of the F distribution, `dtype[*shape]`: quotients of mean squares of `dfnum` and `dfden` normal numbers.

    >>> from tracefx import random
    >>> bool(random.f(random.key(0), 3.0, 5.0) > 0)
    True
    """
    one, _ = check_key("f", key)
    return _f(one, dfnum, dfden, sample_shape("f", shape, dfnum, dfden), float_dtype("f", dtype))


@jit_sampler("shape", "dtype")
def _f(key: Array, dfnum: ArrayLike, dfden: ArrayLike, shape: Shape, dtype: DType) -> Array:
    above, below = [lax.convert_element_type(x, dtype) for x in (dfnum, dfden)]
    first, second = split(key)
    return (chisquare(second, above, shape, dtype) / above) / (chisquare(first, below, shape, dtype) / below)


def t(key: ArrayLike, df: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None) -> Array:
    """Numbers of Student's t distribution with `df` degrees of freedom, `dtype[*shape]`.

    >>> from tracefx import random
    >>> random.t(random.key(0), 3.0, (2,)).shape
    (2,)
    """
    one, _ = check_key("t", key)
    return _t(one, df, sample_shape("t", shape, df), float_dtype("t", dtype))


@jit_sampler("shape", "dtype")
def _t(key: Array, df: ArrayLike, shape: Shape, dtype: DType) -> Array:
    first, second = split(key)
    half = lax.convert_element_type(df, dtype) / 2
    return normal(first, shape, dtype) * fnp.sqrt(half / gamma(second, half, shape, dtype))


def generalized_normal(key: ArrayLike, p: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Array:
    """Numbers whose density is proportional to `exp(-abs(x)**p)`, `dtype[*shape]`.

    >>> from tracefx import random
    >>> random.generalized_normal(random.key(0), 1.5, (2,)).shape
    (2,)
    """
    one, _ = check_key("generalized_normal", key)
    sizes = sizes_of("generalized_normal", shape)
    return _generalized_normal(one, p, sizes, float_dtype("generalized_normal", dtype))


@jit_sampler("shape", "dtype")
def _generalized_normal(key: Array, p: ArrayLike, shape: Shape, dtype: DType) -> Array:
    first, second = split(key)
    power = fnp.true_divide(1, p)
    return rademacher(second, shape, dtype) * fnp.power(gamma(first, power, shape, dtype), power)


def ball(key: ArrayLike, d: int, p: ArrayLike = 2, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Array:
    """Points of the unit ball of the norm of order `p` in `d` dimensions, `dtype[*shape, d]`, all equally likely.

    The method is that of Barthe, Guédon, Mendelson and Naor, A probabilistic approach to the geometry of the lp-ball,
    Annals of Probability 33 (2005).

    >>> from tracefx import random
    >>> random.ball(random.key(0), 3, shape=(2,)).shape
    (2, 3)
    """
    one, _ = check_key("ball", key)
    (size,) = static_shape("ball", (d,), "d")
    return _ball(one, p, size, sizes_of("ball", shape), float_dtype("ball", dtype))


@jit_sampler("d", "shape", "dtype")
def _ball(key: Array, p: ArrayLike, d: int, shape: Shape, dtype: DType) -> Array:
    first, second = split(key)
    g = generalized_normal(first, p, (*shape, d), dtype)
    e = exponential(second, shape, dtype)
    size = fnp.power(fnp.sum(fnp.power(fnp.abs(g), p), axis=-1) + e, fnp.true_divide(1, p))
    return g / size[..., None]
