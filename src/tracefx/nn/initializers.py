"""Initializers: functions that draw the first parameters of a layer, given a key, a shape and a dtype."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias, final

from attrs import field, frozen
from typing_extensions import override

import tracefx.numpy as fnp
from tracefx import random
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape
from tracefx.core.dtypes import DType, DTypeLike
from tracefx.core.handler import Tracer
from tracefx.core.values import as_value, to_numpy
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.ops.static_integers import canonicalize_axis

FanMode: TypeAlias = Literal["fan_in", "fan_out", "fan_avg", "fan_geo_avg"]
InitializerDistribution: TypeAlias = Literal["truncated_normal", "normal", "uniform"]
AxisSpec: TypeAlias = int | Sequence[int]


class Initializer(Protocol):
    """What draws parameters of a shape and dtype from a key."""

    def __call__(self, key: ArrayLike, shape: ShapeLike, dtype: DTypeLike | None = None) -> Array: ...


class _BaseInitializer:
    """An initializer with a dtype of its own, for those who ask for none. Two of the same parameters are equal."""

    dtype: DTypeLike | None

    def __call__(self, key: ArrayLike, shape: ShapeLike, dtype: DTypeLike | None = None) -> Array:
        wanted = self.dtype if dtype is None else dtype
        kind = dtypes.default_float() if wanted is None else dtypes.as_dtype(wanted)
        return self.draw(key, sizes_of("initializer", shape), kind)

    @abstractmethod
    def draw(self, key: ArrayLike, shape: Shape, dtype: DType) -> Array:
        raise NotImplementedError


def _equality_key(x: ArrayLike) -> object:
    """What tells parameters apart: numbers by value, arrays by type and values, while traced by which tracer it is."""
    if isinstance(x, bool | int | float | complex):
        return x
    value = as_value(x)
    return id(value) if isinstance(value, Tracer) else (value.aval, to_numpy(value).tobytes())


# ------------------------------------------------------------------ the same everywhere


def zeros(key: ArrayLike, shape: ShapeLike, dtype: DTypeLike | None = None) -> Array:
    """Zeros; the key isn't used.

    >>> from tracefx import random
    >>> zeros(random.key(0), (2,)).tolist()
    [0.0, 0.0]
    """
    return fnp.zeros(shape, dtypes.default_float() if dtype is None else dtype)


def ones(key: ArrayLike, shape: ShapeLike, dtype: DTypeLike | None = None) -> Array:
    """Ones; the key isn't used.

    >>> from tracefx import random
    >>> ones(random.key(0), (2,)).tolist()
    [1.0, 1.0]
    """
    return fnp.ones(shape, dtypes.default_float() if dtype is None else dtype)


@final
@frozen
class _Constant(_BaseInitializer):
    value: ArrayLike = field(eq=_equality_key)
    dtype: DTypeLike | None

    @override
    def draw(self, key: ArrayLike, shape: Shape, dtype: DType) -> Array:
        return fnp.full(shape, self.value, dtype)


def constant(value: ArrayLike, dtype: DTypeLike | None = None) -> Initializer:
    """An initializer that gives `value` everywhere.

    >>> from tracefx import random
    >>> constant(7)(random.key(0), (2,), "int32").tolist()
    [7, 7]
    """
    return _Constant(value, dtype)


# ------------------------------------------------------------------ of a given spread


@final
@frozen
class _Uniform(_BaseInitializer):
    scale: ArrayLike = field(eq=_equality_key)
    dtype: DTypeLike | None

    @override
    def draw(self, key: ArrayLike, shape: Shape, dtype: DType) -> Array:
        return random.uniform(key, shape, dtype) * fnp.asarray(self.scale, dtype)


def uniform(scale: ArrayLike = 0.01, dtype: DTypeLike | None = None) -> Initializer:
    """An initializer that draws numbers from 0 to `scale`.

    >>> from tracefx import random
    >>> bool((uniform(5.0)(random.key(0), (9,)) < 5).all())
    True
    """
    return _Uniform(scale, dtype)


@final
@frozen
class _Normal(_BaseInitializer):
    stddev: ArrayLike = field(eq=_equality_key)
    dtype: DTypeLike | None

    @override
    def draw(self, key: ArrayLike, shape: Shape, dtype: DType) -> Array:
        return random.normal(key, shape, dtype) * fnp.asarray(self.stddev, dtype)


def normal(stddev: ArrayLike = 0.01, dtype: DTypeLike | None = None) -> Initializer:
    """An initializer that draws normal numbers with this standard deviation.

    >>> from tracefx import random
    >>> normal()(random.key(0), (2, 3)).shape
    (2, 3)
    """
    return _Normal(stddev, dtype)


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
    """An initializer that draws normal numbers between two bounds, and multiplies them by `stddev`.

    >>> from tracefx import random
    >>> bool((abs(truncated_normal(1.0)(random.key(0), (9,))) <= 2).all())
    True
    """
    return _TruncatedNormal(stddev, dtype, lower, upper)


# ------------------------------------------------------------------ of a spread that suits the layer


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
        # The standard deviations of normal numbers, real and complex, whose absolute values are at most 2.
        if is_real:
            return random.truncated_normal(key, -2, 2, shape, dtype) * (
                fnp.sqrt(variance) / fnp.asarray(0.87962566103423978, dtype)
            )
        return _truncated_disk(key, shape, dtype) * (fnp.sqrt(variance) / fnp.asarray(0.95311164380491208, dtype))


def _size(shape: Shape, axes: AxisSpec) -> int:
    return math.prod([shape[axis] for axis in ([axes] if isinstance(axes, int) else axes)])


def _fans(shape: Shape, in_axis: AxisSpec, out_axis: AxisSpec, batch_axis: AxisSpec) -> tuple[float, float]:
    """How many inputs an output has, and how many outputs an input."""
    if in_axis == -2 and len(shape) < 2:
        raise ValueError(
            f"an initializer that looks at the inputs of a layer needs two axes or more, got shape {shape}; or say "
            "in_axis"
        )
    inputs, outputs = _size(shape, in_axis), _size(shape, out_axis)
    field = math.prod(shape) / inputs / outputs / _size(shape, batch_axis)
    return inputs * field, outputs * field


def _random_phases(radii: Array, key: Array, shape: Shape, dtype: DType) -> Array:
    angles = 2 * math.pi * random.uniform(key, shape, dtypes.real_dtype(dtype)).astype(dtype)
    return radii * fnp.exp(1j * angles)


def _uniform_disk(key: ArrayLike, shape: Shape, dtype: DType) -> Array:
    """Complex numbers of mean square 1, all of a disk equally likely."""
    first, second = random.split(key)
    radii = fnp.sqrt(2 * random.uniform(first, shape, dtypes.real_dtype(dtype))).astype(dtype)
    return _random_phases(radii, second, shape, dtype)


def _truncated_disk(key: ArrayLike, shape: Shape, dtype: DType) -> Array:
    """Normal complex numbers whose absolute values are at most 2."""
    first, second = random.split(key)
    share = (1 - fnp.exp(fnp.asarray(-4, dtype))) * random.uniform(first, shape, dtypes.real_dtype(dtype)).astype(dtype)
    return _random_phases(fnp.sqrt(-fnp.log(1 - share)), second, shape, dtype)


def variance_scaling(
    scale: ArrayLike,
    mode: FanMode,
    distribution: InitializerDistribution,
    in_axis: AxisSpec = -2,
    out_axis: AxisSpec = -1,
    batch_axis: AxisSpec = (),
    dtype: DTypeLike | None = None,
) -> Initializer:
    """An initializer whose numbers have the variance `scale / n`, with `n` the size that `mode` says.

    Args:
        mode: `"fan_in"` is how many inputs an output has, `"fan_out"` how many outputs an input, `"fan_avg"` and
            `"fan_geo_avg"` are the arithmetic and geometric mean of these.
        distribution: `"truncated_normal"`, cut at two standard deviations, `"normal"` or `"uniform"`.
        in_axis, out_axis: the axes of inputs and outputs; those that are neither are of the receptive field.
        batch_axis: axes of layers that have nothing to do with each other.

    Raises ValueError for another mode or distribution, and when called with too few axes.

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
    """`variance_scaling(1, "fan_avg", "uniform")`: Glorot and Bengio (2010). Also called Xavier's.

    >>> from tracefx import random
    >>> glorot_uniform()(random.key(0), (2, 3)).shape
    (2, 3)
    """
    return variance_scaling(1.0, "fan_avg", "uniform", in_axis, out_axis, batch_axis, dtype)


def glorot_normal(
    in_axis: AxisSpec = -2, out_axis: AxisSpec = -1, batch_axis: AxisSpec = (), dtype: DTypeLike | None = None
) -> Initializer:
    """`variance_scaling(1, "fan_avg", "truncated_normal")`: Glorot and Bengio (2010). Also called Xavier's.

    >>> from tracefx import random
    >>> glorot_normal()(random.key(0), (2, 3)).shape
    (2, 3)
    """
    return variance_scaling(1.0, "fan_avg", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def lecun_uniform(
    in_axis: AxisSpec = -2, out_axis: AxisSpec = -1, batch_axis: AxisSpec = (), dtype: DTypeLike | None = None
) -> Initializer:
    """`variance_scaling(1, "fan_in", "uniform")`: LeCun, Bottou, Orr and Müller, Efficient backprop (1998).

    >>> from tracefx import random
    >>> lecun_uniform()(random.key(0), (2, 3)).shape
    (2, 3)
    """
    return variance_scaling(1.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def lecun_normal(
    in_axis: AxisSpec = -2, out_axis: AxisSpec = -1, batch_axis: AxisSpec = (), dtype: DTypeLike | None = None
) -> Initializer:
    """`variance_scaling(1, "fan_in", "truncated_normal")`: LeCun, Bottou, Orr and Müller, Efficient backprop (1998).

    >>> from tracefx import random
    >>> lecun_normal()(random.key(0), (2, 3)).shape
    (2, 3)
    """
    return variance_scaling(1.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def he_uniform(
    in_axis: AxisSpec = -2, out_axis: AxisSpec = -1, batch_axis: AxisSpec = (), dtype: DTypeLike | None = None
) -> Initializer:
    """`variance_scaling(2, "fan_in", "uniform")`: He, Zhang, Ren and Sun (2015). Also called Kaiming's.

    >>> from tracefx import random
    >>> he_uniform()(random.key(0), (2, 3)).shape
    (2, 3)
    """
    return variance_scaling(2.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def he_normal(
    in_axis: AxisSpec = -2, out_axis: AxisSpec = -1, batch_axis: AxisSpec = (), dtype: DTypeLike | None = None
) -> Initializer:
    """`variance_scaling(2, "fan_in", "truncated_normal")`: He, Zhang, Ren and Sun (2015). Also called Kaiming's.

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
        place = canonicalize_axis("orthogonal", self.column_axis, len(shape))
        if 0 in shape:
            return fnp.zeros(shape, dtype)
        columns, rest = shape[place], (*shape[:place], *shape[place + 1 :])
        matrix = random.orthogonal(key, math.prod(rest), (), dtype, columns)
        return fnp.asarray(self.scale, dtype) * fnp.moveaxis(matrix.reshape(*rest, columns), -1, place)


def orthogonal(scale: ArrayLike = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None) -> Initializer:
    """An initializer of matrices with orthonormal columns or rows, of whichever there are fewer, times `scale`.

    Axes but for `column_axis` are taken together. Saxe, McClelland and Ganguli (2013).

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
    """An initializer of convolutions that are an orthogonal matrix at the centre and 0 elsewhere.

    Xiao, Bahri, Sohl-Dickstein, Schoenholz and Pennington (2018).

    >>> from tracefx import random
    >>> delta_orthogonal()(random.key(0), (3, 3, 2, 4)).shape
    (3, 3, 2, 4)
    """
    return _DeltaOrthogonal(scale, column_axis, dtype)
