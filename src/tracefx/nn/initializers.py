"""Weight initializers: functions of a random key, a shape and a dtype."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias, final

from attrs import field, frozen
from typing_extensions import override

import tracefx.numpy as fnp
from tracefx import random
from tracefx.core import Array, ArrayLike, DType, DTypeLike, Shape, as_value, dtypes, to_numpy
from tracefx.core.handler import Tracer
from tracefx.filtered_tracebacks import api_boundary
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.ops.static_integers import canonicalize_axis
from tracefx.transforms.shardings import OutSharding, constrain_result

FanMode: TypeAlias = Literal["fan_in", "fan_out", "fan_avg", "fan_geo_avg"]
InitializerDistribution: TypeAlias = Literal["truncated_normal", "normal", "uniform"]
AxisSpec: TypeAlias = int | Sequence[int]


class Initializer(Protocol):
    """The type of initializers: functions that draw an array of a shape and dtype from a random key.

    Args:
        key: a random key.
        shape: the shape of the array.
        dtype: the dtype of the array; None means the default of the initializer.
    """

    def __call__(self, key: ArrayLike, shape: ShapeLike, dtype: DTypeLike | None = None) -> Array: ...


class _BaseInitializer:
    """Base class of initializers with a default dtype. Initializers of equal parameters are equal."""

    dtype: DTypeLike | None

    def __call__(
        self, key: ArrayLike, shape: ShapeLike, dtype: DTypeLike | None = None, out_sharding: OutSharding = None
    ) -> Array:
        requested = self.dtype if dtype is None else dtype
        canonical = dtypes.default_float() if requested is None else dtypes.as_dtype(requested)
        return _constrained(self.draw(key, sizes_of("initializer", shape), canonical), out_sharding)

    @abstractmethod
    def draw(self, key: ArrayLike, shape: Shape, dtype: DType) -> Array:
        """Draws an array of this shape and dtype."""
        raise NotImplementedError


def _constrained(x: Array, out_sharding: OutSharding) -> Array:
    return x if out_sharding is None else constrain_result(x, out_sharding, "initializer")


def _equality_key(x: ArrayLike) -> object:
    """Returns the comparison key of a parameter: scalars by value, arrays by type and contents, tracers by id."""
    if isinstance(x, bool | int | float | complex):
        return x
    value = as_value(x)
    return id(value) if isinstance(value, Tracer) else (value.aval, to_numpy(value).tobytes())


# ------------------------------------------------------------------ constants


@api_boundary
def zeros(key: ArrayLike, shape: ShapeLike, dtype: DTypeLike | None = None, out_sharding: OutSharding = None) -> Array:
    """Returns an array of zeros; the key is not used.

    Args:
        key: ignored.
        shape: the shape of the array.
        dtype: the dtype of the array; the default float dtype by default.
        out_sharding: the sharding of the array, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    >>> from tracefx import random
    >>> zeros(random.key(0), (2,)).tolist()
    [0.0, 0.0]
    """
    return _constrained(fnp.zeros(shape, dtypes.default_float() if dtype is None else dtype), out_sharding)


@api_boundary
def ones(key: ArrayLike, shape: ShapeLike, dtype: DTypeLike | None = None, out_sharding: OutSharding = None) -> Array:
    """Returns an array of ones; the key is not used.

    Args:
        key: ignored.
        shape: the shape of the array.
        dtype: the dtype of the array; the default float dtype by default.
        out_sharding: the sharding of the array, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    >>> from tracefx import random
    >>> ones(random.key(0), (2,)).tolist()
    [1.0, 1.0]
    """
    return _constrained(fnp.ones(shape, dtypes.default_float() if dtype is None else dtype), out_sharding)


@final
@frozen
class _Constant(_BaseInitializer):
    value: ArrayLike = field(eq=_equality_key)
    dtype: DTypeLike | None

    @override
    def draw(self, key: ArrayLike, shape: Shape, dtype: DType) -> Array:
        return fnp.full(shape, self.value, dtype)


def constant(value: ArrayLike, dtype: DTypeLike | None = None) -> Initializer:
    """Returns an initializer that fills arrays with `value`.

    Args:
        value: a number, or an array that broadcasts to the shape.
        dtype: the dtype used when the initializer is called without one; None means the default float dtype.

    Returns:
        An initializer: a function of a key, a shape and optionally a dtype.

    >>> from tracefx import random
    >>> constant(7)(random.key(0), (2,), "int32").tolist()
    [7, 7]
    """
    return _Constant(value, dtype)


# ------------------------------------------------------------------ fixed scale


@final
@frozen
class _Scaled(_BaseInitializer):
    sampler: Callable[[ArrayLike, Shape, DType], Array]
    scale: ArrayLike = field(eq=_equality_key)
    dtype: DTypeLike | None

    @override
    def draw(self, key: ArrayLike, shape: Shape, dtype: DType) -> Array:
        return self.sampler(key, shape, dtype) * fnp.asarray(self.scale, dtype)


def uniform(scale: ArrayLike = 0.01, dtype: DTypeLike | None = None) -> Initializer:
    """Returns an initializer that draws uniformly from the interval from 0 to `scale`.

    Args:
        scale: the upper end of the interval.
        dtype: the dtype used when the initializer is called without one; None means the default float dtype.

    Returns:
        An initializer: a function of a key, a shape and optionally a dtype.

    >>> from tracefx import random
    >>> bool((uniform(5.0)(random.key(0), (9,)) < 5).all())
    True
    """
    return _Scaled(random.uniform, scale, dtype)


def normal(stddev: ArrayLike = 0.01, dtype: DTypeLike | None = None) -> Initializer:
    """Returns an initializer that draws from the normal distribution with mean 0.

    Args:
        stddev: the standard deviation.
        dtype: the dtype used when the initializer is called without one; None means the default float dtype.

    Returns:
        An initializer: a function of a key, a shape and optionally a dtype.

    >>> from tracefx import random
    >>> normal()(random.key(0), (2, 3)).shape
    (2, 3)
    """
    return _Scaled(random.normal, stddev, dtype)


@final
@frozen
class _TruncatedNormal(_BaseInitializer):
    stddev: ArrayLike = field(eq=_equality_key)
    dtype: DTypeLike | None
    lower: ArrayLike = field(eq=_equality_key)
    upper: ArrayLike = field(eq=_equality_key)

    @override
    def draw(self, key: ArrayLike, shape: Shape, dtype: DType) -> Array:
        drawn = random.truncated_normal(key, self.lower, self.upper, shape, dtype)
        return drawn * fnp.asarray(self.stddev, dtype)


def truncated_normal(
    stddev: ArrayLike = 0.01, dtype: DTypeLike | None = None, lower: ArrayLike = -2.0, upper: ArrayLike = 2.0
) -> Initializer:
    """Returns an initializer that draws from the truncated standard normal distribution, times `stddev`.

    Args:
        stddev: the factor of the draws.
        dtype: the dtype used when the initializer is called without one; None means the default float dtype.
        lower: the lower bound, before multiplication by `stddev`.
        upper: the upper bound, before multiplication by `stddev`.

    Returns:
        An initializer: a function of a key, a shape and optionally a dtype.

    >>> from tracefx import random
    >>> bool((abs(truncated_normal(1.0)(random.key(0), (9,))) <= 2).all())
    True
    """
    return _TruncatedNormal(stddev, dtype, lower, upper)


# ------------------------------------------------------------------ variance scaling


@final
@frozen
class _VarianceScaling(_BaseInitializer):
    scale: ArrayLike = field(eq=_equality_key)
    mode: FanMode
    distribution: InitializerDistribution
    in_axis: AxisSpec
    out_axis: AxisSpec
    batch_axis: AxisSpec
    dtype: DTypeLike | None

    @override
    def draw(self, key: ArrayLike, shape: Shape, dtype: DType) -> Array:
        fan_in, fan_out = _fans(shape, self.in_axis, self.out_axis, self.batch_axis)
        counts = {
            "fan_in": fan_in,
            "fan_out": fan_out,
            "fan_avg": (fan_in + fan_out) / 2,
            "fan_geo_avg": math.sqrt(fan_in * fan_out),
        }
        variance = fnp.asarray(fnp.true_divide(self.scale, counts[self.mode]), dtype)
        if self.distribution == "normal":
            return random.normal(key, shape, dtype) * fnp.sqrt(variance)
        is_real = dtypes.is_float(dtype)
        if self.distribution == "uniform":
            if is_real:
                return random.uniform(key, shape, dtype, -1) * fnp.sqrt(3 * variance)
            return _uniform_disk(key, shape, dtype) * fnp.sqrt(variance)
        # The divisors are the standard deviations of normal distributions, real and complex, truncated to abs(x) <= 2.
        if is_real:
            return random.truncated_normal(key, -2, 2, shape, dtype) * (
                fnp.sqrt(variance) / fnp.asarray(0.87962566103423978, dtype)
            )
        return _truncated_disk(key, shape, dtype) * (fnp.sqrt(variance) / fnp.asarray(0.95311164380491208, dtype))


def _size(shape: Shape, axes: AxisSpec) -> int:
    """Returns the product of the sizes of some axes."""
    return math.prod([shape[axis] for axis in ([axes] if isinstance(axes, int) else axes)])


def _fans(shape: Shape, in_axis: AxisSpec, out_axis: AxisSpec, batch_axis: AxisSpec) -> tuple[float, float]:
    """Returns the fan-in and the fan-out: inputs per output, and outputs per input."""
    if in_axis == -2 and len(shape) < 2:
        raise ValueError(
            f"an initializer that depends on the fan-in needs two axes or more, got shape {shape}; or pass in_axis"
        )
    inputs, outputs = _size(shape, in_axis), _size(shape, out_axis)
    field = math.prod(shape) / inputs / outputs / _size(shape, batch_axis)
    return inputs * field, outputs * field


def _random_phases(radii: Array, key: Array, shape: Shape, dtype: DType) -> Array:
    """Multiplies radii by uniformly distributed complex numbers of absolute value 1."""
    angles = 2 * math.pi * random.uniform(key, shape, dtypes.real_dtype(dtype)).astype(dtype)
    return radii * fnp.exp(1j * angles)


def _uniform_disk(key: ArrayLike, shape: Shape, dtype: DType) -> Array:
    """Draws complex numbers uniformly from a disk, with mean square 1."""
    first, second = random.split(key)
    radii = fnp.sqrt(2 * random.uniform(first, shape, dtypes.real_dtype(dtype))).astype(dtype)
    return _random_phases(radii, second, shape, dtype)


def _truncated_disk(key: ArrayLike, shape: Shape, dtype: DType) -> Array:
    """Draws complex normal numbers with absolute values of at most 2."""
    first, second = random.split(key)
    probability = (1 - fnp.exp(fnp.asarray(-4, dtype))) * random.uniform(first, shape, dtypes.real_dtype(dtype)).astype(
        dtype
    )
    return _random_phases(fnp.sqrt(-fnp.log(1 - probability)), second, shape, dtype)


@api_boundary
def variance_scaling(
    scale: ArrayLike,
    mode: FanMode,
    distribution: InitializerDistribution,
    in_axis: AxisSpec = -2,
    out_axis: AxisSpec = -1,
    batch_axis: AxisSpec = (),
    dtype: DTypeLike | None = None,
) -> Initializer:
    """Returns an initializer that adapts the variance to the layer: `scale / n`, where `n` depends on `mode`.

    Args:
        scale: the numerator of the variance.
        mode: the denominator: `"fan_in"` is the number of inputs per output, `"fan_out"` the number of outputs per
            input, `"fan_avg"` and `"fan_geo_avg"` are their arithmetic and geometric mean.
        distribution: `"truncated_normal"` (truncated at two standard deviations), `"normal"` or `"uniform"`.
        in_axis: the axis or axes of inputs. Axes that are neither inputs, outputs nor batch are the receptive field.
        out_axis: the axis or axes of outputs.
        batch_axis: axes of independent layers, which do not count.
        dtype: the dtype used when the initializer is called without one; None means the default float dtype.

    Returns:
        An initializer: a function of a key, a shape and optionally a dtype.

    Raises:
        ValueError: if `mode` or `distribution` is unknown; when called, if the shape has too few axes.

    >>> from tracefx import random
    >>> variance_scaling(2.0, "fan_in", "normal")(random.key(0), (8, 4)).shape
    (8, 4)
    """
    if mode not in ("fan_in", "fan_out", "fan_avg", "fan_geo_avg"):
        raise ValueError(f"variance_scaling: mode must be fan_in, fan_out, fan_avg or fan_geo_avg, got {mode!r}")
    if distribution not in ("truncated_normal", "normal", "uniform"):
        raise ValueError(
            f"variance_scaling: distribution must be truncated_normal, normal or uniform, got {distribution!r}"
        )
    return _VarianceScaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)


def glorot_uniform(
    in_axis: AxisSpec = -2, out_axis: AxisSpec = -1, batch_axis: AxisSpec = (), dtype: DTypeLike | None = None
) -> Initializer:
    """Returns the Glorot (Xavier) uniform initializer, `variance_scaling(1, "fan_avg", "uniform")`.

    Glorot and Bengio, Understanding the difficulty of training deep feedforward neural networks (2010).

    Args:
        in_axis: the axis or axes of inputs.
        out_axis: the axis or axes of outputs.
        batch_axis: axes of independent layers, which do not count.
        dtype: the dtype used when the initializer is called without one; None means the default float dtype.

    Returns:
        An initializer: a function of a key, a shape and optionally a dtype.

    >>> from tracefx import random
    >>> glorot_uniform()(random.key(0), (2, 3)).shape
    (2, 3)
    """
    return variance_scaling(1.0, "fan_avg", "uniform", in_axis, out_axis, batch_axis, dtype)


def glorot_normal(
    in_axis: AxisSpec = -2, out_axis: AxisSpec = -1, batch_axis: AxisSpec = (), dtype: DTypeLike | None = None
) -> Initializer:
    """Returns the Glorot (Xavier) normal initializer, `variance_scaling(1, "fan_avg", "truncated_normal")`.

    Glorot and Bengio, Understanding the difficulty of training deep feedforward neural networks (2010).

    Args:
        in_axis: the axis or axes of inputs.
        out_axis: the axis or axes of outputs.
        batch_axis: axes of independent layers, which do not count.
        dtype: the dtype used when the initializer is called without one; None means the default float dtype.

    Returns:
        An initializer: a function of a key, a shape and optionally a dtype.

    >>> from tracefx import random
    >>> glorot_normal()(random.key(0), (2, 3)).shape
    (2, 3)
    """
    return variance_scaling(1.0, "fan_avg", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def lecun_uniform(
    in_axis: AxisSpec = -2, out_axis: AxisSpec = -1, batch_axis: AxisSpec = (), dtype: DTypeLike | None = None
) -> Initializer:
    """Returns the LeCun uniform initializer, `variance_scaling(1, "fan_in", "uniform")`.

    LeCun, Bottou, Orr and Müller, Efficient backprop (1998).

    Args:
        in_axis: the axis or axes of inputs.
        out_axis: the axis or axes of outputs.
        batch_axis: axes of independent layers, which do not count.
        dtype: the dtype used when the initializer is called without one; None means the default float dtype.

    Returns:
        An initializer: a function of a key, a shape and optionally a dtype.

    >>> from tracefx import random
    >>> lecun_uniform()(random.key(0), (2, 3)).shape
    (2, 3)
    """
    return variance_scaling(1.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def lecun_normal(
    in_axis: AxisSpec = -2, out_axis: AxisSpec = -1, batch_axis: AxisSpec = (), dtype: DTypeLike | None = None
) -> Initializer:
    """Returns the LeCun normal initializer, `variance_scaling(1, "fan_in", "truncated_normal")`.

    LeCun, Bottou, Orr and Müller, Efficient backprop (1998).

    Args:
        in_axis: the axis or axes of inputs.
        out_axis: the axis or axes of outputs.
        batch_axis: axes of independent layers, which do not count.
        dtype: the dtype used when the initializer is called without one; None means the default float dtype.

    Returns:
        An initializer: a function of a key, a shape and optionally a dtype.

    >>> from tracefx import random
    >>> lecun_normal()(random.key(0), (2, 3)).shape
    (2, 3)
    """
    return variance_scaling(1.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def he_uniform(
    in_axis: AxisSpec = -2, out_axis: AxisSpec = -1, batch_axis: AxisSpec = (), dtype: DTypeLike | None = None
) -> Initializer:
    """Returns the He (Kaiming) uniform initializer, `variance_scaling(2, "fan_in", "uniform")`.

    He, Zhang, Ren and Sun, Delving deep into rectifiers (2015).

    Args:
        in_axis: the axis or axes of inputs.
        out_axis: the axis or axes of outputs.
        batch_axis: axes of independent layers, which do not count.
        dtype: the dtype used when the initializer is called without one; None means the default float dtype.

    Returns:
        An initializer: a function of a key, a shape and optionally a dtype.

    >>> from tracefx import random
    >>> he_uniform()(random.key(0), (2, 3)).shape
    (2, 3)
    """
    return variance_scaling(2.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def he_normal(
    in_axis: AxisSpec = -2, out_axis: AxisSpec = -1, batch_axis: AxisSpec = (), dtype: DTypeLike | None = None
) -> Initializer:
    """Returns the He (Kaiming) normal initializer, `variance_scaling(2, "fan_in", "truncated_normal")`.

    He, Zhang, Ren and Sun, Delving deep into rectifiers (2015).

    Args:
        in_axis: the axis or axes of inputs.
        out_axis: the axis or axes of outputs.
        batch_axis: axes of independent layers, which do not count.
        dtype: the dtype used when the initializer is called without one; None means the default float dtype.

    Returns:
        An initializer: a function of a key, a shape and optionally a dtype.

    >>> from tracefx import random
    >>> he_normal()(random.key(0), (2, 3)).shape
    (2, 3)
    """
    return variance_scaling(2.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


xavier_uniform = glorot_uniform
xavier_normal = glorot_normal
kaiming_uniform = he_uniform
kaiming_normal = he_normal

# ------------------------------------------------------------------ orthogonal


@final
@frozen
class _Orthogonal(_BaseInitializer):
    scale: ArrayLike = field(eq=_equality_key)
    column_axis: int
    dtype: DTypeLike | None

    @override
    def draw(self, key: ArrayLike, shape: Shape, dtype: DType) -> Array:
        if len(shape) < 2:
            raise ValueError(f"an orthogonal initializer needs two axes or more, got shape {shape}")
        canonical_axis = canonicalize_axis("orthogonal", self.column_axis, len(shape))
        if 0 in shape:
            return fnp.zeros(shape, dtype)
        columns, other_sizes = shape[canonical_axis], (*shape[:canonical_axis], *shape[canonical_axis + 1 :])
        matrix = random.orthogonal(key, math.prod(other_sizes), (), dtype, columns)
        return fnp.asarray(self.scale, dtype) * fnp.moveaxis(matrix.reshape(*other_sizes, columns), -1, canonical_axis)


def orthogonal(scale: ArrayLike = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None) -> Initializer:
    """Returns an initializer of orthogonal matrices times `scale`.

    The columns or the rows are orthonormal, whichever are fewer. All axes except `column_axis` are flattened into the
    rows. Saxe, McClelland and Ganguli, Exact solutions to the nonlinear dynamics of learning in deep linear neural
    networks (2013).

    Args:
        scale: the factor of the matrix.
        column_axis: the axis of the columns.
        dtype: the dtype used when the initializer is called without one; None means the default float dtype.

    Returns:
        An initializer for shapes of two or more axes. It raises ValueError for other shapes.

    >>> from tracefx import random
    >>> orthogonal()(random.key(0), (2, 3)).shape
    (2, 3)
    """
    return _Orthogonal(scale, column_axis, dtype)


@final
@frozen
class _DeltaOrthogonal(_BaseInitializer):
    scale: ArrayLike = field(eq=_equality_key)
    column_axis: int
    dtype: DTypeLike | None

    @override
    def draw(self, key: ArrayLike, shape: Shape, dtype: DType) -> Array:
        if len(shape) not in (3, 4, 5):
            raise ValueError(f"a delta-orthogonal initializer needs 3, 4 or 5 axes, got shape {shape}")
        if shape[-1] < shape[-2]:
            raise ValueError(f"a delta-orthogonal initializer needs as many outputs as inputs, or more, got {shape}")
        matrix = orthogonal(self.scale, self.column_axis, dtype)(key, shape[-2:])
        middle = tuple([(n - 1) // 2 for n in shape[:-2]])
        return fnp.zeros(shape, dtype).at[middle].set(matrix)


def delta_orthogonal(scale: ArrayLike = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None) -> Initializer:
    """Returns an initializer of convolution kernels that are an orthogonal matrix at the center and 0 elsewhere.

    Xiao, Bahri, Sohl-Dickstein, Schoenholz and Pennington, Dynamical isometry and a mean field theory of CNNs (2018).

    Args:
        scale: the factor of the matrix.
        column_axis: the axis of the columns, among the last two.
        dtype: the dtype used when the initializer is called without one; None means the default float dtype.

    Returns:
        An initializer for shapes of 3, 4 or 5 axes, the last two of which are inputs and outputs. It raises ValueError
        for other shapes, and if there are fewer outputs than inputs.

    >>> from tracefx import random
    >>> delta_orthogonal()(random.key(0), (3, 3, 2, 4)).shape
    (3, 3, 2, 4)
    """
    return _DeltaOrthogonal(scale, column_axis, dtype)
